"""`maos config show`, `validate` and `path`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from maos.cli import documents as shared
from maos.cli.commands import LazyCommand, json_option
from maos.cli.failures import FAILED, USAGE, note, report
from maos.cli.plain import clean
from maos.errors import NotFound

if TYPE_CHECKING:
    from maos.cli.database import DatabaseTarget
    from maos.settings.loader import Loaded
    from maos.settings.locations import SettingsFiles

HIDDEN = "(hidden)"
"""In the place of addresses, which may have a key in them."""


@click.command(
    cls=LazyCommand,
    examples=["maos config show", "maos config show checkpoint", "maos config show cleanup.every_hours --json"],
)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--changed", is_flag=True, help="Only what somebody has set.")
@json_option
@click.pass_obj
def show(database: DatabaseTarget, names: tuple[str, ...], changed: bool, as_json: bool) -> None:
    """Show the settings, and where each comes from.

    NAME is a setting or a table of them.
    """
    from maos.settings import schema
    from maos.settings.current import shown

    loaded = database.settings.loaded
    entries = [each for each in _entries(loaded) if not changed or each["source"] != "default"]
    if names:
        entries = [each for name in names for each in _named(entries, name, changed=changed)]
    if as_json:
        files = [str(each) for each in loaded.files]
        shared.show({"version": schema.VERSION, "files": files, "settings": entries, "notes": list(loaded.notes)})
        return
    from maos.cli import render

    columns = (
        render.Column("setting", style="bold"), render.Column("value", yields=1), render.Column("from", yields=2),
    )  # fmt: skip
    rows = [
        (each["name"], clean(shown(each["value"])), clean(each["where"] or each["source"])) for each in entries
    ]  # fmt: skip
    render.table(columns, rows)
    for text in loaded.notes:
        note(text)


def _entries(loaded: Loaded) -> list[dict[str, Any]]:
    from maos.settings import schema

    found = []
    for field in schema.fields().values():
        if field.name == "cleanup.of":
            continue
        value = schema.value_of(loaded.values, field.name)
        found.append(_entry(loaded, field, [HIDDEN] * len(value) if field.personal else value))
    for kind, policy in loaded.values.cleanup.of.items():
        for name, field in schema.policy_fields(kind).items():
            found.append(_entry(loaded, field, getattr(policy, name.rpartition(".")[2])))
    return found


def _entry(loaded: Loaded, field: Any, value: Any) -> dict[str, Any]:
    origin = loaded.origins.get(field.name)
    return {
        "name": field.name,
        "value": value,
        "source": origin.kind if origin else "default",
        "where": origin.where if origin else None,
        "default": field.default,
        "live": field.live,
        "variable": field.variable or None,
    }


def _named(entries: list[dict[str, Any]], name: str, *, changed: bool) -> list[dict[str, Any]]:
    found = [each for each in entries if each["name"] == name or each["name"].startswith(f"{name}.")]
    if not found and not changed:
        from difflib import get_close_matches

        near = get_close_matches(name, [each["name"] for each in entries], n=1)
        raise NotFound(
            f"there is no setting {name}", hint=f"did you mean {near[0]}?" if near else "`maos config show` lists them"
        )
    return found


@click.command(cls=LazyCommand, examples=["maos config validate", "maos config validate --json"])
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(exists=True, dir_okay=False))
@json_option
@click.pass_context
def validate(ctx: click.Context, file: str | None, as_json: bool) -> None:
    """Say everything that is wrong with the settings, and where.

    With FILE, with that one, as if it was the project's. Exit code 2 when something is wrong, 1 for a file of a newer
    maos.
    """
    import os
    from pathlib import Path

    from maos.settings import loader, locations

    sources = _found().sources
    if file:
        sources = [locations.SettingsSource(Path(file), is_project=True)]
    problems: list[loader.SettingProblem] = []
    notes: list[str] = []
    code = 0
    try:
        notes += loader.load(sources, {} if file else os.environ).notes
    except loader.BadSettings as error:
        problems += error.problems
        code = USAGE
    except loader.NewerSettings as error:
        where, _, what = error.what.partition(": ")
        problems.append(loader.SettingProblem(where, what, error.hint))
        code = FAILED
    if as_json:
        shared.show({"ok": not problems, "problems": [each._asdict() for each in problems], "notes": notes})
        ctx.exit(code)
    from maos.cli import render

    for each in problems:
        report(f"{each.where}: {each.what}", each.hint)
    for text in notes:
        note(text)
    if not problems:
        there = [str(each.path) for each in sources if each.path.exists()]
        render.line(
            f"nothing is wrong with {clean(', '.join(there))}" if there else "there is no file; nothing is wrong"
        )
    ctx.exit(code)


@click.command(cls=LazyCommand, examples=["maos config path", "maos config path --json"])
@json_option
def path(as_json: bool) -> None:
    """Say which files the settings come from.

    The first is your own, the second that of the project; a file outweighs those before it. A file above the current
    folder that belongs to a stranger is passed over.
    """
    found = _found()
    if as_json:
        shared.show(
            {
                "user": {"path": str(found.user), "exists": found.user.exists()},
                "project": {"path": str(found.project), "exists": True} if found.project else None,
                "passed_over": str(found.passed_over) if found.passed_over else None,
            }
        )
        return
    from maos.cli import render

    render.line("yours    ", clean(str(found.user)), ("" if found.user.exists() else "  (there is none)", "dim"))
    project = clean(str(found.project)) if found.project else ""
    render.line("project  ", project, ("" if project else "(there is none in or above this folder)", "dim"))
    if found.passed_over:
        note(f"{found.passed_over} belongs to somebody else, and is passed over")


def _found() -> SettingsFiles:
    from pathlib import Path

    from maos import settings
    from maos.settings import locations

    return locations.find(Path.cwd(), settings.config_folder())
