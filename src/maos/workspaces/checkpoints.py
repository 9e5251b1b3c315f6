"""Checkpoints of the files of a workspace: taking, restoring and comparing them."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from maos.errors import NotFound
from maos.faults import crash_point
from maos.files import sync_folder
from maos.patterns import regex
from maos.tuples import NamedTuple
from maos.workspaces.git import CHECKOUT_LIMIT_S, Git, GitFailed, decode_path, lexists
from maos.workspaces.index import LeftOut, Rules, Staged, stage
from maos.workspaces.layout import (
    UnsavedWork,
    Workspace,
    WorkspaceFolder,
    WorkspaceState,
    find_commit,
    is_object,
    open_locked,
    refs_of,
)

LABEL_CHARS_MAX = 200
PATCH_BYTES_MAX = 4 * 1024 * 1024
NOT_COMMITTED = b"not committed yet\n"
"""The message of the commit that has the user's uncommitted changes, where work begins with them."""
_TRIES = 10
_TRAILER = regex(r"^Maos-(Base|Head): ([0-9a-f]+)$", re.MULTILINE)
_PLAIN = ("--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=none")
_KINDS = {"A": "added", "M": "modified", "D": "deleted", "T": "type changed"}


class FileCheckpoint(NamedTuple):
    """The files at one point in time, as a commit under a hidden ref."""

    commit: str
    ref: str
    changed: int
    """How many files differ from the previous checkpoint; 0: nothing has changed, and this is the previous one."""
    left_out: tuple[LeftOut, ...]
    """Files of the workspace that are not in the checkpoint. Ignored files are not listed."""


class FileChange(NamedTuple):
    """How one file differs. The numbers of lines are None for binary files."""

    path: str
    kind: str
    added: int | None
    removed: int | None


async def checkpoint(workspace: Workspace, label: str) -> FileCheckpoint | None:
    """Save the files, synced to disk when it returns; None outside git."""
    if workspace.in_place:
        return None
    async with open_locked(workspace) as place:
        return await take(place, label)


async def restore(workspace: Workspace, commit: str) -> FileCheckpoint:
    """Restore the files of a checkpoint; return a checkpoint of the files before, to undo it.

    Ignored files, and files that checkpoints leave out, stay. A file that would be overwritten and is saved nowhere is
    saved first, or the restore is refused. The agent must not be running: locks of its git are removed as stale.
    """
    async with open_locked(workspace) as place:
        target = await find_commit(place.repository, commit)
        saved = await take(place, "before a restore")
        changes = await _changes(place, target)
        added = [path for path, kind in changes.items() if kind == "A"]
        if nested := await asyncio.to_thread(repositories_at, workspace.tree, added):
            raise UnsavedWork("repositories are where the restore puts files", tuple(map(decode_path, nested)))
        leaving = {path for path, kind in changes.items() if kind == "D"}
        blocking = await asyncio.to_thread(lambda: frozenset(in_the_way(workspace.tree, added, leaving)))
        if blocking:
            saved = await take(place, "before a restore", also=blocking)
        crash_point("restore: saved")
        await _restore_to(place, target)
        return saved


async def diff(workspace: Workspace, old: str, new: str | None = None) -> list[FileChange]:
    """Return how the files differ between two commits, or between a commit and now."""
    async with _two_trees(workspace, old, new) as (git, trees):
        fields = (await git.run("diff-tree", "-r", "-z", "--raw", "--numstat", *_PLAIN, *trees)).fields
    kinds: dict[bytes, str] = {}
    at = 0  # first come all changes as --raw shows them, then all as --numstat does
    while at < len(fields) and fields[at].startswith(b":"):
        kinds[fields[at + 1]] = _kind(fields[at].decode())
        at += 2
    changes = []
    for field in fields[at:]:
        added, removed, path = field.split(b"\t", 2)
        lines = (None, None) if added == b"-" else (int(added), int(removed))
        changes.append(FileChange(decode_path(path), kinds[path], *lines))
    return changes


async def patch(workspace: Workspace, old: str, new: str | None = None, *, bytes_max: int = PATCH_BYTES_MAX) -> str:
    """Return the differences as a patch for people; what exceeds `bytes_max` is cut, with a note of how much."""
    async with _two_trees(workspace, old, new) as (git, trees):
        output = (await git.run("diff-tree", "-r", "-p", "--full-index", *_PLAIN, *trees)).output
    if len(output) > bytes_max:
        cut = output.rfind(b"\n", 0, bytes_max) + 1
        output = output[:cut] + f"[{len(output) - cut} bytes of the patch are not shown]\n".encode()
    return output.decode("utf-8", "replace")


