"""Receiving: in order, again until acknowledged, never after that, and one bad message stops nobody (I19, I20, I21)."""

import asyncio
import time
from typing import Any

import apsw
import pytest

import maos
from maos.app import Maos
from maos.bus import acknowledgements, mailbox
from maos.bus import receiver as receivers
from maos.bus.receiver import MessageExpired
from maos.errors import InvalidInput, LeaseLost, NotFound, StoreUnavailable
from maos.store.contract import Recorded
from maos_testing.manual_clock import ManualClock
from tests.bus.receivers import die, finish, nothing_comes, take

SHORT_S = 0.4
LONGER_S = 1.0  # where a pause of a busy machine must not count as work that took too long


async def send(m: Maos, *texts: str, to: str = "b", **more: float) -> None:
    for text in texts:
        await m.bus.send("a", to, text, **more)  # type: ignore[arg-type]


async def test_messages_come_in_the_order_they_were_sent(m: Maos) -> None:
    """I21, for what waited and for what comes while somebody receives."""
    await send(m, *map(str, range(300)))
    receiver = m.bus.receive("b")
    assert await finish(receiver, 300) == [str(number) for number in range(300)]
    first = asyncio.create_task(finish(receiver, 200))
    await send(m, *map(str, range(200)))
    assert await first == [str(number) for number in range(200)]


async def test_many_senders_each_in_their_order(m: Maos) -> None:
    """I21."""

    async def talk(sender: str) -> None:
        for number in range(40):
            await m.bus.send(sender, "b", f"{sender} {number}")

    receiving_all = asyncio.create_task(finish(m.bus.receive("b"), 200))
    await asyncio.gather(*(talk(f"a{number}") for number in range(5)))
    texts = await receiving_all
    for sender in (f"a{number}" for number in range(5)):
        assert [text for text in texts if text.startswith(sender)] == [f"{sender} {number}" for number in range(40)]


async def test_what_is_acknowledged_never_comes_again(m: Maos, place: str) -> None:
    """I19, over a restart of everything; R-302: what is not acknowledged is not forgotten."""
    await send(m, "one", "two", "three")
    async with m.bus.receive("b") as receiver:
        deliveries = await take(receiver, 3)
        await deliveries[1].ack()
        await deliveries[1].ack()
    assert [each.message.text async for each in m.bus.waiting("b")] == ["one", "three"]
    assert await finish(m.bus.receive("b"), 2) == ["one", "three"]
    assert [each async for each in m.bus.waiting("b")] == []


async def test_what_a_dead_receiver_had_goes_to_the_next_one(m: Maos) -> None:
    """I20: within the time a delivery has, and a second."""
    await send(m, "one", "two")
    dead = m.bus.receive("b", visibility_s=SHORT_S)
    held = await take(dead, 2)
    await die(dead)
    began = time.monotonic()
    heir = m.bus.receive("b", visibility_s=SHORT_S)
    [again] = await take(heir)
    assert time.monotonic() - began < SHORT_S + 1 + 20  # and whatever a busy machine adds
    assert (again.message.text, again.tries) == ("one", 2)
    assert again.token > held[0].token
    with pytest.raises(MessageExpired, match="another receiver has taken over"):
        await held[0].ack()
    with pytest.raises(LeaseLost):
        await held[1].reject("no")
    await again.ack()
    assert await finish(heir, 1) == ["two"]


async def test_an_expired_token_is_refused_even_when_nobody_has_taken_over(still: Maos, clock: ManualClock) -> None:
    """I20."""
    await send(still, "one")
    receiver = still.bus.receive("b", visibility_s=30)
    [delivery] = await take(receiver)
    await die(receiver)
    clock.advance(31)
    with pytest.raises(MessageExpired):
        await delivery.ack()
    assert [each.message.text async for each in still.bus.waiting("b")] == ["one"]


async def test_only_one_receives_at_a_time(m: Maos) -> None:
    """I21: two would get messages of one sender in no order."""
    await send(m, "one", "two")
    first, second = m.bus.receive("b"), m.bus.receive("b")
    await take(first)
    assert await nothing_comes(second)
    await first.close()
    assert await finish(second, 2) == ["one", "two"]


