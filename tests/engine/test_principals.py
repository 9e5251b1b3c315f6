"""A9, A10: who did it: a person by user and host, an agent by its attempt, and no agent as a person."""

import asyncio
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import maos
from maos.app import Maos
from maos.clock import SystemClock
from maos.engine.principals import find_principal
from maos.engine.streams import own_run
from maos.holder import process_tree
from maos.holder.wire import IDENTITY
from maos.journal.journal import Append
from maos.model.attempt import stream
from maos.model.events.commands import TasksRequested
from maos.model.events.run import RunNoteAdded, RunPlanned, TaskGated
from maos.model.message import dead, inbox
from maos.model.plan import AGENT_FIELDS, Plan, Task
from maos.model.run import stream as run_stream
from maos.runs.decisions import CommandHandler
from maos.runs.plan_input import Addition, validate
from maos.workspaces.layout import folder_of
from tests.attempts import plan_attempt, secret_of

ME = f"{pwd.getpwuid(os.getuid()).pw_name}@{socket.gethostname()}"
MAOS = f"{sys.executable} -P -m maos"
PLAIN, UNSET, EMPTY = "", "env -u MAOS_ATTEMPT -u MAOS_ATTEMPT_SECRET", 'env -i PATH="$PATH" MAOS_HOME="$MAOS_HOME"'
DISGUISES = {
    "as it is": f"{PLAIN} {{command}}",
    "without its variables": f"{UNSET} {{command}}",
    "with an empty environment": f"{EMPTY} {{command}}",
    "as a daemon with an empty environment": f"(setsid {EMPTY} {{command}} &); sleep 0.1; while ! test -s daemon; do "
    "sleep 0.05; done; exit $(cat daemon)",
    "as another user": "USER=alice LOGNAME=alice {command}",
    "as another attempt": "MAOS_ATTEMPT=other.1 {command}",
}
SECRETS = """\
import json, os, pathlib, time
here = pathlib.Path("told-" + os.environ["MAOS_ATTEMPT"])
here.with_suffix(".tmp").write_text(json.dumps(dict(os.environ)))
here.with_suffix(".tmp").rename(here)
print("my secret is", os.environ["MAOS_ATTEMPT_SECRET"], flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.02)
"""


async def until(condition: Callable[[], Any], within_s: float = 60.0) -> Any:
    async with asyncio.timeout(within_s):
        while not (found := condition()):
            await asyncio.sleep(0.02)
        return found


async def events(m: Maos, stream: str, type_: str) -> list[dict[str, Any]]:
    return [dict(each.data) async for each in m.journal.read(stream) if each.type == type_]


def as_agent(proof: dict[str, str]) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], **proof}


async def refused_principal(m: Maos, proof: dict[str, str]) -> str:
    with pytest.raises(maos.NotPermitted) as refused:
        await find_principal(m.journal, proof)
    assert refused.value.hint
    return refused.value.what


