"""Time travel: any version, any moment, differences, rollbacks that only append, replays that verify."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

import maos
from maos.app import Maos
from maos.clock import to_datetime
from maos.errors import Corrupt, InvalidInput, NotFound
from maos.model.changes import MISSING, Change
from maos.store.contract import RawEvent, Write
from maos_testing.manual_clock import ManualClock
from tests.journal.places import Place


async def five(m: Maos) -> list[dict[str, object]]:
    """An agent with five versions, and what they hold."""
    await m.state.create("a", {"n": 1, "log": []})
    await m.state.update("a", {"n": 2, "log": maos.Extend(["two"])})
    await m.state.update("a", {"n": 3, "extra": {"x": 1}})
    await m.state.update("a", {"log": maos.Extend(["four"]), "extra": {"x": maos.DELETE}})
    await m.state.update("a", {"n": 5, "log": ["changed", "four"], "extra": maos.DELETE})
    return [
        {"n": 1, "log": []},
        {"n": 2, "log": ["two"]},
        {"n": 3, "log": ["two"], "extra": {"x": 1}},
        {"n": 3, "log": ["two", "four"], "extra": {}},
        {"n": 5, "log": ["changed", "four"]},
    ]


class TestVersions:
    @pytest.mark.parametrize("cached", [True, False])
    async def test_every_version_can_be_seen(self, m: Maos, cached: bool) -> None:
        """I13."""
        wanted = await five(m)
        sums = [each.checksum for each in await m.state.history("a")]
        for version, data in enumerate(wanted, 1):
            if not cached:
                m.state.cache.clear()
            state = await m.state.at("a", version=version)
            assert (state.version, state.data, state.checksum) == (version, data, sums[version - 1])

    @pytest.mark.parametrize("version", [0, -1, 6, 10**9])
    async def test_a_version_there_never_was_is_not_found(self, m: Maos, version: int) -> None:
        await five(m)
        with pytest.raises(NotFound, match=rf"no version {version} \(its versions are 1 to 5\)"):
            await m.state.at("a", version=version)

    async def test_either_a_version_or_a_time(self, m: Maos) -> None:
        await five(m)
        for question in ({}, {"version": 1, "time": 1}):
            with pytest.raises(InvalidInput, match="either a version or a time"):
                await m.state.at("a", **question)


class TestTimes:
    async def test_a_moment_is_that_of_the_newest_version_by_then(self, sqlite: Place) -> None:
        """I13: from the microsecond it was written to the one before the next was."""
        clock = ManualClock()
        async with sqlite.open(clock=clock) as m:
            await m.state.create("a", {"n": 1})
            for number in range(2, 6):
                clock.advance(10)
                await m.state.update("a", {"n": number})
            times = [each.time_us for each in await m.state.history("a")]
            for number, time in enumerate(times, 1):
                assert (await m.state.at("a", time=time)).data["n"] == number
                assert (await m.state.at("a", time=time + 9_999_999)).data["n"] == number
                assert (await m.state.at("a", time=to_datetime(time))).version == number
            with pytest.raises(NotFound, match="state 'a' did not exist at 2027-01-15T07:59:59"):
                await m.state.at("a", time=times[0] - 1)
            local = to_datetime(times[2]).astimezone(timezone(timedelta(hours=-7)))
            assert (await m.state.at("a", time=local)).version == 3
            assert (await m.state.at("a", time=datetime(9999, 1, 1, tzinfo=UTC))).version == 5

    async def test_of_versions_of_one_moment_the_last_counts(self, sqlite: Place) -> None:
        async with sqlite.open(clock=ManualClock()) as m:
            await five(m)
            time = (await m.state.get("a")).time_us
            assert (await m.state.at("a", time=time)).version == 5
            with pytest.raises(NotFound):
                await m.state.at("a", time=time - 1)

    async def test_times_are_found_in_every_store(self, durable: Place) -> None:
        async with durable.open() as m:
            wanted = await five(m)
            for each in await m.state.history("a"):
                last = max(v.version for v in await m.state.history("a") if v.time_us == each.time_us)
                assert (await m.state.at("a", time=each.time_us)).data == wanted[last - 1]

    @pytest.mark.parametrize("time", [-1, 10**18])
    async def test_what_no_calendar_has_is_no_time(self, m: Maos, time: int) -> None:
        """Nanoseconds by mistake, for instance."""
        await five(m)
        with pytest.raises(InvalidInput, match="is not a time"):
            await m.state.at("a", time=time)


class TestDifferences:
    async def test_two_versions_are_compared(self, m: Maos) -> None:
        await five(m)
        assert await m.state.diff("a", 1, 1) == []
        assert await m.state.diff("a", 2, 4) == [
            Change("/n", 2, 3, "update"),
            Change("/log/1", MISSING, "four", "create"),
            Change("/extra", MISSING, {}, "create"),
        ]
        assert await m.state.diff("a", 4, 2) == [
            Change("/extra", {}, MISSING, "delete"),
            Change("/n", 3, 2, "update"),
            Change("/log/1", "four", MISSING, "delete"),
        ]
        with pytest.raises(NotFound):
            await m.state.diff("a", 1, 6)


class TestRollbacks:
    async def test_a_rollback_appends_and_the_old_branch_stays(self, m: Maos) -> None:
        """I14."""
        wanted = await five(m)
        before = [event async for event in m.journal.read("agent/a")]
        update = await m.state.rollback("a", 2, source="operator", metadata={"why": "wrong turn"})
        assert (update.version, update.previous) == (6, 5)
        assert (await m.state.get("a")).data == wanted[1]
        assert update.checksum == (await m.state.at("a", version=2)).checksum, "I13"
        assert [event async for event in m.journal.read("agent/a", until=5)] == before, "nothing is rewritten"
        for version, data in enumerate(wanted, 1):
            assert (await m.state.at("a", version=version)).data == data
        event = await m.state.event("agent/a@6")
        assert (event.type, event.source, event.critical) == ("rolled_back", "operator", True)
        assert event.metadata == {"why": "wrong turn", "to": 2}

    async def test_a_rollback_can_be_rolled_back(self, m: Maos) -> None:
        wanted = await five(m)
        await m.state.rollback("a", 1)
        await m.state.rollback("a", 5)
        await m.state.rollback("a", 6)
        assert (await m.state.get("a")).data == wanted[0]
        await m.state.rollback("a", 7)
        m.state.cache.clear()
        assert (await m.state.get("a")).data == wanted[4]
        assert (await m.state.get("a")).version == 9
        assert (await m.verify()).ok

    async def test_a_rollback_to_what_is_is_recorded(self, m: Maos) -> None:
        wanted = await five(m)
        update = await m.state.rollback("a", 5)
        assert (update.version, update.changes) == (6, ())
        assert (await m.state.get("a")).data == wanted[4]

    async def test_after_a_rollback_life_goes_on(self, durable: Place) -> None:
        async with durable.open() as m, durable.open() as other:
            await five(m)
            await other.state.get("a")
            await m.state.rollback("a", 2)
            await other.state.update("a", {"log": maos.Extend(["after"])})
            for each in (m, other):
                assert (await each.state.get("a")).data == {"n": 2, "log": ["two", "after"]}

    async def test_what_never_was_cannot_come_back(self, m: Maos) -> None:
        await five(m)
        with pytest.raises(NotFound):
            await m.state.rollback("a", 6)
        assert await m.journal.head() == 5


class TestReplays:
    async def test_a_range_is_replayed_and_every_checksum_compared(self, m: Maos) -> None:
        """I13."""
        wanted = await five(m)
        replay = await m.state.replay("a", 1, 5)
        assert (replay.events, replay.verified, replay.warnings) == (5, True, ())
        assert (replay.state.version, replay.state.data) == (5, wanted[4])
        assert replay.duration_us >= 0
        part = await m.state.replay("a", 3, 4)
        assert (part.events, part.state.data) == (2, wanted[3])

    async def test_a_range_beyond_the_end_is_replayed_as_far_as_it_goes(self, m: Maos) -> None:
        await five(m)
        replay = await m.state.replay("a", 4, 9)
        assert (replay.events, replay.state.version, replay.warnings) == (2, 5, ("ends at version 5",))

    @pytest.mark.parametrize("bounds", [(0, 1), (3, 2), (-1, 5)])
    async def test_what_is_no_range_is_refused(self, m: Maos, bounds: tuple[int, int]) -> None:
        await five(m)
        with pytest.raises(InvalidInput, match="not a range of versions"):
            await m.state.replay("a", *bounds)

    async def test_a_replay_that_comes_to_something_else_is_corrupt(self, sqlite: Place) -> None:
        """I13: an event that is well chained but lies about the state it led to."""
        async with sqlite.open() as m:
            await m.state.create("a", {"n": 1})
            good = await m.state.update("a", {"n": 2})
            lie = maos.Event("state_updated", {"ops": [["set", "/n", 3]], "sum": good.checksum})
            await m.journal.append("agent/a", lie, expected=2)
            with pytest.raises(Corrupt, match="agent/a@3: replay gives another state"):
                await m.state.replay("a", 1, 3)
            assert (await m.state.replay("a", 1, 2)).verified
            assert not (await m.verify()).ok

    @pytest.mark.parametrize(
        ("data", "complaint"),
        [
            ({"sum": "0"}, "agent/a@2 cannot be decoded: .*missing required field `ops`"),
            ({"ops": [], "sum": "no number"}, "agent/a@2 has no checksum"),
            ({"ops": []}, "agent/a@2 cannot be decoded: .*missing required field `sum`"),
            ({"ops": "text", "sum": "0"}, r"agent/a@2 cannot be decoded: .*at `\$.ops`"),
            ({"ops": [["set", "/x/y", 1]], "sum": "0"}, "agent/a@2: operation .* does not fit the state"),
            ({"ops": [["ext", "/n", 0, [1]]], "sum": "0"}, "agent/a@2: operation .* does not fit the state"),
            ({"ops": [["jump", "/n"]], "sum": "0"}, "agent/a@2 has no operations"),
            ({"ops": [["set", "n", 1]], "sum": "0"}, "agent/a@2 has no operations"),
            ({"ops": [["set", "", [1]]], "sum": "0"}, "agent/a@2 has no operations"),
            ({"ops": [["del", ""]], "sum": "0"}, "agent/a@2 has no operations"),
            ({"ops": [["ext", "/n", "0", [1]]], "sum": "0"}, "agent/a@2 has no operations"),
            ({"ops": [[]], "sum": "0"}, "agent/a@2 has no operations"),
            ({"ops": [5], "sum": "0"}, "agent/a@2 has no operations"),
        ],
    )
    async def test_an_event_that_is_no_change_is_corrupt_by_name(
        self, sqlite: Place, data: dict[str, object], complaint: str
    ) -> None:
        """I11: never skipped, never guessed."""
        async with sqlite.open() as m:
            await m.state.create("a", {"n": 1})
            raw = RawEvent("state_updated", 1, json.dumps(data).encode())  # the journal refuses to write some of these
            await m.journal.store.append(Write("agent/a", [raw]))
            for work in (
                m.state.get("a"),
                m.state.at("a", version=2),
                m.state.events("a", after=1),
                m.state.replay("a", 1, 2),
            ):
                m.state.cache.clear()
                with pytest.raises(Corrupt, match=complaint):
                    await work
            assert (await m.state.at("a", version=1)).data == {"n": 1}, "what came before is still there"
            report = await m.verify()
            assert [(each.stream, each.version) for each in report.damage] == [("agent/a", 2)]
