"""A run goes on in another folder, on another database and with another home: with its files and its conversations."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import maos
from maos import workspaces
from maos.app import Maos
from maos.clock import SystemClock
from maos.engine import consent
from maos.journal.codec import Event
from maos.model.message import inbox
from maos.model.run import Run
from maos.runs.consent import agree as settle
from maos.runs.worker import AgentWorker
from maos.transfer.bundle_import import MORE
from maos.travel import points_in_time
from maos.travel.service import TimeTravel
from maos_testing.model_stub import ModelStub, ScriptFault, ScriptStep
from tests.agents.claude.stage import bash
from tests.engine import claude_engine
from tests.engine.conftest import processes_below
from tests.transfer import runs
from tests.transfer.runs import ID, bring, exported
from tests.workspaces.repositories import git, repository


class Machine:
    """A database, a home and a repository."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home, self.folder, self.database = root / "home", root / "work", root / "maos.db"
        self.effects = root / "effects"

    def open(self) -> maos.open:
        return maos.open(self.database, home=self.home)

    def end_everybody(self) -> None:
        for pid in processes_below(self.root):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def done(self) -> list[str]:
        """What tasks did outside, in order."""
        return self.effects.read_text().split() if self.effects.exists() else []


@pytest.fixture
def a(tmp_path: Path) -> AsyncIterator[Machine]:
    machine = Machine(tmp_path / "a")
    repository(machine.folder, {"readme.txt": "hello\n"})
    yield machine  # type: ignore[misc]
    machine.end_everybody()


@pytest.fixture
def b(tmp_path: Path) -> AsyncIterator[Machine]:
    machine = Machine(tmp_path / "elsewhere" / "b")
    machine.root.mkdir(parents=True)
    repository(machine.folder)
    yield machine  # type: ignore[misc]
    machine.end_everybody()


OUTSIDE = "$(git rev-parse --path-format=absolute --git-common-dir)/../.."
"""The root of the machine that an agent works on, as it finds it."""


def effect(name: str, then: str = "true") -> list[str]:
    """A command that leaves a mark outside, wherever it runs, and a file in its worktree."""
    return ["sh", "-c", f'echo {name} >> "{OUTSIDE}/effects"; echo {name} > {name}.txt; {then}']


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


async def recorded(m: Maos, stream: str, type_: str) -> None:
    """Until a stream has an event of some type."""
    async with asyncio.timeout(60):
        async for record in m.journal.follow_stream(stream):
            if record.type == type_:
                return


async def agreed(m: Maos, **how: Any) -> Run:
    """Go on with an imported run, as a person who agrees does."""
    options = await m.runs.agree(ID)
    return await m.runs.execute(ID, options=options, **how)


WAITS = f'until [ -e "{OUTSIDE}/go" ]; do sleep 0.02; done'
HALF = f"test -e more.txt || {{ echo half > more.txt; {WAITS}; }}; echo whole >> more.txt"
TASKS = [
    {"name": "one", "command": effect("one")},
    {"name": "two", "command": effect("two", HALF), "needs": ["one"]},
    {"name": "three", "command": effect("three"), "needs": ["two"],
     "gates": [{"command": ["sh", "-c", "test -e three.txt && test -e more.txt"]}]},
]  # fmt: skip


