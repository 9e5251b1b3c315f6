"""Compaction: a shorter history, the same state, versions without gaps, and nothing forged unnoticed."""

import asyncio
import copy
from random import Random
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.clock import to_datetime
from maos.errors import Corrupt, InvalidInput, NotFound
from maos.state.records import Retention
from maos_testing.manual_clock import ManualClock
from tests.journal.places import Place, readable
from tests.model.data import same
from tests.state.edits import edit, start

CRITICAL = {1, 5, 9}


async def lived(m: Maos, clock: ManualClock | None = None) -> list[dict[str, Any]]:
    """An agent with twelve versions, three of them critical; returns what they hold."""
    data: dict[str, Any] = {"n": 1, "log": [1], "map": {}}
    states = [copy.deepcopy(data)]
    await m.state.create("a", data)
    for number in range(2, 13):
        if clock is not None:
            clock.advance(10)
        data["n"] = number
        data["log"].append(number)
        wanted: dict[str, Any] = {"n": number, "log": maos.Extend([number])}
        if number % 4 == 0:
            data["map"][f"k{number}"] = {"x": number}
            wanted["map"] = {f"k{number}": {"x": number}}
        if number == 10:
            del data["map"]["k4"]
            data["log"][0] = "changed"
            wanted["map"] = {"k4": maos.DELETE}
            wanted["/log/0"] = "changed"
        states.append(copy.deepcopy(data))
        await m.state.update("a", wanted, critical=number in CRITICAL, source=f"s{number}")
    return states


async def spans(m: Maos) -> list[tuple[int, int]]:
    return [(each.version, each.spans) for each in await m.state.history("a")]


async def check_whole(m: Maos, states: list[dict[str, Any]]) -> None:
    """What must hold after any compaction: the state, the kept versions, no gaps, and verification."""
    m.state.cache.clear()
    current = await m.state.get("a")
    assert same(current.raw(), states[-1])
    history = await m.state.history("a")
    assert sum(each.spans for each in history) == current.version == await m.journal.version("agent/a"), "I4"
    first = 1
    for each in history:
        if each.version <= len(states):
            m.state.cache.clear()
            state = await m.state.at("a", version=each.version)
            assert same(state.raw(), states[each.version - 1]), "I12"
            assert state.checksum == each.checksum, "I13"
        for gone in range(first, each.version):
            with pytest.raises(NotFound, match=rf"no longer has version {gone}: .*{first} to {each.version}") as caught:
                await m.state.at("a", version=gone)
            assert caught.value.hint == f"ask for version {each.version} or later"
        first = each.version + 1
    report = await m.verify()
    assert report.ok, report.damage
    assert (await m.state.replay("a", 1, current.version)).verified


KEEPS: dict[str, dict[str, Any]] = {
    "everything": {},
    "the last 4": {"keep_last": 4},
    "the last 11": {"keep_last": 11},
    "the critical ones": {"critical_only": True},
}
RESULTS = {
    ("snapshot", "everything"): [(12, 12), (13, 1)],
    ("snapshot", "the last 4"): [(8, 8), (9, 1), (10, 1), (11, 1), (12, 1), (13, 1)],
    ("snapshot", "the last 11"): None,
    ("snapshot", "the critical ones"): [(1, 1), (4, 3), (5, 1), (8, 3), (9, 1), (12, 3), (13, 1)],
    ("merge", "everything"): [(1, 1), (4, 3), (5, 1), (8, 3), (9, 1), (12, 3), (13, 1)],
    ("merge", "the last 4"): [(1, 1), (4, 3), (5, 1), (8, 3), (9, 1), (10, 1), (11, 1), (12, 1), (13, 1)],
    ("merge", "the last 11"): None,
    ("merge", "the critical ones"): [(1, 1), (4, 3), (5, 1), (8, 3), (9, 1), (12, 3), (13, 1)],
}


