"""Commands that expect a version of a run: one that was changed after the caller, or the service, has read it is not
changed again, because the version is checked in the transaction of the command."""

import asyncio
import copy
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.engine.streams import RunReader
from maos.model.plan import Plan, Task
from maos.model.run import Run
from tests.runs.test_scheduler import Hands

PLAN = {
    "tasks": [
        {"name": "good", "command": ["true"]},
        {"name": "bad", "command": ["false"]},
        {"name": "last", "command": ["true"], "needs": ["bad"]},
    ]
}
MORE = Plan(tasks=[Task(name="more", task="x")])

COMMANDS: dict[str, Callable[[maos.Maos, str, int], Awaitable[Any]]] = {
    "pause": lambda m, id, version: m.runs.pause(id, expected=version),
    "cancel": lambda m, id, version: m.runs.cancel(id, expected=version),
    "cancel a task": lambda m, id, version: m.runs.cancel(id, task="last", expected=version),
    "update": lambda m, id, version: m.runs.update(id, maos.Limits(tokens=7), expected=version),
    "retry": lambda m, id, version: m.runs.retry(id, expected=version),
    "skip": lambda m, id, version: m.runs.skip(id, "last", expected=version),
    "add": lambda m, id, version: m.runs.add(id, MORE, expected=version),
    "request tasks": lambda m, id, version: m.runs.request_tasks(id, MORE, expected=version),
    "hand over": lambda m, id, version: m.runs.hand_over(id, expected=version),
    "checkpoint": lambda m, id, version: m.travel.checkpoint(id, "here", expected=version),
    "roll back": lambda m, id, version: m.travel.rollback(id, 2, without_files=True, expected=version),
}


@pytest.mark.parametrize("name", COMMANDS)
async def test_a_run_that_changes_after_it_was_read_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home") as m:
        run = await m.runs.start(PLAN, folder=tmp_path, options={"in_place": True})
        run = await m.runs.execute(run.id, worker=Hands({"bad": ["failed"]}))  # type: ignore[arg-type]
        stale = copy.deepcopy(run)
        await m.runs.update(run.id, maos.Limits(concurrency=2))  # by another person, at the same moment
        head = await m.journal.head()

        async def read_too_early(_self: RunReader, _id: str) -> Run:
            return copy.deepcopy(stale)

        with monkeypatch.context() as patch:
            patch.setattr(RunReader, "get", read_too_early)
            with pytest.raises(maos.Conflict) as refused:
                async with asyncio.timeout(60):
                    await COMMANDS[name](m, run.id, stale.version)
        now = (await m.runs.get(run.id)).version
        assert (refused.value.expected, refused.value.actual) == (stale.version, now)
        assert await m.journal.head() == head
        await COMMANDS[name](m, run.id, now)
        assert await m.journal.head() > head


async def test_a_fork_and_a_merge_are_of_the_version_that_was_read(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home") as m:
        run = await m.runs.start(PLAN, folder=tmp_path, options={"in_place": True})
        run = await m.runs.execute(run.id, worker=Hands({"bad": ["failed"]}))  # type: ignore[arg-type]
        for refused in (m.travel.fork(run.id, expected=run.version - 1), m.runs.merge(run.id, expected=1)):
            with pytest.raises(maos.Conflict):
                await refused
        assert [each.id async for each in m.runs.all()] == [run.id]
