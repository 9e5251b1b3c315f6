"""Runs git without any program that a repository or its configuration names (A12, A14).

Git is called by argv, without a terminal, network, hooks, file-system monitor, signatures, editor, pager, or the user's
configuration. A call that takes too long, or is cancelled, is ended before control returns to the caller.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import shutil
import signal
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from maos.errors import InvalidInput, MaosError
from maos.patterns import regex
from maos.tuples import NamedTuple

VERSION_MIN = (2, 38)
"""The first with `merge-tree --write-tree`, and with `safe.directory` on the command line."""
LIMIT_S = 120.0
CHECKOUT_LIMIT_S = 1_800.0
LOCK_WAIT_S = 600.0
_GRACE_S = 2.0
_LOCK_POLL_S = 0.01
_ERROR_CHARS_MAX = 2_000

_ENVIRONMENT = {
    "GIT_AUTHOR_NAME": "maos",  # the same everywhere, so that no user has to be configured
    "GIT_AUTHOR_EMAIL": "maos@localhost",
    "GIT_COMMITTER_NAME": "maos",
    "GIT_COMMITTER_EMAIL": "maos@localhost",
    "LC_ALL": "C",  # maos parses the messages of git
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "none",  # a partial clone would fetch, by a command that it names
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "false",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS": "false",
}
_NOT_PASSED_ON = ("GIT_", "LC_", "LANG", "SSH_ASKPASS")

_CONFIGURATION = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.pager": "cat",
    "core.editor": "false",
    "core.sshCommand": "false",
    "core.askPass": "false",
    "core.alternateRefsCommand": "",
    "core.quotePath": "false",
    "core.fsync": "committed,reference",  # by default git does not sync them, and a checkpoint must be durable
    "core.fsyncMethod": "batch",
    "credential.helper": "",
    "commit.gpgSign": "false",
    "diff.external": "",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "submodule.recurse": "false",
    "advice.detachedHead": "false",
    "worktree.useRelativePaths": "false",
}
_OWNED_BY_ANOTHER = regex(rb"detected dubious ownership in repository at '(.*)'")
_new_enough: set[str] = set()


class GitUnavailable(MaosError):
    """There is no usable git on this machine."""

    hint = f"install git {VERSION_MIN[0]}.{VERSION_MIN[1]} or newer and put it on PATH"


class UntrustedRepository(MaosError):
    """The repository belongs to another user; nothing in it was used."""

    def __init__(self, where: Path) -> None:
        super().__init__(
            f"the repository at {where} belongs to another user",
            hint="run maos as its owner, change its owner, or, if you trust everything in it: "
            f"git config --global --add safe.directory {where}",
        )
        self.where = where


class LockedFile(MaosError):
    """Another process has held a lock for too long."""


class GitFailed(MaosError):
    """A call of git failed."""

    hint = "look at the repository with git status and git fsck, then try again"

    def __init__(self, command: str, result: Result, *, hint: str | None = None) -> None:
        super().__init__(f"git {command} ended with status {result.status}: {result.complaint}", hint=hint)
        self.command = command
        self.result = result


class GitTimeout(MaosError):
    """A call of git took too long and was ended."""

    hint = "check whether the disk is busy or another git is running in this repository, then try again"

    def __init__(self, command: str, limit_s: float) -> None:
        super().__init__(f"git {command} was ended after {limit_s:.0f} s")


class Result(NamedTuple):
    """The exit status and output of a call of git."""

    status: int
    output: bytes
    errors: bytes

    @property
    def complaint(self) -> str:
        """Its error messages as one line of bounded length."""
        text = self.errors.decode("utf-8", "replace").strip() or "no error message"
        return " ".join(text.split())[:_ERROR_CHARS_MAX]

    @property
    def line(self) -> str:
        """Its output without the newline at the end, for commands that print one line."""
        return self.output.decode("utf-8", "surrogateescape").removesuffix("\n")

    @property
    def fields(self) -> list[bytes]:
        """Its output in parts, for commands that end each with a NUL (`-z`)."""
        return self.output.split(b"\0")[:-1]


class Git(NamedTuple):
    """Calls git in a folder, with variables and configuration in addition to those of every call."""

    cwd: Path
    variables: Mapping[str, str] = {}
    configuration: tuple[tuple[str, str], ...] = ()
    lock: int | None = None
    """The descriptor of a lock. Every git process inherits it, so the lock stays held until the last of them has ended,
    even if maos was killed before."""

    @classmethod
    def of(cls, gitdir: Path, *, cwd: Path | None = None, lock: int | None = None) -> Git:
        """Return git for a git folder, called in that folder unless another one is given."""
        return cls(cwd or gitdir, {"GIT_DIR": str(gitdir)}, lock=lock)

    async def run(
        self,
        command: str,
        *arguments: str | bytes,
        given: bytes | int = b"",
        allowed: Sequence[int] = (0,),
        limit_s: float = LIMIT_S,
        variables: Mapping[str, str] | None = None,
    ) -> Result:
        """Call git and wait until it ends; raise GitFailed for any status that is not allowed.

        `given` is its standard input: bytes, or the descriptor of a file that is too large for memory.
        """
        argv: list[str | bytes] = ["--no-pager"]
        for key, value in (*_CONFIGURATION.items(), *self.configuration):
            argv += ["-c", f"{key}={value}"]
        environment = {**inherited(), **_ENVIRONMENT, **self.variables, **(variables or {})}
        argv = [program(), *argv, command, *arguments]
        result = await _call(argv, cwd=self.cwd, environment=environment, given=given, limit_s=limit_s, lock=self.lock)
        if result.status not in allowed:
            raise GitFailed(command, result)
        return result

    async def line(self, command: str, *arguments: str | bytes, given: bytes = b"") -> str:
        """Call git and return the one line that it prints."""
        return (await self.run(command, *arguments, given=given)).line

    async def commit_at(self, name: str) -> str:
        """Return the id of the commit that a ref leads to; empty when there is none."""
        result = await self.run("rev-parse", "-q", "--verify", name + "^{commit}", allowed=(0, 1, 128))
        return result.line if result.status == 0 else ""

    async def refs(self, prefix: str) -> dict[str, str]:
        """Return the refs that begin with a prefix, and the commit of each."""
        listed = await self.run("for-each-ref", "--format=%(objecttype) %(objectname) %(refname)", prefix)
        lines = (line.split(" ", 2) for line in listed.output.decode("utf-8", "replace").splitlines())
        return {ref: commit for kind, commit, ref in lines if kind == "commit"}

    async def change_index(self, lines: Iterable[bytes]) -> None:
        """Write lines of `ls-tree` or `ls-files` into the index; those of mode 0 remove a file."""
        await self.run("update-index", "-z", "--index-info", given=b"".join(line + b"\0" for line in lines))


class RepositoryFolder(NamedTuple):
    """A folder in a repository."""

    repository: Path
    """The git folder that all worktrees share."""
    gitdir: Path
    """The git folder of the worktree that the folder is in; differs from `repository` in a linked worktree."""
    top: Path | None
    """The root of that worktree; None in a bare repository."""
    prefix: str
    """The path from there to the folder, empty or ending in a slash."""
    object_format: str
    excludes: bytes
    """Patterns that the user's git ignores, apart from the .gitignore files of the tree."""

    @property
    def git(self) -> Git:
        """Git on the user's own worktree."""
        return Git.of(self.gitdir, cwd=self.top or self.repository)


