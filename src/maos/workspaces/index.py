"""Updates an index from the files of a tree, and reports the files that were left out.

`git add` would stop at the first file it cannot read, skip every folder that has a `.git`, and add files of any size.
So git lists the changes, this module checks each of them, and git adds those that pass.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from maos.patterns import regex
from maos.tuples import NamedTuple
from maos.workspaces.git import CHECKOUT_LIMIT_S, Git, GitFailed, Result, decode_path

TOO_LARGE = "too large"
NESTED = "nested repository"
SUBMODULE = "submodule"
UNREADABLE = "unreadable"
CHANGING = "changed while it was read, or has a name git refuses"
NOT_A_FILE = "not a file"

_TRIES = 20
_RETRY_S = 0.02
_UNREADABLE_FOLDER = regex(rb"^warning: could not open directory '(.*)': ", re.MULTILINE)
# Errors of the repository or the disk, not of one file.
_EVERYWHERE = (
    b"No space left on device",
    b"Disk quota exceeded",
    b"Read-only file system",
    b"Input/output error",
    b".lock'",
    b"insufficient permission for adding an object",
    b"index file",
)


class LeftOut(NamedTuple):
    """A file or folder that is not in a checkpoint, and why."""

    path: str
    why: str


class Staged(NamedTuple):
    """The result of updating an index."""

    changed: int
    """How many files differ from HEAD."""
    left_out: tuple[LeftOut, ...]


class Rules(NamedTuple):
    """Which files are added to the index."""

    base: str | None
    """Files of this commit are added whatever their size: they are in the repository already."""
    file_bytes_max: int
    keep_ignored: tuple[str, ...] = ()
    also: frozenset[bytes] = frozenset()
    """Files that are added although they are ignored or large."""
    only: tuple[str, ...] = ()
    """Patterns of the only files that are added; all if there are none."""


async def stage(git: Git, tree: Path, rules: Rules) -> Staged:
    """Update the index of `git` from the files in the tree."""
    result = await _list_changes(git, rules.only)
    left = [LeftOut(decode_path(path), UNREADABLE) for path in _UNREADABLE_FOLDER.findall(result.errors)]
    left += [LeftOut(decode_path(path), SUBMODULE) for path in await _filled_submodules(git, tree)]
    found = _Changes(tree, rules)
    kept = await _list_ignored(git, rules.keep_ignored)
    await asyncio.to_thread(found.classify, result.fields, (*kept, *rules.also))
    await found.classify_large(git)
    if found.gone:
        given = b"".join(path + b"\0" for path in found.gone)
        await git.run("update-index", "-z", "--force-remove", "--stdin", given=given)
    refused = await put_into_index(git, found.wanted)
    found.touched.difference_update(refused)
    left += [LeftOut(decode_path(path), why) for path, why in found.left]
    for path in refused:
        why = await asyncio.to_thread(_why_not, os.path.join(os.fsencode(tree), path), 1 << 62)
        left.append(LeftOut(decode_path(path), why or CHANGING))
    return Staged(len(found.touched), tuple(sorted(left)))


async def _list_changes(git: Git, only: Sequence[str] = ()) -> Result:
    """List the changes, or those of files that match a pattern, with git status.

    It is retried when a file that shrinks while git has it mapped kills git.
    """
    for _ in range(_TRIES):
        result = await git.run(
            "status",
            "--porcelain=v1",
            "-z",
            "--untracked-files=all",
            "--no-renames",
            "--ignore-submodules=all",  # reading one would run git with its configuration
            "--no-ahead-behind",
            *(("--", *(f":(glob){each}" for each in only)) if only else ()),
            variables={"GIT_LITERAL_PATHSPECS": "0" if only else "1"},
            limit_s=CHECKOUT_LIMIT_S,
            allowed=(0, -signal.SIGBUS),
        )
        if result.status == 0:
            return result
        await _unlock(git)
        await asyncio.sleep(_RETRY_S)
    raise GitFailed("status", result, hint="a file keeps changing; wait until it does not, and try again")


async def _unlock(git: Git) -> None:
    """Remove the lock file of an index that only maos uses; a git that was killed leaves it behind."""
    await asyncio.to_thread(Path(git.variables["GIT_INDEX_FILE"] + ".lock").unlink, missing_ok=True)


class _Changes:
    """The changes of a tree, classified by what happens to each in the index."""

    def __init__(self, tree: Path, rules: Rules) -> None:
        self.tree = os.fsencode(tree)
        self.rules = rules
        self.touched: set[bytes] = set()
        self.wanted: list[bytes] = []
        self.gone: list[bytes] = []
        self.left: list[tuple[bytes, str]] = []
        self.large: list[tuple[bytes, bool]] = []

    def classify(self, entries: Sequence[bytes], also: Iterable[bytes]) -> None:
        """Classify the changes that git lists, and further files that are to be added."""
        for entry in entries:
            side, path = entry[:2], entry[3:]
            if path.endswith(b"/"):
                self.left.append((path, NESTED))
            elif side[1:] == b" ":
                self.touched.add(path)  # the index has it already, from a call that was killed
            elif side[1:] == b"D":
                self.gone.append(path)
                self.touched.add(path)
            else:
                self._classify(path, tracked=side != b"??")
        for path in also:
            if path not in self.touched:
                self._classify(path, tracked=False)

    def _classify(self, path: bytes, *, tracked: bool) -> None:
        why = _why_not(os.path.join(self.tree, path), self.rules.file_bytes_max)
        if why is None or (why == TOO_LARGE and path in self.rules.also):
            self._want(path)
        elif why == TOO_LARGE:
            self.large.append((path, tracked))
        else:  # an unreadable file stays as it was last saved
            self._leave_out(path, why, gone=tracked and why != UNREADABLE)

    async def classify_large(self, git: Git) -> None:
        """Add large files that the base has too; leave out the others."""
        if not self.large:
            return
        known: set[bytes] = set()
        if self.rules.base is not None:
            paths = [path for path, _tracked in self.large]
            listed = await git.run("ls-tree", "-z", "--name-only", "--full-tree", self.rules.base, "--", *paths)
            known = set(listed.fields)
        for path, tracked in self.large:
            if path in known:
                self._want(path)
            else:
                self._leave_out(path, TOO_LARGE, gone=tracked)

    def _want(self, path: bytes) -> None:
        self.wanted.append(path)
        self.touched.add(path)

    def _leave_out(self, path: bytes, why: str, *, gone: bool) -> None:
        self.left.append((path + b"/" if why == NESTED else path, why))
        if gone:
            self.gone.append(path)
            self.touched.add(path)


def _why_not(path: bytes, file_bytes_max: int) -> str | None:
    """Return why a file cannot be added, or None. A link is added as a link, wherever it leads (A13)."""
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            return None
        if not stat.S_ISREG(status.st_mode):
            return NESTED if stat.S_ISDIR(status.st_mode) else NOT_A_FILE
        if status.st_size > file_bytes_max:
            return TOO_LARGE
        os.close(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC))
    except (FileNotFoundError, NotADirectoryError):
        return None  # deleted in the meantime; git will notice too
    except OSError:
        return UNREADABLE
    return None


async def put_into_index(git: Git, paths: Sequence[bytes]) -> list[bytes]:
    """Add files to the index; return those that git refuses."""
    if not paths:
        return []
    given = b"".join(path + b"\0" for path in paths)
    try:
        result = await git.run(
            "update-index", "-z", "--add", "--remove", "--replace", "--stdin", given=given, limit_s=CHECKOUT_LIMIT_S
        )
    except GitFailed as error:
        if any(sign in error.result.errors for sign in _EVERYWHERE):
            raise
        await _unlock(git)
        if len(paths) == 1:
            return list(paths)
        half = len(paths) // 2
        return await put_into_index(git, paths[:half]) + await put_into_index(git, paths[half:])
    if b"Ignoring path " in result.errors:  # names that some file system takes for .git
        return [path for path in paths if b"Ignoring path " + path + b"\n" in result.errors]
    return []


async def _list_ignored(git: Git, globs: Sequence[str]) -> list[bytes]:
    """List ignored files that the rules keep."""
    if not globs:
        return []
    listed = await git.run(
        "ls-files",
        *("-z", "--others", "--ignored", "--exclude-standard", "--"),
        *(f":(glob){glob}" for glob in globs),
        variables={"GIT_LITERAL_PATHSPECS": "0"},
    )
    return listed.fields


async def _filled_submodules(git: Git, tree: Path) -> list[bytes]:
    """List submodules that are not empty: a tree has only the commit they are at, not their files."""
    if not await asyncio.to_thread((tree / ".gitmodules").is_file):
        return []
    listed = await git.run("ls-files", "-z", "--stage")
    links = [entry.split(b"\t", 1)[1] for entry in listed.fields if entry.startswith(b"160000 ")]
    return [path for path in links if await asyncio.to_thread(_has_content, os.path.join(os.fsencode(tree), path))]


def _has_content(folder: bytes) -> bool:
    try:
        return not os.path.islink(folder) and bool(os.listdir(folder))
    except OSError:
        return False
