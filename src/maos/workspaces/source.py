"""The folder that a run works on: its repository, and its uncommitted changes."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple

from maos.errors import InvalidInput
from maos.workspaces.git import (
    Git,
    GitFailed,
    GitUnavailable,
    UntrustedRepository,
    check_version,
    program,
    users_settings,
)
from maos.workspaces.index import LeftOut, Rules, stage
from maos.workspaces.layout import create_git_folder, lexists, private_git

_OWNED_BY_ANOTHER = re.compile(rb"detected dubious ownership in repository at '(.*)'")


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
        return Git(self.top or self.repository, {"GIT_DIR": str(self.gitdir)})

    async def head(self) -> str | None:
        """Return the commit that is checked out; None when there is none yet."""
        result = await self.git.run("rev-parse", "-q", "--verify", "HEAD^{commit}", allowed=(0, 1, 128))
        return result.line if result.status == 0 else None


async def discover(folder: Path) -> RepositoryFolder | None:
    """Find the repository that a folder is in; None when it is in none."""
    try:
        program()
    except GitUnavailable:
        if any(lexists(parent / ".git") for parent in (folder, *folder.parents)):
            raise
        return None  # git is not needed outside a repository
    await check_version()
    settings = await users_settings()
    git = Git(folder, configuration=tuple(("safe.directory", value) for value in settings.get("safe.directory", ())))
    questions = ("--is-bare-repository", "--is-inside-work-tree", "--show-object-format")
    result = await git.run("rev-parse", *questions, allowed=(0, 128))
    if result.status:
        if b"not a git repository (or any" in result.errors:
            return None
        if owned := _OWNED_BY_ANOTHER.search(result.errors):
            raise UntrustedRepository(Path(os.fsdecode(owned[1])))
        raise GitFailed("rev-parse", result)
    bare, inside, object_format = result.output.decode().split()
    if bare == "false" and inside == "false":
        raise InvalidInput(f"{folder} is inside a git folder", hint="give the folder with the files, not its .git")
    paths = ["--git-common-dir", "--git-dir", *(() if bare == "true" else ("--show-toplevel",))]
    found = [Path(await git.line("rev-parse", "--path-format=absolute", path)) for path in paths]
    top = found[2] if len(found) > 2 else None
    if top is not None and not lexists(top / ".git"):
        raise InvalidInput(
            f"the repository of {folder} names {top} as its worktree, which has no .git",
            hint="check core.worktree in its configuration",
        )
    prefix = "" if top is None else await git.line("rev-parse", "--show-prefix")
    excludes = await asyncio.to_thread(_excludes, settings.get("core.excludesfile", []), found[0])
    return RepositoryFolder(found[0], found[1], top, prefix, object_format, excludes)


def _excludes(configured: list[str], repository: Path) -> bytes:
    """Return the user's ignore patterns, then the repository's: the last match wins."""
    usual = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "git" / "ignore"
    files = (Path(configured[-1]) if configured else usual, repository / "info" / "exclude")
    return b"".join(map(_content, files))


class Uncommitted(NamedTuple):
    """Changes in the user's tree that are in no commit."""

    changed: int
    commit: str | None
    """A commit of them, if requested."""
    left_out: tuple[LeftOut, ...] = ()


async def uncommitted(
    source: RepositoryFolder, scratch: Path, head: str | None, *, file_bytes_max: int, save: bool
) -> Uncommitted:
    """Find uncommitted changes through a copy of the user's index, so that nothing of theirs is touched or locked."""
    if source.top is None:
        return Uncommitted(0, None)
    attributes = await asyncio.to_thread(_content, source.repository / "info" / "attributes")
    await asyncio.to_thread(
        create_git_folder,
        scratch,
        object_format=source.object_format,
        excludes=source.excludes,
        attributes=attributes,  # the user's: the content that git would commit, not the bytes of the files
    )
    await asyncio.to_thread(_copy_index, source.gitdir, scratch)
    git = private_git(scratch, source.repository, source.top)
    if head is not None:
        await git.run("update-ref", "--no-deref", "HEAD", head)
    if not save:
        arguments = ("--porcelain=v1", "-z", "--untracked-files=normal", "--no-renames", "--ignore-submodules=all")
        return Uncommitted((await git.run("status", *arguments)).output.count(b"\0"), None)
    staged = await stage(git, source.top, Rules(head, file_bytes_max))
    if not staged.changed and head is not None:
        return Uncommitted(0, head, staged.left_out)
    tree = await git.line("write-tree")
    parents = () if head is None else ("-p", head)
    commit = await git.line("commit-tree", tree, *parents, given=b"not committed yet\n")
    return Uncommitted(staged.changed, commit, staged.left_out)


def _copy_index(gitdir: Path, scratch: Path) -> None:
    for file in (gitdir / "index", *gitdir.glob("sharedindex.*")):
        if file.is_file():
            shutil.copyfile(file, scratch / file.name)


def _content(file: Path) -> bytes:
    try:
        content = file.read_bytes()
    except OSError:
        return b""  # missing or unreadable: git ignores it too
    return content if content.endswith(b"\n") or not content else content + b"\n"
