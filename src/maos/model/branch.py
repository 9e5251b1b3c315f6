"""Branches of runs: what of a run goes back in time, where two of them parted, and a checksum of what it had come to.

A run that is taken back, or forked, gets its whole content from one event (`Run._restored`), so no fold looks at
anything else. What was done after that moment stays in the journal, under the names of agents that are used no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from maos.model.checksum import checksum
from maos.model.run import GATE, Content, Run, TaskState, agent_name, asked_for
from maos.model.status import RunStatus, TaskStatus

OURS = ("workspace", "notes", "workflow")
"""Options that say where files are, and not what a run has come to."""


def content(run: Run) -> dict[str, Any]:
    """What of a run goes back in time, in plain data."""
    found: dict[str, Any] = msgspec.to_builtins({name: getattr(run, name) for name in Content.__struct_fields__})
    return found


def still_asked(questions: Mapping[str, Any], tasks: Mapping[str, TaskState], run: Run) -> dict[str, Any]:
    """The questions of a run without those that its tasks, as they are from now on, have asked and do not wait for.

    A task that is begun anew, here or in the place of another run, asks under the same ids once more; with an answer
    of before it would never be asked.
    """
    return {id: each for id, each in questions.items() if _counts(each, tasks.get(asked_for(id)), run)}


def _counts(question: Mapping[str, Any], task: TaskState | None, run: Run) -> bool:
    id = question["id"]
    if not asked_for(id) or (task is not None and task.status == TaskStatus.DONE and question["answer"] is not None):
        return True
    if task is None or not task.attempts or id not in run.questions:
        return False
    if question["answer"] is not None:
        return True
    is_gate = id.startswith(GATE)
    return task.asks == id and (not is_gate or task.plan["gates"][task.gate]["person"] == question["question"])


def digest(run: Run) -> str:
    """A checksum of what a run has come to: the same wherever and whenever, whoever does its tasks (I13, I15).

    Where its files are is none of it: they can be moved, and it can go on on another machine.

    What is empty is left out. So the checksums that were recorded still hold when there is more to know of runs.
    """
    found = content(run)
    tasks = {run.agent(name): name for name in run.tasks}
    for task in found["tasks"].values():
        del task["agent"]
    for question in found["questions"].values():
        question["asked_by"] = [tasks.get(each, each) for each in question["asked_by"]]
    found["folder"] = ""
    found["options"] = {name: value for name, value in found["options"].items() if name not in OURS}
    if run.is_open:
        found["status"] = found["why"] = ""  # whether somebody is at work on it is not what it has come to
    for name in ("tasks", "questions"):
        found[name] = {key: _told(each) for key, each in found[name].items()}
    return f"{checksum(_told(found)):032x}"


def _told(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if value}


def begin(
    then: Run, *, id: str, branch: int, workspace: Mapping[str, Any] | None, why: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """The content that a run has when it goes on from the state `then`, and the new names of agents by the old.

    What is done stays done, by whoever did it. Everything else goes on under new names: whatever those who had begun it
    still send or answer, reaches nobody. Nobody is at work on it, so it is paused unless it was over.
    """
    found = content(then)
    names = {}
    for name, task in found["tasks"].items():
        before = then.agent(name)
        task["agent"] = before if task["status"] == TaskStatus.DONE else agent_name(id, name, branch)
        names[before] = task["agent"]
    for question in found["questions"].values():
        question["asked_by"] = [names.get(each, each) for each in question["asked_by"]]
    if workspace is not None:
        found["options"]["workspace"] = dict(workspace)
    if then.status not in (RunStatus.COMPLETED, RunStatus.FAILED):
        found["status"], found["why"] = RunStatus.PAUSED.value, why
    return found, names


class Segment(NamedTuple):
    """Versions of a run that lead to a state, the first and the last."""

    run: str
    first: int
    last: int


class BranchPoint(NamedTuple):
    """A version of a run."""

    run: str
    version: int


def line_of(runs: Mapping[str, Run], run: str, version: int) -> list[Segment]:
    """What leads to a version of a run, the newest first: across what was taken back, and the runs it was forked from.

    `runs` has it and those that it comes from, as far as they are known.
    """
    found = []
    while True:
        known = runs[run]
        begun = [each for each in known.branches if each.version <= version]
        found.append(Segment(run, begun[-1].version if begun else 1, version))
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


def parted(one: Sequence[Segment], other: Sequence[Segment]) -> BranchPoint | None:
    """The last version that two lines have in common; None when they have nothing."""
    for each in one:
        for against in other:
            last = min(each.last, against.last)
            if each.run == against.run and last >= max(each.first, against.first):
                return BranchPoint(each.run, last)
    return None
