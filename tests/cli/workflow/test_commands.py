"""`maos workflow`, as a person types it: real processes, a real kill, and everything that can be said to a workflow."""

import json
import signal
import time

import pytest

from tests.cli.workflow.conftest import PATIENCE_S, Shop


def test_a_step_in_doubt_is_never_repeated_by_itself(shop: Shop) -> None:
    """I31: killed in the middle of a step, gone on with, resolved by a person; charged once."""
    engine = shop.begin("workflow", "run", "shop.py:buy", '["apple", "pear"]', "--id", "o1")
    shop.wait_for("o1", "waiting")
    assert "o1 asks: Pay 7?" in shop.maos("questions")
    assert "is answered: yes" in shop.maos("answer", "o1/2", "yes")
    book = shop.folder / "charges.txt"
    while not (book.exists() and book.read_text()):
        time.sleep(0.02)
    engine.send_signal(signal.SIGKILL)
    engine.wait()
    assert "interrupted" in shop.maos("workflow", "list", "--status", "interrupted")
    assert shop.show("o1")["status"] == "interrupted"
    assert json.loads(shop.maos("workflow", "list", "--json", "--status", "running")) == {"workflows": []}
    assert "unknown" in shop.maos("effects", "--unknown")
    again = shop.begin("workflow", "resume", "o1")
    shop.wait_for("o1", "unknown")
    assert "did charge(7) take effect?" in shop.maos("questions")
    assert "resolve o1 3" in shop.maos("workflow", "show", "o1")
    assert "is not unknown" in shop.maos("workflow", "resolve", "o1", "1", "again", status=2)
    shop.maos("workflow", "resolve", "o1", "3", "done", "--value", '"receipt for 7"')
    out, err = again.communicate(timeout=PATIENCE_S)
    assert again.returncode == 0, err
    assert out == 'result: "receipt for 7"\n'
    assert book.read_text() == "charged 7\n"
    assert shop.maos("workflow", "run", "shop.py:buy", '["apple", "pear"]', "--id", "o1") == out


def test_ctrl_c_pauses_it_and_resume_goes_on(shop: Shop) -> None:
    """R-1003, R-1006."""
    engine = shop.begin("workflow", "run", "shop.py:wait_for_it", "--id", "w1")
    shop.wait_for("w1", "waiting")
    engine.send_signal(signal.SIGINT)
    out, _err = engine.communicate(timeout=PATIENCE_S)
    assert engine.returncode == 130
    assert "w1 is paused" in out
    assert "maos workflow resume w1" in out
    assert "not running; resume with: maos workflow resume w1" in shop.maos(
        "workflow", "signal", "w1", "go", '{"a": 1}', "--key", "once"
    )
    shop.maos("workflow", "signal", "w1", "go", '{"a": 1}', "--key", "once")
    assert shop.maos("workflow", "resume", "--workflow-id", "w1") == 'result: {"a": 1}\n'
    assert shop.maos("workflow", "signal", "w1", "go", status=1).startswith("error: the workflow w1 is completed")


def test_it_is_cancelled_from_elsewhere(shop: Shop) -> None:
    engine = shop.begin("workflow", "run", "shop.py:wait_for_it", "--arg", "name=stop", "--id", "w1")
    shop.wait_for("w1", "waiting")
    shop.maos("workflow", "cancel", "w1", "--why", "not needed")
    engine.communicate(timeout=PATIENCE_S)
    assert engine.returncode == 1
    assert shop.show("w1")["status"] == "cancelled"


def test_what_has_ended_is_cleaned_up_and_its_result_stays(shop: Shop) -> None:
    """R-1006."""
    engine = shop.begin("workflow", "run", "shop.py:wait_for_it", "--id", "w1")
    shop.wait_for("w1", "waiting")
    shop.maos("workflow", "signal", "w1", "go", "7")
    engine.communicate(timeout=PATIENCE_S)
    assert "would clean up 1 workflow" in shop.maos(
        "workflow", "state", "cleanup", "--retention-days", "0", "--dry-run"
    )
    shop.maos("workflow", "state", "cleanup", "--retention-days", "0", "--yes")
    found = shop.show("w1")
    assert (found["status"], found["result"], found["steps"]) == ("completed", 7, {})
    assert "ok" in shop.maos("state", "verify")
    assert "nothing is that old" in shop.maos("workflow", "state", "cleanup", "--retention-days", "0", "--yes")


@pytest.mark.parametrize(
    ("args", "status", "told"),
    [
        (["run", "nothing.py:x"], 3, "there is no file nothing.py"),
        (["run", "shop.py:nothing"], 3, "shop.py has no workflow 'nothing'"),
        (["run", "shop.py"], 2, "shop.py has 2 workflows"),
        (["run", "shop"], 2, "names no workflow"),
        (["run", "nothing.yaml"], 2, "nothing.yaml cannot be read"),
        (["run", "shop.py:buy", "--arg", "x"], 2, "'x' is no argument"),
        (["run", "shop.py:buy", "--var", "x=1"], 2, "a function has no variables"),
        (["schedule", "add", "x", "* *", "shop.py:buy"], 2, "has 2 fields"),
        (["show", "nothing"], 2, "there is no database"),
    ],
)
def test_what_cannot_be_done_is_told(shop: Shop, args: list[str], status: int, told: str) -> None:
    assert told in shop.maos("workflow", *args, status=status)


