"""What people and programs do to a run: pause, cancel, retry, skip, add, answer, remove.

While an engine executes the run, a command in the run's inbox requests it of that engine. While none does, the caller
claims the run and records it here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from maos.bus.bus import Bus
from maos.clock import Clock
from maos.engine import checkpoints, ownership, questions
from maos.engine import consent as consents
from maos.engine.attempts import Attempts
from maos.engine.ownership import Held
from maos.engine.streams import RUN, own_run, permanent
from maos.engine.streams import new_id as new_id
from maos.errors import InvalidInput, NotFound
from maos.journal.journal import Append, Journal
from maos.model.cleanup import PERMANENT
from maos.model.events.commands import (
    CancelRequested,
    Command,
    PauseRequested,
    RetryRequested,
    SkipRequested,
    TasksRequested,
    WakeRequested,
)
from maos.model.events.parts import PERSON
from maos.model.events.records import PinAdded, PinRemoved
from maos.model.events.run import QuestionAsked, RunEnded, RunPlanned, RunRemoved
from maos.model.message import inbox
from maos.model.plan import Plan
from maos.model.run import Run, TaskState
from maos.model.run_status import agents_of
from maos.model.status import RunStatus, TaskStatus
from maos.runs import cleanup
from maos.runs.cleanup import Cleaner, Cleanup, Removal
from maos.runs.decisions import CommandHandler, Outcome, outcome_of, what_follows
from maos.runs.plan_input import with_more
from maos.runs.status import RunViews, is_executing
from maos.store.contract import Key

GRACE_S = 10.0
"""How long agents have to end by themselves when their run is paused or cancelled."""


class RunOperations(RunViews):
    """Runs, for front ends that change them."""

    def __init__(self, journal: Journal, clock: Clock, attempts: Attempts, bus: Bus) -> None:
        super().__init__(journal, clock, attempts)
        self._bus = bus
        self._cleaner = Cleaner(clock, self, attempts)

    # --- pausing and ending ----------------------------------------------------------------------------------

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
                    await self._attempts.end(attempt, GRACE_S)
                return await self.get(run.id)
            if not is_requested:
                # Not of a run that no engine executes: the one that resumed it would pause it at once.
                await self.pause(run.id)
                is_requested = True
            await RUN.until(self._journal, run, lambda each: not each.is_going)
        return run

    async def cancel(self, id: str, *, task: str = "", why: str = "cancelled") -> Run:
        """End a run for good, or one task of it: agents are stopped, and what is left is not started.

        A run that was cancelled can be resumed; a cancelled task counts as failed until it is retried.

        Example::

            run = await m.runs.cancel("r-1", why="no longer needed")
        """
        run = await self.get(id)
        if task:
            self._check_not_done(run, task)
            if run.tasks[task].status == TaskStatus.FAILED:
                raise InvalidInput(f"{task} has failed already", hint="it does not run")
            attempt, at_us = run.tasks[task].attempts, self._clock.now_us()
            return await self._apply(run, CancelRequested(task=task, attempt=attempt, why=why, at_us=at_us))
        if run.status == RunStatus.COMPLETED:
            raise InvalidInput(f"{run.id} is completed", hint="only a run that is not can be cancelled")
        while run.status != RunStatus.CANCELLED:
            if is_executing(run):
                await self._request(run.id, CancelRequested(why=why, at_us=self._clock.now_us()))
                while is_executing(run):
                    await RUN.until(self._journal, run, lambda each: not each.is_going)
            else:
                async with own_run(self._journal, self._clock, run) as recorder:
                    await self._attempts.end_all(run.id, GRACE_S)
                    at_us = self._clock.now_us()
                    await recorder.append(RunEnded(status=RunStatus.CANCELLED, why=why, at_us=at_us))
            run = await self.get(run.id)
        return run

    # --- tasks -----------------------------------------------------------------------------------------------

    async def retry(self, id: str, *, tasks: Sequence[str] = ()) -> Run:
        """Let failed tasks start again: the named ones, else all. Tasks that are done or skipped stay as they are.

        While an engine executes the run, it retries them. Otherwise the engine that resumes the run does, and retries
        no other failed tasks.

        Example::

            await m.runs.retry("r-1", tasks=["deploy"])
        """
        run = await self.get(id)
        failed = [name for name, task in run.tasks.items() if task.status == TaskStatus.FAILED]
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

    async def add(self, id: str, plan: Plan, *, options: Mapping[str, Any] | None = None) -> Run:
        """Add tasks to a run that no engine executes (R-203), and the options that they need."""
        run = await self.get(id)
        with_more(run, plan)
        tasks = [msgspec.to_builtins(task) for task in plan.tasks]
        async with own_run(self._journal, self._clock, run) as recorder:
            await recorder.append(RunPlanned(tasks=tasks, options=dict(options or {}), at_us=self._clock.now_us()))
            return recorder.fold

    async def request_tasks(self, id: str, plan: Plan, *, by: str = PERSON) -> None:
        """Request that the engine that executes a run adds tasks to it."""
        tasks = msgspec.to_builtins(plan.tasks)
        await self._request(id, TasksRequested(tasks=tasks, asked_by=by, at_us=self._clock.now_us()))

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
                await RUN.until(self._journal, run, lambda each: each.inbox_cursor >= version or not each.is_going)
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
        async with own_run(self._journal, self._clock, run) as recorder:
            run = recorder.fold
            async for record in self._journal.read(inbox(run.id), after=run.inbox_cursor):
                decision = handler.decide(run, record.event, record.version, self._clock.now_us())
                if decision.events:
                    await recorder.append(*decision.events, also=decision.also)
            for task in [each for each in run.tasks.values() if each.stopping]:
                ended = [await self._ended(agent) for agent in agents_of(run, task)]
                outcome = next((each for each in ended if each is not None), Outcome(failure="stopped"))
                await recorder.append(what_follows(task, outcome._replace(failure="stopped"), self._clock.now_us()))

    async def _ended(self, agent: str) -> Outcome | None:
        """Stop an agent that no engine attends to; what its newest attempt came to."""
        attempt = await self._attempts.newest(agent)
        if attempt is None:
            return None  # it was not started yet
        await self._attempts.end(attempt, GRACE_S)
        return outcome_of(await self._attempts.get(agent))

    # --- requests --------------------------------------------------------------------------------------------

    async def wake(self, id: str, *, by: str = "person") -> bool:
        """Have a run that sleeps because of a rate limit continue now; False when it does not sleep."""
        if (await self.get(id)).wakes_us <= self._clock.now_us():
            return False
        await self._request(id, WakeRequested(by=by, at_us=self._clock.now_us()))
        return True

    async def ask(self, id: str, question: str, *, key: str, asked_by: str, **more: Any) -> None:
        """Ask a person a question; the same `key` asks once, also when an agent asks again after a crash."""
        asked = QuestionAsked(id=key, question=question, asked_by=[asked_by], at_us=self._clock.now_us(), **more)
        once = Key(f"ask/{id}/{asked_by}/{key}", hashlib.sha256(question.encode()).digest())
        await self._journal.append_all([Append(inbox(id), [asked])], key=once)

    async def answer(self, id: str, question: str, answer: str, *, by: str = "person") -> None:
        """Answer a question of a run, also while no engine executes it; Answered when another answer came first."""
        await questions.answer(self._journal, self._clock, await self.get(id), question, answer, by=by)

    async def _request(self, id: str, command: Command) -> int:
        return (await self._journal.append(inbox(id), command)).version

    # --- housekeeping ----------------------------------------------------------------------------------------

    async def remove(self, id: str, *, dry_run: bool = False) -> Removal:
        """Remove the worktrees of a run that is not executed, and omit it from lists. Its events stay.

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
            return await self._cleaner.removal(run)
        await self._check_claimable(run)
        async with own_run(self._journal, self._clock, run) as recorder:
            removal = await self._cleaner.remove_run(run)
            await recorder.append(RunRemoved(at_us=self._clock.now_us()))
        return removal

    async def keep(self, id: str, why: str = "") -> bool:
        """Pin a run: no cleanup removes anything of it; False when it was pinned already."""
        if (await permanent(self._journal)).get((await self.get(id)).id) == why:
            return False
        await self._journal.append(PERMANENT, PinAdded(run=id, why=why, at_us=self._clock.now_us()))
        return True

    async def unkeep(self, id: str) -> bool:
        """Unpin a run: cleanups treat it like any other again; False when it was not pinned."""
        if (await self.get(id)).id not in await permanent(self._journal):
            return False
        await self._journal.append(PERMANENT, PinRemoved(run=id, at_us=self._clock.now_us()))
        return True

    async def clean_up(self, *, older_than_days: float | None = None, dry_run: bool = False) -> Cleanup:
        """Remove the worktrees of runs that were completed long ago: as the settings say, or than so many days."""
        now_us = self._clock.now_us()
        rule_of = cleanup.by_policy(self._attempts.settings.values.cleanup, now_us)
        if older_than_days is not None:
            rule_of = cleanup.older_than(older_than_days, now_us)
        return await self._cleaner.clean_up(rule_of, by="person", dry_run=dry_run)

    async def save_interval_s(self, seconds: float | None = None) -> float:
        """How often the files of agents that run are saved; set for all engines on this journal if given."""
        if seconds is not None:
            await checkpoints.set_interval(self._journal, self._clock, seconds)
        return await checkpoints.interval_s(self._journal, self._attempts.settings.values.checkpoint.interval_s)

    # --- leases ----------------------------------------------------------------------------------------------

    async def _check_claimable(self, run: Run) -> None:
        """NotAgreed when no person has agreed to what a run from elsewhere does; InvalidInput when it was removed."""
        await consents.check(self._journal, run.id)
        if run.removed_us:
            raise InvalidInput(f"{run.id} was removed", hint="its worktrees were removed; start another run")
