"""Points in time of a run: a version of it, and the position of the journal up to which everything else counts; and how
two of them differ, of one run or of two: tasks, questions, findings, messages, and merged files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from maos import workspaces as workspaces
from maos.bus.history import Bodies
from maos.clock import to_us
from maos.engine.streams import RUN, AttemptReader
from maos.errors import Corrupt, InvalidInput, NotFound
from maos.journal.journal import PAGE_EVENTS, Journal, Record
from maos.model.branch import RunSegment, digest, leads_here, line_of
from maos.model.events.records import BundleImported
from maos.model.message import Message, history
from maos.model.read_models import ChangedField
from maos.model.run import Question, Run, bundle_stream, stream
from maos.patterns import regex
from maos.tuples import NamedTuple
from maos.workspaces import Workspace

T = TypeVar("T")


class PointInTime(NamedTuple):
    """A point in time of a run."""

    run: str
    version: int
    position: int
    time_us: int
    name: str = ""
    """Of the checkpoint that it is, if it is one."""
    digest: str = ""
    """What was recorded of the state when it was current, if anything was."""
    is_now: bool = False
    """Whether it is the present, whenever that is."""

    @property
    def spoken(self) -> str:
        """The point as messages name it."""
        return f"checkpoint {self.name}, version {self.version}" if self.name else f"version {self.version}"


When = PointInTime | int | str | datetime | None
"""How a caller can name a point in time: a version (12, or -1 for the one before the newest), the name of a checkpoint,
"@POSITION" of the journal, a time; None for now."""

_POSITION = regex(r"@([0-9]{1,18})")


async def find(journal: Journal, run: Run, when: When) -> PointInTime:
    """The point in time that is meant."""
    if isinstance(when, PointInTime):
        return when
    if when is None:
        return PointInTime(run.id, run.version, await journal.head(), run.updated_us, is_now=True)
    if isinstance(when, datetime):
        return await at_time(journal, run, to_us(when))
    if isinstance(when, int):
        return await at_version(journal, run, when if when > 0 else run.version + when)
    position = _POSITION.fullmatch(when)
    return await (at_position(journal, run, int(position[1])) if position else named(journal, run, when))


async def last_checkpoint(journal: Journal, run: Run) -> PointInTime:
    """The point in time of the newest checkpoint of a run; one of a branch that was given up is not meant."""
    found = [each.version for each in run.checkpoints if leads_here(run, each.version)]
    if not found:
        raise InvalidInput(
            f"{run.id} has no checkpoints", hint="say which point in time is meant: a version, or a time"
        )
    return await at_version(journal, run, found[-1])


async def at_version(journal: Journal, run: Run, version: int) -> PointInTime:
    """The point in time at which a version was recorded, with what was sent to others in the same append."""
    if not 1 <= version <= run.version:
        raise NotFound(f"{run.id} has no version {version}", hint=f"its versions are 1 to {run.version}")
    own = await journal.event(stream(run.id), version)
    if own is None:
        raise NotFound(f"{run.id} has no version {version}", hint="`maos checkpoint --list` lists some")
    name, state = next(((each.name, each.state) for each in run.checkpoints if each.version == version), ("", ""))
    position = await _imported(journal, run.id, own) or await _end_of_append(journal, own)
    return PointInTime(run.id, version, position, own.time_us, name, state)


async def _imported(journal: Journal, id: str, own: Record) -> int:
    """The same for an event that was imported: all of an import is one append here; 0 when it was not imported."""
    async for record in journal.read(bundle_stream(id)):
        brought = record.event
        if isinstance(brought, BundleImported) and 0 < own.position - record.position <= brought.events:
            return own.position + brought.later.get(str(own.version), 0)
    return 0


async def _end_of_append(journal: Journal, own: Record) -> int:
    """Where the append ends that holds an event of a run: its own events come first, then those for others."""
    position, others = own.position, False
    while True:
        page = await journal.store.read_log(after=position, limit=PAGE_EVENTS)
        for event in page:
            others = others or event.stream != own.stream
            if event.time_us != own.time_us or (others and event.stream == own.stream):
                return position
            position = event.position
        if len(page) < PAGE_EVENTS:
            return position


async def named(journal: Journal, run: Run, name: str) -> PointInTime:
    """The point in time of a checkpoint."""
    for each in run.checkpoints:
        if each.name == name:
            return await at_version(journal, run, each.version)
    raise NotFound(f"{run.id} has no checkpoint {name!r}", hint=f"`maos checkpoint {run.id} --list` lists them")


async def read_until(journal: Journal, stream: str, position: int, *, after: int = 0) -> AsyncIterator[Record]:
    """The events of a stream above a version, up to a position of the journal."""
    async for record in journal.read(stream, after=after):
        if record.position > position:
            break
        yield record


async def at_position(journal: Journal, run: Run, position: int) -> PointInTime:
    """The point in time of a position of the journal: between two versions, agents kept working."""
    version = time_us = 0
    async for record in read_until(journal, stream(run.id), position):
        version, time_us = record.version, record.time_us
    if not version:
        raise NotFound(f"{run.id} did not exist at position {position}", hint="choose a later one")
    return PointInTime(run.id, version, min(position, await journal.head()), time_us)


async def at_time(journal: Journal, run: Run, time_us: int) -> PointInTime:
    """The point in time of a time of day, by the clock of the database."""
    first, last = 0, await journal.head()
    while first < last:  # the last position whose time is not later
        middle = (first + last + 1) // 2
        events = await journal.store.read_log(after=middle - 1, limit=1)
        if events and events[0].time_us <= time_us:
            first = middle
        else:
            last = middle - 1
    if run.created_us > time_us:
        raise NotFound(f"{run.id} did not exist then", hint="choose a later time")
    return await at_position(journal, run, first)


def workspace_of(run: Run, home: Path) -> Workspace | None:
    """The workspace that the work of a run's tasks is merged into; None when its agents work in the folder itself."""
    data = run.options.get("workspace")
    return Workspace.located(data, home) if data else None


