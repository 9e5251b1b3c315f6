"""How it stands with a run (R-204): a pure function of its fold, its agents, what waits in its inbox, and who lives.

Nothing of this is recorded. Every event of a run, of its agents or of its inbox changes it at once (R-205), and after a
crash it is what it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from maos.model.attempt import Attempt, Permission
from maos.model.events.commands import PauseRequested
from maos.model.events.core import EventBase
from maos.model.events.run import QuestionAnswered, QuestionAsked
from maos.model.failure import ASK, TABLE
from maos.model.run import GATE, MERGE, Question, Run, TaskState
from maos.model.status import RunStatus, TaskStatus

INITIALIZING = "initializing"
"""It has no plan yet, or no engine has begun. Working."""
IDLE = "idle"
"""Paused. `maos resume`."""
WORKING = "working"
"""At least one agent is at work. Whatever the agents come to."""
WAITING_FOR_USER = "waiting_for_user"
"""Nobody can go on before a person has answered. `maos answer`, or `maos agent answer`."""
WAITING_FOR_TASKS = "waiting_for_tasks"
"""It waits for a time: the end of a rate limit, or the next try. Goes on by itself; `maos resume --now` at once."""
BLOCKED = "blocked"
"""What failed, a person must mend first: a login, credit, a permission, a conflict. Mend it, then `maos resume`."""
INTERRUPTED = "interrupted"
"""The process that carried it out is gone. `maos resume`; `maos recover` lists all that were."""
STATES = (
    INITIALIZING, IDLE, WORKING, WAITING_FOR_USER, WAITING_FOR_TASKS, BLOCKED, RunStatus.COMPLETED, RunStatus.FAILED,
    RunStatus.CANCELLED, INTERRUPTED,
)  # fmt: skip

ASKING_TOOL = "ask_person"
READING_TOOL = "read_messages"
NAMES_SHOWN_MAX = 3


class PendingCommands(NamedTuple):
    """What lies in a run's inbox and no engine has recorded yet."""

    questions: Mapping[str, Question] = {}
    """All questions of the run by now, with the answers that were given: those of its fold, and newer ones."""
    unrecorded: frozenset[str] = frozenset()
    """Ids of those whose question or answer only lies in the inbox."""
    pause: str = ""
    """Why somebody wants it paused; empty when nobody does."""


class SupervisorStatus(NamedTuple):
    """How it stands with a run."""

    state: str
    activity: str
    progress: int
    """In percent."""
    error: str
    """What is wrong, when something is."""
    to_do: str
    """What a person can do about it."""
    waiting: tuple[str, ...]
    """Ids of questions that nobody has answered."""
    asking: tuple[str, ...]
    """Agents that wait to be allowed something."""
    spawned: tuple[str, ...]
    """Tasks that were begun."""
    stuck: tuple[str, ...]
    """Tasks that cannot begin, since one that they need has failed."""
    until_us: int
    """When it goes on by itself; 0 when it does not wait for a time."""
    restored: int
    restored_us: int
    restored_from: str

    @property
    def needs_person(self) -> bool:
        """Whether somebody waits for a person, even if others go on (R-208)."""
        return bool(self.waiting or self.asking) or self.state in (WAITING_FOR_USER, BLOCKED)


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
    run: Run, attempts: Mapping[str, Attempt], wishes: PendingCommands, *, lives: bool, now_us: int
) -> SupervisorStatus:
    """How it stands with a run.

    `attempts` has the newest attempt of each agent that is at work, by name; `lives` is whether the engine that carries
    the run out may still live.
    """
    waiting = tuple(each.id for each in wishes.questions.values() if each.answer is None) if run.is_open else ()
    asking = tuple(name for name, each in attempts.items() if each.is_open and permissions(each)) if run.is_open else ()
    tasks = run.tasks.values()
    failed = [each for each in tasks if each.status == TaskStatus.FAILED]
    stuck = _stuck(run, failed) if run.is_open else ()
    at_work = _at_work(run, attempts, wishes, waiting)
    asleep = {kind: until_us for kind, until_us in run.sleeping.items() if until_us > now_us}
    later = [each.not_before_us for each in tasks if each.status == TaskStatus.WAITING and each.not_before_us > now_us]
    until_us = min((*asleep.values(), *later), default=0)
    state = _state(run, lives, at_work, waiting or asking, until_us, failed, stuck)
    error, to_do = _trouble(run, failed, state)
    return SupervisorStatus(
        state=state,
        activity=_activity(state, run, attempts, wishes, at_work, waiting, asking, asleep),
        progress=run.progress,
        error=error,
        to_do=to_do,
        waiting=waiting,
        asking=asking,
        spawned=tuple(each.name for each in tasks if each.attempts),
        stuck=stuck,
        until_us=until_us if state in (WAITING_FOR_TASKS, WAITING_FOR_USER) else 0,
        restored=max(0, run.restored - 1),  # the first time an engine took it is its beginning
        restored_us=run.restored_us if run.restored > 1 else 0,
        restored_from=run.restored_from if run.restored > 1 else "",
    )


