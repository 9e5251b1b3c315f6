"""A plan file that has changed since its run began: what of it still fits, and resuming with the new one.

A run has its plan in the journal, so the file as it was is never needed to finish what was begun. The new one can be
taken in its place if all that was done is done in it too. One event says what the run is from then on; what has not
changed stays with the agents that do it, and what has is begun by others, so nothing is done twice or half.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from maos.clock import Clock
from maos.engine.streams import own_run
from maos.errors import InvalidInput
from maos.journal.journal import Journal
from maos.model.branch import content, still_asked
from maos.model.events.parts import Spent
from maos.model.events.run import RunFileChanged
from maos.model.plan import ASK, BadPlan, Plan, Task, checked
from maos.model.plan_file import Origin, origin
from maos.model.run import Run, TaskState, agent_name
from maos.model.status import RunStatus, TaskStatus
from maos.model.workflow import WorkflowChanged
from maos.plans.parser import ParsedPlan, parse
from maos.plans.source import load
from maos.runs import agent_types
from maos.runs.plan_input import known_types
from maos.tuples import NamedTuple

KEEP, REPLAY, REFUSE = "keep", "replay", "refuse"
"""What to do about a file that has changed: finish with the old one, resume with the new one, or neither."""

SAME, CHANGED, GONE, WRONG = "same", "changed", "gone", "wrong"
STATES = {CHANGED: "has changed since", GONE: "cannot be read any more", WRONG: "has changed since, and is wrong"}
"""How a file is now, in a sentence."""

_WORK = ("task", "agent", "kind", "command", "mcp", "model", "tools")
"""What a step does. Limits, the priority and what it needs say when and for how long."""


class Misfit(NamedTuple):
    """A step for which the new file comes too late."""

    step: str
    why: str


class Changes(NamedTuple):
    """What a new file means for a run."""

    added: Sequence[str] = ()
    changed: Sequence[str] = ()
    removed: Sequence[str] = ()
    misfits: Sequence[Misfit] = ()
    settings: Sequence[str] = ()
    """What is said of the whole run, such as its concurrency."""

    def __bool__(self) -> bool:
        return any(self)


def origin_of(parsed: ParsedPlan) -> Origin:
    """What a run keeps of the file that it is made from."""
    source = parsed.source
    return Origin(
        str(Path(source.name).absolute()), _digest(source.text), source.title(parsed.file.name), dict(source.variables),
        [task.name for task in parsed.plan.tasks],
    )  # fmt: skip


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Look(NamedTuple):
    """Whether the file of a run has changed, and how."""

    origin: Origin
    state: str
    """same: what it says has not changed · changed: it has · gone: it cannot be read · wrong: it is no plan now."""
    changes: Changes = Changes()
    what: str = ""
    """Why it cannot be read, or what is wrong with it."""

    def describe(self, run: Run) -> str:
        """A sentence about a file that is not the same any more."""
        why = f": {self.what}" if self.state == WRONG else ""
        return f"{Path(self.origin.file).name}, which {run.id} was made from, {STATES[self.state]}{why}"


def ways(run: Run) -> str:
    """What a person can do about a file that has changed."""
    return (
        f"`maos workflow resume {run.id}` finishes with the file as it was, and with --on-change replay takes the new "
        "one if that fits; --dry-run shows what would be done"
    )


def look(run: Run) -> Look | None:
    """Compare a run with the file that it was made from; None when it was made from none."""
    made_from = origin(run)
    if made_from is None:
        return None
    try:
        source = load(made_from.file, made_from.variables)
    except InvalidInput as error:
        return Look(made_from, GONE, what=error.what)
    if _digest(source.text) == made_from.digest:
        return Look(made_from, SAME)
    try:
        changes = compare(run, made_from, parse(source))
    except BadPlan as error:
        return Look(made_from, WRONG, what=error.what)
    return Look(made_from, CHANGED if changes else SAME, changes)


def reread(made_from: Origin, agents: Collection[str] | None = None) -> ParsedPlan:
    """The file as it is now, with the variables that were given then; InvalidInput when it is no plan."""
    return parse(load(made_from.file, made_from.variables), agents=agents)


def compare(run: Run, made_from: Origin, read: ParsedPlan) -> Changes:
    """Compare what a run has done with its file as it is now."""
    new = {task.name: task for task in read.plan.tasks}
    removed, changed, misfits = [], [], []
    for name, state in run.tasks.items():
        why = _misfit(run, made_from, state, new.get(name))
        if why:
            misfits.append(Misfit(name, why))
        elif name not in made_from.steps:
            continue
        elif name not in new:
            removed.append(name)
        elif _plan(state) != new[name]:
            changed.append(name)
    added = [name for name in new if name not in run.tasks]
    settings = [name for name, value in _settings(read).items() if run.options.get(name, ASK) != value]
    return Changes(tuple(added), tuple(changed), tuple(removed), tuple(misfits), tuple(settings))


def _settings(read: ParsedPlan) -> dict[str, Any]:
    return {"conflicts": read.plan.conflicts, **read.options}


def _plan(state: TaskState) -> Task:
    return msgspec.convert(state.plan, Task)


def _misfit(run: Run, made_from: Origin, state: TaskState, new: Task | None) -> str:
    """Why a task cannot be what the new file says it is, or leaves out; empty when it can."""
    if state.name not in made_from.steps:
        return "the run was given another task of that name" if new is not None else ""
    begun = "is done" if state.status == TaskStatus.DONE else "has begun"
    if new is None:
        return f"{begun}, and the file has it no more" if state.attempts else ""
    old = _plan(state)
    if old == new or state.status not in (TaskStatus.DONE, TaskStatus.RUNNING, TaskStatus.GATED):
        return ""
    if _work(old) != _work(new):
        return f"{begun} as {_said(old)!r}, and is {_said(new)!r} now"
    if old.gates[: state.gate] != new.gates[: state.gate] or (
        state.status == TaskStatus.DONE and len(new.gates) > len(old.gates)
    ):
        return f"{begun}, and has other gates now"
    missing = [need for need in new.needs if need not in run.tasks or not run.tasks[need].status.is_done]
    return f"{begun}, and needs {', '.join(missing)} now" if missing else ""


def _work(task: Task) -> list[Any]:
    return [getattr(task, name) for name in _WORK]


def _said(task: Task) -> str:
    return shlex.join(task.command) if task.command else task.task


async def apply(journal: Journal, clock: Clock, run: Run, on_change: str) -> tuple[Run, Look | None]:
    """Apply what was said about a file that has changed; the run that is resumed, and how the file differs, if it does.

    WorkflowChanged when the run is not to be resumed, or the new file does not fit.
    """
    found = look(run)
    if found is None or found.state == SAME:
        return run, None
    if on_change == REFUSE:
        raise WorkflowChanged(found.describe(run), hint=ways(run))
    if on_change == REPLAY:
        types = known_types(run)
        read = reread(found.origin, types)
        run = await adopt(journal, clock, run, read, agents=agent_types.to_data(read.plan, types))
    return run, found


async def adopt(journal: Journal, clock: Clock, run: Run, read: ParsedPlan, *, agents: Mapping[str, Any]) -> Run:
    """Make the file as it is now the plan of a run; WorkflowChanged when what it has done does not fit.

    No process executes it meanwhile. `agents` are the types of agents that the new plan names.
    """
    async with own_run(journal, clock, run) as recorder:
        run = recorder.fold
        made_from = origin(run)
        assert made_from is not None
        changes = compare(run, made_from, read)
        if changes.misfits:
            what = "; ".join(f"{step} {why}" for step, why in changes.misfits)
            raise WorkflowChanged(
                f"{made_from.file} as it is now does not fit what {run.id} has done: {what}",
                hint=f"`maos workflow resume {run.id}` finishes with the file as it was; "
                f"`maos rollback {run.id}` returns to before a step; or change the file back there",
            )
        later = [_plan(state) for name, state in run.tasks.items() if name not in made_from.steps]
        plan = checked(msgspec.structs.replace(read.plan, tasks=[*read.plan.tasks, *later]))
        changed = RunFileChanged(
            to=run.version,
            position=await journal.head(),
            branch=run.branch + 1,
            file=Path(made_from.file).name,
            added=list(changes.added),
            changed=list(changes.changed),
            removed=list(changes.removed),
            state=_state(run, plan, read, agents),
            by=journal.by,
            at_us=clock.now_us(),
        )
        await recorder.append(changed)
        return run


def _state(run: Run, plan: Plan, read: ParsedPlan, agents: Mapping[str, Any]) -> dict[str, Any]:
    found, made_from = content(run), origin_of(read)
    found.set_tasks({task.name: _task(run, task) for task in plan.tasks})
    found.options = {**run.options, **made_from.option(), **_settings(read)}
    found.options["agents"] = {**agents, **(run.options.get("agents") or {})}
    found.questions = still_asked(found, run)
    if found.done < len(found.tasks):
        found.status, found.ended_us, found.why = RunStatus.PAUSED, 0, f"{Path(made_from.file).name} has changed"
    return found.data


def _task(run: Run, task: Task) -> TaskState:
    """The state of a task: as before, unless it is new, or was to be retried and has changed."""
    plan, needs = msgspec.to_builtins(task), list(task.needs)
    known = run.tasks.get(task.name)
    is_retried = known is not None and known.status in (TaskStatus.WAITING, TaskStatus.FAILED)
    if known is None or (is_retried and _work(_plan(known)) != _work(task)):
        found = TaskState(name=task.name, plan=plan, needs=needs, agent=agent_name(run.id, task.name, run.branch + 1))
        if known is not None:
            for name in Spent.__struct_fields__:
                setattr(found, name, getattr(known, name))
        return found
    return msgspec.structs.replace(known, plan=plan, needs=needs, agent=run.agent(task.name))
