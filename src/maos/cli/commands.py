"""What all commands share: they are loaded when needed, have aliases and examples, and arguments of a few types.

Shells complete ids of runs, tasks, agents and questions from the database; `maos completion` prints the script.
"""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from difflib import get_close_matches
from functools import partial, reduce
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from maos.cli import documents, render
from maos.cli.database import DatabaseTarget
from maos.clock import MICROSECONDS, SystemClock, to_us
from maos.errors import InvalidInput, MaosError, NotFound
from maos.patterns import regex
from maos.tuples import NamedTuple

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from click.shell_completion import CompletionItem

    from maos.app import Maos

DOCUMENT, LINES = "Print one JSON document instead.", "Print a JSON document per line instead."
"""What --json does."""
PERMISSIONS = ("ask", "edits", "deny")
TIME_LIMIT = "1h"
_FROM_NEWEST = regex(r"-[0-9]+")


OTHER_NAMES = {
    "ls": ("list", "ps"), "list": ("ps",), "top": ("ps",), "show": ("status",), "info": ("show", "status"),
    "start": ("run",), "exec": ("run",), "create": ("run",), "new": ("run", "create"), "init": ("run",),
    "stop": ("pause",), "kill": ("stop", "cancel"), "abort": ("cancel",), "continue": ("resume",),
    "restart": ("retry",), "delete": ("rm", "remove"), "remove": ("rm",), "log": ("logs",), "tail": ("logs",),
    "watch": ("attach",), "undo": ("rollback",), "approve": ("answer",), "backup": ("copy",), "check": ("doctor",),
}  # fmt: skip
"""What people call commands who know other programs, and what a group may call them instead."""