def test_a_plan_file_is_executed(shop: Shop) -> None:
    """R-1001: by the same engine as orchestrations."""
    (shop.folder / "w.yaml").write_text(
        "variables: {who: you}\n"
        "tasks:\n"
        "- {name: a, command: 'echo hello {{ who }}'}\n"
        "- {name: b, command: echo bye, needs: a}\n"
    )
    assert shop.maos("workflow", "validate", "w.yaml") == "ok: 2 tasks\n"
    out = shop.maos("workflow", "run", "w.yaml", "--auto", "--var", "who=me")
    assert "hello me" in out
    assert "completed · 2 of 2 tasks done" in out
    assert "<svg" in shop.maos("workflow", "graph", "w.yaml", "--svg", "-")


def test_with_persistence_off_files_and_functions_run_all_the_same(shop: Shop) -> None:
    """R-1001, R-1009: in memory, and said; nothing is left behind."""
    (shop.folder / "w.yaml").write_text("tasks: [{name: a, command: echo one}, {name: b, command: echo two, needs: a}]")
    (shop.folder / "bank").touch()
    (shop.folder / "plain.py").write_text(
        "import maos\n\n@maos.step\ndef one() -> int:\n    return 1\n\n"
        "@maos.workflow\nasync def plain() -> int:\n    return await one()\n"
    )
    out = shop.maos("--db", ":memory:", "workflow", "run", "w.yaml", "--auto")
    assert "completed · 2 of 2 tasks done" in out
    assert "nothing is saved" in out
    assert "result: 1\n" in shop.maos("--db", ":memory:", "workflow", "run", "plain.py")
    assert not list(shop.folder.glob("*.db*"))
    assert "ends with the command" in shop.maos("--db", ":memory:", "workflow", "list", status=2)


FAILING = """
import pathlib
import maos

@maos.step
def charge(amount: int) -> int:
    with open("charged.txt", "a") as book:
        book.write(f"{amount} ")
    return amount

@maos.step
def ship(address: str) -> str:
    raise KeyError("label")

@maos.workflow
async def order() -> str:
    await charge(1)
    await charge(2)
    return await ship("Berlin")
"""


def test_a_failed_workflow_is_shown_with_its_traceback_corrected_and_retried(shop: Shop) -> None:
    """B4: one bug in the last step does not lose those that are done."""
    source = shop.folder / "failing.py"
    source.write_text(FAILING)
    shown = shop.maos("workflow", "run", "failing.py:order", "--id", "o1", status=1)
    assert 'raise KeyError("label")' in shown
    assert "retry with: maos retry o1" in shown
    assert 'raise KeyError("label")' in shop.maos("workflow", "show", "o1")
    told = json.loads(shop.maos("status", "o1", "--json"))
    assert (told["error"]["step"], 'raise KeyError("label")' in told["error"]["traceback"]) == ("3", True)
    overview = shop.maos("status")
    assert "o1 is failed" in overview
    assert "failing.py" in overview
    assert "change its code" in shop.maos("retry", "o1", "--command", "true", status=2)
    source.write_text(FAILING.replace('raise KeyError("label")', 'return f"sent to {address}"'))
    assert "step 3 will be executed again, 2 steps kept" in shop.maos("retry", "o1")
    assert "is paused, and nothing of it has failed" in shop.maos("retry", "o1", status=2)
    assert shop.maos("workflow", "resume", "o1") == 'result: "sent to Berlin"\n'
    assert (shop.folder / "charged.txt").read_text() == "1 2 "


def test_finished_steps_are_executed_again_only_with_yes_and_a_failed_one_can_be_skipped(shop: Shop) -> None:
    (shop.folder / "failing.py").write_text(FAILING)
    shop.maos("workflow", "run", "failing.py:order", "--id", "o1", status=1)
    assert "2 finished steps of o1 would be executed again: 1, 2" in shop.maos("retry", "o1/1", status=2)
    done = json.loads(shop.maos("skip", "o1/3", "--value", '"by hand"', "--json"))
    assert (done["again"], done["kept"], done["resumable"]) == (["3"], 2, "maos workflow resume o1")
    assert shop.maos("workflow", "resume", "o1") == 'result: "by hand"\n'
    assert "is a step of a workflow run" in shop.maos("cancel", "o1/3", status=2)
    assert "o1 would be removed" in shop.maos("rm", "o1", "--dry-run")
    assert "o1" in shop.maos("workflow", "list")
    shop.maos("rm", "o1", "--yes")
    assert "no workflows" in shop.maos("workflow", "list")
