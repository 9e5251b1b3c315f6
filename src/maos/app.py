"""The composition root: the only place that names a concrete store or the kinds of agents."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from maos import settings
from maos.clock import Clock, SystemClock
from maos.engine.streams import RUN, TYPES
from maos.errors import InvalidInput
from maos.journal.codec import EventType
from maos.journal.journal import Journal
from maos.journal.verify import Report
from maos.state import agents as states
from maos.state.agents import verify
from maos.store.contract import Store
from maos.store.registry import StoreRegistry
from maos.store.sql_store import SqlStore

if TYPE_CHECKING:
    from maos.bus.bus import Bus
    from maos.engine.attempt_spec import ToolServers
    from maos.ops.doctor import Finding
    from maos.runs.agent_tools import AgentTools
    from maos.runs.consent import Act
    from maos.runs.service import Runs
    from maos.settings.loader import Current
    from maos.transfer.service import Transfer
    from maos.travel.service import TimeTravel
    from maos.views.agents import Agents
    from maos.views.effects import ExternalEffect
    from maos.views.ids import Ids
    from maos.views.messages import Messages
    from maos.views.overview import Overview
    from maos.views.questions import Questions
    from maos.workflows.service import Workflows

T = TypeVar("T")


class Maos:
    """An open journal and its services.

    Example::

        async with maos.open("maos.db") as m:
            state = await m.state.get("reviewer")
            position = await m.journal.head()
    """

    def __init__(
        self,
        journal: Journal,
        state: states.AgentStates,
        clock: Clock,
        home: Path | None = None,
        *,
        tool_servers: Callable[[], ToolServers | None] | None = None,
        settings: Callable[[], Current] | None = None,
    ) -> None:
        self._tool_servers = tool_servers
        self._read_settings = settings
        self._clock = clock
        self._home = home
        self.journal = journal
        """Streams of events: append, read, follow."""
        self.state = state
        """Versioned state of agents."""

    @cached_property
    def settings(self) -> Current:
        """The settings of agents and runs: as given when it was opened, else the variables MAOS_… and the defaults."""
        from maos.settings.loader import Current

        return self._read_settings() if self._read_settings is not None else Current()

    @cached_property
    def agents(self) -> Agents:
        """Agents that run: start, resume, follow and stop them.

        Example::

            running = await m.agents.start(kind="shell", argv=["echo", "found: nothing"], cwd="/tmp")
            attempt = await running.wait()
            print(attempt.status, attempt.last_text)
        """
        from maos.agents import kinds
        from maos.views.agents import Agents

        folder = self._home or settings.folder_of(self.journal.store.place)
        return Agents(
            self.journal,
            self._clock,
            dialect=kinds.dialect,
            folder=folder,
            bus=self.bus,
            tool_servers=self._tool_servers() if self._tool_servers else None,
            settings=self.settings,
        )

    @cached_property
    def runs(self) -> Runs:
        """Runs of many tasks: started from a plan, executed by agents, paused and resumed.

        Example::

            plan = {"tasks": [{"name": "hello", "command": ["echo", "hello"]}]}
            run = await m.runs.start(plan, folder="/tmp", options={"in_place": True})
            run = await m.runs.execute(run.id)
            print(run.status, run.tasks["hello"].result)
        """
        from maos.runs.service import Runs

        return Runs(self.journal, self._clock, self.agents, bus=self.bus)

    @cached_property
    def workflows(self) -> Workflows:
        """Durable workflows: run, signal and resume them.

        Example::

            print(await m.workflows.run(shout, "hello"))
        """
        from maos.workflows.record import CheckpointPolicy
        from maos.workflows.service import Workflows

        values = self.settings.values
        return Workflows(
            self.journal,
            self._clock,
            mailbox=self.bus.mailbox,
            attempts=lambda: self.agents,
            lease_s=values.engine.lease_s,
            checkpoints=CheckpointPolicy.as_set(values.checkpoint),
        )

    @property
    def ids(self) -> Ids:
        """Ids of everything, as people type them: `find` what is meant, `complete` the beginning of one.

        Example::

            print((await m.ids.find("r-1")).kind)
        """
        from maos.views.ids import Ids

        return Ids(self.journal)

    @cached_property
    def questions(self) -> Questions:
        """Questions of runs, agents and workflows to a person: list and answer them.

        Example::

            for question in await m.questions.open():
                await m.questions.answer(question.ref, "yes")
        """
        from maos.views.questions import Questions

        return Questions(self.journal, self.runs, self.agents, self.workflows)

    @property
    def messages(self) -> Messages:
        """Messages between agents, with their status; `bus` sends and receives.

        Example::

            page = await m.messages.newest(last=10)
        """
        from maos.views.messages import Messages

        return Messages(self.bus)

    async def effects(self, id: str = "", *, unknown: bool = False) -> list[ExternalEffect]:
        """Side effects of a run, a workflow run or an agent, or all: tools, commands and steps, with their outcomes.

        `id` may be the beginning of one. With `unknown`, only what was begun and may or may not have taken effect.

        Example::

            print([(effect.by, effect.what) for effect in await m.effects(unknown=True)])
        """
        from maos.views import effects

        return await effects.find(self.agents, id, unknown=unknown)

    async def overview(self) -> Overview:
        """Everything that runs or waits now: runs, agents, workflow runs, questions and unknown effects.

        Example::

            print([each.run.id for each in (await m.overview()).runs])
        """
        from maos.views.overview import overview

        return await overview(self.journal, self.runs, self.agents, self.workflows)

    @cached_property
    def travel(self) -> TimeTravel:
        """Runs at other points in time: shown as they were, compared, rolled back, forked and joined.

        Example::

            journey = await m.travel.rollback("r-1", 2, dry_run=True)
            print([(each.task, each.what) for each in journey.steps])
        """
        from maos.travel.service import TimeTravel

        return TimeTravel(self.journal, self._clock, self.runs, self.agents)

    @cached_property
    def transfer(self) -> Transfer:
        """Export and import of runs, each as one file.

        Example::

            await m.transfer.export("r-1", "r-1.maos")
        """
        import maos
        from maos.transfer.service import Transfer

        made_by = f"maos {maos.__version__}"
        return Transfer(self.journal, self._clock, self.agents, made_by=made_by)

    async def tools(self, agent: str, attempt: str, *, run: str = "") -> AgentTools:
        """Return the tools of one agent, as its MCP server offers them.

        A call that an earlier server recorded, and whose reply may not have arrived, is recognized when it is repeated.
        Arguments are recorded as they are given: the server removes secrets from them.

        Example::

            tools = await m.tools("r-1.fix", "r-1.fix.1", run="r-1")
            await tools.report_progress(percent=50, activity="tests")
        """
        from maos.runs.agent_tools import AgentTools

        tools = AgentTools(self.journal, self._clock, self.bus, self.state, agent=agent, attempt=attempt, run=run)
        await tools.log.look_back()
        return tools

    @cached_property
    def bus(self) -> Bus:
        """Messages between agents: send, receive and acknowledge them.

        Example::

            await m.bus.send("reviewer", "fixer", "The parser leaks", type="discovery")
            delivery = await anext(m.bus.receive("fixer"))
            await delivery.ack()
        """
        from maos.bus.bus import Bus

        _add_views(self.journal.store)
        restore_s = self.settings.values.messages.restore_s
        return Bus(self.journal, self._clock, members=self._members, restore_s=restore_s)

    async def _members(self, run: str) -> list[str]:
        """The agents that work, or will work, on a run."""
        from maos.model.status import TaskStatus

        over = (TaskStatus.DONE, TaskStatus.FAILED, TaskStatus.SKIPPED)
        found = await RUN.load(self.journal, run)
        return [found.agent(each.name) for each in found.tasks.values() if each.status not in over] if found else []

    async def verify(self, agent: str | None = None, *, progress: Callable[[int, int], None] | None = None) -> Report:
        """Check every stored event, snapshot and fold; names stream and version of any damage.

        Example::

            report = await m.verify()
            print(report.ok, report.damage)
        """
        return await verify(self.journal, self.state, agent=agent, progress=progress)

    async def doctor(self) -> list[Finding]:
        """Check the database, agents and their processes, folders and programs; some findings can be repaired.

        Example::

            for finding in await m.doctor():
                print(finding.level, finding.about, finding.what)
        """
        import maos
        from maos.ops.doctor import examine

        services = self.journal, self.agents, self.runs, self.workflows
        return await examine(*services, verify=self.verify, version=maos.__version__)

    async def check_own(self) -> None:
        """Raise UntrustedStore unless this user made the database on this machine, or has agreed to use it.

        Every write checks it: a database can come with a cloned repository, and its events name programs and paths.

        Example::

            await m.check_own()
        """
        await self.journal.store.check_own()

    async def trust(self) -> None:
        """Note that this user agrees to use a database on this machine that came from elsewhere.

        Example::

            await m.trust()
        """
        await self.journal.store.trust()

    async def would_start(self) -> dict[str, list[Act]]:
        """What resuming everything in this database would start here, by run, agent or workflow run.

        Example::

            print({id: [each.command for each in acts] for id, acts in (await m.would_start()).items()})
        """
        from maos.views.overview import would_start

        return await would_start(self.runs, self.agents, self.workflows)

    @property
    def notes(self) -> list[str]:
        """Problems in this use of the database that had no consequence."""
        return self.journal.notes

    async def logged(self, path: str | Path, work: Awaitable[T]) -> T:
        """Do something, and keep a log file of what is recorded up to date meanwhile."""
        from maos.ops import logbook

        return await logbook.beside(self.journal, Path(path), work)

    async def copy_to(self, path: str | Path) -> int:
        """A consistent copy of everything beside the running store; returns the position it holds.

        Example::

            position = await m.copy_to("copy.db")
        """
        return await self.journal.store.copy_to(Path(path))

    async def close(self) -> None:
        """Finish what was accepted and close the store; agents that run keep running.

        Example::

            m = await maos.open("maos.db")
            await m.close()
        """
        made = vars(self)
        for service in ("workflows", "runs", "agents", "bus"):
            if service in made:
                await made[service].close()
        await self.journal.close()


class open:
    """Opens a journal: a path, ":memory:", or a `postgresql://` URL.

    Creates what does not exist (unless `create` is off), upgrades what is older, refuses what is newer. `types`
    registers event types of your own. With `accept_loss` a journal that lost acknowledged events is opened, and reports
    what it lost. `home` is the folder of running agents (MAOS_HOME by default). `settings` are the settings of agents
    and runs; without them no file is read, and the variables MAOS_… and the defaults apply.

    Example::

        async with maos.open("maos.db") as m:
            await m.state.create("reviewer")
    """

    def __init__(
        self,
        target: str | Path,
        *,
        types: Iterable[EventType] = (),
        accept_loss: bool = False,
        create: bool = True,
        clock: Clock | None = None,
        schema: str = "maos",
        mark_path: Path | None = None,
        home: Path | None = None,
        settings: Callable[[], Current] | None = None,
    ) -> None:
        name, clock = str(target), clock or SystemClock()
        all_types = (*states.TYPES, *TYPES, *types)
        self._maos: Maos | None = None

        async def opened() -> Maos:
            store = await _open_store(name, clock, create, accept_loss, schema, mark_path)
            try:
                journal = Journal(store, all_types)
            except BaseException:
                await store.close()
                raise
            state, tool_servers = states.AgentStates(journal, clock), partial(_tool_servers, name, schema)
            return Maos(journal, state, clock, home, tool_servers=tool_servers, settings=settings)

        self._open = opened

    def __await__(self):  # type: ignore[no-untyped-def]
        return self._open().__await__()

    async def __aenter__(self) -> Maos:
        self._maos = await self._open()
        return self._maos

    async def __aexit__(self, *error: object) -> None:
        assert self._maos is not None
        await self._maos.close()


async def _open_store(
    name: str, clock: Clock, create: bool, accept_loss: bool, schema: str, mark_path: Path | None
) -> Store:
    if name == ":memory:":
        from maos.store.sqlite import MemoryDatabase

        return await SqlStore.open(MemoryDatabase(clock))
    registry = StoreRegistry(settings.state_folder)
    if name.startswith(("postgresql://", "postgres://")):
        from maos import views
        from maos.store.postgres import PostgresDatabase

        database = PostgresDatabase(name, clock=clock, create=create, schema_name=schema, mark_path=mark_path)
        database.registry = registry
        store = await SqlStore.open(database, accept_loss=accept_loss)
        await database.add_views(views.statements("postgres"))
        return store
    if "://" in name:
        shown = settings.without_password(name)
        raise InvalidInput(f"{shown!r} is neither a path nor a PostgreSQL URL", hint="use a path or postgresql://…")
    from maos.store.sqlite import SqliteDatabase

    file = SqliteDatabase(Path(name), clock=clock, create=create)
    file.registry = registry
    return await SqlStore.open(file, accept_loss=accept_loss)


def _tool_servers(name: str, schema: str) -> ToolServers | None:
    """None for a journal in memory, which another process cannot open."""
    if name == ":memory:":
        return None
    from maos.engine.attempt_spec import ToolServers

    is_url = "://" in name
    return ToolServers(name if is_url else os.path.abspath(name), schema=schema if is_url else "")


def _add_views(store: Store) -> None:
    """Let plain `sqlite3` see the agents and runs of a SQLite database, once there are any."""
    from maos.store.sqlite import SqliteDatabase

    if isinstance(store, SqlStore) and isinstance(store.database, SqliteDatabase):
        from maos import views

        store.database.add_views(views.statements("sqlite"))
