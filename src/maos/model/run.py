"""A run, folded from the events of its stream `run/<id>`: the plan, and what became of each task.

All tasks of a run live in one stream, so that finishing one and beginning those that waited for it is one append (I30).
*Orchestration* and *workflow run* are the user's words for a run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

WAITING = "waiting"
"""Not begun, or released again. Begins when all that it needs is done, its time has come and an agent is free."""
RUNNING = "running"
"""At work. A task: gated, done, waiting again after trouble that may pass, or failed. A run: paused or ended."""
GATED = "gated"
"""Its agent has finished, but its work is not checked or not merged yet. Done, or waiting again when a gate fails."""
DONE = "done"
"""Finished, and its work is merged. For good: it is never begun again, unless the run is taken back in time."""
FAILED = "failed"
"""Ended without success; `why` says more. `maos resume` tries again: the task waits, the run runs."""

PLANNING = "planning"
"""The plan is made or waits to be approved. Running once there is one."""
PAUSED = "paused"
"""Stopped by a person, or since a limit of the whole run was reached. `maos resume` goes on."""
COMPLETED = "completed"
"""Every task is done. `maos resume --task` adds work, and it runs again."""
CANCELLED = "cancelled"
"""Ended by a person before every task was done. `maos resume` runs what is left after all."""

EVENT_TYPES = (
    "run_created",
    "run_claimed",
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
    "run_woken",
    "run_note_added",
    "run_rolled_back",
    "run_forked",
    "run_joined",
    "run_changed",
    "run_moved",
)

INBOX_TYPES = ("pause_requested", "cancel_requested", "checkpoint_requested", "wake_requested")
"""What others may want of a run, beside asking and answering questions."""

GATE, MERGE = "gate/", "merge/"
"""How the ids of questions begin that a task itself asks a person: whether its work is good, and how to merge it."""

FORMAT = 2

_BESIDE = re.compile(r"-(gate\d+-\d+|merge\d+)$")
"""How the names of agents end that check or mend the work of a task's own."""


def asked_for(question: str) -> str:
    """The task that itself asks a question, by the question's id; empty for one that somebody else asks."""
    return question.split("/")[1] if question.startswith((GATE, MERGE)) else ""


def stream(run: str) -> str:
    """The stream of a run."""
    return f"run/{run}"


def agent_name(run: str, task: str, branch: int = 0) -> str:
    """The agent that does a task of a run; `Run.agent` knows in which branch of it."""
    return f"{run}.{task}.b{branch}" if branch else f"{run}.{task}"


class TaskState(msgspec.Struct, kw_only=True):
    """What became of a task."""

    name: str
    plan: dict[str, Any]
    needs: list[str]
    status: str = WAITING
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
    used_usd: float = 0.0
    used_tokens: int = 0
    """What it has used of its own budget: since a person last let it go on."""
    gate: int = 0
    """How many gates it has passed."""
    checks: int = 0
    """How often the gate that is next was tried and came to no result."""
    commit: str = ""
    conflict: list[str] = []
    """Files in which its work and that of other tasks differ."""
    conflicts: int = 0
    """How often its work could not be merged."""
    resolve: str = ""
    """How its conflict is to be resolved; empty as long as nobody has said so."""
    missing: int = 0
    """How many of the tasks it needs are not done."""
    agent: str = ""
    """Who does it, or did; empty as long as the run was never taken back and is no fork."""

    @property
    def asks(self) -> str:
        """The id of the question whose answer it waits for; empty when it waits for no person."""
        if self.status != GATED:
            return ""
        if self.failure == "merge_conflict" and not self.resolve:
            return f"{MERGE}{self.name}/{self.conflicts}"
        gates = self.plan.get("gates", ())
        is_person = self.gate < len(gates) and gates[self.gate].get("person")
        return f"{GATE}{self.name}/{self.gate}/{self.attempts}" if is_person else ""


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


