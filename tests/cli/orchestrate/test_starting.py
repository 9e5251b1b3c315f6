"""`maos orchestrate`: a plan is read, shown, approved and carried out, and its work can be had."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.agent.conftest import Call
from tests.cli.conftest import Terminal
from tests.cli.orchestrate.conftest import GIT, Plan, documents

SHOWN = """\
Plan: do it  3 tasks in 2 batches
├─ batch 1
│  └─ a  shell  sh -c 'echo 1 > a.txt; echo found: gold'
└─ batch 2, together
   ├─ b  shell  after a  sh -c 'cat a.txt; echo 2 > b.txt'
   └─ c  shell  after a  sh -c 'echo 3 > c.txt'
"""


@pytest.fixture
def three(plan: Plan) -> Path:
    return plan(
        a="echo 1 > a.txt; echo found: gold",
        b=("cat a.txt; echo 2 > b.txt", "a"),
        c=("echo 3 > c.txt", "a"),
    )


def test_a_plan_is_shown_and_carried_out_and_its_work_can_be_merged(repository: Path, three: Path, call: Call) -> None:
    """R-101: batches, agents in parallel, and a summary; a task begins with the files of those it needs."""
    done = call("run", "-f", str(three), "--auto")
    assert done.returncode == 0
    assert done.stdout.startswith(SHOWN)
    assert "a  ★ found: gold\n" in done.stdout
    assert "completed · 3 of 3 tasks done · " in done.stdout
    assert "  3 files changed, +3 -0\n" in done.stdout
    assert not (repository / "a.txt").exists()  # the user's files are their own until they say otherwise
    command = done.stdout.splitlines()[-1].removeprefix("  to merge them: maos ").split()
    assert ": merged as 3 commits on master, 3 files\n" in call(*command).stdout.replace("main", "master")
    assert (repository / "b.txt").read_text() == "2\n"
    assert _git("log", "-1", "--format=%s") in ("b: cat a.txt; echo 2 > b.txt", "c: echo 3 > c.txt")
    assert call(*command).stdout == "nothing to merge: your branch has everything already\n"


def test_everything_can_be_read_by_programs(repository: Path, three: Path, call: Call) -> None:
    done = call("run", "-f", str(three), "--auto", "--json")
    assert done.stderr == ""
    planned, first, *events, last = documents(done.stdout)
    assert [each["name"] for each in planned["tasks"]] == ["a", "b", "c"]
    assert (first["kind"], first["status"], last["kind"], last["status"]) == ("run", "running", "summary", "completed")
    kinds = [(each["kind"], each.get("task")) for each in events if each["kind"].startswith("task_")]
    assert kinds.index(("task_finished", "a")) < kinds.index(("task_started", "b"))
    assert [each["text"] for each in events if each["kind"] == "discovery"] == ["gold"]
    assert {each["path"] for each in last["files"]} == {"a.txt", "b.txt", "c.txt"}
    assert {each["task"]: each["result"] for each in last["tasks"]}["b"] == "1"
    assert last["discoveries"][0]["task"] == "a"


def test_nobody_to_ask_is_not_a_yes(repository: Path, three: Path, call: Call) -> None:
    done = call("run", "-f", str(three))
    assert done.returncode == 2
    assert done.stdout == SHOWN
    assert "repeat it with --auto" in done.stderr
    assert not (repository / "maos.db").exists()


def test_a_person_says_yes_and_watches(repository: Path, three: Path, terminal: Callable[..., Terminal]) -> None:
    shown = terminal("run", "-f", str(three))
    shown.wait_for("[e]dit: ")
    shown.type("what?\ny\n")
    assert shown.end() == 0
    assert shown.text.count("[e]dit: ") == 2
    assert "1 running" in shown.text
    assert "completed" in shown.text


def test_a_person_says_no(repository: Path, three: Path, terminal: Callable[..., Terminal]) -> None:
    shown = terminal("run", "-f", str(three))
    shown.wait_for("[e]dit: ")
    shown.type("n\n")
    assert shown.end() == 1
    assert "nothing was started" in shown.text
    assert not (repository / "maos.db").exists()


def test_a_person_edits_the_plan_until_it_is_right(
    repository: Path, three: Path, terminal: Callable[..., Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = repository.parent / "editor"
    wrong, right = 's/.a.]/"oops"]/', "s/oops/a/; s/do it/do it well/"
    editor.write_text(
        f"#!/bin/sh\nif [ -e edited ]; then sed -i '{right}' $1; else sed -i '{wrong}' $1; touch edited; fi\n"
    )
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    monkeypatch.setenv("EDITOR", str(editor))
    shown = terminal("run", "-f", str(three))
    shown.wait_for("[e]dit: ")
    shown.type("e\n")
    shown.wait_for("Edit it again?")
    assert "needs 'oops', which does not exist" in shown.words
    shown.type("y\n")
    shown.wait_for("do it well")
    shown.type("y\n")
    assert shown.end() == 0


HIDDEN = " " * 2100 + "; echo " + "x" * 200 + " > hidden"
"""The end of a script, far behind its beginning."""

WHOLE = f"""\
├─ batch 1
│  └─ a  shell  sh -c 'make lint ; echo {"x" * 200} > hidden'
│     then a check: sh -c 'true ; echo {"x" * 200} > hidden'
│     setup: sh -c 'echo {"x" * 200} > hidden'
│     variables: CI=1, HOME
├─ batch 2, together
│  ├─ b  shell  after a  run the tests
│  │  runs make test
│  └─ c  python  after a  tools.measure:main with {{"folder": "{"y" * 200}"}}
└─ batch 3, together
   ├─ d  claude  after a, b, c  {"fix it " * 40}.
   │  may use Bash(curl *), WebFetch without asking
   │  then a reviewer: {"is it right " * 20}?
   └─ e  acp:./tools/agent.sh --fast  after c  {"z" * 4000} … and 100 more characters (--json prints all)
