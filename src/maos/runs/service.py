"""Runs: started from a plan, executed by agents, paused, cancelled, resumed after a crash, and given more work.

This is the one way in for every front end. What belongs to executing a run (its lease, the scheduler, autosave,
notifications, settings that change meanwhile, cleanup) is put together here and nowhere else.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from maos import workspaces
from maos.agents import project_files
from maos.bus.bus import Bus
from maos.clock import Clock
from maos.engine import checkpoints, ownership
from maos.engine import consent as consents
from maos.engine.attempt_spec import check_places
from maos.engine.attempts import Attempts
from maos.engine.ownership import claim
from maos.engine.permissions import allowed_by_rules
from maos.engine.recorder import Recorder
from maos.engine.streams import RUN, check_version, own_run
from maos.engine.streams import new_id as new_id
from maos.errors import InvalidInput, NotPermitted
from maos.journal.journal import Journal
from maos.model.attempt import check_run
from maos.model.events.parts import Limits
from maos.model.events.run import RunClaimed, RunCreated, RunEvent, RunHandedOver, RunPlanned, RunResumed
from maos.model.failure import REPEATABLE
from maos.model.message import inbox
from maos.model.plan import ASK, Plan, Task
from maos.model.principal import PrincipalKind
from maos.model.run import Run, stream
from maos.model.status import RunStatus
from maos.runs import agent_types, consent, file_changes, plan_input, planner
from maos.runs.cleanup import Upkeep
from maos.runs.consent import Act
from maos.runs.feed import Observer
from maos.runs.notify import Notifier, addresses
from maos.runs.operations import RunOperations
from maos.runs.plan_input import Addition, PlanInput, RunOptions, ValidPlan
from maos.runs.scheduler import Listener, Scheduler
from maos.runs.status import is_executing
from maos.runs.worker import AgentWorker
from maos.travel import relocation
from maos.travel.relocation import Moved
from maos.workspaces import products

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

    async def create(
        self,
        plan: PlanInput,
        *,
        request: str = "",
        folder: Path | str | None = None,
        options: RunOptions | Mapping[str, Any] | None = None,
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
        options: RunOptions | Mapping[str, Any] | None = None,
        id: str = "",
        is_claimed: bool = True,
        is_vouched: bool = False,
    ) -> Run:
        """Record a run of an approved plan and claim it for this engine; `execute` then executes it. Unless it
        `is_claimed`, it waits for any engine, such as that of `maos serve`. A program with a token can start only tasks
        in words, unless a person who may use this machine vouches for the plan (`is_vouched`).

        The plan and the types of agents it names are checked, their programs are looked for, and the run gets a
        workspace of its own for the merged work, unless its options say `in_place`. Options that are not given are
        those of the plan, then of the settings. A plan is data in the form of a [plan file](plan-format.md), or the
        path of one.

        Example::

            plan = {"tasks": [{"name": "hello", "command": ["echo", "hello"]}]}
            run = await m.runs.start(plan, folder="/tmp")
            run = await m.runs.execute(run.id)
        """
        self._journal.principal.check_may_decide("start a run")
        where = Path(folder)
        if not isinstance(plan, ValidPlan):
            plan = await asyncio.to_thread(plan_input.validate, plan, agent_types.known(where))
        if not is_vouched:
            self._check_remote(plan.plan.tasks)
        settings = self._attempts.settings
        settings.loaded.check_agreed()
        workspace = plan_input.workspace_options(settings.values, plan.options, options or {})
        given = plan_input.with_defaults(settings.values, {**plan.options, **(options or {}), **workspace})
        kept = {**given, "agents": agent_types.to_data(plan.plan, plan.types)}
        kinds = sorted(set(agent_types.kinds(plan.plan, kept).values()))
        if not is_vouched:
            self._check_remote_kinds(kinds, named=str((options or {}).get("kind", "")))
        for kind in kinds:
            if kind not in REPEATABLE:
                self._attempts.program(kind)
        self._check_prices(plan.plan.tasks, kept)
        id = id or new_id()
        if not kept.get("in_place"):
            uncommitted = kept.get("include_uncommitted", False)
            root = self._attempts.folder / "workspaces"
            rules = self._attempts.kept_files()
            into = await workspaces.prepare(where, id, root=root, include_uncommitted=uncommitted, **rules)
            kept |= {"in_place": True} if into.in_place else {"workspace": into.to_data()}
            kept["notes"] = [*into.notes, *await self._left_out(plan.plan, where, kept)]
        how = {"is_claimed": is_claimed, "is_handed_over": not is_claimed}
        recorder = await self._record(plan.plan, "", where, kept, id, **how)
        if is_claimed:
            self._hold(recorder)
        else:
            await recorder.release()
        return recorder.fold

    async def _left_out(self, plan: Plan, folder: Path, options: Mapping[str, Any]) -> list[str]:
        """What of the person's folder the agents of a new run do not have, and how they are given it."""
        notes = []
        if not (options.get("setup") or options.get("copy_ignored")):
            found = await products.worth_naming(folder)
            if found:
                shown = ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
                notes.append(f"agents do not see ignored files: {shown} (--copy-ignored, or --setup to make them)")
        kinds = set(agent_types.kinds(plan, options).values())
        if not options.get("project_settings") and any(map(self._attempts.takes_words, kinds)):
            names = await asyncio.to_thread(project_files.present, folder)
            if names:
                notes.append(f"agents are not given the project's {', '.join(names)} (--project-settings)")
        return notes

    async def start_request(
        self,
        request: str,
        *,
        folder: Path | str,
        options: RunOptions | Mapping[str, Any] | None = None,
        is_approved: bool = False,
        id: str = "",
        is_claimed: bool = True,
    ) -> Run:
        """Record a run of a request and claim it for this engine; `execute` then executes it.

        Its first task, `plan`, has an agent make a plan. The run then asks a person, who answers yes, no, or what to
        change, unless the plan `is_approved` in advance; then the tasks of the plan are added and start.

        Example::

            run = await m.runs.start_request("Add a --verbose option", folder=".", is_approved=True)
            run = await m.runs.execute(run.id)
        """
        given = plan_input.with_defaults(self._attempts.settings.values, options or {})
        if not self._attempts.takes_words(given["kind"]):
            hint = "choose another --kind, or give a --plan FILE"
            raise InvalidInput(f"an agent of kind {given['kind']} cannot plan", hint=hint)
        first = planner.first_plan(request, is_approved=is_approved)
        if planner.checks_of(given) and self._journal.principal.kind is PrincipalKind.TOKEN:
            hint = "`maos run --gate` in a terminal does"
            raise NotPermitted("over HTTP a run is given no commands, and so no gates; nothing was started", hint=hint)
        self._check_remote_kinds([given["kind"]], named=str((options or {}).get("kind", "")))
        given["planner"] = planner.NAME
        how: dict[str, Any] = {"id": id, "is_claimed": is_claimed, "is_vouched": True}
        return await self.start(first, folder=folder, options=given, **how)

    def _check_remote_kinds(self, kinds: Iterable[str], *, named: str) -> None:
        """NotPermitted when a program with a token would have agents that run commands, or names a program itself."""
        who = self._journal.principal
        refused = [kind for kind in kinds if not self._attempts.takes_words(kind) or (kind == named and ":" in kind)]
        if who.kind is PrincipalKind.TOKEN and refused:
            what = f"{who} cannot start agents of the kind {refused[0]}; nothing was started"
            raise NotPermitted(what, hint="over HTTP agents are models; `maos run` in a terminal starts any kind")

    async def _record(
        self,
        plan: Plan,
        request: str,
        folder: Path | str | None,
        options: Mapping[str, Any],
        id: str,
        *,
        is_claimed: bool,
        is_handed_over: bool = False,
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
            by=self._journal.by,
            at_us=at_us,
        )
        planned = RunPlanned(tasks=[msgspec.to_builtins(task) for task in plan.tasks], at_us=at_us)
        owned: list[RunEvent] = [self._claimed(recorder, "manual")] if is_claimed else []
        if is_handed_over:
            owned = [RunHandedOver(by=self._journal.by, at_us=at_us)]
        try:
            await recorder.append(created, planned, *owned)
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
        limits: Limits | None = None,
        now: bool = False,
        source: str = "manual",
    ) -> Run | None:
        """Claim a run that has something left to do, for `execute`. None with `now` if another engine executes it, and
        when an agent adds tasks to its own run, which the engine that executes the run is requested to do.

        In this order, and nothing of it without the one before: the run is moved to `folder`, a person agrees to what
        came with a file, a changed plan file is handled as `on_change` says (keep, replay or refuse), tasks are
        added, `limits` are changed as by `update`, and the run is claimed. `now` does not wait for the end of a rate
        limit.

        Example::

            run = await m.runs.resume("r-1")
            run = await m.runs.execute(run.id)
        """
        told = observer or Observer()
        run = await self.get(id)
        if add is not None and self._journal.principal.is_agent:
            await self.request_tasks(run.id, add.plan)
            return None
        self._journal.principal.check_may_decide(f"resume {run.id}")
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
        changed = None
        if limits is not None and limits.given:
            changed = self._update_of(run, limits)
        await relocation.restore(self._journal, self._clock, self._attempts, run)
        await self._claim(run, agreed, source, is_going=was_going)
        if changed is not None:
            await self._change(self._claims[run.id], changed)
        return self._claims[run.id].fold

    async def hand_over(self, id: str, *, expected: int | None = None) -> Run:
        """Have any engine, such as that of `maos serve`, resume a run that is paused, has failed or was interrupted.

        With `expected`, only while the run is at that version; else Conflict.

        Example::

            run = await m.runs.hand_over("r-1")
            print(run.is_handed_over)
        """
        run = await self.get(id)
        check_version(run, expected)
        self._journal.principal.check_may_decide(f"resume {run.id}")
        if is_executing(run):
            raise InvalidInput(f"{run.id} is being executed", hint=f"`maos status {run.id} --watch` watches it")
        check_resumable(run)
        await self._check_claimable(run)
        async with own_run(self._journal, self._clock, run, expected=expected) as recorder:
            now, stamp = recorder.fold, self._stamp()
            resumed = () if now.is_going else (RunResumed(retries=not now.retries_chosen, **stamp),)
            await recorder.append(*resumed, RunHandedOver(**stamp))
            return recorder.fold

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
        rules = await allowed_by_rules(self._journal, run.id)
        found = consent.of_run(run, newest, commands)
        return [each if each.command else each._replace(tools=(*each.tools, *rules)) for each in found]

    async def agree(self, id: str) -> dict[str, Any]:
        """Record that a person who has seen `acts` agrees to what an imported run does, and create its worktrees;
        returns the options that it is executed with.

        Example::

            run = await m.runs.execute("r-1", options=await m.runs.agree("r-1"))
        """
        self._journal.principal.check_may_decide(f"agree to what {id} would do")
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
        left = [msgspec.convert(each.plan, Task) for each in run.tasks.values() if not each.status.is_done]
        self._check_prices(left, {**run.options, **(options or {})})
        hint = f"`maos status {run.id} --watch` watches it from here"
        look = partial(RUN.load, self._journal, run.id)
        lease = await claim(self._journal, self._clock, stream(run.id), run, is_open=run.is_open, hint=hint, look=look)
        try:
            run = await self.get(run.id)  # a command may have been applied while this engine waited for the lease
            await self._check_claimable(run)
            recorder = Recorder(self._journal, RUN, run, lease, lease_s=self._lease_s)
            claimed = self._claimed(recorder, source, options)
            is_again = not (run.is_going if is_going is None else is_going)
            resumed = RunResumed(retries=not run.retries_chosen, by=claimed.by, at_us=claimed.at_us)
            await recorder.append(claimed, *([resumed] if is_again else ()))
        except BaseException:
            await self._journal.release(lease)
            raise
        self._hold(recorder)

    def _hold(self, recorder: Recorder[Run]) -> None:
        recorder.hold()
        self._claims[recorder.fold.id] = recorder

    def _claimed(self, recorder: Recorder[Run], source: str, options: Mapping[str, Any] | None = None) -> RunClaimed:
        return RunClaimed(
            owner=ownership.identity(recorder.lease),
            source=source,
            options=dict(options or {}),
            by=self._journal.by,
            at_us=self._clock.now_us(),
        )

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

        def fixed() -> int | None:
            return run.options.get("concurrency", concurrency)

        def warn(text: str) -> None:
            told.notice(text, {"kind": "warning", "text": text})

        page = self._attempts.settings.values.serve.url
        notifier = Notifier(self._journal, self._clock, id, to, tell=warn, url=page)
        upkeep = Upkeep(
            self._cleaner,
            self._attempts.settings,
            tell=told.notice,
            concurrency=fixed,
            set_concurrency=partial(self._set_concurrency, id),
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
            scheduler.pause(self._to_pause.pop(run.id), by=self._journal.by)
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
            self._schedulers[id].pause(why, by=self._journal.by)
        else:
            self._to_pause[id] = why

    def _set_concurrency(self, id: str, concurrency: int) -> None:
        """Have as many agents work at once on a run that this engine executes as the settings say now."""
        if id in self._schedulers:
            self._schedulers[id].set_concurrency(concurrency)


def check_resumable(run: Run) -> None:
    """InvalidInput when there is nothing left to do; NotFound when what it works on is not where it was."""
    if run.status == RunStatus.COMPLETED:
        raise InvalidInput(f"{run.id} is completed", hint=f'`maos resume {run.id} --task "…"` gives it more to do')
    check_places(run)
