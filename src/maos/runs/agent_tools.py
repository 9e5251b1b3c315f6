"""The tools of one agent: report, send and read messages, ask a person, add a task, save state.

Arguments have been checked by the tool server, and have no secrets. A call is written together with what it changes, in
one append (see `ToolLog`), so none is there without the other.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from maos.bus.acknowledgements import Waiting, acknowledge, hand_out, load
from maos.bus.bus import Bus
from maos.bus.outbox import OF_AGENTS, TooFast, TooMuch
from maos.clock import MICROSECONDS, Clock
from maos.engine.questions import pending_of
from maos.engine.streams import ATTEMPT, RUN, AttemptReader
from maos.errors import InvalidInput, KeyReused, NotFound, NotPermitted
from maos.faults import crash_point
from maos.ids import check_name
from maos.journal.journal import Append, Journal
from maos.model import attempt as attempts
from maos.model import run as runs
from maos.model import tool_calls
from maos.model.changes import DELETE, Replace
from maos.model.events.attempt import AttemptOutput
from maos.model.events.commands import TasksRequested
from maos.model.events.facts import ToolUse
from maos.model.events.messages import MessageSent
from maos.model.events.parts import PERSON
from maos.model.events.run import QuestionAsked
from maos.model.message import Message, acks, inbox, render
from maos.model.question import ANSWER, NO_ANSWER, question_id
from maos.model.run import Run
from maos.model.status import TaskStatus
from maos.runs.budgets import left_of
from maos.runs.decisions import DEFAULT
from maos.runs.tool_log import Compose, RecordedCall, ToolEffect, ToolLog, fingerprint
from maos.state.agents import AgentStates
from maos.store.contract import Key
from maos.tuples import NamedTuple

TOOLS = (
    "report_discovery", "report_progress", "send_message", "read_messages", "ask_person", "spawn_task", "save_state",
    "load_state", "list_agents", "run_status",
)  # fmt: skip
"""The methods of AgentTools that a tool server offers."""

KEYS_MAX = 1_000
DISCOVERIES_SHOWN = 20
SAVED = "saved"
"""The part of an agent's state that has the keys of `save_state`."""
MESSAGES_MAX = 20
CHARS_MAX = 64_000
"""How much text `read_messages` returns at once, unless the first message is longer."""
WORK_EVENTS_MAX = 1_000
"""How many events back to look for work between two messages."""
PAUSE_S = 0.2
"""The shortest time between two looks at the journal while a call waits."""
NO_ENGINE_S = 2.0
"""After this time an answer in the run's inbox counts although no engine has recorded it: none is running."""
NEWS_S = 5.0

LATER = (
    f"{NO_ANSWER} The question is recorded as {{id}}, and the answer will be sent to you as a message. "
    "Continue with work that does not depend on it; if there is none, stop now."
)
ELSEWHERE = "no other messages: those that came while you waited were put into your conversation"

T = TypeVar("T")
OnWait = Callable[[str], None]
"""Called with what a call waits for, each time it looks and finds nothing."""


class ToolReply(NamedTuple):
    """What a tool replies to its agent."""

    text: str
    calls: Sequence[RecordedCall] = ()
    """The recorded calls that it is the reply to."""
    read: Sequence[int] = ()
    """The messages in it, by their versions in the agent's inbox."""


