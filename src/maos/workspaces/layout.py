"""Where a workspace is, and what maos keeps beside it.

Beside the tree that an agent works in, maos has a private git folder (`WorkspaceFolder.folder`) with an index, a HEAD
and a configuration of its own, over the objects of the user's repository. So a checkpoint never reads the configuration
of the repository (which may name programs to run), never touches the index or HEAD of the agent's own git, and saves
the bytes of the files as they are: attributes that convert line ends or run filters are off.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from maos import settings
from maos.errors import InvalidInput, MaosError, NotFound
from maos.files import private_folder, replace_file
from maos.model.events.parts import WorkspaceData
from maos.patterns import regex
from maos.tuples import NamedTuple
from maos.workspaces.git import Git, GitFailed, lock_file

FILE_BYTES_MAX = settings.FILE_BYTES_MAX
MERGES_READ_MAX = 50
"""How many merges of a workspace are looked at: into one branch after the other."""
ROOT = "workspaces"
"""The folder of all worktrees below that of a database for the files of agents."""
PRIVATE = ".maos"
PRODUCTS, PREPARED = "products.json", "prepared"
"""Files in the private folder of a workspace that say that its setup is complete, or that it was prepared."""
BYTES_AS_THEY_ARE = b"* -text !eol !crlf !ident !filter !working-tree-encoding\n"
_NAME = regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_OBJECT = regex(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class UnsavedWork(MaosError):
    """Files that are saved nowhere else would be lost; nothing was changed."""

    hint = "take a checkpoint, or move the files named here elsewhere, and try again"

    def __init__(self, what: str, files: tuple[str, ...], *, hint: str | None = None) -> None:
        shown = ", ".join(files[:5]) + (f" and {len(files) - 5} more" if len(files) > 5 else "")
        super().__init__(f"{what}: {shown}" if files else what, hint=hint)
        self.files = files


class Workspace(NamedTuple):
    """The folder an attempt works in. Plain data; the journal stores it as `to_data` returns it."""

    name: str
    path: Path
    """Where the agent is started: the tree, or the folder in it that corresponds to the one maos was called in."""
    tree: Path
    """The root of the worktree; outside git the folder itself."""
    repository: Path | None
    """The git folder whose objects and refs are used; None outside git."""
    gitdir: Path | None
    """The folder of this worktree in the repository."""
    base: str | None
    """The commit that the work is compared with and merged from."""
    notes: tuple[str, ...] = ()
    """What the user should know: files that are not in it, guarantees that do not hold."""
    file_bytes_max: int = FILE_BYTES_MAX
    keep_ignored: tuple[str, ...] = ()

    @property
    def in_place(self) -> bool:
        """Whether the agent works in the user's own folder, without checkpoints."""
        return self.repository is None

    def to_data(self) -> WorkspaceData:
        """Return the workspace as JSON data."""
        return msgspec.convert(msgspec.to_builtins(self._asdict(), enc_hook=str), WorkspaceData)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Workspace:
        """Return the workspace that `to_data` has encoded, wherever it is."""
        check_workspace_name(data["name"])
        found = msgspec.convert([data[name] for name in cls._fields], cls, dec_hook=lambda kind, value: kind(value))
        for path in (found.path, found.tree, found.repository, found.gitdir):
            if path is not None and (not path.is_absolute() or ".." in path.parts):
                raise InvalidInput(f"{path} cannot be a folder of workspace {found.name}", hint="it is not absolute")
        return found

    @classmethod
    def located(cls, data: Mapping[str, Any], home: Path) -> Workspace:
        """Return a workspace that an event names; InvalidInput unless its tree is where maos makes the trees.

        Events can come from elsewhere. `home` is the folder of this database for the files of agents; those of other
        databases of this user are accepted too, as a database can be moved.
        """
        found = cls.from_data(data)
        if found.in_place:
            return found
        if found.tree.name != found.name or not settings.is_own_folder(found.tree, ROOT, home):
            raise InvalidInput(
                f"the worktree of {found.name} is at {found.tree}, and not below {home / ROOT}",
                hint="if MAOS_HOME was another folder when it was made, set it to that folder again",
            )
        return found