"""


def _whole() -> dict[str, dict[str, object]]:
    """Tasks with everything that a person could overlook."""
    hidden = ["sh", "-c", HIDDEN.lstrip(" ;")]
    return {
        "a": {
            "command": ["sh", "-c", f"make lint{HIDDEN}"], "gates": [{"command": ["sh", "-c", f"true{HIDDEN}"]}],
            "setup": [hidden], "env": {"CI": "1", "HOME": None},
        },
        "b": {"task": "run the tests", "command": ["make", "test"], "needs": ["a"]},
        "c": {"python": "tools.measure:main", "with": {"folder": "y" * 200}, "needs": ["a"]},
        "d": {
            "task": "fix it " * 40 + ".", "kind": "claude", "tools": ["Bash(curl *)", "WebFetch"],
            "gates": [{"review": "is it right " * 20 + "?"}], "needs": ["a", "b", "c"],
        },
        "e": {"task": "z" * 4100, "kind": "acp:./tools/agent.sh --fast", "needs": ["c"]},
    }  # fmt: skip


def test_everything_that_a_plan_would_run_is_shown_whole(repository: Path, plan: Plan, call: Call) -> None:
    """A12, A14: behind many spaces, behind words that say something else, in checks, setup and functions."""
    done = call("run", "-f", str(plan(**_whole())))
    assert done.returncode == 2
    assert done.stdout == f"Plan: do it  5 tasks in 3 batches\n{WHOLE}"


def test_everything_that_more_tasks_would_run_is_shown_whole(repository: Path, plan: Plan, call: Call) -> None:
    run = documents(call("run", "-f", str(plan(a="true")), "--auto", "--json").stdout)[-1]["run"]
    more = {"b": {**_whole()["a"], "agent": "checker"}, "c": {**_whole()["c"], "needs": ["b"]}}
    types = repository / ".maos" / "agents"
    types.mkdir(parents=True)
    (types / "checker.md").write_text("---\npermission: edits\ntools: Bash(git *)\n---\nCheck.\n")
    done = call("resume", run, "--task", f"@{plan(**more)}")
    assert done.returncode == 2
    assert (
        done.stdout
        == f"""\