def lexists(path: Path | bytes) -> bool:
    """Return whether a file, folder or link of that name exists, even if the link is broken."""
    return os.path.lexists(path)


def decode_path(path: bytes) -> str:
    """Return a path as text that can be stored and printed; bytes that are not UTF-8 become \\xNN."""
    return path.decode("utf-8", "backslashreplace")


def program() -> str:
    """Return the path of the git on PATH."""
    found = shutil.which("git")
    if found is None or not os.path.isabs(found):
        raise GitUnavailable("there is no git on PATH")
    return found


async def check_version() -> None:
    """Refuse a git that is too old."""
    if program() in _new_enough:
        return
    result = await Git(Path("/")).run("version")
    found = re.search(rb"(\d+)\.(\d+)", result.output)
    if found is None or (int(found[1]), int(found[2])) < VERSION_MIN:
        shown = result.output.decode("utf-8", "replace").strip() or result.complaint
        raise GitUnavailable(f"{program()} is too old: {shown}")
    _new_enough.add(program())


def inherited() -> dict[str, str]:
    """Return the environment without variables that redirect git or change its language."""
    return {key: value for key, value in os.environ.items() if not key.startswith(_NOT_PASSED_ON)}


_FACTS = ("--is-bare-repository", "--is-inside-work-tree", "--show-object-format")
_PATHS = ("--git-common-dir", "--git-dir", "--show-toplevel", "--show-prefix")
_SETTINGS_BY = ("GIT_", "HOME", "PATH", "XDG_CONFIG_HOME")
"""The variables that decide which settings of the user git reads."""
SETTINGS_S = 5.0


