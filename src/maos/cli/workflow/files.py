"""`maos workflow validate`, `graph` and `schema`: plan files, before they are run."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from maos.cli import documents, render
from maos.cli.commands import LazyCommand, json_command
from maos.cli.database import DatabaseTarget
from maos.cli.failures import FAILED
from maos.cli.render import clean
from maos.cli.runs import plans
from maos.errors import InvalidInput
from maos.model.plan import BadPlan, Problem, batches
from maos.plans import format as plan_format
from maos.plans import graph as graphs
from maos.plans.parser import parse

variables_option = click.option(
    "--var", "variables", multiple=True, metavar="NAME=VALUE", help="A variable of the file. Can be repeated."
)


@json_command("maos workflow validate release.yaml", "maos workflow validate *.yaml --json")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@variables_option
def validate(_database: DatabaseTarget, files: tuple[str, ...], variables: tuple[str, ...], as_json: bool) -> int:
    """Check plan files; problems are named by line and column."""
    found: list[documents.Document] = []
    tasks = 0
    for name in files:
        try:
            tasks += len(parse(plans.read(name, variables)).plan.tasks)
        except BadPlan as error:
            found += [_problem(name, each) for each in error.problems]
        except InvalidInput as error:
            found.append(_problem(name, Problem(name, error.what, error.hint)))
    if as_json:
        documents.show({"ok": not found, "problems": found})
    elif not found:
        render.line(f"ok: {render.many(tasks, 'task')}")
    for each in found if not as_json else ():
        hint = f" ({each['hint']})" if each["hint"] else ""
        click.echo(clean(f"{each['file']}:{each['line']}:{each['column']}: {each['what']}{hint}"), err=True)
    return FAILED if found else 0


def _problem(file: str, problem: Problem) -> documents.Document:
    line, column = problem.position or (1, 1)
    return {"file": file, "line": line, "column": column, "what": problem.what, "hint": problem.hint or None}


@json_command("maos workflow graph release.yaml --svg out.svg")
@click.argument("file", metavar="FILE")
@variables_option
@click.option("--svg", "picture", metavar="FILE", help="Draw it into a file instead; - is standard output.")
def graph(_database: DatabaseTarget, file: str, variables: tuple[str, ...], picture: str | None, as_json: bool) -> None:
    """Show which tasks of a plan file can run together.

    Each stands with the tasks that it needs.
    """
    plan = parse(plans.read(file, variables)).plan
    if as_json:
        documents.show({"batches": batches(plan), "needs": {task.name: task.needs for task in plan.tasks}})
    elif picture is None:
        for line in graphs.lines(plan):
            render.line(clean(line))
    elif picture == "-":
        sys.stdout.write(graphs.svg(plan))
    else:
        try:
            Path(picture).write_text(graphs.svg(plan), encoding="utf-8")
        except OSError as error:
            raise InvalidInput(
                f"{picture} cannot be written: {error.strerror}", hint="name a file in a folder that exists"
            ) from error


@click.command(cls=LazyCommand, examples=["maos workflow schema > plan.schema.json"])
def schema() -> None:
    """Print the JSON Schema of plan files, for editors."""
    documents.show(plan_format.schema())
