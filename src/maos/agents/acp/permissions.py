"""What an agent of the Agent Client Protocol may do without asking a person, and how it is answered."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from typing import Any

from maos.agents.acp import updates as updates
from maos.agents.contract import LaunchOrder
from maos.agents.values import Object, as_text

_ABOUT_FILES = ("read", "edit", "delete", "move", "search")


def is_allowed(call: Object, order: LaunchOrder) -> bool:
    """Whether the order has said yes already: to this tool, or to all changes of files in the workspace."""
    kind = as_text(call.get("kind"))
    if {kind, as_text(call.get("title"))} & set(order.tools_allowed):
        return True
    paths = updates.paths_of(call)
    inside = all(path and _is_inside(path, str(order.cwd)) for path in paths)
    return order.permission == "edits" and kind in _ABOUT_FILES and bool(paths) and inside


def option(options: Sequence[Object], verb: str) -> str:
    """The option that says yes (`allow`) or no (`reject`) for this once; for always, if there is no other."""
    for kind in (f"{verb}_once", f"{verb}_always"):
        for each in options:
            id = as_text(each.get("optionId"))
            if each.get("kind") == kind and 0 < len(id) <= updates.ID_CHARS_MAX:
                return id
    return ""


def outcome(chosen: str) -> dict[str, Any]:
    """The answer that picks an option; without one, nothing is allowed."""
    picked = {"outcome": "selected", "optionId": chosen} if chosen else {"outcome": "cancelled"}
    return {"result": {"outcome": picked}}


def _is_inside(path: str, folder: str) -> bool:
    """Whether a path is below a folder, as it is written; where links lead is the business of the agent's sandbox."""
    whole = os.path.normpath(os.path.join(folder, path))
    return whole.startswith(os.path.normpath(folder).rstrip("/") + "/")
