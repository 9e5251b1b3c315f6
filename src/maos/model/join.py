"""Two runs that come from one, brought together again: a three-way comparison of their tasks and questions.

What only one side changed since they parted is taken from that side. Where both did, somebody must choose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from maos.model.branch import content, still_asked
from maos.model.run import Question, Run, TaskState, agent_name
from maos.model.status import RunStatus, TaskStatus

OURS, THEIRS, NEWEST = CHOICES = ("ours", "theirs", "newest")
JOIN = "join/"
"""How the ids of questions begin that a person answers to have two runs joined."""
TASK, PLAN, QUESTION, FILES = "task", "plan", "question", "files"


class JoinConflict(NamedTuple):
    """What both sides changed."""

    kind: str
    """task: both have done it, differently · plan: both planned another task of that name · question: both answered it
    differently · files: both changed the same places."""
    name: str
    ours: str
    theirs: str
    ours_us: int = 0
    theirs_us: int = 0
    files: tuple[str, ...] = ()

    @property
    def newest(self) -> str:
        """The side that came last."""
        return THEIRS if self.theirs_us > self.ours_us else OURS

    @property
    def id(self) -> str:
        """What the question about it is called, after the runs it is about."""
        return f"{self.kind}/{self.name}" if self.name else self.kind


class Joined(NamedTuple):
    """Both sides together."""

    content: dict[str, Any]
    taken: list[str]
    """Tasks that are as the other run has them."""
    added: list[str]
    """Tasks that only the other run had."""
    conflicts: list[JoinConflict]
    open: list[JoinConflict]
    """Those that nobody has decided; as long as there are any, the content is of no use."""
    answers: list[Question]
    """Answers that only the other run has, to what this one still asks."""


Choose = Callable[[JoinConflict], str]
"""Which side is taken; empty as long as nobody has said."""


def join(base: Run, ours: Run, theirs: Run, *, branch: int, choose: Choose) -> Joined:
    """What becomes of our run when the other one is joined to it. Work that the other has not finished stays there."""
    found = Joined(content(ours), [], [], [], [], [])
    _join_questions(base, ours, theirs, found, choose)
    tasks: dict[str, TaskState] = {}
    for name in dict.fromkeys((*ours.tasks, *theirs.tasks)):
        tasks[name] = _joined_task(base, ours, theirs, name, branch, found, choose)
    _count(tasks, found.content)
    found.content["questions"] = still_asked(found.content["questions"], tasks, ours)
    found.answers[:] = [each for each in found.answers if each.id in found.content["questions"]]
    found.content["cost_usd"] = ours.cost_usd + max(0.0, theirs.cost_usd - base.cost_usd)
    found.content["tokens"] = ours.tokens + max(0, theirs.tokens - base.tokens)
    both = {*ours.sleeping, *theirs.sleeping}
    found.content["sleeping"] = {
        kind: max(ours.sleeping.get(kind, 0), theirs.sleeping.get(kind, 0)) for kind in sorted(both)
    }
    found.content["summary"] = ours.summary or theirs.summary
    is_done = found.content["done"] == len(tasks)
    found.content["status"], found.content["why"] = (
        (RunStatus.COMPLETED.value, "") if is_done else (RunStatus.PAUSED.value, f"joined with {theirs.id}")
    )
    found.content["ended_us"] = max(ours.ended_us, theirs.ended_us) if is_done else 0
    return found


def decided(conflict: JoinConflict, said: str) -> str:
    """The side that somebody's word means."""
    return conflict.newest if said == NEWEST else said if said in (OURS, THEIRS) else ""


def _joined_task(base: Run, ours: Run, theirs: Run, name: str, branch: int, found: Joined, choose: Choose) -> TaskState:
    before, own, other = base.tasks.get(name), ours.tasks.get(name), theirs.tasks.get(name)
    if own is None:
        assert other is not None
        found.added.append(name)
        return _taken(ours, theirs, other, branch)
    kept = msgspec.structs.replace(own, agent=ours.agent(name))
    if other is None or (before is not None and _work(other) == _work(before)):
        return kept
    if before is None and own.plan != other.plan:
        conflict = JoinConflict(PLAN, name, _text(own), _text(other), own.ended_us, other.ended_us)
    elif other.status != TaskStatus.DONE or (own.status == TaskStatus.DONE and own.result == other.result):
        return kept
    elif own.status != TaskStatus.DONE or (before is not None and _work(own) == _work(before)):
        found.taken.append(name)
        return _taken(ours, theirs, other, branch)
    else:
        conflict = JoinConflict(TASK, name, own.result, other.result, own.ended_us, other.ended_us)
    if _chosen(conflict, found, choose) != THEIRS:
        return kept
    found.taken.append(name)
    return _taken(ours, theirs, other, branch)


def _work(task: TaskState) -> tuple[bool, str, str]:
    """What a task has come to, as far as others can use it."""
    return task.status == TaskStatus.DONE, task.result, task.commit if task.status == TaskStatus.DONE else ""


def _text(task: TaskState) -> str:
    return str(task.plan.get("task") or " ".join(task.plan.get("command", ())))


def _taken(ours: Run, theirs: Run, task: TaskState, branch: int) -> TaskState:
    """A task of the other run: with its result if it is done, else to be done here."""
    if task.status == TaskStatus.DONE:
        return msgspec.structs.replace(task, agent=theirs.agent(task.name))
    agent = agent_name(ours.id, task.name, branch)
    return TaskState(name=task.name, plan=dict(task.plan), needs=list(task.needs), agent=agent)


def _join_questions(base: Run, ours: Run, theirs: Run, found: Joined, choose: Choose) -> None:
    asked = {id: each for id, each in ours.questions.items() if not id.startswith(JOIN)}
    for id, other in theirs.questions.items():
        own, before = asked.get(id), base.questions.get(id)
        if other.answer is None or id.startswith(JOIN) or (before is not None and before.answer == other.answer):
            continue
        if own is None:
            asked[id] = other
        elif own.answer is None:
            found.answers.append(other)
        elif own.answer != other.answer:
            conflict = JoinConflict(QUESTION, id, own.answer, other.answer, own.answered_us, other.answered_us)
            if _chosen(conflict, found, choose) == THEIRS:
                asked[id] = other
    found.content["questions"] = msgspec.to_builtins(asked)


def _chosen(conflict: JoinConflict, found: Joined, choose: Choose) -> str:
    said = decided(conflict, choose(conflict))
    found.conflicts.append(conflict)
    if not said:
        found.open.append(conflict)
    return said


def _count(tasks: Mapping[str, TaskState], found: dict[str, Any]) -> None:
    """What follows from how it stands with the tasks."""
    needed_by: dict[str, list[str]] = {}
    for name, task in tasks.items():
        task.missing = sum(need not in tasks or not tasks[need].status.is_done for need in task.needs)
        for need in task.needs:
            needed_by.setdefault(need, []).append(name)
    found["tasks"] = msgspec.to_builtins(tasks)
    found["needed_by"] = needed_by
    found["done"] = sum(task.status.is_done for task in tasks.values())
    found["running"] = sum(task.status == TaskStatus.RUNNING for task in tasks.values())
