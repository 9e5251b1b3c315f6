"""One thing that `maos doctor` has seen."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple


class Finding(NamedTuple):
    """Something seen."""

    level: str
    """ok · note: worth knowing · look: for a person to decide · bad: wrong."""
    about: str
    what: str
    hint: str = ""
    question: str | None = None
    """What a person is asked before it is put right."""
    fix: Callable[[], Coroutine[Any, Any, str]] | None = None
    """Puts it right, and says what was done."""
