"""The help of commands about running agents: examples that can be typed, and nothing heavy loaded to show it."""

import shlex
import subprocess
import sys

import click
import pytest

from maos.cli.agent.lifecycle import GRACE_US
from maos.cli.commands import DURATION, TIME_LIMIT
from maos.cli.program import program
from maos.engine.attempt_spec import TIME_LIMIT_S
from maos.engine.live import GRACE_S
from tests.cli.test_help import EXAMPLES, HEAVY

OURS = [example for path, example in EXAMPLES if path[:1] == ("agent",)]


@pytest.mark.parametrize("example", OURS)
def test_every_example_can_be_typed(example: str) -> None:
    ours = next(part for part in example.partition(" > ")[0].split(" | ") if part.startswith("maos "))
    words = shlex.split(ours)
    assert words[:2] == ["maos", "agent"]
    # with its settings: click remembers in the command which options stand for help when it first makes them
    with click.Context(program, info_name="maos", **program.context_settings) as context:
        group = program.get_command(context, "agent")
        assert isinstance(group, click.Group)
        command = group.get_command(context, words[2])
        assert command is not None
        command.make_context(words[2], words[3:], parent=context).close()


@pytest.mark.parametrize("args", [["agent", "--help"], ["agent", "run", "--help"], ["doctor", "--help"]])
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


def test_defaults_are_those_of_the_engine() -> None:
    assert DURATION.convert(TIME_LIMIT, None, None) == TIME_LIMIT_S * 1e6
    assert GRACE_US == GRACE_S * 1e6