# --- a gate for a person -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("disguise", DISGUISES)
async def test_an_agent_cannot_pass_the_gate_of_a_person(m: Maos, tmp_path: Path, disguise: str) -> None:
    """F9: a task that runs `maos answer` is refused, whatever its environment says; the gate waits for a person."""
    database = tmp_path / "maos.db"
    answer = f"{MAOS} --db {database} answer gate/deploy/0/1 yes"
    if "daemon" in disguise:
        answer = f'sh -c "{answer} 2>said; echo \\$? >daemon"'
    else:
        answer += " 2>said"
    script = (
        f"until {MAOS} --db {database} inbox --json | grep -q gate/deploy; do sleep 0.1; done\n"
        f"({DISGUISES[disguise].format(command=answer)})\necho $? >code\n"
    )
    (tmp_path / "cheat.sh").write_text(script)
    tasks = [
        {"name": "deploy", "command": ["true"], "gates": [{"person": "Deploy?"}]},
        {"name": "cheat", "command": ["sh", "cheat.sh"]},
    ]
    run = await m.runs.start({"tasks": tasks}, folder=tmp_path, options={"in_place": True})
    executing = asyncio.create_task(m.runs.execute(run.id))
    await until(lambda: (tmp_path / "code").exists() and (tmp_path / "code").read_text())
    said = (tmp_path / "said").read_text()
    assert (tmp_path / "code").read_text().strip() == "2", said
    assert f"{run.id}.cheat.1" in said or "'other.1'" in said, "it says who was refused"
    assert "hint:" in said, "and what to do"
    assert [each.id for each in await m.questions.open()] == ["gate/deploy/0/1"], "the gate is still open"
    assert await events(m, inbox(run.id), "question_answered") == []
    person = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "maos", "--db", str(database), "answer", "gate/deploy/0/1", "yes"
    )
    assert await person.wait() == 0
    assert (await executing).status == "completed"
    [answered] = await events(m, run_stream(run.id), "question_answered")
    gated = await events(m, run_stream(run.id), "task_gated")
    assert (answered["by"], gated[-1]["by"]) == (ME, ME)


# --- the secret of an attempt ------------------------------------------------------------------------------------


def told(folder: Path, attempt: str) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / f"told-{attempt}").read_text())
    return {name: value for name, value in found.items() if name in ("MAOS_ATTEMPT", "MAOS_ATTEMPT_SECRET")}


