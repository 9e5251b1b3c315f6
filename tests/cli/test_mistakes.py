"""What newcomers type first: each mistake gets a message that says what to type instead, and changes nothing.

What needs a disk, a server or a killed process is in tests of its own: a full disk in tests/crash/test_full_disk.py, a
server that is away in test_waiting.py, a folder that can only be read in test_read_only.py, a killed engine in
test_same_truth.py.
"""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

import maos
from tests.cli.conftest import Invoke, Terminal
from tests.engine.test_what_survives import holder_of

PLAN = "tasks:\n  - name: one\n    command: [echo, hello]\n"


class Mistake(NamedTuple):
    """What is typed, and what is answered."""

    typed: tuple[str, ...]
    error: str
    hint: str
    code: int = 2


def mistake(typed: str, error: str, hint: str, code: int = 2) -> Mistake:
    return Mistake(tuple(typed.split()), error, hint, code)


MISTAKES = [
    # numbers that are none
    mistake("admin cleanup --older-than nan", "invalid value for '--older-than': nan is not a number",
            "`maos admin cleanup --help` shows the usage"),
    mistake("workflow state cleanup --retention-days inf", "invalid value for '--retention-days': inf is not a number",
            "`maos workflow state cleanup --help` shows the usage"),
    # commands under the names that other programs have for them
    mistake("agent ls", "no command 'ls'; did you mean 'list'?", "`maos agent --help` shows the usage"),
    mistake("workflow ls", "no command 'ls'; did you mean 'list'?", "`maos workflow --help` shows the usage"),
    mistake("ls", "no command 'ls'; did you mean 'ps'?", "`maos --help` shows the usage"),
    mistake("list", "no command 'list'; did you mean 'ps'?", "`maos --help` shows the usage"),
    mistake("start", "no command 'start'; did you mean 'run'?", "`maos --help` shows the usage"),
    mistake("kill r-1", "no command 'kill'; did you mean 'cancel'?", "`maos --help` shows the usage"),
    mistake("agent kill x", "no command 'kill'; did you mean 'stop'?", "`maos agent --help` shows the usage"),
    mistake("agent lits", "no command 'lits'; did you mean 'list'?", "`maos agent --help` shows the usage"),
    mistake("verison", "no command 'verison'; did you mean 'version'?", "`maos --help` shows the usage"),
    # a command without --
    mistake(
        "agent run ls -la",
        "`maos agent run` has no option '-l'",
        "if it belongs to the command, put -- before that: `maos agent run -- ls -la`",
    ),
    mistake("run ls -la", "no such option '-l'", "to run a command, put -- before it: `maos run -- ls -la`"),
    mistake("run sh x.sh", "got unexpected extra argument (x.sh)",
            "to run a command, put -- before it: `maos run -- sh x.sh`"),
    mistake("run add tests", "a request is one text", "put it into quotes: `maos run 'add tests'`"),
    mistake("admin export r-1 r-1.maos", "got unexpected extra argument (r-1.maos)", "name the file with -o FILE"),
    mistake("run -f p.yaml --gate true", "a plan file has gates of its own",
            "write `gates` into its tasks; --gate is for a request"),
    mistake("run", "it takes a request or a plan", "`maos run 'REQUEST'`, `-f FILE` or `-- COMMAND`"),
    # values
    mistake(
        "agent run --time-limit 5 -- true",
        "invalid value for '--time-limit': '5' is not a duration; it looks like 30s, 15m, 2h, 3d or 4w",
        "`maos agent run --help` shows the usage",
    ),
    mistake("status --db x.db", "no such option '--db'", "--db comes before the command: `maos --db TEXT status …`"),
    mistake("state create reviewer", "agent 'reviewer' has a state already",
            "change it with `maos state update reviewer`, or choose another name", 4),
    mistake("state show nobody", "agent 'nobody' has no state", "`maos state list` lists the agents that have one", 3),
    mistake("resume nothing", "there is no run or workflow run 'nothing'",
            "`maos ps --all` lists runs; `maos workflow list` lists workflow runs", 3),
    mistake("logs nothing", "there is no run or agent 'nothing'",
            "`maos ps --all` lists runs; `maos agent list --all` lists agents", 3),
    mistake("run -f missing.yaml", "missing.yaml cannot be read: No such file or directory", "name a plan file"),
    mistake("admin import missing.maos", "there is no file missing.maos",
            "name a bundle, or the maos.db of maos-cli", 3),
    mistake("--db missing.db status", "there is no database missing.db",
            "name one with --db or MAOS_DB, or create one with `maos run` or `maos state create AGENT`"),
    mistake("--db . status", ". is a folder", "name the file in it, such as maos.db"),
]  # fmt: skip


