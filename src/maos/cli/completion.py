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


def runs(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Runs, by their ids."""
    return _complete(ctx, lambda m: _first(m.runs.ids(incomplete)))


def ids(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Runs, tasks as RUN/TASK, agents and workflow runs."""
    return _complete(ctx, lambda m: m.ids.complete(incomplete))


def agents(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Agents that run or ran; for `maos state`, those that have a state."""
    if ctx.parent is not None and ctx.parent.info_name == "state":
        return _complete(ctx, lambda m: _first(m.state.names(incomplete)))
    return _complete(ctx, lambda m: _first(m.agents.names(incomplete)))


def tasks(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Agents of runs, also those that have not begun."""

    async def work(m: Maos) -> list[str]:
        begun = [each async for each in m.agents.names(incomplete)]
        planned = [run.agent(name) async for run in m.runs.all() if run.is_open for name in run.tasks]
        return sorted({*begun, *(each for each in planned if each.startswith(incomplete))})

    return _complete(ctx, work)


def questions(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What waits for an answer, with the question."""

    async def work(m: Maos) -> list[CompletionItem]:
        found = await m.questions.open()
        return [CompletionItem(each.ref, help=each.text[:60]) for each in found if each.ref.startswith(incomplete)]

    return _complete(ctx, work)


async def _first(names: AsyncIterator[str]) -> list[str]:
    found: list[str] = []
    async for each in names:
        found.append(each)
        if len(found) >= SHOWN_MAX:
            break
    return sorted(found)


def _complete(
    ctx: click.Context, work: Callable[[Maos], Awaitable[Sequence[str | CompletionItem]]]
) -> list[CompletionItem]:
    """Names from the database that the command line names; none when they cannot be had."""
    import asyncio

    from maos.app import open as open_

    async def opened() -> Sequence[str | CompletionItem]:
        async with asyncio.timeout(WAIT_S_MAX), open_(target.name, create=False) as m:
            return await work(m)

    target = DatabaseTarget(ctx.find_root().params.get("db"))
    try:
        target.check()
        found = asyncio.run(opened())
    except (MaosError, OSError, TimeoutError):
        return []
    return [CompletionItem(each) if isinstance(each, str) else each for each in found[:SHOWN_MAX]]


id_argument = click.argument("id", metavar="ID", shell_complete=ids)
run_argument = click.argument("id", metavar="ID", shell_complete=runs)
agent_argument = click.argument("agent", metavar="AGENT", shell_complete=agents)
