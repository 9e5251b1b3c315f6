"""Making a workspace usable: creating it, repairing it after a crash, updating it after a move.

Every operation on workspaces can be repeated after it was killed at any point. A workspace exists when
`workspace.json` is in its private folder, which is created first and removed last: a tree with a private folder but
without that file was never given to an agent.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from maos.errors import InvalidInput, NotFound
from maos.faults import crash_point
from maos.files import private_folder, replace_file, sync_folder
from maos.tuples import NamedTuple
from maos.workspaces.checkpoints import NOT_COMMITTED, numbered, state_at, trailers
from maos.workspaces.git import CHECKOUT_LIMIT_S, Git, RepositoryFolder, discover, lexists, lock_file, read_or_empty
from maos.workspaces.index import Rules, stage
from maos.workspaces.layout import (
    FILE_BYTES_MAX,
    PREPARED,
    PRIVATE,
    PRODUCTS,
    Workspace,
    WorkspaceFolder,
    WorkspaceState,
    check_workspace_name,
    create_git_folder,
    find_commit,
    folder_of,
    lock_of,
    missing,
    open_locked,
    private_git,
    read_workspace,
    refs_of,
)
from maos.workspaces.worktree import add_again, add_worktree, points_to, wipe, write_pointer

IN_PLACE = (
    "not a git repository: the agent works in the folder itself. Its files are not saved with checkpoints, "
    "are not restored, and are not separate from those of other agents."
)


class _Beginning(NamedTuple):
    """What a workspace starts from."""

    base: str
    files: str
    """The commit whose files it has."""
    head: str
    """The commit that the agent's git is at."""
    notes: tuple[str, ...] = ()


async def prepare(
    source: Path,
    name: str,
    *,
    root: Path,
    base: str | None = None,
    start: str | None = None,
    at: str | None = None,
    include_uncommitted: bool | Sequence[str] = False,
    file_bytes_max: int = FILE_BYTES_MAX,
    keep_ignored: Collection[str] = (),
) -> Workspace:
    """Return the workspace of that name below `root`; create it if it is missing, repair it if it is incomplete.

    It starts with the files of `base` (HEAD if not given), or with those of the checkpoint `start`, to fork work or to
    continue it on another machine. `at` is a commit to start at in place of the base, to fork merged work.
    `include_uncommitted` adds the user's uncommitted changes to HEAD: all, or those of files that match a pattern.
    """
    check_workspace_name(name)
    source, root = await asyncio.to_thread(lambda: (source.resolve(), root.resolve()))
    await asyncio.to_thread(_check_folders, source, root)
    found = await discover(source)
    if found is None:
        return Workspace(name, source, source, None, None, None, (IN_PLACE,), file_bytes_max, tuple(keep_ignored))
    await asyncio.to_thread(_make_root, root, found)
    folder, tree = folder_of(root, name), root / name
    async with lock_file(lock_of(root, name)) as lock:
        workspace = await _existing(found, folder, tree, lock)
        if workspace is not None:
            return workspace
        await asyncio.to_thread(wipe, folder, tree)
        await asyncio.to_thread(folder.mkdir, 0o700)
        replace_file(folder / "repository", os.fsencode(found.repository))
        crash_point("prepare: begun")
        if start is not None:
            beginning = await _from_checkpoint(found, start, base)
        elif base is not None:
            chosen = await find_commit(found.git, base)
            beginning = _Beginning(chosen, chosen, chosen)
        else:
            scratch = folder / "scratch"
            beginning = await _from_users_tree(found, scratch, include_uncommitted, file_bytes_max)
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
        if at is not None:
            files = await find_commit(found.git, at)
            beginning = beginning._replace(files=files, head=files)
        # A ref makes sure that its base stays.
        await Git.of(found.repository, lock=lock).run("update-ref", refs_of(name) + "base", beginning.base)
        crash_point("prepare: base")
        gitdir = await add_worktree(found.repository, tree, beginning.head, lock=lock)
        names = (name, tree / found.prefix, tree, found.repository, gitdir, beginning.base, beginning.notes)
        workspace = Workspace(*names, file_bytes_max, tuple(keep_ignored))
        await _fill(WorkspaceFolder(workspace, folder, lock), found, beginning)
        return workspace


