"""The work of a run as commits, branches and the text of a pull request, and what its tasks changed."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.agent.conftest import Call
from tests.cli.conftest import ESCAPES, Terminal
from tests.cli.orchestrate.conftest import GIT, Plan, documents

RED = "\\033[31m"


def git(*args: str) -> str:
    return subprocess.run([*GIT, *args], check=True, capture_output=True, text=True).stdout.rstrip("\n")


@pytest.fixture
def run(repository: Path, plan: Plan, call: Call) -> str:
    """A run of two tasks that have changed files; the first has passed a check."""
    a = {
        "command": ["sh", "-c", f"echo 1 > a.txt; printf '{RED}one\\033[0m\\n'"],
        "gates": [{"command": ["test", "-e", "a.txt"]}],
    }
    done = call("run", "-f", str(plan(a=a, b=("echo 2 > b.txt; echo more >> readme.txt", "a"))), "--auto", "--json")
    assert done.returncode == 0
    git("config", "user.name", "Ada")
    git("config", "user.email", "ada@example.org")
    git("checkout", "-q", "-B", "trunk")
    return str(documents(done.stdout)[-1]["run"])


def test_a_run_becomes_commits_of_its_tasks_on_a_branch_and_a_pull_request(
    repository: Path, run: str, call: Call
) -> None:
    git("remote", "add", "origin", "https://example.org/x.git")
    preview = call("merge", run, "--dry-run")
    assert f"{run}: would be merged as 2 commits on trunk, 3 files\n" in preview.stdout
    assert git("log", "--format=%s") == "first"
    done = call("merge", run, "--branch", "work", "--pr-text", "pr.md")
    lines = done.stdout.splitlines()
    assert lines[0] == f"{run}: merged as 2 commits on work, 3 files"
    assert lines[-2:] == [
        "to push: git push -u origin work",
        "to open a pull request: gh pr create --head work --title 'do it' --body-file pr.md",
    ]
    assert git("log", "--format=%an %s", "work").splitlines()[1:] == [
        git("log", "-1", "--format=Ada %s", "work^"),
        "n first",
    ]
    assert f"Maos-Task: b\nMaos-Run: {run}\nMaos-Agent: shell\n" in git("log", "-1", "--format=%B", "work")
    assert git("status", "--porcelain") == "?? pr.md"
    text = (repository / "pr.md").read_text()
    assert "- ✓ `test -e a.txt` passed (task a)" in text
    assert "## Files (3, +3 -0)" in text
    assert "\x1b" not in text
    on_stdout = call("merge", run, "--pr-text", "-", "--squash", "--message", "All of it\n\nat once")
    assert on_stdout.stdout == text
    assert "merged as 1 commit on trunk" in on_stdout.stderr
    assert git("log", "--format=%s") == "All of it\nfirst"
    again = json.loads(call("merge", run, "--json").stdout)
    assert (again["outcome"], again["commits"], again["files"]) == ("merged", [], [])
    blocked = call("merge", run, "--branch", "trunk")
    assert blocked.returncode == 4
    assert "checked out in" in blocked.stderr


def test_what_tasks_changed_is_shown_one_by_one(run: str, call: Call) -> None:
    stat = call("diff", run, "--stat").stdout.splitlines()
    assert [line.split(" ", 1)[1] for line in stat if line and line[0] != " "][1] == (
        "b: echo 2 > b.txt; echo more >> readme.txt"
    )
    assert stat[1:3] == ["  a.txt     1 +", "  1 file changed, +1 -0"]
    assert call("diff", run, "--name-only").stdout.split() == ["a.txt", "b.txt", "readme.txt"]
    assert call("diff", f"{run}/b", "--name-only").stdout.split() == ["b.txt", "readme.txt"]
    patch = call("diff", run, "--patch").stdout
    assert subprocess.run(["git", "apply", "--check", "-"], input=patch, text=True).returncode == 0
    tasks = json.loads(call("diff", run, "--stat", "--json").stdout)["tasks"]
    assert [(each["task"], len(each["files"])) for each in tasks] == [("a", 1), ("b", 2)]


def test_the_log_of_a_run_has_everything_in_order(run: str, call: Call) -> None:
    lines = call("logs", run).stdout.splitlines()
    assert lines[0] == f"{run}  do it"
    assert lines[-1] == "■ completed"
    said = ["a  ▸ started", "a  one", "a  · agent finished; running checks", "a  · passed check 1 of 1", "b  ▸ started"]
    assert [line for line in lines if line in said] == said
    assert call("logs", run, "-n", "2").stdout.splitlines() == lines[-2:]
    assert "a  one" not in call("logs", run, "--brief").stdout.splitlines()
    assert call("logs", run, "--since", "2100-01-01").stdout == ""
    kinds = [each["kind"] for each in documents(call("logs", run, "--json").stdout)]
    assert kinds.index("task_started") < kinds.index("line") < kinds.index("task_gated") < kinds.index("run_ended")
    assert documents(call("logs", run, "--json", "-n", "1").stdout)[0]["kind"] == "run_ended"
    assert call("logs", f"{run}/a", "-n", "2").stdout.splitlines() == ["one", "done"]


def test_checks_are_agents_that_are_listed_on_request(run: str, call: Call) -> None:
    def names(*options: str) -> set[str]:
        return {each["agent"] for each in json.loads(call("agent", "list", *options, "--json").stdout)["agents"]}

    assert names() == {f"{run}.a", f"{run}.b"}
    assert names("--checks") - names() == {f"{run}.a-gate1-1"}


def test_a_check_that_fails_says_which_and_a_command_is_not_tried_again(
    repository: Path, plan: Plan, call: Call
) -> None:
    check = ["sh", "-c", f"echo looking; printf '{RED}expected 13\\033[0m\\n'; exit 3"]
    a = {"command": ["sh", "-c", "echo run >> begun; echo 12"], "gates": [{"command": check}]}
    done = call("run", "-f", str(plan(a=a)), "--auto")
    assert done.returncode == 9
    lines = done.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if "✗ failed" in line)
    assert lines[at].startswith("a  ✗ failed: check `echo looking;")
    assert lines[at].endswith("failed: exit code 3")
    assert lines[at + 1 : at + 3] == ["a    │ looking", "a    │ expected 13"]
    assert done.stdout.count("▸ started") == 1
    run = lines[-1].rpartition(" ")[2]
    assert f"  a: fix what the check found, then `maos retry {run}/a`" in lines


def test_lines_end_between_words_on_a_terminal_and_names_are_whole_on_a_narrow_one(
    repository: Path, plan: Plan, call: Call, terminal: Callable[..., Terminal]
) -> None:
    long, name = "discovery: " + "wording " * 18 + "ends", "a-name-of-some-length-here"
    tasks = {name: f"echo {long}", "other": ("exit 3", name)}
    assert call("run", "-f", str(plan(**tasks)), "--auto").returncode != 0
    (run,) = [each["id"] for each in json.loads(call("ps", "--json").stdout)["runs"]]
    lines = call("logs", run).stdout.splitlines()
    assert any(line.endswith(long.partition(": ")[2]) for line in lines), "a pipe gets whole lines"
    parts = {"wording"[:size] for size in range(2, 7)} | {"wording"[size:] for size in range(1, 6)}
    for args, columns in ((("logs", run), 100), (("logs", run), 40), (("diff", run), 40)):
        screen = terminal(*args, columns=columns)
        screen.end()
        shown = [ESCAPES.sub("", line).rstrip() for line in screen.text.splitlines()]
        assert max(map(len, shown)) <= columns
        assert sum("wording" in line for line in shown) > 1
        assert not parts & {word for line in shown for word in line.split()}, screen.shown
    for args in (("status", run), ("ps",), ("diff", run)):
        screen = terminal(*args, columns=40)
        screen.end()
        assert (name if args != ("ps",) else run) in screen.shown, screen.shown
