"""Creating workspaces.

Every operation on workspaces can be repeated after it was killed at any point. A workspace exists when
`workspace.json` is in its private folder, which is created first and removed last: a tree with a private folder but
without that file was never given to an agent.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from maos.errors import InvalidInput
from maos.faults import crash_point
from maos.files import sync_folder
from maos.workspaces.checkpoints import trailers
from maos.workspaces.git import Git, lock_file
from maos.workspaces.layout import (
    FILE_BYTES_MAX,
    PRIVATE,
    Workspace,
    WorkspaceFolder,
    check_workspace_name,
    create_git_folder,
    find_commit,
    folder_of,
    lexists,
    lock_of,
    refs_of,
    replace_file,
)
from maos.workspaces.repair import check_out, make_start_folder, read_workspace, repair, state_at
from maos.workspaces.source import Source, discover, uncommitted
from maos.workspaces.worktree import add_worktree, wipe

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
    include_uncommitted: bool = False,
    file_bytes_max: int = FILE_BYTES_MAX,
    keep_ignored: Collection[str] = (),
) -> Workspace:
    """Return the workspace of that name below `root`; create it if it is missing, repair it if it is incomplete.

    It starts with the files of `base` (HEAD if not given), or with those of the checkpoint `start`, to fork work or to
    continue it on another machine. `at` is a commit to start at in place of the base, to fork merged work.
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
        workspace = await asyncio.to_thread(read_workspace, folder)
        if workspace is not None:
            if workspace.repository != found.repository or workspace.tree != tree:
                raise InvalidInput(
                    f"workspace {name} at {tree} belongs to {workspace.repository}", hint="give it another name"
                )
            await repair(WorkspaceFolder(workspace, folder, lock))
            return workspace
        if not await asyncio.to_thread(folder.exists) and lexists(tree):
            raise InvalidInput(f"{tree} exists and is not a workspace", hint="give it another name, or move it away")
        await asyncio.to_thread(wipe, folder, tree)
        await asyncio.to_thread(folder.mkdir, 0o700)
        replace_file(folder / "repository", os.fsencode(found.repository))
        crash_point("prepare: begun")
        beginning = await _beginning(found, folder, base, start, include_uncommitted, file_bytes_max)
        if at is not None:
            files = await find_commit(found.git, at)
            beginning = beginning._replace(files=files, head=files)
        repository = Git(found.repository, {"GIT_DIR": str(found.repository)}, lock=lock)
        await repository.run("update-ref", refs_of(name) + "base", beginning.base)
        crash_point("prepare: base")
        gitdir = await add_worktree(found.repository, tree, beginning.head, lock=lock)
        workspace = Workspace(
            name,
            tree / found.prefix,
            tree,
            found.repository,
            gitdir,
            beginning.base,
            beginning.notes,
            file_bytes_max,
            tuple(keep_ignored),
        )
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


def _make_root(root: Path, source: Source) -> None:
    (root / PRIVATE).mkdir(mode=0o700, parents=True, exist_ok=True)
    if source.top is not None and root.is_relative_to(source.top) and not (root / ".gitignore").exists():
        replace_file(root / ".gitignore", b"*\n")  # or git status of the user would list them


async def _beginning(
    source: Source, folder: Path, base: str | None, start: str | None, include_uncommitted: bool, file_bytes_max: int
) -> _Beginning:
    if start is not None:
        files = await find_commit(source.git, start)
        known = await trailers(source.git, files)
        chosen = await find_commit(source.git, base or known.get("Base", files))
        return _Beginning(chosen, files, known.get("Head", chosen))
    if base is not None:
        chosen = await find_commit(source.git, base)
        return _Beginning(chosen, chosen, chosen)
    head = await source.head()
    save = include_uncommitted or head is None
    scratch = folder / "scratch"
    found = await uncommitted(source, scratch, head, file_bytes_max=file_bytes_max, save=save)
    await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
    if found.commit is not None:
        notes = () if head is not None else ("nothing is committed yet: it starts with the uncommitted files",)
        left = tuple(f"{path} is not in it: {why}" for path, why in found.left_out)
        return _Beginning(found.commit, found.commit, found.commit, notes + left)
    if head is None:
        tree = await source.git.line("mktree")
        head = await source.git.line("commit-tree", tree, given=b"nothing yet\n")
    notes = (f"{found.changed} uncommitted changes of {source.top} are not in it",) if found.changed else ()
    return _Beginning(head, head, head, notes)


async def _fill(place: WorkspaceFolder, source: Source, beginning: _Beginning) -> None:
    workspace = place.workspace
    await asyncio.to_thread(
        create_git_folder, place.folder, object_format=source.object_format, excludes=source.excludes
    )
    await check_out(place, beginning.files, beginning.head)
    crash_point("prepare: files")
    await asyncio.to_thread(make_start_folder, workspace)
    place.save_state(await state_at(place, beginning.files, beginning.head))
    replace_file(place.folder / "workspace.json", json.dumps(workspace.to_data()).encode())
    await asyncio.to_thread(sync_folder, place.folder)
    crash_point("prepare: done")
