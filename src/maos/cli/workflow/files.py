"""`maos workflow validate`, `graph` and `schema`: workflow files, before they are run."""

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
    from maos.workflows.yaml.parser import Read

variables_option = click.option(
    "--var", "variables", multiple=True, metavar="NAME=VALUE", help="A variable of the file. Can be repeated."
)


def is_file(target: str) -> bool:
    """Whether a person means a workflow file, and not a function."""
    return target.endswith((".yaml", ".yml"))


def load(path: str, variables: tuple[str, ...] = ()) -> Read:
    """A workflow file that makes sense; BadFile has everything that is wrong with it."""
    from maos.workflows.yaml import parser

    return parser.parse(parser.load(path), path, _given(variables))


def _given(variables: tuple[str, ...]) -> dict[str, str]:
    """What --var says, as text: it is put into text, and 1.10 is to stay that."""
    return dict(named_text(each, "--var") for each in variables)


def execute(ctx: click.Context, path: str, variables: tuple[str, ...], **how: Any) -> NoReturn:
    """Carry out a workflow file as any other plan; the run remembers what it was made from."""
    from maos.cli.runs import plans, start
    from maos.workflows.yaml.changes import origin_of_text

    read = load(path, variables)
    more = origin_of_text(read, path, _given(variables)).option()
    if read.file.concurrency is not None:
        more["concurrency"] = read.file.concurrency
    start.start(ctx, lambda _begun: plans.as_draft(read.plan, path), tells_others=True, more=more, **how)


@click.command(
    cls=LazyCommand, examples=["maos workflow validate release.yaml", "maos workflow validate *.yaml --json"]
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@variables_option
@json_option
@click.pass_context
def validate(ctx: click.Context, files: tuple[str, ...], variables: tuple[str, ...], as_json: bool) -> None:
    """Check workflow files; every mistake is named by file, line and column."""
    from maos.workflows.yaml.positions import BadFile

    told: list[dict[str, Any]] = []
    steps = 0
    for name in files:
        try:
            steps += len(load(name, variables).plan.tasks)
        except BadFile as error:
            told += [
                {"file": name, "line": each.place.line, "column": each.place.column, "what": each.what,
                 "hint": each.hint or None}
                for each in error.mistakes
            ]  # fmt: skip
        except InvalidInput as error:
            told.append({"file": name, "line": 1, "column": 1, "what": error.what, "hint": error.hint or None})
    if as_json:
        shared.show({"ok": not told, "mistakes": told})
    else:
        for each in told:
            hint = f" ({clean(each['hint'])})" if each["hint"] else ""
            click.echo(f"{clean(each['file'])}:{each['line']}:{each['column']}: {clean(each['what'])}{hint}", err=True)
        if not told:
            from maos.cli import render

            render.line(f"ok: {render.many(steps, 'step')}")
    ctx.exit(FAILED if told else 0)


@click.command(cls=LazyCommand, examples=["maos workflow graph release.yaml --svg out.svg"])
@click.argument("file", metavar="FILE")
@variables_option
@click.option("--svg", "picture", metavar="FILE", help="Draw it into a file instead; - is standard output.")
@json_option
def graph(file: str, variables: tuple[str, ...], picture: str | None, as_json: bool) -> None:
    """Show which steps of a workflow file can run together, and what each needs."""
    from maos.cli import render
    from maos.model.plan import batches
    from maos.workflows.yaml import graph as graph_of

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


@click.command(cls=LazyCommand, examples=["maos workflow schema > workflow.schema.json"])
def schema() -> None:
    """Print the JSON Schema of workflow files, for editors."""
    from maos.workflows.yaml.format import schema as made

    shared.show(made())
