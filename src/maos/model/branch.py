"""Branches of runs: what of a run a rollback restores, where two runs parted, and a checksum of what a run has come to.

A run that is rolled back, or forked, gets its whole content from one event (`Run._restore`), so no fold reads anything
else. What was done after that point stays in the journal, under names of agents that are not used any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from maos.model.checksum import checksum
from maos.model.events.parts import WorkspaceData
from maos.model.run import GATE, Content, Question, Run, TaskState, agent_name, asked_for
from maos.model.status import RunStatus, TaskStatus

OURS = ("workspace", "notes", "workflow")
"""Options that say where files are, and not what a run has come to."""


def content(run: Run) -> Content:
    """A copy of what of a run a rollback restores."""
    return msgspec.convert(
        msgspec.to_builtins({name: getattr(run, name) for name in Content.__struct_fields__}), Content
    )


def still_asked(found: Content, run: Run) -> dict[str, Question]:
    """The questions of new content of a run, without those that its tasks asked before and do not wait for any more.

    A task that starts again, here or in the place of another run, asks under the same ids once more; with an earlier
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
    found.options = {name: value for name, value in found.options.items() if name not in OURS}
    data = found.data
    if run.is_open:
        data["status"] = data["why"] = ""  # whether an engine executes it is not what it has come to
    for name in ("tasks", "questions"):
        data[name] = {key: _told(each) for key, each in data[name].items()}
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
