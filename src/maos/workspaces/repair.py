"""Checking and repairing workspaces after a crash."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

from maos.errors import InvalidInput, NotFound
from maos.faults import crash_point
from maos.workspaces.checkpoints import numbered, trailers
from maos.workspaces.git import CHECKOUT_LIMIT_S
from maos.workspaces.layout import (
    Workspace,
    WorkspaceFolder,
    WorkspaceState,
    create_git_folder,
    find_commit,
    folder_of,
    lexists,
    open_locked,
    refs_of,
    replace_file,
)
from maos.workspaces.worktree import add_again, points_to, write_pointer


async def exists(workspace: Workspace) -> bool:
    """Return whether a workspace is on disk and looks complete, by a few checks of files."""
    return await asyncio.to_thread(looks_whole, workspace)


async def verify(workspace: Workspace, commit: str | None = None) -> tuple[str, ...]:
    """Make a workspace usable after a crash; return what had to be repaired.

    A missing tree is restored from `commit`, or from its newest checkpoint. An existing tree is left as it is, with its
    unsaved changes. The agent must not be running.
    """
    if workspace.in_place:
        if not await asyncio.to_thread(workspace.path.is_dir):
            raise NotFound(f"{workspace.path} is gone", hint="it was not in git; restore it from a backup")
        return ()
    async with open_locked(workspace) as place:
        return await repair(place, commit)


def read_workspace(folder: Path) -> Workspace | None:
    """Read the workspace of a private folder; None when its creation was not finished."""
    try:
        content = (folder / "workspace.json").read_bytes()
    except FileNotFoundError:
        return None
    try:
        return Workspace.from_data(json.loads(content))
    except (ValueError, KeyError, TypeError) as error:  # it may have work in it, so do not guess
        raise InvalidInput(
            f"{folder / 'workspace.json'} is damaged",
            hint=f"save what you need from {folder.parent.parent / folder.name}, then delete both folders",
        ) from error


def looks_whole(workspace: Workspace) -> bool:
    if workspace.in_place:
        return workspace.path.is_dir()
    assert workspace.gitdir is not None
    folder = folder_of(workspace.tree.parent, workspace.name)
    return (
        (workspace.gitdir / "HEAD").is_file()
        and points_to(workspace.tree, workspace.gitdir)
        and (folder / "state.json").is_file()
        and (folder / "workspace.json").is_file()
        and not lexists(folder / "unfilled")
    )


async def repair(place: WorkspaceFolder, commit: str | None = None) -> tuple[str, ...]:
    workspace, folder, gitdir = place.workspace, place.folder, place.gitdir
    assert workspace.repository is not None
    if not await asyncio.to_thread((workspace.repository / "objects").is_dir):
        raise NotFound(f"the repository {workspace.repository} is gone", hint="restore it from a backup")
    done = []
    if not await asyncio.to_thread((folder / "config").is_file):
        create_git_folder(folder, object_format="sha1" if len(place.base) == 40 else "sha256")
        done.append("private git folder")
    gone = lexists(place.unfilled) or not await asyncio.to_thread(workspace.tree.is_dir)
    if gone:  # marked before the tree exists again: an empty one must not pass for an agent's work
        replace_file(place.unfilled, b"")
        crash_point("repair: noted")
    try:
        state = place.state()
    except NotFound:
        known = await numbered(place.repository, workspace.name)
        newest = known[max(known)] if known else place.base
        state = await state_at(place, newest, (await trailers(place.repository, newest)).get("Head", place.base))
        place.save_state(state)
        done.append("state")
    place.align(state)
    if not await asyncio.to_thread((gitdir / "HEAD").is_file):
        await add_again(place, state)
        done.append("worktree")
    if gone:
        await asyncio.to_thread(workspace.tree.mkdir, 0o777, exist_ok=True)
        crash_point("repair: tree")
    if not await asyncio.to_thread(points_to, workspace.tree, gitdir):
        await asyncio.to_thread(write_pointer, workspace.tree, gitdir)
        done.append("pointer to the repository")
    for name in ("index.lock", "HEAD.lock"):
        if await asyncio.to_thread((gitdir / name).exists):
            (gitdir / name).unlink()
            done.append(f"{name} of a git that was killed")
    if gone:
        target = state.commit if commit is None else await find_commit(place.repository, commit)
        head = (await trailers(place.repository, target)).get("Head", place.base)
        await place.agents.run("update-ref", "--no-deref", "-m", "maos: repair", "HEAD", head)
        await check_out(place, target, head)
        place.save_state(await state_at(place, target, head))
        crash_point("repair: files")
        place.unfilled.unlink()
        done.append("files")
    elif (await place.agents.run("rev-parse", "-q", "--verify", "HEAD", allowed=(0, 1, 128))).status == 128:
        replace_file(gitdir / "HEAD", f"{state.head}\n".encode())
        done.append("HEAD of the agent's git")
    elif (await place.agents.run("ls-files", "--", "nothing", allowed=(0, 128))).status == 128:
        await asyncio.to_thread((gitdir / "index").unlink, missing_ok=True)
        await place.agents.run("read-tree", await place.agents_head())
        done.append("index of the agent's git")
    await asyncio.to_thread(make_start_folder, workspace)
    return tuple(done)


async def check_out(place: WorkspaceFolder, files: str, head: str) -> None:
    """Check out all files of a commit, and set the index of the agent's git accordingly."""
    (place.folder / "index").unlink(missing_ok=True)
    await place.git.run("read-tree", "--reset", "-u", files, limit_s=CHECKOUT_LIMIT_S)
    if files == head:
        await asyncio.to_thread(shutil.copyfile, place.folder / "index", place.gitdir / "index")
    else:
        await place.agents.run("read-tree", head)


async def state_at(place: WorkspaceFolder, commit: str, head: str) -> WorkspaceState:
    known = await numbered(place.repository, place.workspace.name)
    refs = {known[number]: f"{refs_of(place.workspace.name)}{number}" for number in sorted(known)}
    ref = refs.get(commit, refs_of(place.workspace.name) + "base" if commit == place.base else "")
    tree = await place.git.line("rev-parse", commit + "^{tree}")
    return WorkspaceState(commit, tree, ref, max(known, default=0), head)


def make_start_folder(workspace: Workspace) -> None:
    """Create the folder in the tree that corresponds to the user's; never through a link that leads out (A13)."""
    path = workspace.tree
    for part in workspace.path.relative_to(workspace.tree).parts:
        path = path / part
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise InvalidInput(f"{path} is not a folder in this commit", hint="start in the root of the repository")
        path.mkdir(exist_ok=True)