def permissions(attempt: Attempt) -> list[Permission]:
    """What an agent waits to be allowed to do."""
    return [each for each in attempt.permissions.values() if each.is_open]


def agents_of(run: Run, task: TaskState) -> list[str]:
    """The agents that may be at work on a task now: its own, or one that checks it."""
    own = run.agent(task.name)
    if task.status == TaskStatus.GATED:
        return [f"{own}-gate{task.gate + 1}-{task.attempts}"]
    return [own] if task.status == TaskStatus.RUNNING else []


def _state(
    run: Run,
    lives: bool,
    at_work: Sequence[TaskState],
    person: Sequence[str],
    until_us: int,
    failed: Sequence[TaskState],
    stuck: Sequence[str],
) -> str:
    if run.status in (RunStatus.COMPLETED, RunStatus.CANCELLED):
        return run.status
    if run.status == RunStatus.FAILED:
        return BLOCKED if failed and all(_needs_person(each) for each in failed) else RunStatus.FAILED
    if run.status == RunStatus.PAUSED:
        return IDLE
    if not lives:
        return INTERRUPTED
    if run.status != RunStatus.RUNNING or not run.restored:
        return INITIALIZING
    if at_work:
        return WORKING
    if person:
        return WAITING_FOR_USER
    if until_us:
        return WAITING_FOR_TASKS
    if stuck or failed:
        return BLOCKED
    return WORKING if run.running else IDLE


def _at_work(
    run: Run, attempts: Mapping[str, Attempt], wishes: PendingCommands, waiting: Sequence[str]
) -> list[TaskState]:
    """Tasks on which somebody does something, and does not only wait for a person."""
    asked = {agent for id in waiting for agent in wishes.questions[id].asked_by}
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
    return not attempt.in_turn or any(tool.name.endswith(ASKING_TOOL) for tool in attempt.tools_open.values())


def _stuck(run: Run, failed: Sequence[TaskState]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    ahead = [each.name for each in failed]
    while ahead:
        for name in run.needed_by.get(ahead.pop(), ()):
            if name not in found:
                found[name] = None
                ahead.append(name)
    return tuple(name for name in run.tasks if name in found)


def _needs_person(task: TaskState) -> bool:
    known = TABLE.get(task.failure)
    return known is not None and known.action == ASK


def _trouble(run: Run, failed: Sequence[TaskState], state: str) -> tuple[str, str]:
    if state == RunStatus.COMPLETED:
        return "", ""
    if state == INTERRUPTED:
        return "the process that carried it out is gone", f"`maos resume {run.id}` goes on with it"
    said = "; ".join(f"{each.name}: {each.why}" for each in failed[:NAMES_SHOWN_MAX])
    if len(failed) > NAMES_SHOWN_MAX:
        said += f"; and {len(failed) - NAMES_SHOWN_MAX} more"
    hints = dict.fromkeys(TABLE[each.failure].hint for each in failed if each.failure in TABLE)
    return said or (run.why if state == RunStatus.FAILED else ""), "; ".join(each for each in hints if each)


def _activity(
    state: str,
    run: Run,
    attempts: Mapping[str, Attempt],
    wishes: PendingCommands,
    at_work: Sequence[TaskState],
    waiting: Sequence[str],
    asking: Sequence[str],
    asleep: Mapping[str, int],
) -> str:
    if wishes.pause and state not in (INTERRUPTED, IDLE):
        return "is being paused"
    match state:
        case "initializing":
            return "about to begin" if run.tasks else "being planned"
        case "working" if len(at_work) == 1:
            attempt = next((attempts[each] for each in agents_of(run, at_work[0]) if each in attempts), None)
            doing = attempt.activity if attempt is not None else ""
            return f"{at_work[0].name}: {doing}" if doing else f"{at_work[0].name} at work"
        case "working":
            return f"{_names([each.name for each in at_work])} at work" if at_work else "at work"
        case "waiting_for_user" if waiting:
            more = len(waiting) + len(asking) - 1
            return f"asks: {wishes.questions[waiting[0]].question}{f' (and {more} more)' if more else ''}"
        case "waiting_for_user":
            return f"{_names(asking)} asks for a permission"
        case "waiting_for_tasks" if asleep:
            until, kinds = datetime.fromtimestamp(min(asleep.values()) / 1e6, UTC), _names(list(asleep))
            return f"hibernating until {until:%Y-%m-%d %H:%M:%S} UTC: the rate limit of {kinds} is reached"
        case "waiting_for_tasks":
            late = next(
                (each for each in run.tasks.values() if each.status == TaskStatus.WAITING and each.not_before_us), None
            )
            return f"{late.name} waits: {late.why}" if late is not None and late.why else "waits until it may go on"
        case "idle" if run.status == RunStatus.PAUSED:
            return f"paused: {run.why}" if run.why not in ("", "asked") else "paused"
    return run.why


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMES_SHOWN_MAX])
    return shown if len(names) <= NAMES_SHOWN_MAX else f"{shown} and {len(names) - NAMES_SHOWN_MAX} more"
