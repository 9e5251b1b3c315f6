"""Git worktrees: adding, finding, linking and removing them."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

from maos.errors import NotFound
from maos.faults import crash_point
from maos.workspaces.git import Git, GitFailed, lock_file
from maos.workspaces.layout import PRIVATE, UnsavedWork, WorkspaceFolder, WorkspaceState, replace_file

_TRIES = 5
_RETRY_S = 0.1
_REASON = "maos"
_OPTIONS = ("--detach", "--no-checkout", "--lock", "--reason", _REASON)


async def add_worktree(repository: Path, tree: Path, head: str, *, lock: int) -> Path:
    """Add a worktree without files: detached, as it needs no branch; locked, so that git never prunes it."""
    git = Git(repository, {"GIT_DIR": str(repository)}, lock=lock)
    arguments = (*_OPTIONS, "--", str(tree), head)
    async with lock_file(tree.parent / PRIVATE / ".lock"):
        for attempt in range(1, _TRIES + 1):
            try:
                await git.run("worktree", "add", *arguments)
                break
            except GitFailed:
                # Git reads the files of all worktrees, including those that another git is writing.
                if attempt == _TRIES:
                    raise
                await asyncio.to_thread(wipe_worktree, repository, tree)
                await asyncio.sleep(_RETRY_S * attempt)
    crash_point("prepare: worktree")
    gitdir = await asyncio.to_thread(gitdir_of, repository, tree)
    if gitdir is None:
        raise NotFound(f"git has added no worktree at {tree}", hint="check git worktree list, and try again")
    return gitdir


async def add_again(place: WorkspaceFolder, state: WorkspaceState) -> None:
    """Add a worktree that the repository has lost: in a temporary folder, then linked to where its files are."""
    repository = place.repository
    temporary = place.folder / "again" / place.gitdir.name  # git names it after the last part of its path
    await asyncio.to_thread(wipe_worktree, repository.cwd, temporary)
    await asyncio.to_thread(delete, place.gitdir)
    await asyncio.to_thread(temporary.parent.mkdir, exist_ok=True)
    await repository.run("worktree", "add", *_OPTIONS, "--", str(temporary), state.head)
    crash_point("repair: added")
    await asyncio.to_thread(replace_file, place.gitdir / "gitdir", os.fsencode(place.workspace.tree / ".git") + b"\n")
    await asyncio.to_thread(delete, temporary.parent)
    await place.agents._replace(cwd=repository.cwd).run("read-tree", state.head)


def gitdir_of(repository: Path, tree: Path) -> Path | None:
    """Return the repository's folder of the worktree at a path."""
    wanted = os.fsencode(tree / ".git")
    for notes in sorted((repository / "worktrees").glob("*/gitdir")):
        try:
            if notes.read_bytes().rstrip(b"\n") == wanted:
                return notes.parent
        except OSError:
            continue
    return None


def points_to(tree: Path, gitdir: Path) -> bool:
    """Return whether the `.git` file of a tree names this folder."""
    try:
        return (tree / ".git").read_bytes() == b"gitdir: " + os.fsencode(gitdir) + b"\n"
    except OSError:
        return False


def write_pointer(tree: Path, gitdir: Path) -> None:
    """Write the `.git` file of a tree, replacing any file or link there."""
    pointer = tree / ".git"
    if pointer.is_dir() and not pointer.is_symlink():
        raise UnsavedWork("a repository has replaced the .git file of the worktree", (str(pointer),))
    pointer.unlink(missing_ok=True)
    replace_file(pointer, b"gitdir: " + os.fsencode(gitdir) + b"\n")


def wipe(folder: Path, tree: Path) -> None:
    """Remove a workspace, or what is left of it."""
    gone = folder / "gone"
    if not folder.is_dir():
        return
    try:
        repository: Path | None = Path(os.fsdecode((folder / "repository").read_bytes()))
    except FileNotFoundError:
        repository = None  # killed before it was written: there is no worktree yet
    if os.path.lexists(tree):
        delete(gone)
        os.rename(tree, gone)  # in one step: a half-deleted tree must not look like an agent's work
    crash_point("wipe: moved")
    if repository is not None:
        wipe_worktree(repository, tree)
    crash_point("wipe: worktree")
    delete(gone)
    crash_point("wipe: tree")
    delete(folder)


def wipe_worktree(repository: Path, tree: Path) -> None:
    """Remove a worktree from its repository, even if it was only partly added."""
    gitdir = gitdir_of(repository, tree) or _unfinished(repository, tree.name)
    if gitdir is not None:
        for entry in gitdir.iterdir():
            if entry.name != "gitdir":  # the last: it is how the worktree is found again after a crash
                delete(entry)
        delete(gitdir)
    delete(tree)


def _unfinished(repository: Path, name: str) -> Path | None:
    """Return the folder of a worktree that a git which was killed has only begun."""
    gitdir = repository / "worktrees" / name
    try:
        ours = (gitdir / "locked").read_text().strip() == _REASON
    except (OSError, ValueError):
        return None
    return gitdir if ours and not (gitdir / "gitdir").exists() else None


def delete(path: Path) -> None:
    """Delete a file, link or folder, including folders without write permission."""
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
