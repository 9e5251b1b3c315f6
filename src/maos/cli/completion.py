"""`maos completion`, and what it completes from the database: ids of runs, tasks, agents, questions.

Completing creates nothing and reports no errors: a shell wants names, quickly, or none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from maos.cli import render
from maos.cli.commands import json_command
from maos.cli.database import DatabaseTarget
from maos.errors import MaosError

if TYPE_CHECKING:
    from maos.app import Maos

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

SHOWN_MAX = 200
WAIT_S_MAX = 2.0
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
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(click.get_current_context().find_root().command, {}, "maos", "_MAOS_COMPLETE").source()
    render.show({"shell": shell, "script": script, "keep": SHELLS[shell]}, script, as_json=as_json)


def _completer(work: Callable[[Maos, click.Context, str], Awaitable[Sequence[str | CompletionItem]]]) -> Completer:
    """Complete from the database that the command line names; nothing when it cannot be read."""

    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        import asyncio

        from maos.app import open as open_

        async def opened() -> Sequence[str | CompletionItem]:
            async with asyncio.timeout(WAIT_S_MAX), open_(target.name, create=False) as m:
                return await work(m, ctx, incomplete)

        target = DatabaseTarget(ctx.find_root().params.get("db"))
        try:
            target.check()
            found = asyncio.run(opened())
        except (MaosError, OSError, TimeoutError):
            return []
        return [CompletionItem(each) if isinstance(each, str) else each for each in found[:SHOWN_MAX]]

    return complete


async def _first(names: AsyncIterator[str]) -> list[str]:
    found: list[str] = []
    async for each in names:
        found.append(each)
        if len(found) >= SHOWN_MAX:
            break
    return sorted(found)


runs = _completer(lambda m, _ctx, begun: _first(m.runs.ids(begun)))
ids = _completer(lambda m, _ctx, begun: m.ids.complete(begun))
"""Runs, tasks as RUN/TASK, agents and workflow runs."""


@_completer
async def agents(m: Maos, ctx: click.Context, begun: str) -> list[str]:
    """Agents that run or ran; for `maos state`, those that have a state."""
    is_state = ctx.parent is not None and ctx.parent.info_name == "state"
    return await _first(m.state.names(begun) if is_state else m.agents.names(begun))


@_completer
async def tasks(m: Maos, _ctx: click.Context, begun: str) -> list[str]:
    """Agents of runs, also those that have not begun."""
    known = [each async for each in m.agents.names(begun)]
    planned = [run.agent(name) async for run in m.runs.all() if run.is_open for name in run.tasks]
    return sorted({*known, *(each for each in planned if each.startswith(begun))})


@_completer
async def questions(m: Maos, _ctx: click.Context, begun: str) -> list[CompletionItem]:
    """What waits for an answer, with the question."""
    found = await m.questions.open()
    return [CompletionItem(each.ref, help=each.text[:60]) for each in found if each.ref.startswith(begun)]


id_argument = click.argument("id", metavar="ID", shell_complete=ids)
run_argument = click.argument("id", metavar="ID", shell_complete=runs)
agent_argument = click.argument("agent", metavar="AGENT", shell_complete=agents)
