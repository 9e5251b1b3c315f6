"""Text from the data made harmless: its author does not get to steer the reader's terminal."""

from __future__ import annotations

import os
import re
import textwrap
import unicodedata
from typing import TextIO

_HARMLESS = "\u200c\u200d"  # joiners, which some scripts and many emoji need


def clean(text: str, *, lines: bool = False) -> str:
    """The text with everything that is not seen spelled out: control characters, escape sequences, text direction.

    Line breaks stay only when `lines` are wanted.
    """
    if text.isprintable():
        return text
    return "".join(char if _harmless(char, lines) else _spelled(char) for char in text)


def wrap(text: str, stream: TextIO, *, indent: str = "") -> str:
    """The text in lines that end between words, for a stream that is a terminal; a command in backticks stays whole."""
    if not stream.isatty():
        return text
    try:
        width = os.get_terminal_size(stream.fileno()).columns
    except OSError:
        return text
    whole = re.sub("`[^`]*`", lambda found: found[0].replace(" ", "\0"), text)
    lines = textwrap.wrap(
        whole, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )
    return "\n".join(lines).replace("\0", " ")


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
