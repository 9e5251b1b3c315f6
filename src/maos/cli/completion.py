"""`maos completion`: what a shell needs to complete commands, options and names."""

from __future__ import annotations

import sys

import click

from maos.cli import documents as shared
from maos.cli.commands import LazyCommand, json_option

SHELLS = {
    "bash": "maos completion bash > ~/.local/share/bash-completion/completions/maos",
    "zsh": 'maos completion zsh > "${fpath[1]}/_maos"',
    "fish": "maos completion fish > ~/.config/fish/completions/maos.fish",
}
"""How each has it from the next start on."""


@click.command(
    cls=LazyCommand,
    examples=[
        "maos completion bash",
        *SHELLS.values(),
    ],
)
@click.argument("shell", type=click.Choice(tuple(SHELLS)))
@json_option
def completion(shell: str, as_json: bool) -> None:
    """Print what a shell needs to complete what you type.

    Commands and options, and from the database the ids of runs, the names of agents and what waits for an answer. Try
    it with `eval "$(maos completion bash)"`; the examples keep it.
    """
    from click.shell_completion import get_completion_class

    from maos.cli.program import program

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(program, {}, "maos", "_MAOS_COMPLETE").source()
    if as_json:
        shared.show({"shell": shell, "script": script, "keep": SHELLS[shell]})
        return
    sys.stdout.write(script + "\n")