class _WithExamples(click.Command):
    """A command or a group whose help ends with examples."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        with formatter.section("Examples"):
            for line in self.examples:
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


class OptionalValue(click.Option):
    """An option with a value that can be left out, `--option` or `--option=VALUE`: what follows it is an argument.
    Without a value it is empty."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        return record and (record[0].replace(" [=", "[="), record[1])


class LazyCommand(_WithExamples):
    """A command whose help ends with examples; what it returns is its exit code."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args = self._with_values(args)
        if any(isinstance(each, click.Argument) and each.type is VERSION for each in self.params):
            args = self._with_versions(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            what = error.format_message().rstrip(".")
            if "unexpected extra argument" in what and any("--output" in each.opts for each in self.params):
                hint = "name the file with -o FILE"
                raise InvalidInput(what[:1].lower() + what[1:], hint=hint) from error
            raise

    def invoke(self, ctx: click.Context) -> None:
        code = super().invoke(ctx)
        if code:
            ctx.exit(code)

    def _with_values(self, args: list[str]) -> list[str]:
        """Give options whose value was left out an empty one: click would take the next argument for it."""
        alone = {name for each in self.params if isinstance(each, OptionalValue) for name in each.opts}
        if not alone:
            return args
        valued, end = self._valued() - alone, args.index("--") if "--" in args else len(args)
        return [
            f"{arg}=" if arg in alone and index < end and not (index and args[index - 1] in valued) else arg
            for index, arg in enumerate(args)
        ]

    def _valued(self) -> set[str]:
        """The names of options that have a value."""
        options = [each for each in self.params if isinstance(each, click.Option) and not each.is_flag]
        return {name for each in options for name in each.opts}

    def _with_versions(self, args: list[str]) -> list[str]:
        """Replace a version such as `-2` by `newest-2`: click would read it as an option."""
        valued = self._valued()
        result: list[str] = []
        for index, arg in enumerate(args):
            if arg == "--":
                return result + args[index:]
            is_value = index > 0 and args[index - 1] in valued
            result.append(f"newest{arg}" if _FROM_NEWEST.fullmatch(arg) and not is_value else arg)
        return result


Entry = tuple[str, str]
"""Where a command is, as `module:name`, and the first paragraph of its help."""


class LazyGroup(_WithExamples, click.Group):
    """A group that imports a command when it is used; its own help is in the table and imports nothing.

    `aliases` are further names that the help does not list: `module:name`, and arguments that come first.
    """

    spoken: Sequence[str] = ("help",)
    """Words that are understood like commands, and are none."""

    def __init__(
        self, *args: Any, lazy: Mapping[str, Entry], aliases: Mapping[str, str] | None = None, **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        self.lazy = lazy
        self.aliases = aliases or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        location = self.lazy[cmd_name][0] if cmd_name in self.lazy else self.aliases.get(cmd_name, "")
        return _load(location.partition(" ")[0]) if location else None

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
            args = [*rest, "--help"] if rest else args
            if not rest:
                click.echo(ctx.get_help())
                ctx.exit()
        elif name not in self.lazy and not name.startswith("-") and not ctx.resilient_parsing:
            near = [each for each in OTHER_NAMES.get(name, ()) if each in self.lazy]
            near = near or get_close_matches(name, [*self.lazy, *self.spoken], n=1)
            also = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(self.lazy)}"
            raise click.UsageError(f"no command {name!r}; {also}", ctx)
        return super().resolve_command(ctx, args)


def find_installed(name: str) -> EntryPoint | None:
    """Find a command that a distribution of its own has, by its entry point in the group `maos.commands`."""
    from importlib.metadata import entry_points  # slow to import, and only for a command that is not in maos

    return next(iter(entry_points(group="maos.commands", name=name)), None)


def _load(location: str) -> click.Command:
    module, _, name = location.partition(":")
    command: click.Command = getattr(import_module(module), name)
    return command


def forward(location: str, id: str, **given: Any) -> int:
    """Run another command about an id instead of the current one, with options that were given; its exit code."""
    found = _load(location)
    argument = next(each.name for each in found.params if isinstance(each, click.Argument))
    return click.get_current_context().invoke(found, **{str(argument): id}, **given) or 0


def json_command(
    *examples: str, json: str = DOCUMENT, cls: type[LazyCommand] = LazyCommand
) -> Callable[[Callable[..., int | None]], LazyCommand]:
    """Make a command of a function that gets the database first, and `as_json` from --json, the last option."""

    def make(function: Callable[..., int | None]) -> LazyCommand:
        made = click.command(cls=cls, examples=examples)(click.pass_obj(function))
        made.params.append(click.Option(["--json", "as_json"], is_flag=True, help=json))
        return made

    return make


def options(*given: Callable[[Any], Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Several options as one decorator."""
    return lambda function: reduce(lambda made, option: option(made), reversed(given), function)


detach_option = click.option("--detach", "-d", is_flag=True, help="Hand it over to `maos serve`, and return at once.")
workspace_options = options(
    click.option("--setup", multiple=True, metavar="COMMAND",
                 help="A command that prepares the workspaces before agents start, such as 'npm ci'; it runs once for "
                 "all agents that need the same. Can be repeated."),
    click.option("--copy-ignored", multiple=True, metavar="PATTERN",
                 help="Ignored files that workspaces get copies of, such as .env; none by default. Can be repeated."),
    click.option("--include-uncommitted", cls=OptionalValue, multiple=True, metavar="[=PATTERN]",
                 help="Start with your uncommitted changes, or with those of files that match; can be repeated."),
    click.option("--env", multiple=True, metavar="NAME[=VALUE]",
                 help="A variable for the agents: NAME passes yours on, and is the way for secrets. Can be repeated; "
                 "they get no others."),
    click.option("--project-settings", multiple=True, metavar="WHAT",
                 help="Give agents what the project has for them: instructions (CLAUDE.md, AGENTS.md), skills, mcp, "
                 "settings, hooks, or all, with commas between. Nothing by default."),
)  # fmt: skip
"""How workspaces are prepared; `workspace_given` makes options of a run or an agent of it."""


def workspace_given(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a run or an agent that these flags stand for; those that were not given are left out."""
    found = {
        "setup": split_commands("--setup", given["setup"]),
        "copy_ignored": list(given["copy_ignored"]),
        "include_uncommitted": "" in given["include_uncommitted"] or list(given["include_uncommitted"]),
        "env": list(given["env"]),
        "project_settings": list(given["project_settings"]),
    }
    return {name: value for name, value in found.items() if value}


def split_commands(option: str, given: Sequence[str]) -> list[list[str]]:
    """The commands of an option that can be repeated, as lists of words."""
    try:
        return [shlex.split(each) for each in given]
    except ValueError as error:
        raise InvalidInput(f"{option}: {error}", hint="check its quotes") from error


full_option = click.option("--full", is_flag=True, help="Shorten nothing.")
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would be done.")
rule_options = options(
    click.option("--for", "scope", type=click.Choice(["agent", "run", "project"]),
                 callback=lambda _ctx, _param, value: value or "",
                 help="With always and never: for which agents the rule counts.  [default: the run, or the agent]"),
    click.option("--pattern", default="", metavar="RULE",
                 help="With always and never: what the rule covers: 'Bash(pytest *)'.  [default: this command]"),
)  # fmt: skip
consent_options = options(dry_run_option, yes_option)
source_option = click.option(
    "--source", help="The author of the change, as shown in the history.  [default: you, as user@host]"
)
path_option = click.option("--path", metavar="POINTER", help="Only the value at this path, such as /messages/0.")


# --- arguments ---------------------------------------------------------------------------------------------------

_VERSION = regex(r"(newest)?(-[0-9]+)?")
_DURATION = regex(r"([0-9]+(?:\.[0-9]+)?)\s*(s|m|h|d|w)")
_DURATION_S_MAX = 50 * 366 * 86_400  # beyond it lie times before 1970, and after what a calendar can show
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Version(NamedTuple):
    """A version as asked for: its number, or how far it lies before the newest."""

    number: int
    from_newest: bool

    async def resolve(self, m: Maos, agent: str) -> int:
        """The number it has now."""
        if not self.from_newest:
            return self.number
        newest = await m.state.version(agent)
        if newest and newest <= self.number:
            raise NotFound(
                f"state {agent!r} has no version newest-{self.number}", hint=f"its versions are 1 to {newest}"
            )
        return newest - self.number


class ParsedType(click.ParamType):  # type: ignore[type-arg]  # takes no argument before click 8.4
    """A kind of argument: its name in the help, and the function that reads the text of one."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self._parse(value) if isinstance(value, str) else value


class FiniteRange(click.FloatRange):
    """A number in a range: neither `nan`, which every range would accept, nor `inf`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not a number", param, ctx)
        return found


def _version(text: str) -> Version:
    if text.isascii() and text.isdigit() and len(text) < 19:
        return Version(int(text), from_newest=False)
    match = _VERSION.fullmatch(text)
    if not text or match is None or len(text) > 24:
        raise click.BadParameter(f"{text!r} is not a version; it looks like 7, newest or -2 (two before the newest)")
    return Version(-int(match[2] or 0), from_newest=True)


def _time_us(text: str) -> int:
    with suppress(click.BadParameter):
        return SystemClock().now_us() - _duration_us(text.strip().removesuffix("ago"))
    try:
        return to_us(datetime.fromisoformat(text.strip()))
    except (ValueError, OverflowError, OSError):
        shape = "2026-03-01T14:30, 15m, 2h or 3d (ago)"
        raise click.BadParameter(f"{text!r} is not a time; it looks like {shape}") from None


def _duration_us(text: str) -> int:
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match[1]) * _SECONDS[match[2]] if match else None
    if seconds is None or seconds > _DURATION_S_MAX:
        raise click.BadParameter(f"{text!r} is not a duration; it looks like 30s, 15m, 2h, 3d or 4w")
    return int(seconds * MICROSECONDS)


def _json(text: str, *, only_objects: bool = False) -> Any:
    where = "standard input" if text == "-" else text[1:] if text.startswith("@") else "the argument"
    try:
        data = json.loads(sys.stdin.read() if text == "-" else _read(text))
    except RecursionError:
        raise click.BadParameter(f"{where} is nested too deeply") from None
    except ValueError as error:
        raise click.BadParameter(f"{where} is not JSON: {error}; text needs quotes inside: '\"text\"'") from None
    if only_objects and type(data) is not dict:
        raise click.BadParameter(f'{where} is not a JSON object; it looks like {{"status": "idle"}}')
    return data


def _text(text: str) -> str:
    try:
        return _read(text)
    except UnicodeDecodeError:
        raise click.BadParameter(f"{text[1:]} is not text in UTF-8") from None


def _read(text: str) -> str:
    """The text itself, or what is in the file that it names as @FILE."""
    try:
        return Path(text[1:]).read_text("utf-8") if text.startswith("@") else text
    except OSError as error:
        raise click.BadParameter(f"{text[1:]} cannot be read: {error.strerror}") from None


VERSION = ParsedType("version", _version)
"""A version: 7, newest, newest-2 or just -2."""
WHEN = ParsedType("time", _time_us)
"""A time, in microseconds: ISO 8601 (local unless it says otherwise), or how long ago."""
DURATION = ParsedType("duration", _duration_us)
"""A stretch of time, in microseconds."""
JSON = ParsedType("json", _json)
JSON_OBJECT = ParsedType("json", partial(_json, only_objects=True))
"""JSON, given directly, as @FILE, or as - for standard input."""
TEXT = ParsedType("text|@file", _text)
"""A text, or @FILE for what is in a file."""


def is_given(name: str) -> bool:
    """Whether a person said it, rather than leaving it to the settings."""
    return click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT


def seconds(duration_us: int | None) -> float | None:
    """A duration as services take it."""
    return None if duration_us is None else duration_us / MICROSECONDS


def pointer(path: str) -> str:
    """A path into a state as a JSON pointer; the leading slash may be left out."""
    return path if path.startswith("/") or not path else f"/{path}"


def message_text(text: str) -> str:
    """The text of a message, which is - for standard input."""
    text = (sys.stdin.read() if text == "-" else text).removesuffix("\n")
    if not text.strip():
        raise InvalidInput("the message is empty", hint="give a text, or - to read it from standard input")
    return text


def named_text(text: str, option: str) -> tuple[str, str]:
    """The name and the value of NAME=VALUE."""
    name, equals, rest = text.partition("=")
    if not equals or not name.isidentifier():
        raise InvalidInput(f"{text!r} is no argument", hint=f"use {option} NAME=VALUE")
    return name, rest


# --- completion, which creates nothing and reports no errors: a shell wants names, quickly, or none ----------------

Completer = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]

COMPLETIONS_MAX = 200
COMPLETION_S_MAX = 2.0
"""Tab does not wait for a server that is away."""

SHELLS = {
    "bash": "maos completion bash > ~/.local/share/bash-completion/completions/maos",
    "zsh": 'maos completion zsh > "${fpath[1]}/_maos"',
    "fish": "maos completion fish > ~/.config/fish/completions/maos.fish",
}
"""The command that installs it for each."""


@json_command("maos completion bash", *SHELLS.values())
@click.argument("shell", type=click.Choice(tuple(SHELLS)))
def completion(_database: DatabaseTarget, shell: str, as_json: bool) -> None:
    """Print the completion script of a shell.

    It completes commands, options, and from the database the ids of runs, tasks, agents, workflow runs and open
    questions. Try it with `eval "$(maos completion bash)"`; the examples install it.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(click.get_current_context().find_root().command, {}, "maos", "_MAOS_COMPLETE").source()
    render.show({"shell": shell, "script": script, "keep": SHELLS[shell]}, script, as_json=as_json)


def _completer(work: Callable[[Maos, click.Context, str], Awaitable[Sequence[str | CompletionItem]]]) -> Completer:
    """Complete from the database that the command line names; nothing when it cannot be read. Names that a shell would
    have to quote are left out."""

    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        import asyncio

        from click.shell_completion import CompletionItem

        from maos.app import open as open_

        async def opened() -> Sequence[str | CompletionItem]:
            async with asyncio.timeout(COMPLETION_S_MAX), open_(target.name, create=False) as m:
                return await work(m, ctx, incomplete)

        target = DatabaseTarget(ctx.find_root().params.get("db"))
        try:
            target.check()
            found = asyncio.run(opened())
        except (MaosError, OSError, TimeoutError):
            return []
        items = [CompletionItem(each) if isinstance(each, str) else each for each in found]
        # bash puts a name into the line as it is, where `$(id)` would run.
        return [each for each in items if shlex.quote(each.value) == each.value][:COMPLETIONS_MAX]

    return complete


async def _first(names: AsyncIterator[str]) -> list[str]:
    found: list[str] = []
    async for each in names:
        found.append(each)
        if len(found) >= COMPLETIONS_MAX:
            break
    return sorted(found)


complete_runs = _completer(lambda m, _ctx, begun: _first(m.views.runs.ids(begun)))
complete_ids = _completer(lambda m, _ctx, begun: m.ids.complete(begun))
"""Runs, tasks as RUN/TASK, agents and workflow runs."""


@_completer
async def complete_agents(m: Maos, ctx: click.Context, begun: str) -> list[str]:
    """Agents that run or ran; for `maos state`, those that have a state."""
    is_state = ctx.parent is not None and ctx.parent.info_name == "state"
    return await _first(m.state.names(begun) if is_state else m.views.agents.names(begun))


@_completer
async def complete_tasks(m: Maos, _ctx: click.Context, begun: str) -> list[str]:
    """Agents of runs, also those that have not begun."""
    known = [each async for each in m.views.agents.names(begun)]
    planned = [run.agent(name) async for run in m.views.runs.open() for name in run.tasks]
    return sorted({*known, *(each for each in planned if each.startswith(begun))})


@_completer
async def complete_questions(m: Maos, _ctx: click.Context, begun: str) -> list[CompletionItem]:
    """What waits for an answer, with the question."""
    from click.shell_completion import CompletionItem

    found = await m.views.questions.open()
    shown = [(each.ref, " ".join(render.clean(each.text).split())[:60]) for each in found if each.ref.startswith(begun)]
    return [CompletionItem(ref, help=text) for ref, text in shown]


id_argument = click.argument("id", metavar="ID", shell_complete=complete_ids)
run_argument = click.argument("id", metavar="ID", shell_complete=complete_runs)
agent_argument = click.argument("agent", metavar="AGENT", shell_complete=complete_agents)
state_argument = click.argument("agent", metavar="AGENT", shell_complete=complete_agents)


def show_handed_over(document: dict[str, Any], id: str, watch: str, *, as_json: bool) -> None:
    """Print that a server executes something from now on."""
    if as_json:
        documents.show_line(document)
        return
    where = f" at {document['server']}" if document["server"] else ""
    render.line((id, "bold"), f" is handed over to the server{where}")
    render.line(("follow it with: ", "dim"), watch)