def merged_commit(run: Run) -> str:
    """The commit that has the merged work of a run's tasks; empty when there is none."""
    return run.commit or (run.options.get("workspace") or {}).get("base") or ""


async def run_at(journal: Journal, point: PointInTime) -> Run:
    """The run as it was; Corrupt when that is not what was recorded of it at the time (I13).

    What it works on is where it is now: files that were moved since do not move back.
    """
    found = await RUN.at(journal, point.run, version=point.version)
    if found is None or found.version != point.version:
        raise NotFound(f"{point.run} has no version {point.version}", hint="choose another one")
    if point.digest and digest(found) != point.digest:
        raise Corrupt(f"{point.run} at {point.spoken} is not what was recorded then", stream=stream(point.run))
    newest = await RUN.load(journal, point.run)
    if newest is not None and newest.moved > point.version:
        found.folder = newest.folder
        if place := newest.options.get("workspace"):
            found.options = {**found.options, "workspace": place}
    return found


# --- comparison -------------------------------------------------------------------------------------------------


class Side(NamedTuple):
    """A run at a point in time."""

    point: PointInTime
    run: Run
    """As it was then."""
    messages: Mapping[str, Message]
    """What its agents had said by then, by id; what was said in a branch that was given up does not count."""
    findings: Mapping[tuple[str, str], str]
    """What they had found: keywords, by task and text."""


class Difference(NamedTuple):
    """How two sides differ."""

    before: Side
    after: Side
    tasks: list[ChangedField]
    questions: list[ChangedField]
    messages: tuple[list[Message], list[Message]]
    """Those that only the one side has, and only the other."""
    findings: tuple[list[tuple[str, str]], list[tuple[str, str]]]
    files: list[workspaces.FileChange] | None
    """Merged files; None when they are not kept apart, or not kept at all."""
    commits: tuple[str, str]
    patch: str = ""


