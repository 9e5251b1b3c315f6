"""The part of the store contract about writing; see `maos_testing.store_contract`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from maos.errors import Conflict, InvalidInput, KeyReused, MaosError
from maos.store.contract import Appended, Document, Key, RawEvent, Replacement, Store, Write
from maos_testing.store_contract.streams import check_journal, log_of, write

EVERY_BYTE = bytes(range(256))


class AppendContract:
    """Appending events."""

    async def test_positions_and_versions_start_at_one_and_have_no_gaps(self, store: Store) -> None:
        """I4: positions count the journal, versions their stream."""
        assert (await store.append(write("a", b"1")))[:3] == (1, (1,), False)
        assert (await store.append(write("b", b"2", b"3")))[:3] == (3, (2,), False)
        assert (await store.append(write("a", b"4", b"5", b"6")))[:3] == (6, (4,), False)
        assert [(event.position, event.stream, event.version) for event in await log_of(store)] == [
            (1, "a", 1), (2, "b", 1), (3, "b", 2), (4, "a", 2), (5, "a", 3), (6, "a", 4),
        ]  # fmt: skip
        await check_journal(store)

    @pytest.mark.parametrize(
        "body", [b"", b"{}", EVERY_BYTE, EVERY_BYTE * 4096], ids=["empty", "json", "every", "1 MB"]
    )
    async def test_a_body_is_kept_byte_for_byte(self, store: Store, body: bytes) -> None:
        """I1: the store neither looks into bodies nor changes them."""
        await store.append(write("a", body, b"between", body))
        assert [event.body for event in await store.read("a")] == [body, b"between", body]
        await check_journal(store)

    @pytest.mark.parametrize("name", ["a", "agent/é/😀", "a b", "'\"\\%_;--", "名前", "x" * 512, "😀" * 512])
    async def test_a_stream_may_have_any_name(self, store: Store, name: str) -> None:
        """Names are data: no character has a meaning to the database."""
        await store.append(write(name, b"1"))
        await store.append(write(name, b"2", expected=1))
        assert [event.stream for event in await store.read(name)] == [name, name]
        assert await store.streams() == [name]
        await check_journal(store)

    async def test_type_and_format_are_kept(self, store: Store) -> None:
        """I16: the writer of an event stays recorded."""
        events = [RawEvent("state.changed", 0, b""), RawEvent("größer", 1, b""), RawEvent("", 2**40, b"")]
        await store.append(Write("a", events))
        assert [RawEvent(event.type, event.format, event.body) for event in await store.read("a")] == events
        await check_journal(store)

    async def test_an_append_at_the_expected_version_is_accepted(self, store: Store) -> None:
        """I5: 0 means a stream that does not exist yet."""
        await store.append(write("a", b"1", expected=0))
        await store.append(write("a", b"2", b"3", expected=1))
        assert (await store.append(write("a", b"4", expected=3)))[:3] == (4, (4,), False)

    @pytest.mark.parametrize("expected", [0, 1, 3, 99])
    async def test_an_append_at_any_other_version_is_refused(self, store: Store, expected: int) -> None:
        """I5: nothing is written, and the error says where the stream really is."""
        await store.append(write("a", b"1", b"2"))
        with pytest.raises(Conflict) as refused:
            await store.append(write("a", b"x", expected=expected))
        assert (refused.value.stream, refused.value.expected, refused.value.actual) == ("a", expected, 2)
        assert [event.body for event in await log_of(store)] == [b"1", b"2"]

    async def test_a_new_stream_is_refused_when_it_was_expected_to_exist(self, store: Store) -> None:
        """I5: and the refusal does not create it."""
        with pytest.raises(Conflict):
            await store.append(write("a", b"x", expected=1))
        assert await store.streams() == []
        assert (await store.append(write("a", b"1", expected=0)))[:3] == (1, (1,), False)

    async def test_of_many_appends_at_one_version_exactly_one_succeeds(self, store: Store) -> None:
        """I5: and its reply is true."""
        for version in range(5):
            calls = [store.append(write("a", b"%d" % caller, expected=version)) for caller in range(12)]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            won = [caller for caller, outcome in enumerate(outcomes) if isinstance(outcome, Appended)]
            assert len(won) == 1
            assert all(isinstance(each, (Appended, Conflict)) for each in outcomes)
            assert outcomes[won[0]][:3] == (version + 1, (version + 1,), False)  # type: ignore[index]
            assert (await store.read("a", after=version))[0].body == b"%d" % won[0]
        await check_journal(store)

    async def test_concurrent_appends_all_arrive_where_their_replies_say(self, store: Store) -> None:
        """I1, I4: many callers share a transaction, and each gets its own reply."""
        calls = [store.append(write(f"s{number % 5}", b"a%d" % number, b"b%d" % number)) for number in range(100)]
        replies = await asyncio.gather(*calls)
        log = await log_of(store)
        for number, reply in enumerate(replies):
            first, last = log[reply.position - 2 : reply.position]
            assert (first.body, last.body) == (b"a%d" % number, b"b%d" % number)
            assert (last.stream, last.version) == (f"s{number % 5}", reply.version)
        await check_journal(store)

    async def test_a_refused_append_does_not_disturb_those_beside_it(self, store: Store) -> None:
        """I5: all or nothing is per append, also when several share a transaction."""
        await store.append(write("a", b"0"))
        outcomes = await asyncio.gather(
            *(store.append(write("b", b"%d" % number)) for number in range(5)),
            store.append(write("a", b"no", expected=7)),
            store.append(write("a", b"no"), write("c", b"no", expected=1)),
            *(store.append(write("b", b"%d" % number)) for number in range(5, 10)),
            return_exceptions=True,
        )
        assert [isinstance(outcome, Conflict) for outcome in outcomes] == [False] * 5 + [True] * 2 + [False] * 5
        assert sorted(event.body for event in await store.read("b")) == [b"%d" % number for number in range(10)]
        assert await store.version("a") == 1
        assert await store.streams() == ["a", "b"]
        await check_journal(store)

    async def test_several_streams_are_written_together(self, store: Store) -> None:
        """I5: the reply has the version of each, in the order given."""
        await store.append(write("a", b"1"))
        reply = await store.append(write("b", b"2", b"3", expected=0), write("a", b"4", expected=1), write("c", b"5"))
        assert reply[:3] == (5, (2, 2, 1), False)
        assert reply.version == 1
        await check_journal(store)

    async def test_several_streams_are_refused_together(self, store: Store) -> None:
        """I5: whichever of them is not where it was expected."""
        await store.append(write("a", b"1"), write("b", b"2"))
        for wrong in range(3):
            expected = [1, 1, 0]
            expected[wrong] = 5
            with pytest.raises(Conflict):
                await store.append(
                    write("a", b"x", expected=expected[0]),
                    write("b", b"x", expected=expected[1]),
                    write("c", b"x", expected=expected[2]),
                    documents=[Document("view", "k", 1, b"x")],
                )
        assert [event.body for event in await log_of(store)] == [b"1", b"2"]
        assert await store.streams() == ["a", "b"]
        assert await store.load("view", "k") is None

    async def test_events_of_several_streams_are_written_in_the_order_that_they_are_given_in(
        self, store: Store
    ) -> None:
        """I2: a stream may be named again; what it is expected to be at is said once, of before the append."""
        await store.append(write("a", b"0"))
        reply = await store.append(write("a", b"1", expected=1), write("b", b"2", expected=0), write("a", b"3"))
        assert reply[:2] == (4, (2, 1, 3))
        log = await log_of(store)
        assert [(each.stream, each.version, each.body) for each in log] == [
            ("a", 1, b"0"), ("a", 2, b"1"), ("b", 1, b"2"), ("a", 3, b"3"),
        ]  # fmt: skip
        assert (await store.append(write("b", b"4"), write("c", b"5"), write("b", b"6")))[:2] == (7, (2, 1, 3))
        with pytest.raises(InvalidInput):
            await store.append(write("a", b"x"), write("b", b"x"), write("a", b"x", expected=4))
        with pytest.raises(Conflict):
            await store.append(write("a", b"x", expected=2), write("b", b"x"), write("a", b"x"))
        assert await store.head() == 7

    async def test_appending_nothing_writes_nothing(self, store: Store) -> None:
        """The reply says where the journal is."""
        await store.append(write("a", b"1", b"2"))
        assert (await store.append())[:3] == (2, (), False)
        assert (await store.append(write("a")))[:3] == (2, (2,), False)
        with pytest.raises(Conflict):
            await store.append(write("a", expected=1))

    async def test_a_write_without_events_checks_and_does_not_create(
        self, store: Store, open_again: Callable[[], Awaitable[Store]]
    ) -> None:
        """I5: a stream can be watched in an append that writes to others."""
        assert (await store.append(write("watched", expected=0), write("a", b"1")))[:3] == (1, (0, 1), False)
        assert await store.streams() == ["a"]
        await store.append(write("watched", b"2", expected=0))
        await store.append(write("watched too", expected=0), write("a", b"3"))
        other = await open_again()
        await other.append(write("watched too", b"4", expected=0), write("watched", b"5", expected=1))
        await check_journal(store)

    async def test_times_never_decrease_along_the_journal(
        self, store: Store, pass_time: Callable[[float], Awaitable[None]]
    ) -> None:
        """I13: "the state at a time" has one meaning, also after the clock was put back."""
        await store.append(write("a", b"1"))
        await pass_time(60)
        await store.append(write("a", b"2"))
        await pass_time(-3600)
        await store.append(write("b", b"3"))
        first, second, third = [event.time_us for event in await log_of(store)]
        assert second >= first + 59_000_000
        assert third >= second

    async def test_the_reply_tells_the_time_recorded(self, store: Store) -> None:
        """One time for all events of an append."""
        reply = await store.append(write("a", b"1", b"2"), write("b", b"3"))
        assert {event.time_us for event in await log_of(store)} == {reply.time_us}

    async def test_a_caller_that_gives_up_leaves_all_or_nothing(self, store: Store) -> None:
        """I3: cancelled at any time; later appends are served."""
        for after_steps in range(6):
            calls = [
                asyncio.ensure_future(store.append(write("a", b"%d" % after_steps, b"rest")))
                for _ in range(1 + after_steps % 3)
            ]
            for _ in range(after_steps):
                await asyncio.sleep(0)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            await asyncio.wait_for(store.append(write("b", b"%d" % after_steps)), timeout=20)
        bodies = [event.body for event in await store.read("a")]
        assert bodies[1::2] == [b"rest"] * (len(bodies) // 2)
        assert [event.body for event in await store.read("b")] == [b"%d" % number for number in range(6)]
        await check_journal(store)


class KeyContract:
    """Idempotency keys."""

    async def test_a_repeated_key_gives_the_first_reply_and_writes_nothing(self, store: Store) -> None:
        """I3: a caller that did not get the reply repeats the append."""
        key = Key("k", b"what it stands for")
        first = await store.append(write("a", b"1"), write("b", b"2"), key=key)
        await store.append(write("a", b"3"))
        again = await store.append(write("a", b"1"), write("b", b"2"), key=key)
        assert first[:3] == (2, (1, 1), False)
        assert again == Appended(2, (1, 1), repeated=True)
        assert [event.body for event in await log_of(store)] == [b"1", b"2", b"3"]

    async def test_a_repeated_key_is_not_a_conflict(self, store: Store) -> None:
        """I3: the expected version was right the first time; that the stream moved since is its own doing."""
        first = await store.append(write("a", b"1", expected=0), key=Key("k", b"f"))
        assert await store.append(write("a", b"1", expected=0), key=Key("k", b"f")) == first._replace(
            repeated=True, time_us=0
        )

    async def test_a_key_reused_for_something_else_is_refused(self, store: Store) -> None:
        """I3: nothing is written, and the first append keeps its key."""
        await store.append(write("a", b"1"), key=Key("k", b"f"))
        with pytest.raises(KeyReused) as refused:
            await store.append(write("a", b"2"), key=Key("k", b"g"), documents=[Document("view", "k", 1, b"")])
        assert refused.value.key == "k"
        assert await store.head() == 1
        assert await store.load("view", "k") is None
        assert (await store.append(write("a", b"1"), key=Key("k", b"f"))).repeated

    async def test_a_key_repeated_at_the_same_moment_is_written_once(self, store: Store) -> None:
        """I3: also when both are in one transaction."""
        for round_ in range(5):
            key = Key(f"k{round_}", b"f")
            calls = [store.append(write("a", b"%d" % round_), key=key) for _ in range(6)]
            replies = await asyncio.gather(*calls)
            assert sorted(reply.repeated for reply in replies) == [False] + [True] * 5
            assert {reply[:2] for reply in replies} == {(round_ + 1, (round_ + 1,))}
        assert [event.body for event in await store.read("a")] == [b"%d" % round_ for round_ in range(5)]

    async def test_a_key_reused_at_the_same_moment_is_refused(self, store: Store) -> None:
        """I3: one of two different appends has the key, the other learns of it."""
        calls = [store.append(write("a", b"%d" % each), key=Key("k", b"%d" % each)) for each in range(4)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Appended"] + ["KeyReused"] * 3
        assert await store.head() == 1

    async def test_a_key_is_known_after_reopening_and_elsewhere(
        self, store: Store, open_again: Callable[[], Awaitable[Store]]
    ) -> None:
        """I3: the repeat may come from another process, or years later."""
        key = Key("k", EVERY_BYTE)
        first = await store.append(write("a", b"1"), key=key)
        other = await open_again()
        assert await other.append(write("a", b"1"), key=key) == first._replace(repeated=True, time_us=0)
        with pytest.raises(KeyReused):
            await other.append(write("a", b"2"), key=Key("k", b""))
        await store.close()
        again = await open_again()
        assert await again.append(write("a", b"1"), key=key) == first._replace(repeated=True, time_us=0)
        assert await again.head() == 1

    async def test_a_refused_append_leaves_its_key_free(self, store: Store) -> None:
        """I3: a key belongs to an append that was written."""
        await store.append(write("a", b"1"))
        with pytest.raises(Conflict):
            await store.append(write("a", b"2", expected=0), key=Key("k", b"f"))
        assert (await store.append(write("a", b"3"), key=Key("k", b"g")))[:3] == (2, (2,), False)

    async def test_a_key_of_an_append_without_events_counts_too(self, store: Store) -> None:
        """I3: whatever the append was, its repeat gives the first reply."""
        first = await store.append(documents=[Document("view", "k", 1, b"old")], key=Key("k", b"f"))
        await store.append(write("a", b"1"), documents=[Document("view", "k", 1, b"new")])
        again = await store.append(documents=[Document("view", "k", 1, b"old")], key=Key("k", b"f"))
        assert again == first._replace(repeated=True, time_us=0)
        assert await store.load("view", "k") == Document("view", "k", 1, b"new")
        nothing = await store.append(write("a", expected=1), key=Key("nothing", b"f"))
        await store.append(write("a", b"2"))
        assert await store.append(write("a", expected=1), key=Key("nothing", b"f")) == nothing._replace(
            repeated=True, time_us=0
        )

    async def test_keys_are_not_folded(self, store: Store) -> None:
        """Case and accents make different keys."""
        for number, id_ in enumerate(["k", "K", "k ", "ké", "😀"], start=1):
            assert (await store.append(write("a", b""), key=Key(id_, b"f")))[:3] == (number, (number,), False)


class ReplacingContract:
    """Compaction: one event takes the place of several."""

    async def test_one_event_stands_for_the_versions_it_replaces(self, store: Store) -> None:
        """I7: position, time and hash of the last stay, so the chain continues; the versions are still counted."""
        await store.append(write("a", b"1", b"2"), write("b", b"x"))
        await store.append(write("a", b"3", b"4"))
        before = await store.read("a")
        await store.append(replacing=[Replacement("a", 1, 3, RawEvent("merged", 2, b"1-3"))])

        after = await store.read("a")
        assert after == [before[2]._replace(spans=3, type="merged", format=2, body=b"1-3"), before[3]]
        assert (await store.check()).versions == await store.head() == 5
        assert await store.version("a") == 4
        assert [event.position for event in await log_of(store)] == [3, 4, 5]

    async def test_the_stream_goes_on_behind_what_was_replaced(
        self, store: Store, open_again: Callable[[], Awaitable[Store]]
    ) -> None:
        """I4: versions and positions are never used again."""
        await store.append(write("a", b"1", b"2", b"3"))
        last = (await store.read("a"))[-1]
        await store.append(replacing=[Replacement("a", 1, 3, RawEvent("merged", 1, b"all"))])
        await store.append(write("a", b"4", expected=3))
        other = await open_again()
        await other.append(write("a", b"5", expected=4))
        assert [(event.position, event.version, event.spans) for event in await store.read("a")] == [
            (3, 3, 3), (4, 4, 1), (5, 5, 1),
        ]  # fmt: skip
        assert (await store.read("a"))[0].hash == last.hash
        assert await store.streams() == ["a"]

    async def test_replacing_and_appending_are_one(self, store: Store) -> None:
        """I5: a compaction is recorded by an event, or does not happen."""
        await store.append(write("a", b"1", b"2", b"3"))
        merged = Replacement("a", 1, 2, RawEvent("merged", 1, b"1-2"))
        with pytest.raises(Conflict):
            await store.append(write("a", b"compacted", expected=2), replacing=[merged])
        assert [event.body for event in await store.read("a")] == [b"1", b"2", b"3"]
        await store.append(write("a", b"compacted", expected=3), replacing=[merged])
        assert [event.body for event in await store.read("a")] == [b"1-2", b"3", b"compacted"]
        assert (await store.check()).versions == 4

    async def test_several_ranges_are_replaced_together(self, store: Store) -> None:
        """Of one stream and of others, none of which has to be written to."""
        await store.append(write("a", b"1", b"2", b"3", b"4", b"5"), write("b", b"6", b"7"))
        await store.append(
            write("c", b"8"),
            replacing=[
                Replacement("a", 1, 2, RawEvent("merged", 1, b"1-2")),
                Replacement("a", 4, 5, RawEvent("merged", 1, b"4-5")),
                Replacement("b", 2, 2, RawEvent("merged", 1, b"7!")),
            ],
        )
        assert [event.body for event in await log_of(store)] == [b"1-2", b"3", b"4-5", b"6", b"7!", b"8"]
        assert (await store.check()).versions == 8

    async def test_what_was_replaced_can_be_replaced_again(self, store: Store) -> None:
        """With more behind it: compaction is done again and again."""
        await store.append(write("a", b"1", b"2", b"3", b"4"))
        await store.append(replacing=[Replacement("a", 1, 2, RawEvent("merged", 1, b"1-2"))])
        await store.append(replacing=[Replacement("a", 1, 2, RawEvent("merged", 1, b"1-2 again"))])
        await store.append(replacing=[Replacement("a", 1, 4, RawEvent("merged", 1, b"1-4"))])
        assert [(event.version, event.spans, event.body) for event in await store.read("a")] == [(4, 4, b"1-4")]
        assert (await store.check()).versions == 4

    async def test_reading_from_inside_a_replaced_range_gives_the_whole(self, store: Store) -> None:
        """A reader at version 1 of a range 1..3 gets the event that ends at 3, and sees by `spans` what it covers."""
        await store.append(write("a", b"1", b"2", b"3", b"4"))
        await store.append(replacing=[Replacement("a", 1, 3, RawEvent("merged", 1, b"1-3"))])
        assert [(event.version, event.spans) for event in await store.read("a", after=1)] == [(3, 3), (4, 1)]
        assert [event.version for event in await store.read("a", after=4, backwards=True)] == [3]
        assert await store.read("a", after=3, backwards=True) == []

    @pytest.mark.parametrize(("first", "last"), [(0, 1), (-1, 2), (3, 2), (1, 5), (5, 5)])
    async def test_versions_that_do_not_exist_cannot_be_replaced(self, store: Store, first: int, last: int) -> None:
        """I5: nothing of the append is done."""
        await store.append(write("a", b"1", b"2", b"3", b"4"))
        with pytest.raises(InvalidInput):
            await store.append(write("b", b"x"), replacing=[Replacement("a", first, last, RawEvent("merged", 1, b""))])
        with pytest.raises(InvalidInput):
            await store.append(replacing=[Replacement("nowhere", 1, 1, RawEvent("merged", 1, b""))])
        assert [event.body for event in await log_of(store)] == [b"1", b"2", b"3", b"4"]

    @pytest.mark.parametrize(("first", "last"), [(1, 2), (2, 3), (3, 5), (1, 4), (4, 4)])
    async def test_a_range_that_was_replaced_cannot_be_cut(self, store: Store, first: int, last: int) -> None:
        """I8: it would lose versions or count them twice; nothing of the append is done."""
        await store.append(write("a", b"1", b"2", b"3", b"4", b"5", b"6"))
        await store.append(replacing=[Replacement("a", 2, 4, RawEvent("merged", 1, b"2-4"))])
        before = await log_of(store)
        if (first, last) == (1, 4):  # whole events: this one is fine
            await store.append(replacing=[Replacement("a", first, last, RawEvent("merged", 1, b"1-4"))])
        else:
            with pytest.raises(MaosError):
                await store.append(
                    write("b", b"x"), replacing=[Replacement("a", first, last, RawEvent("merged", 1, b""))]
                )
            assert await log_of(store) == before
        assert (await store.check()).versions == await store.head() == 6
