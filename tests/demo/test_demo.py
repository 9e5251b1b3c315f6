"""The whole demonstration: as a new user runs it, interrupted, and where it cannot be carried out."""

import asyncio
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
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
    assert done.told["report"] == str(done.place.folder / "report.html")


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


# --- the page at the end -----------------------------------------------------------------------------------------

REPLAYED = """
import shutil, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup, in which the tests may run, has it ignored
from maos_demo import command
from maos.cli.program import program

*arguments, told = sys.argv[1:]

async def play(self):
    shutil.copytree(told, self.folder.folder, dirs_exist_ok=True, symlinks=True)
    self.folder.home.mkdir()
    status, printed = await self.folder.run(*command._maos("admin", "trust", "--yes"))
    assert status == 0, printed
    return self.folder.record()

command.Story.play = play
program(arguments)
"""
"""A demonstration whose story is that of another one, the folder of which is the last argument."""


def linked(shown: Terminal) -> str:
    """The sign-in link that a demonstration prints when the page is there."""
    shown.wait_for("Enter or Ctrl+C stops the page")
    found = re.search(r"http://127\.0\.0\.1:\d+/sign-in\?code=[\w-]+&to=run/r-\w+", shown.text)
    assert found is not None, shown.text
    return found[0]


def signed_in(link: str) -> httpx2.Client:
    """A browser that has followed the link and pressed its button."""
    origin, _, code = link.partition("&to=")[0].partition("/sign-in?code=")
    client = httpx2.Client(base_url=origin, headers={"Origin": origin}, follow_redirects=True, timeout=30)
    assert client.post("/sign-in", data={"code": code}).status_code == 200
    return client


def test_at_a_terminal_it_ends_with_a_page_and_a_report(
    tmp_path: Path,
    terminal: Callable[..., Terminal],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On the page the run can be forked; Ctrl+C ends the server, the fork and its agents: only the report is left."""
    for name, value in surroundings(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CI", raising=False)
    try:
        shown = terminal("demo")
        with closing(signed_in(linked(shown))) as client:
            run = client.get("/api/v1/runs").json()["runs"][0]
            assert run["status"] == "completed"
            events = client.get(f"/api/v1/runs/{run['id']}/events").json()["events"]
            begun = next(each["version"] for each in events if each["type"] == "run_planned")
            fork = client.post(f"/api/v1/runs/{run['id']}/fork", json={"at": str(begun), "into": "again"})
            assert fork.status_code == 200, fork.text
            assert client.post("/api/v1/runs/again/resume").status_code == 200
            shown.wait_until(lambda: len(client.get("/api/v1/agents?open=true").json()["agents"]) > 1)
        shown.interrupt(signal.SIGINT)
        assert shown.end() == 0, shown.text
        assert processes_below(tmp_path) == []
        (left,) = (each for each in tmp_path.iterdir() if each.name != "user")
        assert [each.name for each in left.iterdir()] == ["report.html"]
        assert str(left / "report.html") in shown.text
        assert f'"{run["id"]}"' in (left / "report.html").read_text()
    finally:
        end_all_below(tmp_path)


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (lambda shown: shown.type("\n"), 0),
        (lambda shown: shown.interrupt(signal.SIGTERM), 143),
        (lambda shown: shown.interrupt(signal.SIGHUP), 129),
    ],
    ids=["Enter", "SIGTERM", "closed"],
)
def test_the_page_ends_with_its_terminal(
    end: Callable[[Terminal], None],
    code: int,
    copy: DemoFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    around = tmp_path / "around"
    around.mkdir()
    for name, value in surroundings(around).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CI", raising=False)
    try:
        with closing(Terminal("demo", str(copy.folder), command=("-c", REPLAYED))) as shown:
            with closing(signed_in(linked(shown))) as client:
                assert client.get("/api/v1/runs").json()["total"] == 1
            end(shown)
            assert shown.end() == code, shown.text
        assert processes_below(around) == []
        assert [each.name for each in around.glob("maos-demo-*/*")] == ["report.html"]
    finally:
        end_all_below(around)


@pytest.mark.parametrize(("arguments", "ci"), [(["--no-serve"], ""), ([], "true")], ids=["--no-serve", "CI"])
def test_no_page_is_served_where_no_person_waits_for_it(
    arguments: list[str],
    ci: str,
    copy: DemoFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    around = tmp_path / "around"
    around.mkdir()
    for name, value in {**surroundings(around), "CI": ci}.items():
        monkeypatch.setenv(name, value)
    with closing(Terminal("demo", *arguments, str(copy.folder), command=("-c", REPLAYED))) as shown:
        assert shown.end() == 0, shown.text
    assert "report.html" in shown.text
    assert "sign-in" not in shown.text


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
    assert str(tmp_path / "new" / "report.html") in result.stdout
    assert "sign-in" not in result.stdout  # there is no terminal
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
