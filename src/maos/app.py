"""The composition root: the only place that names a concrete store or the kinds of agents."""

from __future__ import annotations

import asyncio
import glob
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from functools import cache, cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from maos import settings
from maos.clock import Clock, SystemClock
from maos.engine import log
from maos.engine.principals import find_principal
from maos.engine.streams import RUN, TYPES
from maos.errors import Corrupt, InvalidInput
from maos.journal.codec import EventType
from maos.journal.journal import Journal
from maos.journal.verify import Report
from maos.settings import DatabaseName
from maos.state import agents as states
from maos.state.agents import verify
from maos.store.contract import Sealer, Store
from maos.store.database import Database
from maos.store.patience import WAIT_S as WAIT_S
from maos.store.patience import Outage as Outage
from maos.store.registry import StoreRegistry
from maos.store.sql_store import SqlStore

if TYPE_CHECKING:
    from maos.backup.restoration import RestoredEvents
    from maos.backup.service import Backups
    from maos.backup.shipper import Progress
    from maos.bus.bus import Bus
    from maos.engine.attempt_spec import ToolServers
    from maos.engine.permissions import Permissions
    from maos.keys.vault import Vault
    from maos.model.access import VisibleParts
    from maos.model.principal import Principal
    from maos.model.read_models import ExternalEffect
    from maos.ops.access import Access
    from maos.ops.audit import Audit
    from maos.ops.doctor import Finding
    from maos.ops.encryption import Keys
    from maos.ops.erasure import Erasures
    from maos.ops.metrics import Metric
    from maos.ops.statistics import JournalStatistics
    from maos.ops.supervisor import Supervisor
    from maos.runs.agent_tools import AgentTools
    from maos.runs.consent import Act
    from maos.runs.service import Runs
    from maos.settings.loader import Current
    from maos.transfer.service import Transfer
    from maos.travel.service import TimeTravel
    from maos.views.activity import ActivityLog
    from maos.views.agents import Agents
    from maos.views.fleet import Fleet
    from maos.views.ids import Ids
    from maos.views.messages import Messages
    from maos.views.overview import Overview
    from maos.views.questions import Questions
    from maos.views.readers import Readers
    from maos.views.timeline import Timelines
    from maos.workflows.service import Workflows

