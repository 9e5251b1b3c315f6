"""What other programs see of runs that went back, were forked, and joined: what counts now (R-305)."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import maos
from maos.app import Maos
from maos.model.plan import Task
from maos.travel import points_in_time
from tests.travel.conftest import order, repository, says, travel_of

TASKS = "SELECT id, status, assigned_agents FROM tasks ORDER BY id"
RUNS = "SELECT id, status, successful_agents, total_agents FROM orchestrations ORDER BY id"


async def journey(m: Maos, folder: Path) -> None:
    """A run that is completed and goes back to where half of it was done, and a fork that stays completed."""
    tasks = [Task(name="a", command=says("a")), Task(name="b", command=says("b"), needs=["a"])]
    run = await order(m, repository(folder), tasks, id="r-1")
    run = await m.runs.execute(run.id)
    await travel_of(m).fork(run.id, await points_in_time.find(m.journal, run, None), into="r-2")
    started = [each.version async for each in m.journal.read("run/r-1") if each.type == "task_started"]
    await travel_of(m).rollback(run.id, await points_in_time.at_version(m.journal, run, started[-1]))


def check(tasks: list[tuple[Any, ...]], runs: list[tuple[Any, ...]]) -> None:
    assert tasks == [
        ("r-1.a", "done", ["r-1.a"]),
        ("r-1.b", "running", ["r-1.b.b1"]),
        ("r-2.a", "done", ["r-1.a"]),
        ("r-2.b", "done", ["r-1.b"]),
    ]
    assert runs == [("r-1", "paused", 1, 2), ("r-2", "completed", 2, 2)]


async def test_sqlite_shows_what_counts_now(tmp_path: Path, m: Maos) -> None:
    await journey(m, tmp_path)
    connection = sqlite3.connect(f"file:{tmp_path}/maos.db?mode=ro", uri=True)
    try:
        tasks = [(*row[:2], json.loads(row[2])) for row in connection.execute(TASKS)]
        check(tasks, list(connection.execute(RUNS)))
        [started] = connection.execute("SELECT started_at FROM tasks WHERE id = 'r-2.b'").fetchone()
        assert started
    finally:
        connection.close()


@pytest.mark.timeout(120)
async def test_postgresql_shows_the_same(tmp_path: Path, home: Path, postgres_url: str) -> None:
    async with maos.open(postgres_url, home=home) as m:
        await journey(m, tmp_path)
    connection = await asyncpg.connect(postgres_url, server_settings={"search_path": "maos"})
    try:
        tasks = [(row[0], row[1], json.loads(row[2])) for row in await connection.fetch(TASKS)]
        check(tasks, [tuple(row) for row in await connection.fetch(RUNS)])
    finally:
        await connection.close()
