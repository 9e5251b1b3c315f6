"""What each tool does. Arguments have been checked, and hold no secrets; the agent is the door's, whatever they say."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from maos.bus.limits import TooFast, TooMuch
from maos.engine.attempt_reader import AttemptReader
from maos.errors import InvalidInput, KeyReused, NotFound
from maos.faults import crash_point
from maos.ids import check_name
from maos.journal.codec import Event
from maos.journal.journal import Append
from maos.mcp import mail, questions
from maos.mcp.calls import RecordedCall, fingerprint
from maos.mcp.session import Session
from maos.model import tool_calls
from maos.model.attempt import inbox
from maos.model.changes import DELETE, Replace
from maos.model.run import RUNNING
from maos.store.contract import Key

KEYS_MAX = 1_000
DISCOVERIES_SHOWN = 20
SAVED = "saved"
"""Where in an agent's state its own keys are."""

Act = Callable[..., Awaitable[str]]


class Errand:
    """One call of a tool on its way: what it has recorded, and how its client hears that it is still being done."""

    def __init__(self, tell: Callable[[str], None] | None = None) -> None:
        self._tell = tell
        self.calls: list[RecordedCall] = []
        self.read: list[int] = []
        """Messages it tells, by their places in the inbox."""
        self.waits = False
        """Whether it only waits for somebody else."""

    def still_there(self, what: str) -> None:
        """What it waits for; the client is told now and then, if it wants to be."""
        self.waits = True
        if self._tell is not None:
            self._tell(what)


async def report_discovery(session: Session, errand: Errand, *, text: str, keyword: str = "discovery") -> str:
    """Recorded for the person, and told to the other agents of the run (R-104)."""
    call = await session.calls.once("report_discovery", {"text": text, "keyword": keyword})
    errand.calls.append(call)
    if not session.identity.run or await session.is_given_up():
        return "recorded"
    try:
        said = await session.bus.broadcast(
            session.agent,
            session.identity.run,
            text,
            type="discovery",
            metadata={"keyword": keyword},
            heard=await mail.reacts_to(session),
            key=mail.key(session, call),
        )
    except KeyReused:  # sent before; some of those it went to have ended since
        return "recorded"
    except (TooMuch, TooFast) as error:
        return f"recorded, but not told to the other agents: {error.what}"
    return f"recorded, and told to {len(said.to)} other agents" if said.to else "recorded"


async def report_progress(session: Session, errand: Errand, *, percent: float, activity: str) -> str:
    """Recorded; the newest counts."""
    errand.calls.append(await session.calls.once("report_progress", {"percent": percent, "activity": activity}))
    return "recorded"


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
    """Saved before it is delivered (R-301); the sender is whoever has this door (A9)."""
    if bool(to) + broadcast + bool(topic) != 1:
        raise InvalidInput("to whom?", hint="give exactly one of to, broadcast and topic")
    recipient = await mail.recipient(session, to) if to else ""
    if topic:
        check_name(topic, "topic")
    if broadcast or await session.is_given_up():
        await session.run()
    told = {"to": recipient, "broadcast": broadcast, "topic": topic, "text": text, "type": type}
    call = await session.calls.once("send_message", told)
    errand.calls.append(call)
    crash_point("door:between call and message")
    return await mail.send(session, call, recipient, topic, text, type)


async def read_messages(session: Session, errand: Errand, *, wait_s: float) -> str:
    """What waits for the agent; acknowledged when its next request proves that this answer has arrived."""
    found = await mail.read(session, errand.still_there, wait_s=wait_s)
    errand.read += [version for version, _text in found]
    return "\n\n".join(text for _version, text in found) or "no messages"


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
    id = questions.id_of(question)
    now_us = session.clock.now_us()
    asked: dict[str, Any] = {"id": id, "question": question, "asked_by": [session.agent], "at_us": now_us}
    asked |= {"choices": list(choices)} if choices else {}
    asked |= {"context": context} if context else {}
    if default is not None:
        asked |= {"default": default, "expires_us": now_us + int(default_after_s * 1e6)}
    call = await session.calls.once(
        "ask_person",
        {"id": id, "question": question},
        [Append(inbox(run.id), [Event("question_asked", asked)])],
        key=Key(f"tools/{session.agent}/{id}", fingerprint(id)),
    )
    errand.calls.append(call)
    answer = await questions.answer(session, run, id, errand.still_there, wait_s=wait_s)
    if answer is None:
        return questions.LATER.format(id=id)
    errand.read += await questions.hand_out(session, id)
    return answer


async def spawn_task(
    session: Session, errand: Errand, *, name: str, task: str, needs: Sequence[str] = (), agent: str = ""
) -> str:
    """A wish in the run's inbox: the scheduler decides."""
    run = await session.run()
    if name in run.tasks and run.tasks[name].plan.get("task") != task:
        raise InvalidInput(f"the run has a task {name!r} already", hint="choose another name")
    wanted: dict[str, Any] = {"name": name, "task": task}
    wanted |= {"needs": list(needs)} if needs else {}
    wanted |= {"agent": agent} if agent else {}
    wish = {"tasks": [wanted], "asked_by": session.agent, "at_us": session.clock.now_us()}
    key = Key(f"tools/{run.id}/task/{name}", fingerprint(wanted))
    try:
        call = await session.calls.once(
            "spawn_task", wanted, [Append(inbox(run.id), [Event("tasks_requested", wish)])], key=key
        )
    except KeyReused:
        raise InvalidInput(
            f"a task {name!r} with other contents was asked for already", hint="choose another name"
        ) from None
    errand.calls.append(call)
    return f"recorded: the task {name} will be done by the agent {run.agent(name)}"


async def save_state(session: Session, errand: Errand, *, key: str, value: Any) -> str:
    """Kept in the agent's state; the same value again changes nothing."""
    states = session.maos.agents
    try:
        state = await states.get(session.agent)
    except NotFound:
        state = await states.create(session.agent, source=session.identity.attempt, key=f"tools/{session.agent}/state")
    saved = state.data.get(SAVED, {})
    if value is not None and key not in saved and len(saved) >= KEYS_MAX:
        raise InvalidInput(f"there are {len(saved)} keys already", hint="remove some by saving null under them")
    crash_point("door:before save_state")
    wanted = {SAVED: {key: DELETE if value is None else Replace(value)}}
    update = await states.update(session.agent, wanted, source=session.identity.attempt)
    crash_point("door:after save_state")
    return f"kept, in version {update.version} of your state"


async def load_state(session: Session, errand: Errand, *, key: str = "") -> str:
    """A value as JSON, or the list of keys."""
    try:
        state = await session.maos.agents.get(session.agent)
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
        row |= await _reported(session, agent) if task.status == RUNNING else {}
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
        reports.apply(record.type, record.data)
    return {} if reports.percent is None else {"percent": reports.percent, "activity": reports.activity}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """States are shown through read-only views of lists and dictionaries."""
    return dict(value) if hasattr(value, "keys") else list(value)


ACTS: dict[str, Act] = {
    act.__name__: act
    for act in (
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
