"""What an agent asks to be allowed to do, put to the person at the terminal, one question at a time."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

import click

from maos.cli.agent import words
from maos.cli.agent.feed import styled
from maos.cli.plain import clean

if TYPE_CHECKING:
    from maos.journal.journal import Record
    from maos.model.facts import Fact

ANSWER_BYTES_MAX = 4096
YES, NO = ("y", "yes"), ("n", "no")


class Answer(Protocol):
    """Gives an agent the answer it waits for."""

    def __call__(self, request: str, *, allow: bool, why: str = "") -> Coroutine[Any, Any, None]: ...


class Questions:
    """The questions of one agent that are still open."""

    def __init__(self, agent: str, answer: Answer, *, interactive: bool) -> None:
        self._agent = agent
        self._answer = answer
        self._interactive = interactive and sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
        self._open: dict[str, Fact] = {}
        self._current = ""
        self._answering: set[asyncio.Task[None]] = set()
        self._stop_reading: Callable[[], object] | None = None

    def hear(self, record: Record) -> None:
        """Take note of what was asked and answered, here or elsewhere."""
        if record.type == "attempt_answered":
            self._answered(record.data["request"])
        for fact in record.data.get("facts", ()):
            if fact["kind"] == "permission_requested":
                self.asked(fact)
        if record.type == "attempt_ended":
            self.close()

    def asked(self, fact: Fact) -> None:
        """A question that waits for an answer."""
        if "answer" in fact or fact["id"] in self._open:
            return
        if not self._interactive:
            asked = words.tool(fact.get("tool", ""), fact.get("input"))
            click.echo(styled(f"asks to use {asked}", "warning", sys.stderr), err=True)
            click.echo(f"  answer with: maos agent answer {self._agent} {clean(fact['id'])} yes|no", err=True)
            return
        self._open[fact["id"]] = fact
        self._next()

    def close(self) -> None:
        """Ask no more."""
        self._open.clear()
        self._current = ""
        self._next()

    def _next(self) -> None:
        if not self._open and self._stop_reading is not None:
            self._stop_reading()
            self._stop_reading = None
        if self._current or not self._open:
            return
        self._current, fact = next(iter(self._open.items()))
        self._prompt(f"allow {words.tool(fact.get('tool', ''), fact.get('input'))}?")
        if self._stop_reading is None:
            loop, keyboard = asyncio.get_running_loop(), sys.stdin.fileno()
            loop.add_reader(keyboard, self._read, keyboard)
            self._stop_reading = lambda: loop.remove_reader(keyboard)

    def _prompt(self, text: str) -> None:
        click.echo(f"{styled(text, 'warning', sys.stderr)} [y/n]: ", nl=False, err=True)

    def _read(self, keyboard: int) -> None:
        typed = os.read(keyboard, ANSWER_BYTES_MAX)
        if not typed:  # Ctrl+D: whoever sits here will not answer; somebody else may
            click.echo(err=True)
            request = self._current
            self.close()
            click.echo(f"  answer with: maos agent answer {self._agent} {clean(request)} yes|no", err=True)
            return
        said = typed.decode(errors="replace").strip().lower()
        if said not in (*YES, *NO):
            self._prompt("yes or no?")
            return
        request, self._current = self._current, ""
        del self._open[request]
        task = asyncio.ensure_future(self._answer(request, allow=said in YES))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)
        self._next()

    def _answered(self, request: str) -> None:
        """Somebody has answered."""
        if self._open.pop(request, None) is None:
            return
        if request == self._current:
            self._current = ""
            click.echo(err=True)
        self._next()
