"""Runs: started from a plan, executed by agents, paused, cancelled, resumed after a crash, and given more work.

This is the one way in for every front end. What belongs to executing a run (its lease, the scheduler, autosave,
notifications, settings that change meanwhile, cleanup) is put together here and nowhere else.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from maos import workspaces
from maos.bus.bus import Bus
from maos.clock import Clock
from maos.engine import checkpoints, ownership
from maos.engine import consent as consents
from maos.engine.attempt_spec import check_places
from maos.engine.attempts import Attempts
from maos.engine.ownership import claim
from maos.engine.recorder import Recorder
from maos.engine.streams import RUN
from maos.engine.streams import new_id as new_id
from maos.errors import InvalidInput
from maos.journal.journal import Journal
from maos.model.attempt import check_run
from maos.model.events.run import RunClaimed, RunCreated, RunEvent, RunPlanned, RunResumed
from maos.model.failure import REPEATABLE
from maos.model.message import inbox
from maos.model.plan import ASK, Plan
from maos.model.run import Run, stream
from maos.model.status import RunStatus
from maos.runs import agent_types, consent, file_changes, plan_input, planner
from maos.runs.agent_types import AgentType
from maos.runs.cleanup import Upkeep
from maos.runs.consent import Act
from maos.runs.feed import Observer
from maos.runs.notify import Notifier, addresses
from maos.runs.operations import RunOperations
from maos.runs.plan_input import Addition, PlanInput, ValidPlan
from maos.runs.scheduler import Listener, Scheduler
from maos.runs.status import is_executing
from maos.runs.worker import AgentWorker
from maos.travel import relocation
from maos.travel.relocation import Moved

KEEP = "keep"
"""When the plan file of a run has changed: finish with the file as it was."""


class Runs(RunOperations):
    """Runs of many tasks: started from a plan, executed by agents, paused and resumed."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        attempts: Attempts,
        *,
        bus: Bus | None = None,
        worker: Callable[[], AgentWorker] | None = None,
        lease_s: float | None = None,
    ) -> None:
        super().__init__(journal, clock, attempts, bus or Bus(journal, clock))
        self._lease_s = attempts.settings.values.engine.lease_s if lease_s is None else lease_s
        self._worker = worker
        self._claims: dict[str, Recorder[Run]] = {}
        """Runs that this engine may write to, until they are executed or given back."""
        self._schedulers: dict[str, Scheduler] = {}
        self._to_pause: dict[str, str] = {}

    async def close(self) -> None:
        """Release the leases of runs that were claimed and not executed."""
        for id in list(self._claims):
            await self._claims.pop(id).release()

    # --- starting --------------------------------------------------------------------------------------------

    async def plan(
        self,
        request: str,
        *,
        run: str,
        folder: Path | str,
        options: Mapping[str, Any],
        types: Mapping[str, AgentType] | None = None,
        change: str = "",
    ) -> Plan:
        """Have an agent plan a request, or change the plan that it made; `run` is the id that its run will have."""
        where = Path(folder)
        known = agent_types.known(where) if types is None else types
        return await planner.ask(
            self._attempts, request, run=run, folder=where, options=options, types=known, change=change
        )

    async def create(
        self,
        plan: PlanInput,
        *,
        request: str = "",
        folder: Path | str | None = None,
        options: Mapping[str, Any] | None = None,
        id: str = "",
    ) -> Run:
        """Record a run of an approved plan without claiming it; any engine can execute it.

        Example::

            plan = {"tasks": [{"name": "hello", "command": ["echo", "hello"]}]}
            run = await m.runs.create(plan, folder="/tmp", options={"in_place": True})
        """
        # A large one is checked in a thread, so that the event loop stays responsive.
        valid = await asyncio.to_thread(plan_input.validate, plan)
        recorder = await self._record(
            valid.plan, request, folder, {**valid.options, **(options or {})}, id, is_claimed=False
        )
        await recorder.release()
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
            plan = await asyncio.to_thread(plan_input.validate, plan, agent_types.known(where))
        given = plan_input.with_defaults(self._attempts.settings.values, {**plan.options, **(options or {})})
        kept = {**given, "agents": agent_types.to_data(plan.plan, plan.types)}
        for kind in sorted(set(agent_types.kinds(plan.plan, kept).values()) - set(REPEATABLE)):
            self._attempts.program(kind)
        id = id or new_id()
        if not kept.get("in_place"):
            into = await workspaces.prepare(where, id, root=self._attempts.folder / "workspaces")
            kept |= {"in_place": True} if into.in_place else {"workspace": into.to_data()}
            kept["notes"] = list(into.notes)
        recorder = await self._record(plan.plan, "", where, kept, id, is_claimed=True)
        self._hold(recorder)
        return recorder.fold

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
        added, and the run is claimed with `options`, which replace those of the same names. `now` does not wait for
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
        run, change = await file_changes.apply(self._journal, self._clock, run, on_change)
        if change is not None:
            told.definition_changed(run, change)
        was_going = run.is_going
        if add is not None:
            run = await self.add(run.id, add.plan, options=add.options)
        check_resumable(run)
        if now and await self.wake(run.id) and is_executing(run):
            return None
        given = {**(options or {}), **agreed}
        if "budget" in given:  # limits that it does not name stay as they were
            given["budget"] = {**(run.options.get("budget") or {}), **given["budget"]}
        await self._claim(run, given, is_going=was_going)
        return self._claims[run.id].fold

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
            if attempt := await self._attempts.newest(run.agent(name)):  # else it has not begun
                newest[attempt.agent] = attempt
        return consent.of_run(run, newest, commands)

    async def agree(self, id: str) -> dict[str, Any]:
        """Record that a person who has seen `acts` agrees to what an imported run does, and create its worktrees;
        returns the options that it is executed with.

        Example::

            run = await m.runs.execute("r-1", options=await m.runs.agree("r-1"))
        """
        run = await self.get(id)
        if not await self.needs_consent(run.id):
            return {}
        return await consent.agree(self._journal, self._clock, self._attempts, run)

    async def move(self, id: str, folder: Path | str, *, dry_run: bool = False) -> Moved:
        """Set the folder of a run, which was moved, or of which another machine has a copy. Missing worktrees are
        created again from their last checkpoints.

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
    ) -> None:
        """Claim a run for this engine; Held while another engine that may be alive has it.

        Unless it `is_going`, failed tasks are tried again. A run that was given more work counts as going from then on.
        """
        await self._check_claimable(run)
        hint = f"`maos status {run.id} --watch` watches it from here"
        look = partial(RUN.load, self._journal, run.id)
        lease = await claim(self._journal, self._clock, stream(run.id), run, is_open=run.is_open, hint=hint, look=look)
        recorder = Recorder(self._journal, RUN, run, lease, lease_s=self._lease_s)
        claimed = self._claimed(recorder, source, options)
        is_again = not (run.is_going if is_going is None else is_going)
        try:
            resumed = RunResumed(retries=not run.retries_chosen, at_us=claimed.at_us)
            await recorder.append(claimed, *([resumed] if is_again else ()))
        except BaseException:
            await self._journal.release(lease)
            raise
        self._hold(recorder)

    def _hold(self, recorder: Recorder[Run]) -> None:
        recorder.hold()
        self._claims[recorder.fold.id] = recorder

    def _claimed(self, recorder: Recorder[Run], source: str, options: Mapping[str, Any] | None = None) -> RunClaimed:
        owner, at_us = ownership.identity(recorder.lease), self._clock.now_us()
        return RunClaimed(owner=owner, source=source, options=dict(options or {}), at_us=at_us)

    # --- executing -------------------------------------------------------------------------------------------

    async def execute(
        self,
        id: str,
        observer: Observer | None = None,
        *,
        worker: AgentWorker | None = None,
        concurrency: int | None = None,
        notify: Sequence[str] = (),
        source: str = "manual",
        options: Mapping[str, Any] | None = None,
        listener: Listener | None = None,
    ) -> Run:
        """Execute what is left of a run, until it has ended or is paused. Held while another engine executes it.

        A run that `start` or `resume` claimed is executed under that lease; any other is claimed first, and keeps
        `options`, which replace those of the same names. Meanwhile the run is saved at intervals, notifications are
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
        recorder = self._claims.pop(id)
        run = recorder.fold
        fixed = run.options.get("concurrency") if concurrency is None else concurrency

        def warn(text: str) -> None:
            told.notice(text, {"kind": "warning", "text": text})

        notifier = Notifier(self._journal, self._clock, id, to, tell=warn)
        upkeep = Upkeep(
            self._cleaner,
            self._attempts.settings,
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
            recorder, worker, self._clock, bus=self._bus, concurrency=upkeep.concurrency, listener=changed
        )
        try:
            await notifier.open(run, list((await self.at_work(run)).values()) if to else ())
            return await self._executed(scheduler, upkeep)
        finally:
            await recorder.release()
            await notifier.close()

    async def _executed(self, scheduler: Scheduler, upkeep: Upkeep) -> Run:
        run = scheduler.run
        self._schedulers[run.id] = scheduler
        if run.id in self._to_pause:
            scheduler.pause(self._to_pause.pop(run.id))
        saving = asyncio.create_task(checkpoints.autosave(run, scheduler.note, self._clock, self._checkpoint_s))
        try:
            return await upkeep.beside(scheduler.execute())
        finally:
            saving.cancel()
            await asyncio.gather(saving, return_exceptions=True)
            self._schedulers.pop(run.id, None)
            self._to_pause.pop(run.id, None)

    async def _checkpoint_s(self) -> float:
        """How long until a run that is executed is given a checkpoint."""
        checkpoint = self._attempts.settings.values.checkpoint
        due = checkpoints.is_due(checkpoint, "timer", 0)
        return await checkpoints.interval_s(self._journal, checkpoint.interval_s) if due else math.inf

    def pause_here(self, id: str, why: str) -> None:
        """Pause a run that this engine executes, or is about to: its agents are stopped, and can be resumed."""
        if id in self._schedulers:
            self._schedulers[id].pause(why)
        else:
            self._to_pause[id] = why

    def set_concurrency(self, id: str, concurrency: int) -> None:
        """Set how many agents work at once on a run that this engine executes."""
        if id in self._schedulers:
            self._schedulers[id].set_concurrency(concurrency)


def check_resumable(run: Run) -> None:
    """InvalidInput when there is nothing left to do; NotFound when what it works on is not where it was."""
    if run.status == RunStatus.COMPLETED:
        raise InvalidInput(f"{run.id} is completed", hint=f'`maos resume {run.id} --task "…"` gives it more to do')
    check_places(run)
