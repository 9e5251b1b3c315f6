"""Who may do what: the one check, grants, and the credentials for HTTP. Secrets are returned once and never recorded.

The check reads a fold in memory, which is brought up to date when the stream `access` has grown. What counts is decided
by the journal: a credential that counts once is used by an append that expects the version of the stream that was read,
so of two requests that present it at the same time one is refused.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from pathlib import Path

from maos.clock import MICROSECONDS, Clock
from maos.engine.permissions import project_of, project_of_attempt
from maos.engine.streams import RUN, AttemptReader
from maos.errors import Conflict, InvalidInput, NotFound, NotPermitted
from maos.ids import check_name, match_id
from maos.journal.journal import Journal
from maos.model.access import (
    ACCESS,
    PREFIX,
    STORE,
    TOKEN_PREFIX,
    AccessList,
    AccessObject,
    AccessVerdict,
    Credential,
    CredentialKind,
    Grant,
    Role,
    ScopeKind,
    Unauthenticated,
    Verb,
    granted_name,
    parse_principal,
)
from maos.model.events.access import (
    AccessGranted,
    AccessRevoked,
    CredentialCreated,
    CredentialRevoked,
    CredentialUsed,
)
from maos.model.principal import Principal, secret_hash
from maos.model.run import dotted

SESSION_S = 30 * 86_400.0
SIGN_IN_S = 600.0
ANSWER_S = 86_400.0
ID_CHARS = 8
SECRET_BYTES = 32
NAME_CHARS_MAX = 64


class Sight:
    """What one principal may use a verb on: everything, or some projects, runs and agents."""

    def __init__(self, access: Access, principal: Principal, verb: Verb, grants: Sequence[Grant]) -> None:
        self._access = access
        self._grants = [each for each in grants if verb in each.verbs]
        self.principal, self.verb = principal, verb
        self.is_whole = any(each.scope.kind is ScopeKind.STORE for each in self._grants)
        """Whether it is everything: then nothing need be looked at one by one."""
        self.is_empty = not self._grants
        self.has_output = all(Verb.READ_OUTPUT in each.verbs for each in self._grants)
        """Whether what agents printed may be read of all of it."""

    async def has_run(self, id: str) -> bool:
        """Whether a run, or a workflow run, is among it."""
        return await self._has(ScopeKind.RUN, id)

    async def has_agent(self, name: str) -> bool:
        """Whether an agent is among it."""
        return await self._has(ScopeKind.AGENT, name)

    async def covers(self, on: Sequence[str]) -> bool:
        """Whether all of some scopes are among it; none stands for the store."""
        touched = [parse_object(each) for each in on or ("store",)]
        return all([
            any([grant.covers(await self._access.locate(each, self._grants)) for grant in self._grants])
            for each in touched
        ])  # fmt: skip

    async def _has(self, kind: ScopeKind, name: str) -> bool:
        if self.is_whole or not name:
            return self.is_whole
        touched = await self._access.locate(AccessObject(kind, name), self._grants)
        return any(each.covers(touched) for each in self._grants)


class Access:
    """Checks what principals may do, and creates and revokes grants and credentials."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._known = AccessList()
        self._projects: dict[str, str] = {}
        """The projects of runs and agents by name, which do not change."""

    # --- the check -------------------------------------------------------------------------------------------

    async def check(
        self, principal: Principal | str, verb: Verb | str, on: AccessObject | str = STORE, *, reload: bool = True
    ) -> AccessVerdict:
        """Whether a principal may use a verb on the store, a project, a run or an agent, and why.

        Example::

            await m.access.create_token("tablet", "answerer", on=["run/r-1"])
            print(await m.access.check("token:tablet", "answer", "run/r-2"))

        Without `reload`, what was read a moment ago is used: a request that was authenticated just now has read it.
        """
        who = parse_principal(principal) if isinstance(principal, str) else principal
        known = await self._load() if reload else self._known
        return await self._decide(known, who, _verb(verb), on if isinstance(on, AccessObject) else parse_object(on))

    async def check_at(self, principal: str, verb: Verb | str, on: str, at_us: int) -> AccessVerdict:
        """Whether a principal could do something at a time."""
        known = await self._then(at_us)
        return await self._decide(known, parse_principal(principal), _verb(verb), parse_object(on), at_us)

    async def require(self, principal: Principal, verb: Verb, on: AccessObject = STORE) -> None:
        """NotPermitted, with what the principal has, unless it may use a verb on something."""
        found = await self.check(principal, verb, on)
        if not found.allowed:
            raise NotPermitted(found.why, hint="an admin can give access: `maos access grant`")

    async def require_own(self, verb: Verb | str, on: ScopeKind | str) -> None:
        """NotPermitted unless the agent that acts may use a verb on itself, or on the run that it belongs to."""
        who = self._journal.principal
        *_, root = dotted(who.name)
        is_run = on == ScopeKind.RUN and root != who.name
        touched = AccessObject(ScopeKind.RUN, root) if is_run else AccessObject(ScopeKind.AGENT, who.name)
        await self.require(who, _verb(verb), touched)

    async def sight(self, principal: Principal, verb: Verb, *, reload: bool = True) -> Sight:
        """What a principal may use a verb on, for a list or a stream of which it gets its part."""
        now_us = self._clock.now_us()
        known = (await self._load() if reload else self._known).grants_of(principal)
        return Sight(self, principal, verb, [each for each in known if not each.is_expired(now_us)])

    async def verbs(self, principal: Principal | str, on: AccessObject | str | None = None) -> list[Verb]:
        """Which verbs a principal may use on something; with None, on anything at all.

        Example::

            await m.access.create_token("tv", "viewer", on=["run/r-1"])
            print(await m.access.verbs("token:tv", "run/r-1"))
        """
        who = parse_principal(principal) if isinstance(principal, str) else principal
        await self._load()
        if on is None:
            return [each for each in Verb if not (await self.sight(who, each, reload=False)).is_empty]
        return [each for each in Verb if (await self.check(who, each, on, reload=False)).allowed]

    @property
    def version(self) -> int:
        """How many changes of access were read; what a principal may do stays the same until that changes."""
        return self._known.version

    async def locate(self, touched: AccessObject, grants: Sequence[Grant]) -> AccessObject:
        """What is touched with its project, which is looked up only if one of the grants is on a project."""
        is_needed = any(each.scope.kind is ScopeKind.PROJECT for each in grants)
        if not is_needed or touched.project or touched.kind in (ScopeKind.STORE, ScopeKind.PROJECT):
            return touched
        return touched._replace(project=await self._project(touched.name))

    async def _decide(
        self, known: AccessList, who: Principal, verb: Verb, touched: AccessObject, at_us: int | None = None
    ) -> AccessVerdict:
        located = await self.locate(touched, known.grants_of(who))
        return known.check(who, verb, located, self._clock.now_us() if at_us is None else at_us)

    async def _project(self, name: str) -> str:
        """The project of a run, or of an agent: that of the run that it belongs to, else of its folder."""
        found = self._projects.get(name, "")
        if found:
            return found
        for each in dotted(name):
            run = await RUN.view(self._journal, each)
            if run is not None:
                found = str(project_of(Path(run.folder)))
                break
        else:
            attempt = await AttemptReader(self._journal).newest(name)
            found = str(project_of_attempt(attempt)) if attempt is not None else ""
        if found:
            self._projects[name] = found
        return found

    # --- grants ----------------------------------------------------------------------------------------------

    async def grant(
        self,
        principal: str,
        *,
        role: Role | str = "",
        verbs: Sequence[Verb | str] = (),
        on: str = "store",
        expires_s: float = 0.0,
    ) -> Grant:
        """Grant a token or an agent a role, or some verbs, on the store, a project, a run or an agent.

        No principal can grant more than it has itself. What a token was granted ends with the token.

        Example::

            await m.access.create_token("pager", on=["run/r-1"])
            given = await m.access.grant("token:pager", verbs=["answer"], on="run/r-2")
            print(given.id, given.words)
        """
        me = self._journal.principal
        me.check_may_decide("grant access")
        if bool(role) == bool(verbs):
            raise InvalidInput("a grant has a role, or verbs", hint="give one of them")
        chosen = _role(role).verbs if role else frozenset(map(_verb, verbs))
        touched = parse_object(on)
        await self._check_may_give(chosen, [str(touched)])
        known = await self._load()
        who = parse_principal(principal)
        name = granted_name(who)
        if principal.startswith(TOKEN_PREFIX):
            if name not in known.granted:
                raise NotFound(f"there is no {name.replace(':', ' ', 1)}", hint="`maos token list` lists them")
        elif not who.is_agent:
            raise InvalidInput(
                f"{principal!r:.100} is neither a token nor an agent: who opens the database itself has all of it",
                hint="grant to token:NAME or agent:NAME",
            )
        check_name(who.name, "principal")
        now_us = self._clock.now_us()
        event = AccessGranted(
            id=secrets.token_hex(ID_CHARS // 2),
            principal=name,
            role=str(role),
            verbs=[] if role else sorted(chosen),
            on=str(touched),
            expires_us=now_us + int(expires_s * MICROSECONDS) if expires_s else 0,
            by=self._journal.by,
            at_us=now_us,
        )
        await self._journal.append(ACCESS, event)
        return (await self._load()).granted[name][event.id]

    async def revoke_grant(self, given: str, *, dry_run: bool = False) -> Grant:
        """Revoke a grant by its id, or the beginning of it; with `dry_run`, only return it.

        Example::

            given = await m.access.grant("agent:r-1.api", role="viewer", on="run/r-2")
            await m.access.revoke_grant(given.id)
        """
        self._journal.principal.check_may_decide("revoke access")
        own = (await self._load()).credentials
        known = {each.id: each for each in await self.grants() if each.id not in own}
        id = match_id(given, known, "grant", hint="`maos access list` lists them; `maos token revoke` revokes tokens")
        await self._check_may_give(frozenset(), [known[id].on])
        if not dry_run:
            await self._journal.append(ACCESS, AccessRevoked(id=id, by=self._journal.by, at_us=self._clock.now_us()))
        return known[id]

    async def grants(self, principal: str = "", *, at_us: int | None = None) -> list[Grant]:
        """What principals were granted, now or at a time, the oldest first: by their credentials, and since.

        Example::

            print([(each.principal, each.words) for each in await m.access.grants()])
        """
        known = await (self._load() if at_us is None else self._then(at_us))
        now_us = self._clock.now_us() if at_us is None else at_us
        name = granted_name(parse_principal(principal)) if principal else ""
        found = [each for who, grants in known.granted.items() if name in ("", who) for each in grants.values()]
        return sorted((each for each in found if not each.is_expired(now_us)), key=lambda each: each.created_us)

    async def _then(self, at_us: int) -> AccessList:
        """The list as it was at a time."""
        known = AccessList()
        async for record in self._journal.read(ACCESS):
            if record.time_us > at_us:
                break
            known.apply(record.event)
        return known

    async def _check_may_give(self, verbs: frozenset[Verb], on: Sequence[str]) -> None:
        """NotPermitted unless the caller may grant on all of it, and has the verbs itself."""
        for each in on or ("store",):
            for verb in (Verb.GRANT, *sorted(verbs)):
                await self.require(self._journal.principal, verb, parse_object(each))

    # --- credentials -----------------------------------------------------------------------------------------

    async def create_token(
        self, name: str, role: Role | str = Role.VIEWER, *, on: Sequence[str] = (), expires_s: float = 0.0
    ) -> tuple[Credential, str]:
        """Create a token for a program; returns it and its secret, which is not kept. Of the tokens that
        count, each has a name of its own. `on` limits it to projects, runs and agents.

        Example::

            token, secret = await m.access.create_token("phone", "answerer", on=["run/r-1"])
            print(token.id, token.role)
        """
        self._journal.principal.check_may_decide("create a token")
        check_name(name, "token")
        if len(name) > NAME_CHARS_MAX or "/" in name:
            what = f"the name of a token has at most {NAME_CHARS_MAX} characters, and no slash"
            raise InvalidInput(what, hint="choose another")
        places = _places(on)
        await self._check_may_give(_role(role).verbs, places)
        while True:
            known, now_us = await self._load(), self._clock.now_us()
            tokens = [each for each in known.credentials.values() if each.kind is CredentialKind.TOKEN]
            if any(each.name == name and not each.is_expired(now_us) for each in tokens):
                raise InvalidInput(f"there is a token {name!r} already", hint=f"`maos token revoke {name}` revokes it")
            try:
                return await self._create(
                    CredentialKind.TOKEN, name, _role(role), expires_s, on=places, expected=known.version
                )
            except Conflict:
                continue  # another process has changed the list

    async def offer_sign_in(
        self, role: Role | str = Role.ADMIN, *, on: Sequence[str] = (), expires_s: float = SIGN_IN_S
    ) -> str:
        """Create a code that a browser exchanges once for a session; returns the code. `on` limits the session.

        Example::

            code = await m.access.offer_sign_in("viewer")
            session, secret = await m.access.sign_in(code)
        """
        self._journal.principal.check_may_decide("offer to sign in")
        name, places = str(self._journal.principal), _places(on)
        await self._check_may_give(_role(role).verbs, places)
        return (await self._create(CredentialKind.SIGN_IN, name, _role(role), expires_s, on=places))[1]

    async def sign_in(self, code: str) -> tuple[Credential, str]:
        """Exchange a code for a session; returns it and its secret. Unauthenticated when the code does not count.

        Example::

            session, secret = await m.access.sign_in(await m.access.offer_sign_in())
        """
        while True:
            known, offered = await self._presented(code, CredentialKind.SIGN_IN)
            kind, role, used = CredentialKind.SESSION, offered.role, self._used(offered)
            try:
                return await self._create(
                    kind, offered.name, role, SESSION_S, on=offered.on, of=offered, also=used, expected=known.version
                )
            except Conflict:
                continue  # the code may have been used meanwhile

    async def offer_answer(self, question: str, *, expires_s: float = ANSWER_S) -> tuple[Credential, str]:
        """Create a code that answers one question once, for a link in a notification; returns it and the code.

        Example::

            link, code = await m.access.offer_answer("r-1/gate/api/0/1")
        """
        self._journal.principal.check_may_decide("offer to answer a question")
        name = str(self._journal.principal)
        return await self._create(CredentialKind.ANSWER, name, Role.ANSWERER, expires_s, question=question)

    async def use(self, code: str) -> Credential:
        """Use up a code that answers one question. Unauthenticated when it does not count, or not any more."""
        while True:
            known, offered = await self._presented(code, CredentialKind.ANSWER)
            try:
                await self._journal.append(ACCESS, self._used(offered), expected=known.version)
                return offered
            except Conflict:
                continue

    async def authenticate(self, secret: str, *kinds: CredentialKind) -> Credential:
        """Return the credential of a secret that is of one of the kinds (a token by default). Unauthenticated when
        there is none, also if it was revoked by another process a moment ago.

        Example::

            token, secret = await m.access.create_token("grafana")
            assert (await m.access.authenticate(secret)).name == "grafana"
        """
        return (await self._presented(secret, *(kinds or (CredentialKind.TOKEN,))))[1]

    async def counts(self, credential: Credential) -> bool:
        """Whether a credential that was presented still counts: it was neither revoked nor used up, nor is it expired.

        Example::

            token, _secret = await m.access.create_token("watcher")
            assert await m.access.counts(token)
        """
        known = (await self._load()).credentials
        return credential.id in known and not credential.is_expired(self._clock.now_us())

    async def all(self) -> list[Credential]:
        """All credentials that count, the oldest first.

        Example::

            print([(each.name, each.role) for each in await m.access.all()])
        """
        now_us = self._clock.now_us()
        found = [each for each in (await self._load()).credentials.values() if not each.is_expired(now_us)]
        return sorted(found, key=lambda each: each.created_us)

    async def revoke(self, given: str, *, dry_run: bool = False) -> Credential:
        """Revoke a credential, by its id, a prefix of it, or the name of a token; it does not count from now on. With
        `dry_run`, only return it.

        Example::

            await m.access.create_token("old-phone")
            await m.access.revoke("old-phone")
        """
        self._journal.principal.check_may_decide("revoke a token")
        known = {each.id: each for each in await self.all()}
        by_name = [each.id for each in known.values() if each.kind is CredentialKind.TOKEN and each.name == given]
        id = by_name[0] if by_name else match_id(given, known, "token", hint="`maos token list` lists them")
        if str(known[id].principal) != self._journal.by:  # a session may end itself
            await self._check_may_give(frozenset(), known[id].on)
        if not dry_run:
            revoked = CredentialRevoked(id=id, by=self._journal.by, at_us=self._clock.now_us())
            await self._journal.append(ACCESS, revoked)
        return known[id]

    # --- inside ----------------------------------------------------------------------------------------------

    async def _load(self) -> AccessList:
        """The list as it is now: what another process has revoked does not count any more."""
        if await self._journal.version(ACCESS) != self._known.version:
            async for record in self._journal.read(ACCESS, after=self._known.version):
                if record.version == self._known.version + 1:  # else another task has applied it
                    self._known.apply(record.event)
        return self._known

    async def _presented(self, secret: str, *kinds: CredentialKind) -> tuple[AccessList, Credential]:
        known = await self._load()
        id = secret.removeprefix(PREFIX)[:ID_CHARS]
        found = known.credentials.get(id)
        # Compared also when there is none of that id, so that the time tells nothing about which ids there are.
        is_proved = hmac.compare_digest(secret_hash(secret), found.proof if found is not None else secret_hash(""))
        if found is None or not is_proved or found.kind not in kinds or found.is_expired(self._clock.now_us()):
            raise Unauthenticated(
                "no valid credential was presented", hint="sign in, or send a token: `maos token create NAME`"
            )
        return known, found

    async def _create(
        self,
        kind: CredentialKind,
        name: str,
        role: Role,
        expires_s: float,
        *,
        on: Sequence[str] = (),
        question: str = "",
        of: Credential | None = None,
        also: CredentialUsed | None = None,
        expected: int | None = None,
    ) -> tuple[Credential, str]:
        id = secrets.token_hex(ID_CHARS // 2)
        secret = f"{PREFIX}{id}_{secrets.token_urlsafe(SECRET_BYTES)}"
        now_us = self._clock.now_us()
        created = CredentialCreated(
            id=id,
            kind=kind,
            name=name,
            role=role,
            on=list(on),
            proof=secret_hash(secret),
            question=question,
            of=of.id if of is not None else "",
            expires_us=now_us + int(expires_s * MICROSECONDS) if expires_s else 0,
            by=self._journal.by,
            at_us=now_us,
        )
        await self._journal.append(ACCESS, [created] if also is None else [also, created], expected=expected)
        credentials = (await self._load()).credentials
        if id not in credentials:
            raise NotFound(f"the credential {id} was revoked at once", hint="create another one")
        return credentials[id], secret

    def _used(self, credential: Credential) -> CredentialUsed:
        return CredentialUsed(id=credential.id, at_us=self._clock.now_us())


def _role(given: Role | str) -> Role:
    try:
        return Role(given)
    except ValueError:
        hint = f"roles are {', '.join(Role)}"
        raise InvalidInput(f"there is no role {given!r}", hint=hint) from None


def _verb(given: Verb | str) -> Verb:
    try:
        return Verb(given)
    except ValueError:
        raise InvalidInput(f"there is no verb {given!r:.60}", hint=f"verbs are {', '.join(Verb)}") from None


def parse_object(text: str) -> AccessObject:
    """What `store`, `project/FOLDER`, `run/ID` or `agent/NAME` names; a folder stands for the project it is part of."""
    kind, slash, name = text.partition("/")
    if kind not in tuple(ScopeKind) or (kind == ScopeKind.STORE) == bool(slash) or (slash and not name):
        hint = "name store, project/FOLDER, run/ID or agent/NAME"
        raise InvalidInput(f"{text!r:.100} is nothing that access is given to", hint=hint)
    if kind == ScopeKind.PROJECT:
        name = str(project_of(Path(name if name.startswith("/") else Path.cwd() / name)))
    return AccessObject(ScopeKind(kind), check_name(name, kind) if name else "")


def _places(on: Sequence[str]) -> list[str]:
    """Scopes as they are recorded; none for the whole store."""
    found = list(dict.fromkeys(str(parse_object(each)) for each in on))
    return [] if str(STORE) in found else found