async def discover(folder: Path) -> RepositoryFolder | None:
    """Find the repository that a folder is in; None when it is in none."""
    try:
        program()
    except GitUnavailable:
        if any(lexists(parent / ".git") for parent in (folder, *folder.parents)):
            raise
        return None  # git is not needed outside a repository
    await check_version()
    settings = await _users_settings()
    git = Git(folder, configuration=tuple(("safe.directory", value) for value in settings.get("safe.directory", ())))
    result = await git.run("rev-parse", *_FACTS, "--path-format=absolute", *_PATHS, allowed=(0, 128))
    if not result.output:
        if b"not a git repository (or any" in result.errors:
            return None
        if owned := _OWNED_BY_ANOTHER.search(result.errors):
            _settings_read.clear()  # the user may trust it before the next call
            raise UntrustedRepository(Path(os.fsdecode(owned[1])))
        raise GitFailed("rev-parse", result)
    bare, inside, object_format, *lines = result.output.decode("utf-8", "surrogateescape").split("\n")[:-1]
    if bare == "false" and inside == "false":
        raise InvalidInput(f"{folder} is inside a git folder", hint="give the folder with the files, not its .git")
    has_files = bare == "false"
    if result.status and has_files:
        raise GitFailed("rev-parse", result)
    wanted = _PATHS if has_files else _PATHS[:2]  # it has printed these, and refused the others
    if len(lines) != len(wanted):  # a path has more than one line
        lines = [await git.line("rev-parse", "--path-format=absolute", path) for path in wanted]
    found = [Path(each) for each in lines[:3]]
    top = found[2] if has_files else None
    if top is not None and not lexists(top / ".git"):
        raise InvalidInput(
            f"the repository of {folder} names {top} as its worktree, which has no .git",
            hint="check core.worktree in its configuration",
        )
    prefix = lines[3] if has_files else ""
    excludes = await asyncio.to_thread(_excludes, settings.get("core.excludesfile", []), found[0])
    return RepositoryFolder(found[0], found[1], top, prefix, object_format, excludes)


async def identity(source: RepositoryFolder) -> dict[str, str]:
    """Return the variables that make a commit the user's, as their environment, their own settings or the repository's
    name them; none when nothing does."""
    chosen = {key: value for key, value in os.environ.items() if key.startswith("GIT_CONFIG_")}
    environment = {**inherited(), **chosen, "LC_ALL": "C", "GIT_DIR": str(source.gitdir)}
    found: dict[str, str] = {}
    for name in ("name", "email"):
        argv = [program(), "config", "--get", f"user.{name}"]
        said = (await _call(argv, cwd=source.top or source.repository, environment=environment)).line.strip()
        for key in (f"GIT_{who}_{name.upper()}" for who in ("AUTHOR", "COMMITTER")):
            found[key] = os.environ.get(key) or said
    return found if all(found.values()) else {}


def _excludes(configured: list[str], repository: Path) -> bytes:
    """Return the user's ignore patterns, then the repository's: the last match wins."""
    usual = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "git" / "ignore"
    files = (Path(configured[-1]) if configured else usual, repository / "info" / "exclude")
    return b"".join(map(read_or_empty, files))


