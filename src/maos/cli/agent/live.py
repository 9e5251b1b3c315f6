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
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TextIO

import click

from maos.app import Maos
from maos.cli import documents, words
from maos.cli.agent import status
from maos.cli.commands import LINES, agent_argument, json_command
from maos.cli.database import DatabaseTarget
from maos.cli.failures import INTERRUPTED, SIGNALLED
from maos.cli.input import cancel, heard
from maos.cli.render import clean, shorten, styled, wrap
from maos.cli.words import Fact
from maos.errors import InvalidInput, LeaseLost
from maos.model.events import facts
from maos.model.question import yes_or_no
from maos.views.agents import UNATTENDED, AgentEvent, Attachment

TOOL_CHARS = 160
WIDTH_MIN = 40
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
    database: DatabaseTarget, agent: str, follow: bool, number: int | None, since: int | None, raw: bool, as_json: bool
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

    async def work(m: Maos) -> None:
        write = _print_document if as_json else _print_bytes if raw else OutputPrinter(beside=sys.stdout).show
        name = await m.agents.find(agent)
        async for event in m.agents.output(name, attempt=number, follow=follow):
            if event.at_us >= (since or 0):
                await asyncio.to_thread(write, event)

    database.read(work)


def _print_document(event: AgentEvent) -> None:
    """Print an event of an attempt as JSON: itself, or each of the facts in it."""
    head = {"event": event.id, "agent": event.agent, "attempt": event.attempt}
    if event.type == "attempt_output":
        for fact in event.data["facts"]:
            documents.show_line({**head, **documents.time(event.at_us), **fact})
    elif event.type != UNATTENDED:
        data = {key: value for key, value in event.data.items() if key not in ("agent", "number", "at_us")}
        documents.show_line({**head, **documents.time(event.time_us), "kind": event.type, **data})


def _print_bytes(event: AgentEvent) -> None:
    output = sys.stdout.buffer
    for fact in event.data.get("facts", ()):
        if fact["kind"] in ("line", "unknown", "text"):
            printed = facts.Line(fact.get("text", ""), fact.get("base64", ""))
            output.write(printed.raw() + b"\n")
    output.flush()


class OutputPrinter:
    """Prints events of attempts for people, in order; what is not the agent's output goes to the stream `beside`."""

    def __init__(self, *, beside: TextIO) -> None:
        self._beside = beside
        self._in_foreground = beside is not sys.stdout
        """Whether a person is in front of it, who is asked, and is shown a summary at the end."""
        self._said = ""
        self._message = ""
        self._asked: dict[str, str] = {}
        self._tools: dict[str, str] = {}
        self.stop_expected = False
        """Whether a person knows already that the agent is being stopped, having asked for it."""

    def show(self, event: AgentEvent) -> None:
        """Print one event."""
        data = event.data
        match event.type:
            case "attempt_planned":
                self._said = ""
                if not self._in_foreground and data["number"] > 1:
                    self.note(f"--- attempt {data['number']}")
            case "attempt_claimed" if data["owner"].get("pid") != os.getpid():
                self.note(f"attached by process {data['owner'].get('pid')}")
            case "attempt_branched":
                self.note(f"continues {data['origin']['attempt']}; `maos agent logs` shows its past")
            case "attempt_output":
                self._print_facts(data["facts"], event.messages)
            case "attempt_stopping" if not self.stop_expected:
                self.note(words.STOPPING.get(data["why"], f"is being ended: {data['why']}"), "warning")
            case "attempt_answered":
                asked = self._asked.pop(data["request"], data["request"])
                why = f" ({words.one_line(data['why'], 200)})" if data.get("why") else ""
                self.note(f"{'allowed' if data['allow'] else 'refused'}: {asked}{why}")
            case "attempt_ended" if not self._in_foreground:
                style = {"done": "good", "failed": "bad"}.get(data["status"], "warning")
                self.note(words.ending(data["status"], data.get("failure", ""), data.get("message", "")), style)
            case "unattended" if data["resumable"]:
                meaning = data["status"].meaning or data["status"]
                self.note(f"{meaning}; {words.continue_with(data['resumable'])}", "warning")
        sys.stdout.flush()
        sys.stderr.flush()

    def note(self, text: str, style: str = "dim") -> None:
        """Something about the agent, on a line of its own."""
        _write(self._beside, clean(text), style)

    def _print_facts(self, facts: Sequence[Fact], messages: Mapping[int, str]) -> None:
        """Print what an agent said and did; a discovery stands out in the line that it is in."""
        keywords = [_keyword(fact) for fact in facts if fact["kind"] == "discovery"]
        said = ""
        for fact in facts:
            if fact["kind"] != "discovery":
                said = fact.get("text", "").lower() if fact["kind"] in ("line", "text") else ""
            match fact["kind"]:
                case "line":
                    stream = self._beside if fact.get("stderr") else sys.stdout
                    plain = "dim" if fact.get("stderr") and not self._in_foreground else ""
                    style = "found" if any(word in said for word in keywords) else plain
                    _write(stream, words.tidy(fact.get("text", "")), style)
                case "text":
                    self._text(fact, keywords)
                case "input" if fact["id"].startswith("inbox/"):
                    version = int(fact["id"].removeprefix("inbox/"))
                    self.note(f"» {words.one_line(messages.get(version, ''), None)}")
                case "discovery" if _keyword(fact) not in said:  # an agent can also report one without saying it
                    self.note(f"★ {fact.get('keyword', '')}: {fact.get('text', '')}", "found")
                case "tool_use":
                    self._tool(fact)
                case "permission_requested":
                    self._asked[fact["id"]] = words.tool(fact.get("tool", ""), fact.get("input"))
                    if not self._in_foreground:
                        self.note(f"asks to use {self._asked[fact['id']]}", "warning")
                case "turn_ended":
                    self._turn_ended(fact)
                case "unknown":
                    self.note(fact.get("text", ""))
                case kind:
                    if kind == "tool_result":
                        self._tools.pop(fact["id"], None)
                    for text, style in words.of_fact(fact, _width()):
                        self.note(text, style)

    def _text(self, fact: Fact, found: Sequence[str]) -> None:
        """What the agent says."""
        text, message = fact.get("text", ""), fact.get("message", "")
        continues = message and message == self._message
        self._said = f"{self._said}{'' if fact.get('part') else ' '}{text}" if continues else text
        self._message = message
        for line in text.splitlines():
            style = "found" if any(word in line.lower() for word in found) else ""
            _write(sys.stdout, words.tidy(line), style)

    def _turn_ended(self, fact: Fact) -> None:
        """The result, unless these were the agent's last words already."""
        result = fact.get("result", "").split()
        if result and not fact.get("failed") and self._said.split()[-len(result) :] != result:
            self._text({"text": fact["result"]}, ())
        self._said = self._message = ""

    def _tool(self, fact: Fact) -> None:
        """A tool that is about to run; printed again when more is known of it."""
        text = words.tool(fact.get("name", ""), fact.get("input"))
        if self._tools.get(fact["id"]) != text:
            self._tools[fact["id"]] = text
            self.note(shorten(f"→ {text}", _width()))


