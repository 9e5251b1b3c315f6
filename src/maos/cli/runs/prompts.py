"""What a run and its agents ask, put to the person in front of the live view, one question at a time."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from maos.cli import render
from maos.cli.agent import words
from maos.cli.line import InputLine
from maos.cli.plain import clean
from maos.cli.runs import narration
from maos.cli.runs.screen import Prompt, Screen
from maos.errors import MaosError

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.question import Open

TEXT_WIDTH = 400


def asker(run: str, question: Open) -> str:
    """The task that asks."""
    names = [narration.task_of(run, each) for each in question.asked_by]
    return clean(", ".join(names) or question.id.partition("/")[2].partition("/")[0] or run)


def spoken(run: str, question: Open, left: int = 0) -> list[str]:
    """A question as it stands above the line that is typed."""
    what = (
        f"asks to use {words.tool(question.tool, question.input)}" if question.kind == "permission" else question.text
    )
    lines = [f"? {asker(run, question)}  {words.one_line(what, TEXT_WIDTH)}"]
    if question.kind == "question" and question.choices:
        lines.append("  " + "   ".join(f"{n} {clean(each)}" for n, each in enumerate(question.choices, 1)))
    if question.default is not None:
        lines.append(f"  without an answer by {render.when(question.expires_us)}: {clean(question.default)}")
    return [*lines, *([f"  and {left} more"] if left else [])]


def label(question: Open) -> str:
    """What stands before the answer."""
    return "yes or no › " if question.kind != "question" else "answer › "


class Prompts:
    """The questions of a run, for whoever watches it live; anywhere else they are only told, with how to answer."""

    def __init__(self, m: Maos, screen: Screen) -> None:
        self._m = m
        self._screen = screen
        self._line = InputLine()
        self._off: set[str] = set()
        """Questions that were answered here a moment ago, or are left to somebody else."""
        self._asked: Sequence[Open] = ()
        self._current: Open | None = None
        self._answering: set[asyncio.Task[None]] = set()
        self._keyboard = None
        if screen.is_live and sys.stdin is not None and sys.stdin.isatty():
            from maos.cli.keyboard import Keyboard

            self._keyboard = Keyboard(self._typed)

    @property
    def is_on(self) -> bool:
        """Whether there is a person to answer."""
        return self._keyboard is not None

    def look(self, asked: Sequence[Open]) -> None:
        """Take the questions that are open now, and have the first answered; one answered elsewhere is dropped."""
        self._asked = asked
        if self._keyboard is None:
            return
        found = [each for each in asked if each.ref not in self._off]
        current = next((each for each in found if self._current is not None and each.ref == self._current.ref), None)
        if current is None and found:
            current = found[0]
            self._line = InputLine()
        self._current = current
        if current is None:
            self._keyboard.stop()
            self._screen.ask(None)
            return
        self._keyboard.start()
        self._screen.ask(Prompt(self._line, label(current), spoken(self._screen.run.id, current, len(found) - 1)))

    def close(self) -> None:
        """Ask no more."""
        if self._keyboard is not None:
            self._keyboard.stop()
            self._keyboard = None
        self._screen.ask(None)

    def _typed(self, keys: bytes) -> None:
        done = self._line.feed(keys)
        self._screen.typed()
        question = self._current
        if question is None:
            return
        if self._line.ended:
            self._put_off(question)
        elif done and done[0].strip():
            self._off.add(question.ref)
            task = asyncio.ensure_future(self._answer(question, done[0]))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    def _put_off(self, question: Open) -> None:
        """Whoever sits here will not answer; somebody else may."""
        self._off.add(question.ref)
        what = "yes|no" if question.kind != "question" else "…"
        self._screen.tell(f"  left for later: maos answer {question.ref} {what}")
        self._again()

    async def _answer(self, question: Open, said: str) -> None:
        try:
            await self._m.questions.give_line(question, said)
        except MaosError as error:
            self._screen.tell(f"  {error}", "warning")
            self._off.discard(question.ref)
        self._again()

    def _again(self) -> None:
        self.look(self._asked)
