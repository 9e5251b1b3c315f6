"""The store is away for a while: commands and messages that are sent afterwards still reach what this engine runs."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.errors import StoreUnavailable
from maos.store import postgres as postgres_store
from maos.workflows import signal
from maos.workflows.definition import workflow
from maos_testing.postgres import PostgresServer
from tests.engine.test_attempts import lines_of

ECHO = 'while read line; do echo "got $line"; done'
PATIENCE_S = 0.5


@workflow
async def waits_for_a_signal() -> str:
    return str(await signal("go"))


async def until(condition: Callable[[], Awaitable[Any]]) -> None:
    async with asyncio.timeout(20):
        while not await condition():
            await asyncio.sleep(0.02)


async def everything_arrives(m: Maos, folder: Path, outage: Callable[[], Awaitable[None]]) -> None:
    """An agent, a run and a workflow in one engine; after an outage each is sent all that can be sent to it."""
    echo = await m.agents.start(
        argv=["sh", "-c", ECHO], cwd=folder, in_place=True, name="echo", takes_input=True, time_limit_s=0
    )
    plan = {"tasks": [{"name": "long", "command": ["sleep", "300"]}]}
    run = await m.runs.create(plan, folder=folder, options={"in_place": True})
    carried_out = asyncio.create_task(m.runs.execute(run.id))
    waiting = await m.workflows.start(waits_for_a_signal, id="w-1")
    await m.runs.ask(run.id, "Which?", key="q1", asked_by="long")

    async def is_asked() -> bool:
        return "q1" in (await m.runs.get(run.id)).questions

    await until(is_asked)
    await outage()

    await m.agents.send("echo", "hello")

    async def is_told() -> bool:
        return "got hello" in await lines_of(m, "echo")

    await until(is_told)
    await m.runs.answer(run.id, "q1", "this one")

    async def is_answered() -> bool:
        return (await m.runs.get(run.id)).questions["q1"].answer == "this one"

    await until(is_answered)
    await m.workflows.signal("w-1", "go", "now")
    await m.runs.pause(run.id)
    await m.agents.stop("echo", grace_s=1)
    async with asyncio.timeout(20):
        assert await waiting.result() == "now"
        assert (await carried_out).status == "paused"
        assert (await echo.wait()).status == "stopped"
    assert await lines_of(m, "echo") == ["got hello"], "it is told once"


@pytest.mark.parametrize("method", ["read_log", "wait", "read"])
async def test_one_read_that_fails_cuts_nothing_off(
    m: Maos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """I9: the reader of inboxes reads on from where it was."""
    store = m.journal.store
    works = getattr(store, method)
    failed: list[str] = []

    async def fails_once(*arguments: Any, **more: Any) -> Any:
        reads_an_inbox = method != "read" or str(arguments[0]).startswith("inbox/")
        if not failed and reads_an_inbox:
            failed.append(method)
            raise StoreUnavailable("the disk did not answer", written=False)
        return await works(*arguments, **more)

    async def outage() -> None:
        monkeypatch.setattr(store, method, fails_once)
        await m.journal.append("inbox/echo", maos.Event("checkpoint_requested", {"name": "x", "at_us": 1}))
        await m.journal.append("note/x", maos.Event("message_sent", {"text": "wakes every reader"}))
        await asyncio.sleep(0.2)

    await everything_arrives(m, tmp_path, outage)
    if method != "read":
        assert failed


async def test_a_server_that_is_away_for_longer_than_its_patience_cuts_nothing_off(
    postgres: PostgresServer, postgres_url: str, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I9, on a real server that is stopped until every read of it has failed, and started again."""
    monkeypatch.setitem(postgres_store.PostgresDatabase.__init__.__kwdefaults__, "patience_s", PATIENCE_S)

    async def outage() -> None:
        await asyncio.to_thread(postgres.stop)
        await asyncio.sleep(6 * PATIENCE_S)
        await asyncio.to_thread(postgres.start)

    async with maos.open(postgres_url, home=home) as m:
        await everything_arrives(m, tmp_path, outage)
