"""An agent in the foreground and its output, also as `maos agent logs`: lines, permission prompts, signals.

The agent's output goes to standard output. What maos reports of an agent in the foreground goes to standard error, so
that a pipe gets the agent's output and nothing else; in a log everything is on standard output.

Ctrl+C stops the agent, a second one kills it. When the terminal or the output pipe is closed, this process detaches
and the agent keeps running: its holder keeps its output until an engine attaches.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from maos.app import Maos
from maos.cli import documents, remote, words
from maos.cli.agent import status
from maos.cli.agent.output import OutputPrinter
from maos.cli.commands import LINES, agent_argument, json_command
from maos.cli.database import DatabaseTarget
from maos.cli.failures import INTERRUPTED, SIGNALLED
from maos.cli.input import cancel, heard
from maos.cli.render import clean, styled, wrap
from maos.cli.words import Fact
from maos.errors import InvalidInput, LeaseLost, MaosError
from maos.model.events import facts
from maos.views.agents import UNATTENDED, AgentEvent, Attachment

if TYPE_CHECKING:
    from maos.web.client import Client

WRITE_S_MAX = 1.0
"""How long to wait for a terminal that does not accept output before this process detaches."""
ANSWER_BYTES_MAX = 4096

Begin = Callable[[Maos], Awaitable[Attachment]]


@json_command(
    "maos agent logs nightly",
    "maos agent logs nightly -f",
    "maos agent logs nightly --since 10m --json",
    "maos agent logs nightly --attempt 1 --raw > nightly.txt",
    json=LINES,
)
@agent_argument
@status.log_options
def logs(
    database: DatabaseTarget,
    /,
    agent: str,
    follow: bool,
    count: int | None,
    number: int | None,
    since: int | None,
    raw: bool,
    as_json: bool,
) -> None:
    """Show what an agent said and did, in order, over all its attempts.

    With -f new output is printed as it comes, from any terminal, also when the engine that runs the agent exits and
    another one attaches; it ends with the attempt. Ctrl+C ends only the following.
    """
    if raw and as_json:
        raise InvalidInput("--raw and --json exclude each other", hint="choose one")
    if raw and sys.stdout.isatty():
        raise InvalidInput(
            "raw output could steer your terminal", hint="send it to a file or a pipe: … --raw > output.txt"
        )

    async def show(events: AsyncIterator[AgentEvent], newest: str) -> None:
        tail = LogTail(count)
        printer = OutputPrinter(beside=sys.stdout, write=lambda _stream, text, style: tail.add(text, style))
        write = tail.add_document if as_json else tail.add_bytes if raw else printer.show
        try:
            async for event in events:
                if event.at_us >= (since or 0):
                    await asyncio.to_thread(write, event)
                    if event.id == newest:
                        tail.print()  # what comes now is new
                    else:
                        await asyncio.to_thread(tail.flush)
        finally:
            tail.print()

    async def work(m: Maos) -> None:
        name = await m.agents.find(agent)
        newest = await m.agents.get(name)
        events = m.agents.output(name, attempt=number, follow=follow)
        await show(events, f"attempt/{newest.id}@{newest.version}")

    async def work_remotely(client: Client, name: str) -> None:
        newest = (await client.output(name, limit=1)).events
        events = remote.output(client, name, attempt=number, follow=follow)
        await show(events, newest[-1].id if newest else "")

    if database.is_remote:
        remote.call(status.remote_agent(agent, work_remotely))
    else:
        database.read(work, waits=follow)


class LogTail:
    """The lines of a log: all of them as they come, or only the last so many of what is recorded already."""

    def __init__(self, count: int | None) -> None:
        self._waiting: deque[bytes] | None = None if count is None else deque(maxlen=count)
        self._lines: list[bytes] = []

    def add(self, text: str, style: str = "") -> None:
        """Add a line."""
        self.add_line(f"{styled(text, style, sys.stdout)}\n".encode(errors="backslashreplace"))

    def add_document(self, event: AgentEvent) -> None:
        """Add an event of an attempt as JSON: itself, or each of the facts in it."""
        for document in documents_of(event):
            self.add_line(documents.line(document))

    def add_bytes(self, event: AgentEvent) -> None:
        """Add the bytes that were printed, and nothing else."""
        for fact in event.data.get("facts", ()):
            if fact["kind"] in ("line", "unknown", "diagnostic", "text"):
                self.add_line(facts.Line(fact.get("text", ""), fact.get("base64", "")).raw() + b"\n")

    def add_line(self, line: bytes) -> None:
        """Add a line with its end."""
        (self._lines if self._waiting is None else self._waiting).append(line)

    def print(self) -> None:
        """Print the last lines, and from now on all as they come."""
        if self._waiting is not None:
            self._lines, self._waiting = [*self._waiting], None
        self.flush()

    def flush(self) -> None:
        """Print what was added, unless only the last of it is wanted."""
        lines, self._lines = self._lines, []
        if lines:
            sys.stdout.flush()
            sys.stdout.buffer.write(b"".join(lines))
            sys.stdout.buffer.flush()


def documents_of(event: AgentEvent) -> Iterator[documents.Document]:
    """An event of an attempt as programs see it: itself, or each of the facts in it."""
    head = {"event": event.id, "agent": event.agent, "attempt": event.attempt}
    if event.type == "attempt_output":
        at = documents.time(event.at_us)
        yield from ({**head, **at, **fact} for fact in event.data["facts"])
    elif event.type != UNATTENDED:
        data = {key: value for key, value in event.data.items() if key not in ("agent", "number", "at_us")}
        yield {**head, **documents.time(event.time_us), "kind": event.type, **data}


def _print_document(event: AgentEvent) -> None:
    for document in documents_of(event):
        documents.show_line(document)


class PermissionPrompt:
    """Asks the person at the terminal for the permissions that an agent requests, one at a time."""

    def __init__(self, agent: str, answer: Callable[[str, str], Awaitable[Any]], *, interactive: bool) -> None:
        """`answer` records what was typed as the answer to a request."""
        self._agent = agent
        self._answer = answer
        self._interactive = interactive and sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
        self._open: dict[str, Fact] = {}
        self._current = ""
        self._answering: set[asyncio.Task[None]] = set()

    def see(self, event: AgentEvent) -> None:
        """Update the open questions from an event: requests, and answers from here or elsewhere."""
        if event.type == "attempt_answered":
            self._answered(event.data["request"])
        for fact in event.data.get("facts", ()):
            if fact["kind"] == "permission_requested" and not fact.get("rule"):
                self.asked(fact)
        if event.type == "attempt_ended":
            self.close()

    def asked(self, fact: Fact) -> None:
        """Add a question that waits for an answer."""
        if fact["id"] in self._open:
            return
        if not self._interactive:
            asked = words.tool(fact.get("tool", ""), fact.get("input"))
            click.echo(styled(f"asks to use {asked}", "warning", sys.stderr), err=True)
            self._print_command(fact["id"])
            return
        self._open[fact["id"]] = fact
        self._next()

    def close(self) -> None:
        """Ask no more."""
        self._open.clear()
        self._current = ""
        self._next()

    def _next(self) -> None:
        """Ask the next question, or read no more from the keyboard."""
        if not self._interactive or self._current:
            return
        loop, keyboard = asyncio.get_running_loop(), sys.stdin.fileno()
        loop.remove_reader(keyboard)
        if self._open:
            self._current, fact = next(iter(self._open.items()))
            if "\n" in (command := str(fact.get("command", ""))):  # what a person allows is shown whole
                click.echo(clean(command, lines=True), err=True)
            self._prompt(f"allow {words.tool(fact.get('tool', ''), fact.get('input'))}?")
            loop.add_reader(keyboard, self._read, keyboard)

    def _print_command(self, request: str) -> None:
        click.echo(f"  answer with: maos agent answer {self._agent} {clean(request)} <yes|no|always|never>", err=True)

    def _prompt(self, text: str) -> None:
        click.echo(f"{styled(text, 'warning', sys.stderr)} [yes, no, always, never]: ", nl=False, err=True)

    def _read(self, keyboard: int) -> None:
        typed = os.read(keyboard, ANSWER_BYTES_MAX)
        if not typed:  # Ctrl+D: it is answered from elsewhere, or not at all
            click.echo(err=True)
            request = self._current
            self.close()
            self._print_command(request)
            return
        task = asyncio.ensure_future(self._give(self._current, typed.decode(errors="replace").strip()))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _give(self, request: str, typed: str) -> None:
        """Record an answer; if that is refused, say why, and ask again."""
        try:
            await self._answer(request, typed)
        except MaosError as error:
            if request == self._current:
                click.echo(styled(str(error), "warning", sys.stderr), err=True)
                self._prompt("?")
            return
        self._answered(request)

    def _answered(self, request: str) -> None:
        """Ask no more what was answered."""
        if self._open.pop(request, None) is None:
            return
        if request == self._current:
            self._current = ""
            click.echo(err=True)
        self._next()


class Foreground:
    """One agent that this process runs."""

    def __init__(self, m: Maos, *, as_json: bool) -> None:
        self._m = m
        self._as_json = as_json
        self._begun: Attachment | None = None
        self._starting: asyncio.Task[Attachment] | None = None
        self._interrupts = 0
        self._leaving: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """The signal that makes this process detach."""
        self._tasks: list[asyncio.Task[None]] = []
        self._prompt: PermissionPrompt | None = None
        self._lines = OutputPrinter(beside=sys.stderr)

    async def run(self, begin: Begin) -> int:
        """Run it until it has ended, or until a signal makes this process detach; the exit code."""
        with heard(interrupted=self._interrupted, sent_away=self._leave):
            self._starting = asyncio.ensure_future(begin(self._m))
            try:
                begun = self._begun = await self._starting
            except asyncio.CancelledError:
                if self._interrupts > 1:
                    return INTERRUPTED
                raise
            try:
                while (code := await self._watch(begun)) is None and await self._is_unheard(begun):
                    begun = self._begun = await self._m.agents.resume_attached(begun.agent)
            finally:
                if self._prompt is not None:
                    self._prompt.close()
                await cancel(*self._tasks)
            return await self._conclude(begun) if code is None else code

    async def _answer(self, agent: str, request: str, typed: str) -> None:
        """Record what a person typed as the answer to a request of the agent."""
        await self._m.questions.answer_line(f"{agent}/{request}", typed)

    async def _is_unheard(self, begun: Attachment) -> bool:
        """Whether messages wait for another turn of the agent that this process ran."""
        running = begun.running
        return running is not None and not self._interrupts and await self._m.agents.has_unheard(running.attempt)

    async def _watch(self, begun: Attachment) -> int | None:
        """Follow it until it has ended; the exit code when a signal or a closed terminal ends the following before."""
        running = begun.running
        if running is not None:
            self._prompt = PermissionPrompt(
                begun.agent, partial(self._answer, begun.agent), interactive=not self._as_json
            )
            for text in status.place_of(running.attempt):
                self._tell(text)
            for asked in running.attempt.permissions.values():
                if asked.is_open:
                    about = {"tool": asked.tool, "input": asked.input, "command": asked.asked.command}
                    self._prompt.asked({"id": asked.id, **about})
        if self._interrupts and running is not None:
            self._stop(begun)
        following = asyncio.create_task(self._follow(begun))
        ended = asyncio.create_task(self._ended(begun))
        leaving: asyncio.Future[Any] = self._leaving
        self._tasks += [following, ended]
        try:
            await asyncio.wait([leaving, following, ended], return_when=asyncio.FIRST_COMPLETED)
            if not leaving.done() and not following.done():
                ended.result()
                await asyncio.wait([leaving, following], return_when=asyncio.FIRST_COMPLETED)
            if leaving.done() and (running is None or running.attempt.is_open):
                following.cancel()
                await asyncio.wait([following], timeout=WRITE_S_MAX)
                self._detach(begun)
                return SIGNALLED + self._leaving.result()
            if following.done():  # else it has ended, and the rest of its output is not wanted
                following.result()
            await ended
        except Exception as error:
            self._detach(begun)
            if isinstance(error, OSError) and error.errno == errno.EIO:  # the terminal was closed
                return SIGNALLED + signal.SIGHUP
            raise
        return None

    async def _follow(self, begun: Attachment) -> None:
        """Line 8/8: print what happens to the attempt, on a thread: a terminal that blocks blocks nothing else."""
        write = _print_document if self._as_json else self._lines.show
        async for event in self._m.agents.follow(begun.attempt, after=begun.after, owner=begun.owner):
            writing = asyncio.ensure_future(asyncio.to_thread(write, event))
            try:
                await asyncio.shield(writing)
            except asyncio.CancelledError:
                await writing  # what is being printed is printed before the last words
                raise
            if self._prompt is not None:
                self._prompt.see(event)

    async def _ended(self, begun: Attachment) -> None:
        """Return when the attempt has ended, or when another process has taken it over."""
        if begun.running is None:
            return
        try:
            await begun.running.wait()
        except LeaseLost:
            self._tell(f"another process has taken over {begun.agent}; following its output")

    async def _conclude(self, begun: Attachment) -> int:
        found = await self._m.agents.details(begun.agent)
        if self._as_json:
            more = {"agent_kind": found.now.kind, "files": documents.of(found.files), "kind": "summary"}
            documents.show_line({**documents.of(found.now), **more})
        else:
            status.show_end(found)
        return INTERRUPTED if self._interrupts else status.exit_code(found.now)

    # --- signals ---------------------------------------------------------------------------------------------

    def _interrupted(self) -> None:
        self._interrupts += 1
        if self._prompt is not None:
            self._prompt.close()
        if self._begun is not None:
            self._stop(self._begun)
        elif self._interrupts > 1 and self._starting is not None:
            self._starting.cancel()
        else:
            self._tell("stopping it as soon as it has started")

    def _stop(self, begun: Attachment) -> None:
        if begun.running is None or not begun.running.attempt.is_open:
            self._leave(signal.SIGINT)
            return
        self._lines.stop_expected = True
        if self._interrupts > 1:
            self._tell("killing it")
            work = begun.running.stop(grace_s=0.0)
        else:
            self._tell(f"stopping {begun.agent}; Ctrl+C again kills it")
            work = begun.running.stop()
        self._tasks.append(asyncio.create_task(work))

    def _leave(self, number: signal.Signals) -> None:
        if not self._leaving.done():
            self._leaving.set_result(number)

    def _detach(self, begun: Attachment) -> None:
        """Print how to attach again; the caller closes what is open, and the agent keeps running."""
        attach = f"maos agent attach {begun.agent}"
        try:
            if begun.running is None:
                pass  # another process runs it
            elif self._as_json:
                documents.show_line({"kind": "let_go", "agent": begun.agent, "resumable": attach})
            else:
                self._tell(f"detached: {begun.agent} keeps running; {words.continue_with(attach)}")
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise  # else no reader is left

    def _tell(self, text: str) -> None:
        if not self._as_json:
            click.echo(styled(wrap(clean(text), sys.stderr), "dim", sys.stderr), err=True)
