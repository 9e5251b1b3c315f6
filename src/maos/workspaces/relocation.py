"""Updating workspaces after their repository, or their own folder, was moved."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable
from pathlib import Path

from maos.faults import crash_point
from maos.workspaces.git import Git, lock_file
from maos.workspaces.layout import Workspace, folder_of, lock_of, replace_file
from maos.workspaces.worktree import points_to, write_pointer


async def relocate(now: Workspace) -> bool:
    """Update the paths in a workspace to where it and its repository are now; return False when it is gone.

    Only paths are written, so its agent may be running. It can be repeated.
    """
    root = now.tree.parent
    folder = folder_of(root, now.name)
    if not await asyncio.to_thread(folder.is_dir):
        return False
    async with lock_file(lock_of(root, now.name)):
        await asyncio.to_thread(_write_paths, now, folder)
    return True


def _write_paths(now: Workspace, folder: Path) -> None:
    assert now.repository is not None
    assert now.gitdir is not None
    replace_file(folder / "repository", os.fsencode(now.repository))
    crash_point("relocate: repository")
    if now.gitdir.is_dir():
        replace_file(now.gitdir / "gitdir", os.fsencode(now.tree / ".git") + b"\n")
    if now.tree.is_dir() and not points_to(now.tree, now.gitdir):
        write_pointer(now.tree, now.gitdir)
    crash_point("relocate: pointers")
    if (folder / "workspace.json").exists():  # missing if its creation or removal was interrupted
        replace_file(folder / "workspace.json", json.dumps(now.to_data()).encode())


async def head(workspace: Workspace) -> str:
    """Return the commit that the agent's own git is at; empty when it is at none."""
    if workspace.gitdir is None:
        return ""
    git = Git(workspace.tree, {"GIT_DIR": str(workspace.gitdir)})
    return (await git.run("rev-parse", "-q", "--verify", "HEAD^{commit}", allowed=(0, 1, 128))).line


async def missing_commits(repository: Path, commits: Iterable[str]) -> list[str]:
    """Return the commits that a repository does not have."""
    wanted = sorted(set(commits))
    given = "".join(f"{each}^{{commit}}\n" for each in wanted).encode()
    result = await Git(repository, {"GIT_DIR": str(repository)}).run("cat-file", "--batch-check", given=given)
    lines = result.output.decode("utf-8", "replace").splitlines()
    return [each for each, line in zip(wanted, lines, strict=True) if line.endswith(" missing")]
