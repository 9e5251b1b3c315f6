"""The status of a run (R-204): a pure function of its fold, its agents, the commands in its inbox, and whether its
engine lives.

Nothing of this is recorded. Every event of a run, of its agents or of its inbox changes it at once (R-205), and after a
crash it is what it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from maos.model.attempt import Attempt, Permission
from maos.model.events.commands import PauseRequested
from maos.model.events.core import EventBase
from maos.model.events.parts import Spent
from maos.model.events.run import QuestionAnswered, QuestionAsked
from maos.model.failure import ASK, TABLE
from maos.model.run import GATE, MERGE, Question, Run, TaskState
from maos.model.status import RunStatus, SupervisorState, TaskStatus
from maos.tuples import NamedTuple

NAMES_SHOWN_MAX = 3
PLAN_YOURSELF = "ask in other words with `maos run 'REQUEST'`, or write the plan yourself: `maos run -f FILE`"
"""What to do when an agent could not write a valid plan."""


class PendingCommands(NamedTuple):
    """What lies in a run's inbox and no engine has recorded yet."""

    questions: Mapping[str, Question] = {}
    """All questions of the run by now, with the answers that were given: those of its fold, and newer ones."""
    unrecorded: frozenset[str] = frozenset()
    """Ids of those whose question or answer only lies in the inbox."""
    pause: str = ""
    """Why it is to be paused; empty when no command asks for that."""


class SupervisorStatus(NamedTuple):
    """The status of a run."""

    state: SupervisorState
    activity: str
    error: str
    """What is wrong, when something is."""
    to_do: str
    """What a person can do about it."""
    waiting: tuple[str, ...]
    """Ids of questions without an answer."""
    needs_person: bool
    """Whether an agent or the run waits for a person, even if others continue (R-208)."""
    stuck: tuple[str, ...]
    """Tasks that cannot begin, since one that they need has failed."""
    until_us: int
    """When it continues by itself; 0 when it does not wait for a time."""


def pending_commands(run: Run, commands: Iterable[EventBase]) -> PendingCommands:
    """The run's questions with what lies in its inbox after the run's cursor; the first answer counts."""
    questions = dict(run.questions)
    unrecorded: set[str] = set()
    pause = ""
    for each in commands:
        match each:
            case PauseRequested():
                pause = each.why or "asked"
            case QuestionAsked() if all(
                map(run.accepts_from, each.asked_by)
            ):  # else it belongs to a branch that was given up
                known = questions.get(each.id)
                if known is None:
                    questions[each.id] = Question.of(each)
                    unrecorded.add(each.id)
                elif more := [agent for agent in each.asked_by if agent not in known.asked_by]:
                    questions[each.id] = msgspec.structs.replace(known, asked_by=[*known.asked_by, *more])
            case QuestionAnswered() if (known := questions.get(each.id)) is not None and known.answer is None:
                questions[each.id] = msgspec.structs.replace(known)
                questions[each.id].answer_with(each)
                unrecorded.add(each.id)
    return PendingCommands(questions, frozenset(unrecorded), pause if run.status == RunStatus.RUNNING else "")


def status_of(
    run: Run, attempts: Mapping[str, Attempt], pending: PendingCommands, *, lives: bool, now_us: int
) -> SupervisorStatus:
    """The status of a run.

    `attempts` has the newest attempt of each agent that is at work, by name; `lives` is whether the engine that
    executes the run may still live.
    """
    waiting = tuple(each.id for each in pending.questions.values() if each.answer is None) if run.is_open else ()
    asking = tuple(name for name, each in attempts.items() if each.is_open and permissions(each)) if run.is_open else ()
    tasks = run.tasks.values()
    failed = [each for each in tasks if each.status == TaskStatus.FAILED]
    stuck = _stuck(run, failed) if run.is_open else ()
    at_work = _at_work(run, attempts, pending, waiting)
    asleep = {kind: until_us for kind, until_us in run.sleeping.items() if until_us > now_us}
    later = [each.not_before_us for each in tasks if each.status == TaskStatus.WAITING and each.not_before_us > now_us]
    until_us = min((*asleep.values(), *later), default=0)
    state = _state(run, lives, at_work, bool(waiting or asking), until_us, failed)
    error, to_do = _trouble(run, failed, state)
    return SupervisorStatus(
        state=state,
        activity=_activity(state, run, attempts, pending, at_work, waiting, asking, asleep),
        error=error,
        to_do=to_do,
        waiting=waiting,
        needs_person=bool(waiting or asking or run.blocked) or state == SupervisorState.BLOCKED,
        stuck=stuck,
        until_us=until_us if state in (SupervisorState.WAITING_FOR_TASKS, SupervisorState.WAITING_FOR_USER) else 0,
    )


