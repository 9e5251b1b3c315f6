"""A folder with workflows, and `maos` in it: real processes that a test can kill."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.agent.conftest import call, here, start  # noqa: F401
from tests.cli.orchestrate.conftest import repository  # noqa: F401

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
