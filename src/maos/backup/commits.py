"""The files of agents in a backup: commits of git repositories, as git bundles that build on one another.

    STORE/commits/REPOSITORY/index     the bundles of a repository in their order, replaced by compare-and-swap
    STORE/commits/REPOSITORY/SHA256    a git bundle, named by its content

An event that names a commit is in the backup only after the commit is. The first bundle of a repository has the whole
history that the commits need; the others have what is new. `git bundle unbundle` reads them without maos.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from maos.backup.locations import OBJECT_BYTES_MAX, Location
from maos.backup.segments import damaged
from maos.engine.streams import ATTEMPT, RUN
from maos.errors import Conflict, InvalidInput, MaosError
from maos.faults import crash_point
from maos.journal.journal import Journal
from maos.model.attempt import Attempt
from maos.model.events import EVENTS
from maos.model.run import Run
from maos.store.contract import Recorded
from maos.tuples import NamedTuple
from maos.workspaces import Workspace, check_workspace_name, commits, discover, is_object
from maos.workspaces.git import GitFailed

FORMAT = 1


class BundleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle of commits."""

    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    bytes: int
    refs: dict[str, str]


class CommitIndex(msgspec.Struct, frozen=True, kw_only=True):
    """The bundles of one repository."""

    format: Annotated[int, msgspec.Meta(ge=1, le=FORMAT)] = FORMAT
    repository: str
    """The git folder on the machine that was backed up."""
    object_format: str
    bundles: list[BundleEntry] = []

    @property
    def refs(self) -> dict[str, str]:
        """What was saved last under each name."""
        return {ref: commit for bundle in self.bundles for ref, commit in bundle.refs.items()}


class _Repository(msgspec.Struct):
    """A repository that is shipped: the names of its workspaces, and what is in the backup."""

    id: str
    names: set[str]
    merged: dict[str, str]
    """The merged work of runs, by the refs that it gets in the backup."""
    index: CommitIndex | None = None
    tag: str = ""


class CommitShipper:
    """Ships the commits that the events of a journal name."""

    def __init__(self, journal: Journal, location: Location, store: str) -> None:
        self._journal = journal
        self._location = location
        self._store = store
        self._repositories: dict[str, _Repository] = {}
        self._known: dict[str, str] = {}
        """The repository of each stream that was looked at."""
        self.problems: dict[str, str] = {}
        """Why the commits of a repository are not in the backup."""

    async def ship(self, events: Iterable[Recorded]) -> int:
        """Ship what agents have saved in the repositories that these events are about; return how many bytes."""
        touched: set[str] = set()
        for stream in dict.fromkeys(event.stream for event in events if event.type in EVENTS):
            if stream.startswith(("attempt/", "run/")) and (repository := await self._repository_of(stream)):
                touched.add(repository)
        written = 0
        for repository in sorted(touched):
            try:
                written += await self._ship(Path(repository), self._repositories[repository])
                self.problems.pop(repository, None)
            except (InvalidInput, GitFailed, OSError) as error:  # a repository that was moved, or is a shallow clone
                self.problems[repository] = error.what if isinstance(error, MaosError) else str(error)
        return written

    async def _repository_of(self, stream: str) -> str:
        if stream in self._known:
            return self._known[stream]
        kind, _, id = stream.partition("/")
        found: Attempt | Run | None = await (ATTEMPT if kind == "attempt" else RUN).load(self._journal, id)
        data = found.options.get("workspace") if isinstance(found, Run) else found and found.workspace
        if not data or not data.get("repository"):
            return ""  # it may have one later
        workspace = Workspace.from_data(data)
        repository = str(workspace.repository)
        made = _Repository(hashlib.sha256(repository.encode()).hexdigest()[:32], set(), {})
        known = self._repositories.setdefault(repository, made)
        known.names.add(workspace.name)
        if isinstance(found, Run):  # its merged work moves on
            known.merged |= {f"refs/maos/{id}/bundle": found.commit} if is_object(found.commit or "") else {}
        else:
            self._known[stream] = repository
        return repository

    async def _ship(self, repository: Path, known: _Repository) -> int:
        if known.index is None:
            known.index, known.tag = await read_index(self._location, self._store, known.id)
        object_format = await commits.object_format(repository)
        index = known.index or CommitIndex(repository=str(repository), object_format=object_format)
        saved = await commits.known(repository)
        wanted = {ref: commit for ref, commit in saved.items() if ref.split("/")[2] in known.names} | known.merged
        shipped = index.refs
        new = {ref: commit for ref, commit in wanted.items() if shipped.get(ref) != commit}
        if not new:
            return 0
        content = await _bundle(repository, new, sorted(set(shipped.values())))
        entry = BundleEntry(sha256=hashlib.sha256(content).hexdigest(), bytes=len(content), refs=new)
        await self._location.create(f"{self._store}/commits/{known.id}/{entry.sha256}", content)
        crash_point("backup: commits written, not counted")
        index = msgspec.structs.replace(index, bundles=[*index.bundles, entry])
        name = f"{self._store}/commits/{known.id}/index"
        tag = await self._location.replace(name, msgspec.json.encode(index), tag=known.tag)
        if tag is None:
            known.index = None
            what = f"another process writes the backup of this database at {self._location.name}"
            raise Conflict(name, what=what, hint="end it, or wait until it ends: `maos backup status`")
        known.index, known.tag = index, tag
        return len(content)


