"""What is known of a workflow: a fold of its stream.

A workflow is a function; what is recorded are the calls it makes to the outside: steps, sleeps, signals, questions,
children. Each call has a place: its number among the calls of its branch. When the function is run again, a call at a
place that has an outcome gets that outcome and does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from maos.model.events.parts import Owner

FORMAT = 1
"""Grows when the fold changes; older folds are left alone and built again."""

RUNNING = "running"
"""Its function is at work, or waits for a time, a signal, a person or a child. Any of the others."""
PAUSED = "paused"
"""Stopped by a person, with Ctrl+C or from elsewhere. `maos workflow resume` goes on."""
COMPLETED = "completed"
"""Its function has returned; the result is kept. For good."""
FAILED = "failed"
"""It has raised an error, which is kept. For good."""
CANCELLED = "cancelled"
"""Somebody did not want it any more. For good."""
CHANGED = "changed"
"""Its code makes other calls than those that are recorded. Runs again with code that fits: the old, or a patch."""
OPEN = (RUNNING, PAUSED, CHANGED)
ENDED = (COMPLETED, FAILED, CANCELLED)

STARTED = "started"
"""Begun. Done, failed, left or, when the process dies, unknown."""
DONE = "done"
"""It has a result, which is given again and never computed again. For good."""
UNKNOWN = "unknown"
"""Begun, and nobody knows whether it took effect (I31). Done, failed or started again: by its probe, or `settle`."""
LEFT = "left"
"""The function stopped waiting for it, as a time limit around it makes it do. For good."""

STEP, SLEEP, SIGNAL, GATE, CHILD, VALUE, AGENT, PATCH = (
    "step", "sleep", "signal", "gate", "child", "value", "agent", "patch",
)  # fmt: skip

EVENT_TYPES = (
    "workflow_started", "workflow_claimed", "workflow_signalled", "workflow_published", "workflow_checkpointed",
    "workflow_paused", "workflow_changed", "workflow_ended", "workflow_compacted", "step_started", "step_retried",
    "step_unknown", "step_abandoned", "step_completed", "step_failed",
)  # fmt: skip


def stream(id: str) -> str:
    """The stream of a workflow."""
    return f"workflow/{id}"


class Step(msgspec.Struct, omit_defaults=True):
    """One call to the outside."""

    kind: str = STEP
    name: str = ""
    digest: str = ""
    """Of its arguments, to notice when the function makes another call at this place."""
    status: str = STARTED
    tries: int = 0
    failures: int = 0
    """How many tries failed; one that was interrupted did not."""
    result: Any = None
    error: dict[str, Any] | None = None
    """The type and the words of what was raised."""
    at_us: int = 0
    ended_us: int = 0
    until_us: int = 0
    """When a sleep is over, a wait is given up, or the next try begins."""
    about: dict[str, Any] = {}
    """What a person should know of it: the question with its choices, the beginning of its arguments, a child's id."""


class WorkflowCheckpoint(msgspec.Struct, omit_defaults=True):
    """A place that somebody may want to go back to."""

    name: str
    trigger: str
    at_us: int
    version: int
    steps: int
    """How many calls had an outcome."""
    step: str = ""
    """The place of the call that ended last, or of the question that is asked."""
    progress: float = 0.0