class TestStrategies:
    @pytest.mark.parametrize("keep", KEEPS)
    @pytest.mark.parametrize("strategy", ["snapshot", "merge", "delete"])
    async def test_every_strategy_shortens_and_changes_nothing(self, place: Place, strategy: str, keep: str) -> None:
        """R-404."""
        async with place.open() as m:
            states = await lived(m)
            expected = RESULTS["snapshot" if strategy == "delete" else strategy, keep]
            planned = await m.state.compact("a", strategy=strategy, dry_run=True, **KEEPS[keep])
            assert (planned.version, planned.snapshot) == (None, None)
            assert await m.journal.head() == 12, "a dry run writes nothing"
            assert len(await spans(m)) == 12
            done = await m.state.compact("a", strategy=strategy, source="cron", **KEEPS[keep])
            assert done[:5] == planned[:5]
            if expected is None:
                assert (done.version, done.events_before, done.events_after) == (None, 1, 1)
                assert await m.journal.head() == 12, "nothing to do"
                return
            assert await spans(m) == expected
            kept_alone = 12 - done.through
            assert done.events_before == done.through
            assert done.events_after == len(expected) - 1 - kept_alone
            assert (done.agent, done.strategy, done.version) == ("a", strategy, 13)
            event = await m.state.event("agent/a@13")
            assert (event.type, event.changes, event.critical) == ("compacted", (), True)
            assert (event.source, event.metadata) == ("cron", {"strategy": strategy})
            snapshots = await m.state.snapshots("a")
            assert [each.id for each in snapshots] == ([done.snapshot] if strategy == "snapshot" else [])
            if snapshots:
                assert (snapshots[0].version, snapshots[0].retention) == (done.through, Retention(permanent=True))
            await check_whole(m, states)

    @pytest.mark.parametrize("strategy", ["snapshot", "merge", "delete"])
    async def test_it_can_be_done_again_and_again(self, place: Place, strategy: str) -> None:
        async with place.open() as m:
            states = await lived(m)
            for number in range(13, 40):
                strategy_now = ("snapshot", "merge", "delete")[number % 3] if number > 30 else strategy
                await m.state.compact("a", strategy=strategy_now, keep_last=number % 5)
                state = await m.state.get("a")
                states.extend([states[-1]] * (state.version - len(states)))
                data = copy.deepcopy(states[-1])
                data["n"] = number
                await m.state.update("a", {"n": number})
                states.append(data)
            await check_whole(m, states)

    async def test_what_is_since_a_time_is_kept(self, sqlite: Place) -> None:
        """R-404: the event of that very moment too; microseconds or datetimes."""
        clock = ManualClock()
        async with sqlite.open(clock=clock) as m:
            states = await lived(m, clock)
            times = [each.time_us for each in await m.state.history("a")]
            nothing = await m.state.compact("a", strategy="delete", keep_since=times[0])
            assert (nothing.through, nothing.version) == (0, None)
            assert (await m.state.compact("a", keep_since=times[6], dry_run=True)).through == 6
            assert (await m.state.compact("a", keep_since=times[6] + 1, dry_run=True)).through == 7
            assert (await m.state.compact("a", keep_since=to_datetime(times[6]), dry_run=True)).through == 6
            await m.state.compact("a", strategy="delete", keep_since=times[6])
            assert (await spans(m))[:2] == [(6, 6), (7, 1)]
            assert (await m.state.at("a", time=times[6])).version == 7
            assert (await m.state.at("a", time=times[5])).version == 6
            with pytest.raises(NotFound, match="is no longer known: versions 1 to 6 were compacted") as caught:
                await m.state.at("a", time=times[5] - 1)
            assert "version 6 or later" in caught.value.hint
            await check_whole(m, states)

    async def test_a_moment_inside_a_merged_run_has_no_answer(self, sqlite: Place) -> None:
        """I13: the state before the run is not what it was then."""
        clock = ManualClock()
        async with sqlite.open(clock=clock) as m:
            await lived(m, clock)
            times = [each.time_us for each in await m.state.history("a")]
            await m.state.compact("a", strategy="merge")
            for again in range(2):  # also when what was merged is merged once more
                for time in (times[1], times[2], times[3] - 1):
                    with pytest.raises(NotFound, match="versions 2 to 4 were compacted"):
                        await m.state.at("a", time=time)
                for version in (1, 4, 5, 8, 9):
                    assert (await m.state.at("a", time=times[version - 1])).version == version
                assert (await m.state.at("a", time=times[1] - 1)).version == 1, "the run had not begun"
                assert (await m.state.at("a", time=times[5] - 1)).version == 5
                assert (await m.state.at("a", time=times[11] + 10**9)).version == 13 + again
                await m.state.update("a", {"n": "more"})
            await m.state.compact("a", strategy="delete", keep_last=3)
            with pytest.raises(NotFound, match="is no longer known"):
                await m.state.at("a", time=times[0])
            with pytest.raises(NotFound, match="did not exist"):
                await m.state.at("a", time=times[0] - 1)

    @pytest.mark.parametrize(
        ("wrong", "complaint"),
        [
            ({"strategy": "burn"}, "'burn' is not a strategy"),
            ({"keep_last": 1, "critical_only": True}, "only one of"),
            ({"keep_last": 1, "keep_since": 1}, "only one of"),
            ({"keep_last": -1}, "the last -1 events"),
            ({"keep_since": -1}, "is not a time"),
        ],
    )
    async def test_what_makes_no_sense_is_refused(self, sqlite: Place, wrong: dict[str, Any], complaint: str) -> None:
        async with sqlite.open() as m:
            await lived(m)
            with pytest.raises(InvalidInput, match=complaint):
                await m.state.compact("a", **wrong)
            assert await m.journal.head() == 12

    async def test_merged_events_tell_what_they_changed_together(self, m: Maos) -> None:
        await lived(m)
        await m.state.compact("a", strategy="merge")
        event = await m.state.event("agent/a@3")
        assert (event.id, event.version, event.spans, event.type) == ("agent/a@4", 4, 3, "merged")
        assert not event.replayable
        assert [(each.path, each.kind) for each in event.changes] == [
            ("/n", "update"),
            ("/log/1", "create"),
            ("/log/2", "create"),
            ("/log/3", "create"),
            ("/map/k4", "create"),
        ]
        assert [each.version for each in await m.state.events("a", after=2, until=8)] == [4, 5, 8]
        replay = await m.state.replay("a", 3, 5)
        assert (replay.events, replay.state.version) == (2, 5)
        assert "begins at version 2" in replay.warnings[0]
        assert (await m.state.replay("a", 5, 7)).warnings == ("ends at version 5",)


