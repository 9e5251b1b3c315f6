"""Imports what a bundle holds into the journal: all of it in one append, or nothing yet.

Importing again is harmless. Events are compared without what is of one machine, so a run that comes back from another
one brings what was done there, and only that. When both sides have new events, nothing is mixed: it is refused.

Machine-specific parts of events (folders, processes, owners) are ignored when events are compared, and replaced when
they are imported, so that no path and no process of a file is ever used here. `maos.model.events` declares which they
are. Tool servers and variables that an agent was given are removed: the engine that resumes it gives them again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from maos.clock import Clock
from maos.engine import ownership
from maos.engine.attempt_spec import ASKED
from maos.errors import Conflict, Corrupt, InvalidInput
from maos.faults import crash_point
from maos.ids import event_id
from maos.journal.codec import Data, Event
from maos.journal.journal import Append, Journal, Record
from maos.model.attempt import Attempt, attempt_id
from maos.model.events.attempt import AttemptBranched, AttemptMoved, AttemptPlanned
from maos.model.events.core import EventBase, local_fields
from maos.model.events.parts import Local, Owner
from maos.model.events.records import BundleImported
from maos.model.message import inbox
from maos.model.run import BESIDE, Run, bundle_stream, dotted
from maos.model.tool_calls import NAME as TOOL_SERVER
from maos.model.workflow import WorkflowRun
from maos.store.contract import Lease
from maos.transfer import bundle, validation
from maos.transfer.bundle import Manifest, damaged
from maos.transfer.validation import Members
from maos.tuples import NamedTuple
from maos.workspaces import Workspace, commits, discover, is_object

TRIES_MAX = 5
ELSEWHERE = "import it into another database: `maos --db OTHER.db admin import FILE`"
FILE_BYTES_MAX = bundle.JOURNAL_BYTES_MAX + bundle.GIT_BYTES_MAX
NEW, MORE, SAME, MOVED_ON = "new", "more", "same", "moved_on"
"""What an import does: it is new; it has more events; all of it was here; it was continued here since."""


class Imported(NamedTuple):
    """What an import has imported, or would import."""

    what: str
    manifest: Manifest
    root: Run | WorkflowRun
    """The run or the workflow, as it is in the bundle."""
    sha256: str
    events: int
    """How many came."""
    refs: int
    """How many commits came that agents had saved."""
    attempts: Mapping[str, Attempt]
    """The newest attempt of each agent, as it is in the bundle."""
    commands: Sequence[EventBase]
    """What is in the inbox of the run there, and no engine has executed."""


@contextmanager
def readable(path: Path) -> Iterator[BinaryIO]:
    """A file that can be read more than once: what comes through a pipe is put into one first."""
    with path.open("rb") as file:
        if path.is_file():
            yield file
            return
        with tempfile.TemporaryFile(prefix="maos-import-") as copy:
            size = 0
            while piece := file.read(bundle.CHUNK_BYTES):
                size += len(piece)
                if size > FILE_BYTES_MAX:
                    raise damaged(str(path), "it is larger than a bundle can be")
                copy.write(piece)
            copy.seek(0)
            yield copy


class BundleImporter:
    """Imports a bundle into a journal, for work that is resumed in a folder."""

    def __init__(self, journal: Journal, clock: Clock, file: BinaryIO, name: str, *, folder: Path, home: Path) -> None:
        """Reads all of the file: all checksums are compared, and everything in it is looked through."""
        self._journal = journal
        self._clock = clock
        self._reader = bundle.BundleReader(file, name)
        self._contents = bundle.read(self._reader, name, journal.codec)
        self._manifest = self._contents.manifest
        if (self._contents.git is None) != (not self._manifest.refs):
            raise damaged(name, "it has commits without names, or names without commits")
        self._root, self._members, self._attempts = validation.check(self._contents)
        self._folder = folder
        self._home = home

    async def bring(self, *, dry_run: bool = False) -> Imported:
        """Bring what is new in the bundle."""
        manifest, root, streams = self._manifest, self._root, self._contents.streams
        digests = {name: [digest(event) for event in events] for name, events in streams.items()}
        newest = {each.agent: each for each in sorted(self._attempts.values(), key=lambda one: one.number)}
        commands = [each.event for each in streams.get(inbox(manifest.id), [])[root.inbox_cursor :]]
        for _ in range(TRIES_MAX):
            versions = await self._compare(digests)
            new = {name: len(digests[name]) - known for name, known in versions.items()}
            what = _what(versions, new)
            brought = Imported(what, manifest, root, self._reader.sha256, sum(new.values()), 0, newest, commands)
            if what in (SAME, MOVED_ON):
                return brought._replace(events=0)
            place = await self._place(is_new=what == NEW)
            if dry_run:
                return brought._replace(refs=await self._missing(place))
            if what == MORE:
                await self._check_idle()
            crash_point("import:checked")
            refs = await self._take(place)
            try:
                await self._write(place, versions)
            except Conflict:
                continue  # another process imports or resumes it now
            return brought._replace(refs=refs)
        raise InvalidInput(f"{manifest.id} changes all the time", hint="pause it, and import again")

    # --- what is here ----------------------------------------------------------------------------------------

    async def _compare(self, digests: dict[str, list[bytes]]) -> dict[str, int]:
        """How many events of each stream are here; InvalidInput where they are others, or of another run."""
        await self._check_names(digests)
        id, versions, ahead = self._manifest.id, {}, ""
        async for name in validation.streams(self._journal, self._members):
            if name not in digests:
                ahead = ahead or name
        for name, expected in digests.items():
            here = [digest(each) async for each in self._journal.read(name) if each.type != "compacted"]  # fmt: skip
            known = min(len(here), len(expected))
            if here[:known] != expected[:known]:
                at = next(number for number in range(known) if here[number] != expected[number])
                what = f"{id} is here already, and is another one: {event_id(name, at + 1)} differs"
                raise InvalidInput(what, hint=ELSEWHERE)
            if len(here) > len(expected):
                ahead = ahead or name
            versions[name] = len(here)
        behind = next((name for name, count in versions.items() if count < len(digests[name])), "")
        if ahead and behind:
            what = f"{id} was continued here and there: {ahead} has more here, {behind} in the bundle"
            raise InvalidInput(what, hint=ELSEWHERE)
        return versions

    async def _check_names(self, names: Iterable[str]) -> None:
        """Nothing is written below a name that is something else's here."""
        roots = self._members.roots
        for name in sorted(roots):
            if await self._journal.version(f"{self._manifest.kind}/{name}"):
                continue
            async for other in validation.streams(self._journal, Members(frozenset((name,)), frozenset())):
                raise InvalidInput(f"there is something else called {name} here: {other}", hint=ELSEWHERE)
        others = set[str]()
        for each in names:
            whose = validation.split(each)
            assert whose is not None
            others.update(name for name in dotted(whose[1]) if name not in roots)
        for name in sorted(others):
            for family in ("run", "workflow"):
                if f"{family}/{name}" not in names and await self._journal.version(f"{family}/{name}"):
                    raise InvalidInput(f"{family}/{name} is here, and is none of {self._manifest.id}", hint=ELSEWHERE)

    async def _check_idle(self) -> None:
        """Refuse while an engine executes it here: what is written beside that engine would end it."""
        lease = await self._journal.acquire(self._manifest.stream, ttl_s=1.0)
        if lease is None:
            hint = f"`maos pause {self._manifest.id}`, and import again"
            raise InvalidInput(f"{self._manifest.id} is being executed here", hint=hint)
        await self._journal.release(lease)

    # --- this machine ----------------------------------------------------------------------------------------

    async def _place(self, *, is_new: bool) -> RebaseTarget:
        manifest = self._manifest
        folder = await asyncio.to_thread(self._folder.resolve)
        target = await discover(folder)
        if self._is_in_git() and target is None:
            raise InvalidInput(
                f"{self._folder} is not in a git repository, and the files of {manifest.id} are commits",
                hint="give a repository, such as a clone of the one it was made in: --cwd REPOSITORY",
            )
        if target is not None and manifest.refs and target.object_format != manifest.object_format:
            raise InvalidInput(
                f"the repository of {self._folder} names its objects by {target.object_format}, the commits of "
                f"{manifest.id} are named by {manifest.object_format}",
                hint="give a clone of the repository it was made in: --cwd REPOSITORY",
            )
        lease = Lease(f"run/{manifest.id}", self._journal.owner, 0, 0)
        home = await asyncio.to_thread(self._home.resolve)
        repository, prefix = (target.repository, target.prefix) if target is not None else (None, "")
        place = RebaseTarget(folder, home, repository, prefix, ownership.identity(lease))
        if is_new:
            names = {manifest.id, *(each.agent for each in self._attempts.values())}
            await asyncio.to_thread(_check_free, place, sorted(names))
        return place

    def _is_in_git(self) -> bool:
        """Whether the files of the run are in worktrees, and not in a folder as it is."""
        root, attempts = self._root, self._attempts.values()
        if self._manifest.refs or (isinstance(root, Run) and root.options.get("workspace")):
            return True
        return any(each.workspace.get("repository") is not None for each in attempts)

    async def _missing(self, place: RebaseTarget) -> int:
        if place.repository is None or not self._manifest.refs:
            return 0
        return len(commits.missing(await commits.known(place.repository), self._manifest.refs))

    async def _take(self, place: RebaseTarget) -> int:
        """Have the repository of this machine take in the commits."""
        part, refs = self._contents.git, self._manifest.refs
        if part is None or place.repository is None or not await self._missing(place):
            return 0
        head = commits.head(refs, self._manifest.object_format)
        if self._reader.beginning(part, len(head)) != head:
            raise damaged("the bundle", "its commits are not those that it names")
        with tempfile.TemporaryDirectory(prefix="maos-import-") as folder:
            path = Path(folder) / "pack"
            with path.open("wb") as pack:
                await asyncio.to_thread(self._reader.copy, part, pack, after=len(head))
            return await commits.take(place.repository, path, refs)

    async def _write(self, place: RebaseTarget, versions: dict[str, int]) -> None:
        manifest, members, streams = self._manifest, self._members, self._contents.streams
        rebaser = Rebaser(place, self._contents.records, manifest.id, members)
        new = [each for each in self._contents.records if each.version > versions[each.stream]]
        noted = BundleImported(
            sha256=self._reader.sha256,
            made_by=manifest.made_by,
            made_us=manifest.made_us,
            version=len(streams[manifest.stream]),
            events=len(new),
            later=_later(new, manifest.stream),
            by=self._journal.by,
            at_us=self._clock.now_us(),
        )
        appends = [Append(bundle_stream(manifest.id), [noted])]  # first: its position tells theirs
        expected: dict[str, int | None] = dict(versions)
        for name, found in groupby(new, key=attrgetter("stream")):
            appends.append(Append(name, list(map(rebaser.rebase, found)), expected=expected.pop(name, None)))
        appends += [Append(name, [], expected=version) for name, version in expected.items()]
        pointer = BundleImported(of=manifest.id, by=noted.by, at_us=noted.at_us)
        apart = sorted(name for name in members.roots | members.also if manifest.id not in dotted(name))
        appends += [Append(bundle_stream(name), [pointer]) for name in apart]
        crash_point("import:before append")
        await self._journal.append_all(appends)
        crash_point("import:after append")


