"""`maos agent`: agents that run, whatever becomes of us."""

from __future__ import annotations

import click

from maos.cli.commands import LazyGroup


@click.group(
    cls=LazyGroup,
    lazy={
        "run": "maos.cli.agent.running:run",
        "list": "maos.cli.agent.listing:list_",
        "show": "maos.cli.agent.showing:show",
        "logs": "maos.cli.agent.logs:logs",
        "attach": "maos.cli.agent.running:attach",
        "stop": "maos.cli.agent.stopping:stop",
        "resume": "maos.cli.agent.running:resume",
        "send": "maos.cli.agent.speaking:send",
        "answer": "maos.cli.agent.speaking:answer",
        "diff": "maos.cli.agent.files:diff",
        "merge": "maos.cli.agent.files:merge",
        "kinds": "maos.cli.agent.kinds:kinds",
    },
    examples=[
        "maos agent run --name tests -- make test",
        "maos agent logs -f tests",
        "maos agent list",
        "maos agent resume tests",
    ],
)
def agent() -> None:
    """Run agents that go on when we are gone, and watch them.

    AGENT is a name, or as much of its beginning as tells it from the others.
    """