class WorkspaceState(NamedTuple):
    """The checkpoint that the files were last saved as or restored to."""

    commit: str
    tree: str
    ref: str
    number: int
    """The largest number of a checkpoint of this workspace."""
    head: str
    """The commit that the agent's own HEAD was at."""


def check_workspace_name(name: str) -> str:
    """Return the name, or raise InvalidInput: it becomes the name of a folder and part of a ref."""
    if not _NAME.fullmatch(name) or name.endswith((".", ".lock")) or ".." in name:
        raise InvalidInput(
            f"{name[:100]!r} cannot be the name of a workspace",
            hint="use up to 100 letters, digits, dots, dashes and underscores, beginning with a letter or digit",
        )
    return name


def is_object(text: str) -> bool:
    """Return whether this is the full id of an object, which git cannot take for anything else."""
    return _OBJECT.fullmatch(text) is not None


def refs_of(name: str) -> str:
    """Return the prefix of the hidden refs of a workspace: no branches or tags, never fetched or pushed by default."""
    return f"refs/maos/{name}/"


class WorkspaceFolder:
    """A locked workspace, and the ways to call git for it."""

    def __init__(self, workspace: Workspace, folder: Path, lock: int) -> None:
        assert workspace.repository is not None
        assert workspace.gitdir is not None
        assert workspace.base is not None
        self.workspace = workspace
        self.base = workspace.base
        self.folder = folder
        self.git = private_git(folder, workspace.repository, workspace.tree, lock=lock)
        """Git with the private index, HEAD and configuration, on the files of the workspace."""
        self.repository = Git.of(workspace.repository, lock=lock)
        """Git on the user's repository, for refs."""
        self.agents = Git.of(workspace.gitdir, cwd=workspace.tree, lock=lock)
        """Git with the index and HEAD that the agent's own git uses."""
        self.gitdir = workspace.gitdir
        self.unfilled = folder / "unfilled"
        """A file that exists while the tree is empty because its files are being restored."""

    def state(self) -> WorkspaceState:
        """Return the state that was saved last, aligned; raise NotFound when its file is lost."""
        try:
            state = WorkspaceState(**json.loads((self.folder / "state.json").read_bytes()))
        except (OSError, ValueError, TypeError) as error:
            raise NotFound(
                f"workspace {self.workspace.name} has lost its state file in {self.folder}",
                hint="verify the workspace: it is repaired from its last checkpoint",
            ) from error
        self.align(state)
        return state

    def save_state(self, state: WorkspaceState) -> None:
        """Save which checkpoint the files are at."""
        replace_file(self.folder / "state.json", json.dumps(state._asdict()).encode())
        self.align(state)

    def align(self, state: WorkspaceState) -> None:
        """Undo what a killed process left: remove stale lock files of the private git folder, and set its HEAD."""
        for name in ("index.lock", "HEAD.lock"):
            (self.folder / name).unlink(missing_ok=True)
        head = f"{state.commit}\n".encode()
        if not (self.folder / "HEAD").exists() or (self.folder / "HEAD").read_bytes() != head:
            replace_file(self.folder / "HEAD", head, sync=False)  # if it is lost, it is written again from the state

    async def agents_head(self) -> str:
        """Return the commit that the agent's HEAD is at; the base if it is at none."""
        try:
            text = (self.gitdir / "HEAD").read_text("ascii").strip()
        except (OSError, ValueError):
            return self.base
        return text if is_object(text) else await self.agents.commit_at("HEAD") or self.base


async def find_commit(git: Git, text: str) -> str:
    """Return the full id of the commit that a text names; raise NotFound when there is none."""
    try:
        return await git.line("rev-parse", "-q", "--verify", "--end-of-options", text + "^{commit}")
    except (GitFailed, ValueError) as error:
        raise NotFound(
            f"there is no commit {text[:100]!r}", hint="name the commit of a checkpoint, or one that git log shows"
        ) from error


async def merges(git: Git, name: str) -> AsyncIterator[tuple[str, str]]:
    """Yield for each merge of a workspace the commit that it made and the checkpoint it merged, the newest first."""
    note = await git.commit_at(refs_of(name) + "merged")
    for _ in range(MERGES_READ_MAX if note else 0):
        landed, merged, *before = (await git.line("rev-list", "-n", "1", "--parents", note)).split()[1:]
        yield landed, merged
        if not before:
            return
        note = before[0]


