"""What can go wrong between an engine and a holder.

MaosError
├── LeaseLost
│   └── Fenced           another engine has the right to this agent now
├── HolderGone           no holder lives for this attempt; what it left can be read
├── StartFailed          the agent's program could not be started
└── InputFull            the agent does not read its input
"""

from __future__ import annotations

from maos.errors import LeaseLost, MaosError


class Fenced(LeaseLost):
    """Another engine with a newer token is, or was, attached; this one must stop acting for the agent."""

    hint = "stop acting for this attempt; another engine has it"


class HolderGone(MaosError):
    """No holder lives for this attempt, and none will: its agent is not running."""

    hint = "read what it left with left_behind(), then release the attempt"


class StartFailed(MaosError):
    """The agent's program could not be started; `errno` says why, `where` at what: program, cwd or prepare."""

    def __init__(self, what: str, *, where: str, errno: int, hint: str) -> None:
        super().__init__(what, hint=hint)
        self.where = where
        self.errno = errno


class InputFull(MaosError):
    """The agent does not read its input, or the disk takes no record of it; nothing was given to the agent."""

    hint = "try again later under the same id"
