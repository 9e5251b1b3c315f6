"""What each tool does. Arguments have been checked and hold no secrets; the agent is the server's, whatever they say.

A call is written together with what it changes, in one append: one is never there without the other.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from maos.bus.limits import TooFast, TooMuch
from maos.bus.mailbox import Waiting, hand_out, load
from maos.engine.streams import AttemptReader
from maos.errors import InvalidInput, KeyReused, NotFound
from maos.ids import check_name
from maos.journal.codec import Event
from maos.journal.journal import Append, Record
from maos.mcp.calls import Effect, fingerprint
from maos.mcp.session import Errand, Session
from maos.mcp.tools import BY_NAME
from maos.model import attempt as attempts
from maos.model import run as runs
from maos.model import tool_calls
from maos.model.changes import DELETE, Replace
from maos.model.message import PERSON, Message, inbox, render
from maos.model.run import Run
from maos.model.status import TaskStatus
from maos.store.contract import Key

KEYS_MAX = 1_000
DISCOVERIES_SHOWN = 20
SAVED = "saved"
"""Where in an agent's state its own keys are."""
MESSAGES_MAX = 20
CHARS_MAX = 64_000
"""How much is told at once; the rest the next time."""
WORK_EVENTS_MAX = 1_000
"""How many events back to look for work between two messages."""
PAUSE_S = 0.2
"""A journal in which much is going on wakes a waiting call often."""
NO_ENGINE_S = 2.0
"""How long an answer may lie in the run's inbox before it counts by itself: no engine is there to take it in."""

LATER = (
    "No answer yet. The question is recorded as {id}, and you will be told the answer as a message. "
    "Go on with what does not depend on it; if there is nothing, stop here now."
)
ELSEWHERE = "no other messages: what came while you waited was put into your conversation"

Handler = Callable[..., Awaitable[str]]


# --- reports ----------------------------------------------------------------------------------------------------------


async def report_discovery(session: Session, errand: Errand, *, text: str, keyword: str = "discovery") -> str:
    """Recorded for the person, and told to the other agents of the run (R-104)."""

    async def effect() -> Effect:
        if not session.identity.run or await session.is_given_up():
            return Effect("recorded")
        try:
            outgoing = await session.bus.compose(
                session.agent,
                text,
                run=session.identity.run,
                type="discovery",
                metadata={"keyword": keyword},
                heard=await reacts_to(session),
            )
            appends = await outgoing.appends()
        except (TooMuch, TooFast) as error:
            return Effect(f"recorded, but not told to the other agents: {error.what}")
        to = outgoing.message.to
        return Effect(f"recorded, and told to {len(to)} other agents" if to else "recorded", appends)

    return await errand.once(session, "report_discovery", {"text": text, "keyword": keyword}, effect)


async def report_progress(session: Session, errand: Errand, *, percent: float, activity: str) -> str:
    """Recorded; the newest counts."""
    return await errand.once(session, "report_progress", {"percent": percent, "activity": activity})


# --- messages ---------------------------------------------------------------------------------------------------------


async def send_message(
    session: Session,
    errand: Errand,
    *,
    text: str,
    type: str,
    to: str = "",
    broadcast: bool = False,
    topic: str = "",
) -> str:
    """Saved before it is delivered (R-301); the sender is the agent of this server (A9)."""
    if bool(to) + broadcast + bool(topic) != 1:
        raise InvalidInput("no recipient, or several", hint="give exactly one of to, broadcast and topic")
    name = await recipient(session, to) if to else ""
    if topic:
        check_name(topic, "topic")
    if broadcast or await session.is_given_up():
        await session.run()

    async def effect() -> Effect:
        outgoing = await session.bus.compose(
            session.agent,
            text,
            to=name,
            topic=topic,
            run=session.identity.run,
            type=type,
            heard=await reacts_to(session),
        )
        appends = await outgoing.appends()
        said = outgoing.message
        to = ", ".join(said.to) or "nobody: nobody else is there"
        return Effect(f"sent as {said.id} to {to}", appends, holds=["text"])

    told = {"to": name, "broadcast": broadcast, "topic": topic, "text": text, "type": type}
    return await errand.once(session, "send_message", told, effect)


