"""Checkpoints of the files of a workspace, and the ways back to them."""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from maos.errors import NotFound
from maos.faults import crash_point
from maos.workspaces.git import CHECKOUT_LIMIT_S, Git, GitFailed
from maos.workspaces.index import LeftOut, Rules, Staged, stage
from maos.workspaces.layout import (
    UnsavedWork,
    Workspace,
    WorkspaceFolder,
    WorkspaceState,
    find_commit,
    is_object,
    is_there,
    opened,
    refs_of,
    shown,
    sync_folder,
)

LABEL_CHARS_MAX = 200
PATCH_BYTES_MAX = 4 * 1024 * 1024
_TRIES = 10
_TRAILER = re.compile(r"^Maos-(Base|Head): ([0-9a-f]+)$", re.MULTILINE)
_PLAIN = ("--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=none")
_KINDS = {"A": "added", "M": "modified", "D": "deleted", "T": "type changed"}


class FileCheckpoint(NamedTuple):
    """Files as they were at a moment, as a commit under a hidden ref."""

    commit: str
    ref: str
    changed: int
    """How many files differ from the checkpoint before; 0: that one still holds, and this is its commit."""
    left_out: tuple[LeftOut, ...]
    """What is in the workspace and not in the checkpoint. Ignored files are not listed."""


class FileChange(NamedTuple):
    """How one file differs. Lines are None for what is not text."""

    path: str
    kind: str
    added: int | None
    removed: int | None


async def checkpoint(workspace: Workspace, label: str) -> FileCheckpoint | None:
    """Save the files; None outside git. On disk when it returns."""
    if workspace.in_place:
        return None
    async with opened(workspace) as place:
        return await take(place, label)


async def restore(workspace: Workspace, commit: str) -> FileCheckpoint:
    """Make the files those of a checkpoint. Returns a checkpoint of what was there, so it can be undone.

    Ignored files, and what checkpoints leave out, stay; a file that would have to give way and is saved nowhere is
    saved first, or this is refused. The agent must not be running: its git's locks are taken for left-overs.
    """
    async with opened(workspace) as place:
        target = await place.commit(commit)
        saved = await take(place, "before a restore")
        changes = await _changes(place, target)
        added = [path for path, kind in changes.items() if kind == "A"]
        if nested := await asyncio.to_thread(repositories_at, workspace.tree, added):
            raise UnsavedWork("repositories are where the restore puts files", tuple(map(shown, nested)))
        leaving = {path for path, kind in changes.items() if kind == "D"}
        blocking = await asyncio.to_thread(lambda: frozenset(in_the_way(workspace.tree, added, leaving)))
        if blocking:
            saved = await take(place, "before a restore", also=blocking)
        crash_point("restore: saved")
        await put_back(place, target)
        return saved


async def diff(workspace: Workspace, old: str, new: str | None = None) -> list[FileChange]:
    """How the files differ between two commits, or between a commit and now."""
    async with _two_trees(workspace, old, new) as (git, trees):
        output = (await git.run("diff-tree", "-r", "-z", "--raw", "--numstat", *_PLAIN, *trees)).output
    return list(_parsed(output))


async def patch(workspace: Workspace, old: str, new: str | None = None, *, bytes_max: int = PATCH_BYTES_MAX) -> str:
    """The differences as a patch, to be read; cut, and saying so, when it is longer than `bytes_max`."""
    async with _two_trees(workspace, old, new) as (git, trees):
        output = (await git.run("diff-tree", "-r", "-p", "--full-index", *_PLAIN, *trees)).output
    if len(output) > bytes_max:
        cut = output.rfind(b"\n", 0, bytes_max) + 1
        output = output[:cut] + f"[{len(output) - cut} bytes of the patch are not shown]\n".encode()
    return output.decode("utf-8", "replace")


async def take(place: WorkspaceFolder, label: str, *, also: frozenset[bytes] = frozenset()) -> FileCheckpoint:
    """A checkpoint of a workspace that is ours."""
    state = place.state()
    place.align(state)
    head = await place.agents_head()
    staged = await bring_up(place, also=also)
    if not staged.changed and head == state.head:
        return FileCheckpoint(state.commit, state.ref, 0, staged.left_out)
    tree = await place.git.line("write-tree")
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
    state = await _named(place, WorkspaceState(commit, tree, "", state.number, head))
    crash_point("checkpoint: named")
    await asyncio.to_thread(_sync_refs, place)
    place.note(state)
    crash_point("checkpoint: noted")
    return FileCheckpoint(state.commit, state.ref, staged.changed, staged.left_out)


async def bring_up(place: WorkspaceFolder, *, also: frozenset[bytes] = frozenset()) -> Staged:
    """Our index as the files are now. An index that cannot be used is made anew: it holds nothing of its own."""
    workspace = place.workspace
    rules = Rules(workspace.base, workspace.file_bytes_max, workspace.keep_ignored, also)
    if is_there(place.unfilled) or not is_there(workspace.tree):
        raise NotFound(
            f"the files of workspace {workspace.name} are gone from {workspace.tree}",
            hint="verify the workspace: they come back from its last checkpoint",
        )
    if not is_there(place.folder / "index"):
        await new_index(place)
    try:
        return await stage(place.git, workspace.tree, rules)
    except GitFailed:
        await new_index(place)
        return await stage(place.git, workspace.tree, rules)


async def new_index(place: WorkspaceFolder) -> None:
    """An index that says what the last checkpoint has."""
    for name in ("index", "index.lock"):
        (place.folder / name).unlink(missing_ok=True)
    await place.git.run("read-tree", place.state().commit)


