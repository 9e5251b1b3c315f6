"""The whole demonstration: as a new user runs it, interrupted, and where it cannot be carried out."""

import asyncio
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from maos.cli.program import program
from maos_demo import command
from maos_demo.proof import DemoFolder, DemoRecord
from tests.cli.conftest import Terminal, terminal  # noqa: F401
from tests.demo.conftest import DEMO, Done, end_all_below, surroundings
from tests.engine.conftest import processes_below


def test_it_survives_a_kill_and_proves_it(done: Done) -> None:
    """R-202: the engine alone is killed; agents go on, are taken up, and nothing is lost or done twice."""
    assert done.told["ok"] is True
    assert [each["status"] for each in done.told["engines"]] == [-signal.SIGKILL, 0]
    assert all(each["ok"] for each in done.told["counts"] + done.told["checks"])
    assert done.told["folder"] == str(done.place.folder)


def test_it_leaves_no_process(done: Done) -> None:
    assert processes_below(done.place.folder) == []


def test_it_needs_nothing_of_the_user_and_leaves_nothing_with_him(done: Done) -> None:
    """Its database, worktrees and agents are in its own folder."""
    assert [each.name for each in (done.place.folder.parent / "user").iterdir()] == []


def test_a_sceptic_can_look_around_with_the_ordinary_commands(done: Done) -> None:
    def maos(*arguments: str) -> str:
        environment = {**surroundings(done.place.folder.parent), "MAOS_HOME": str(done.place.home)}
        command = [sys.executable, "-m", "maos", *arguments]
        result = subprocess.run(command, cwd=done.place.folder, env=environment, capture_output=True, text=True)
        assert (result.returncode, result.stderr) == (0, ""), result.stderr
        return result.stdout

    run = done.told["run"]
    assert "completed" in maos("orchestration", "status", run)
    assert "the rule is: half up" in maos("messages", "list", "--run", run)
    assert "asks: Which way does the till round half a cent?" in maos("agent", "logs", f"{run}.developer")
    assert "everything as it was written" in maos("state", "verify")


# --- cut short ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wait_for", "sent", "code"),
    [
        ("maos run", signal.SIGINT, 130),
        ("untested: all", signal.SIGINT, 130),
        ("did not notice", signal.SIGTERM, 143),
    ],
)
def test_cut_short_it_leaves_no_process_and_no_file(
    wait_for: str,
    sent: signal.Signals,
    code: int,
    tmp_path: Path,
    terminal: Callable[..., Terminal],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the engine starts its agents, while all work, and while no engine is there that could end them."""
    for name, value in surroundings(tmp_path).items():
        monkeypatch.setenv(name, value)
    try:
        shown = terminal("demo")
        shown.wait_for(wait_for)
        shown.interrupt(sent)
        assert shown.end() == code, shown.text
        assert processes_below(tmp_path) == []
        assert [each.name for each in tmp_path.iterdir()] == ["user"]
    finally:
        end_all_below(tmp_path)


# --- where it cannot be carried out ------------------------------------------------------------------------------


def test_without_git_it_says_what_to_install(tmp_path: Path) -> None:
    environment = {**surroundings(tmp_path), "PATH": str(tmp_path)}
    result = subprocess.run(DEMO, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == 3
    assert "works on a git repository, and there is no git on PATH" in result.stderr
    assert "apt install git" in result.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["user"]


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    result = CliRunner().invoke(program, ["demo", str(tmp_path)])
    assert result.exit_code == 2
    assert "not an empty folder" in result.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["mine.txt"]


def test_it_takes_no_other_database() -> None:
    result = CliRunner().invoke(program, ["--db", "mine.db", "demo"])
    assert result.exit_code == 2
    assert "a database of its own" in result.stderr


# --- how it ends -------------------------------------------------------------------------------------------------


@pytest.fixture
def played(copy: DemoFolder, monkeypatch: pytest.MonkeyPatch) -> DemoFolder:
    """Have the command find what another demonstration has left: the proof and the ending are those of this one."""

    async def play(self: Any) -> DemoRecord:
        shutil.copytree(copy.folder, self.folder.folder, dirs_exist_ok=True, symlinks=True)
        return copy.record()

    monkeypatch.setattr(command.Story, "play", play)
    return copy


def test_a_proof_that_fails_is_an_exit_code_and_names_what_is_missing(
    played: DemoFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with (played.notes / "tester.jsonl").open("a") as file:
        file.write('{"line": "999 is this thing on?"}\n')
    result = CliRunner().invoke(program, ["demo"])
    assert result.exit_code == 1
    assert "✗  lines of the tester" in result.stdout
    assert "lost: lines of the tester: 999 is this thing on?" in result.stdout
    assert "nothing was lost" not in result.stdout
    assert f"everything is still in {tmp_path}" in result.stderr


def test_a_proof_that_holds_says_so_in_plain_text(played: DemoFolder, tmp_path: Path) -> None:
    result = CliRunner().invoke(program, ["demo", str(tmp_path / "new")])
    assert result.exit_code == 0, result.output
    assert "nothing was lost, nothing was doubled" in result.stdout
    assert f"cd {tmp_path / 'new'} && export MAOS_HOME=$PWD/home" in result.stdout
    assert "\x1b" not in result.stdout


def test_a_story_that_comes_to_nothing_keeps_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(self: Any) -> DemoRecord:
        await asyncio.sleep(0)
        raise command.DemoFailed("the engine ended by itself: out of memory")

    monkeypatch.setattr(command.Story, "play", play)
    result = CliRunner().invoke(program, ["demo", str(tmp_path / "new"), "--json"])
    assert result.exit_code == 1
    assert "the engine ended by itself: out of memory" in result.stderr
    assert (tmp_path / "new").is_dir()
