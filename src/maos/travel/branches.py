"""New branches of a run: agents that continue from an earlier point in time of another agent, with its conversation,
inbox, saved values and files of then.

An agent can continue from where its files and its conversation were saved together, so a time in between counts as the
save before it. What is prepared here can be prepared again; it counts only with the append that names it.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from maos import workspaces as workspaces
from maos.engine import transcripts
from maos.engine.attempt_spec import HOLDERS, HOMES
from maos.engine.attempts import Attempts
from maos.engine.streams import ATTEMPT, attempts_at
from maos.errors import NotFound
from maos.journal.journal import Append, Journal, Record
from maos.model import agent as states
from maos.model.attempt import Attempt, AttemptCheckpoint, attempt_id, last_saved, stream
from maos.model.changes import DELETE, Replace
from maos.model.events.attempt import (
    AttemptBranched,
    AttemptCheckpointed,
    AttemptEnded,
    AttemptPlanned,
    AttemptTranscript,
)
from maos.model.events.commands import TasksRequested
from maos.model.events.core import EventBase
from maos.model.events.messages import MessageSent, TopicJoined
from maos.model.events.run import PlanProposed, QuestionAnswered, QuestionAsked
from maos.model.message import TOPICS, Acknowledgements, Message, Topics, acks, history, inbox, index_event, message
from maos.model.run import Run
from maos.model.run import stream as run_stream
from maos.model.status import AttemptStatus
from maos.state.agents import AgentStates
from maos.travel.points_in_time import PointInTime, read_until, workspace_of
from maos.tuples import NamedTuple

GRACE_S = 10.0


async def position_before(journal: Journal, run: Run) -> int:
    """Where the journal ended before the newest event of a run."""
    newest = await journal.event(run_stream(run.id), run.version)
    assert newest is not None
    return newest.position - 1


async def keep_merged(run: Run, home: Path) -> None:
    """Keep the merged work of a branch that is given up under a ref, so that git does not remove it."""
    into = workspace_of(run, home)
    if into is not None and run.commit:
        assert into.repository is not None
        await workspaces.keep(into.repository, into.name, f"left-{run.branch}", run.commit)


async def sent_again(unhandled: AsyncIterator[Record], names: Mapping[str, str]) -> list[EventBase]:
    """Those commands of a run's inbox that its next branch handles, from agents of new names: not to pause or wake."""
    found: list[EventBase] = []
    async for record in unhandled:
        match record.event:
            case TasksRequested(asked_by=by) as command:
                found.append(replace(command, asked_by=names.get(by, by)))
            case QuestionAsked(asked_by=several) as command:
                found.append(replace(command, asked_by=[names.get(one, one) for one in several]))
            case QuestionAnswered() | PlanProposed() as command:
                found.append(command)
    return found


class BranchInbox(NamedTuple):
    """What waited for an agent."""

    messages: tuple[Message, ...]
    """What it had been sent, and had not received."""
    topics: tuple[str, ...]


class Cut(NamedTuple):
    """The point in time of one agent that another continues from."""

    attempt: Attempt
    """As it was then."""
    position: int
    saved: str
    """The name of the checkpoint that its files and conversation are those of; empty when it is none."""
    commit: str
    """Its files; empty for those it began with."""
    transcript: str
    waiting: BranchInbox
    values: dict[str, Any] | None
    """Its own state, as saved through its tool server."""


async def inbox_at(journal: Journal, agent: str, *, received: int, sent: int) -> BranchInbox:
    """What an agent had been sent by one position and not received by another, and the topics it had subscribed to."""
    acknowledged, topics = Acknowledgements(id=agent), Topics()
    async for record in read_until(journal, acks(agent), received):
        acknowledged.apply(record.event)
    messages = [
        message(record.event, version=record.version)
        async for record in read_until(journal, inbox(agent), sent, after=acknowledged.floor)
        if isinstance(record.event, MessageSent) and not acknowledged.is_resolved(record.version)
    ]
    async for record in read_until(journal, TOPICS, sent):
        topics.apply(record.event)
    return BranchInbox(tuple(messages), tuple(topics.of(agent)))