async def recipient(session: Session, to: str) -> str:
    """The agent that is meant: of the same run by its name or its task's, else any that ever ran."""
    if session.identity.run:
        run = await session.run()
        names = {run.agent(task): task for task in run.tasks}
        if to in names:
            return to
        if to in run.tasks:
            return run.agent(to)
        raise NotFound(f"there is no agent {to!r:.100} in your run", hint=f"there are: {', '.join(run.tasks)[:500]}")
    attempts.check_agent(to)
    if not await session.journal.version(attempts.stream(attempts.attempt_id(to, 1))):
        raise NotFound(f"there is no agent {to!r}", hint="check its name")
    return to


async def reacts_to(session: Session) -> Message | None:
    """The message the agent has heard last, unless a person sent it, or the agent has worked since it was sent.

    Agents that do nothing but answer each other are stopped by the hop limit (A9); those that do something in between
    may talk as long as they like.
    """
    heard = await session.bus.last_heard(session.agent)
    if heard is None or heard.message.sender == PERSON:
        return None
    stream = attempts.stream(session.identity.attempt)
    end = await session.journal.version(stream)
    for record in await session.journal.page_back(stream, before=end + 1, limit=WORK_EVENTS_MAX):
        if record.position < heard.position:
            break
        if _shows_work(record):
            return None
    return heard.message


def _shows_work(record: Record) -> bool:
    """Whether a tool was used; those of the door itself are talk, except for asking a person."""
    used = [fact for fact in record.data.get("facts", ()) if fact["kind"] == "tool_use"]
    names = [re.split(r"__|\W", str(fact.get("name", "")))[-1] for fact in used]
    return any(name == "ask_person" or name not in BY_NAME for name in names)


async def read_messages(session: Session, errand: Errand, *, wait_s: float) -> str:
    """What waits for the agent; acknowledged when its next request proves that this answer has arrived.

    That it is handed out is recorded first: an engine that runs the agent does not say it a second time.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + wait_s
    before = await session.journal.version(inbox(session.agent))
    while True:
        head = await session.journal.head()
        found = await _unread(session)
        if found:
            errand.read += await _hand_out(session, found)
            return "\n\n".join(render(each.message) for each in found)
        if await _came_elsewhere(session, before):
            return ELSEWHERE
        left_s = until_s - loop.time()
        if left_s <= 0:
            return "no messages"
        errand.still_there("waiting for a message")
        await asyncio.sleep(min(PAUSE_S, left_s))
        await session.journal.store.wait(after=head, timeout_s=min(5.0, max(0.0, until_s - loop.time())))


async def _unread(session: Session) -> list[Waiting]:
    """What the agent was sent and has not acknowledged, as much as is told at once."""
    found: list[Waiting] = []
    chars = 0
    now_us = session.clock.now_us()
    async for waiting in session.bus.waiting(session.agent):
        if waiting.message.is_expired(now_us):
            continue
        chars += len(render(waiting.message))
        if found and (len(found) == MESSAGES_MAX or chars > CHARS_MAX):
            break
        found.append(waiting)
    return found


async def _hand_out(session: Session, found: Sequence[Waiting]) -> list[int]:
    """Record that the agent gets messages here; their versions."""
    versions = [each.version for each in found]
    if versions:
        await session.journal.append_all(hand_out(session.agent, versions))
    return versions


async def _came_elsewhere(session: Session, before: int) -> bool:
    """Whether the engine has said a message to the agent that came after a version of the inbox."""
    fold = await load(session.journal, session.agent)
    async for record in session.journal.read(inbox(session.agent), after=before):
        if record.type == "message_sent" and fold.is_settled(record.version):
            return True
    return False


# --- questions --------------------------------------------------------------------------------------------------------


async def ask_person(
    session: Session,
    errand: Errand,
    *,
    question: str,
    wait_s: float,
    default_after_s: float,
    choices: Sequence[str] = (),
    context: str = "",
    default: str | None = None,
) -> str:
    """Recorded, then waited for (R-207)."""
    if (default is None) != (default_after_s == 0):
        raise InvalidInput("default and default_after_s go together", hint="give both, or none of them")
    run = await session.run()
    id = id_of(question)
    now_us = session.clock.now_us()
    asked: dict[str, Any] = {"id": id, "question": question, "asked_by": [session.agent], "at_us": now_us}
    asked |= {"choices": list(choices)} if choices else {}
    asked |= {"context": context} if context else {}
    if default is not None:
        asked |= {"default": default, "expires_us": now_us + int(default_after_s * 1e6)}

    async def effect() -> Effect:
        return Effect("", [Append(inbox(run.id), [Event("question_asked", asked)])])

    key = Key(f"tools/{session.agent}/{id}", fingerprint(id))
    await errand.once(session, "ask_person", {"id": id, "question": question}, effect, key=key)
    said = await answer(session, run, id, errand.still_there, wait_s=wait_s)
    if said is None:
        return LATER.format(id=id)
    waiting = [each async for each in session.bus.waiting(session.agent) if each.message.metadata.get("question") == id]
    errand.read += await _hand_out(session, waiting)
    return said


def id_of(question: str) -> str:
    """A name for a question that does not depend on capitals, spaces and the marks around it."""
    words = "".join(each if each.isalnum() else " " for each in question.casefold()).split()
    plain = " ".join(words) or question.strip()
    return f"q-{hashlib.sha256(plain.encode()).hexdigest()[:12]}"


async def answer(
    session: Session, run: Run, id: str, still_there: Callable[[str], None], *, wait_s: float
) -> str | None:
    """The answer once there is one; None after `wait_s`."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + wait_s
    reading = _Reading(session, run, id)
    while True:
        head = await session.journal.head()
        found = await reading.look(loop.time())
        if found is not None:
            return found
        left_s = until_s - loop.time()
        if left_s <= 0:
            return None
        still_there(f"waiting for a person to answer {id}")
        await asyncio.sleep(min(PAUSE_S, left_s))
        pause_s = min(NO_ENGINE_S, max(0.0, until_s - loop.time()))
        await session.journal.store.wait(after=head, timeout_s=pause_s)


