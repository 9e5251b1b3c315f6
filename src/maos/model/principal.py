"""Who acts: a person, an agent in one of its attempts, a token, or the engine itself.

Events that record an act or a decision have the text of its principal in their field `by`. Every process has one
principal, which is determined once, when it opens the journal.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum

import msgspec

from maos.errors import NotPermitted
from maos.model.events.parts import PERSON


class PrincipalKind(StrEnum):
    """What a principal is."""

    PERSON = "person"
    AGENT = "agent"
    TOKEN = "token"  # noqa: S105 - the kind, and no token
    """A program that was given a token by a person."""
    ENGINE = "engine"
    """What the engine does by itself: a default answer, a cleanup that was due."""


class Principal(msgspec.Struct, frozen=True):
    """Who acts. Its text is unique: `alice@build-3`, `r-1.fix.2` (attempt 2 of the agent r-1.fix), `engine`.

    Example::

        print(m.principal, m.principal.kind)
    """

    kind: PrincipalKind
    name: str
    """The user, the agent, or the token's name."""
    host: str = ""
    """Of a person: the machine."""
    attempt: str = ""
    """Of an agent: the id of its attempt."""

    def __str__(self) -> str:
        match self.kind:
            case PrincipalKind.PERSON:
                return f"{self.name}@{self.host}"
            case PrincipalKind.AGENT:
                return self.attempt
            case PrincipalKind.TOKEN:
                return f"token:{self.name}"
        return self.name

    @property
    def sender(self) -> str:
        """The name that its messages go under."""
        return self.name if self.is_agent else PERSON

    @property
    def is_agent(self) -> bool:
        """Whether it is an agent, which may not decide for a person."""
        return self.kind is PrincipalKind.AGENT

    def check_may_decide(self, what: str) -> None:
        """NotPermitted if it is an agent: `what` is for a person to do."""
        if self.is_agent:
            raise NotPermitted(
                f"{self.attempt} is an agent and cannot {what}; nothing was changed",
                hint="a person does that, in a terminal of their own; an agent can ask with the tool ask_person",
            )

    def check_may_write_for(self, name: str, what: str) -> None:
        """NotPermitted if it is another agent than the one of that name."""
        if self.is_agent and name != self.name:
            raise NotPermitted(
                f"{self.attempt} cannot {what} {name}; nothing was changed",
                hint=f"it can do that for itself: {self.name}",
            )


ENGINE = Principal(PrincipalKind.ENGINE, "engine")


def secret_hash(secret: str) -> str:
    """What is recorded of the secret of an attempt."""
    return hashlib.sha256(secret.encode("utf-8", "backslashreplace")).hexdigest()
