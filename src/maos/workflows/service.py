"""The workflow runs of one database: started, resumed, sent commands from any process, and listed."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from maos.bus.mailbox import Inbox, Mailbox
from maos.clock import MICROSECONDS, Clock
from maos.engine import consent, ownership
from maos.engine.ownership import Held, claim
from maos.engine.recorder import LEASE_S, Recorder
from maos.engine.streams import WORKFLOW_RUN
from maos.errors import Conflict, Corrupt, InvalidInput, LeaseLost, NotFound
from maos.journal.codec import Event
from maos.journal.journal import Append, Journal
from maos.model.attempt import check_agent, check_run
from maos.model.message import inbox
from maos.model.run import Run
from maos.model.schedule import Schedule
from maos.model.workflow import (
    AGENT,
    CANCELLED,
    CHANGED,
    GATE,
    LEFT,
    PAUSED,
    RUNNING,
    SIGNAL,
    STARTED,
    STEP,
    UNKNOWN,
    WorkflowRun,
    stream,
)
from maos.store.contract import Key, Lease
from maos.workflows import children, file_changes, retention, schedules, values
from maos.workflows.definition import Workflow, find
from maos.workflows.errors import NotWaiting, WorkflowChanged
from maos.workflows.execution import Execution
from maos.workflows.file_changes import Look
from maos.workflows.handle import Handle, result_of
from maos.workflows.policy import CheckpointPolicy
from maos.workflows.preview import Preview, preview
from maos.workflows.schedules import Load
from maos.workflows.status import Notice, Status

if TYPE_CHECKING:
    from maos.engine.attempts import Attempts

R = TypeVar("R")

REFUSE, REPLAY = "refuse", "replay"
FOLLOW_S = 0.25
"""How often a run that another process executes is looked at."""
INBOX_REST_S = 0.01
"""How long a command may lie in the inbox: looking after every commit would cost a quarter of what a step does."""
NO_VERSION = -1
"""No stream is ever at this version: an append that expects it is refused, unless its key repeats an earlier one."""


class Workflows:
    """Runs workflows, and knows them all."""

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
        self._journal = journal
        self._clock = clock
        self._attempts = attempts
        self._lease_s = lease_s
        self._mailbox = mailbox
        self._executions: dict[str, Execution] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._unfit: dict[str, str] = {}
        """Runs that made other calls than before when this process executed them last, and with which code."""
        self._threads: WeakValueDictionary[str, asyncio.Task[Any]] = WeakValueDictionary()
        """Those of plain functions that run as steps, by the keys of the steps."""

    # --- running ---------------------------------------------------------------------------------------------

    async def run(self, workflow: Workflow[..., R], /, *args: Any, id: str = "", **kwargs: Any) -> R:
        """Run a workflow to its end and return its result; under an `id` that exists, resume that one.

        While another process runs it, its end is waited for here, and taken over when that process is gone.

        Example::

            print(await m.workflows.run(shout, "hello", id="greeting-1"))
        """
        while True:
            try:
                return await (await self.start(workflow, *args, id=id, **kwargs)).result()
            except Held:
                flow = await WORKFLOW_RUN.load(self._journal, id)
                if flow is not None and flow.status != RUNNING:
                    return result_of(flow, workflow)
            await asyncio.sleep(FOLLOW_S)

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

        `options`: `{"checkpoints": {"frequency": "every_n_steps", "every": 10}}` says how often it is made safe, in the
        place of the settings.

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
    ) -> Handle[Any]:
        CheckpointPolicy.of(options)
        id = check_agent(id) if id else f"w-{secrets.token_hex(3)}"
        arguments = values.plain({"args": list(args), "kwargs": kwargs}, f"an argument of {workflow.name}")
        values.given(workflow.function, arguments, workflow.name)
        async with self._turn(id):
            known: WorkflowRun | Lease | None = await WORKFLOW_RUN.load(self._journal, id)
            if known is None:
                if not parent:
                    check_run(id)
                known = await self._claim_new(id)
            if isinstance(known, Lease):
                options = {**options, "where": workflow.where}
                given = {"arguments": arguments, "options": options, "parent": parent}
                return await self._begin(id, known, workflow, given)
            _check_same(known, workflow, arguments, parent)
            if known.definition != workflow.version:  # a run is finished with the version it was begun with
                workflow = find(known.name, known.definition)
            return await self._resume(known, workflow, on_change, even_paused=even_paused)

    def _turn(self, id: str) -> asyncio.Lock:
        """One after the other in this process: to the store, both would be the same owner of a lease."""
        return self._turns.setdefault(id, asyncio.Lock())

    async def _begin(self, id: str, lease: Lease, workflow: Workflow[..., Any], given: dict[str, Any]) -> Handle[Any]:
        """Record that a run begins, and execute it; `given`: arguments, options and parent."""
        async with self._released_on_error(lease):
            recorder = Recorder(self._journal, WORKFLOW_RUN, WorkflowRun(id=id), lease, lease_s=self._lease_s)
            is_of = {"name": workflow.name, "definition": workflow.version, "code": workflow.code}
            data = {**is_of, **given, "owner": ownership.identity(lease), "at_us": self._clock.now_us()}
            await recorder.append(Event("workflow_started", data))
        return await self._execute(recorder, workflow)

    @asynccontextmanager
    async def _released_on_error(self, lease: Lease) -> AsyncIterator[None]:
        try:
            yield
        except BaseException:
            await self._journal.release(lease)
            raise

    async def resume(
        self, id: str, *, workflow: Workflow[..., Any] | None = None, on_change: str = REFUSE, trust: bool = False
    ) -> Handle[Any]:
        """Resume a workflow that was interrupted or paused; of one that has ended, the handle has only the result.

        Its definition is found by name and version. One whose code has changed since is refused, unless `on_change` is
        "replay": then it is resumed with the new code as long as that makes the calls that were made. `trust` says that
        a person has seen what a workflow that came with a file would do, and agrees.

        Example::

            handle = await m.workflows.resume("greeting-1", workflow=shout)
        """
        known = await self.get(id)
        if trust:
            await consent.agree(self._journal, self._clock, id)
        async with self._turn(known.id):
            return await self._resume(known, workflow or find(known.name, known.definition), on_change)

    async def apply_file(self, run: Run, on_change: str) -> tuple[Run, Look | None]:
        """Before a run that was made from a plan file is resumed: apply what was said about a changed file, keep,
        replay or refuse. The run that is resumed, and how its file differs, if it does.
        """
        return await file_changes.apply(self._journal, self._clock, run, on_change)

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
                flow = await WORKFLOW_RUN.load(self._journal, name.removeprefix(stream("")))
                if flow is None or not flow.is_open or flow.id in self._executions:
                    continue
                if await self._is_abandoned(flow):
                    async with self._turn(flow.id):
                        await self._end(flow.id, f"{flow.parent} wants it no more")
                    continue
                if flow.parent or flow.status == PAUSED:
                    continue
                definition = find(flow.name, flow.definition)
                if flow.status == CHANGED and self._unfit.get(flow.id) == definition.code:
                    continue  # it would make other calls once more
                async with self._turn(flow.id):
                    found.append(await self._resume(flow, definition, on_change, even_paused=False))
            except (NotFound, Conflict, LeaseLost, WorkflowChanged, consent.NotAgreed):
                continue  # another process has it, or its definition; or a person has yet to agree to it
            except Corrupt as error:
                if tell is None:
                    raise
                tell(f"{name} cannot be read: {error}")
        return found

    async def _is_abandoned(self, flow: WorkflowRun) -> bool:
        """Whether it is a child that its parent does not wait for any more; otherwise the parent resumes it."""
        parent = await WORKFLOW_RUN.load(self._journal, flow.parent) if flow.parent else None
        return parent is not None and children.is_abandoned(parent, flow.id)

    async def _resume(
        self, known: WorkflowRun, workflow: Workflow[..., Any], on_change: str, *, even_paused: bool = True
    ) -> Handle[Any]:
        running = self.handle(known.id)
        if running is not None:
            return running
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
            return Handle(known, workflow)
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
        async with self._released_on_error(lease):
            fresh = await self.get(known.id)
            if not fresh.is_open:  # the process that executed it ended it meanwhile
                await self._journal.release(lease)
                return Handle(fresh, workflow)
            code_before = fresh.code
            recorder = Recorder(self._journal, WORKFLOW_RUN, fresh, lease, lease_s=self._lease_s)
            taken = {"owner": ownership.identity(lease), "code": workflow.code, "at_us": self._clock.now_us()}
            if overruled:
                taken["overruled"] = overruled
            await recorder.append(Event("workflow_claimed", taken))
        return await self._execute(
            recorder, workflow, on_change=on_change, code_before=code_before, even_paused=even_paused
        )

    async def _execute(self, recorder: Recorder[WorkflowRun], workflow: Workflow[..., Any], **how: Any) -> Handle[Any]:
        """Execute a run that this process has claimed, in a task of its own."""
        execution = Execution(
            recorder, workflow, self._journal, self._clock,
            service=self, attempts=self._attempts, threads=self._threads, **how,
        )  # fmt: skip
        flow = execution.flow
        inbox = await self._mailbox.open(flow.id, after=flow.inbox_cursor, rest_s=INBOX_REST_S)
        try:
            for record in await inbox.backlog():
                execution.receive(record)
        except BaseException:
            inbox.close()
            raise
        execution.task = asyncio.create_task(self._run(execution, inbox))
        self._executions[flow.id] = execution
        await asyncio.sleep(0)  # a task that is cancelled before its first step would not give the lease back
        return execution.handle

    async def _run(self, execution: Execution, inbox: Inbox) -> WorkflowRun:
        id = execution.flow.id
        try:
            async with inbox:
                flow = await execution.run(inbox)
            if flow.status == CHANGED:
                self._unfit[id] = execution.definition.code
            return flow
        finally:
            self._executions.pop(id, None)
            await self._journal.release(execution.recorder.lease)

    async def _claim(self, id: str, known: WorkflowRun | None) -> Lease:
        hint, is_open = f"`maos workflow show {id}` tells how it stands", known is None or known.is_open
        look = partial(WORKFLOW_RUN.load, self._journal, id)
        return await claim(self._journal, self._clock, stream(id), known, is_open=is_open, hint=hint, look=look)

    async def _claim_new(self, id: str) -> Lease | WorkflowRun:
        """Claim the right to begin a run; or return the one that another process has begun meanwhile."""
        try:
            lease = await self._claim(id, None)
        except Held:
            if (begun := await WORKFLOW_RUN.load(self._journal, id)) is None:
                raise
            return begun
        begun = await WORKFLOW_RUN.load(self._journal, id)
        if begun is not None:
            await self._journal.release(lease)
        return begun or lease

    async def close(self) -> None:
        """Detach from every run that this process executes; each can be resumed. `m.close()` does it too.

        Example::

            await m.workflows.close()
        """
        tasks = [each.task for each in self._executions.values() if each.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- for executions --------------------------------------------------------------------------------------

    async def start_child(
        self, workflow: Workflow[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], id: str,
        *, parent: str, on_change: str, even_paused: bool,
    ) -> Handle[Any]:  # fmt: skip
        """Start a child, or resume it."""
        return await self._start(workflow, args, kwargs, id, {}, parent, on_change, even_paused=even_paused)

    def handle(self, id: str) -> Handle[Any] | None:
        """A workflow run that this process executes."""
        execution = self._executions.get(id)
        return None if execution is None else execution.handle

    # --- by themselves ---------------------------------------------------------------------------------------

    async def schedule(
        self, name: str, cron: str, workflow: Workflow[..., Any], *args: Any, zone: str = "UTC", **kwargs: Any
    ) -> Schedule:
        """Have a workflow begin at times that come again; `serve` begins it.

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
        arguments = (tuple(args), dict(kwargs))
        return await schedules.put(self._journal, self._clock, name, cron, workflow, *arguments, zone)

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

    async def upcoming(self) -> list[tuple[Schedule, datetime | None]]:
        """What begins by itself, and when next."""
        now_us = self._clock.now_us()
        return [(each, schedules.next_time(each, now_us)) for each in (await self.schedules()).values()]

    async def serve(self, *, tell: Callable[[str], None] = print, load: Load | None = None) -> None:
        """Start what is due and resume what was interrupted, until cancelled; any number of processes may.

        What is wrong with one is told, and the others are served. `load` finds the workflow of a schedule; without it,
        it has to be defined in this process.

        Example::

            serving = asyncio.create_task(m.workflows.serve())
            serving.cancel()
        """
        server = schedules.ScheduleServer(
            self._journal, self._clock, start=self.start_with, resume=self.resume_all, tell=tell, load=load
        )
        await server.serve()

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

    async def status(self, id: str) -> Status:
        """The status of a workflow: "interrupted" when it is recorded as running and its process has ended.

        Example::

            print((await m.workflows.status("greeting-1")).name)
        """
        return Status.of(await self.get(id))

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

    async def notices(self, id: str, *, after: int = 0) -> AsyncIterator[Notice]:
        """What a person who watches a workflow should know, from a version of its stream on, as it happens."""
        async for record in self._journal.follow_stream(stream(id), after=after):
            data = record.data
            if record.type == "step_started" and data["kind"] in (GATE, SIGNAL):
                yield Notice("waits", data["step_id"], data["kind"], data["name"])
            elif record.type == "step_unknown":
                yield Notice("unknown", data["step_id"])
            elif record.type == "step_retried":
                yield Notice("retried", data["step_id"], message=data["error"]["message"])

    async def preview(self, id: str, *, workflow: Workflow[..., Any] | None = None, on_change: str = REFUSE) -> Preview:
        """What `resume` would do with a workflow; its definition is found by name if it is not given.

        Example::

            print([(each.step_id, each.next) for each in (await m.workflows.preview("order-7")).pending])
        """
        flow = await self.get(id)
        if workflow is None:
            with contextlib.suppress(NotFound):
                workflow = find(flow.name, flow.definition)
        commands = self._journal.read(inbox(id), after=flow.inbox_cursor)
        resolved = {str(each.data["step_id"]) async for each in commands if each.type == "resolve_requested"}
        return preview(flow, workflow, on_change, resolved)

    async def old(self, seconds: float) -> list[str]:
        """Workflows that ended so long ago.

        Example::

            print(await m.workflows.old(30 * 86_400))
        """
        before_us = self._clock.now_us() - int(seconds * MICROSECONDS)
        return [flow.id async for flow in self.all() if retention.is_old(flow, before_us)]

    async def list(self, status: str = "") -> list[Status]:
        """The status of all workflows, or of those that have a status now, by id.

        Example::

            for each in await m.workflows.list():
                print(each.flow.id, each.name)
        """
        found = [Status.of(flow) async for flow in self.all()]
        return [each for each in found if status in ("", each.name)]

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
            gone += await retention.forget(self._journal, flow)
        return gone

    # --- commands --------------------------------------------------------------------------------------------

    async def signal(self, id: str, name: str, value: Any = None, *, key: str | None = None) -> None:
        """Tell a workflow something it waits for, or will; a `key` makes repeating the call harmless.

        Example::

            await m.workflows.signal("order-7", "paid", {"amount": 7})
        """
        data = {"name": name, "value": values.plain(value, f"the signal {name}")}
        await self._send(id, "signal_sent", data, key)

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
        await self._send(flow.id, "question_answered", {"id": step_id, "answer": answer, "by": by})

    async def settle(self, id: str, step_id: str, outcome: str, *, value: Any = None, why: str = "") -> None:
        """Resolve a step whose outcome is unknown: "done" with its result, "failed", or call it "again".

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
        await self._send(flow.id, "resolve_requested", data)

    async def cancel(self, id: str, *, why: str = "") -> None:
        """End a workflow, when the steps that run have ended; at once, and without its code, if no process executes it.

        Example::

            await m.workflows.cancel("order-7")
        """
        await self._send(id, "cancel_requested", {"why": why})
        if id not in self._executions:
            async with self._turn(id):
                if id not in self._executions:  # it may have been resumed here meanwhile
                    await self._end(id, why)

    async def _end(self, id: str, why: str) -> None:
        """End a run that no process executes; its definition is not needed, and may be gone."""
        try:
            lease = await self._claim(id, await self.get(id))
        except Held:
            return  # the process that executes it receives the command
        try:
            flow = await self.get(id)
            if not flow.is_open:
                return
            ended = {"status": CANCELLED, "why": why, "inbox_version": await self._journal.version(inbox(id))}
            recorder = Recorder(self._journal, WORKFLOW_RUN, flow, lease, lease_s=self._lease_s)
            await recorder.append(Event("workflow_ended", {**ended, "at_us": self._clock.now_us()}))
        finally:
            await self._journal.release(lease)
        left = [each.id async for each in self.all() if each.parent == id and each.is_open]
        for each in left:
            await self.cancel(each, why=f"{id} was {CANCELLED}")
        for name in children.names(flow, AGENT, STARTED, LEFT):
            await children.stop_agent(self._attempts(), name)

    async def pause(self, id: str, *, why: str = "") -> None:
        """Have the process that executes a workflow pause it, once the steps that run have ended.

        Example::

            await m.workflows.pause("order-7")
        """
        await self._send(id, "pause_requested", {"why": why})

    async def _send(self, id: str, type_: str, data: dict[str, Any], key: str | None = None) -> None:
        """Append a command to the inbox of a run; one that has ended accepts only the repetition of a key."""
        flow = await self.get(id)
        event = Event(type_, {**data, "at_us": self._clock.now_us()})
        once = None if key is None else Key(f"signal/{flow.id}/{key}", values.fingerprint(data))
        if flow.is_open:
            await self._journal.append_all([Append(inbox(id), [event])], key=once)
        elif once is None or not await self._is_repeated(Append(inbox(id), [event]), once):
            raise NotWaiting(f"the workflow {flow.id} is {flow.status}", hint="it cannot be told anything any more")

    async def _is_repeated(self, command: Append, key: Key) -> bool:
        """Whether a command was sent before under this key; it is not sent now."""
        try:
            await self._journal.append_all([command._replace(expected=NO_VERSION)], key=key)
        except Conflict:
            return False
        return True


def _check_same(known: WorkflowRun, workflow: Workflow[..., Any], arguments: dict[str, Any], parent: str) -> None:
    """InvalidInput when a run under this id is of another workflow, with other arguments, or of another parent."""
    if (known.name, known.arguments) != (workflow.name, arguments):
        raise InvalidInput(
            f"there is a workflow {known.id!r} already, a {known.name} with other arguments", hint="use another id"
        )
    if known.parent != parent:
        raise InvalidInput(f"there is a workflow {known.id!r} already, of another parent", hint="use another id")


def _not_asked(flow: WorkflowRun, what: str, kind: str) -> NotWaiting:
    open_ = (
        flow.unknown if kind == STEP else {step_id: each for step_id, each in flow.waiting.items() if each.kind == kind}
    )
    there = ", ".join(f"{step_id} ({call.name})" for step_id, call in open_.items())
    return NotWaiting(
        what, hint=f"open now: {there}" if there else f"`maos workflow show {flow.id}` tells how it stands"
    )
