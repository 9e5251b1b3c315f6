"""What `--json` prints. Keys stay; new ones may be added. Times come twice: ISO 8601 in UTC, and microseconds."""

from __future__ import annotations

import json
import sys
from typing import Any

from maos.clock import to_datetime
from maos.model.changes import MISSING, plain

Document = dict[str, Any]

DURATIONS = ("downtime_us", "duration_us", "ttl_us")
"""Fields that end as those of times do, and are not."""


def show(value: Any) -> None:
    """Print one document, or a read model as one, over several lines."""
    # in ASCII: no text in it can steer a terminal
    sys.stdout.write(json.dumps(of(value), indent=2, default=_plain) + "\n")


def line(document: Document) -> bytes:
    """One document on one line, with its end."""
    return json.dumps(document, default=_plain).encode() + b"\n"


def show_line(document: Document) -> None:
    """Print one document on one line, at once."""
    sys.stdout.write(line(document).decode())
    sys.stdout.flush()


def _plain(value: Any) -> Any:
    """What JSON has for data of a state: null for nothing at all, as the `kind` of the change says."""
    return None if value is MISSING else plain(value)


def time(time_us: int | None, name: str = "time") -> Document:
    """A time in both forms."""
    if time_us is None:
        return {name: None, f"{name}_us": None}
    iso = to_datetime(time_us).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return {name: iso, f"{name}_us": time_us}


def of(value: Any, *only: str) -> Any:
    """A read model as plain data: its fields in their order, or some. Those that end in `_us` are times, in both forms.

    The time `saved_us` becomes `saved` and `saved_us`; beside a field `saved` it becomes `saved_at` and `saved_at_us`.

    What is inside a plain mapping is data of users or of other programs, and stays as it is.
    """
    names = only or getattr(value, "__struct_fields__", None) or getattr(value, "_fields", None)
    if names is not None:
        document: Document = {}
        for name in names:
            field = getattr(value, name)
            stem = name.removesuffix("_us")
            if stem == name or name in DURATIONS:
                document[name] = of(field)
            else:
                document.update(time(field or None, f"{stem}_at" if stem in names else stem))
        return document
    if isinstance(value, list | tuple):
        return [of(each) for each in value]
    return value