async def take(place: WorkspaceFolder, label: str, *, also: frozenset[bytes] = frozenset()) -> FileCheckpoint:
    """Take a checkpoint of a locked workspace."""
    state = place.state()
    head = await place.agents_head()
    staged = await update_index(place, also=also)
    tree = await place.git.line("write-tree") if staged.changed else state.tree
    if tree == state.tree and head == state.head:
        return FileCheckpoint(state.commit, state.ref, 0, staged.left_out)
    crash_point("checkpoint: staged")
    parents = [state.commit]
    if head not in (state.head, state.commit, place.base):
        parents.append(head)  # what the agent committed itself stays reachable
    message = f"{_one_line(label)}\n\nMaos-Base: {place.base}\nMaos-Head: {head}\n"
    commit = await place.git.line(
        "commit-tree", tree, *(part for parent in parents for part in ("-p", parent)), given=message.encode()
    )
    crash_point("checkpoint: committed")
    state = await _create_ref(place, WorkspaceState(commit, tree, "", state.number, head))
    crash_point("checkpoint: named")
    await asyncio.to_thread(_sync_refs, place)
    place.save_state(state)
    crash_point("checkpoint: noted")
    return FileCheckpoint(state.commit, state.ref, staged.changed, staged.left_out)


async def update_index(place: WorkspaceFolder, *, also: frozenset[bytes] = frozenset()) -> Staged:
    """Update the private index from the files. An unusable index is rebuilt: nothing is stored in it alone."""
    workspace = place.workspace
    rules = Rules(workspace.base, workspace.file_bytes_max, workspace.keep_ignored, also)
    if lexists(place.unfilled) or not lexists(workspace.tree):
        raise NotFound(
            f"the files of workspace {workspace.name} are missing from {workspace.tree}",
            hint="verify the workspace: they are restored from its last checkpoint",
        )
    if not lexists(place.folder / "index"):
        await _rebuild_index(place)
    try:
        return await stage(place.git, workspace.tree, rules)
    except GitFailed:
        await _rebuild_index(place)
        return await stage(place.git, workspace.tree, rules)


async def _rebuild_index(place: WorkspaceFolder) -> None:
    """Rebuild the private index from the last checkpoint."""
    for name in ("index", "index.lock"):
        (place.folder / name).unlink(missing_ok=True)
    await place.git.run("read-tree", place.state().commit)


async def _restore_to(place: WorkspaceFolder, target: str) -> None:
    """Restore the files, and the agent's HEAD and index, to a checkpoint; refuse if anything would be lost."""
    state = place.state()
    try:
        await place.git.run("read-tree", "-m", "-u", state.commit, target, limit_s=CHECKOUT_LIMIT_S)
    except GitFailed as error:
        files = re.findall(r"(?:Entry|file|Updating) '(.*?)'", error.result.complaint)
        raise UnsavedWork(
            f"some files of workspace {place.workspace.name} could not be saved and would be lost",
            tuple(files) or (error.result.complaint,),
        ) from error
    crash_point("restore: files")
    head = (await trailers(place.repository, target)).get("Head", place.base)
    for name in ("HEAD.lock", "index.lock"):
        (place.gitdir / name).unlink(missing_ok=True)
    await place.agents.run("update-ref", "--no-deref", "-m", "maos: restore", "HEAD", head)
    await place.agents.run("read-tree", head)
    crash_point("restore: head")
    place.save_state(await state_at(place, target, head))
    await asyncio.to_thread(place.workspace.path.mkdir, parents=True, exist_ok=True)


async def state_at(place: WorkspaceFolder, commit: str, head: str) -> WorkspaceState:
    """Return the state of a workspace whose files are those of a commit, with the agent's git at another."""
    known = await numbered(place.repository, place.workspace.name)
    refs = {known[number]: f"{refs_of(place.workspace.name)}{number}" for number in sorted(known)}
    ref = refs.get(commit, refs_of(place.workspace.name) + "base" if commit == place.base else "")
    tree = await place.git.line("rev-parse", commit + "^{tree}")
    return WorkspaceState(commit, tree, ref, max(known, default=0), head)


async def trailers(git: Git, commit: str) -> dict[str, str]:
    """Return the trailers of a checkpoint's message; empty for a commit that maos did not make."""
    text = (await git.run("cat-file", "commit", commit)).output.decode("utf-8", "replace")
    if "\ncommitter maos <maos@localhost> " not in text.partition("\n\n")[0]:
        return {}
    last = text.rstrip().rpartition("\n\n")[2]
    return {key: value for key, value in _TRAILER.findall(last) if is_object(value)}


