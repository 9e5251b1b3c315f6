"""What the three agents of the demonstration have in common: they print, write files, and talk through their door.

Started as `python -P -m maos.demo.ROLE NOTES PAUSE_S` in the folder they work in.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path

from maos.demo.notes import AgentNotes
from maos.demo.tool_client import ToolClient, messages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_S = 100.0
"""How long a message or an answer is waited for."""


class DemoAgent:
    """One of them."""

    def __init__(self) -> None:
        self._notes = AgentNotes(sys.argv[1])
        self._pause_s = float(sys.argv[2])
        self._lines = 0
        self._unread: list[dict[str, str]] = []
        self._notes.add(began=os.getpid())
        self._door = ToolClient()

    def say(self, text: str) -> None:
        """Print one line, after a moment of work. Each has a number, so no two are alike."""
        time.sleep(self._pause_s)
        self._lines += 1
        line = f"{self._lines:03} {text}"
        self._notes.add(line=line)
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    def write(self, path: str, text: str) -> None:
        """Write a file."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text, encoding="utf-8")
        self._notes.add(file=path, sha256=hashlib.sha256(text.encode()).hexdigest())
        self.say(f"wrote {path}, {len(text.splitlines())} lines")

    def discover(self, text: str) -> None:
        """Tell all other agents something."""
        self.say(f"found: {text}")
        self._notes.add(sent=text, to="")
        self._door.call("report_discovery", text=text, keyword="found")

    def tell(self, to: str, text: str, *, type: str = "info") -> None:
        """Tell one other agent something."""
        self.say(f"to {to}: {text}")
        self._notes.add(sent=text, to=to)
        self._door.call("send_message", to=to, text=text, type=type)

    def hear(self, wanted: Callable[[str], bool]) -> str:
        """The first message that is wanted, of those not heard yet; waits for it."""
        until_s = time.monotonic() + WAIT_S
        while True:
            for each in self._unread:
                if wanted(each["text"]):
                    self._unread.remove(each)
                    return each["text"]
            if time.monotonic() > until_s:
                raise RuntimeError("nobody says what I am waiting for")
            self._read(max(0.0, until_s - time.monotonic()))

    def hear_all(self, start: str) -> list[str]:
        """The messages read so far that begin with some words."""
        self._read(0)
        found = [each for each in self._unread if each["text"].startswith(start)]
        self._unread = [each for each in self._unread if each not in found]
        return [each["text"] for each in found]

    def _read(self, wait_s: float) -> None:
        for each in messages(self._door.call("read_messages", wait_s=wait_s)):
            self._notes.add(**each)
            self.say(f"heard from {each['from'].rpartition('.')[2]}: {each['text']}")
            self._unread.append(each)

    def ask(self, question: str, choices: list[str], context: str) -> str:
        """A person's answer."""
        self._notes.add(asked=question)
        self.say(f"asks: {question}")
        told = self._door.call("ask_person", question=question, choices=choices, context=context, wait_s=WAIT_S)
        answer = told.rpartition(": ")[2]
        self._notes.add(answer=answer)
        self.say(f"the answer is {answer}")
        return answer

    def finish(self, result: str) -> None:
        """Say what was done. That this call comes after them shows the door that all messages were read."""
        self._door.call("report_progress", percent=100, activity="done")
        self._door.close()
        self.say(f"result: {result}")
        self._notes.add(ended=True)
