"""Agents, their output and state, and messages over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from maos.errors import InvalidInput
from maos.views.agents import RecordedOutput
from maos.web import documents as d
from maos.web import requests as r
from maos.web.api import Call, Tagged, page_of, within
from maos.web.conversion import agent_info, diff_info, question_infos

if TYPE_CHECKING:
    from maos.model.attempt import Attempt
    from maos.model.read_models import AgentStatus
    from maos.views.messages import MessageInfo

RESULT_CHARS_MAX = 4_000


async def list_agents(call: Call) -> d.AgentPage:
    """List agents, open ones first, then the newest first."""
    query: r.AgentsQuery = call.query
    known, _older = await call.m.agents.statuses()
    prefix = f"{query.run}." if query.run else ""
    found = [each for each in known if each.agent.startswith(prefix) and (each.is_open or not query.open)]
    if call.seen is not None:
        found = [each for each in found if await call.seen.has_agent(each.agent)]
    chosen, more = page_of(found, lambda each: each.agent, query.cursor, query.limit)
    return d.AgentPage(agents=[agent_info(each) for each in chosen], total=len(found), next=more)


async def get_agent(call: Call) -> d.AgentDetailsInfo:
    """Show one agent: its attempts, what it changed and found, and what it asks."""
    found = await call.m.agents.details(call.id)
    asked = [each for each in await call.m.questions.open() if call.id in (each.owner, *each.asked_by)]
    return d.of(
        found.now,
        d.AgentDetailsInfo,
        result=found.now.result[:RESULT_CHARS_MAX],
        attempts=[_attempt_info(each) for each in found.attempts],
        files=None if found.files is None else [d.of(each, d.FileChangeInfo) for each in found.files],
        discoveries=[each.data for each in found.discoveries],
        state_version=found.state_version,
        pending=await question_infos(call.m, asked),
    )


def _attempt_info(attempt: Attempt) -> d.AttemptInfo:
    return d.of(attempt, d.AttemptInfo)


async def read_output(call: Call) -> d.OutputPage:
    """Read a window of what an agent did: the newest by default, before or after a version otherwise."""
    query: r.OutputQuery = call.query
    if query.after is not None and query.before is not None:
        raise InvalidInput("it takes after or before, not both", hint="leave one out")
    window = await call.m.agents.window(
        call.id,
        attempt=query.attempt,
        after=query.after,
        before=query.before,
        limit=query.limit,
        facts_max=query.facts_max,
    )
    events = [
        d.OutputEvent(
            id=each.id,
            attempt=each.attempt,
            version=version,
            type=each.type,
            data=_data(each.data, query.text_chars_max),
            at_us=each.at_us,
            messages={str(number): text for number, text in each.messages.items()},
        )
        for version, each in window.events
    ]
    return d.OutputPage(
        agent=call.id,
        attempt=window.attempt,
        attempts=window.attempts,
        events=events,
        first=events[0].version if events else 0,
        last=events[-1].version if events else 0,
        newest=window.newest,
    )


def _data(data: Mapping[str, Any], chars_max: int) -> Any:
    """The data of an event; output that has nothing to shorten as it is stored, without decoding it."""
    if isinstance(data, RecordedOutput) and (not chars_max or len(data.json) <= chars_max):
        return msgspec.Raw(data.json)
    return _shortened(data, chars_max)


def _shortened(data: Mapping[str, Any], chars_max: int) -> dict[str, Any]:
    """An event without more of each text than was asked for."""
    if not chars_max or "facts" not in data:
        return dict(data)
    return {**data, "facts": [{name: _cut(value, chars_max) for name, value in each.items()} for each in data["facts"]]}


def _cut(value: Any, chars_max: int) -> Any:
    if isinstance(value, str) and len(value) > chars_max:
        return f"{value[:chars_max]} … [{len(value) - chars_max:,} more characters]"
    if isinstance(value, dict):
        return {name: _cut(each, chars_max) for name, each in value.items()}
    return value


async def diff_agent(call: Call) -> d.DiffInfo:
    """Show what an agent changed up to its last checkpoint, and with `patch` the lines."""
    found = await call.m.agents.diff(call.id, patch=call.query.patch)
    return diff_info([d.of(each, d.FileChangeInfo) for each in found.files], found.patch or "")


async def send_message(call: Call) -> d.SentInfo:
    """Send a message to an agent; with an Idempotency-Key, a repeated request sends nothing."""
    number, running = await call.m.agents.tell(call.id, call.body.text, key=call.key or None)
    return d.SentInfo(agent=call.id, message=number, running=running)


async def stop_agent(call: Call) -> AgentStatus:
    """Stop an agent; it can be resumed. Returns before it has ended if that takes longer than some seconds."""
    await within(call.m.agents.stop_and_wait(call.id))
    return agent_info(await call.m.agents.status(call.id))


async def resume_agent(call: Call) -> AgentStatus:
    """Resume an agent that belongs to no run: this server records it. A command is run again as it was started."""
    call.check_executes()
    assert call.credential is not None
    caller = call.server.m.acting_for(call.credential.principal)
    try:
        await call.server.m.supervisor.resume_agent(caller.agents, call.id, text=call.body.text)
    finally:
        await caller.close()
    return agent_info(await call.m.agents.status(call.id))


# --- messages ----------------------------------------------------------------------------------------------------


async def list_messages(call: Call) -> d.MessageList:
    """List the newest messages between agents, with their status at each recipient."""
    query: r.MessagesQuery = call.query
    found = await call.m.messages.newest(run=query.run or None, agent=query.agent, last=query.limit, seen=call.seen)
    messages = [_message_entry(each) for each in found.messages]
    return d.MessageList(messages=messages, earlier=found.earlier, position=found.position)


def _message_entry(each: MessageInfo) -> d.MessageEntry:
    receivers = {name: str(status) for name, status in each.receivers.items()}
    return d.of(each.message, d.MessageEntry, to=list(each.message.to), receivers=receivers)


# --- state -------------------------------------------------------------------------------------------------------


async def list_states(call: Call) -> d.StateList:
    """List agents that have a state, by name."""
    query: r.PageQuery = call.query
    found = [each async for each in call.m.state.all() if await call.sees(agent=each.agent)]
    chosen, more = page_of(found, lambda each: each.agent, query.cursor, query.limit)
    return d.StateList(agents=[d.of(each, d.StateSummaryInfo) for each in chosen], next=more)


async def get_state(call: Call) -> Tagged:
    """Show the state of an agent, now or at a version. Its ETag is its version."""
    version = call.query.version
    state = await (call.m.state.at(call.id, version=version) if version else call.m.state.get(call.id))
    return Tagged(d.of(state, d.StateInfo, data=state.to_dict()), state.version)


async def update_state(call: Call) -> Tagged:
    """Change fields of the state of an agent: with If-Match, only at that version."""
    key = f"http/{call.key}" if call.key else None
    source = str(call.m.principal)
    updated = await call.m.state.update(call.id, call.body.changes, expected=call.expected, source=source, key=key)
    return Tagged(d.of(updated.state, d.StateInfo, data=updated.state.to_dict()), updated.version)


async def list_versions(call: Call) -> d.StateHistoryInfo:
    """List the versions of a state, the oldest first."""
    query: r.PageQuery = call.query
    after = int(query.cursor) if query.cursor.isascii() and query.cursor.isdigit() else 0
    found = await call.m.state.history(call.id, after=after, limit=query.limit + 1)
    shown = found[: query.limit]
    more = str(shown[-1].version) if len(found) > query.limit else None
    return d.StateHistoryInfo(versions=[d.of(each, d.StateVersionInfo) for each in shown], next=more)


async def diff_states(call: Call) -> d.StateDiffInfo:
    """Compare two versions of a state."""
    found = await call.m.state.diff(call.id, call.query.first, call.query.second)
    changes = [d.StateChangeInfo(path=each.path, kind=each.kind, before=each.old, after=each.new) for each in found]
    return d.StateDiffInfo(changes=changes)
