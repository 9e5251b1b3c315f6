"""Which streams belong to a run or a workflow, and which events may be in them.

By name: a run `r-1` has the agents `r-1-plan`, `r-1.TASK` and `r-1.TASK-gate1-1`, a workflow the agents and children
`w-1.PLACE`, and children that were given a name of their own. Export and import follow the same
rules, so a bundle has nothing of another run.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from maos.engine.streams import WORKFLOW_RUN
from maos.journal.journal import Journal
from maos.model.events.attempt import AttemptEventBase
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
from maos.model.events.records import ChatSaid, NoticeOutcome, NoticePlanned, ToolCalled
from maos.model.events.run import QuestionAnswered, QuestionAsked, RunEventBase
from maos.model.events.state import StateEventBase
from maos.model.events.workflow import WorkflowEventBase
from maos.model.workflow import AGENT, CHILD, WorkflowRun
from maos.transfer.contents import RUN
from maos.workflows.children import name_of

FAMILIES: Mapping[str, tuple[type[EventBase], ...]] = {
    "run": (RunEventBase,),
    "workflow": (WorkflowEventBase,),
    "attempt": (AttemptEventBase,),
    "inbox": (Command, MessageSent, QuestionAsked, QuestionAnswered),
    "acks": (MessageDelivered, MessageResolved),
    "dead-letters": (DeadLetterAdded, DeadLetterRequeued),
    "messages": (MessageSent, MessageRouted),
    "chat": (ChatSaid,),
    "notices": (NoticePlanned, NoticeOutcome),
    "tools": (ToolCalled,),
    "agent": (StateEventBase,),
}
"""Kinds of streams that can belong to a run or a workflow, and what may be in them. Nothing else can be imported: no
settings, schedules, topics or dictionaries, no `bundle/…`, and nothing that a compaction wrote, which speaks of other
events of the same journal."""

_ATTEMPT = re.compile(r"(.+)\.([1-9][0-9]{0,5})")


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


def dotted(name: str) -> Iterator[str]:
    """A name, and what is before each of its dots, the longest first."""
    yield name
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def split(stream: str) -> tuple[str, str] | None:
    """The family of a stream, and whose it is; None for a stream of no such family."""
    family, slash, name = stream.partition("/")
    if not slash or family not in FAMILIES:
        return None
    if family == "attempt":
        found = _ATTEMPT.fullmatch(name)
        return (family, found[1]) if found else None
    return family, name


def of_run(id: str) -> Members:
    """Everything below a run."""
    return Members(frozenset((id,)), frozenset((f"{id}-plan",)))


def of_workflow(id: str, flows: Mapping[str, WorkflowRun]) -> Members:
    """Everything below a workflow, as far as the workflows that are known tell."""
    roots, also, waiting = set[str](), set[str](), [id]
    while waiting:
        name = waiting.pop()
        if name in roots or name not in flows:
            continue
        roots.add(name)
        for step_id, call in flows[name].steps.items():
            if call.kind == AGENT:
                also.add(name_of(name, step_id))
            elif call.kind == CHILD:
                child = str(call.about.get("id") or name_of(name, step_id))
                if child in flows and flows[child].parent == name:
                    waiting.append(child)
    return Members(frozenset(roots | {id}), frozenset(also))


async def here(journal: Journal, kind: str, id: str) -> Members:
    """Everything below a run or a workflow of this journal."""
    return of_run(id) if kind == RUN else of_workflow(id, await _family(journal, id))


async def streams(journal: Journal, members: Members) -> AsyncIterator[str]:
    """The streams of this journal that belong to them."""
    others = [name for root in sorted(members.roots) async for name in _ids(journal, root)]
    for family in FAMILIES:
        found = set[str]()
        for root in sorted(_shortest(members.roots | members.also)):
            async for stream in journal.streams(f"{family}/{root}"):
                whose = split(stream)
                if stream not in found and whose is not None and members.has(whose[1], others):
                    found.add(stream)
                    yield stream


def _shortest(names: Iterable[str]) -> list[str]:
    """The names of which none begins with another."""
    found: list[str] = []
    for name in sorted(names):
        if not found or not name.startswith(found[-1]):
            found.append(name)
    return found


async def _ids(journal: Journal, prefix: str) -> AsyncIterator[str]:
    for family in ("run", "workflow"):
        async for name in journal.streams(f"{family}/{prefix}"):
            yield name.partition("/")[2]


async def _family(journal: Journal, id: str) -> dict[str, WorkflowRun]:
    found: dict[str, WorkflowRun] = {}
    waiting = [id]
    while waiting:
        name = waiting.pop()
        known = await WORKFLOW_RUN.load(journal, name) if name not in found else None
        if known is None:
            continue
        found[name] = known
        waiting += [
            str(call.about.get("id") or name_of(name, step_id))
            for step_id, call in known.steps.items()
            if call.kind == CHILD
        ]
    return found