async def test_a_run_that_was_cut_off_goes_on_on_another_machine(a: Machine, b: Machine) -> None:
    """R-702: what is done is not done again, what was interrupted goes on with its files, and it can come back."""
    async with a.open() as m:
        into = await workspaces.prepare(a.folder, ID, root=a.home / "workspaces")
        options = {"kind": "shell", "workspace": into.to_data()}
        await m.runs.create({"tasks": TASKS}, request="do it", folder=a.folder, options=options, id=ID)
        work = asyncio.create_task(m.runs.execute(ID))
        await until((a.home / "workspaces" / "r-1.two" / "more.txt").exists)
        await m.journal.append(inbox("r-1.two"), Event("checkpoint_requested", {"name": "half way", "at_us": 1}))
        await recorded(m, "attempt/r-1.two.1", "attempt_checkpointed")
        work.cancel()  # the engine is gone, its agent works on
        await asyncio.gather(work, return_exceptions=True)
        bundle, made = await runs.export(m)
        assert made.manifest.carried_out, "nobody has paused it"
    async with b.open() as m:
        await bring(m, bundle, b.folder)
        two = await m.agents.get("r-1.two")
        assert two.is_open
        assert not (b.home / "workspaces").exists(), "nothing of a stranger's is laid out before somebody agrees"
        with pytest.raises(consent.NotAgreed):
            await m.runs.execute(ID)
        (b.root / "go").touch()
        run = await agreed(m)
        assert (run.status, run.done) == ("completed", 3), run.why
        assert (await m.agents.get("r-1.two")).number == 2
        first = (await m.agents.history("r-1.two"))[0]
        assert first.failure == "holder_lost"
        assert git(b.folder, "show", f"{run.commit}:more.txt") == "half\nwhole", "its files were brought along"
        assert git(b.folder, "show", f"{run.commit}:one.txt") == "one"
        assert run.options["workspace"]["base"] == git(a.folder, "rev-parse", "HEAD"), "all of it can be merged"
        assert b.done() == ["two", "three"]
        assert a.done() == ["one", "two"]
        assert git(b.folder, "fsck", "--strict", "--no-dangling") == ""
        back = await exported(m)
        assert (await m.verify()).ok
    a.end_everybody()
    async with a.open() as m:
        assert (await bring(m, back, a.folder)).what == MORE
        run = await m.runs.get(ID)
        assert (run.status, run.folder) == ("completed", str(a.folder))
        assert git(a.folder, "show", f"{run.commit}:more.txt") == "half\nwhole"
        assert not [each async for each in m.agents.all() if each.is_open]


async def test_a_run_comes_back_and_goes_on_where_it_began(a: Machine, b: Machine) -> None:
    """Worktrees that are still there are brought to where the work is by now."""
    tasks = [{"name": "one", "command": effect("one")},
             {"name": "two", "command": effect("two", "test -e ../../../go"), "needs": ["one"]},
             {"name": "three", "command": effect("three", "test -e ../../../go2"), "needs": ["two"]},
             {"name": "four", "command": effect("four", "test -e three.txt"), "needs": ["three"]}]  # fmt: skip
    async with a.open() as m:
        run = await runs.carried_out(m, a.folder, tasks)
        assert (run.status, run.done) == ("failed", 1)
        bundle = await exported(m)
    async with b.open() as m:
        await bring(m, bundle, b.folder)
        (b.root / "go").touch()
        run = await agreed(m)
        assert (run.status, run.done) == ("failed", 2)
        back = await exported(m)
    async with a.open() as m:
        await bring(m, back, a.folder)
        (a.root / "go2").touch()
        run = await agreed(m)
        assert (run.status, run.done) == ("completed", 4), run.why
        names = git(a.folder, "ls-tree", "--name-only", run.commit).split()
        assert names == ["four.txt", "one.txt", "readme.txt", "three.txt", "two.txt"]
    assert (a.done(), b.done()) == (["one", "two", "three", "four"], ["two", "three"])