async def test_a_receiver_that_works_too_long_gets_it_again(m: Maos) -> None:
    """The time a delivery has is for the work, too; one who needs longer says so."""
    await send(m, "one")
    receiver = m.bus.receive("b", visibility_s=LONGER_S)
    [slow] = await take(receiver)
    [again] = await take(receiver)
    assert (again.message.text, again.tries) == ("one", 2)
    with pytest.raises(MessageExpired):
        await slow.ack()
    for _ in range(6):
        again.extend()
        await asyncio.sleep(LONGER_S / 4)
    await again.ack()
    assert [each async for each in m.bus.waiting("b")] == []


async def test_an_idle_receiver_keeps_its_right(m: Maos) -> None:
    receiver = m.bus.receive("b", visibility_s=SHORT_S)
    other = m.bus.receive("b", visibility_s=SHORT_S)
    assert await nothing_comes(receiver, 0.1)
    assert await nothing_comes(other, 3 * SHORT_S)
    await send(m, "one")
    assert await finish(receiver, 1) == ["one"]


async def test_a_message_that_kills_its_receivers_is_parked_and_stops_no_other(m: Maos) -> None:
    """I21: only the one that kills is counted; those that were handed out with it live on."""
    await send(m, "fine", "poison", *(f"later {number}" for number in range(20)))
    lives = 0
    for _ in range(20):
        lives += 1
        receiver = m.bus.receive("b", tries_max=3)
        [delivery] = await take(receiver)
        if delivery.message.text == "fine":
            await delivery.ack()
            [delivery] = await take(receiver)
        if delivery.message.text != "poison":
            break
        if lives > 1:
            assert await nothing_comes(receiver, 0.1), "what was in dead hands is handed out alone"
        await receiver.close()  # it died of it, and its lease has run out
    assert lives == 4
    [letter] = [each async for each in m.bus.dead_letters()]
    assert (letter.name, letter.message.text, letter.tries) == ("b", "poison", 4)
    assert letter.why == "it was delivered 3 times and never acknowledged"
    assert delivery.message.text == "later 0"
    await delivery.ack()
    assert await finish(receiver, 19) == [f"later {number}" for number in range(1, 20)]


async def test_what_comes_behind_a_message_that_kills_is_not_counted_as_tried(still: Maos) -> None:
    """I21."""
    await send(still, "poison")
    for life in range(3):
        async with still.bus.receive("b", tries_max=3) as receiver:
            [delivery] = await take(receiver)
            assert delivery.message.text == "poison"
        if life == 0:
            await send(still, "fresh")
    [delivery] = await take(still.bus.receive("b", tries_max=3))
    assert (delivery.message.text, delivery.tries) == ("fresh", 1)


async def test_a_rejected_message_is_a_dead_letter_that_can_be_sent_again(m: Maos) -> None:
    await send(m, "one", "two")
    receiver = m.bus.receive("b")
    one, two = await take(receiver, 2)
    await one.reject("not for me")
    await one.reject("not for me")
    await one.ack()
    await two.ack()
    [letter] = [each async for each in m.bus.dead_letters("b")]
    assert (letter.version, letter.why, letter.tries, letter.message.text) == (1, "not for me", 1, "one")
    assert [each async for each in m.bus.dead_letters("somebody else")] == []
    await m.bus.requeue("b", letter.version)
    assert [each async for each in m.bus.dead_letters()] == []
    with pytest.raises(NotFound, match="no dead letter 1"):
        await m.bus.requeue("b", letter.version)
    [again] = await take(receiver)
    assert (again.message.text, again.message.id, again.version) == ("one", letter.message.id, 3)


async def test_a_dead_letter_is_sent_again_once_by_two_at_the_same_time(m: Maos) -> None:
    await send(m, "one", "two")
    for delivery in await take(m.bus.receive("b"), 2):
        await delivery.reject("no")
    wishes = [m.bus.requeue("b", version) for version in (1, 1, 2)]
    done = await asyncio.gather(*wishes, return_exceptions=True)
    assert [type(each) for each in done].count(NotFound) == 1
    assert sorted([each.message.text async for each in m.bus.waiting("b")]) == ["one", "two"]


async def test_a_released_message_comes_again_until_its_tries_are_used_up(m: Maos) -> None:
    await send(m, "one", "two")
    receiver = m.bus.receive("b", tries_max=3)
    one, two = await take(receiver, 2)
    await two.ack()
    for tries in (2, 3):
        await one.release("the disk is full")
        [one] = await take(receiver)
        assert (one.message.text, one.tries) == ("one", tries)
    await one.release("the disk is still full")
    [letter] = [each async for each in m.bus.dead_letters()]
    assert (letter.why, letter.tries) == ("the disk is still full", 3)
    assert [each async for each in m.bus.waiting("b")] == []


