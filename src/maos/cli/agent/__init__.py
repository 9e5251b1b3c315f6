"""`maos agent`: agents that keep running after maos exits."""

from __future__ import annotations

import click

from maos.cli.commands import LazyGroup


@click.group(
    cls=LazyGroup,
    lazy={
        "run": ("maos.cli.agent.lifecycle:run", "Run an agent and follow its output; it keeps running if maos exits."),
        "list": ("maos.cli.agent.status:list_", "List the agents that run, and those that ran."),
        "show": ("maos.cli.agent.status:show", "Show everything that is known of an agent."),
        "logs": ("maos.cli.agent.live:logs", "Show what an agent said and did, in order, over all its attempts."),
        "attach": ("maos.cli.agent.lifecycle:attach", "Attach to a detached agent and follow its output."),
        "stop": ("maos.cli.agent.lifecycle:stop", "Stop an agent and wait until it has ended; it can be resumed."),
        "resume": ("maos.cli.agent.lifecycle:resume", "Resume a stopped or failed agent and follow its output."),
        "send": ("maos.cli.agent.lifecycle:send", "Send a message to an agent."),
        "answer": ("maos.cli.agent.lifecycle:answer", "Answer an agent that asks for permission to use a tool."),
        "diff": ("maos.cli.agent.status:diff", "Show which files an agent has changed, up to its last checkpoint."),
        "merge": ("maos.cli.agent.status:merge", "Merge the work of an agent into the branch checked out here."),
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
    """Run agents that keep running after maos exits.

    AGENT is a name, or a unique prefix of one.
    """
