"""`maos state`: the state of agents."""

from __future__ import annotations

import click

from maos.cli.commands import LazyGroup


@click.group(
    cls=LazyGroup,
    lazy={
        "list": ("maos.cli.state.queries:list_", "List agents that have a state."),
        "show": ("maos.cli.state.queries:show", "Show the newest state of an agent, or a part of it."),
        "at": ("maos.cli.state.queries:at", "Show the state of an agent as it was at a version or a time."),
        "create": ("maos.cli.state.updates:create", "Create the state of an agent."),
        "update": ("maos.cli.state.updates:update", "Change some fields of a state; the others stay as they are."),
        "history": ("maos.cli.state.queries:history", "List the versions of an agent, the newest last."),
        "events": ("maos.cli.state.queries:events", "Show the events of an agent, with what each changed."),
        "diff": ("maos.cli.state.queries:diff", "Show what changed between two versions."),
        "stream": ("maos.cli.state.queries:stream", "Follow the events of an agent as they happen."),
        "rollback": ("maos.cli.state.updates:rollback", "Roll the state of an agent back to a version."),
        "snapshot": ("maos.cli.state.updates:snapshot", "Take a snapshot of an agent's state, or list its snapshots."),
        "restore": ("maos.cli.state.updates:restore", "Restore the state of an agent from a snapshot."),
        "verify": ("maos.cli.state.queries:verify", "Check that everything is as it was written."),
        "compact": ("maos.cli.state.updates:compact", "Compact the history of an agent."),
    },
    aliases={"peek": "maos.cli.state.queries:peek"},
    examples=[
        """maos state create reviewer '{"status": "idle", "messages": []}'""",
        """maos state update reviewer '{"status": "busy"}'""",
        "maos state history reviewer",
        "maos state diff reviewer 1 newest",
    ],
)
def state() -> None:
    """Show, change and roll back the state of agents.

    A VERSION is a number, `newest`, or counted from there: -1 is the one before the newest.
    """
