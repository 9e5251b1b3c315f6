"""`maos completion`, and what it completes from the database: ids of runs, tasks, agents, questions.

Completing creates nothing and reports no errors: a shell wants names, quickly, or none.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click
from click.shell_completion import CompletionItem, get_completion_class

from maos.cli import documents
from maos.cli.commands import command, json_option
from maos.cli.database import DatabaseTarget
from maos.errors import MaosError

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.question import Open

SHOWN_MAX = 200
WAIT_S_MAX = 2.0
"""Tab does not wait for a server that is away."""
T = TypeVar("T")

SHELLS = {
    "bash": "maos completion bash > ~/.local/share/bash-completion/completions/maos",
    "zsh": 'maos completion zsh > "${fpath[1]}/_maos"',
    "fish": "maos completion fish > ~/.config/fish/completions/maos.fish",
}
"""The command that installs it for each."""


@command("maos completion bash", *SHELLS.values())
@click.argument("shell", type=click.Choice(tuple(SHELLS)))
@json_option
@click.pass_context
def completion(ctx: click.Context, shell: str, as_json: bool) -> None:
    """Print the completion script of a shell.

    It completes commands, options, and from the database the ids of runs, tasks, agents, workflow runs and open
    questions. Try it with `eval "$(maos completion bash)"`; the examples install it.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "maos", "_MAOS_COMPLETE").source()
    if as_json:
        documents.show({"shell": shell, "script": script, "keep": SHELLS[shell]})
        return
    sys.stdout.write(script + "\n")


def runs(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Runs, by their ids."""
    return _names(ctx, lambda m: m.runs.ids(incomplete))


def ids(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Runs, tasks as RUN/TASK, agents and workflow runs."""
    return [CompletionItem(each) for each in (_read(ctx, lambda m: m.ids.complete(incomplete)) or ())[:SHOWN_MAX]]


def agents(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Agents that run or ran; for `maos state`, those that have a state."""
    if ctx.parent is not None and ctx.parent.info_name == "state":
        return _names(ctx, lambda m: m.state.names(incomplete))
    return _names(ctx, lambda m: m.agents.names(incomplete))


def tasks(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Agents of runs, also those that have not begun."""

    async def work(m: Maos) -> list[str]:
        begun = [each async for each in m.agents.names(incomplete)]
        planned = [run.agent(name) async for run in m.runs.all() if run.is_open for name in run.tasks]
        return sorted({*begun, *(each for each in planned if each.startswith(incomplete))})

    return [CompletionItem(each) for each in (_read(ctx, work) or ())[:SHOWN_MAX]]


def questions(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What waits for an answer, with the question."""

    async def work(m: Maos) -> list[Open]:
        return await m.questions.open()

    found = _read(ctx, work) or []
    return [CompletionItem(each.ref, help=each.text[:60]) for each in found if each.ref.startswith(incomplete)]


def _names(ctx: click.Context, names: Callable[[Maos], AsyncIterator[str]]) -> list[CompletionItem]:
    async def work(m: Maos) -> list[str]:
        found: list[str] = []
        async for each in names(m):
            found.append(each)
            if len(found) >= SHOWN_MAX:
                break
        return sorted(found)

    return [CompletionItem(each) for each in _read(ctx, work) or ()]


def _read(ctx: click.Context, work: Callable[[Maos], Awaitable[T]]) -> T | None:
    """Something from the database that the command line names; None when it cannot be had."""
    import asyncio

    from maos.app import open as open_

    async def opened() -> T:
        async with asyncio.timeout(WAIT_S_MAX), open_(target.name, create=False) as m:
            return await work(m)

    target = DatabaseTarget(ctx.find_root().params.get("db"))
    try:
        target.check()
        return asyncio.run(opened())
    except (MaosError, OSError, TimeoutError):
        return None


id_argument = click.argument("id", metavar="ID", shell_complete=ids)
run_argument = click.argument("id", metavar="ID", shell_complete=runs)
agent_argument = click.argument("agent", metavar="AGENT", shell_complete=agents)