async def cut(journal: Journal, states_of: AgentStates, agent: str, point: PointInTime) -> Cut | None:
    """What an agent had come to at a point in time; None when it had not begun.

    A checkpoint of a run asks its agents to save their files. That takes a little while, so what they saved under its
    name is what belongs to it.
    """
    begun = await attempts_at(journal, agent, point.position)
    if not begun:
        return None
    number = max(begun)
    version, position, saved = await _last_save(journal, attempt_id(agent, number), point)
    attempt = await ATTEMPT.at(journal, attempt_id(agent, number), version=version)
    assert attempt is not None
    earlier = [await ATTEMPT.load(journal, attempt_id(agent, each)) for each in sorted(begun)[:-1]]
    until = max(position, point.position) if saved == point.name else point.position
    return Cut(
        attempt,
        position,
        saved,
        last_saved([*filter(None, earlier), attempt]),
        await transcripts.text_of(journal, attempt),
        await inbox_at(journal, agent, received=position, sent=until),
        await _values(journal, states_of, agent, position),
    )


async def _last_save(journal: Journal, attempt: str, point: PointInTime) -> tuple[int, int, str]:
    """Version, position and name of the last time that an attempt was saved, or ended, by a point in time."""
    found: tuple[int, int, str] = (1, 0, "")
    async for record in journal.read(stream(attempt)):
        saved = record.event if isinstance(record.event, AttemptCheckpointed) else None
        if saved and point.name and (saved.name, saved.trigger) == (point.name, "asked"):
            return record.version, record.position, point.name
        if record.position > point.position:
            if not point.name:
                break
            continue
        match record.event:
            case AttemptCheckpointed(name=name):
                found = (record.version, record.position, name)
            case AttemptEnded():
                found = (record.version, record.position, found[2])
            case AttemptPlanned() | AttemptBranched():
                found = (record.version, record.position, "")
            case AttemptTranscript() if found[0] == record.version - 1 and not found[2]:
                found = (record.version, record.position, "")  # of an attempt that itself continues from another
    return found


async def _values(journal: Journal, states_of: AgentStates, agent: str, position: int) -> dict[str, Any] | None:
    versions = [each.version async for each in read_until(journal, states.PREFIX + agent, position)]
    return (await states_of.at(agent, version=versions[-1])).raw() if versions else None


async def fresh(
    attempts: Attempts,
    name: str,
    folder: Path,
    *,
    base: str | None,
    start: str | None = None,
    at: str | None = None,
) -> workspaces.Workspace:
    """Create a workspace without changes in it, even when a call that was killed has left another one there."""
    root = attempts.folder / "workspaces"
    for _ in range(2):
        place = await workspaces.prepare(folder, name, root=root, base=base, start=start, at=at)
        wanted = at or start or base
        if place.in_place:
            raise NotFound(f"{folder} is not in a git repository any more", hint="put it back from a copy")
        if place.base == base and wanted is not None and not await workspaces.diff(place, wanted):
            return place
        await workspaces.checkpoint(place, "left behind")  # whatever it is, we may not lose it
        await workspaces.remove(place)
    raise NotFound(f"no clean worktree could be created at {place.tree}", hint="try again")


