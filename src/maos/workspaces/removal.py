"""Removing workspaces, but only if nothing is lost."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from maos.errors import InvalidInput, NotFound
from maos.faults import crash_point
from maos.workspaces.checkpoints import update_index
from maos.workspaces.git import Git, lock_file
from maos.workspaces.layout import (
    PRIVATE,
    UnsavedWork,
    Workspace,
    WorkspaceFolder,
    check_workspace_name,
    decode_path,
    folder_of,
    lexists,
    lock_of,
    open_locked,
    refs_of,
)
from maos.workspaces.repair import read_workspace
from maos.workspaces.worktree import wipe


class Left(NamedTuple):
    """A workspace that is on disk."""

    name: str
    tree: Path
    workspace: Workspace | None
    """None when its creation was not finished; `clear` removes it."""


async def remove(workspace: Workspace, *, dry_run: bool = False) -> None:
    """Remove a workspace if all its work is under a ref; raise UnsavedWork otherwise. Its checkpoints stay.

    Ignored files are removed too. A folder that was worked in directly stays. With `dry_run` it is only checked.
    """
    if workspace.in_place:
        return
    try:
        async with open_locked(workspace) as place:
            if await asyncio.to_thread(workspace.tree.is_dir):
                await _refuse_to_lose(place)
            if dry_run:
                return
            crash_point("remove: nothing to lose")
            (place.folder / "workspace.json").unlink(missing_ok=True)
            crash_point("remove: begun")
            await asyncio.to_thread(wipe, place.folder, workspace.tree)
            lock_of(workspace.tree.parent, workspace.name).unlink(missing_ok=True)
    except NotFound:
        if lexists(workspace.tree):
            raise


def left_behind(root: Path, *, owned: Collection[str] = ()) -> list[Left]:
    """List the workspaces below `root` that are not `owned`."""
    try:
        names = sorted(entry.name for entry in os.scandir(root / PRIVATE) if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []
    return [Left(name, root / name, read_workspace(folder_of(root, name))) for name in names if name not in owned]


def is_left(workspace: Workspace) -> bool:
    """Return whether anything of a workspace is on disk, including the rest of an interrupted removal."""
    return workspace.tree.is_dir() or folder_of(workspace.tree.parent, workspace.name).is_dir()


async def clear(root: Path, name: str) -> None:
    """Remove a workspace whose creation or removal was interrupted."""
    folder = folder_of(root, check_workspace_name(name))
    if not await asyncio.to_thread(folder.is_dir):
        return
    async with lock_file(lock_of(root, name)):
        if await asyncio.to_thread((folder / "workspace.json").exists):
            raise InvalidInput(f"workspace {name} is complete", hint="remove it with remove")
        await asyncio.to_thread(wipe, folder, root / name)
        lock_of(root, name).unlink(missing_ok=True)


async def keep(repository: Path, name: str, label: str, commit: str) -> None:
    """Keep a commit under the refs of a workspace, so that it outlives the worktree that leads to it."""
    git = Git(repository, {"GIT_DIR": str(repository)})
    await git.run("update-ref", f"{refs_of(check_workspace_name(name))}{label}", commit)


async def is_merged(workspace: Workspace, commit: str) -> bool:
    """Return whether a branch of the repository has the work of a commit: the commit, or what `merge` made of it."""
    assert workspace.repository is not None
    git = Git(workspace.repository, {"GIT_DIR": str(workspace.repository)})
    found = [commit]
    noted = await git.run("rev-parse", "-q", "--verify", refs_of(workspace.name) + "merged", allowed=(0, 1, 128))
    if noted.status == 0:
        landed, merged = (await git.run("rev-parse", noted.line + "^1", noted.line + "^2")).output.decode().split()
        contains = await git.run("merge-base", "--is-ancestor", commit, merged, allowed=(0, 1))
        found += [landed] if contains.status == 0 else []
    outside = ("--not", "--branches", "--remotes", "--tags")
    return any([not await git.line("rev-list", "-n", "1", each, *outside) for each in found])


async def _refuse_to_lose(place: WorkspaceFolder) -> None:
    """Raise UnsavedWork when a file in the tree or a commit of the agent is under no ref."""
    state = place.state()
    place.align(state)
    staged = await update_index(place)
    if staged.left_out:
        raise UnsavedWork(
            f"workspace {place.workspace.name} has files that checkpoints leave out",
            tuple(f"{path} ({why})" for path, why in staged.left_out),
            hint="move them elsewhere or delete them, and try again",
        )
    tree = await place.git.line("write-tree")
    if tree != state.tree:
        changed = await place.git.run("diff-tree", "-r", "-z", "--name-only", state.tree, tree)
        files = tuple(decode_path(path) for path in changed.output.split(b"\0")[:-1])
        raise UnsavedWork(f"workspace {place.workspace.name} has changes since its last checkpoint", files)
    head = await place.agents_head()
    arguments = ("-n", "1", state.commit, head, "--not", "--glob=refs/*")
    if alone := await place.repository.line("rev-list", *arguments):
        raise UnsavedWork(f"workspace {place.workspace.name} has commits that no ref leads to", (alone,))
