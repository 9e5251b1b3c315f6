"""Imports what a bundle holds into the journal: all of it in one append, or nothing yet.

Importing again is harmless. Events are compared without what is of one machine, so a run that comes back from another
one brings what was done there, and only that. When both sides have new events, nothing is mixed: it is refused.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO, NamedTuple

from maos.clock import Clock
from maos.engine import ownership
from maos.errors import Conflict, InvalidInput
from maos.faults import crash_point
from maos.ids import event_id
from maos.journal.journal import Append, Journal, Record
from maos.model.attempt import Attempt
from maos.model.events.core import EventBase
from maos.model.events.records import BundleImported
from maos.model.message import inbox
from maos.model.run import Run, bundle_stream, owners
from maos.model.workflow import WorkflowRun
from maos.store.contract import Lease
from maos.transfer import contents, membership, validation
from maos.transfer.contents import Contents, Manifest
from maos.transfer.file import CHUNK_BYTES, GIT_BYTES_MAX, JOURNAL_BYTES_MAX, BundleReader, damaged
from maos.transfer.rebase import Rebaser, RebaseTarget, digest
from maos.transfer.validation import Checked
from maos.workspaces import commits, discover

TRIES_MAX = 5
ELSEWHERE = "import it into another database: `maos --db OTHER.db admin import FILE`"
FILE_BYTES_MAX = JOURNAL_BYTES_MAX + GIT_BYTES_MAX
NEW, MORE, SAME, MOVED_ON = "new", "more", "same", "moved_on"
"""What an import does: it is new; it has more events; all of it was here; it was continued here since."""


class Imported(NamedTuple):
    """What was brought here, or would be."""

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


class Opened(NamedTuple):
    """A bundle that was read and found to be in order."""

    reader: BundleReader
    contents: Contents
    checked: Checked


@contextmanager
def opened(path: Path, journal: Journal) -> Iterator[Opened]:
    """A bundle for the length of a block: all checksums compared, everything in it looked through."""
    with _readable(path) as file:
        reader = BundleReader(file, str(path))
        found = contents.read(reader, str(path), journal.codec)
        if (found.git is None) != (not found.manifest.refs):
            raise damaged(str(path), "it has commits without names, or names without commits")
        yield Opened(reader, found, validation.check(found))


@contextmanager
def _readable(path: Path) -> Iterator[BinaryIO]:
    """A file that can be read more than once: what comes through a pipe is put into one first."""
    with path.open("rb") as file:
        if path.is_file():
            yield file
            return
        with tempfile.TemporaryFile(prefix="maos-import-") as copy:
            size = 0
            while piece := file.read(CHUNK_BYTES):
                size += len(piece)
                if size > FILE_BYTES_MAX:
                    raise damaged(str(path), "it is larger than a bundle can be")
                copy.write(piece)
            copy.seek(0)
            yield copy


class BundleImporter:
    """Imports bundles into a journal, for work that is resumed in a folder."""

    def __init__(self, journal: Journal, clock: Clock, *, folder: Path, home: Path) -> None:
        self._journal = journal
        self._clock = clock
        self._folder = folder
        self._home = home

    async def bring(self, bundle: Opened, *, dry_run: bool = False) -> Imported:
        """Bring what is new in a bundle."""
        manifest, checked = bundle.contents.manifest, bundle.checked
        digests = {name: [digest(event) for event in events] for name, events in bundle.contents.streams.items()}
        for _ in range(TRIES_MAX):
            versions = await self._compare(manifest, checked, digests)
            new = {name: len(digests[name]) - known for name, known in versions.items()}
            what = _what(versions, digests, new)
            sha256, newest = bundle.reader.sha256, _newest(checked)
            waiting = bundle.contents.streams.get(inbox(manifest.id), [])[checked.root.inbox_cursor :]
            commands = [each.event for each in waiting]
            brought = Imported(what, manifest, checked.root, sha256, sum(new.values()), 0, newest, commands)
            if what in (SAME, MOVED_ON):
                return brought._replace(events=0)
            place = await self._place(bundle, is_new=what == NEW)
            if dry_run:
                return brought._replace(refs=await self._missing(place, manifest))
            if what == MORE:
                await self._check_idle(manifest)
            crash_point("import:checked")
            refs = await self._take(bundle, place)
            try:
                await self._write(bundle, place, versions)
            except Conflict:
                continue  # another process imports or resumes it now
            return brought._replace(refs=refs)
        raise InvalidInput(f"{manifest.id} changes all the time", hint="pause it, and import again")

    # --- what is here ----------------------------------------------------------------------------------------

    async def _compare(self, manifest: Manifest, checked: Checked, digests: dict[str, list[bytes]]) -> dict[str, int]:
        """How many events of each stream are here; InvalidInput where they are others, or of another run."""
        await self._check_names(manifest, checked, digests)
        versions, ahead = {}, ""
        async for name in membership.streams(self._journal, checked.members):
            if name not in digests:
                ahead = ahead or name
        for name, expected in digests.items():
            here = [digest(each) async for each in self._journal.read(name) if each.type != "compacted"]  # fmt: skip
            known = min(len(here), len(expected))
            if here[:known] != expected[:known]:
                at = next(number for number in range(known) if here[number] != expected[number])
                raise InvalidInput(
                    f"{manifest.id} is here already, and is another one: {event_id(name, at + 1)} differs",
                    hint=ELSEWHERE,
                )
            if len(here) > len(expected):
                ahead = ahead or name
            versions[name] = len(here)
        behind = next((name for name, count in versions.items() if count < len(digests[name])), "")
        if ahead and behind:
            raise InvalidInput(
                f"{manifest.id} was continued here and there: {ahead} has more here, {behind} in the bundle",
                hint=ELSEWHERE,
            )
        return versions

    async def _check_names(self, manifest: Manifest, checked: Checked, digests: dict[str, list[bytes]]) -> None:
        """Nothing is written below a name that is something else's here."""
        roots = checked.members.roots
        for name in sorted(roots):
            if await self._journal.version(f"{manifest.kind}/{name}"):
                continue
            members = membership.Members(frozenset((name,)), frozenset())
            async for other in membership.streams(self._journal, members):
                raise InvalidInput(
                    f"there is something else called {name} here: {other}",
                    hint=ELSEWHERE,
                )
        others = set[str]()
        for each in digests:
            whose = membership.split(each)
            assert whose is not None
            others.update(name for name in membership.dotted(whose[1]) if name not in roots)
        for name in sorted(others):
            for family in ("run", "workflow"):
                if f"{family}/{name}" not in digests and await self._journal.version(f"{family}/{name}"):
                    raise InvalidInput(
                        f"{family}/{name} is here, and is none of {manifest.id}",
                        hint=ELSEWHERE,
                    )

    async def _check_idle(self, manifest: Manifest) -> None:
        """Refuse while an engine executes it here: what is written beside that engine would end it."""
        lease = await self._journal.acquire(manifest.stream, ttl_s=1.0)
        if lease is None:
            hint = f"`maos pause {manifest.id}`, and import again"
            raise InvalidInput(f"{manifest.id} is being executed here", hint=hint)
        await self._journal.release(lease)

    # --- this machine ----------------------------------------------------------------------------------------

    async def _place(self, bundle: Opened, *, is_new: bool) -> RebaseTarget:
        manifest, checked = bundle.contents.manifest, bundle.checked
        folder = await asyncio.to_thread(self._folder.resolve)
        target = await discover(folder)
        if _in_git(bundle) and target is None:
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
            names = {manifest.id, *(each.agent for each in checked.attempts.values())}
            await asyncio.to_thread(_check_free, place, sorted(names))
        return place

    async def _missing(self, place: RebaseTarget, manifest: Manifest) -> int:
        if place.repository is None or not manifest.refs:
            return 0
        return len(commits.missing(await commits.known(place.repository), manifest.refs))

    async def _take(self, bundle: Opened, place: RebaseTarget) -> int:
        """Have the repository of this machine take in the commits."""
        part, refs = bundle.contents.git, bundle.contents.manifest.refs
        if part is None or place.repository is None or not await self._missing(place, bundle.contents.manifest):
            return 0
        head = commits.head(refs, bundle.contents.manifest.object_format)
        if bundle.reader.beginning(part, len(head)) != head:
            raise damaged("the bundle", "its commits are not those that it names")
        with tempfile.TemporaryDirectory(prefix="maos-import-") as folder:
            path = Path(folder) / "pack"
            with path.open("wb") as pack:
                await asyncio.to_thread(bundle.reader.copy, part, pack, after=len(head))
            return await commits.take(place.repository, path, refs)

    async def _write(self, bundle: Opened, place: RebaseTarget, versions: dict[str, int]) -> None:
        manifest, checked, streams = bundle.contents.manifest, bundle.checked, bundle.contents.streams
        rebaser = Rebaser(place, streams, manifest.id, checked.members)
        own = manifest.stream
        new, later = _in_order(bundle.contents, versions, own)
        noted = BundleImported(
            sha256=bundle.reader.sha256,
            made_by=manifest.made_by,
            made_us=manifest.made_us,
            version=len(streams[own]),
            events=len(new),
            later=later,
            at_us=self._clock.now_us(),
        )
        appends = [Append(bundle_stream(manifest.id), [noted])]  # first: its position tells theirs
        expected: dict[str, int | None] = dict(versions)
        for name, found in groupby(new, key=itemgetter(0)):
            events = [rebaser.rebase(event) for _name, event in found]
            appends.append(Append(name, events, expected=expected.pop(name, None)))
        appends += [Append(name, [], expected=version) for name, version in expected.items()]
        pointer = BundleImported(of=manifest.id, at_us=noted.at_us)
        members = checked.members
        apart = sorted(name for name in members.roots | members.also if manifest.id not in owners(name))
        appends += [Append(bundle_stream(name), [pointer]) for name in apart]
        crash_point("import:before append")
        await self._journal.append_all(appends)
        crash_point("import:after append")


