"""What the demonstration sees while it runs: the journal, and beside it what the agents say they have done."""

from __future__ import annotations

from typing import Any, NamedTuple

from maos.demo.folder import DemoFolder
from maos.demo.sample import ROLES
from maos.journal.journal import Journal
from maos.model import run as runs
from maos.model.attempt import attempt_id, stream
from maos.model.message import Message, history, message


class Row(NamedTuple):
    """One agent."""

    name: str
    printed: int
    """Lines, by its own count."""
    recorded: int
    """Lines in the journal."""
    sent: int
    got: int
    """Messages, by its own count."""
    doing: str
    ended: bool


class Progress:
    """Reads on in the journal, from the beginning."""

    def __init__(self, journal: Journal, place: DemoFolder) -> None:
        self._journal = journal
        self._place = place
        self._after: dict[str, int] = {}
        self._recorded = dict.fromkeys(ROLES, 0)
        self.run = ""
        self.question = ""
        """The question that is recorded as asked, by its id."""
        self.done: list[str] = []
        """Tasks that are recorded as finished."""
        self.said: list[Message] = []
        """Messages that were sent; whoever shows them takes them away."""
        self.messages = 0
        self.rows: list[Row] = []

    async def refresh(self) -> None:
        """See what is new."""
        if not self.run:
            async for name in self._journal.streams(runs.stream("")):
                self.run = name.removeprefix(runs.stream(""))
        if self.run:
            for type_, data in await self._news(runs.stream(self.run)):
                self.question = data["id"] if type_ == "question_asked" else self.question
                self.done += [data["task"]] if type_ == "task_finished" else []
            for _type, data in await self._news(history(self.run)):
                self.said.append(message(data))
                self.messages += 1
            for name in ROLES:
                for type_, data in await self._news(stream(attempt_id(runs.agent_name(self.run, name), 1))):
                    if type_ == "attempt_output":
                        self._recorded[name] += sum(fact["kind"] == "line" for fact in data["facts"])
        self.rows = [self._row(name) for name in ROLES]

    def _row(self, name: str) -> Row:
        notes = self._place.notes_of(name)
        lines = [str(note["line"]) for note in notes if "line" in note]
        return Row(
            name,
            len(lines),
            self._recorded[name],
            sum("sent" in note for note in notes),
            sum("got" in note for note in notes),
            lines[-1][4:] if lines else "",
            any("ended" in note for note in notes),
        )

    async def _news(self, name: str) -> list[tuple[str, Any]]:
        found = [record async for record in self._journal.read(name, after=self._after.get(name, 0))]
        if found:
            self._after[name] = found[-1].version
        return [(record.type, record.data) for record in found]
