"""What an agent of the demonstration writes down about itself: a file of its own, of which maos knows nothing.

Each note is a line of JSON, written before the thing is done and not buffered: `{"line": …}` before a line is printed,
`{"sent": …}` before a message is sent, `{"got": …}` when one was read, `{"file": …}` when a file was written.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

TYPE_CHECKING = False  # an agent is a plain script, and starts quickly
if TYPE_CHECKING:
    from typing import Any


class AgentNotes:
    """The file of one agent, while it works."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def add(self, **note: Any) -> None:
        """Write one more note; it is in the file when this returns, whoever is killed then."""
        os.write(self._file, json.dumps(note).encode() + b"\n")


def read(path: Path) -> list[dict[str, Any]]:
    """All notes of an agent so far."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.split(b"\n")[:-1]]