async def side(journal: Journal, point: PointInTime) -> Side:
    """All there is to know of a run at a point in time."""
    run = await run_at(journal, point)
    return Side(point, run, await _messages(journal, run, point), await _findings(journal, run, point))


async def compare(one: Side, other: Side, home: Path, *, patch: bool = False) -> Difference:
    """What is different in the other."""
    commits = (merged_commit(one.run), merged_commit(other.run))
    files: list[workspaces.FileChange] | None = None
    text = ""
    workspace = workspace_of(other.run, home)
    if workspace is not None and all(commits):
        files = await workspaces.diff(workspace, *commits)
        text = await workspaces.patch(workspace, *commits) if patch else ""
    return Difference(
        one,
        other,
        _changed(one.run.tasks, other.run.tasks, lambda task: (task.status, task.result or task.why, task.commit)),
        _changed(one.run.questions, other.run.questions, _asked),
        (_only(one.messages, other.messages), _only(other.messages, one.messages)),
        (sorted(set(one.findings) - set(other.findings)), sorted(set(other.findings) - set(one.findings))),
        files,
        commits,
        text,
    )


def _only(some: Mapping[str, Message], others: Mapping[str, Message]) -> list[Message]:
    return [said for id, said in some.items() if id not in others]


def _changed(
    before: Mapping[str, T], after: Mapping[str, T], described: Callable[[T], tuple[str, ...]]
) -> list[ChangedField]:
    found = []
    for name in dict.fromkeys((*before, *after)):
        one, other = (described(side[name]) if name in side else ("", "", "") for side in (before, after))
        if one != other:
            found.append(ChangedField(name, one[0], other[0], one[1], other[1]))
    return found


def _asked(question: Question) -> tuple[str, str]:
    return ("open", question.question) if question.answer is None else ("answered", question.answer)


async def lineage(journal: Journal, run: Run) -> dict[str, Run]:
    """A run, and those that it comes from, as far as they are here."""
    found = {run.id: run}
    while run.origin:
        known = await RUN.load(journal, run.origin["run"])
        if known is None:
            break  # it came here without them
        run = found[known.id] = known
    return found


async def _messages(journal: Journal, run: Run, point: PointInTime) -> dict[str, Message]:
    """What was said on the way to a point in time."""
    newest = await RUN.load(journal, run.id) or run
    runs = await lineage(journal, newest)
    found: dict[str, Message] = {}
    until = point.position
    windows = []
    for each in line_of(runs, run.id, point.version):
        first = await journal.event(stream(each.run), each.first)
        windows.append((each.run, first.position if first is not None and each.first > 1 else 0, until))
        until = await _parted_at(journal, runs, each)
    bodies = Bodies(journal)
    for name, after, last in reversed(windows):
        async for record in read_until(journal, history(name), last):
            if record.position >= after:
                said = await bodies.message(record)
                found.setdefault(said.id, said)
    return found


async def _parted_at(journal: Journal, runs: Mapping[str, Run], segment: RunSegment) -> int:
    """The position that a segment of a run continues from. Of an imported one only the version is known: positions are
    those of the journal that it comes from."""
    run = runs[segment.run]
    begun = next((one for one in run.branches if one.version == segment.first), None)
    if begun is not None:
        of, position, version = run, begun.position, begun.to
    elif run.origin is not None and run.origin["run"] in runs:
        of, position, version = runs[run.origin["run"]], run.origin["position"], run.origin["version"]
    else:
        return 0
    if not await journal.version(bundle_stream(run.id)):
        return position
    return (await at_version(journal, of, version)).position


async def _findings(journal: Journal, run: Run, point: PointInTime) -> dict[tuple[str, str], str]:
    reader = AttemptReader(journal)
    return {
        (name, each.text): each.keyword
        for name in run.tasks
        for each in await reader.discoveries_of(run.agent(name), position=point.position)
    }
