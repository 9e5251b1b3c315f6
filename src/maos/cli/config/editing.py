"""`maos config edit`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from maos.cli import documents as shared
from maos.cli.commands import LazyCommand, json_option
from maos.cli.failures import FAILED, USAGE, report
from maos.cli.plain import clean
from maos.errors import InvalidInput, MaosError

if TYPE_CHECKING:
    from maos.settings.loader import SettingProblem
    from maos.settings.locations import SettingsSource


@click.command(cls=LazyCommand, examples=["maos config edit", "maos config edit --project"])
@click.option(
    "--project/--user", default=None,
    help="The project's file, a new one in this folder if there is none; or your own, even if the project has one.",
)  # fmt: skip
@json_option
def edit(project: bool | None, as_json: bool) -> None:
    """Edit a file of settings in your editor ($VISUAL or $EDITOR).

    That of the project if there is one, else your own; a new one begins with all settings and their defaults. What you
    leave is checked before it takes the place of the file, in one step.
    """
    from pathlib import Path

    from maos import settings
    from maos.settings import locations, writer

    found = locations.find(Path.cwd(), settings.config_folder())
    is_project = found.project is not None if project is None else project
    path = found.project or Path.cwd() / locations.NAME if is_project else found.user
    source = locations.SettingsSource(path, is_project=is_project)
    before = source.path.read_text(encoding="utf-8") if source.path.exists() else ""
    text = _edited(before or writer.template(is_project=is_project), source)
    changed = text is not None and text != before
    if text is not None and changed:
        if source.path.exists() and source.path.read_text(encoding="utf-8") != before:
            raise InvalidInput(f"{source.path} was changed by somebody else meanwhile", hint="edit it again")
        writer.write(source.path, text)
    if as_json:
        shared.show({"path": str(source.path), "changed": changed})
    else:
        click.echo(f"{clean(str(source.path))} is written" if changed else "nothing was changed")


def _edited(text: str, source: SettingsSource) -> str | None:
    """What a person makes of a text, as often as it takes to be right; None when they leave it."""
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
        if not click.confirm("Edit it again?", default=True, err=True):
            click.echo("nothing was changed", err=True)
            raise click.exceptions.Exit(FAILED)


def _problems(text: str, source: SettingsSource) -> list[SettingProblem]:
    from maos.settings import loader

    try:
        return loader.check(text, source).problems
    except MaosError as error:
        return [loader.SettingProblem(str(source.path), error.what, error.hint)]