def _check_folders(source: Path, root: Path) -> None:
    if not source.is_dir():
        raise InvalidInput(f"{source} is not a folder", hint="give the folder that the agent should work in")
    for path in (source, root):
        try:
            str(path).encode()
        except UnicodeEncodeError as error:
            raise InvalidInput(f"{path!r} is not valid UTF-8", hint="rename the folder") from error


def _make_root(root: Path, source: RepositoryFolder) -> None:
    private_folder(root / PRIVATE)
    if source.top is not None and root.is_relative_to(source.top) and not (root / ".gitignore").exists():
        replace_file(root / ".gitignore", b"*\n")  # or git status of the user would list them


async def _existing(source: RepositoryFolder, folder: Path, tree: Path, lock: int) -> Workspace | None:
    """Return the workspace that is at a path, repaired; None when there is none, or its creation was not finished."""
    workspace = await asyncio.to_thread(read_workspace, folder)
    if workspace is not None:
        if workspace.repository != source.repository or workspace.tree != tree:
            raise InvalidInput(
                f"workspace {tree.name} at {tree} belongs to {workspace.repository}", hint="give it another name"
            )
        await _repair(WorkspaceFolder(workspace, folder, lock))
    elif not await asyncio.to_thread(folder.exists) and lexists(tree):
        raise InvalidInput(f"{tree} exists and is not a workspace", hint="give it another name, or move it away")
    return workspace


async def _from_checkpoint(source: RepositoryFolder, start: str, base: str | None) -> _Beginning:
    files = await find_commit(source.git, start)
    known = await trailers(source.git, files)
    chosen = await find_commit(source.git, base or known.get("Base", files))
    return _Beginning(chosen, files, known.get("Head", chosen))


async def _from_users_tree(
    source: RepositoryFolder, scratch: Path, include_uncommitted: bool | Sequence[str], file_bytes_max: int
) -> _Beginning:
    """Begin at HEAD of the user's worktree, with its uncommitted changes if they are wanted or there is no HEAD.

    They are found through a copy of the user's index, so that nothing of theirs is touched or locked.
    """
    head = await source.git.commit_at("HEAD")
    if source.top is None:
        if not head:
            tree = await source.git.line("mktree")
            head = await source.git.line("commit-tree", tree, given=b"nothing yet\n")
        return _Beginning(head, head, head)
    # With the user's attributes: the content that git would commit, not the bytes of the files.
    attributes = await asyncio.to_thread(read_or_empty, source.repository / "info" / "attributes")
    form: dict[str, Any] = {"object_format": source.object_format, "excludes": source.excludes}
    await asyncio.to_thread(create_git_folder, scratch, **form, attributes=attributes)
    for file in (source.gitdir / "index", *source.gitdir.glob("sharedindex.*")):
        if await asyncio.to_thread(file.is_file):
            # With its time: git reads files again that were changed when the index was written, or later.
            await asyncio.to_thread(shutil.copy2, file, scratch / file.name)
    git = private_git(scratch, source.repository, source.top)
    if head:
        await git.run("update-ref", "--no-deref", "HEAD", head)
        if not include_uncommitted:
            shown = ("--porcelain=v1", "-z", "--untracked-files=normal", "--no-renames", "--ignore-submodules=all")
            changed = len((await git.run("status", *shown)).fields)
            what = "1 uncommitted change" if changed == 1 else f"{changed} uncommitted changes"
            notes = (f"{what} in {source.top} will not be visible to agents",) if changed else ()
            return _Beginning(head, head, head, notes)
    only = () if isinstance(include_uncommitted, bool) or not head else tuple(include_uncommitted)
    if only:  # without what is staged of other files
        await git.run("read-tree", head)
    staged = await stage(git, source.top, Rules(head or None, file_bytes_max, only=only))
    notes = () if head else ("nothing is committed yet: it starts with the uncommitted files",)
    if staged.changed or not head:
        parents = ("-p", head) if head else ()
        tree = await git.line("write-tree")
        head = await git.line("commit-tree", tree, *parents, given=NOT_COMMITTED)
    left = tuple(f"{path} is not in it: {why}" for path, why in staged.left_out)
    return _Beginning(head, head, head, notes + left)


