"""Completion: asked as a real bash asks it, and silent when there is nothing to say."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.cli.agent.conftest import Call
from tests.cli.conftest import Invoke

Ask = Callable[..., list[str]]
ASKING = """
eval "$(maos completion bash)"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_maos_completion maos
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def bash(tmp_path: Path) -> Ask:
    """What bash would offer for the last of some words."""
    programs = tmp_path / "bin"
    programs.mkdir()
    maos = programs / "maos"
    maos.write_text(f'#!/bin/sh\nexec {sys.executable} -m maos "$@"\n')
    maos.chmod(0o755)

    def ask(*words: str) -> list[str]:
        environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "--norc", "-c", ASKING, "bash", "maos", *words],
            capture_output=True, text=True, env=environment, timeout=60,
        )  # fmt: skip
        assert done.stderr == ""
        return done.stdout.split()

    return ask


def test_bash_completes_commands_and_options(no_db: Path, bash: Ask) -> None:
    assert bash("ro") == ["rollback"]
    assert bash("orch") == [], "older names are not offered"
    assert "--notify" in bash("run", "--no")
    assert bash("completion", "") == ["bash", "zsh", "fish"]
    assert not no_db.exists()


def test_bash_completes_names_of_the_database(db: Path, bash: Ask) -> None:
    assert bash("state", "show", "re") == ["reviewer"]
    assert bash("--db", str(db), "state", "show", "pl") == ["planner"]


def test_a_name_that_a_shell_would_run_is_not_offered(db: Path, bash: Ask, invoke: Invoke) -> None:
    for name in ("$(id)", "a;b", "`id`", "two words"):
        assert invoke("state", "create", name).exit_code == 0
    assert set(bash("state", "show", "")) == {"planner", "reviewer"}


def test_runs_agents_and_questions_are_completed(runs: Sequence[str], bash: Ask) -> None:
    first, second = sorted(runs)
    assert bash("resume", "r-") == [first, second]
    assert bash("status", first[:4]) == [each for each in (first, second) if each.startswith(first[:4])]
    assert bash("logs", f"{first}/") == [f"{first}/a", f"{first}/b"]
    assert f"{first}.a" in bash("agent", "logs", f"{first}.")
    assert {f"{first}.a", f"{first}.b"} <= set(bash("messages", "send", f"{first}."))
    assert bash("answer", f"{first}/") == [f"{first}/gate/a/0/1"]


@pytest.fixture
def runs(here: Path, call: Call) -> list[str]:
    """Two runs that are paused while a person is asked."""
    import json

    plan = Path("plan.json")
    gated = {"name": "a", "command": ["true"], "gates": [{"person": "Good?"}]}
    plan.write_text(json.dumps({"tasks": [gated, {"name": "b", "command": ["true"], "needs": ["a"]}]}))
    found = []
    for _ in range(2):
        done = call("run", "-f", str(plan), "--auto", "--in-place", "--run-time", "2s", "--json")
        found.append(json.loads(done.stdout.splitlines()[-1])["run"])
    return found


def test_nothing_is_said_and_nothing_made_when_there_is_no_database(no_db: Path, bash: Ask) -> None:
    assert bash("resume", "") == []
    assert bash("--db", "postgresql://nobody@127.0.0.1:1/none", "resume", "") == []
    assert not no_db.exists()


@pytest.mark.parametrize(("shell", "part"), [("zsh", "#compdef maos"), ("fish", "complete --no-files --command maos")])
def test_other_shells_have_a_script_too(no_db: Path, invoke: Invoke, shell: str, part: str) -> None:
    assert part in invoke("completion", shell).stdout
