"""A run, folded from the events of its stream `run/<id>`: the plan, and what became of each task.

All tasks of a run live in one stream, so that finishing one and unblocking the next is one append (I30).
*Orchestration* and *workflow run* are the user's words for a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

WAITING, RUNNING, GATED, DONE, FAILED = "waiting", "running", "gated", "done", "failed"
"""What a task can be: not begun, or released again; an agent at work; done but not checked; over; over badly."""

PLANNING, PAUSED, COMPLETED = "planning", "paused", "completed"
"""What a run can be, beside running and failed."""

EVENT_TYPES = (
    "run_created",
    "run_taken",
    "run_planned",
    "run_resumed",
    "run_paused",
    "run_ended",
    "task_started",
    "task_released",
    "task_gated",
    "task_finished",
    "task_failed",
    "question_asked",
    "question_answered",
    "run_checkpointed",
    "run_hibernated",
    "run_noted",
)

INBOX_TYPES = ("pause_asked", "checkpoint_asked")
"""What others may want of a run, beside asking and answering questions."""

FORMAT = 1


def stream(run: str) -> str:
    """The stream of a run."""
    return f"run/{run}"


def agent_name(run: str, task: str) -> str:
    """The agent that does a task of a run."""
    return f"{run}.{task}"


class TaskState(msgspec.Struct, kw_only=True):
    """What became of a task."""

    name: str
    plan: dict[str, Any]
    needs: list[str]
    status: str = WAITING
    agent: str = ""
    attempts: int = 0
    """How often somebody began to work on it."""
    tries: int = 0
    """How often it was released after a failure; a rate limit is not one."""
    not_before_us: int = 0
    started_us: int = 0
    ended_us: int = 0
    result: str = ""
    why: str = ""
    failure: str = ""
    cost_usd: float = 0.0
    tokens: int = 0
    gate: int = 0
    """How many gates it has passed."""
    commit: str = ""
    missing: int = 0
    """How many of the tasks it needs are not done."""


class Question(msgspec.Struct, kw_only=True):
    """Something that a person must answer."""

    id: str
    question: str
    choices: list[str] = []
    context: str = ""
    asked_us: int = 0
    asked_by: list[str] = []
    default: str | None = None
    expires_us: int = 0
    answer: str | None = None
    answered_us: int = 0
    answered_by: str = ""


class Run(msgspec.Struct, kw_only=True):
    """What is known of a run."""

    id: str
    version: int = 0
    status: str = PLANNING
    request: str = ""
    folder: str = ""
    options: dict[str, Any] = {}
    owner: dict[str, Any] = {}
    tasks: dict[str, TaskState] = {}
    questions: dict[str, Question] = {}
    created_us: int = 0
    updated_us: int = 0
    ended_us: int = 0
    summary: str = ""
    why: str = ""
    done: int = 0
    running: int = 0
    cost_usd: float = 0.0
    tokens: int = 0
    restored: int = 0
    restored_us: int = 0
    restored_from: str = ""
    wakes_us: int = 0
    """Until when the whole run sleeps (a rate limit); 0 when it does not."""
    checkpoints: list[dict[str, Any]] = []
    commit: str = ""
    """Where the merged work of finished tasks is."""
    inbox_cursor: int = 0
    """The last wish from the inbox that was carried out."""
    needed_by: dict[str, list[str]] = {}

    @property
    def is_open(self) -> bool:
        """Whether there may be more to do."""
        return self.status in (PLANNING, RUNNING, PAUSED)

    @property
    def progress(self) -> int:
        """How far it is, in percent."""
        return 100 * self.done // len(self.tasks) if self.tasks else 0

    @property
    def open_questions(self) -> list[Question]:
        """Questions nobody has answered."""
        return [each for each in self.questions.values() if each.answer is None]

    def apply(self, type_: str, data: Mapping[str, Any]) -> None:
        """Fold one more event in."""
        self.version += 1
        self.updated_us = data["at_us"]
        self.inbox_cursor = max(self.inbox_cursor, data.get("inbox_version", 0))
        getattr(self, f"_{type_}")(data)

    def _run_created(self, data: Mapping[str, Any]) -> None:
        self.request, self.folder, self.options = data["request"], data["folder"], dict(data["options"])
        self.created_us, self.owner = data["at_us"], dict(data["owner"])
        self.commit = data.get("commit", "")

    def _run_taken(self, data: Mapping[str, Any]) -> None:
        self.owner = dict(data["owner"])
        self.options = {**self.options, **data.get("options", {})}
        self.restored += 1
        self.restored_us, self.restored_from = data["at_us"], data["source"]

    def _run_planned(self, data: Mapping[str, Any]) -> None:
        self.status = RUNNING
        self.options = {**self.options, **data.get("options", {})}
        self._add(data["tasks"])

    def _run_resumed(self, data: Mapping[str, Any]) -> None:
        self.status, self.ended_us, self.why = RUNNING, 0, ""
        for task in self.tasks.values():
            if task.status == FAILED:
                task.status, task.tries, task.not_before_us = WAITING, 0, 0

    def _run_paused(self, data: Mapping[str, Any]) -> None:
        self.status, self.why = PAUSED, data.get("why", "")

    def _run_ended(self, data: Mapping[str, Any]) -> None:
        self.status, self.ended_us = data["status"], data["at_us"]
        self.summary, self.why = data.get("summary", ""), data.get("why", "")

    def _run_noted(self, data: Mapping[str, Any]) -> None:
        """Something that was decided and changes nothing else."""

    def _run_hibernated(self, data: Mapping[str, Any]) -> None:
        self.wakes_us = data["until_us"]

    def _run_checkpointed(self, data: Mapping[str, Any]) -> None:
        self.checkpoints = [*self.checkpoints, {**data, "version": self.version}]

    def _task_started(self, data: Mapping[str, Any]) -> None:
        task = self.tasks[data["task"]]
        task.status, task.attempts = RUNNING, data["number"]
        task.started_us = task.started_us or data["at_us"]
        self.running += 1

    def _task_released(self, data: Mapping[str, Any]) -> None:
        task = self.tasks[data["task"]]
        self._stopped(task)
        task.status, task.why = WAITING, data.get("why", "")
        task.failure, task.not_before_us = data.get("failure", ""), data.get("not_before_us", 0)
        task.tries += bool(data.get("counts"))
        self._spend(task, data)

    def _task_gated(self, data: Mapping[str, Any]) -> None:
        task = self.tasks[data["task"]]
        self._stopped(task)
        task.status, task.gate = GATED, data["passed"]
        task.result = data.get("result", task.result)
        task.commit = data.get("commit", task.commit)
        self._spend(task, data)

    def _task_finished(self, data: Mapping[str, Any]) -> None:
        task = self.tasks[data["task"]]
        self._stopped(task)
        task.status, task.ended_us, task.result = DONE, data["at_us"], data.get("result", task.result)
        task.commit, task.failure, task.why = data.get("commit", task.commit), "", ""
        self.commit = data.get("merged", self.commit)
        self.done += 1
        self._spend(task, data)
        for name in self.needed_by.get(task.name, ()):
            self.tasks[name].missing -= 1

    def _task_failed(self, data: Mapping[str, Any]) -> None:
        task = self.tasks[data["task"]]
        self._stopped(task)
        task.status, task.ended_us = FAILED, data["at_us"]
        task.failure, task.why = data["failure"], data["why"]
        self._spend(task, data)

    def _question_asked(self, data: Mapping[str, Any]) -> None:
        known = self.questions.get(data["id"])
        if known is not None:
            known.asked_by = [*known.asked_by, *data["asked_by"]]
            return
        self.questions = {
            **self.questions,
            data["id"]: Question(
                id=data["id"],
                question=data["question"],
                choices=list(data.get("choices", ())),
                context=data.get("context", ""),
                asked_us=data["at_us"],
                asked_by=list(data["asked_by"]),
                default=data.get("default"),
                expires_us=data.get("expires_us", 0),
            ),
        }

    def _question_answered(self, data: Mapping[str, Any]) -> None:
        question = self.questions[data["id"]]
        question.answer, question.answered_us = data["answer"], data["at_us"]
        question.answered_by = data.get("by", "")

    def _add(self, tasks: Iterable[Mapping[str, Any]]) -> None:
        for plan in tasks:
            name, needs = plan["name"], list(plan.get("needs", ()))
            missing = sum(self.tasks[need].status != DONE if need in self.tasks else 1 for need in needs)
            self.tasks[name] = TaskState(name=name, plan=dict(plan), needs=needs, missing=missing)
            for need in needs:
                self.needed_by.setdefault(need, []).append(name)

    def _stopped(self, task: TaskState) -> None:
        if task.status == RUNNING:
            self.running -= 1

    def _spend(self, task: TaskState, data: Mapping[str, Any]) -> None:
        task.cost_usd += data.get("cost_usd", 0.0)
        task.tokens += data.get("tokens", 0)
        self.cost_usd += data.get("cost_usd", 0.0)
        self.tokens += data.get("tokens", 0)
