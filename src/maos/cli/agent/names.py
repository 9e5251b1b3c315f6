"""Which agent is meant: its name, or as much of its beginning as tells it from the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maos.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from maos.app import Maos

NAMES_SHOWN_MAX = 5


async def find(m: Maos, given: str) -> str:
    """The whole name of an agent that runs or ran."""
    from maos.model.attempt import agent_of, stream

    found: list[str] = []
    if given:
        async for name in m.journal.streams(stream(given)):
            agent = agent_of(name.removeprefix(stream("")))
            if agent == given:
                return agent
            if agent not in found:
                found.append(agent)
    if len(found) == 1:
        return found[0]
    if found:
        shown = ", ".join(found[:NAMES_SHOWN_MAX]) + (", …" if len(found) > NAMES_SHOWN_MAX else "")
        raise InvalidInput(f"{given!r} could be any of {len(found)} agents: {shown}", hint="give more of the name")
    raise NotFound(f"there is no agent {given!r} that runs or ran", hint="`maos agent list --all` shows them")
