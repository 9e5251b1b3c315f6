"""What a run and its agents ask, put to the person in front of the live view, one question at a time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from maos.cli import render
from maos.cli.agent import words
from maos.cli.input import Prompt
from maos.cli.plain import clean
from maos.cli.runs import narration
from maos.cli.runs.live import LiveView
from maos.errors import MaosError

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.question import Open

TEXT_WIDTH = 400


def lines_of(run: str, question: Open) -> list[str]:
    """A question as it is rendered above the prompt."""
    names = [narration.task_of(run, each) for each in question.asked_by]
    asker = clean(", ".join(names) or question.id.partition("/")[2].partition("/")[0] or run)
    text = question.text
    if question.kind == "permission":
        text = f"asks to use {words.tool(question.tool, question.input)}"
    lines = [f"? {asker}  {words.one_line(text, TEXT_WIDTH)}"]
    if question.kind == "question" and question.choices:
        lines.append("  " + "   ".join(f"{n} {clean(each)}" for n, each in enumerate(question.choices, 1)))
    if question.default is not None:
        lines.append(f"  without an answer by {render.when(question.expires_us)}: {clean(question.default)}")
    return lines


def prompt_of(run: str, question: Open, left: int) -> Prompt:
    """The prompt for the answer to a question, with the number of questions after it."""
    label = "answer › " if question.kind == "question" else "yes or no › "
    about = [*lines_of(run, question), *([f"  and {left} more"] if left else [])]
    return Prompt("answer", label, about, question.ref)


class QuestionPrompts:
    """Asks the open questions of a run in its live view. Without a person at a terminal, it asks nothing."""

    def __init__(self, m: Maos, view: LiveView) -> None:
        self._m = m
        self._view = view
        is_person = sys.stdin is not None and sys.stdin.isatty()
        self._terminal = view.terminal if is_person else None
        self._open: Sequence[Open] = ()
        self._current = ""
        self._skipped: set[str] = set()
        """Questions that were answered here, or left to another person."""

    def ask(self, questions: Sequence[Open]) -> None:
        """Ask the first of the open questions; drop what was typed for one that was answered elsewhere."""
        if self._terminal is None:
            return
        self._open = questions
        found = {each.ref: each for each in questions if each.ref not in self._skipped}
        if self._current not in found:
            self._current = next(iter(found), "")
            self._terminal.ask(None)
            self._terminal.drop()
        if self._current:
            self._terminal.ask(prompt_of(self._view.run.id, found[self._current], len(found) - 1))

    async def answer(self) -> None:
        """Record what the person answers, until cancelled."""
        while self._terminal is not None:
            line = await self._terminal.next()
            question = next((each for each in self._open if each.ref == self._current), None)
            if question is None or (line is not None and not line.text.strip()):
                continue
            self._skipped.add(question.ref)
            if line is None:
                what = "…" if question.kind == "question" else "yes|no"
                self._view.report(f"  left for later: maos answer {question.ref} {what}")
            else:
                await self._give(question, line.text)
            self.ask(self._open)

    async def _give(self, question: Open, text: str) -> None:
        try:
            await self._m.questions.give_line(question, text)
        except MaosError as error:
            self._view.report(f"  {error}", "warning")
            self._skipped.discard(question.ref)