def _later(new: Sequence[Record], own: str) -> dict[str, int]:
    """For versions of the run, how many events came with them in the same append, which belong to the same point in
    time."""
    later: dict[str, int] = {}
    for number, record in enumerate(new):
        if record.stream != own:
            continue
        end, others = number + 1, False
        while end < len(new) and new[end].time_us == record.time_us and not (others and new[end].stream == own):
            others = others or new[end].stream != own
            end += 1
        if end > number + 1:
            later[str(record.version)] = end - number - 1
    return later


def _what(versions: dict[str, int], new: dict[str, int]) -> str:
    if not any(versions.values()):
        return NEW
    if any(count > 0 for count in new.values()):
        return MORE
    return MOVED_ON if any(count < 0 for count in new.values()) else SAME


def _check_free(place: RebaseTarget, names: list[str]) -> None:
    """Refuse while another run has the worktrees and folders that agents of these names would have."""
    for name in names:
        spots = [place.root / name, place.root / ".maos" / name, place.home / "homes" / name]
        spots += [] if place.repository is None else [place.repository / "worktrees" / name]
        for spot in spots:
            if os.path.lexists(spot):
                raise InvalidInput(
                    f"{spot} is there already: this run is at work on this machine, from another database",
                    hint="give a clone of the repository (--cwd CLONE) and another folder for agents (MAOS_HOME)",
                )


