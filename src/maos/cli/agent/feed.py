"""What an agent does, as lines for people: its words, its tools, and what became of it.

Live output and logs come through here alike, one event of the attempt's stream after the other. What the agent says
goes to standard output. What maos says of it goes to standard error while an agent runs in the foreground, so that a
pipe gets the agent's words and nothing else; in a log everything is in one place.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import click

from maos.cli.agent import words
from maos.cli.plain import clean, shorten

if TYPE_CHECKING:
    from maos.journal.journal import Record
    from maos.model.facts import Fact

TOOL_CHARS = 160
WIDTH_MIN = 40

_STYLES: dict[str, dict[str, Any]] = {
    "": {},
    "dim": {"dim": True},
    "bold": {"bold": True},
    "found": {"fg": "yellow", "bold": True},
    "warning": {"fg": "yellow"},
    "bad": {"fg": "red"},
    "good": {"fg": "green"},
}


class Feed:
    """Shows events of attempts, in order."""

    def __init__(self, *, apart: bool) -> None:
        self._beside = sys.stderr if apart else sys.stdout
        self._apart = apart
        self._said = ""
        self._message = ""
        self._asked: dict[str, str] = {}
        self._tools: dict[str, str] = {}
        self.stop_expected = False
        """Whether a person knows already that the agent is being stopped, having asked for it."""

    def show(self, record: Record, messages: Mapping[int, str]) -> None:
        """One event, and the messages that the agent got in it, by their place in its inbox."""
        data = record.data
        match record.type:
            case "attempt_planned":
                self._planned(data)
            case "attempt_claimed" if data["owner"].get("pid") != os.getpid():
                self.note(f"taken up by process {data['owner'].get('pid')}")
            case "attempt_branched":
                self.note(f"goes on from where {data['origin']['attempt']} was; `maos agent logs` shows its past")
            case "attempt_output":
                self._heard(data["facts"], messages)
            case "attempt_stopping" if not self.stop_expected:
                self.note(words.STOPPING.get(data["why"], f"is being ended: {data['why']}"), "warning")
            case "attempt_answered":
                asked = self._asked.pop(data["request"], data["request"])
                self.note(f"{'allowed' if data['allow'] else 'refused'}: {asked}{words.because(data)}")
            case "attempt_ended":
                self._ended(data)
        self.flush()

    def note(self, text: str, style: str = "dim") -> None:
        """Something about the agent, on a line of its own."""
        _write(self._beside, clean(text), style)

    def flush(self) -> None:
        """Let everything be seen."""
        sys.stdout.flush()
        sys.stderr.flush()

    # --- events ----------------------------------------------------------------------------------------------

    def _planned(self, data: Mapping[str, Any]) -> None:
        self._said = ""
        number = data["number"]
        if not self._apart and number > 1:
            _write(self._beside, f"--- attempt {number}", "dim")

    def _ended(self, data: Mapping[str, Any]) -> None:
        if self._apart:
            return  # the summary says it
        style = {"done": "good", "failed": "bad"}.get(data["status"], "warning")
        _write(self._beside, clean(words.ending(data)), style)

    def _heard(self, facts: Sequence[Fact], messages: Mapping[int, str]) -> None:
        for index, fact in enumerate(facts):
            match fact["kind"]:
                case "line":
                    stream = self._beside if fact.get("stderr") else sys.stdout
                    plain = "dim" if fact.get("stderr") and not self._apart else ""
                    _write(stream, words.tidy(fact.get("text", "")), "found" if _found(facts, index) else plain)
                case "text":
                    self._text(fact, _found(facts, index))
                case "input" if fact["id"].startswith("inbox/"):
                    self.note(f"» {words.one_line(messages.get(place(fact), ''), None)}")
                case "discovery" if not _was_shown(facts, index):
                    self.note(f"★ {fact.get('keyword', '')}: {fact.get('text', '')}", "found")
                case "tool_use":
                    self._tool(fact)
                case "tool_result":
                    self._tools.pop(fact["id"], None)
                    self._notes(fact)
                case "permission_requested":
                    self._asked[fact["id"]] = words.tool(fact.get("tool", ""), fact.get("input"))
                    if not self._apart:  # there the person in front of it is asked
                        self.note(f"asks to use {self._asked[fact['id']]}", "warning")
                case "turn_ended":
                    self._turn_ended(fact)
                case "unknown":
                    self.note(fact.get("text", ""))
                case _:
                    self._notes(fact)

    def _notes(self, fact: Fact) -> None:
        for text, style in words.of_fact(fact, _width()):
            self.note(text, style)

    def _text(self, fact: Fact, found: Sequence[str]) -> None:
        """What the agent says."""
        text, message = fact.get("text", ""), fact.get("message", "")
        going_on = message and message == self._message
        self._said = f"{self._said}{'' if fact.get('part') else ' '}{text}" if going_on else text
        self._message = message
        for line in text.splitlines():
            style = "found" if any(word in line.lower() for word in found) else ""
            _write(sys.stdout, words.tidy(line), style)

    def _turn_ended(self, fact: Fact) -> None:
        """The result, unless these were the agent's last words already."""
        result = fact.get("result", "").split()
        if result and not fact.get("failed") and self._said.split()[-len(result) :] != result:
            self._text({"text": fact["result"]}, ())
        self._said = self._message = ""

    def _tool(self, fact: Fact) -> None:
        """A tool that is about to run; said again when more is known of it."""
        text = words.tool(fact.get("name", ""), fact.get("input"))
        if self._tools.get(fact["id"]) != text:
            self._tools[fact["id"]] = text
            self.note(shorten(f"→ {text}", _width()))


def place(fact: Fact) -> int:
    """The place in the inbox of the message that an input was."""
    return int(str(fact["id"]).removeprefix("inbox/"))


def _found(facts: Sequence[Fact], index: int) -> list[str]:
    """The keywords of the discoveries that were made in the text at this place, which follow it."""
    found = []
    for fact in facts[index + 1 :]:
        if fact["kind"] != "discovery":
            break
        found.append(f"{fact.get('keyword', '')}:".lower())
    return found


def _was_shown(facts: Sequence[Fact], index: int) -> bool:
    """Whether a discovery is part of a line that was shown; an agent can also report one without saying it."""
    keyword = f"{facts[index].get('keyword', '')}:".lower()
    while index > 0 and facts[index]["kind"] == "discovery":
        index -= 1
    return facts[index]["kind"] in ("line", "text") and keyword in str(facts[index].get("text", "")).lower()


def _write(stream: TextIO, text: str, style: str, *, end: str = "\n") -> None:
    if style and text and coloured(stream):
        text = click.style(text, **_STYLES[style])
    stream.write(text + end)


def coloured(stream: TextIO) -> bool:
    """Whether a person who likes colours is looking."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, style: str, stream: TextIO) -> str:
    """A text for a stream."""
    return click.style(text, **_STYLES[style]) if coloured(stream) else text


def _width() -> int:
    """The characters that a line about a tool may have."""
    if not sys.stderr.isatty():
        return TOOL_CHARS
    try:
        return max(WIDTH_MIN, os.get_terminal_size(sys.stderr.fileno()).columns - 1)
    except OSError:
        return TOOL_CHARS
