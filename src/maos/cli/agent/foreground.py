"""An agent in the foreground: run by this process, shown to whoever is looking, and let go of without being hurt.

Ctrl+C stops the agent, a second one kills it. When the terminal is closed, or whoever read our output has gone, the
agent goes on without us: its holder keeps what it says until a process takes it up again.
"""

from __future__ import annotations

import asyncio
import errno
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from maos.cli import documents as shared
from maos.cli import signals
from maos.cli.agent import documents, standing, summary
from maos.cli.agent.following import AgentFollower
from maos.cli.agent.questions import Questions
from maos.cli.failures import INTERRUPTED
from maos.cli.plain import clean
from maos.errors import LeaseLost

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.engine.attempts import Running
    from maos.journal.journal import Record

SIGNALLED = 128
"""Added to the number of the signal that made us leave, as shells do."""


class Begun(NamedTuple):
    """An agent that this process has begun to run, or found ended."""

    agent: str
    attempt: str
    after: int
    """The version after which everything is new to whoever is looking."""
    running: Running | None
    owner: Mapping[str, Any] = {}
    """Who runs it, if that is not us."""


Begin = Callable[["Maos"], Awaitable[Begun]]


class Foreground:
    """One agent that this process runs."""

    def __init__(self, m: Maos, *, as_json: bool) -> None:
        self._m = m
        self._as_json = as_json
        self._begun: Begun | None = None
        self._starting: asyncio.Task[Begun] | None = None
        self._interrupts = 0
        self._left = 0
        self._leaving = asyncio.Event()
        self._stops: list[asyncio.Task[None]] = []
        self._questions: Questions | None = None
        self._follower: AgentFollower | None = None

    async def run(self, begin: Begin) -> int:
        """Run it until it has ended or we are sent away; the exit code."""
        with signals.heard(interrupted=self._interrupted, sent_away=self._leave):
            self._starting = asyncio.ensure_future(begin(self._m))
            try:
                begun = self._begun = await self._starting
            except asyncio.CancelledError:
                if self._interrupts > 1:
                    return INTERRUPTED
                raise
            try:
                return await self._watch(begun)
            finally:
                if self._questions is not None:
                    self._questions.close()
                for task in self._stops:
                    task.cancel()
                await asyncio.gather(*self._stops, return_exceptions=True)

    async def _watch(self, begun: Begun) -> int:
        running = begun.running
        if running is not None:
            self._questions = Questions(begun.agent, running.answer, interactive=not self._as_json)
            for text in summary.place(running.attempt):
                self._tell(text)
            for asked in running.attempt.permissions.values():
                self._questions.asked(asked)
        follower = AgentFollower(self._m, begun.agent, as_json=self._as_json, apart=True, hear=self._hear)
        self._follower = follower
        if self._interrupts and running is not None:
            self._stop()
        following = asyncio.create_task(follower.follow(begun.attempt, after=begun.after, owner=begun.owner))
        ended = asyncio.create_task(self._ended(begun))
        leaving = asyncio.create_task(self._leaving.wait())
        try:
            await asyncio.wait([following, leaving, ended], return_when=asyncio.FIRST_COMPLETED)
            if not leaving.done() and not following.done():
                ended.result()
                await asyncio.wait([following, leaving], return_when=asyncio.FIRST_COMPLETED)
            if leaving.done() and (running is None or running.attempt.is_open):
                return self._let_go(begun)
            if following.done():  # else it has ended, and what is left to show is not wanted
                following.result()
            await ended
        except Exception as error:
            self._let_go(begun)
            if isinstance(error, OSError) and error.errno == errno.EIO:  # the terminal is gone
                return SIGNALLED + signal.SIGHUP
            raise
        finally:
            for task in (following, ended, leaving):
                task.cancel()
            await asyncio.gather(following, ended, leaving, return_exceptions=True)
        return await self._conclude(begun)

    async def _ended(self, begun: Begun) -> None:
        """Return when the attempt has ended, also when another process has taken it from us."""
        if begun.running is None:
            return
        try:
            await begun.running.wait()
        except LeaseLost:
            self._tell(f"another process has taken {begun.agent} over; watching it from here")

    async def _conclude(self, begun: Begun) -> int:
        now = await standing.of_agent(self._m, begun.agent)
        files = await summary.files(now.attempt)
        if self._as_json:
            document = {**documents.summary(now), "agent_kind": now.attempt.kind, "files": files}
            shared.show_line({**document, "kind": "summary"})
        else:
            summary.show(now, files)
        return INTERRUPTED if self._interrupts else summary.exit_code(now.attempt)

    # --- signals ---------------------------------------------------------------------------------------------

    def _interrupted(self) -> None:
        self._interrupts += 1
        if self._questions is not None:
            self._questions.close()
        if self._follower is not None:
            self._stop()
        elif self._interrupts > 1 and self._starting is not None:
            self._starting.cancel()
        else:
            self._tell("stopping it as soon as it has started")

    def _stop(self) -> None:
        if self._begun is None or self._begun.running is None or not self._begun.running.attempt.is_open:
            self._leave(signal.SIGINT)
            return
        if self._follower is not None:
            self._follower.feed.stop_expected = True
        if self._interrupts > 1:
            self._tell("killing it")
            work = self._begun.running.stop(grace_s=0.0)
        else:
            self._tell(f"stopping {self._begun.agent}; Ctrl+C again kills it")
            work = self._begun.running.stop()
        self._stops.append(asyncio.create_task(work))

    def _leave(self, number: signal.Signals) -> None:
        self._left = number
        self._leaving.set()

    def _let_go(self, begun: Begun) -> int:
        """Say how to come back; what was open is closed by whoever called us, and the agent goes on."""
        try:
            if begun.running is None:
                pass  # it was never ours
            elif self._as_json:
                shared.show_line({"kind": "let_go", "agent": begun.agent, "go_on": f"maos agent attach {begun.agent}"})
            else:
                self._tell(f"{begun.agent} goes on without us; `maos agent attach {begun.agent}` takes it up again")
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise  # else there is nobody left to tell
        return SIGNALLED + self._left

    def _hear(self, record: Record) -> None:
        if self._questions is not None:
            self._questions.hear(record)

    def _tell(self, text: str) -> None:
        if not self._as_json:
            from maos.cli.agent.feed import styled

            click.echo(styled(clean(text), "dim", sys.stderr), err=True)
