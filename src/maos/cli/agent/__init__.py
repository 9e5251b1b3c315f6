"""`maos agent`: agents that run, whatever becomes of us."""

from __future__ import annotations

import click

from maos.cli.commands import LazyGroup


@click.group(
    cls=LazyGroup,
    lazy={
        "run": ("maos.cli.agent.lifecycle:run", "Run an agent that survives us, and show what it does."),
        "list": ("maos.cli.agent.status:list_", "List the agents that run, and those that ran."),
        "show": ("maos.cli.agent.status:show", "Show everything that is known of an agent."),
        "logs": ("maos.cli.agent.exchange:logs", "Show what an agent said and did, in order, over all its attempts."),
        "attach": ("maos.cli.agent.lifecycle:attach", "Attach to a detached agent and follow its output."),
        "stop": (
            "maos.cli.agent.lifecycle:stop",
            "End an agent so that it can be resumed, and wait until it has ended.",
        ),
        "resume": (
            "maos.cli.agent.lifecycle:resume",
            "Resume a stopped or failed agent and follow its output.",
        ),
        "send": ("maos.cli.agent.exchange:send", "Send a message to an agent."),
        "answer": ("maos.cli.agent.exchange:answer", "Answer what an agent asks to be allowed to do."),
        "diff": ("maos.cli.agent.exchange:diff", "Show which files an agent has changed, up to its last checkpoint."),
        "merge": ("maos.cli.agent.exchange:merge", "Merge what an agent did into the branch checked out here."),
        "kinds": ("maos.cli.agent.status:kinds", "List the kinds of agents, and which are on this machine."),
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
