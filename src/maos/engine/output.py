"""What an agent prints, as facts: parts of long lines are joined, lines are interpreted, and tokens get their price."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from maos.agents.contract import Conversation, Dialect, LaunchOrder, Reply
from maos.holder import wire
from maos.holder.records import SpoolRecord
from maos.model import prices
from maos.model.attempt import DISCOVERIES_KEPT, Attempt
from maos.model.events import facts
from maos.model.events.facts import Fact, shortened
from maos.patterns import regex
from maos.settings.loader import Current
from maos.tuples import NamedTuple

JOINED_BYTES_MAX = 64 << 20
_LIST_MARKS = regex(r"[\s>*+•#_`-]*(?:\d{1,3}[.)]\s*)?[*_`]*")
"""What can come before the first word of a line in a list or a quotation."""
LINE_BYTES_MAX = 2 << 20
"""What a longer line means is recorded with its texts cut: each character can take ten bytes in an event."""


class HeardOutput(NamedTuple):
    """What a group of records means, as far as its lines are whole."""

    facts: list[Fact]
    replies: list[Reply]
    offset: int
    """Up to where the output is understood: an engine that takes over reads again from here."""
    state: dict[str, Any]
    """What the conversation remembered there."""


class OutputReader:
    """Interprets the output of one agent, and owns the conversation with it."""

    def __init__(self, dialect: Dialect, order: LaunchOrder, attempt: Attempt, settings: Current) -> None:
        self._dialect = dialect
        self._order = order
        self._attempt = attempt
        self._settings = settings
        self.restart()

    def restart(self) -> None:
        """Begin again with what is recorded: the records after it are read again, with the same result."""
        state = self._attempt.conversation
        self.conversation: Conversation[Any] = self._dialect.converse(self._order, state)
        self._open_lines: dict[str, bytearray] = {}
        self._held: list[Fact] = []
        self._state_before_hold: dict[str, Any] | None = None
        self._discovered = len(self._attempt.discoveries)
        """How many lines of this attempt were discoveries."""

    def read(self, records: Sequence[SpoolRecord]) -> HeardOutput:
        """What records mean. Facts of a line that has not ended, and those after it, are held."""
        ready: list[Fact] = []
        replies: list[Reply] = []
        offset = self._attempt.offset
        for record in records:
            self._held += self._understand(record, replies)
            if not self._open_lines:
                ready += self._held
                self._held = []
                self._state_before_hold = None
                offset = record.offset
        state = self.conversation.state() if self._state_before_hold is None else self._state_before_hold
        return HeardOutput(ready, replies, offset, dict(state))

    def rest(self) -> list[Fact]:
        """What was not returned yet when the program has exited in the middle of something."""
        return [self._priced(each) for each in self.conversation.rest()]

    def _understand(self, record: SpoolRecord, replies: list[Reply]) -> list[Fact]:
        if record.kind in ("stdout", "stderr"):
            return self._hear_line(record, replies)
        if record.kind == "input":
            return [facts.InputReceived(record.data.decode())]
        if record.kind == "stopping":
            return [facts.Stopping(record.data.decode())]
        if record.kind == "exit":
            return [_exit(wire.unpack_map(record.data))]
        if record.kind in ("trouble", "torn"):
            return [facts.OutputLost(record.kind, record.data.decode(errors="replace"))]
        return []

    def _hear_line(self, record: SpoolRecord, replies: list[Reply]) -> list[Fact]:
        """The facts of a line once it is whole: parts of a long one are joined, up to a limit."""
        joined = self._open_lines.get(record.kind)
        if record.partial and (joined is None or len(joined) < JOINED_BYTES_MAX):
            if joined is None:
                if not self._open_lines:
                    self._state_before_hold = dict(self.conversation.state())
                self._open_lines[record.kind] = bytearray(record.data)
            else:
                joined += record.data
            return []
        line = record.data
        if joined is not None:
            joined += record.data
            line = bytes(self._open_lines.pop(record.kind))
        heard = self.conversation.hear(line, stderr=record.kind == "stderr")
        replies += heard.replies
        found: list[Fact] = []
        for each in heard.facts if len(line) <= LINE_BYTES_MAX else map(shortened, heard.facts):
            found.append(self._priced(each))
            if isinstance(each, (facts.Text, facts.Line)):
                found += self._discoveries(each.text)
        return found

    def _priced(self, fact: Fact) -> Fact:
        """A fact; tokens with what they cost by the prices of today, so that the fold needs none."""
        if not isinstance(fact, facts.Usage):
            return fact
        model = fact.model or self._attempt.model or self._attempt.kind
        price = prices.price_of(model, self._settings.values.prices.of)
        return replace(fact, model=model, usd=None if price is None else prices.cost_of(fact, price))

    def _discoveries(self, text: str) -> list[Fact]:
        """Lines that begin with a keyword, after marks of a list (R-104); so many of an attempt."""
        lowered, keywords = text.lower(), [word.lower() for word in self._settings.values.discovery.keywords]
        if self._discovered >= DISCOVERIES_KEPT or not any(word in lowered for word in keywords):
            return []
        found: list[Fact] = []
        for line in text.splitlines():
            rest = _LIST_MARKS.sub("", line, count=1)
            word = next((each for each in keywords if rest.lower().startswith(each)), "")
            if word and self._discovered < DISCOVERIES_KEPT:
                self._discovered += 1
                found.append(facts.Discovery(word.rstrip(":"), rest[len(word) :].strip(" \t*_`")))
        return found


def _exit(said: Mapping[str, str]) -> facts.ProcessExit:
    """What the holder's record of an exit says; one of a program that could not be started has only the error."""
    number = {name: int(value) for name, value in said.items() if name != "where"}
    return facts.ProcessExit(
        cpu_s=round((number.get("utime_us", 0) + number.get("stime_us", 0)) / 1e6, 3),
        duration_s=round(number.get("duration_us", 0) / 1e6, 3),
        rss_max_bytes=number.get("rss_max_bytes", 0),
        start_error=f"{said['where']}: {os.strerror(number['errno'])}" if "errno" in number else None,
        signal=number.get("signal"),
        code=number.get("code"),
        out_of_memory=bool(number.get("oom")),
    )