class _Reading:
    """The answer to one question, read on from where the run was."""

    def __init__(self, session: Session, run: Run, id: str) -> None:
        self._journal = session.journal
        self._run = run
        self._id = id
        self._after = run.version
        self._inbox_after = run.inbox_cursor
        self._given: str | None = None
        self._given_s = 0.0

    async def look(self, now_s: float) -> str | None:
        """The answer, if it counts by now."""
        known = self._run.questions.get(self._id)
        if known is not None and known.answer is not None:
            return _told(known.answer, known.answered_by)
        async for record in self._journal.read(runs.stream(self._run.id), after=self._after):
            self._after = record.version
            if record.type == "question_answered" and record.data["id"] == self._id:
                return _told(record.data["answer"], record.data.get("by", ""))
        async for record in self._journal.read(inbox(self._run.id), after=self._inbox_after):
            self._inbox_after = record.version
            is_first = self._given is None  # the first one counts, here as for the engine
            if is_first and record.type == "question_answered" and record.data["id"] == self._id:
                self._given, self._given_s = _told(record.data["answer"], record.data.get("by", "")), now_s
        return self._given if self._given is not None and now_s - self._given_s >= NO_ENGINE_S else None


def _told(answer: str, by: str) -> str:
    return f"Answer ({by or 'person'}): {answer}"


# --- the run and the agent's own state --------------------------------------------------------------------------------


async def spawn_task(
    session: Session, errand: Errand, *, name: str, task: str, needs: Sequence[str] = (), agent: str = ""
) -> str:
    """A command in the run's inbox: the scheduler decides."""
    run = await session.run()
    if name in run.tasks and run.tasks[name].plan.get("task") != task:
        raise InvalidInput(f"the run has a task {name!r} already", hint="choose another name")
    wanted: dict[str, Any] = {"name": name, "task": task}
    wanted |= {"needs": list(needs)} if needs else {}
    wanted |= {"agent": agent} if agent else {}
    command = {"tasks": [wanted], "asked_by": session.agent, "at_us": session.clock.now_us()}

    async def effect() -> Effect:
        said = f"recorded: the task {name} will be done by the agent {run.agent(name)}"
        return Effect(said, [Append(inbox(run.id), [Event("tasks_requested", command)])])

    key = Key(f"tools/{run.id}/task/{name}", fingerprint(wanted))
    try:
        return await errand.once(session, "spawn_task", wanted, effect, key=key)
    except KeyReused:
        raise InvalidInput(
            f"a task {name!r} with other contents was asked for already", hint="choose another name"
        ) from None


