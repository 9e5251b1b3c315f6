"""The supervisor: every open run is executed by some engine, whichever process dies."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

import maos
from maos.errors import InvalidInput
from maos.model.plan import Plan, Task
from maos.model.principal import Principal, PrincipalKind
from maos.model.run import Run
from maos.ops import supervisor
from tests.web.conftest import MAOS, ServerProcess, write_plan

IN_PLACE: dict[str, Any] = {"in_place": True}
HELLO = {"tasks": [{"name": "hello", "command": ["echo", "hello"]}]}


@asynccontextmanager
async def supervised(m: maos.Maos) -> AsyncIterator[asyncio.Task[None]]:
    """Have a supervisor execute what is open until the end of the block."""
    supervising = asyncio.create_task(m.supervisor.supervise())
    try:
        yield supervising
    finally:
        supervising.cancel()
        await asyncio.gather(supervising, return_exceptions=True)


async def until(m: maos.Maos, id: str, holds: Callable[[Run], bool]) -> Run:
    """Wait until something holds of a run."""
    async with asyncio.timeout(60):
        while not holds(run := await m.runs.get(id)):
            await asyncio.sleep(0.02)
    return run


async def test_a_run_that_was_handed_over_is_executed(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db", home=tmp_path) as m:
        run = await m.runs.start(HELLO, folder=tmp_path, options=IN_PLACE, is_claimed=False)
        assert run.is_handed_over
        assert (await m.runs.status(run.id)).now.state == "initializing"
        async with supervised(m):
            ended = await until(m, run.id, lambda each: not each.is_open)
            again = await m.runs.start(HELLO, folder=tmp_path, options=IN_PLACE, is_claimed=False)
            await until(m, again.id, lambda each: not each.is_open)
        assert ended.status == "completed"
        assert ended.restored_from == "server"
        assert not m.supervisor.problems


async def test_a_run_whose_engine_was_killed_is_resumed_without_a_command(tmp_path: Path) -> None:
    plan = write_plan(tmp_path, {"name": "wait", "command": ["sh", "-c", "echo begun; sleep 2; echo done"]})
    command = [*MAOS, "--db", str(tmp_path / "maos.db"), "run", "-f", str(plan), "--auto", "--in-place", "--json"]
    async with maos.open(tmp_path / "maos.db") as m:
        async with supervised(m):
            engine = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            async with asyncio.timeout(60):
                while not (known := [each async for each in m.runs.all()]) or not known[0].running:
                    await asyncio.sleep(0.02)
            assert known[0].owner["pid"] == engine.pid  # while its engine lives, it is left alone
            os.kill(engine.pid, signal.SIGKILL)
            engine.wait()
            ended = await until(m, known[0].id, lambda each: not each.is_open)
        assert ended.status == "completed"
        assert ended.owner["pid"] == os.getpid()
        assert len(await m.agents.history(f"{ended.id}.wait")) == 1  # its agent was attached to


async def test_paused_runs_wait_until_they_are_handed_over(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db", home=tmp_path) as m:
        run = await m.runs.start(
            {"tasks": [{"name": "fail", "command": ["false"]}]}, folder=tmp_path, options=IN_PLACE, is_claimed=False
        )
        async with supervised(m):
            failed = await until(m, run.id, lambda each: not each.is_open)
            assert failed.status == "failed"
            person = m.acting_for(Principal(PrincipalKind.TOKEN, "phone"))
            handed = await person.runs.hand_over(run.id)
            assert handed.is_going
            again = await until(m, run.id, lambda each: each.restored == 2 and not each.is_open)
            await person.close()
        assert again.status == "failed"
        events = [each.event for each in await m.runs.versions(run.id) if each.type == "run_resumed"]
        assert [each.by for each in events] == ["token:phone"]


async def test_what_is_wrong_with_one_run_is_reported_and_others_are_executed(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    async with maos.open(tmp_path / "maos.db", home=tmp_path) as m:
        lost = await m.runs.start(HELLO, folder=gone, options=IN_PLACE, is_claimed=False)
        gone.rmdir()
        good = await m.runs.start(HELLO, folder=tmp_path, options=IN_PLACE, is_claimed=False)
        async with supervised(m):
            await until(m, good.id, lambda each: not each.is_open)
            async with asyncio.timeout(60):
                while lost.id not in m.supervisor.problems:
                    await asyncio.sleep(0.02)
            problem = m.supervisor.problems[lost.id]
            assert "gone" in problem.what
            assert problem.again_us > m.clock.now_us() - 5_000_000


async def test_of_two_supervisors_one_executes_a_run(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db") as one, maos.open(tmp_path / "maos.db") as other:
        async with supervised(one), supervised(other):
            ids = [
                (await one.runs.start(HELLO, folder=tmp_path, options=IN_PLACE, is_claimed=False)).id for _ in range(3)
            ]
            runs = [await until(one, id, lambda each: not each.is_open) for id in ids]
        assert [each.status for each in runs] == ["completed"] * 3
        assert [each.restored for each in runs] == [1] * 3


async def test_a_stopped_supervisor_detaches_or_pauses(tmp_path: Path) -> None:
    slow = {"tasks": [{"name": "wait", "command": ["sh", "-c", "sleep 60"]}]}
    async with maos.open(tmp_path / "maos.db", home=tmp_path) as m:
        run = await m.runs.start(slow, folder=tmp_path, options=IN_PLACE, is_claimed=False)
        async with supervised(m) as supervising:
            await until(m, run.id, lambda each: each.running == 1)
            while (agent := await m.agents.newest(f"{run.id}.wait")) is None or not agent.pid:
                await asyncio.sleep(0.02)
            supervising.cancel()
            await asyncio.gather(supervising, return_exceptions=True)
        assert (await m.agents.get(f"{run.id}.wait")).is_open
        lease = await m.journal.acquire(f"run/{run.id}", owner="another")
        assert lease is not None  # it was released
        await m.journal.release(lease)
        await m.agents.stop_and_wait(f"{run.id}.wait", grace_s=0.1)
        paused = await m.runs.start(slow, folder=tmp_path, options=IN_PLACE, is_claimed=False)
        async with supervised(m):
            while (agent := await m.agents.newest(f"{paused.id}.wait")) is None or not agent.pid:
                await asyncio.sleep(0.02)
            await m.supervisor.stop("pause")
        assert (await m.runs.get(paused.id)).status == "paused"
        assert not (await m.agents.get(f"{paused.id}.wait")).is_open


async def test_a_supervisor_that_pauses_detaches_from_agents_that_work_alone(tmp_path: Path) -> None:
    program = f"""
