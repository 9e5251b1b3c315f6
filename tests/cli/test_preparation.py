"""How workspaces are prepared, on the command line: options, a plan shown whole, consent to a project's file."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run, empty_folder
from tests.workspaces.repositories import repository, write

EVIL = "sh -c 'make lint" + " " * 2100 + "; echo hidden'"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a repository with an ignored file."""
    folder = repository(tmp_path / "project", {"a.py": "1\n", ".gitignore": "local.cfg\n", "CLAUDE.md": "Be kind.\n"})
    empty_folder(folder, monkeypatch)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    write(folder / "local.cfg", "local\n")
    return folder


def plan(folder: Path, command: str) -> Path:
    return write(
        folder.parent / "plan.json", json.dumps({"tasks": [{"name": "one", "command": ["sh", "-c", command]}]})
    )


def test_options_prepare_the_workspaces_of_a_run(project: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "of the person")
    file = plan(project, 'echo "$(cat made local.cfg > copied.txt; cat a.py) $MINE $A"')
    write(project / "a.py", "2\n")
    given = ("--setup", "sh -c 'echo made > made'", "--copy-ignored", "*.cfg", "--env", "MINE", "--env", "A=b c")
    done = run("run", "-f", str(file), "--auto", *given, "--include-uncommitted")
    assert done.returncode == 0, done.stderr
    assert "setup: sh -c 'echo made > made'" in done.stdout
    assert "copies ignored files: *.cfg" in done.stdout
    assert "variables: MINE, A=b c" in done.stdout
    [found] = json.loads(run("ps", "--all", "--json").stdout)["runs"]
    shown = json.loads(run("status", found["id"], "--tasks", "--json").stdout)
    assert shown["tasks"][0]["result"].split() == ["2", "[redacted:MINE]", "b", "c"]
    assert shown["options"]["setup"] == [["sh", "-c", "echo made > made"]]
    page = run("status", found["id"]).stdout
    assert "setup" in page
    assert "MINE, A=b c" in page


def test_a_run_says_what_its_agents_do_not_have(project: Path, run: Run) -> None:
    done = run("run", "-f", str(plan(project, "true")), "--auto")
    assert "agents do not see ignored files: local.cfg (--copy-ignored, or --setup to make them)" in done.stdout
    assert "CLAUDE.md" not in done.stdout, "no agent of this run could use it"


def test_an_agent_of_its_own_is_prepared_too(project: Path, run: Run) -> None:
    done = run("agent", "run", "--setup", "touch made", "--copy-ignored", "local.cfg", "--env", "A=1", "--", "ls")
    assert done.returncode == 0, done.stderr
    assert {"made", "local.cfg"} <= set(done.stdout.split())
    failed = run("agent", "run", "--setup", "sh -c 'echo no; exit 4'", "--", "ls")
    assert failed.returncode == 1
    assert "setup failed: `sh -c 'echo no; exit 4'` exited with code 4" in failed.stderr


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (("--env", "API_KEY=abcDEF123456"), "the value of API_KEY looks like a secret"),
        (("--env", "1A=2"), "'1A' cannot name a variable"),
        (("--setup", "sh -c 'x"), "--setup: No closing quotation"),
        (("--project-settings", "web"), "'web' is nothing that a project can give to agents"),
        (("--env", "NOT_SET_ANYWHERE"), "the variable NOT_SET_ANYWHERE should be passed on, and is not set"),
    ],
)
def test_options_that_cannot_be_are_refused(project: Path, run: Run, given: tuple[str, ...], what: str) -> None:
    done = run("agent", "run", *given, "--", "true")
    assert done.returncode == 2
    assert what in done.stderr
    assert "hint:" in done.stderr


