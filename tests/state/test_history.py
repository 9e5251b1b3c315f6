"""The past of an agent: versions, events with every field and filter, live streams."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest

import maos
from maos.app import Maos
from maos.clock import to_datetime
from maos.errors import InvalidInput, NotFound
from maos.journal import journal as journal_module
from maos.model.changes import MISSING, Change
from maos.state.records import StateEvent
from maos_testing.manual_clock import ManualClock
from tests.journal.places import Place

T = TypeVar("T")


async def lived(m: Maos, clock: ManualClock | None = None) -> None:
    """Six versions of an agent."""
    updates: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"status": "busy"}, {"source": "scheduler", "correlation": "job-1", "causation": "agent/boss@7"}),
        ({"execution": {"task": "t1"}}, {"source": "scheduler", "correlation": "job-1"}),
        ({"execution": {"memory": {"k": [1]}}}, {"source": "agent", "metadata": {"why": "learned"}}),
        ({"execution": {"memory": {"k": maos.Extend([2])}}, "status": "idle"}, {"source": "agent"}),
        ({"status": "failed"}, {"type": "error_occurred", "critical": True}),
    ]
    await m.state.create("a", source="cli")
    for wanted, more in updates:
        if clock is not None:
            clock.advance(10)
        await m.state.update("a", wanted, **more)


class TestVersions:
    async def test_the_history_tells_every_version(self, m: Maos) -> None:
        """R-403."""
        await lived(m)
        history = await m.state.history("a")
        assert [(each.version, each.type, each.source, each.changes, each.spans) for each in history] == [
            (1, "instance_created", "cli", 1, 1),
            (2, "status_changed", "scheduler", 1, 1),
            (3, "task_assigned", "scheduler", 1, 1),
            (4, "state_updated", "agent", 1, 1),
            (5, "state_updated", "agent", 2, 1),
            (6, "error_occurred", "", 1, 1),
        ]
        for each in history:
            state = await m.state.at("a", version=each.version)
            assert (state.checksum, state.time_us) == (each.checksum, each.time_us), "I13"

    async def test_a_part_of_the_history(self, m: Maos) -> None:
        await lived(m)
        assert [each.version for each in await m.state.history("a", after=3)] == [4, 5, 6]
        assert [each.version for each in await m.state.history("a", limit=2)] == [1, 2]
        assert [each.version for each in await m.state.history("a", after=1, limit=3)] == [2, 3, 4]
        assert await m.state.history("a", after=6) == []
        assert await m.state.history("a", limit=0) == []


class TestEvents:
    async def test_an_event_has_everything_that_is_known_of_a_change(self, m: Maos) -> None:
        """R-402."""
        await lived(m)
        second, third, fourth, fifth, sixth = await m.state.events("a", after=1)
        assert isinstance(second, StateEvent)
        assert second.id == "agent/a@2"
        assert (second.agent, second.version, second.position, second.spans) == ("a", 2, 2, 1)
        assert (second.source, second.correlation, second.causation) == ("scheduler", "job-1", "agent/boss@7")
        assert (second.type, second.critical, second.replayable) == ("status_changed", False, True)
        assert second.changes == (Change("/status", "idle", "busy", "update"),)
        assert second.checksum == (await m.state.at("a", version=2)).checksum
        assert (third.causation, third.metadata) == (None, {})
        assert fourth.metadata == {"why": "learned"}
        assert fourth.changes == (Change("/execution/memory/k", MISSING, [1], "create"),)
        assert fifth.changes == (
            Change("/execution/memory/k/1", MISSING, 2, "create"),
            Change("/status", "busy", "idle", "update"),
        )
        assert (sixth.type, sixth.critical) == ("error_occurred", True)

    @pytest.mark.parametrize(
        ("filters", "versions"),
        [
            ({}, [1, 2, 3, 4, 5, 6]),
            ({"after": 2}, [3, 4, 5, 6]),
            ({"until": 2}, [1, 2]),
            ({"after": 2, "until": 4}, [3, 4]),
            ({"after": 6}, []),
            ({"after": 99}, []),
            ({"limit": 2}, [1, 2]),
            ({"limit": 0}, []),
            ({"types": ["state_updated", "error_occurred"]}, [4, 5, 6]),
            ({"types": []}, []),
            ({"source": "scheduler"}, [2, 3]),
            ({"source": "nobody"}, []),
            ({"correlation": "job-1"}, [2, 3]),
            ({"correlation": "job-1", "types": ["task_assigned"]}, [3]),
            ({"path": "/status"}, [1, 2, 5, 6]),
            ({"path": "status"}, [1, 2, 5, 6]),
            ({"path": "/execution"}, [1, 3, 4, 5]),
            ({"path": "/execution/memory/k/1"}, [1, 4, 5]),
            ({"path": "/execution/memory/k/0"}, [1, 4]),
            ({"path": "/exec"}, []),
            ({"path": "/"}, [1, 2, 3, 4, 5, 6]),
            ({"path": "/status", "source": "agent", "limit": 1}, [5]),
        ],
        ids=str,
    )
    async def test_events_are_filtered(self, sqlite: Place, filters: dict[str, Any], versions: list[int]) -> None:
        """R-403."""
        async with sqlite.open() as m:
            await lived(m)
            assert [each.version for each in await m.state.events("a", **filters)] == versions

    async def test_events_are_filtered_by_time(self, sqlite: Place) -> None:
        """From the first moment on, up to but without the last; microseconds or datetimes."""
        clock = ManualClock()
        async with sqlite.open(clock=clock) as m:
            await lived(m, clock)
            times = [each.time_us for each in await m.state.history("a")]
            assert [each.version for each in await m.state.events("a", since=times[2])] == [3, 4, 5, 6]
            assert [each.version for each in await m.state.events("a", since=times[2] + 1)] == [4, 5, 6]
            assert [each.version for each in await m.state.events("a", before=times[2])] == [1, 2]
            assert [each.version for each in await m.state.events("a", before=times[2] + 1)] == [1, 2, 3]
            since, before = to_datetime(times[1]), to_datetime(times[4])
            assert [each.version for each in await m.state.events("a", since=since, before=before)] == [2, 3, 4]

    async def test_filters_that_make_no_sense_are_refused(self, m: Maos) -> None:
        await lived(m)
        with pytest.raises(InvalidInput, match="'birthday' is not an event type"):
            await m.state.events("a", types=["birthday"])
        for time in (-1, 10**18, datetime(1969, 1, 1, tzinfo=UTC)):
            with pytest.raises(InvalidInput, match="is not a time"):
                await m.state.events("a", since=time)

    async def test_an_event_is_found_by_its_id(self, m: Maos) -> None:
        """R-404."""
        await lived(m)
        for version in range(1, 7):
            event = await m.state.event(f"agent/a@{version}")
            assert (event.version, event.id) == (version, f"agent/a@{version}")
        for missing in ("agent/a@0", "agent/a@7", "agent/b@1", "run/1@1"):
            with pytest.raises(NotFound):
                await m.state.event(missing)
        for nonsense in ("agent/a", "agent/a@", "@1", "agent/a@x", "agent/a@-1", "agent/a@٣", ""):
            with pytest.raises(InvalidInput, match="is not an event id"):
                await m.state.event(nonsense)

    async def test_long_histories_are_told_page_by_page(self, m: Maos, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(journal_module, "PAGE_EVENTS", 3)
        await m.state.create("a", {"n": 0})
        for number in range(1, 11):
            await m.state.update("a", {"n": number})
        events = await m.state.events("a", after=4)
        assert [each.changes for each in events] == [(Change("/n", n - 1, n, "update"),) for n in range(4, 11)]


async def first(events: AsyncIterator[T], count: int) -> list[T]:
    found = []
    async with asyncio.timeout(60):
        async for event in events:
            found.append(event)
            if len(found) == count:
                break
    await events.aclose()  # type: ignore[attr-defined]
    return found


class TestStreams:
    async def test_events_are_seen_as_they_happen(self, durable: Place) -> None:
        """R-403: what is there first, then what another process writes."""
        async with durable.open() as m, durable.open() as other:
            await lived(m)
            follower = asyncio.create_task(first(m.state.stream("a"), 8))
            await asyncio.sleep(0.01)
            await other.state.create("b")
            await other.state.update("a", {"status": "idle"})
            await other.state.update("a", {"status": "busy"})
            seen = await follower
            assert seen == await m.state.events("a")
            assert seen[-1].changes == (Change("/status", "idle", "busy", "update"),)

    async def test_a_stream_begins_after_a_version(self, m: Maos) -> None:
        await lived(m)
        assert await first(m.state.stream("a", after=4), 2) == await m.state.events("a", after=4)

    async def test_an_agent_is_awaited_before_it_exists(self, m: Maos) -> None:
        follower = asyncio.create_task(first(m.state.stream("a"), 2))
        await asyncio.sleep(0.01)
        await m.state.create("a", {"n": 1})
        await m.state.update("a", {"n": 2})
        assert [each.type for each in await follower] == ["instance_created", "state_updated"]

    async def test_a_reader_who_was_slower_than_a_compaction_misses_no_change(self, durable: Place) -> None:
        """What was merged meanwhile comes as one event with all that is new to this reader."""
        async with durable.open() as m, durable.open() as other:
            await other.state.create("a", {"n": 1, "log": [1], "old": True})
            await other.state.update("a", {"n": 2, "log": maos.Extend([2])})
            events = m.state.stream("a")
            state: dict[str, Any] = {}
            seen = [await anext(events), await anext(events)]
            for number in range(3, 8):
                await other.state.update("a", {"n": number, "log": maos.Extend([number]), "old": maos.DELETE})
            await other.state.compact("a", strategy="delete", keep_last=1)
            async with asyncio.timeout(60):
                while seen[-1].version < 8:
                    seen.append(await anext(events))
            await events.aclose()  # type: ignore[attr-defined]
            assert [(each.version, each.spans) for each in seen] == [(1, 1), (2, 1), (6, 6), (7, 1), (8, 1)]
            for event in seen:
                apply_changes(state, event)
            assert state == (await m.state.get("a")).data


def apply_changes(state: dict[str, Any], event: StateEvent) -> None:
    """What a reader who keeps a copy of his own does with an event."""
    for change in event.changes:
        *parents, last = change.path[1:].split("/")
        node: Any = state
        for part in parents:
            node = node[part]
        if change.kind == "delete":
            del node[last]
        elif isinstance(node, list):
            node[int(last) : int(last) + 1] = [change.new]
        else:
            node[last] = change.new
