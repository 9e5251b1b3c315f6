"""The loop of `maos chat`: each line becomes a plan, an answer, a message, a command or more work."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable

from maos.cli.chat.commands import ChatCommands
from maos.cli.chat.session import ChatSession
from maos.cli.failures import INTERRUPTED, USAGE
from maos.cli.input import InputLine, heard
from maos.cli.runs import summary
from maos.cli.runs.foreground import PAUSING, SIGNALLED
from maos.cli.runs.live_run import cancel
from maos.errors import MaosError
from maos.model.plan import BadPlan


class ChatLoop:
    """Reads lines until the person leaves, or a pipe has ended and its run too."""

    def __init__(self, session: ChatSession) -> None:
        self._session = session
        self._run = session.run
        self._lines = session.lines
        self._commands = ChatCommands(session)
        self._is_detaching = False
        self._interrupts = 0
        self._signal = 0

    async def hold(self, id: str) -> int:
        """Hold the conversation about a run, or a new one; return the exit code."""
        showing = asyncio.create_task(self._session.view.show())
        showing.add_done_callback(lambda _task: self._run.changed.set())
        with heard(interrupted=self._interrupt, sent_away=self._leave_by):
            try:
                self._lines.start()
                await self._session.begin(id)
                await self._talk(showing)
                return await self._leave()
            finally:
                await self._run.detach()
                await cancel(showing)
                await self._lines.stop()
                await self._session.view.close()

    async def _talk(self, showing: asyncio.Task[None]) -> None:
        reading: asyncio.Task[InputLine | None] | None = self._read()
        try:
            while not self._session.is_leaving:
                self._lines.ask(self._session.prompt())
                if showing.done():
                    showing.result()
                if self._run.is_over:
                    await self._guarded(self._run.conclude())
                elif reading is not None and reading.done():
                    line = reading.result()
                    if line is None and self._lines.by_person:
                        return
                    reading = None if line is None else self._read()
                    if line is not None:
                        await self._guarded(self._take(line))
                elif reading is None and not self._run.is_executing:
                    return
                else:
                    await self._run.wait()
        finally:
            if reading is not None:
                await cancel(reading)

    def _read(self) -> asyncio.Task[InputLine | None]:
        reading = asyncio.create_task(self._lines.next())
        reading.add_done_callback(lambda _task: self._run.changed.set())
        return reading

    async def _guarded(self, work: Awaitable[None]) -> None:
        """Do something; report what goes wrong, and continue the conversation."""
        try:
            await work
        except BadPlan as error:
            self._session.complain("that is not a valid plan", "\n".join(f"  {each}" for each in error.problems))
        except MaosError as error:
            self._session.complain(error.what, error.hint)

    async def _take(self, line: InputLine) -> None:
        session, text = self._session, line.text.strip()
        if not text:
            return
        session.view.report(f"› {text}", "bold")
        prompt = line.prompt or session.prompt()
        if text.startswith("/"):
            await session.record(text)
            await self._commands.execute(text)
        elif text.startswith("@") and self._run.run is not None:
            await session.record(text)
            await self._commands.message(text[1:])
        elif prompt.kind == "decide" and session.proposal is not None:
            await session.decide(text, session.proposal)
        elif prompt.kind == "answer":
            await session.record(text, asked=prompt.ref)
            await self._run.answer(prompt.ref, text)
        elif self._run.run is None:
            await session.plan(text)
        elif self._run.is_executing:
            await session.record(text)
            await self._commands.message(f"all {text}")
        else:
            await session.record(text)
            await session.add([text])

    # --- leaving ---------------------------------------------------------------------------------------------

    async def _leave(self) -> int:
        session = self._session
        if session.proposal is not None and session.proposal.what == "plan" and not self._interrupts:
            session.complain("the plan was not approved; nothing was started", f"maos chat {session.id} continues")
            return USAGE
        if self._run.is_ours:
            await self._pause_or_detach()
        if self._signal:
            return SIGNALLED + self._signal
        run = self._run.run
        if run is not None and run.status != "completed":
            session.reply(f"to continue here: maos chat {run.id}", run=run.id)
        if self._interrupts:
            return INTERRUPTED
        return 0 if run is None or self._run.is_executing else summary.exit_code(run)

    async def _pause_or_detach(self) -> None:
        if not self._is_detaching:
            self._session.reply(PAUSING, "warning")
            await self._run.pause("Ctrl+C" if self._interrupts else "asked")
        while self._run.is_ours and not self._is_detaching:
            await self._run.wait()
        if not self._run.is_ours:
            await self._guarded(self._run.conclude())
            return
        self._session.reply(f"its agents keep running; `maos chat {self._session.id}` attaches to them again")
        self._signal = self._signal or signal.SIGINT

    def _interrupt(self) -> None:
        if self._session.planning is not None:
            self._session.planning.cancel()
        elif self._session.is_leaving:
            self._is_detaching = True
            self._run.changed.set()
        elif not self._lines.drop():
            self._interrupts += 1
            self._session.leave()

    def _leave_by(self, number: signal.Signals) -> None:
        self._signal = number
        self._is_detaching = True
        self._session.leave()
