"""Runs: started from a plan, executed by agents, paused, cancelled, resumed after a crash, and given more work.

This is the one way in for every front end. What belongs to executing a run (its lease, the scheduler, autosave,
notifications, settings that change meanwhile, cleanup) is put together here and nowhere else.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from maos import settings
from maos.bus.bus import Bus
from maos.clock import Clock
from maos.engine import checkpoints, ownership, questions, saving, stopping
from maos.engine import consent as consents
from maos.engine.attempts import Attempts
from maos.engine.claims import Held, claim
from maos.engine.recorder import Recorder
from maos.engine.run_reader import new_id as new_id
from maos.engine.types import RUN
from maos.engine.workplace import Workplace, check_places
from maos.errors import InvalidInput, NotFound
from maos.journal.journal import Append, Journal
from maos.model import status
from maos.model.attempt import check_run
from maos.model.events.commands import (
    CancelRequested,
    Command,
    PauseRequested,
    RetryRequested,
    SkipRequested,
    TasksRequested,
    WakeRequested,
)
from maos.model.events.run import (
    QuestionAsked,
    RunClaimed,
    RunCreated,
    RunEnded,
    RunEvent,
    RunPlanned,
    RunRemoved,
    RunResumed,
)
from maos.model.failure import REPEATABLE
from maos.model.message import PERSON, inbox
from maos.model.plan import ASK, Plan, from_data
from maos.model.run import CANCELLED, COMPLETED, Run, TaskState, stream
from maos.model.run_status import agents_of
from maos.plans import parser, source
from maos.plans.parser import ParsedPlan
from maos.plans.source import Source
from maos.runs import agent_types, cleanup, consent, planner
from maos.runs.additions import Addition, with_more
from maos.runs.agent_types import AgentType
from maos.runs.cleanup import Cleanup, Removal
from maos.runs.commands import CommandHandler
from maos.runs.consent import Act
from maos.runs.notify import Notifier, addresses
from maos.runs.outcomes import Outcome, what_follows
from maos.runs.scheduler import Listener, Scheduler, Worker
from maos.runs.status import RunViews, is_executing
from maos.runs.upkeep import Upkeep
from maos.runs.worker import AgentWorker, outcome_of
from maos.settings.schema import Settings
from maos.store.contract import Key
from maos.travel import relocation
from maos.travel.relocation import Moved

KEEP = "keep"
"""When the plan file of a run has changed: finish with the file as it was."""
GRACE_S = 10.0
"""How long agents have to end by themselves when their run is paused or cancelled."""


class Observer:
    """What a front end is told, and asked, while its process resumes and executes a run; override what matters."""

    async def agree(self, run: Run, acts: Sequence[Act]) -> bool:
        """Whether a person agrees to what a run from elsewhere would start here."""
        return False

    def moved(self, moved: Moved) -> None:
        """The run works in another folder from now on."""

    def definition_changed(self, run: Run, change: object) -> None:
        """The plan file of the run has changed since; what `Definitions.apply_file` found and did."""

    def notice(self, text: str, document: dict[str, Any]) -> None:
        """The settings have changed, worktrees were removed, or a notification could not be sent."""


class Definitions(Protocol):
    """Workflow files that runs were made from."""

    async def apply_file(self, run: Run, on_change: str) -> tuple[Run, object | None]:
        """Do what `on_change` says if the file has changed; the run as it is then, and the change."""
        ...


class ValidPlan(NamedTuple):
    """A plan that was checked, with the types of agents that it was checked against."""

    plan: Plan
    types: Mapping[str, AgentType]
    parsed: ParsedPlan | None = None
    """The text that it is from."""


PlanInput = Plan | Source | Mapping[str, Any] | str | os.PathLike[str]
"""A plan: as it is, as text, as data in the form of a plan file, or the path of a file."""


def validate(given: PlanInput, types: Mapping[str, AgentType]) -> ValidPlan:
    """Check a plan and the types of agents that it names; BadPlan has everything that is wrong."""
    plan, parsed = _read(given, types)
    return ValidPlan(plan, types, parsed)


def _read(given: PlanInput, agents: Collection[str] | None = None) -> tuple[Plan, ParsedPlan | None]:
    """A plan that makes sense, and what it was read from."""
    if isinstance(given, Plan):
        return from_data(msgspec.to_builtins(given), agents), None
    if isinstance(given, Mapping):
        parsed = parser.parse_data(msgspec.to_builtins(given), agents)
    else:
        text = given if isinstance(given, Source) else source.load(given)
        parsed = parser.parse(text, agents=agents)
    return parsed.plan, parsed


class _Claim(NamedTuple):
    """A run that this engine may write to: its lease is renewed until it is executed or given back."""

    recorder: Recorder[Run]
    lease: asyncio.Task[None]


class Runs(RunViews):
    """Runs of many tasks: started from a plan, executed by agents, paused and resumed."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        attempts: Attempts,
        *,
        bus: Bus | None = None,
        worker: Callable[[], Worker] | None = None,
        lease_s: float | None = None,
        definitions: Callable[[], Definitions] | None = None,
    ) -> None:
        super().__init__(journal, clock, attempts)
        self._bus = bus or Bus(journal, clock)
        self._worker = worker
        self._lease_s = attempts.settings.values.engine.lease_s if lease_s is None else lease_s
        self._definitions = definitions
        self._claims: dict[str, _Claim] = {}
        self._schedulers: dict[str, Scheduler] = {}
        self._to_pause: dict[str, str] = {}

    async def close(self) -> None:
        """Give back the leases of runs that were claimed and not executed."""
        for id in list(self._claims):
            await self._release(self._claims.pop(id))

    # --- starting --------------------------------------------------------------------------------------------

    async def plan(
        self,
        request: str,
        *,
        run: str,
        folder: Path | str,
        options: Mapping[str, Any],
        types: Mapping[str, AgentType] | None = None,
    ) -> Plan:
        """Have an agent plan a request; `run` is the id that its run will have."""
        return await planner.ask(
            self._attempts,
            request,
            run=run,
            folder=Path(folder),
            kind=options["kind"],
            model=options["model"],
            types=_known(Path(folder)) if types is None else types,
            time_limit_s=options["time_limit_s"],
        )

    async def revise_plan(self, change: str, *, run: str, request: str, types: Mapping[str, AgentType]) -> Plan:
        """Have the agent that planned a request change its plan."""
        return await planner.revise(self._attempts, change, run=run, request=request, types=types)

    async def create(
        self,
        plan: PlanInput,
        *,
        request: str = "",
        folder: Path | str | None = None,
        options: Mapping[str, Any] | None = None,
        id: str = "",
    ) -> Run:
        """Record a run of an approved plan; nothing of it has begun, and any engine can execute it.

        Example::

            plan = {"tasks": [{"name": "hello", "command": ["echo", "hello"]}]}
            run = await m.runs.create(plan, folder="/tmp", options={"in_place": True})
        """
        given = plan  # a large one is checked in a thread, so that the event loop stays responsive
        valid, parsed = await asyncio.to_thread(_read, given)
        kept = {**(parsed.options if parsed else {}), **(options or {})}
        recorder = await self._record(valid, request, folder, kept, id, is_claimed=False)
        await self._journal.release(recorder.lease)
        return recorder.fold

    async def start(
        self,
        plan: ValidPlan | PlanInput,
        *,
        folder: Path | str,
        options: Mapping[str, Any] | None = None,
        id: str = "",
    ) -> Run:
        """Record a run of an approved plan and claim it for this engine; `execute` then executes it.

        The plan and the types of agents it names are checked, their programs are looked for, and the run gets a
        workspace of its own for the merged work, unless its options say `in_place`. Options that are not given are
        those of the plan, then of the settings. A plan is data in the form of a [plan file](plan-format.md), or the
        path of one.

        Example::

            plan = {"tasks": [{"name": "hello", "command": ["echo", "hello"]}]}
            run = await m.runs.start(plan, folder="/tmp")
            run = await m.runs.execute(run.id)
        """
        where = Path(folder)
        if not isinstance(plan, ValidPlan):
            plan = await asyncio.to_thread(validate, plan, _known(where))
        said = plan.parsed.options if plan.parsed else {}
        given = with_defaults(self._attempts.settings.values, {**said, **(options or {})})
        kept = {**given, "agents": agent_types.to_data(plan.plan, plan.types)}
        for kind in sorted(set(agent_types.kinds(plan.plan, kept).values()) - set(REPEATABLE)):
            self._attempts.program(kind)
        id = id or new_id()
        if not kept.get("in_place"):
            kept |= await self._workspace(where, id)
        recorder = await self._record(plan.plan, "", where, kept, id, is_claimed=True)
        self._hold(recorder)
        return recorder.fold

    async def _workspace(self, folder: Path, id: str) -> dict[str, Any]:
        """Options of a run with a workspace for its merged work; in place where the folder is in no repository."""
        root = self._attempts.folder / "workspaces"
        into = await Workplace.prepare(folder, id, root=root, in_place=False)
        kept = {"in_place": True} if into.workspace.in_place else {"workspace": into.to_data()}
        return {**kept, "notes": list(into.notes)}

    async def _record(
        self,
        plan: Plan,
        request: str,
        folder: Path | str | None,
        options: Mapping[str, Any],
        id: str,
        *,
        is_claimed: bool,
    ) -> Recorder[Run]:
        """Write a new run with one append, under a lease that the caller has then."""
        run = Run(id=check_run(id) if id else new_id())
        lease = await claim(self._journal, self._clock, stream(run.id), None, is_open=False, hint="")
        recorder = Recorder(self._journal, RUN, run, lease, lease_s=self._lease_s)
        at_us = self._clock.now_us()
        created = RunCreated(
            request=request or plan.request,
            folder=str(folder or ""),
            options={**({"conflicts": plan.conflicts} if plan.conflicts != ASK else {}), **options},
            owner=ownership.identity(lease),
            at_us=at_us,
        )
        planned = RunPlanned(tasks=[msgspec.to_builtins(task) for task in plan.tasks], at_us=at_us)
        try:
            await recorder.append(created, planned, *([self._claimed(recorder, "manual")] if is_claimed else ()))
        except BaseException:
            await self._journal.release(lease)
            raise
        return recorder

    # --- claiming --------------------------------------------------------------------------------------------

    async def resume(
        self,
        id: str,
        observer: Observer | None = None,
        *,
        folder: Path | str | None = None,
        on_change: str = KEEP,
        add: Addition | None = None,
        options: Mapping[str, Any] | None = None,
        now: bool = False,
    ) -> Run | None:
        """Claim a run that has something left to do, for `execute`. None with `now` if another engine executes it.

        In this order, and nothing of it without the one before: the run is moved to `folder`, a person agrees to what
        came with a file, a changed plan file is handled as `on_change` says (keep, replay or refuse), tasks are
        added, and the run is claimed with `options` in the place of those of the same names. `now` does not wait for
        the end of a rate limit.

        Example::

            run = await m.runs.resume("r-1")
            run = await m.runs.execute(run.id)
        """
        told = observer or Observer()
        run = await self.get(id)
        if folder is not None:
            told.moved(await self.move(run.id, folder))
            run = await self.get(run.id)
        agreed = await self._agreed(run, told)
        if self._definitions is not None:
            run, change = await self._definitions().apply_file(run, on_change)
            if change is not None:
                told.definition_changed(run, change)
        was_going = run.is_going
        if add is not None:
            run = await self.add(run.id, add.plan, options=add.options)
        check_resumable(run)
        if now and await self.wake(run.id) and is_executing(run):
            return None
        await self._claim(run, {**with_budget_of(run, options or {}), **agreed}, is_going=was_going)
        return self._claims[run.id].recorder.fold

    async def _agreed(self, run: Run, observer: Observer) -> dict[str, Any]:
        """Options of a run that a person agrees to; NotAgreed when it came with a file and no person does."""
        if not await self.needs_consent(run.id):
            return {}
        if not await observer.agree(run, await self.acts(run.id)):
            raise consents.NotAgreed(run.id)
        return await self.agree(run.id)

    async def needs_consent(self, id: str) -> bool:
        """Whether a run came with a file, and no person has agreed yet to what it would do here.

        Example::

            print(await m.runs.needs_consent("r-1"))
        """
        return bool(await consents.waits(self._journal, (await self.get(id)).id))

    async def acts(self, id: str) -> list[Act]:
        """What resuming a run would start here: commands, agents, and what they may do without asking.

        Example::

            for each in await m.runs.acts("r-1"):
                print(each.task, each.command or each.words)
        """
        run = await self.get(id)
        waiting = self._journal.read(inbox(run.id), after=run.inbox_cursor)
        commands = [each.event async for each in waiting]
        newest = {}
        for name in (*run.tasks, *(task.name for task in consent.asked(run, commands))):
            try:
                newest[run.agent(name)] = await self._attempts.get(run.agent(name))
            except NotFound:
                continue  # it has not begun
        return consent.of_run(run, newest, commands)

    async def agree(self, id: str) -> dict[str, Any]:
        """Agree, as a person who has seen `acts`, to what a run from elsewhere does, and make its worktrees; the
        options that it is executed with.

        Example::

            run = await m.runs.execute("r-1", options=await m.runs.agree("r-1"))
        """
        run = await self.get(id)
        if not await self.needs_consent(run.id):
            return {}
        return await consent.agree(self._journal, self._clock, self._attempts, run)

    async def move(self, id: str, folder: Path | str, *, dry_run: bool = False) -> Moved:
        """Have a run work in another folder: it was moved, or another machine has a copy of its repository. Worktrees
        that are gone are made again with what was last saved.

        Example::

            moved = await m.runs.move("r-1", "work")
            print(moved.folder, moved.anew)
        """
        run = await self.get(id)
        return await relocation.move(self._journal, self._clock, self._attempts, run.id, Path(folder), dry_run=dry_run)

    async def _claim(
        self,
        run: Run,
        options: Mapping[str, Any] | None = None,
        source: str = "manual",
        *,
        is_going: bool | None = None,
    ) -> _Claim:
        """Claim a run for this engine; Held while another engine that may be alive has it.

        Unless it `is_going`, failed tasks are tried again. A run that was given more work counts as going from then on.
        """
        await self._check_claimable(run)
        hint = f"`maos status {run.id} --watch` watches it from here"
        lease = await claim(self._journal, self._clock, stream(run.id), run, is_open=run.is_open, hint=hint)
        recorder = Recorder(self._journal, RUN, run, lease, lease_s=self._lease_s)
        claimed = self._claimed(recorder, source, options)
        is_again = not (run.is_going if is_going is None else is_going)
        try:
            resumed = RunResumed(retries=not run.retries_chosen, at_us=claimed.at_us)
            await recorder.append(claimed, *([resumed] if is_again else ()))
        except BaseException:
            await self._journal.release(lease)
            raise
        return self._hold(recorder)

    async def _check_claimable(self, run: Run) -> None:
        """NotAgreed when no person has agreed to what a run from elsewhere does; InvalidInput when it was removed."""
        await consents.check(self._journal, run.id)
        if run.removed_us:
            raise InvalidInput(f"{run.id} was removed", hint="its worktrees are gone; start another run")

    @asynccontextmanager
    async def _own(self, run: Run, hint: str = "try again") -> AsyncIterator[Recorder[Run]]:
        """Write to a run that no engine executes; Held while one does. Other engines cannot claim it meanwhile."""
        lease = await claim(self._journal, self._clock, stream(run.id), run, is_open=run.is_open, hint=hint)
        recorder = Recorder(self._journal, RUN, run, lease, lease_s=self._lease_s)
        held = _Claim(recorder, asyncio.create_task(recorder.keep_lease()))
        try:
            yield recorder
        finally:
            await self._release(held)

    def _claimed(self, recorder: Recorder[Run], source: str, options: Mapping[str, Any] | None = None) -> RunClaimed:
        owner, at_us = ownership.identity(recorder.lease), self._clock.now_us()
        return RunClaimed(owner=owner, source=source, options=dict(options or {}), at_us=at_us)

    def _hold(self, recorder: Recorder[Run]) -> _Claim:
        """Renew the lease of a claimed run until it is executed or given back."""
        held = _Claim(recorder, asyncio.create_task(recorder.keep_lease()))
        self._claims[recorder.fold.id] = held
        return held

    async def _release(self, held: _Claim) -> None:
        held.lease.cancel()
        await asyncio.gather(held.lease, return_exceptions=True)
        await self._journal.release(held.recorder.lease)

    # --- executing -------------------------------------------------------------------------------------------

    async def execute(
        self,
        id: str,
        observer: Observer | None = None,
        *,
        worker: Worker | None = None,
        concurrency: int | None = None,
        notify: Sequence[str] = (),
        source: str = "manual",
        options: Mapping[str, Any] | None = None,
        listener: Listener | None = None,
    ) -> Run:
        """Execute what is left of a run, until it has ended or is paused. Held while another engine executes it.

        A run that `start` or `resume` claimed is executed under that lease; any other is claimed first, and keeps
        `options` in the place of those of the same names. Meanwhile the run is saved at intervals, notifications are
        sent to the addresses in `notify` and those of the settings, and settings that change are applied. Cancelled,
        this engine detaches: the agents keep running, and any engine can resume the run.

        Example::

            run = await m.runs.execute("r-1")
            print(run.status)
        """
        told = observer or Observer()
        to = addresses([*notify, *self._attempts.settings.values.notify.urls])
        if id not in self._claims:
            await self._claim(await self.get(id), options, source)
        elif options:
            raise InvalidInput(f"{id} is claimed already", hint="give its options to `start` or `resume`")
        held = self._claims.pop(id)
        run = held.recorder.fold
        fixed = run.options.get("concurrency") if concurrency is None else concurrency
        notifier = Notifier(
            self._journal, id, to, tell=lambda text: told.notice(text, _warning(text)), clock=self._clock
        )
        upkeep = Upkeep(
            self._journal,
            self._clock,
            self,
            self._attempts,
            tell=told.notice,
            concurrency=fixed,
            set_concurrency=lambda number: self.set_concurrency(id, number),
            notifier=notifier,
        )

        def changed(run: Run, events: Sequence[RunEvent]) -> None:
            notifier.changed(run, events)
            if listener is not None:
                listener(run, events)

        if worker is None and self._worker is not None:
            worker = self._worker()
        worker = worker or AgentWorker(self._attempts, listener=notifier.heard)
        scheduler = Scheduler(
            held.recorder, worker, self._clock, bus=self._bus, concurrency=upkeep.concurrency, listener=changed
        )
        try:
            await notifier.open(run, list((await self.at_work(run)).values()) if to else ())
            return await self._executed(held, scheduler, upkeep)
        finally:
            await self._release(held)
            await notifier.close()

    async def _executed(self, held: _Claim, scheduler: Scheduler, upkeep: Upkeep) -> Run:
        run = held.recorder.fold
        self._schedulers[run.id] = scheduler
        if run.id in self._to_pause:
            scheduler.pause(self._to_pause.pop(run.id))
        autosave = asyncio.create_task(checkpoints.now_and_then(run, scheduler.note, self._clock, self._checkpoint_s))
        try:
            return await upkeep.beside(scheduler.execute(held.lease))
        finally:
            autosave.cancel()
            await asyncio.gather(autosave, return_exceptions=True)
            self._schedulers.pop(run.id, None)
            self._to_pause.pop(run.id, None)

    async def _checkpoint_s(self) -> float:
        """How long until a run that is executed is given a checkpoint."""
        checkpoint = self._attempts.settings.values.checkpoint
        due = saving.is_due(checkpoint, "timer", 0)
        return await saving.interval_s(self._journal, checkpoint.interval_s) if due else math.inf

    def pause_here(self, id: str, why: str) -> None:
        """Pause a run that this engine executes, or is about to: its agents are stopped, and can be resumed."""
        if id in self._schedulers:
            self._schedulers[id].pause(why)
        else:
            self._to_pause[id] = why

    def set_concurrency(self, id: str, concurrency: int) -> None:
        """Have more or fewer agents work at once on a run that this engine executes, from now on."""
        if id in self._schedulers:
            self._schedulers[id].set_concurrency(concurrency)

    # --- steering --------------------------------------------------------------------------------------------

    async def pause(self, id: str, why: str = "asked") -> None:
        """Request that the engine that executes a run pauses it.

        Example::

            await m.runs.pause("r-1")
        """
        await self._request(id, PauseRequested(why=why, at_us=self._clock.now_us()))

    async def pause_and_wait(self, id: str) -> Run:
        """Pause a run and wait until none of its agents works, whether an engine executes it or not.

        Example::

            run = await m.runs.pause_and_wait("r-1")
        """
        run = await self.get(id)
        if not run.is_open:
            raise InvalidInput(f"{run.id} has ended: {run.status}", hint="only a run that has not ended can be paused")
        is_requested = False
        while run.is_going:
            if ownership.liveness(run.owner).has_ended:
                for attempt in (await self.at_work(run)).values():
                    await stopping.end(self._attempts, attempt, GRACE_S)
                return await self.get(run.id)
            if not is_requested:
                # Not of a run that no engine executes: the one that resumed it would pause it at once.
                await self.pause(run.id)
                is_requested = True
            await checkpoints.until(self._journal, run, lambda each: not each.is_going)
        return run

    async def retry(self, id: str, *, tasks: Sequence[str] = ()) -> Run:
        """Let failed tasks start again: the named ones, else all. Tasks that are done or skipped stay as they are.

        While an engine executes the run, it retries them. Otherwise the engine that resumes the run does, and retries
        no other failed tasks.

        Example::

            await m.runs.retry("r-1", tasks=["deploy"])
        """
        run = await self.get(id)
        failed = [name for name, task in run.tasks.items() if task.status == status.TaskStatus.FAILED]
        for name in tasks:
            if self._task(run, name).name not in failed:
                hint = "only a task that has failed can be retried"
                raise InvalidInput(f"{name} is {run.tasks[name].status}", hint=hint)
        if not failed:
            raise InvalidInput(f"no task of {run.id} has failed", hint=f"`maos resume {run.id}` executes what is left")
        return await self._apply(run, RetryRequested(tasks=list(tasks), at_us=self._clock.now_us()))

    async def skip(self, id: str, task: str, *, reason: str = "") -> Run:
        """Count a task as done without its result, so that those that need it can start. Its agent is stopped.

        Example::

            await m.runs.skip("r-1", "deploy", reason="deployed by hand")
        """
        run = await self.get(id)
        self._check_not_done(run, task)
        return await self._apply(run, SkipRequested(task=task, why=reason, at_us=self._clock.now_us()))

    def _task(self, run: Run, name: str) -> TaskState:
        if name not in run.tasks:
            raise NotFound(f"{run.id} has no task {name!r}", hint=f"it has {', '.join(run.tasks) or 'none'}")
        return run.tasks[name]

    def _check_not_done(self, run: Run, task: str) -> None:
        if self._task(run, task).status.is_done:
            raise InvalidInput(f"{task} is {run.tasks[task].status}", hint=f"`maos rollback {run.id}` can undo it")

    async def _apply(self, run: Run, command: Command) -> Run:
        """Have a command applied and return the run as it is then: by the engine that executes it, else here."""
        await self._check_claimable(run)
        version = await self._request(run.id, command)
        while run.inbox_cursor < version:
            if is_executing(run):
                await checkpoints.until(
                    self._journal, run, lambda each: each.inbox_cursor >= version or not each.is_going
                )
            else:
                try:
                    await self._apply_unattended(run)
                except Held:
                    pass  # an engine has just claimed it
            run = await self.get(run.id)
        return run

    async def _apply_unattended(self, run: Run) -> None:
        """Handle the commands in the inbox of a run that no engine executes, and end the agents of tasks they end."""
        handler = CommandHandler(self._bus)
        async with self._own(run) as recorder:
            async for record in self._journal.read(inbox(run.id), after=run.inbox_cursor):
                decision = handler.grant(run, record.event, record.version, self._clock.now_us())
                if decision.events:
                    await recorder.append(*decision.events, also=decision.also)
            for task in [each for each in run.tasks.values() if each.stopping]:
                ended = [await self._ended(agent) for agent in agents_of(run, task)]
                outcome = next((each for each in ended if each is not None), Outcome(failure="stopped"))
                await recorder.append(what_follows(task, outcome._replace(failure="stopped"), self._clock.now_us()))

    async def _ended(self, agent: str) -> Outcome | None:
        """Stop an agent that no engine attends to; what its newest attempt came to."""
        try:
            attempt = await self._attempts.get(agent)
        except NotFound:
            return None  # it was not started yet
        await stopping.end(self._attempts, attempt, GRACE_S)
        return outcome_of(await self._attempts.get(agent))

    async def cancel(self, id: str, *, task: str = "", why: str = "cancelled") -> Run:
        """End a run for good, or one task of it: agents are stopped, and what is left is not started.

        A run that was cancelled can be resumed; a cancelled task counts as failed until it is retried.

        Example::

            run = await m.runs.cancel("r-1", why="no longer needed")
        """
        run = await self.get(id)
        if task:
            self._check_not_done(run, task)
            if run.tasks[task].status == status.TaskStatus.FAILED:
                raise InvalidInput(f"{task} has failed already", hint="it does not run")
            return await self._apply(run, CancelRequested(task=task, why=why, at_us=self._clock.now_us()))
        if run.status == COMPLETED:
            raise InvalidInput(f"orchestration {run.id} is completed", hint="only a run that is not can be cancelled")
        while run.status != CANCELLED:
            if is_executing(run):
                await self._request(run.id, CancelRequested(why=why, at_us=self._clock.now_us()))
                while is_executing(run):
                    await checkpoints.until(self._journal, run, lambda each: not each.is_going)
                run = await self.get(run.id)
            else:
                await self._cancel_unattended(run, why)
        return run

    async def _cancel_unattended(self, run: Run, why: str) -> None:
        """End a run that no engine executes, and its agents."""
        async with self._own(run) as recorder:
            await stopping.end_all(self._attempts, run.id, GRACE_S)
            at_us = self._clock.now_us()
            await recorder.append(RunEnded(status=status.RunStatus.CANCELLED, why=why, at_us=at_us))

    async def add(self, id: str, plan: Plan, *, options: Mapping[str, Any] | None = None) -> Run:
        """Add tasks to a run that no engine executes (R-203), and the options that they need."""
        run = await self.get(id)
        with_more(run, plan)
        tasks = [msgspec.to_builtins(task) for task in plan.tasks]
        async with self._own(run, f"pause it first, with `maos pause {id}`") as recorder:
            await recorder.append(RunPlanned(tasks=tasks, options=dict(options or {}), at_us=self._clock.now_us()))
        return run

    async def request_tasks(self, id: str, plan: Plan, *, by: str = PERSON) -> None:
        """Request that the engine that executes a run adds tasks to it."""
        tasks = msgspec.to_builtins(plan.tasks)
        await self._request(id, TasksRequested(tasks=tasks, asked_by=by, at_us=self._clock.now_us()))

    async def wake(self, id: str, *, by: str = "person") -> bool:
        """Have a run that sleeps because of a rate limit continue now; False when it does not sleep."""
        if (await self.get(id)).wakes_us <= self._clock.now_us():
            return False
        await self._request(id, WakeRequested(by=by, at_us=self._clock.now_us()))
        return True

    async def ask(self, id: str, question: str, *, key: str, asked_by: str, **more: Any) -> None:
        """Put a question to a person; the same `key` asks once, also when an agent asks again after a crash."""
        asked = QuestionAsked(id=key, question=question, asked_by=[asked_by], at_us=self._clock.now_us(), **more)
        once = Key(f"ask/{id}/{asked_by}/{key}", hashlib.sha256(question.encode()).digest())
        await self._journal.append_all([Append(inbox(id), [asked])], key=once)

    async def answer(self, id: str, question: str, answer: str, *, by: str = "person") -> None:
        """Answer a question of a run, also while no engine executes it; Answered when another answer came first."""
        await questions.answer(self._journal, self._clock, await self.get(id), question, answer, by=by)

    async def _request(self, id: str, command: Command) -> int:
        """Put a command into the inbox of a run; its version there."""
        return (await self._journal.append(inbox(id), command)).version

    # --- housekeeping ----------------------------------------------------------------------------------------

    async def remove(self, id: str, *, dry_run: bool = False) -> Removal:
        """Free the worktrees of a run that is not executed, and leave it out of lists. Its events stay.

        InvalidInput when a worktree has changes that no checkpoint has; `dry_run` shows all of that, and changes
        nothing.

        Example::

            removal = await m.runs.remove("r-1", dry_run=True)
            print(removal.worktrees, removal.unmerged)
        """
        run = await self.get(id)
        if is_executing(run) or any(each.is_open for each in (await self.at_work(run)).values()):
            raise InvalidInput(f"{run.id} is being executed", hint=f"`maos cancel {run.id}` ends it")
        if dry_run:
            return await cleanup.removal(self._attempts, run)
        await self._check_claimable(run)
        async with self._own(run) as recorder:
            removal = await cleanup.remove_run(self._journal, self._clock, self._attempts, run)
            await recorder.append(RunRemoved(at_us=self._clock.now_us()))
        return removal

    async def keep(self, id: str, why: str = "") -> bool:
        """Have no cleanup ever remove anything of a run; False when that was so already."""
        return await cleanup.set_permanent(self._journal, self._clock, await self.get(id), why)

    async def unkeep(self, id: str) -> bool:
        """Have cleanups treat a run like any other again; False when they did already."""
        return await cleanup.unset_permanent(self._journal, self._clock, await self.get(id))

    async def clean_up(self, *, older_than_days: float | None = None, dry_run: bool = False) -> Cleanup:
        """Remove the worktrees of runs that were completed long ago: as the settings say, or than so many days."""
        now_us = self._clock.now_us()
        rule_of = cleanup.by_policy(self._attempts.settings.values.cleanup, now_us)
        if older_than_days is not None:
            rule_of = cleanup.older_than(older_than_days, now_us)
        return await cleanup.cleanup(
            self._journal, self._clock, self, self._attempts, rule_of, by="person", dry_run=dry_run
        )

    async def save_interval_s(self, seconds: float | None = None) -> float:
        """How often the files of agents that run are saved; set for all engines on this journal if given."""
        if seconds is not None:
            await saving.set_interval(self._journal, self._clock, seconds)
        return await saving.interval_s(self._journal, self._attempts.settings.values.checkpoint.interval_s)


