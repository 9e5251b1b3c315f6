"""Agents that run: started, adopted after a crash, resumed, and stopped from anywhere.

One `Attempts` is one engine. It runs any number of attempts, each in a holder that outlives it; an engine that ends
detaches from them, and the next one adopts them where they are.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import msgspec

from maos import workspaces
from maos.agents.contract import AgentProgram, Dialect, LaunchOrder, McpServer
from maos.bus.bus import Bus
from maos.clock import Clock
from maos.engine import attempt_spec, consent, ownership, transcripts
from maos.engine.attempt_spec import ASKED, TIME_LIMIT_S, ResumeOptions, StartOptions, ToolServers
from maos.engine.live import Listener, LiveAttempt
from maos.engine.ownership import Held, Liveness, claim
from maos.engine.recorder import Recorder
from maos.engine.streams import ATTEMPT, AttemptReader
from maos.errors import InvalidInput, LeaseLost
from maos.faults import crash_point
from maos.holder import client
from maos.holder.agent_process import AgentProcess, HolderGone, StartFailed, remove
from maos.holder.records import left_behind
from maos.holder.wire import HolderSpec
from maos.journal.journal import Journal
from maos.model.attempt import Attempt, agent_of, attempt_id, check_agent, restoration, stream
from maos.model.events.attempt import AttemptClaimed, AttemptEnded, AttemptPlanned, AttemptStarted
from maos.model.events.commands import GRACE_S, PermissionAnswered, StopRequested
from maos.model.events.parts import Owner
from maos.model.message import inbox, render
from maos.model.status import AttemptStatus
from maos.model.tool_calls import NAME as TOOL_SERVER
from maos.redact import REDACTED
from maos.settings.loader import Current
from maos.store.contract import Lease
from maos.workspaces import Workspace


class Attempts(AttemptReader):
    """Starts attempts, adopts them after a crash, and finds them all."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        *,
        dialect: Callable[[str], Dialect],
        folder: Path,
        environment: Mapping[str, str] | None = None,
        lease_s: float | None = None,
        bus: Bus | None = None,
        tool_servers: ToolServers | None = None,
        settings: Current | None = None,
    ) -> None:
        self._tool_servers = tool_servers
        self.bus = bus or Bus(journal, clock)
        self.settings = settings or Current()
        """What its agents go by; it can change while they run."""
        self._lease_s = self.settings.values.engine.lease_s if lease_s is None else lease_s
        super().__init__(journal)
        self._clock = clock
        self._dialect = dialect
        self.folder = folder
        """Where this machine keeps the files of holders, agents and workspaces."""
        self._environment = dict(os.environ) if environment is None else dict(environment)
        self._tasks: dict[str, asyncio.Task[Attempt]] = {}

    def program(self, kind: str, argv: Sequence[str] = ()) -> AgentProgram:
        """The program that an agent of a kind would be; NotFound says what to install."""
        return self._dialect(kind).find(self._environment, argv)

    def takes_words(self, kind: str) -> bool:
        """Whether agents of a kind accept text, as a model does; a command does not."""
        return self._dialect(kind).capabilities.prose

    # --- running ---------------------------------------------------------------------------------------------

    async def start(
        self, task: str = "", *, name: str = "", listener: Listener | None = None, **options: Unpack[StartOptions]
    ) -> LiveAttempt:
        """Start a new agent's first attempt; what it is to do is recorded before it starts.

        Example::

            running = await m.agents.start("say hello", kind="shell", argv=["echo", "hello"], cwd="/tmp")
        """
        kind, run = options.get("kind", "shell"), options.get("run", "")
        argv, servers = tuple(options.get("argv", ())), options.get("mcp", ())
        dialect = self._dialect(kind)
        agent = check_agent(name) if name else f"{kind.partition(':')[0]}-{secrets.token_hex(3)}"
        program = dialect.find(self._environment, argv)
        id = attempt_id(agent, 1)
        if await self.journal.version(stream(id)):
            raise InvalidInput(
                f"there is an agent {agent!r} already", hint=f"choose another name, or `maos agent resume {agent}`"
            )
        folder = Path(os.getcwd(), options.get("cwd", "."))
        workspace = Workspace(agent, folder, folder, None, None, None, (ASKED,))
        if not options.get("in_place", False):
            root = self.folder / "workspaces"
            workspace = await workspaces.prepare(folder, agent, root=root, base=options.get("base"))
        terms: dict[str, Any] = {name: value for name, value in options.items() if name in attempt_spec.TERMS}
        order = LaunchOrder(
            attempt=id,
            task=task,
            session=str(uuid.uuid4()),
            resume=False,
            cwd=workspace.path,
            home=self.folder / "homes" / agent,
            mcp=self._servers(dialect, id, run, servers, tool_server=options.get("tool_server", False)),
            env=self._given(options.get("pass_variables", ())),
            argv=argv,
            **terms,
        )
        time_limit_s = options.get("time_limit_s", TIME_LIMIT_S)
        planned = attempt_spec.plan(order, kind, task, time_limit_s=time_limit_s, workspace=workspace, run=run)
        return await self._begin(order, planned, program, None, listener)

    async def resume(
        self,
        agent: str,
        *,
        task: str = "",
        like: Mapping[str, Any] | None = None,
        listener: Listener | None = None,
        **options: Unpack[ResumeOptions],
    ) -> LiveAttempt:
        """Resume an agent: in the attempt that still runs without an engine, else in a new one of its session.

        `like` is what it must have been started with; InvalidInput if that was something else.

        Example::

            running = await m.agents.resume("reviewer", task="look at the tests too")
        """
        await consent.check(self.journal, agent)
        before = await self.get(agent)
        if like is not None:
            given = [name for name in like.get("pass_variables", ()) if name in self._environment]
            attempt_spec.check_same(before, like, self._given(given))
        if before.is_open:
            running = await self.adopt(agent, listener=listener)
            if running is not None:
                return running
            before = await self.get(agent)
        old = attempt_spec.order_of(before)
        if any(REDACTED in each for each in old.argv):
            raise InvalidInput(
                f"the command of {agent!r} contained a secret, which was not recorded, so it cannot be run again",
                hint="start a new agent, with the secret in a variable: `maos agent run --env NAME …`",
            )
        program = self._dialect(before.kind).find(self._environment, old.argv)
        order, planned = await self._next(before, old, task, options)
        return await self._begin(order, planned, program, before, listener)

    async def _next(
        self, before: Attempt, old: LaunchOrder, task: str, options: ResumeOptions
    ) -> tuple[LaunchOrder, AttemptPlanned]:
        """The attempt after one that has ended: in its workspace, and in its session if that can be restored."""
        agent, id = before.agent, attempt_id(before.agent, before.number + 1)
        workspace = Workspace.located(before.workspace, self.folder)
        await workspaces.verify(workspace, before.saved or None)
        await self.bus.expire(agent)
        waiting = [each async for each in self.bus.waiting(agent)]
        inbox_cursor = await self.journal.version(inbox(agent))
        dialect = self._dialect(before.kind)
        remembers = await transcripts.put_back(self.journal, dialect, old, before)
        messages = [render(each.message) for each in waiting]
        anew = restoration(before, remembers=False, messages=messages)
        told = restoration(before, remembers=True, messages=messages) if remembers else anew
        if not dialect.capabilities.prose:  # what waits for it comes by its input, as it would have come before
            told = old.task
            inbox_cursor, waiting = waiting[0].message.version - 1 if waiting else inbox_cursor, []
        run = before.order.get("run", "")
        given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        order = old._replace(
            attempt=id,
            task=f"{told}\n\n{task}" if task else told,
            task_anew=f"{anew}\n\n{task}" if task else anew,
            session=before.session if remembers else str(uuid.uuid4()),
            resume=remembers,
            cwd=workspace.path,
            mcp=self._servers(dialect, id, run, options.get("mcp", ()), before=old.mcp),
            env=self._given([*old.env, *options.get("pass_variables", ())]),
            turns_max=given.get("turns_max", old.turns_max),
            budget_usd=given.get("budget_usd", old.budget_usd),
        )
        return order, attempt_spec.plan(
            order,
            before.kind,
            before.task,
            time_limit_s=given.get("time_limit_s", before.order["time_limit_s"]),
            workspace=workspace,
            run=run,
            inbox_cursor=inbox_cursor,
            told=[each.message.version for each in waiting],
            transcript=(before.transcript_name, before.transcript_bytes) if remembers else ("", 0),
        )

    async def adopt(self, agent: str, *, listener: Listener | None = None) -> LiveAttempt | None:
        """Adopt an attempt whose engine has exited: its agent keeps running, and what it printed meanwhile is recorded.

        None when the agent has exited too; its attempt is concluded with what it left behind. Conflict while another
        engine runs it.
        """
        attempt = await self.get(agent)
        if not attempt.is_open:
            await self._clear_away(attempt)
            return None
        lease = await self._claim(agent, attempt)
        recorder = Recorder(self.journal, ATTEMPT, attempt, lease, lease_s=self._lease_s)
        folder = Path(attempt.folder)
        here = ownership.liveness(attempt.owner).is_here
        try:
            await recorder.append(AttemptClaimed(owner=ownership.identity(lease)))
            process = await self._attach(folder, lease, attempt.offset) if here else None
            if process is not None and attempt.status == AttemptStatus.PLANNED:
                await recorder.append(self._started(process))
            live = self._live(recorder, attempt_spec.order_of(attempt), process, listener)
            if process is None:
                if here:
                    await live.hear_rest(left_behind(folder, after=attempt.offset))
                await live.run()
                await self.journal.release(recorder.lease)
                return None
        except BaseException:
            await self.journal.release(recorder.lease)
            raise
        return await self._watch(live)

    # --- asking ----------------------------------------------------------------------------------------------

    async def words_on_resume(self, agent: str) -> str:
        """The prompt that an agent would get if it was resumed now, as far as is recorded; nothing is changed."""
        before = await self.get(agent)
        dialect = self._dialect(before.kind)
        order = attempt_spec.order_of(before)
        if not dialect.capabilities.prose:
            return order.task
        now_us = self._clock.now_us()
        waiting = [each.message async for each in self.bus.waiting(agent)]
        messages = [render(each) for each in waiting if not each.is_expired(now_us)]
        if before.is_open:  # the engine that adopts it finds out that its agent has exited
            before = msgspec.structs.replace(before, failure=before.failure or "holder_lost")
        return restoration(before, remembers=transcripts.is_kept(dialect, order, before), messages=messages)

    # --- commands --------------------------------------------------------------------------------------------

    async def send(self, agent: str, text: str, *, sender: str = "person") -> int:
        """A message for an agent, durable when this returns; it gets it as soon as it can take one."""
        await self.get(agent)
        return (await self.bus.send(sender, agent, text)).version

    async def stop(self, agent: str, *, grace_s: float = GRACE_S) -> None:
        """Have an agent ended by whichever engine runs it."""
        await self.journal.append(inbox(agent), StopRequested(grace_s=grace_s, at_us=self._clock.now_us()))

    async def answer(self, agent: str, request: str, *, allow: bool, why: str = "") -> None:
        """Answer, from anywhere, what an agent asks to be allowed to do."""
        answered = PermissionAnswered(request=request, allow=allow, why=why, at_us=self._clock.now_us())
        await self.journal.append(inbox(agent), answered)

    # --- ending ----------------------------------------------------------------------------------------------

    async def end(self, attempt: Attempt, grace_s: float) -> None:
        """Have an agent stopped by the engine that runs it, or here if none does. It has exited when this returns."""
        requested: Owner | None = None
        while attempt.is_open:
            if ownership.liveness(attempt.owner).has_ended or attempt.owner == requested:
                await self._adopt_and_stop(attempt.agent, grace_s)
            else:
                await self.stop(attempt.agent, grace_s=grace_s)
                requested = attempt.owner
            attempt = await self.get(attempt.agent)
            await ATTEMPT.until(self.journal, attempt, lambda each: not each.is_open)

    async def end_all(self, run: str, grace_s: float) -> list[str]:
        """Have all agents of a run stopped, those of its gates too; the names of those that still ran."""
        found = [await self.get(name) async for name in self.names(f"{run}.")]
        at_work = [each for each in found if each.is_open]
        await asyncio.gather(*(self.end(each, grace_s) for each in at_work))
        return [each.agent for each in at_work]

    async def _adopt_and_stop(self, agent: str, grace_s: float) -> None:
        try:
            running = await self.adopt(agent)
            if running is not None:
                await running.stop(grace_s=grace_s)
                await running.wait()
        except (Held, LeaseLost):
            pass  # an engine does run it, and is requested to stop it

    # --- inside ----------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Detach from all agents; they keep running."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _given(self, names: Sequence[str]) -> dict[str, str]:
        missing = [name for name in names if name not in self._environment]
        if missing:
            raise InvalidInput(
                f"the variable {missing[0]} should be passed on, and is not set", hint=f"export {missing[0]}=…"
            )
        return {name: self._environment[name] for name in names}

    def _servers(
        self,
        dialect: Dialect,
        attempt: str,
        run: str,
        given: Sequence[McpServer],
        *,
        before: Sequence[McpServer] = (),
        tool_server: bool = False,
    ) -> tuple[McpServer, ...]:
        """The MCP servers of an attempt: its own, those given, and those it had before. Values are never recorded, so a
        server that needs variables again is given again. A plain command has a server of its own only on request."""
        servers = {each.name: each for each in (*before, *given)}
        wanted = tool_server or dialect.capabilities.mcp or any(each.name == TOOL_SERVER for each in before)
        if self._tool_servers is not None and wanted:
            own = self._tool_servers.server(agent_of(attempt), attempt, run=run)
            servers = {own.name: own, **servers, own.name: own}
        return tuple(servers.values())

    async def _claim(self, agent: str, attempt: Attempt | None) -> Lease:
        hint = f"`maos agent logs -f {agent}` watches it from here; `maos agent stop {agent}` ends it"
        is_open = attempt is not None and attempt.is_open
        return await claim(self.journal, self._clock, f"attempt/{agent}", attempt, is_open=is_open, hint=hint)

    async def _begin(
        self,
        order: LaunchOrder,
        planned: AttemptPlanned,
        program: AgentProgram,
        before: Attempt | None,
        listener: Listener | None,
    ) -> LiveAttempt:
        lease = await self._claim(planned.agent, before)
        try:
            recorder = Recorder(self.journal, ATTEMPT, Attempt(id=order.attempt), lease, lease_s=self._lease_s)
            process = await self._launch(order, planned, program, recorder)
        except BaseException:
            await self.journal.release(lease)
            raise
        return await self._watch(self._live(recorder, order, process, listener))

    def _live(
        self, recorder: Recorder[Attempt], order: LaunchOrder, process: AgentProcess | None, listener: Listener | None
    ) -> LiveAttempt:
        return LiveAttempt(
            recorder,
            self._dialect(recorder.fold.kind),
            order,
            process=process,
            clock=self._clock,
            bus=self.bus,
            settings=self.settings,
            listener=listener,
        )

    async def _launch(
        self, order: LaunchOrder, planned: AttemptPlanned, program: AgentProgram, recorder: Recorder[Attempt]
    ) -> AgentProcess:
        """Record what will be done, do it, record that it was done."""
        lease, folder = recorder.lease, self.folder / "holders" / order.attempt
        owner, at_us = ownership.identity(lease), self._clock.now_us()
        await recorder.append(msgspec.structs.replace(planned, owner=owner, folder=str(folder), at_us=at_us))
        command = self._dialect(planned.agent_kind).command(order, program, self._environment)
        held = HolderSpec(
            **command._asdict(),
            attempt=order.attempt,
            cwd=str(order.cwd),
            time_limit_s=planned.order["time_limit_s"] or None,
            unattended_limit_s=self.settings.values.agent.unattended_s,
            token=lease.token,
        )
        crash_point("attempt:before start")
        try:
            process = await client.start(folder, held)
        except StartFailed as error:
            now_us, failed = self._clock.now_us(), AttemptStatus.FAILED
            ended = AttemptEnded(status=failed, failure="start_failed", message=error.what, at_us=now_us)
            await recorder.append(ended)
            raise
        crash_point("attempt:after start")
        await recorder.append(self._started(process))
        return process

    async def _attach(self, folder: Path, lease: Lease, after: int) -> AgentProcess | None:
        try:
            return await client.attach(folder, token=lease.token, after=after)
        except HolderGone:
            return None

    async def _clear_away(self, attempt: Attempt) -> None:
        """End the holder of an attempt whose end was recorded by an engine that died before it could."""
        folder = Path(attempt.folder)
        if ownership.liveness(attempt.owner) is not Liveness.GONE or not await asyncio.to_thread(folder.exists):
            return
        lease = await self._claim(attempt.agent, attempt)
        try:
            process = await self._attach(folder, lease, attempt.offset)
            if process is None:
                await asyncio.to_thread(remove, folder)
            else:
                await process.finish()
        finally:
            await self.journal.release(lease)

    def _started(self, process: AgentProcess) -> AttemptStarted:
        return AttemptStarted(pid=process.pid, holder_pid=process.holder_pid, at_us=self._clock.now_us())

    async def _watch(self, live: LiveAttempt) -> LiveAttempt:
        live.task = self._tasks[live.attempt.agent] = asyncio.create_task(self._run(live))
        await asyncio.sleep(0)  # a task that is cancelled before its first step would not give the lease back
        return live

    async def _run(self, live: LiveAttempt) -> Attempt:
        try:
            return await live.run()
        finally:
            self._tasks.pop(live.attempt.agent, None)
            await self.journal.release(live.recorder.lease)
