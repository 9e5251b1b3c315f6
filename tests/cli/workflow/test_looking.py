"""What is shown of workflows, and what becomes of wrong ids and words: in this process, in 80 columns, as JSON."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from maos.workflows import definition
from tests.cli.agent.conftest import Call, Done, Start, wait_until
from tests.cli.workflow.conftest import SHOP

QUICK = """
import maos
from maos.workflows import now

@maos.workflow
async def quick(x: int = 1) -> int:
    now()
    return x
"""
FILE = "name: release\ntasks:\n- {name: a, command: echo one}\n- {name: b, command: echo two, needs: a}\n"


@pytest.fixture
def shop_here(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder with workflows in it, which this process has not loaded yet and forgets afterwards."""
    (here / "shop.py").write_text(SHOP)
    (here / "release.yaml").write_text(FILE)
    monkeypatch.setattr(definition, "_workflows", {})
    monkeypatch.setenv("COLUMNS", "80")
    paths = list(sys.path)
    sys.modules.pop("shop", None)
    yield here
    sys.path[:] = paths
    sys.modules.pop("shop", None)


@pytest.fixture
def charged(shop_here: Path, start: Start, call: Call) -> Path:
    """A workflow whose process was killed in the middle of a step that is not idempotent."""
    engine = start("workflow", "run", "shop.py:buy", '["apple", "pear"]', "--id", "o1")
    wait_until(lambda: call("answer", "o1/2", "yes").returncode == 0 or engine.process.poll() is not None)
    book = shop_here / "charges.txt"
    wait_until(lambda: book.exists() and book.read_text().endswith("\n"))
    engine.kill()
    return shop_here


def told(done: Done, status: int) -> str:
    """What somebody is told on standard error: what, and what to do."""
    assert done.returncode == status, done.stdout + done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\nhint: ") == 1
    return done.stderr


def data(done: Done) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_an_unknown_outcome_is_seen_everywhere(charged: Path, call: Call) -> None:
    """I31: in the list of effects, in the status, and in what resuming would do."""
    assert "! o1 unknown whether it took effect: charge(7)" in call("status").stdout
    assert "resume with: maos workflow resume o1" in call("status").stdout
    assert "o1 is a workflow run: `maos workflow show o1` shows its steps" in told(call("logs", "o1"), 3)
    unknown = data(call("status", "--json"))["unknown"]
    assert [(each["by"], each["id"], each["what"], each["given"]) for each in unknown] == [("o1", "3", "charge", "7")]
    assert [each["id"] for each in data(call("status", "--json"))["workflows"]] == ["o1"]
    assert [each["outcome"] for each in data(call("effects", "o1", "--json"))["effects"]] == ["done", "done", "unknown"]
    listed = call("effects", "--unknown").stdout.splitlines()
    assert len(listed) == 2
    assert "charge" in listed[1]
    foreseen = call("workflow", "resume", "o1", "--dry-run").stdout
    assert "o1 is interrupted, 3 steps done" in foreseen
    assert "3  charge(7)  may or may not have taken effect: you are asked" in foreseen
    document = data(call("workflow", "resume", "--dry-run", "--json"))
    assert (document["definition"], document["refused"], document["unknown"]) == ("same", False, ["3"])
    assert "interrupted" in call("workflow", "list").stdout
    assert (charged / "charges.txt").read_text() == "charged 7\n"


def test_a_step_is_resolved_before_the_workflow_is_resumed(charged: Path, call: Call) -> None:
    assert "unknown are: 3" in told(call("workflow", "resolve", "o1", "1:1.1", "again"), 2)
    assert "is not JSON" in told(call("workflow", "resolve", "o1", "3", "done", "--value", "nonsense"), 2)
    done = call("workflow", "resolve", "o1", "3", "done", "--value", '"r"')
    assert "not running; resume with: maos workflow resume o1" in done.stdout
    assert "continues as you have resolved it" in call("workflow", "resume", "--dry-run").stdout
    assert call("workflow", "resume", "o1").stdout == 'result: "r"\n'
    assert call("effects", "--unknown").stdout == "no outcome is unknown\n"
    assert "nothing is running" in call("status").stdout
    assert "it has ended: a resume only prints its result" in call("workflow", "resume", "o1", "--dry-run").stdout
    assert (charged / "charges.txt").read_text() == "charged 7\n"


