"""Git worktrees: adding, finding and linking them; removing a workspace, but only if nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from pathlib import Path

from maos.errors import InvalidInput, NotFound
from maos.faults import crash_point
from maos.files import replace_file
from maos.tuples import NamedTuple
from maos.workspaces.checkpoints import update_index
from maos.workspaces.git import Git, GitFailed, decode_path, lexists, lock_file
from maos.workspaces.layout import (
    PRIVATE,
    UnsavedWork,
    Workspace,
    WorkspaceFolder,
    WorkspaceState,
    check_workspace_name,
    folder_of,
    lock_of,
    merges,
    open_locked,
    read_workspace,
    refs_of,
)

_TRIES = 5
_RETRY_S = 0.1
_REASON = "maos"
_OPTIONS = ("--detach", "--no-checkout", "--lock", "--reason", _REASON)


class Left(NamedTuple):
    """A workspace that is on disk."""

    name: str
    tree: Path
    workspace: Workspace | None
    """None when its creation was not finished; `clear` removes it."""


async def add_worktree(repository: Path, tree: Path, head: str, *, lock: int) -> Path:
    """Add a worktree without files: detached, as it needs no branch; locked, so that git never prunes it."""
    git = Git.of(repository, lock=lock)
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
    if lexists(tree):
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


# --- removal --------------------------------------------------------------------------------------------------


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


def left_behind(root: Path) -> list[Left]:
    """List the workspaces below `root`."""
    try:
        names = sorted(entry.name for entry in os.scandir(root / PRIVATE) if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []
    return [Left(name, root / name, read_workspace(folder_of(root, name))) for name in names]


def names_below(root: Path) -> set[str]:
    """Return the names of workspaces below `root` of which anything is on disk."""
    found: set[str] = set()
    for folder in (root, root / PRIVATE):
        with contextlib.suppress(FileNotFoundError):
            found |= {entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)}
    return found - {PRIVATE}


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
    await Git.of(repository).run("update-ref", f"{refs_of(check_workspace_name(name))}{label}", commit)


async def is_merged(workspace: Workspace, commit: str) -> bool:
    """Return whether a branch of the repository has the work of a commit: the commit, or what `merge` made of it."""
    assert workspace.repository is not None
    git = Git.of(workspace.repository)
    found = [commit]
    async for landed, merged in merges(git, workspace.name):
        contains = await git.run("merge-base", "--is-ancestor", commit, merged, allowed=(0, 1))
        found += [landed] if contains.status == 0 else []
    outside = ("--not", "--branches", "--remotes", "--tags")
    return any([not await git.line("rev-list", "-n", "1", each, *outside) for each in found])


async def _refuse_to_lose(place: WorkspaceFolder) -> None:
    """Raise UnsavedWork when a file in the tree or a commit of the agent is under no ref."""
    state = place.state()
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
        files = tuple(map(decode_path, changed.fields))
        raise UnsavedWork(f"workspace {place.workspace.name} has changes since its last checkpoint", files)
    head = await place.agents_head()
    arguments = ("-n", "1", state.commit, head, "--not", "--glob=refs/*")
    if alone := await place.repository.line("rev-list", *arguments):
        raise UnsavedWork(f"workspace {place.workspace.name} has commits that no ref leads to", (alone,))
