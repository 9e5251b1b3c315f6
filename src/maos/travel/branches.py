"""Agents that go on from an earlier moment of another's life: its conversation, inbox, saved values and files of then.

An agent can go on from where its files and its conversation were saved together, so a moment in between counts as the
save before it. What is prepared here can be prepared again; it counts only with the append that names it.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from maos import workspaces as workspaces
from maos.engine.streams import ATTEMPT, attempts_at
from maos.errors import NotFound
from maos.journal.codec import Event
from maos.journal.journal import Append, Journal, Record
from maos.model import agent as states
from maos.model.attempt import Attempt, AttemptCheckpoint, attempt_id, stream
from maos.model.changes import DELETE, Replace
from maos.model.events.attempt import (
    AttemptBranched,
    AttemptCheckpointed,
    AttemptEnded,
    AttemptPlanned,
    AttemptTranscript,
)
from maos.model.events.core import EventBase
from maos.model.events.parts import AttemptOrigin, WorkspaceData
from maos.model.message import TOPICS, Acknowledgements, Message, Topics, acks, history, inbox, indexed, message
from maos.model.status import AttemptStatus
from maos.state.agents import AgentStates
from maos.travel.points_in_time import PointInTime

if TYPE_CHECKING:
    from maos.engine.attempts import Attempts

NOT_TOLD = ("id", "version")


class Cut(NamedTuple):
    """The moment of an agent's life that another goes on from."""

    task: str
    attempt: Attempt
    """As it was then."""
    position: int
    saved: str
    """The name of the checkpoint that its files and conversation are those of; empty when it is none."""
    commit: str
    """Its files; empty for those it began with."""
    transcript: str
    messages: tuple[Message, ...]
    """What it had been sent, and not heard."""
    topics: tuple[str, ...]
    values: dict[str, Any] | None
    """Its own state, as saved through its door."""


class BranchInbox(NamedTuple):
    """What waited for an agent."""

    messages: tuple[Message, ...]
    topics: tuple[str, ...]


async def mail_of(journal: Journal, agent: str, *, heard: int, sent: int) -> BranchInbox:
    """What an agent had been sent by a position, and not heard by another; and what it wanted to hear of."""
    messages = [each async for each in _unheard(journal, agent, heard=heard, sent=sent)]
    return BranchInbox(tuple(messages), await _topics(journal, agent, sent))


async def cut(journal: Journal, states_of: AgentStates, task: str, agent: str, moment: PointInTime) -> Cut | None:
    """How it stood with an agent at a moment; None when it had not begun.

    A checkpoint of a run asks its agents to save their files. That takes a little while, so what they saved under its
    name is what belongs to it.
    """
    begun = await attempts_at(journal, agent, moment.position)
    if not begun:
        return None
    number = max(begun)
    version, position, saved = await _last_save(journal, attempt_id(agent, number), moment)
    attempt = await ATTEMPT.at(journal, attempt_id(agent, number), version=version)
    assert attempt is not None
    commits = [each.commit for each in attempt.checkpoints if each.commit]
    for earlier in sorted(begun, reverse=True)[1:]:
        past = None if commits else await ATTEMPT.load(journal, attempt_id(agent, earlier))
        commits = commits or [each.commit for each in (past.checkpoints if past else ()) if each.commit]
    until = max(position, moment.position) if saved == moment.name else moment.position
    return Cut(
        task,
        attempt,
        position,
        saved,
        commits[-1] if commits else "",
        await _transcript(journal, agent, sorted(begun), attempt),
        *await mail_of(journal, agent, heard=position, sent=until),
        await _values(journal, states_of, agent, position),
    )


async def _last_save(journal: Journal, attempt: str, moment: PointInTime) -> tuple[int, int, str]:
    """Version, position and name of the last time that an attempt was saved, or ended, by a moment."""
    found: tuple[int, int, str] = (1, 0, "")
    async for record in journal.read(stream(attempt)):
        saved = record.event if isinstance(record.event, AttemptCheckpointed) else None
        if saved and moment.name and (saved.name, saved.trigger) == (moment.name, "asked"):
            return record.version, record.position, moment.name
        if record.position > moment.position:
            if not moment.name:
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
                found = (record.version, record.position, "")  # of an attempt that itself goes on from another
    return found


async def _transcript(journal: Journal, agent: str, numbers: list[int], attempt: Attempt) -> str:
    pieces = []
    for number in numbers if attempt.transcript_name else ():
        until = attempt.version if number == attempt.number else None
        async for record in journal.read(stream(attempt_id(agent, number)), until=until):
            match record.event:
                case AttemptTranscript(name=attempt.transcript_name, text=text):
                    pieces.append(text)
    return "".join(pieces)


async def _unheard(journal: Journal, agent: str, *, heard: int, sent: int) -> AsyncIterator[Message]:
    fold = Acknowledgements(id=agent)
    async for record in journal.read(acks(agent)):
        if record.position > heard:
            break
        fold.apply(record.type, record.data)
    async for record in journal.read(inbox(agent), after=fold.floor):
        if record.position > sent:
            break
        if record.type == "message_sent" and not fold.is_settled(record.version):
            yield message(record.data, version=record.version)


async def _topics(journal: Journal, agent: str, position: int) -> tuple[str, ...]:
    fold = Topics()
    async for record in journal.read(TOPICS):
        if record.position > position:
            break
        fold.apply(record.type, record.data)
    return tuple(fold.of(agent))


async def _values(journal: Journal, states_of: AgentStates, agent: str, position: int) -> dict[str, Any] | None:
    last: Record | None = None
    async for record in journal.read(states.PREFIX + agent):
        if record.position > position:
            break
        last = record
    if last is None:
        return None
    found: dict[str, Any] = (await states_of.at(agent, version=last.version)).raw()
    return found


