"""An agent in the foreground: what is shown, what is recorded, and the exit code."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.agent.conftest import Agents, Call


def test_its_words_are_the_output_and_ours_are_beside_it(here: Path, call: Call) -> None:
    """R-102: what it says is shown as it comes, and a pipe gets nothing else."""
    done = call("agent", "run", "--name", "greeter", "--", "sh", "-c", "echo hello; echo oops >&2; printf 'a\\tb\\n'")
    assert done.returncode == 0
    assert done.stdout == "hello\na       b\n"
    assert done.stderr.splitlines()[0] == f"greeter runs in {here}"
    assert "oops" in done.stderr.splitlines()
    assert done.stderr.splitlines()[-2].startswith("done · 0.")
    assert done.stderr.splitlines()[-1] == "  more: maos agent show greeter"


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (["echo $((1+1)); echo two"], "2\ntwo\n"),
        (["--", "echo", "$((1+1));"], "$((1+1));\n"),
        (["echo", "several", "words"], "several words\n"),
        (["--", "./right here.sh", "--kind", "x"], "--kind x\n"),
        (["--", "./right here.sh"], "\n"),
    ],
    ids=[
        "a line for the shell",
        "a program and its arguments",
        "words without dashes",
        "a program of this folder",
        "a program alone",
    ],
)
def test_what_the_words_mean(here: Path, call: Call, words: list[str], output: str) -> None:
    script = here / "right here.sh"
    script.write_text('#!/bin/sh\necho "$@"\n')
    script.chmod(0o700)
    done = call("agent", "run", *words)
    assert (done.stdout, done.returncode) == (output, 0)


def test_a_task_from_standard_input(here: Path, call: Call) -> None:
    done = call("agent", "run", "-", stdin="echo piped\n")
    assert (done.stdout, done.returncode) == ("piped\n", 0)
    assert call("agent", "run", "-", stdin="").returncode == 2


def test_every_event_as_json(here: Path, call: Call) -> None:
    done = call("agent", "run", "--json", "--name", "counter", "echo one; echo found: two; exit 3")
    assert done.returncode == 1
    assert done.stderr == ""
    documents = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [each["kind"] for each in documents]
    assert kinds[:2] == ["attempt_planned", "attempt_started"]
    assert kinds[-2:] == ["attempt_ended", "summary"]
    assert [each["text"] for each in documents if each["kind"] == "line"] == ["one", "found: two"]
    assert [each["keyword"] for each in documents if each["kind"] == "discovery"] == ["found"]
    summary = documents[-1]
    assert (summary["agent"], summary["agent_kind"], summary["status"]) == ("counter", "shell", "failed")
    assert summary["failure"]["name"] == "failed"
    assert summary["exit"]["code"] == 3
    assert summary["resumable"] == "maos agent resume counter"


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["exit 3"], 1, "failed: exit code 3"),
        (["--time-limit", "0.2s", "sleep 60"], 7, "failed: the time limit was reached"),
        (["kill -9 $$"], 9, "failed: the agent's process was killed by a signal from outside"),
        (["--", "no-such-program"], 3, "there is no program 'no-such-program' on the PATH"),
        (["--", "./no-such-file"], 1, "cannot start ./no-such-file: No such file or directory"),
        (["--kind", "nonsense", "task"], 2, "there is no kind of agent called 'nonsense'"),
        (["--name", "a/b", "true"], 2, "'a/b' cannot name an agent that runs"),
        (["--env", "NOT_SET", "true"], 2, "the variable NOT_SET should be passed on, and is not set"),
        (["--kind", "claude", "two", "words"], 2, "the task has 2 parts"),
        (["--instructions", "@nowhere", "true"], 2, "nowhere cannot be read"),
        (["--time-limit", "soon", "true"], 2, "'soon' is not a duration"),
    ],
    ids=lambda value: value if isinstance(value, int) else None,
)
def test_exit_codes_tell_who_can_do_something(here: Path, call: Call, args: list[str], code: int, said: str) -> None:
    done = call("agent", "run", *args)
    assert said in done.stderr
    assert done.returncode == code


def test_a_failure_says_what_to_do(here: Path, call: Call) -> None:
    done = call("agent", "run", "--name", "short", "--time-limit", "0.2s", "sleep 60")
    assert done.stderr.splitlines()[-1] == "  resume with: maos agent resume short"
    done = call("agent", "run", "--name", "failing", "exit 1")
    assert "  look at `maos agent logs failing`" in done.stderr.splitlines()


def test_a_name_is_given_once(here: Path, call: Call) -> None:
    assert call("agent", "run", "--name", "only", "true").returncode == 0
    again = call("agent", "run", "--name", "only", "echo again")
    assert again.returncode == 2
    assert "maos agent resume only" in again.stderr
    assert again.stdout == ""


def test_only_named_variables_are_seen(here: Path, call: Call) -> None:
    """A16: what the agent does not see it cannot leak."""
    done = call("agent", "run", "--env", "SHOWN_TO_IT", "env", SHOWN_TO_IT="yes", HIDDEN_FROM_IT="secret")
    assert "SHOWN_TO_IT=yes" in done.stdout
    assert "HIDDEN_FROM_IT" not in done.stdout


def test_a_function_with_a_task(here: Path, call: Call) -> None:
    (here / "jobs.py").write_text(
        "async def nightly(context):\n"
        "    context.report(f'doing {context.task}')\n"
        "    context.discover('found', 'a needle')\n"
        "    return 'all of it'\n"
    )
    done = call("agent", "run", "--kind", "python", "jobs:nightly", "what is left")
    assert (done.stdout, done.returncode) == ("doing what is left\nall of it\n", 0)
    assert "★ found: a needle" in done.stderr


def test_agents_are_listed_and_shown(here: Path, call: Call, agents: Agents) -> None:
    call("agent", "run", "--name", "first", "echo 'discovery: water'; echo bye")
    call("agent", "run", "--name", "second", "exit 2")
    listed = call("agent", "list").stdout.splitlines()
    assert listed[0].split() == ["agent", "kind", "status", "since", "cost", "tokens", "left", "doing"]
    assert listed[1].split()[:3] == ["second", "shell", "failed"]
    assert "exit code 2" in listed[1]
    assert listed[2].split()[:3] == ["first", "shell", "done"]
    shown = call("agent", "show", "first").stdout
    assert shown.startswith("first  shell  done since ")
    for label, text in (("task", "echo"), ("result", "bye"), ("found", "discovery: water"), ("works in", str(here))):
        assert any(line.startswith(label) and text in line for line in shown.splitlines())
    document = agents.shown("first")
    assert document["order"]["argv"] == ["sh", "-c", "echo 'discovery: water'; echo bye"]
    assert document["discoveries"][0]["text"] == "water"
    assert document["attempts"][0]["status"] == "done"


def test_nothing_to_list(here: Path, call: Call) -> None:
    assert "there is no database" in call("agent", "list").stderr
    call("state", "create", "someone")
    assert call("agent", "list").stdout.splitlines() == [
        "no agents; `maos agent run -- COMMAND` runs one",
        "1 agent has a state and has not run (`maos state list`)",
    ]


def test_an_agent_is_one_thing_whether_it_has_a_state_has_run_or_both(here: Path, call: Call, agents: Agents) -> None:
    """The two lists do not contradict each other."""
    call("state", "create", "planned")
    call("agent", "run", "--name", "both", "echo hi")
    call("agent", "run", "--name", "ran", "echo hi")
    call("state", "create", "both")
    assert json.loads(call("agent", "list", "--json").stdout)["never_run"] == 1
    assert "1 agent has a state and has not run" in call("agent", "list").stdout
    for command in (("agent", "show"), ("status",), ("logs",)):
        refused = call(*command, "planned")
        assert refused.returncode == 3
        assert refused.stderr.splitlines() == [
            "error: agent 'planned' has a state and has not run",
            "hint: `maos state show planned` shows it",
        ]
    assert "agent 'ran' has no state" in call("state", "show", "ran").stderr
    assert "state         version 1: maos state show both" in call("agent", "show", "both").stdout.splitlines()
    assert (agents.shown("both")["state_version"], agents.shown("ran")["state_version"]) == (1, 0)
    assert not any(line.startswith("state ") for line in call("agent", "show", "ran").stdout.splitlines())


def test_the_beginning_of_a_name_is_enough_when_it_is_clear(here: Path, call: Call) -> None:
    for name in ("build", "builder", "tester"):
        call("agent", "run", "--name", name, f"echo {name}")
    assert call("agent", "logs", "t").stdout == "tester\ndone\n"
    assert call("agent", "logs", "build").stdout == "build\ndone\n"
    unclear = call("agent", "logs", "bu")
    assert unclear.returncode == 2
    assert "could be any of 2 agents: build, builder" in unclear.stderr
    assert call("agent", "logs", "builders").returncode == 3
    assert call("agent", "logs", "").returncode == 3


def test_work_in_a_worktree_is_looked_at_and_merged(here: Path, call: Call) -> None:
    """Files of a person change when they say so, and not before."""
    git = ["git", "-c", "user.name=n", "-c", "user.email=n@localhost"]
    subprocess.run([*git, "init", "-q"], check=True)
    (here / "old.txt").write_text("one\n")
    (here / ".gitignore").write_text("maos.db*\n")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True)
    done = call("agent", "run", "--name", "writer", "echo two >> old.txt; echo new > new.txt")
    assert "a git worktree of its own" in done.stderr
    assert "  2 files changed, +2 -0" in done.stderr
    assert (here / "old.txt").read_text() == "one\n"
    assert call("agent", "diff", "writer").stdout == "+ new.txt  +1 -0\n~ old.txt  +1 -0\n"
    assert "\n+two\n" in call("agent", "diff", "writer", "--patch").stdout
    assert len(json.loads(call("agent", "diff", "writer", "--json").stdout)["files"]) == 2

    (here / "old.txt").write_text("mine\n")
    blocked = call("agent", "merge", "writer")
    assert blocked.returncode == 4
    assert "old.txt" in blocked.stderr
    (here / "old.txt").write_text("one\n")
    merged = call("agent", "merge", "writer")
    assert merged.stdout.startswith("writer: merged as 1 commit on ")
    assert (here / "old.txt").read_text() == "one\ntwo\n"
    assert call("agent", "merge", "writer").stdout == "nothing to merge: your branch has everything already\n"


def test_there_is_nothing_to_merge_from_the_folder_itself(here: Path, call: Call) -> None:
    call("agent", "run", "--name", "direct", "true")
    for command in ("diff", "merge"):
        done = call("agent", command, "direct")
        assert done.returncode == 2
        assert "works in the folder itself" in done.stderr


def test_the_kinds_there_are(here: Path, call: Call) -> None:
    found = {each["kind"]: each for each in json.loads(call("agent", "kinds", "--json").stdout)["kinds"]}
    assert set(found) == {"claude", "codex", "acp:COMMAND", "python", "shell"}
    assert found["claude"]["resume"]
    assert not found["shell"]["cost"]
    table = call("agent", "kinds", PATH=str(here)).stdout
    assert table.splitlines()[0].split()[:6] == ["kind", "resume", "steer", "cost", "mcp", "permission"]
    assert any(line.startswith("codex: ") and "install" in line for line in table.splitlines())


def test_an_agent_on_postgresql(here: Path, call: Call, postgres_url: str) -> None:
    done = call("--db", postgres_url, "agent", "run", "--name", "far", "echo stored elsewhere")
    assert (done.stdout, done.returncode) == ("stored elsewhere\n", 0)
    assert call("--db", postgres_url, "agent", "logs", "far").stdout == "stored elsewhere\ndone\n"
    assert call("--db", postgres_url, "doctor").returncode == 0


def test_options_of_a_command_need_dashes_before_it(here: Path, call: Call) -> None:
    done = call("agent", "run", "ls", "-la")
    assert done.returncode == 2
    assert "`maos agent run` has no option '-l'" in done.stderr
    assert "put -- before that: `maos agent run -- ls -la`" in done.stderr
    assert call("agent", "run", "--nmae", "x", "true").returncode == 2
    assert call("agent", "run", "--", "ls", "-la").returncode == 0