# --- what is of one machine --------------------------------------------------------------------------------------

_REMOVED = object()

Change = Callable[[Any], Any]
"""The new value of a local field by its old one, which is None where there is none; `_REMOVED` removes it."""


class RebaseTarget(NamedTuple):
    """Where an imported run is to be resumed."""

    folder: Path
    """The folder that its agents work in, or begin with a copy of."""
    home: Path
    """Where this machine keeps the files of agents."""
    repository: Path | None
    """The repository that the folder is in."""
    prefix: str
    """The way from the root of the files of the repository to the folder."""
    owner: Owner
    """The importing process, which will have exited when the run is resumed."""

    @property
    def root(self) -> Path:
        """Where worktrees are."""
        return self.home / "workspaces"

    def workspace(self, name: str, base: str | None) -> Workspace:
        """The worktree that an agent or a run will have; nothing is created yet."""
        assert self.repository is not None
        tree = self.root / name
        gitdir = self.repository / "worktrees" / name
        return Workspace(name, tree / self.prefix if self.prefix else tree, tree, self.repository, gitdir, base)


def digest(record: Record) -> bytes:
    """What is the same for the same event on every machine."""
    data = record.data
    for path, _local in local_fields(record.type):
        data = _changed(data, path, lambda _old: _REMOVED)
    return hashlib.sha256(record.type.encode() + b"\0" + msgspec.json.encode(data, order="deterministic")).digest()


