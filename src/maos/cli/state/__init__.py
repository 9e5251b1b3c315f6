"""`maos state`: the state of agents."""

from __future__ import annotations

import click

from maos.cli.commands import LazyGroup


@click.group(
    cls=LazyGroup,
    lazy={
        "list": "maos.cli.state.reading:list_",
        "show": "maos.cli.state.reading:show",
        "at": "maos.cli.state.reading:at",
        "peek": "maos.cli.state.reading:peek",
        "create": "maos.cli.state.writing:create",
        "update": "maos.cli.state.writing:update",
        "history": "maos.cli.state.past:history",
        "events": "maos.cli.state.past:events",
        "diff": "maos.cli.state.past:diff",
        "stream": "maos.cli.state.past:stream",
        "rollback": "maos.cli.state.returning:rollback",
        "snapshot": "maos.cli.state.snapshots:snapshot",
        "restore": "maos.cli.state.returning:restore",
        "verify": "maos.cli.state.upkeep:verify",
        "compact": "maos.cli.state.upkeep:compact",
    },
    examples=[
        """maos state create reviewer '{"status": "idle", "messages": []}'""",
        """maos state update reviewer '{"status": "busy"}'""",
        "maos state history reviewer",
        "maos state diff reviewer 1 newest",
    ],
)
def state() -> None:
    """Look at the state of agents, change it, and travel in its history.

    A VERSION is a number, `newest`, or counted from there: -1 is the one before the newest.
    """