import asyncio, pathlib, maos
async def main() -> None:
    async with maos.open({str(tmp_path / "maos.db")!r}, home=pathlib.Path({str(tmp_path)!r})) as m:
        await m.agents.start(kind="shell", argv=["sleep", "60"], cwd={str(tmp_path)!r}, name="alone", in_place=True)
asyncio.run(main())
"""
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program], check=True)
    async with maos.open(tmp_path / "maos.db", home=tmp_path) as m:
        async with supervised(m):
            async with asyncio.timeout(60):
                while m.supervisor.executing != ["alone"]:
                    await asyncio.sleep(0.02)
                await m.supervisor.stop("pause")
        assert (await m.agents.get("alone")).is_open
        await m.agents.stop_and_wait("alone", grace_s=0.1)


async def test_a_problem_that_lasts_for_days_is_still_tried_again_now_and_then(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db", home=tmp_path) as m:
        for error in (None, maos.StoreUnavailable("no answer", written=False)):
            for _ in range(1_100):
                m.supervisor._fail("r-1", error)
            problem = m.supervisor.problems.pop("r-1")
            assert problem.tries == 1_100
            assert m.clock.now_us() < problem.again_us < m.clock.now_us() + 600_000_000


async def test_what_ends_beside_the_runs_is_a_problem_and_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "PAUSE_S", 0.05)
    async with maos.open(tmp_path / "maos.db", home=tmp_path) as m:
        serve, calls = m.workflows.serve, 0

        async def serve_after_a_failure(**options: Any) -> None:
            nonlocal calls
            calls += 1
            if calls < 3:
                raise maos.StoreUnavailable("the connection was lost", written=False)
            await serve(**options)

        monkeypatch.setattr(m.workflows, "serve", serve_after_a_failure)
        async with supervised(m):
            async with asyncio.timeout(60):
                while calls < 3:
                    await asyncio.sleep(0.02)


async def test_a_token_can_start_words_and_no_commands(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db", home=tmp_path) as m:
        program = m.acting_for(Principal(PrincipalKind.TOKEN, "phone"))
        with pytest.raises(maos.NotPermitted, match="command"):
            await program.runs.start(HELLO, folder=tmp_path)
        words = Plan(tasks=[Task(name="hello", task="say hello")])
        for kind in ("shell", "python", "acp:/bin/sh -c id"):
            with pytest.raises((maos.NotPermitted, InvalidInput)):
                await program.runs.start(words, folder=tmp_path, options={"kind": kind})
            with pytest.raises((maos.NotPermitted, InvalidInput)):
                await program.runs.start_request("say hello", folder=tmp_path, options={"kind": kind})
        run = await m.runs.start(HELLO, folder=tmp_path, options=IN_PLACE, is_claimed=False)
        with pytest.raises(maos.NotPermitted):
            await program.runs.add(run.id, Plan(tasks=[Task(name="more", command=["id"])]))
        with pytest.raises(maos.NotPermitted):
            await program.runs.request_tasks(run.id, Plan(tasks=[Task(name="more", command=["id"])]))
        assert [each.id async for each in m.runs.all()] == [run.id]
        said = await program.runs.start(words, folder=tmp_path, options={"kind": "claude"}, is_claimed=False)
        assert said.created_by == "token:phone"
        await program.close()


@pytest.mark.parametrize("arguments", [[], ["--no-http"]], ids=["with HTTP", "without HTTP"])
def test_work_that_is_handed_over_survives_kill_9_of_the_server(
    new_server: Callable[[], ServerProcess], arguments: list[str], tmp_path: Path
) -> None:
    server = new_server()
    if arguments:  # it needs no packages of the extra `serve`
        for name in ("starlette", "uvicorn"):
            (tmp_path / f"{name}.py").write_text(f"raise ImportError('no {name}', name='{name}')\n")
        server.environment["PYTHONPATH"] = str(tmp_path)
        assert "pip install 'maos[serve]'" in server.maos("serve").stderr
    server.database.parent.joinpath("flow.py").write_text(
        "import maos\n\n@maos.workflow\nasync def double(n: int) -> int:\n    return 2 * n\n"
    )
    plan = write_plan(server.folder, {"name": "hello", "command": ["sh", "-c", "sleep 1; echo hello"]})
    refused = server.maos("run", "-f", str(plan), "--auto", "--in-place", "--detach")
    assert refused.returncode != 0
    server.start(*arguments)
    started = server.maos("run", "-f", str(plan), "--auto", "--in-place", "--detach", "--json")
    assert '"handed_over"' in started.stdout, started.stderr
    alone = server.maos("agent", "run", "--in-place", "--detach", "--name", "lone", "--", "sh", "-c", "sleep 1; echo x")
    assert alone.returncode == 0, alone.stderr
    flow = server.maos("workflow", "run", "flow.py:double", "21", "--id", "w-1", "--detach")
    assert flow.returncode == 0, flow.stderr
    if arguments:
        linked = server.maos("token", "link")
        assert (linked.returncode, linked.stderr.partition(" of ")[0]) == (3, "error: no server shows the page")
    server.kill()
    server.start(*arguments)

    async def ended() -> None:
        async with maos.open(server.database) as m, asyncio.timeout(60):
            while True:
                runs = [each async for each in m.runs.all()]
                flows = [each async for each in m.workflows.all()]
                agent = await m.agents.status("lone")
                if all(not each.is_open for each in (*runs, *flows)) and not agent.is_open:
                    break
                await asyncio.sleep(0.05)
            assert [each.status for each in runs] == ["completed"]
            assert [(each.status, each.result) for each in flows] == [("completed", 42)]
            assert agent.status == "done"

    asyncio.run(ended())
    assert server.stop() == 0
    servers = subprocess.run(
        [sys.executable, "-P", "-m", "maos", "--db", str(server.database), "token", "link"],
        capture_output=True, text=True, env=server.environment,
    )  # fmt: skip
    assert servers.returncode == 3  # it has withdrawn


AGAIN = "test -e again || { touch again; exit 1; }; echo second; until [ -e go ]; do sleep 0.05; done; echo last"
"""A command that fails the first time, and waits for a file the second time."""


@pytest.mark.parametrize("is_killed", [False, True], ids=["", "killed while it hands over"])
def test_an_agent_that_works_alone_is_resumed_over_http(
    new_server: Callable[[], ServerProcess], is_killed: bool
) -> None:
    """The events name the token; a server that is killed before it attaches leaves the agent to the next one."""
    server = new_server()
    failed = server.maos("agent", "run", "--in-place", "--name", "lone", "--", "sh", "-c", AGAIN)
    assert failed.returncode == 1, failed.stderr
    if is_killed:
        server.environment |= {"MAOS_CRASH_AT": "1", "MAOS_CRASH_NAME": "supervisor.agent_detached"}
    server.start()
    tokens = server.tokens()
    with server.client(tokens["answerer"]) as phone:
        assert phone.post("/api/v1/agents/lone/resume", json={}).status_code == 403
    with server.client(tokens["operator"]) as http:
        refused = http.post("/api/v1/agents/lone/resume", json={"text": "; rm -rf /"})
        assert (refused.status_code, "accepts no further task" in refused.text) == (400, True)
        if is_killed:
            with pytest.raises(httpx2.TransportError):
                http.post("/api/v1/agents/lone/resume", json={})
        else:
            assert http.post("/api/v1/agents/lone/resume", json={}).json()["status"] in ("running", "detached")
            assert http.post("/api/v1/agents/lone/resume", json={}).status_code == 409
    if is_killed:
        server.stop()
        del server.environment["MAOS_CRASH_AT"]
        server.start()
    (server.folder / "go").touch()

    async def ended() -> None:
        async with maos.open(server.database) as m, asyncio.timeout(60):
            while (status := await m.agents.status("lone")).is_open:
                await asyncio.sleep(0.05)
            assert status.status == "done"
            assert len(await m.agents.history("lone")) == 2
            attempt = [each async for each in m.journal.read("attempt/lone.2")]
            assert attempt[0].data["by"] == "token:the-operator"
            facts = [fact for each in attempt for fact in each.data.get("facts", ()) if fact["kind"] == "line"]
            assert [fact["text"] for fact in facts] == ["second", "last"]

    asyncio.run(ended())


async def test_an_agent_of_a_run_is_not_resumed_without_its_run(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db", home=tmp_path) as m:
        plan = {"tasks": [{"name": "fail", "command": ["false"]}]}
        run = await m.runs.start(plan, folder=tmp_path, options=IN_PLACE)
        await m.runs.execute(run.id)
        caller = m.acting_for(Principal(PrincipalKind.TOKEN, "phone"))
        with pytest.raises(InvalidInput, match=f"belongs to {run.id}"):
            await m.supervisor.resume_agent(caller.agents, f"{run.id}.fail")
        await caller.close()


async def test_a_run_that_cannot_be_read_is_reported_and_others_are_executed(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db", types=[maos.EventType("from_elsewhere", 1)]) as newer:
        await newer.journal.append("run/r-0", maos.Event("from_elsewhere", {}))
    async with maos.open(tmp_path / "maos.db", home=tmp_path) as m:
        good = await m.runs.start(HELLO, folder=tmp_path, options=IN_PLACE, is_claimed=False)
        async with supervised(m) as supervising:
            async with asyncio.timeout(60):
                while (await m.runs.get(good.id)).is_open and not supervising.done():
                    await asyncio.sleep(0.02)
            assert not supervising.done(), supervising.exception()
            assert "from_elsewhere" in m.supervisor.problems["r-0"].what