class TestSnapshots:
    async def test_snapshots_outlive_the_events_they_were_made_from(self, place: Place) -> None:
        """R-405: full, incremental, and a checkpoint, which was only a name for a version."""
        async with place.open() as m:
            await m.state.create("a", {"n": 1})
            infos = []
            for number, kind in enumerate(("full", "incremental", "checkpoint", "checkpoint"), 2):
                await m.state.update("a", {"n": number})
                infos.append(await m.state.snapshot("a", kind=kind, name=kind + str(number)))
            await m.state.update("a", {"n": 6})
            await m.state.compact("a", strategy="delete", keep_last=3)
            assert (await m.verify()).ok
            for number, info in enumerate(infos, 2):
                restored = await m.state.restore("a", info.name)
                assert restored.warnings == ()
                assert (await m.state.get("a")).data == {"n": number}
            kept = await m.state.snapshots("a")
            assert [each.id for each in kept] == [each.id for each in infos]
            assert [each.kind for each in kept] == ["full", "incremental", "full", "checkpoint"], "only if it had to"

    async def test_the_snapshot_it_leaves_brings_back_what_was_cut_off(self, m: Maos) -> None:
        states = await lived(m)
        done = await m.state.compact("a", keep_last=4)
        with pytest.raises(NotFound):
            await m.state.rollback("a", 7)
        assert done.snapshot is not None
        await m.state.restore("a", done.snapshot)
        assert (await m.state.get("a")).data == states[7]
        with pytest.raises(InvalidInput, match="is permanent"):
            await m.state.delete_snapshot("a", done.snapshot)


