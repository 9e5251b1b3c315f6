"""The composition root: the only place that names a concrete store or the kinds of agents."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from maos import settings
from maos.clock import Clock, SystemClock
from maos.engine.types import RUN, TYPES
from maos.errors import InvalidInput
from maos.ids import match_id
from maos.journal.codec import EventType
from maos.journal.journal import Journal
from maos.journal.verify import Report
from maos.state import agents as states
from maos.state.verify import verify
from maos.store.contract import Store
from maos.store.sql_store import SqlStore

if TYPE_CHECKING:
    from maos_import_legacy.legacy_import import LegacyImport

    from maos.bus.bus import Bus
    from maos.engine.tool_servers import ToolServers
    from maos.ops.doctor import Finding
    from maos.ops.notices import NoticeInfo
    from maos.runs.service import Runs
    from maos.settings.current import Current
    from maos.transfer.service import Transfer
    from maos.travel.service import TimeTravel
    from maos.views.agents import Agents
    from maos.views.effects import Effect
    from maos.views.messages import Messages
    from maos.views.overview import Overview
    from maos.views.questions import Questions
    from maos.workflows.service import Workflows
    from maos_import_legacy.parser import LegacyContents as Contents

T = TypeVar("T")


class FoundId(NamedTuple):
    """What a person means by an id."""

    kind: str
    """`run` or `flow`."""
    id: str


class Maos:
    """An open journal, and what is folded from it.

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
        self._settings: Current | None = None
        self._clock = clock
        self._home = home
        self._agents: Agents | None = None
        self._questions: Questions | None = None
        self._runs: Runs | None = None
        self._bus: Bus | None = None
        self._workflows: Workflows | None = None
        self._travel: TimeTravel | None = None
        self._transfer: Transfer | None = None
        self.journal = journal
        """Streams of events: append, read, follow."""
        self.state = state
        """Versioned state of agents."""

    @property
    def settings(self) -> Current:
        """What agents and runs go by: as given when it was opened, else the variables MAOS_… and the defaults."""
        if self._settings is None:
            from maos.settings.current import Current

            self._settings = self._read_settings() if self._read_settings is not None else Current()
        return self._settings

    @property
    def agents(self) -> Agents:
        """Agents that run: start, resume, follow and stop them.

        Example::

            running = await m.agents.start(kind="shell", argv=["echo", "found: nothing"], cwd="/tmp")
            attempt = await running.wait()
            print(attempt.status, attempt.last_text)
        """
        if self._agents is None:
            from maos.agents import kinds
            from maos.views.agents import Agents

            folder = self._home or settings.folder_of(self.journal.store.place)
            self._agents = Agents(
                self.journal,
                self._clock,
                dialect=kinds.dialect,
                folder=folder,
                bus=self.bus,
                tool_servers=self._tool_servers() if self._tool_servers else None,
                settings=self.settings,
            )
        return self._agents

    @property
    def runs(self) -> Runs:
        """Runs of many tasks: started from a plan, executed by agents, paused and resumed.

        Example::

            plan = {"tasks": [{"name": "hello", "command": ["echo", "hello"]}]}
            run = await m.runs.start(plan, folder="/tmp", options={"in_place": True})
            run = await m.runs.execute(run.id)
            print(run.status, run.tasks["hello"].result)
        """
        if self._runs is None:
            from maos.runs.service import Runs

            self._runs = Runs(self.journal, self._clock, self.agents, bus=self.bus, definitions=lambda: self.workflows)
        return self._runs

    @property
    def workflows(self) -> Workflows:
        """Durable workflows: run them, speak to them, go on with them after anything.

        Example::

            print(await m.workflows.run(shout, "hello"))
        """
        if self._workflows is None:
            from maos.workflows.record import CheckpointPolicy
            from maos.workflows.service import Workflows

            values = self.settings.values
            self._workflows = Workflows(
                self.journal,
                self._clock,
                mailbox=self.bus.mailbox,
                attempts=lambda: self.agents,
                lease_s=values.engine.lease_s,
                checkpoints=CheckpointPolicy.as_set(values.checkpoint),
            )
        return self._workflows

    async def find(self, given: str, *kinds: str, noun: str, hint: str = "") -> FoundId:
        """Find a run or workflow run by its id or a unique prefix of it; `kinds` are "run" and "workflow".

        Example::

            print((await m.find("r-1", "run", noun="orchestration")).id)
        """
        streams = [name for kind in kinds async for name in self.journal.streams(f"{kind}/{given}")]
        known = {id: kind for kind, _, id in (name.partition("/") for name in reversed(streams))}
        id = match_id(given, reversed(known), noun, hint=hint)
        return FoundId(known[id], id)

    @property
    def questions(self) -> Questions:
        """What runs, agents and workflows ask a person: list it, and answer.

        Example::

            for question in await m.questions.open():
                await m.questions.answer(question.ref, "yes")
        """
        if self._questions is None:
            from maos.views.questions import Questions

            self._questions = Questions(self.journal, self.runs, self.agents, self.workflows)
        return self._questions

    @property
    def messages(self) -> Messages:
        """What agents told each other, with what came of it; `bus` sends and receives.

        Example::

            page = await m.messages.newest(last=10)
        """
        from maos.views.messages import Messages

        return Messages(self.bus)

    async def notices(self) -> list[NoticeInfo]:
        """What people were told elsewhere about runs, and what came of it, the oldest first.

        Example::

            print([(each.title, each.addresses) for each in await m.notices()])
        """
        from maos.ops.notices import notices

        return sorted([each async for each in notices(self.runs)], key=lambda each: each.time_us)

    async def import_original(
        self, contents: Contents, folder: Path, *, wanted: str = "", dry_run: bool = False
    ) -> list[LegacyImport]:
        """Import what was read from a database of the original; `folder` is where its agents work from now on."""
        from maos.runs import agent_types
        from maos_import_legacy import legacy_import
        from maos_import_legacy.builder import ImportTarget

        place = ImportTarget(folder, self.agents.folder, agent_types.known(folder, settings.config_folder()))
        importer = legacy_import.LegacyImporter(self.journal, self._clock, place, claude=legacy_import.claude_folder())
        return [each async for each in importer.bring(contents, wanted=wanted, dry_run=dry_run)]

    async def effects(self, id: str = "", *, unknown: bool = False) -> list[Effect]:
        """What a run, a workflow, an agent or everybody did outside: tools, commands and steps, and what came of each.

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

    @property
    def travel(self) -> TimeTravel:
        """Runs at other moments: shown as they were, compared, taken back, forked and joined.

        Example::

            journey = await m.travel.rollback("r-1", 2, dry_run=True)
            print([(each.task, each.what) for each in journey.steps])
        """
        if self._travel is None:
            from maos.travel.service import TimeTravel

            self._travel = TimeTravel(self.journal, self._clock, self.runs, self.agents)
        return self._travel

    @property
    def transfer(self) -> Transfer:
        """Runs that go elsewhere: exported to one file, and imported from one.

        Example::

            await m.transfer.export("r-1", "r-1.maos")
        """
        if self._transfer is None:
            import maos
            from maos.transfer.service import Transfer

            made_by = f"maos {maos.__version__}"
            self._transfer = Transfer(self.journal, self._clock, self.agents, made_by=made_by)
        return self._transfer

    @property
    def bus(self) -> Bus:
        """Messages between agents: send, receive and acknowledge them.

        Example::

            await m.bus.send("reviewer", "fixer", "The parser leaks", type="discovery")
            delivery = await anext(m.bus.receive("fixer"))
            await delivery.ack()
        """
        if self._bus is None:
            from maos.bus.bus import Bus

            _add_views(self.journal.store)
            restore_s = self.settings.values.messages.restore_s
            self._bus = Bus(self.journal, self._clock, members=self._members, restore_s=restore_s)
        return self._bus

    async def _members(self, run: str) -> list[str]:
        """The agents that work, or will work, on a run."""
        from maos.model.run import DONE, FAILED

        found = await RUN.load(self.journal, run)
        if found is None:
            return []
        return [found.agent(each.name) for each in found.tasks.values() if each.status not in (DONE, FAILED)]

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
        from maos.ops.doctor import Doctor

        doctor = Doctor(
            self.journal, self.agents, self.runs, self.workflows, verify=self.verify, version=maos.__version__
        )
        return await doctor.examine()

    @property
    def notes(self) -> list[str]:
        """What is worth knowing of this use of the database, and went wrong without consequence."""
        return self.journal.notes

    async def logged(self, path: str | Path, work: Awaitable[T]) -> T:
        """Do something, and keep a log file of what is recorded up to date meanwhile."""
        from maos.engine import logbook

        return await logbook.beside(self.journal, Path(path), work)

    async def copy_to(self, path: str | Path) -> int:
        """A consistent copy of everything beside the running store; returns the position it holds.

        Example::

            position = await m.copy_to("copy.db")
        """
        return await self.journal.store.copy_to(Path(path))

    async def close(self) -> None:
        """Finish what was accepted and let go of the store; agents that run go on without us.

        Example::

            m = await maos.open("maos.db")
            await m.close()
        """
        if self._workflows is not None:
            await self._workflows.close()
        if self._runs is not None:
            await self._runs.close()
        if self._agents is not None:
            await self._agents.close()
        if self._bus is not None:
            await self._bus.close()
        await self.journal.close()


class open:
    """Opens a journal: a path, ":memory:", or a `postgresql://` URL.

    Creates what does not exist (unless `create` is off), upgrades what is older, refuses what is newer. `types`
    registers event types of your own. With `accept_loss` a journal that lost acknowledged events is opened all the
    same, and says what it lost. `home` is where running agents have their files (MAOS_HOME by default). `settings` says
    what agents and runs go by; without it no file is read, and the variables MAOS_… and the defaults count.

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
        self._settings = settings
        self._home = home
        self._target = target
        self._create = create
        self._types = tuple(types)
        self._accept_loss = accept_loss
        self._clock = clock or SystemClock()
        self._schema = schema
        self._mark_path = mark_path
        self._maos: Maos | None = None

    async def _open(self) -> Maos:
        store = await _open_store(
            self._target,
            clock=self._clock,
            accept_loss=self._accept_loss,
            create=self._create,
            schema=self._schema,
            mark_path=self._mark_path,
        )
        try:
            journal = Journal(store, (*states.TYPES, *TYPES, *self._types))
        except BaseException:
            await store.close()
            raise
        state = states.AgentStates(journal, self._clock)
        return Maos(journal, state, self._clock, self._home, tool_servers=self._tool_servers, settings=self._settings)

    def _tool_servers(self) -> ToolServers | None:
        """None for a journal in memory: it has no door that another process could go through."""
        name = str(self._target)
        if name == ":memory:":
            return None
        from maos.engine.tool_servers import ToolServers

        is_url = "://" in name
        return ToolServers(name if is_url else os.path.abspath(name), schema=self._schema if is_url else "")

    def __await__(self):  # type: ignore[no-untyped-def]
        return self._open().__await__()

    async def __aenter__(self) -> Maos:
        self._maos = await self._open()
        return self._maos

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._maos is not None
        await self._maos.close()


