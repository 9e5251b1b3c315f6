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
from typing import Any, TypeVar, Unpack

import msgspec

from maos import workspaces
from maos.agents.contract import AgentProgram, Dialect, LaunchOrder, McpServer
from maos.bus.bus import Bus
from maos.clock import Clock
from maos.engine import attempt_spec, checkpoints, consent, ownership, transcripts
from maos.engine.attempt_spec import TIME_LIMIT_S, AttemptSpec, ResumeOptions, StartOptions, ToolServers, workspace_of
from maos.engine.live import AttemptLimits, Listener, LiveAttempt
from maos.engine.ownership import Held, Liveness, claim
from maos.engine.recorder import Recorder
from maos.engine.streams import ATTEMPT, AttemptReader
from maos.errors import InvalidInput, LeaseLost
from maos.faults import crash_point
from maos.holder import client as runner
from maos.journal.journal import Journal
from maos.model.attempt import Attempt, agent_of, attempt_id, check_agent, restoration, stream
from maos.model.events.attempt import AttemptClaimed, AttemptEnded, AttemptStarted
from maos.model.events.commands import GRACE_S, PermissionAnswered, StopRequested
from maos.model.events.parts import Owner
from maos.model.message import inbox, render
from maos.model.status import AttemptStatus
from maos.model.tool_calls import NAME as TOOL_SERVER
from maos.redact import REDACTED
from maos.settings.loader import Current
from maos.store.contract import Lease
from maos.workspaces import Workspace

LOOK_EVERY_S = 1.0

N = TypeVar("N", int, float)


