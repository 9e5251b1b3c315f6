"""The rules by which requests of agents are answered: where they are kept, and which counts for an agent.

Rules for an agent or a run are events in a stream of their own, `permissions/<run or agent>`, which nothing that an
agent does, no imported file and no rollback writes to. Rules for a project are in a file of the user who made them,
never in the project. What an agent's type, task or options allow is part of the order of its attempt.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from maos import settings
from maos.clock import LAST_US, Clock
from maos.engine.streams import AttemptReader, RunReader
from maos.errors import InvalidInput, NotFound
from maos.faults import crash_point
from maos.files import private_folder, read_bounded, replace_file
from maos.ids import match_id
from maos.journal.journal import Append, Journal
from maos.model import permission
from maos.model.attempt import Attempt
from maos.model.events.records import PermissionRuleAdded, PermissionRuleRevoked
from maos.model.permission import PROJECT, RUN, SCOPES, TYPE, PermissionRule, StoredRule, ToolRequest
from maos.model.run import dotted
from maos.settings.positions import NotToml, parse_toml

FILE_NAME = "permissions.toml"
FILE_BYTES_MAX = 1 << 20
_PREFIX = "permissions/"
_HEADER = """\
# What agents may do in your projects without asking, or may not. `maos permission list` shows these rules, `maos
# permission revoke ID` removes one. You can edit this file; maos writes it anew, without your comments, when it adds or
# removes a rule.
"""
_HINT = "correct it, or move it away; until then agents ask for what the rules in it allow"


class BadRules(InvalidInput):
    """The user's file of rules cannot be read."""


# --- where they are kept -----------------------------------------------------------------------------------------


def rules_stream(owner: str) -> str:
    """The stream of the rules for a run or an agent."""
    return _PREFIX + owner


async def of_stream(journal: Journal, owner: str) -> list[StoredRule]:
    """The rules for a run, or for one agent."""
    found: dict[str, StoredRule] = {}
    async for record in journal.read(rules_stream(owner)):
        match record.event:
            case PermissionRuleAdded(id=id, rule=rule, scope=scope, by=by, at_us=at_us):
                found[id] = StoredRule(id=id, rule=rule, scope=scope, of=owner, by=by, at_us=at_us)
            case PermissionRuleRevoked(id=id):
                found.pop(id, None)
    return list(found.values())


async def allowed_by_rules(journal: Journal, owner: str) -> tuple[str, ...]:
    """What rules in a journal allow a run and its agents, or an agent, without asking. A person who is to agree to a
    journal from elsewhere sees it."""
    names = [owner, *[name.removeprefix(_PREFIX) async for name in journal.streams(rules_stream(f"{owner}."))]]
    rules = [each.rule for name in names for each in await of_stream(journal, name)]
    return tuple(str(each) for each in rules if each.allow)


def rules_file() -> Path:
    """The user's file of rules for projects."""
    return settings.state_folder() / FILE_NAME


def of_projects(path: Path | None = None) -> list[StoredRule]:
    """The rules for all projects of this user; BadRules says what is wrong with the file."""
    path = path or rules_file()
    try:
        content = read_bounded(path, FILE_BYTES_MAX)
        owner = os.stat(path)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BadRules(f"{path} cannot be read: {error.strerror}", hint=_HINT) from error
    if owner.st_uid != os.geteuid() or owner.st_mode & 0o022:
        raise BadRules(f"{path} can be written by others", hint="make it your own: chmod 600")
    if len(content) > FILE_BYTES_MAX:
        raise BadRules(f"{path} is larger than {FILE_BYTES_MAX} bytes", hint=_HINT)
    try:
        rows = parse_toml(content.decode()).get("rules", [])
        return [_from_file(row) for row in rows]
    except (NotToml, InvalidInput, ValueError, TypeError, KeyError, AttributeError) as error:
        what = error.what if isinstance(error, InvalidInput) else str(error)
        raise BadRules(f"{path} cannot be read: {what}", hint=_HINT) from error


def _from_file(row: dict[str, Any]) -> StoredRule:
    rule = permission.parse(str(row["rule"]), allow=row.get("allow", True) is True)
    at_us, by = row.get("at_us", 0), str(row.get("by", ""))
    if not isinstance(at_us, int) or not 0 <= at_us <= LAST_US:
        raise InvalidInput(f"at_us is not a time in microseconds: {at_us!r:.60}")
    return StoredRule(id=str(row["id"]), rule=rule, scope=PROJECT, of=str(row["project"]), by=by, at_us=at_us)


