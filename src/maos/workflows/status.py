"""The status of workflow runs: what is recorded, and whether a process executes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from maos.engine import ownership
from maos.model.attempt import Attempt
from maos.model.workflow import CHANGED, ENDED, GATE, OPEN, RUNNING, STARTED, STEP, WorkflowRun

INTERRUPTED = "interrupted"
"""Recorded as running, and the process that executed it has ended. `maos workflow resume`, or `maos workflow serve`."""
STATUSES = (*OPEN, INTERRUPTED, *ENDED)

ANSWER, RESOLVE = "answer", "resolve"


class Status(NamedTuple):
    """The status of one workflow run."""

    flow: WorkflowRun
    name: str
    """One of STATUSES."""

    @classmethod
    def of(cls, flow: WorkflowRun) -> Status:
        """Look whether the process that executes a run lives, as far as this machine can tell."""
        is_interrupted = flow.status == RUNNING and ownership.liveness(flow.owner).has_ended
        return cls(flow, INTERRUPTED if is_interrupted else flow.status)

    @property
    def needs_resume(self) -> bool:
        """Whether it stopped without being told to, and does not continue until it is resumed."""
        return self.name in (INTERRUPTED, CHANGED)

    @property
    def needs_person(self) -> str:
        """RESOLVE when the outcome of a step is unknown, ANSWER when it asks something; else empty."""
        if self.flow.unknown and self.flow.is_open:
            return RESOLVE
        is_asking = any(call.kind == GATE for call in self.flow.waiting.values())
        return ANSWER if self.flow.status == RUNNING and is_asking else ""

    @property
    def unknown(self) -> list[str]:
        """Places of steps that may or may not have taken effect: recorded so, or begun by a process that has ended."""
        begun = [step_id for step_id, call in self.flow.steps.items() if (call.kind, call.status) == (STEP, STARTED)]
        return [*self.flow.unknown, *(begun if self.name == INTERRUPTED else ())]


class Notice(NamedTuple):
    """Something that a person who watches a workflow run should know."""

    what: str
    """waits: for a signal or an answer · unknown: whether a step took effect · retried: a step that failed."""
    step_id: str
    kind: str = ""
    """Of the call: gate or signal."""
    name: str = ""
    message: str = ""


def unfinished_tools(attempts: Iterable[Attempt]) -> list[str]:
    """The tools that agents had begun when they, and the engines that recorded them, ended: ATTEMPT/TOOL."""
    ended = [each for each in attempts if not each.is_open or ownership.agent_liveness(each).has_ended]
    return [f"{each.id}/{tool}" for each in ended for tool in each.tools_open]
