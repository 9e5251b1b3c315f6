"""Text from the data made harmless: whoever wrote it does not get to steer the reader's terminal."""

from __future__ import annotations

import unicodedata

_HARMLESS = "\u200c\u200d"  # joiners, which some scripts and many emoji need


def clean(text: str, *, lines: bool = False) -> str:
    """The text with everything that is not seen spelled out: control characters, escape sequences, text direction.

    Line breaks stay only when `lines` are wanted.
    """
    if text.isprintable():
        return text
    return "".join(char if _harmless(char, lines) else _spelled(char) for char in text)


def shorten(text: str, width: int | None) -> str:
    """The text, cut to a number of characters; None for all of it."""
    if width is None or len(text) <= width:
        return text
    return text[: max(1, width - 1)] + "…"


def _harmless(char: str, lines: bool) -> bool:
    return char.isprintable() or char in _HARMLESS or (lines and char == "\n") or unicodedata.category(char) == "Zs"


def _spelled(char: str) -> str:
    if char in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[char]
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
