"""A line that a person types: the keys of a terminal become text, a place in it, and finished lines.

It knows nothing of terminals: it is given bytes, and whoever draws asks it for the text and the cursor.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence
from itertools import takewhile

LINE_CHARS_MAX = 20_000
HISTORY_MAX = 500
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|[^\[O])", re.S)
_PASTED = "\x1b[200~", "\x1b[201~"
_KEYS = {
    "\x1b[D": "left", "\x1bOD": "left", "\x02": "left", "\x1b[C": "right", "\x1bOC": "right", "\x06": "right",
    "\x1b[A": "older", "\x1bOA": "older", "\x10": "older", "\x1b[B": "newer", "\x1bOB": "newer", "\x0e": "newer",
    "\x1b[H": "home", "\x1bOH": "home", "\x1b[1~": "home", "\x01": "home",
    "\x1b[F": "end", "\x1bOF": "end", "\x1b[4~": "end", "\x05": "end",
    "\x7f": "back", "\x08": "back", "\x1b[3~": "delete", "\x15": "clear", "\x0b": "cut", "\x17": "back_word",
    "\x1b\x7f": "back_word", "\x1b[1;5D": "left_word", "\x1bb": "left_word", "\x1b[1;5C": "right_word",
    "\x1bf": "right_word", "\t": "complete",
}  # fmt: skip

Complete = Callable[[str], Sequence[str]]
"""What a beginning of a line may become."""


class InputLine:
    """The line that is being typed."""

    def __init__(self, *, complete: Complete | None = None) -> None:
        self.text = ""
        self.cursor = 0
        self.history: list[str] = []
        self.ended = False
        """Whether Ctrl+D was typed on an empty line."""
        self._completions = complete or (lambda _beginning: ())
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._pasting = False
        self._place = 0
        self._draft = ""

    def feed(self, typed: bytes) -> list[str]:
        """Take what came from the keyboard, in whatever pieces; the lines that were finished with it."""
        keys = self._rest + self._decoder.decode(typed)
        self._rest = ""
        done: list[str] = []
        while keys:
            if keys[0] == "\x1b":
                match = _SEQUENCE.match(keys)
                if match is None:
                    self._rest = keys if len(keys) < 32 else ""  # the rest of it comes with the next bytes
                    return done
                self._sequence(match[0])
                keys = keys[match.end() :]
                continue
            key, keys = keys[0], keys[1:]
            if key in "\r\n" and not self._pasting:
                done.append(self.text)
                self._remember()
            elif key == "\x04" and not self.text:
                self.ended = True
            elif key in _KEYS and not self._pasting:
                getattr(self, f"_{_KEYS[key]}")()
            else:
                self._insert(" " if key in "\r\n\t" else key)
        return done

    def _sequence(self, sequence: str) -> None:
        if sequence in _PASTED:
            self._pasting = sequence == _PASTED[0]
        elif sequence in _KEYS:
            getattr(self, f"_{_KEYS[sequence]}")()

    def _insert(self, text: str) -> None:
        if text.isprintable() and len(self.text) < LINE_CHARS_MAX:
            self.text = self.text[: self.cursor] + text + self.text[self.cursor :]
            self.cursor += len(text)

    def _remember(self) -> None:
        if self.text.strip() and self.history[-1:] != [self.text]:
            self.history = [*self.history[1 - HISTORY_MAX :], self.text]
        self._set("")
        self._place = 0

    def _set(self, text: str) -> None:
        self.text, self.cursor = text, len(text)

    # --- keys ------------------------------------------------------------------------------------------------

    def _left(self) -> None:
        self.cursor = max(0, self.cursor - 1)

    def _right(self) -> None:
        self.cursor = min(len(self.text), self.cursor + 1)

    def _home(self) -> None:
        self.cursor = 0

    def _end(self) -> None:
        self.cursor = len(self.text)

    def _left_word(self) -> None:
        before = self.text[: self.cursor].rstrip()
        self.cursor = before.rfind(" ") + 1

    def _right_word(self) -> None:
        after = self.text[self.cursor :]
        spaces = len(after) - len(after.lstrip())
        end = after.find(" ", spaces)
        self.cursor = len(self.text) if end < 0 else self.cursor + end

    def _back(self) -> None:
        if self.cursor:
            self.text = self.text[: self.cursor - 1] + self.text[self.cursor :]
            self.cursor -= 1

    def _delete(self) -> None:
        self.text = self.text[: self.cursor] + self.text[self.cursor + 1 :]

    def _back_word(self) -> None:
        end = self.cursor
        self._left_word()
        self.text = self.text[: self.cursor] + self.text[end:]

    def _clear(self) -> None:
        self.text, self.cursor = self.text[self.cursor :], 0

    def _cut(self) -> None:
        self.text = self.text[: self.cursor]

    def _older(self) -> None:
        if self._place < len(self.history):
            if not self._place:
                self._draft = self.text
            self._place += 1
            self._set(self.history[-self._place])

    def _newer(self) -> None:
        if self._place:
            self._place -= 1
            self._set(self.history[-self._place] if self._place else self._draft)

    def _complete(self) -> None:
        """As far as everything that it may become is the same."""
        found = self._completions(self.text[: self.cursor])
        pairs = zip(min(found, default=""), max(found, default=""), strict=False)
        shared = "".join(a for a, _b in takewhile(lambda pair: pair[0] == pair[1], pairs))
        if len(shared) >= self.cursor:
            self.text, self.cursor = shared + self.text[self.cursor :], len(shared)
