"""Work that cannot be merged: both sides changed the same places, and somebody must say what becomes of them.

Nothing is lost meanwhile. The task's work is a commit of its own, the work of the others is not touched, and everything
that does not need this task goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from maos.model.events.run import QuestionAnswered, QuestionAsked, TaskFailed, TaskGated
from maos.model.plan import BY_AGENT
from maos.model.run import GATED, Run, TaskState
from maos.runs.outcomes import Outcome
from maos.workspaces import OTHERS, OWN

RETRY, AGENT, GIVE_UP = "retry", "agent", "give up"
CHOICES = {
    RETRY: "merge again, after you have changed something",
    OWN: "take these files as this task left them; what the others changed in them is dropped",
    OTHERS: "keep these files as the others left them; what this task changed in them is dropped",
    AGENT: "let the task's agent bring both together",
    GIVE_UP: "the task fails; resuming the run asks again",
}
FILES_SHOWN_MAX = 20
TOLD = """The work of a task could not be merged with that of others: both changed the same places. The files in this \
folder have both sides now, with conflict markers (<<<<<<<, =======, >>>>>>>) where they differ:

{files}

Bring both sides together in these files, so that what each of them wanted still works, and remove all markers. Change \
nothing else, and do not commit. The task was:

{task}"""
_MARKERS = (b"<<<<<<< ", b">>>>>>> ")


def is_open(task: TaskState) -> bool:
    """Whether a task waits for somebody to say how it is to be merged."""
    return task.status == GATED and task.failure == "merge_conflict" and not task.resolve


def first(run: Run, task: TaskState, outcome: Outcome) -> str:
    """What the plan wants done about a conflict before anybody is asked; empty when a person is asked at once."""
    is_wanted = run.options.get("conflicts") == BY_AGENT and _has_agent(task)
    return AGENT if is_wanted and outcome.files and task.resolve != AGENT else ""


def marked(tree: Path, files: Sequence[str]) -> list[str]:
    """Those files in which conflict markers are left."""
    found = []
    for name in files:
        path = tree / name
        if path.is_file() and not path.is_symlink():
            lines = path.read_bytes().split(b"\n")
            if any(line.startswith(_MARKERS) for line in lines):
                found.append(name)
    return found


def _has_agent(task: TaskState) -> bool:
    """Whether somebody did it who can be told something; a command cannot."""
    return not task.plan.get("command")


def question(task: TaskState, now_us: int) -> QuestionAsked:
    """What a person is asked. Where it was not the files that were in the way, choosing between them means nothing."""
    choices = [each for each in CHOICES if each != AGENT or _has_agent(task)] if task.conflict else [RETRY, GIVE_UP]
    files = [f"  {each}" for each in task.conflict[:FILES_SHOWN_MAX]]
    if len(task.conflict) > FILES_SHOWN_MAX:
        files.append(f"  and {len(task.conflict) - FILES_SHOWN_MAX} more")
    meanings = [f"  {name}: {CHOICES[name]}" for name in choices]
    return QuestionAsked(
        id=task.asks,
        question=f"The work of {task.name} cannot be merged ({task.why}). What is to be done?",
        choices=choices,
        asked_by=[],
        context="\n".join([*files, "The task's work is the commit", f"  {task.commit}", "Choices", *meanings]),
        at_us=now_us,
    )


def after(task: TaskState, answered: QuestionAnswered) -> TaskGated | TaskFailed:
    """What follows from a person's answer."""
    said = answered.answer.strip().lower()
    if said in CHOICES and said != GIVE_UP:
        return TaskGated(task=task.name, passed=task.gate, resolve=said, at_us=answered.at_us)
    why = task.why if said == GIVE_UP else f"{task.why}; a person said: {answered.answer}"
    return TaskFailed(task=task.name, failure="merge_conflict", why=why, at_us=answered.at_us)
