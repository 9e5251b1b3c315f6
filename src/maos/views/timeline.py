"""A run on a time axis: when each task was worked on, what it cost by when, and what happened to the run as a whole."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, OrderedDict

from maos.clock import Clock
from maos.journal.journal import Journal
from maos.model.events import run as events
from maos.model.events.run import RunEvent
from maos.model.read_models import RunMark
from maos.model.run import BRANCH, Run, asked_for, stream
from maos.model.status import TaskStatus
from maos.runs.service import Runs
from maos.tuples import NamedTuple

NUMBERS = "-_.0123456789"
"""What the names of tasks that are alike differ in, at their ends."""
TASKS_MAX = 600
COST_POINTS_MAX = 400
MARKS_MAX = 400
RUNS_KEPT = 8
ASKED = "asked"
"""The outcome of a time in which a task waited for a person."""


class TaskSpan(NamedTuple):
    """A time in which a task was worked on."""

    start_us: int
    end_us: int
    """0 while it is."""
    outcome: str


class RunTimeline(NamedTuple):
    """A run on a time axis."""

    run: Run
    tasks: list[str]
    """The tasks that are shown, in the order of the plan; all unless there are too many."""
    left_out: dict[str, int]
    """How many others there are, by their names without digits at their ends."""
    spans: dict[str, list[TaskSpan]]
    cost: list[tuple[int, float, int]]
    """Money and tokens of the attempts that had ended by a time."""
    marks: list[RunMark]
    end_us: int


class _Fold:
    """What was read of a run so far."""

    def __init__(self, run: str) -> None:
        self._run = run
        self.version = 0
        self.spans: dict[str, list[TaskSpan]] = {}
        self.cost: list[tuple[int, float, int]] = []
        self.marks: list[RunMark] = []
        self._usd = 0.0
        self._tokens = 0
        self._asked: dict[str, dict[str, str]] = {}
        """The tasks that wait for the answer to a question, by its id, and what was done before it."""
        self._open: set[str] = set()
        """The tasks that are worked on."""
        self._working: list[tuple[int, frozenset[str]]] = [(0, frozenset())]
        """The tasks that were worked on, from a version on."""
        self._restored: frozenset[str] = frozenset()
        """The tasks that were worked on at the point that the run was rolled back to, until an engine resumes it."""

    def apply(self, version: int, event: RunEvent) -> None:
        """Fold one more event in."""
        self.version = version
        self._apply_to_spans(event)
        if isinstance(event, events.TaskEventBase) and (event.cost_usd or event.tokens):
            self._usd += event.cost_usd
            self._tokens += event.tokens
            self.cost.append((event.at_us, self._usd, self._tokens))
        if mark := _mark(event, is_claimed=any(each.kind == "claimed" for each in self.marks)):
            self.marks.append(RunMark(event.at_us, version, *mark, event.by))
        if self._open != self._working[-1][1]:
            self._working.append((version, frozenset(self._open)))

    def _apply_to_spans(self, event: RunEvent) -> None:
        match event:
            case events.TaskStarted():
                self._close(event.task, event.at_us, "")
                self._begin(event.task, event.at_us, TaskStatus.RUNNING)
            case events.TaskGated():
                self._close(event.task, event.at_us, TaskStatus.DONE)  # its agent is; now its work is checked or merged
                self._begin(event.task, event.at_us, TaskStatus.GATED)
            case events.TaskReleased():
                self._close(event.task, event.at_us, event.failure or TaskStatus.WAITING)
            case events.TaskFinished():
                self._close(event.task, event.at_us, TaskStatus.DONE)
            case events.TaskFailed():
                self._close(event.task, event.at_us, TaskStatus.FAILED)
            case events.TaskSkipped():
                self._close(event.task, event.at_us, TaskStatus.SKIPPED)
            case events.QuestionAsked():
                for task in self._asking(event):
                    self._asked.setdefault(event.id, {})[task] = self.spans[task][-1].outcome
                    self._close(task, event.at_us, TaskStatus.DONE)  # what came before the question is
                    self._begin(task, event.at_us, ASKED)
            case events.QuestionAnswered():
                for task, before in self._asked.pop(event.id, {}).items():
                    if task in self._open and self.spans[task][-1].outcome == ASKED:
                        self._close(task, event.at_us, "")
                        self._begin(task, event.at_us, before)
            case events.RunResumed() | events.RunClaimed():
                for task in self._restored:  # its attempt is resumed: that is not recorded as a start
                    self._begin(task, event.at_us, TaskStatus.RUNNING)
                self._restored = frozenset()
        if isinstance(event, events.RunPaused | events.RunEnded | events.RunRestoredBase):
            for task in list(self._open):
                self._close(task, event.at_us, TaskStatus.WAITING)
            if isinstance(event, events.RunRolledBack):
                at = bisect_right(self._working, event.to, key=lambda each: each[0])
                self._restored = self._working[at - 1][1]

    def _asking(self, event: events.QuestionAsked) -> list[str]:
        """The tasks that wait until a question is answered: that of the check, or those of the agents that ask."""
        agents = (BRANCH.sub("", each.removeprefix(f"{self._run}.")) for each in event.asked_by)
        names = {asked_for(event.id)} if asked_for(event.id) else set(agents)
        return [name for name in sorted(names) if name in self._open]

    def _begin(self, task: str, at_us: int, outcome: str) -> None:
        self.spans.setdefault(task, []).append(TaskSpan(at_us, 0, outcome))
        self._open.add(task)

    def _close(self, task: str, at_us: int, outcome: str) -> None:
        if task in self._open:
            self._open.remove(task)
            known = self.spans[task]
            known[-1] = known[-1]._replace(end_us=at_us, outcome=outcome or known[-1].outcome)


class Timelines:
    """Reads timelines of runs; what was read of a run once is not read again."""

    def __init__(self, journal: Journal, runs: Runs, clock: Clock) -> None:
        self._journal = journal
        self._runs = runs
        self._clock = clock
        self._folds: OrderedDict[str, _Fold] = OrderedDict()

    async def read(self, id: str) -> RunTimeline:
        """The timeline of a run, as of now.

        Example::

            found = await m.timelines.read("r-1")
            print(found.spans, found.cost)
        """
        run = await self._runs.view(id)
        fold = self._folds.setdefault(run.id, _Fold(run.id))
        self._folds.move_to_end(run.id)
        if len(self._folds) > RUNS_KEPT:
            self._folds.popitem(last=False)
        async for record in self._journal.read(stream(run.id), after=fold.version):
            fold.apply(record.version, record.event)
        names, left_out = list(run.tasks), Counter[str]()
        if len(names) > TASKS_MAX:
            newest = sorted(names, key=lambda name: -_weight(run, fold, name))[:TASKS_MAX]
            chosen = set(newest)
            left_out = Counter(name.rstrip(NUMBERS) for name in names if name not in chosen)
            names = [name for name in names if name in chosen]
        return RunTimeline(
            run=run,
            tasks=names,
            left_out=left_out,
            spans={name: fold.spans.get(name, []) for name in names},
            cost=_thinned(fold.cost),
            marks=fold.marks[-MARKS_MAX:],
            end_us=run.ended_us if run.ended_us and not run.is_open else self._clock.now_us(),
        )


def _weight(run: Run, fold: _Fold, name: str) -> int:
    """How much a task has to tell: those that failed or are at work first, then those that were at work last."""
    spans = fold.spans.get(name)
    urgent = run.tasks[name].status in (TaskStatus.RUNNING, TaskStatus.GATED, TaskStatus.FAILED)
    return (1 << 62 if urgent else 0) + (spans[-1].start_us if spans else 0)


def _thinned(points: list[tuple[int, float, int]]) -> list[tuple[int, float, int]]:
    if len(points) <= COST_POINTS_MAX:
        return points
    step = len(points) / COST_POINTS_MAX
    return [points[int(n * step)] for n in range(COST_POINTS_MAX)] + points[-1:]


def _mark(event: RunEvent, *, is_claimed: bool) -> tuple[str, str] | None:
    match event:
        case events.RunCreated():
            return "created", "created"
        case events.RunClaimed():
            return "claimed", "another engine resumed it" if is_claimed else "an engine started it"
        case events.RunPlanned():
            return "planned", f"{len(event.tasks)} {'task' if len(event.tasks) == 1 else 'tasks'} planned"
        case events.RunPaused():
            return "paused", f"paused: {event.why}" if event.why else "paused"
        case events.RunResumed():
            return "resumed", "resumed"
        case events.RunCheckpointed(trigger="timer"):
            return None
        case events.RunCheckpointed():
            return "checkpoint", event.name or event.trigger or "checkpoint"
        case events.RunRolledBack():
            return "rolled_back", f"rolled back to version {event.to}"
        case events.RunForked():
            return "forked", f"forked from version {event.to}"
        case events.RunHibernated():
            return "limited", event.why or f"rate limit of {event.kind}"
        case events.RunBlocked():
            return "blocked", event.to_do
        case events.RunEnded():
            return "ended", f"{event.status}{f': {event.why}' if event.why else ''}"
        case events.QuestionAsked():
            return "asked", event.question
        case events.QuestionAnswered():
            return "answered", event.answer
        case _:
            return None