class TestCompany:
    """Others are there: with older states in memory, following, updating."""

    @pytest.mark.parametrize("strategy", ["merge", "delete"])
    @pytest.mark.parametrize("seen", [1, 3, 6, 8, 9, 12])
    async def test_who_remembers_an_older_state_goes_on_from_the_newest(
        self, durable: Place, strategy: str, seen: int
    ) -> None:
        """Before, inside, at the end of and after what was compacted."""
        async with durable.open() as other:
            async with durable.open() as m:
                await m.state.create("a", {"log": []})
                for number in range(2, 13):
                    await m.state.update("a", {"log": maos.Extend([number])})
                    if number - 1 == seen:
                        await other.state.get("a")
                await m.state.compact("a", strategy=strategy, keep_last=4)
            assert (await other.state.get("a")).data == {"log": list(range(2, 13))}
            update = await other.state.update("a", {"log": maos.Extend(["other"])})
            assert (update.version, update.state.data["log"][-1]) == (14, "other")
            assert (await other.verify()).ok

    async def test_what_is_gone_is_gone_for_those_who_remember_it_too(self, durable: Place) -> None:
        """The answer does not depend on who is asked."""
        async with durable.open() as m, durable.open() as other:
            await lived(m)
            assert (await other.state.get("a")).version == 12
            await m.state.update("a", {"n": 13})
            await m.state.compact("a", strategy="delete")
            for work in (
                other.state.at("a", version=12),
                other.state.rollback("a", 12),
                m.state.at("a", version=12),
            ):
                with pytest.raises(NotFound, match="no longer has version 12"):
                    await work

    async def test_a_rollback_that_was_under_way_is_right_or_refused(self, durable: Place) -> None:
        async with durable.open() as m, durable.open() as other:
            states = await lived(m)
            for version in (3, 8):
                results = await asyncio.gather(
                    other.state.rollback("a", version),
                    m.state.compact("a", strategy="delete", keep_last=4),
                    return_exceptions=True,
                )
                if not isinstance(results[0], NotFound):
                    assert (await m.state.get("a")).data == states[version - 1]
            for each in (m, other):
                each.state.cache.clear()
            assert (await m.state.get("a")).data == (await other.state.get("a")).data
            assert (await m.verify()).ok

    async def test_followers_of_the_journal_go_on(self, durable: Place) -> None:
        """I6: positions only grow; what was merged comes as one event; nobody gets stuck."""
        async with durable.open() as m, durable.open() as other:
            await lived(m)
            follower = other.journal.follow()
            seen = [await anext(follower) for _ in range(3)]
            await m.state.compact("a", strategy="delete", keep_last=2)
            await m.state.update("a", {"n": "after"})
            async with asyncio.timeout(60):
                while seen[-1].version < 14:
                    seen.append(await anext(follower))
            await follower.aclose()  # type: ignore[attr-defined]
            positions = [each.position for each in seen]
            assert positions == sorted(set(positions))
            assert seen[-1].data["ops"] == [["set", "/n", "after"]]
            fresh = other.journal.follow(after=9)
            assert [(await anext(fresh)).version for _ in range(4)] == [10, 11, 12, 13]
            await fresh.aclose()  # type: ignore[attr-defined]

    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.usefixtures("small_folds")
    async def test_whatever_others_do_every_version_that_is_left_is_true(self, durable: Place, seed: int) -> None:
        """I12: edits, compactions, rollbacks and readers in two processes, with folds all along."""
        chance = Random(seed)
        wanted = start()
        versions: dict[int, dict[str, Any]] = {1: copy.deepcopy(wanted)}
        async with durable.open() as one, durable.open() as two:
            await one.state.create("a", wanted)
            for number in range(50):
                m = chance.choice((one, two))
                what = chance.choices(("edit", "compact", "rollback", "clear"), (20, 3, 2, 3))[0]
                if what == "edit":
                    version = (await m.state.update("a", edit(chance, wanted, number))).version
                elif what == "compact":
                    done = await m.state.compact(
                        "a", strategy=chance.choice(("merge", "delete", "snapshot")), keep_last=chance.randrange(8)
                    )
                    version = done.version or max(versions)
                    for gone in range(1, done.through + 1):
                        versions.pop(gone, None)
                    for each in await m.state.history("a"):
                        if each.version <= done.through:
                            versions[each.version] = (await m.state.at("a", version=each.version)).to_dict()
                elif what == "rollback":
                    target = chance.choice(sorted(versions))
                    version = (await m.state.rollback("a", target)).version
                    wanted = copy.deepcopy(versions[target])
                else:
                    m.state.cache.clear()
                    continue
                versions[version] = copy.deepcopy(wanted)
                reader = chance.choice((one, two))
                assert same((await reader.state.get("a")).raw(), wanted), f"{what} {number}"
            for version, data in versions.items():
                two.state.cache.clear()
                assert same((await two.state.at("a", version=version)).raw(), data), f"version {version}"
            report = await one.verify()
            assert report.ok, report.damage


