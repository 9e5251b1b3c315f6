"""Workflows in a journal: started, looked at, spoken to from anywhere, and gone on with after anything."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from maos.clock import MICROSECONDS, Clock
from maos.engine import consent, ownership
from maos.engine.claims import Held, claim
from maos.engine.post import Post
from maos.engine.recorder import LEASE_S, Recorder
from maos.engine.types import WORKFLOW_RUN
from maos.errors import Conflict, Corrupt, InvalidInput, LeaseLost, NotFound
from maos.journal.codec import Event
from maos.journal.journal import Append, Journal
from maos.model.attempt import check_agent, check_run, inbox
from maos.model.schedule import Schedule
from maos.model.workflow import (
    AGENT,
    CANCELLED,
    CHANGED,
    COMPLETED,
    GATE,
    LEFT,
    PAUSED,
    RUNNING,
    STARTED,
    STEP,
    UNKNOWN,
    WorkflowRun,
    stream,
)
from maos.store.contract import Key, Lease
from maos.workflows import elsewhere, forgetting, schedules, values
from maos.workflows.definition import Workflow, find
from maos.workflows.errors import NotWaiting, WorkflowChanged, WorkflowFailed
from maos.workflows.policy import CheckpointPolicy
from maos.workflows.running import WorkflowExecution
from maos.workflows.schedules import Load

if TYPE_CHECKING:
    from maos.engine.attempts import Attempts

R = TypeVar("R")

REFUSE, REPLAY = "refuse", "replay"
FOLLOW_S = 0.25
"""How often one that another process runs is looked at."""
MAIL_S = 0.01
"""How long mail may lie: looking for it after every commit would cost a quarter of what a step does."""


class Handle:
    """A workflow that this process runs."""

    def __init__(self, running: WorkflowExecution, task: asyncio.Future[WorkflowRun]) -> None:
        self._running = running
        self._task = task

    @property
    def id(self) -> str:
        """Its id."""
        return self._running.id

    @property
    def flow(self) -> WorkflowRun:
        """What is recorded of it by now."""
        return self._running.flow

    async def wait(self) -> WorkflowRun:
        """Until it has ended or is paused."""
        return await asyncio.shield(self._task)

    async def result(self) -> Any:
        """What it returns; WorkflowFailed when it fails or is cancelled."""
        return _result(await self.wait(), self._running.definition)

    async def pause(self, why: str = "") -> WorkflowRun:
        """Have the steps that run end, and let go of it; it can be gone on with at any time."""
        self.let_go(PAUSED, why)
        return await self.wait()

    def let_go(self, leaving: str, why: str) -> None:
        """Have it paused, or ended as cancelled, once the steps that run have ended."""
        self._running.let_go(leaving, why)


class Workflows:
    """Runs workflows, and knows them all."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        *,
        attempts: Callable[[], Attempts],
        lease_s: float = LEASE_S,
        checkpoints: Mapping[str, Any] | None = None,
    ) -> None:
        self._checkpoints = dict(checkpoints or {})
        """How often those are made safe that nobody said anything else of."""
        self._journal = journal
        self._clock = clock
        self._attempts = attempts
        self._lease_s = lease_s
        self._post = Post(journal, rest_s=MAIL_S)
        self._tasks: dict[str, asyncio.Task[WorkflowRun]] = {}
        self._running: dict[str, WorkflowExecution] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._unfit: dict[str, str] = {}
        """Workflows that made other calls than before when this process ran them last, and with which code."""
        self.threads: WeakValueDictionary[str, asyncio.Task[Any]] = WeakValueDictionary()
        """Those of plain functions that are at work as steps, by the keys of their calls."""

    @property
    def journal(self) -> Journal:
        """Where they are recorded."""
        return self._journal

    # --- running ---------------------------------------------------------------------------------------------

    async def run(self, workflow: Workflow[..., R], /, *args: Any, id: str = "", **kwargs: Any) -> R:
        """Run a workflow to its end and return its result; under an `id` that exists, go on with that one.

        While another process runs it, its end is waited for here, and taken over when that process is gone.

        Example::

            print(await m.workflows.run(shout, "hello", id="greeting-1"))
        """
        while True:
            try:
                result: R = await (await self.start(workflow, *args, id=id, **kwargs)).result()
                return result
            except Held:
                flow = await WORKFLOW_RUN.load(self._journal, id)
                if flow is not None and flow.status != RUNNING:
                    ended: R = _result(flow, workflow)
                    return ended
            await asyncio.sleep(FOLLOW_S)

    async def start(
        self,
        workflow: Workflow[..., Any],
        /,
        *args: Any,
        id: str = "",
        options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Handle:
        """Begin a workflow, or go on with the one of that id; on disk when this returns.

        `options`: `{"checkpoints": {"frequency": "every_n_steps", "every": 10}}` says how often it is made safe, in the
        place of the settings.

        Example::

            handle = await m.workflows.start(shout, "hello")
            print(handle.id, await handle.result())
        """
        return await self.start_with(workflow, args, kwargs, id=id, options=options)

    async def start_with(
        self,
        workflow: Workflow[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        id: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> Handle:
        """The same, with arguments as data: those of the function may have any names, also `id`.

        Example::

            handle = await m.workflows.start_with(shout, ["hello"], {}, id="greeting-2")
        """
        default = {"checkpoints": self._checkpoints} if self._checkpoints else {}
        return await self._start(workflow, tuple(args), dict(kwargs), id, {**default, **(options or {})})

    async def _start(
        self,
        workflow: Workflow[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        id: str,
        options: dict[str, Any],
        parent: str = "",
        on_change: str = REFUSE,
        *,
        even_paused: bool = True,
    ) -> Handle:
        CheckpointPolicy.of(options)
        id = check_agent(id) if id else f"w-{secrets.token_hex(3)}"
        arguments = values.plain({"args": list(args), "kwargs": kwargs}, f"an argument of {workflow.name}")
        values.given(workflow.function, arguments, workflow.name)
        async with self._turn(id):
            return await self._begin(workflow, arguments, id, options, parent, on_change, even_paused)

    @asynccontextmanager
    async def _turn(self, id: str) -> AsyncIterator[None]:
        """One after the other in this process: to the store, both would be the same owner of a lease."""
        turn = self._turns.setdefault(id, asyncio.Lock())
        async with turn:
            yield

    async def _begin(
        self,
        workflow: Workflow[..., Any],
        arguments: dict[str, Any],
        id: str,
        options: dict[str, Any],
        parent: str,
        on_change: str,
        even_paused: bool,
    ) -> Handle:
        known: WorkflowRun | Lease | None = await WORKFLOW_RUN.load(self._journal, id)
        if known is None:
            if not parent:
                check_run(id)
            known = await self._claim_new(id)
        if isinstance(known, WorkflowRun):
            if (known.name, known.arguments) != (workflow.name, arguments):
                raise InvalidInput(
                    f"there is a workflow {id!r} already, a {known.name} with other arguments", hint="use another id"
                )
            if known.parent != parent:
                raise InvalidInput(f"there is a workflow {id!r} already, of another parent", hint="use another id")
            if known.definition != workflow.version:  # what was begun with one is finished with it
                workflow = find(known.name, known.definition)
            return await self._go_on(known, workflow, on_change, even_paused=even_paused)
        lease = known
        try:
            recorder = Recorder(self._journal, WORKFLOW_RUN, WorkflowRun(id=id), lease, lease_s=self._lease_s)
            data = {
                "name": workflow.name,
                "definition": workflow.version,
                "code": workflow.code,
                "arguments": arguments,
                "options": {**options, "where": workflow.where},
                "parent": parent,
                "owner": ownership.identity(lease),
                "at_us": self._clock.now_us(),
            }
            await recorder.append(Event("workflow_started", data))
        except BaseException:
            await self._journal.release(lease)
            raise
        return await self._watch(recorder, workflow)

    async def resume(self, id: str, *, workflow: Workflow[..., Any] | None = None, on_change: str = REFUSE) -> Handle:
        """Go on with a workflow that was interrupted or paused; one that has ended only tells its result.

        Its definition is found by name and version. One whose code has changed since is refused, unless `on_change` is
        "replay": then it goes on with the new code as long as that makes the calls that were made.

        Example::

            handle = await m.workflows.resume("greeting-1", workflow=shout)
        """
        known = await self.get(id)
        async with self._turn(known.id):
            return await self._go_on(known, workflow or find(known.name, known.definition), on_change)

    async def resume_all(self, *, on_change: str = REFUSE, tell: Callable[[str], None] | None = None) -> list[Handle]:
        """Go on with every workflow of this database that nobody runs, and that this process has a definition for.

        One that cannot be read raises Corrupt; with `tell`, it is told instead.

        Example::

            for handle in await m.workflows.resume_all():
                print(handle.id, (await handle.wait()).status)
        """
        found = []
        async for name in self._journal.streams(stream("")):
            try:
                flow = await WORKFLOW_RUN.load(self._journal, name.removeprefix(stream("")))
                if flow is None or not flow.is_open or flow.id in self._tasks:
                    continue
                if await self._is_left(flow):
                    async with self._turn(flow.id):
                        await self._end(flow.id, f"{flow.parent} wants it no more")
                    continue
                if flow.parent or flow.status == PAUSED:
                    continue
                definition = find(flow.name, flow.definition)
                if flow.status == CHANGED and self._unfit.get(flow.id) == definition.code:
                    continue  # it would make other calls once more
                async with self._turn(flow.id):
                    found.append(await self._go_on(flow, definition, on_change, even_paused=False))
            except (NotFound, Conflict, LeaseLost, WorkflowChanged, consent.NotAgreed):
                continue  # another process has it, or its definition; or a person has yet to agree to it
            except Corrupt as error:
                if tell is None:
                    raise
                tell(f"{name} cannot be read: {error}")
        return found

    async def _is_left(self, flow: WorkflowRun) -> bool:
        """Whether it is a child that its parent waits for no more; otherwise the parent takes it up."""
        parent = await WORKFLOW_RUN.load(self._journal, flow.parent) if flow.parent else None
        return parent is not None and elsewhere.is_left(parent, flow.id)

    async def _go_on(
        self, known: WorkflowRun, workflow: Workflow[..., Any], on_change: str, *, even_paused: bool = True
    ) -> Handle:
        if known.id in self._tasks:
            return Handle(self._running[known.id], self._tasks[known.id])
        if on_change not in (REFUSE, REPLAY):
            raise InvalidInput(f"on_change cannot be {on_change!r}", hint=f"use {REFUSE} or {REPLAY}")
        if known.is_open and known.code != workflow.code and on_change == REFUSE:
            raise WorkflowChanged(
                f"the definition of {known.name} has changed since {known.id} was begun",
                hint="give it a new version= and keep the old one beside it; or go on with the new code where it "
                "makes the same calls (on_change='replay', `maos workflow resume --on-change replay`); "
                "`patched()` tells old ones from new",
            )
        if not known.is_open or (known.status == PAUSED and not even_paused):
            return self._ended(known, workflow)
        try:
            values.given(workflow.function, known.arguments, known.name)
        except InvalidInput as error:
            hint = "give it a new version= and keep the old one beside it, or let it take what the old one was given"
            raise WorkflowChanged(
                f"the definition of {known.name} does not fit what {known.id} was begun with: {error.what}", hint=hint
            ) from error
        await consent.check(self._journal, known.id)
        lease = await self._claim(known.id, known)
        overruled = await self._journal.version(inbox(known.id)) if even_paused else 0
        try:
            fresh = await self.get(known.id)
            if not fresh.is_open:  # whoever had it was faster
                await self._journal.release(lease)
                return self._ended(fresh, workflow)
            code_before = fresh.code
            recorder = Recorder(self._journal, WORKFLOW_RUN, fresh, lease, lease_s=self._lease_s)
            taken = {"owner": ownership.identity(lease), "code": workflow.code, "at_us": self._clock.now_us()}
            if overruled:
                taken["overruled"] = overruled
            await recorder.append(Event("workflow_claimed", taken))
        except BaseException:
            await self._journal.release(lease)
            raise
        return await self._watch(
            recorder, workflow, on_change=on_change, code_before=code_before, is_insisted=even_paused
        )

    def _ended(self, flow: WorkflowRun, workflow: Workflow[..., Any]) -> Handle:
        """One that only tells its result."""
        task: asyncio.Future[WorkflowRun] = asyncio.get_running_loop().create_future()
        task.set_result(flow)
        recorder = Recorder(self._journal, WORKFLOW_RUN, flow, ownership.lease_of(flow.owner))
        return Handle(WorkflowExecution(recorder, workflow, self._clock, workflows=self), task)

    async def _watch(self, recorder: Recorder[WorkflowRun], workflow: Workflow[..., Any], **how: Any) -> Handle:
        running = WorkflowExecution(recorder, workflow, self._clock, workflows=self, **how)
        self._running[running.id] = running
        await self._post.register(running.id, running.receive, after=running.flow.inbox_cursor)
        task = asyncio.create_task(self._run(running))
        self._tasks[running.id] = task
        await asyncio.sleep(0)  # a task that is cancelled before its first step would not give the lease back
        return Handle(running, task)

    async def _run(self, running: WorkflowExecution) -> WorkflowRun:
        try:
            flow = await running.run()
            if flow.status == CHANGED:
                self._unfit[flow.id] = running.definition.code
            return flow
        finally:
            self._post.forget(running.id)
            self._tasks.pop(running.id, None)
            self._running.pop(running.id, None)
            await self._journal.release(running.recorder.lease)

    async def _claim(self, id: str, known: WorkflowRun | None) -> Any:
        hint = f"`maos workflow show {id}` tells how it stands"
        is_open = known is not None and known.is_open
        return await claim(self._journal, self._clock, stream(id), known, is_open=is_open, hint=hint)

    async def _claim_new(self, id: str) -> Lease | WorkflowRun:
        """The right to begin one; or the one that another process has begun meanwhile."""

        async def look() -> WorkflowRun | None:
            return await WORKFLOW_RUN.load(self._journal, id)

        hint = f"`maos workflow show {id}` tells how it stands"
        try:
            lease = await claim(self._journal, self._clock, stream(id), None, is_open=True, hint=hint, look=look)
        except Held:
            if (begun := await look()) is None:
                raise
            return begun
        begun = await look()
        if begun is not None:
            await self._journal.release(lease)
        return begun or lease

    async def close(self) -> None:
        """Let go of everything that runs; it can be gone on with. `m.close()` does it too.

        Example::

            await m.workflows.close()
        """
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._post.close()

    # --- for running workflows -------------------------------------------------------------------------------

    async def start_child(
        self,
        parent: WorkflowExecution,
        workflow: Workflow[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        id: str,
    ) -> Handle:
        """Begin a child, or take it up."""
        return await self._start(
            workflow, args, kwargs, id, {}, parent.id, parent.on_change, even_paused=parent.is_insisted
        )

    def handle(self, id: str) -> Handle | None:
        """A workflow that this process runs."""
        return Handle(self._running[id], self._tasks[id]) if id in self._tasks else None

    async def stop_agent(self, name: str) -> None:
        """Have an agent stopped, if it is at work."""
        await elsewhere.stop(self._attempts(), name)

    async def execute_agent(self, parent: WorkflowExecution, step_id: str, task: str, given: dict[str, Any]) -> str:
        """Begin, take up or resume an agent, and wait for it."""
        name = elsewhere.name_of(parent.id, step_id)
        return await elsewhere.agent(self._attempts(), self._clock, name, task, given, parent)

    # --- by themselves ---------------------------------------------------------------------------------------

    async def schedule(
        self, name: str, cron: str, workflow: Workflow[..., Any], *args: Any, zone: str = "UTC", **kwargs: Any
    ) -> Schedule:
        """Have a workflow begin at times that come again; `serve` begins it.

        Example::

            await m.workflows.schedule("nightly", "0 3 * * *", shout, "hello", zone="Europe/Berlin")
        """
        return await schedules.put(self._journal, self._clock, name, cron, workflow, args, kwargs, zone)

    async def unschedule(self, name: str) -> None:
        """Have it begin no more.

        Example::

            await m.workflows.unschedule("nightly")
        """
        await schedules.remove(self._journal, self._clock, name)

    async def schedules(self) -> dict[str, Schedule]:
        """What begins by itself, by name.

        Example::

            print(list(await m.workflows.schedules()))
        """
        return await schedules.all_of(self._journal)

    async def serve(self, *, tell: Callable[[str], None] = print, load: Load | None = None) -> None:
        """Begin what is due and go on with what nobody runs, until cancelled; any number of processes may.

        What is wrong with one is told, and the others are served. `load` finds the workflow of a schedule; without it,
        it has to be defined in this process.

        Example::

            serving = asyncio.create_task(m.workflows.serve())
            serving.cancel()
        """
        await schedules.ScheduleServer(self, self._journal, self._clock, tell=tell, load=load).serve()

    # --- asking ----------------------------------------------------------------------------------------------

    async def get(self, id: str) -> WorkflowRun:
        """A workflow by its id.

        Example::

            flow = await m.workflows.get("greeting-1")
            print(flow.status, flow.result)
        """
        found = await WORKFLOW_RUN.load(self._journal, id)
        if found is None:
            raise NotFound(f"there is no workflow {id!r}", hint="`maos workflow list` shows them")
        return found

    async def all(self) -> AsyncIterator[WorkflowRun]:
        """All workflows, by id.

        Example::

            async for flow in m.workflows.all():
                print(flow.id, flow.status)
        """
        async for name in self._journal.streams(stream("")):
            found = await WORKFLOW_RUN.load(self._journal, name.removeprefix(stream("")))
            if found is not None:
                yield found

    async def old(self, seconds: float) -> list[str]:
        """Workflows that ended so long ago.

        Example::

            print(await m.workflows.old(30 * 86_400))
        """
        before_us = self._clock.now_us() - int(seconds * MICROSECONDS)
        return [flow.id async for flow in self.all() if forgetting.is_old(flow, before_us)]

    async def forget(self, ids: Iterable[str]) -> int:
        """Remove the calls of workflows that have ended; their results stay. How many events are gone.

        Example::

            await m.workflows.forget(await m.workflows.old(30 * 86_400))
        """
        gone = 0
        for id in ids:
            flow = await self.get(id)
            if flow.is_open:
                raise InvalidInput(f"the workflow {id} has not ended", hint="cancel it first")
            gone += await forgetting.forget(self._journal, flow)
        return gone

    # --- wishes ----------------------------------------------------------------------------------------------

    async def signal(self, id: str, name: str, value: Any = None, *, key: str | None = None) -> None:
        """Tell a workflow something it waits for, or will; a `key` makes repeating the call harmless.

        Example::

            await m.workflows.signal("order-7", "paid", {"amount": 7})
        """
        data = {"name": name, "value": values.plain(value, f"the signal {name}")}
        await self._wish(id, "signal_sent", data, key)

    async def answer(self, id: str, step_id: str, answer: str, *, by: str = "person") -> None:
        """Answer a question of a workflow; the first answer counts.

        Example::

            for place in (await m.workflows.get("order-7")).waiting:
                await m.workflows.answer("order-7", place, "yes")
        """
        flow = await self.get(id)
        call = flow.steps.get(step_id)
        if call is None or (call.kind, call.status) != (GATE, STARTED):
            raise _not_asked(flow, f"the workflow {flow.id} asks nothing at {step_id!r}", GATE)
        choices = call.about.get("choices", [])
        if choices and answer not in choices:
            raise InvalidInput(f"{answer!r} is no answer to {call.name!r}", hint=f"answer {', '.join(choices)}")
        await self._wish(flow.id, "question_answered", {"id": step_id, "answer": answer, "by": by})

    async def settle(self, id: str, step_id: str, outcome: str, *, value: Any = None, why: str = "") -> None:
        """Say what became of a step whose outcome is unknown: "done" with its result, "failed", or do it "again".

        Example::

            for place in (await m.workflows.get("order-7")).unknown:
                await m.workflows.settle("order-7", place, "again")
        """
        if outcome not in ("done", "failed", "again"):
            raise InvalidInput(f"an outcome cannot be {outcome!r}", hint="say done, failed or again")
        flow = await self.get(id)
        call = flow.steps.get(step_id)
        if call is None or call.kind != STEP or call.status not in (UNKNOWN, STARTED):
            raise _not_asked(flow, f"there is nothing to settle at {step_id!r} of the workflow {flow.id}", STEP)
        said = {"outcome": outcome, "value": values.plain(value, "the result"), "why": why}
        data = {"step_id": step_id, "tries": call.tries, **said}  # of a later try it says nothing
        await self._wish(flow.id, "resolve_requested", data)

    async def cancel(self, id: str, *, why: str = "") -> None:
        """End a workflow, when the steps that run have ended; one that nobody runs ends at once, without its code.

        Example::

            await m.workflows.cancel("order-7")
        """
        await self._wish(id, "cancel_requested", {"why": why})
        if id not in self._tasks:
            async with self._turn(id):
                await self._end(id, why)

    async def _end(self, id: str, why: str) -> None:
        """End one that nobody runs; what it was is of no matter, so its definition may be gone."""
        try:
            lease = await self._claim(id, await self.get(id))
        except Held:
            return  # whoever runs it has heard of it, or will
        try:
            flow = await self.get(id)
            if not flow.is_open:
                return
            ended = {"status": CANCELLED, "why": why, "inbox_version": await self._journal.version(inbox(id))}
            recorder = Recorder(self._journal, WORKFLOW_RUN, flow, lease, lease_s=self._lease_s)
            await recorder.append(Event("workflow_ended", {**ended, "at_us": self._clock.now_us()}))
        finally:
            await self._journal.release(lease)
        children = [each.id async for each in self.all() if each.parent == id and each.is_open]
        for each in children:
            await self.cancel(each, why=f"{id} was {CANCELLED}")
        for name in elsewhere.names(flow, AGENT, STARTED, LEFT):
            await self.stop_agent(name)

    async def pause(self, id: str, *, why: str = "") -> None:
        """Have whoever runs a workflow let go of it.

        Example::

            await m.workflows.pause("order-7")
        """
        await self._wish(id, "pause_requested", {"why": why})

    async def _wish(self, id: str, type_: str, data: dict[str, Any], key: str | None = None) -> None:
        flow = await self.get(id)
        ended = NotWaiting(f"the workflow {flow.id} is {flow.status}", hint="it cannot be told anything any more")
        if not flow.is_open and key is None:
            raise ended
        event = Event(type_, {**data, "at_us": self._clock.now_us()})
        once = None if key is None else Key(f"signal/{flow.id}/{key}", values.fingerprint(data))
        try:  # no stream is ever at version -1: of one that has ended, only a repetition is accepted
            await self._journal.append_all([Append(inbox(id), [event], None if flow.is_open else -1)], key=once)
        except Conflict:
            raise ended from None


def _result(flow: WorkflowRun, definition: Workflow[..., Any]) -> Any:
    if flow.status == COMPLETED:
        return values.typed(flow.result, definition.returns, f"what the workflow {flow.name} returned")
    if flow.status == CHANGED:
        raise WorkflowChanged(flow.why, hint="put the code right, or finish with the old version, and resume it")
    said = f"{flow.error.get('type')}: {flow.error.get('message')}" if flow.error else flow.why or "it was let go of"
    command = "resume" if flow.status == PAUSED else "show"
    what = f"the workflow {flow.id} is {flow.status}: {said}"
    raise WorkflowFailed(what, hint=f"`maos workflow {command} {flow.id}`")


def _not_asked(flow: WorkflowRun, what: str, kind: str) -> NotWaiting:
    open_ = (
        flow.unknown if kind == STEP else {step_id: each for step_id, each in flow.waiting.items() if each.kind == kind}
    )
    there = ", ".join(f"{step_id} ({call.name})" for step_id, call in open_.items())
    return NotWaiting(
        what, hint=f"open now: {there}" if there else f"`maos workflow show {flow.id}` tells how it stands"
    )