async def _users_settings() -> dict[str, list[str]]:
    """Return the user's own settings (not a repository's): which repositories to trust, which files to ignore. They are
    read again when they may have changed: after some seconds, or with other variables."""
    variables = tuple(sorted((key, value) for key, value in os.environ.items() if key.startswith(_SETTINGS_BY)))
    known = _settings_read.get(variables)
    if known is None or time.monotonic() - known[0] > SETTINGS_S:
        _settings_read.clear()
        known = _settings_read[variables] = time.monotonic(), await _read_users_settings()
    return known[1]


_settings_read: dict[tuple[tuple[str, str], ...], tuple[float, dict[str, list[str]]]] = {}


async def _read_users_settings() -> dict[str, list[str]]:
    pattern = r"^(safe\.directory|core\.excludesfile)$"
    argv = [program(), "config", "-z", "--type=path", "--get-regexp", pattern]
    environment = {**inherited(), "LC_ALL": "C", "GIT_DIR": os.devnull}  # reads no repository
    result = await _call(argv, cwd=Path("/"), environment=environment)
    found: dict[str, list[str]] = {}
    for entry in result.fields:
        key, _, value = os.fsdecode(entry).partition("\n")
        found.setdefault(key, []).append(value)
    return found


def read_or_empty(file: Path) -> bytes:
    """Return the lines of a file of patterns; none when it is missing or unreadable, as git does."""
    try:
        content = file.read_bytes()
    except OSError:
        return b""
    return content if content.endswith(b"\n") or not content else content + b"\n"


@asynccontextmanager
async def lock_file(path: Path, *, wait_s: float = LOCK_WAIT_S) -> AsyncIterator[int]:
    """Lock a file until the end of the block, or of the last process that has inherited its descriptor."""
    deadline = asyncio.get_running_loop().time() + wait_s
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if asyncio.get_running_loop().time() > deadline:
                        hint = "find the process that holds it with fuser -v FILE"
                        raise LockedFile(f"{path} has been locked for {wait_s:.0f} s", hint=hint) from None
                await asyncio.sleep(_LOCK_POLL_S)
            if _is_at(descriptor, path):  # the previous owner of the lock may have removed the file
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


async def _call(
    argv: Sequence[str | bytes],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    given: bytes | int = b"",
    limit_s: float = LIMIT_S,
    lock: int | None = None,
) -> Result:
    starting = asyncio.create_task(
        asyncio.create_subprocess_exec(
            *argv,
            cwd=cwd,
            env=environment,
            stdin=given if isinstance(given, int) else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # so that it can be ended with all its children
            pass_fds=() if lock is None else (lock,),
        )
    )
    try:
        await asyncio.wait({starting})
    except asyncio.CancelledError:
        # Cancelling this task would end git but not its children, and a second cancellation not even git.
        await _wait_for(starting)
        if starting.exception() is None:
            process = starting.result()
            await _end(process, asyncio.create_task(process.communicate()))
        raise
    process = starting.result()
    talk = asyncio.create_task(process.communicate(None if isinstance(given, int) else given))
    try:
        done, _ = await asyncio.wait({talk}, timeout=limit_s)
    except asyncio.CancelledError:
        await _end(process, talk)
        raise
    if not done:
        await _end(process, talk)
        raise GitTimeout(" ".join(os.fsdecode(part) for part in argv[-3:]), limit_s)
    output, errors = talk.result()
    assert process.returncode is not None
    return Result(process.returncode, output, errors)


async def _wait_for(task: asyncio.Task[Any], *, within_s: float | None = None) -> None:
    """Wait for a task and ignore further cancellations: the caller raises the first one afterwards."""
    clock = asyncio.get_running_loop().time
    deadline = None if within_s is None else clock() + within_s
    while not task.done() and (deadline is None or clock() < deadline):
        try:
            await asyncio.wait({task}, timeout=None if deadline is None else deadline - clock())
        except asyncio.CancelledError:
            continue


async def _end(process: asyncio.subprocess.Process, talk: asyncio.Task[tuple[bytes, bytes]]) -> None:
    """End git and its children: with TERM, so that it removes its lock files, then with KILL."""
    for sign, within_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            pass  # it has just ended by itself
        await _wait_for(talk, within_s=within_s)
        if talk.done():
            return