async def test_a_secret_outlives_its_engine_and_proves_no_other_attempt(tmp_path: Path) -> None:
    """F9, I26: the engine is killed after the start; another one adopts the agent, which is still proved."""
    (tmp_path / "agent.py").write_text(SECRETS)
    database = tmp_path / "maos.db"
    argv = ["--db", str(database), "agent", "run", "--name", "a", "--in-place", "--", sys.executable, "agent.py"]
    engine = subprocess.Popen(
        [sys.executable, "-P", "-m", "maos", *argv],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    await until((tmp_path / "told-a.1").exists)
    first = told(tmp_path, "a.1")
    os.kill(engine.pid, signal.SIGKILL)
    engine.wait()
    async with maos.open(database) as other:
        home = other.agents.folder
        running = await other.agents.resume("a")
        assert running.attempt.id == "a.1", "adopted, and not started again"
        assert str(await find_principal(other.journal, first)) == "a.1"
        (tmp_path / "go").touch()
        assert (await running.wait()).status == "done"
        assert "has ended" in await refused_principal(other, first)
        (tmp_path / "go").unlink()
        again = await other.agents.resume("a")
        await until((tmp_path / "told-a.2").exists)
        second = told(tmp_path, "a.2")
        assert second["MAOS_ATTEMPT_SECRET"] != first["MAOS_ATTEMPT_SECRET"]
        assert str(await find_principal(other.journal, second)) == "a.2"
        assert "has ended" in await refused_principal(other, first)
        forged = {**second, "MAOS_ATTEMPT_SECRET": first["MAOS_ATTEMPT_SECRET"]}
        assert "not proved" in await refused_principal(other, forged)
        (tmp_path / "go").touch()
        await again.wait()
        secrets = [each["MAOS_ATTEMPT_SECRET"].encode() for each in (first, second)]
        for record in [each async for each in other.journal.read(stream("a.1"))]:
            assert not any(secret in json.dumps(record.data).encode() for secret in secrets), record.type
    kept = [path for path in [*home.rglob("*"), *tmp_path.glob("maos.db*")] if path.is_file() and not path.is_symlink()]
    assert kept
    for path in kept:
        assert not any(secret in path.read_bytes() for secret in secrets), f"a secret is in {path}"


# --- what an agent may do ----------------------------------------------------------------------------------------


@pytest.fixture
async def proof(m: Maos) -> dict[str, str]:
    """An agent of a run that is not executed, as its process is known."""
    tasks = [{"name": "one", "task": "do"}, {"name": "two", "task": "do"}]
    run = await m.runs.create({"tasks": tasks}, id="r-1")
    other = await m.runs.create({"tasks": tasks}, id="r-2")
    assert (run.created_by, other.created_by) == (ME, ME)
    return await plan_attempt(m.journal, "r-1.one", run="r-1")


async def merge_run(m: Maos) -> Any:
    return await m.runs.merge("r-1", into=Path(), message="mine")


async def repair(m: Maos) -> None:
    unfinished = folder_of(m.agents.folder / "workspaces", "unfinished")
    unfinished.mkdir(parents=True)
    [fix] = [each.fix for each in await m.doctor() if each.fix is not None]
    try:
        await fix()
    finally:
        assert unfinished.exists()


REFUSED: dict[str, Callable[[Maos], Any]] = {
    "pause a run": lambda m: m.runs.pause("r-2"),
    "pause its own run": lambda m: m.runs.pause("r-1"),
    "cancel a run": lambda m: m.runs.cancel("r-2"),
    "raise the limits of its own run": lambda m: m.runs.update("r-1", maos.Limits(cost_usd=1000)),
    "skip a task": lambda m: m.runs.skip("r-1", "two"),
    "start a run": lambda m: m.runs.start({"tasks": [{"name": "a", "command": ["true"]}]}, folder="/tmp"),
    "execute a run": lambda m: m.runs.execute("r-2"),
    "resume a run": lambda m: m.runs.resume("r-2"),
    "agree": lambda m: m.runs.agree("r-2"),
    "pin a run": lambda m: m.runs.keep("r-2"),
    "clean up": lambda m: m.runs.clean_up(older_than_days=0),
    "start an agent": lambda m: m.agents.start(argv=["true"], cwd="/tmp", in_place=True),
    "stop an agent": lambda m: m.agents.stop("r-1.two"),
    "allow itself something": lambda m: m.agents.answer("r-1.one", "p-1", allow=True),
    "roll back": lambda m: m.travel.rollback("r-1", 2, without_files=True),
    "fork": lambda m: m.travel.fork("r-1", 2, without_files=True),
    "make a checkpoint": lambda m: m.travel.checkpoint("r-1", "mine"),
    "trust a database": lambda m: m.trust(),
    "remove a schedule": lambda m: m.workflows.unschedule("nightly"),
    "change another's state": lambda m: m.state.create("r-1.two"),
    "send as a person": lambda m: m.bus.send("person", "r-1.two", "hello"),
    "send as another agent": lambda m: m.bus.send("r-1.two", "r-2.one", "hello"),
    "requeue a dead letter": lambda m: m.bus.requeue("r-1.two", 1),
    "receive for another agent": lambda m: anext(m.bus.receive("r-1.two")),
    "expire messages to another agent": lambda m: m.bus.expire("r-1.two"),
    "compose a change of another's state": lambda m: m.state.composed("r-1.two", {"status": "busy"}),
    "ask as another agent": lambda m: m.runs.ask("r-1", "Which?", key="q", asked_by="r-1.two"),
    "ask in another run": lambda m: m.runs.ask("r-2", "Which?", key="q", asked_by="r-1.one"),
    "speak for a person": lambda m: m.runs.conversations.record("r-1", "yes"),
    "forget workflow runs": lambda m: m.workflows.forget([]),
    "merge a run": merge_run,
    "merge its own work": lambda m: m.agents.merge("r-1.one"),
    "repair what doctor finds": repair,
}


@pytest.mark.parametrize("act", REFUSED)
async def test_what_is_for_a_person_to_do_is_refused_and_nothing_is_written(
    tmp_path: Path,
    m: Maos,
    proof: dict[str, str],
    act: str,
) -> None:
    before = await m.journal.head()
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home", environment=proof) as agent:
        with pytest.raises(maos.NotPermitted, match=r"r-1\.one\.1") as refused:
            await REFUSED[act](agent)
        assert refused.value.hint
    assert await m.journal.head() == before


async def test_what_an_agent_may_do_is_recorded_as_its_own(
    tmp_path: Path,
    m: Maos,
    proof: dict[str, str],
) -> None:
    """It reads, sends messages under its own name, adds tasks to its own run, and keeps its own state."""
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home", environment=proof) as agent:
        assert [each.run.id for each in (await agent.overview()).runs] == ["r-2", "r-1"]
        await agent.bus.send(agent.principal.sender, "r-1.two", "hello")
        await agent.runs.request_tasks("r-1", Plan(tasks=[Task(name="more", task="do more")]))
        with pytest.raises(maos.NotPermitted, match="r-2"):
            await agent.runs.request_tasks("r-2", Plan(tasks=[Task(name="more", task="do more")]))
        await (await agent.tools()).report_discovery(text="it leaks")
        await (await agent.tools()).save_state(key="k", value=1)
    [sent] = [each for each in await events(m, inbox("r-1.two"), "message_sent") if each["text"] == "hello"]
    [wanted] = await events(m, inbox("r-1"), "tasks_requested")
    assert (sent["sender"], sent["by"]) == ("r-1.one", "r-1.one.1")
    assert (wanted["asked_by"], wanted["by"]) == ("r-1.one", "r-1.one.1")
    assert await events(m, inbox("r-2"), "tasks_requested") == []


NOT_FOR_AGENTS: dict[str, Any] = {
    "command": ["touch", "/tmp/x"],
    "kind": "shell",
    "mcp": True,
    "priority": 9,
    "time_limit_s": 1.0,
    "budget_usd": 1000.0,
    "tokens_max": 7,
    "gates": [{"command": ["true"]}],
    "model": "opus",
    "tools": ["Bash"],
    "setup": [["touch", "/tmp/x"]],
    "setup_inputs": ["**"],
    "copy_ignored": [".env"],
    "env": ["LD_PRELOAD=/tmp/x.so"],
}


def test_every_field_of_a_task_is_for_agents_or_is_not() -> None:
    assert {*AGENT_FIELDS, *NOT_FOR_AGENTS} == set(Task.__struct_fields__)


@pytest.mark.parametrize("field", NOT_FOR_AGENTS)
async def test_an_agent_adds_no_task_with_what_a_person_decides(
    tmp_path: Path, m: Maos, proof: dict[str, str], field: str
) -> None:
    """Neither by requesting it, nor with a request that is in the inbox already; a person can."""
    task = {"name": "evil", "task": "do", field: NOT_FOR_AGENTS[field]}
    plan = msgspec.convert({"tasks": [task]}, Plan)
    before = await m.journal.head()
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home", environment=proof) as agent:
        for act in (
            agent.runs.request_tasks("r-1", plan),
            agent.runs.resume("r-1", add=Addition(plan, {})),
            agent.runs.add("r-1", plan),
        ):
            with pytest.raises(maos.NotPermitted, match=r"r-1\.one\.1"):
                await act
    assert await m.journal.head() == before
    run = await m.runs.get("r-1")
    wanted = TasksRequested(tasks=[{"name": "good", "task": "do"}, task], asked_by="r-1.one", by="r-1.one.1", at_us=1)
    decision = CommandHandler(m.bus).decide(run, wanted, 1, 1)
    [note] = decision.events
    assert isinstance(note, RunNoteAdded)
    assert field in note.text
    assert inbox("r-1.one") in [each.stream for each in decision.also], "the agent is told"
    [planned] = CommandHandler(m.bus).decide(run, replace(wanted, asked_by="person", by=ME), 1, 1).events
    assert isinstance(planned, RunPlanned)


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda m: m.runs.pause("r-1"), "pause r-1"),
        (lambda m: m.runs.edit_plan("r-3", validate({"tasks": [{"name": "a", "task": "do"}]})), "the plan of r-3"),
        (lambda m: m.workflows.signal("w-1", "paid"), "send a signal to w-1"),
        (lambda m: m.workflows.pause("w-1"), "pause w-1"),
    ],
)
async def test_a_refusal_names_the_act(
    tmp_path: Path, m: Maos, proof: dict[str, str], act: Callable[[Maos], Any], words: str
) -> None:
    plan = {"tasks": [{"name": "plan", "task": "do", "gates": [{"person": "Agreed?"}]}]}
    run = await m.runs.create(plan, id="r-3", options={"planner": "plan"})
    async with own_run(m.journal, SystemClock(), run) as recorder:
        await recorder.append(TaskGated(task="plan", passed=0, at_us=1))
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home", environment=proof) as agent:
        with pytest.raises(maos.NotPermitted, match=f"is an agent and cannot .*{words}; nothing was changed"):
            await act(agent)


