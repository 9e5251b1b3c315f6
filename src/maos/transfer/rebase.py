"""Machine-specific parts of events (folders, processes, owners): ignored when events are compared, replaced when they
are imported, so that no path and no process of a file is ever used here. `maos.model.events` declares which they are.

Tool servers and variables that an agent was given are removed: the engine that resumes it gives them again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from maos.engine.attempt_spec import ASKED
from maos.errors import Corrupt
from maos.journal.codec import Data, Event
from maos.journal.journal import Record
from maos.model.attempt import attempt_id
from maos.model.events.attempt import AttemptBranched, AttemptMoved, AttemptPlanned
from maos.model.events.core import local_fields
from maos.model.events.parts import Local, Owner
from maos.model.tool_calls import NAME as TOOL_SERVER
from maos.transfer.membership import Members
from maos.workspaces import Workspace, is_object

_BESIDE = re.compile(r"(.+)-(?:gate[0-9]+-[0-9]+|merge[0-9]+)")
"""An agent that works in the files of another: it checks them, or resolves a conflict in them."""
_REMOVED = object()

Change = Callable[[Any], Any]
"""The new value of a local field by its old one, which is None where there is none; `_REMOVED` removes it."""


class RebaseTarget(NamedTuple):
    """Where an imported run is to be resumed."""

    folder: Path
    """The folder that its agents work in, or begin with a copy of."""
    home: Path
    """Where this machine keeps the files of agents."""
    repository: Path | None
    """The repository that the folder is in."""
    prefix: str
    """The way from the root of the files of the repository to the folder."""
    owner: Owner
    """The importing process, which will have exited when the run is resumed."""

    @property
    def root(self) -> Path:
        """Where worktrees are."""
        return self.home / "workspaces"

    def workspace(self, name: str, base: str | None) -> Workspace:
        """The worktree that an agent or a run will have; nothing is created yet."""
        assert self.repository is not None
        tree = self.root / name
        gitdir = self.repository / "worktrees" / name
        return Workspace(name, tree / self.prefix if self.prefix else tree, tree, self.repository, gitdir, base)


def digest(record: Record) -> bytes:
    """What is the same for the same event on every machine."""
    data = record.data
    for path, _local in local_fields(record.type):
        data = _changed(data, path, lambda _old: _REMOVED)
    return hashlib.sha256(record.type.encode() + b"\0" + msgspec.json.encode(data, order="deterministic")).digest()


def _changed(data: Data, path: tuple[str, ...], change: Change) -> Data:
    """Data with another value at a path; what it does not have stays away, unless the change gives it a value."""
    first, *rest = path
    if first == "*":
        return {name: _changed(each, tuple(rest), change) for name, each in data.items()}
    if rest:
        inner = data.get(first)
        return {**data, first: _changed(inner, tuple(rest), change)} if isinstance(inner, dict) else data
    value = change(data.get(first))
    if value is _REMOVED:
        return {name: each for name, each in data.items() if name != first}
    return {**data, first: value}


class Rebaser:
    """Replaces what events say of another machine by what is true of this one."""

    def __init__(self, place: RebaseTarget, streams: Mapping[str, Iterable[Record]], id: str, members: Members) -> None:
        self._place = place
        self._members = members
        self._id = id
        begun = [
            _attempt(record)
            for records in streams.values()
            for record in records
            if isinstance(record.event, (AttemptPlanned, AttemptBranched))
        ]
        in_git = [each for each in begun if each.get("workspace", {}).get("repository") is not None]
        self._in_git = {each.get("agent", "") for each in in_git}

    def rebase(self, record: Record) -> Event:
        """An event as it is to be written here."""
        data, attempt = record.data, _attempt(record)
        changes = self._changes(attempt)
        for path, local in local_fields(record.type):
            data = _changed(data, path, changes[local])
        return Event(record.type, data)

    def _changes(self, attempt: Mapping[str, Any]) -> dict[Local, Change]:
        place = self._place
        found: dict[Local, Change] = {
            Local.OWNER: lambda _: place.owner,
            Local.PROCESS: lambda old: _REMOVED if old is None else 0,
            Local.FOLDER: lambda _: str(place.folder),
            Local.WORKSPACE: lambda old: place.workspace(self._id, base_of(old)).to_data() if old else _REMOVED,
            Local.DEFINITION: lambda _: _REMOVED,  # the file is there, not here
            # Agents of the run that it was forked from did not come with it, and those of others are not for it.
            Local.AGENT: lambda old: old if self._members.has(old or "") else "",
        }
        return found | self._changes_of_attempt(attempt) if attempt else found

    def _changes_of_attempt(self, attempt: Mapping[str, Any]) -> dict[Local, Change]:
        agent, number, home = attempt.get("agent", ""), attempt.get("number", 0), self._place.home
        workspace = self._workspace(agent, attempt.get("workspace"))
        before, cwd = attempt.get("order", {}).get("cwd", ""), str(workspace.path)
        return {
            Local.WORKTREE: lambda _: workspace.to_data(),
            Local.HOLDER: lambda _: str(home / "holders" / attempt_id(agent, number)),
            Local.CWD: lambda _: cwd,
            Local.HOME: lambda _: str(home / "homes" / agent),
            Local.MOVED_FROM: lambda _: before if before != cwd else "",
            Local.SERVERS: lambda old: [
                {"name": TOOL_SERVER, "argv": [], "env": []} for each in old or () if each.get("name") == TOOL_SERVER
            ],
            Local.VARIABLES: lambda _: [],
        }

    def _workspace(self, agent: str, before: Any) -> Workspace:
        """Where an agent works on this machine."""
        if agent in self._in_git:
            return self._place.workspace(agent, base_of(before))
        beside = _BESIDE.fullmatch(agent)
        path = self._place.folder
        if beside is not None and beside[1] in self._in_git:
            path = self._place.workspace(beside[1], None).path
        return Workspace(agent, path, path, None, None, None, (ASKED,))


def _attempt(record: Record) -> Mapping[str, Any]:
    """Whose attempt an event tells of that says where its files are, and what it says; empty for any other event."""
    match record.event:
        case AttemptBranched(state=state):
            return state
        case AttemptPlanned() | AttemptMoved():
            return record.data
    return {}


def base_of(workspace: Any) -> str | None:
    """The commit that a worktree began with."""
    base = workspace.get("base") if isinstance(workspace, Mapping) else None
    if base is None or (isinstance(base, str) and is_object(base)):
        return base
    raise Corrupt(f"{base!r} is no commit", hint="nothing was imported")
