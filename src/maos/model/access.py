"""Who may do what: verbs, roles, scopes and grants, the credentials that were given out, and the one check.

Everything is folded from the stream `access`. What no grant allows is denied. A person whose process opens the database
itself owns it; a program over HTTP has what its credential and later grants give; an agent has its own run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Protocol

import msgspec

from maos.errors import NotPermitted
from maos.model.events.access import (
    AccessGranted,
    AccessRevoked,
    CredentialCreated,
    CredentialRevoked,
    CredentialUsed,
    ServerStarted,
    ServerStopped,
)
from maos.model.events.core import EventBase
from maos.model.principal import Principal, PrincipalKind
from maos.model.run import dotted
from maos.patterns import regex
from maos.tuples import NamedTuple

ACCESS, SERVERS = "access", "servers"
"""The streams of credentials and grants, and of servers."""
PREFIX = "maos_"
"""How every secret begins, so that it is recognized, and removed, wherever it is printed."""
AGENT_PREFIX, TOKEN_PREFIX = "agent:", "token:"

_OWN = regex(r"(\.b\d+)?(\.\d+)?", re.ASCII)
"""What the name of an agent has behind it in another branch of its run, and that of an attempt."""


class Unauthenticated(NotPermitted):
    """No credential that counts was presented."""


class Verb(StrEnum):
    """What can be done with the store, a project, a run or an agent."""

    READ = "read"
    """See that it exists, its status, tasks, costs and decisions."""
    READ_OUTPUT = "read_output"
    """Read what agents printed, said, changed and saved."""
    ANSWER = "answer"
    """Answer questions and permission requests."""
    STEER = "steer"
    """Send messages, resume, retry, skip, add tasks, change limits and states, merge."""
    START = "start"
    """Start and fork runs."""
    STOP = "stop"
    """Pause, stop and cancel."""
    ROLLBACK = "rollback"
    """Roll back to an earlier point in time."""
    ERASE = "erase"
    """Remove what cannot be brought back."""
    EXPORT = "export"
    """Write a run to a file that leaves maos."""
    GRANT = "grant"
    """Create and revoke credentials and grants, of no more than the own ones."""
    AUDIT = "audit"
    """Read who read and did what."""


class Role(StrEnum):
    """A set of verbs with a name."""

    VIEWER = "viewer"
    """Read everything but credentials and the audit."""
    ANSWERER = "answerer"
    """Also answer questions and permission requests."""
    OPERATOR = "operator"
    """Also start, steer, pause, cancel and roll back runs, and send messages."""
    ADMIN = "admin"
    """Everything."""
    AUDITOR = "auditor"
    """Read the audit, and that and how things run: neither what agents print nor anything that acts."""

    @property
    def verbs(self) -> frozenset[Verb]:
        """What it allows."""
        return _VERBS[self]


_VIEWER = frozenset({Verb.READ, Verb.READ_OUTPUT})
_ANSWERER = _VIEWER | {Verb.ANSWER}
_OPERATOR = _ANSWERER | {Verb.STEER, Verb.START, Verb.STOP, Verb.ROLLBACK, Verb.EXPORT}
_VERBS: Mapping[Role, frozenset[Verb]] = {
    Role.VIEWER: _VIEWER,
    Role.ANSWERER: _ANSWERER,
    Role.OPERATOR: _OPERATOR,
    Role.ADMIN: frozenset(Verb),
    Role.AUDITOR: frozenset({Verb.READ, Verb.AUDIT}),
}
AGENT_VERBS = frozenset({Verb.READ, Verb.READ_OUTPUT, Verb.STEER, Verb.START})
"""What an agent may do in its own run: by its tools, which offer less than that."""


def role_for(verb: Verb) -> Role:
    """The first role that allows a verb."""
    return next(each for each in Role if verb in each.verbs)


class ScopeKind(StrEnum):
    """What a grant is on."""

    STORE = "store"
    PROJECT = "project"
    RUN = "run"
    AGENT = "agent"


class AccessObject(NamedTuple):
    """What is touched: the store, a run or workflow run, or an agent; with the project that it belongs to."""

    kind: ScopeKind = ScopeKind.STORE
    name: str = ""
    project: str = ""

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}" if self.name else str(self.kind)


STORE = AccessObject()


class Grant(msgspec.Struct, kw_only=True, frozen=True):
    """The verbs that a principal may use on something."""

    id: str
    """Empty for what a principal has by being what it is."""
    principal: str
    verbs: frozenset[Verb]
    role: str = ""
    on: str = "store"
    expires_us: int = 0
    by: str = ""
    created_us: int = 0

    @property
    def words(self) -> str:
        """What it allows, in words."""
        return f"{self.role or ', '.join(each for each in Verb if each in self.verbs)} on {self.on}"

    @property
    def scope(self) -> AccessObject:
        """What it is on."""
        kind, _, name = self.on.partition("/")
        return AccessObject(ScopeKind(kind), name)

    def is_expired(self, now_us: int) -> bool:
        """Whether its time is over."""
        return 0 < self.expires_us <= now_us

    def covers(self, touched: AccessObject) -> bool:
        """Whether it is on what is touched, or on something that it is part of."""
        kind, _, name = self.on.partition("/")
        if kind == ScopeKind.STORE:
            return True
        if kind == ScopeKind.PROJECT:
            return name == (touched.name if touched.kind is ScopeKind.PROJECT else touched.project)
        if kind == ScopeKind.AGENT:
            own = touched.name.removeprefix(name) if touched.name.startswith(name) else "other"
            return touched.kind is ScopeKind.AGENT and _OWN.fullmatch(own) is not None
        return touched.kind in (ScopeKind.RUN, ScopeKind.AGENT) and name in dotted(touched.name)


class VisibleParts(Protocol):
    """Which runs and agents a reader sees; services that read many leave out the others."""

    async def has_run(self, id: str, /) -> bool:
        """Whether it sees a run, or a workflow run."""
        ...

    async def has_agent(self, name: str, /) -> bool:
        """Whether it sees an agent."""
        ...


class AccessVerdict(NamedTuple):
    """Whether a principal may do something, and why."""

    allowed: bool
    why: str
    grant: Grant | None = None
    """The grant that allows it."""


class CredentialKind(StrEnum):
    """What a credential is for."""

    TOKEN = "token"  # noqa: S105 - the kind, and no token
    """A program presents it with each request."""
    SESSION = "session"
    """A browser presents it with each request, as a cookie."""
    SIGN_IN = "sign_in"
    """Exchanged once for a session."""
    ANSWER = "answer"
    """Answers one question, once."""

    @property
    def is_single_use(self) -> bool:
        """Whether it counts once."""
        return self in (CredentialKind.SIGN_IN, CredentialKind.ANSWER)


class Credential(msgspec.Struct, kw_only=True, frozen=True):
    """A credential that was given out; only the hash of its secret is known."""

    id: str
    kind: CredentialKind
    name: str
    role: Role
    proof: str
    on: tuple[str, ...] = ()
    """What it is limited to; empty: nothing."""
    question: str = ""
    expires_us: int = 0
    by: str = ""
    created_us: int = 0

    @property
    def principal(self) -> Principal:
        """Who acts when it is presented: a token by its name, a browser also by its session."""
        name = self.name if self.kind is CredentialKind.TOKEN else f"{self.name}/{self.id}"
        return Principal(PrincipalKind.TOKEN, name)

    @property
    def grants(self) -> list[Grant]:
        """What it allows by itself. One that counts once is exchanged, or answers its question, and allows no more."""
        if self.kind.is_single_use:
            return []
        return [
            Grant(id=self.id, principal=str(self.principal), verbs=self.role.verbs, role=self.role, on=each,
                  expires_us=self.expires_us, by=self.by, created_us=self.created_us)
            for each in self.on or ("store",)
        ]  # fmt: skip

    def is_expired(self, now_us: int) -> bool:
        """Whether its time is over."""
        return 0 < self.expires_us <= now_us


class AccessList(msgspec.Struct, kw_only=True):
    """The credentials and grants that count, unless their time is over."""

    version: int = 0
    credentials: dict[str, Credential] = {}
    """By id; those that were revoked or used up, or had expired when another was created, are not among them."""
    granted: dict[str, dict[str, Grant]] = {}
    """By principal and id: of its credential, and what was granted to it since."""

    def apply(self, event: EventBase) -> None:
        """Fold one more event in."""
        self.version += 1
        match event:
            case CredentialCreated():
                over = [each.id for each in self.credentials.values() if each.is_expired(event.at_us)]
                for id in over:
                    self._forget(id)
                self._add(
                    Credential(
                        id=event.id,
                        kind=CredentialKind(event.kind),
                        name=event.name,
                        role=Role(event.role),
                        proof=event.proof,
                        on=tuple(event.on),
                        question=event.question,
                        expires_us=event.expires_us,
                        by=event.by,
                        created_us=event.at_us,
                    )
                )
            case CredentialUsed() | CredentialRevoked():
                self._forget(event.id)
            case AccessGranted():
                verbs = Role(event.role).verbs if event.role else frozenset(map(Verb, event.verbs))
                self.granted.setdefault(event.principal, {})[event.id] = Grant(
                    id=event.id, principal=event.principal, verbs=verbs, role=event.role, on=event.on,
                    expires_us=event.expires_us, by=event.by, created_us=event.at_us,
                )  # fmt: skip
            case AccessRevoked():
                for grants in self.granted.values():
                    grants.pop(event.id, None)

    def grants_of(self, principal: Principal) -> list[Grant]:
        """What a principal was granted, and what it has by being what it is."""
        found = list(self.granted.get(granted_name(principal), {}).values())
        return [*_own_grants(principal), *found]

    def check(self, principal: Principal, verb: Verb, touched: AccessObject, now_us: int) -> AccessVerdict:
        """Whether a principal may do something; what no grant allows is denied."""
        known = [each for each in self.grants_of(principal) if not each.is_expired(now_us)]
        for each in known:
            if verb in each.verbs and each.covers(touched):
                return AccessVerdict(True, f"{principal} has {each.words}", each)
        has = f"it has {'; '.join(sorted(each.words for each in known)[:5])}" if known else "it has no grant"
        return AccessVerdict(False, f"{principal} may not {verb} {touched}: {has}")

    def _add(self, credential: Credential) -> None:
        self.credentials[credential.id] = credential
        if not credential.kind.is_single_use:
            # A token of a name that was used before begins with what it was created with.
            grants = {f"{each.id}/{each.on}": each for each in credential.grants}
            self.granted[str(credential.principal)] = grants

    def _forget(self, id: str) -> None:
        found = self.credentials.pop(id, None)
        if found is not None and not found.kind.is_single_use:
            self.granted.pop(str(found.principal), None)


def granted_name(principal: Principal) -> str:
    """The name that grants of a principal have: of an agent, the same in all its attempts."""
    return f"{AGENT_PREFIX}{principal.name}" if principal.is_agent else str(principal)


def parse_principal(text: str) -> Principal:
    """The principal of a name that grants have: `token:phone`, `agent:r-1.fix`, `alice@build-3`."""
    if text.startswith(TOKEN_PREFIX):
        return Principal(PrincipalKind.TOKEN, text.removeprefix(TOKEN_PREFIX))
    if text.startswith(AGENT_PREFIX):
        name = text.removeprefix(AGENT_PREFIX)
        return Principal(PrincipalKind.AGENT, name, attempt=name)
    if text == PrincipalKind.ENGINE:
        return Principal(PrincipalKind.ENGINE, text)
    name, _, host = text.rpartition("@")
    return Principal(PrincipalKind.PERSON, name, host=host)


def _own_grants(principal: Principal) -> Iterable[Grant]:
    name = granted_name(principal)
    match principal.kind:
        case PrincipalKind.PERSON | PrincipalKind.ENGINE:
            yield Grant(id="", principal=name, verbs=Role.ADMIN.verbs, role="the database itself, so everything")
        case PrincipalKind.AGENT:
            *_, root = dotted(principal.name)
            kind = ScopeKind.RUN if root != principal.name else ScopeKind.AGENT
            yield Grant(id="", principal=name, verbs=AGENT_VERBS, role="the tools of an agent", on=f"{kind}/{root}")


class ServerList(msgspec.Struct, kw_only=True):
    """The processes of `maos serve` that were not stopped as requested: each is alive, or was killed."""

    version: int = 0
    servers: dict[str, ServerStarted] = {}

    def apply(self, event: EventBase) -> None:
        """Fold one more event in."""
        self.version += 1
        match event:
            case ServerStarted():
                self.servers[event.id] = event
            case ServerStopped():
                self.servers.pop(event.id, None)