async def _bundle(repository: Path, refs: Mapping[str, str], without: list[str]) -> bytes:
    """Return a git bundle of commits, without what commits of earlier bundles have."""
    with tempfile.TemporaryDirectory(prefix="maos-backup-") as folder:
        head, pack = await commits.pack(repository, refs, Path(folder), without=without)
        content = head + await asyncio.to_thread(pack.read_bytes)
    if len(content) > OBJECT_BYTES_MAX:
        raise InvalidInput(f"the commits of {repository} come to {len(content) >> 20} MB, more than a backup can hold")
    return content


async def read_index(location: Location, store: str, id: str) -> tuple[CommitIndex | None, str]:
    """Return the index of a repository, and the tag to replace it by; None and nothing when there is none."""
    name = f"{store}/commits/{id}/index"
    found = await location.read(name)
    if found is None:
        return None, ""
    try:
        return msgspec.json.decode(found.content, type=CommitIndex), found.tag
    except msgspec.MsgspecError as error:
        raise damaged(f"{location.name}/{name}", str(error)) from error


class RestoredCommits(NamedTuple):
    """Commits that a repository has got from a backup."""

    repository: str
    """That of the backup."""
    into: str
    refs: int


async def find_indexes(location: Location, store: str) -> AsyncIterator[tuple[str, CommitIndex]]:
    """Yield the repositories of a backup, by their ids."""
    async for name in location.names(f"{store}/commits/"):
        if name.endswith("/index"):
            id = name.split("/")[-2]
            index, _tag = await read_index(location, store, id)
            if index is not None:
                yield id, index


async def take(location: Location, store: str, id: str, index: CommitIndex, into: Path) -> RestoredCommits:
    """Have a repository take the commits of a backup, after a strict check of every object; again, and it is whole."""
    count, target = 0, await discover(into)
    if target is None or target.object_format != index.object_format:
        what = f"{into} is in no git repository" if target is None else f"{into} names its objects otherwise"
        raise InvalidInput(what, hint=f"give a clone of the repository that was backed up, {index.repository}")
    for bundle in index.bundles:
        _check_refs(location, store, id, bundle.refs)
        name = f"{store}/commits/{id}/{bundle.sha256}"
        found = await location.read(name)
        if found is None or hashlib.sha256(found.content).hexdigest() != bundle.sha256:
            raise damaged(f"{location.name}/{name}", "it is missing, or does not match its name")
        _head, separator, pack = found.content.partition(b"\n\n")
        with tempfile.TemporaryDirectory(prefix="maos-restore-") as folder:
            path = Path(folder) / "pack"
            await asyncio.to_thread(path.write_bytes, pack if separator else b"")
            count += await commits.take(target.repository, path, bundle.refs)
    return RestoredCommits(index.repository, str(into), count)


def _check_refs(location: Location, store: str, id: str, refs: Mapping[str, str]) -> None:
    """Raise Corrupt unless these are names and commits as workspaces have them: the index can come from anywhere."""
    for ref, commit in refs.items():
        parts = ref.split("/")
        try:
            fits = len(parts) == 4 and parts[:2] == ["refs", "maos"] and is_object(commit)
            check_workspace_name(parts[2])
            check_workspace_name(parts[3])
        except (InvalidInput, IndexError):
            fits = False
        if not fits:
            raise damaged(f"{location.name}/{store}/commits/{id}/index", f"{ref[:100]!r} cannot name a checkpoint")
