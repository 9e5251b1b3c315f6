"""`maos doctor` on what goes wrong with folders and files: it says what is what, and removes nothing that is needed."""

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import maos
from maos import settings
from maos import workspaces as workspaces
from maos.cli.program import program
from maos.model.plan import Task
from tests.travel.conftest import order, repository, says

ORIGINAL = Path(__file__).parents[1] / "import_legacy" / "0.9.4.sql"


def call(*words: str) -> Result:
    return CliRunner().invoke(program, list(words))


def findings(*words: str, code: int = 0) -> list[dict[str, Any]]:
    result = call("doctor", *words, "--json")
    assert result.exit_code == code, result.output
    found: list[dict[str, Any]] = json.loads(result.output)["findings"]
    return found


def about(found: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [each for each in found if each["about"] == name]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MAOS_HOME", str(tmp_path / "home"))
    return tmp_path


async def failed(folder: Path) -> Path:
    """A run that failed after its first task; returns where its agents have their files."""
    tasks = [Task(name="a", command=says("a")), Task(name="b", command=["false"], needs=["a"])]
    async with maos.open("maos.db") as m:
        run = await order(m, repository(folder), tasks, id="r-1")
        assert (await m.runs.execute(run.id)).status == "failed"
        await m.travel.rollback("r-1", 2)
        return m.agents.folder


def test_worktrees_of_runs_are_known_and_those_of_nobody_are_removed_if_nothing_is_lost(folder: Path) -> None:
    import asyncio

    home = asyncio.run(failed(folder))
    trees = home / "workspaces"
    assert {path.name for path in trees.iterdir() if not path.name.startswith(".")} >= {"r-1", "r-1-b1", "r-1.a"}
    assert about(findings(), "worktree") == []

    async def orphan(name: str) -> workspaces.Workspace:
        return await workspaces.prepare(repository(folder), name, root=trees)

    for name in ("r-9.a", "r-9.b"):
        asyncio.run(orphan(name))
    (trees / "r-9.b" / "work.txt").write_text("the only copy\n")
    found = about(findings(), "worktree")
    assert [(each["level"], each["fixable"]) for each in found] == [("look", True)] * 2
    assert str(trees / "r-9.a") in found[0]["what"]
    findings("--fix", "--yes")
    assert not (trees / "r-9.a").exists()
    assert (trees / "r-9.b" / "work.txt").read_text() == "the only copy\n", "what is saved nowhere else stays (R-704)"
    assert (trees / "r-1").exists()


def test_a_run_whose_folder_was_moved_is_named_with_the_way_on(folder: Path) -> None:
    import asyncio

    asyncio.run(failed(folder))
    assert about(findings(), "run") == []
    repository(folder).rename(folder / "elsewhere")
    [found] = about(findings(), "run")
    assert (found["level"], "repository is missing" in found["what"]) == ("look", True)
    assert "maos resume r-1 --cwd NEW" in found["hint"]


@pytest.mark.parametrize("words", [("ps",), ("status",), ("resume",), ("agent", "list")])
def test_whoever_opens_a_database_of_the_original_is_told_how_to_bring_it(folder: Path, words: tuple[str, ...]) -> None:
    connection = sqlite3.connect("maos.db")
    connection.executescript(ORIGINAL.read_text())
    connection.close()
    before = Path("maos.db").read_bytes()
    result = call(*words)
    assert result.exit_code == 2
    assert "is a database of the original maos" in result.stderr
    assert "maos --db runs.db admin import maos.db" in result.stderr
    [found] = about(findings(), "database")
    assert "maos --db runs.db admin import maos.db" in found["hint"]
    assert Path("maos.db").read_bytes() == before


def test_a_damaged_copy_is_bad_and_the_place_of_the_damage_is_named(folder: Path) -> None:
    import asyncio

    asyncio.run(failed(folder))
    shutil.copyfile("maos.db", "copy.db")
    connection = sqlite3.connect("copy.db")
    connection.execute("UPDATE events SET time_us = time_us + 1 WHERE position = 4")
    connection.commit()
    connection.close()
    result = call("--db", "copy.db", "doctor", "--json")
    assert result.exit_code == 1
    bad = [each for each in json.loads(result.output)["findings"] if each["level"] == "bad"]
    assert bad
    assert "run/r-1" in bad[0]["what"]
    assert settings.folder_of("copy.db") != settings.folder_of("maos.db"), "and nothing of the other is touched"
