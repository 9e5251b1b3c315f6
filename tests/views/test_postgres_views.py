"""The views in PostgreSQL say what those in SQLite say, of the same events (R-305)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import maos
from maos import views
from maos.app import Maos
from maos.clock import SystemClock
from maos.engine import checkpoints
from maos.journal.journal import Append
from maos.model.plan import Plan, Task
from maos.runs.service import Runs
from tests.runs.test_scheduler import Hands
from tests.views.conftest import Query
from tests.views.test_views import COLUMNS, carried_out, plan
from tests.workflows.define import workflow


@workflow("doubled")
async def doubled(what: str) -> dict[str, list[str]]:
    return {"twice": [what, what]}


BY_THE_CLOCK_OF_THE_DATABASE = {"last_updated", "last_active", "updated_at"}


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connected = await asyncpg.connect(postgres_url, server_settings={"search_path": "maos", "timezone": "UTC"})
    yield connected
    await connected.close()


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    """A row of either database in the same words."""

    def value(name: str, given: Any) -> Any:
        if hasattr(given, "strftime"):
            return given.strftime("%Y-%m-%d %H:%M:%S")
        if name in ("acknowledged", "delivered"):
            return bool(given)
        if isinstance(given, str) and given[:1] in ("{", "["):
            return json.loads(given)
        return given

    given = {name: value(name, each) for name, each in row.items() if name not in BY_THE_CLOCK_OF_THE_DATABASE}
    if "completed_at" in given and given["completed_at"] is None:
        given.pop("total_duration_ms", None)  # up to now, by that clock
    return given


async def repeat(m: Maos, url: str) -> None:
    """The same events at the same positions in PostgreSQL, and the same kept folds."""
    async with maos.open(url) as other:
        head = await m.journal.head()
        async for record in m.journal.follow():
            documents = []
            if record.position == head:
                for kind in ("attempt", "run"):
                    documents += await m.journal.store.scan(kind)
            append = Append(record.stream, [maos.Event(record.type, record.data)])
            assert (await other.journal.append_all([append], documents=documents)).position == record.position
            if record.position == head:
                break


async def same_rows(query: Query, connection: asyncpg.Connection[Any]) -> None:
    for name in views.NAMES:
        order = "1, agent_id" if name == "sessions" else "1"
        here = [comparable(row) for row in query(f"SELECT * FROM {name} ORDER BY {order}")]
        there = [comparable(dict(row)) for row in await connection.fetch(f"SELECT * FROM {name} ORDER BY {order}")]
        assert here, name
        for one, other in zip(here, there, strict=True):
            for column, value in one.items():
                assert other[column] == value, f"{name}.{column} of {one}"


@pytest.fixture
async def m(database: Path, tmp_path: Path) -> AsyncIterator[Maos]:
    async with maos.open(database, home=tmp_path / "home") as opened:
        yield opened


async def test_both_databases_show_the_same(
    m: Maos, tmp_path: Path, query: Query, postgres_url: str, connection: asyncpg.Connection[Any]
) -> None:
    runs = Runs(m.journal, SystemClock(), m.agents, worker=Hands, bus=m.bus)
    run = await carried_out(runs, plan(a="", b="a", c="a", d="b c"), Hands())
    await checkpoints.make(m.journal, SystemClock(), await runs.get(run.id), "release")
    failed = await carried_out(runs, plan(a="", b=""), Hands({"a": ["failed"]}))
    again = await carried_out(runs, plan(z="", a=""), Hands({"z": ["failed"]}))
    await m.journal.append(f"run/{again.id}", maos.Event("run_resumed", {"at_us": again.updated_us + 1}))
    commands = Plan(tasks=[Task(name="one", command=["true", "x y"])])
    await runs.create(commands, request='what "about" this?')
    for number in range(3):
        more = {"name": f"{run.id}.a", "kind": "shell", "argv": ["sh", "-c", "echo found: it"], "cwd": tmp_path}
        running = await (m.agents.resume(f"{run.id}.a") if number else m.agents.start(in_place=True, **more))
        await running.wait()
        if not number:
            await asyncio.sleep(1.1)  # an agent was created when it first began
    await m.bus.send("api", "page", 'a "quote" and a \\ and ü', type="discovery", run=run.id, metadata={"n": [1, None]})
    await m.bus.send("api", "tests", "short", run=failed.id)
    await m.bus.send("api", "page", "of no run")
    await m.bus.subscribe("page", "news")
    await m.bus.subscribe("tests", "news")
    await m.bus.publish("api", "news", "to two")
    async with m.bus.receive("page") as inbox:
        await (await anext(inbox)).ack()
        await anext(inbox)
    await m.workflows.run(doubled, 'a "quote"', id="w")
    await repeat(m, postgres_url)
    await same_rows(query, connection)
    assert await connection.fetchval("SELECT count(*) FROM messages WHERE delivered AND NOT acknowledged") == 1


async def test_a_nul_spoils_no_view(postgres_url: str, connection: asyncpg.Connection[Any]) -> None:
    """jsonb cannot hold one."""
    async with maos.open(postgres_url) as m:
        await m.bus.send("a", "b", "before\0after")
    assert await connection.fetchval("SELECT message FROM messages") == "before\ufffdafter"


async def test_the_columns_are_there_in_an_empty_database(
    postgres_url: str, connection: asyncpg.Connection[Any]
) -> None:
    async with maos.open(postgres_url) as m:
        assert m.journal.notes == []
    for name, columns in COLUMNS.items():
        assert await connection.fetch(f"SELECT {', '.join(columns.split())} FROM {name}") == []


async def test_views_of_another_version_are_replaced_and_those_that_cannot_be_are_left(
    postgres_url: str, connection: asyncpg.Connection[Any]
) -> None:
    async def opened() -> list[str]:
        async with maos.open(postgres_url) as m:
            return list((await m.verify()).notes)

    await opened()
    await connection.execute("DROP VIEW maos_views; DROP VIEW agents; CREATE VIEW agents AS SELECT 1 AS old")
    assert await opened() == []
    assert await connection.fetch("SELECT id FROM agents") == []
    await connection.execute("CREATE VIEW mine AS SELECT id FROM agents; DROP VIEW maos_views")
    assert any("the views could not be created" in note for note in await opened())
    assert await connection.fetch("SELECT id FROM mine") == []


async def test_two_who_open_it_at_once_make_them_once(postgres_url: str) -> None:
    async def opened() -> list[str]:
        async with maos.open(postgres_url) as m:
            return list((await m.verify()).notes)

    assert await asyncio.gather(*(opened() for _ in range(4))) == [[]] * 4
