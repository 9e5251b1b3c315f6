"""What a run and its agents ask, put to the person in front of the live view, one question at a time."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from maos.cli.agent import words
from maos.cli.line import InputLine
from maos.cli.orchestrate import narrating
from maos.cli.orchestrate.screen import Prompt, RunScreen
from maos.cli.plain import clean
from maos.errors import MaosError

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.engine.questions import Open
    from maos.model.attempt import Attempt
    from maos.model.run import Run

TEXT_WIDTH = 400


def open_in(run: Run, attempts: Iterable[Attempt]) -> list[Open]:
    """What a run and its agents ask by now, the oldest first."""
    from maos.engine import questions
    from maos.model.run_status import PendingCommands

    found = questions.of_run(run, PendingCommands(questions=run.questions))
    for each in attempts:
        found += questions.of_attempt(each)
    return sorted(found, key=lambda each: each.asked_us)


def asker(run: str, question: Open) -> str:
    """The task that asks."""
    names = [narrating.task_of(run, each) for each in question.asked_by]
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
        lines.append(f"  without an answer by {words.when(question.expires_us)}: {clean(question.default)}")
    return [*lines, *([f"  and {left} more"] if left else [])]


def label(question: Open) -> str:
    """What stands before the answer."""
    return "yes or no › " if question.kind != "question" else "answer › "


class Asking:
    """The questions of a run, for whoever watches it live; anywhere else they are only told, with how to answer."""

    def __init__(self, m: Maos, screen: RunScreen) -> None:
        self._m = m
        self._screen = screen
        self._line = InputLine()
        self._off: set[str] = set()
        """Questions that were answered here a moment ago, or are left to somebody else."""
        self._current: Open | None = None
        self._answering: set[asyncio.Task[None]] = set()
        self._keyboard = None
        if screen.is_live and sys.stdin is not None and sys.stdin.isatty():
            from maos.cli.keyboard import Keyboard

            self._keyboard = Keyboard(self._typed)

    def look(self, run: Run, attempts: Iterable[Attempt]) -> None:
        """See what is asked now, and have it typed; asked elsewhere and answered there is asked no more."""
        if self._keyboard is None:
            return
        found = [each for each in open_in(run, attempts) if each.ref not in self._off]
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
        self._screen.ask(Prompt(self._line, label(current), spoken(run.id, current, len(found) - 1)))

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
        from maos.cli.questions import give
        from maos.engine.questions import with_reason

        try:
            await give(self._m, question, *with_reason(question, said))
        except MaosError as error:
            self._screen.tell(f"  {error}", "warning")
            self._off.discard(question.ref)
        self._again()

    def _again(self) -> None:
        self.look(self._screen.run, self._screen.attempts)
