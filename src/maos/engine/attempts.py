"""Agents that run: started, adopted after a crash, resumed, and stopped from anywhere.

One `Attempts` is one engine. It runs any number of attempts, each in a holder that outlives it; an engine that ends
detaches from them, and the next one adopts them where they are.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import shlex
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import msgspec

from maos import workspaces
from maos.agents import project_files
from maos.agents.contract import AgentMissing, AgentProgram, Dialect, LaunchOrder, McpServer
from maos.agents.environment import secrets_of
from maos.bus.bus import Bus
from maos.clock import Clock
from maos.engine import attempt_spec, consent, ownership, transcripts
from maos.engine.attempt_spec import ASKED, TIME_LIMIT_S, ResumeOptions, StartOptions, ToolServers
from maos.engine.live import Listener, LiveAttempt
from maos.engine.ownership import Held, Liveness, claim
from maos.engine.recorder import Recorder
from maos.engine.setups import Setups
from maos.engine.streams import ATTEMPT, AttemptReader
from maos.errors import Conflict, InvalidInput, LeaseLost
from maos.faults import crash_point
from maos.holder import client
from maos.holder.agent_process import AgentProcess, HolderGone, StartFailed, remove
from maos.holder.records import left_behind
from maos.holder.wire import HolderSpec
from maos.journal.journal import Append, Journal
from maos.model import preparation, tool_calls
from maos.model.attempt import TASK_CHANGED, Attempt, attempt_id, check_agent, restoration, stream
from maos.model.events.attempt import AttemptClaimed, AttemptEnded, AttemptPlanned, AttemptStarted
from maos.model.events.commands import GRACE_S, PermissionAnswered, StopRequested
from maos.model.events.parts import Owner
from maos.model.message import inbox, render
from maos.model.permission import StoredRule
from maos.model.preparation import Preparation
from maos.model.prices import price_of, settings_for
from maos.model.principal import secret_hash
from maos.model.status import AttemptStatus
from maos.redact import REDACTED, clean
from maos.settings import state_folder
from maos.settings.loader import Current
from maos.store.contract import Lease
from maos.tuples import NamedTuple
from maos.workspaces import Workspace, products

TASK_BYTES_MAX = 8 << 20
"""Of a task and its instructions, as JSON: with what an agent is told when it is resumed, they fit into one input."""
TOLD_CHARS_MAX = 1 << 20
"""How much of the messages that wait for an agent it is told with its task; the others come by its input."""
WHY_CHARS_MAX = 100_000


def _prompt(
    dialect: Dialect,
    old: LaunchOrder,
    before: Attempt,
    *,
    remembers: bool,
    messages: Sequence[str],
    then: str,
    instead: str,
) -> str:
    """What an agent is told when it is resumed; `before` has its task as it is now."""
    if not dialect.capabilities.prose:
        return instead or (f"{old.task}\n\n{then}" if then else old.task)
    if instead and remembers:
        then = TASK_CHANGED.format(task=instead)
    return restoration(before, remembers=remembers, messages=messages, then=then)


def _first_of(messages: Sequence[str]) -> list[str]:
    """The first messages, as many as can be told with a task."""
    sizes = itertools.accumulate(map(len, messages))
    return [each for each, size in zip(messages, sizes, strict=True) if size <= TOLD_CHARS_MAX]


def check_length(task: str, instructions: str) -> None:
    """InvalidInput for a task that is too long to be given to an agent, or to be resumed."""
    size = sum(len(msgspec.json.encode(clean(each, str))) for each in (task, instructions))
    if size > TASK_BYTES_MAX:
        raise InvalidInput(
            f"the task and its instructions take {size} bytes, and {TASK_BYTES_MAX} are allowed",
            hint="put it into a file, and name the file in the task",
        )


def check_redacted(argv: Sequence[str], of: str) -> None:
    """InvalidInput for a recorded command that had a secret: it is not executed without it."""
    if any(REDACTED in each for each in argv):
        raise InvalidInput(
            f"the command of {of} contained a secret, which was not recorded, so it cannot be run again",
            hint="have the command read the secret from a file or a variable (`maos agent run --env NAME`)",
        )


class _OfProject(NamedTuple):
    """What a project has for the program of an agent."""

    text: str
    servers: list[McpServer]


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
        self.setups = Setups(self)
        """Prepares the workspaces of agents before they start."""

    def program(self, kind: str, argv: Sequence[str] = ()) -> AgentProgram:
        """The program that an agent of a kind would be; NotFound says what to install."""
        try:
            return self._dialect(kind).find(self._environment, argv)
        except AgentMissing as error:
            if kind != "shell" or not self._is_agent(argv[0]):
                raise
            hint = f"to have an agent of the kind {argv[0]} do a task: `maos agent run --kind {argv[0]} 'TASK'`"
            raise AgentMissing(error.what, hint=hint) from None

    def _is_agent(self, name: str) -> bool:
        """Whether a kind of agents that do tasks in words is called so."""
        try:
            return self.takes_words(name)
        except InvalidInput:
            return False

    def takes_words(self, kind: str) -> bool:
        """Whether agents of a kind accept text, as a model does; a command does not."""
        return self._dialect(kind).capabilities.prose

    def login(self, kind: str) -> str:
        """How a person logs in for agents of a kind: with the program that is used, by its path if only maos has it."""
        text = self._dialect(kind).login
        if "{program}" not in text:
            return text
        try:
            path = self.program(kind).path
        except AgentMissing:  # it ran on another machine
            return text.replace("{program}", kind)
        on_path = shutil.which(path.name, path=self._environment.get("PATH", os.defpath))
        is_found = on_path is not None and Path(on_path).resolve() == path.resolve()
        return text.replace("{program}", path.name if is_found else shlex.quote(str(path)))

    def accepts_warnings(self, kind: str) -> bool:
        """Whether agents of a kind accept text while they work."""
        return self.takes_words(kind) and self._dialect(kind).capabilities.steer

    async def has_unheard(self, attempt: Attempt) -> bool:
        """Whether an agent that has answered was sent messages before its end that its program could not accept any
        more. They are for another turn: `resume` gives it them."""
        if attempt.status != AttemptStatus.DONE or not self._dialect(attempt.kind).capabilities.prose:
            return False
        now_us = self._clock.now_us()
        waiting = [each.message async for each in self.bus.waiting(attempt.agent)]
        return any(each.at_us <= attempt.ended_us and not each.is_expired(now_us) for each in waiting)

    def check_price(self, kind: str, model: str) -> None:
        """Check that a limit of money can be kept: InvalidInput when the model has no price. One that the agent's
        program names itself is known when its first message arrives."""
        can = self._dialect(kind).capabilities
        model = model or ("" if can.names_model else kind)
        if can.prose and model and price_of(model, self.settings.values.prices.of) is None:
            raise InvalidInput(
                f"{model} has no price, so a limit of money cannot be kept",
                hint=f"set {settings_for(model)}, or name another model",
            )

    # --- running ---------------------------------------------------------------------------------------------

    async def start(
        self, task: str = "", *, name: str = "", listener: Listener | None = None, **options: Unpack[StartOptions]
    ) -> LiveAttempt:
        """Start a new agent's first attempt; what it is to do is recorded before it starts.

        Example::

            running = await m.agents.start(argv=["echo", "hello"], cwd="/tmp", in_place=True)
            print((await running.wait()).result)
        """
        self.journal.principal.check_may_decide("start an agent")
        kind, run = options.get("kind", "shell"), options.get("run", "")
        argv, servers = tuple(options.get("argv", ())), options.get("mcp", ())
        check_redacted(argv, name or "the agent")
        check_length(task, options.get("instructions", ""))
        wanted = preparation.checked(preparation.of_options(options))
        if not run and not options.get("in_place"):  # an agent of a run goes by the options of the run
            self.settings.loaded.check_agreed()
            wanted = preparation.combine((preparation.of_settings(self.settings.values.workspace), wanted))
        dialect = self._dialect(kind)
        agent = check_agent(name) if name else f"{kind.partition(':')[0]}-{secrets.token_hex(3)}"
        program = self.program(kind, argv)
        if options.get("budget_usd") and not dialect.capabilities.limits_cost:
            self.check_price(kind, options.get("model", ""))
        id = attempt_id(agent, 1)
        if await self.journal.version(stream(id)):
            raise InvalidInput(
                f"there is an agent {agent!r} already", hint=f"choose another name, or `maos agent resume {agent}`"
            )
        folder = Path(os.getcwd(), options.get("cwd", "."))
        workspace = Workspace(agent, folder, folder, None, None, None, (ASKED,))
        if not options.get("in_place", False):
            root = self.folder / "workspaces"
            workspace = await workspaces.prepare(
                folder,
                agent,
                root=root,
                base=options.get("base"),
                include_uncommitted=options.get("include_uncommitted", False)
                or (not run and self.settings.values.workspace.include_uncommitted),
                **self.kept_files(),
            )
        time_limit_s = options.get("time_limit_s", TIME_LIMIT_S)
        passed_on = self._given(wanted.names)
        notes = await self.setups.prepare(workspace, folder, wanted, agent=agent, run=run, time_limit_s=time_limit_s)
        workspace = workspace._replace(notes=(*workspace.notes, *notes))
        project = preparation.project_settings(self._from_project(options, run))
        project = project if dialect.capabilities.prose else []
        of_project = await asyncio.to_thread(self._of_project, workspace.path, project, {**wanted.values, **passed_on})
        chosen = options.get("mcp_servers")
        own = self._own_servers(chosen) if dialect.capabilities.mcp else []
        given_servers = (*of_project.servers, *own, *servers)
        terms: dict[str, Any] = {name: value for name, value in options.items() if name in attempt_spec.TERMS}
        order = LaunchOrder(
            attempt=id,
            task=task,
            session=str(uuid.uuid4()),
            resume=False,
            cwd=workspace.path,
            home=self.folder / attempt_spec.HOMES / agent,
            mcp=self._servers(dialect, id, run, given_servers, tool_server=options.get("tool_server", False)),
            project=project,
            project_text=of_project.text,
            env=passed_on,
            values=wanted.values,
            argv=argv,
            **terms,
        )
        planned = attempt_spec.plan(
            order,
            kind,
            task,
            time_limit_s=time_limit_s,
            workspace=workspace,
            run=run,
            prepared=wanted,
            servers=chosen,
        )
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

            running = await m.agents.resume("fixer")
            print((await running.wait()).status)
        """
        await consent.check(self.journal, agent)
        before = await self.get(agent)
        if like is not None:
            names = preparation.of_options(like).names
            attempt_spec.check_same(before, like, {name: self._environment.get(name, "") for name in names})
        if before.is_open:
            running = await self.adopt(agent, listener=listener)
            if running is not None:
                return running
            before = await self.get(agent)
        old = attempt_spec.order_of(before, self.folder)
        if options.get("argv"):
            old = old._replace(argv=tuple(options["argv"]))
        check_redacted(old.argv, agent)
        check_length(task, "")
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
        messages = _first_of([render(each.message) for each in waiting])
        if len(messages) < len(waiting) and dialect.capabilities.prose:  # the others come by its input
            inbox_cursor, waiting = waiting[len(messages)].message.version - 1, waiting[: len(messages)]
        instead = options.get("instead", "")
        if instead:
            before = msgspec.structs.replace(before, task=instead)
        anew = restoration(before, remembers=False, messages=messages, then=task)
        told = _prompt(dialect, old, before, remembers=remembers, messages=messages, then=task, instead=instead)
        if not dialect.capabilities.prose:  # what waits for it comes by its input, as it would have come before
            inbox_cursor, waiting = waiting[0].message.version - 1 if waiting else inbox_cursor, []
        run = before.order.get("run", "")
        given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        wanted = preparation.checked(preparation.of_options({"env": options.get("env", ())}))
        prepared = attempt_spec.preparation_of(before)
        time_limit_s = given.get("time_limit_s", before.order["time_limit_s"])
        if not workspace.in_place:  # its files may have been lost, and restored from a checkpoint
            source = products.persons_folder(workspace)
            await self.setups.prepare(workspace, source, prepared, agent=agent, run=run, time_limit_s=time_limit_s)
        passed_on, values = self._given([*old.env, *wanted.names]), {**old.values, **wanted.values}
        of_project = await asyncio.to_thread(self._of_project, workspace.path, old.project, {**values, **passed_on})
        chosen = before.order.get("mcp_servers")
        own = self._own_servers(chosen) if dialect.capabilities.mcp else []
        order = old._replace(
            attempt=id,
            task=told,
            task_anew=anew if remembers else "",
            session=before.session if remembers else str(uuid.uuid4()),
            resume=remembers,
            cwd=workspace.path,
            mcp=self._servers(dialect, id, run, (*of_project.servers, *own, *options.get("mcp", ())), before=old.mcp),
            env=passed_on,
            values=values,
            turns_max=given.get("turns_max", old.turns_max),
            budget_usd=given.get("budget_usd", old.budget_usd),
        )
        return order, attempt_spec.plan(
            order,
            before.kind,
            before.task,
            time_limit_s=time_limit_s,
            prepared=prepared,
            servers=chosen,
            workspace=workspace,
            run=run,
            inbox_cursor=inbox_cursor,
            told=[each.message.version for each in waiting],
            transcript=(before.transcript_name, before.transcript_bytes) if remembers else ("", 0),
            earlier=before.known,
            session_kept=remembers and before.session_kept,
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
        try:
            attempt = await self.get(agent)
            folder = self._holder_folder(attempt)
        except BaseException:
            await self.journal.release(lease)
            raise
        if not attempt.is_open:  # the process that had the lease meanwhile has concluded it
            await self.journal.release(lease)
            return None
        recorder = Recorder(self.journal, ATTEMPT, attempt, lease, lease_s=self._lease_s)
        try:
            await recorder.append(AttemptClaimed(owner=ownership.identity(lease)))
            process = None if folder is None else await self._attach(folder, lease, attempt.offset)
            if process is not None and attempt.status == AttemptStatus.PLANNED:
                await recorder.append(self._started(process))
            order = attempt_spec.order_of(attempt, self.folder)
            live = self._live(recorder, order, folder, process, self._known_secrets(attempt.kind, order), listener)
            if process is None:
                if folder is not None:
                    await live.hear_rest(left_behind(folder, after=attempt.offset))
                await live.run()
                self._withdraw(attempt.id)
                await self.journal.release(recorder.lease)
                return None
        except BaseException:
            await self.journal.release(recorder.lease)
            raise
        return await self._watch(live)

    # --- asking ----------------------------------------------------------------------------------------------

    def kept_files(self) -> dict[str, Any]:
        """Which files the checkpoints of new workspaces keep, as the settings say."""
        wanted = self.settings.values.workspace
        return {"file_bytes_max": wanted.file_bytes_max, "keep_ignored": wanted.keep_ignored}

    async def words_on_resume(self, agent: str, then: str = "", *, instead: str = "") -> str:
        """The prompt that an agent would get if it was resumed now, as far as is recorded; nothing is changed.

        `then` is what else it is told to do, `instead` what a person has changed its task to.
        """
        before = await self.get(agent)
        dialect = self._dialect(before.kind)
        order = attempt_spec.order_of(before, self.folder)
        now_us = self._clock.now_us()
        waiting = [each.message async for each in self.bus.waiting(agent)]
        messages = _first_of([render(each) for each in waiting if not each.is_expired(now_us)])
        if before.is_open:  # the engine that adopts it finds out that its agent has exited
            before = msgspec.structs.replace(before, failure=before.failure or "holder_lost")
        if instead:
            before = msgspec.structs.replace(before, task=instead)
        kept = transcripts.is_kept(dialect, order, before)
        return _prompt(dialect, order, before, remembers=kept, messages=messages, then=then, instead=instead)

    # --- commands --------------------------------------------------------------------------------------------

    async def send(self, agent: str, text: str, *, sender: str = "", key: str | None = None) -> int:
        """A message for an agent, durable when this returns; it gets it as soon as it can take one."""
        await self.get(agent)
        who = sender or self.journal.principal.sender
        return (await self.bus.send(who, agent, text, key=key)).version

    async def stop(self, agent: str, *, grace_s: float = GRACE_S) -> None:
        """Have an agent ended by whichever engine runs it."""
        self.journal.principal.check_may_decide(f"stop {agent}")
        requested = StopRequested(grace_s=grace_s, by=self.journal.by, at_us=self._clock.now_us())
        await self.journal.append(inbox(agent), requested)

    async def answer(self, agent: str, request: str, *, allow: bool, why: str = "") -> None:
        """Answer, from anywhere, what an agent asks to be allowed to do."""
        await self.journal.append_all([self.answered(agent, request, allow=allow, why=why)])

    def answered(
        self,
        agent: str,
        request: str,
        *,
        allow: bool,
        why: str = "",
        rule: StoredRule | None = None,
        always: bool = False,
    ) -> Append:
        """What records an answer to an agent, with the rule that was made with it."""
        self.journal.principal.check_may_decide(f"answer what {agent} asks to be allowed to do")
        if len(why) > WHY_CHARS_MAX:
            raise InvalidInput(f"the reason has {len(why)} characters", hint=f"at most {WHY_CHARS_MAX} are allowed")
        said = {"rule": str(rule.rule), "rule_id": rule.id} if rule is not None else {}
        by, at_us = self.journal.by, self._clock.now_us()
        given = PermissionAnswered(request=request, allow=allow, why=why, always=always, by=by, at_us=at_us, **said)
        return Append(inbox(agent), [given])

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
        await self.setups.close()
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

    def _from_project(self, options: StartOptions, run: str) -> Sequence[str]:
        """What of the project an agent is given: that of its run, or what was given, else as the settings say."""
        given = options.get("project_settings", ())
        return given if run or given else self.settings.values.workspace.project_settings

    def _of_project(self, folder: Path, wanted: Sequence[str], variables: Mapping[str, str]) -> _OfProject:
        """The instructions and MCP servers of a project, if they are wanted."""
        return _OfProject(
            project_files.read_instructions(folder) if preparation.INSTRUCTIONS in wanted else "",
            project_files.read_servers(folder, variables) if preparation.MCP in wanted else [],
        )

    def _own_servers(self, chosen: Sequence[str] | None) -> list[McpServer]:
        """The person's own MCP servers, or those of them that are chosen by name."""
        known = self.settings.values.mcp.of
        if unknown := [each for each in chosen or () if each not in known]:
            there = ", ".join(known) or "none"
            raise InvalidInput(f"there is no MCP server {unknown[0]!r} in the settings", hint=f"there are: {there}")
        found = []
        for name, server in known.items():
            if chosen is None or name in chosen:
                variables = preparation.checked(Preparation(env=list(server.env)))
                env = {**variables.values, **self._given(variables.names)}
                found.append(McpServer(name, server.command, env, is_allowed=False))
        return found

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
        wanted = tool_server or dialect.capabilities.mcp or any(each.name == tool_calls.NAME for each in before)
        if self._tool_servers is not None and wanted:
            own = self._tool_servers.server(attempt, run=run)
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
            if version := await self.journal.version(stream(order.attempt)):
                raise Conflict(
                    stream(order.attempt),
                    actual=version,
                    what=f"another process has started agent {planned.agent!r} meanwhile",
                    hint=f"`maos agent show {planned.agent}` shows what it did",
                )
            recorder = Recorder(self.journal, ATTEMPT, Attempt(id=order.attempt), lease, lease_s=self._lease_s)
            process, hidden = await self._launch(order, planned, program, recorder)
        except BaseException:
            await self.journal.release(lease)
            raise
        folder = self.folder / attempt_spec.HOLDERS / order.attempt
        return await self._watch(self._live(recorder, order, folder, process, hidden, listener))

    def _known_secrets(self, kind: str, order: LaunchOrder) -> dict[str, str]:
        """What the transcript of an agent is recorded without that another engine started: the values of its variables
        are those of this engine, and the secret of the attempt is not known."""
        given = order._replace(env={name: self._environment.get(name, "") for name in order.env})
        found = secrets_of(given, self._environment, self._dialect(kind).secret_variables)
        return found | self.journal.codec.secrets

    def _live(
        self,
        recorder: Recorder[Attempt],
        order: LaunchOrder,
        folder: Path | None,
        process: AgentProcess | None,
        hidden: Mapping[str, str],
        listener: Listener | None,
    ) -> LiveAttempt:
        return LiveAttempt(
            recorder,
            self._dialect(recorder.fold.kind),
            order,
            folder=folder,
            process=process,
            secrets=hidden,
            clock=self._clock,
            bus=self.bus,
            settings=self.settings,
            listener=listener,
        )

    async def _launch(
        self, order: LaunchOrder, planned: AttemptPlanned, program: AgentProgram, recorder: Recorder[Attempt]
    ) -> tuple[AgentProcess, Mapping[str, str]]:
        """Record what will be done, do it, record that it was done; return also what must never be written down."""
        lease, folder = recorder.lease, self.folder / attempt_spec.HOLDERS / order.attempt
        owner, at_us = ownership.identity(lease), self._clock.now_us()
        secret = secrets.token_urlsafe(32)  # of this attempt alone; only its process has it, and only its hash is kept
        planned = msgspec.structs.replace(
            planned,
            owner=owner,
            folder=str(folder),
            by=str(self.journal.principal),
            proof=secret_hash(secret),
            at_us=at_us,
        )
        await recorder.append(planned)
        if self._tool_servers is not None and any(each.name == tool_calls.NAME for each in order.mcp):
            self._tool_servers.lend_password(order.attempt)
        command = self._dialect(planned.agent_kind).command(order, program, self._environment)
        own = {tool_calls.SECRET: secret}
        home = {tool_calls.HOME: str(state_folder())}  # the agent has another home, and no registry of databases
        hidden = {**command.secrets, **self.journal.codec.secrets, **own}
        command = command._replace(env={**command.env, **home, **own}, secrets=hidden)
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
            self._withdraw(order.attempt)
            raise
        crash_point("attempt:after start")
        await recorder.append(self._started(process))
        return process, hidden

    def _withdraw(self, attempt: str) -> None:
        if self._tool_servers is not None:
            self._tool_servers.withdraw_password(attempt)

    def _holder_folder(self, attempt: Attempt) -> Path | None:
        """The folder of an attempt's holder; None when that was on another machine. InvalidInput when it is none that
        maos makes: its agent may be at work there."""
        liveness = ownership.liveness(attempt.owner)
        if liveness is Liveness.ELSEWHERE:
            return None
        folder = attempt_spec.holder_folder(attempt, self.folder)
        if folder is None and liveness.is_here:
            raise InvalidInput(
                f"the holder of {attempt.id} is at {attempt.folder!r:.500}, and not below "
                f"{self.folder / attempt_spec.HOLDERS}",
                hint="if MAOS_HOME was another folder when it was started, set it to that folder again",
            )
        return folder

    async def _attach(self, folder: Path, lease: Lease, after: int) -> AgentProcess | None:
        try:
            return await client.attach(folder, token=lease.token, after=after)
        except HolderGone:
            return None

    async def _clear_away(self, attempt: Attempt) -> None:
        """End the holder of an attempt whose end was recorded by an engine that died before it could."""
        self._withdraw(attempt.id)
        folder = attempt_spec.holder_folder(attempt, self.folder)
        if folder is None or ownership.liveness(attempt.owner) is not Liveness.GONE:
            return
        if not await asyncio.to_thread(folder.exists):
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
            ended = await live.run()
            self._withdraw(ended.id)
            return ended
        finally:
            self._tasks.pop(live.attempt.agent, None)
            await self.journal.release(live.recorder.lease)
