"""A repository, plans of shell tasks, and runs that are carried out in it."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.agent.conftest import Agents, Call, Started, agents, call, here, start, wait_until  # noqa: F401
from tests.cli.conftest import Terminal, terminal  # noqa: F401

GIT = ["git", "-c", "user.name=n", "-c", "user.email=n@localhost"]
WAITS = "echo begun >> {out}/{name}.begun; until [ -e {out}/{name}.go ]; do sleep 0.02; done; echo {name} > {name}.txt"
"""A task that does something once it is told to, and leaves a mark outside each time it begins."""

Plan = Callable[..., Path]


@pytest.fixture
def repository(here: Path) -> Path:  # noqa: F811
    """The current folder as a git repository with one commit."""
    (here / ".gitignore").write_text("maos.db*\n*.begun\n*.go\nplan.*\neffects\n")
    (here / "readme.txt").write_text("hello\n")
    for args in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*GIT, *args], check=True)
    return here


@pytest.fixture
def plan(here: Path) -> Plan:  # noqa: F811
    """A plan file of shell tasks: a script, or a script and what it needs, or a whole task."""

    def write(**tasks: Any) -> Path:
        made = []
        for name, said in tasks.items():
            if isinstance(said, dict):
                made.append({"name": name, **said})
                continue
            script, needs = (said, []) if isinstance(said, str) else (said[0], list(said[1:]))
            made.append({"name": name, "command": ["sh", "-c", script], "needs": needs})
        path = here / "plan.json"
        path.write_text(json.dumps({"request": "do it", "tasks": made}))
        return path

    return write


def waits(folder: Path, name: str) -> str:
    """The script of a task that waits to be told."""
    return WAITS.format(out=folder, name=name)


def begun(folder: Path, name: str) -> int:
    """How often a task that waits has begun."""
    path = folder / f"{name}.begun"
    return len(path.read_text().splitlines()) if path.exists() else 0


def go(folder: Path, *names: str) -> None:
    """Let tasks that wait do their work."""
    for name in names:
        (folder / f"{name}.go").touch()


def documents(text: str) -> list[dict[str, Any]]:
    """Lines of JSON."""
    return [json.loads(line) for line in text.splitlines()]
