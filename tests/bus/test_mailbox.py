"""The reader of inboxes: every record to every listener, once and in order, whatever the store does meanwhile."""

import asyncio
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.bus.mailbox import Inbox, Mailbox
from maos.errors import StoreUnavailable
from maos.journal.journal import Record
from maos.store.contract import Recorded

WAIT_S_MAX = 30


@pytest.fixture
async def mailbox(m: Maos) -> Mailbox:
    return m.bus.mailbox


async def command(m: Maos, number: int, to: str = "a") -> None:
    await m.journal.append(f"inbox/{to}", maos.Event("stop_requested", {"grace_s": number}))


async def versions(inbox: Inbox, count: int) -> list[int]:
    async with asyncio.timeout(WAIT_S_MAX):
        return [(await anext(inbox)).version for _ in range(count)]


async def test_the_backlog_comes_before_what_is_written_meanwhile(
    m: Maos, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I19: a listener that keeps the newest version only would lose what was overtaken."""
    await command(m, 1)
    inbox = await mailbox.open("a", after=0)
    page = m.journal.page

    async def slowly(stream: str, **more: Any) -> list[Record]:
        found = await page(stream, **more)
        if found and found[-1].version == 1:
            await command(m, 2)
            await command(m, 3)
            await asyncio.sleep(0.2)  # time enough for the reader to notice them
        return found

    monkeypatch.setattr(m.journal, "page", slowly)
    assert [each.version for each in await inbox.backlog()] == [1, 2, 3]
    monkeypatch.undo()
    await command(m, 4)
    assert await versions(inbox, 1) == [4]


async def test_listeners_of_one_inbox_and_of_others_get_their_own(m: Maos, mailbox: Mailbox) -> None:
    await command(m, 1)
    first, late = await mailbox.open("a", after=0), await mailbox.open("a", after=1)
    other = await mailbox.open("b", after=0)
    for number in range(300):
        await command(m, number)
    await command(m, 0, to="b")
    assert await versions(first, 301) == list(range(1, 302))
    assert await versions(late, 300) == list(range(2, 302))
    assert await versions(other, 1) == [1]
    assert len([task for task in asyncio.all_tasks() if "Mailbox._read" in repr(task)]) == 1, "one reader for all"
    for each in (first, late, other):
        each.close()
    async with asyncio.timeout(WAIT_S_MAX):  # it ends with the last one
        while [task for task in asyncio.all_tasks() if "Mailbox._read" in repr(task)]:
            await asyncio.sleep(0.01)


async def test_one_that_opens_as_the_last_one_closes_is_heard(m: Maos, mailbox: Mailbox) -> None:
    """The reader that is being ended is not taken for one that runs."""
    for number in range(1, 6):
        async with await mailbox.open("a", after=number - 1) as inbox:
            waiting = asyncio.create_task(versions(inbox, 1))
            await asyncio.sleep(0.01)
            await command(m, number)
            assert await waiting == [number]


@pytest.mark.parametrize("method", ["head", "read_log", "read", "wait"])
async def test_an_outage_loses_and_reorders_nothing(
    m: Maos, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """I9, I21: every third call fails, from the first one on."""
    store, calls = m.journal.store, 0
    works = getattr(store, method)

    async def flaky(*arguments: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls % 3 == 1:
            raise StoreUnavailable("away", written=False)
        return await works(*arguments, **more)

    await command(m, 0)
    monkeypatch.setattr("maos.bus.mailbox.PAUSE_S", 0.001)
    monkeypatch.setattr(store, method, flaky)
    inbox = await mailbox.open("a", after=0)
    heard = asyncio.create_task(versions(inbox, 61))
    for number in range(60):
        await command(m, number)
        await asyncio.sleep(0.001)
    assert await heard == list(range(1, 62))
    assert calls > 1


async def test_an_error_that_no_patience_helps_reaches_every_listener(
    m: Maos, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I11: it is an error and not silence; who listens again starts another reader."""
    inboxes = [await mailbox.open(name, after=0) for name in "ab"]
    waiting = [asyncio.create_task(versions(each, 1)) for each in inboxes]
    await asyncio.sleep(0.05)

    async def broken(**more: Any) -> list[Recorded]:
        raise maos.Corrupt("the log cannot be read")

    monkeypatch.setattr(m.journal.store, "read_log", broken)
    await command(m, 1, to="c")
    for each in waiting:
        with pytest.raises(maos.Corrupt, match="the log cannot be read"):
            await each
    monkeypatch.undo()
    await command(m, 1, to="a")
    await command(m, 1, to="b")
    assert [await versions(each, 1) for each in inboxes] == [[1], [1]]


async def test_a_damaged_record_is_an_error_for_its_own_listener_only(
    m: Maos, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I11."""
    page = m.journal.page

    async def damaged(stream: str, **more: Any) -> list[Record]:
        if stream == "inbox/a":
            raise maos.Corrupt("inbox/a@1 does not match its hash")
        return await page(stream, **more)

    monkeypatch.setattr(m.journal, "page", damaged)
    bad, good = await mailbox.open("a", after=0), await mailbox.open("b", after=0)
    await command(m, 1, to="a")
    await command(m, 1, to="b")
    with pytest.raises(maos.Corrupt, match="inbox/a@1"):
        await versions(bad, 1)
    assert await versions(good, 1) == [1]


async def test_a_reader_that_was_killed_by_a_bug_is_started_again(m: Maos, mailbox: Mailbox) -> None:
    inbox = await mailbox.open("a", after=0)
    await command(m, 1)
    assert await versions(inbox, 1) == [1]
    assert mailbox._reader is not None
    waiting = asyncio.create_task(versions(inbox, 1))
    await asyncio.sleep(0.01)
    mailbox._reader.cancel()
    await asyncio.sleep(0.01)
    await command(m, 2)
    assert await waiting == [2]


async def test_what_the_reader_hands_over_is_not_read_again(
    m: Maos, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    await command(m, 1)
    inbox = await mailbox.open("a", after=0)
    assert await versions(inbox, 1) == [1]
    read: list[int] = []
    page = m.journal.page

    async def counted(stream: str, **more: Any) -> list[Record]:
        read.append(more["after"])
        return await page(stream, **more)

    monkeypatch.setattr(m.journal, "page", counted)
    for number in range(2, 52):
        await command(m, number)
        assert await versions(inbox, 1) == [number]
    assert read == []


async def test_what_the_reader_hands_over_is_verified(
    m: Maos, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event that does not follow the one before it is read from the inbox again, which names the damage."""
    await command(m, 1)
    inbox = await mailbox.open("a", after=0)
    assert await versions(inbox, 1) == [1]
    read_log = m.journal.store.read_log

    async def damaged(**more: Any) -> list[Recorded]:
        found = await read_log(**more)
        return [each._replace(body=b'{"grace_s":666}') if each.stream == "inbox/a" else each for each in found]

    monkeypatch.setattr(m.journal.store, "read_log", damaged)
    await command(m, 2)
    async with asyncio.timeout(WAIT_S_MAX):
        assert (await anext(inbox)).data["grace_s"] == 2
