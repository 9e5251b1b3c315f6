"""What people and programs do to a run: pause, cancel, update, retry, skip, add, answer, remove.

While an engine executes the run, a command in the run's inbox requests it of that engine. While none does, the caller
claims the run and records it here. A method with `expected` raises Conflict, and changes nothing, unless the run is at
that version: this is checked in the transaction of the command, or under the lease of the claim.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from maos.bus.bus import Bus
from maos.clock import Clock
from maos.engine import checkpoints, questions
from maos.engine import consent as consents
from maos.engine.attempts import Attempts
from maos.engine.ownership import Held
from maos.engine.recorder import Recorder
from maos.engine.streams import RUN, check_version, own_run, permanent, while_at
from maos.engine.streams import new_id as new_id
from maos.errors import InvalidInput, NotFound, NotPermitted
from maos.journal.journal import Append, Journal
from maos.model import plan as plans
from maos.model.cleanup import PERMANENT
from maos.model.events.commands import (
    CancelRequested,
    Command,
    PauseRequested,
    RetryRequested,
    SkipRequested,
    TasksRequested,
    UpdateRequested,
    WakeRequested,
)
from maos.model.events.parts import Limits
from maos.model.events.records import PinAdded, PinRemoved
from maos.model.events.run import PlanProposed, QuestionAsked, RunEnded, RunPlanned, RunRemoved
from maos.model.message import inbox
from maos.model.plan import AGENT_FIELDS, Plan, Task, not_for_agents
from maos.model.principal import Principal, PrincipalKind
from maos.model.run import Run, TaskState
from maos.model.run_status import agents_of
from maos.model.status import RunStatus, TaskStatus
from maos.runs import cleanup, planner
from maos.runs.budgets import Budget
from maos.runs.cleanup import Cleaner, Cleanup, Removal
from maos.runs.decisions import CommandHandler, Outcome, outcome_of, what_follows
from maos.runs.plan_input import ValidPlan, with_more
from maos.runs.results import RunResults
from maos.runs.status import is_executing
from maos.runs.worker import own_budget, terms
from maos.store.contract import Key

GRACE_S = 10.0
"""How long agents have to end by themselves when their run is paused or cancelled."""
CONCURRENCY_MAX = 1000


class RunOperations(RunResults):
    """Runs, for front ends that change them."""

    def __init__(self, journal: Journal, clock: Clock, attempts: Attempts, bus: Bus) -> None:
        super().__init__(journal, clock, attempts)
        self._bus = bus
        self._cleaner = Cleaner(clock, self, attempts)

    def _stamp(self) -> dict[str, Any]:
        """What events say of an act: whose it is, and when."""
        return {"by": self._journal.by, "at_us": self._clock.now_us()}

    # --- pausing and ending ----------------------------------------------------------------------------------

    async def pause(self, id: str, why: str = "asked", *, expected: int | None = None) -> None:
        """Request that the engine that executes a run pauses it.

        Example::

            await m.runs.pause("r-1")
        """
        await self._request(id, PauseRequested(why=why, **self._stamp()), expected)

    async def pause_and_wait(self, id: str, *, expected: int | None = None) -> Run:
        """Pause a run and wait until none of its agents works, whether an engine executes it or not.

        Example::

            run = await m.runs.pause_and_wait("r-1")
        """
        run = await self.get(id)
        check_version(run, expected)
        if not run.is_open:
            raise InvalidInput(f"{run.id} has ended: {run.status}", hint="only a run that has not ended can be paused")
        is_requested = False
        while run.is_going:
            if not is_executing(run):
                for attempt in (await self.at_work(run)).values():
                    await self._attempts.end(attempt, GRACE_S)
                return await self.get(run.id)
            if not is_requested:
                # Not of a run that no engine executes: the one that resumed it would pause it at once.
                await self.pause(run.id, expected=expected)
                is_requested = True
            await RUN.until(self._journal, run, lambda each: not each.is_going)
        return run

    async def cancel(self, id: str, *, task: str = "", why: str = "cancelled", expected: int | None = None) -> Run:
        """End a run for good, or one task of it: agents are stopped, and what is left is not started.

        The worktrees of a run are removed when everything in them is saved. A run that was cancelled can be resumed,
        with its worktrees as they were; a cancelled task counts as failed until it is retried.

        Example::

            run = await m.runs.cancel("r-1", why="no longer needed")
        """
        run = await self.get(id)
        check_version(run, expected)
        if task:
            self._check_not_done(run, task)
            if run.tasks[task].status == TaskStatus.FAILED:
                raise InvalidInput(f"{task} has failed already", hint="it does not run")
            attempt = run.tasks[task].attempts
            command = CancelRequested(task=task, attempt=attempt, why=why, **self._stamp())
            return await self._apply(run, command, expected)
        if run.status == RunStatus.COMPLETED:
            raise InvalidInput(f"{run.id} is completed", hint="only a run that is not can be cancelled")
        while run.status != RunStatus.CANCELLED:
            if is_executing(run):
                await self._request(run.id, CancelRequested(why=why, **self._stamp()), expected)
                expected = None  # it was requested at that version
                while is_executing(run):
                    await RUN.until(self._journal, run, lambda each: not each.is_going)
            else:
                async with own_run(self._journal, self._clock, run, expected=expected) as recorder:
                    await self._attempts.end_all(run.id, GRACE_S)
                    await recorder.append(RunEnded(status=RunStatus.CANCELLED, why=why, **self._stamp()))
            run = await self.get(run.id)
        await self._cleaner.free(run)
        return run

    # --- limits ----------------------------------------------------------------------------------------------

    async def update(self, id: str, limits: Limits, *, expected: int | None = None) -> Run:
        """Change the limits of a run, or how many of its agents work at once, whether an engine executes it or not.

        Agents that are being stopped for a limit that is raised continue. The time limit counts for agents at work too,
        unless their task or type has one of its own; tasks that have failed at a limit that is raised are retried.

        Example::

            run = await m.runs.update("r-1", maos.Limits(cost_usd=10, concurrency=8))
        """
        run = await self.get(id)
        return await self._apply(run, self._update_of(run, limits), expected)

    def _update_of(self, run: Run, limits: Limits) -> UpdateRequested:
        """The command that changes limits of a run; InvalidInput when they are none, or cannot be kept."""
        _check_limits(limits)
        if limits.cost_usd:
            left = [msgspec.convert(each.plan, Task) for each in run.tasks.values() if not each.status.is_done]
            self._check_prices(left, {**run.options, "budget": {"cost_usd": limits.cost_usd}})
        return UpdateRequested(limits=limits, **self._stamp())

    async def _change(self, recorder: Recorder[Run], command: UpdateRequested) -> None:
        """Apply a command to a run that this process has claimed; what is in its inbox comes later."""
        decision = CommandHandler(self._bus).decide(recorder.fold, command, 0, self._clock.now_us())
        await recorder.append(*decision.events)

    def _check_prices(self, tasks: Iterable[Task], options: Mapping[str, Any]) -> None:
        """Check that limits of money can be kept: InvalidInput for a task with a model whose price is not known."""
        run = Run(id="", options=dict(options))
        for task in tasks:
            how = terms(run, task) if Budget.of(options).cost_usd or own_budget(run, task).cost_usd else {}
            if how.get("kind"):
                self._attempts.check_price(how["kind"], how["model"])

    # --- tasks -----------------------------------------------------------------------------------------------

    async def retry(
        self,
        id: str,
        *,
        tasks: Sequence[str] = (),
        text: str = "",
        command: Sequence[str] = (),
        expected: int | None = None,
    ) -> Run:
        """Let failed tasks start again: the named ones, else all. Tasks that are done or skipped stay as they are.

        `text` or `command` replace those of the only named task. While an engine executes the run, it retries them.
        Otherwise the engine that resumes the run does, and retries no other failed tasks.

        Example::

            await m.runs.retry("r-1", tasks=["deploy"], command=["echo", "deployed"])
        """
        run = await self.get(id)
        check_version(run, expected)
        failed = [name for name, task in run.tasks.items() if task.status == TaskStatus.FAILED]
        for name in tasks:
            if self._task(run, name).name not in failed:
                hint = "only a task that has failed can be retried"
                raise InvalidInput(f"{name} is {run.tasks[name].status}", hint=hint)
        if not failed:
            is_completed = run.status == RunStatus.COMPLETED
            hint = (
                '`maos resume {} --task "…"` gives it more to do'
                if is_completed
                else "`maos resume {}` executes the rest"
            )
            raise InvalidInput(f"no task of {run.id} has failed", hint=hint.format(run.id))
        changed = self._changed(run, tasks, text, command) if text or command else {}
        return await self._apply(run, RetryRequested(tasks=list(tasks), changed=changed, **self._stamp()), expected)

    def _changed(self, run: Run, tasks: Sequence[str], text: str, command: Sequence[str]) -> dict[str, Any]:
        """What a person changes of a task, if that gives a valid plan; else InvalidInput."""
        if len(tasks) != 1:
            raise InvalidInput("only one task can be changed at a time", hint=f"name it: `maos retry {run.id}/TASK`")
        plan = run.tasks[tasks[0]].plan
        if command and not plan.get("command"):
            raise InvalidInput(f"{tasks[0]} has no command: an agent does it", hint="change its text")
        if text and run.tasks[tasks[0]] is run.planner:
            hint = f"start another run, or add tasks with `maos resume {run.id} --task TEXT`"
            raise InvalidInput("the request of a run cannot be changed", hint=hint)
        changed = {**({"task": text} if text else {}), **({"command": list(command)} if command else {})}
        others = [each.plan for each in run.tasks.values() if each.plan is not plan]
        plans.from_data({"tasks": [*others, {**plan, **changed}]})
        return changed

    async def skip(self, id: str, task: str, *, reason: str = "", expected: int | None = None) -> Run:
        """Count a task as done without its result, so that those that need it can start. Its agent is stopped.

        Example::

            await m.runs.skip("r-1", "deploy", reason="deployed by hand")
        """
        run = await self.get(id)
        check_version(run, expected)
        self._check_not_done(run, task)
        if run.tasks[task] is run.planner:
            hint = f"`maos cancel {run.id}` ends the run; say what to change to have another plan"
            raise InvalidInput("the plan of a run cannot be skipped", hint=hint)
        return await self._apply(run, SkipRequested(task=task, why=reason, **self._stamp()), expected)

    async def add(
        self, id: str, plan: Plan, *, options: Mapping[str, Any] | None = None, expected: int | None = None
    ) -> Run:
        """Add tasks to a run that no engine executes (R-203), and the options that they need."""
        run = await self.get(id)
        self._check_remote(plan.tasks)
        with_more(run, plan)
        tasks = [msgspec.to_builtins(task) for task in plan.tasks]
        async with own_run(self._journal, self._clock, run, expected=expected) as recorder:
            await recorder.append(RunPlanned(tasks=tasks, options=dict(options or {}), **self._stamp()))
            return recorder.fold

    async def edit_plan(self, id: str, plan: ValidPlan) -> Run:
        """Replace the plan of a run that waits to be approved; the question whether to run it stays open."""
        run = await self.get(id)
        if run.planner is None or not run.planner.asks:
            hint = f"`maos resume {run.id} --task TEXT` adds tasks"
            raise InvalidInput(f"no plan of {run.id} waits to be approved", hint=hint)
        self._check_remote(plan.plan.tasks)
        with_more(run, plan.plan, plan.types)
        return await self._apply(run, planner.propose(plan, **self._stamp()))

    async def request_tasks(self, id: str, plan: Plan, *, expected: int | None = None) -> None:
        """Request that the engine that executes a run adds tasks to it. An agent can add them only to its own run, and
        can give only their names, texts, needs and types of agents."""
        who, tasks = self._journal.principal, msgspec.to_builtins(plan.tasks)
        if who.is_agent:
            await self._check_may_add(who, id, plan)
        self._check_remote(plan.tasks)
        command = TasksRequested(tasks=tasks, asked_by=who.sender, **self._stamp())
        await self._journal.append_all([Append(inbox(id), [command]), *while_at(id, expected)])

    def _check_remote(self, tasks: Sequence[Task]) -> None:
        """NotPermitted when a program with a token gives a task more than words: a task with a command that is started
        over HTTP would be a remote shell."""
        who = self._journal.principal
        if who.kind is PrincipalKind.TOKEN and (fields := not_for_agents(tasks)):
            what = f"{who} cannot give a task {', '.join(fields)}; nothing was changed"
            raise NotPermitted(what, hint=f"over HTTP a task has {', '.join(AGENT_FIELDS)}; a terminal can give more")

    async def _check_may_add(self, agent: Principal, id: str, plan: Plan) -> None:
        await self._check_own_run(agent, id, "add tasks to")
        if fields := not_for_agents(plan.tasks):
            what = f"{agent} is an agent and cannot give a task {', '.join(fields)}; nothing was changed"
            raise NotPermitted(what, hint=f"it can give {', '.join(AGENT_FIELDS)}; a person can add other tasks")

    async def _check_own_run(self, agent: Principal, id: str, what: str) -> None:
        attempt = await self._attempts.get(agent.name)
        if attempt.order.get("run") != id or not (await self.get(id)).accepts_from(agent.name):
            hint = "the agent belongs to another run"
            raise NotPermitted(f"{agent} cannot {what} {id}; nothing was changed", hint=hint)

    def _task(self, run: Run, name: str) -> TaskState:
        if name not in run.tasks:
            raise NotFound(f"{run.id} has no task {name!r}", hint=f"it has {', '.join(run.tasks) or 'none'}")
        return run.tasks[name]

    def _check_not_done(self, run: Run, task: str) -> None:
        if self._task(run, task).status.is_done:
            raise InvalidInput(f"{task} is {run.tasks[task].status}", hint=f"`maos rollback {run.id}` can undo it")

    async def _apply(self, run: Run, command: Command | PlanProposed, expected: int | None = None) -> Run:
        """Have a command applied and return the run as it is then: by the engine that executes it, else here."""
        await self._check_claimable(run)
        version = await self._request(run.id, command, expected)
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

    async def wake(self, id: str) -> bool:
        """Have a run start agents of all kinds again now, whatever limit or login they wait for; False when none
        waits."""
        run = await self.get(id)
        if run.wakes_us <= self._clock.now_us() and not run.blocked:
            return False
        await self._request(id, WakeRequested(**self._stamp()))
        return True

    async def ask(self, id: str, question: str, *, key: str, asked_by: str, **more: Any) -> None:
        """Ask a person a question; the same `key` asks once, also when an agent asks again after a crash."""
        who = self._journal.principal
        who.check_may_write_for(asked_by, "ask a question as")
        if who.is_agent:
            await self._check_own_run(who, id, "ask a question in")
        asked = QuestionAsked(id=key, question=question, asked_by=[asked_by], at_us=self._clock.now_us(), **more)
        once = Key(f"ask/{id}/{asked_by}/{key}", hashlib.sha256(question.encode()).digest())
        await self._journal.append_all([Append(inbox(id), [asked])], key=once)

    async def answer(self, id: str, question: str, answer: str) -> None:
        """Answer a question of a run, also while no engine executes it; Answered when another answer came first."""
        await questions.answer(self._journal, self._clock, await self.get(id), question, answer)

    async def _request(self, id: str, command: Command | PlanProposed, expected: int | None = None) -> int:
        is_plan = isinstance(command, PlanProposed)
        act = "change the plan of" if is_plan else command.type.removesuffix("_requested")
        self._journal.principal.check_may_decide(f"{act} {id}")
        written = await self._journal.append_all([Append(inbox(id), [command]), *while_at(id, expected)])
        return written.versions[0]

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
            await recorder.append(RunRemoved(**self._stamp()))
        return removal

    async def keep(self, id: str, why: str = "") -> bool:
        """Pin a run: no cleanup removes anything of it; False when it was pinned already."""
        self._journal.principal.check_may_decide(f"pin {id}")
        if (await permanent(self._journal)).get((await self.get(id)).id) == why:
            return False
        await self._journal.append(PERMANENT, PinAdded(run=id, why=why, **self._stamp()))
        return True

    async def unkeep(self, id: str) -> bool:
        """Unpin a run: cleanups treat it like any other again; False when it was not pinned."""
        self._journal.principal.check_may_decide(f"unpin {id}")
        if (await self.get(id)).id not in await permanent(self._journal):
            return False
        await self._journal.append(PERMANENT, PinRemoved(run=id, **self._stamp()))
        return True

    async def clean_up(self, *, older_than_days: float | None = None, dry_run: bool = False) -> Cleanup:
        """Remove the worktrees of runs that ended long ago: as the settings say, or than so many days.

        Those of runs that can be resumed are removed after a longer time, and created again when they are.
        """
        if not dry_run:
            self._journal.principal.check_may_decide("remove worktrees")
        now_us = self._clock.now_us()
        rule_of = cleanup.by_policy(self._attempts.settings.values.cleanup, now_us)
        if older_than_days is not None:
            rule_of = cleanup.older_than(older_than_days, self._attempts.settings.values.cleanup, now_us)
        return await self._cleaner.clean_up(rule_of, by=self._journal.by, dry_run=dry_run)

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


def _check_limits(limits: Limits) -> None:
    """InvalidInput when nothing is changed, or to something that is no limit."""
    if not limits.given:
        raise InvalidInput("nothing is to be changed", hint="name a limit: money, tokens, time or concurrency")
    for name, value in limits.given.items():
        if not math.isfinite(value) or value < 0:
            raise InvalidInput(f"{name} cannot be {value}", hint="a limit is a number from 0 on; 0 is no limit")
    if limits.concurrency is not None and not 1 <= limits.concurrency <= CONCURRENCY_MAX:
        raise InvalidInput(f"{limits.concurrency} agents cannot work at once", hint=f"give 1 to {CONCURRENCY_MAX}")
