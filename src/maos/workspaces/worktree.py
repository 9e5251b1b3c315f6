"""Worktrees as git has them: added, found, pointed to, and forgotten by their repository."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

from maos.errors import NotFound
from maos.faults import crash_point
from maos.workspaces.git import Git, GitFailed, held
from maos.workspaces.layout import PRIVATE, UnsavedWork, WorkspaceFolder, WorkspaceState, write_whole

_TRIES = 5
_RETRY_S = 0.1
_REASON = "maos"
_OPTIONS = ("--detach", "--no-checkout", "--lock", "--reason", _REASON)


async def add_worktree(repository: Path, tree: Path, head: str, *, lock: int) -> Path:
    """A worktree without files, detached: it needs no branch. Locked: nobody prunes it while its disk is away."""
    git = Git(repository, {"GIT_DIR": str(repository)}, lock=lock)
    arguments = (*_OPTIONS, "--", str(tree), head)
    async with held(tree.parent / PRIVATE / ".lock"):
        for attempt in range(1, _TRIES + 1):
            try:
                await git.run("worktree", "add", *arguments)
                break
            except GitFailed:
                # Git reads the notes of all worktrees, also those that another git is just writing.
                if attempt == _TRIES:
                    raise
                await asyncio.to_thread(wipe_worktree, repository, tree)
                await asyncio.sleep(_RETRY_S * attempt)
    crash_point("prepare: worktree")
    gitdir = await asyncio.to_thread(gitdir_of, repository, tree)
    if gitdir is None:
        raise NotFound(f"git has made no worktree at {tree}", hint="look at git worktree list, and try again")
    return gitdir


async def add_again(place: WorkspaceFolder, state: WorkspaceState) -> None:
    """A worktree that the repository has forgotten: added elsewhere, then moved to where its files are."""
    repository = place.repository
    temporary = place.folder / "again" / place.gitdir.name  # git calls it by the last part of its path
    await asyncio.to_thread(wipe_worktree, repository.cwd, temporary)
    await asyncio.to_thread(delete, place.gitdir)
    await asyncio.to_thread(temporary.parent.mkdir, exist_ok=True)
    await repository.run("worktree", "add", *_OPTIONS, "--", str(temporary), state.head)
    crash_point("repair: added")
    await asyncio.to_thread(write_whole, place.gitdir / "gitdir", os.fsencode(place.workspace.tree / ".git") + b"\n")
    await asyncio.to_thread(delete, temporary.parent)
    await place.agents._replace(cwd=repository.cwd).run("read-tree", state.head)


def gitdir_of(repository: Path, tree: Path) -> Path | None:
    """What the repository keeps about the worktree at a place."""
    wanted = os.fsencode(tree / ".git")
    for notes in sorted((repository / "worktrees").glob("*/gitdir")):
        try:
            if notes.read_bytes().rstrip(b"\n") == wanted:
                return notes.parent
        except OSError:
            continue
    return None


def points_to(tree: Path, gitdir: Path) -> bool:
    """Whether a tree knows its repository."""
    try:
        return (tree / ".git").read_bytes() == b"gitdir: " + os.fsencode(gitdir) + b"\n"
    except OSError:
        return False


def point(tree: Path, gitdir: Path) -> None:
    """Tell the tree where its repository is, whatever is in the way."""
    pointer = tree / ".git"
    if pointer.is_dir() and not pointer.is_symlink():
        raise UnsavedWork("a repository of its own has taken the place of the pointer", (str(pointer),))
    pointer.unlink(missing_ok=True)
    write_whole(pointer, b"gitdir: " + os.fsencode(gitdir) + b"\n")


def wipe(folder: Path, tree: Path) -> None:
    """Remove a workspace, or what there is of one."""
    gone = folder / "gone"
    if not folder.is_dir():
        return
    try:
        repository: Path | None = Path(os.fsdecode((folder / "repository").read_bytes()))
    except FileNotFoundError:
        repository = None  # killed before it was noted: then there is no worktree yet
    if os.path.lexists(tree):
        delete(gone)
        os.rename(tree, gone)  # in one step: a tree that is half deleted must not look like somebody's work
    crash_point("wipe: moved")
    if repository is not None:
        wipe_worktree(repository, tree)
    crash_point("wipe: worktree")
    delete(gone)
    crash_point("wipe: tree")
    delete(folder)


def wipe_worktree(repository: Path, tree: Path) -> None:
    """Have the repository forget a worktree, however far it was made."""
    gitdir = gitdir_of(repository, tree) or _unfinished(repository, tree.name)
    if gitdir is not None:
        for entry in gitdir.iterdir():
            if entry.name != "gitdir":  # by which it is found again, should this be killed
                delete(entry)
        delete(gitdir)
    delete(tree)


def _unfinished(repository: Path, name: str) -> Path | None:
    """What a git that was killed at the very beginning has left."""
    gitdir = repository / "worktrees" / name
    try:
        ours = (gitdir / "locked").read_text().strip() == _REASON
    except (OSError, ValueError):
        return None
    return gitdir if ours and not (gitdir / "gitdir").exists() else None


def delete(path: Path) -> None:
    """Remove whatever is there, also folders that were closed against us."""
    if path.is_symlink() or path.is_file():
        path.unlink()
        return
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except PermissionError:
        for folder, _folders, _files in os.walk(path):
            os.chmod(folder, 0o700)
        shutil.rmtree(path)