class Running:
    """An attempt that this engine runs."""

    def __init__(self, live: LiveAttempt, task: asyncio.Task[Attempt]) -> None:
        self._live = live
        self._task = task

    @property
    def attempt(self) -> Attempt:
        """What is known of it now."""
        return self._live.attempt

    async def wait(self) -> Attempt:
        """Until it has ended. LeaseLost when another engine has taken it."""
        return await asyncio.shield(self._task)

    async def stop(self, *, grace_s: float = GRACE_S) -> None:
        """Ask it to end; it can be resumed."""
        await self._live.stop("asked", grace_s=grace_s)

    async def checkpoint(self, name: str) -> None:
        """Make its files and conversation safe under a name."""
        await self._live.checkpoint("manual", name)

    async def answer(self, request: str, *, allow: bool, why: str = "") -> None:
        """Answer what it asks to be allowed to do."""
        await self._live.answer(request, allow=allow, why=why)


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
        """Whether an agent of a kind can be told something, as a model can; a command cannot."""
        return self._dialect(kind).capabilities.prose

    # --- running ---------------------------------------------------------------------------------------------

    async def start(
        self,
        task: str = "",
        *,
        name: str = "",
        limits: AttemptLimits | None = None,
        listener: Listener | None = None,
        **options: Unpack[StartOptions],
    ) -> Running:
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
        if await self._journal.version(stream(id)):
            raise InvalidInput(
                f"there is an agent {agent!r} already", hint=f"choose another name, or `maos agent resume {agent}`"
            )
        folder = Path(os.getcwd(), options.get("cwd", "."))
        workspace = await workspace_of(
            folder,
            agent,
            root=self.folder / "workspaces",
            in_place=options.get("in_place", False),
            base=options.get("base"),
        )
        order = LaunchOrder(
            attempt=id,
            task=task,
            session=str(uuid.uuid4()),
            resume=False,
            cwd=workspace.path,
            home=self.folder / "homes" / agent,
            model=options.get("model", ""),
            instructions=options.get("instructions", ""),
            turns_max=options.get("turns_max", 0),
            budget_usd=options.get("budget_usd", 0.0),
            tools_allowed=tuple(options.get("tools_allowed", ())),
            permission=options.get("permission", "ask"),
            takes_input=options.get("takes_input", False),
            mcp=self._servers(dialect, id, run, servers, tool_server=options.get("tool_server", False)),
            env=self._given(options.get("pass_variables", ())),
            argv=argv,
        )
        time_limit_s = options.get("time_limit_s", TIME_LIMIT_S)
        spec = AttemptSpec(agent, 1, kind, task, order, time_limit_s, workspace.to_data(), run=run)
        return await self._begin(spec, program, None, limits=limits, listener=listener)

    async def resume(
        self,
        agent: str,
        *,
        task: str = "",
        like: Mapping[str, Any] | None = None,
        limits: AttemptLimits | None = None,
        listener: Listener | None = None,
        **options: Unpack[ResumeOptions],
    ) -> Running:
        """Resume an agent: in the attempt that still runs without an engine, else in a new one of its session.

        `like` is what it must have been started with; InvalidInput if that was something else.

        Example::

            running = await m.agents.resume("reviewer", task="look at the tests too")
        """
        await consent.check(self._journal, agent)
        before = await self.get(agent)
        if like is not None:
            given = [name for name in like.get("pass_variables", ()) if name in self._environment]
            attempt_spec.check_same(before, like, self._given(given))
        if before.is_open:
            running = await self.adopt(agent, limits=limits, listener=listener)
            if running is not None:
                return running
            before = await self.get(agent)
        old = attempt_spec.from_data(before)
        _check_whole(agent, old.order.argv)
        program = self._dialect(before.kind).find(self._environment, old.order.argv)
        spec = await self._next(before, old, task, options)
        return await self._begin(spec, program, before, limits=limits, listener=listener)

    async def _next(self, before: Attempt, old: AttemptSpec, task: str, options: ResumeOptions) -> AttemptSpec:
        """The attempt after one that has ended: in its workspace, and in its session if that can be restored."""
        agent, id = before.agent, attempt_id(before.agent, before.number + 1)
        workspace = Workspace.from_data(before.workspace)
        saved = [each.commit for each in before.checkpoints if each.commit]
        await workspaces.verify(workspace, saved[-1] if saved else None)
        await self.bus.expire(agent)
        waiting = [each async for each in self.bus.waiting(agent)]
        inbox_cursor = await self._journal.version(inbox(agent))
        dialect = self._dialect(before.kind)
        remembers = await transcripts.put_back(self._journal, dialect, old.order, before)
        messages = [render(each.message) for each in waiting]
        anew = restoration(before, remembers=False, messages=messages)
        told = restoration(before, remembers=True, messages=messages) if remembers else anew
        if not dialect.capabilities.prose:  # what waits for it comes by its input, as it would have come before
            told = old.order.task
            inbox_cursor, waiting = waiting[0].message.version - 1 if waiting else inbox_cursor, []
        order = old.order._replace(
            attempt=id,
            task=f"{told}\n\n{task}" if task else told,
            task_anew=f"{anew}\n\n{task}" if task else anew,
            session=before.session if remembers else str(uuid.uuid4()),
            resume=remembers,
            cwd=workspace.path,
            mcp=self._servers(dialect, id, old.run, options.get("mcp", ()), before=old.order.mcp),
            env=self._given([*old.order.env, *options.get("pass_variables", ())]),
            turns_max=_given_or(options.get("turns_max"), old.order.turns_max),
            budget_usd=_given_or(options.get("budget_usd"), old.order.budget_usd),
        )
        return old._replace(
            number=before.number + 1,
            task=before.task,
            order=order,
            time_limit_s=_given_or(options.get("time_limit_s"), old.time_limit_s),
            workspace=workspace.to_data(),
            inbox_cursor=inbox_cursor,
            told=tuple(each.message.version for each in waiting),
            transcript=(before.transcript_name, before.transcript_bytes) if remembers else ("", 0),
        )

    async def adopt(
        self, agent: str, *, limits: AttemptLimits | None = None, listener: Listener | None = None
    ) -> Running | None:
        """Adopt an attempt whose engine has exited: its agent keeps running, and what it printed meanwhile is recorded.

        None when the agent has exited too; its attempt is concluded with what it left behind. Conflict while another
        engine runs it.
        """
        return await self._adopt(await self.get(agent), limits, listener)

    async def _adopt(self, attempt: Attempt, limits: AttemptLimits | None, listener: Listener | None) -> Running | None:
        if not attempt.is_open:
            await self._clear_away(attempt)
            return None
        agent = attempt.agent
        lease = await self._claim(agent, attempt)
        recorder = Recorder(self._journal, ATTEMPT, attempt, lease, lease_s=self._lease_s)
        folder = Path(attempt.folder)
        here = ownership.liveness(attempt.owner).is_here
        try:
            await recorder.append(AttemptClaimed(owner=ownership.identity(lease)))
            process = await self._attach(folder, lease, attempt.offset) if here else None
            if process is not None and attempt.status == AttemptStatus.PLANNED:
                await recorder.append(self._started(process))
            live = self._live(recorder, attempt_spec.from_data(attempt), process, limits, listener)
            if process is None:
                if here:
                    await live.hear_rest(runner.left_behind(folder, after=attempt.offset))
                await live.run()
                await self._journal.release(recorder.lease)
                return None
        except BaseException:
            await self._journal.release(recorder.lease)
            raise
        return await self._watch(live)

    async def adopt_all(self, *, listener: Listener | None = None) -> list[Running]:
        """Adopt every attempt on this machine whose engine has exited."""
        orphaned = [each async for each in self.all() if ownership.liveness(each.owner) is Liveness.GONE]
        adopted = await asyncio.gather(*(self._adopt(each, None, listener) for each in orphaned))
        return [each for each in adopted if each is not None]

    # --- asking ----------------------------------------------------------------------------------------------

    async def words_on_resume(self, agent: str) -> str:
        """What an agent would be told if it was resumed now, as far as is recorded; nothing is changed."""
        before = await self.get(agent)
        dialect = self._dialect(before.kind)
        order = attempt_spec.from_data(before).order
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
        await self._journal.append(inbox(agent), StopRequested(grace_s=grace_s, at_us=self._clock.now_us()))

    async def answer(self, agent: str, request: str, *, allow: bool, why: str = "") -> None:
        """Answer, from anywhere, what an agent asks to be allowed to do."""
        answered = PermissionAnswered(request=request, allow=allow, why=why, at_us=self._clock.now_us())
        await self._journal.append(inbox(agent), answered)

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
            await self._wait_for_end(attempt)
            attempt = await self.get(attempt.agent)

    async def end_all(self, run: str, grace_s: float) -> list[str]:
        """Have all agents of a run stopped, those of its gates too; the names of those that still ran."""
        names = {agent_of(name.removeprefix(stream(""))) async for name in self._journal.streams(stream(f"{run}."))}
        found = [await self.get(name) for name in sorted(names)]
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

    async def _wait_for_end(self, attempt: Attempt) -> None:
        """Return when an attempt has ended, or after a while, so that the caller can check its owner."""

        async def ended() -> None:
            async for record in self._journal.follow_stream(stream(attempt.id), after=attempt.version):
                if isinstance(record.event, AttemptEnded):
                    return

        try:
            await asyncio.wait_for(ended(), LOOK_EVERY_S)
        except TimeoutError:
            pass

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
                f"the variable {missing[0]} is to be passed on, and is not set", hint=f"export {missing[0]}=…"
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
        return await claim(self._journal, self._clock, f"attempt/{agent}", attempt, is_open=is_open, hint=hint)

    async def _begin(
        self,
        spec: AttemptSpec,
        program: AgentProgram,
        before: Attempt | None,
        *,
        limits: AttemptLimits | None,
        listener: Listener | None,
    ) -> Running:
        lease = await self._claim(spec.agent, before)
        try:
            recorder = Recorder(self._journal, ATTEMPT, Attempt(id=spec.order.attempt), lease, lease_s=self._lease_s)
            process = await self._launch(spec, program, recorder)
        except BaseException:
            await self._journal.release(lease)
            raise
        return await self._watch(self._live(recorder, spec, process, limits, listener))

    def _live(
        self,
        recorder: Recorder[Attempt],
        spec: AttemptSpec,
        process: runner.AgentProcess | None,
        limits: AttemptLimits | None,
        listener: Listener | None,
    ) -> LiveAttempt:
        return LiveAttempt(
            recorder,
            self._dialect(spec.kind),
            spec.order,
            process=process,
            clock=self._clock,
            bus=self.bus,
            workspace=Workspace.from_data(spec.workspace),
            limits=limits or self._limits(),
            listener=listener,
        )

    def _limits(self) -> AttemptLimits:
        """As the settings say, now and whenever they change."""
        agent, settings = self.settings.values.agent, self.settings

        def saves(trigger: str, turns: int) -> bool:
            return checkpoints.is_due(settings.values.checkpoint, trigger, turns)

        return AttemptLimits(
            silence_s=agent.silence_s,
            checkpoint_s=lambda: checkpoints.interval_s(self._journal, settings.values.checkpoint.interval_s),
            keywords=lambda: settings.values.discovery.keywords,
            saves=saves,
        )

    async def _launch(
        self, spec: AttemptSpec, program: AgentProgram, recorder: Recorder[Attempt]
    ) -> runner.AgentProcess:
        """Record what will be done, do it, record that it was done."""
        order, lease = spec.order, recorder.lease
        folder = self.folder / "holders" / order.attempt
        at_us = self._clock.now_us()
        await recorder.append(attempt_spec.build_spec(spec, ownership.identity(lease), folder=folder, at_us=at_us))
        command = self._dialect(spec.kind).command(order, program, self._environment)
        held = runner.Spec(
            attempt=order.attempt,
            argv=tuple(command.argv),
            env=dict(command.env),
            cwd=str(order.cwd),
            first_input=command.first_input,
            keep_stdin_open=command.keeps_input_open,
            time_limit_s=spec.time_limit_s or None,
            unattended_limit_s=self.settings.values.agent.unattended_s,
            secrets=dict(command.secrets),
            token=lease.token,
        )
        crash_point("attempt:before start")
        try:
            process = await runner.start(folder, held)
        except runner.StartFailed as error:
            now_us, failed = self._clock.now_us(), AttemptStatus.FAILED
            ended = AttemptEnded(status=failed, failure="start_failed", message=error.what, at_us=now_us)
            await recorder.append(ended)
            raise
        crash_point("attempt:after start")
        await recorder.append(self._started(process))
        return process

    async def _attach(self, folder: Path, lease: Lease, after: int) -> runner.AgentProcess | None:
        try:
            return await runner.attach(folder, token=lease.token, after=after)
        except runner.HolderGone:
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
                await asyncio.to_thread(runner.remove, folder)
            else:
                await process.finish()
        finally:
            await self._journal.release(lease)

    def _started(self, process: runner.AgentProcess) -> AttemptStarted:
        return AttemptStarted(pid=process.pid, holder_pid=process.holder_pid, at_us=self._clock.now_us())

    async def _watch(self, live: LiveAttempt) -> Running:
        task = asyncio.create_task(self._run(live))
        self._tasks[live.attempt.agent] = task
        await asyncio.sleep(0)  # a task that is cancelled before its first step would not give the lease back
        return Running(live, task)

    async def _run(self, live: LiveAttempt) -> Attempt:
        try:
            return await live.run()
        finally:
            self._tasks.pop(live.attempt.agent, None)
            await self._journal.release(live.recorder.lease)


def _given_or(given: N | None, before: N) -> N:
    return before if given is None else given


def _check_whole(agent: str, argv: Sequence[str]) -> None:
    """Refuse a command of which a secret was left out when it was written down."""
    if any(REDACTED in each for each in argv):
        raise InvalidInput(
            f"the command of {agent!r} held a secret, which was not written down, so it cannot be run again",
            hint="start it anew, with the secret in a variable: `maos agent run --env NAME …`",
        )
