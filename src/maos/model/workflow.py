"""A workflow run, folded from the events of its stream `workflow/<id>`.

A workflow is a function; what is recorded are its steps: everything that it does outside of itself, such as calls of
step functions, sleeps, signals, questions and children. The id of a step is its number among the steps of its branch.
When the function runs again, a step that has an outcome returns that outcome and does nothing.
"""

from __future__ import annotations

from typing import Any, assert_never

import msgspec

from maos.errors import MaosError
from maos.model.events import workflow as events
from maos.model.events.parts import Owner
from maos.model.events.records import ScheduleRemoved, ScheduleSet
from maos.model.events.state import Compacted
from maos.model.status import WorkflowStatus

FORMAT = 2
"""Grows when the fold changes; a kept fold of an older format is ignored and built again."""

RUNNING: str = WorkflowStatus.RUNNING.value
PAUSED: str = WorkflowStatus.PAUSED.value
COMPLETED: str = WorkflowStatus.COMPLETED.value
CANCELLED: str = WorkflowStatus.CANCELLED.value
CHANGED: str = WorkflowStatus.CHANGED.value
FAILED = "failed"
"""It has raised an error, which is kept. For good."""
OPEN = (RUNNING, PAUSED, CHANGED)
ENDED = (COMPLETED, FAILED, CANCELLED)

STARTED = "started"
"""Begun. Done, failed, abandoned or, when the process dies, unknown."""
DONE = "done"
"""It has a result, which is returned again and never computed again. For good."""
UNKNOWN = "unknown"
"""Begun, and it is not known whether it took effect (I31). Done, failed or started again: by its probe or a person."""
ABANDONED = "abandoned"
"""The function stopped waiting for it, for example at a time limit around it. For good."""

STEP, SLEEP, SIGNAL, GATE, CHILD, VALUE, AGENT, PATCH = (
    "step", "sleep", "signal", "gate", "child", "value", "agent", "patch",
)  # fmt: skip


class WorkflowChanged(MaosError):
    """The definition makes other calls than it made when it was run before."""


def stream(id: str) -> str:
    """The stream of a workflow run."""
    return f"workflow/{id}"


class Step(msgspec.Struct, omit_defaults=True):
    """Something that the function of a workflow does outside of itself."""

    kind: str = STEP
    name: str = ""
    digest: str = ""
    """Of its arguments, to notice when the function does something else at this point."""
    status: str = STARTED
    tries: int = 0
    failures: int = 0
    """How many tries failed; one that was interrupted did not."""
    result: Any = None
    error: dict[str, Any] | None = None
    """The type and the message of what was raised."""
    at_us: int = 0
    ended_us: int = 0
    until_us: int = 0
    """When a sleep is over, a wait is given up, or the next try begins."""
    about: dict[str, Any] = {}
    """What a person should know of it: the question with its choices, the beginning of its arguments, a child's id."""


class WorkflowCheckpoint(msgspec.Struct, omit_defaults=True):
    """A version of a workflow run that has a name."""

    name: str
    trigger: str
    at_us: int
    version: int
    steps: int
    """How many steps had an outcome."""
    step: str = ""
    """The id of the step that ended last, or of the question that is open."""
    progress: float = 0.0


