"""Where a workspace is, and what maos keeps beside it.

Beside the tree an agent works in, maos has a git folder of its own (`Place.folder`): an index, a HEAD and a
configuration that is ours, over the objects of the user's repository. So no checkpoint reads the configuration of the
repository (which may name programs to run), none touches the index or HEAD that the agent's own git uses, and what is
saved is the bytes that are there: attributes that would convert line ends or pass files through filters are off.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from maos.errors import InvalidInput, MaosError, NotFound
from maos.model.events.parts import WorkspaceData
from maos.workspaces.git import Git, GitFailed, held

FILE_BYTES_MAX = 50 * 1024 * 1024
PRIVATE = ".maos"
BYTES_AS_THEY_ARE = b"* -text !eol !crlf !ident !filter !working-tree-encoding\n"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_OBJECT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class UnsavedWork(MaosError):
    """Something would be lost that is saved nowhere; nothing was changed."""

    hint = "take a checkpoint, or move the files named here elsewhere, and try again"

    def __init__(self, what: str, files: tuple[str, ...], *, hint: str | None = None) -> None:
        shown = ", ".join(files[:5]) + (f" and {len(files) - 5} more" if len(files) > 5 else "")
        super().__init__(f"{what}: {shown}" if files else what, hint=hint)
        self.files = files


class Workspace(NamedTuple):
    """The folder an attempt works in. Plain data: `to_data` is what the journal keeps of it."""

    name: str
    path: Path
    """Where the agent is started: the tree, or the folder in it that corresponds to the one maos was called in."""
    tree: Path
    """The root of the worktree; outside git the folder itself."""
    repository: Path | None
    """The git folder whose objects and refs are used; None outside git."""
    gitdir: Path | None
    """What the repository keeps about this worktree."""
    base: str | None
    """The commit that the work is compared with and merged from."""
    notes: tuple[str, ...] = ()
    """What the user should know: what is not in it, what is not promised."""
    file_bytes_max: int = FILE_BYTES_MAX
    keep_ignored: tuple[str, ...] = ()

    @property
    def in_place(self) -> bool:
        """Whether the agent works in the user's own folder, with nothing saved and nothing promised."""
        return self.repository is None

    def to_data(self) -> WorkspaceData:
        """It as JSON can say it."""
        return {
            "name": self.name,
            "path": str(self.path),
            "tree": str(self.tree),
            "repository": None if self.repository is None else str(self.repository),
            "gitdir": None if self.gitdir is None else str(self.gitdir),
            "base": self.base,
            "notes": list(self.notes),
            "file_bytes_max": self.file_bytes_max,
            "keep_ignored": list(self.keep_ignored),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Workspace:
        """The workspace that `to_data` was asked of."""
        paths = {key: Path(data[key]) if data[key] is not None else None for key in ("repository", "gitdir")}
        return cls(
            name=check_workspace_name(data["name"]),
            path=Path(data["path"]),
            tree=Path(data["tree"]),
            repository=paths["repository"],
            gitdir=paths["gitdir"],
            base=data["base"],
            notes=tuple(data["notes"]),
            file_bytes_max=data["file_bytes_max"],
            keep_ignored=tuple(data["keep_ignored"]),
        )


class WorkspaceState(NamedTuple):
    """Which checkpoint the files were last known to be at."""

    commit: str
    tree: str
    ref: str
    number: int
    """The largest number a checkpoint of this workspace has."""
    head: str
    """Where the agent's own HEAD was then."""


def check_workspace_name(name: str) -> str:
    """The name itself, or an error: it becomes a folder and part of a ref."""
    if not _NAME.fullmatch(name) or name.endswith((".", ".lock")) or ".." in name:
        raise InvalidInput(
            f"{name[:100]!r} cannot be the name of a workspace",
            hint="use up to 100 letters, digits, dots, dashes and underscores, beginning with a letter or digit",
        )
    return name


def is_object(text: str) -> bool:
    """Whether this is the full id of an object, which git takes for nothing else."""
    return _OBJECT.fullmatch(text) is not None


def shown(path: bytes) -> str:
    """A path as text that can be stored and shown; what is not UTF-8 is written as \\xNN."""
    return path.decode("utf-8", "backslashreplace")


def refs_of(name: str) -> str:
    """The hidden refs of a workspace; no branch, no tag, never fetched or pushed unless asked for by name."""
    return f"refs/maos/{name}/"


class WorkspaceFolder:
    """A workspace that is locked, and the ways to call git for it."""

    def __init__(self, workspace: Workspace, folder: Path, lock: int) -> None:
        assert workspace.repository is not None
        assert workspace.gitdir is not None
        self.workspace = workspace
        self.folder = folder
        self.git = private_git(folder, workspace.repository, workspace.tree, lock=lock)
        """With our index, HEAD and configuration, on the files of the workspace."""
        self.repository = Git(workspace.repository, {"GIT_DIR": str(workspace.repository)}, lock=lock)
        """For refs: with those of the user's repository."""
        self.agents = Git(workspace.tree, {"GIT_DIR": str(workspace.gitdir)}, lock=lock)
        """With the index and HEAD that the agent's own git uses."""
        self.gitdir = workspace.gitdir
        self.unfilled = folder / "unfilled"
        """Is there while the tree is empty because its files are being brought back."""

    @property
    def base(self) -> str:
        assert self.workspace.base is not None
        return self.workspace.base

    def state(self) -> WorkspaceState:
        """What was noted last; NotFound when that is gone."""
        try:
            return WorkspaceState(**json.loads((self.folder / "state.json").read_bytes()))
        except (OSError, ValueError, TypeError) as error:
            raise NotFound(
                f"workspace {self.workspace.name} has lost its notes at {self.folder}",
                hint="verify the workspace: it is repaired from its last checkpoint",
            ) from error

    def note(self, state: WorkspaceState) -> None:
        """Remember which checkpoint the files are at."""
        write_whole(self.folder / "state.json", json.dumps(state._asdict()).encode())
        self.align(state)

    def align(self, state: WorkspaceState) -> None:
        """Put right what a killed process left: our lock files (the lock we hold says nobody uses them), our HEAD."""
        for name in ("index.lock", "HEAD.lock"):
            (self.folder / name).unlink(missing_ok=True)
        head = f"{state.commit}\n".encode()
        if not (self.folder / "HEAD").exists() or (self.folder / "HEAD").read_bytes() != head:
            write_whole(self.folder / "HEAD", head, sync=False)  # lost, it is written again from the notes

    async def agents_head(self) -> str:
        """The commit the agent's HEAD is at; the base if it is nowhere."""
        try:
            text = (self.gitdir / "HEAD").read_text("ascii").strip()
        except (OSError, ValueError):
            return self.base
        if is_object(text):
            return text
        result = await self.agents.run("rev-parse", "-q", "--verify", "HEAD^{commit}", allowed=(0, 1, 128))
        return result.line if result.status == 0 else self.base

    async def commit(self, text: str) -> str:
        """The full id of a commit that somebody named."""
        return await find_commit(self.repository, text)


async def find_commit(git: Git, text: str) -> str:
    """The full id of a commit that somebody named; NotFound when there is none."""
    try:
        return await git.line("rev-parse", "-q", "--verify", "--end-of-options", text + "^{commit}")
    except (GitFailed, ValueError) as error:
        raise NotFound(
            f"there is no commit {text[:100]!r}", hint="take one that a checkpoint gave, or that git log shows"
        ) from error


def private_git(folder: Path, repository: Path, tree: Path, *, lock: int | None = None) -> Git:
    """Git with a private folder on the objects of a repository."""
    return Git(
        tree,
        {
            "GIT_DIR": str(folder),
            "GIT_WORK_TREE": str(tree),
            "GIT_INDEX_FILE": str(folder / "index"),
            "GIT_OBJECT_DIRECTORY": str(repository / "objects"),
        },
        lock=lock,
    )


def lay_out(folder: Path, *, object_format: str, excludes: bytes = b"", attributes: bytes = BYTES_AS_THEY_ARE) -> None:
    """A private git folder: everything but objects."""
    for name in ("refs", "info"):
        (folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    sha256 = object_format != "sha1"
    config = f"[core]\n\trepositoryFormatVersion = {1 if sha256 else 0}\n\tbare = false\n"
    if sha256:
        config += f"[extensions]\n\tobjectFormat = {object_format}\n"
    write_whole(folder / "config", config.encode())
    write_whole(folder / "info" / "attributes", attributes)
    write_whole(folder / "info" / "exclude", excludes)
    write_whole(folder / "HEAD", b"ref: refs/heads/none\n")


def folder_of(root: Path, name: str) -> Path:
    """Where maos keeps what belongs to a workspace."""
    return root / PRIVATE / name


def lock_of(root: Path, name: str) -> Path:
    """The lock of a workspace. No name ends in `.lock`."""
    return root / PRIVATE / f"{name}.lock"


@asynccontextmanager
async def opened(workspace: Workspace) -> AsyncIterator[WorkspaceFolder]:
    """The workspace, for us alone until the end of the block."""
    if workspace.in_place:
        raise InvalidInput(
            f"{workspace.path} is not in a git repository, so nothing of it is saved",
            hint="run git init there and start again",
        )
    root = workspace.tree.parent
    folder = folder_of(root, workspace.name)
    if not (root / PRIVATE).is_dir():
        raise _missing(workspace)
    async with held(lock_of(root, workspace.name)) as lock:
        if not folder.is_dir():
            lock_of(root, workspace.name).unlink()  # or a workspace that is gone leaves a file for ever
            raise _missing(workspace)
        yield WorkspaceFolder(workspace, folder, lock)


def _missing(workspace: Workspace) -> NotFound:
    return NotFound(
        f"workspace {workspace.name} is not at {workspace.tree}",
        hint="prepare it again, from its last checkpoint (refs/maos in the repository) if there is one",
    )


def is_there(path: Path | bytes) -> bool:
    """Whether there is anything of that name, a link that leads nowhere included."""
    return os.path.lexists(path)


def write_whole(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Write a file so that after any crash it is the old one or the new one."""
    new = path.with_name(path.name + ".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(new, path)


def sync_folder(folder: Path) -> None:
    """Make names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
