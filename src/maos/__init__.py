"""Durable runs of agents, workflows and versioned state, recorded in one append-only journal.

    import maos

    async with maos.open("maos.db") as m:
        await m.state.create("reviewer", {"status": "idle"})

Names are loaded when they are first used, so importing maos costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, whose import would cost ten times what the rest of this module does

if TYPE_CHECKING:
    from typing import Any

    from maos.app import Maos as Maos
    from maos.app import encrypt as encrypt
    from maos.app import open as open
    from maos.app import restore as restore
    from maos.backup.service import restore_files as restore_files
    from maos.errors import Conflict as Conflict
    from maos.errors import Corrupt as Corrupt
    from maos.errors import DiskFull as DiskFull
    from maos.errors import Erased as Erased
    from maos.errors import HistoryLost as HistoryLost
    from maos.errors import InvalidInput as InvalidInput
    from maos.errors import KeyReused as KeyReused
    from maos.errors import LeaseLost as LeaseLost
    from maos.errors import Locked as Locked
    from maos.errors import MaosError as MaosError
    from maos.errors import NotFound as NotFound
    from maos.errors import NotPermitted as NotPermitted
    from maos.errors import StoreUnavailable as StoreUnavailable
    from maos.errors import UnknownFormat as UnknownFormat
    from maos.errors import UntrustedStore as UntrustedStore
    from maos.journal.codec import Event as Event
    from maos.journal.codec import EventType as EventType
    from maos.journal.journal import Append as Append
    from maos.model.changes import DELETE as DELETE
    from maos.model.changes import MISSING as MISSING
    from maos.model.changes import Change as Change
    from maos.model.changes import Extend as Extend
    from maos.model.changes import Replace as Replace
    from maos.model.events.parts import Limits as Limits
    from maos.state.records import Retention as Retention
    from maos.state.records import State as State
    from maos.sync import connect as connect
    from maos.web.client import Client as Client
    from maos.workflows.definition import step as step
    from maos.workflows.definition import workflow as workflow

__version__ = "0.1.0"

_HOMES = {
    "maos.app": ("Maos", "encrypt", "open", "restore"),
    "maos.backup.service": ("restore_files",),
    "maos.errors": (
        "Conflict", "Corrupt", "DiskFull", "Erased", "HistoryLost", "InvalidInput", "KeyReused", "LeaseLost", "Locked",
        "MaosError", "NotFound", "NotPermitted", "StoreUnavailable", "UnknownFormat", "UntrustedStore",
    ),
    "maos.journal.codec": ("Event", "EventType"),
    "maos.journal.journal": ("Append",),
    "maos.model.changes": ("Change", "DELETE", "Extend", "MISSING", "Replace"),
    "maos.model.events.parts": ("Limits",),
    "maos.state.records": ("Retention", "State"),
    "maos.sync": ("connect",),
    "maos.web.client": ("Client",),
    "maos.workflows.definition": ("step", "workflow"),
}  # fmt: skip
_HOME = {name: module for module, names in _HOMES.items() for name in names}

# Computed, so that a public name is written once: the linter asks for a literal.
__all__ = sorted(_HOME, key=lambda name: (not name.isupper(), not name[0].isupper(), name))  # noqa: PLE0605


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
