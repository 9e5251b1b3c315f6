"""The supervisor: executes every open run of a database that no engine executes, for as long as its process lives.

Recovery is a loop, not an act at the start: a run whose engine is killed, and one that a command has recorded for a
server (`--detach`), are claimed when they are seen. The lease decides which of several processes executes a run. What
goes wrong with one run is kept in `problems`, is tried again later, and disturbs no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from typing import Any

from maos.clock import MICROSECONDS, Clock
from maos.engine import ownership
from maos.engine.ownership import Held, Liveness
from maos.engine.streams import ATTEMPT, RUN, owner_of
from maos.errors import InvalidInput, LeaseLost, MaosError, NotFound, StoreUnavailable
from maos.faults import crash_point
from maos.journal.journal import Journal
from maos.model import attempt as attempts
from maos.model.access import SERVERS, ServerList
from maos.model.attempt import Attempt
from maos.model.events.access import ServerStarted, ServerStopped
from maos.model.read_models import SupervisorProblem
from maos.model.run import Run
from maos.model.workflow import INTERRUPTED, Schedule
from maos.ops import server_log
from maos.runs.service import Runs
from maos.settings import LEASE_S
from maos.views.agents import Agents
from maos.workflows import loader
from maos.workflows.definition import Workflow
from maos.workflows.service import Workflows
from maos.workflows.status import Status

LOOK_S = 1.0
"""How often the owners of open runs are looked at: a process can be killed without any event."""
REST_S = 0.1
WORKFLOWS_S = 5.0
PAUSE_S, PAUSE_S_MAX = 2.0, 300.0
"""How long to wait before a run that could not be executed is tried again: twice as long each time."""
DOUBLED_MAX = 16
"""How often a pause is doubled: more often makes a number that is too large for a float."""
HELD_S = 0.2
PAGE_EVENTS = 500
DETACH, PAUSE = "detach", "pause"
SOURCE = "server"


class Supervisor:
    """Executes what is open and no engine executes: runs, workflow runs, due schedules; attaches to detached agents."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        runs: Runs,
        agents: Agents,
        workflows: Workflows,
        *,
        beside: Mapping[str, Callable[[], Awaitable[None]]] | None = None,
    ) -> None:
        """`beside` is what else the server does until it ends, by name; what fails is a problem, and begins again."""
        self._journal = journal
        self._clock = clock
        self._runs = runs
        self._agents = agents
        self._workflows = workflows
        self._beside = beside or {}
        self._open: dict[str, Run] = {}
        self._attempts: dict[str, Attempt] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._position = 0
        self._id = ""
        self._tell: Callable[[str], None] | None = None
        self.problems: dict[str, SupervisorProblem] = {}
        """What cannot be executed now, by id."""

    @property
    def executing(self) -> list[str]:
        """The runs that this process executes."""
        return sorted(self._tasks)

    async def supervise(self, *, tell: Callable[[str], None] | None = None) -> None:
        """Execute what is open until cancelled; then detach: agents keep running, and any engine can continue.

        What a person should know goes to `tell`: schedules and workflow runs that are started or resumed, and what
        cannot be executed, with the reason. The log has it in any case.

        Example::

            supervising = asyncio.create_task(m.supervisor.supervise())
            supervising.cancel()
        """
        self._journal.principal.check_may_decide("execute runs for others")
        self._tell = tell
        works = {"schedules": self._serve_workflows, "workflow runs": self._load_workflows, **self._beside}
        beside = [asyncio.create_task(self._repeat(name, work)) for name, work in works.items()]
        has_looked = False
        try:
            while True:
                try:
                    if not has_looked:
                        await self._look_at_all()
                        has_looked = True
                    self._start_due()
                    await self._journal.store.wait(after=self._position, timeout_s=LOOK_S)
                    await asyncio.sleep(REST_S)
                    await self._look_at_changed()
                except StoreUnavailable as error:
                    self._fail("the database", error)
                    await asyncio.sleep(LOOK_S)
                else:
                    self.problems.pop("the database", None)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await self.close()

    @contextlib.asynccontextmanager
    async def announced(
        self, url: str, *, on_stop: str = DETACH, tell: Callable[[str], None] | None = None
    ) -> AsyncIterator[asyncio.Task[None]]:
        """Execute what is open for the time of a block, as a server that commands with --detach find.

        Yields the task that does so, which ends before the block only when it fails. An empty `url` is that of a
        server without HTTP.

        Example::

            async with m.supervisor.announced("") as supervising:
                await asyncio.wait([supervising], timeout=0.1)
        """
        await self._announce(url)
        supervising = asyncio.create_task(self.supervise(tell=tell))
        try:
            yield supervising
        finally:
            try:
                await self.stop(on_stop)
            finally:
                supervising.cancel()
                await asyncio.gather(supervising, return_exceptions=True)
                await self._withdraw()

    async def stop(self, how: str = DETACH) -> None:
        """Stop executing: detach, or pause each run first, which ends its agents. Agents without a run keep running.

        Example::

            await m.supervisor.stop("pause")
        """
        if how == PAUSE:
            runs = {id: task for id, task in self._tasks.items() if id not in self._attempts}
            for id in runs:
                self._runs.pause_here(id, "the server was stopped")
            await asyncio.gather(*runs.values(), return_exceptions=True)
        await self.close()

    async def close(self) -> None:
        """Detach from everything that this process executes."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()

    async def resume_agent(self, caller: Agents, name: str, *, text: str = "") -> None:
        """Resume an agent that works alone, and record what it does until it ends; `text` is what else it is told.

        The services of the caller start it, so that its events say who did. They are closed, which detaches from it,
        and this process attaches. If it is killed in between, the next server attaches.
        """
        if owner := await owner_of(self._journal, (await caller.get(name)).agent):
            raise InvalidInput(f"agent {name!r} belongs to {owner}", hint=f"resume {owner}")
        await caller.resume_attached(name, task=text)
        await caller.close()
        crash_point("supervisor.agent_detached")
        if name not in self._tasks:
            self._tasks[name] = asyncio.create_task(self._attach(name))

    # --- runs ------------------------------------------------------------------------------------------------

    async def _look_at_all(self) -> None:
        self._position = await self._journal.head()
        async for id in RUN.open_ids(self._journal):
            await self._look_at_run(id)
        async for id in ATTEMPT.open_ids(self._journal):
            await self._look_at_agent(attempts.agent_of(id))

    async def _look_at_changed(self) -> None:
        """Read again every run and agent of which something was recorded since, but for output."""
        while events := await self._journal.store.read_log(after=self._position, limit=PAGE_EVENTS):
            found = dict.fromkeys(each.stream for each in events if _matters(each.stream, each.type))
            for stream in found:
                kind, _, id = stream.partition("/")
                await (self._look_at_run(id) if kind == "run" else self._look_at_agent(attempts.agent_of(id)))
            self._position = events[-1].position

    async def _look_at_run(self, id: str) -> None:
        with self._readable(id):
            run = await RUN.load(self._journal, id)
            if run is not None:
                self._see(run)

    async def _look_at_agent(self, name: str) -> None:
        with self._readable(name):
            newest = await self._agents.newest(name)
            if newest is not None:
                await self._see_attempt(newest)

    @contextlib.contextmanager
    def _readable(self, id: str) -> Iterator[None]:
        """What cannot be read is a problem of its own, and keeps nothing else from being executed."""
        try:
            yield
        except StoreUnavailable:
            raise
        except MaosError as error:
            self._fail(id, error)

    def _see(self, run: Run) -> None:
        if run.is_going and not run.removed_us:
            self._open[run.id] = run
        else:
            self._open.pop(run.id, None)
            self.problems.pop(run.id, None)

    async def _see_attempt(self, attempt: Attempt) -> None:
        """Remember an agent that works alone; those of runs and workflow runs are left to these."""
        name = attempt.agent
        if not attempt.is_open:
            self._attempts.pop(name, None)
        elif not await owner_of(self._journal, name):
            self._attempts[name] = attempt

    def _start_due(self) -> None:
        """Start executing what no engine executes."""
        now_us = self._clock.now_us()
        for id, run in self._open.items():
            if self._is_due(id, now_us) and _may_be_free(run):
                self._tasks[id] = asyncio.create_task(self._execute(id))
        for name, attempt in self._attempts.items():
            if self._is_due(name, now_us) and ownership.liveness(attempt.owner) is Liveness.GONE:
                self._tasks[name] = asyncio.create_task(self._attach(name))

    def _is_due(self, id: str, now_us: int) -> bool:
        problem = self.problems.get(id)
        return id not in self._tasks and (problem is None or problem.again_us <= now_us)

    async def _execute(self, id: str) -> None:
        """Claim a run and execute it until it ends or is paused."""
        with self._noting(id):
            await self._runs.resume(id, source=SOURCE)
            self._see(await self._runs.execute(id))
            self.problems.pop(id, None)

    async def _attach(self, name: str) -> None:
        """Attach to an agent whose engine has exited, and record what it does until it ends."""
        with self._noting(name):
            running = await self._agents.adopt(name)
            if running is not None:
                await running.wait()
            self._attempts.pop(name, None)
            self.problems.pop(name, None)

    @contextlib.contextmanager
    def _noting(self, id: str) -> Iterator[None]:
        """Have a failure in the block be a problem; after the block, nothing is executed under this id."""
        try:
            yield
        except (Held, LeaseLost):
            self._fail(id, None)  # another engine has it
        except MaosError as error:
            self._fail(id, error)
        except Exception as error:  # noqa: BLE001 - it is a problem, logged with its traceback
            self._fail(id, error)
        finally:
            self._tasks.pop(id, None)

    def _fail(self, id: str, error: Exception | None) -> None:
        """Note why something could not be executed, and when it is tried again."""
        before = self.problems.get(id)
        tries = before.tries + 1 if before is not None else 1
        first_s, most_s = (PAUSE_S, PAUSE_S_MAX) if error is not None else (HELD_S, LEASE_S)
        wait_s = min(first_s * 2 ** min(tries - 1, DOUBLED_MAX), most_s)
        what = "another engine executes it" if error is None else getattr(error, "what", "") or repr(error)
        hint = getattr(error, "hint", "")
        again_us = self._clock.now_us() + int(wait_s * MICROSECONDS)
        self.problems[id] = SupervisorProblem(id, what, hint, tries, again_us)
        if error is not None and (before is None or before.what != what):
            self._log_problem(id, what, None if isinstance(error, MaosError) else error)
            if self._tell and not isinstance(error, StoreUnavailable):  # commands print that they wait for it
                self._tell(f"{id} cannot be executed: {what}")

    def _log_problem(self, id: str, what: str, error: Exception | None = None) -> None:
        run, agent = (id if id in known else "" for known in (self._open, self._attempts))
        about = "" if run or agent else id
        server_log.write(server_log.PROBLEM, error, run=run, agent=agent, about=about, reason=what)

    def note(self, name: str, error: MaosError | None) -> None:
        """Have something beside the runs be a problem, as long as it is one."""
        if error is None:
            self.problems.pop(name, None)
            return
        before = self.problems.get(name)
        again_us = self._clock.now_us() + int(LOOK_S * MICROSECONDS)
        tries = before.tries + 1 if before is not None else 1
        self.problems[name] = SupervisorProblem(name, error.what, error.hint, tries, again_us)
        if before is None or before.what != error.what:
            self._log_problem(name, error.what)
            if self._tell:
                self._tell(f"{name}: {error.what}")

    # --- workflow runs ---------------------------------------------------------------------------------------

    async def _repeat(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do something until cancelled; when it fails, that is a problem, and it is begun again after a pause."""
        while True:
            with self._noting(name):
                await work()
                self.problems.pop(name, None)
            pause_us = self.problems[name].again_us - self._clock.now_us() if name in self.problems else 0
            await asyncio.sleep(max(REST_S, pause_us / MICROSECONDS))

    async def _serve_workflows(self) -> None:
        """Start due schedules, and resume interrupted workflow runs whose definitions are loaded."""

        def load(known: Schedule) -> Workflow[..., Any]:
            return loader.load_recorded(known.workflow, known.definition, known.where)

        await self._workflows.serve(tell=self._note, load=load)

    def _note(self, text: str) -> None:
        server_log.note(text)
        if self._tell:
            self._tell(text)

    async def _load_workflows(self) -> None:
        """Load the definitions of interrupted workflow runs from where they were recorded."""
        while True:
            with contextlib.suppress(StoreUnavailable):
                async for flow in self._workflows.open():
                    if not flow.parent and Status.of(flow).name == INTERRUPTED:
                        await self._load_workflow(flow.id, flow.name, flow.definition, flow.options.get("where", {}))
            await asyncio.sleep(WORKFLOWS_S)

    async def _load_workflow(self, id: str, name: str, version: str, where: dict[str, Any]) -> None:
        try:
            if not await self._workflows.needs_consent(id):
                loader.load_recorded(name, version, where)
                self.problems.pop(id, None)
        except MaosError as error:
            self._fail(id, error)

    # --- servers ---------------------------------------------------------------------------------------------

    async def _announce(self, url: str) -> None:
        """Record that this process executes what is handed over, until it is killed or withdraws."""
        self._id = secrets.token_hex(4)
        lease = await self._journal.acquire(f"server/{self._id}", ttl_s=ownership.CLAIM_S)
        assert lease is not None
        owner = ownership.identity(lease)
        started = ServerStarted(id=self._id, url=url, owner=owner, by=self._journal.by, at_us=self._clock.now_us())
        await self._journal.append(SERVERS, started)

    async def _withdraw(self) -> None:
        """Record that this process has stopped as requested."""
        if self._id:
            await self._journal.append(SERVERS, ServerStopped(id=self._id, at_us=self._clock.now_us()))
            self._id = ""

    async def servers(self) -> list[ServerStarted]:
        """The servers of this database that may be alive: those that were killed on this machine are left out.

        Example::

            for server in await m.supervisor.servers():
                print(server.url, server.owner["pid"])
        """
        known = ServerList()
        async for record in self._journal.read(SERVERS):
            known.apply(record.event)
        return [each for each in known.servers.values() if not ownership.liveness(each.owner).has_ended]

    async def check_server(self, *, has_page: bool = False) -> ServerStarted:
        """The server that executes what is handed over, or one that has a page; NotFound when there is none."""
        found = [each for each in await self.servers() if each.url or not has_page]
        if not found and has_page:
            hint = "start `maos serve` in another terminal"
            raise NotFound(f"no server shows the page of {self._journal.store.place}", hint=hint)
        if not found:
            raise NotFound(
                f"no server executes the runs of {self._journal.store.place}; nothing was started",
                hint="start `maos serve` in another terminal, or leave out --detach",
            )
        return found[-1]


QUIET = frozenset(("attempt_output",))


def _matters(stream: str, type: str, kinds: Collection[str] = ("run", "attempt")) -> bool:
    return stream.partition("/")[0] in kinds and type not in QUIET and not type.startswith("task_")


def _may_be_free(run: Run) -> bool:
    """Whether no engine may be executing a run: its owner has exited, or is elsewhere and silent. The lease decides."""
    found = ownership.liveness(run.owner)
    return run.is_handed_over or found.has_ended or found is Liveness.ELSEWHERE
