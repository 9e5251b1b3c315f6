"""`maos inbox` and `maos answer`: what runs and agents ask a person, also while no engine runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import click

from maos.cli import completion, documents, render, words
from maos.cli.commands import json_command
from maos.cli.database import DatabaseTarget
from maos.cli.render import clean
from maos.model.question import PERMISSION, Open, short


@json_command("maos inbox", "maos inbox --json")
def inbox(database: DatabaseTarget, as_json: bool) -> None:
    """List open questions.

    Questions of runs, gates of tasks, and permissions that agents ask for, the oldest first.
    """
    found = database.read(lambda m: m.questions.open())
    if as_json:
        documents.show({"questions": [document(each) for each in found]})
    elif not found:
        render.line("no open questions")
    else:
        show_open(found, found)


@json_command(
    'maos answer q-3fa2 "PostgreSQL 16"',
    "maos answer gate/api no --why 'The button is blue'",
    "maos answer r-1a2b3c.api yes",
)
@click.argument("id", metavar="ID", shell_complete=completion.questions)
@click.argument("answer", metavar="ANSWER")
@click.option("--why", default="", help="With yes or no: a reason, which is sent to the agent.")
def answer(database: DatabaseTarget, id: str, answer: str, why: str, as_json: bool) -> None:
    """Answer a question.

    ID is one that `maos inbox` shows, or a unique prefix. If the question has choices, ANSWER is one of them or its
    number; gates and permissions take yes or no. The first answer counts. It is recorded at once, also while no engine
    executes the run.
    """
    given = database.write(lambda m: m.questions.answer(id, answer, why=why))
    ref = given.question.ref
    found = {"id": ref, "answer": given.answer, "running": given.running, "resumable": given.resumable or None}
    render.show(found, (clean(ref), "bold"), f" is answered: {clean(given.answer)}", as_json=as_json)
    if given.resumable and not as_json:
        render.line("no engine runs it; to resume: ", (given.resumable, "bold"))


def document(asked: Open) -> documents.Document:
    """A question as programs see it (R-207)."""
    is_permission = asked.kind == PERMISSION
    return {
        "id": asked.ref,
        "kind": asked.kind,
        "run": None if is_permission else asked.owner,
        "question": asked.text,
        "tool": {"name": asked.tool, "input": asked.input} if is_permission else None,
        **documents.of(asked, "choices", "context", "asked_us", "asked_by", "default", "expires_us", "recorded"),
    }


def show_open(asked: Sequence[Open], others: Sequence[Open] | None = None) -> None:
    """Print questions, each with the command that answers it; its id is shorter when the questions of all are known."""
    for each in asked:
        by = ", ".join(each.asked_by) or each.owner
        render.line(("? ", "bold yellow"), (clean(by), "bold"), f" {_line(each)}")
        if each.context:
            render.line("  ", words.one_line(each.context, render.room_for_value(2)))
        if each.kind == "unknown":
            continue  # the command that resolves it is its context
        is_free = each.kind == "question" or (each.kind == "workflow" and not each.choices)
        if each.choices and is_free:
            render.line(("  choose: ", "dim"), clean(" | ".join(each.choices)))
        if each.default is not None:
            render.line((f"  without an answer by {render.when(each.expires_us)}: ", "dim"), clean(each.default))
        id = short(each, asked, others)
        what = '"…"' if is_free else "|".join(map(shlex.quote, each.choices)) or "yes|no"
        render.line(("  answer with: ", "dim"), (f"maos answer {clean(id)} {what}", "bold"))


def _line(each: Open) -> str:
    if each.kind == "permission":
        return f"asks to use {words.tool(each.tool, each.input)}"
    return f"asks: {words.one_line(each.text, 400)}"