@contextmanager
def _changed_file() -> Iterator[list[StoredRule]]:
    """The rules in the user's file, to be changed in the block; no other process changes them meanwhile."""
    from maos.settings.loader import to_toml

    path = rules_file()
    private_folder(path.parent)
    lock = os.open(path.with_name(f"{FILE_NAME}.lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rules = of_projects(path)
        yield rules
        lines = [_HEADER]
        for each in rules:
            row = {"id": each.id, "project": each.of, "rule": str(each.rule), "allow": each.rule.allow}
            row |= {"by": each.by, "at_us": each.at_us}
            lines += ["[[rules]]", *(f"{name} = {to_toml(value)}" for name, value in row.items()), ""]
        crash_point("permissions:before write")
        replace_file(path, "\n".join(lines).encode())
        crash_point("permissions:after write")
    finally:
        os.close(lock)


def project_of(folder: Path) -> Path:
    """The project that a folder belongs to: the root of its repository, also from a worktree; else the folder."""
    folder = Path(os.path.realpath(folder))
    for each in (folder, *folder.parents):
        git = each / ".git"
        if git.is_dir():
            return each
        if git.is_file():  # a linked worktree
            try:
                own = each / git.read_text().removeprefix("gitdir:").strip()
                common = own / (own / "commondir").read_text().strip()
                back = own / (own / "gitdir").read_text().strip()
            except (OSError, ValueError):
                return each
            # An agent can write a file `.git` that names another project; the repository of that does not name it.
            is_own = os.path.realpath(back) == str(git)
            return Path(os.path.realpath(common)).parent if is_own else each
    return folder


def project_of_attempt(attempt: Attempt) -> Path:
    """The project that an agent works on: that of the repository which its worktree belongs to, or of its folder."""
    repository = attempt.workspace.get("repository")
    return project_of(Path(repository).parent if repository else Path(attempt.order.get("cwd") or "/"))


# --- which count -------------------------------------------------------------------------------------------------


async def of_attempt(journal: Journal, attempt: Attempt) -> list[StoredRule]:
    """All rules that count for an agent: of its order, its own, those of its run and its project. BadRules when the
    user's file cannot be read: it may have rules that refuse something, so then no rule counts."""
    allowed = permission.rules_of(attempt.order.get("tools_allowed", ()))
    found = [StoredRule(id="", rule=rule, scope=TYPE, of=attempt.agent) for rule in allowed]
    for name in dotted(attempt.agent):
        found += await of_stream(journal, name)
    project = str(project_of_attempt(attempt))
    return found + [each for each in of_projects() if each.of == project]


def decide(rules: Sequence[StoredRule], asked: ToolRequest) -> StoredRule | None:
    """The rule that answers a request; None when a person is asked."""
    chosen = permission.decide([each.rule for each in rules], asked)
    return next((each for each in rules if each.rule is chosen), None) if chosen is not None else None


class Permissions:
    """What agents may do without asking, by rules that people make."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock

    async def list(self, *, of: str = "") -> Sequence[StoredRule]:
        """All rules for agents, runs and projects, the oldest first; or those for a run or an agent alone.

        Example::

            for each in await m.permissions.list():
                print(each.id, each.rule, each.scope, each.of)
        """
        found = await of_stream(self._journal, of) if of else [each async for each in self._all()]
        return sorted(found, key=lambda each: each.at_us)

    async def _all(self) -> AsyncIterator[StoredRule]:
        async for name in self._journal.streams(_PREFIX):
            for each in await of_stream(self._journal, name.removeprefix(_PREFIX)):
                yield each
        for each in of_projects():
            yield each

    async def add(self, rule: str | PermissionRule, *, scope: str, of: str = "", allow: bool = True) -> StoredRule:
        """Have requests that a rule covers answered without asking, for an agent, a run or a project (a folder).

        A rule that is there already is returned. Requests that wait are answered by the engines of their agents.

        Example::

            rule = await m.permissions.add("Bash(pytest *)", scope="project", of=".")
        """
        if isinstance(rule, str):
            rule = permission.parse(rule, allow=allow)
        made, appends = await self.prepare(rule, scope=scope, of=of)
        if appends:
            await self._journal.append_all(appends)
        return made

    async def prepare(self, rule: PermissionRule, *, scope: str, of: str) -> tuple[StoredRule, Sequence[Append]]:
        """A new rule, or the one that is there already, and what records it: nothing for one that is there, nor for one
        of a project, which is written at once."""
        self._journal.principal.check_may_decide("make a rule of what agents may do")
        if scope not in SCOPES:
            raise InvalidInput(f"there are no rules for {scope!r}", hint=f"give one of {', '.join(SCOPES)}")
        of = await self._owner(scope, of)
        made = StoredRule(
            id=f"rule-{secrets.token_hex(3)}",
            rule=rule,
            scope=scope,
            of=of,
            by=self._journal.by,
            at_us=self._clock.now_us(),
        )
        if known := _known(of_projects() if scope == PROJECT else await of_stream(self._journal, of), made):
            return known, []
        if scope == PROJECT:
            with _changed_file() as rules:
                rules.append(made)
            return made, []
        added = PermissionRuleAdded(id=made.id, rule=made.rule, scope=scope, by=made.by, at_us=made.at_us)
        return made, [Append(rules_stream(of), [added])]

    async def _owner(self, scope: str, of: str) -> str:
        if scope == PROJECT:
            return str(project_of(Path(of or ".")))
        if scope == RUN:
            return (await RunReader(self._journal).find(of)).id
        return (await AttemptReader(self._journal).get(of)).agent

    async def revoke(self, id: str, *, dry_run: bool = False) -> StoredRule:
        """Have a rule count no more: what it covers is asked again. `id` may be the beginning of one. With `dry_run`,
        only return it.

        Example::

            rule = await m.permissions.add("Bash(pytest *)", scope="project", of=".")
            await m.permissions.revoke(rule.id)
        """
        self._journal.principal.check_may_decide("revoke a rule of what agents may do")
        known = {each.id: each for each in await self.list()}
        if not known:
            raise NotFound("there are no rules", hint="`maos permission add` makes one")
        found = known[match_id(id, known, "rule", hint="`maos permission list` lists rules", others=known)]
        if dry_run:
            return found
        if found.scope == PROJECT:
            with _changed_file() as rules:
                rules[:] = [each for each in rules if each.id != found.id]
        else:
            revoked = PermissionRuleRevoked(id=found.id, by=self._journal.by, at_us=self._clock.now_us())
            await self._journal.append(rules_stream(found.of), revoked)
        return found


def _known(rules: Sequence[StoredRule], made: StoredRule) -> StoredRule | None:
    return next((each for each in rules if (each.rule, each.of) == (made.rule, made.of)), None)
