"""A running attempt: what its agent prints becomes facts, commands to it are executed, and its end is recorded.

Whatever is killed, the next engine continues from what is recorded: output from the recorded offset, replies and
messages by ids that the holder has seen or not, the end of a turn and of the attempt from the fold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from maos import workspaces
from maos.agents.contract import Dialect, LaunchOrder, Reply
from maos.bus.bus import Bus
from maos.bus.mailbox import patiently
from maos.clock import MICROSECONDS, Clock
from maos.engine import checkpoints, log, permissions, transcripts
from maos.engine.delivery import MessageDelivery
from maos.engine.output import OutputReader
from maos.engine.ownership import liveness
from maos.engine.questions import pending_of
from maos.engine.recorder import Recorder
from maos.engine.streams import ATTEMPT, RUN
from maos.errors import LeaseLost
from maos.faults import crash_point
from maos.holder import client
from maos.holder.agent_process import AgentProcess, HolderGone, InputFull, remove
from maos.holder.records import SpoolRecord, left_behind
from maos.journal.codec import EventTooLarge
from maos.journal.journal import Record
from maos.model.attempt import Attempt
from maos.model.events import facts
from maos.model.events.attempt import (
    AttemptAnswered,
    AttemptCheckpointed,
    AttemptEnded,
    AttemptLimited,
    AttemptOutput,
    AttemptStopping,
)
from maos.model.events.commands import GRACE_S, CheckpointRequested, PermissionAnswered, StopRequested
from maos.model.events.facts import Fact, bounded
from maos.model.events.messages import MessageSent
from maos.model.failure import ANSWERED, Ending, understand
from maos.model.message import inbox, message
from maos.model.permission import StoredRule, ToolRequest
from maos.model.status import AttemptStatus
from maos.settings.loader import Current
from maos.workspaces import Workspace

GROUP_RECORDS_MAX = 1000
GROUP_BYTES_MAX = 1 << 20
INPUT_PAUSE_S = 0.5
RULES_LOOK_S = 1.0
"""How often to look for new rules while an agent waits for a permission."""
UNTOLD_US_MAX = 10_000_000
UNTOLD_BYTES_MAX = 256 << 10
"""For how long, and for how much, lines that mean nothing by themselves wait in the spool for one that does."""

Listener = Callable[[Attempt, Sequence[Fact]], None]
_DETACHED = log.Action("agent.detached", "engine detached from the agent, which keeps running")


class LiveAttempt:
    """One attempt that this process runs. What ends it and how often it is saved follows the settings, which change."""

    def __init__(
        self,
        recorder: Recorder[Attempt],
        dialect: Dialect,
        order: LaunchOrder,
        *,
        folder: Path | None,
        process: AgentProcess | None,
        secrets: Mapping[str, str],
        clock: Clock,
        bus: Bus,
        settings: Current,
        listener: Listener | None = None,
    ) -> None:
        self.recorder = recorder
        self.task: asyncio.Task[Attempt] | None = None
        """What runs it."""
        self._dialect = dialect
        self._order = order
        self._folder = folder
        """That of its holder, if it was on this machine."""
        self._process = process
        self._secrets = secrets
        """Values that its transcript is recorded without."""
        self._clock = clock
        self._bus = bus
        self._settings = settings
        self._listener = listener
        self._output = OutputReader(dialect, order, recorder.fold, settings)
        self._messages = MessageDelivery(
            recorder.fold,
            self._output,
            bus,
            clock,
            prose=dialect.capabilities.prose,
            write=self._write,
            is_behind=lambda: self._is_behind,
        )
        self._executed = min(recorder.fold.inbox_cursor, recorder.fold.answered_cursor)
        """The version of the inbox up to which every command and message was taken in."""
        self._checkpointed = recorder.fold.version
        self._heard_us = 0
        """When it said anything, recorded or not."""
        self._heard_offset = recorder.fold.offset
        """Up to where its output was received, recorded or not."""
        self._is_limit_suspended: bool | None = None
        """What the holder was last told of the time limit; None before this engine has told it anything."""
        self._waited_s = 0.0
        self._waits_since_s: float | None = None
        self._answering = asyncio.Lock()
        """Held while an answer to a request for permission is recorded."""
        self._has_finished = asyncio.Event()
        """Set while it has answered and is sent nothing more, so that it should exit."""
        self._awaits_answer = False
        """Whether its turn has ended, and a person has not answered a question of it."""

    @property
    def attempt(self) -> Attempt:
        """What is known of it."""
        return self.recorder.fold

    @property
    def is_answering(self) -> bool:
        """Whether an answer of its model is on its way, as far as its program says."""
        return self._output.conversation.is_answering

    @property
    def waited_s(self) -> float:
        """How long its time limit was suspended while this engine was attached."""
        now_s = asyncio.get_running_loop().time()
        return self._waited_s + (now_s - self._waits_since_s if self._waits_since_s is not None else 0.0)

    async def wait(self) -> Attempt:
        """Wait until it has ended. LeaseLost when another engine has claimed it."""
        assert self.task is not None
        try:
            return await asyncio.shield(self.task)
        except asyncio.CancelledError:
            self.task.add_done_callback(lambda done: done.cancelled() or done.exception())  # no other task reads it
            raise

    async def run(self) -> Attempt:
        """Record the agent's output until it exits. If this is cancelled, detach; the agent keeps running."""
        if self._process is None:
            await self._conclude()
            return self.attempt
        try:
            while self._process is not None:
                try:
                    await self._hear_while_watching(self._process)
                    break
                except HolderGone:
                    await self._attach_again(self._process)
            await self._conclude()
        except LeaseLost:
            await self._end_if_taken_elsewhere()
            raise
        finally:
            if self._process is not None:
                await self._process.detach()
                if self.attempt.is_open:
                    log.write(log.ENGINE, _DETACHED, agent=self.attempt.agent)
        return self.attempt

    async def _hear_while_watching(self, process: AgentProcess) -> None:
        """Until the agent has ended, or one of the watching tasks fails."""
        self._is_limit_suspended = None
        watch = (self._make_checkpoints, self._watch_silence, self._watch_exit, self._watch_rules)
        work = (self.recorder.keep_lease, self._execute_commands, *watch)
        tasks = [asyncio.create_task(self._hear_all(process)), *(asyncio.create_task(each()) for each in work)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            (tasks[0] if tasks[0] in done else done.pop()).result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # --- hearing ---------------------------------------------------------------------------------------------

    async def _hear_all(self, process: AgentProcess) -> None:
        if self.attempt.is_open and not self.attempt.in_turn:
            await self._after_turn()
        await self._repeat_answers()
        await self._apply_rules()
        await self._suspend_limit()
        while not self.attempt.exit and (records := await process.records()):
            await self._hear(records)

    async def _end_if_taken_elsewhere(self) -> None:
        """Kill the agent and its holder if an engine on another machine has claimed it: that one cannot reach them, and
        two must not act for one agent. What it still printed is not recorded."""
        if (process := self._process) is None:
            return
        found = await ATTEMPT.load(self.recorder.journal, self.attempt.id)
        if found is not None and not liveness(found.owner).is_here:
            await process.kill()
            while records := await process.records():
                await process.confirm(records[-1].offset)
            await process.finish()

    async def _attach_again(self, lost: AgentProcess) -> None:
        """Continue from what is recorded: with the holder if it only hung up, else with what it left on disk."""
        await lost.detach()
        self._process = None
        self._heard_offset = self.attempt.offset
        self._output.restart()
        folder, after = lost.folder, self.attempt.offset
        try:
            self._process = await client.attach(folder, token=self.recorder.lease.token, after=after)
        except HolderGone:
            await self.hear_rest(left_behind(folder, after=after))

    async def hear_rest(self, records: Iterable[SpoolRecord]) -> None:
        """Record what a holder that has exited left behind, in events of the size that a living one leads to."""
        group: list[SpoolRecord] = []
        size = 0
        for record in records:
            group.append(record)
            size += len(record.data)
            if len(group) >= GROUP_RECORDS_MAX or size >= GROUP_BYTES_MAX:
                await self._hear(group)
                group, size = [], 0
        if group:
            await self._hear(group)

    async def _hear(self, records: Sequence[SpoolRecord]) -> None:
        """Line 4/8: a group of lines becomes one event, addressed by stream, version and lease."""
        attempt = self.attempt
        self._heard_us = records[-1].time_us
        was_behind = self._is_behind
        self._heard_offset = records[-1].offset
        ready, replies, offset, state = self._output.read(records)
        for reply in replies:  # before they are recorded: a line heard again is answered with the same ids
            await self._write(reply)
        if offset == attempt.offset or not (ready or replies or self._is_due(offset)):
            return
        if attempt.told and any(map(_shows_work, ready)):
            ready = [*(facts.InputReceived(f"inbox/{version}") for version in attempt.told), *ready]
        changed = state if state != (attempt.conversation or {}) else None
        self._messages.note_reading(ready)
        ready, answers = await self._answered_by_rules(ready)
        output = AttemptOutput(offset=offset, at_us=records[-1].time_us, facts=ready, conversation=changed)
        acknowledged = self._messages.acknowledgements(ready)
        try:
            await self.recorder.append(output, *answers, also=acknowledged)
        except EventTooLarge:  # a line can stand for many times its size: the worst of it is a record that says so
            await self.recorder.append(replace(output, facts=bounded(ready)), *answers, also=acknowledged)
        if answers:
            crash_point("attempt:answered by a rule")
            await self._repeat_answers()
        if attempt.in_turn:
            self._has_finished.clear()
            self._awaits_answer = False
        await self._suspend_limit()
        if was_behind and not self._is_behind:
            await self._messages.deliver()
        if self._listener is not None:
            self._listener(attempt, ready)
        if self._is_over_budget():
            await self.stop(why="budget")
        if self._process is not None:
            await self._process.confirm(offset)
            if not attempt.in_turn and any(isinstance(each, facts.TurnEnded) for each in ready):
                if self._is_saved("turn"):
                    await self.checkpoint(trigger="turn")
                await self._after_turn()

    def _is_over_budget(self) -> bool:
        """Whether the agent continues its turn beyond its limit of money, which its program does not enforce."""
        attempt, limit_usd = self.attempt, self._order.budget_usd
        is_enforced = self._dialect.capabilities.limits_cost or attempt.stopping or not attempt.in_turn
        return bool(limit_usd) and not is_enforced and attempt.cost_usd >= limit_usd

    def _is_due(self, offset: int) -> bool:
        """Whether lines without a fact, such as a few words of a paragraph, have waited long enough to be recorded.

        Meanwhile the holder keeps them. An engine that takes over reads them again, with the same result.
        """
        untold_us = self._heard_us - self.attempt.output_us
        untold_bytes = offset - self.attempt.offset
        return self._process is None or untold_us > UNTOLD_US_MAX or untold_bytes > UNTOLD_BYTES_MAX

    # --- speaking --------------------------------------------------------------------------------------------

    async def _write(self, reply: Reply) -> None:
        if self._process is not None:
            crash_point("attempt:before input")
            while True:
                try:
                    await self._process.write(reply.id, reply.data, close=reply.closes)
                    break
                except InputFull:  # it does not read its input now; its output is kept meanwhile
                    await asyncio.sleep(INPUT_PAUSE_S)
            crash_point("attempt:after input")

    async def _execute_commands(self) -> None:
        """Take in what comes into the agent's inbox; a command that was cut short is executed again."""
        async with await self._bus.mailbox.open(self.attempt.agent, after=self._executed) as inbox:
            async for record in inbox:
                if self._is_new(record):
                    await self._execute(record)
                self._executed = record.version

    def _is_new(self, record: Record) -> bool:
        """Whether a record of the inbox is for this attempt, and not taken in by an engine before this one."""
        if record.type == MessageSent.type:
            return self._messages.is_new(record.version)
        return record.version > self.attempt.answered_cursor and record.time_us >= self.attempt.planned_us

    async def _execute(self, record: Record) -> None:
        match record.event:
            case MessageSent():
                self._messages.take_in(message(record.event, version=record.version))
                await self._messages.deliver()
            case StopRequested(grace_s=grace_s, by=by):
                await self.stop(grace_s=grace_s, by=by, inbox_version=record.version)
            case CheckpointRequested(name=name):
                if name not in {each.name for each in self.attempt.checkpoints}:
                    await self.checkpoint(name, trigger="asked")
            case PermissionAnswered() as given:
                await self._record_answer(
                    AttemptAnswered(
                        request=given.request,
                        allow=given.allow,
                        why=given.why,
                        by=given.by,
                        rule=given.rule,
                        rule_id=given.rule_id,
                        always=given.always,
                        inbox_version=record.version,
                        at_us=self._clock.now_us(),
                    )
                )

    @property
    def _is_behind(self) -> bool:
        """Whether the agent printed something before this engine attached that the engine has not received yet."""
        return self._process is not None and self._heard_offset < int(self._process.state["spool_end"])

    async def _after_turn(self) -> None:
        """The agent has answered: it gets what is waiting for it, or may finish."""
        if await self._messages.deliver_after_turn():
            return
        self._awaits_answer = await self._has_open_question()
        if not self._awaits_answer:
            reply = self._output.conversation.end()
            if reply is not None:
                await self._write(reply)
            self._has_finished.set()
        await self._suspend_limit()

    async def _has_open_question(self) -> bool:
        """Whether it has asked a person something and was told to stop until the answer comes, which it has not."""
        attempt, journal = self.attempt, self.recorder.journal
        if not attempt.answers_promised:
            return False
        run = await RUN.load(journal, attempt.order.get("run", ""))
        if run is None or not run.is_open:
            return False
        asked = {each for each in attempt.answers_promised if each in (await pending_of(journal, run)).questions}
        async for record in journal.read(inbox(attempt.agent)):
            if isinstance(record.event, MessageSent):
                asked.discard(record.event.metadata.get("question", ""))
        return bool(asked)

    # --- permissions -----------------------------------------------------------------------------------------

    async def answer(self, request: str, *, allow: bool, why: str = "") -> None:
        """Answer what the agent asks to be allowed to do."""
        by, at_us = self.recorder.journal.by, self._clock.now_us()
        await self._record_answer(AttemptAnswered(request=request, allow=allow, why=why, by=by, at_us=at_us))

    async def _record_answer(self, answered: AttemptAnswered) -> None:
        """Record an answer, unless another one was recorded before: the first answer counts."""
        async with self._answering:
            asked = self.attempt.permissions.get(answered.request)
            if asked is None or not asked.is_open:
                return
            await self.recorder.append(answered)
        crash_point("attempt:answer recorded")
        await self._repeat_answers()
        await self._suspend_limit()

    async def _answered_by_rules(self, ready: list[Fact]) -> tuple[list[Fact], list[AttemptAnswered]]:
        """The facts, with the rule in each request that one covers, and the answers: they are recorded together, so
        that no person is asked."""
        if not any(isinstance(each, facts.PermissionRequested) for each in ready):
            return ready, []
        rules, problem = await self._rules()
        found: list[Fact] = [facts.Diagnostic(problem)] if problem else []
        answers = []
        for each in ready:
            if isinstance(each, facts.PermissionRequested):
                rule = permissions.decide(rules, ToolRequest(each.rule_tool, each.command))
                if rule is not None:
                    answers.append(self._by_rule(each.id, rule))
                    each = replace(each, rule=str(rule.rule))
            found.append(each)
        return found, answers

    async def _apply_rules(self) -> None:
        """Answer what the agent waits for by rules that were made since it asked."""
        waiting = [each for each in self.attempt.permissions.values() if each.is_open]
        rules = (await self._rules())[0] if waiting else []
        for each in waiting:
            rule = permissions.decide(rules, each.asked)
            if rule is not None:
                await self._record_answer(self._by_rule(each.id, rule))

    async def _rules(self) -> tuple[list[StoredRule], str]:
        """The rules that count for this agent now; none, and the problem, when the user's file cannot be read."""
        try:
            return await patiently(lambda: permissions.of_attempt(self.recorder.journal, self.attempt)), ""
        except permissions.BadRules as error:
            return [], str(error)

    def _by_rule(self, request: str, rule: StoredRule) -> AttemptAnswered:
        allow, now_us = rule.rule.allow, self._clock.now_us()
        why = "" if allow else f"A rule refuses this: {rule.rule}. Continue without it, or say why not."
        return AttemptAnswered(
            request=request, allow=allow, why=why, by=rule.by, rule=str(rule.rule), rule_id=rule.id, at_us=now_us
        )

    async def _repeat_answers(self) -> None:
        """Give every recorded answer that the agent has not got; its id keeps it from coming twice."""
        for request, asked in self.attempt.permissions.items():
            if asked.allow is not None:
                answer = self._output.conversation.answer
                reply = answer(request, allow=asked.allow, why=asked.why, always=asked.always)
                if reply is not None:
                    await self._write(reply._replace(id=f"permission/{request}"))

    async def _suspend_limit(self) -> None:
        """Tell the holder whether the time limit is suspended, if that has changed or this engine has attached; then
        also what the limit is, since an engine that was killed may not have told it."""
        is_waiting = self.attempt.is_waiting or self._awaits_answer
        if self._process is not None and is_waiting != self._is_limit_suspended:
            if self._is_limit_suspended is None:
                await self._process.set_time_limit(self.attempt.order["time_limit_s"])
            self._is_limit_suspended = is_waiting
            self._waited_s = self.waited_s
            self._waits_since_s = asyncio.get_running_loop().time() if is_waiting else None
            await self._process.suspend_time_limit(suspended=is_waiting)

    async def set_time_limit(self, limit_s: float) -> None:
        """Set how long the agent may work from its start, without the time in which it waits; 0 for no limit."""
        if self.attempt.is_open and limit_s != self.attempt.order["time_limit_s"]:
            await self.recorder.append(AttemptLimited(time_limit_s=limit_s, at_us=self._clock.now_us()))
            crash_point("attempt:limit recorded")
            if self._process is not None:
                await self._process.set_time_limit(limit_s)

    async def stop(self, *, grace_s: float = GRACE_S, why: str = "asked", by: str = "", inbox_version: int = 0) -> None:
        """End the agent: TERM through the holder, so that it can close its tools and transcript, then KILL. It can be
        resumed."""
        if not self.attempt.is_open or self.attempt.exit:
            return
        if not self.attempt.stopping:
            now_us = self._clock.now_us()
            await self.recorder.append(AttemptStopping(why=why, by=by, inbox_version=inbox_version, at_us=now_us))
        if self._process is not None:
            await self._process.stop(grace_s=grace_s)

    # --- watching --------------------------------------------------------------------------------------------

    async def _make_checkpoints(self) -> None:
        journal, settings = self.recorder.journal, self._settings
        async for _ in checkpoints.ticks(
            lambda: checkpoints.interval_s(journal, settings.values.checkpoint.interval_s)
        ):
            if self.attempt.version > self._checkpointed and self._is_saved("timer"):
                await self.checkpoint(trigger="timer")

    def _is_saved(self, trigger: str) -> bool:
        return checkpoints.is_due(self._settings.values.checkpoint, trigger, self.attempt.turns)

    async def _watch_silence(self) -> None:
        """End an agent with a model that prints nothing for too long. A tool that runs, and a person, may take their
        time; a command is itself like a tool."""
        limit_s = self._settings.values.agent.silence_s
        if not limit_s or not self._dialect.capabilities.prose:
            await asyncio.Event().wait()
        while True:
            silent_s = (self._clock.now_us() - max(self._heard_us, self.attempt.output_us)) / 1e6
            is_idle = not self.attempt.permissions and not self.attempt.tools_open and not self._awaits_answer
            if silent_s >= limit_s and is_idle:
                await self.stop(why="silence")
                await asyncio.Event().wait()
            await asyncio.sleep(max(0.05, limit_s - silent_s))

    async def _watch_rules(self) -> None:
        """Notice rules that are made while the agent waits, from wherever."""
        while True:
            await asyncio.sleep(RULES_LOOK_S)
            await self._apply_rules()

    async def _watch_exit(self) -> None:
        """End an agent that has answered and does not exit: its answer counts, whatever it has left running."""
        while True:
            await self._has_finished.wait()
            turns = self.attempt.turns
            await asyncio.sleep(self._settings.values.agent.exit_grace_s)
            if self._has_finished.is_set() and self.attempt.turns == turns and not self.is_answering:
                await self.stop(why=ANSWERED)
                await asyncio.Event().wait()

    async def checkpoint(self, name: str = "", *, trigger: str = "manual") -> None:
        """Make files and conversation of the agent safe, and remember the place."""
        attempt = self.attempt
        of_attempt = f"{attempt.number}." if attempt.number > 1 else ""  # or two attempts would have the same names
        name = name or f"{trigger}-{of_attempt}{len(attempt.checkpoints) + 1}"
        files = await workspaces.checkpoint(Workspace.from_data(attempt.workspace), name)
        commit = files.commit if files is not None else None
        crash_point("attempt:files saved")
        events = await transcripts.news(self._dialect, self._order, attempt, self._secrets)
        now_us = self._clock.now_us()
        saved = AttemptCheckpointed(name=name, trigger=trigger, at_us=now_us, session=attempt.session, commit=commit)
        await self.recorder.append(*events, saved)
        self._checkpointed = attempt.version

    async def _conclude(self) -> None:
        attempt = self.attempt
        if attempt.is_open:
            rest = self._output.rest()
            if rest:
                state, now_us = dict(self._output.conversation.state()), self._clock.now_us()
                output = AttemptOutput(offset=attempt.offset, at_us=now_us, facts=rest, conversation=state)
                await self.recorder.append(output)
            await self.checkpoint(trigger="end")
            await self.recorder.append(self._verdict(awaits_answer=await self._has_open_question()))
        if self._listener is not None:
            self._listener(attempt, ())
        if self._process is not None:
            await self._process.finish()
        elif self._folder is not None:
            await asyncio.to_thread(remove, self._folder)

    def _verdict(self, *, awaits_answer: bool) -> AttemptEnded:
        attempt = self.attempt
        ending = Ending(
            exit_code=attempt.exit.get("code"),
            signal=attempt.exit.get("signal"),
            out_of_memory=bool(attempt.exit.get("out_of_memory")),
            start_error=str(attempt.exit.get("start_error", "")),
            # A program that ended before it was asked to stop is complete: as a stopped one it would be repeated.
            stopping=attempt.stopping if attempt.stop_sent or not attempt.exit else "",
            holder_lost=not attempt.exit,
            unanswered=(attempt.in_turn or awaits_answer) and self._dialect.capabilities.answers,
        )
        turns: list[Fact] = [facts.TurnEnded(attempt.result, failed=attempt.last_turn_failed)] if attempt.turns else []
        told = [*attempt.troubles, *turns] if attempt.last_turn_failed else [*turns, *attempt.troubles]
        verdict, now_us = understand(ending, told), self._clock.now_us()
        if verdict is None:
            return AttemptEnded(status=AttemptStatus.DONE, exit=attempt.exit, at_us=now_us)
        if verdict.failure == "rate_limited" and not verdict.reset_us and attempt.retry_after_s:
            verdict = verdict._replace(reset_us=attempt.output_us + int(attempt.retry_after_s * MICROSECONDS))
        return AttemptEnded(
            status=AttemptStatus.STOPPED if verdict.failure == "stopped" else AttemptStatus.FAILED,
            **verdict._asdict(),
            exit=attempt.exit,
            at_us=now_us,
        )


def _shows_work(fact: Fact) -> bool:
    """Whether an agent that says this has got its task."""
    return isinstance(fact, facts.ToolUse) or (isinstance(fact, facts.TurnEnded) and not fact.failed)
