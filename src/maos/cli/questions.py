"""`maos questions` and `maos answer`: what a person is asked, by all runs and agents, also while no engine runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from maos.cli import completing
from maos.cli import documents as shared
from maos.cli.commands import LazyCommand, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.plain import clean

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.engine.questions import Open


@click.command(cls=LazyCommand, examples=["maos questions", "maos questions --json"])
@json_option
@click.pass_obj
def questions(database: DatabaseTarget, as_json: bool) -> None:
    """List what waits for your answer.

    Questions of runs, gates of tasks, and permissions that agents ask for, the oldest first.
    """

    async def work(m: Maos) -> list[Open]:
        return await open_questions(m)

    found = database.read(work)
    if as_json:
        from maos.cli.orchestration import documents

        shared.show({"questions": [documents.question(each) for each in found]})
        return
    from maos.cli import render
    from maos.cli.orchestration import page

    if not found:
        render.line("nobody asks anything")
    page.questions(found, found)


async def open_questions(m: Maos) -> list[Open]:
    """What everybody asks, the oldest first."""
    from maos.engine import questions
    from maos.model.attempt import inbox

    found: list[Open] = []
    async for run in m.runs.all():
        if run.is_open or await m.journal.version(inbox(run.id)) > run.inbox_cursor:
            found += questions.of_run(run, await questions.wishes_of(m.journal, run))
    async for attempt in m.attempts.all():
        found += await questions.of_agent(m.journal, attempt)
    async for flow in m.workflows.all():
        found += await questions.of_workflow(m.journal, flow)
    return sorted(found, key=lambda each: each.asked_us)


class Given(NamedTuple):
    """An answer that was recorded."""

    question: Open
    answer: str
    running: bool
    go_on: str


@click.command(
    cls=LazyCommand,
    examples=[
        'maos answer q-3fa2 "PostgreSQL 16"',
        "maos answer gate/api no --why 'The button is blue'",
        "maos answer r-1a2b3c.api yes",
    ],
)
@click.argument("id", metavar="ID", shell_complete=completing.questions)
@click.argument("answer", metavar="ANSWER")
@click.option("--why", default="", help="With yes or no: a reason that the agent is told.")
@json_option
@click.pass_obj
def answer(database: DatabaseTarget, id: str, answer: str, why: str, as_json: bool) -> None:
    """Answer a question.

    ID is one that `maos questions` shows, or as much of its beginning as tells it from the others. If the question has
    choices, ANSWER is one of them or its number; gates and permissions take yes or no. The first answer counts. It is
    recorded at once, also while nobody carries the run out.
    """

    async def work(m: Maos) -> Given:
        return await _answer(m, id, answer, why)

    given = database.write(work)
    question = given.question
    if as_json:
        shared.show(
            {"id": question.ref, "answer": given.answer, "running": given.running, "go_on": given.go_on or None}
        )
        return
    from maos.cli import render

    render.line((clean(question.ref), "bold"), f" is answered: {clean(given.answer)}")
    if given.go_on:
        render.line("nobody carries it out now; to go on: ", (given.go_on, "bold"))


async def _answer(m: Maos, id: str, answer: str, why: str) -> Given:
    from maos.engine import questions
    from maos.errors import InvalidInput, NotFound

    try:
        question = questions.find(await open_questions(m), id)
    except NotFound as error:
        await _say_if_answered(m, id, error)
        raise
    if why and question.kind == questions.QUESTION:
        raise InvalidInput("--why goes with yes and no", hint="put everything into the answer")
    return await give(m, question, answer, why)


async def give(m: Maos, question: Open, answer: str, why: str = "") -> Given:
    """Record the answer to a question that is open."""
    from maos.cli.agent import standing as agents
    from maos.cli.orchestration import standing
    from maos.clock import SystemClock
    from maos.engine import ownership, questions

    said = questions.check(question, answer, why)
    if question.kind == questions.PERMISSION:
        await m.attempts.answer(question.owner, question.id, allow=said == "yes", why=why)
        now = await agents.of_agent(m, question.owner)
        return Given(question, said, not now.go_on, now.go_on)
    if question.kind == questions.WORKFLOW:
        await m.workflows.answer(question.owner, question.id, said)
        is_gone = ownership.is_gone((await m.workflows.get(question.owner)).owner)
        return Given(question, said, not is_gone, f"maos workflow resume {question.owner}" if is_gone else "")
    run = await m.runs.get(question.owner)
    await questions.answer(m.journal, SystemClock(), run, question.id, said)
    state = await standing.of_run(m, run)
    return Given(question, said, not state.go_on, state.go_on)


async def _say_if_answered(m: Maos, given: str, error: Exception) -> None:
    """Tell a question that somebody has answered from one that nobody asked."""
    from maos.engine import questions

    async for run in m.runs.all():
        for each in (await questions.wishes_of(m.journal, run)).questions.values():
            if each.answer is not None and given in (each.id, f"{run.id}/{each.id}"):
                raise questions.Answered(f"{run.id}/{each.id}", each.answer, each.answered_by) from error