async def test_an_agent_is_the_author_of_its_changes_whatever_it_says(
    tmp_path: Path, m: Maos, proof: dict[str, str]
) -> None:
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home", environment=proof) as agent:
        assert (await agent.state.create("r-1.one", source=ME)).source == "r-1.one.1"
        await agent.state.update("r-1.one", {"status": "busy"}, source=ME)
        change = await agent.state.composed("r-1.one", {"status": "idle"}, source=ME)
        assert change is not None
        await agent.journal.append_all([change])
    assert [each.source for each in await m.state.events("r-1.one")] == ["r-1.one.1"] * 3
    await m.state.update("r-1.one", {"status": "busy"}, source="alice")
    assert (await m.state.get("r-1.one")).source == "alice", "a person can name another author"


async def test_a_requeued_dead_letter_says_who_requested_it(m: Maos) -> None:
    await m.bus.send("person", "reader", "hello")
    async with m.bus.receive("reader") as receiver:
        await (await anext(receiver)).reject("unreadable")
    await m.bus.requeue("reader", 1)
    [requeued] = await events(m, dead("reader"), "dead_letter_requeued")
    assert requeued["by"] == ME


async def test_a_fork_does_not_take_the_proof_of_an_agent(m: Maos, tmp_path: Path) -> None:
    """The secret of the agent that it continues from proves nothing in the fork."""
    tasks = [{"name": "one", "command": ["sh", "-c", "touch begun; exec sleep 600"]}]
    await m.runs.start({"tasks": tasks}, id="r-1", folder=tmp_path, options={"in_place": True})
    executing = asyncio.create_task(m.runs.execute("r-1"))
    await until((tmp_path / "begun").exists)
    await m.runs.pause("r-1")
    run = await executing
    [original] = await events(m, stream("r-1.one.1"), "attempt_planned")
    fork = (await m.travel.fork("r-1", run.version, without_files=True)).run
    [planned] = await events(m, stream(f"{fork}.one.1"), "attempt_planned")
    [branched] = await events(m, stream(f"{fork}.one.1"), "attempt_branched")
    assert original["proof"]
    assert (planned.get("proof", ""), branched["state"].get("proof", "")) == ("", "")


