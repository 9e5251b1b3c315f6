"""What all commands share: they are loaded when needed, have aliases and examples, and accept versions from the end."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from types import MappingProxyType
from typing import Any

import click

from maos.cli.arguments import VersionType

DOCUMENT, LINES = "Print one JSON document instead.", "Print a JSON document per line instead."
"""What --json does."""
_FROM_NEWEST = re.compile(r"-[0-9]+")


class LazyCommand(click.Command):
    """A command whose help ends with examples; what it returns is its exit code."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        _write_examples(self.examples, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if any(isinstance(each, click.Argument) and isinstance(each.type, VersionType) for each in self.params):
            args = self._with_versions(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> None:
        code = super().invoke(ctx)
        if code:
            ctx.exit(code)

    def _with_versions(self, args: list[str]) -> list[str]:
        """Replace `-2` in the place of a version by `newest-2`: click would read it as an option."""
        valued = {name for each in self.params if isinstance(each, click.Option) and not each.is_flag
                  for name in each.opts}  # fmt: skip
        result: list[str] = []
        for index, arg in enumerate(args):
            if arg == "--":
                return result + args[index:]
            is_value = index > 0 and args[index - 1] in valued
            result.append(f"newest{arg}" if _FROM_NEWEST.fullmatch(arg) and not is_value else arg)
        return result


Entry = tuple[str, str]
"""Where a command is, as `module:name`, and the first paragraph of its help."""
NO_ALIASES: Mapping[str, str] = MappingProxyType({})


class LazyGroup(click.Group):
    """A group that imports a command when it is used; its own help is in the table and imports nothing.

    `aliases` are further names that the help does not list: `module:name`, and arguments that come first.
    """

    def __init__(
        self,
        *args: Any,
        lazy: Mapping[str, Entry],
        aliases: Mapping[str, str] = NO_ALIASES,
        examples: Sequence[str] = (),
        **attributes: Any,
    ) -> None:
        super().__init__(*args, **attributes)
        self.lazy = lazy
        self.aliases = aliases
        self.examples = tuple(examples)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        location = self.lazy[cmd_name][0] if cmd_name in self.lazy else self.aliases.get(cmd_name, "")
        if not location:
            return None
        module, _, name = location.partition(" ")[0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.write_commands("Commands", self.lazy, formatter)

    def write_commands(self, title: str, entries: Mapping[str, Entry], formatter: click.HelpFormatter) -> None:
        """Write commands with their short help under a title."""
        width = max(map(len, self.lazy), default=0)
        limit = formatter.width - 6 - width
        rows = [
            (name.ljust(width), click.Command(name, help=help).get_short_help_str(limit))
            for name, (_, help) in entries.items()
        ]
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, *rest = args
        if name in self.aliases:
            _location, *preset = shlex.split(self.aliases[name])
            args = [name, *preset, *rest]
        elif name == "help":
            click.echo(ctx.get_help())
            ctx.exit()
        elif name not in self.lazy and not name.startswith("-") and not ctx.resilient_parsing:
            near = get_close_matches(name, [*self.lazy, *self.aliases], n=1)
            also = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(self.lazy)}"
            raise click.UsageError(f"no command {name!r}; {also}", ctx)
        return super().resolve_command(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        _write_examples(self.examples, formatter)


def _write_examples(examples: Sequence[str], formatter: click.HelpFormatter) -> None:
    if examples:
        with formatter.section("Examples"):
            for line in examples:
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def forward(ctx: click.Context, path: str, *args: str) -> None:
    """Run another command of the program in the place of this one; `path` is what a person would type."""
    root = ctx.find_root()
    command = root.command
    for name in path.split():
        assert isinstance(command, click.Group)
        found = command.get_command(root, name)
        assert found is not None
        command = found
    with command.make_context(path, list(args), parent=root) as context:
        command.invoke(context)


def json_command(
    *examples: str, name: str | None = None, json: str = DOCUMENT, cls: type[LazyCommand] = LazyCommand
) -> Callable[[Callable[..., int | None]], LazyCommand]:
    """Make a command of a function that gets the database first, and `as_json` from --json, the last option."""

    def make(function: Callable[..., int | None]) -> LazyCommand:
        made = click.command(name, cls=cls, examples=examples)(click.pass_obj(function))
        made.params.append(click.Option(["--json", "as_json"], is_flag=True, help=json))
        return made

    return make


def options(*given: Callable[[Any], Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Several options as one decorator."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(given):
            function = option(function)
        return function

    return add


json_option = click.option("--json", "as_json", is_flag=True, help=DOCUMENT)
json_lines_option = click.option("--json", "as_json", is_flag=True, help=LINES)
full_option = click.option("--full", is_flag=True, help="Shorten nothing.")
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would be done.")
source_option = click.option(
    "--source", default="cli", show_default=True, help="The author of the change, as shown in the history."
)
path_option = click.option("--path", metavar="POINTER", help="Only the value at this path, such as /messages/0.")