def _changed(data: Data, path: tuple[str, ...], change: Change) -> Data:
    """Data with another value at a path; what it does not have stays away, unless the change gives it a value."""
    first, *rest = path
    if first == "*":
        return {name: _changed(each, tuple(rest), change) for name, each in data.items()}
    if rest:
        inner = data.get(first)
        return {**data, first: _changed(inner, tuple(rest), change)} if isinstance(inner, dict) else data
    value = change(data.get(first))
    if value is _REMOVED:
        return {name: each for name, each in data.items() if name != first}
    return {**data, first: value}


class Rebaser:
    """Replaces what events say of another machine by what is true of this one."""

    def __init__(self, place: RebaseTarget, records: Iterable[Record], id: str, members: Members) -> None:
        self._place = place
        self._members = members
        self._id = id
        begun = [_attempt(each) for each in records if isinstance(each.event, (AttemptPlanned, AttemptBranched))]
        in_git = [each for each in begun if each.get("workspace", {}).get("repository") is not None]
        self._in_git = {each.get("agent", "") for each in in_git}

    def rebase(self, record: Record) -> Event:
        """An event as it is to be written here."""
        data, attempt = record.data, _attempt(record)
        changes = self._changes(attempt)
        for path, local in local_fields(record.type):
            data = _changed(data, path, changes[local])
        return Event(record.type, data)

    def _changes(self, attempt: Mapping[str, Any]) -> dict[Local, Change]:
        place = self._place
        found: dict[Local, Change] = {
            Local.OWNER: lambda _: place.owner,
            Local.PROCESS: lambda old: _REMOVED if old is None else 0,
            Local.FOLDER: lambda _: str(place.folder),
            Local.WORKSPACE: lambda old: place.workspace(self._id, base_of(old)).to_data() if old else _REMOVED,
            Local.DEFINITION: lambda _: _REMOVED,  # the file is there, not here
            # Agents of the run that it was forked from did not come with it, and those of others are not for it.
            Local.AGENT: lambda old: old if self._members.has(old or "") else "",
        }
        return found | self._changes_of_attempt(attempt) if attempt else found

    def _changes_of_attempt(self, attempt: Mapping[str, Any]) -> dict[Local, Change]:
        agent, number, home = attempt.get("agent", ""), attempt.get("number", 0), self._place.home
        workspace = self._workspace(agent, attempt.get("workspace"))
        before, cwd = attempt.get("order", {}).get("cwd", ""), str(workspace.path)
        return {
            Local.WORKTREE: lambda _: workspace.to_data(),
            Local.HOLDER: lambda _: str(home / "holders" / attempt_id(agent, number)),
            Local.CWD: lambda _: cwd,
            Local.HOME: lambda _: str(home / "homes" / agent),
            Local.MOVED_FROM: lambda _: before if before != cwd else "",
            Local.SERVERS: lambda old: [
                {"name": TOOL_SERVER, "argv": [], "env": []} for each in old or () if each.get("name") == TOOL_SERVER
            ],
            Local.VARIABLES: lambda _: [],
        }

    def _workspace(self, agent: str, before: Any) -> Workspace:
        """Where an agent works on this machine."""
        if agent in self._in_git:
            return self._place.workspace(agent, base_of(before))
        path, beside = self._place.folder, BESIDE.sub("", agent)
        if beside in self._in_git:  # it checks the files of that one, or resolves a conflict in them
            path = self._place.workspace(beside, None).path
        return Workspace(agent, path, path, None, None, None, (ASKED,))


def _attempt(record: Record) -> Mapping[str, Any]:
    """Whose attempt an event tells of that says where its files are, and what it says; empty for any other event."""
    match record.event:
        case AttemptBranched(state=state):
            return state
        case AttemptPlanned() | AttemptMoved():
            return record.data
    return {}


def base_of(workspace: Any) -> str | None:
    """The commit that a worktree began with."""
    base = workspace.get("base") if isinstance(workspace, Mapping) else None
    if base is None or (isinstance(base, str) and is_object(base)):
        return base
    raise Corrupt(f"{base!r} is no commit", hint="nothing was imported")