class TestDamage:
    async def test_a_state_that_does_not_match_its_checksum_is_not_compacted(self, sqlite: Place) -> None:
        """Never put a wrong state in the place of the events that would show it."""
        async with sqlite.open() as m:
            await lived(m)
            (await m.state.get("a")).raw()["n"] = "wrong in memory"
            with pytest.raises(Corrupt, match="has checksum"):
                await m.state.compact("a")
            assert len(await spans(m)) == 12

    async def test_damaged_events_are_not_compacted_away(self, durable: Place) -> None:
        async with durable.open() as m:
            await lived(m)
            await durable.sql("UPDATE events SET time_us = time_us + 1 WHERE version = 3")
            with pytest.raises(Corrupt, match="agent/a@3"):
                await m.state.compact("a")
            assert len(await durable.sql("SELECT version FROM events")) == 12

    TAMPERED = {  # noqa: RUF012
        "body": "UPDATE events SET body = (SELECT body FROM events WHERE version = 8) WHERE version = 4",
        "type": "UPDATE events SET type = 'baseline' WHERE version = 4",
        "time": "UPDATE events SET time_us = time_us - 1 WHERE version = 4",
        "token": "UPDATE events SET token = 7 WHERE version = 4",
        "spans and the event before it": "UPDATE events SET spans = 4 WHERE version = 4",
        "hash": "UPDATE events SET hash = (SELECT hash FROM events WHERE version = 8) WHERE version = 4",
    }

    @pytest.mark.parametrize("what", TAMPERED)
    async def test_what_a_compaction_put_there_is_sealed(self, durable: Place, what: str) -> None:
        """I7: it has no hash of its own any more, but the compaction vouches for it in an event that has."""
        async with durable.open() as m:
            await lived(m)
            await m.state.compact("a", strategy="merge")
            if "before" in what:
                await durable.sql("DELETE FROM events WHERE version = 1")
            await durable.sql(self.TAMPERED[what])
            damage = (await m.verify()).damage
            assert {each.version for each in damage if each.stream == "agent/a"} & {4, 5}, damage

    async def test_a_flipped_bit_in_what_a_compaction_put_there_is_noticed_when_read(self, sqlite: Place) -> None:
        """I11: the frame carries a checksum."""
        async with sqlite.open() as m:
            await lived(m)
            await m.state.compact("a", strategy="delete")
            [original, _] = (await readable(m, "agent/a"))[0]
            [(body,)] = await sqlite.sql("SELECT body FROM events WHERE version = 12")
            for index in range(4, len(body)):
                damaged = bytearray(body)
                damaged[index] ^= 1 << index % 8
                await sqlite.sql("UPDATE events SET body = $1 WHERE version = 12", bytes(damaged))
                found, error = await readable(m, "agent/a")
                if error is None:  # not every bit of a frame counts, but every byte of its content does
                    assert found[0].data == original.data
                else:
                    assert isinstance(error, Corrupt)
                    assert error.version == 12

    async def test_a_compaction_that_was_never_recorded_is_noticed(self, durable: Place) -> None:
        """Somebody replaced events behind the journal's back."""
        async with durable.open() as m:
            await lived(m)
            await durable.sql("DELETE FROM events WHERE version = 3")
            await durable.sql("UPDATE events SET spans = 2 WHERE version = 4")
            damage = [each for each in (await m.verify()).damage if each.stream]
            assert (damage[0].version, damage[0].what) == (4, "is not what the compaction put there")
