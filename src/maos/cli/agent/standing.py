"""How it stands with an agent: what the journal says of it, and whether the processes it speaks of still live."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.attempt import Attempt, Tokens

DETACHED = "detached"
"""The agent works, and what it says is kept until a process takes it up. `maos agent attach`, or `maos resume`."""
INTERRUPTED = "interrupted"
"""The agent is gone and so is the process that recorded it. `maos agent resume`, or `maos resume`."""

MEANINGS = {
    "planned": "about to start",
    DETACHED: "the agent works, and what it says is kept until a process takes it up",
    INTERRUPTED: "the agent is gone and so is the process that recorded it",
}

STYLES = {
    "planned": "dim", "running": "green", "stopping": "yellow", DETACHED: "bold yellow", INTERRUPTED: "bold red",
    "done": "", "failed": "red", "stopped": "dim",
}  # fmt: skip


class AgentStanding(NamedTuple):
    """An agent as it is now."""

    attempt: Attempt
    """Its newest attempt."""
    status: str
    """That of the attempt, or `detached` or `interrupted` when nobody records it."""
    go_on: str
    """The command that goes on with it, if there is something to go on with."""
    cost_usd: float
    """Of all its attempts, as far as its program says what it costs."""
    tokens: Tokens
    """Of all its attempts."""


async def of_agent(m: Maos, agent: str) -> AgentStanding:
    """How it stands with one agent."""
    return of_attempts(await m.attempts.history(agent))


def of_attempts(attempts: list[Attempt]) -> AgentStanding:
    """How it stands with an agent, from all its attempts."""
    from maos.model.attempt import Tokens

    total = Tokens()
    for each in attempts:
        total.add(each.total_tokens)
    newest = attempts[-1]
    status = status_of(newest)
    cost_usd = sum(each.total_cost_usd for each in attempts)
    return AgentStanding(newest, status, go_on(newest, status), cost_usd, total)


def status_of(attempt: Attempt) -> str:
    """The recorded status, unless it speaks of processes that are gone."""
    if not attempt.is_open or not is_unattended(attempt.owner):
        return attempt.status
    from maos.engine import ownership as owners

    return DETACHED if owners.holder_lives(attempt) else INTERRUPTED


def is_unattended(owner: Mapping[str, Any]) -> bool:
    """Whether the process that recorded an attempt is gone, as far as this machine can tell."""
    from maos.engine import ownership as owners

    return owners.is_unattended(owner)


def go_on(attempt: Attempt, status: str) -> str:
    """The command that goes on with an agent; nothing when it is done, or runs."""
    if status in (DETACHED, INTERRUPTED, "stopped", "failed"):
        return f"maos agent {'attach' if status == DETACHED else 'resume'} {attempt.agent}"
    return ""