def _in_order(
    bundle: Contents, versions: Mapping[str, int], own: str
) -> tuple[list[tuple[str, Record]], dict[str, int]]:
    """The events that are not here yet, as they were recorded, all streams together; and for versions of the run how
    many events came with them in the same append, which belong to the same point in time."""
    counts = dict.fromkeys(bundle.streams, 0)
    lines: list[tuple[str, int, int]] = []
    for name, time_us in zip(bundle.order, bundle.times_us, strict=True):
        counts[name] += 1
        if counts[name] > versions[name]:
            lines.append((name, counts[name], time_us))
    later: dict[str, int] = {}
    for number, (name, version, time_us) in enumerate(lines):
        if name != own:
            continue
        end, others = number + 1, False
        while end < len(lines) and lines[end][2] == time_us and not (others and lines[end][0] == own):
            others = others or lines[end][0] != own
            end += 1
        if end > number + 1:
            later[str(version)] = end - number - 1
    return [(name, bundle.streams[name][version - 1]) for name, version, _time_us in lines], later


def _newest(checked: Checked) -> dict[str, Attempt]:
    return {each.agent: each for each in sorted(checked.attempts.values(), key=lambda one: one.number)}


def _what(versions: dict[str, int], digests: dict[str, list[bytes]], new: dict[str, int]) -> str:
    if not any(versions.values()):
        return NEW
    if any(count > 0 for count in new.values()):
        return MORE
    return MOVED_ON if any(count > len(digests[name]) for name, count in versions.items()) else SAME


def _in_git(bundle: Opened) -> bool:
    """Whether the files of the run are in worktrees, and not in a folder as it is."""
    root, attempts = bundle.checked.root, bundle.checked.attempts.values()
    has_workspace = isinstance(root, Run) and bool(root.options.get("workspace"))
    return (
        has_workspace
        or bool(bundle.contents.manifest.refs)
        or any(each.workspace.get("repository") is not None for each in attempts)
    )


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
