"""A rate limit makes the agents of its kind sleep until it ends, whatever is killed; it is not a failure."""

import asyncio
import os
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import maos
from maos.app import Maos
from maos.clock import SystemClock
from maos.model.plan import Gate, Plan, Task
from maos.model.run import Run, TaskState
from maos.model.run_status import PendingCommands, status_of
from maos.runs import scheduler
from maos.runs.decisions import Outcome
from maos.runs.service import Runs
from maos_testing.crash import Life, crash_loop
from tests.runs import limited_life
from tests.runs.test_scheduler import Hands, m, plan, runs, until  # noqa: F401

HOUR_US = 3_600_000_000


class Limited(Hands):
    """A worker whose first try at a task, or whose first check, comes to a limit."""

    def __init__(self, wait_us: int, *, where: str = "work", tasks: str = "a") -> None:
        super().__init__()
        self.wait_us = wait_us
        self.limited: list[str] = []
        self.times_us: dict[str, int] = {}
        self._where = where
        self._tasks = tasks.split()

    def _limit(self, task: TaskState) -> Outcome | None:
        if task.name in self.limited or task.name not in self._tasks:
            return None
        self.limited.append(task.name)
        return Outcome(failure="rate_limited", message="slow down", reset_us=SystemClock().now_us() + self.wait_us)

    async def work(self, run: Run, task: TaskState) -> Outcome:
        self.times_us[task.name] = SystemClock().now_us()
        done = await super().work(run, task)
        return (self._limit(task) if self._where == "work" else None) or done

    async def check(self, run: Run, task: TaskState) -> Outcome:
        done = await super().check(run, task)
        return (self._limit(task) if self._where == "check" else None) or done


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "STAGGER_S", 0.05)


async def test_a_limit_is_not_a_try_and_whoever_looks_sees_until_when_it_sleeps(runs: Runs) -> None:  # noqa: F811
    hands = Limited(400_000)
    run = await runs.create(plan(a="", b="a"), options={"kind": "claude"})
    seen: list[Run] = []
    going = asyncio.create_task(runs.execute(run.id, worker=hands, listener=lambda now, _events: seen.append(now)))
    await until(lambda: bool(seen and seen[-1].sleeping))
    asleep = await runs.get(run.id)
    now = status_of(asleep, {}, PendingCommands(), lives=True, now_us=SystemClock().now_us())
    assert now.state == "waiting_for_tasks"
    assert now.activity.startswith("hibernating until 20")
    assert now.activity.endswith(" UTC: the rate limit of claude is reached")
    assert now.until_us == asleep.wakes_us == asleep.sleeping["claude"] == asleep.tasks["a"].not_before_us
    run = await going
    assert run.status == "completed"
    assert (run.tasks["a"].tries, run.tasks["a"].attempts) == (0, 2)
    assert hands.times_us["a"] >= asleep.wakes_us


async def test_agents_of_other_kinds_go_on_while_one_kind_sleeps(runs: Runs) -> None:  # noqa: F811
    """The limit belongs to the account behind a kind of agent; commands have none."""
    tasks = [Task(name="a", task="x"), Task(name="other", task="x", kind="codex"), Task(name="sh", command=["true"])]
    tasks.append(Task(name="same", task="x"))
    hands = Limited(HOUR_US)
    run = await runs.create(Plan(tasks=tasks), options={"kind": "claude"})
    going = asyncio.create_task(runs.execute(run.id, worker=hands, concurrency=1))
    await until(lambda: {"other", "sh"} <= set(hands.did))
    await runs.pause(run.id)
    run = await going
    assert hands.did == ["a", "other", "sh"]
    assert list(run.sleeping) == ["claude"]


async def test_those_who_wake_up_do_so_one_after_the_other(runs: Runs) -> None:  # noqa: F811
    hands = Limited(300_000, tasks="a b c")
    tasks = [Task(name=name, task="x") for name in "abcdef"]
    run = await runs.create(Plan(tasks=tasks), options={"kind": "claude"})
    run = await runs.execute(run.id, worker=hands, concurrency=3)
    assert run.status == "completed"
    woke = sorted(hands.times_us.values())
    assert woke[0] >= run.wakes_us
    assert all(later - earlier >= 40_000 for earlier, later in pairwise(woke[:3]))


@pytest.mark.parametrize("is_running", [True, False])
async def test_a_person_wakes_it_early(runs: Runs, is_running: bool) -> None:  # noqa: F811
    """Also while nobody carries it out: the wish waits for whoever does."""
    hands = Limited(HOUR_US)
    run = await runs.create(plan(a="", b="a"), options={"kind": "claude"})
    seen: list[Run] = []
    going = asyncio.create_task(runs.execute(run.id, worker=hands, listener=lambda now, _events: seen.append(now)))
    await until(lambda: bool(hands.limited))
    if not is_running:
        await runs.pause(run.id)
        await going
        assert await runs.wake(run.id)
        going = asyncio.create_task(runs.execute(run.id, worker=hands))
    else:
        await until(lambda: bool(seen and seen[-1].sleeping))
        assert hands.did == ["a"]
        assert await runs.wake(run.id)
    async with asyncio.timeout(60):
        run = await going
    assert run.status == "completed"
    assert run.wakes_us <= SystemClock().now_us()


