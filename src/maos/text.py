"""Text for people: texts of agents, tools and files that steer no terminal and no page that shows them, and numbers.

clean("a\\x1b[31mb")             a\\x1b[31mb: what is not seen is spelled out
without_escapes("a\\x1b[31mb")   ab: colours and other escape sequences are removed
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Sequence
from typing import Protocol

from maos.patterns import regex

_HARMLESS = "\u200c\u200d"  # joiners, which some scripts and many emoji need
_ESCAPES = regex(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, movements of the cursor
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # titles, links
    r"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x1b\x9c]*(?:\x1b\\|\x9c)"  # strings for devices
    r"|\x1b[ -/]*[0-~]"
)
SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh")
_CUT = regex(r" … \[(\d[\d,]{0,20}) more characters\]\Z")
_SPECIAL = str.maketrans({char: f"\\{char}" for char in "\\`*_[]<>|#"})
_JOINED = regex(r"([@#])(?=\w)")


def clean(text: str, *, lines: bool = False) -> str:
    """Return the text with everything that is not seen spelled out: control characters, escape sequences, direction.

    Line breaks stay only when `lines` are wanted.
    """
    if text.isprintable():
        return text
    return "".join(char if _is_harmless(char, lines) else _spelled(char) for char in text)


def without_escapes(text: str) -> str:
    """Return the text without the escape sequences of terminals, such as the colours that a tool prints."""
    if "\x1b" in text or not text.isascii():
        return _ESCAPES.sub("", text)
    return text


def shorten(text: str, width: int | None) -> str:
    """Return the text, cut to a number of characters; None for all of it."""
    if width is None or len(text) <= width:
        return text
    return text[: max(1, width - 1)] + "…"


def cut(text: str, chars_max: int) -> str:
    """Return at most so many characters of a text; a longer one ends with how many are missing.

    A text that was cut before is counted with what it lost then.
    """
    if len(text) <= chars_max:
        return text
    missing = 0
    if before := _CUT.search(text):
        text, missing = text[: before.start()], int(before[1].replace(",", ""))
    return f"{text[:chars_max]} … [{missing + max(0, len(text) - chars_max):,} more characters]"


def one_line(text: str, width: int | None) -> str:
    """Return the text on one line of a width, without escape sequences."""
    return shorten(clean(" ".join(without_escapes(text).split())), width)


# --- numbers ---------------------------------------------------------------------------------------------------


def command_text(argv: Sequence[str]) -> str:
    """A command as people say it: the script of `sh -c` itself, and any other as it is typed in a shell."""
    words = [str(each) for each in argv]
    is_script = len(words) == 3 and words[1] == "-c" and words[0].rpartition("/")[2] in SHELLS
    return words[2].strip() if is_script else shlex.join(words)


def duration(seconds: float) -> str:
    """A stretch of time as people say it: 0.4 s, 12 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, name, smaller, small_name in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit:
            rest = whole % unit // smaller
            return f"{whole // unit} {name} {rest} {small_name}" if rest else f"{whole // unit} {name}"
    return f"{whole} s"


def money(usd: float) -> str:
    """An amount of dollars; the smallest ones with more digits."""
    return f"${usd:.2f}" if usd >= 0.01 or not usd else f"${usd:.4f}"


class Spending(Protocol):
    """What something cost: a run, a task, an agent or an attempt."""

    @property
    def cost_usd(self) -> float: ...

    @property
    def estimated_usd(self) -> float: ...

    @property
    def unpriced_tokens(self) -> int: ...


def cost(spent: Spending) -> str:
    """What something cost: `$0.31` as reported, `~$0.31` when some of it is estimated, `at least $0.31` when there are
    tokens of a model without a price; empty for nothing."""
    if spent.unpriced_tokens:
        return f"at least {money(spent.cost_usd)}" if spent.cost_usd else "cost unknown"
    if not spent.cost_usd:
        return ""
    return f"{'~' if spent.estimated_usd else ''}{money(spent.cost_usd)}"


# --- Markdown ----------------------------------------------------------------------------------------------------


def markdown(text: str) -> str:
    """Return the text on one line that Markdown takes for nothing else."""
    return one_line(text, None).translate(_SPECIAL)


def unlinked(text: str) -> str:
    """Return the text like `markdown`; what would notify a person or refer to an issue on a Git host does neither."""
    return _JOINED.sub("\\1\u2060", one_line(text, None)).translate(_SPECIAL)


def code(text: str) -> str:
    """Return the text on one line as code in Markdown."""
    shown = one_line(text, None)
    fence = _fence(shown, 1)
    return f"{fence} {shown} {fence}" if "`" in shown else f"{fence}{shown}{fence}"


def code_block(text: str, chars_max: int) -> list[str]:
    """Return the lines of a text as a block of code in Markdown, cut to a number of characters."""
    shown = clean(shorten(without_escapes(text).strip("\n"), chars_max), lines=True)
    fence = _fence(shown, 3)
    return [f"{fence}text", *shown.split("\n"), fence]


def _fence(text: str, least: int) -> str:
    """A run of backticks that the text does not have."""
    longest = max((len(each) for each in re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)


def _is_harmless(char: str, lines: bool) -> bool:
    return char.isprintable() or char in _HARMLESS or (lines and char == "\n") or unicodedata.category(char) == "Zs"


def _spelled(char: str) -> str:
    if char in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[char]
    code_point = ord(char)
    if code_point < 0x100:
        return f"\\x{code_point:02x}"
    return f"\\u{code_point:04x}" if code_point < 0x10000 else f"\\U{code_point:08x}"