def permissions(attempt: Attempt) -> list[Permission]:
    """What an agent waits to be allowed to do."""
    return [each for each in attempt.permissions.values() if each.is_open]


def agents_of(run: Run, task: TaskState) -> list[str]:
    """The agents that may be at work on a task now: its own, or one that checks it."""
    if task.status == TaskStatus.GATED:
        return [f"{run.agent(task.name)}-gate{task.gate + 1}-{task.attempts}"]
    return [run.agent(task.name)] if task.status == TaskStatus.RUNNING else []


def spent_of(run: Run, attempts: Mapping[str, Attempt]) -> Spent:
    """What a run has taken by now: with what agents at work took, by their names, whose outcomes it does not know."""
    found = run.spent
    for task in run.tasks.values() if attempts else ():
        known = task.checks if task.status == TaskStatus.GATED else task.attempts - 1
        for agent in agents_of(run, task):
            attempt = attempts.get(agent)
            if attempt is not None and attempt.number > known:
                found = found.plus(attempt.spent)
    return found


def _state(
    run: Run, lives: bool, at_work: Sequence[TaskState], person: bool, until_us: int, failed: Sequence[TaskState]
) -> SupervisorState:
    if run.status in (RunStatus.COMPLETED, RunStatus.CANCELLED):
        return SupervisorState(run.status)
    if run.status == RunStatus.FAILED:
        needs_person = failed and all(each.failure in TABLE and TABLE[each.failure].action == ASK for each in failed)
        return SupervisorState.BLOCKED if needs_person else SupervisorState.FAILED
    if run.status == RunStatus.PAUSED:
        return SupervisorState.BLOCKED if run.blocked else SupervisorState.IDLE
    if not lives:
        return SupervisorState.INTERRUPTED
    if run.status != RunStatus.RUNNING or not run.restored or run.is_handed_over:
        return SupervisorState.INITIALIZING
    if at_work:
        return SupervisorState.WORKING
    if person:
        return SupervisorState.WAITING_FOR_USER
    if until_us:
        return SupervisorState.WAITING_FOR_TASKS
    if failed:
        return SupervisorState.BLOCKED
    return SupervisorState.WORKING if run.running else SupervisorState.IDLE


def _at_work(
    run: Run, attempts: Mapping[str, Attempt], pending: PendingCommands, waiting: Sequence[str]
) -> list[TaskState]:
    """Tasks whose agents do something, and do not only wait for a person."""
    asked = {agent for id in waiting for agent in pending.questions[id].asked_by}
    gates = {id.split("/")[1] for id in waiting if id.startswith((GATE, MERGE))}
    found = []
    for task in run.tasks.values():
        if task.status not in (TaskStatus.RUNNING, TaskStatus.GATED) or task.name in gates:
            continue
        known = [attempts[each] for each in agents_of(run, task) if each in attempts]
        if not known or not all(_waits(each, asked) for each in known):
            found.append(task)
    return found


def _waits(attempt: Attempt, asked: set[str]) -> bool:
    if attempt.is_open and permissions(attempt):
        return True
    if attempt.agent not in asked:
        return False
    return not attempt.in_turn or attempt.asks_person