async def test_a_run_outside_git_goes_on_in_the_folder_that_is_given(a: Machine, b: Machine, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    tasks = [{"name": "one", "command": ["sh", "-c", "pwd; test -e go"]}]
    async with a.open() as m:
        run = await runs.carried_out(m, tmp_path, tasks, in_place=True)
        assert run.status == "failed"
        bundle, made = await runs.export(m)
        assert made.manifest.refs == {}
    async with b.open() as m:
        await bring(m, bundle, folder)
        (folder / "go").touch()
        run = await agreed(m)
        assert (run.status, run.tasks["one"].result) == ("completed", str(folder))


async def test_a_task_that_only_waits_for_its_check_is_checked(a: Machine, b: Machine) -> None:
    """Its files are laid out as they were when it was done."""
    tasks = [{"name": "one", "command": effect("one"), "gates": [{"person": "Is it good?"}]}]
    async with a.open() as m:
        into = await workspaces.prepare(a.folder, ID, root=a.home / "workspaces")
        options = {"kind": "shell", "workspace": into.to_data()}
        await m.runs.create({"tasks": tasks}, request="x", folder=a.folder, options=options, id=ID)
        work = asyncio.create_task(m.runs.execute(ID))
        await recorded(m, "run/r-1", "question_asked")
        m.runs.pause_here(ID, "to move it")
        await work
        bundle = await exported(m)
    async with b.open() as m:
        await bring(m, bundle, b.folder)
        run = await m.runs.get(ID)
        await m.runs.answer(ID, run.open_questions[0].id, "yes")
        run = await agreed(m)
        assert (run.status, run.tasks["one"].attempts) == ("completed", 1)
        assert git(b.folder, "show", f"{run.commit}:one.txt") == "one"
    assert b.done() == []


async def test_runs_that_were_taken_back_and_forks_travel_too(a: Machine, b: Machine) -> None:
    """R-703: branches and their agents are part of a run, and so are all of its moments."""
    tasks = [{"name": "one", "command": effect("one")},
             {"name": "two", "command": effect("two", "test -e ../../../go"), "needs": ["one"]}]  # fmt: skip
    async with a.open() as m:
        run = await runs.carried_out(m, a.folder, tasks)
        begun = next(each.version for each in [each async for each in m.journal.read("run/r-1")]
                     if each.type == "task_started" and each.data["task"] == "two")  # fmt: skip
        travel = TimeTravel(m.journal, SystemClock(), m.runs, m.agents)
        moment = await points_in_time.at_version(m.journal, run, begun)
        await travel.fork(ID, moment, into="r-9")
        await travel.rollback(ID, moment)
        bundles = {id: await exported(m, id) for id in (ID, "r-9")}
    async with b.open() as m:
        (b.root / "go").touch()
        for id, bundle in bundles.items():
            await bring(m, bundle, b.folder)
            options = await m.runs.agree(id)
            run = await m.runs.execute(id, options=options)
            assert (run.status, run.done) == ("completed", 2), run.why
            assert git(b.folder, "show", f"{run.commit}:two.txt") == "two"
        await m.travel.rollback(ID, begun)
        run = await m.runs.execute(ID)
        assert (run.status, run.agent("two")) == ("completed", "r-1.two.b2"), run.why
    assert b.done() == ["two", "two", "two"]


SCRIPTS = {
    "moves": [
        ScriptStep(text="I read the grammar: it is PINEAPPLE.", calls=[bash("echo begun > notes.txt")]),
        ScriptStep(text="All is finished.", faults=[ScriptFault(kind="hang", after_chars=0)]),
    ]
}


async def test_a_conversation_goes_on_on_another_machine(a: Machine, b: Machine) -> None:
    """R-206: the real Claude Code remembers there what it said here; its home is not taken along."""
    tasks = [{"name": "talk", "task": "SCRIPT=moves", "kind": "claude", "tools": ["Bash"]}]
    async with ModelStub(SCRIPTS) as stub:
        async with a.open() as m:
            attempts = claude_engine.engine(m, a.home, stub.url)
            into = await workspaces.prepare(a.folder, ID, root=a.home / "workspaces")
            options = {"kind": "claude", "permission": "edits", "workspace": into.to_data()}
            await m.runs.create({"tasks": tasks}, request="x", folder=a.folder, options=options, id=ID)
            work = asyncio.create_task(m.runs.execute(ID, worker=AgentWorker(attempts)))
            await until(lambda: len(stub.requests) >= 2)  # it has used its tool, and waits for the model
            m.runs.pause_here(ID, "to move it")
            await work
            session = (await attempts.get("r-1.talk")).session
            await attempts.close()
            bundle = await exported(m)
        shutil.rmtree(a.root)  # what came is enough
        asked = len(stub.requests)
        async with b.open() as m:
            await bring(m, bundle, b.folder)
            attempts = claude_engine.engine(m, b.home, stub.url)
            try:
                options = await settle(m.journal, SystemClock(), attempts, await m.runs.get(ID))
                run = await m.runs.execute(ID, options=options, worker=AgentWorker(attempts))
            finally:
                await attempts.close()
            assert (run.status, run.tasks["talk"].result) == ("completed", "All is finished."), run.why
            assert (await attempts.get("r-1.talk")).session == session
            assert git(b.folder, "show", f"{run.commit}:notes.txt") == "begun"
        told = json.dumps(list(stub.requests)[asked].body["messages"])
        assert "PINEAPPLE" in told, "it remembers what it said on the other machine"
