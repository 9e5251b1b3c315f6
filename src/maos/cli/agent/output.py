"""What an agent said and did, as lines for people: in the foreground, in its log and in that of its run.

The agent's output goes to standard output. What maos reports of an agent in the foreground goes to another stream.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from maos.cli import words
from maos.cli.render import clean, shorten, styled
from maos.cli.words import Fact

if TYPE_CHECKING:
    from maos.views.agents import AgentEvent

TOOL_CHARS = 160
WIDTH_MIN = 40

Write = Callable[[TextIO, str, str], None]
"""Prints a line in a style to a stream."""


class OutputPrinter:
    """Prints events of attempts for people, in order; what is not the agent's output goes to the stream `beside`."""

    def __init__(self, *, beside: TextIO, write: Write | None = None) -> None:
        self._beside = beside
        self._write = write or _write
        self._in_foreground = beside is not sys.stdout
        """Whether a person is in front of it, who is asked, and is shown a summary at the end."""
        self._said = ""
        self._message = ""
        self._asked: dict[str, str] = {}
        self._tools: dict[str, str] = {}
        """What was last printed of each tool that is open."""
        self._untold: dict[str, str] = {}
        """Tools that were announced without a word about their use."""
        self.stop_expected = False
        """Whether a person knows already that the agent is being stopped, having asked for it."""

    def show(self, event: AgentEvent) -> None:
        """Print one event."""
        data = event.data
        match event.type:
            case "attempt_planned":
                self._said = ""
                if not self._in_foreground and data["number"] > 1:
                    self.note(f"--- attempt {data['number']}")
            case "attempt_claimed" if data["owner"].get("pid") != os.getpid():
                self.note(f"attached by process {data['owner'].get('pid')}")
            case "attempt_branched":
                self.note(f"continues {data['origin']['attempt']}; `maos agent logs` shows its past")
            case "attempt_output":
                self.print_facts(data["facts"], event.messages)
            case "attempt_stopping" if not self.stop_expected:
                why = words.STOPPING.get(data["why"], f"is being ended: {data['why']}")
                self.note(f"{why}{words.by(data.get('by', ''))}", "warning")
            case "attempt_answered":
                asked = self._asked.pop(data["request"], data["request"])
                self.note(words.decision(data, asked))
            case "attempt_ended" if not self._in_foreground:
                self._tell_tools(*self._untold)
                style = {"done": "good", "failed": "bad"}.get(data["status"], "warning")
                self.note(words.ending(data["status"], data.get("failure", ""), data.get("message", "")), style)
            case "unattended" if data["resumable"]:
                meaning = data["status"].meaning or data["status"]
                self.note(f"{meaning}; {words.continue_with(data['resumable'])}", "warning")
        sys.stdout.flush()
        sys.stderr.flush()

    def note(self, text: str, style: str = "dim") -> None:
        """Something about the agent, on a line of its own."""
        self._write(self._beside, clean(text), style)

    def print_facts(self, facts: Sequence[Fact], messages: Mapping[int, str]) -> None:
        """Print what an agent said and did; a discovery stands out in the line that it is in."""
        width = _width()
        keywords = {_keyword(fact) for fact in facts if fact["kind"] == "discovery"}
        said = ""
        for fact in facts:
            if fact["kind"] != "discovery":
                said = fact.get("text", "").lower() if fact["kind"] in ("line", "text") else ""
            match fact["kind"]:
                case "line":
                    stream = self._beside if fact.get("stderr") else sys.stdout
                    plain = "dim" if fact.get("stderr") and not self._in_foreground else ""
                    style = "found" if any(word in said for word in keywords) else plain
                    self._write(stream, words.tidy(fact.get("text", "")), style)
                case "text":
                    self._text(fact, keywords)
                case "input" if fact["id"].startswith("inbox/"):
                    version = int(fact["id"].removeprefix("inbox/"))
                    if version in messages:
                        self.note(f"» {words.one_line(messages[version], None)}")
                case "discovery" if _keyword(fact) not in said:  # an agent can also report one without saying it
                    self.note(f"★ {fact.get('keyword', '')}: {fact.get('text', '')}", "found")
                case "tool_use":
                    self._tool(fact)
                case "permission_requested":
                    self._asked[fact["id"]] = words.tool(fact.get("tool", ""), fact.get("input"))
                    if not self._in_foreground:
                        self.note(f"asks to use {self._asked[fact['id']]}", "warning")
                case "turn_ended":
                    self._turn_ended(fact)
                case "diagnostic" if self._in_foreground:
                    pass  # `maos agent logs` shows it
                case "unknown" | "diagnostic":
                    self.note(words.tidy(fact.get("text", "")))
                case kind:
                    if kind == "tool_result":
                        self._tools.pop(fact["id"], None)
                        self._tell_tools(fact["id"])
                    for text, style in words.of_fact(fact, width):
                        self.note(text, style)

    def _text(self, fact: Fact, found: Collection[str]) -> None:
        """What the agent says."""
        text, message = fact.get("text", ""), fact.get("message", "")
        continues = message and message == self._message
        self._said = f"{self._said}{'' if fact.get('part') else ' '}{text}" if continues else text
        self._message = message
        for line in text.splitlines():
            style = "found" if any(word in line.lower() for word in found) else ""
            self._write(sys.stdout, words.tidy(line), style)

    def _turn_ended(self, fact: Fact) -> None:
        """The result, unless these were the agent's last words already."""
        result = fact.get("result", "").split()
        if result and not fact.get("failed") and self._said.split()[-len(result) :] != result:
            self._text({"text": fact["result"]}, ())
        self._said = self._message = ""

    def _tool(self, fact: Fact) -> None:
        """A tool that is about to run; printed when it is known for what, and again when more is known of it."""
        id, text = fact["id"], words.tool(fact.get("name", ""), fact.get("input"))
        if id not in self._tools:
            self._untold[id] = text
        if fact.get("input") and self._tools.get(id) != text:
            self._untold[id] = self._tools[id] = text
            self._tell_tools(id)

    def _tell_tools(self, *ids: str) -> None:
        """Print tools that were not printed yet."""
        for id in ids:
            if text := self._untold.pop(id, ""):
                self.note(shorten(f"→ {text}", _width()))


def _keyword(fact: Fact) -> str:
    return f"{fact.get('keyword', '')}:".lower()


def _write(stream: TextIO, text: str, style: str) -> None:
    if stream is not sys.stdout:
        sys.stdout.flush()  # both may lead into one pipe, where what was said first is to be first
    stream.write(styled(text, style, stream) + "\n")


def _width() -> int:
    """The characters that a line about a tool may have."""
    try:
        return max(WIDTH_MIN, os.get_terminal_size(sys.stderr.fileno()).columns - 1)
    except OSError:  # no terminal
        return TOOL_CHARS
