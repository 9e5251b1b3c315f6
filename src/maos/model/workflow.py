"""A workflow run, folded from the events of its stream `workflow/<id>`.

A workflow is a function; what is recorded are its steps: everything that it does outside of itself, such as calls of
step functions, sleeps, signals, questions and children. The id of a step is its number among the steps of its branch.
When the function runs again, a step that has an outcome returns that outcome and does nothing.
"""

from __future__ import annotations

import re
from typing import Any, assert_never

import msgspec

from maos.errors import MaosError
from maos.model.events import workflow as events
from maos.model.events.parts import Owner
from maos.model.events.records import ScheduleRemoved, ScheduleSet
from maos.model.events.state import Compacted
from maos.model.status import WorkflowStatus
from maos.patterns import regex

FORMAT = 3
"""Grows when the fold changes; a kept fold of an older format is ignored and built again."""

RUNNING: str = WorkflowStatus.RUNNING.value
PAUSED: str = WorkflowStatus.PAUSED.value
COMPLETED: str = WorkflowStatus.COMPLETED.value
CANCELLED: str = WorkflowStatus.CANCELLED.value
CHANGED: str = WorkflowStatus.CHANGED.value
FAILED = "failed"
"""It has raised an error, which is kept. A retry of a failed workflow run executes it again."""
INTERRUPTED = "interrupted"
"""Recorded as running, and the process that executed it has ended. `maos workflow resume`, or `maos serve`."""
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

BRANCHES = "branches"
"""The name of the value that says which branches of a parallel step were not begun, because another had failed."""
RETRY = "retry"
"""Why a workflow run is paused that a person has had retried, and that no engine has executed since."""

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
    """The type, the message and the traceback of what was raised."""
    at_us: int = 0
    ended_us: int = 0
    until_us: int = 0
    """When a sleep is over, a wait is given up, or the next try begins."""
    about: dict[str, Any] = {}
    """What a person should know of it: the question with its choices, the beginning of its arguments, a child's id."""
    by: str = ""
    """The principal that gave its outcome; empty when it ended by itself."""
    signal_version: int = 0
    """The version in the inbox of the signal that it received."""


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
    retries: int = 0
    """How often a person had it executed again after it had failed or was cancelled."""
    is_retry_due: bool = False
    """Whether it is paused only until an engine executes it again after a retry."""
    uncancelled: int = 0
    """Up to which version of the inbox commands to cancel came before a retry."""
    removed_us: int = 0
    """When a person removed it; 0 when none did. Lists leave it out."""
    started_by: str = ""
    """The principal that started it."""
    stopped_by: str = ""
    """The principal that had it paused or cancelled; empty when it stopped by itself."""
    started_us: int = 0
    changed_us: int = 0
    ended_us: int = 0

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.status in OPEN

    @property
    def cause(self) -> dict[str, Any] | None:
        """The error of the step that ended it, with the id of the step; else that of its own code."""
        step_id = (self.error or {}).get("step", "")
        step = self.steps.get(step_id)
        return {**step.error, "step": step_id} if step is not None and step.error else self.error

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
                self.started_by = event.by
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
                self.status, self.why, self.stopped_by = PAUSED, event.why, event.by
            case events.WorkflowCodeChanged():
                self.status, self.why, self.code = CHANGED, event.why, event.code
            case events.WorkflowEnded():
                self.status, self.result, self.error = event.status.value, event.result, event.error
                self.why = event.error["message"] if event.error else event.why
                self.ended_us, self.stopped_by = event.at_us, event.by
            case events.WorkflowRetried():
                self._retry(event)
            case events.WorkflowRemoved():
                self.removed_us = event.at_us
            case events.WorkflowCompacted():
                self._restore(event)
            case _:
                assert_never(event)

    def _claim(self, event: events.WorkflowClaimed) -> None:
        self.owner = event.owner
        self.code = self.code if event.code is None else event.code
        self.status, self.why, self.stopped_by, self.is_retry_due = RUNNING, "", "", False
        self.overruled = self.overruled if event.overruled is None else event.overruled
        self.claims += 1

    def _retry(self, event: events.WorkflowRetried) -> None:
        for step_id in event.steps:
            self._forget_step(step_id)
        self.status, self.why, self.error, self.ended_us = PAUSED, RETRY, None, 0
        self.code = ""  # the code may have been corrected: any is accepted that executes the steps that are kept
        self.overruled = self.uncancelled = event.overruled
        self.stopped_by, self.is_retry_due, self.retries = "", True, self.retries + 1

    def _forget_step(self, step_id: str) -> None:
        step = self.steps.pop(step_id)
        self.done -= step.status in (DONE, FAILED)
        if step.signal_version:  # the signal was received by the step: the one that takes its place receives it again
            waiting = [*self.signals.get(step.name, ()), (step.signal_version, step.result)]
            self.signals = {**self.signals, step.name: sorted(waiting, key=lambda each: each[0])}

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
        step.ended_us, step.until_us, step.by = event.at_us, 0, event.by
        self.done += 1
        if isinstance(event, events.StepFailure):
            step.status, step.error = FAILED, event.error
            return
        step.status, step.result, step.error = DONE, event.result, None
        if event.signal_version:
            step.signal_version = event.signal_version
            waiting = [each for each in self.signals[event.signal] if each[0] != event.signal_version]
            self.signals = {**self.signals, event.signal: waiting}


_PLACE = regex(r"(\d+)(?:([:~])(\d+)\.)?", re.ASCII)


def _places(step_id: str) -> list[tuple[str, int, bool]]:
    """The branches that a step is in, from the outermost: the prefix of each, the number of the step there, and whether
    what is inside of it is a task that the author started, which runs beside the steps that follow."""
    return [(step_id[: each.start()], int(each[1]), each[2] == "~") for each in _PLACE.finditer(step_id)]


def steps_to_retry(run: WorkflowRun) -> list[str]:
    """The steps that begin again when a workflow run is retried: those that failed and that no step of it follows, so
    that nothing that is kept depends on their failure; and children and agents that were ended with the run."""
    last: dict[str, int] = {}
    for step_id in run.steps:
        for prefix, number, _beside in _places(step_id):
            last[prefix] = max(number, last.get(prefix, 0))
    cause = (run.error or {}).get("step", "")
    found = []
    for step_id, step in run.steps.items():
        places = _places(step_id)
        is_last = all(number == last[prefix] for prefix, number, _beside in places)
        is_beside = any(beside for *_place, beside in places)
        if (
            (step.status == FAILED and (is_last or (step_id == cause and is_beside)))
            or (step.status == STARTED and step.kind in (CHILD, AGENT))
            or ((step.kind, step.name) == (VALUE, BRANCHES) and is_last)  # branches that were not begun, begin now
        ):
            found.append(step_id)
    return found


def steps_from(run: WorkflowRun, step_id: str) -> list[str]:
    """A step and all that may depend on its outcome: those that follow it, in its branch and around it."""
    *around, (branch, first, _beside) = _places(step_id) or [("", 0, False)]
    found = []
    for each in run.steps:
        here = {prefix: number for prefix, number, _beside in _places(each)}
        if (
            here.get(branch, 0) >= first
            or any(here.get(prefix, 0) > number for prefix, number, _beside in around)
            or any(each == f"{prefix}{number}" for prefix, number, _beside in around)  # which branches were begun
        ):
            found.append(each)
    return found


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
