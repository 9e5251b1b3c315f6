"""The end of a workspace: only when nothing is lost by it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from maos.errors import InvalidInput, NotFound
from maos.faults import crash_point
from maos.workspaces.checkpoints import bring_up
from maos.workspaces.git import Git, held
from maos.workspaces.layout import (
    PRIVATE,
    UnsavedWork,
    Workspace,
    WorkspaceFolder,
    check_workspace_name,
    folder_of,
    is_there,
    lock_of,
    opened,
    refs_of,
    shown,
)
from maos.workspaces.repair import known_at
from maos.workspaces.worktree import wipe


class Left(NamedTuple):
    """A workspace that is on disk."""

    name: str
    tree: Path
    workspace: Workspace | None
    """None when it was never finished; `clear` removes that."""


async def remove(workspace: Workspace, *, dry_run: bool = False) -> None:
    """Remove a workspace all of whose work is under a ref; UnsavedWork otherwise. Its checkpoints stay.

    Ignored files go with it. In place there is nothing to remove. With `dry_run` it only finds out whether it could.
    """
    if workspace.in_place:
        return
    try:
        async with opened(workspace) as place:
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
        if is_there(workspace.tree):
            raise


def left_behind(root: Path, *, owned: Collection[str] = ()) -> list[Left]:
    """Workspaces below `root` that are not among those that somebody owns."""
    try:
        names = sorted(entry.name for entry in os.scandir(root / PRIVATE) if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []
    return [Left(name, root / name, known_at(folder_of(root, name))) for name in names if name not in owned]


def is_left(workspace: Workspace) -> bool:
    """Whether there is anything of a workspace on disk, be it what a removal that was killed has left."""
    return workspace.tree.is_dir() or folder_of(workspace.tree.parent, workspace.name).is_dir()


async def clear(root: Path, name: str) -> None:
    """Remove a workspace that was never finished, or whose removal was not."""
    folder = folder_of(root, check_workspace_name(name))
    if not await asyncio.to_thread(folder.is_dir):
        return
    async with held(lock_of(root, name)):
        if await asyncio.to_thread((folder / "workspace.json").exists):
            raise InvalidInput(f"workspace {name} is finished", hint="remove it with remove")
        await asyncio.to_thread(wipe, folder, root / name)
        lock_of(root, name).unlink(missing_ok=True)


async def keep(repository: Path, name: str, label: str, commit: str) -> None:
    """Have a commit stay under the refs of a workspace, whatever becomes of the worktree that leads to it."""
    git = Git(repository, {"GIT_DIR": str(repository)})
    await git.run("update-ref", f"{refs_of(check_workspace_name(name))}{label}", commit)


async def forget(repository: Path, name: str) -> int:
    """Delete the checkpoints of a workspace for good; returns how many refs that were."""
    git = Git(repository, {"GIT_DIR": str(repository)})
    listed = await git.run("for-each-ref", "--format=%(refname)", refs_of(check_workspace_name(name)))
    refs = listed.output.split()
    await git.run("update-ref", "-z", "--stdin", given=b"".join(b"delete " + ref + b"\0\0" for ref in refs))
    return len(refs)


async def _refuse_to_lose(place: WorkspaceFolder) -> None:
    """UnsavedWork when something in the tree, or a commit of the agent, is under no ref."""
    state = place.state()
    place.align(state)
    staged = await bring_up(place)
    if staged.left_out:
        raise UnsavedWork(
            f"workspace {place.workspace.name} has files that checkpoints leave out",
            tuple(f"{path} ({why})" for path, why in staged.left_out),
            hint="move them elsewhere or delete them, and try again",
        )
    tree = await place.git.line("write-tree")
    if tree != state.tree:
        changed = await place.git.run("diff-tree", "-r", "-z", "--name-only", state.tree, tree)
        files = tuple(shown(path) for path in changed.output.split(b"\0")[:-1])
        raise UnsavedWork(f"workspace {place.workspace.name} has changes since its last checkpoint", files)
    head = await place.agents_head()
    arguments = ("-n", "1", state.commit, head, "--not", "--glob=refs/*")
    if alone := await place.repository.line("rev-list", *arguments):
        raise UnsavedWork(f"workspace {place.workspace.name} has commits that no ref leads to", (alone,))
