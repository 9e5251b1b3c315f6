"""The rows of docs/explanation/what-survives-what.md, with plain commands: who is killed, and what is left."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import maos
from maos.app import Maos
from maos.errors import LeaseLost
from maos.store.contract import Lease
from maos_testing.crash import ChildProcess
from maos_testing.postgres import PostgresServer
from tests.engine import stopped_engine
from tests.engine.conftest import processes_below
from tests.engine.test_attempts import lines_of

COUNT = "i=0; while [ $i -lt {} ]; do echo line $i; i=$((i+1)); sleep 0.01; done"


async def until(condition) -> None:  # type: ignore[no-untyped-def]
    async with asyncio.timeout(180):
        while not await condition():
            await asyncio.sleep(0.01)


async def heard_something(m: Maos) -> bool:
    return bool((await m.agents.get("a")).lines)


async def gone(home: Path) -> bool:
    return not await asyncio.to_thread(processes_below, home)


async def started(m: Maos, folder: Path, script: str):  # type: ignore[no-untyped-def]
    running = await m.agents.start(argv=["sh", "-c", script], cwd=folder, name="a", in_place=True)
    await until(lambda: heard_something(m))
    return running


def holder_of(agent: int) -> int:
    """The holder is two above the agent: the guard is between them."""
    guard = int(Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[1])
    return int(Path(f"/proc/{guard}/stat").read_text().rpartition(")")[2].split()[1])


async def test_the_agent_is_killed(m: Maos, tmp_path: Path, home: Path) -> None:
    """What it said is recorded, it is known how it ended, and its children are ended too."""
    running = await started(m, tmp_path, "setsid sleep 100 & " + COUNT.format(10_000))
    os.kill(running.attempt.pid, signal.SIGKILL)
    attempt = await running.wait()
    assert (attempt.status, attempt.failure, attempt.exit["signal"]) == ("failed", "killed", signal.SIGKILL)
    heard = await lines_of(m, "a")
    assert heard == [f"line {number}" for number in range(len(heard))]
    await until(lambda: gone(home))


async def test_the_holder_is_killed(m: Maos, tmp_path: Path, home: Path) -> None:
    """I33: the agent dies with all its children; what it had said is recorded; a new attempt can be made."""
    running = await started(m, tmp_path, "setsid sleep 100 & " + COUNT.format(10_000))
    os.kill(holder_of(running.attempt.pid), signal.SIGKILL)
    attempt = await running.wait()
    assert (attempt.status, attempt.failure) == ("failed", "holder_lost")
    await until(lambda: gone(home))
    heard = await lines_of(m, "a")
    assert heard == [f"line {number}" for number in range(len(heard))]
    second = await m.agents.resume("a")
    assert second.attempt.number == 2
    await second.stop(grace_s=1)
    await second.wait()


async def test_the_engine_and_the_holder_are_killed(tmp_path: Path, home: Path) -> None:
    """What the agent had said is in the spool, and gets into the journal."""
    database = tmp_path / "maos.db"
    engine = ChildProcess([sys.executable, stopped_engine.__file__, database, home, tmp_path, COUNT.format(10_000)])
    await asyncio.to_thread(engine.wait_for_ack)
    async with maos.open(database, home=home) as m:
        await until(lambda: heard_something(m))
        agent = (await m.agents.get("a")).pid
        holder = holder_of(agent)
        engine.kill()
        await asyncio.to_thread(engine.wait, 1)
        before = len(await lines_of(m, "a"))
        await asyncio.sleep(0.2)
        os.kill(holder, signal.SIGKILL)
        await until(lambda: gone(home))
        assert await m.agents.adopt("a") is None
        attempt = await m.agents.get("a")
        assert (attempt.status, attempt.failure) == ("failed", "holder_lost")
        heard = await lines_of(m, "a")
        assert heard == [f"line {number}" for number in range(len(heard))]
        assert len(heard) > before, "what was in the spool is missing"


async def test_an_attempt_that_another_engine_concludes_meanwhile_is_not_claimed_again(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two engines find an attempt whose engine and agent were killed; one of them waits for the other's lease."""
    database = tmp_path / "maos.db"
    engine = ChildProcess([sys.executable, stopped_engine.__file__, database, home, tmp_path, COUNT.format(10_000)])
    await asyncio.to_thread(engine.wait_for_ack)
    async with maos.open(database, home=home) as m, maos.open(database, home=home) as other:
        await until(lambda: heard_something(m))
        holder = holder_of((await m.agents.get("a")).pid)
        engine.kill()
        await asyncio.to_thread(engine.wait, 1)
        os.kill(holder, signal.SIGKILL)
        await until(lambda: gone(home))
        acquire, looked, concluded = other.journal.acquire, asyncio.Event(), asyncio.Event()

        async def late(name: str, *, ttl_s: float) -> Lease | None:
            looked.set()
            await concluded.wait()
            return await acquire(name, ttl_s=ttl_s)

        monkeypatch.setattr(other.journal, "acquire", late)
        waiting = asyncio.create_task(other.agents.adopt("a"))
        await looked.wait()
        assert await m.agents.adopt("a") is None
        before = await m.agents.get("a")
        assert not before.is_open
        concluded.set()
        assert await waiting is None
        assert (await m.agents.get("a")).version == before.version


