"""`maos config`: what is set and by whom, what is wrong, and editing that cannot break anything (R-1007)."""

import json
from pathlib import Path
from typing import Any

import pytest

from maos.settings import config_folder
from tests.cli.conftest import Invoke, Run


@pytest.fixture
def project(no_db: Path) -> Path:
    """The file of the current folder, which does not exist."""
    return no_db.with_name("maos.toml")


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file whose content the editor puts in the place of what it is given."""
    wanted = tmp_path / "wanted"
    script = tmp_path / "editor"
    script.write_text(f'#!/bin/sh\ncp "$1" {tmp_path}/given; cp {wanted} "$1"; touch -d "+1 minute" "$1"\n')
    script.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(script))
    return wanted


def settings(invoke: Invoke, *args: str) -> dict[str, dict[str, Any]]:
    found = json.loads(invoke("config", "show", "--json", *args).stdout)["settings"]
    return {each["name"]: each for each in found}


def test_show_tells_where_each_value_comes_from(project: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write_text("[checkpoint]\ninterval_s = 60\n")
    config_folder().mkdir(parents=True)
    (config_folder() / "maos.toml").write_text("[cleanup.of.nightly]\nkeep_runs = 3\n")
    monkeypatch.setenv("MAOS_CHECKPOINT_STEPS", "5")
    monkeypatch.setenv("MAOS_NOTIFY", "json://t0psecret")
    lines = invoke("config", "show").stdout.splitlines()
    assert [line.split() for line in lines if line.startswith("checkpoint.")] == [
        ["checkpoint.enabled", "true", "default"],
        ["checkpoint.frequency", "every_step", "default"],
        ["checkpoint.interval_s", "60", f"{project}:2"],
        ["checkpoint.steps", "5", "MAOS_CHECKPOINT_STEPS"],
    ]
    found = settings(invoke)
    assert (found["cleanup.of.nightly.keep_runs"]["value"], found["cleanup.of.nightly.keep_runs"]["source"]) == (
        3,
        "file",
    )
    assert (found["checkpoint.steps"]["value"], found["checkpoint.steps"]["default"]) == (5, 1)
    assert found["notify.urls"]["value"] == ["(hidden)"]
    assert "t0psecret" not in "".join(lines)
    changed = settings(invoke, "--changed")
    assert changed.keys() == {
        "checkpoint.interval_s",
        "checkpoint.steps",
        "notify.urls",
        "cleanup.of.nightly.keep_runs",
    }
    assert settings(invoke, "checkpoint.steps", "engine").keys() == {"checkpoint.steps", "engine.lease_s"}
    flag = json.loads(invoke("--db", "x.db", "config", "show", "database", "--json").stdout)["settings"][0]
    assert (flag["value"], flag["source"], flag["where"]) == ("x.db", "flag", "--db")


def test_a_name_that_does_not_exist_has_a_near_one(project: Path, invoke: Invoke) -> None:
    done = invoke("config", "show", "checkpoint.intervall")
    assert done.exit_code == 3
    assert "did you mean checkpoint.interval_s?" in done.stderr


def test_validate_lists_everything_that_is_wrong(project: Path, invoke: Invoke) -> None:
    assert invoke("config", "validate").stdout == "ok: there is no settings file\n"
    project.write_text("version = 0\ncheckpoint_interval = 60\n")
    done = invoke("config", "validate")
    assert done.stdout == f"ok: {project}\n"
    assert "checkpoint_interval of version 0 is checkpoint.interval_s now" in done.stderr
    project.write_text("[checkpoint]\ninterval_s = 0\nsteps = 0\n")
    done = invoke("config", "validate")
    assert done.exit_code == 2
    assert (
        f"error: {project}:2:14: checkpoint.interval_s is 0\nhint: it can be a number from 1 to 86_400" in done.stderr
    )
    found = json.loads(invoke("config", "validate", "--json").stdout)
    assert [each["where"] for each in found["problems"]] == [f"{project}:2:14", f"{project}:3:9"]
    assert not found["ok"]
    other = project.with_name("other.toml")
    other.write_text("version = 8")
    done = invoke("config", "validate", str(other))
    assert done.exit_code == 1
    assert "settings of version 8; this maos knows up to 1" in done.stderr


def test_every_command_says_what_is_wrong_with_the_settings_it_needs(db: Path, invoke: Invoke) -> None:
    db.with_name("maos.toml").write_text("[databse]\npath = 'x.db'\n")
    done = invoke("state", "list")
    assert done.exit_code == 2
    assert "maos.toml:2:1: there is no setting databse.path" in done.stderr
    assert "did you mean database.path?" in done.stderr
    assert invoke("--db", str(db), "state", "list").exit_code == 0, "it needs none of them"
    assert invoke("state", "list", "--help").exit_code == 0


def test_the_database_can_be_set_for_a_project(db: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-1009: any path, also from the folders below."""
    below = db.parent / "src"
    below.mkdir()
    (db.parent / "data").mkdir()
    for file in db.parent.glob("maos.db*"):
        file.rename(db.parent / "data" / file.name)
    db.with_name("maos.toml").write_text("database.path = 'data/maos.db'\n")
    monkeypatch.chdir(below)
    assert "reviewer" in invoke("state", "list").stdout
    monkeypatch.setenv("MAOS_DB", "nothing.db")
    assert invoke("state", "list").exit_code == 2