async def put_back(place: WorkspaceFolder, target: str) -> None:
    """Files, and the agent's HEAD and index, as they were at a checkpoint; refuses to lose anything."""
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
    refs = await place.repository.run("for-each-ref", "--format=%(refname)", "--points-at", target, "refs/maos/")
    tree = await place.git.line("rev-parse", target + "^{tree}")
    own = [ref for ref in refs.output.decode().split() if ref.startswith(refs_of(place.workspace.name))]
    place.note(WorkspaceState(target, tree, own[0] if own else "", state.number, head))
    await asyncio.to_thread(place.workspace.path.mkdir, parents=True, exist_ok=True)


async def trailers(git: Git, commit: str) -> dict[str, str]:
    """What maos wrote at the end of a checkpoint's message; empty for a commit of somebody else."""
    text = (await git.run("cat-file", "commit", commit)).output.decode("utf-8", "replace")
    if "\ncommitter maos <maos@localhost> " not in text.partition("\n\n")[0]:
        return {}
    last = text.rstrip().rpartition("\n\n")[2]
    return {key: value for key, value in _TRAILER.findall(last) if is_object(value)}


async def numbered(git: Git, name: str) -> dict[int, str]:
    """The commits of a workspace's checkpoints, by number."""
    listed = await git.run("for-each-ref", "--format=%(objectname) %(refname)", refs_of(name))
    found = {}
    for line in listed.output.decode("utf-8", "replace").splitlines():
        commit, _, ref = line.partition(" ")
        number = ref.rpartition("/")[2]
        if number.isascii() and number.isdigit():
            found[int(number)] = commit
    return found


async def _named(place: WorkspaceFolder, state: WorkspaceState) -> WorkspaceState:
    """A ref for the commit, or the one that a killed call has made for the same files."""
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
            number = max(number, newest)  # or a lock file is in the way: the next number will do as well
        else:
            break
    return state._replace(ref=f"{prefix}{number}", number=number)


async def _same(place: WorkspaceFolder, one: str, other: str) -> bool:
    """Whether two commits have the same files, parents and trailers."""
    texts = [(await place.git.run("cat-file", "commit", commit)).output.split(b"\n") for commit in (one, other)]
    told = [[line for line in text if line.startswith((b"tree ", b"parent ", b"Maos-"))] for text in texts]
    return told[0] == told[1]


async def _changes(place: WorkspaceFolder, target: str) -> dict[bytes, str]:
    """What a restore will do to the files: paths, and A, M, D or T."""
    output = (
        await place.git.run("diff-tree", "-r", "-z", "--name-status", "--no-renames", place.state().commit, target)
    ).output.split(b"\0")
    return {path: kind.decode() for kind, path in zip(output[0:-1:2], output[1::2], strict=True)}


def repositories_at(tree: Path, paths: Iterable[bytes]) -> list[bytes]:
    """Folders at the places of files that hold a repository: git would not see it there, and delete it."""
    top = os.fsencode(tree)
    folders = (path for path in paths if stat.S_ISDIR(_mode(os.path.join(top, path))))
    return [path for path in folders if any(b".git" in (*f, *d) for _, d, f in os.walk(os.path.join(top, path)))]


def _mode(path: bytes) -> int:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0


def in_the_way(tree: Path, added: Iterable[bytes], leaving: Collection[bytes]) -> Iterator[bytes]:
    """Files on disk that git does not know, at places where it is about to put others; it would spare only some."""
    top = os.fsencode(tree)
    for path in added:
        parts = path.split(b"/")
        for length in range(1, len(parts) + 1):
            part = b"/".join(parts[:length])
            full = os.path.join(top, part)
            if not os.path.lexists(full):
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
    """Make a new ref survive a power cut: a name is on disk when its folder is."""
    repository = place.repository.cwd
    try:
        sync_folder(repository / refs_of(place.workspace.name))
    except FileNotFoundError:
        sync_folder(repository)  # refs need not be files


def _one_line(label: str) -> str:
    """A label that can stand in a commit message, whatever it was."""
    printable = "".join(character if character.isprintable() else " " for character in label[:LABEL_CHARS_MAX])
    return " ".join(printable.encode("utf-8", "replace").decode().split()) or "checkpoint"


@asynccontextmanager
async def _two_trees(workspace: Workspace, old: str, new: str | None) -> AsyncIterator[tuple[Git, tuple[str, str]]]:
    """What to compare, and with which git: two commits can be compared when the workspace is long gone."""
    if new is None or workspace.repository is None:
        async with opened(workspace) as place:
            before = await place.commit(old)
            place.align(place.state())
            await bring_up(place)
            yield place.git, (before, await place.git.line("write-tree"))
    else:
        git = Git(workspace.repository, {"GIT_DIR": str(workspace.repository)})
        yield git, (await find_commit(git, old), await find_commit(git, new))


def _parsed(output: bytes) -> Iterator[FileChange]:
    """`--raw --numstat -z`: all changes in the one form, then all in the other."""
    fields = output.split(b"\0")[:-1]
    kinds: dict[bytes, str] = {}
    at = 0
    while at < len(fields) and fields[at].startswith(b":"):
        kinds[fields[at + 1]] = _kind(fields[at].decode())
        at += 2
    for field in fields[at:]:
        added, removed, path = field.split(b"\t", 2)
        lines = (None, None) if added == b"-" else (int(added), int(removed))
        yield FileChange(shown(path), kinds[path], *lines)


def _kind(raw: str) -> str:
    """What happened to a file, from `:100644 100755 1234567 1234567 M`."""
    old_mode, new_mode, old, new, letter = raw[1:].split(" ")
    if letter == "M" and old == new and old_mode != new_mode:
        return "mode changed"
    return _KINDS.get(letter, "modified")