T = TypeVar("T")
IN_MEMORY = ":memory:"


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
        tool_servers: Callable[[Path], ToolServers | None] | None = None,
        settings: Callable[[], Current] | None = None,
        owns_journal: bool = True,
    ) -> None:
        self._owns_journal = owns_journal
        self._tool_servers = tool_servers
        self._read_settings = settings
        self._clock = clock
        self._home = home
        self.journal = journal
        """Streams of events: append, read, follow."""
        self.state = state
        """Versioned state of agents."""

    @property
    def clock(self) -> Clock:
        """The clock that its services go by."""
        return self._clock

    @property
    def principal(self) -> Principal:
        """Who acts through it, as events record it: the person whose process this is, or the agent it belongs to.

        Example::

            print(m.principal)
        """
        return self.journal.principal

    def acting_for(self, principal: Principal) -> Maos:
        """The same services for another principal, for a program that serves several: its events say who acted.

        It shares the store, and closing it closes nothing of this one.

        Example::

            token, _secret = await m.access.create_token("dashboard")
            print(m.acting_for(token.principal).principal)
        """
        journal = self.journal.acting_for(principal)
        return Maos(
            journal,
            states.AgentStates(journal, self._clock),
            self._clock,
            self._home,
            tool_servers=self._tool_servers,
            settings=lambda: self.settings,
            owns_journal=False,
        )

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
            tool_servers=self._tool_servers(folder) if self._tool_servers else None,
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

        return Questions(self.journal, self._clock, self.runs, self.agents, self.workflows, self.permissions)

    @property
    def permissions(self) -> Permissions:
        """Rules of what agents may do without asking: list, add and revoke them.

        Example::

            rule = await m.permissions.add("Bash(pytest *)", scope="project", of=".")
        """
        from maos.engine.permissions import Permissions

        return Permissions(self.journal, self._clock)

    @property
    def backups(self) -> Backups:
        """Backups of this database: write them, compare them with it. `maos.restore` makes a database of one again.

        Example::

            head = await m.backups.ship("backups")
            print(head.position)
        """
        from maos.backup.service import Backups

        return Backups(self.journal, self._clock, restore, merges=self.settings.values.backup.merge)

    @property
    def keys(self) -> Keys:
        """The keys of an encrypted database: list, rotate and export them.

        Example::

            print((await m.keys.list()).source)
        """
        from maos.ops.encryption import Keys

        return Keys(self.journal, self._clock, self.backups, self.settings.values.backup.to)

    @property
    def erasures(self) -> Erasures:
        """Erases runs and agents of an encrypted database.

        Example::

            receipt = await m.erasures.erase("reviewer", dry_run=True)
            print(receipt.events, receipt.unreachable)
        """
        from maos.keys.erased import ErasedKeys
        from maos.ops.erasure import Erasures

        values = self.settings.values
        return Erasures(
            self.journal,
            self._clock,
            self.runs,
            self.agents,
            self.backups,
            ErasedKeys(settings.state_folder()),
            backup_to=values.backup.to,
            log_file=str(values.log.file),
        )

    @cached_property
    def fleet(self) -> Fleet:
        """All runs and agents at a glance.

        Example::

            print([each.view.run.id for each in (await m.fleet.read()).runs])
        """
        from maos.views.fleet import Fleet

        return Fleet(self.runs, self.agents, self._clock)

    @cached_property
    def timelines(self) -> Timelines:
        """Runs on a time axis.

        Example::

            print((await m.timelines.read("r-1")).marks)
        """
        from maos.views.timeline import Timelines

        return Timelines(self.journal, self.runs, self._clock)

    @cached_property
    def access(self) -> Access:
        """Credentials of people and programs that reach maos over HTTP.

        Example::

            token, secret = await m.access.create_token("ci", "operator")
            print([each.name for each in await m.access.all()])
        """
        from maos.ops.access import Access

        return Access(self.journal, self._clock)

    @cached_property
    def audit(self) -> Audit:
        """Who read or did what over HTTP; its signed heads beside a backup.

        Example::

            print(len(await m.audit.entries(principal="token:phone")))
        """
        from maos.ops.audit import Audit

        return Audit(self.journal, self._clock, self._home or settings.folder_of(self.journal.store.place))

    @cached_property
    def activity(self) -> ActivityLog:
        """Everything that happens, in the order of the journal.

        Example::

            events, position = await m.activity.page(after=0)
        """
        from maos.views.activity import ActivityLog

        return ActivityLog(self.journal)

    @cached_property
    def supervisor(self) -> Supervisor:
        """Executes open runs that no engine executes, as `maos serve` does.

        Example::

            print([each.url for each in await m.supervisor.servers()])
        """
        from maos.ops.supervisor import Supervisor

        backup, beside = self.settings.values.backup, dict[str, Callable[[], Awaitable[None]]]()
        if backup.to:
            beside["backup"] = partial(self.backups.follow, backup.to, self._note_progress, every_s=backup.every_s)
            beside["alarm of the backup"] = self._watch_backup
            if find_spec("cryptography") is not None:
                beside["witness of the audit"] = partial(self.audit.witness_always, backup.to)
        if backup.to and backup.test_hours:
            beside["test of the backup"] = partial(self.backups.test_when_due, backup.to, backup.test_hours * 3600)
        return Supervisor(self.journal, self._clock, self.runs, self.agents, self.workflows, beside=beside)

    def _note_progress(self, progress: Progress) -> None:
        if not progress.trouble:
            self.supervisor.note("backup", None)

    async def _watch_backup(self) -> None:
        from maos.backup.alarm import BackupAlarm

        values = self.settings.values
        alarm = BackupAlarm(self.journal, self._clock, self.backups, values.backup.to, page=values.serve.url)
        await alarm.watch(partial(self.supervisor.note, "alarm of the backup"), values.notify.urls)

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

    async def overview(self, *, seen: VisibleParts | None = None) -> Overview:
        """Everything that runs or waits now: runs, agents, workflow runs, questions and unknown effects. With `seen`,
        what a reader sees of it, such as `m.access.sight`.

        Example::

            print([each.run.id for each in (await m.overview()).runs])
        """
        from maos.views.overview import overview

        views = self.views
        return await overview(self.journal, views.runs, views.agents, views.workflows, seen)

    @cached_property
    def views(self) -> Readers:
        """Readers of runs, agents, workflow runs and questions, for programs that only show them: they load nothing of
        what starting one takes. `runs`, `agents`, `workflows` and `questions` can read all of it as well.

        Example::

            print([each.run.id for each in await m.views.runs.list()])
        """
        from maos.views.readers import Readers

        return Readers(self.journal, self._clock, lambda: self.settings.values.recovery.lookback_days)

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

    async def tools(self) -> AgentTools:
        """Return the tools of the agent that this process belongs to, as its MCP server offers them.

        A call that an earlier server recorded, and whose reply may not have arrived, is recognized when it is repeated.

        Example::

            tools = await m.tools()
            await tools.report_progress(percent=50, activity="tests")
        """
        from maos.runs.agent_tools import AgentTools

        tools = await AgentTools.of_principal(self.journal, self._clock, self.bus, self.state)
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

    async def doctor(self, *, progress: Callable[[int, int], None] | None = None) -> list[Finding]:
        """Check the database, agents and their processes, folders and programs; some findings can be repaired.

        `progress` is called with how many of the events are checked.

        Example::

            for finding in await m.doctor():
                print(finding.level, finding.about, finding.what)
        """
        import maos
        from maos.ops.doctor import backup_findings, examine

        services = self.journal, self.agents, self.runs, self.workflows
        verify = partial(self.verify, progress=progress)
        found = await examine(*services, verify=verify, version=maos.__version__)
        return found + await backup_findings(self.backups, self.settings.values.backup.to)

    def records_of(self, person: str) -> AsyncIterator[dict[str, Any]]:
        """Everything that is recorded by or about a person, in the order of the journal, as plain data.

        `person` is a user, or `user@host`, as events record who acted.

        Example::

            print([each["type"] async for each in m.records_of("alice")])
        """
        from maos.ops import personal_data

        return personal_data.read(self.journal, person)

    async def statistics(self, *, since_us: int = 0) -> JournalStatistics:
        """Figures of the last seven days, or from a time on: growth, agents and models compared, anomalies.

        Example::

            figures = await m.statistics()
            print(figures.growth.events, [(each.kind, each.success) for each in figures.agents])
        """
        from maos.ops import statistics

        return await statistics.read(self.journal, self._clock, self.state.cache.statistics(), since_us=since_us)

    async def metrics(self, *, seen: VisibleParts | None = None) -> str:
        """Figures of what runs now, in the text format of Prometheus; with `seen`, of what a reader sees of it.

        Example::

            print(await m.metrics())
        """
        from maos.ops import metrics

        return metrics.render(await self._measure(seen))

    async def _measure(self, seen: VisibleParts | None = None) -> list[Metric]:
        from maos.ops import metrics

        found = await self.overview(seen=seen)
        return await metrics.read(self.journal, self._clock, found, self.state.cache.statistics())

    async def send_traces(self, *, follow: bool = False) -> int:
        """Send what agents did since the last time to an OpenTelemetry collector, and return how many spans that were.

        The figures of `metrics` are sent as well, as OpenTelemetry metrics. The standard variables OTEL_EXPORTER_OTLP_…
        name the collector. With `follow`, it sends what ends until it is cancelled, and the figures every minute. Only
        one process should send at a time; two send the same spans twice, under the same ids.

        Example::

            sent = await m.send_traces()
        """
        from maos.ops import traces

        return await traces.send(self.journal, self._clock, self._measure, follows=follow)

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
        self.principal.check_may_decide("agree to use a database")
        await self.journal.store.trust()

    async def would_start(self) -> dict[str, list[Act]]:
        """What resuming everything in this database would start here, by run, agent or workflow run.

        Example::

            print({id: [each.command for each in acts] for id, acts in (await m.would_start()).items()})
        """
        from maos.views.consequences import would_start

        return await would_start(self.runs, self.agents, self.workflows)

    @property
    def database(self) -> str:
        """The path of the database, or its URL without a password."""
        return self.journal.store.place

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

        It does not wait for a store that is unavailable.

        Example::

            m = await maos.open("maos.db")
            await m.close()
        """
        if self._owns_journal:
            self.journal.store.patience.close()
        made = vars(self)
        for service in ("supervisor", "activity", "workflows", "runs", "agents", "bus"):
            if service in made:
                await made[service].close()
        if self._owns_journal:
            await self.journal.close()


class open:
    """Opens a journal: a path, ":memory:", or a `postgresql://` URL.

    Creates what does not exist (unless `create` is off), upgrades what is older, refuses what is newer. `types`
    registers event types of your own. With `accept_loss` a journal that lost acknowledged events is opened, and reports
    what it lost. `home` is the folder of running agents (MAOS_HOME by default). `settings` are the settings of agents
    and runs; without them no file is read, and the variables MAOS_… and the defaults apply. `environment` has the
    variables by which an agent's process proves its attempt (those of this process by default).

    `wait_s` is how long opening, and every call afterwards, waits for a database server that does not answer; None:
    without limit. While this process executes runs, agents or workflow runs, its calls always wait without limit, also
    for space on a full disk. `on_outage` is called when it has waited for a second, and when the database is back.

    Example::

        async with maos.open("maos.db") as m:
            await m.state.create("reviewer")
    """

    def __init__(
        self,
        target: str | Path | DatabaseName,
        *,
        types: Iterable[EventType] = (),
        accept_loss: bool = False,
        create: bool = True,
        clock: Clock | None = None,
        schema: str = "maos",
        mark_path: Path | None = None,
        home: Path | None = None,
        settings: Callable[[], Current] | None = None,
        environment: Mapping[str, str] | None = None,
        wait_s: float | None = WAIT_S,
        on_outage: Callable[[Outage], None] | None = None,
    ) -> None:
        name, clock, read_settings = DatabaseName(target), clock or SystemClock(), cache(settings or _read_variables)
        all_types = (*states.TYPES, *TYPES, *types)
        self._maos: Maos | None = None

        async def opened() -> Maos:
            store = await _open_store(
                name,
                clock,
                schema,
                mark_path,
                _reporting(on_outage),
                create=create,
                accept_loss=accept_loss,
                wait_s=wait_s,
                find_sealer=partial(_find_vault, clock=clock, settings=read_settings),
            )
            try:
                journal = Journal(store, all_types, secrets=name.secrets, vault=cast("Vault | None", store.sealer))
                journal.principal = await find_principal(journal, os.environ if environment is None else environment)
            except BaseException:
                await store.close()
                raise
            state, tool_servers = states.AgentStates(journal, clock), partial(_tool_servers, name, schema)
            return Maos(journal, state, clock, home, tool_servers=tool_servers, settings=read_settings)

        self._open = opened

    def __await__(self):  # type: ignore[no-untyped-def]
        return self._open().__await__()

    async def __aenter__(self) -> Maos:
        self._maos = await self._open()
        return self._maos

    async def __aexit__(self, *error: object) -> None:
        assert self._maos is not None
        await self._maos.close()


async def restore(
    location: str,
    target: str | Path | DatabaseName,
    *,
    store: str = "",
    position: int | None = None,
    time_us: int | None = None,
    replace: bool = False,
    report: Callable[[int, int], None] = lambda *_: None,
) -> RestoredEvents:
    """Restore a backup to a new database: all of it, or what was recorded up to a position or a time.

    `location` is the folder or bucket of the backup, `store` the beginning of the identity of the database, where
    there are several. A file gets its name when everything in it was verified; a schema of a PostgreSQL database must
    be empty, or have what an interrupted restoration wrote. Nothing of the new database is executed until `trust`.

    With `replace` it takes the place of the database file of that name, which no process may have open. It is restored
    beside that one, and read back as a whole, before the names change; the one before is kept, as `replaced` tells.

    Example::

        await m.backups.ship("backups")
        print((await maos.restore("backups", "restored.db")).position)
    """
    from maos.backup import archive as archives
    from maos.backup.locations import open_location
    from maos.backup.restoration import RestorePoint, new_database, write_events, write_keys
    from maos.keys.erased import ErasedKeys

    name, point = DatabaseName(target), RestorePoint(position, time_us)
    archive = await archives.choose(open_location(location), store)

    async def write(to: DatabaseName) -> RestoredEvents:
        new, clock = None, SystemClock()
        try:
            new = await _open_store(to, clock, "maos", None, _reporting(None))
            await write_keys(archive, new, ErasedKeys(settings.state_folder()), clock.now_us())
            return await write_events(archive, new, point, report, reads_back=replace)
        finally:
            if new is not None:
                await new.close()

    if name.is_url and replace:
        hint = "restore to a new database of the server, look at it, and name it with --db or MAOS_DB"
        raise InvalidInput("a database of a server is not replaced", hint=hint)
    if name.is_url:
        return await write(name)
    with new_database(Path(name), clock=SystemClock(), replace=replace) as new:
        done = await write(DatabaseName(new.path))
        return done if new.replaced is None else done._replace(replaced=str(new.replaced))


async def encrypt(
    target: str | Path | DatabaseName,
    source: str,
    *,
    report: Callable[[int, int], None] = lambda *_: None,
    types: Iterable[EventType] = (),
) -> int:
    """Encrypt a SQLite database that exists, and return its newest position; no other process may have it open.

    `source` is where the key comes from, as in the setting encryption.source. A new database with every body sealed is
    made beside the old one, verified, and takes its place; killed before that, the old one is there as it was. A
    backup of the old one is not continued: the new one has an identity of its own.

    Example::

        await maos.encrypt("maos.db", "file:maos.key")
    """
    from maos.keys import sources, vault
    from maos.keys.conversion import Conversion
    from maos.model import scopes
    from maos.store import sqlite_file

    name, clock, known = DatabaseName(target), SystemClock(), vault.Scopes(scopes.of_stream, scopes.of_document)
    if name.is_url or str(name) == IN_MEMORY:
        hint = "restore a backup of it to a file, encrypt that, and use the file; new databases are encrypted anywhere"
        raise InvalidInput("only a database in a file can be encrypted afterwards", hint=hint)
    path, key = Path.cwd() / name, sources.parse_source(source)
    new = path.with_name(f"{path.name}.encrypting")
    for file in new.parent.glob(f"{glob.escape(new.name)}*"):  # an interrupted encryption has left it
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    async with open(path, create=False, environment={}, types=types) as m:
        await m.check_own()
        if m.journal.vault is not None:
            raise InvalidInput(f"{path} is encrypted already", hint="`maos key rotate` changes its key")
        report_damage = await m.verify()
        if not report_damage.ok:
            raise Corrupt(f"{path} is damaged: {report_damage.damage[0].what}")
    with sqlite_file.closed_to_others(path, str(path), readable=True):
        old = await _open_store(name, clock, "maos", None, _reporting(None), create=False)
        try:
            made = await _open_store(
                DatabaseName(new),
                clock,
                "maos",
                None,
                _reporting(None),
                find_sealer=lambda database: vault.create_vault(database, known, key, clock.now_us()),
            )
            try:
                await made.trust()
                keys, journal = cast("Vault", made.sealer), Journal(old, (*states.TYPES, *TYPES, *types))
                head = await Conversion(old, made, keys, journal.unpacked).copy(report)
                checked = Journal(made, (*states.TYPES, *TYPES, *types), vault=keys)
                found = await verify(checked, states.AgentStates(checked, clock))
                if not found.ok or found.head != head:
                    raise Corrupt(f"{new} is damaged: {found.damage[:1]}", hint="check the disk; nothing was changed")
                await made.forget_freed()
            finally:
                await made.close()
        finally:
            await old.close()
        sqlite_file.put_in_place(new, path)
    return head


async def _open_store(
    name: DatabaseName,
    clock: Clock,
    schema: str,
    mark_path: Path | None,
    report: Callable[[Outage], None],
    *,
    create: bool = True,
    accept_loss: bool = False,
    wait_s: float | None = WAIT_S,
    find_sealer: Callable[[Database], Awaitable[Sealer | None]] | None = None,
) -> SqlStore:
    if str(name) == IN_MEMORY:
        from maos.store.sqlite import MemoryDatabase

        return await SqlStore.open(MemoryDatabase(clock))
    registry = StoreRegistry(settings.state_folder)
    if str(name).startswith(("postgresql://", "postgres://")):
        from maos import views
        from maos.store.postgres import PostgresDatabase

        database = PostgresDatabase(
            name, clock=clock, create=create, schema_name=schema, mark_path=mark_path, wait_s=wait_s
        )
        database.registry = registry
        database.patience.report = report
        store = await SqlStore.open(database, accept_loss=accept_loss, find_sealer=find_sealer)
        await database.add_views(views.statements("postgres"))
        return store
    if name.is_url:
        raise InvalidInput(f"{name!r} is neither a path nor a PostgreSQL URL", hint="use a path or postgresql://…")
    from maos.store.sqlite import SqliteDatabase

    file = SqliteDatabase(Path(name), clock=clock, create=create, wait_s=wait_s)
    file.registry = registry
    file.patience.report = report
    return await SqlStore.open(file, accept_loss=accept_loss, find_sealer=find_sealer)


def _read_variables() -> Current:
    from maos.settings.loader import Current

    return Current()


async def _find_vault(database: Database, *, clock: Clock, settings: Callable[[], Current]) -> Vault | None:
    """Return the keys of an encrypted database; make them for one without events when the settings name a source."""
    is_known = await database.fetch_row("keyring") is not None
    if not is_known and await database.fetch_row("log_head") is not None:
        return None  # neither encrypted nor new: no settings are read, and nothing of encryption is loaded
    source_name = settings().values.encryption.source
    if not is_known and not source_name:
        return None
    from maos.keys import sources, vault
    from maos.model import scopes

    known = vault.Scopes(scopes.of_stream, scopes.of_document)
    source = sources.parse_source(source_name) if source_name else None
    if not is_known:
        assert source is not None
        return await vault.create_vault(database, known, source, clock.now_us())
    found = await vault.open_vault(database, known)
    assert found is not None
    if source is not None:
        await found.unlock(source)
    return found


def _reporting(on_outage: Callable[[Outage], None] | None) -> Callable[[Outage], None]:
    """Return what logs an outage and tells the program of it, on the thread of the event loop."""
    loop = asyncio.get_running_loop()

    def report(outage: Outage) -> None:
        log.write(log.ENGINE, log.AVAILABLE if outage.until_us else log.UNAVAILABLE, reason=outage.why)
        if on_outage is not None:
            on_outage(outage)

    def report_soon(outage: Outage) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(report, outage)

    return report_soon


def _tool_servers(name: DatabaseName, schema: str, folder: Path) -> ToolServers | None:
    """None for a journal in memory, which another process cannot open."""
    if str(name) == IN_MEMORY:
        return None
    from maos.engine.attempt_spec import ToolServers

    if name.is_url:
        return ToolServers(name, schema=schema, folder=folder / "passwords")
    return ToolServers(DatabaseName(os.path.abspath(name)))


def _add_views(store: Store) -> None:
    """Let plain `sqlite3` see the agents and runs of a SQLite database, once there are any."""
    from maos.store.sqlite import SqliteDatabase

    if isinstance(store, SqlStore) and isinstance(store.database, SqliteDatabase):
        from maos import views

        store.database.add_views(views.statements("sqlite"))
