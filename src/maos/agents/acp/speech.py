"""An agent's words, which come in pieces as small as a syllable, told line by line.

A keyword must not be torn, and a fact for each syllable would be a waste. What is not told yet is in the state, so
nothing is lost between two engines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maos.model.events import facts
from maos.model.events.facts import Fact

LINE_CHARS_MAX = 500
"""A line is told before its end when it has grown to this: what waits is kept small."""


class Speech:
    """What is being said."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        state = state or {}
        self._voice: str = state.get("voice", "")
        self._message: str = state.get("message", "")
        self._messages: int = state.get("messages", 0)
        self._said: str = state.get("said", "")
        self._mid_line: bool = state.get("mid_line", False)

    def state(self) -> dict[str, Any]:
        """What was said and not told yet, and whose words they are."""
        everything = {
            "voice": self._voice,
            "message": self._message,
            "messages": self._messages,
            "said": self._said,
            "mid_line": self._mid_line,
        }
        return {name: value for name, value in everything.items() if value}

    def hear(self, voice: str, message: str, words: str, *, turn: str) -> list[Fact]:
        """More words, spoken (`text`) or thought; the lines that are whole now. Messages without a name get one."""
        found: list[Fact] = []
        if voice != self._voice or (message and message != self._message):
            found += self.pause()
            self._messages += 1
            self._voice, self._message = voice, message or f"{turn}/{self._messages}"
        self._said += words
        line_end = self._said.rfind("\n")
        if line_end >= 0 and self._said[:line_end].strip():
            found.append(self._tell(self._said[:line_end]))
            self._said, self._mid_line = self._said[line_end + 1 :], False
        if len(self._said) > LINE_CHARS_MAX:
            cut = self._said.rfind(" ") + 1
            if len(self._said) - cut > LINE_CHARS_MAX:  # a word that is too long itself
                cut = len(self._said)
            found.append(self._tell(self._said[:cut]))
            self._said, self._mid_line = self._said[cut:], True
        return found

    def pause(self) -> list[Fact]:
        """What was said and not told yet, because something else comes now."""
        found: list[Fact] = [self._tell(self._said.rstrip("\n"))] if self._said.strip() else []
        self._voice = self._message = self._said = ""
        self._mid_line = False
        return found

    def _tell(self, text: str) -> Fact:
        make = facts.Text if self._voice == "text" else facts.Thought
        return make(text, message=self._message, part=self._mid_line)