async def test_a_new_engine_sleeps_until_the_same_moment(runs: Runs, m: Maos) -> None:  # noqa: F811
    hands = Limited(HOUR_US)
    run = await runs.create(plan(a="", b="", c="a"), options={"kind": "claude"})
    going = asyncio.create_task(runs.execute(run.id, worker=hands, concurrency=1))
    async with asyncio.timeout(60):
        while not (await runs.get(run.id)).sleeping:
            await asyncio.sleep(0.01)
    going.cancel()
    await asyncio.gather(going, return_exceptions=True)
    before = await runs.get(run.id)
    other = Runs(m.journal, SystemClock(), m.agents, worker=Hands)
    going = asyncio.create_task(other.execute(run.id, worker=hands))
    await asyncio.sleep(0.2)
    assert hands.did == ["a"]
    assert (await runs.get(run.id)).sleeping == before.sleeping
    going.cancel()
    await asyncio.gather(going, return_exceptions=True)


async def test_a_review_that_comes_to_a_limit_is_made_later_and_the_work_is_not_done_again(runs: Runs) -> None:  # noqa: F811
    hands = Limited(300_000, where="check")
    gates = [Gate(command=["true"]), Gate(review="look")]
    tasks = [Task(name="a", task="x", gates=gates[1:]), Task(name="b", task="x", gates=gates[:1])]
    run = await runs.create(Plan(tasks=tasks), options={"kind": "claude"})
    run = await runs.execute(run.id, worker=hands)
    assert run.status == "completed"
    assert sorted(hands.did) == ["a", "b"]
    assert sorted(hands.checked) == [("a", 0), ("a", 0), ("b", 0)]
    assert list(run.sleeping) == ["claude"]


async def test_a_reset_that_lies_in_the_past_is_not_believed(runs: Runs) -> None:  # noqa: F811
    hands = Limited(-HOUR_US)
    run = await runs.create(plan(a=""), options={"kind": "claude"})
    going = asyncio.create_task(runs.execute(run.id, worker=hands))
    await until(lambda: bool(hands.limited))
    await asyncio.sleep(0.1)
    assert hands.did == ["a"]
    await runs.pause(run.id)
    run = await going
    assert run.wakes_us > SystemClock().now_us() + 100_000_000


async def test_a_limit_that_ended_while_no_engine_was_there_is_over(runs: Runs) -> None:  # noqa: F811
    class Late(Hands):
        async def work(self, run: Run, task: TaskState) -> Outcome:
            done = await super().work(run, task)
            now_us = SystemClock().now_us()
            limit = Outcome(failure="rate_limited", reset_us=now_us - HOUR_US, at_us=now_us - 2 * HOUR_US)
            return limit if task.attempts == 1 else done

    run = await runs.create(plan(a=""), options={"kind": "claude"})
    async with asyncio.timeout(60):
        run = await runs.execute(run.id, worker=Late())
    assert (run.status, run.tasks["a"].tries) == ("completed", 0)


async def test_the_command_resume_wakes_a_run_that_another_process_carries_out(
    engine_m: Maos, tmp_path: Path, home: Path
) -> None:
    hands = Limited(HOUR_US)
    run = await engine_m.runs.create(plan(a=""), options={"kind": "claude"})
    seen: list[Run] = []
    listener = lambda now, _events: seen.append(now)  # noqa: E731
    going = asyncio.create_task(engine_m.runs.execute(run.id, worker=hands, listener=listener))
    await until(lambda: bool(seen and seen[-1].sleeping))
    argv = [sys.executable, "-m", "maos", "--db", str(tmp_path / "engine.db"), "resume", run.id, "--now"]
    state = {"XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]}  # with the note whose database it is
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), **state}
    command = await asyncio.create_subprocess_exec(*argv, env=environment, stdout=asyncio.subprocess.PIPE)
    said, _ = await command.communicate()
    assert (command.returncode, said.decode()) == (0, f"{run.id} is woken; another engine executes it\n")
    async with asyncio.timeout(60):
        assert (await going).status == "completed"
    assert not await engine_m.runs.wake(run.id)


@pytest.mark.timeout(300)
async def test_an_engine_killed_at_any_point_sleeps_as_long_as_it_should(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-201: whoever goes on begins nothing of the limited kind before its time."""
    monkeypatch.setenv("MAOS_CRASH_ONLY", "run:after")

    def argv_for(number: int) -> list[str | Path]:
        folder = tmp_path / str(number)
        folder.mkdir(exist_ok=True)
        return [sys.executable, limited_life.__file__, folder / "maos.db", folder]

    async def check(life: Life) -> None:
        folder = tmp_path / str(life.number)
        run = await limited_life.live(str(folder / "maos.db"), folder)
        assert run.status == "completed"
        assert [each.tries for each in run.tasks.values()] == [0] * 5
        async with maos.open(folder / "maos.db") as opened:
            records = [record async for record in opened.journal.read(f"run/{run.id}")]
        [limit] = [record for record in records if record.type == "run_hibernated"]
        assert limit.data["kind"] == "claude"
        begun = [record for record in records if record.type == "task_started" and record.version > limit.version]
        agents = [record.data["at_us"] for record in begun if record.data["task"] in "abc"]
        assert agents
        assert min(agents) >= limit.data["until_us"], "an agent of a kind that sleeps was begun"

    lives = await crash_loop(argv_for, check)
    assert len(lives) > 5
    assert lives[-1].acks == ["completed"]
