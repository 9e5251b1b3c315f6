"""A run, folded from the events of its stream `run/<id>`: the plan, and the status of each task.

All tasks of a run live in one stream, so that finishing one and beginning those that waited for it is one append (I30).
*Orchestration* and *workflow run* are the user's words for a run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, assert_never

import msgspec

from maos.model.events import run as events
from maos.model.events.parts import Owner, RunOrigin, Spent
from maos.model.status import RunStatus, TaskStatus
from maos.patterns import regex
from maos.tuples import NamedTuple

GATE, MERGE = "gate/", "merge/"
"""How the ids of questions begin that a task itself asks a person: whether its work is good, and how to merge it."""

FORMAT = 4

BRANCH = regex(r"\.b\d+(?=-|$)", re.ASCII)
"""What the name of an agent has behind that of its task when its run was rolled back before."""
OWN_TREE = regex(r"-b\d+$", re.ASCII)
"""What the name of a run's own worktree has behind its id when the run was rolled back, or joined with another."""
BESIDE = regex(r"-(gate\d+-\d+|merge\d+)$", re.ASCII)
"""How the names of agents end that check or correct the work of a task's own agent."""


def asked_for(question: str) -> str:
    """The task that itself asks a question, by the question's id; empty for one that an agent or the run asks."""
    return question.split("/")[1] if question.startswith((GATE, MERGE)) else ""


def stream(run: str) -> str:
    """The stream of a run."""
    return f"run/{run}"


def chat_stream(run: str) -> str:
    """The stream of what a person said in `maos chat` about a run. Outcomes are in the streams of the run, its agents
    and its messages, and their order in the journal tells what was said when."""
    return f"chat/{run}"


def bundle_stream(id: str) -> str:
    """The stream that says which file a run or a workflow run was imported from, and whether a person agreed to it.

    It is a stream of its own: nothing in the file can write to it, so nothing in the file can agree for a person.
    """
    return f"bundle/{id}"


def dotted(name: str) -> Iterator[str]:
    """A name, and what is before each of its dots, the longest first: the runs and workflow runs that an agent of that
    name can belong to, itself among them."""
    yield name
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def agent_name(run: str, task: str, branch: int = 0) -> str:
    """The agent that does a task of a run; `Run.agent` knows in which branch of it."""
    return f"{run}.{task}.b{branch}" if branch else f"{run}.{task}"


def _fields(event: events.RunEventBase) -> dict[str, Any]:
    """What an event says, without the command that it is the outcome of, and whose that was."""
    fields = msgspec.structs.asdict(event)
    del fields["inbox_version"], fields["by"]
    return fields


def _charge(to: TaskState | Content, spent: Spent) -> None:
    """Add what an attempt took."""
    to.cost_usd += spent.cost_usd
    to.estimated_usd += spent.estimated_usd
    to.tokens += spent.tokens
    to.unpriced_tokens += spent.unpriced_tokens


class TaskState(msgspec.Struct, kw_only=True):
    """A task of a run: its plan, status and result."""

    name: str
    plan: dict[str, Any]
    needs: list[str]
    status: TaskStatus = TaskStatus.WAITING
    attempts: int = 0
    """How many attempts were started."""
    tries: int = 0
    """How often it was released after a failure; a rate limit is not one."""
    not_before_us: int = 0
    started_us: int = 0
    ended_us: int = 0
    result: str = ""
    why: str = ""
    failure: str = ""
    traceback: str = ""
    """Where its agent failed, if that is a Python function; kept until it is retried."""
    cost_usd: float = 0.0
    estimated_usd: float = 0.0
    tokens: int = 0
    unpriced_tokens: int = 0
    used_usd: float = 0.0
    used_tokens: int = 0
    """What it has used of its own budget: since a person last resumed it."""
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
    """How its conflict is to be resolved; empty as long as there is no decision."""
    missing: int = 0
    """How many of the tasks it needs are not done."""
    worked_us: int = 0
    """How long its agents have worked, those of its checks included; without waiting for a person, and pauses."""
    edited: int = 0
    """How many attempts had been started when a person last changed its text or command."""
    agent: str = ""
    """The agent that does it, or did; empty as long as the run was never rolled back and is no fork."""
    stopping: TaskStatus | None = None
    """What it will be when its agent, which is being stopped, has ended; None when it is not being stopped."""

    @property
    def spent(self) -> Spent:
        """What its attempts took that have ended."""
        return Spent(self.cost_usd, self.estimated_usd, self.tokens, self.unpriced_tokens)

    @property
    def asks(self) -> str:
        """The id of the question whose answer it waits for; empty when it waits for no person."""
        if self.status != TaskStatus.GATED:
            return ""
        if self.failure == "merge_conflict" and not self.resolve:
            return f"{MERGE}{self.name}/{self.conflicts}"
        gates = self.plan.get("gates", ())
        is_person = self.gate < len(gates) and gates[self.gate].get("person")
        return f"{GATE}{self.name}/{self.gate}/{self.attempts}" if is_person else ""

    def retry(self) -> None:
        """Let a failed task start again, with all the tries and the budget of a new one."""
        self.status, self.tries, self.not_before_us = TaskStatus.WAITING, 0, 0
        self.used_usd, self.used_tokens, self.traceback = 0.0, 0, ""
        if self.failure == "merge_conflict" and self.commit:  # its work is done, and only the merge is not
            self.status, self.resolve, self.conflicts = TaskStatus.GATED, "", self.conflicts + 1


