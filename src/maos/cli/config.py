"""`maos admin config`: settings, where each comes from, what is wrong with them, and how to change them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from maos import settings
from maos.cli import documents, render
from maos.cli.commands import LazyGroup, json_command
from maos.cli.database import DatabaseTarget, ask
from maos.cli.failures import FAILED, USAGE, note, report
from maos.cli.render import Column, Listing, clean
from maos.errors import InvalidInput, MaosError, NotFound
from maos.settings import SettingsFiles, SettingsSource, loader, schema
from maos.settings.loader import render_value
from maos.settings.positions import Problem

SETTINGS: Listing[dict[str, Any]] = Listing(
    "settings",
    (
        Column("setting", lambda each: each["name"], style="bold"),
        Column("value", lambda each: render_value(each["value"]), yields=1),
        Column("from", lambda each: each["where"] or each["source"], yields=2),
    ),
)


@click.group(
    cls=LazyGroup,
    lazy={
        "show": ("maos.cli.config:show", "Show settings, and where each comes from."),
        "validate": ("maos.cli.config:validate", "Check settings; every problem is named by file and line."),
        "path": ("maos.cli.config:path", "Print which files the settings come from."),
        "edit": ("maos.cli.config:edit", "Edit a settings file in your editor ($VISUAL or $EDITOR)."),
    },
    examples=["maos admin config show", "maos admin config show checkpoint.interval_s", "maos admin config edit"],
)
def config() -> None:
    """Show, check and change settings.

    They come from your own maos.toml, from the nearest one in or above the current folder, from variables MAOS_… and
    from flags; later ones in this list override earlier ones. Running processes notice a change within seconds.
    """


@json_command("maos admin config show checkpoint", "maos admin config show cleanup.every_hours --json")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--changed", is_flag=True, help="Only settings that differ from the default.")
def show(database: DatabaseTarget, names: tuple[str, ...], changed: bool, as_json: bool) -> None:
    """Show settings, and where each comes from.

    NAME is a setting or a table of them.
    """
    loaded = database.settings.loaded
    entries = [each for each in loader.entries(loaded) if not changed or each["source"] != "default"]
    if names:
        entries = [each for name in names for each in _named(entries, name, changed=changed)]
    if as_json:
        files = [str(each) for each in loaded.files]
        documents.show({"version": schema.VERSION, "files": files, "settings": entries, "notes": list(loaded.notes)})
        return

    SETTINGS.table(entries)
    for text in loaded.notes:
        note(text)


def _named(entries: list[dict[str, Any]], name: str, *, changed: bool) -> list[dict[str, Any]]:
    found = [each for each in entries if each["name"] == name or each["name"].startswith(f"{name}.")]
    if not found and not changed:
        near = get_close_matches(name, [each["name"] for each in entries], n=1)
        raise NotFound(
            f"there is no setting {name}",
            hint=f"did you mean {near[0]}?" if near else "`maos admin config show` lists them",
        )
    return found


@json_command("maos admin config validate", "maos admin config validate --json")
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(exists=True, dir_okay=False))
def validate(_database: DatabaseTarget, file: str | None, as_json: bool) -> int:
    """Check settings; every problem is named by file and line.

    With FILE, that file is checked as if it was the project's. Exit code 2 when something is wrong, 1 for a file of a
    newer maos.
    """
    sources = [SettingsSource(Path(file), is_project=True)] if file else _found().sources
    problems: Sequence[Problem] = ()
    notes: Sequence[str] = ()
    code = 0
    try:
        notes = loader.load(sources, {} if file else os.environ).notes
    except loader.BadSettings as error:
        problems, code = error.problems, USAGE
    except loader.NewerSettings as error:
        where, _, what = error.what.partition(": ")
        problems, code = [Problem(where, what, error.hint)], FAILED
    if as_json:
        found = [{"where": each.where, "what": each.what, "hint": each.hint} for each in problems]
        documents.show({"ok": not problems, "problems": found, "notes": list(notes)})
        return code
    for each in problems:
        report(f"{each.where}: {each.what}", each.hint)
    for text in notes:
        note(text)
    if not problems:
        there = [str(each.path) for each in sources if each.path.exists()]
        render.line(f"ok: {clean(', '.join(there))}" if there else "ok: there is no settings file")
    return code


@json_command("maos admin config path", "maos admin config path --json")
def path(_database: DatabaseTarget, as_json: bool) -> None:
    """Print which files the settings come from.

    The first is your own, the second that of the project, which overrides yours. A file above the current folder that
    belongs to another user is ignored.
    """
    found = _found()
    if as_json:
        user = {"path": str(found.user), "exists": found.user.exists()}
        project = {"path": str(found.project), "exists": True} if found.project else None
        passed_over = str(found.passed_over) if found.passed_over else None
        documents.show({"user": user, "project": project, "passed_over": passed_over})
        return

    render.line("yours    ", clean(str(found.user)), ("" if found.user.exists() else "  (there is none)", "dim"))
    ours = clean(str(found.project)) if found.project else ""
    render.line("project  ", ours, ("" if ours else "(there is none in or above this folder)", "dim"))
    if found.passed_over:
        note(f"{found.passed_over} belongs to another user and is ignored")


def _found() -> SettingsFiles:
    return settings.find_files(Path.cwd(), settings.config_folder())


@json_command("maos admin config edit", "maos admin config edit --project")
@click.option(
    "--project/--user", default=None,
    help="The project's file, a new one in this folder if there is none; or your own, even if the project has one.",
)  # fmt: skip
def edit(_database: DatabaseTarget, project: bool | None, as_json: bool) -> None:
    """Edit a settings file in your editor ($VISUAL or $EDITOR).

    The project's if there is one, else your own; a new file lists all settings and their defaults. The text is checked
    before it replaces the file, in one step.
    """
    found = _found()
    is_project = found.project is not None if project is None else project
    path = found.project or Path.cwd() / settings.FILE_NAME if is_project else found.user
    source = SettingsSource(path, is_project=is_project)
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    text = _edited(before or loader.template(is_project=is_project), source)
    changed = text is not None and text != before
    if text is not None and changed:
        if path.exists() and path.read_text(encoding="utf-8") != before:
            raise InvalidInput(f"{path} was changed by another program meanwhile", hint="edit it again")
        loader.write(path, text)
    done = f"{clean(str(path))} is written" if changed else "nothing was changed"
    render.show({"path": str(path), "changed": changed}, done, as_json=as_json)


def _edited(text: str, source: SettingsSource) -> str | None:
    """The text as a person edited it, until it is valid; None when they left it unchanged."""
    while True:
        said = click.edit(text, extension=".toml")
        if said is None:
            return None
        text = said
        wrong = _problems(text, source)
        if not wrong:
            return text
        for each in wrong:
            report(f"{each.where}: {each.what}", each.hint)
        if sys.stdin is None or not sys.stdin.isatty():
            raise click.exceptions.Exit(USAGE)
        ask("Edit it again?", default=True)


def _problems(text: str, source: SettingsSource) -> list[Problem]:
    try:
        return loader.check(text, source).problems
    except MaosError as error:
        return [Problem(str(source.path), error.what, error.hint)]
