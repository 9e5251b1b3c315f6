"""What the demonstration sees while it runs: the journal, and beside it what the agents say they have done."""

from __future__ import annotations

from typing import NamedTuple

from maos.app import Maos
from maos.demo.folder import DemoFolder
from maos.demo.sample import ROLES
from maos.model.events.facts import Line
from maos.model.message import Message
from maos.model.run import agent_name
from maos.runs.feed import AgentOutput, MessageUpdate, RunFeed, RunUpdate, Update


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


class Watching:
    """Reads everything that is recorded of the first run, from its beginning."""

    def __init__(self, m: Maos, place: DemoFolder) -> None:
        self._m = m
        self._place = place
        self._feed: RunFeed | None = None
        self._recorded = dict.fromkeys(ROLES, 0)
        self.question = ""
        """The question that is recorded as asked, by its id."""
        self.done: list[str] = []
        """Tasks that are recorded as finished."""
        self.said: list[Message] = []
        """Messages that were sent; the teller of the story takes them away."""
        self.messages = 0
        self.rows: list[Row] = []

    @property
    def run(self) -> str:
        """The id of the run; empty as long as there is none."""
        return "" if self._feed is None else self._feed.run.id

    async def refresh(self) -> None:
        """Read what was recorded since the last time."""
        if self._feed is None:
            async for run in self._m.runs.all():
                self._feed = self._m.runs.follow(run.id, from_start=True)
        for update in () if self._feed is None else await self._feed.recorded():
            self._take(update)
        self.rows = [self._row(name) for name in ROLES]

    def _take(self, update: Update) -> None:
        if isinstance(update, RunUpdate):
            for event in update.events:
                self.question = event.data["id"] if event.type == "question_asked" else self.question
                self.done += [event.data["task"]] if event.type == "task_finished" else []
        elif isinstance(update, MessageUpdate):
            self.said.append(update.message)
            self.messages += 1
        elif isinstance(update, AgentOutput):
            role = update.attempt.agent.removeprefix(agent_name(self.run, ""))
            self._recorded[role] += sum(isinstance(fact, Line) for fact in update.facts)

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