def _stuck(run: Run, failed: Sequence[TaskState]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    ahead = [each.name for each in failed]
    while ahead:
        for name in run.needed_by.get(ahead.pop(), ()):
            if name not in found:
                found[name] = None
                ahead.append(name)
    return tuple(name for name in run.tasks if name in found)


def _trouble(run: Run, failed: Sequence[TaskState], state: SupervisorState) -> tuple[str, str]:
    if state == SupervisorState.COMPLETED:
        return "", ""
    if state == SupervisorState.INTERRUPTED:
        return "the process that executed it has exited", f"`maos resume {run.id}` resumes it"
    kinds = [f"{kind}: {TABLE[each.failure].meaning}" for kind, each in run.blocked.items()]
    said = "; ".join([*kinds, *(f"{each.name}: {each.why}" for each in failed[:NAMES_SHOWN_MAX])])
    if len(failed) > NAMES_SHOWN_MAX:
        said += f"; and {len(failed) - NAMES_SHOWN_MAX} more"
    first: dict[str, TaskState] = {}
    for each in failed:
        if each.failure in TABLE:
            first.setdefault(TABLE[each.failure].hint, each)
    known = [advice(run, each) for each in first.values()]
    hints = dict.fromkeys([*(each.to_do for each in run.blocked.values()), *known])
    return said or (run.why if state == SupervisorState.FAILED else ""), "; ".join(each for each in hints if each)


def advice(run: Run, task: TaskState) -> str:
    """What a person can do about the failure of a task, with its id in the commands; empty when nothing is known."""
    if task is run.planner and task.failure == "gate_failed":
        return PLAN_YOURSELF
    known = TABLE.get(task.failure)
    hint = known.hint if known is not None else ""
    for verb, command in (("agent logs", "logs"), ("retry", "retry")):
        hint = hint.replace(f"`maos {verb}`", f"`maos {command} {run.id}/{task.name}`")
    return hint


def _activity(
    state: SupervisorState,
    run: Run,
    attempts: Mapping[str, Attempt],
    pending: PendingCommands,
    at_work: Sequence[TaskState],
    waiting: Sequence[str],
    asking: Sequence[str],
    asleep: Mapping[str, int],
) -> str:
    if pending.pause and state not in (SupervisorState.INTERRUPTED, SupervisorState.IDLE):
        return "is being paused"
    match state:
        case SupervisorState.INITIALIZING if run.is_handed_over:
            return "waits for an engine: `maos serve` executes it"
        case SupervisorState.INITIALIZING:
            return "about to begin" if run.tasks else "being planned"
        case SupervisorState.WORKING if len(at_work) == 1:
            attempt = next((attempts[each] for each in agents_of(run, at_work[0]) if each in attempts), None)
            doing = attempt.activity if attempt is not None else ""
            return f"{at_work[0].name}: {doing}" if doing else f"{at_work[0].name} at work"
        case SupervisorState.WORKING:
            return f"{_names([each.name for each in at_work])} at work" if at_work else "at work"
        case SupervisorState.WAITING_FOR_USER if waiting:
            more = len(waiting) + len(asking) - 1
            return f"asks: {pending.questions[waiting[0]].question}{f' (and {more} more)' if more else ''}"
        case SupervisorState.WAITING_FOR_USER:
            return f"{_names(asking)} asks for a permission"
        case SupervisorState.WAITING_FOR_TASKS if asleep:
            until, kinds = datetime.fromtimestamp(min(asleep.values()) / 1e6, UTC), _names(list(asleep))
            return f"hibernating until {until:%Y-%m-%d %H:%M:%S} UTC: the rate limit of {kinds} is reached"
        case SupervisorState.WAITING_FOR_TASKS:
            late = next(
                (each for each in run.tasks.values() if each.status == TaskStatus.WAITING and each.not_before_us), None
            )
            return f"{late.name} waits: {late.why}" if late is not None and late.why else "waits until it may continue"
        case SupervisorState.IDLE if run.status == RunStatus.PAUSED:
            return f"paused: {run.why}" if run.why not in ("", "asked") else "paused"
    return run.why


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMES_SHOWN_MAX])
    return shown if len(names) <= NAMES_SHOWN_MAX else f"{shown} and {len(names) - NAMES_SHOWN_MAX} more"