async def numbered(git: Git, name: str) -> dict[int, str]:
    """Return the commits of a workspace's checkpoints, by number."""
    labels = {ref.rpartition("/")[2]: commit for ref, commit in (await git.refs(refs_of(name))).items()}
    return {int(label): commit for label, commit in labels.items() if label.isascii() and label.isdigit()}


async def _create_ref(place: WorkspaceFolder, state: WorkspaceState) -> WorkspaceState:
    """Create a ref for the commit, or use the one that a killed call has created for the same files."""
    prefix = refs_of(place.workspace.name)
    number = state.number
    for remaining in reversed(range(_TRIES)):
        number += 1
        try:
            await place.repository.run("update-ref", f"{prefix}{number}", state.commit, "0" * len(state.commit))
        except GitFailed:
            known = await numbered(place.repository, place.workspace.name)
            newest = max(known, default=0)
            if newest > state.number and await _same(place, known[newest], state.commit):
                return state._replace(commit=known[newest], ref=f"{prefix}{newest}", number=newest)
            if not remaining:
                raise
            number = max(number, newest)  # or a stale lock file blocks this number: use the next
        else:
            break
    return state._replace(ref=f"{prefix}{number}", number=number)


async def _same(place: WorkspaceFolder, one: str, other: str) -> bool:
    """Return whether two commits have the same files, parents and trailers."""
    texts = [(await place.git.run("cat-file", "commit", commit)).output.split(b"\n") for commit in (one, other)]
    headers = [[line for line in text if line.startswith((b"tree ", b"parent ", b"Maos-"))] for text in texts]
    return headers[0] == headers[1]


async def _changes(place: WorkspaceFolder, target: str) -> dict[bytes, str]:
    """Return what a restore does to the files: paths, with A, M, D or T."""
    shown = ("-r", "-z", "--name-status", "--no-renames")
    fields = (await place.git.run("diff-tree", *shown, place.state().commit, target)).fields
    return {path: kind.decode() for kind, path in zip(fields[::2], fields[1::2], strict=True)}


def repositories_at(tree: Path, paths: Iterable[bytes]) -> list[bytes]:
    """Return paths at which a folder with a repository is on disk: git would delete it to write a file there."""
    top = os.fsencode(tree)
    folders = (path for path in paths if not os.path.islink(os.path.join(top, path)))  # what is no folder is not walked
    return [path for path in folders if any(b".git" in (*f, *d) for _, d, f in os.walk(os.path.join(top, path)))]


def in_the_way(tree: Path, added: Iterable[bytes], leaving: Collection[bytes]) -> Iterator[bytes]:
    """Yield untracked files at paths where git is about to write others: it would overwrite some of them."""
    top = os.fsencode(tree)
    for path in added:
        parts = path.split(b"/")
        for length in range(1, len(parts) + 1):
            part = b"/".join(parts[:length])
            full = os.path.join(top, part)
            if not lexists(full):
                break
            if os.path.islink(full) or not os.path.isdir(full):
                if part not in leaving:
                    yield part
                break
            if length == len(parts):
                for folder, _folders, files in os.walk(full):
                    inner = (os.path.relpath(os.path.join(folder, file), top) for file in files)
                    yield from (file for file in inner if file not in leaving)


def _sync_refs(place: WorkspaceFolder) -> None:
    """Sync the folder of the refs, so that a new ref survives a power cut."""
    repository = place.repository.cwd
    try:
        sync_folder(repository / refs_of(place.workspace.name))
    except FileNotFoundError:
        sync_folder(repository)  # the repository does not store refs as files


def _one_line(label: str) -> str:
    """Return a label as one printable line for a commit message."""
    printable = "".join(character if character.isprintable() else " " for character in label[:LABEL_CHARS_MAX])
    return " ".join(printable.encode("utf-8", "replace").decode().split()) or "checkpoint"


@asynccontextmanager
async def _two_trees(workspace: Workspace, old: str, new: str | None) -> AsyncIterator[tuple[Git, tuple[str, str]]]:
    """Yield two trees to compare and the git to use: commits can be compared after the workspace was removed."""
    if new is None or workspace.repository is None:
        async with open_locked(workspace) as place:
            before = await find_commit(place.repository, old)
            place.state()  # aligns what a killed process left
            await update_index(place)
            yield place.git, (before, await place.git.line("write-tree"))
    else:
        git = Git.of(workspace.repository)
        yield git, (await find_commit(git, old), await find_commit(git, new))


def _kind(raw: str) -> str:
    """Return the kind of a change, from a line such as `:100644 100755 1234567 1234567 M`."""
    old_mode, new_mode, old, new, letter = raw[1:].split(" ")
    if letter == "M" and old == new and old_mode != new_mode:
        return "mode changed"
    return _KINDS.get(letter, "modified")