@pytest.mark.parametrize("each", MISTAKES, ids=[" ".join(each.typed) for each in MISTAKES])
def test_a_mistake_says_what_to_type(each: Mistake, db: Path, invoke: Invoke) -> None:
    before = db.read_bytes()
    result = invoke(*each.typed)
    assert (result.exit_code, result.stdout) == (each.code, "")
    assert result.stderr == f"error: {each.error}\nhint: {each.hint}\n"
    assert db.read_bytes() == before


@pytest.mark.parametrize(
    ("typed", "begins"),
    [
        (["help"], "Usage: maos [OPTIONS]"), (["help", "run"], "Usage: maos run "),
        (["help", "agent", "logs"], "Usage: maos agent logs "), (["agent", "help"], "Usage: maos agent "),
        (["agent", "help", "logs"], "Usage: maos agent logs "), (["version"], f"maos {maos.__version__}\n"),
        (["--version"], f"maos {maos.__version__}\n"),
    ],
)  # fmt: skip
def test_words_for_help_and_version_work(typed: list[str], begins: str, invoke: Invoke) -> None:
    result = invoke(*typed)
    assert (result.exit_code, result.stdout[: len(begins)]) == (0, begins)


def test_maos_alone_says_what_it_is_and_what_to_type(no_db: Path, invoke: Invoke) -> None:
    result = invoke()
    assert result.exit_code == 0
    assert 3 < len(result.stdout.splitlines()) < 12
    assert "maos run" in result.stdout
    assert not no_db.exists()


