"""Workspaces after somebody has moved their repository, or their own folder: told where everything is now."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable
from pathlib import Path

from maos.faults import crash_point
from maos.workspaces.git import Git, held
from maos.workspaces.layout import Workspace, folder_of, lock_of, write_whole
from maos.workspaces.worktree import point, points_to


async def relocate(now: Workspace) -> bool:
    """Have a workspace know where it and its repository are; False when nothing of it is there.

    Only what says where things are is written, so its agent may be running, and it can be done again.
    """
    root = now.tree.parent
    folder = folder_of(root, now.name)
    if not await asyncio.to_thread(folder.is_dir):
        return False
    async with held(lock_of(root, now.name)):
        await asyncio.to_thread(_tell, now, folder)
    return True


def _tell(now: Workspace, folder: Path) -> None:
    assert now.repository is not None
    assert now.gitdir is not None
    write_whole(folder / "repository", os.fsencode(now.repository))
    crash_point("relocate: repository")
    if now.gitdir.is_dir():
        write_whole(now.gitdir / "gitdir", os.fsencode(now.tree / ".git") + b"\n")
    if now.tree.is_dir() and not points_to(now.tree, now.gitdir):
        point(now.tree, now.gitdir)
    crash_point("relocate: pointers")
    if (folder / "workspace.json").exists():  # or it was never finished, or its removal was not
        write_whole(folder / "workspace.json", json.dumps(now.to_data()).encode())


async def head(workspace: Workspace) -> str:
    """The commit that the agent's own git is at; empty when it is nowhere."""
    if workspace.gitdir is None:
        return ""
    git = Git(workspace.tree, {"GIT_DIR": str(workspace.gitdir)})
    return (await git.run("rev-parse", "-q", "--verify", "HEAD^{commit}", allowed=(0, 1, 128))).line


async def lacking(repository: Path, commits: Iterable[str]) -> list[str]:
    """Those of some commits that a repository does not have."""
    wanted = sorted(set(commits))
    given = "".join(f"{each}^{{commit}}\n" for each in wanted).encode()
    told = await Git(repository, {"GIT_DIR": str(repository)}).run("cat-file", "--batch-check", given=given)
    lines = told.output.decode("utf-8", "replace").splitlines()
    return [each for each, line in zip(wanted, lines, strict=True) if line.endswith(" missing")]
