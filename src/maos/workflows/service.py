"""The workflow runs of one database: started, resumed, sent commands from any process, and listed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, overload

from maos.bus.mailbox import Mailbox
from maos.clock import MICROSECONDS, Clock
from maos.engine import consent
from maos.engine.ownership import Held
from maos.engine.recorder import LEASE_S
from maos.engine.streams import SCHEDULES, WORKFLOW_RUN, RunReader, WorkflowReader
from maos.errors import Conflict, Corrupt, InvalidInput, LeaseLost, NotFound
from maos.journal.journal import Append, Journal
from maos.model import workflow as model
from maos.model.events.commands import CancelRequested, Command, PauseRequested, ResolveRequested, SignalSent
from maos.model.events.records import ScheduleRemoved
from maos.model.events.run import QuestionAnswered
from maos.model.events.workflow import StepCompleted, StepRetried, StepStarted, StepUnknown
from maos.model.message import inbox
from maos.model.workflow import Schedule, Step, WorkflowChanged, WorkflowRun, stream
from maos.runs.cleanup import Cleaner, Removal
from maos.store.contract import Key
from maos.workflows import children, record, schedules, values
from maos.workflows.definition import Handle, NotWaiting, StartRequest, Workflow, find, result_of
from maos.workflows.engine import REFUSE, WorkflowEngine
from maos.workflows.schedules import Load
from maos.workflows.status import Status, WorkflowPreview, WorkflowRetry

if TYPE_CHECKING:
    from maos.engine.attempts import Attempts

R = TypeVar("R")

NO_VERSION = -1
"""No stream is ever at this version: an append that expects it is refused, unless its key repeats an earlier one."""
ACTS: Mapping[type[Command | QuestionAnswered], str] = {
    SignalSent: "send a signal to",
    QuestionAnswered: "answer a question of",
    ResolveRequested: "resolve a step of",
    CancelRequested: "cancel",
    PauseRequested: "pause",
}
"""What each command does to a workflow run, in words."""


class Workflows(WorkflowReader):
    """Starts, resumes, commands and lists the workflow runs of one database."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        *,
        mailbox: Mailbox,
        attempts: Callable[[], Attempts],
        lease_s: float = LEASE_S,
        checkpoints: Mapping[str, Any] | None = None,
    ) -> None:
        self._checkpoints = dict(checkpoints or {})
        """The checkpoint policy of runs that are started without one."""
        super().__init__(journal)
        self._clock = clock
        self._attempts = attempts
        self._engine = WorkflowEngine(
            journal, clock, mailbox=mailbox, stop=self._stop, attempts=attempts, lease_s=lease_s
        )

    # --- running ---------------------------------------------------------------------------------------------

    async def run(self, workflow: Workflow[..., R], /, *args: Any, id: str = "", **kwargs: Any) -> R:
        """Run a workflow to its end and return its result; under an `id` that exists, resume that one.

        While another process executes it, this waits for its end, and resumes it when that process has exited.

        Example::

            print(await m.workflows.run(shout, "hello", id="greeting-1"))
        """
        while True:
            try:
                return await (await self.start(workflow, *args, id=id, **kwargs)).result()
            except Held:
                run = await WORKFLOW_RUN.load(self._journal, id)
                if run is not None and run.status != model.RUNNING:
                    return result_of(run, workflow)
            await asyncio.sleep(children.HELD_S)

    async def start(
        self,
        workflow: Workflow[..., R],
        /,
        *args: Any,
        id: str = "",
        options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Handle[R]:
        """Start a workflow, or resume the one of that id; on disk when this returns.

        `options`: `{"checkpoints": {"frequency": "every_n_steps", "every": 10}}` says how often outcomes are written,
        in place of the settings.

        Example::

            handle = await m.workflows.start(shout, "hello")
            print(handle.id, await handle.result())
        """
        return await self.start_with(workflow, args, kwargs, id=id, options=options)

    async def start_with(
        self,
        workflow: Workflow[..., R],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        id: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> Handle[R]:
        """Start as `start` does, with arguments as data: those of the function may have any names, also `id`.

        Example::

            handle = await m.workflows.start_with(shout, ["hello"], {}, id="greeting-2")
        """
        default = {"checkpoints": self._checkpoints} if self._checkpoints else {}
        return await self._engine.start(StartRequest(workflow, args, kwargs, id, {**default, **(options or {})}))

    async def create_with(
        self,
        workflow: Workflow[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        id: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """Record a run of a workflow without executing it, and return its id; `serve` in any process executes it.

        Example::

            id = await m.workflows.create_with(shout, ["hello"], {})
        """
        default = {"checkpoints": self._checkpoints} if self._checkpoints else {}
        return await self._engine.create(StartRequest(workflow, args, kwargs, id, {**default, **(options or {})}))

    @overload
    async def resume(
        self, id: str, *, workflow: Workflow[..., R], on_change: str = ..., trust: bool = ...
    ) -> Handle[R]: ...
    @overload
    async def resume(
        self, id: str, *, workflow: Workflow[..., Any] | None = ..., on_change: str = ..., trust: bool = ...
    ) -> Handle[Any]: ...

    async def resume(
        self, id: str, *, workflow: Workflow[..., Any] | None = None, on_change: str = REFUSE, trust: bool = False
    ) -> Handle[Any]:
        """Resume a workflow that was interrupted or paused; of one that has ended, the handle has only the result.

        Its definition is found by name and version. One whose code has changed since is refused, unless `on_change` is
        "replay": then it is resumed with the new code as long as that executes the steps that are recorded. `trust`
        says that a person has seen what a workflow that came with a file would do, and agrees.

        Example::

            handle = await m.workflows.resume("greeting-1", workflow=shout)
        """
        known = await self.get(id)
        if trust:
            await consent.agree(self._journal, self._clock, id)
        async with self._engine.turn(known.id):
            return await self._engine.resume(known, workflow or find(known.name, known.definition), on_change)

    async def needs_consent(self, id: str, *, refuse: bool = False) -> bool:
        """Whether a workflow came with a file and a person has yet to agree to it; with `refuse`, raise NotAgreed."""
        if refuse:
            await consent.check(self._journal, id)
        return bool(await consent.waits(self._journal, id))

    async def resume_all(
        self, *, on_change: str = REFUSE, tell: Callable[[str], None] | None = None
    ) -> list[Handle[Any]]:
        """Resume every interrupted workflow of this database that this process has a definition for.

        One that cannot be read raises Corrupt; with `tell`, the message is passed to it instead.

        Example::

            for handle in await m.workflows.resume_all():
                print(handle.id, (await handle.wait()).status)
        """
        found = []
        async for name in self._journal.streams(stream("")):
            try:
                run = await WORKFLOW_RUN.load(self._journal, name.removeprefix(stream("")))
                handle = None if run is None else await self._resume_interrupted(run, on_change)
                found += [] if handle is None else [handle]
            except (NotFound, Conflict, LeaseLost, WorkflowChanged, consent.NotAgreed):
                continue  # another process has it, or its definition; or a person has yet to agree to it
            except Corrupt as error:
                if tell is None:
                    raise
                tell(f"{name} cannot be read: {error}")
        return found

    async def _resume_interrupted(self, run: WorkflowRun, on_change: str) -> Handle[Any] | None:
        """Resume a run unless it is paused or a child, which its parent resumes; end a child that was abandoned."""
        if not run.is_open or self._engine.handle(run.id) is not None:
            return None
        parent = await WORKFLOW_RUN.load(self._journal, run.parent) if run.parent else None
        if parent and (not parent.is_open or run.id in children.names(parent, model.CHILD, model.ABANDONED)):
            await self._end(run.id, f"{run.parent} does not wait for it any more")
        if run.parent or run.removed_us or (run.status == model.PAUSED and not run.is_retry_due):
            return None
        definition = find(run.name, run.definition)
        if self._engine.is_unfit(run, definition):
            return None
        async with self._engine.turn(run.id):
            return await self._engine.resume(run, definition, on_change, even_paused=False)

    async def close(self) -> None:
        """Detach from every run that this process executes; each can be resumed. `m.close()` does it too.

        Example::

            await m.workflows.close()
        """
        await self._engine.close()

    # --- schedules -------------------------------------------------------------------------------------------

    async def schedule(
        self, name: str, cron: str, workflow: Workflow[..., Any], *args: Any, zone: str = "UTC", **kwargs: Any
    ) -> Schedule:
        """Schedule a workflow; `serve` starts it at its times.

        Example::

            await m.workflows.schedule("nightly", "0 3 * * *", shout, "hello", zone="Europe/Berlin")
        """
        return await self.schedule_with(name, cron, workflow, args, kwargs, zone=zone)

    async def schedule_with(
        self,
        name: str,
        cron: str,
        workflow: Workflow[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        zone: str = "UTC",
    ) -> Schedule:
        """Schedule as `schedule` does, with arguments as data."""
        self._journal.principal.check_may_decide(f"schedule {name}")
        schedules.check(name, cron, zone)
        made = Schedule(
            name=name,
            cron=cron,
            zone=zone,
            workflow=workflow.name,
            definition=workflow.version,
            arguments=values.arguments(workflow.function, args, kwargs, workflow.name, self._journal.codec),
            where=workflow.where,
            by=self._journal.by,
            set_us=self._clock.now_us(),
        )
        await self._journal.append(SCHEDULES.stream(schedules.NAME), made)
        return made

    async def unschedule(self, name: str, *, dry_run: bool = False) -> None:
        """Remove a schedule; with `dry_run`, only check that there is one.

        Example::

            await m.workflows.unschedule("nightly")
        """
        self._journal.principal.check_may_decide(f"remove the schedule {name}")
        while True:
            known = await SCHEDULES.load(self._journal, schedules.NAME)
            if known is None or name not in known.known:
                raise NotFound(f"there is no schedule {name!r}", hint="`maos workflow schedule list` shows them")
            if dry_run:
                return
            event = ScheduleRemoved(name=name, by=self._journal.by, at_us=self._clock.now_us())
            try:
                await self._journal.append(SCHEDULES.stream(schedules.NAME), event, expected=known.version)
                return
            except Conflict:
                continue  # another process has changed one of them

    async def schedules(self) -> dict[str, Schedule]:
        """All schedules, by name.

        Example::

            print(list(await m.workflows.schedules()))
        """
        return await schedules.all_of(self._journal)

    async def upcoming(self) -> list[tuple[Schedule, datetime | None]]:
        """All schedules, each with the time at which it starts a workflow next."""
        now_us = self._clock.now_us()
        return [(each, schedules.next_time(each, now_us)) for each in (await self.schedules()).values()]

    async def serve(self, *, tell: Callable[[str], None] = print, load: Load | None = None) -> None:
        """Start what is due and resume what was interrupted, until cancelled; any number of processes may.

        What is wrong with one is passed to `tell`, and the others are served. `load` finds the workflow of a schedule;
        without it, it has to be defined in this process.

        Example::

            serving = asyncio.create_task(m.workflows.serve())
            serving.cancel()
        """
        start, resume = self.start_with, self.resume_all
        await schedules.serve(self._journal, self._clock, start=start, resume=resume, tell=tell, load=load)

    # --- queries ---------------------------------------------------------------------------------------------

    async def get(self, id: str) -> WorkflowRun:
        """A workflow run by its id.

        Example::

            run = await m.workflows.get("greeting-1")
            print(run.status, run.result)
        """
        return await record.find_run(self._journal, id)

    async def status(self, id: str) -> Status:
        """The status of a workflow run: "interrupted" when it is recorded as running and its process has ended.

        Example::

            print((await m.workflows.status("greeting-1")).name)
        """
        return Status.of(await self.get(id))

    async def notices(self, id: str, *, after: int = 0) -> AsyncIterator[StepStarted | StepUnknown | StepRetried]:
        """What a person who watches a workflow run should know, from a version of its stream on, as it happens: a step
        waits for a signal or an answer, may or may not have taken effect, or is retried."""
        async for each in self._journal.follow_stream(stream(id), after=after):
            is_begun = isinstance(each.event, StepStarted) and each.event.kind in (model.GATE, model.SIGNAL)
            if is_begun or isinstance(each.event, StepUnknown | StepRetried):
                yield each.event

    async def preview(
        self, id: str, *, workflow: Workflow[..., Any] | None = None, on_change: str = REFUSE
    ) -> WorkflowPreview:
        """What `resume` would do with a workflow run; its definition is found by name if it is not given.

        Example::

            print([(each.step_id, each.next) for each in (await m.workflows.preview("order-7")).pending])
        """
        run = await self.get(id)
        if workflow is None:
            with contextlib.suppress(NotFound):
                workflow = find(run.name, run.definition)
        commands = [each.event async for each in self._journal.read(inbox(id), after=run.inbox_cursor)]
        resolved = {each.step_id for each in commands if isinstance(each, ResolveRequested)}
        return WorkflowPreview.of(run, workflow, on_change, resolved)

    async def old(self, seconds: float) -> list[str]:
        """Workflow runs that ended so long ago, were not compacted yet, and are not pinned.

        Example::

            print(await m.workflows.old(30 * 86_400))
        """
        before_us = self._clock.now_us() - int(seconds * MICROSECONDS)
        ended = [run async for run in self.all() if not run.is_open and run.ended_us < before_us]
        return [run.id for run in ended if run.steps and not run.options.get("permanent")]

    async def list(self, status: str = "") -> list[Status]:
        """The status of all workflow runs, or of those that have a status now, by id.

        Example::

            for each in await m.workflows.list():
                print(each.run.id, each.name)
        """
        found = [Status.of(run) async for run in self.all()]
        return [each for each in found if status in ("", each.name)]

    async def forget(self, ids: Iterable[str]) -> int:
        """Remove the steps of workflow runs that have ended; their results stay. How many events were removed.

        Example::

            await m.workflows.forget(await m.workflows.old(30 * 86_400))
        """
        self._journal.principal.check_may_decide("remove the steps of workflow runs")
        removed = 0
        for id in ids:
            run = await self.get(id)
            if run.is_open:
                raise InvalidInput(f"the workflow {id} has not ended", hint="cancel it first")
            removed += await record.compact(self._journal, run)
        return removed

    # --- commands --------------------------------------------------------------------------------------------

    async def signal(self, id: str, name: str, value: Any = None, *, key: str | None = None) -> None:
        """Send a workflow run a signal that it waits for, or will wait for; with a `key`, a repeated call sends
        nothing.

        Example::

            await m.workflows.signal("order-7", "paid", {"amount": 7})
        """
        value = values.plain(value, f"the signal {name}", self._journal.codec)
        once = None if key is None else Key(f"signal/{id}/{key}", values.fingerprint({"name": name, "value": value}))
        await self._send(id, SignalSent(name=name, value=value, by=self._journal.by, at_us=self._clock.now_us()), once)

    async def answer(self, id: str, step_id: str, answer: str) -> None:
        """Answer a question of a workflow run; the first answer counts.

        Example::

            for step_id in (await m.workflows.get("order-7")).waiting:
                await m.workflows.answer("order-7", step_id, "yes")
        """
        run = await self.get(id)
        questions = {each: step for each, step in run.waiting.items() if step.kind == model.GATE}
        if (step := questions.get(step_id)) is None:
            raise _not_waiting(run, f"the workflow {run.id} asks nothing at {step_id!r}", questions)
        choices = step.about.get("choices", [])
        if choices and answer not in choices:
            raise InvalidInput(f"{answer!r} is no answer to {step.name!r}", hint=f"answer {', '.join(choices)}")
        by, at_us = self._journal.by, self._clock.now_us()
        await self._send(id, QuestionAnswered(id=step_id, answer=answer, by=by, at_us=at_us))

    async def resolve(self, id: str, step_id: str, outcome: str, *, value: Any = None, why: str = "") -> None:
        """Resolve a step whose outcome is unknown: "done" with its result, "failed", or execute it "again".

        Example::

            for step_id in (await m.workflows.get("order-7")).unknown:
                await m.workflows.resolve("order-7", step_id, "again")
        """
        if outcome not in ("done", "failed", "again"):
            raise InvalidInput(f"an outcome cannot be {outcome!r}", hint="say done, failed or again")
        run = await self.get(id)
        step = run.steps.get(step_id)
        if step is None or step.kind != model.STEP or step.status not in (model.UNKNOWN, model.STARTED):
            raise _not_waiting(run, f"there is nothing to resolve at {step_id!r} of the workflow {run.id}", run.unknown)
        value = values.plain(value, "the result", self._journal.codec)
        command = ResolveRequested(
            step_id=step_id,
            tries=step.tries,
            outcome=outcome,
            value=value,
            why=why,
            by=self._journal.by,
            at_us=self._clock.now_us(),
        )
        await self._send(id, command)

    async def cancel(self, id: str, *, why: str = "") -> None:
        """End a workflow run when its current steps have ended; at once, and without its code, if no process executes
        it.

        Example::

            await m.workflows.cancel("order-7")
        """
        await self._send(id, CancelRequested(why=why, by=self._journal.by, at_us=self._clock.now_us()))
        await self._end(id, why)

    async def _end(self, id: str, why: str) -> None:
        """End a run that no process executes, with its children and agents."""
        if self._engine.handle(id) is not None:
            return
        async with self._engine.turn(id):
            if self._engine.handle(id) is not None:  # it was resumed here meanwhile
                return
            run = await self._engine.end(id, why)
        if run is None:
            return
        for child in [each.id async for each in self.all() if each.parent == id and each.is_open]:
            await self.cancel(child, why=f"{id} was {model.CANCELLED}")
        for name in children.names(run, model.AGENT, model.STARTED, model.ABANDONED):
            await children.stop_agent(self._attempts(), name)
        async with self._engine.turn(id):
            await self._engine.free(id)

    async def retry(self, id: str, *, step: str = "", dry_run: bool = False) -> WorkflowRetry:
        """Have a workflow run that failed or was cancelled executed again: by `resume`, or by a process that serves.

        Steps with an outcome are kept, but for those that failed last; the code may be corrected meanwhile, also of the
        workflow's function, as long as it executes the steps that are kept. With `step`, that one and all that follow
        it are executed again, finished ones too.

        Example::

            retry = await m.workflows.retry("order-7", dry_run=True)
            print(retry.again, retry.kept)
        """
        self._journal.principal.check_may_decide(f"retry {id}")
        run = await self.get(id)
        chosen = WorkflowRetry.of(run, step)
        if dry_run:
            return chosen
        await consent.check(self._journal, run.id)
        async with self._engine.turn(run.id):
            await self._engine.retry(run.id, lambda now: WorkflowRetry.of(now, step).again)
        return chosen

    async def skip(self, id: str, step: str, *, value: Any = None) -> WorkflowRetry:
        """Have a workflow run that failed executed again as if a step that failed had returned a value.

        Example::

            await m.workflows.skip("order-7", "3", value={"receipt": 12})
        """
        self._journal.principal.check_may_decide(f"skip a step of {id}")
        run = await self.get(id)
        chosen = _with_failed_step(run, step)
        known = run.steps[step]
        done = StepCompleted(
            step_id=step,
            kind=known.kind,
            name=known.name,
            result=values.plain(value, "the result", self._journal.codec),
            by=self._journal.by,
            at_us=self._clock.now_us(),
        )
        await consent.check(self._journal, run.id)
        async with self._engine.turn(run.id):
            await self._engine.retry(run.id, lambda now: _with_failed_step(now, step).again, done)
        return chosen

    async def remove(self, id: str, *, dry_run: bool = False) -> Removal:
        """Omit a workflow run that is not executed from lists, with its children, and remove the worktrees of its
        agents. Its events stay.

        InvalidInput when a worktree has changes that no checkpoint has; `dry_run` shows all of that, and changes
        nothing.

        Example::

            removal = await m.workflows.remove("greeting-1", dry_run=True)
            print(removal.worktrees)
        """
        self._journal.principal.check_may_decide(f"remove {id}")
        run = await self.get(id)
        if run.removed_us:
            raise InvalidInput(f"{id} was removed already", hint="`maos workflow list` lists the others")
        parts = [each async for each in self._parts_of(run)]
        for each in parts:
            if Status.of(each).name == model.RUNNING:
                raise InvalidInput(f"{each.id} is being executed", hint=f"`maos cancel {each.id}` ends it")
        cleaner = Cleaner(self._clock, RunReader(self._journal), self._attempts())
        agents = [name for each in parts for name in children.names(each, model.AGENT)]
        removal = await (cleaner.removal_of if dry_run else cleaner.remove_agents)(run.id, agents)
        for each in parts if not dry_run else ():
            async with self._engine.turn(each.id):
                await self._engine.remove(each.id)
        return removal

    async def _parts_of(self, run: WorkflowRun) -> AsyncIterator[WorkflowRun]:
        """The children of a workflow run, and theirs, and then itself."""
        for name in children.names(run, model.CHILD):
            child = await WORKFLOW_RUN.load(self._journal, name)
            if child is not None and child.parent == run.id and not child.removed_us:
                async for each in self._parts_of(child):
                    yield each
        yield run

    async def pause(self, id: str, *, why: str = "") -> None:
        """Have the process that executes a workflow run pause it, once its current steps have ended.

        Example::

            await m.workflows.pause("order-7")
        """
        await self._send(id, PauseRequested(why=why, by=self._journal.by, at_us=self._clock.now_us()))

    async def _stop(self, id: str, status: str, why: str) -> None:
        if (handle := self._engine.handle(id)) is not None:
            handle.stop(status, why, by="")  # its parent does not need it: the engine stops it
            await handle.wait()
            return
        with contextlib.suppress(NotFound, NotWaiting):  # it was never begun, or has ended
            await (self.cancel(id, why=why) if status == model.CANCELLED else self.pause(id, why=why))

    async def _send(self, id: str, command: Command | QuestionAnswered, key: Key | None = None) -> None:
        """Append a command to the inbox of a run; one that has ended accepts only the repetition of a key."""
        self._journal.principal.check_may_decide(f"{ACTS[type(command)]} {id}")
        run = await self.get(id)
        if run.is_open:
            await self._journal.append_all([Append(inbox(id), [command])], key=key)
            return
        closed = NotWaiting(f"the workflow {id} is {run.status}", hint="it accepts no more commands")
        if key is None:
            raise closed
        try:
            await self._journal.append_all([Append(inbox(id), [command], NO_VERSION)], key=key)
        except Conflict as error:
            raise closed from error


def _with_failed_step(run: WorkflowRun, step: str) -> WorkflowRetry:
    """What a retry executes again; NotWaiting unless a step is among it."""
    chosen = WorkflowRetry.of(run)
    if step not in chosen.again:
        failed = {each: run.steps[each] for each in chosen.again}
        raise _not_waiting(run, f"there is no failed step {step!r} to skip", failed)
    return chosen


def _not_waiting(run: WorkflowRun, what: str, open_: Mapping[str, Step]) -> NotWaiting:
    there = ", ".join(f"{step_id} ({step.name})" for step_id, step in open_.items())
    return NotWaiting(what, hint=f"open now: {there}" if there else f"`maos workflow show {run.id}` shows its status")
