"""A conversation with a real program, driven as the engine drives it, but with nothing recorded.

`async with started(dialect, order) as run:` starts the dialect's command in a scrubbed environment, feeds its lines to
the conversation and writes the replies. With `forgetful=True` the conversation is taken up again from its recorded
state before every single line, and every line is heard twice: once by an engine that is then gone, once by the next.
"""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from maos.agents.contract import Dialect, LaunchCommand, LaunchOrder, Reply
from maos.model.events.facts import Fact
from tests.events import plain

LINE_BYTES_MAX = 64 << 20
WAIT_S = 60

COVERAGE = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
"""What lets coverage.py measure Python programs of ours in a scrubbed environment."""


def an_order(folder: Path, **fields: Any) -> LaunchOrder:
    """An order for an agent that works in `folder/work` and lives in `folder/home`."""
    work = folder / "work"
    if folder != Path("/"):
        work.mkdir(exist_ok=True)
    given: dict[str, Any] = {
        "attempt": "tester.1",
        "task": "do it",
        "session": "6f1c0b34-3c4e-4c0e-9a53-5f0d0d4f7a10",
        "resume": False,
        "cwd": work,
        "home": folder / "home",
    }
    return LaunchOrder(**(given | fields))


class Run:
    """A running program and what was heard of it."""

    def __init__(
        self, dialect: Dialect, order: LaunchOrder, process: asyncio.subprocess.Process, *, forgetful: bool = False
    ) -> None:
        self.facts: list[dict[str, Any]] = []
        """What was heard, as it would be stored."""
        self.heard: list[Fact] = []
        self.lines: list[bytes] = []
        """What it printed, for recording."""
        self.written: dict[str, bytes] = {}
        """The replies that went to its input, by id; none goes twice."""
        self.conversation = dialect.converse(order)
        self.process = process
        self._dialect = dialect
        self._order = order
        self._forgetful = forgetful
        self._changed = asyncio.Condition()
        self._readers = [
            asyncio.create_task(self._read(process.stdout, stderr=False)),
            asyncio.create_task(self._read(process.stderr, stderr=True)),
        ]

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until the condition holds; an error when the program ends first."""

        def decided() -> bool:
            return bool(condition()) or all(reader.done() for reader in self._readers)

        async with self._changed:
            async with asyncio.timeout(WAIT_S):
                await self._changed.wait_for(decided)
        assert condition(), f"it ended before that: {self.facts}"

    async def until_fact(self, kind: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait for facts of a kind."""
        await self.until(lambda: len(self.of(kind)) >= count)
        return self.of(kind)

    async def ended(self) -> int:
        """Wait for the end; the exit code, negative for a signal."""
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(*self._readers)
            return await self.process.wait()

    async def write(self, reply: Reply | None) -> None:
        """What the engine does with a reply: once for each id."""
        assert reply is not None
        if reply.id in self.written or self.process.stdin is None:
            return
        self.written[reply.id] = reply.data
        with contextlib.suppress(ConnectionError):  # it has ended; its end is what the test looks at
            self.process.stdin.write(reply.data)
            await self.process.stdin.drain()
            if reply.closes:
                self.process.stdin.close()

    async def say(self, id: str, text: str) -> bool:
        """A message, if it can take one now."""
        reply = self.conversation.say(id, text)
        if reply is not None:
            await self.write(reply)
        return reply is not None

    async def finish(self) -> int:
        """Let it end after its turn."""
        reply = self.conversation.end()
        if reply is not None:
            await self.write(reply)
        return await self.ended()

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Kill the program, and it alone."""
        self.process.send_signal(number)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The facts of a kind."""
        return [fact for fact in self.facts if fact["kind"] == kind]

    def text(self) -> str:
        """Everything the agent said."""
        return "\n".join(fact.get("text", "") for fact in self.of("text"))

    async def _read(self, stream: asyncio.StreamReader | None, *, stderr: bool) -> None:
        assert stream is not None
        try:
            while line := await stream.readline():
                await self._hear(line.removesuffix(b"\n"), stderr=stderr)
        finally:
            async with self._changed:
                self._changed.notify_all()

    async def _hear(self, line: bytes, *, stderr: bool) -> None:
        if self._forgetful:
            recorded = json.loads(json.dumps(dict(self.conversation.state())))
            lost = self._dialect.converse(self._order, recorded).hear(line, stderr=stderr)
            self.conversation = self._dialect.converse(self._order, recorded)
            heard = self.conversation.hear(line, stderr=stderr)
            assert heard == lost, "the same line and state must mean the same"
            for reply in lost.replies:
                await self.write(reply)
        else:
            heard = self.conversation.hear(line, stderr=stderr)
        for reply in heard.replies:
            await self.write(reply)
        async with self._changed:
            if not stderr:
                self.lines.append(line)
            self.facts += plain(heard.facts)
            self.heard += heard.facts
            self._changed.notify_all()

    async def close(self) -> None:
        """End whatever is left of it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        transport = self.process._transport  # type: ignore[attr-defined]
        transport.close()
        await asyncio.sleep(0)  # the transports of its pipes say goodbye in the next round of the loop


def command_of(dialect: Dialect, order: LaunchOrder, environment: Mapping[str, str] | None = None) -> LaunchCommand:
    """What the dialect wants to be started."""
    given = {"PATH": os.environ["PATH"]} if environment is None else environment
    return dialect.command(order, dialect.find(given, order.argv), given)


@contextlib.asynccontextmanager
async def started(
    dialect: Dialect, order: LaunchOrder, environment: Mapping[str, str] | None = None, *, forgetful: bool = False
) -> AsyncIterator[Run]:
    """The dialect's program, running; ended by its process group when the test is over."""
    command = command_of(dialect, order, environment)
    process = await asyncio.create_subprocess_exec(
        *command.argv,
        env={**COVERAGE, **command.env},
        cwd=order.cwd,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        limit=LINE_BYTES_MAX,
    )
    run = Run(dialect, order, process, forgetful=forgetful)
    try:
        await run.write(Reply("first", command.first_input, closes=not command.keeps_input_open))
        yield run
    finally:
        await run.close()
