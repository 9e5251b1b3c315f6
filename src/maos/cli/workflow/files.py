"""`maos workflow validate`, `graph` and `schema`: plan files, before they are run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from maos.cli import documents as shared
from maos.cli.commands import LazyCommand, json_option
from maos.cli.failures import FAILED
from maos.cli.plain import clean
from maos.cli.workflow.arguments import named_text
from maos.errors import InvalidInput

if TYPE_CHECKING:
    from maos.model.plan import Problem
    from maos.plans.parser import ParsedPlan
    from maos.plans.source import Source

variables_option = click.option(
    "--var", "variables", multiple=True, metavar="NAME=VALUE", help="A variable of the file. Can be repeated."
)


def load(path: str, variables: tuple[str, ...] = ()) -> ParsedPlan:
    """A plan file that makes sense; BadPlan has everything that is wrong with it."""
    from maos.plans.parser import parse

    return parse(_source(path, variables))


def _source(path: str, variables: tuple[str, ...]) -> Source:
    """A plan file with what --var says, as text: it is put into text, and 1.10 is to stay that."""
    from maos.plans import source

    return source.load(path, dict(named_text(each, "--var") for each in variables))


def execute(ctx: click.Context, path: str, variables: tuple[str, ...], **how: Any) -> NoReturn:
    """Execute a plan file as `maos run` does; the run keeps which file it was made from."""
    from maos.cli.runs import start

    start.start(ctx, lambda _begun: _source(path, variables), tells_others=True, keeps_file=True, **how)


@click.command(
    cls=LazyCommand, examples=["maos workflow validate release.yaml", "maos workflow validate *.yaml --json"]
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@variables_option
@json_option
@click.pass_context
def validate(ctx: click.Context, files: tuple[str, ...], variables: tuple[str, ...], as_json: bool) -> None:
    """Check plan files; every problem is named by file, line and column."""
    from maos.model.plan import BadPlan, Problem

    told: list[dict[str, Any]] = []
    tasks = 0
    for name in files:
        try:
            tasks += len(load(name, variables).plan.tasks)
        except BadPlan as error:
            told += [_document(name, each) for each in error.problems]
        except InvalidInput as error:
            told.append(_document(name, Problem(name, error.what, error.hint)))
    if as_json:
        shared.show({"ok": not told, "problems": told})
    else:
        for each in told:
            hint = f" ({clean(each['hint'])})" if each["hint"] else ""
            click.echo(f"{clean(each['file'])}:{each['line']}:{each['column']}: {clean(each['what'])}{hint}", err=True)
        if not told:
            from maos.cli import render

            render.line(f"ok: {render.many(tasks, 'task')}")
    ctx.exit(FAILED if told else 0)


def _document(file: str, problem: Problem) -> dict[str, Any]:
    line, column = problem.position or (1, 1)
    return {"file": file, "line": line, "column": column, "what": problem.what, "hint": problem.hint or None}


@click.command(cls=LazyCommand, examples=["maos workflow graph release.yaml --svg out.svg"])
@click.argument("file", metavar="FILE")
@variables_option
@click.option("--svg", "picture", metavar="FILE", help="Draw it into a file instead; - is standard output.")
@json_option
def graph(file: str, variables: tuple[str, ...], picture: str | None, as_json: bool) -> None:
    """Show which tasks of a plan file can run together, and what each needs."""
    from maos.cli import render
    from maos.model.plan import batches
    from maos.plans import graph as graph_of

    plan = load(file, variables).plan
    if as_json:
        shared.show({"batches": batches(plan), "needs": {task.name: task.needs for task in plan.tasks}})
    elif picture is None:
        for line in graph_of.lines(plan):
            render.line(clean(line))
    elif picture == "-":
        sys.stdout.write(graph_of.svg(plan))
    else:
        try:
            Path(picture).write_text(graph_of.svg(plan), encoding="utf-8")
        except OSError as error:
            raise InvalidInput(
                f"{picture} cannot be written: {error.strerror}", hint="name a file in a folder that is there"
            ) from error


@click.command(cls=LazyCommand, examples=["maos workflow schema > plan.schema.json"])
def schema() -> None:
    """Print the JSON Schema of plan files, for editors."""
    from maos.plans.format import schema as made

    shared.show(made())
