"""The store is away for a while: commands and messages that are sent afterwards still reach what this engine runs."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.app import Maos, Outage
from maos.engine.recorder import Recorder
from maos.engine.streams import RUN
from maos.errors import LeaseLost, StoreUnavailable
from maos.model.events.run import RunCreated, RunPaused
from maos.model.run import Run
from maos.workflows import signal
from maos.workflows.definition import workflow
from maos_testing.postgres import SOCKET_PORT, PostgresServer
from tests.engine.test_attempts import lines_of

ECHO = 'while read line; do echo "got $line"; done'
WAIT_S = 0.5


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
    postgres: PostgresServer, postgres_url: str, tmp_path: Path, home: Path
) -> None:
    """I9, on a real server that is stopped for longer than calls wait, and started again."""

    async def outage() -> None:
        await asyncio.to_thread(postgres.stop)
        await asyncio.sleep(6 * WAIT_S)
        await asyncio.to_thread(postgres.start)

    async with maos.open(postgres_url, home=home, wait_s=WAIT_S) as m:
        await everything_arrives(m, tmp_path, outage)


async def test_an_engine_whose_lease_was_taken_during_an_outage_writes_nothing(
    postgres: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    """The server is away for one engine only; another claims the run when the lease has run out."""
    url = postgres_url.replace(str(postgres.directory), str(tmp_path))
    way = tmp_path / f".s.PGSQL.{SOCKET_PORT}"
    way.symlink_to(postgres.directory / way.name)
    reports: list[Outage] = []
    async with (
        maos.open(url, wait_s=WAIT_S, on_outage=reports.append, mark_path=tmp_path / "mark") as m,
        maos.open(postgres_url, mark_path=tmp_path / "other") as other,
    ):
        lease = await m.journal.acquire("run/r-1", ttl_s=1.0)
        assert lease is not None
        recorder = Recorder(m.journal, RUN, Run(id="r-1"), lease, lease_s=1.0)
        recorder.hold()
        await recorder.append(RunCreated(request="", folder="", options={}, owner={}, at_us=1))
        way.unlink()
        pids = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'maos'"
        await asyncio.to_thread(postgres.run_sql, pids)
        writing = asyncio.create_task(recorder.append(RunPaused(why="too late", at_us=2)))
        async with asyncio.timeout(20):
            while (taken := await other.journal.acquire("run/r-1", ttl_s=60)) is None:
                await asyncio.sleep(0.05)
            while not reports:
                await asyncio.sleep(0.05)
        assert not writing.done(), "an engine waits without limit"
        await other.journal.append("run/r-1", RunPaused(why="by the other", at_us=3), under=taken)
        way.symlink_to(postgres.directory / way.name)
        with pytest.raises(LeaseLost):
            await writing
        await recorder.release()
        found = [record.event async for record in other.journal.read("run/r-1")]
        assert [getattr(each, "why", "") for each in found] == ["", "by the other"]
    assert [bool(each.until_us) for each in reports] == [False, True]
