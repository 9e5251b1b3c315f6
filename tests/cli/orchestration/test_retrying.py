"""A failed task is changed and retried: by the options of `maos retry`, and in an editor, which is a real program."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import maos
from maos import settings
from maos.clock import SystemClock
from maos.model.run import Run, TaskState
from maos.runs.decisions import Outcome
from maos.runs.service import Runs
from maos_testing.crash import Life, crash_loop
from tests.cli.agent.conftest import Call
from tests.cli.orchestration.conftest import Ask, Begin
from tests.cli.orchestration.engine import Hands

COMMANDS = [{"name": "page", "command": ["sh", "-c", "echo broken; exit 1"]}]
LIVES_MAX = 20


def editor(folder: Path, script: str) -> str:
    """A program that is $EDITOR: its argument is the file."""
    path = folder / "editor"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return str(path)


def edits() -> list[Path]:
    """The files of edits that are not recorded."""
    folder = settings.folder_of("maos.db") / "edits"
    return sorted(folder.iterdir()) if folder.is_dir() else []


def failed(begin: Begin, tasks: list[dict[str, Any]] | None = None) -> str:
    """A run whose first task has failed."""
    engine = begin(tasks)
    if tasks is None:
        engine.end("api", "!failed:no idea how")
    assert engine.wait() == "failed"
    return engine.run


def told(run: str, task: str) -> dict[str, Any]:
    """The task of a plan as it is recorded now."""

    async def read() -> dict[str, Any]:
        async with maos.open("maos.db") as m:
            return (await m.runs.get(run)).tasks[task].plan

    return asyncio.run(read())


def test_the_text_of_a_failed_task_is_replaced_and_the_agent_gets_the_new_one(begin: Begin, call: Call) -> None:
    run = failed(begin)
    done = call("retry", f"{run}/api", "--task", "write the api in Go")
    assert (done.returncode, f"{run}/api will be retried; the run is paused" in done.stdout) == (0, True)
    assert told(run, "api")["task"] == "write the api in Go"
    assert told(run, "page")["task"] == "write the page", "the others stay as they are"
    engine = begin(run=run)
    engine.end("api")
    engine.end("page")
    assert engine.wait() == "completed"


def test_a_change_needs_one_task_that_has_failed(begin: Begin, call: Call) -> None:
    run = failed(begin)
    before = told(run, "api")
    for args, why in (
        ([run, "--task", "x"], "only one task can be changed at a time"),
        ([run, "--edit"], "name the task"),
        ([f"{run}/api", "--command", "true"], "has no command"),
        ([f"{run}/api", "--task", "x", "--edit"], "exclude each other"),
        ([f"{run}/page", "--task", "x"], "page is waiting"),
        ([f"{run}/page", "--edit"], "page is waiting"),
    ):
        refused = call("retry", *args, EDITOR="false")
        assert (refused.returncode, why in refused.stderr) == (2, True), refused.stderr
    assert told(run, "api") == before
    assert edits() == []


def test_a_command_is_changed_in_the_editor_and_executed(begin: Begin, call: Call, here: Path, ask: Ask) -> None:
    run = failed(begin, COMMANDS)
    seen = here / "seen"
    change = editor(here, f'cp "$1" {seen}; stat -c %a "$1" >> {seen}; echo "sh -c \'echo mended\'" > "$1"')
    done = call("retry", f"{run}/page", "--edit", EDITOR=change)
    assert (done.returncode, edits()) == (0, [])
    assert seen.read_text() == "sh -c 'echo broken; exit 1'\n600\n", "the editor begins with the command as it is"
    assert told(run, "page")["command"] == ["sh", "-c", "echo mended"]
    assert begin(COMMANDS, run=run).wait() == "completed"
    assert "mended" in call("logs", f"{run}/page").stdout


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 1", "Editing failed"),
        (":", "nothing was changed in the editor"),
        (': > "$1"', "nothing was changed in the editor"),
        ('printf "  write the api  \\n\\n" > "$1"', "nothing was changed in the editor"),
    ],
)
def test_an_edit_that_is_aborted_changes_nothing(begin: Begin, call: Call, here: Path, script: str, why: str) -> None:
    run = failed(begin)
    before = call("logs", run, "--json").stdout
    done = call("retry", f"{run}/api", "--edit", EDITOR=editor(here, script))
    assert (done.returncode, why in done.stderr) == (2, True), done.stderr
    assert (call("logs", run, "--json").stdout, edits()) == (before, [])


@pytest.mark.parametrize(
    ("script", "why"), [("echo 'echo \"open' > $1", "cannot be read"), ("printf '\\377' > $1", "UTF-8")]
)
def test_an_edit_that_is_refused_is_kept_to_be_corrected(
    begin: Begin, call: Call, here: Path, script: str, why: str
) -> None:
    run = failed(begin, COMMANDS)
    done = call("retry", f"{run}/page", "--edit", EDITOR=editor(here, script))
    assert (done.returncode, why in done.stderr) == (2, True), done.stderr
    assert told(run, "page")["command"] == COMMANDS[0]["command"]
    [kept] = edits()
    wrong = kept.read_bytes()
    seen = here / "seen"
    done = call("retry", f"{run}/page", "--edit", EDITOR=editor(here, f'cp "$1" {seen}; echo "echo closed" > "$1"'))
    assert (done.returncode, "you continue an edit" in done.stderr) == (0, True)
    assert (seen.read_bytes(), edits()) == (wrong, [])
    assert told(run, "page")["command"] == ["echo", "closed"]


class Failing(Hands):
    """Fails at once."""

    async def work(self, run: Run, task: TaskState) -> Outcome:
        return Outcome(failure="failed", message="no idea how")


async def failed_runs(count: int) -> list[str]:
    """Runs with a failed task each, without agents: every life of the crash loop needs one."""
    plan = {"tasks": [{"name": "api", "task": "write the api"}]}
    async with maos.open("maos.db") as m:
        runs = Runs(m.journal, SystemClock(), m.agents, worker=Failing)
        made = [await runs.create(plan, request="Build", folder=Path.cwd()) for _ in range(count)]
        return [(await runs.execute(each.id)).id for each in made]


async def test_an_edit_survives_a_kill_before_it_is_recorded_and_is_recorded_once(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at each point between the editor and the reply; the same command is then repeated, and the editor leaves
    what it finds."""
    monkeypatch.setenv("EDITOR", editor(here, 'grep -q Go "$1" || echo "write the api in Go" > "$1"'))
    runs = await failed_runs(LIVES_MAX)

    def argv_for(number: int) -> list[str | Path]:
        return [sys.executable, "-m", "maos", "retry", f"{runs[number]}/api", "--edit"]

    async def check(life: Life) -> None:
        run = runs[life.number]
        async with maos.open("maos.db") as m:
            is_recorded = (await m.runs.get(run)).tasks["api"].status == "waiting"
        monkeypatch.setenv("EDITOR", "true")
        repeated = await asyncio.to_thread(subprocess.run, argv_for(life.number), capture_output=True, text=True)
        assert repeated.returncode == (2 if is_recorded else 0), repeated.stderr
        assert ("you continue an edit" in repeated.stderr) is not is_recorded
        async with maos.open("maos.db") as m:
            task = (await m.runs.get(run)).tasks["api"]
            assert (task.status, task.plan["task"]) == ("waiting", "write the api in Go")
            retried = [each async for each in m.journal.read(f"run/{run}") if each.event.type == "task_retried"]
        assert len(retried) == 1
        assert edits() == []

    lives = await crash_loop(argv_for, check)
    assert {"retry: edited", "commit: committed, not marked", "run:after task_retried"} <= {
        each.died_at for each in lives
    }
