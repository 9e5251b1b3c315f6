"""What of an event is of one machine: its folders and processes. Left out when events are compared, and put in anew
when they are imported, so no path and no process of a file is ever used here.

Tool servers and variables that an agent was given go too: whoever goes on with it gives them again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from maos.engine.attempt_spec import ASKED
from maos.errors import Corrupt
from maos.journal.codec import Data, Event
from maos.journal.journal import Record
from maos.model.attempt import attempt_id
from maos.model.events.parts import Owner
from maos.model.tool_calls import NAME as TOOL_SERVER
from maos.transfer.membership import Members
from maos.workspaces import Workspace, is_object

PLANNED, BRANCHED = "attempt_planned", "attempt_branched"
"""How an attempt begins: by itself, or with all that another agent had come to."""

_OF_A_MACHINE: Mapping[str, tuple[str, ...]] = {
    "run_created": ("owner", "folder", "options.workspace", "options.workflow"),
    "run_planned": ("options.workspace", "options.workflow"),
    "run_claimed": ("owner", "options.workspace", "options.workflow"),
    "run_moved": ("folder", "from", "workspace"),
    PLANNED: (
        "owner",
        "folder",
        "workspace",
        "pid",
        "moved_from",
        "order.cwd",
        "order.home",
        "order.from",
        "order.mcp",
        "order.env",
    ),
    "attempt_moved": ("folder", "workspace", "cwd", "home"),
    "attempt_claimed": ("owner",),
    "attempt_started": ("pid", "holder_pid"),
    "workflow_started": ("owner", "options.where"),
    "workflow_claimed": ("owner",),
}
FOLDED = "workflow_compacted"
"""All that a workflow had come to, in one event: of a machine is in it what is so when one is started."""
STATES = ("run_rolled_back", "run_forked", "run_joined", "run_changed")
"""Events that say all of what a run is from then on."""
_BESIDE = re.compile(r"(.+)-(?:gate[0-9]+-[0-9]+|merge[0-9]+)")
"""An agent that works in the files of another: it checks them, or resolves a conflict in them."""


class RebaseTarget(NamedTuple):
    """Where a run goes on that comes from elsewhere."""

    folder: Path
    """The folder that its agents work in, or begin with a copy of."""
    home: Path
    """Where this machine keeps the files of agents."""
    repository: Path | None
    """The repository that the folder is in."""
    prefix: str
    """The way from the root of the files of the repository to the folder."""
    owner: Owner
    """Who brings it: a process that is gone when anybody looks."""

    @property
    def root(self) -> Path:
        """Where worktrees are."""
        return self.home / "workspaces"

    def workspace(self, name: str, base: str | None) -> Workspace:
        """The worktree that somebody will have; nothing is made yet."""
        assert self.repository is not None
        tree = self.root / name
        gitdir = self.repository / "worktrees" / name
        return Workspace(name, tree / self.prefix if self.prefix else tree, tree, self.repository, gitdir, base)


def neutral(event: Event | Record) -> Event:
    """An event without what is of one machine."""
    data = event.data
    if event.type in STATES:
        return Event(event.type, {**data, "state": _neutral_state(data["state"])})
    if event.type == BRANCHED:
        return Event(event.type, {**data, "state": _without(data["state"], _OF_A_MACHINE[PLANNED])})
    if event.type == FOLDED:
        return Event(event.type, {**data, "workflow": _without(data["workflow"], _OF_A_MACHINE["workflow_started"])})
    return Event(event.type, _without(data, _OF_A_MACHINE.get(event.type, ())))


def _without(data: Mapping[str, Any], ways: Iterable[str]) -> Mapping[str, Any]:
    for way in ways:
        first, _, second = way.partition(".")
        if not second:
            data = {key: value for key, value in data.items() if key != first}
        elif isinstance(data.get(first), dict):
            data = {**data, first: {key: value for key, value in data[first].items() if key != second}}
    return data


def _neutral_state(state: Mapping[str, Any]) -> dict[str, Any]:
    options = {key: value for key, value in state["options"].items() if key not in ("workspace", "workflow")}
    tasks = {name: {**task, "agent": ""} for name, task in state["tasks"].items()}
    return {**state, "folder": "", "options": options, "tasks": tasks}


def digest(event: Event | Record) -> bytes:
    """What is the same for the same event on every machine."""
    kind, data = neutral(event)
    return hashlib.sha256(kind.encode() + b"\0" + msgspec.json.encode(data, order="deterministic")).digest()


class Rebaser:
    """Puts this machine in the place of another."""

    def __init__(self, place: RebaseTarget, streams: Mapping[str, Iterable[Record]], id: str, members: Members) -> None:
        self._place = place
        self._members = members
        self._id = id
        begun = [plan_of(event) for events in streams.values() for event in events if event.type in (PLANNED, BRANCHED)]
        self._in_git = {plan["agent"] for plan in begun if plan["workspace"].get("repository") is not None}

    def fit(self, event: Record) -> Event:
        """An event as it is to be written here."""
        data: Data = dict(event.data)
        if "owner" in data and "owner" in _OF_A_MACHINE.get(event.type, ()):
            data["owner"] = self._place.owner
        if event.type == "run_created":
            data["folder"] = str(self._place.folder)
        elif event.type == "run_moved":
            data |= {"folder": str(self._place.folder), "from": str(self._place.folder)}
            data |= self._options({"workspace": data["workspace"]}) if data.get("workspace") else {}
        elif event.type in STATES:
            data["state"] = self._state(data["state"])
        elif event.type == PLANNED:
            self._fit_attempt(data)
        elif event.type == "attempt_moved":
            data |= self._spot(data["agent"], data["number"], data["workspace"])
        elif event.type == BRANCHED:
            data["state"] = {**data["state"], "owner": self._place.owner, "pid": 0}
            self._fit_attempt(data["state"])
        elif event.type == "attempt_started":
            data |= {key: 0 for key in ("pid", "holder_pid") if key in data}
        elif event.type == "workflow_started":
            data["options"] = {**data.get("options", {}), "where": {}}
        elif event.type == FOLDED:
            data["workflow"] = self._flow(data["workflow"])
        if event.type.startswith("run_") and isinstance(data.get("options"), dict):
            data["options"] = self._options(data["options"])
        return Event(event.type, data)

    def _options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        workspace = options.get("workspace")
        options = {key: value for key, value in options.items() if key != "workflow"}  # its file is there, not here
        if not workspace:
            return options
        return {**options, "workspace": self._place.workspace(self._id, base_of(workspace)).to_data()}

    def _state(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Agents of the run that it was forked from did not come with it, and those of others are not for it."""
        tasks = {
            name: {**task, "agent": task["agent"] if self._members.has(task.get("agent", "")) else ""}
            for name, task in state["tasks"].items()
        }
        return {**state, "folder": str(self._place.folder), "options": self._options(state["options"]), "tasks": tasks}

    def _flow(self, flow: Mapping[str, Any]) -> dict[str, Any]:
        """The file that a workflow is defined in is there, not here: whoever goes on with it names one."""
        return {**_without(flow, _OF_A_MACHINE["workflow_started"]), "owner": self._place.owner}

    def _spot(self, agent: str, number: int, before: Mapping[str, Any]) -> dict[str, Any]:
        """Where an attempt is on this machine."""
        if agent in self._in_git:
            workspace = self._place.workspace(agent, base_of(before))
        else:
            beside = _BESIDE.fullmatch(agent)
            path = self._place.folder
            if beside is not None and beside[1] in self._in_git:
                path = self._place.workspace(beside[1], None).path
            workspace = Workspace(agent, path, path, None, None, None, (ASKED,))
        home = self._place.home
        return {
            "workspace": workspace.to_data(),
            "folder": str(home / "holders" / attempt_id(agent, number)),
            "cwd": str(workspace.path),
            "home": str(home / "homes" / agent),
        }

    def _fit_attempt(self, data: Data) -> None:
        spot = self._spot(data["agent"], data["number"], data["workspace"])
        data |= {"workspace": spot["workspace"], "folder": spot["folder"]}
        data["order"] = {
            **data["order"],
            "cwd": spot["cwd"],
            "home": spot["home"],
            "from": data["order"]["cwd"] if data["order"]["cwd"] != spot["cwd"] else "",
            "mcp": [
                {"name": TOOL_SERVER, "argv": [], "env": []}
                for each in data["order"]["mcp"]
                if each.get("name") == TOOL_SERVER
            ],
            "env": [],
        }


def plan_of(event: Record) -> Mapping[str, Any]:
    """What an attempt was to do, as the event says that it begins with."""
    found: Mapping[str, Any] = event.data["state"] if event.type == BRANCHED else event.data
    return found


def base_of(workspace: Any) -> str | None:
    """The commit that a worktree began with."""
    base = workspace.get("base") if isinstance(workspace, Mapping) else None
    if base is None or (isinstance(base, str) and is_object(base)):
        return base
    raise Corrupt(f"{base!r} is no commit", hint="nothing was imported")
