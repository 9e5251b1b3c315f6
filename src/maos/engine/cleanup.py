"""Room on the disk: worktrees of runs that are completed, and of nobody else, where nothing is lost by it.

The journal keeps everything. So do the checkpoints of files, which are refs in the user's repository. Runs that
failed or were paused can go on, and need their worktrees for it.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import NamedTuple

from maos.engine.attempts import Attempts
from maos.engine.runs import Runs
from maos.errors import MaosError, NotFound
from maos.model.run import COMPLETED, Run, agent_name
from maos.runner.workspace import Workspace, remove


class Removed(NamedTuple):
    """A worktree that was removed, or would be."""

    run: str
    agent: str
    tree: str
    bytes: int


class Kept(NamedTuple):
    """A worktree that is old enough and stays all the same."""

    run: str
    agent: str
    tree: str
    why: str


class Cleanup(NamedTuple):
    """What a cleanup did or would do."""

    runs: int
    """Runs that are completed and old enough."""
    removed: list[Removed]
    kept: list[Kept]


async def cleanup(runs: Runs, attempts: Attempts, *, before_us: int, dry_run: bool) -> Cleanup:
    """Remove the worktrees of agents whose runs were completed before a time."""
    done = Cleanup(0, [], [])
    async for run in runs.all():
        if run.status == COMPLETED and run.ended_us < before_us:
            done = done._replace(runs=done.runs + 1)
            for task in run.tasks.values():
                await _agent(attempts, run, task.agent or agent_name(run.id, task.name), done, dry_run)
    return done


async def _agent(attempts: Attempts, run: Run, agent: str, done: Cleanup, dry_run: bool) -> None:
    try:
        attempt = await attempts.get(agent)
    except NotFound:
        return
    workspace = Workspace.from_data(attempt.workspace) if attempt.workspace else None
    if workspace is None or workspace.in_place or not workspace.tree.is_dir():
        return
    tree = str(workspace.tree)
    if attempt.is_open:
        done.kept.append(Kept(run.id, agent, tree, "its agent runs"))
        return
    size = await asyncio.to_thread(_bytes_below, workspace.tree)
    try:
        await remove(workspace, dry_run=dry_run)
    except (MaosError, OSError) as error:
        done.kept.append(Kept(run.id, agent, tree, str(error)))
    else:
        done.removed.append(Removed(run.id, agent, tree, size))


def _bytes_below(folder: Path) -> int:
    found = 0
    for parent, _folders, files in os.walk(folder):
        for name in files:
            try:
                found += os.lstat(os.path.join(parent, name)).st_size
            except FileNotFoundError:
                pass  # it went away meanwhile
    return found