async def test_the_engine_is_stopped_and_wakes_up_when_another_has_taken_over(tmp_path: Path, home: Path) -> None:
    """I23: it records nothing more, and leaves the agent alone."""
    database = tmp_path / "maos.db"
    script = "seq -f 'line %g' 0 19; sleep 4; seq -f 'line %g' 20 39"
    engine = ChildProcess([sys.executable, stopped_engine.__file__, database, home, tmp_path, script])
    await asyncio.to_thread(engine.wait_for_ack)
    async with maos.open(database, home=home) as m:
        while (await m.agents.get("a")).lines < 20:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)  # it has nothing to write now
        os.kill(engine._process.pid, signal.SIGSTOP)
        try:
            running = None
            async with asyncio.timeout(120):
                while running is None:
                    try:
                        running = await m.agents.adopt("a")
                    except maos.Conflict:
                        await asyncio.sleep(0.1)
                    except maos.StoreUnavailable:  # it was stopped in a commit, and keeps SQLite's lock
                        os.kill(engine._process.pid, signal.SIGCONT)
                        await asyncio.sleep(0.05)
                        os.kill(engine._process.pid, signal.SIGSTOP)
        finally:
            os.kill(engine._process.pid, signal.SIGCONT)
        life = await asyncio.to_thread(engine.wait, 1)
        assert life.acks[-1].startswith("fenced"), life
        attempt = await running.wait()
        assert attempt.status == "done"
        assert await lines_of(m, "a") == [f"line {number}" for number in range(40)]


async def test_the_engine_closes_with_its_terminal(tmp_path: Path, home: Path) -> None:
    """The agent goes on, its output is kept, and the next engine records it."""
    async with maos.open(tmp_path / "maos.db", home=home) as m:
        await started(m, tmp_path, COUNT.format(100))
    async with maos.open(tmp_path / "maos.db", home=home) as m:
        running = await m.agents.resume("a")
        assert running.attempt.number == 1
        await running.wait()
        assert await lines_of(m, "a") == [f"line {number}" for number in range(100)]


async def test_an_attempt_that_was_taken_by_another_machine_is_ended_here(m: Maos, tmp_path: Path, home: Path) -> None:
    """I33: two machines must not act for one agent, and the other one cannot reach our holder."""
    running = await started(m, tmp_path, "setsid sleep 100 & " + COUNT.format(10_000))
    attempt = await m.agents.get("a")
    elsewhere = {**attempt.owner, "machine": "another", "host": "another", "token": attempt.owner["token"] + 1}
    store = m.journal.store
    lease = None
    while lease is None:  # the engine may renew its own in between
        await store.release(running.recorder.lease)
        lease = await store.acquire("attempt/a", owner="another", ttl_s=60)
    taken = maos.Event("attempt_claimed", {"owner": elsewhere})
    with pytest.raises(LeaseLost):
        await m.journal.append("attempt/a.1", taken, under=lease)
        await running.wait()
    await until(lambda: gone(home))


async def test_the_database_server_is_killed_and_comes_back(
    postgres: PostgresServer, postgres_url: str, tmp_path: Path, home: Path
) -> None:
    """I9: the agent goes on, its output waits, and nothing of it is missing or doubled afterwards."""
    async with maos.open(postgres_url, home=home) as m:
        running = await started(m, tmp_path, COUNT.format(200))
        postgres.kill()
        await asyncio.sleep(0.5)
        postgres.start()
        attempt = await running.wait()
        assert attempt.status == "done"
        assert await lines_of(m, "a") == [f"line {number}" for number in range(200)]


async def test_the_files_of_an_agent_are_those_of_its_last_checkpoint(m: Maos, tmp_path: Path) -> None:
    """R-703: an attempt works in a worktree; what it did is a commit, and the user's own tree is left alone."""
    repository = tmp_path / "repository"
    repository.mkdir()
    for command in (
        ["init", "-q"],
        ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "--allow-empty", "-m", "x"],
    ):
        subprocess.run(["git", *command], cwd=repository, check=True)
    running = await m.agents.start(argv=["sh", "-c", "echo new > file; echo done"], cwd=repository, name="a")
    attempt = await running.wait()
    commit = attempt.checkpoints[-1].commit
    assert commit is not None
    shown = subprocess.run(["git", "show", f"{commit}:file"], cwd=repository, capture_output=True, check=True)
    assert shown.stdout == b"new\n"
    assert not (repository / "file").exists()
