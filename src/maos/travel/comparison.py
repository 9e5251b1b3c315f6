"""How two points in time differ, of one run or of two: tasks, questions, findings, messages, and merged files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from maos import workspaces as workspaces
from maos.bus.history import Bodies
from maos.engine.streams import ATTEMPT, RUN
from maos.journal.journal import Journal
from maos.model import tool_calls
from maos.model.attempt import attempt_id
from maos.model.branch import RunSegment, line_of
from maos.model.message import Message, history
from maos.model.run import Question, Run, bundle_stream, stream
from maos.travel import points_in_time
from maos.travel.points_in_time import PointInTime

T = TypeVar("T")


class Side(NamedTuple):
    """A run at a point in time."""

    point: PointInTime
    run: Run
    """As it was then."""
    messages: Mapping[str, Message]
    """What its agents had said by then, by id; what was said in a branch that was given up does not count."""
    findings: Mapping[tuple[str, str], str]
    """What they had found: keywords, by task and text."""


class ChangedField(NamedTuple):
    """A task, or a question, that is not the same on both sides."""

    name: str
    before: str
    """Its status; empty where there is none."""
    after: str
    said_before: str
    """Its result or answer."""
    said_after: str


class Difference(NamedTuple):
    """How two sides differ."""

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
    run = await points_in_time.run_at(journal, point)
    return Side(point, run, await _messages(journal, run, point), await _findings(journal, run, point))


async def compare(one: Side, other: Side, *, patch: bool = False) -> Difference:
    """What is different in the other."""
    commits = (points_in_time.merged_commit(one.run), points_in_time.merged_commit(other.run))
    files: list[workspaces.FileChange] | None = None
    text = ""
    workspace = points_in_time.workspace_of(other.run)
    if workspace is not None and all(commits):
        files = await workspaces.diff(workspace, *commits)
        text = await workspaces.patch(workspace, *commits) if patch else ""
    return Difference(
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
        async for record in points_in_time.read_until(journal, history(name), last):
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
    return (await points_in_time.at_version(journal, of, version)).position


async def _findings(journal: Journal, run: Run, point: PointInTime) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for name, task in run.tasks.items():
        agent = run.agent(name)
        for number in range(1, task.attempts + 1):
            attempt = await ATTEMPT.at(journal, attempt_id(agent, number), position=point.position)
            for each in attempt.discoveries if attempt is not None else ():
                found[(name, each.text)] = each.keyword
        reports = tool_calls.Reports()
        async for record in points_in_time.read_until(journal, tool_calls.stream(agent), point.position):
            reports.apply(record.event)
        found |= {(name, each["text"]): each["keyword"] for each in reports.discoveries}
    return found
