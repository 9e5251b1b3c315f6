"""What a run and its agents ask a person, as lines and as a prompt of the live view."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maos.cli import render
from maos.cli.agent import words
from maos.cli.input import Prompt
from maos.cli.render import clean
from maos.cli.runs import narration

if TYPE_CHECKING:
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