def with_defaults(values: Settings, given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a new run: as given, else as the settings say.

    How many agents work at once is kept only if it is given: else a run applies the setting as it changes.
    """
    usual = values.orchestrate
    kind = given.get("kind", usual.kind)
    defaults = {
        "kind": kind,
        "permission": usual.permission,
        "model": usual.model if kind == usual.kind else "",
        "in_place": False,
        "time_limit_s": usual.time_limit_s,
    }
    budget = {name: limit for name, limit in msgspec.structs.asdict(values.budget).items() if limit}
    return {**defaults, **given, "budget": {**budget, **given.get("budget", {})}}


def check_resumable(run: Run) -> None:
    """InvalidInput when there is nothing left to do; NotFound when what it works on is not where it was."""
    if run.status == COMPLETED:
        raise InvalidInput(
            f"orchestration {run.id} is completed",
            hint=f'`maos resume {run.id} --task "…"` gives it more to do',
        )
    check_places(run)


def with_budget_of(run: Run, options: Mapping[str, Any]) -> dict[str, Any]:
    """New options, with limits of the run that they do not name as they were."""
    if "budget" not in options:
        return dict(options)
    return {**options, "budget": {**(run.options.get("budget") or {}), **options["budget"]}}


def _known(folder: Path) -> dict[str, AgentType]:
    return agent_types.known(folder, settings.config_folder())


def _warning(text: str) -> dict[str, Any]:
    return {"kind": "warning", "text": text}