class Content(msgspec.Struct, kw_only=True):
    """What of a run goes back in time: all that its tasks have come to, and nothing of who carries it out."""

    status: str
    request: str
    folder: str
    options: dict[str, Any]
    tasks: dict[str, TaskState]
    questions: dict[str, Question]
    ended_us: int
    summary: str
    why: str
    done: int
    running: int
    cost_usd: float
    tokens: int
    sleeping: dict[str, int]
    commit: str
    needed_by: dict[str, list[str]]


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
    sleeping: dict[str, int] = {}
    """Kinds of agents whose rate limit was reached, and until when they sleep or slept."""
    checkpoints: list[dict[str, Any]] = []
    commit: str = ""
    """Where the merged work of finished tasks is."""
    inbox_cursor: int = 0
    """The last wish from the inbox that was carried out."""
    needed_by: dict[str, list[str]] = {}
    branch: int = 0
    """How often it was taken back, or brought together with another run: agents of each branch have names of their own,
    so that nothing of one that was given up reaches the next (I14)."""
    branches: list[dict[str, Any]] = []
    """Where each of them began: at which version, and with the state of which one."""
    origin: dict[str, Any] = {}
    """The run, version and position that it was forked from."""
    moved: int = 0
    """The version with which it was last told that its files are elsewhere now; 0 when it never was."""

    @property
    def is_open(self) -> bool:
        """Whether there may be more to do."""
        return self.status in (PLANNING, RUNNING, PAUSED)

    @property
    def is_going(self) -> bool:
        """Whether an engine should be executing it: it was neither paused nor has it ended."""
        return self.status in (PLANNING, RUNNING)

    @property
    def wakes_us(self) -> int:
        """When the last of the kinds wakes up whose rate limit was reached; a time in the past when none sleeps."""
        return max(self.sleeping.values(), default=0)

    @property
    def progress(self) -> int:
        """How far it is, in percent."""
        return 100 * self.done // len(self.tasks) if self.tasks else 0

    def agent(self, task: str) -> str:
        """The agent that does a task, or will."""
        known = self.tasks.get(task)
        return (known.agent if known is not None else "") or agent_name(self.id, task, self.branch)

    def agents(self, task: str) -> list[str]:
        """All agents of this run that ever did a task, in whatever branch."""
        return [agent_name(self.id, task, branch) for branch in range(self.branch + 1)]

    def accepts_from(self, agent: str) -> bool:
        """Whether what an agent wants of the run counts: not if it belongs to a branch that was given up."""
        if not self.branch or not agent.startswith(f"{self.id}."):
            return True
        current = {self.agent(name) for name in self.tasks}
        return agent in current or _BESIDE.sub("", agent) in current

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
        self.origin = dict(data.get("origin", {}))

    def _restored(self, data: Mapping[str, Any]) -> None:
        """Everything as the event says, which is all that is needed: nothing before it is looked at."""
        content = msgspec.convert(data["state"], Content)
        for name in Content.__struct_fields__:
            setattr(self, name, getattr(content, name))
        self.branch = data["branch"]
        begun = {"version": self.version, "to": data["to"], "position": data["position"], "at_us": data["at_us"]}
        if "other" in data:
            begun["joined"] = [data["other"]["run"], data["other"]["version"]]
        self.branches = [*self.branches, begun]

    _run_rolled_back = _run_joined = _run_changed = _restored

    def _run_forked(self, data: Mapping[str, Any]) -> None:
        self._restored(data)
        self.branches = []  # where it comes from is its origin

    def _run_claimed(self, data: Mapping[str, Any]) -> None:
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
                task.used_usd, task.used_tokens = 0.0, 0
                if task.failure == "merge_conflict" and task.commit:  # its work is done, and only the merge is not
                    task.status, task.resolve, task.conflicts = GATED, "", task.conflicts + 1

    def _run_paused(self, data: Mapping[str, Any]) -> None:
        self.status, self.why = PAUSED, data.get("why", "")

    def _run_ended(self, data: Mapping[str, Any]) -> None:
        self.status, self.ended_us = data["status"], data["at_us"]
        self.summary, self.why = data.get("summary", ""), data.get("why", "")

    def _run_note_added(self, data: Mapping[str, Any]) -> None:
        """Something that was decided and changes nothing else."""

    def _run_hibernated(self, data: Mapping[str, Any]) -> None:
        self.sleeping[data["kind"]] = max(data["until_us"], self.sleeping.get(data["kind"], 0))

    def _run_woken(self, data: Mapping[str, Any]) -> None:
        """A person did not want to wait for the end of a rate limit."""
        self.sleeping = {kind: min(until_us, data["at_us"]) for kind, until_us in self.sleeping.items()}
        for task in self.tasks.values():
            if task.failure == "rate_limited":
                task.not_before_us = 0

    def _run_moved(self, data: Mapping[str, Any]) -> None:
        """Somebody has moved what it works on."""
        self.folder, self.moved = data["folder"], self.version
        if data.get("workspace"):
            self.options = {**self.options, "workspace": dict(data["workspace"])}

    def _run_checkpointed(self, data: Mapping[str, Any]) -> None:
        self.checkpoints.append({**data, "version": self.version})

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
        is_again = task.status == GATED and task.gate == data["passed"]
        is_decided = "conflict" in data or ("resolve" in data and "failure" not in data)
        task.checks = task.checks + 1 if is_again and not is_decided else 0
        task.status, task.gate = GATED, data["passed"]
        task.result = data.get("result", task.result)
        task.commit = data.get("commit", task.commit)
        task.failure, task.why = data.get("failure", ""), data.get("why", task.why)
        task.not_before_us = data.get("not_before_us", 0)
        task.tries += bool(data.get("counts"))
        task.resolve = data.get("resolve", "")
        if "conflict" in data:
            task.conflict, task.conflicts = list(data["conflict"]), task.conflicts + 1
        self._spend(task, data)

    def _task_finished(self, data: Mapping[str, Any]) -> None:
        task = self.tasks[data["task"]]
        self._stopped(task)
        task.status, task.ended_us, task.result = DONE, data["at_us"], data.get("result", task.result)
        task.commit, task.failure, task.why = data.get("commit", task.commit), "", ""
        task.conflict, task.resolve = [], ""
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
            known.asked_by += [each for each in data["asked_by"] if each not in known.asked_by]
            return
        self.questions[data["id"]] = Question(
            id=data["id"],
            question=data["question"],
            choices=list(data.get("choices", ())),
            context=data.get("context", ""),
            asked_us=data["at_us"],
            asked_by=list(data["asked_by"]),
            default=data.get("default"),
            expires_us=data.get("expires_us", 0),
        )

    def _question_answered(self, data: Mapping[str, Any]) -> None:
        question = self.questions[data["id"]]
        question.answer, question.answered_us = data["answer"], data["at_us"]
        question.answered_by = data.get("by", "")

    def _add(self, tasks: Iterable[Mapping[str, Any]]) -> None:
        for plan in tasks:
            name, needs = plan["name"], list(plan.get("needs", ()))
            missing = sum(self.tasks[need].status != DONE if need in self.tasks else 1 for need in needs)
            agent = agent_name(self.id, name, self.branch) if self.branch else ""
            self.tasks[name] = TaskState(name=name, plan=dict(plan), needs=needs, missing=missing, agent=agent)
            for need in needs:
                self.needed_by.setdefault(need, []).append(name)

    def _stopped(self, task: TaskState) -> None:
        if task.status == RUNNING:
            self.running -= 1

    def _spend(self, task: TaskState, data: Mapping[str, Any]) -> None:
        task.cost_usd += data.get("cost_usd", 0.0)
        task.tokens += data.get("tokens", 0)
        task.used_usd += data.get("cost_usd", 0.0)
        task.used_tokens += data.get("tokens", 0)
        self.cost_usd += data.get("cost_usd", 0.0)
        self.tokens += data.get("tokens", 0)
