"""The help of commands about runs: examples that can be typed, and nothing heavy loaded to show it."""

import shlex
import subprocess
import sys

import click
import pytest

from maos.cli.commands import PERMISSIONS
from maos.cli.program import program
from maos.cli.runs.start import CONCURRENCY
from maos.runs import agent_types
from maos.settings import schema
from tests.cli.test_help import EXAMPLES, HEAVY

PATHS = tuple(
    (name,) for name in ("run", "resume", "merge", "status", "ps", "logs", "attach", "pause", "diff", "inbox")
)
OURS = [example for path, example in EXAMPLES if path in PATHS]


@pytest.mark.parametrize("example", OURS)
def test_every_example_can_be_typed(example: str) -> None:
    words = shlex.split(example.partition(" | ")[0])[1:]
    with click.Context(program, info_name="maos", **program.context_settings) as context:
        command: click.Command = program
        while isinstance(command, click.Group):
            found = command.get_command(context, words[0])
            assert found is not None
            command, words = found, words[1:]
        command.make_context(example, words, parent=context).close()


@pytest.mark.parametrize("path", PATHS)
def test_help_loads_nothing_heavy(path: tuple[str, ...]) -> None:
    code = (
        "import sys\n"
        "from maos.__main__ import main\n"
        f"sys.argv = ['maos', *{path!r}, '--help']\n"
        "try: main()\n"
        f"except SystemExit: sys.stderr.write('loaded: ' + ','.join({HEAVY!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.endswith("loaded: ")


def test_defaults_are_those_of_the_engine() -> None:
    assert schema.OrchestrateSettings().concurrency == CONCURRENCY
    assert PERMISSIONS == agent_types.PERMISSIONS