class Question(msgspec.Struct, kw_only=True):
    """Something that a person must answer."""

    id: str
    question: str
    choices: list[str] = []
    meanings: list[str] = []
    context: str = ""
    asked_us: int = 0
    asked_by: list[str] = []
    default: str | None = None
    expires_us: int = 0
    answer: str | None = None
    answered_us: int = 0
    answered_by: str = ""

    @classmethod
    def of(cls, event: events.QuestionAsked) -> Question:
        """The question that was asked, without an answer."""
        fields = {**_fields(event), "asked_by": list(event.asked_by)}
        return cls(asked_us=fields.pop("at_us"), **fields)

    def answer_with(self, event: events.QuestionAnswered) -> None:
        """Record the answer."""
        self.answer, self.answered_us, self.answered_by = event.answer, event.at_us, event.by


class ProposedPlan(msgspec.Struct, kw_only=True):
    """A plan that the planner of a run has made, and that no person has approved yet."""

    tasks: list[dict[str, Any]]
    summary: str = ""
    options: dict[str, Any] = {}


class Content(msgspec.Struct, kw_only=True):
    """What of a run a rollback restores: all that its tasks have come to, and nothing of who executes it."""

    status: RunStatus = RunStatus.PLANNING
    request: str = ""
    folder: str = ""
    options: dict[str, Any] = {}
    tasks: dict[str, TaskState] = {}
    questions: dict[str, Question] = {}
    ended_us: int = 0
    summary: str = ""
    why: str = ""
    done: int = 0
    running: int = 0
    cost_usd: float = 0.0
    estimated_usd: float = 0.0
    tokens: int = 0
    unpriced_tokens: int = 0
    sleeping: dict[str, int] = {}
    """Kinds of agents whose rate limit was reached, and until when they sleep or slept."""
    commit: str = ""
    """Where the merged work of finished tasks is."""
    needed_by: dict[str, list[str]] = {}
    proposal: ProposedPlan | None = None
    """The plan that waits to be approved."""

    @property
    def planner(self) -> TaskState | None:
        """The task that plans the others; None when a person gave the plan."""
        return self.tasks.get(self.options.get("planner", ""))

    @property
    def spent(self) -> Spent:
        """What was taken by all attempts that have ended."""
        return Spent(self.cost_usd, self.estimated_usd, self.tokens, self.unpriced_tokens)

    @property
    def data(self) -> dict[str, Any]:
        """The content as plain data, as events have it."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    def set_tasks(self, tasks: dict[str, TaskState]) -> None:
        """Replace the tasks, and everything that is counted of them."""
        self.tasks, self.needed_by = tasks, {}
        for name, task in tasks.items():
            task.missing = sum(need not in tasks or not tasks[need].status.is_done for need in task.needs)
            for need in task.needs:
                self.needed_by.setdefault(need, []).append(name)
        self.done = sum(task.status.is_done for task in tasks.values())
        self.running = sum(task.status == TaskStatus.RUNNING for task in tasks.values())


class Branch(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Where a branch of a run begins."""

    version: int
    to: int
    """The version whose content it begins with."""
    position: int
    at_us: int
    joined: tuple[str, int] | None = None
    """The run that was joined, and its version."""