def test_nothing_of_a_projects_settings_is_used_before_a_person_agrees(project: Path, run: Run) -> None:
    """A12."""
    write(project / "maos.toml", f'[workspace]\nsetup = ["touch {project.parent}/pwned", "{EVIL}"]\nenv = ["HOME"]\n')
    for words in (("run", "-f", str(plan(project, "true")), "--auto"), ("agent", "run", "--", "true")):
        done = run(*words)
        assert done.returncode == 2, done.stdout
        assert "workspace.setup, workspace.env, and you have not agreed to it" in done.stderr
    assert run("admin", "trust").returncode == 2, "no person can be asked here"
    agreed = run("admin", "trust", "--yes")
    assert agreed.returncode == 0
    assert "; echo hidden" in agreed.stderr, "a command is shown whole"
    assert not (project.parent / "pwned").exists()
    write(project / "maos.toml", (project / "maos.toml").read_text().replace(EVIL, "true"))
    assert run("agent", "run", "--", "true").returncode == 2, "what was agreed to is what was seen"
    assert run("admin", "trust", "--yes").returncode == 0
    assert run("agent", "run", "--", "true").returncode == 0
    assert (project.parent / "pwned").exists()


def test_a_type_of_the_project_names_no_commands_and_a_type_of_the_person_does(
    project: Path, run: Run, tmp_path: Path
) -> None:
    """A12."""
    text = "---\nkind: shell\nsetup:\n- touch made\ncopy_ignored: '*.cfg'\nenv: A=1, B=2\n---\n"
    write(project / ".maos" / "agents" / "builder.md", text)
    task = {"name": "one", "agent": "builder", "command": ["sh", "-c", "ls made local.cfg && test $A$B = 12"]}
    file = write(project.parent / "plan.json", json.dumps({"tasks": [task]}))
    refused = run("run", "-f", str(file), "--auto")
    assert refused.returncode == 2
    assert "a project's type cannot have setup" in refused.stderr
    (project / ".maos" / "agents" / "builder.md").unlink()
    write(tmp_path / "config" / "maos" / "agents" / "builder.md", text)
    assert run("run", "-f", str(file), "--auto").returncode == 0


def test_uncommitted_changes_are_included_by_patterns(project: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an option, whose value can be left out, and as a setting; the option takes precedence."""
    for name in ("a.py", "b.py", "b.txt"):
        write(project / name, f"my {name}\n")
    show = ("--", "sh", "-c", "cat *.py *.txt; :")

    def seen(*given: str) -> str:
        return run("agent", "run", *given, *show).stdout

    assert "my" not in seen()
    assert seen("--include-uncommitted") == "my a.py\nmy b.py\nmy b.txt\n"
    assert seen("--include-uncommitted=b.*") == "1\nmy b.py\nmy b.txt\n"
    assert seen("--include-uncommitted=a.py", "--include-uncommitted=b.txt") == "my a.py\nmy b.txt\n"
    monkeypatch.setenv("MAOS_WORKSPACE_INCLUDE_UNCOMMITTED", "*.txt b.py")
    assert seen() == "1\nmy b.py\nmy b.txt\n"
    assert seen("--include-uncommitted=a.py") == "my a.py\n"
    monkeypatch.setenv("MAOS_WORKSPACE_INCLUDE_UNCOMMITTED", "no")
    file = plan(project, "cat *.py")
    done = run("run", "--auto", "--include-uncommitted", "-f", str(file), "--json")
    assert json.loads(done.stdout.splitlines()[-1])["tasks"][0]["result"] == "my b.py"


def test_the_settings_say_what_checkpoints_keep(project: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAOS_WORKSPACE_KEEP_IGNORED", "kept/*.cfg *.log")
    monkeypatch.setenv("MAOS_WORKSPACE_FILE_BYTES_MAX", "1000")
    write(project / ".gitignore", "*.cfg\n")
    make = (
        "mkdir kept; echo 1 > kept/a.cfg; echo 2 > b.cfg; head -c 1001 /dev/zero > large; head -c 999 /dev/zero > small"
    )
    done = run("run", "-f", str(plan(project, make)), "--auto", "--include-uncommitted=.gitignore", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert {each["path"] for each in summary["files"]} == {"kept/a.cfg", "small"}
    assert run("agent", "diff", f"{summary['run']}.one", "--name-only").stdout.split() == ["kept/a.cfg", "small"]
