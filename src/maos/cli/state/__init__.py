"""`maos state`: the state of agents."""

from __future__ import annotations

import click

from maos.cli.commands import LazyGroup


@click.group(
    cls=LazyGroup,
    lazy={
        "list": ("maos.cli.state.queries:list_", "List the agents there are."),
        "show": ("maos.cli.state.queries:show", "Show the newest state of an agent."),
        "at": ("maos.cli.state.queries:at", "Show the state of an agent as it was at a version or a time."),
        "peek": ("maos.cli.state.queries:peek", "Show the end of a long list without reading the rest of it."),
        "create": ("maos.cli.state.updates:create", "Begin an agent, and the database if there is none yet."),
        "update": ("maos.cli.state.updates:update", "Change some fields; what is not named stays as it is."),
        "history": ("maos.cli.state.queries:history", "List the versions of an agent, the newest last."),
        "events": ("maos.cli.state.queries:events", "Show the events of an agent, with what each changed."),
        "diff": ("maos.cli.state.queries:diff", "Show what changed between two versions."),
        "stream": ("maos.cli.state.queries:stream", "Follow the events of an agent as they happen."),
        "rollback": ("maos.cli.state.updates:rollback", "Make the state of an agent what it was at a version."),
        "snapshot": ("maos.cli.state.maintenance:snapshot", "Keep the newest state of an agent, to restore it later."),
        "restore": ("maos.cli.state.updates:restore", "Make the state of an agent what a snapshot holds."),
        "verify": ("maos.cli.state.maintenance:verify", "Check that everything is as it was written."),
        "compact": ("maos.cli.state.maintenance:compact", "Make the history of an agent shorter."),
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