def test_a_function_that_changed_is_told_before_it_is_refused(charged: Path, call: Call) -> None:
    """R-1003."""
    (charged / "shop.py").write_text(SHOP.replace("nothing bought", "nothing at all"))
    foreseen = call("workflow", "resume", "o1", "--dry-run").stdout
    assert "its code has changed since: it is refused; --on-change replay" in foreseen
    assert data(call("workflow", "resume", "o1", "--dry-run", "--json"))["refused"]
    assert "has changed since o1 was begun" in told(call("workflow", "resume", "o1"), 1)
    assert "its code as it was is not kept" in told(call("workflow", "resume", "o1", "--on-change", "keep"), 2)
    replayed = call("workflow", "resume", "o1", "--dry-run", "--on-change", "replay").stdout
    assert "as long as that makes the calls that were made" in replayed


def test_a_function_that_is_gone_is_told(charged: Path, call: Call) -> None:
    (charged / "shop.py").rename(charged / "moved.py")
    assert "its definition is not there" in call("workflow", "resume", "o1", "--dry-run").stdout
    assert data(call("workflow", "resume", "--dry-run", "--json"))["definition"] == "gone"
    assert "name it with --from FILE.py" in told(call("workflow", "resume", "o1"), 3)
    assert "charge" in call("workflow", "show", "o1").stdout


def test_files_and_functions_are_in_one_list(shop_here: Path, call: Call) -> None:
    """R-1001, R-1006."""
    assert "there is no database" in told(call("workflow", "list"), 2)
    assert call("workflow", "run", "release.yaml", "--auto").returncode == 0
    end_two(shop_here, call)
    found = data(call("workflow", "list", "--json"))["workflows"]
    assert [(each["of"], each["workflow"], each["status"]) for each in found] == [
        ("function", "quick", "completed"), ("function", "quick", "completed"), ("file", "release", "completed"),
    ]  # fmt: skip
    run = found[-1]["id"]
    assert (found[-1]["steps"], found[-1]["steps_done"]) == (2, 2)
    assert all(len(line) <= 80 for line in call("workflow", "list").stdout.splitlines())
    shown = call("workflow", "show", run).stdout
    assert "plan file" in shown
    assert "completed" in shown
    assert data(call("workflow", "state", "show", run, "--json"))["workflow"] == "release"
    assert "takes the commands of runs" in told(call("workflow", "signal", run, "go"), 2)
    assert "is completed" in told(call("workflow", "resume", run), 2)
    assert "no workflow is failed" in call("workflow", "list", "--status", "failed").stdout
    assert "one" in call("effects", run).stdout
    assert {each["what"] for each in data(call("effects", run, "--json"))["effects"]} == {"shell"}


def test_an_orchestration_is_no_workflow(shop_here: Path, call: Call) -> None:
    plan = shop_here / "plan.json"
    plan.write_text(json.dumps({"request": "x", "tasks": [{"name": "a", "command": ["true"]}]}))
    assert call("run", "-f", "-", "--auto", stdin=plan.read_text()).returncode == 0
    run = data(call("ps", "--json"))["runs"][0]["id"]
    assert data(call("workflow", "list", "--json")) == {"workflows": []}
    assert call("workflow", "list").stdout == "no workflows; `maos workflow run` starts one\n"
    assert "made from no plan file" in told(call("workflow", "show", run), 2)
    assert "made from no plan file" in told(call("workflow", "resume", run), 2)
    assert "there is no workflow to resume" in told(call("workflow", "resume"), 3)


