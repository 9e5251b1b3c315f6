"""What `maos doctor` finds, and what it puts right."""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import maos
from maos import settings
from maos.cli.program import program
from maos.engine.streams import RUN
from maos.holder import process_tree
from tests.cli.agent.conftest import TICKING, Agents, Call, Start, holder_of, lives, wait_until
from tests.cli.conftest import Terminal


def findings(call: Call, *args: str) -> dict[str, list[dict[str, Any]]]:
    """What it says, by what it is about."""
    found: dict[str, list[dict[str, Any]]] = {}
    for each in json.loads(call("doctor", "--json", *args).stdout)["findings"]:
        found.setdefault(each["about"], []).append(each)
    return found


@pytest.fixture
def stray(here: Path, start: Start, agents: Agents) -> int:
    """A process that outlived its engine, its holder and its guard, and does not listen to TERM."""
    engine = start("agent", "run", "--name", "lost", "trap '' TERM; echo ready; while :; do sleep 0.1; done")
    engine.wait_for("ready")
    pid = int(agents.shown("lost")["pid"])
    engine.kill()
    holder = holder_of("lost.1")
    guard = next(each.pid for each in process_tree.all_processes() if each.parent == holder)
    os.kill(holder, signal.SIGSTOP)  # so that it cannot clean up after its guard
    os.kill(guard, signal.SIGKILL)
    os.kill(holder, signal.SIGKILL)
    wait_until(lambda: not lives(holder))
    assert lives(pid)
    return pid


def test_all_is_well(here: Path, call: Call) -> None:
    call("agent", "run", "true")
    done = call("doctor")
    assert done.returncode == 0
    assert "maos.db opens, and ends where it should, at position" in done.stdout
    levels = {line.split()[0] for line in done.stdout.splitlines() if not line.startswith(" ")}
    assert levels <= {"ok", "note"}
    assert findings(call)["agents"][0]["what"] == "1 known, 0 running"


def test_no_database_is_no_disaster(here: Path, call: Call) -> None:
    done = call("doctor")
    assert done.returncode == 0
    assert "there is no database maos.db" in done.stdout


def test_a_damaged_database_is_bad(here: Path, call: Call) -> None:
    call("agent", "run", "true")
    (here / "maos.db").write_bytes(b"this is not a database at all" * 200)
    done = call("doctor")
    assert done.returncode == 1
    assert done.stdout.startswith("bad   database")


def test_a_stray_is_found_and_ended(stray: int, call: Call) -> None:
    """I33, as far as it can be kept when everything that would keep it was killed."""
    done = call("doctor")
    assert done.returncode == 1
    assert f"process {stray} " in done.stdout
    assert "of lost.1 runs without a holder" in done.stdout
    assert "`maos admin doctor --fix` can fix it" in done.stdout.splitlines()[-1]
    assert lives(stray)
    assert [each["fixed"] for each in findings(call, "--fix", "--yes")["stray"]] == [True]
    wait_until(lambda: not lives(stray))
    assert "stray" not in findings(call)


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 1)])
def test_a_person_is_asked_first(stray: int, terminal: Callable[..., Terminal], answer: str, code: int) -> None:
    screen = terminal("doctor", "--fix")
    screen.wait_for("and everything below? [y/N]: ")
    screen.type(f"{answer}\n")
    assert screen.end() == code
    assert lives(stray) is (answer == "n")


def test_with_nobody_to_ask_nothing_is_done(stray: int, call: Call) -> None:
    done = call("doctor", "--fix")
    assert done.returncode == 2
    assert "no person can be asked" in done.stderr
    assert lives(stray)


def test_what_can_go_on_is_left_alone(here: Path, start: Start, call: Call, agents: Agents) -> None:
    engine = start("agent", "run", "--name", "ticker", TICKING)
    engine.wait_for("line 2")
    engine.kill()
    seen = findings(call, "--fix", "--yes")
    assert "ticker is detached" in seen["agent"][0]["what"]
    assert seen["agent"][0]["hint"] == "resume: maos agent attach ticker"
    pid = agents.shown("ticker")["pid"]
    assert lives(pid)
    assert (settings.folder_of("maos.db") / "holders" / "ticker.1").is_dir()
    elsewhere = call("--db", str(here / "other.db"), "doctor", "--fix", "--yes")
    assert elsewhere.returncode == 0
    assert lives(pid)


def test_a_folder_of_an_attempt_that_has_ended_is_removed(here: Path, call: Call) -> None:
    call("agent", "run", "--name", "over", "true")
    left = settings.folder_of("maos.db") / "holders" / "over.1"
    left.mkdir(parents=True)
    assert call("doctor").returncode == 1
    assert findings(call, "--fix", "--yes")["folder"][0]["fixed"]
    assert not left.exists()
    assert call("doctor").returncode == 0


def test_a_worktree_that_was_never_finished_is_removed(here: Path, call: Call) -> None:
    call("agent", "run", "--name", "someone", "true")
    workspaces = settings.folder_of("maos.db") / "workspaces"
    (workspaces / ".maos" / "half").mkdir(parents=True)
    (workspaces / "half").mkdir()
    assert "was begun and never finished" in findings(call)["worktree"][0]["what"]
    assert findings(call, "--fix", "--yes")["worktree"][0]["fixed"]
    assert not (workspaces / "half").exists()


def test_a_kept_fold_that_is_not_what_its_events_say_is_named_and_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I17: it costs only time. And the chain, the disk and the versions are looked at."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MAOS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("MAOS_DB", raising=False)

    async def prepare() -> str:
        async with maos.open("maos.db", home=tmp_path / "home") as m:
            plan = {"tasks": [{"name": "a", "command": ["true"]}]}
            run = await m.runs.create(plan, folder=tmp_path, options={"in_place": True})
            run = await m.runs.execute(run.id)
            kept = RUN.kept(await m.journal.store.load("run", run.id))
            assert kept is not None
            kept.request = "something else"
            await m.journal.store.append(documents=[RUN.keep(kept, packed=True)])
            return run.id

    id = asyncio.run(prepare())
    result = CliRunner().invoke(program, ["doctor"])
    assert result.exit_code == 1
    assert f"the stored fold of run {id} does not match its events" in result.output
    assert "GB free where the database is" in result.output
    assert "SQLite 3." in result.output
    assert CliRunner().invoke(program, ["doctor", "--fix", "--yes"]).exit_code == 0
    fixed = CliRunner().invoke(program, ["doctor"])
    assert fixed.exit_code == 0
    assert "as they were written" in fixed.output