def private_git(folder: Path, repository: Path, tree: Path, *, lock: int | None = None) -> Git:
    """Return git with a private folder on the objects of a repository."""
    variables = {
        "GIT_DIR": str(folder),
        "GIT_COMMON_DIR": str(folder),  # or a file in the folder could name another one, with a configuration
        "GIT_WORK_TREE": str(tree),
        "GIT_INDEX_FILE": str(folder / "index"),
        "GIT_OBJECT_DIRECTORY": str(repository / "objects"),
    }
    return Git(tree, variables, lock=lock)


def create_git_folder(
    folder: Path, *, object_format: str, excludes: bytes = b"", attributes: bytes = BYTES_AS_THEY_ARE
) -> None:
    """Create a private git folder: everything but objects."""
    for name in ("refs", "info"):
        private_folder(folder / name)
    replace_file(folder / "config", _configuration(object_format))
    replace_file(folder / "info" / "attributes", attributes)
    replace_file(folder / "info" / "exclude", excludes)
    replace_file(folder / "HEAD", b"ref: refs/heads/none\n")


def _configuration(object_format: str) -> bytes:
    if object_format == "sha1":
        return b"[core]\n\trepositoryFormatVersion = 0\n\tbare = false\n"
    form = f"[extensions]\n\tobjectFormat = {object_format}\n"
    return b"[core]\n\trepositoryFormatVersion = 1\n\tbare = false\n" + form.encode()


def _reset_configuration(folder: Path, base: str) -> None:
    """Write the configuration and attributes of a private git folder again if they are not those that maos writes.

    They could name programs that git runs: an agent can write to the folder, and a database can name another one.
    """
    wanted = _configuration("sha1" if len(base) == 40 else "sha256")
    for path, content in ((folder / "config", wanted), (folder / "info" / "attributes", BYTES_AS_THEY_ARE)):
        is_ours = path.is_file() and not path.is_symlink() and path.read_bytes() == content
        if os.path.lexists(path) and not is_ours:  # what is missing is repaired by `verify`
            replace_file(path, content)


def read_workspace(folder: Path) -> Workspace | None:
    """Read the workspace of a private folder; None when its creation was not finished."""
    try:
        content = (folder / "workspace.json").read_bytes()
    except FileNotFoundError:
        return None
    try:
        return Workspace.from_data(json.loads(content))
    except (ValueError, KeyError, TypeError) as error:  # it may have work in it, so do not guess
        raise InvalidInput(
            f"{folder / 'workspace.json'} is damaged",
            hint=f"save what you need from {folder.parent.parent / folder.name}, then delete both folders",
        ) from error


def folder_of(root: Path, name: str) -> Path:
    """Return the private folder of a workspace."""
    return root / PRIVATE / name


def lock_of(root: Path, name: str) -> Path:
    """Return the lock file of a workspace. No workspace name ends in `.lock`."""
    return root / PRIVATE / f"{name}.lock"


@asynccontextmanager
async def open_locked(workspace: Workspace) -> AsyncIterator[WorkspaceFolder]:
    """Open a workspace and hold its lock until the end of the block."""
    if workspace.in_place:
        raise InvalidInput(
            f"{workspace.path} is not in a git repository, so nothing of it is saved",
            hint="run git init there and start again",
        )
    root = workspace.tree.parent
    folder = folder_of(root, workspace.name)
    if not (root / PRIVATE).is_dir():
        raise missing(workspace)
    async with lock_file(lock_of(root, workspace.name)) as lock:
        if not folder.is_dir():
            lock_of(root, workspace.name).unlink()  # or the lock of a removed workspace would stay for ever
            raise missing(workspace)
        place = WorkspaceFolder(workspace, folder, lock)
        _reset_configuration(folder, place.base)
        yield place


def missing(workspace: Workspace) -> NotFound:
    """The error for a workspace of which nothing is on disk."""
    return NotFound(
        f"workspace {workspace.name} is not at {workspace.tree}",
        hint="prepare it again, from its last checkpoint (under refs/maos in the repository) if there is one",
    )
