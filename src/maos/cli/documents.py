"""What `--json` prints. Keys stay; new ones may be added. Times come twice: ISO 8601 in UTC, and microseconds."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from maos.clock import to_datetime

if TYPE_CHECKING:
    from maos.journal.verify import Report
    from maos.model.changes import Change
    from maos.state.records import Compaction, Peek, Restored, SnapshotInfo, State, StateEvent, Update, Version

Document = dict[str, Any]


def show(document: Document) -> None:
    """One document, over several lines."""
    import json

    sys.stdout.write(json.dumps(document, indent=2) + "\n")  # in ASCII: no text in it can steer a terminal


def show_line(document: Document) -> None:
    """One document on one line, at once."""
    import json

    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def time(time_us: int | None, name: str = "time") -> Document:
    """A time in both forms."""
    return {name: None if time_us is None else iso(time_us), f"{name}_us": time_us}


def iso(time_us: int) -> str:
    """A time as ISO 8601 in UTC."""
    return to_datetime(time_us).isoformat(timespec="microseconds").replace("+00:00", "Z")


def state(state: State) -> Document:
    """A state with its data."""
    return {**summary(state), "checksum": state.checksum, "data": state.raw()}


def summary(state: State) -> Document:
    """A state in a list."""
    return {
        "agent": state.agent,
        "version": state.version,
        "status": state.raw().get("status"),
        "type": state.type,
        "source": state.source,
        **time(state.time_us),
    }


def value(state: State, path: str, found: Any) -> Document:
    """One value of a state."""
    return {"agent": state.agent, "version": state.version, "path": path, "value": found}


def version(version: Version) -> Document:
    """A line of a history."""
    return {
        "version": version.version,
        "type": version.type,
        "source": version.source,
        **time(version.time_us),
        "changes": version.changes,
        "checksum": version.checksum,
        "spans": version.spans,
    }


def changes(found: Iterable[Change]) -> list[Document]:
    """Changes; `kind` tells whether null in `old` or `new` stands for nothing at all."""
    return [
        {
            "path": each.path,
            "kind": each.kind,
            "old": None if each.kind == "create" else each.old,
            "new": None if each.kind == "delete" else each.new,
        }
        for each in found
    ]


def event(event: StateEvent) -> Document:
    """An event with what it changed."""
    return {
        "id": event.id,
        "agent": event.agent,
        "version": event.version,
        "spans": event.spans,
        "position": event.position,
        "type": event.type,
        "source": event.source,
        **time(event.time_us),
        "critical": event.critical,
        "causation": event.causation,
        "correlation": event.correlation,
        "metadata": dict(event.metadata),
        "checksum": event.checksum,
        "changes": changes(event.changes),
    }


def update(agent: str, update: Update) -> Document:
    """What an update did."""
    return {
        "agent": agent,
        "version": update.version,
        "previous": update.previous,
        "checksum": update.checksum,
        "changes": changes(update.changes),
    }


def peek(peek: Peek, path: str, head: Document) -> Document:
    """The head of a state and the end of a list."""
    return {
        "agent": peek.agent,
        "version": peek.version,
        "checksum": peek.checksum,
        "head": head,
        "left_out": dict(peek.elided),
        "path": path,
        "length": peek.length,
        "start": peek.start,
        "entries": peek.entries,
    }


def snapshot(info: SnapshotInfo) -> Document:
    """A snapshot's description."""
    return {
        "id": info.id,
        "agent": info.agent,
        "version": info.version,
        "kind": info.kind,
        "name": info.name,
        "trigger": info.trigger,
        "source": info.source,
        **time(info.time_us),
        "checksum": info.checksum,
        "base": info.base,
        "compression": info.compression,
        "bytes_plain": info.bytes_plain,
        "bytes_stored": info.bytes_stored,
        "permanent": info.retention.permanent,
        "critical": info.retention.critical,
        **time(info.retention.expires_us, "expires"),
    }


def restored(agent: str, restored: Restored) -> Document:
    """What restoring a snapshot did."""
    return {
        "agent": agent,
        "snapshot": restored.snapshot,
        "version": restored.version,
        "previous": restored.previous,
        "verified": restored.integrity_verified,
        "duration_us": restored.duration_us,
        "warnings": list(restored.warnings),
    }


def compaction(done: Compaction, *, dry_run: bool) -> Document:
    """What a compaction did or would do."""
    return {"dry_run": dry_run, **done._asdict()}


def report(report: Report, lost: Document | None) -> Document:
    """What a verification found."""
    return {
        "ok": report.ok,
        "head": report.head,
        "streams": report.streams,
        "events": report.events,
        "damage": [each._asdict() for each in report.damage],
        "notes": list(report.notes),
        "lost": lost,
    }