async def test_what_nobody_took_in_time_is_a_dead_letter(still: Maos, clock: ManualClock) -> None:
    """I18: it is delivered, or it is a dead letter with a reason."""
    await send(still, "old", ttl_s=10)
    await send(still, "new", ttl_s=100)
    clock.advance(11)
    assert await finish(still.bus.receive("b"), 1) == ["new"]
    [letter] = [each async for each in still.bus.dead_letters()]
    assert (letter.message.text, letter.why) == ("old", "it was not received within its time to live")
    await send(still, "also old", to="c", ttl_s=10)
    clock.advance(11)
    await still.bus.expire("c")
    await still.bus.expire("c")
    assert [each.message.text async for each in still.bus.dead_letters("c")] == ["also old"]
    assert [each async for each in still.bus.waiting("c")] == []


async def test_what_is_too_old_to_be_restored_is_a_dead_letter_if_somebody_wants_that(
    still: Maos, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-302: by default nothing that is unacknowledged is forgotten; with a window, it can still be sent again."""
    year_s = 365 * 86_400
    await send(still, "old")
    await send(still, "old", to="c")
    clock.advance(year_s)
    await still.bus.expire("c")
    assert [each.message.text async for each in still.bus.waiting("c")] == ["old"]
    await send(still, "new")
    receiver = still.bus.receive("b", restore_s=3_600)
    assert await finish(receiver, 1) == ["new"]
    [letter] = [each async for each in still.bus.dead_letters("b")]
    assert (letter.message.text, letter.why) == ("old", "it was older than restore_s when its receiver started")
    await still.bus.requeue("b", letter.version)
    assert await finish(receiver, 1) == ["old"]

    monkeypatch.setenv("MAOS_RESTORE_MESSAGES", "3600")
    windowed = Maos(still.journal, still.state, clock).bus
    await windowed.expire("c")
    assert [each.message.text async for each in windowed.dead_letters("c")] == ["old"]
    assert [each async for each in windowed.waiting("c")] == []


async def test_a_window_does_not_touch_what_comes_to_one_who_receives_already(still: Maos, clock: ManualClock) -> None:
    """Not even when it had to take up its inbox anew."""
    receiver = still.bus.receive("b", restore_s=60)
    await send(still, "one")
    [one] = await take(receiver)
    await send(still, "two")
    clock.advance(100)
    with pytest.raises(MessageExpired):
        await one.ack()
    assert await finish(receiver, 2) == ["one", "two"]
    assert [each async for each in still.bus.dead_letters()] == []


@pytest.mark.parametrize("given", ["-1", "soon", "nan", "inf"])
async def test_a_window_that_makes_no_sense_is_refused(still: Maos, monkeypatch: Any, given: str) -> None:
    monkeypatch.setenv("MAOS_RESTORE_MESSAGES", given)
    with pytest.raises(InvalidInput, match="MAOS_RESTORE_MESSAGES"):
        _ = Maos(still.journal, still.state, ManualClock()).bus


async def test_not_more_than_a_window_is_in_somebodys_hands(m: Maos) -> None:
    """A20: a long queue is on disk, not in memory."""
    await asyncio.gather(*(send(m, str(number)) for number in range(1_000)))
    receiver = m.bus.receive("b", window=10)
    held = await take(receiver, 10)
    assert await nothing_comes(receiver)
    assert len(receiver._buffer) + len(receiver._out) <= mailbox.PAGE_EVENTS + 10
    await held[0].ack()
    [next_one] = await take(receiver)
    assert next_one.version == 11


async def test_a_slow_receiver_falls_behind_and_misses_nothing(m: Maos, monkeypatch: pytest.MonkeyPatch) -> None:
    """A20, I21: what finds no room is read again later, in order."""
    monkeypatch.setattr(mailbox, "PAGE_EVENTS", 5)
    receiver = m.bus.receive("b", window=2)
    texts = []
    for number in range(6):
        await send(m, *(str(number * 10 + each) for each in range(10)))
        await asyncio.sleep(0.02)  # so that the reader is far ahead
        texts += await finish(receiver, 4)
    texts += await finish(receiver, 36)
    assert texts == [str(number) for number in range(60)]


async def test_a_place_is_found_again_without_reading_everything(
    m: Maos, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """R-304: what was acknowledged long ago costs nothing."""
    monkeypatch.setattr(receivers, "KEEP_EVERY", 10)
    await send(m, *map(str, range(100)))
    async with m.bus.receive("b") as receiver:
        await finish(receiver, 95)
    document = await m.journal.store.load(acknowledgements.KIND, "b")
    assert document is not None
    assert document.version > 80
    fold = await acknowledgements.load(m.journal, "b")
    assert (fold.floor, fold.resolved) == (95, set())
    assert await finish(m.bus.receive("b"), 5) == ["95", "96", "97", "98", "99"]


async def test_a_damaged_fold_costs_only_time(m: Maos) -> None:
    from maos.store.contract import Document

    await send(m, "one", "two")
    async with m.bus.receive("b") as receiver:
        await finish(receiver, 1)
    for body in (b"garbage", b'{"format":9,"fold":{"id":"b","version":99,"floor":9}}'):
        await m.journal.append_all([], documents=[Document(acknowledgements.KIND, "b", 99, body)])
        assert (await acknowledgements.load(m.journal, "b")).floor == 1


async def test_an_ack_that_was_given_up_may_be_repeated(m: Maos) -> None:
    """An ack whose answer nobody waited for is written or not; both are fine."""
    await send(m, *map(str, range(50)))
    receiver = m.bus.receive("b", window=5)
    for number in range(50):
        [delivery] = await take(receiver)
        assert delivery.message.text == str(number)
        if number % 3 == 0:
            task = asyncio.create_task(delivery.ack())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await delivery.ack()
    assert [each async for each in m.bus.waiting("b")] == []


async def test_a_store_that_is_away_for_a_moment_loses_nothing(still: Maos, monkeypatch: pytest.MonkeyPatch) -> None:
    await send(still, "one", "two", "three")
    receiver = still.bus.receive("b", window=1)
    [one] = await take(receiver)
    append_all = still.journal.append_all
    calls = []

    async def fails_once(*arguments: object, **more: object) -> object:
        calls.append(1)
        if len(calls) == 1:
            raise StoreUnavailable("away", written=False)
        return await append_all(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(still.journal, "append_all", fails_once)
    with pytest.raises(StoreUnavailable):
        await one.ack()
    await one.ack()
    assert await finish(receiver, 2) == ["two", "three"]


async def test_wishes_in_an_inbox_are_not_messages(still: Maos) -> None:
    await still.journal.append("inbox/b", maos.Event("stop_requested", {"grace_s": 1}))
    await send(still, "one")
    assert await finish(still.bus.receive("b"), 1) == ["one"]
    assert [each async for each in still.bus.waiting("b")] == []


async def test_a_damaged_message_is_an_error_and_not_one_that_never_came(tmp_path: object) -> None:
    """I11."""
    async with maos.open(f"{tmp_path}/maos.db") as m:
        await send(m, "damaged")
        connection = apsw.Connection(f"{tmp_path}/maos.db")
        connection.execute("UPDATE events SET body = CAST(replace(body, 'damaged', 'DAMAGED') AS BLOB)")
        connection.close()
        with pytest.raises(maos.Corrupt, match="inbox/b@1"):
            await take(m.bus.receive("b"))


async def test_a_reader_that_cannot_read_on_says_so(still: Maos, monkeypatch: pytest.MonkeyPatch) -> None:
    """I11, for what comes while somebody receives; the next one to receive begins anew."""
    read_log = still.journal.store.read_log

    async def damaged(**more: Any) -> list[Recorded]:
        if await read_log(**more):
            raise maos.Corrupt("the log cannot be read after position 0")
        return []

    monkeypatch.setattr(still.journal.store, "read_log", damaged)
    waiting = [asyncio.create_task(take(still.bus.receive(name))) for name in "bc"]
    await asyncio.sleep(0.05)
    await send(still, "one", to="x")
    for each in waiting:
        with pytest.raises(maos.Corrupt, match="the log cannot be read"):
            await each
    monkeypatch.undo()
    await send(still, "two", to="d")
    assert await finish(still.bus.receive("d"), 1) == ["two"]