async def _open_store(
    target: str | Path, *, clock: Clock, accept_loss: bool, create: bool, schema: str, mark_path: Path | None
) -> Store:
    name = str(target)
    if name == ":memory:":
        from maos.store.memory import MemoryStore

        return MemoryStore(clock)
    if name.startswith(("postgresql://", "postgres://")):
        from maos import views
        from maos.store.postgres import PostgresDatabase

        database = PostgresDatabase(name, clock=clock, create=create, schema_name=schema, mark_path=mark_path)
        store = await SqlStore.open(database, accept_loss=accept_loss)
        await database.add_views(views.for_postgres())
        return store
    if "://" in name:
        raise InvalidInput(f"{name!r} is neither a path nor a PostgreSQL URL", hint="use a path or postgresql://…")
    from maos.store.sqlite import SqliteDatabase

    return await SqlStore.open(SqliteDatabase(Path(name), clock=clock, create=create), accept_loss=accept_loss)


def _add_views(store: Store) -> None:
    """Let plain `sqlite3` see the agents and runs of a SQLite database, once there are any."""
    from maos.store.sqlite import SqliteDatabase

    if isinstance(store, SqlStore) and isinstance(store.database, SqliteDatabase):
        from maos import views

        store.database.add_views(views.for_sqlite())
