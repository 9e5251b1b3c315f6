"""Workflows in a journal: started, looked at, spoken to from anywhere, and gone on with after anything."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from maos.clock import MICROSECONDS, Clock
from maos.engine import consent, owner
from maos.engine.claims import claim
from maos.engine.orders import without_secrets
from maos.engine.post import Post
from maos.engine.recorder import LEASE_S, Recorder
from maos.engine.types import FLOW
from maos.errors import Conflict, InvalidInput, NotFound
from maos.journal.codec import Event
from maos.journal.journal import Append, Journal
from maos.model.attempt import check_agent, inbox
from maos.model.flow import CHANGED, COMPLETED, GATE, PAUSED, STARTED, STEP, UNKNOWN, Flow, stream
from maos.model.schedule import Schedule
from maos.store.contract import Key
from maos.workflows import elsewhere, forgetting, schedules, values
from maos.workflows.definition import Workflow, find
from maos.workflows.errors import Changed, NotWaiting, WorkflowFailed
from maos.workflows.policy import Policy
from maos.workflows.running import RunningFlow

if TYPE_CHECKING:
    from maos.engine.attempts import Attempts

R = TypeVar("R")

REFUSE, REPLAY = "refuse", "replay"
MAIL_S = 0.01
"""How long mail may lie: looking for it after every commit would cost a quarter of what a step does."""


class Handle:
    """A workflow that this process runs."""

    def __init__(self, running: RunningFlow, task: asyncio.Future[Flow]) -> None:
        self._running = running
        self._task = task

    @property
    def id(self) -> str:
        """Its id."""
        return self._running.id

    @property
    def flow(self) -> Flow:
        """What is recorded of it by now."""
        return self._running.flow

    async def wait(self) -> Flow:
        """Until it has ended or is paused."""
        return await asyncio.shield(self._task)

    async def result(self) -> Any:
        """What it returns; WorkflowFailed when it fails or is cancelled."""
        return _result(await self.wait(), self._running.definition)

    async def pause(self, why: str = "") -> Flow:
        """Have the steps that run end, and let go of it; it can be gone on with at any time."""
        self.let_go(PAUSED, why)
        return await self.wait()

    def let_go(self, leaving: str, why: str) -> None:
        """Have it paused, or ended as cancelled, once the steps that run have ended."""
        self._running.let_go(leaving, why)


class Workflows:
    """Runs workflows, and knows them all."""

    def __init__(
        self, journal: Journal, clock: Clock, *, attempts: Callable[[], Attempts], lease_s: float = LEASE_S
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._attempts = attempts
        self._lease_s = lease_s
        self._post = Post(journal, rest_s=MAIL_S)
        self._tasks: dict[str, asyncio.Task[Flow]] = {}
        self._running: dict[str, RunningFlow] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def journal(self) -> Journal:
        """Where they are recorded."""
        return self._journal

    # --- running ---------------------------------------------------------------------------------------------

    async def run(self, workflow: Workflow[..., R], *args: Any, id: str = "", **kwargs: Any) -> R:
        """Run a workflow to its end and return its result; under an `id` that exists, go on with that one.

        Example::

            print(await m.workflows.run(shout, "hello", id="greeting-1"))
        """
        result: R = await (await self.start(workflow, *args, id=id, **kwargs)).result()
        return result

    async def start(
        self,
        workflow: Workflow[..., Any],
        *args: Any,
        id: str = "",
        options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Handle:
        """Begin a workflow, or go on with the one of that id; on disk when this returns.

        `options`: `{"checkpoints": {"frequency": "every_n_steps", "every": 10}}` says how often it is made safe.

        Example::

            handle = await m.workflows.start(shout, "hello")
            print(handle.id, await handle.result())
        """
        return await self._start(workflow, args, kwargs, id, dict(options or {}))

    async def _start(
        self,
        workflow: Workflow[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        id: str,
        options: dict[str, Any],
        parent: str = "",
        on_change: str = REFUSE,
    ) -> Handle:
        Policy.of(options)
        id = check_agent(id) if id else f"w-{secrets.token_hex(3)}"
        arguments = values.plain({"args": list(args), "kwargs": kwargs}, f"an argument of {workflow.name}")
        values.given(workflow.function, arguments, workflow.name)
        async with self._turn(id):
            return await self._begin(workflow, arguments, id, options, parent, on_change)

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
    ) -> Handle:
        known = await FLOW.load(self._journal, id)
        if known is not None:
            if (known.name, known.arguments) != (workflow.name, arguments):
                raise InvalidInput(
                    f"there is a workflow {id!r} already, a {known.name} with other arguments", hint="use another id"
                )
            if known.parent != parent:
                raise InvalidInput(f"there is a workflow {id!r} already, of another parent", hint="use another id")
            if known.definition != workflow.version:  # what was begun with one is finished with it
                workflow = find(known.name, known.definition)
            return await self._go_on(known, workflow, on_change)
        lease = await self._claim(id, None)
        try:
            recorder = Recorder(self._journal, FLOW, Flow(id=id), lease, lease_s=self._lease_s)
            data = {
                "name": workflow.name,
                "definition": workflow.version,
                "code": workflow.code,
                "arguments": arguments,
                "options": {**options, "where": workflow.where},
                "parent": parent,
                "owner": owner.identity(lease),
                "at_us": self._clock.now_us(),
            }
            await recorder.append(Event("flow_started", data))
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

    async def resume_all(self, *, on_change: str = REFUSE) -> list[Handle]:
        """Go on with every workflow of this database that nobody runs, and that this process has a definition for.

        Example::

            for handle in await m.workflows.resume_all():
                print(handle.id, (await handle.wait()).status)
        """
        found = []
        async for flow in self.all():
            if flow.is_open and flow.status != PAUSED and not flow.parent and flow.id not in self._tasks:
                try:
                    async with self._turn(flow.id):
                        definition = find(flow.name, flow.definition)
                        found.append(await self._go_on(flow, definition, on_change, even_paused=False))
                except (NotFound, Conflict, Changed, consent.NotAgreed):
                    continue  # another process has it, or its definition; or a person has yet to agree to it
        return found

    async def _go_on(
        self, known: Flow, workflow: Workflow[..., Any], on_change: str, *, even_paused: bool = True
    ) -> Handle:
        if known.id in self._tasks:
            return Handle(self._running[known.id], self._tasks[known.id])
        if on_change not in (REFUSE, REPLAY):
            raise InvalidInput(f"on_change cannot be {on_change!r}", hint=f"use {REFUSE} or {REPLAY}")
        if known.is_open and known.code != workflow.code and on_change == REFUSE:
            raise Changed(
                f"the definition of {known.name} has changed since {known.id} was begun",
                hint="give it a new version= and keep the old one beside it; or go on with the new code where it "
                "makes the same calls (on_change='replay', `maos workflow resume --on-change replay`); "
                "`patched()` tells old ones from new",
            )
        if not known.is_open:
            return self._ended(known, workflow)
        await consent.check(self._journal, known.id)
        lease = await self._claim(known.id, known)
        stale = await self._journal.version(inbox(known.id)) if even_paused else 0
        try:
            fresh = await self.get(known.id)
            if not fresh.is_open:  # whoever had it was faster
                await self._journal.release(lease)
                return self._ended(fresh, workflow)
            code_before = fresh.code
            recorder = Recorder(self._journal, FLOW, fresh, lease, lease_s=self._lease_s)
            taken = {"owner": owner.identity(lease), "code": workflow.code, "at_us": self._clock.now_us()}
            await recorder.append(Event("flow_taken", taken))
        except BaseException:
            await self._journal.release(lease)
            raise
        return await self._watch(recorder, workflow, stale=stale, on_change=on_change, code_before=code_before)

    def _ended(self, flow: Flow, workflow: Workflow[..., Any]) -> Handle:
        """One that only tells its result."""
        task: asyncio.Future[Flow] = asyncio.get_running_loop().create_future()
        task.set_result(flow)
        recorder = Recorder(self._journal, FLOW, flow, owner.lease_of(flow.owner))
        return Handle(RunningFlow(recorder, workflow, self._clock, workflows=self), task)

    async def _watch(self, recorder: Recorder[Flow], workflow: Workflow[..., Any], **how: Any) -> Handle:
        running = RunningFlow(recorder, workflow, self._clock, workflows=self, **how)
        self._running[running.id] = running
        await self._post.register(running.id, running.receive, after=running.flow.inbox_cursor)
        task = asyncio.create_task(self._run(running))
        self._tasks[running.id] = task
        await asyncio.sleep(0)  # a task that is cancelled before its first step would not give the lease back
        return Handle(running, task)

    async def _run(self, running: RunningFlow) -> Flow:
        try:
            return await running.run()
        finally:
            self._post.forget(running.id)
            self._tasks.pop(running.id, None)
            self._running.pop(running.id, None)
            await self._journal.release(running.recorder.lease)

    async def _claim(self, id: str, known: Flow | None) -> Any:
        hint = f"`maos workflow show {id}` tells how it stands"
        is_open = known is not None and known.is_open
        return await claim(self._journal, self._clock, stream(id), known, is_open=is_open, hint=hint)

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

    def without_secrets(self, text: str) -> str:
        """Text as it may be written down."""
        return without_secrets(text, {})

    async def start_child(
        self, parent: RunningFlow, workflow: Workflow[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], id: str
    ) -> Handle:
        """Begin a child, or take it up."""
        return await self._start(workflow, args, kwargs, id, {}, parent.id, parent.on_change)

    async def carry_out_agent(self, parent: RunningFlow, place: str, task: str, given: dict[str, Any]) -> str:
        """Begin, take up or resume an agent, and wait for it."""
        name = elsewhere.name_of(parent.id, place)
        return await elsewhere.agent(self._attempts(), self._clock, name, task, given)

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

    async def serve(self, *, tell: Callable[[str], None] = print) -> None:
        """Begin what is due and go on with what nobody runs, until cancelled; any number of processes may.

        Example::

            serving = asyncio.create_task(m.workflows.serve())
            serving.cancel()
        """
        await schedules.Server(self, self._journal, self._clock, tell=tell).serve()

    # --- asking ----------------------------------------------------------------------------------------------

    async def get(self, id: str) -> Flow:
        """A workflow by its id, or by an unambiguous beginning of it.

        Example::

            flow = await m.workflows.get("greeting-1")
            print(flow.status, flow.result)
        """
        names = [name.removeprefix(stream("")) async for name in self._journal.streams(stream(id))]
        if id in names:
            names = [id]
        if len(names) > 1:
            raise InvalidInput(f"{id!r} could be {', '.join(names[:5])}", hint="give more of the id")
        found = await FLOW.load(self._journal, names[0]) if names else None
        if found is None:
            raise NotFound(f"there is no workflow {id!r}", hint="`maos workflow list` shows them")
        return found

    async def all(self) -> AsyncIterator[Flow]:
        """All workflows, by id.

        Example::

            async for flow in m.workflows.all():
                print(flow.id, flow.status)
        """
        async for name in self._journal.streams(stream("")):
            found = await FLOW.load(self._journal, name.removeprefix(stream("")))
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

    async def answer(self, id: str, place: str, answer: str, *, by: str = "person") -> None:
        """Answer a question of a workflow; the first answer counts.

        Example::

            for place in (await m.workflows.get("order-7")).waiting:
                await m.workflows.answer("order-7", place, "yes")
        """
        flow = await self.get(id)
        call = flow.calls.get(place)
        if call is None or (call.kind, call.status) != (GATE, STARTED):
            raise _not_asked(flow, f"the workflow {flow.id} asks nothing at {place!r}", GATE)
        choices = call.about.get("choices", [])
        if choices and answer not in choices:
            raise InvalidInput(f"{answer!r} is no answer to {call.name!r}", hint=f"answer {', '.join(choices)}")
        await self._wish(flow.id, "question_answered", {"id": place, "answer": answer, "by": by})

    async def settle(self, id: str, place: str, outcome: str, *, value: Any = None, why: str = "") -> None:
        """Say what became of a step whose outcome is unknown: "done" with its result, "failed", or do it "again".

        Example::

            for place in (await m.workflows.get("order-7")).unknown:
                await m.workflows.settle("order-7", place, "again")
        """
        if outcome not in ("done", "failed", "again"):
            raise InvalidInput(f"an outcome cannot be {outcome!r}", hint="say done, failed or again")
        flow = await self.get(id)
        call = flow.calls.get(place)
        if call is None or call.kind != STEP or call.status not in (UNKNOWN, STARTED):
            raise _not_asked(flow, f"there is nothing to settle at {place!r} of the workflow {flow.id}", STEP)
        said = {"outcome": outcome, "value": values.plain(value, "the result"), "why": why}
        data = {"place": place, "tries": call.tries, **said}  # of a later try it says nothing
        await self._wish(flow.id, "call_settled", data)

    async def cancel(self, id: str, *, why: str = "") -> None:
        """End a workflow, when the steps that run have ended; one that nobody runs ends when it is taken up.

        Example::

            await m.workflows.cancel("order-7")
        """
        await self._wish(id, "cancel_asked", {"why": why})

    async def pause(self, id: str, *, why: str = "") -> None:
        """Have whoever runs a workflow let go of it.

        Example::

            await m.workflows.pause("order-7")
        """
        await self._wish(id, "pause_asked", {"why": why})

    async def _wish(self, id: str, type_: str, data: dict[str, Any], key: str | None = None) -> None:
        flow = await self.get(id)
        if not flow.is_open:
            raise NotWaiting(f"the workflow {flow.id} is {flow.status}", hint="it cannot be told anything any more")
        event = Event(type_, {**data, "at_us": self._clock.now_us()})
        once = None
        if key is not None:
            import hashlib

            once = Key(f"signal/{flow.id}/{key}", hashlib.sha256(repr(sorted(data.items())).encode()).digest())
        await self._journal.append_all([Append(inbox(flow.id), [event])], key=once)


def _result(flow: Flow, definition: Workflow[..., Any]) -> Any:
    if flow.status == COMPLETED:
        return values.typed(flow.result, definition.returns, f"what the workflow {flow.name} returned")
    if flow.status == CHANGED:
        raise Changed(flow.why, hint="put the code right, or finish with the old version, and resume it")
    said = f"{flow.error.get('type')}: {flow.error.get('message')}" if flow.error else flow.why or "it was let go of"
    command = "resume" if flow.status == PAUSED else "show"
    what = f"the workflow {flow.id} is {flow.status}: {said}"
    raise WorkflowFailed(what, hint=f"`maos workflow {command} {flow.id}`")


def _not_asked(flow: Flow, what: str, kind: str) -> NotWaiting:
    open_ = flow.unknown if kind == STEP else {place: each for place, each in flow.waiting.items() if each.kind == kind}
    there = ", ".join(f"{place} ({call.name})" for place, call in open_.items())
    return NotWaiting(
        what, hint=f"open now: {there}" if there else f"`maos workflow show {flow.id}` tells how it stands"
    )