@pytest.mark.parametrize(
    ("args", "status", "what"),
    [
        (["workflow", "show", "nope"], 3, "there is no workflow run or run 'nope'"),
        (["workflow", "show", ""], 3, "there is no id ''"),
        (["workflow", "show", "o"], 2, "'o' could be any of 2 ids: o1, o2"),
        (["workflow", "resume", "nope"], 3, "there is no workflow run or run 'nope'"),
        (["workflow", "resume", "o1", "--workflow-id", "o2"], 2, "are two workflows"),
        (["workflow", "signal", "nope", "x"], 3, "there is no workflow"),
        (["workflow", "signal", "o1", "x"], 1, "the workflow o1 is completed"),
        (["workflow", "resolve", "o1", "1", "done"], 2, "no step of it is unknown"),
        (["workflow", "pause", "o1"], 1, "is completed"),
        (["workflow", "cancel", "o1"], 1, "is completed"),
        (["effects", "nope"], 3, "there is no run, agent or workflow run 'nope'"),
        (["effects", "o"], 2, "could be any of 2"),
        (["workflow", "run", "release.yaml", "--id", "x"], 2, "cannot be given an id"),
        (["workflow", "run", "release.yaml", "7"], 2, "takes no arguments"),
        (["workflow", "run", "release.yaml", "--checkpoint", "manual"], 2, "are for functions"),
        (["workflow", "run", "shop.py:wait_for_it", "a", "b"], 2, "too many positional arguments"),
        (["workflow", "schedule", "add", "n", "0 3 * * *", "release.yaml"], 2, "is a plan file, and no function"),
        (["workflow", "schedule", "add", "n", "0 3 * * *", "shop.py:wait_for_it", "a", "b"], 2, "too many positional"),
        (["workflow", "schedule", "add", "n", "0 3 * * *", "shop.py:wait_for_it", "--arg", "x=1"], 2, "unexpected"),
        (["workflow", "schedule", "add", "n", "@never", "shop.py:wait_for_it"], 2, "never"),
        (["workflow", "schedule", "add", "n", "0 3 * * *", "shop.py:wait_for_it", "--zone", "Mars/X"], 2, "Mars/X"),
        (["workflow", "schedule", "remove", "nope"], 3, "there is no schedule 'nope'"),
        (["workflow", "state", "cleanup", "--retention-days", "0"], 2, "no person can be asked"),
        (["workflow", "graph", "nope.yaml"], 2, "cannot be read"),
        (["workflow", "graph", "."], 2, ". is not a file"),
        (["workflow", "graph", "release.yaml", "--svg", "/nope/x.svg"], 2, "cannot be written"),
        (["serve", "nope.py"], 3, "there is no file nope.py"),
    ],
)
def test_what_is_wrong_is_told_with_what_to_do(
    shop_here: Path, call: Call, two_ended: None, args: list[str], status: int, what: str
) -> None:
    assert what in told(call(*args), status)


@pytest.fixture
def two_ended(shop_here: Path, call: Call) -> None:
    """Two workflows that have ended."""
    end_two(shop_here, call)


def end_two(folder: Path, call: Call) -> None:
    (folder / "quick.py").write_text(QUICK)
    for id in ("o1", "o2"):
        assert call("workflow", "run", "quick.py", "--id", id).stdout == "result: 1\n"
    sys.modules.pop("quick")


def test_schedules_are_listed_and_removed(shop_here: Path, call: Call) -> None:
    added = call("workflow", "schedule", "add", "n", "0 3 * * *", "shop.py:wait_for_it", "--zone", "Europe/Berlin")
    assert added.returncode == 0, added.stderr
    assert "Europe/Berlin" in added.stdout
    found = data(call("workflow", "schedule", "list", "--json"))["schedules"]
    assert [(each["name"], each["workflow"], each["arguments"]) for each in found] == [
        ("n", "wait_for_it", {"args": [], "kwargs": {}})
    ]
    assert found[0]["next"].endswith(":00:00.000000Z")
    assert data(call("workflow", "schedule", "remove", "n", "--json")) == {"removed": "n", "dry_run": False}
    assert "no schedules" in call("workflow", "schedule", "list").stdout


def test_what_is_old_is_named_before_it_is_cleaned_up(shop_here: Path, call: Call, two_ended: None) -> None:
    """R-1006."""
    days = ("--retention-days", "0")
    assert call("workflow", "state", "cleanup", *days, "--dry-run").stdout == "would clean up 2 workflows: o1, o2\n"
    assert data(call("workflow", "state", "cleanup", *days, "--dry-run", "--json"))["would_remove"] == ["o1", "o2"]
    assert call("workflow", "state", "cleanup").stdout == "nothing is that old\n"
    assert data(call("workflow", "state", "cleanup", *days, "--yes", "--json"))["removed"] == ["o1", "o2"]
    assert data(call("workflow", "show", "o1", "--json"))["result"] == 1


def test_a_file_is_checked_and_drawn(shop_here: Path, call: Call) -> None:
    assert call("workflow", "graph", "release.yaml").stdout == " 1 ── a\n 2 ── b  ← a\n"
    assert data(call("workflow", "graph", "release.yaml", "--json"))["batches"] == [["a"], ["b"]]
    assert call("workflow", "graph", "release.yaml", "--svg", "out.svg").returncode == 0
    assert "<svg" in (shop_here / "out.svg").read_text()
    (shop_here / "bad.yaml").write_text(FILE.replace("needs: a", "needs: c"))
    done = call("workflow", "validate", "release.yaml", "bad.yaml", "nope.yaml")
    assert done.returncode == 1
    assert [line.partition(": ")[0] for line in done.stderr.splitlines()] == ["bad.yaml:4:39", "nope.yaml:1:1"]
    assert not json.loads(call("workflow", "validate", "bad.yaml", "--json").stdout)["ok"]
    assert "tasks" in data(call("workflow", "schema"))["$defs"]["FilePlan"]["properties"]