@pytest.mark.parametrize("is_beside", [False, True])
async def test_an_event_that_cannot_be_encoded_changes_nothing(m: Maos, is_beside: bool) -> None:
    """The fold stays as the stream is, so that the next append is not taken for that of another engine."""
    run = await m.runs.create({"tasks": [{"name": "one", "task": "do"}]}, id="r-1")
    good, bad = (RunNoteAdded(text=text, at_us=1) for text in ("good", "\ud800"))
    async with own_run(m.journal, SystemClock(), run) as recorder:
        before = recorder.fold.version
        with pytest.raises(maos.InvalidInput):
            await (recorder.append(good, also=[Append("x/1", [bad])]) if is_beside else recorder.append(good, bad))
        assert recorder.fold.version == before
        await recorder.append(good)
    assert len(await events(m, run_stream("r-1"), "run_note_added")) == 1


# --- the processes above -----------------------------------------------------------------------------------------


def test_a_parent_that_exits_meanwhile_does_not_hide_those_above(monkeypatch: pytest.MonkeyPatch) -> None:
    middle = subprocess.Popen(
        ["sh", "-c", "sleep 600 >&2 & echo $!; wait"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert middle.stdout is not None
    child = int(middle.stdout.readline())
    look = process_tree.look

    def look_late(pid: int) -> process_tree.Seen | None:
        """The parent exits after its child was looked at."""
        if pid == middle.pid and middle.returncode is None:
            middle.kill()
            middle.wait()
        return look(pid)

    try:
        monkeypatch.setattr(process_tree, "look", look_late)
        found = process_tree.ancestors(child)
        now = look(child)
        assert now is not None
        assert found[0].pid == now.parent != middle.pid
    finally:
        middle.kill()
        middle.wait()
        middle.stdout.close()
        os.kill(child, signal.SIGKILL)


CLAIM = f"(echo $$; cut -d' ' -f22 /proc/$$/stat; cat /proc/sys/kernel/random/boot_id; echo 0; echo a.1) >{IDENTITY}; "
ABOVE = "import os; from maos.holder import identity; print([each.attempt for _, each in identity.above(os.getpid())])"


@pytest.mark.parametrize(
    ("variable", "first", "found"),
    [("{here}", CLAIM, "['a.1']"), ("", CLAIM, "[]"), ("{here}", f"mkfifo {IDENTITY}; ", "[]")],
    ids=["a holder", "an empty variable", "a pipe"],
)
def test_what_a_process_says_of_its_folder_is_not_believed(
    tmp_path: Path, variable: str, first: str, found: str
) -> None:
    done = subprocess.run(
        ["sh", "-c", f'{first} {sys.executable} -P -c "{ABOVE}"; true'],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "MAOS_ATTEMPT_FOLDER": variable.format(here=tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == found, done.stderr


# --- people ------------------------------------------------------------------------------------------------------


async def test_acts_of_a_person_have_a_user_and_a_host(m: Maos, tmp_path: Path) -> None:
    """Requested of the engine that executes the run, which records whose request it was."""
    tasks = [{"name": name, "command": ["sh", "-c", f"touch {name}; exec sleep 600"]} for name in ("one", "two")]
    run = await m.runs.start({"tasks": tasks}, folder=tmp_path, options={"in_place": True})
    executing = asyncio.create_task(m.runs.execute(run.id))
    await until(lambda: all((tmp_path / name).exists() for name in ("one", "two")))
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home") as person:
        await person.runs.skip(run.id, "two", reason="by hand")
        await person.bus.send("person", f"{run.id}.one", "hello")
        await person.runs.cancel(run.id, why="enough")
    ended = await executing
    recorded = [
        *await events(m, run_stream(run.id), "run_created"),
        *await events(m, run_stream(run.id), "task_stopping"),
        *await events(m, run_stream(run.id), "run_ended"),
        *await events(m, inbox(f"{run.id}.one"), "message_sent"),
    ]
    assert [each["by"] for each in recorded] == [ME] * 4
    assert (str(m.principal), ended.created_by, ended.stopped_by) == (ME, ME, ME)


async def test_a_database_of_others_does_not_know_an_agent(m: Maos, tmp_path: Path) -> None:
    """A process with the variables of an agent of another database is not taken for a person."""
    foreign = {"MAOS_ATTEMPT": "far.1", "MAOS_ATTEMPT_SECRET": secret_of("far.1")}
    assert "not proved" in await refused_principal(m, foreign)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "maos", "--db", str(tmp_path / "maos.db"), "ps"],
        env={**os.environ, **foreign},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, "env -u MAOS_ATTEMPT" in done.stderr) == (2, True), done.stderr