async def continue_agent(
    attempts: Attempts, states_of: AgentStates, name: str, run: str, found: Cut, folder: Path, at_us: int, why: str
) -> list[Append]:
    """Have an agent of a new name continue from a cut, with its state and in a worktree with its files; in place, in
    the folder as it is.

    Return what makes it one that can be resumed: it has ended where the other was, and has its inbox.
    """
    was = found.attempt
    place = workspaces.Workspace.located(was.workspace, attempts.folder)
    if place.in_place:
        place = place._replace(name=name, path=folder, tree=folder)
    else:
        place = await fresh(attempts, name, folder, base=place.base, start=found.commit or place.base)
    await _put_values(states_of, name, found)
    state = msgspec.to_builtins(_continued(attempts, name, run, found, place))
    told = {"agent_kind": was.kind, "transcript": ("", 0), "at_us": was.planned_us}
    planned = msgspec.convert({**state, **told}, AttemptPlanned)
    branched = AttemptBranched(
        state={key: each for key, each in state.items() if key not in ("id", "version")},  # the stream tells these
        origin={"attempt": was.id, "version": was.version, "position": found.position},
        at_us=at_us,
    )
    events: list[EventBase] = [planned, branched]
    if found.transcript:
        text = moved(found.transcript, was.workspace["tree"], str(place.tree))
        events.append(AttemptTranscript(name=was.transcript_name, from_=0, until=len(text.encode()), text=text))
    if was.is_open:
        events.append(AttemptEnded(status=AttemptStatus.STOPPED, failure="stopped", message=why, at_us=at_us))
    else:
        same = {key: getattr(was, key) for key in ("status", "failure", "message", "exit", "reset_us")}
        events.append(AttemptEnded(at_us=was.ended_us, **same))
    own = Append(stream(attempt_id(name, was.number)), events, expected=0)
    return [own, *forwarded(name, run, found.waiting)]


async def _put_values(states_of: AgentStates, name: str, found: Cut) -> None:
    """Give an agent the state that the other had saved."""
    wanted, source = found.values, found.attempt.id
    if wanted is None:
        return
    try:
        known = (await states_of.get(name)).raw()
    except NotFound:
        await states_of.create(name, wanted, source=source)
        return
    changes = {key: Replace(value) for key, value in wanted.items() if known.get(key) != value}
    gone = {key: DELETE for key in known if key not in wanted}
    if changes or gone:  # an earlier call was killed, and meant another point in time
        await states_of.update(name, {**changes, **gone}, source=source)


def forwarded(name: str, run: str, waiting: BranchInbox) -> list[Append]:
    """What gives an agent the messages and subscriptions of another."""
    said = [each._replace(to=(name,) if each.to else (), run=run) for each in waiting.messages]
    new = [
        Append(inbox(name), [each.event for each in said]),
        Append(history(run), [index_event(each, [name]) for each in said]),
        Append(TOPICS, [TopicJoined(topic=topic, name=name) for topic in waiting.topics]),
    ]
    return [each for each in new if each.events]


def _continued(attempts: Attempts, name: str, run: str, found: Cut, place: workspaces.Workspace) -> Attempt:
    """All that the agent had come to, under another name and in folders of its own."""
    was = found.attempt
    checkpoints = list(was.checkpoints)
    if found.commit and not any(each.commit == found.commit for each in checkpoints):
        checkpoints.append(AttemptCheckpoint("start", 0, "branch", was.planned_us, found.commit, was.session))
    home = str(attempts.folder / HOMES / name)
    return replace(
        was,
        agent=name,
        folder=str(attempts.folder / HOLDERS / attempt_id(name, was.number)),
        workspace=dict(place.to_data()),
        order={**was.order, "cwd": str(place.path), "home": home, "run": run if was.order.get("run") else ""},
        checkpoints=checkpoints,
        pid=0,
        inbox_cursor=0,
        told=[],
        answered_cursor=0,
        permissions={},
        proof="",  # the secret is that of the other agent
        stopping="",
        moved_from="",
        session_kept=False,  # the program's own record of it is in another home, and has what came later too
    )


def moved(transcript: str, old: str, new: str) -> str:
    """A transcript in which files are where they are now.

    Lines with thoughts that a model has signed stay as they are: changed ones it would refuse.
    """
    if old == new:
        return transcript
    spelled = [json.dumps(each)[1:-1] for each in (old, new)]
    path = re.compile(re.escape(spelled[0]) + r"(?![A-Za-z0-9_-]|\.[A-Za-z0-9])")
    lines = transcript.splitlines(keepends=True)
    return "".join(line if '"signature"' in line else path.sub(lambda _: spelled[1], line) for line in lines)
