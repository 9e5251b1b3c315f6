"""Which streams belong to a run or a workflow, and a look through all that a bundle brings, before anything of it is
written: a stranger may have made it.

By name: a run `r-1` has the agents `r-1.TASK` and `r-1.TASK-gate1-1`, a workflow the agents and children
`w-1.PLACE`, and children that were given a name of their own. Export and import follow the same rules, so a bundle has
nothing of another run. Each stream must belong to what the bundle is of, each event to its stream; all of it must fold,
here and now, to something of the right types. What is left are texts and numbers of a run, and those can do no harm
until it is resumed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, get_args

import msgspec

from maos.engine.streams import WORKFLOW_RUN
from maos.errors import Corrupt, InvalidInput, MaosError
from maos.journal.codec import is_plain
from maos.journal.journal import Journal, Record
from maos.model import preparation
from maos.model.attempt import Attempt, check_agent, check_run, stream
from maos.model.events.attempt import AttemptEvent, AttemptMoved, AttemptPlanned, AttemptTranscript
from maos.model.events.commands import Command
from maos.model.events.core import EventBase
from maos.model.events.messages import (
    DeadLetterAdded,
    DeadLetterRequeued,
    MessageDelivered,
    MessageResolved,
    MessageRouted,
    MessageSent,
)
from maos.model.events.parts import OrderData, WorkspaceData
from maos.model.events.records import ChatSaid, NoticeOutcome, NoticePlanned, ToolCalled
from maos.model.events.run import PlanProposed, QuestionAnswered, QuestionAsked, RunEventBase
from maos.model.events.state import StateUpdated
from maos.model.events.workflow import WorkflowEventBase
from maos.model.message import Acknowledgements
from maos.model.notice import RunNotices
from maos.model.plan import Task
from maos.model.run import Run, dotted
from maos.model.tool_calls import Reports
from maos.model.workflow import AGENT, CHILD, WorkflowRun
from maos.patterns import regex
from maos.runs import agent_types, planner
from maos.state import loader
from maos.transfer.bundle import RUN, Contents, Manifest
from maos.tuples import NamedTuple
from maos.workflows.children import name_of, names
from maos.workspaces import check_workspace_name, is_object

FAMILIES: Mapping[str, tuple[type[EventBase], ...]] = {
    "run": (RunEventBase,),
    "workflow": (WorkflowEventBase,),
    "attempt": get_args(AttemptEvent),
    "inbox": (Command, MessageSent, PlanProposed, QuestionAsked, QuestionAnswered),
    "acks": (MessageDelivered, MessageResolved),
    "dead-letters": (DeadLetterAdded, DeadLetterRequeued),
    "messages": (MessageSent, MessageRouted),
    "chat": (ChatSaid,),
    "notices": (NoticePlanned, NoticeOutcome),
    "tools": (ToolCalled,),
    "agent": (StateUpdated,),
}
"""Kinds of streams that can belong to a run or a workflow, and what may be in them. Nothing else can be imported: no
settings, schedules, topics or dictionaries, no `bundle/…`, and nothing that a compaction wrote, which speaks of other
events of the same journal."""

TIME_US_MAX = 253_402_300_799_000_000
"""The last second of the year 9999."""
NUMBER_MAX = 1 << 53

_ANYTHING = ("result", "value")
"""What a workflow has returned, or was sent: it may be any number."""
TRANSCRIPT_NAME = regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_SESSION = regex(r"[A-Za-z0-9._:-]{0,200}")
_TASK = regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_REF = regex(r"refs/maos/([^/]+)/[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_FOLDS: Mapping[str, Callable[[str], Any]] = {
    "acks": lambda id: Acknowledgements(id=id),
    "notices": lambda _: RunNotices(),
    "tools": lambda _: Reports(),
}
_ATTEMPT = regex(r"(.+)\.([1-9][0-9]{0,5})")


class Members(NamedTuple):
    """The names that a run or a workflow and everything below it go by."""

    roots: frozenset[str]
    """Itself; of a workflow, its children too."""
    also: frozenset[str]
    """Agents whose names do not begin with one of these."""

    def has(self, name: str, others: Collection[str] = ()) -> bool:
        """Whether an agent of that name belongs to it, and not to one of the other runs and workflows there are."""
        if name in self.also:
            return True
        for each in dotted(name):
            if each in self.roots:
                return True
            if each in others:
                return False
        return False


def split(stream: str) -> tuple[str, str] | None:
    """The family of a stream, and whose it is; None for a stream of no such family."""
    family, slash, name = stream.partition("/")
    if not slash or family not in FAMILIES:
        return None
    if family == "attempt":
        found = _ATTEMPT.fullmatch(name)
        return (family, found[1]) if found else None
    return family, name


def members_of(kind: str, id: str, flows: Mapping[str, WorkflowRun]) -> Members:
    """Everything below a run; or below a workflow, as far as the workflows that are known tell."""
    if kind == RUN:
        return Members(frozenset((id,)), frozenset())
    roots, also, waiting = set[str](), set[str](), [id]
    while waiting:
        name = waiting.pop()
        if name in roots or name not in flows:
            continue
        roots.add(name)
        also.update(name_of(name, step_id) for step_id, call in flows[name].steps.items() if call.kind == AGENT)
        waiting += [child for child in names(flows[name], CHILD) if child in flows and flows[child].parent == name]
    return Members(frozenset(roots | {id}), frozenset(also))


async def here(journal: Journal, kind: str, id: str) -> Members:
    """Everything below a run or a workflow of this journal."""
    flows: dict[str, WorkflowRun] = {}
    waiting = [id] if kind != RUN else []
    while waiting:
        name = waiting.pop()
        known = await WORKFLOW_RUN.load(journal, name) if name not in flows else None
        if known is not None:
            flows[name] = known
            waiting += names(known, CHILD)
    return members_of(kind, id, flows)


async def streams(journal: Journal, members: Members) -> AsyncIterator[str]:
    """The streams of this journal that belong to them."""
    others = [
        name.partition("/")[2]
        for root in sorted(members.roots)
        for family in ("run", "workflow")
        async for name in journal.streams(f"{family}/{root}")
    ]
    for family in FAMILIES:
        found = set[str]()
        for root in sorted(_shortest(members.roots | members.also)):
            async for name in journal.streams(f"{family}/{root}"):
                whose = split(name)
                if name not in found and whose is not None and members.has(whose[1], others):
                    found.add(name)
                    yield name


def _shortest(names: Iterable[str]) -> list[str]:
    """The names of which none begins with another."""
    found: list[str] = []
    for name in sorted(names):
        if not found or not name.startswith(found[-1]):
            found.append(name)
    return found


# --- looking through a bundle -----------------------------------------------------------------------------------


def check(contents: Contents) -> tuple[Run | WorkflowRun, Members, dict[str, Attempt]]:
    """What the bundle folds to: the run or workflow run, what belongs to it, and the attempts, by id; Corrupt, naming
    the place, for whatever it should not have."""
    manifest, streams = contents.manifest, contents.streams
    check_id = check_run if manifest.kind == RUN else check_agent  # children of workflows have dots
    _check_name(check_id, manifest.id, f"{manifest.id!r} cannot name a run")
    flows: dict[str, WorkflowRun] = {}
    for name, events in streams.items():
        _check_types(name, events)
        if name.startswith("workflow/"):
            id = name.removeprefix("workflow/")
            flows[id] = _folded(WorkflowRun(id=id), events, name)
    members = members_of(manifest.kind, manifest.id, flows)
    _check_belonging(manifest, streams, members)
    attempts: dict[str, Attempt] = {}
    root: Run | WorkflowRun = Run(id=manifest.id)
    for name, events in streams.items():
        family, _, id = name.partition("/")
        if family == "run":
            root = _run(_folded(Run(id=id), events, name))
        elif family == "attempt":
            attempts[id] = _attempt(id, events, name, manifest.id)
        elif family in _FOLDS:
            _folded(_FOLDS[family](id), events, name)
        elif family == "agent":
            _state(id, events)
    if manifest.kind != RUN:
        root = flows[manifest.id]
    _check_refs(manifest, members)
    return root, members, attempts


def _check_name(check: Callable[[str], Any], name: str, what: str) -> None:
    try:
        check(name)
    except InvalidInput as error:
        raise _bad(what) from error


def _check_types(name: str, events: Sequence[Record]) -> None:
    whose = split(name)
    if whose is None:
        raise _bad(f"the stream {name!r} is none of a run")
    _check_name(check_agent, whose[1], f"{name!r} cannot name a stream of a run")
    if not events:
        raise _bad(f"{name} is empty")
    for version, event in enumerate(events, 1):
        if not isinstance(event.event, FAMILIES[whose[0]]):
            raise _bad(f"{name}@{version} is {event.type!r}, which does not belong there")
        if not is_plain(event.data):
            raise Corrupt(f"{name}@{version} is nested too deeply", hint="nothing was imported")
        _check_numbers(event.event, f"{name}@{version}")


def _check_belonging(manifest: Manifest, streams: Mapping[str, Sequence[Record]], members: Members) -> None:
    for name in streams:
        whose = split(name)
        assert whose is not None
        if not members.has(whose[1]):
            raise _bad(f"the stream {name!r} is not one of {manifest.id}")
        if name.startswith("run/") and (manifest.kind != RUN or whose[1] != manifest.id):
            raise _bad(f"the stream {name!r} is another run")
        if name.startswith("workflow/") and (manifest.kind == RUN or whose[1] not in members.roots):
            raise _bad(f"the stream {name!r} is another workflow")
    if manifest.stream not in streams:
        raise _bad(f"it has no {manifest.stream}")


def _folded(fold: Any, events: Sequence[Record], name: str) -> Any:
    """What some events come to, with everything in it of its type."""
    version = 1
    try:
        for event in events:
            fold.apply(event.event)
            version += 1
        if isinstance(fold, msgspec.Struct):
            msgspec.convert(msgspec.to_builtins(fold), type(fold))
            _check_numbers(fold, name)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        what = f"{name}@{version} does not follow from what is before it: {type(error).__name__}: {error}"
        raise _bad(what) from error
    return fold


def _check_numbers(found: msgspec.Struct, where: str) -> None:
    """Corrupt unless all times and numbers of an event or a fold are within the limits."""
    for name in found.__struct_fields__:
        value = getattr(found, name)
        _check_number(name, value, where)
        if isinstance(value, msgspec.Struct):
            _check_numbers(value, where)
        for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            if isinstance(item, msgspec.Struct):
                _check_numbers(item, where)
            elif name == "sleeping":
                _check_number("until_us", item, where)


def _check_number(name: str, value: Any, where: str) -> None:
    is_time = name.endswith("_us")
    if type(value) not in (int, float) or name in _ANYTHING:
        return
    if not 0 <= value <= TIME_US_MAX if is_time else abs(value) > NUMBER_MAX:
        raise Corrupt(f"{where}: {name} is {value!r}, which is out of range", hint="nothing was imported")


def _run(run: Run) -> Run:
    for name, task in run.tasks.items():
        try:
            plan = msgspec.convert(task.plan, Task)
            agent_types.of_task(run.options, plan.agent)
        except (msgspec.ValidationError, AttributeError) as error:
            raise _bad(f"task {name!r} is invalid: {error}") from error
        if not _TASK.fullmatch(name) or plan.name != name or any(need not in run.tasks for need in task.needs):
            raise _bad(f"{name!r} cannot be a task")
    if run.proposal is not None:
        try:
            msgspec.convert(run.proposal.tasks, list[Task])
        except msgspec.ValidationError as error:
            raise _bad(f"its plan is invalid: {error}") from error
        if {*run.proposal.options} - {"agents"}:
            raise _bad("its plan has options of a run")
    options = {**run.options, **(run.proposal.options if run.proposal else {})}
    for key, kind in (("agents", dict), ("budget", dict), ("workspace", dict), ("notes", list)):
        if not isinstance(options.get(key) or kind(), kind):
            raise _bad(f"its option {key} is no {kind.__name__}")
    try:
        preparation.checked(preparation.of_options(options))
        preparation.project_settings(msgspec.convert(options.get("project_settings") or [], list[str]))
        msgspec.convert(options.get("include_uncommitted") or False, bool | list[str])
        planner.checks_of({"gates": msgspec.convert(options.get("gates") or [], list[list[str]])})
    except (msgspec.ValidationError, InvalidInput) as error:
        raise _bad(f"its options are invalid: {error}") from error
    if run.commit and not is_object(run.commit):
        raise _bad(f"{run.commit!r} is no commit")
    return run


def _attempt(id: str, events: Sequence[Record], name: str, run: str) -> Attempt:
    first = events[0].event
    if not isinstance(first, AttemptPlanned) or any(isinstance(each.event, AttemptPlanned) for each in events[1:]):
        raise _bad(f"{name} does not begin as an attempt does")
    found: Attempt = _folded(Attempt(id=id), events, name)
    try:
        msgspec.convert(found.workspace, WorkspaceData)  # what another attempt had come to can say anything
        msgspec.convert(found.order, OrderData)
    except msgspec.ValidationError as error:
        raise _bad(f"{name} is invalid: {error}") from error
    for check_agents_name in (check_agent, check_workspace_name):
        _check_name(check_agents_name, found.agent, f"{found.agent!r} cannot name an agent")
    if stream(f"{found.agent}.{found.number}") != name:
        raise _bad(f"{name} is not the attempt that it says it is")
    moved = [each.event for each in events if isinstance(each.event, AttemptMoved)]
    if any((each.agent, each.number) != (found.agent, found.number) for each in moved):
        raise _bad(f"{name} refers to another attempt")
    if found.order.get("run") not in (None, "", run):
        raise _bad(f"{name} belongs to another run")
    if not _SESSION.fullmatch(found.session):
        raise _bad(f"{name} has no session {found.session!r}")
    names = [each.event.name for each in events if isinstance(each.event, AttemptTranscript)]
    for given in (found.transcript_name, first.transcript[0], *names):
        if given and not TRANSCRIPT_NAME.fullmatch(given):
            raise _bad(f"{given!r} cannot name a transcript")
    for each in found.checkpoints:
        if each.commit and not is_object(each.commit):
            raise _bad(f"{each.commit!r} is no commit")
    return found


def _state(agent: str, events: Sequence[Record]) -> None:
    fold = loader.StateFold(loader.empty(agent))
    try:
        for event in events:
            fold.add(event)
        loader.check(fold.state())
    except (MaosError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise _bad(f"the state of {agent!r} cannot be replayed: {error}") from error


def _check_refs(manifest: Manifest, members: Members) -> None:
    if manifest.object_format not in ("sha1", "sha256"):
        raise _bad("its commits are of no known kind")
    chars = 40 if manifest.object_format == "sha1" else 64
    for ref, commit in manifest.refs.items():
        if not is_ref_of(members, ref):
            raise _bad(f"{ref!r} is not a name of its commits")
        if not is_object(commit) or len(commit) != chars:
            raise _bad(f"{commit!r} is no commit")


def is_ref_of(members: Members, ref: str) -> bool:
    """Whether a ref is one that agents of a run or a workflow have."""
    found = _REF.fullmatch(ref)
    return found is not None and members.has(found[1])


def _bad(what: str) -> Corrupt:
    return Corrupt(f"the bundle cannot be imported: {what}", hint="nothing was imported; do not trust its source")