async def _fill(place: WorkspaceFolder, source: RepositoryFolder, beginning: _Beginning) -> None:
    workspace = place.workspace
    await asyncio.to_thread(
        create_git_folder, place.folder, object_format=source.object_format, excludes=source.excludes
    )
    await _check_out(place, beginning.files, beginning.head)
    crash_point("prepare: files")
    await asyncio.to_thread(_make_start_folder, workspace)
    place.save_state(await state_at(place, beginning.files, beginning.head))
    replace_file(place.folder / "workspace.json", json.dumps(workspace.to_data()).encode())
    await asyncio.to_thread(sync_folder, place.folder)
    crash_point("prepare: done")


# --- repair ---------------------------------------------------------------------------------------------------


async def exists(workspace: Workspace) -> bool:
    """Return whether a workspace is on disk and looks complete, by a few checks of files."""
    return await asyncio.to_thread(_looks_complete, workspace)


async def verify(workspace: Workspace, commit: str | None = None) -> tuple[str, ...]:
    """Make a workspace usable after a crash; return what had to be repaired.

    A missing tree is restored from `commit`, or from its newest checkpoint. A workspace that was removed is created
    again, from its newest checkpoint, which may have been taken when it was removed, else from `commit` or its base. An
    existing tree is left as it is, with its unsaved changes. The agent must not be running. Raises NotFound for a
    workspace that was never created: nothing is created in its place.
    """
    if workspace.in_place:
        if not await asyncio.to_thread(workspace.path.is_dir):
            raise NotFound(f"{workspace.path} is missing", hint="it was not in git; restore it from a backup")
        return ()
    if await asyncio.to_thread(_is_removed, workspace):
        await _create_again(workspace, commit)
        return ("worktree", "files")
    async with open_locked(workspace) as place:
        return await _repair(place, commit)


def _is_removed(workspace: Workspace) -> bool:
    """Return whether nothing of a workspace is on disk, and its repository is."""
    is_there = lexists(workspace.tree) or folder_of(workspace.tree.parent, workspace.name).is_dir()
    return not is_there and workspace.repository is not None and (workspace.repository / "objects").is_dir()


async def _create_again(workspace: Workspace, commit: str | None) -> None:
    """Create a workspace that was removed, from its newest checkpoint or its base; its refs say that it was there."""
    assert workspace.repository is not None
    if commit is None and not await Git.of(workspace.repository).refs(refs_of(workspace.name)):
        raise missing(workspace)
    source = workspace.repository.parent / workspace.path.relative_to(workspace.tree)
    await prepare(
        source if await asyncio.to_thread(source.is_dir) else workspace.repository.parent,
        workspace.name,
        root=workspace.tree.parent,
        base=workspace.base,
        start=await newest_checkpoint(workspace) or commit,
        file_bytes_max=workspace.file_bytes_max,
        keep_ignored=workspace.keep_ignored,
    )
    await asyncio.to_thread(_make_start_folder, workspace)


async def newest_checkpoint(workspace: Workspace) -> str | None:
    """Return the commit of the newest checkpoint of a workspace that its repository has; None when it has none."""
    assert workspace.repository is not None
    known = await numbered(Git.of(workspace.repository), workspace.name)
    return known[max(known)] if known else None


def _looks_complete(workspace: Workspace) -> bool:
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


async def _repair(place: WorkspaceFolder, commit: str | None = None) -> tuple[str, ...]:
    """Repair a locked workspace; return what had to be repaired."""
    workspace = place.workspace
    assert workspace.repository is not None
    if not await asyncio.to_thread((workspace.repository / "objects").is_dir):
        raise NotFound(f"the repository {workspace.repository} is missing", hint="restore it from a backup")
    done = []
    if not await asyncio.to_thread((place.folder / "config").is_file):
        create_git_folder(place.folder, object_format="sha1" if len(place.base) == 40 else "sha256")
        done.append("private git folder")
    missing = lexists(place.unfilled) or not await asyncio.to_thread(workspace.tree.is_dir)
    if missing:  # marked before the tree exists again: an empty one must not pass for an agent's work
        replace_file(place.unfilled, b"")
        crash_point("repair: noted")
    done += await _repair_state(place)
    state = place.state()
    done += await _repair_links(place, state)
    if missing:
        await _restore_files(place, state, commit)
        done.append("files")
    else:
        done += await _repair_agents_git(place, state)
    await asyncio.to_thread(_make_start_folder, workspace)
    return tuple(done)


