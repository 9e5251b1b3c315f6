"""What a person meant by a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Collection

NAME_CHARS_MAX = 64
SHOWN_CHARS_MAX = 60


class Guesses:
    """Hints for one text; the work is bounded, so that many unknown names in a large text take no longer than a few."""

    def __init__(self, comparisons_max: int = 10_000) -> None:
        self._left = comparisons_max

    def hint(self, name: str, known: Collection[str], otherwise: str = "") -> str:
        """`did you mean 'x'?` when a known name is close; else `otherwise`."""
        self._left -= len(known)
        if self._left < 0 or len(name) > NAME_CHARS_MAX:
            return otherwise
        close = difflib.get_close_matches(name, [each for each in known if len(each) <= NAME_CHARS_MAX], n=1)
        return f"did you mean {close[0]!r}?" if close else otherwise


def shown(value: object) -> str:
    """A value in quotes as a message has it, shortened."""
    text = value if isinstance(value, str) else str(value)
    return repr(text if len(text) <= SHOWN_CHARS_MAX else text[: SHOWN_CHARS_MAX - 1] + "…")
