"""Runs of shell agents in a repository, carried out and then taken to other moments."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from maos import workspaces
from maos.app import Maos
from maos.clock import SystemClock
from maos.journal.codec import Event
from maos.model.branch import digest
from maos.model.plan import Plan, Task
from maos.model.run import Run
from maos.travel.service import TimeTravel
from tests.engine.conftest import home, m  # noqa: F401

GIT = ["git", "-c", "user.name=x", "-c", "user.email=x@x"]


def git(folder: Path, *args: str) -> str:
    """What git prints."""
    return subprocess.run([*GIT, *args], cwd=folder, check=True, capture_output=True, text=True).stdout


def repository(folder: Path) -> Path:
    """A repository with one file in it, if there is none."""
    place = folder / "repository"
    if not (place / ".git").exists():
        place.mkdir(parents=True, exist_ok=True)
        git(place, "init", "-q")
        (place / "first.txt").write_text("first\n")
        git(place, "add", ".")
        git(place, "commit", "-q", "-m", "first")
    return place


def files_of(repository: Path, commit: str) -> dict[str, str]:
    """Names and contents of a commit; those of HEAD for none."""
    names = git(repository, "ls-tree", "-r", "--name-only", commit or "HEAD").split()
    return {name: git(repository, "show", f"{commit or 'HEAD'}:{name}") for name in names}


def on_disk(tree: Path) -> dict[str, str]:
    """Names and contents of the files of a worktree."""
    return {path.name: path.read_text() for path in tree.iterdir() if path.is_file() and path.name != ".git"}


def says(name: str, *more: str) -> list[str]:
    """A command that leaves a file."""
    return ["sh", "-c", "; ".join((f"echo {name} > {name}.txt", *more, f"echo done {name}"))]


async def order(
    m: Maos,  # noqa: F811
    place: Path,
    tasks: Sequence[Task],
    *,
    id: str = "",
    options: Mapping[str, Any] | None = None,
) -> Run:
    """A run of shell agents with a workspace of its own."""
    name = id or "the-run"
    into = await workspaces.prepare(place, name, root=m.agents.folder / "workspaces")
    kept = {"workspace": into.to_data(), "kind": "shell", **(options or {})}
    return await m.runs.create(Plan(tasks=list(tasks)), request="do it", folder=place, options=kept, id=id)


class Recorded:
    """What was true of a run when each of its versions was the newest."""

    def __init__(self) -> None:
        self.digests: dict[int, str] = {}
        self.commits: dict[int, str] = {}
        self.statuses: dict[int, dict[str, str]] = {}

    def look(self, run: Run, _events: Sequence[Event]) -> None:
        """Take note of it."""
        self.digests[run.version] = digest(run)
        self.commits[run.version] = run.commit
        self.statuses[run.version] = {name: task.status for name, task in run.tasks.items()}


def travel_of(m: Maos) -> TimeTravel:  # noqa: F811
    return TimeTravel(m.journal, SystemClock(), m.runs, m.agents)


@pytest.fixture
def travel(m: Maos) -> TimeTravel:  # noqa: F811
    """Takes the runs of the test's own journal to other moments."""
    return travel_of(m)