async def save_state(session: Session, errand: Errand, *, key: str, value: Any) -> str:
    """Kept in the agent's state; the same value again changes nothing, and is no call that is recorded."""
    states = session.maos.state
    source = session.identity.attempt
    try:
        await states.get(session.agent)
    except NotFound:
        await states.create(session.agent, source=source, key=f"tools/{session.agent}/state")

    async def effect() -> Effect | None:
        state = await states.get(session.agent)
        saved = state.data.get(SAVED, {})
        if value is not None and key not in saved and len(saved) >= KEYS_MAX:
            raise InvalidInput(f"there are {len(saved)} keys already", hint="remove some by saving null under them")
        wanted = {SAVED: {key: DELETE if value is None else Replace(value)}}
        change = await states.composed(session.agent, wanted, source=source)
        return None if change is None else Effect("", [change])

    await session.calls.write("save_state", {"key": key}, effect)
    return f"kept, in version {(await states.get(session.agent)).version} of your state"


async def load_state(session: Session, errand: Errand, *, key: str = "") -> str:
    """A value as JSON, or the list of keys."""
    try:
        state = await session.maos.state.get(session.agent)
        saved: Any = state.data.get(SAVED, {})
    except NotFound:
        saved = {}
    if not key:
        return _json(sorted(saved))
    if key not in saved:
        raise NotFound(f"nothing is kept under {key!r}", hint="load_state without a key lists the keys")
    return _json(saved[key])


async def list_agents(session: Session, errand: Errand) -> str:
    """Every task of the run with its agent."""
    run = await session.run()
    found = []
    for task in run.tasks.values():
        agent = run.agent(task.name)
        row = {"agent": agent, "task": task.name, "status": task.status, "type": task.plan.get("agent", "")}
        row |= {"you": True} if agent == session.agent else {}
        row |= await _reported(session, agent) if task.status == TaskStatus.RUNNING else {}
        found.append({name: value for name, value in row.items() if value != ""})
    return _json(found)


async def run_status(session: Session, errand: Errand) -> str:
    """The run in a few words."""
    run = await session.run()
    by_status: dict[str, list[str]] = {}
    for task in run.tasks.values():
        by_status.setdefault(task.status, []).append(task.name)
    asked = [{"id": each.id, "question": each.question} for each in run.open_questions]
    found = await AttemptReader(session.journal).discoveries(run, but=session.agent)
    return _json(
        {
            "run": run.id,
            "request": run.request,
            "status": run.status,
            "percent": run.progress,
            "tasks": by_status,
            "open_questions": asked,
            "discoveries": [{"agent": agent, "text": text} for agent, text in found[-DISCOVERIES_SHOWN:]],
            "cost_usd": round(run.cost_usd, 4),
        }
    )


async def _reported(session: Session, agent: str) -> dict[str, Any]:
    """How far an agent says it is."""
    reports = tool_calls.Reports()
    end = await session.journal.version(tool_calls.stream(agent))
    for record in reversed(await session.journal.page_back(tool_calls.stream(agent), before=end + 1, limit=20)):
        reports.apply(record.event)
    return {} if reports.percent is None else {"percent": reports.percent, "activity": reports.activity}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """States are shown through read-only views of lists and dictionaries."""
    return dict(value) if hasattr(value, "keys") else list(value)


HANDLERS: dict[str, Handler] = {
    handler.__name__: handler
    for handler in (
        report_discovery,
        report_progress,
        send_message,
        read_messages,
        ask_person,
        spawn_task,
        save_state,
        load_state,
        list_agents,
        run_status,
    )
}