def _keyword(fact: Fact) -> str:
    return f"{fact.get('keyword', '')}:".lower()


def _write(stream: TextIO, text: str, style: str) -> None:
    stream.write(styled(text, style, stream) + "\n")


def _width() -> int:
    """The characters that a line about a tool may have."""
    try:
        return max(WIDTH_MIN, os.get_terminal_size(sys.stderr.fileno()).columns - 1)
    except OSError:  # no terminal
        return TOOL_CHARS


class PermissionPrompt:
    """Asks the person at the terminal for the permissions that an agent requests, one at a time."""

    def __init__(self, agent: str, answer: Callable[..., Coroutine[Any, Any, None]], *, interactive: bool) -> None:
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
            if fact["kind"] == "permission_requested":
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
            self._prompt(f"allow {words.tool(fact.get('tool', ''), fact.get('input'))}?")
            loop.add_reader(keyboard, self._read, keyboard)

    def _print_command(self, request: str) -> None:
        click.echo(f"  answer with: maos agent answer {self._agent} {clean(request)} yes|no", err=True)

    def _prompt(self, text: str) -> None:
        click.echo(f"{styled(text, 'warning', sys.stderr)} [y/n]: ", nl=False, err=True)

    def _read(self, keyboard: int) -> None:
        typed = os.read(keyboard, ANSWER_BYTES_MAX)
        if not typed:  # Ctrl+D: it is answered from elsewhere, or not at all
            click.echo(err=True)
            request = self._current
            self.close()
            self._print_command(request)
            return
        allow = yes_or_no(typed.decode(errors="replace"))
        if allow is None:
            self._prompt("yes or no?")
            return
        request, self._current = self._current, ""
        del self._open[request]
        task = asyncio.ensure_future(self._answer(request, allow=allow))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)
        self._next()

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
                code = await self._watch(begun)
            finally:
                if self._prompt is not None:
                    self._prompt.close()
                await cancel(*self._tasks)
            return await self._conclude(begun) if code is None else code

    async def _watch(self, begun: Attachment) -> int | None:
        """Follow it until it has ended; the exit code when a signal or a closed terminal ends the following before."""
        running = begun.running
        if running is not None:
            self._prompt = PermissionPrompt(begun.agent, running.answer, interactive=not self._as_json)
            for text in status.place_of(running.attempt):
                self._tell(text)
            for asked in running.attempt.permissions.values():
                if asked.is_open:
                    self._prompt.asked({"id": asked.id, "tool": asked.tool, "input": asked.input})
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
            await asyncio.to_thread(write, event)
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
