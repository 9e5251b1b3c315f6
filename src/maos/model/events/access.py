"""Events of the stream `access`: the credentials of people and programs that reach maos over HTTP, and what principals
were granted; and of the stream `servers`: the processes of `maos serve`."""

from __future__ import annotations

from typing import Annotated

from maos.model.events.core import EventBase, event
from maos.model.events.parts import Local, Owner


@event("credential_created")
class CredentialCreated(EventBase, frozen=True, kw_only=True):
    """A secret was given out, of which the journal has the hash."""

    id: str
    kind: str
    """token: of a program · session: of a browser · sign_in: exchanged once for a session · answer: answers one
    question, once."""
    name: str
    role: str
    on: list[str] = []
    """What it is limited to, such as `run/r-1`; empty: nothing."""
    proof: str
    """The SHA-256 of the secret."""
    question: str = ""
    """The question that a credential of the kind answer is for."""
    of: str = ""
    """The credential that was exchanged for it."""
    expires_us: int = 0
    """0: never."""
    by: str = ""
    at_us: int


@event("credential_used")
class CredentialUsed(EventBase, frozen=True, kw_only=True):
    """A credential that counts once was used."""

    id: str
    at_us: int


@event("credential_revoked")
class CredentialRevoked(EventBase, frozen=True, kw_only=True):
    """A credential does not count any more."""

    id: str
    by: str = ""
    at_us: int


@event("access_granted")
class AccessGranted(EventBase, frozen=True, kw_only=True):
    """A principal may do something with the store, a project, a run or an agent."""

    id: str
    principal: str
    """As text, such as `token:phone`, or `agent:r-1.fix` for an agent in all its attempts."""
    role: str = ""
    """The role whose verbs it may use; empty when the verbs are given one by one."""
    verbs: list[str] = []
    on: str
    """`store`, `project/FOLDER`, `run/ID` or `agent/NAME`."""
    expires_us: int = 0
    """0: never."""
    by: str = ""
    at_us: int


@event("access_revoked")
class AccessRevoked(EventBase, frozen=True, kw_only=True):
    """A grant does not count any more."""

    id: str
    by: str = ""
    at_us: int


@event("server_started")
class ServerStarted(EventBase, frozen=True, kw_only=True):
    """A process of `maos serve` executes the runs of this journal."""

    id: str
    url: str
    """Where it is reached; empty for one without HTTP."""
    owner: Annotated[Owner, Local.OWNER]
    by: str = ""
    at_us: int


@event("server_stopped")
class ServerStopped(EventBase, frozen=True, kw_only=True):
    """A process of `maos serve` has stopped as requested."""

    id: str
    at_us: int
