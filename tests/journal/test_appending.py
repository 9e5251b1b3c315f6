"""Appending and reading: versions, positions, conflicts, keys, leases, several streams at once."""

import asyncio
import datetime
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.errors import Conflict, InvalidInput, KeyReused, LeaseLost, UnknownFormat
from maos.journal import journal as journal_module
from maos.journal.journal import Record
from tests.journal.places import Place
from tests.model.data import nested


def note(text: str, **more: Any) -> maos.Event:
    return maos.Event("note", {"text": text, **more})


async def texts(m: Maos, stream: str, **options: Any) -> list[str]:
    """What the notes of a stream say."""
    return [record.data["text"] async for record in m.journal.read(stream, **options)]


class TestAppending:
    async def test_what_was_appended_is_read_back(self, m: Maos) -> None:
        first = await m.journal.append("run/1", note("one"), expected=0)
        second = await m.journal.append("run/1", [note("two"), note("three")], expected=1)
        assert (first.version, first.position, first.repeated) == (1, 1, False)
        assert (second.version, second.position) == (3, 3)
        records = [record async for record in m.journal.read("run/1")]
        assert [(each.version, each.position, each.stream, each.type, each.spans, each.token) for each in records] == [
            (number, number, "run/1", "note", 1, 0) for number in (1, 2, 3)
        ]
        assert [each.id for each in records] == ["run/1@1", "run/1@2", "run/1@3"]
        assert [each.data["text"] for each in records] == ["one", "two", "three"]
        assert records[0].time_us == first.time_us
        assert records[2].time_us == second.time_us >= first.time_us
        assert all(len(each.hash) == 32 and each.size > 0 for each in records)

    async def test_a_part_of_a_stream_is_read(self, m: Maos) -> None:
        await m.journal.append("run/1", [note(str(number)) for number in range(1, 8)])
        assert await texts(m, "run/1", after=5) == ["6", "7"]
        assert await texts(m, "run/1", until=2) == ["1", "2"]
        assert await texts(m, "run/1", after=2, until=4) == ["3", "4"]
        assert await texts(m, "run/1", after=7) == []
        assert await texts(m, "nothing") == []
        for after, page in [(0, [1, 2]), (1, [2, 3]), (6, [7]), (7, [])]:
            assert [each.version for each in await m.journal.page("run/1", after=after, limit=2)] == page

    async def test_a_stream_of_several_pages_is_read_whole(self, m: Maos, monkeypatch: pytest.MonkeyPatch) -> None:
        """The hash chain goes on from page to page (I7)."""
        monkeypatch.setattr(journal_module, "PAGE_EVENTS", 4)
        wanted = [str(number) for number in range(1, 13)]
        await m.journal.append("run/1", [note(each) for each in wanted])
        assert await texts(m, "run/1") == wanted
        assert await texts(m, "run/1", after=3) == wanted[3:]

    async def test_a_stream_is_read_backwards(self, m: Maos) -> None:
        await m.journal.append("run/1", [note(str(number)) for number in range(1, 8)])
        page = await m.journal.page_back("run/1", before=6, limit=3)
        assert [each.version for each in page] == [5, 4, 3]
        assert [each.version for each in await m.journal.page_back("run/1", before=3)] == [2, 1]
        assert await m.journal.page_back("run/1", before=1) == []

    async def test_one_event_is_found_by_its_version(self, m: Maos) -> None:
        await m.journal.append("run/1", [note("one"), note("two")])
        found = await m.journal.event("run/1", 2)
        assert isinstance(found, Record)
        assert found.data == {"text": "two"}
        assert await m.journal.event("run/1", 3) is None

    async def test_versions_head_and_names_are_told(self, m: Maos) -> None:
        assert await m.journal.head() == 0
        assert await m.journal.version("run/1") == 0
        await m.journal.append("run/2", note("a"))
        await m.journal.append("run/1", [note("b"), note("c")])
        await m.journal.append("other", note("d"))
        assert await m.journal.head() == 4
        assert await m.journal.version("run/1") == 2
        assert [name async for name in m.journal.streams()] == ["other", "run/1", "run/2"]
        assert [name async for name in m.journal.streams("run/")] == ["run/1", "run/2"]

    async def test_of_two_who_expect_the_same_version_one_succeeds(self, m: Maos) -> None:
        """I5."""
        await m.journal.append("run/1", note("one"))
        results = await asyncio.gather(
            *(m.journal.append("run/1", note(f"from {who}"), expected=1) for who in range(5)), return_exceptions=True
        )
        conflicts = [each for each in results if isinstance(each, Conflict)]
        assert len(conflicts) == 4
        assert (conflicts[0].stream, conflicts[0].expected, conflicts[0].actual) == ("run/1", 1, 2)
        assert await m.journal.version("run/1") == 2

    async def test_appending_nothing_writes_nothing(self, m: Maos) -> None:
        await m.journal.append("run/1", note("one"))
        assert (await m.journal.append("run/1", [])).version == 1
        assert await m.journal.head() == 1

    @pytest.mark.parametrize("stream", ["", "x" * 513, "tab\tin it", "new\nline", "nul\0", "journal/dictionaries"])
    async def test_what_cannot_name_a_stream_is_refused(self, sqlite: Place, stream: str) -> None:
        async with sqlite.open() as m:
            with pytest.raises(InvalidInput):
                await m.journal.append(stream, note("x"))
            with pytest.raises(InvalidInput):
                await m.journal.append_all([maos.Append(stream, [note("x")])])
            assert await m.journal.head() == 0

    async def test_many_streams_are_more_than_are_remembered(self, m: Maos, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(journal_module, "NAMES_KNOWN_MAX", 3)
        for number in range(8):
            await m.journal.append(f"run/{number}", note("x"))
        assert len([name async for name in m.journal.streams("run/")]) == 8


class TestSeveralStreams:
    async def test_all_are_written_or_none(self, m: Maos) -> None:
        """I5: a batch is all or nothing."""
        reply = await m.journal.append_all(
            [maos.Append("run/1", [note("a"), note("b")], 0), maos.Append("inbox/2", [note("c")])]
        )
        assert reply.versions == (2, 1)
        assert reply.version == 1
        assert reply.position == 3
        with pytest.raises(Conflict) as caught:
            await m.journal.append_all(
                [maos.Append("run/1", [note("d")], 2), maos.Append("inbox/2", [note("e")], expected=7)]
            )
        assert caught.value.stream == "inbox/2"
        assert await texts(m, "run/1") == ["a", "b"]
        assert await texts(m, "inbox/2") == ["c"]

    async def test_a_stream_can_be_named_again_but_expected_only_once(self, m: Maos) -> None:
        await m.journal.append_all(
            [
                maos.Append("run/1", [note("a")], expected=0),
                maos.Append("run/2", [note("b")]),
                maos.Append("run/1", [note("c")]),
            ]
        )
        assert await texts(m, "run/1") == ["a", "c"]
        with pytest.raises(InvalidInput, match="expects two versions"):
            await m.journal.append_all(
                [maos.Append("run/1", [note("d")]), maos.Append("run/1", [note("e")], expected=3)]
            )
        assert await texts(m, "run/1") == ["a", "c"]


class TestKeys:
    async def test_a_repeated_key_writes_nothing_and_gives_the_first_reply(self, m: Maos) -> None:
        """I3."""
        first = await m.journal.append("run/1", [note("a"), note("b")], key="once")
        await m.journal.append("run/1", note("c"))
        again = await m.journal.append("run/1", [note("a"), note("b")], key="once")
        assert again.repeated
        assert (again.position, again.versions) == (first.position, first.versions)
        assert await texts(m, "run/1") == ["a", "b", "c"]

    async def test_a_key_covers_several_streams(self, m: Maos) -> None:
        both = [maos.Append("run/1", [note("a")]), maos.Append("run/2", [note("b")])]
        first = await m.journal.append_all(both, key="once")
        again = await m.journal.append_all(both, key="once")
        assert again.repeated
        assert again.versions == first.versions == (1, 1)
        assert await m.journal.head() == 2

    async def test_a_key_is_repeated_whatever_the_body_was_compressed_with(self, sqlite: Place) -> None:
        """The fingerprint is of the data: the second time there may be a dictionary."""
        long = note("so it is compressed " * 40)
        async with sqlite.open() as m:
            await m.journal.append("run/1", long, key="once")
            for number in range(80):
                await m.journal.append("run/2", note(f"so it is compressed {number} " * 40))
        async with sqlite.open() as m:
            assert (await m.journal.append("run/1", long, key="once")).repeated

    @pytest.mark.parametrize(
        ("stream", "events"),
        [
            ("run/2", [note("a")]),
            ("run/1", [note("b")]),
            ("run/1", [note("a"), note("a")]),
            ("run/1", [maos.Event("state_updated", {"ops": [], "sum": "0"})]),
            ("run/1", []),
        ],
    )
    async def test_a_key_that_comes_back_with_something_else_is_refused(
        self, sqlite: Place, stream: str, events: list[maos.Event]
    ) -> None:
        """I3."""
        async with sqlite.open() as m:
            await m.journal.append("run/1", note("a"), key="once")
            with pytest.raises(KeyReused, match="'once'"):
                await m.journal.append(stream, events, key="once")
            assert await m.journal.head() == 1

    async def test_a_key_survives_a_restart(self, durable: Place) -> None:
        async with durable.open() as m:
            await m.journal.append("run/1", note("a"), key="once")
        async with durable.open() as m:
            assert (await m.journal.append("run/1", note("a"), key="once")).repeated
            assert await m.journal.head() == 1

    @pytest.mark.parametrize("key", ["", "new\nline", "x" * 513])
    async def test_what_cannot_be_a_key_is_refused(self, sqlite: Place, key: str) -> None:
        async with sqlite.open() as m:
            with pytest.raises(InvalidInput, match="key"):
                await m.journal.append("run/1", note("a"), key=key)


class TestLeases:
    async def test_a_lease_is_held_by_one(self, m: Maos) -> None:
        lease = await m.journal.acquire("agent/1", ttl_s=60)
        assert lease is not None
        assert lease.owner == m.journal.owner
        assert await m.journal.acquire("agent/1", ttl_s=60, owner="somebody else") is None
        renewed = await m.journal.renew(lease, ttl_s=120)
        assert renewed is not None
        assert renewed.expires_us > lease.expires_us
        await m.journal.release(renewed)
        other = await m.journal.acquire("agent/1", owner="somebody else")
        assert other is not None
        assert other.token > lease.token
        assert await m.journal.renew(lease) is None

    async def test_nothing_is_written_under_a_lost_lease(self, m: Maos) -> None:
        """I22, I23: checked inside the write."""
        old = await m.journal.acquire("agent/1", ttl_s=60)
        assert old is not None
        await m.journal.append("run/1", note("mine"), under=old)
        await m.journal.release(old)
        new = await m.journal.acquire("agent/1", ttl_s=60)
        with pytest.raises(LeaseLost):
            await m.journal.append("run/1", note("late"), under=old)
        with pytest.raises(LeaseLost):
            await m.journal.append_all([maos.Append("run/1", [note("late")])], under=old)
        await m.journal.append("run/1", note("mine now"), under=new)
        assert new is not None
        assert [record.token async for record in m.journal.read("run/1")] == [old.token, new.token]

    async def test_what_cannot_name_a_lease_is_refused(self, sqlite: Place) -> None:
        async with sqlite.open() as m:
            with pytest.raises(InvalidInput, match="lease"):
                await m.journal.acquire("")


class TestWhatCanBeStored:
    @pytest.mark.parametrize(
        ("data", "complaint"),
        [
            ({"a": {"b": float("nan")}}, "/a/b is nan"),
            ({"a": [1, {2, 3}]}, "/a/1 is a builtins.set"),
            ({"a": (1,)}, "/a is a builtins.tuple"),
            ({"a": datetime.date(2026, 1, 1)}, "/a is a datetime.date"),
            ({"a": {1: 2}}, "/a/1: the key is a int"),
            ({"a": ["x", "\ud800"]}, "/a/1: .*surrogates not allowed"),
            ({"a": {"\ud800": 1}}, "/a: .*surrogates not allowed"),
            ({"a": [10**5000]}, "/a/0: .*4300 digits"),
            ({"a": nested(100)}, "nested more than 100 levels"),
            ([1, 2], "is a list"),
            ("text", "is a str"),
            (None, "is a NoneType"),
        ],
        ids="nan set tuple date number_as_key surrogate surrogate_key digits depth list text none".split(),
    )
    async def test_what_json_would_change_or_lose_is_refused_by_its_path(
        self, sqlite: Place, data: Any, complaint: str
    ) -> None:
        """What is accepted can be read for ever; the rest never gets in (A6)."""
        async with sqlite.open() as m:
            with pytest.raises(InvalidInput, match=complaint):
                await m.journal.append("run/1", maos.Event("note", data))
            assert await m.journal.head() == 0

    async def test_an_event_of_another_type_is_refused(self, m: Maos) -> None:
        with pytest.raises(UnknownFormat, match="'remark' is not registered"):
            await m.journal.append("run/1", maos.Event("remark", {}))

    async def test_an_event_that_is_too_large_is_refused(self, sqlite: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("maos.journal.codec.BODY_BYTES_MAX", 1000)
        async with sqlite.open() as m:
            with pytest.raises(InvalidInput, match="at most 1000 are allowed"):
                await m.journal.append("run/1", note("x" * 1000))

    async def test_one_bad_event_spoils_the_whole_append(self, m: Maos) -> None:
        with pytest.raises(InvalidInput):
            await m.journal.append("run/1", [note("good"), maos.Event("note", {"x": {1, 2}})])
        assert await m.journal.head() == 0
