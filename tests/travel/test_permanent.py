"""Runs that a person wants to have for good: no policy takes anything of them (R-704)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from maos.app import Maos
from maos.clock import Clock, SystemClock
from maos.engine.recorder import Recorder
from maos.engine.streams import permanent
from maos.journal.journal import Journal
from maos.model.plan import Task
from maos.model.run import Run
from maos.runs import cleanup
from maos.settings.schema import CleanupSettings
from tests.travel.conftest import order, repository, says


async def test_a_permanent_run_is_no_concern_of_any_policy(tmp_path: Path, m: Maos) -> None:
    """It is not removed, and does not count among those that are kept by number."""
    for id in ("r-1", "r-2", "r-3"):
        await order(m, repository(tmp_path), [Task(name="a", command=says("a"))], id=id)
        assert (await m.runs.execute(id)).status == "completed"
    clock = SystemClock()
    assert await m.runs.keep("r-1", "the first one")
    policies = CleanupSettings(keep_runs=1, older_than_days=0)
    for rule in (cleanup.by_policy(policies, clock.now_us()), cleanup.older_than(0, CleanupSettings(), clock.now_us())):
        foreseen = await cleanup.Cleaner(clock, m.runs, m.agents).clean_up(rule, by="person", dry_run=True)
        assert "r-1" not in {each.run for each in (*foreseen.removed, *foreseen.kept)}
    done = await cleanup.Cleaner(clock, m.runs, m.agents).when_due(policies)
    assert done is not None
    assert ({each.run for each in done.removed}, done.kept) == ({"r-2"}, [])
    assert (m.agents.folder / "workspaces" / "r-1.a").is_dir()
    assert await permanent(m.journal) == {"r-1": "the first one"}
    assert await m.runs.unkeep("r-1")
    rule = cleanup.older_than(0, CleanupSettings(), clock.now_us())
    done = await cleanup.Cleaner(clock, m.runs, m.agents).clean_up(rule, by="person")
    assert {each.run for each in done.removed} == {"r-1", "r-3"}


async def test_one_that_becomes_permanent_while_others_are_removed_stays(
    tmp_path: Path, m: Maos, monkeypatch: pytest.MonkeyPatch
) -> None:
    for id in ("r-1", "r-2"):
        await order(m, repository(tmp_path), [Task(name="a", command=says("a"))], id=id)
        await m.runs.execute(id)
    clock, owned = SystemClock(), cleanup.own_run

    @asynccontextmanager
    async def own_run(journal: Journal, clock: Clock, run: Run) -> AsyncIterator[Recorder[Run]]:
        """While the first of them is cleaned up, a person pins the other."""
        async with owned(journal, clock, run) as recorder:
            yield recorder
        await m.runs.keep("r-2")

    monkeypatch.setattr(cleanup, "own_run", own_run)
    cleaner = cleanup.Cleaner(clock, m.runs, m.agents)
    done = await cleaner.clean_up(cleanup.older_than(0, CleanupSettings(), clock.now_us()), by="person")
    assert {each.run for each in done.removed} == {"r-1"}
    assert {(each.run, each.why) for each in done.kept} == {("r-2", "its run is permanent")}
