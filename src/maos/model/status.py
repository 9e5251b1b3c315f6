"""What runs, tasks, attempts, agents, notices and workflow runs can be, and which status can follow which.

The first sentence of each text says what a status means, the rest what leads out of it. The tables are what the folds
of `maos.model` do: a test compares them with every event in every status.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class RunStatus(StrEnum):
    """What is recorded of a run."""

    PLANNING = "planning"
    """It is recorded and has no task yet. Running once it has one, which may be that of the planner."""
    RUNNING = "running"
    """An engine executes it, or should. Paused or ended."""
    PAUSED = "paused"
    """Stopped by a person, or since a limit of the whole run was reached. `maos resume` continues it."""
    COMPLETED = "completed"
    """Every task is done. `maos resume --task` adds work, and it runs again."""
    FAILED = "failed"
    """A task failed, and nothing else could be done; `why` says more. `maos resume` runs it again."""
    CANCELLED = "cancelled"
    """Ended by a person before every task was done. `maos resume` runs what is left after all."""


class SupervisorState(StrEnum):
    """What a run is, as seen from this machine (R-204)."""

    INITIALIZING = "initializing"
    """It has no plan yet, or no engine has begun. Working."""
    WORKING = "working"
    """At least one agent is at work. Whatever the agents come to."""
    WAITING_FOR_USER = "waiting_for_user"
    """Nothing continues before a person has answered. `maos answer`, or `maos agent answer`."""
    WAITING_FOR_TASKS = "waiting_for_tasks"
    """It waits for a time: the end of a rate limit, or the next try. Continues by itself; `maos resume --now` at
    once."""
    BLOCKED = "blocked"
    """What failed, a person must fix first: a login, credit, a permission, a conflict. Fix it, then `maos resume`."""
    IDLE = "idle"
    """Paused. `maos resume`."""
    INTERRUPTED = "interrupted"
    """The process that executed it has exited. `maos resume`; `maos status` lists all interrupted runs."""
    COMPLETED = "completed"
    """Every task is done. `maos resume --task` adds work, and it runs again."""
    FAILED = "failed"
    """A task failed, and nothing else could be done; `why` says more. `maos resume` runs it again."""
    CANCELLED = "cancelled"
    """Ended by a person before every task was done. `maos resume` runs what is left after all."""


class TaskStatus(StrEnum):
    """What is recorded of a task of a run."""

    WAITING = "waiting"
    """Not started, or released again. Starts when all that it needs is done, its time has come and an agent is free."""
    RUNNING = "running"
    """An agent works on it. Gated, done, waiting again after a failure that may pass, or failed."""
    GATED = "gated"
    """Its agent has finished, but its work is not checked or not merged yet. Done, or waiting again when a gate
    fails."""
    DONE = "done"
    """Finished, and its work is merged. For good: it is never started again, unless the run is rolled back."""
    FAILED = "failed"
    """Ended without success, or was cancelled; `why` says more. `maos retry` lets it wait again, and so does
    `maos resume` unless it was cancelled."""
    SKIPPED = "skipped"
    """A person decided to continue without it: those that need it can start. For good."""

    @property
    def is_done(self) -> bool:
        """Whether those that need the task can start."""
        return self in (TaskStatus.DONE, TaskStatus.SKIPPED)


class AttemptStatus(StrEnum):
    """What is recorded of an attempt."""

    PLANNED = "planned"
    """Recorded, and about to be started. Running; or failed, when its program cannot be started."""
    RUNNING = "running"
    """Its program lives. Stopping, done or failed."""
    STOPPING = "stopping"
    """Asked to end, on request or at a limit. Stopped, or failed with the limit as the reason."""
    DONE = "done"
    """Its program ended well. `maos agent resume` begins another attempt in the same session."""
    FAILED = "failed"
    """It ended badly; `failure` says why. `maos agent resume` begins another attempt."""
    STOPPED = "stopped"
    """It was stopped on request. `maos agent resume` begins another attempt."""


class AgentState(StrEnum):
    """What an agent is, as seen from this machine: its recorded status, unless the processes that it speaks of have
    exited."""

    PLANNED = "planned"
    RUNNING = "running"
    STOPPING = "stopping"
    DETACHED = "detached"
    """The agent works, and its holder keeps the output until an engine attaches. `maos agent attach`, or `maos resume`
    attaches one."""
    INTERRUPTED = "interrupted"
    """The agent has exited, and so has the engine that recorded it. `maos agent resume`, or `maos resume`."""
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_open(self) -> bool:
        """Whether its attempt has no recorded end."""
        return self not in (AgentState.DONE, AgentState.FAILED, AgentState.STOPPED)

    @property
    def meaning(self) -> str:
        """What a person should know of it; empty where the word says everything."""
        return _MEANINGS.get(self, "")


_MEANINGS = {
    AgentState.PLANNED: "about to start",
    AgentState.DETACHED: "the agent works, and its output is kept until a process attaches",
    AgentState.INTERRUPTED: "the agent has exited, and so has the process that recorded it",
}


class NoticeStatus(StrEnum):
    """What is recorded of a notice at one address."""

    PLANNED = "planned"
    """To be sent, and shown as *being sent*. Sent, failed or, when the process exits, unknown."""
    SENT = "sent"
    """The address has accepted it. For good."""
    FAILED = "failed"
    """The address did not accept it, after some tries. For good."""
    UNKNOWN = "unknown"
    """It was being sent when the process exited. It is not sent twice."""


class WorkflowStatus(StrEnum):
    """What is recorded of a workflow run."""

    RUNNING = "running"
    """Its function is at work, or waits for a time, a signal, a person or a child. Any of the others."""
    PAUSED = "paused"
    """Stopped by a person, with Ctrl+C or from elsewhere. `maos workflow resume` continues it."""
    CHANGED = "changed"
    """Its code executes other steps than those that are recorded. Runs again with code that fits: the old, or a
    patch."""
    COMPLETED = "completed"
    """Its function has returned; the result is kept. For good."""
    FAILED = "failed"
    """It has raised an error, which is kept. `maos retry` has it executed again, with finished steps kept."""
    CANCELLED = "cancelled"
    """It was cancelled. `maos retry` has it executed again."""


_R, _T, _A = RunStatus, TaskStatus, AttemptStatus

RUN_TRANSITIONS: Mapping[RunStatus, frozenset[RunStatus]] = {
    _R.PLANNING: frozenset({_R.RUNNING, _R.PAUSED, _R.COMPLETED, _R.FAILED, _R.CANCELLED}),
    _R.RUNNING: frozenset({_R.PAUSED, _R.COMPLETED, _R.FAILED, _R.CANCELLED}),
    _R.PAUSED: frozenset({_R.RUNNING, _R.COMPLETED, _R.FAILED, _R.CANCELLED}),
    _R.COMPLETED: frozenset({_R.RUNNING, _R.PAUSED}),
    _R.FAILED: frozenset({_R.RUNNING, _R.PAUSED}),
    _R.CANCELLED: frozenset({_R.RUNNING, _R.PAUSED}),
}
"""Which status of a run can follow which. A rollback, a fork or a join can make a run paused, completed or failed."""

TASK_TRANSITIONS: Mapping[TaskStatus, frozenset[TaskStatus]] = {
    _T.WAITING: frozenset({_T.RUNNING, _T.FAILED, _T.SKIPPED}),
    _T.RUNNING: frozenset({_T.WAITING, _T.GATED, _T.DONE, _T.FAILED, _T.SKIPPED}),
    _T.GATED: frozenset({_T.WAITING, _T.DONE, _T.FAILED, _T.SKIPPED}),
    _T.DONE: frozenset(),
    _T.FAILED: frozenset({_T.WAITING, _T.GATED, _T.SKIPPED}),
    _T.SKIPPED: frozenset(),
}
"""Which status of a task can follow which, unless the run is rolled back."""

ATTEMPT_TRANSITIONS: Mapping[AttemptStatus, frozenset[AttemptStatus]] = {
    _A.PLANNED: frozenset({_A.RUNNING, _A.STOPPING, _A.DONE, _A.FAILED, _A.STOPPED}),
    _A.RUNNING: frozenset({_A.STOPPING, _A.DONE, _A.FAILED, _A.STOPPED}),
    _A.STOPPING: frozenset({_A.DONE, _A.FAILED, _A.STOPPED}),
    _A.DONE: frozenset(),
    _A.FAILED: frozenset(),
    _A.STOPPED: frozenset(),
}
"""Which status of an attempt can follow which; the next attempt of the agent has a stream of its own."""