async def _repair_state(place: WorkspaceFolder) -> list[str]:
    """Write a lost state file again, from the newest checkpoint."""
    try:
        place.state()
        return []
    except NotFound:
        known = await numbered(place.repository, place.workspace.name)
        newest = known[max(known)] if known else place.base
        head = (await trailers(place.repository, newest)).get("Head", place.base)
        place.save_state(await state_at(place, newest, head))
        return ["state"]


async def _repair_links(place: WorkspaceFolder, state: WorkspaceState) -> list[str]:
    """Link the tree and the repository to each other again, and remove stale lock files of the agent's git."""
    tree, gitdir = place.workspace.tree, place.gitdir
    done = []
    if not await asyncio.to_thread((gitdir / "HEAD").is_file):
        await add_again(place, state)
        done.append("worktree")
    if not await asyncio.to_thread(tree.is_dir):
        await asyncio.to_thread(tree.mkdir, 0o777, exist_ok=True)
        crash_point("repair: tree")
    if not await asyncio.to_thread(points_to, tree, gitdir):
        await asyncio.to_thread(write_pointer, tree, gitdir)
        done.append("pointer to the repository")
    for name in ("index.lock", "HEAD.lock"):
        if await asyncio.to_thread((gitdir / name).exists):
            (gitdir / name).unlink()
            done.append(f"{name} of a git that was killed")
    return done


async def _restore_files(place: WorkspaceFolder, state: WorkspaceState, commit: str | None) -> None:
    """Fill a tree that was lost with the files of a commit, or of the last checkpoint."""
    target = state.commit if commit is None else await find_commit(place.repository, commit)
    for name in (PRODUCTS, PREPARED):  # what git does not track is lost
        (place.folder / name).unlink(missing_ok=True)
    head = (await trailers(place.repository, target)).get("Head", place.base)
    await place.agents.run("update-ref", "--no-deref", "-m", "maos: repair", "HEAD", head)
    await _check_out(place, target, head)
    place.save_state(await state_at(place, target, head))
    crash_point("repair: files")
    place.unfilled.unlink()


async def _repair_agents_git(place: WorkspaceFolder, state: WorkspaceState) -> list[str]:
    """Write HEAD or the index of the agent's own git again, if git cannot use them."""
    if (await place.agents.run("rev-parse", "-q", "--verify", "HEAD", allowed=(0, 1, 128))).status == 128:
        replace_file(place.gitdir / "HEAD", f"{state.head}\n".encode())
        return ["HEAD of the agent's git"]
    if (await place.agents.run("ls-files", "--", "nothing", allowed=(0, 128))).status == 128:
        await asyncio.to_thread((place.gitdir / "index").unlink, missing_ok=True)
        await place.agents.run("read-tree", await place.agents_head())
        return ["index of the agent's git"]
    return []


async def _check_out(place: WorkspaceFolder, files: str, head: str) -> None:
    """Check out all files of a commit, and set the index of the agent's git accordingly."""
    (place.folder / "index").unlink(missing_ok=True)
    await place.git.run("read-tree", "--reset", "-u", files, limit_s=CHECKOUT_LIMIT_S)
    if files == head:
        await asyncio.to_thread(shutil.copy2, place.folder / "index", place.gitdir / "index")
    else:
        await place.agents.run("read-tree", head)


def _make_start_folder(workspace: Workspace) -> None:
    """Create the folder in the tree that corresponds to the user's; never through a link that leads out (A13)."""
    path = workspace.tree
    for part in workspace.path.relative_to(workspace.tree).parts:
        path = path / part
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise InvalidInput(f"{path} is not a folder in this commit", hint="start in the root of the repository")
        path.mkdir(exist_ok=True)


# --- moves ----------------------------------------------------------------------------------------------------


async def relocate(now: Workspace) -> bool:
    """Update the paths in a workspace to where it and its repository are now; return False when it does not exist.

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
    return "" if workspace.gitdir is None else await Git.of(workspace.gitdir, cwd=workspace.tree).commit_at("HEAD")


async def missing_commits(repository: Path, commits: Iterable[str]) -> list[str]:
    """Return the commits that a repository does not have."""
    wanted = sorted(set(commits))
    given = "".join(f"{each}^{{commit}}\n" for each in wanted).encode()
    result = await Git.of(repository).run("cat-file", "--batch-check", given=given)
    lines = result.output.decode("utf-8", "replace").splitlines()
    return [each for each, line in zip(wanted, lines, strict=True) if line.endswith(" missing")]
