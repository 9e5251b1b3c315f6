"""Branches of runs: what of a run a rollback restores, a checksum of what a run has come to, where two runs parted, and
how they are joined.

A run that is rolled back, or forked, gets its whole content from one event (`Run._restore`), so no fold reads anything
else. What was done after that point stays in the journal, under names of agents that are not used any more.

Joining two runs that come from one is a three-way comparison of their tasks and questions. What only one side changed
since they parted is taken from that side. Where both did, a person or a policy chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from maos.model.checksum import checksum
from maos.model.events.parts import Spent, WorkspaceData
from maos.model.events.run import QuestionAnswered
from maos.model.run import GATE, Content, Question, Run, TaskState, agent_name, asked_for
from maos.model.status import RunStatus, TaskStatus
from maos.tuples import NamedTuple

PLACES = ("workspace", "notes", "workflow")
"""Options that say where files are, and not what a run has come to."""
OURS, THEIRS, NEWEST = CHOICES = ("ours", "theirs", "newest")
JOIN = "join/"
"""How the ids of questions begin that a person answers to have two runs joined."""
TASK, PLAN, QUESTION, FILES = "task", "plan", "question", "files"


def content(run: Run) -> Content:
    """A copy of what of a run a rollback restores."""
    return msgspec.convert(
        msgspec.to_builtins({name: getattr(run, name) for name in Content.__struct_fields__}), Content
    )


def still_asked(found: Content, run: Run) -> dict[str, Question]:
    """The questions of new content of a run, without those that its tasks asked before and do not wait for any more.

    A task that starts again, in this run or after a join, asks under the same ids once more; with an earlier
    answer it would never be asked.
    """
    return {id: each for id, each in found.questions.items() if _counts(each, found.tasks.get(asked_for(id)), run)}


def _counts(question: Question, task: TaskState | None, run: Run) -> bool:
    id = question.id
    if not asked_for(id) or (task is not None and task.status == TaskStatus.DONE and question.answer is not None):
        return True
    if task is None or not task.attempts or id not in run.questions:
        return False
    if question.answer is not None:
        return True
    is_gate = id.startswith(GATE)
    return task.asks == id and (not is_gate or task.plan["gates"][task.gate]["person"] == question.question)


def digest(run: Run) -> str:
    """A checksum of what a run has come to: the same on every machine, whichever agents do its tasks (I13, I15).

    Where its files are does not count: they can be moved, and it can be resumed on another machine. What is empty is
    left out, so the checksums that were recorded still hold when more is known of runs.
    """
    found = content(run)
    tasks = {run.agent(name): name for name in run.tasks}
    for task in found.tasks.values():
        task.agent = ""
    for question in found.questions.values():
        question.asked_by = [tasks.get(each, each) for each in question.asked_by]
    found.folder = ""
    found.options = {name: value for name, value in found.options.items() if name not in PLACES}
    data = found.data
    if run.is_open:
        data["status"] = data["why"] = ""  # whether an engine executes it is not what it has come to
    data["tasks"] = {key: _told(each) for key, each in data["tasks"].items()}
    data["questions"] = {key: _told(each) for key, each in data["questions"].items() if not key.startswith(JOIN)}
    return f"{checksum(_told(data)):032x}"


def _told(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if value}


def begin(then: Run, *, id: str, branch: int, workspace: WorkspaceData | None, why: str) -> Content:
    """The content of a run that resumes from the state `then`.

    What is done stays done, by the same agents. Everything else is done under new names, so that what the agents of the
    branch that is given up still send or answer reaches no one. No engine executes it, so it is paused unless it was
    over.
    """
    found = content(then)
    names = {}
    for name, task in found.tasks.items():
        before = then.agent(name)
        task.agent = before if task.status == TaskStatus.DONE else agent_name(id, name, branch)
        names[before] = task.agent
    for question in found.questions.values():
        question.asked_by = [names.get(each, each) for each in question.asked_by]
    if workspace is not None:
        found.options["workspace"] = workspace
    if then.status not in (RunStatus.COMPLETED, RunStatus.FAILED):
        found.status, found.why = RunStatus.PAUSED, why
    return found


class RunSegment(NamedTuple):
    """Versions of a run that lead to a state, the first and the last."""

    run: str
    first: int
    last: int


class BranchPoint(NamedTuple):
    """A version of a run."""

    run: str
    version: int


def line_of(runs: Mapping[str, Run], run: str, version: int) -> list[RunSegment]:
    """What leads to a version of a run, the newest first: across rollbacks, and the runs it was forked from.

    `runs` has it and those that it comes from, as far as they are known.
    """
    found = []
    while True:
        known = runs[run]
        begun = [each for each in known.branches if each.version <= version]
        found.append(RunSegment(run, begun[-1].version if begun else 1, version))
        if begun:
            version = begun[-1].to
        elif known.origin and known.origin["run"] in runs:
            run, version = known.origin["run"], known.origin["version"]
        else:
            return found


def leads_here(run: Run, version: int) -> bool:
    """Whether a version of a run is one that it comes from, and not of a branch that was given up."""
    alone = msgspec.structs.replace(run, origin=None)
    return any(each.first <= version <= each.last for each in line_of({run.id: alone}, run.id, run.version))


def parted(one: Sequence[RunSegment], other: Sequence[RunSegment]) -> BranchPoint | None:
    """The last version that two lines have in common; None when they have nothing."""
    for each in one:
        for against in other:
            last = min(each.last, against.last)
            if each.run == against.run and last >= max(each.first, against.first):
                return BranchPoint(each.run, last)
    return None


# --- joining -----------------------------------------------------------------------------------------------------


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
    def id(self) -> str:
        """What the question about it is called, after the runs it is about."""
        return f"{self.kind}/{self.name}" if self.name else self.kind


class Joined(NamedTuple):
    """Both sides together."""

    content: Content
    taken: list[str]
    """Tasks that are as the other run has them."""
    added: list[str]
    """Tasks that only the other run had."""
    conflicts: list[JoinConflict]
    chosen: dict[str, str]
    """Which side counts, by the id of each conflict that is decided; while one is not, the content is of no use."""
    answers: list[QuestionAnswered]
    """Answers that only the other run has, to what this one still asks."""


Choose = Callable[[JoinConflict], str]
"""Which side counts, or the newest; empty as long as there is no decision."""


def join(base: Run, ours: Run, theirs: Run, *, files: JoinConflict | None, branch: int, choose: Choose) -> Joined:
    """What our run becomes when the other one is joined to it. Work that the other has not finished stays there.

    `files` are those that both have changed.
    """
    found = Joined(content(ours), [], [], [], {}, [])
    made = found.content
    _join_questions(base, theirs, found, choose)
    names = dict.fromkeys((*ours.tasks, *theirs.tasks))
    made.set_tasks({name: _joined_task(base, ours, theirs, name, branch, found, choose) for name in names})
    if files is not None:
        _chosen(files, found, choose)
    made.questions = still_asked(made, ours)
    found.answers[:] = [each for each in found.answers if each.id in made.questions]
    for name in Spent.__struct_fields__:
        setattr(made, name, getattr(ours, name) + max(0, getattr(theirs, name) - getattr(base, name)))
    both = {*ours.sleeping, *theirs.sleeping}
    made.sleeping = {kind: max(ours.sleeping.get(kind, 0), theirs.sleeping.get(kind, 0)) for kind in sorted(both)}
    made.summary = ours.summary or theirs.summary
    is_done = made.done == len(made.tasks)
    made.status, made.why = (RunStatus.COMPLETED, "") if is_done else (RunStatus.PAUSED, f"joined with {theirs.id}")
    made.ended_us = max(ours.ended_us, theirs.ended_us) if is_done else 0
    return found


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


def _join_questions(base: Run, theirs: Run, found: Joined, choose: Choose) -> None:
    asked = {id: each for id, each in found.content.questions.items() if not id.startswith(JOIN)}
    for id, other in theirs.questions.items():
        own, before = asked.get(id), base.questions.get(id)
        if other.answer is None or id.startswith(JOIN) or (before is not None and before.answer == other.answer):
            continue
        if own is None:
            asked[id] = other
        elif own.answer is None:
            at_us = other.answered_us
            found.answers.append(QuestionAnswered(id=id, answer=other.answer, by=other.answered_by, at_us=at_us))
        elif own.answer != other.answer:
            conflict = JoinConflict(QUESTION, id, own.answer, other.answer, own.answered_us, other.answered_us)
            if _chosen(conflict, found, choose) == THEIRS:
                asked[id] = other
    found.content.questions = asked


def _chosen(conflict: JoinConflict, found: Joined, choose: Choose) -> str:
    """The side that an answer or a policy means; empty when it means none."""
    found.conflicts.append(conflict)
    said = choose(conflict)
    if said == NEWEST:
        said = THEIRS if conflict.theirs_us > conflict.ours_us else OURS
    if said not in (OURS, THEIRS):
        return ""
    found.chosen[conflict.id] = said
    return said
