"""The view of workflow runs, and what runs may cost, say in both databases what the command line says (R-305)."""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import maos
from maos.app import Maos
from maos.model.events.parts import Limits
from maos.model.workflow import WorkflowRun
from maos.workflows import WorkflowChanged, child, signal
from tests.workflows.define import workflow

LONG = "a long argument, " * 100
ROOT = Path(__file__).parents[2]


@workflow("shipping")
async def shipping(what: str) -> str:
    if what == "broken":
        raise ValueError("nothing fits")
    if what == "waits":
        await signal("go")
    if what == "parent":
        return await child(shipping, "child")
    return what * 2


@workflow("shipping")
async def changed(what: str) -> str:
    await signal("another")
    return what


async def until(m: Maos, id: str, holds: Callable[[WorkflowRun], object]) -> None:
    async with asyncio.timeout(60):
        while not holds(await m.workflows.get(id)):
            await asyncio.sleep(0.02)


async def fill_workflow_runs(place: str, home: Path) -> None:
    """Workflow runs of every status but running and interrupted."""
    async with maos.open(place, home=home) as m:
        assert await m.workflows.run(shipping, LONG, id="completed") == LONG * 2
        await m.workflows.run(shipping, "parent", id="parent")
        for id in ("failed", "retried"):
            with pytest.raises(maos.MaosError):
                await m.workflows.run(shipping, "broken", id=id)
        await m.workflows.retry("retried")
        for id in ("paused", "cancelled", "changed", "removed"):
            await m.workflows.start(shipping, "waits", id=id)
            await until(m, id, lambda run: run.waiting)
        await m.workflows.pause("paused")
        for id in ("cancelled", "removed"):
            await m.workflows.cancel(id, why="no longer needed")
            await until(m, id, lambda run: run.status == "cancelled")
        await m.workflows.remove("removed")
        await until(m, "paused", lambda run: run.status == "paused")
    async with maos.open(place, home=home) as m:
        with pytest.raises(WorkflowChanged):
            await (await m.workflows.resume("changed", workflow=changed, on_change="replay")).result()


async def fill_runs(place: str, home: Path) -> None:
    """Runs with limits that were changed, and without."""
    home.mkdir()
    async with maos.open(place, home=home) as m:
        tasks = {"tasks": [{"name": "a", "command": ["true"]}]}
        for id, usd in (("r-limited", 2.0), ("r-raised", 2.0), ("r-lifted", 2.0), ("r-free", None)):
            options: dict[str, Any] = {"budget": {"cost_usd": usd, "tokens": 7}} if usd else {}
            await m.runs.start(tasks, folder=home, options={**options, "in_place": True}, id=id, is_claimed=False)
        await m.runs.update("r-raised", Limits(cost_usd=5))
        await m.runs.update("r-raised", Limits(concurrency=2))
        await m.runs.update("r-lifted", Limits(cost_usd=0))


async def execute(place: str, home: str) -> None:
    """Execute a workflow run, and report it, until this process is killed."""
    async with maos.open(place, home=Path(home)) as m:
        await m.workflows.start(shipping, "waits", id="running")
        await until(m, "running", lambda run: run.waiting)
        print("waits", flush=True)
        await asyncio.Event().wait()


def told(place: str, home: Path, *command: str) -> dict[str, Any]:
    """What the command line says, in a process of its own."""
    environment = {**os.environ, "MAOS_HOME": str(home)}
    argv = [sys.executable, "-m", "maos", "--db", place, *command, "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class Place:
    """A database, and how to ask it in SQL."""

    def __init__(self, name: str, home: Path) -> None:
        self.name, self.home = name, home

    async def rows(self, sql: str) -> dict[str, dict[str, Any]]:
        """Rows by their ids."""
        if "://" in self.name:
            connection = await asyncpg.connect(self.name, server_settings={"search_path": "maos", "timezone": "UTC"})
            found = [dict(row) for row in await connection.fetch(sql)]
            await connection.close()
        else:
            file = sqlite3.connect(f"file:{self.name}?mode=ro", uri=True)
            file.row_factory = sqlite3.Row
            found = [dict(row) for row in file.execute(sql)]
            file.close()
        return {row["id"]: row for row in found}

    async def statuses(self) -> dict[str, Any]:
        rows = await self.rows("SELECT * FROM workflow_runs WHERE removed_at IS NULL")
        return {
            id: (row["workflow"], row["version"], row["status"], row["why"], row["parent_id"])
            for id, row in rows.items()
        }

    def listed(self) -> dict[str, Any]:
        found = told(self.name, self.home, "workflow", "list")["workflows"]
        functions = [each for each in found if each["of"] == "function"]
        return {
            each["id"]: (each["workflow"], each["version"], each["status"], each["why"], each["parent"])
            for each in functions
        }


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    name = request.getfixturevalue("postgres_url") if request.param == "postgres" else str(tmp_path / "maos.db")
    return Place(name, tmp_path / "home")


async def test_workflow_runs_have_the_status_that_the_command_line_shows(place: Place) -> None:
    await fill_workflow_runs(place.name, place.home)
    argv = [sys.executable, "-m", "tests.views.test_workflow_runs", place.name, str(place.home)]
    environment = {**os.environ, "MAOS_ENGINE_LEASE_S": "3"}  # how long it is shown as running when it was killed
    program = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE, env=environment, cwd=ROOT)
    try:
        assert program.stdout is not None
        assert (await program.stdout.readline()).strip() == b"waits"
        listed = await asyncio.to_thread(place.listed)
        assert await place.statuses() == listed
        assert {id: each[2] for id, each in listed.items()} == {
            "completed": "completed", "parent": "completed", "parent.1": "completed", "failed": "failed",
            "retried": "paused", "paused": "paused", "cancelled": "cancelled", "changed": "changed",
            "running": "running",
        }  # fmt: skip
    finally:
        program.kill()
        await program.wait()
    async with asyncio.timeout(60):
        while (await place.statuses())["running"][2] == "running":  # until its lease has expired
            await asyncio.sleep(0.1)
    listed = await asyncio.to_thread(place.listed)
    assert await place.statuses() == listed
    assert listed["running"][2] == "interrupted"
    flows = (await asyncio.to_thread(told, place.name, place.home, "status"))["workflows"]
    assert {each["id"]: each["status"] for each in flows}.items() <= {
        id: each[2] for id, each in listed.items()
    }.items()

    rows = await place.rows("SELECT * FROM workflow_runs")
    assert json.loads(rows["completed"]["arguments"]) == {"args": [LONG], "kwargs": {}}
    assert LONG * 2 in rows["completed"]["result"]
    assert {id for id, row in rows.items() if row["completed_at"] is not None} >= {"completed", "failed", "cancelled"}
    assert rows["removed"]["removed_at"] is not None


async def test_what_a_run_may_cost_is_what_the_command_line_shows(place: Place) -> None:
    await fill_runs(place.name, place.home)
    rows = await place.rows("SELECT id, budget_usd, left_usd, removed_at FROM orchestrations")
    for id, row in rows.items():
        status = await asyncio.to_thread(told, place.name, place.home, "status", id)
        assert (row["budget_usd"] or 0.0, row["left_usd"]) == (status["limits"]["cost_usd"], status["left_usd"]), id
        assert row["removed_at"] is None
    assert {id: row["budget_usd"] for id, row in rows.items()} == {
        "r-limited": 2.0, "r-raised": 5.0, "r-lifted": None, "r-free": None,
    }  # fmt: skip


if __name__ == "__main__":
    asyncio.run(execute(*sys.argv[1:]))