def test_a_subfolder_uses_the_database_of_its_project(
    db: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    deeper = db.parent / "src" / "package"
    deeper.mkdir(parents=True)
    monkeypatch.chdir(deeper)
    assert "reviewer" in invoke("state", "list").stdout
    assert [each.name for each in deeper.iterdir()] == []


def test_a_plan_may_be_yaml_whatever_the_option_is_called(no_db: Path, invoke: Invoke) -> None:
    Path("plan.yaml").write_text(PLAN)
    Path("bad.yaml").write_text("tasks: [\n")
    done = invoke("run", "--plan", "plan.yaml", "--auto", "--in-place")
    assert done.exit_code == 0, done.output
    assert "completed · 1 of 1 tasks done" in done.stdout
    bad = invoke("run", "--plan", "bad.yaml", "--auto")
    assert bad.exit_code == 2
    assert "bad.yaml:2:1: not YAML" in bad.stderr
    # no process has it open: everything beside the database is a file
    assert [each.name for each in no_db.parent.glob("maos.db*") if not each.is_file()] == []


def test_a_task_without_its_run_is_told_what_it_is_called(no_db: Path, invoke: Invoke) -> None:
    Path("plan.yaml").write_text(PLAN)
    assert invoke("run", "-f", "plan.yaml", "--auto", "--in-place").exit_code == 0
    run = json.loads(invoke("ps", "--json").stdout)["runs"][0]["id"]
    wrong = invoke("logs", "one")
    assert wrong.stderr == f"error: there is no run or agent 'one'\nhint: a task is named with its run: {run}/one\n"
    again = invoke("retry", run)
    assert again.stderr.endswith(f'hint: `maos resume {run} --task "…"` gives it more to do\n')


def test_a_command_that_is_the_name_of_an_agent_is_told_how_to_have_it_work(
    no_db: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    (empty := no_db.parent / "bin").mkdir()
    monkeypatch.setenv("PATH", str(empty))
    wrong = invoke("agent", "run", "codex", "Add tests")
    assert wrong.exit_code == 3
    assert "`maos agent run --kind codex 'TASK'`" in wrong.stderr
    assert "install it, or give the path" in invoke("agent", "run", "nothing-like-it").stderr


@pytest.mark.parametrize(
    ("command", "operator"),
    [("make && make test", "&&"), ("ls | wc -l", "|"), ("echo hi > hi.txt", ">"), ("true; false ; true", ";")],
)
def test_a_plan_with_a_line_for_a_shell_is_told_that_none_runs_it(
    command: str, operator: str, no_db: Path, invoke: Invoke
) -> None:
    Path("plan.yaml").write_text(f"tasks:\n  - name: one\n    command: {command}\n")
    wrong = invoke("run", "-f", "plan.yaml", "--auto", "--in-place")
    assert wrong.exit_code == 2
    assert f"plan.yaml:3:14: no shell runs the command, which would get {operator!r} as an argument" in wrong.stderr


@pytest.mark.parametrize("command", ["expr 3 '|' 0", r"echo a \; b", 'echo "a && b" c', "echo a&&b", "[echo, '&&']"])
def test_what_only_looks_like_a_line_for_a_shell_is_a_command(command: str, no_db: Path, invoke: Invoke) -> None:
    Path("plan.yaml").write_text(f"tasks:\n  - name: one\n    command: {command}\n")
    assert invoke("run", "-f", "plan.yaml", "--auto", "--in-place").exit_code == 0


def test_attempts_have_checkpoints_of_different_names(db: Path, invoke: Invoke) -> None:
    git = shutil.which("git") or "git"
    subprocess.run([git, "init", "-q"], check=True)
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run([git, *who, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    assert invoke("agent", "run", "--name", "worker", "--", "false").exit_code == 1
    assert invoke("agent", "resume", "worker").exit_code == 1
    shown = invoke("agent", "show", "worker").stdout
    assert "attempt 1 end-1 " in shown
    assert "attempt 2 end-2.1 " in shown


FLOW = """
import maos
from maos.workflows import publish, sleep

@maos.workflow
async def flow() -> None:
    await sleep(0.01)
    publish(done=1)
"""


def test_steps_are_named_once(no_db: Path, invoke: Invoke) -> None:
    Path("flow.py").write_text(FLOW)
    assert invoke("workflow", "run", "flow.py:flow", "--id", "f-1").exit_code == 0
    rows = [line.split() for line in invoke("workflow", "show", "f-1").stdout.splitlines()]
    assert [row[1] for row in rows if row[0] in ("1", "2")] == ["sleep", "publish"]


def test_a_killed_engine_leaves_the_cursor_below_the_frame(no_db: Path) -> None:
    """It cannot show the cursor again, so it never hides it; and the shell's next line begins below the frame."""
    says = "echo $$ > pid; echo found: there is room; exec sleep 300"
    Path("plan.yaml").write_text(f'tasks:\n  - name: page\n    command: [sh, -c, "{says}"]\n')
    terminal = Terminal("run", "-f", "plan.yaml", "--auto", "--in-place")
    try:
        terminal.wait_for("1 running")
        terminal.wait_for("page  running")
        terminal.wait_until(lambda: Path("pid").exists() and bool(Path("pid").read_text()))
        terminal.interrupt(signal.SIGKILL)
        terminal.end()
        frame = terminal.shown.splitlines()
        assert "1 running" in frame[-2]
        assert frame[-1].startswith("page  running")
        assert (terminal.cursor.hidden, terminal.cursor.x, terminal.cursor.y) == (False, 0, len(frame))
    finally:
        terminal.close()
        os.kill(holder_of(int(Path("pid").read_text())), signal.SIGKILL)