class AgentTools:
    """What one agent does through its tools, from any process and also while no engine runs."""

    def __init__(
        self, journal: Journal, clock: Clock, bus: Bus, states: AgentStates, *, agent: str, attempt: str, run: str
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._bus = bus.limited(OF_AGENTS)
        self._states = states
        self._agent = attempts.check_agent(agent)
        self._attempt = attempt
        self._run = run
        self.log = ToolLog(journal, clock, agent, attempt)
        self._sent: list[tuple[int, ToolReply]] = []
        self._acknowledged: list[int] = []
        self._turn = asyncio.Lock()

    @classmethod
    async def of_principal(cls, journal: Journal, clock: Clock, bus: Bus, states: AgentStates) -> AgentTools:
        """The tools of the agent that this process belongs to; NotPermitted when it belongs to none."""
        who = journal.principal
        attempt = await ATTEMPT.load(journal, who.attempt) if who.is_agent else None
        if attempt is None:
            raise NotPermitted(f"{who} is no agent, and has no tools of one", hint="maos sets them up for its agents")
        run = attempt.order.get("run", "")
        return cls(journal, clock, bus, states, agent=attempt.agent, attempt=attempt.id, run=run)

    # --- replies -------------------------------------------------------------------------------------------------

    def sent(self, reply: ToolReply, number: int) -> None:
        """Note that a reply was sent as the `number`-th message to the client."""
        self._sent.append((number, reply))

    def prove(self, seen: int) -> None:
        """Note that the client has received the first `seen` messages: it made another request after them."""
        arrived = [reply for number, reply in self._sent if number <= seen]
        self._sent = [each for each in self._sent if each[0] > seen]
        for reply in arrived:
            self._acknowledged += reply.read
            self.log.prove(reply.calls)

    async def acknowledge(self) -> None:
        """Acknowledge the messages that are proved to have arrived; until then they are returned again (R-303)."""
        async with self._turn:
            versions, self._acknowledged = self._acknowledged, []
            if not versions:
                return
            crash_point("tool:before acknowledgement")
            try:
                await self._journal.append_all(acknowledge(self._agent, versions))
            except BaseException:
                self._acknowledged += versions
                raise

    async def _once(
        self, tool: str, arguments: Mapping[str, Any], effect: ToolEffect | Compose, *, key: Key | None = None
    ) -> ToolReply:
        call = await self.log.once(tool, arguments, effect, key=key)
        return ToolReply(call.reply, [call])

    # --- reports -------------------------------------------------------------------------------------------------

    async def report_discovery(self, *, text: str, keyword: str = "discovery") -> ToolReply:
        """Record a discovery for the person, and send it to the other agents of the run (R-104)."""

        async def effect() -> ToolEffect:
            if not self._run or await self._is_abandoned():
                return ToolEffect("recorded")
            try:
                message, appends = await self._compose(text, type="discovery", metadata={"keyword": keyword})
            except (TooMuch, TooFast) as error:
                return ToolEffect(f"recorded, but not sent to the other agents: {error.what}")
            count = len(message.to)
            others = f"{count} other agent{'s' if count > 1 else ''}"
            return ToolEffect(f"recorded, and sent to {others}" if count else "recorded", appends)

        return await self._once("report_discovery", {"text": text, "keyword": keyword}, effect)

    async def report_progress(self, *, percent: float, activity: str) -> ToolReply:
        """Record how far the agent is; the newest report counts."""
        progress = {"percent": percent, "activity": activity}
        return await self._once("report_progress", progress, ToolEffect("recorded"))

    # --- messages ------------------------------------------------------------------------------------------------

    async def send_message(
        self, *, text: str, type: str = "info", to: str = "", broadcast: bool = False, topic: str = ""
    ) -> ToolReply:
        """Send a message, which is saved before it is delivered (R-301); the sender is always this agent (A9)."""
        if bool(to) + broadcast + bool(topic) != 1:
            raise InvalidInput("no recipient, or several", hint="give exactly one of to, broadcast and topic")
        name = await self._recipient(to) if to else ""
        if topic:
            check_name(topic, "topic")
        if broadcast or await self._is_abandoned():
            await self._own_run()

        async def effect() -> ToolEffect:
            message, appends = await self._compose(text, to=name, topic=topic, type=type)
            to = ", ".join(message.to) or "no agent: there is no other one"
            return ToolEffect(f"sent as {message.id} to {to}", appends, stored=["text"])

        call = {"to": name, "broadcast": broadcast, "topic": topic, "text": text, "type": type}
        return await self._once("send_message", call, effect)

    async def _compose(self, text: str, **more: Any) -> tuple[Message, list[Append]]:
        received = await self._reacts_to()
        outgoing = await self._bus.compose(self._agent, text, run=self._run, received=received, **more)
        appends = await outgoing.appends()  # which finds the recipients of its message
        return outgoing.message, appends

    async def _recipient(self, to: str) -> str:
        """The agent that `to` names: in a run, by its own name or that of its task; else any that ever ran."""
        if self._run:
            run = await self._own_run()
            if to in {run.agent(task) for task in run.tasks}:
                return to
            if to in run.tasks:
                return run.agent(to)
            names = ", ".join(run.tasks)[:500]
            raise NotFound(f"there is no agent {to!r:.100} in your run", hint=f"there are: {names}")
        attempts.check_agent(to)
        if not await self._journal.version(attempts.stream(attempts.attempt_id(to, 1))):
            raise NotFound(f"there is no agent {to!r}", hint="check its name")
        return to

    async def _reacts_to(self) -> Message | None:
        """The last message that the agent received, unless a person sent it or the agent has worked since.

        The hop limit stops agents that do nothing but answer each other (A9); agents that work between their messages
        may send any number.
        """
        last = await self._bus.last_received(self._agent)
        if last is None or last.message.sender == PERSON:
            return None
        stream = attempts.stream(self._attempt)
        for record in await self._journal.page_back(stream, limit=WORK_EVENTS_MAX):
            if record.position < last.position:
                break
            if isinstance(record.event, AttemptOutput) and _shows_work(record.event):
                return None
        return last.message

    async def read_messages(self, *, wait_s: float = 0.0, on_wait: OnWait | None = None) -> ToolReply:
        """Return the unread messages; acknowledged when the next request proves that this reply has arrived.

        That they are handed out is recorded first (I21), so an engine that runs the agent does not deliver them too.
        """
        before = await self._journal.version(inbox(self._agent))

        async def look() -> ToolReply | None:
            found = await self._unread()
            if found:
                text = "\n\n".join(render(each.message) for each in found)
                return ToolReply(text, read=await self._hand_out(found))
            return ToolReply(ELSEWHERE) if await self._came_elsewhere(before) else None

        streams = inbox(self._agent), acks(self._agent)
        found = await self._look_until(look, "waiting for a message", wait_s, NEWS_S, on_wait, streams)
        return found or ToolReply("no messages")

    async def _unread(self) -> list[Waiting]:
        found: list[Waiting] = []
        chars = 0
        now_us = self._clock.now_us()
        async for waiting in self._bus.waiting(self._agent):
            if waiting.message.is_expired(now_us):
                continue
            chars += len(render(waiting.message))
            if found and (len(found) == MESSAGES_MAX or chars > CHARS_MAX):
                break
            found.append(waiting)
        return found

    async def _hand_out(self, found: Sequence[Waiting]) -> list[int]:
        """Record that the agent gets messages in a reply; return their versions."""
        versions = [each.message.version for each in found]
        if versions:
            await self._journal.append_all(hand_out(self._agent, versions))
        return versions

    async def _came_elsewhere(self, before: int) -> bool:
        """Whether the engine has delivered a message that came after a version of the inbox."""
        fold = await load(self._journal, self._agent)
        async for record in self._journal.read(inbox(self._agent), after=before):
            if isinstance(record.event, MessageSent) and fold.is_resolved(record.version):
                return True
        return False

    async def _look_until(
        self,
        look: Callable[[], Awaitable[T | None]],
        what: str,
        wait_s: float,
        news_s: float,
        on_wait: OnWait | None,
        streams: Collection[str],
    ) -> T | None:
        """Look, again whenever some streams have grown and at least every `news_s`, until found or `wait_s` is over."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + wait_s
        while True:
            head = await self._journal.head()
            found = await look()
            left_s = until_s - loop.time()
            if found is not None or left_s <= 0:
                return found
            if on_wait is not None:
                on_wait(what)
            await asyncio.sleep(min(PAUSE_S, left_s))
            timeout_s = min(news_s, max(0.0, until_s - loop.time()))
            await self._journal.store.wait(after=head, timeout_s=timeout_s, streams=streams)

    # --- questions -----------------------------------------------------------------------------------------------

    async def ask_person(
        self,
        *,
        question: str,
        wait_s: float = 0.0,
        default_after_s: float = 0.0,
        choices: Sequence[str] = (),
        context: str = "",
        default: str | None = None,
        on_wait: OnWait | None = None,
    ) -> ToolReply:
        """Record a question to a person, then wait for the answer (R-207)."""
        if (default is None) != (default_after_s == 0):
            raise InvalidInput("default and default_after_s go together", hint="give both, or none of them")
        run = await self._own_run()
        id = question_id(question)
        now_us = self._clock.now_us()
        asked = QuestionAsked(
            id=id,
            question=question,
            asked_by=[self._agent],
            choices=list(choices),
            context=context,
            default=default,
            expires_us=now_us + int(default_after_s * MICROSECONDS) if default is not None else 0,
            at_us=now_us,
        )
        effect = ToolEffect("", [Append(inbox(run.id), [asked])])
        key = Key(f"tools/{self._agent}/{id}", fingerprint(id))
        recorded = await self._once("ask_person", {"id": id, "question": question}, effect, key=key)
        given_s, loop = 0.0, asyncio.get_running_loop()

        async def look() -> str | None:
            """The answer that the engine has recorded, or one in the inbox that it would have recorded by now."""
            nonlocal given_s
            async for record in self._journal.read(runs.stream(run.id), after=run.version):
                run.apply(record.event)
            pending = await pending_of(self._journal, run)
            known = pending.questions.get(id)
            if known is None or known.answer is None:
                return None
            given_s = given_s or loop.time()
            if id in pending.unrecorded and loop.time() - given_s < NO_ENGINE_S:
                return None
            return ANSWER.format(by=DEFAULT if known.answered_by == DEFAULT else PERSON, answer=known.answer)

        streams, what = (runs.stream(run.id), inbox(run.id)), f"waiting for a person to answer {id}"
        answer = await self._look_until(look, what, wait_s, NO_ENGINE_S, on_wait, streams)
        if answer is None:
            return recorded._replace(text=LATER.format(id=id))
        waiting = [each async for each in self._bus.waiting(self._agent)]
        the_same = [each for each in waiting if each.message.metadata.get("question") == id]
        return recorded._replace(text=answer, read=await self._hand_out(the_same))

    # --- the run -------------------------------------------------------------------------------------------------

    async def spawn_task(self, *, name: str, task: str, needs: Sequence[str] = (), agent: str = "") -> ToolReply:
        """Record the command to add a task, which the run's scheduler accepts or refuses."""
        run = await self._own_run()
        if name in run.tasks and run.tasks[name].plan.get("task") != task:
            raise InvalidInput(f"the run has a task {name!r} already", hint="choose another name")
        wanted: dict[str, Any] = {"name": name, "task": task}
        wanted |= {"needs": list(needs)} if needs else {}
        wanted |= {"agent": agent} if agent else {}
        command = TasksRequested(tasks=[wanted], asked_by=self._agent, by=self._journal.by, at_us=self._clock.now_us())
        reply = f"recorded: the task {name} will be done by the agent {run.agent(name)}"
        effect = ToolEffect(reply, [Append(inbox(run.id), [command])])
        key = Key(f"tools/{run.id}/task/{name}", fingerprint(wanted))
        try:
            return await self._once("spawn_task", wanted, effect, key=key)
        except KeyReused:
            what = f"a task {name!r} with other contents was requested already"
            raise InvalidInput(what, hint="choose another name") from None

    async def list_agents(self) -> list[dict[str, Any]]:
        """Return every task of the run with its agent; what is not known of one is left out."""
        run = await self._own_run()
        found = []
        for task in run.tasks.values():
            agent = run.agent(task.name)
            listed = {"agent": agent, "task": task.name, "status": task.status, "type": task.plan.get("agent") or None}
            listed["you"] = True if agent == self._agent else None
            if task.status == TaskStatus.RUNNING:
                reports = await self._reports(agent)
                listed |= {"percent": reports.percent, "activity": reports.activity or None}
            found.append({name: value for name, value in listed.items() if value is not None})
        return found

    async def _reports(self, agent: str) -> tool_calls.Reports:
        reports = tool_calls.Reports()
        for record in reversed(await self._journal.page_back(tool_calls.stream(agent), limit=20)):
            reports.apply(record.event)
        return reports

    async def run_status(self) -> dict[str, Any]:
        """Return the tasks, open questions, discoveries and cost of the run."""
        run = await self._own_run()
        by_status: dict[str, list[str]] = {}
        for task in run.tasks.values():
            by_status.setdefault(task.status, []).append(task.name)
        found = await AttemptReader(self._journal).discoveries(run, but=self._agent)
        return {
            "run": run.id,
            "request": run.request,
            "status": run.status,
            "percent": run.progress,
            "tasks": by_status,
            "open_questions": [{"id": each.id, "question": each.question} for each in run.open_questions],
            "discoveries": [
                {"agent": run.agent(task.name), "text": each.text} for task, each in found[-DISCOVERIES_SHOWN:]
            ],
            "cost_usd": round(run.spent.cost_usd, 4),
            "left_usd": left_of(run, run.spent, self._clock.now_us()).usd,
        }

    async def _own_run(self) -> Run:
        """The run of this agent; InvalidInput when there is none, or when it was rolled back to before this agent."""
        if not self._run:
            raise InvalidInput("you are not part of a run", hint="do without this tool")
        run = await RUN.load(self._journal, self._run)
        if run is None:
            raise NotFound(f"the run {self._run} is not in the journal", hint="do without this tool")
        if not run.accepts_from(self._agent):
            raise InvalidInput(f"the run was rolled back, and {self._agent} is no longer part of it", hint="stop now")
        return run

    async def _is_abandoned(self) -> bool:
        """Whether the agent belongs to an abandoned branch of its run, whose agents reach no other agent (I14)."""
        run = await RUN.load(self._journal, self._run) if self._run else None
        return run is not None and not run.accepts_from(self._agent)

    # --- the agent's state ---------------------------------------------------------------------------------------

    async def save_state(self, *, key: str, value: Any) -> ToolReply:
        """Save a value under a key; null removes the key. A value that is saved already changes and records nothing."""
        try:
            await self._states.get(self._agent)
        except NotFound:
            await self._states.create(self._agent, source=self._attempt, key=f"tools/{self._agent}/state")

        async def effect() -> ToolEffect | None:
            saved = (await self._states.get(self._agent)).data.get(SAVED, {})
            if value is not None and key not in saved and len(saved) >= KEYS_MAX:
                raise InvalidInput(f"there are {len(saved)} keys already", hint="remove some by saving null under them")
            wanted = {SAVED: {key: DELETE if value is None else Replace(value)}}
            change = await self._states.composed(self._agent, wanted, source=self._attempt)
            return None if change is None else ToolEffect("", [change])

        await self.log.write("save_state", {"key": key}, effect)
        return ToolReply(f"saved, in version {(await self._states.get(self._agent)).version} of your state")

    async def load_state(self, *, key: str = "") -> Any:
        """Return the value that is saved under a key, or without a key the list of keys."""
        try:
            saved = (await self._states.get(self._agent)).raw().get(SAVED, {})
        except NotFound:
            saved = {}
        if not key:
            return sorted(saved)
        if key not in saved:
            raise NotFound(f"nothing is saved under {key!r}", hint="load_state without a key lists the keys")
        return saved[key]


def _shows_work(output: AttemptOutput) -> bool:
    """Whether the agent used a tool; the tools of maos are talk, except for asking a person."""
    used = [re.split(r"__|\W", fact.name)[-1] for fact in output.facts if isinstance(fact, ToolUse)]
    return any(name == "ask_person" or name not in TOOLS for name in used)
