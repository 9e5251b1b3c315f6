"""A running attempt: what its agent prints becomes facts, commands to it are executed, and its end is recorded.

Whatever is killed, the next engine continues from what is recorded: output from the recorded offset, replies and
messages by ids that the holder has seen or not, the end of a turn and of the attempt from the fold.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from maos import workspaces
from maos.agents.contract import Conversation, Dialect, LaunchOrder, Reply
from maos.bus.acknowledgements import Waiting, acknowledge, dead_letter
from maos.bus.bus import Bus
from maos.bus.mailbox import patiently
from maos.clock import Clock
from maos.engine import checkpoints, log, transcripts
from maos.engine.ownership import liveness
from maos.engine.recorder import Recorder
from maos.engine.streams import ATTEMPT
from maos.errors import LeaseLost
from maos.faults import crash_point
from maos.holder import client, wire
from maos.holder.agent_process import AgentProcess, HolderGone, InputFull, remove
from maos.holder.records import SpoolRecord, left_behind
from maos.journal.journal import Append, Record
from maos.model.attempt import Attempt
from maos.model.events import facts
from maos.model.events.attempt import AttemptAnswered, AttemptCheckpointed, AttemptEnded, AttemptOutput, AttemptStopping
from maos.model.events.commands import GRACE_S, CheckpointRequested, PermissionAnswered, StopRequested
from maos.model.events.facts import Fact, shortened
from maos.model.events.messages import MessageSent
from maos.model.failure import Ending, understand
from maos.model.message import EXPIRED, Message, message, render
from maos.model.run_status import ASKING_TOOL, READING_TOOL
from maos.model.status import AttemptStatus
from maos.settings.loader import Current
from maos.workspaces import Workspace

JOINED_BYTES_MAX = 64 << 20
LINE_BYTES_MAX = 2 << 20
"""What a longer line means is recorded with its texts cut: each character can take ten bytes in an event."""
INPUT_PAUSE_S = 0.5
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
        process: AgentProcess | None,
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
        self._process = process
        self._clock = clock
        self._bus = bus
        self._settings = settings
        self._listener = listener
        self._conversation: Conversation[Any] = dialect.converse(order, recorder.fold.conversation)
        self._undelivered: list[Message] = []
        self._expired: list[Message] = []
        self._fetched: list[int] = []
        """Messages that the agent has read by a tool, and that need not be said to it any more."""
        self._has_read = False
        """Whether a tool that reads messages has succeeded in this turn."""
        self._executed = min(recorder.fold.inbox_cursor, recorder.fold.answered_cursor)
        """The version of the inbox up to which every command and message was taken in."""
        self._open_lines: dict[str, bytearray] = {}
        self._held: list[Fact] = []
        self._state_before_hold: dict[str, Any] | None = None
        self._checkpointed = recorder.fold.version
        self._heard_us = 0
        """When it said anything, recorded or not."""

    @property
    def attempt(self) -> Attempt:
        """What is known of it."""
        return self.recorder.fold

    async def wait(self) -> Attempt:
        """Wait until it has ended. LeaseLost when another engine has claimed it."""
        assert self.task is not None
        return await asyncio.shield(self.task)

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
        work = (self.recorder.keep_lease, self._execute_commands, self._make_checkpoints, self._watch_silence)
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
        self._open_lines, self._held, self._state_before_hold = {}, [], None
        self._conversation = self._dialect.converse(self._order, self.attempt.conversation)
        folder, after = Path(self.attempt.folder), self.attempt.offset
        try:
            self._process = await client.attach(folder, token=self.recorder.lease.token, after=after)
        except HolderGone:
            await self.hear_rest(left_behind(folder, after=after))

    async def hear_rest(self, records: Iterable[SpoolRecord]) -> None:
        """Record what a holder that has exited left behind."""
        left = iter(records)
        while group := list(itertools.islice(left, 1000)):
            await self._hear(group)

    async def _hear(self, records: Sequence[SpoolRecord]) -> None:
        """Line 4/8: a group of lines becomes one event, addressed by stream, version and lease."""
        attempt = self.attempt
        ready: list[Fact] = []
        replies: list[Reply] = []
        offset = attempt.offset
        self._heard_us = records[-1].time_us
        for record in records:
            self._held += self._understand(record, replies)
            if not self._open_lines:
                ready += self._held
                self._held = []
                self._state_before_hold = None
                offset = record.offset
        for reply in replies:  # before they are recorded: a line heard again is answered with the same ids
            await self._write(reply)
        if offset == attempt.offset or not (ready or replies or self._is_due(offset)):
            return
        if attempt.told and any(map(_shows_work, ready)):
            ready = [*(facts.InputReceived(f"inbox/{version}") for version in attempt.told), *ready]
        state = self._conversation.state() if self._state_before_hold is None else self._state_before_hold
        changed = dict(state) if state != (attempt.conversation or {}) else None
        called = (each for each in ready if isinstance(each, facts.ToolUse) and each.name.endswith(READING_TOOL))
        reading = self._open_tools(READING_TOOL) | {each.id for each in called}
        succeeded = [each.id for each in ready if isinstance(each, facts.ToolResult) and not each.failed]
        self._has_read |= not reading.isdisjoint(succeeded)
        output = AttemptOutput(offset=offset, at_us=records[-1].time_us, facts=ready, conversation=changed)
        await self.recorder.append(output, also=self._acknowledgements(ready))
        if self._listener is not None:
            self._listener(attempt, ready)
        if self._process is not None:
            await self._process.confirm(offset)
            if not attempt.in_turn and any(isinstance(each, facts.TurnEnded) for each in ready):
                if self._is_saved("turn"):
                    await self.checkpoint(trigger="turn")
                await self._after_turn()

    def _is_due(self, offset: int) -> bool:
        """Whether lines without a fact, such as a few words of a paragraph, have waited long enough to be recorded.

        Meanwhile the holder keeps them. An engine that takes over reads them again, with the same result.
        """
        untold_us = self._heard_us - self.attempt.output_us
        untold_bytes = offset - self.attempt.offset
        return self._process is None or untold_us > UNTOLD_US_MAX or untold_bytes > UNTOLD_BYTES_MAX

    def _acknowledgements(self, ready: Sequence[Fact]) -> list[Append]:
        """Messages that the agent has got are acknowledged in the same append that says so (I19)."""
        ids = [each.id for each in ready if isinstance(each, facts.InputReceived)]
        versions = [int(id.removeprefix("inbox/")) for id in ids if id.startswith("inbox/")]
        agent, expired, self._expired = self.attempt.agent, self._expired, []
        fetched, self._fetched = self._fetched, []
        floor = min([max(versions, default=0), *(each.version - 1 for each in self._undelivered)])
        return [
            *dead_letter(agent, [Waiting(each, 0, EXPIRED) for each in expired]),
            *acknowledge(agent, versions + fetched, floor=floor, by=self.attempt.id),
        ]

    def _understand(self, record: SpoolRecord, replies: list[Reply]) -> list[Fact]:
        if record.kind in ("stdout", "stderr"):
            return self._hear_line(record, replies)
        if record.kind == "input":
            return [facts.InputReceived(record.data.decode())]
        if record.kind == "stopping":
            return [facts.Stopping(record.data.decode())]
        if record.kind == "exit":
            return [_exit(wire.unpack_map(record.data))]
        if record.kind in ("trouble", "torn"):
            return [facts.OutputLost(record.kind, record.data.decode(errors="replace"))]
        return []

    def _hear_line(self, record: SpoolRecord, replies: list[Reply]) -> list[Fact]:
        """The facts of a line once it is whole: parts of a long one are joined, up to a limit."""
        joined = self._open_lines.get(record.kind)
        if record.partial and (joined is None or len(joined) < JOINED_BYTES_MAX):
            if joined is None:
                if not self._open_lines:
                    self._state_before_hold = dict(self._conversation.state())
                self._open_lines[record.kind] = bytearray(record.data)
            else:
                joined += record.data
            return []
        line = record.data
        if joined is not None:
            joined += record.data
            line = bytes(self._open_lines.pop(record.kind))
        heard = self._conversation.hear(line, stderr=record.kind == "stderr")
        replies += heard.replies
        found: list[Fact] = []
        for each in heard.facts if len(line) <= LINE_BYTES_MAX else map(shortened, heard.facts):
            found.append(each)
            if isinstance(each, (facts.Text, facts.Line)):
                found += self._discoveries(each.text)
        return found

    def _discoveries(self, text: str) -> list[Fact]:
        """Lines that carry a keyword (R-104)."""
        lowered, keywords = text.lower(), [word.lower() for word in self._settings.values.discovery.keywords]
        if not any(word in lowered for word in keywords):
            return []
        found: list[Fact] = []
        for line in text.splitlines():
            lowered = line.lower()
            places = [(lowered.find(word), word) for word in keywords if word in lowered]
            if places:
                place, word = min(places)
                found.append(facts.Discovery(word.rstrip(":"), line[place + len(word) :].strip()))
        return found

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
            return record.version > self.attempt.inbox_cursor
        return record.version > self.attempt.answered_cursor and record.time_us >= self.attempt.planned_us

    async def _execute(self, record: Record) -> None:
        match record.event:
            case MessageSent():
                if all(each.version != record.version for each in self._undelivered):
                    self._undelivered.append(message(record.event, version=record.version))
                await self._deliver()
            case StopRequested(grace_s=grace_s):
                await self.stop(grace_s=grace_s, inbox_version=record.version)
            case CheckpointRequested(name=name):
                if name not in {each.name for each in self.attempt.checkpoints}:
                    await self.checkpoint(name, trigger="asked")
            case PermissionAnswered(request=request, allow=allow, why=why):
                await self.answer(request, allow=allow, why=why, inbox_version=record.version)

    async def _deliver(self) -> bool:
        """Say what is waiting, as far as the agent can take it now; whether anything was said."""
        said = False
        for said_by in list(self._undelivered):
            if said_by.is_expired(self._clock.now_us()):
                self._undelivered.remove(said_by)
                self._expired.append(said_by)
                continue
            is_answer = bool(said_by.metadata.get("question"))
            if self._open_tools(READING_TOOL) or (is_answer and self._open_tools(ASKING_TOOL)):
                continue  # the tool that waits for it gives it to the agent; if it does not, it is said after the turn
            text = render(said_by) if self._dialect.capabilities.prose else said_by.text
            reply = self._conversation.say(f"inbox/{said_by.version}", text)
            if reply is None:
                break
            await self._write(reply)
            self._undelivered = [each for each in self._undelivered if each.version != said_by.version]
            said = True
        return said

    def _open_tools(self, name: str) -> set[str]:
        """The ids of calls of a tool of maos that the agent waits for."""
        return {id for id, tool in self.attempt.tools_open.items() if tool.name.endswith(name)}

    async def _after_turn(self) -> None:
        """The agent has answered: it gets what is waiting for it, or may finish."""
        has_read, self._has_read = self._has_read, False
        if self._undelivered:  # it may have read some of it by a tool meanwhile
            waiting = await patiently(self._tries)
            self._fetched += [
                each.version
                for each in self._undelivered
                if waiting.get(each.version) and (has_read or each.metadata.get("question"))
            ]
            self._undelivered = [
                each for each in self._undelivered if each.version in waiting and each.version not in self._fetched
            ]
        if not await self._deliver():
            reply = self._conversation.end()
            if reply is not None:
                await self._write(reply)

    async def _tries(self) -> dict[int, int]:
        """How often each message that the agent has not acknowledged was handed out, by its version."""
        return {each.message.version: each.tries async for each in self._bus.waiting(self.attempt.agent)}

    async def answer(self, request: str, *, allow: bool, why: str = "", inbox_version: int = 0) -> None:
        """Answer what the agent asks to be allowed to do."""
        answered = AttemptAnswered(request=request, allow=allow, why=why, inbox_version=inbox_version)
        await self.recorder.append(answered)
        await self._repeat_answers()

    async def _repeat_answers(self) -> None:
        """Give every recorded answer that the agent has not got; its id keeps it from coming twice."""
        for request, asked in self.attempt.permissions.items():
            if asked.allow is not None:
                reply = self._conversation.answer(request, allow=asked.allow, why=asked.why)
                if reply is not None:
                    await self._write(reply._replace(id=f"permission/{request}"))

    async def stop(self, *, grace_s: float = GRACE_S, why: str = "asked", inbox_version: int = 0) -> None:
        """End the agent: TERM through the holder, so that it can close its tools and transcript, then KILL. It can be
        resumed."""
        if not self.attempt.is_open or self.attempt.exit:
            return
        if not self.attempt.stopping:
            now_us = self._clock.now_us()
            await self.recorder.append(AttemptStopping(why=why, inbox_version=inbox_version, at_us=now_us))
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
        limit_s = self._settings.values.agent.silence_s
        if not limit_s:
            await asyncio.Event().wait()
        while True:
            silent_s = (self._clock.now_us() - max(self._heard_us, self.attempt.output_us)) / 1e6
            if silent_s >= limit_s and not self.attempt.permissions:
                await self.stop(why="silence")
                await asyncio.Event().wait()
            await asyncio.sleep(max(0.05, limit_s - silent_s))

    async def checkpoint(self, name: str = "", *, trigger: str = "manual") -> None:
        """Make files and conversation of the agent safe, and remember the place."""
        attempt = self.attempt
        name = name or f"{trigger}-{len(attempt.checkpoints) + 1}"
        files = await workspaces.checkpoint(Workspace.from_data(attempt.workspace), name)
        commit = files.commit if files is not None else None
        crash_point("attempt:files saved")
        events = await transcripts.news(self._dialect, self._order, attempt)
        now_us = self._clock.now_us()
        saved = AttemptCheckpointed(name=name, trigger=trigger, at_us=now_us, session=attempt.session, commit=commit)
        await self.recorder.append(*events, saved)
        self._checkpointed = attempt.version

    async def _conclude(self) -> None:
        attempt = self.attempt
        if attempt.is_open:
            rest = list(self._conversation.rest())
            if rest:
                state, now_us = dict(self._conversation.state()), self._clock.now_us()
                output = AttemptOutput(offset=attempt.offset, at_us=now_us, facts=rest, conversation=state)
                await self.recorder.append(output)
            await self.checkpoint(trigger="end")
            await self.recorder.append(self._verdict())
        if self._listener is not None:
            self._listener(attempt, ())
        if self._process is not None:
            await self._process.finish()
        else:
            await asyncio.to_thread(remove, Path(attempt.folder))

    def _verdict(self) -> AttemptEnded:
        attempt = self.attempt
        ending = Ending(
            exit_code=attempt.exit.get("code"),
            signal=attempt.exit.get("signal"),
            out_of_memory=bool(attempt.exit.get("out_of_memory")),
            start_error=str(attempt.exit.get("start_error", "")),
            # A program that ended before it was asked to stop is complete: as a stopped one it would be repeated.
            stopping=attempt.stopping if attempt.stop_sent or not attempt.exit else "",
            holder_lost=not attempt.exit,
            unanswered=attempt.in_turn and self._dialect.capabilities.answers,
        )
        turns: list[Fact] = [facts.TurnEnded(attempt.result, failed=attempt.last_turn_failed)] if attempt.turns else []
        told = [*attempt.troubles, *turns] if attempt.last_turn_failed else [*turns, *attempt.troubles]
        verdict, now_us = understand(ending, told), self._clock.now_us()
        if verdict is None:
            return AttemptEnded(status=AttemptStatus.DONE, exit=attempt.exit, at_us=now_us)
        return AttemptEnded(
            status=AttemptStatus.STOPPED if verdict.failure == "stopped" else AttemptStatus.FAILED,
            **verdict._asdict(),
            exit=attempt.exit,
            at_us=now_us,
        )


def _shows_work(fact: Fact) -> bool:
    """Whether an agent that says this has got its task."""
    return isinstance(fact, facts.ToolUse) or (isinstance(fact, facts.TurnEnded) and not fact.failed)


def _exit(said: dict[str, str]) -> facts.ProcessExit:
    """What the holder's record of an exit says; one of a program that could not be started has only the error."""
    number = {name: int(value) for name, value in said.items() if name != "where"}
    return facts.ProcessExit(
        cpu_s=round((number.get("utime_us", 0) + number.get("stime_us", 0)) / 1e6, 3),
        duration_s=round(number.get("duration_us", 0) / 1e6, 3),
        rss_max_bytes=number.get("rss_max_bytes", 0),
        start_error=f"{said['where']}: {os.strerror(number['errno'])}" if "errno" in number else None,
        signal=number.get("signal"),
        code=number.get("code"),
        out_of_memory=bool(number.get("oom")),
    )
