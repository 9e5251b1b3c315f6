"""Folds of runs that go back and forth: pure, from events alone, and with the checksum that was recorded (I12-I15)."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from maos.engine.streams import RUN
from maos.model.branch import RunSegment, begin, digest, leads_here, line_of, parted
from maos.model.run import Run
from maos.model.status import TaskStatus
from tests.events import event

Happening = tuple[str, dict[str, Any]]
NAMES = ("a", "b", "c", "d")


def typed(happening: Happening) -> Any:
    return event(happening[0], **happening[1])


class History:
    """A run to which things happen, and what it hashed to after each of them."""

    def __init__(self) -> None:
        self.run = Run(id="r-1")
        self.events: list[Happening] = []
        self.digests = [""]
        self._clock = 0
        self.add("run_created", request="x", folder="/f", options={"kind": "shell"}, owner={"pid": 1})
        tasks = [
            {"name": name, "needs": list(NAMES[:place][-1:]), "command": ["true"]} for place, name in enumerate(NAMES)
        ]
        self.add("run_planned", tasks=tasks)

    def add(self, type_: str, **data: Any) -> None:
        self._clock += 1
        happening: Happening = (type_, json.loads(json.dumps({**data, "at_us": self._clock})))
        self.run.apply(typed(happening))
        self.events.append(happening)
        self.digests.append(digest(self.run))

    def tasks(self, *statuses: str) -> list[str]:
        return [name for name, task in self.run.tasks.items() if task.status in statuses]

    def step(self, choose: Callable[[int], int]) -> None:
        """Something that can happen now."""
        run = self.run
        can: list[Callable[[], None]] = [
            lambda: self.add("run_checkpointed", name=f"c{run.version}", commit=run.commit)
        ]
        for name in self.tasks(TaskStatus.WAITING):
            if run.tasks[name].missing == 0:
                number = run.tasks[name].attempts + 1
                can.append(lambda name=name, number=number: self.add("task_started", task=name, number=number))  # type: ignore[misc]
        for name in self.tasks(TaskStatus.RUNNING):
            cost = {"task": name, "cost_usd": 0.25, "tokens": 7}
            can += [
                lambda cost=cost: self.add(
                    "task_finished", result="done", commit="c1", merged=f"m{run.version}", **cost
                ),  # type: ignore[misc]
                lambda cost=cost: self.add("task_released", why="again", counts=True, **cost),  # type: ignore[misc]
                lambda cost=cost: self.add("task_gated", passed=0, result="well", commit="c2", **cost),  # type: ignore[misc]
                lambda cost=cost: self.add("task_failed", failure="failed", why="bad", **cost),  # type: ignore[misc]
                lambda name=name: self.add(
                    "question_asked", id=f"q{run.version}", question="?", asked_by=[run.agent(name)]
                ),  # type: ignore[misc]
            ]
        for name in self.tasks(TaskStatus.GATED):
            can.append(lambda name=name: self.add("task_finished", task=name, result="", merged=f"m{run.version}"))  # type: ignore[misc]
        for question in run.open_questions:
            can.append(lambda id=question.id: self.add("question_answered", id=id, answer="yes", by="person"))  # type: ignore[misc]
        if self.tasks(TaskStatus.FAILED):
            can.append(lambda: self.add("run_resumed"))
        can[choose(len(can)) % len(can)]()

    def back(self, to: int) -> None:
        then = self.fold(to)
        state = begin(then, id="r-1", branch=self.run.branch + 1, workspace=None, why="back")
        self.add("run_rolled_back", to=to, position=to, branch=self.run.branch + 1, state=state.data)

    def fold(self, until: int | None = None) -> Run:
        run = Run(id="r-1")
        for type_, data in self.events[:until]:
            run.apply(typed((type_, data)))
        return run


def lived(numbers: list[int], backs: list[tuple[int, int]]) -> History:
    """A history by chance: what happens, and when it is taken back to where."""
    history = History()
    left = iter(numbers)
    for number in left:
        history.step(lambda _count, number=number: number)  # type: ignore[misc]
        for when, where in backs:
            if history.run.version == when % 23 + 3:
                history.back(2 + where % (history.run.version - 1))
    return history


NUMBERS = st.lists(st.integers(0, 1_000), min_size=1, max_size=25)
BACKS = st.lists(st.tuples(st.integers(0, 22), st.integers(0, 1_000)), max_size=3)


@settings(max_examples=150, deadline=None)
@given(NUMBERS, BACKS, st.integers(0, 1_000))
def test_wherever_a_run_goes_back_to_it_is_what_it_was(
    numbers: list[int], backs: list[tuple[int, int]], to: int
) -> None:
    """I13, I14: the same checksum; what is done is still done by whoever did it, the rest by agents of new names."""
    history = lived(numbers, backs)
    to = 2 + to % (history.run.version - 1)
    then, before = history.fold(to), history.fold()
    history.back(to)
    run = history.run
    assert digest(run) == history.digests[to]
    assert run.running == len(history.tasks(TaskStatus.RUNNING))
    assert run.done == len(history.tasks(TaskStatus.DONE))
    for name, task in run.tasks.items():
        if task.status == TaskStatus.DONE:
            assert run.agent(name) == then.agent(name)
        else:
            assert run.agent(name) not in {*map(before.agent, before.tasks), *map(then.agent, then.tasks)}
            assert run.accepts_from(run.agent(name))
            assert not run.accepts_from(then.agent(name))


@settings(max_examples=100, deadline=None)
@given(NUMBERS, BACKS, st.integers(0, 1_000))
def test_a_kept_fold_and_the_rest_are_the_whole(numbers: list[int], backs: list[tuple[int, int]], at: int) -> None:
    """I12, I15: as canonical bytes, for every version at which it might have been kept."""
    history = lived(numbers, backs)
    kept = RUN.kept(RUN.keep(history.fold(1 + at % history.run.version)))
    assert kept is not None
    for type_, data in history.events[kept.version :]:
        kept.apply(typed((type_, data)))
    assert msgspec.json.encode(kept) == msgspec.json.encode(history.run) == msgspec.json.encode(history.fold())


@settings(max_examples=150, deadline=None)
@given(NUMBERS, BACKS)
def test_the_line_to_a_version_is_what_it_was_made_of(numbers: list[int], backs: list[tuple[int, int]]) -> None:
    """Every version on it, and none that was taken back; two lines of one run part at the last one on both."""
    history = lived(numbers, backs)
    run = history.run
    expected: list[int] = []
    for version, (type_, data) in enumerate(history.events, 1):
        if type_ == "run_rolled_back":
            expected = (
                expected[: expected.index(data["to"]) + 1] if data["to"] in expected else _line(history, data["to"])
            )
        expected.append(version)
    line = line_of({"r-1": run}, "r-1", run.version)
    assert [version for version in range(1, run.version + 1) if leads_here(run, version)] == expected
    found = sorted(version for each in line for version in range(each.first, each.last + 1))
    assert found == expected
    for version in range(2, run.version):
        place = parted(line, line_of({"r-1": run}, "r-1", version))
        assert place is not None
        assert place.version == max(set(_line(history, version)) & set(expected))


def _line(history: History, version: int) -> list[int]:
    """The slow way."""
    type_, data = history.events[version - 1]
    if version == 1:
        return [1]
    return [*_line(history, data["to"] if type_ == "run_rolled_back" else version - 1), version]


def test_whoever_checks_or_mends_the_work_of_an_agent_belongs_to_its_branch() -> None:
    """I14: by their names, also where a task is called as if it was one of them."""
    history = History()
    history.add("run_planned", tasks=[{"name": "e-merge1", "command": ["true"]}])
    history.back(history.run.version)
    heeded = ["r-1.a.b1", "r-1.a.b1-gate1-2", "r-1.a.b1-merge1", "r-1.e-merge1.b1", "r-2.a", "person"]
    given_up = ["r-1.a", "r-1.a-gate1-2", "r-1.a-merge1", "r-1.e-merge1", "r-1.a.b2"]
    assert [each for each in (*heeded, *given_up) if history.run.accepts_from(each)] == heeded


def test_lines_of_strangers_have_nothing_in_common() -> None:
    assert parted([RunSegment("r-1", 1, 9)], [RunSegment("r-2", 1, 9)]) is None


def test_a_checksum_that_was_recorded_holds_for_ever() -> None:
    """I16: if this changes, no checkpoint of before can be gone back to: what is new must be empty in old runs."""
    history = lived([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7], [])
    assert digest(history.run) == "5a8b8074cb9ce310e8578a9b862d5b10"


REPLAY = """
import builtins, json, socket, sys, time
import msgspec
from maos.model.branch import digest
from maos.model.events import EVENTS
from maos.model.run import Run
from maos.model.status import TaskStatus
events = json.load(sys.stdin)
def never(*_args, **_more):
    raise AssertionError("a replay asks nobody")
builtins.open = time.time = time.time_ns = socket.socket = never
run = Run(id="r-1")
for type_, data in events:
    run.apply(msgspec.convert(data, EVENTS[type_]))
print(digest(run))
"""


def test_a_replay_is_the_same_anywhere_and_asks_nobody() -> None:
    """I15: other seeds of hashes, time zones and locales; no file, clock or network."""
    history = lived([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7], [(7, 3), (12, 8)])
    assert history.run.branch == 2
    places = [("0", "UTC", "C"), ("1", "Asia/Tokyo", "de_DE.UTF-8"), ("4242", "America/New_York", "C.UTF-8")]
    for seed, zone, locale in places:
        env = {**os.environ, "PYTHONHASHSEED": seed, "TZ": zone, "LC_ALL": locale}
        done = subprocess.run(
            [sys.executable, "-c", REPLAY], input=json.dumps(history.events), capture_output=True, text=True, env=env
        )
        assert done.stdout.strip() == digest(history.run), done.stderr
