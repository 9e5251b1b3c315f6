"""`maos workflow`, as a person types it: real processes, a real kill, and everything that can be said to a workflow."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SHOP = """
import os, pathlib, time
import maos
from maos.workflows import gate, parallel, signal

@maos.step(idempotent=True)
async def price(thing: str) -> int:
    return {"apple": 3, "pear": 4}[thing]

@maos.step
def charge(amount: int) -> str:
    with open("charges.txt", "a") as book:
        book.write(f"charged {amount}\\n")
    while not pathlib.Path("bank").exists():
        time.sleep(0.02)
    return f"receipt for {amount}"

@maos.workflow
async def buy(things: list[str]) -> str:
    total = sum(await parallel(price, things))
    if await gate(f"Pay {total}?", choices=["yes", "no"]) == "no":
        return "nothing bought"
    return await charge(total)

@maos.workflow
async def wait_for_it(name: str = "go") -> object:
    return await signal(name)
"""
PATIENCE_S = 60


class Shop:
    """A folder with workflows, and `maos` in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "shop.py").write_text(SHOP)
        self._environment = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "MAOS_HOME": str(folder / "home"), "LANG": "C.UTF-8",
            "XDG_CONFIG_HOME": str(folder / "config"),
        }  # fmt: skip
        self._started: list[subprocess.Popen[str]] = []

    def maos(self, *args: str, status: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "maos", *args],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == status, done.stderr + done.stdout
        return done.stdout + done.stderr

    def begin(self, *args: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "maos", *args], cwd=self.folder, env=self._environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._started.append(process)
        return process

    def show(self, id: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.maos("workflow", "show", id, "--json"))
        return found

    def wait_for(self, id: str, name: str) -> None:
        """Until something of a workflow is there."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            try:
                if self.show(id)[name]:
                    return
            except AssertionError:
                pass  # it has not begun
            time.sleep(0.1)
        raise AssertionError(f"{name} of {id} never came: {self.maos('workflow', 'show', id)}")

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.close()


def test_a_step_in_doubt_is_never_repeated_by_itself(shop: Shop) -> None:
    """I31: killed in the middle of a step, gone on with, settled by a person; charged once."""
    engine = shop.begin("workflow", "run", "shop.py:buy", '["apple", "pear"]', "--id", "o1")
    shop.wait_for("o1", "waiting")
    assert "o1 asks: Pay 7?" in shop.maos("questions")
    assert "is answered: yes" in shop.maos("answer", "o1/2", "yes")
    book = shop.folder / "charges.txt"
    while not book.exists():
        time.sleep(0.02)
    engine.send_signal(signal.SIGKILL)
    engine.wait()
    assert "interrupted" in shop.maos("workflow", "list")
    assert "unknown" in shop.maos("effects", "--unknown")
    again = shop.begin("workflow", "resume", "o1")
    shop.wait_for("o1", "unknown")
    assert "did charge(7) take effect?" in shop.maos("questions")
    assert "settle o1 3" in shop.maos("workflow", "show", "o1")
    assert "is not unknown" in shop.maos("workflow", "settle", "o1", "1", "again", status=2)
    shop.maos("workflow", "settle", "o1", "3", "done", "--value", '"receipt for 7"')
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
    assert "nobody runs it" in shop.maos("workflow", "signal", "w1", "go", '{"a": 1}', "--key", "once")
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
    assert (found["status"], found["result"], found["calls"]) == ("completed", 7, {})
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


def test_a_workflow_file_is_carried_out(shop: Shop) -> None:
    """R-1001: by the same engine as orchestrations."""
    (shop.folder / "w.yaml").write_text(
        "variables: {who: you}\n"
        "steps:\n"
        "- {name: a, command: 'echo hello {{ who }}'}\n"
        "- {name: b, command: echo bye, needs: a}\n"
    )
    assert shop.maos("workflow", "validate", "w.yaml") == "ok: 2 steps\n"
    out = shop.maos("workflow", "run", "w.yaml", "--auto", "--var", "who=me")
    assert "hello me" in out
    assert "completed · 2 of 2 tasks done" in out
    assert "<svg" in shop.maos("workflow", "graph", "w.yaml", "--svg", "-")