class WorkflowRun(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A workflow as of one version of its stream."""

    id: str
    version: int = 0
    name: str = ""
    definition: str = ""
    """The version its author gave the definition."""
    code: str = ""
    """A digest of the definition it was last run with."""
    arguments: dict[str, Any] = {}
    options: dict[str, Any] = {}
    parent: str = ""
    owner: Owner = {}
    status: str = RUNNING
    why: str = ""
    """Why it is paused, or what is wrong."""
    steps: dict[str, Step] = {}
    done: int = 0
    """How many calls have an outcome."""
    signals: dict[str, list[tuple[int, Any]]] = {}
    """Those that came and nobody has waited for yet, by name: their places in the inbox, and what they say."""
    published: dict[str, Any] = {}
    checkpoints: list[WorkflowCheckpoint] = []
    inbox_cursor: int = 0
    overruled: int = 0
    """Up to where in the inbox wishes to pause were made before somebody said to go on."""
    result: Any = None
    error: dict[str, Any] | None = None
    taken: int = 0
    """How often an engine took it up."""
    started_us: int = 0
    changed_us: int = 0
    ended_us: int = 0

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.status in OPEN

    @property
    def unknown(self) -> dict[str, Step]:
        """Calls of which nobody knows whether they took effect, by place."""
        return {step_id: call for step_id, call in self.steps.items() if call.status == UNKNOWN}

    @property
    def waiting(self) -> dict[str, Step]:
        """Calls that wait for a person, a signal or a time, by place."""
        kinds = (SLEEP, SIGNAL, GATE)
        return {step_id: call for step_id, call in self.steps.items() if call.status == STARTED and call.kind in kinds}

    def apply(self, event: Any) -> None:
        """Fold one more event in."""
        type_, data = event.type, event.data
        self.version += 1
        self.changed_us = data.get("at_us", self.changed_us)
        self.inbox_cursor = max(self.inbox_cursor, data.get("inbox_version", 0))
        getattr(self, f"_{type_}")(data)

    def _workflow_started(self, data: Mapping[str, Any]) -> None:
        self.name, self.definition, self.code = data["name"], data.get("definition", ""), data["code"]
        self.arguments, self.options = dict(data["arguments"]), dict(data.get("options", {}))
        self.parent, self.owner = data.get("parent", ""), data["owner"]
        self.started_us = data["at_us"]

    def _workflow_claimed(self, data: Mapping[str, Any]) -> None:
        self.owner = data["owner"]
        self.code = data.get("code", self.code)
        self.status, self.why = RUNNING, ""
        self.overruled = data.get("overruled", self.overruled)
        self.taken += 1

    def _workflow_signalled(self, data: Mapping[str, Any]) -> None:
        waiting = self.signals.get(data["name"], [])
        self.signals = {**self.signals, data["name"]: [*waiting, (data["inbox_version"], data.get("value"))]}

    def _workflow_published(self, data: Mapping[str, Any]) -> None:
        self.published = {**self.published, **data["values"]}

    def _workflow_checkpointed(self, data: Mapping[str, Any]) -> None:
        made = WorkflowCheckpoint(
            data["name"],
            data["trigger"],
            data["at_us"],
            self.version,
            self.done,
            data.get("step", ""),
            data.get("progress", 0.0),
        )
        self.checkpoints = [*self.checkpoints, made]

    def _workflow_paused(self, data: Mapping[str, Any]) -> None:
        self.status, self.why = PAUSED, data.get("why", "")

    def _workflow_changed(self, data: Mapping[str, Any]) -> None:
        self.status, self.why, self.code = CHANGED, data["why"], data["code"]

    def _workflow_ended(self, data: Mapping[str, Any]) -> None:
        self.status, self.result, self.error = data["status"], data.get("result"), data.get("error")
        self.why = self.error["message"] if self.error else data.get("why", "")
        self.ended_us = data["at_us"]

    def _workflow_compacted(self, data: Mapping[str, Any]) -> None:
        kept = msgspec.convert(data["workflow"], WorkflowRun)
        for name in self.__struct_fields__:
            if name not in ("id", "version"):
                setattr(self, name, getattr(kept, name))

    def _compacted(self, data: Mapping[str, Any]) -> None:
        """What went before stands in one event now."""

    # --- calls -----------------------------------------------------------------------------------------------

    def _step_started(self, data: Mapping[str, Any]) -> None:
        begun = self.steps.get(data["step_id"])
        if begun is not None:  # once more
            begun.tries, begun.status, begun.until_us = begun.tries + 1, STARTED, 0
            return
        self.steps[data["step_id"]] = Step(
            kind=data["kind"],
            name=data["name"],
            digest=data.get("digest", ""),
            at_us=data["at_us"],
            until_us=data.get("until_us", 0),
            about=dict(data.get("about", {})),
            tries=1,
        )

    def _step_retried(self, data: Mapping[str, Any]) -> None:
        call = self.steps[data["step_id"]]
        call.status, call.error, call.until_us = STARTED, data.get("error"), data.get("until_us", 0)
        call.failures += 1

    def _step_unknown(self, data: Mapping[str, Any]) -> None:
        call = self.steps[data["step_id"]]
        call.status, call.error = UNKNOWN, data.get("error", call.error)

    def _step_abandoned(self, data: Mapping[str, Any]) -> None:
        self.steps[data["step_id"]].status = LEFT

    def _step_completed(self, data: Mapping[str, Any]) -> None:
        call = self._ended(data)
        call.status, call.result, call.error = DONE, data.get("result"), None
        if "signal" in data:
            name, version = data["signal"], data["signal_version"]
            left = [each for each in self.signals[name] if each[0] != version]
            self.signals = {known: left if known == name else sent for known, sent in self.signals.items()}

    def _step_failed(self, data: Mapping[str, Any]) -> None:
        call = self._ended(data)
        call.status, call.error = FAILED, dict(data["error"])

    def _ended(self, data: Mapping[str, Any]) -> Step:
        if data["step_id"] not in self.steps:  # begun and ended in one event
            self.steps[data["step_id"]] = Step(
                kind=data["kind"], name=data["name"], digest=data.get("digest", ""), at_us=data["at_us"], tries=1
            )
        call = self.steps[data["step_id"]]
        call.ended_us, call.until_us = data["at_us"], 0
        self.done += 1
        return call
