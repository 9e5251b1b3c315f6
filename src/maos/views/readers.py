"""Readers of runs, agents, workflow runs and questions: what a front end needs to show them, and nothing of what
starting one takes. A command that only reads loads half as much with them as with the services."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from maos.clock import Clock
from maos.engine.streams import WorkflowReader
from maos.journal.journal import Journal
from maos.runs.status import RunViews
from maos.views.agent_status import AgentViews
from maos.views.open_questions import QuestionReader


class Readers:
    """Reads everything that is recorded, as it is now."""

    def __init__(self, journal: Journal, clock: Clock, lookback_days: Callable[[], float]) -> None:
        self.agents = AgentViews(journal, clock)
        """Agents that run or ran."""
        self.runs = RunViews(journal, clock, self.agents, lookback_days)
        """Runs, with their agents and questions."""
        self.workflows = WorkflowReader(journal)
        """Workflow runs."""
        self._journal = journal
        self._clock = clock

    @cached_property
    def questions(self) -> QuestionReader:
        """Open questions, and decisions."""
        return QuestionReader(self._journal, self._clock, self.runs, self.agents, self.workflows)