class Continuation(NamedTuple):
    """An agent that goes on from a cut, in files of its own."""

    name: str
    run: str
    cut: Cut
    workspace: WorkspaceData
    cwd: Path


async def prepare(attempts: Attempts, name: str, run: str, found: Cut, folder: Path) -> Continuation:
    """A worktree with the files of a cut, under a new name; in place, the folder as it is."""
    before = workspaces.Workspace.from_data(found.attempt.workspace)
    if before.in_place:
        place = before._replace(name=name, path=folder, tree=folder)
        return Continuation(name, run, found, place.to_data(), folder)
    place = await fresh(attempts, name, folder, base=before.base, start=found.commit or before.base)
    return Continuation(name, run, found, place.to_data(), place.path)


async def fresh(
    attempts: Attempts,
    name: str,
    folder: Path,
    *,
    base: str | None,
    start: str | None = None,
    at: str | None = None,
) -> workspaces.Workspace:
    """A workspace that nobody has worked in yet, be it that an earlier call was killed and left another one there."""
    root = attempts.folder / "workspaces"
    for _ in range(2):
        place = await workspaces.prepare(folder, name, root=root, base=base, start=start, at=at)
        wanted = at or start or base
        if place.in_place:
            raise NotFound(f"{folder} is not in a git repository any more", hint="put it back from a copy")
        if place.base == base and wanted is not None and not await workspaces.diff(place, wanted):
            return place
        await workspaces.checkpoint(place, "left behind")  # whatever it is, it is not for us to lose
        await workspaces.remove(place)
    raise NotFound(f"there is no clean worktree to be had at {place.tree}", hint="try again")


async def put_values(states_of: AgentStates, goes_on: Continuation) -> None:
    """Give an agent the state that the other had saved."""
    wanted = goes_on.cut.values
    if wanted is None:
        return
    try:
        known = (await states_of.get(goes_on.name)).raw()
    except NotFound:
        await states_of.create(goes_on.name, wanted, source=goes_on.cut.attempt.id)
        return
    changes = {key: Replace(value) for key, value in wanted.items() if known.get(key) != value}
    gone = {key: DELETE for key in known if key not in wanted}
    if changes or gone:  # an earlier call was killed, and meant another moment
        await states_of.update(goes_on.name, {**changes, **gone}, source=goes_on.cut.attempt.id)


def appends(attempts: Attempts, goes_on: Continuation, at_us: int, why: str) -> list[Append]:
    """What makes a prepared agent one that can be resumed: it has ended where the other was, and has its mail."""
    name, found = goes_on.name, goes_on.cut
    state = _state(attempts, goes_on)
    origin: AttemptOrigin = {
        "attempt": found.attempt.id,
        "version": found.attempt.version,
        "position": found.position,
    }
    events: list[EventBase] = [_planned(state), AttemptBranched(state=state, origin=origin, at_us=at_us)]
    if found.transcript:
        text = moved(found.transcript, found.attempt.workspace["tree"], goes_on.workspace["tree"])
        name_of_file = found.attempt.transcript_name
        events.append(AttemptTranscript(name=name_of_file, from_=0, until=len(text.encode()), text=text))
    was = found.attempt
    if was.is_open:
        events.append(AttemptEnded(status=AttemptStatus.STOPPED, failure="stopped", message=why, at_us=at_us))
    else:
        events.append(
            AttemptEnded(
                status=was.status,
                failure=was.failure,
                message=was.message,
                exit=was.exit,
                reset_us=was.reset_us,
                at_us=was.ended_us,
            )
        )
    own = Append(stream(attempt_id(name, found.attempt.number)), events, expected=0)
    return [own, *forwarded(name, goes_on.run, BranchInbox(found.messages, found.topics))]


def forwarded(name: str, run: str, mail: BranchInbox) -> list[Append]:
    """What gives an agent the mail of another."""
    said = [each._replace(to=(name,) if each.to else (), run=run) for each in mail.messages]
    new = [
        Append(inbox(name), [Event("message_sent", each.data()) for each in said]),
        Append(history(run), [Event(*indexed(each, [name])) for each in said]),
        Append(TOPICS, [Event("topic_joined", {"topic": topic, "name": name}) for topic in mail.topics]),
    ]
    return [each for each in new if each.events]


def _state(attempts: Attempts, goes_on: Continuation) -> dict[str, Any]:
    """All that the agent had come to, in a place of its own."""
    found, id = goes_on.cut, attempt_id(goes_on.name, goes_on.cut.attempt.number)
    state: dict[str, Any] = msgspec.to_builtins(found.attempt)
    if found.commit and not any(each.commit == found.commit for each in found.attempt.checkpoints):
        last = AttemptCheckpoint("start", 0, "branch", found.attempt.planned_us, found.commit, found.attempt.session)
        state["checkpoints"].append(msgspec.to_builtins(last))
    state |= {
        "agent": goes_on.name,
        "folder": str(attempts.folder / "holders" / id),
        "workspace": goes_on.workspace,
        "pid": 0,
        "inbox_cursor": 0,
        "told": [],
        "answered_cursor": 0,
        "permissions": {},
        "stopping": "",
        "moved_from": "",
    }
    home = str(attempts.folder / "homes" / goes_on.name)
    state["order"] |= {"cwd": str(goes_on.cwd), "home": home, "run": goes_on.run}
    return {name: value for name, value in state.items() if name not in NOT_TOLD}


def _planned(state: Mapping[str, Any]) -> AttemptPlanned:
    names = ("agent", "number", "task", "session", "owner", "folder", "workspace", "inbox_cursor", "told", "order")
    same = {name: state[name] for name in names}
    return AttemptPlanned(agent_kind=state["kind"], transcript=("", 0), at_us=state["planned_us"], **same)


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