class WorkflowRun(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A workflow run as of one version of its stream."""

    id: str
    version: int = 0
    name: str = ""
    definition: str = ""
    """The version its author gave the definition."""
    code: str = ""
    """A digest of the definition it was last executed with."""
    arguments: dict[str, Any] = {}
    options: dict[str, Any] = {}
    parent: str = ""
    owner: Owner = {}
    status: str = RUNNING
    why: str = ""
    """Why it is paused, or what is wrong."""
    steps: dict[str, Step] = {}
    done: int = 0
    """How many steps have an outcome."""
    signals: dict[str, list[tuple[int, Any]]] = {}
    """Those that the function has not waited for yet, by name: their versions in the inbox, and their values."""
    published: dict[str, Any] = {}
    checkpoints: list[WorkflowCheckpoint] = []
    inbox_cursor: int = 0
    overruled: int = 0
    """Up to which version of the inbox commands to pause came before a person resumed it."""
    result: Any = None
    error: dict[str, Any] | None = None
    claims: int = 0
    """How often an engine has resumed it."""
    started_us: int = 0
    changed_us: int = 0
    ended_us: int = 0

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.status in OPEN

    @property
    def unknown(self) -> dict[str, Step]:
        """Steps of which it is not known whether they took effect, by id."""
        return {step_id: step for step_id, step in self.steps.items() if step.status == UNKNOWN}

    @property
    def waiting(self) -> dict[str, Step]:
        """Steps that wait for a person, a signal or a time, by id."""
        kinds = (SLEEP, SIGNAL, GATE)
        return {step_id: step for step_id, step in self.steps.items() if step.status == STARTED and step.kind in kinds}

    def apply(self, event: events.WorkflowEvent | Compacted) -> None:
        """Fold one more event in."""
        self.version += 1
        if isinstance(event, Compacted):
            return
        self.changed_us = event.at_us
        self.inbox_cursor = max(self.inbox_cursor, event.inbox_version)
        match event:
            case events.StepStarted():
                self._start_step(event)
            case events.StepCompleted() | events.StepFailure():
                self._end_step(event)
            case events.StepRetried():
                step = self.steps[event.step_id]
                step.status, step.error, step.until_us = STARTED, event.error, event.until_us
                step.failures += 1
            case events.StepUnknown():
                step = self.steps[event.step_id]
                step.status, step.error = UNKNOWN, event.error or step.error
            case events.StepAbandoned():
                self.steps[event.step_id].status = ABANDONED
            case events.WorkflowStarted():
                self.name, self.definition, self.code = event.name, event.definition, event.code
                self.arguments, self.options = event.arguments, event.options
                self.parent, self.owner, self.started_us = event.parent, event.owner, event.at_us
            case events.WorkflowClaimed():
                self._claim(event)
            case events.WorkflowSignalled():
                waiting = self.signals.get(event.name, [])
                self.signals = {**self.signals, event.name: [*waiting, (event.inbox_version, event.value)]}
            case events.WorkflowPublished():
                self.published = {**self.published, **event.values}
            case events.WorkflowCheckpointed():
                made = (event.name, event.trigger, event.at_us, self.version, self.done, event.step, event.progress)
                self.checkpoints = [*self.checkpoints, WorkflowCheckpoint(*made)]
            case events.WorkflowPaused():
                self.status, self.why = PAUSED, event.why
            case events.WorkflowCodeChanged():
                self.status, self.why, self.code = CHANGED, event.why, event.code
            case events.WorkflowEnded():
                self.status, self.result, self.error = event.status.value, event.result, event.error
                self.why = event.error["message"] if event.error else event.why
                self.ended_us = event.at_us
            case events.WorkflowCompacted():
                self._restore(event)
            case _:
                assert_never(event)

    def _claim(self, event: events.WorkflowClaimed) -> None:
        self.owner = event.owner
        self.code = self.code if event.code is None else event.code
        self.status, self.why = RUNNING, ""
        self.overruled = self.overruled if event.overruled is None else event.overruled
        self.claims += 1

    def _restore(self, event: events.WorkflowCompacted) -> None:
        kept = msgspec.convert(event.workflow, WorkflowRun)
        for name in self.__struct_fields__:
            if name not in ("id", "version"):
                setattr(self, name, getattr(kept, name))

    def _start_step(self, event: events.StepStarted) -> None:
        begun = self.steps.get(event.step_id)
        if begun is not None:  # once more
            begun.tries, begun.status, begun.until_us = begun.tries + 1, STARTED, 0
            return
        step = Step(event.kind, event.name, event.digest, tries=1, at_us=event.at_us, about=event.about)
        step.until_us = event.until_us
        self.steps[event.step_id] = step

    def _end_step(self, event: events.StepCompleted | events.StepFailure) -> None:
        step = self.steps.get(event.step_id)
        if step is None:  # begun and ended in one event
            step = Step(kind=event.kind, name=event.name, digest=event.digest, at_us=event.at_us, tries=1)
            self.steps[event.step_id] = step
        step.ended_us, step.until_us = event.at_us, 0
        self.done += 1
        if isinstance(event, events.StepFailure):
            step.status, step.error = FAILED, event.error
            return
        step.status, step.result, step.error = DONE, event.result, None
        if event.signal_version:
            waiting = [each for each in self.signals[event.signal] if each[0] != event.signal_version]
            self.signals = {**self.signals, event.signal: waiting}


Schedule = ScheduleSet
"""What begins when: as the event says that sets it."""


class Schedules(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Workflows that begin at times that come again, by name: a fold of one stream, `schedules/all`."""

    id: str
    version: int = 0
    owner: Owner = {}
    known: dict[str, ScheduleSet] = {}

    def apply(self, event: ScheduleSet | ScheduleRemoved) -> None:
        """Fold one more event in."""
        self.version += 1
        match event:
            case ScheduleSet():
                self.known = {**self.known, event.name: event}
            case ScheduleRemoved():
                self.known = {name: each for name, each in self.known.items() if name != event.name}
