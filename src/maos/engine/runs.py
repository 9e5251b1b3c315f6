"""Runs: made from a plan, carried out, paused, taken up after a crash, and continued with more work."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from maos.bus.bus import Bus
from maos.clock import Clock
from maos.engine import checkpoints, consent, ownership
from maos.engine.claims import claim
from maos.engine.post import Post
from maos.engine.recorder import LEASE_S, Recorder
from maos.engine.scheduler import Listener, Scheduler, Worker
from maos.engine.types import RUN
from maos.errors import NotFound
from maos.journal.codec import Event
from maos.journal.journal import Append, Journal
from maos.model.attempt import check_run, inbox
from maos.model.plan import ASK, BadPlan, Plan, Problem, from_data
from maos.model.run import PLANNING, RUNNING, Run, stream
from maos.settings import schema
from maos.store.contract import Key

CONCURRENCY = schema.OrchestrateSettings().concurrency


def new_id() -> str:
    """An id for a run."""
    return f"r-{secrets.token_hex(3)}"


class Runs:
    """Makes runs and carries them out."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        *,
        post: Post,
        worker: Callable[[], Worker],
        bus: Bus | None = None,
        lease_s: float = LEASE_S,
        checkpoint_s: Callable[[], Awaitable[float]] | None = None,
    ) -> None:
        self._checkpoint_s = checkpoint_s
        """How long until a run that is carried out is given a checkpoint; asked for each time. None: never."""
        self._bus = bus or Bus(journal, clock)
        self._worker = worker
        self._journal = journal
        self._clock = clock
        self._post = post
        self._lease_s = lease_s
        self._schedulers: dict[str, Scheduler] = {}
        self._to_pause: dict[str, str] = {}

    async def create(
        self,
        plan: Plan | Mapping[str, Any],
        *,
        request: str = "",
        folder: Path | str | None = None,
        options: Mapping[str, Any] | None = None,
        id: str = "",
    ) -> Run:
        """A run of a plan that was approved; nothing of it has begun."""
        given = plan  # a large one is looked at while others go on
        plan = await asyncio.to_thread(lambda: from_data(msgspec.to_builtins(given)))
        run = Run(id=check_run(id) if id else new_id())
        lease = await claim(self._journal, self._clock, stream(run.id), None, is_open=False, hint="")
        recorder = Recorder(self._journal, RUN, run, lease, lease_s=self._lease_s)
        at_us = self._clock.now_us()
        created = {
            "request": request or plan.request,
            "folder": str(folder or ""),
            "options": {**({"conflicts": plan.conflicts} if plan.conflicts != ASK else {}), **(options or {})},
            "owner": ownership.identity(lease),
            "at_us": at_us,
        }
        planned = {"tasks": [msgspec.to_builtins(task) for task in plan.tasks], "at_us": at_us}
        try:
            await recorder.append(Event("run_created", created), Event("run_planned", planned))
        finally:
            await self._journal.release(lease)
        return run

    async def execute(
        self,
        id: str,
        *,
        worker: Worker | None = None,
        concurrency: int = CONCURRENCY,
        source: str = "manual",
        options: Mapping[str, Any] | None = None,
        listener: Listener | None = None,
    ) -> Run:
        """Carry out whatever is left of a run, until it has ended or is paused. Held while another engine does.

        `options` are kept from now on, in the place of those of the same names that it was made with.
        """
        run = await self.get(id)
        await consent.check(self._journal, run.id)
        hint = f"`maos orchestration status {id} --watch` watches it from here"
        lease = await claim(self._journal, self._clock, stream(id), run, is_open=run.is_open, hint=hint)
        recorder = Recorder(self._journal, RUN, run, lease, lease_s=self._lease_s)
        saving: asyncio.Task[None] | None = None
        try:
            at_us = self._clock.now_us()
            data = {"owner": ownership.identity(lease), "source": source, "at_us": at_us}
            taken = Event("run_claimed", {**data, "options": dict(options)} if options else data)
            if run.status in (RUNNING, PLANNING):
                await recorder.append(taken)
            else:
                await recorder.append(taken, Event("run_resumed", {"at_us": at_us}))
            scheduler = Scheduler(
                recorder,
                worker or self._worker(),
                self._clock,
                bus=self._bus,
                concurrency=concurrency,
                listener=listener,
            )
            self._schedulers[id] = scheduler
            if id in self._to_pause:
                scheduler.pause(self._to_pause.pop(id))
            await self._post.register(id, scheduler.wish, after=run.inbox_cursor)
            if self._checkpoint_s is not None:
                saving = asyncio.create_task(
                    checkpoints.now_and_then(run, scheduler.note, self._clock, self._checkpoint_s)
                )
            return await scheduler.execute()
        finally:
            if saving is not None:
                saving.cancel()
                await asyncio.gather(saving, return_exceptions=True)
            self._post.forget(id)
            self._schedulers.pop(id, None)
            self._to_pause.pop(id, None)
            await self._journal.release(recorder.lease)

    def pause_here(self, id: str, why: str) -> None:
        """Pause a run that this engine carries out, or is about to: its agents are stopped, and can be resumed."""
        if id in self._schedulers:
            self._schedulers[id].pause(why)
        else:
            self._to_pause[id] = why

    def set_concurrency(self, id: str, concurrency: int) -> None:
        """Have more or fewer agents work at once on a run that this engine carries out, from now on."""
        if id in self._schedulers:
            self._schedulers[id].set_concurrency(concurrency)

    async def add(self, id: str, plan: Plan, *, options: Mapping[str, Any] | None = None) -> Run:
        """More work for a run that is finished or paused (R-203), and the options that it needs."""
        run = await self.get(id)
        known = set(run.tasks)
        problems = [Problem(task.name, "the run has a task of that name already") for task in plan.tasks
                    if task.name in known]  # fmt: skip
        if problems:
            raise BadPlan(problems)
        hint = f"pause it first, with `maos orchestration pause {id}`"
        lease = await claim(self._journal, self._clock, stream(id), run, is_open=run.is_open, hint=hint)
        recorder = Recorder(self._journal, RUN, run, lease, lease_s=self._lease_s)
        data = {"tasks": [msgspec.to_builtins(task) for task in plan.tasks], "at_us": self._clock.now_us()}
        data |= {"options": dict(options)} if options else {}
        try:
            await recorder.append(Event("run_planned", data))
        finally:
            await self._journal.release(recorder.lease)
        return run

    # --- asking ----------------------------------------------------------------------------------------------

    async def get(self, id: str) -> Run:
        """A run by its id."""
        found = await RUN.load(self._journal, id)
        if found is None:
            raise NotFound(f"there is no orchestration {id!r}", hint="`maos orchestration list` shows them")
        return found

    async def all(self) -> AsyncIterator[Run]:
        """All runs, by id."""
        async for name in self._journal.streams(stream("")):
            found = await RUN.load(self._journal, name.removeprefix(stream("")))
            if found is not None:
                yield found

    # --- wishes ----------------------------------------------------------------------------------------------

    async def pause(self, id: str, why: str = "asked") -> None:
        """Have a run paused by whichever engine carries it out."""
        await self._wish(id, "pause_requested", {"why": why})

    async def wake(self, id: str, *, by: str = "person") -> bool:
        """Have a run that sleeps because of a rate limit go on now; False when it does not sleep."""
        if (await self.get(id)).wakes_us <= self._clock.now_us():
            return False
        await self._wish(id, "wake_requested", {"by": by})
        return True

    async def ask(self, id: str, question: str, *, key: str, asked_by: str, **more: Any) -> None:
        """Put a question to a person; the same `key` asks once, also when an agent asks again after a crash."""
        data = {"id": key, "question": question, "asked_by": [asked_by], **more, "at_us": self._clock.now_us()}
        once = Key(f"ask/{id}/{asked_by}/{key}", hashlib.sha256(question.encode()).digest())
        await self._journal.append_all([Append(inbox(id), [Event("question_asked", data)])], key=once)

    async def answer(self, id: str, question: str, answer: str, *, by: str = "person") -> None:
        """Answer a question of a run; the first answer counts."""
        await self._wish(id, "question_answered", {"id": question, "answer": answer, "by": by})

    async def _wish(self, id: str, type_: str, data: dict[str, Any]) -> None:
        await self._journal.append(inbox(id), Event(type_, {**data, "at_us": self._clock.now_us()}))
