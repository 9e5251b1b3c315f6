"""A19: an engine that was stopped while another one took over its run: it writes nothing, and says so."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.runs.commands import Commands, until

LEASE_S = 3.0


@pytest.fixture
async def commands(tmp_path: Path) -> Any:
    made = Commands(tmp_path / "fenced", MAOS_ENGINE_LEASE_S=str(LEASE_S))
    await made.prepare()
    yield made
    await made.close()


async def test_an_engine_that_wakes_up_fenced_says_so_without_a_traceback(commands: Commands) -> None:
    plan = commands.plan(
        [{"name": "a", "command": ["sh", "-c", f"until test -e {commands.root}/go; do sleep 0.1; done"]}]
    )
    engine = await commands.start("run", "-f", plan, "--auto", "--kind", "shell")

    async def works() -> bool:
        attempt = await commands.attempt("a")
        return attempt is not None and bool(attempt.pid)

    await until(works)
    await asyncio.sleep(0.2)  # stopped inside a commit it would keep SQLite's lock
    [before] = await commands.runs()
    engine.send_signal(signal.SIGSTOP)
    await asyncio.sleep(LEASE_S + 2.0)  # the leases of the run and of its agent have run out

    async def taken_over() -> bool:
        [run] = await commands.runs()
        return run.restored > before.restored

    other = None
    try:
        while other is None or not await taken_over():
            if other is None or other.returncode is not None:  # the lease has not run out yet
                other = await commands.start("resume", "--json")
            await asyncio.sleep(0.2)
    finally:
        engine.send_signal(signal.SIGCONT)
    out, err = await engine.communicate()
    assert (engine.returncode, "Traceback" in err.decode(), "never retrieved" in err.decode()) == (4, False, False), err
    assert f"{before.id}: another engine has taken it over" in err.decode() + out.decode()
    (commands.root / "go").touch()
    out, err = await other.communicate()
    assert other.returncode == 0, err.decode() + out.decode()
    [run] = await commands.runs()
    assert (run.status, run.tasks["a"].attempts) == ("completed", 1)