2 more tasks for {run}
├─ b  checker (shell)  sh -c 'make lint ; echo {"x" * 200} > hidden'
│  then a check: sh -c 'true ; echo {"x" * 200} > hidden'
│  setup: sh -c 'echo {"x" * 200} > hidden'
│  variables: CI=1, HOME
└─ c  python  after b  tools.measure:main with {{"folder": "{"y" * 200}"}}
"""
    )
    source = types / "checker.md"
    assert f"note: checker is from {source}, permission edits, may use Bash(git *) without asking\n" in done.stderr


def test_a_person_sees_every_task_before_saying_yes(repository: Path, plan: Plan, call: Call) -> None:
    many = plan(**{f"t{number}": f"echo {number}" for number in range(210)}, last=("touch hidden", "t0"))
    done = call("run", "-f", str(many))
    assert done.returncode == 2
    assert [f"echo {number}'" in done.stdout for number in range(210)] == [True] * 210
    assert "touch hidden" in done.stdout
    assert " more" not in done.stdout


def test_everything_that_is_wrong_with_a_plan_is_said_at_once(here: Path, plan: Plan, call: Call) -> None:
    bad = plan(one=("true", "tow"), two="true", three={"task": "  "}, four={"task": "x", "agent": "develper"})
    done = call("run", "-f", str(bad), "--auto")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: the plan is not valid",
        f"  {bad}:1:91: needs 'tow', which does not exist (did you mean 'two'?)",
        f"  {bad}:1:163: nothing says what to do (give it a `task` or a `command`)",
        f"  {bad}:1:235: there is no type of agent called 'develper' (did you mean 'developer'?)",
    ]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("p.json", '{"tasks": [\n  {"name": "a",}]}', "p.json:2:16: not JSON: "),
        ("p.toml", 'request = "x"\n[[tasks]\n', "p.toml:2:8: not TOML: "),
        (
            "p.toml",
            '[[tasks]]\nname = "a"\nneed = []\n',
            "p.toml:3:1: nothing is called 'need' here (did you mean 'needs'?)",
        ),
        ("p.toml", "tasks = []", "p.toml:1:9: there is nothing to do (give it at least one task)"),
        ("p.json", '{"tasks": [{"name": "a", "task": "x", "needs": ["a"]}]}', "tasks wait for each other: a → a"),
    ],
)
def test_a_plan_that_cannot_be_read_says_where(here: Path, call: Call, name: str, text: str, said: str) -> None:
    Path(name).write_text(text)
    done = call("run", "-f", name, "--auto")
    assert done.returncode == 2
    assert said in done.stderr


def test_an_agent_that_is_not_installed_is_noticed_before_anything_begins(here: Path, plan: Plan, call: Call) -> None:
    done = call("run", "-f", str(plan(a={"task": "x"})), "--auto", "--kind", "acp:no-such-program")
    assert done.returncode == 3
    assert "no-such-program" in done.stderr
    assert "there is no" in call("resume").stderr


def test_a_failure_says_what_failed_and_how_to_go_on(repository: Path, plan: Plan, call: Call) -> None:
    done = call("run", "-f", str(plan(a="echo broken; exit 3", b=("true", "a"))), "--auto")
    assert done.returncode == 1
    assert "a  ✗ failed: exit code 3\n" in done.stdout
    assert "failed · 0 of 2 tasks done" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("  resume with: maos resume r-")


def test_both_sides_changed_the_same_file(repository: Path, plan: Plan, call: Call) -> None:
    done = call("run", "-f", str(plan(a="echo theirs > readme.txt")), "--auto", "--json")
    run = documents(done.stdout)[-1]["run"]
    (repository / "readme.txt").write_text("mine\n")
    subprocess.run([*GIT, "commit", "-qam", "mine"], check=True)
    merged = call("merge", run)
    assert merged.returncode == 4
    assert "both sides changed readme.txt; nothing was merged" in merged.stderr
    assert "    <<<<<<< your branch\n      mine\n      =======\n      theirs\n      >>>>>>> the work\n" in merged.stderr
    assert f"maos merge {run} --branch NAME: puts the work on a branch of its own" in merged.stderr
    assert (repository / "readme.txt").read_text() == "mine\n"


def test_in_place_the_agents_share_the_folder(repository: Path, plan: Plan, call: Call) -> None:
    done = call("run", "-f", str(plan(a="echo 1 > a.txt")), "--auto", "--in-place", "--json")
    assert (repository / "a.txt").read_text() == "1\n"
    last = documents(done.stdout)[-1]
    assert last["files"] is None
    assert "itself" in call("merge", last["run"]).stderr


def _git(*args: str) -> str:
    return subprocess.run([*GIT, *args], check=True, capture_output=True, text=True).stdout.strip()


def _head() -> str:
    return _git("rev-parse", "HEAD")[:12]


def test_the_summary_can_be_had_as_markdown(repository: Path, plan: Plan, call: Call) -> None:
    """What an agent says is quoted: it cannot make headings or links of its own."""
    hostile = r"printf 'fine\n# Not a heading <b>\nfound: a [link](http://x) | cell\n'; echo 1 > a_b.txt"
    done = call("run", "-f", str(plan(a=hostile)), "--auto", "--summary", "summary.md")
    assert done.returncode == 0
    lines = Path("summary.md").read_text().splitlines()
    assert lines[0] == "# do it"
    assert lines[2].startswith("completed · 1 of 1 tasks done · ")
    assert lines[6].startswith("| a | shell | done | ")
    assert r"- a: a \[link\](http://x) \| cell" in lines
    assert r"- a\_b.txt +1 -0" in lines
    assert lines[-1] == "> found: a [link](http://x) | cell"
    assert not [line for line in lines if line.startswith("# ") and line != "# do it"]
