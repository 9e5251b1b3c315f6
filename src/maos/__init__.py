"""Durable state and events for agents: one append-only journal, everything else a fold of it.

    import maos

    async with maos.open("maos.db") as m:
        await m.state.create("reviewer", {"status": "idle"})

Names are loaded when they are first used, so importing maos costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, whose import would cost ten times what the rest of this module does

if TYPE_CHECKING:
    from typing import Any

    from maos.app import Maos, open
    from maos.errors import (
        Conflict,
        Corrupt,
        DiskFull,
        HistoryLost,
        InvalidInput,
        KeyReused,
        LeaseLost,
        MaosError,
        NotFound,
        StoreUnavailable,
        UnknownFormat,
    )
    from maos.journal.codec import Event, EventType
    from maos.journal.journal import Append
    from maos.model.changes import DELETE, MISSING, Change, Extend, Replace
    from maos.state.records import Retention, State
    from maos.sync import connect
    from maos.workflows.definition import step, workflow

__version__ = "0.1.0"

_HOMES = {
    "maos.app": ("Maos", "open"),
    "maos.errors": (
        "Conflict", "Corrupt", "DiskFull", "HistoryLost", "InvalidInput", "KeyReused", "LeaseLost", "MaosError",
        "NotFound", "StoreUnavailable", "UnknownFormat",
    ),
    "maos.journal.codec": ("Event", "EventType"),
    "maos.journal.journal": ("Append",),
    "maos.model.changes": ("Change", "DELETE", "Extend", "MISSING", "Replace"),
    "maos.state.records": ("Retention", "State"),
    "maos.sync": ("connect",),
    "maos.workflows.definition": ("step", "workflow"),
}  # fmt: skip
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "DELETE",
    "MISSING",
    "Append",
    "Change",
    "Conflict",
    "Corrupt",
    "DiskFull",
    "Event",
    "EventType",
    "Extend",
    "HistoryLost",
    "InvalidInput",
    "KeyReused",
    "LeaseLost",
    "Maos",
    "MaosError",
    "NotFound",
    "Replace",
    "Retention",
    "State",
    "StoreUnavailable",
    "UnknownFormat",
    "connect",
    "open",
    "step",
    "workflow",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'maos' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