class RunCheckpoint(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A version of a run that has a name."""

    version: int
    at_us: int
    name: str = ""
    trigger: str = ""
    commit: str = ""
    state: str = ""
    """A checksum of what the run had come to."""


class BlockedKind(NamedTuple):
    """Why no agent of a kind can work."""

    failure: str
    to_do: str


class Run(Content, kw_only=True):
    """What is known of a run."""

    id: str
    version: int = 0
    owner: Owner = {}
    created_us: int = 0
    updated_us: int = 0
    restored: int = 0
    restored_us: int = 0
    restored_from: str = ""
    checkpoints: list[RunCheckpoint] = []
    inbox_cursor: int = 0
    """The last command from the inbox that was handled."""
    branch: int = 0
    """How often it was rolled back, or joined with another run: agents of each branch have names of their own,
    so that nothing of one that was given up reaches the next (I14)."""
    branches: list[Branch] = []
    """Where each of them began: at which version, and with the state of which one."""
    origin: RunOrigin | None = None
    """The run, version and position that it was forked from."""
    blocked: dict[str, BlockedKind] = {}
    """Kinds of agents of which none is started until the run is resumed, and what a person can do about it."""
    moved: int = 0
    """The version that last recorded another folder for its files; 0 when none did."""
    given_up: Spent = Spent()
    """What the work took that rollbacks gave up: it stays spent."""
    retries_chosen: bool = False
    """Whether a person has chosen, since it was last executed, which failed tasks are retried when it is resumed."""
    removed_us: int = 0
    """When a person removed it; 0 when none did. Lists leave it out."""
    created_by: str = ""
    """The principal that started it."""
    stopped_by: str = ""
    """The principal that had it paused or cancelled; empty while it is executed, and when it ended by itself."""
    limit: str = ""
    """The limit that it has reached while it is paused for that; empty once a person has changed that limit."""

    @property
    def spent(self) -> Spent:
        """What was taken by all attempts that have ended, those of branches that were given up included."""
        return super().spent.plus(self.given_up)

    @property
    def is_open(self) -> bool:
        """Whether there may be more to do."""
        return self.status in (RunStatus.PLANNING, RunStatus.RUNNING, RunStatus.PAUSED)

    @property
    def is_going(self) -> bool:
        """Whether an engine should be executing it: it was neither paused nor has it ended."""
        return self.status in (RunStatus.PLANNING, RunStatus.RUNNING)

    @property
    def is_handed_over(self) -> bool:
        """Whether it waits for any engine to claim it."""
        return self.is_going and not self.owner

    @property
    def wakes_us(self) -> int:
        """When the last of the kinds wakes up whose rate limit was reached; a time in the past when none sleeps."""
        return max(self.sleeping.values(), default=0)

    @property
    def progress(self) -> int:
        """How far it is, in percent."""
        return 100 * self.done // len(self.tasks) if self.tasks else 0

    @property
    def times_restored(self) -> int:
        """How often an engine has resumed it: the first claim is its beginning."""
        return max(0, self.restored - 1)

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
        return agent in current or BESIDE.sub("", agent) in current

    @property
    def open_questions(self) -> list[Question]:
        """Questions without an answer."""
        return [each for each in self.questions.values() if each.answer is None]

    def apply(self, event: events.RunEvent) -> None:
        """Fold one more event in."""
        self.version += 1
        self.updated_us = event.at_us
        if event.inbox_version > self.inbox_cursor:
            self.inbox_cursor = event.inbox_version
        match event:
            case events.TaskStarted() | events.TaskEventBase():
                self._apply_to_task(event)
            case events.TaskStopping():
                self.tasks[event.task].stopping, self.tasks[event.task].why = event.then, event.why
            case events.TaskRetried():
                self._retry_task(event)
            case events.RunRemoved():
                self.removed_us = event.at_us
            case events.QuestionAsked():
                self._ask(event)
            case events.QuestionAnswered():
                self.questions[event.id].answer_with(event)
            case events.RunCreated():
                self._create(event)
            case events.PlanProposed():
                self.proposal = ProposedPlan(tasks=event.tasks, summary=event.summary, options=event.options)
            case events.RunPlanned():
                self.status = RunStatus.RUNNING
                if self.planner is not None and self.planner.status.is_done:  # else a person still reads the plan
                    self.proposal = None
                self.options = {**self.options, **event.options}
                self._add(event.tasks)
            case events.RunClaimed():
                self._claim(event)
            case events.RunResumed():
                self._resume(event)
            case events.RunHandedOver():
                self.owner = {}
            case events.RunPaused():
                self.status, self.why, self.stopped_by = RunStatus.PAUSED, event.why, event.by
                self.limit = event.limit
            case events.RunUpdated():
                self._update(event)
            case events.RunEnded():
                self.status, self.ended_us = event.status, event.at_us
                self.summary, self.why, self.stopped_by = event.summary, event.why, event.by
            case events.RunCheckpointed():
                self.checkpoints.append(RunCheckpoint(version=self.version, **_fields(event)))
            case events.RunHibernated():
                self.sleeping[event.kind] = max(event.until_us, self.sleeping.get(event.kind, 0))
            case events.RunBlocked():
                self.blocked = {**self.blocked, event.kind: BlockedKind(event.failure, event.to_do)}
            case events.RunWoken():
                self._wake(event.at_us)
            case events.RunNoteAdded():
                pass
            case events.RunRolledBack() | events.RunForked() | events.RunJoined() | events.RunFileChanged():
                self._restore(event)
            case events.RunMoved():
                self._move(event)
            case _:
                assert_never(event)

    def _create(self, event: events.RunCreated) -> None:
        self.request, self.folder, self.options = event.request, event.folder, dict(event.options)
        self.created_us, self.owner, self.created_by = event.at_us, event.owner, event.by
        self.commit, self.origin = event.commit, event.origin

    def _restore(self, event: events.RunRestored) -> None:
        """Everything as the event says, which is all that is needed: nothing before it is looked at."""
        if missing := {*Content.__struct_fields__} - {*event.state}:
            raise msgspec.ValidationError(f"the state of a run lacks {', '.join(sorted(missing))}")
        content = msgspec.convert(event.state, Content)
        for name in Content.__struct_fields__:
            setattr(self, name, getattr(content, name))
        self.branch, self.retries_chosen, self.limit = event.branch, False, ""
        if isinstance(event, events.RunForked):
            self.branches = []  # where it comes from is its origin
            return
        if isinstance(event, events.RunRolledBack) and event.given_up is not None:
            self.given_up = self.given_up.plus(event.given_up["spent"])
        joined = (event.other["run"], event.other["version"]) if isinstance(event, events.RunJoined) else None
        begun = Branch(version=self.version, to=event.to, position=event.position, at_us=event.at_us, joined=joined)
        self.branches = [*self.branches, begun]

    def _claim(self, event: events.RunClaimed) -> None:
        self.owner = event.owner
        self.options = {**self.options, **event.options}
        self.blocked = {}
        self.restored += 1
        self.restored_us, self.restored_from = event.at_us, event.source

    def _update(self, event: events.RunUpdated) -> None:
        given = event.limits.given
        own: dict[str, Any] = {name: given.pop(name) for name in ("time_limit_s", "concurrency") if name in given}
        self.options = {**self.options, **own, "budget": {**(self.options.get("budget") or {}), **given}}
        if self.limit in given:
            self.limit, self.why = "", ""

    def _resume(self, event: events.RunResumed) -> None:
        self.status, self.ended_us, self.why, self.stopped_by = RunStatus.RUNNING, 0, "", ""
        self.limit = ""
        self.retries_chosen = False
        for task in self.tasks.values() if event.retries else ():
            if task.status == TaskStatus.FAILED and task.failure != "cancelled":
                task.retry()

    def _retry_task(self, event: events.TaskRetried) -> None:
        task = self.tasks[event.task]
        task.retry()
        if event.changed:
            task.plan, task.edited, task.status = {**task.plan, **event.changed}, task.attempts, TaskStatus.WAITING
        if not self.is_going:  # no engine executes it: the one that resumes it retries these tasks and no others
            self.status, self.ended_us, self.why = RunStatus.PAUSED, 0, "retry"
            self.retries_chosen = True

    def _wake(self, at_us: int) -> None:
        self.blocked = {}
        self.sleeping = {kind: min(until_us, at_us) for kind, until_us in self.sleeping.items()}
        for task in self.tasks.values():
            if task.failure == "rate_limited":
                task.not_before_us = 0

    def _move(self, event: events.RunMoved) -> None:
        self.folder, self.moved = event.folder, self.version
        if event.workspace is not None:
            self.options = {**self.options, "workspace": event.workspace}

    def _ask(self, event: events.QuestionAsked) -> None:
        known = self.questions.get(event.id)
        if known is None:
            self.questions[event.id] = Question.of(event)
        else:
            known.asked_by += [each for each in event.asked_by if each not in known.asked_by]

    # --- tasks -----------------------------------------------------------------------------------------------

    def _apply_to_task(self, event: events.TaskStarted | events.TaskEventBase) -> None:
        task = self.tasks[event.task]
        task.stopping = None
        if task is self.planner and isinstance(event, (events.TaskReleased, events.TaskFailed, events.TaskSkipped)):
            self.proposal = None
        if isinstance(event, events.TaskStarted):
            task.status, task.attempts = TaskStatus.RUNNING, event.number
            task.started_us = task.started_us or event.at_us
            self.running += 1
            return
        if task.status == TaskStatus.RUNNING:
            self.running -= 1
        match event:
            case events.TaskReleased():
                task.status, task.why = TaskStatus.WAITING, event.why
                task.failure, task.not_before_us = event.failure, event.not_before_us
                task.tries += event.counts
            case events.TaskGated():
                self._gate(task, event)
            case events.TaskFinished():
                self._finish(task, event)
            case events.TaskFailed():
                task.status, task.ended_us = TaskStatus.FAILED, event.at_us
                task.failure, task.why, task.traceback = event.failure, event.why, event.traceback
            case events.TaskSkipped():
                task.status, task.ended_us = TaskStatus.SKIPPED, event.at_us
                task.failure, task.why = "", event.why
                self._unblock(task)
        task.worked_us += event.worked_us
        task.used_usd += event.cost_usd
        task.used_tokens += event.tokens
        for each in (task, self):
            _charge(each, event.spent)

    def _gate(self, task: TaskState, event: events.TaskGated) -> None:
        is_again = task.status == TaskStatus.GATED and task.gate == event.passed
        is_decided = event.conflict is not None or (event.resolve and not event.failure)
        task.checks = task.checks + 1 if is_again and not is_decided else 0
        task.status, task.gate = TaskStatus.GATED, event.passed
        if task is self.planner:  # a plan that is valid begins the count of those that are not anew
            task.tries = 0
        task.result = task.result if event.result is None else event.result
        task.commit = event.commit or task.commit
        task.failure, task.why = event.failure, task.why if event.why is None else event.why
        task.not_before_us = event.not_before_us
        task.tries += event.counts
        task.resolve = event.resolve
        if event.conflict is not None:
            task.conflict, task.conflicts = list(event.conflict), task.conflicts + 1

    def _finish(self, task: TaskState, event: events.TaskFinished) -> None:
        task.status, task.ended_us = TaskStatus.DONE, event.at_us
        task.result = task.result if event.result is None else event.result
        task.commit, task.failure, task.why = event.commit or task.commit, "", ""
        task.conflict, task.resolve = [], ""
        self.commit = event.merged or self.commit
        self._unblock(task)

    def _unblock(self, task: TaskState) -> None:
        """Count a task as done: those that need it need one less."""
        self.done += 1
        for name in self.needed_by.get(task.name, ()):
            self.tasks[name].missing -= 1

    def _add(self, tasks: Iterable[Mapping[str, Any]]) -> None:
        for plan in tasks:
            name, needs = plan["name"], list(plan.get("needs", ()))
            missing = sum(not self.tasks[need].status.is_done if need in self.tasks else 1 for need in needs)
            agent = agent_name(self.id, name, self.branch) if self.branch else ""
            self.tasks[name] = TaskState(name=name, plan=dict(plan), needs=needs, missing=missing, agent=agent)
            for need in needs:
                self.needed_by.setdefault(need, []).append(name)