def test_path_names_both_files(project: Path, invoke: Invoke) -> None:
    user = project.parent / "config" / "maos" / "maos.toml"
    assert invoke("config", "path").stdout.splitlines() == [
        f"yours    {user}  (there is none)",
        "project  (there is none in or above this folder)",
    ]
    project.write_text("")
    assert json.loads(invoke("config", "path", "--json").stdout) == {
        "user": {"path": str(user), "exists": False},
        "project": {"path": str(project), "exists": True},
        "passed_over": None,
    }


def test_edit_begins_with_all_settings_and_writes_what_is_right(
    project: Path, invoke: Invoke, editor: Path, tmp_path: Path
) -> None:
    editor.write_text("[checkpoint]\ninterval_s = 33\n")
    done = invoke("config", "edit", "--project")
    assert done.stdout == f"{project} is written\n"
    assert "# interval_s = 120\n" in (tmp_path / "given").read_text()
    assert settings(invoke)["checkpoint.interval_s"]["value"] == 33
    assert json.loads(invoke("config", "edit", "--json").stdout) == {"path": str(project), "changed": False}
    user = json.loads(invoke("config", "edit", "--user", "--json").stdout)
    assert user == {"path": str(project.parent / "config" / "maos" / "maos.toml"), "changed": True}


def test_what_is_wrong_is_not_written(project: Path, invoke: Invoke, editor: Path) -> None:
    project.write_text("[checkpoint]\nsteps = 3\n")
    for wrong in ("[checkpoint]\nsteps = 0\n", "version = 9\n", "[["):
        editor.write_text(wrong)
        done = invoke("config", "edit")
        assert done.exit_code == 2
        assert "maos.toml" in done.stderr
        assert project.read_text() == "[checkpoint]\nsteps = 3\n"


def test_what_somebody_else_wrote_meanwhile_is_not_overwritten(
    project: Path, invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write_text("[checkpoint]\nsteps = 3\n")
    script = tmp_path / "editor"
    script.write_text(f'#!/bin/sh\necho "checkpoint.steps = 4" > "$1"; touch -d "+1 minute" "$1"; : > {project}\n')
    script.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(script))
    done = invoke("config", "edit")
    assert done.exit_code == 2
    assert "was changed by another program meanwhile" in done.stderr
    assert project.read_text() == ""


def test_reading_settings_loads_no_database(project: Path, run: Run) -> None:
    project.write_text("[checkpoint]\nsteps = 3\n")
    code = (
        "import sys\nfrom maos.cli.program import program\n"
        "try: program(['config', 'show', 'checkpoint.steps'])\n"
        "except SystemExit: print({'apsw', 'asyncpg', 'maos.app'} & set(sys.modules))"
    )
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("set()\n")
