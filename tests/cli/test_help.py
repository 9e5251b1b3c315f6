"""The help: complete, with examples that work, and quick to load."""

import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import maos
from maos.cli.commands import LazyGroup
from maos.cli.program import orchestration, program
from maos.model.agent import COMPRESSIONS
from tests.cli.conftest import Invoke

HEAVY = {"apsw", "asyncio", "asyncpg", "cramjam", "maos.app", "msgspec", "prompt_toolkit", "rich"}


def walk(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from walk(child, (*path, name))


COMMANDS = dict(walk(program))
EXAMPLES = [
    (path, example) for path, command in COMMANDS.items() for example in getattr(command, "examples", ())
]  # fmt: skip


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: "-".join(path) or "maos")
def test_the_help_is_as_recorded(
    path: tuple[str, ...], no_db: Path, invoke: Invoke, golden: Callable[[str, str], None]
) -> None:
    result = invoke(*path, "--help")
    assert result.exit_code == 0
    golden(f"cli/{'-'.join(('maos', *path))}.txt", result.stdout)


def test_no_summary_is_cut_on_an_ordinary_terminal(no_db: Path, invoke: Invoke) -> None:
    result = CliRunner(env={"COLUMNS": "80"}).invoke(program, ["--help"], terminal_width=80)
    assert [line for line in result.stdout.splitlines()[1:] if line.endswith(("...", "…"))] == []


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: "-".join(path) or "maos")
def test_every_command_has_help_with_an_example(path: tuple[str, ...], no_db: Path, invoke: Invoke) -> None:
    command = COMMANDS[path]
    assert command.help
    assert getattr(command, "examples", ())
    text = invoke(*path, "-h").stdout
    assert f"Examples:\n  {command.examples[0]}\n" in text  # type: ignore[attr-defined]
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"--{parameter.name} says nothing"


NEED_A_RUN = {
    "backup", "cancel", "erase", "key", "retry", "revoke", "rm", "skip", "update", "../shop",
    "agent", "answer", "attach", "chat", "checkpoint", "completion", "demo", "diff", "effects", "export", "fork",
    "import", "join", "logs", "merge", "notify", "pause", "pin", "resume", "rollback", "run", "workflow", "r-1a2b3c",
    "r-1a2b3c/api", "serve", "link", "traces", "report", "token:ci", "token:phone", "sign", "/mnt/backups",
}  # fmt: skip
"""Words in examples that need more than an agent with a state."""

PRINTS_JSON_ANYWAY = {("workflow", "schema")}


@pytest.mark.parametrize(
    "path",
    [
        path
        for path, command in COMMANDS.items()
        if not isinstance(command, click.Group) and path not in PRINTS_JSON_ANYWAY
    ],
)
def test_every_command_can_print_json(path: tuple[str, ...]) -> None:
    assert "as_json" in {parameter.name for parameter in COMMANDS[path].params}


@pytest.mark.parametrize(("path", "example"), EXAMPLES, ids=[example for _path, example in EXAMPLES])
def test_every_example_works(path: tuple[str, ...], example: str, db: Path, invoke: Invoke) -> None:
    if "postgresql://" in example or path == ("state", "stream") or NEED_A_RUN & {*path, *shlex.split(example)}:
        return  # these have tests of their own
    stdin, _, command = example.rpartition(" | ")
    args = shlex.split(command)
    assert args[0] == "maos"
    if "create" in args:
        for file in db.parent.glob("maos.db*"):
            file.unlink()
    if "--db" in args:
        args[args.index("--db") + 1] = str(db)
    (db.parent / "state.json").write_text('{"status": "idle"}')
    takes_yes = any(parameter.name == "yes" for parameter in COMMANDS[path].params)
    result = invoke(*args[1:], *(["--yes"] if takes_yes else []), stdin=shlex.split(stdin)[1] if stdin else None)
    assert result.exit_code == 0, result.output
    assert result.stdout or "events" in args


@pytest.mark.parametrize(("path", "example"), EXAMPLES, ids=[example for _path, example in EXAMPLES])
def test_every_example_is_a_command_line(path: tuple[str, ...], example: str) -> None:
    args = shlex.split(example.partition(" | ")[0].partition(" > ")[0])
    if args[0] != "maos":
        return  # the end of a pipe
    command: click.Command | None = program
    context = click.Context(program, **program.context_settings)  # commands keep the names of their help option
    args = args[3:] if args[1] == "--db" else args[1:]
    while isinstance(command, click.Group) and args:
        _name, command, args = command.resolve_command(context, args)
    assert command is not None
    try:
        command.make_context("maos", args, parent=context, resilient_parsing=isinstance(command, click.Group))
    except click.BadParameter:
        pass  # a file that is not here


def aliases() -> Iterator[tuple[str, ...]]:
    for path, command in {**COMMANDS, **dict(walk(orchestration, ("orchestration",)))}.items():
        for name in command.aliases if isinstance(command, LazyGroup) else ():
            yield (*path, name)


@pytest.mark.parametrize("path", list(aliases()), ids="-".join)
def test_older_names_still_work(path: tuple[str, ...], no_db: Path, invoke: Invoke) -> None:
    result = invoke(*path, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: maos {' '.join(path)} ")


def test_compressions_are_those_of_the_journal() -> None:
    from maos.journal import compress

    assert set(COMPRESSIONS) == set(compress.ALGORITHMS)


def test_the_version_is_printed(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    assert run("--version").stdout == f"maos {maos.__version__}\n"


@pytest.mark.parametrize(
    "args", [["--help"], ["--version"], ["state", "--help"], ["state", "show", "--help"], ["oops"]]
)
def test_help_loads_nothing_heavy(args: list[str]) -> None:
    code = (
        "import sys\n"
        "from maos.__main__ import main\n"
        f"sys.argv = ['maos', *{args!r}]\n"
        "try: main()\n"
        f"except SystemExit: sys.stderr.write('loaded: ' + ','.join({HEAVY!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.endswith("loaded: ")


def test_importing_maos_loads_next_to_nothing() -> None:
    code = "import sys; before = set(sys.modules); import maos; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert set(done.stdout.split()) <= {"__future__", "maos"}


@pytest.mark.parametrize("path", [path for path in COMMANDS if path], ids="-".join)
def test_the_short_help_of_a_group_is_that_of_its_commands(path: tuple[str, ...]) -> None:
    group = COMMANDS[path[:-1]]
    assert isinstance(group, LazyGroup)
    assert group.lazy[path[-1]][1] == (COMMANDS[path].help or "").partition("\n\n")[0].replace("\n", " ")
