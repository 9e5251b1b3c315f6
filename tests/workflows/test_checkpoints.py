"""How often a workflow is made safe (R-1002), and what is called again after a crash under each policy."""

import asyncio
import contextlib
import os
import signal as signals
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.journal.journal import Journal
from maos.workflows import checkpoint, gate, publish
from maos.workflows.record import FREQUENCIES, CheckpointPolicy
from maos_testing.manual_clock import ManualClock
from tests.workflows import policy_life
from tests.workflows.conftest import Engine
from tests.workflows.define import eventually, workflow

FIRST_AGAIN = {
    "every_step": 8,  # the one that was interrupted
    "every_n_steps": 7,  # a checkpoint after 6
    "on_gates": 5,  # a question after 4
    "time_based": 5,  # no checkpoint within the interval, but what goes before a question is always on disk
    "manual": 5,
}


@pytest.mark.parametrize("frequency", FREQUENCIES)
async def test_after_a_kill_only_idempotent_steps_since_the_last_checkpoint_are_called_again(
    tmp_path: Path, frequency: str
) -> None:
    """R-1002, I31: eight idempotent steps, killed at the end of the eighth; a question after the fourth."""
    database, effects = tmp_path / "maos.db", tmp_path / "effects"
    options = {"frequency": frequency, "every": 3, "interval_s": 3600}
    command = [sys.executable, policy_life.__file__, database, effects, frequency, "die"]
    died = await asyncio.to_thread(subprocess.run, command, capture_output=True, timeout=60)
    assert died.returncode == -signals.SIGKILL, died.stderr.decode()
    before = effects.read_text().split()
    assert before == [f"{n}" for n in (1, 2, 3, 4, 5, 6, 7, 8)]
    assert await policy_life.live(str(database), effects, options) == 36
    again = effects.read_text().split()[len(before) :]
    assert again == [f"{n}" for n in range(FIRST_AGAIN[frequency], 9)]


@pytest.mark.parametrize("frequency", FREQUENCIES)
async def test_an_engine_that_is_closed_leaves_nothing_that_is_called_again(engine: Engine, frequency: str) -> None:
    """Only a crash costs steps; what was not written yet is written when the engine goes."""
    seen = []
    hold = asyncio.Event()

    @maos.step(idempotent=True)
    async def look(n: int) -> int:
        seen.append(n)
        return n

    @workflow("closing")
    async def closing() -> int:
        total = await look(1) + await look(2)
        await hold.wait()
        return total

    async with engine() as m:
        await m.workflows.start(closing, id="c", options={"checkpoints": {"frequency": frequency}})
        await eventually(lambda: seen == [1, 2])
        await asyncio.sleep(0)
    hold.set()
    async with engine() as m:
        assert await m.workflows.run(closing, id="c") == 3
    assert seen == [1, 2]


async def test_a_step_that_is_not_idempotent_is_safe_under_every_policy(engine: Engine) -> None:
    """I31: it is recorded before it begins, with everything before it, and its end before anything after it."""
    for frequency in FREQUENCIES:
        seen = []

        @maos.step
        async def pay(n: int, seen: list[int] = seen, id: str = frequency) -> int:
            seen.append(n)
            return n

        @maos.step(idempotent=True)
        async def look(n: int, seen: list[int] = seen) -> int:
            seen.append(n)
            return n

        @workflow("mixed")
        async def mixed(pay: Any = pay, look: Any = look) -> int:
            return int(await look(1) + await pay(2) + await pay(3))

        async with engine() as m:
            options = {"checkpoints": {"frequency": frequency}}
            handle = await m.workflows.start(mixed, id=frequency.replace("_", "-"), options=options)
            assert await handle.result() == 6
            started = [
                record.data["step_id"]
                async for record in m.journal.read(f"workflow/{handle.id}")
                if record.type == "step_started"
            ]
            assert started == ["1", "2", "3"]
            assert seen == [1, 2, 3]


@pytest.mark.parametrize("frequency", FREQUENCIES)
async def test_when_a_step_that_is_not_idempotent_begins_its_beginning_is_on_disk(
    engine: Engine, frequency: str
) -> None:
    """I31: else a kill while it runs would have it done twice, and nobody would know."""
    found: list[list[str]] = []
    journals: list[Journal] = []

    @maos.step
    async def pay(n: int) -> int:
        calls = [record async for record in journals[0].read("workflow/p") if record.type.startswith("step_")]
        found.append([f"{record.type} {record.data['step_id']}" for record in calls])
        return n

    @maos.step(idempotent=True)
    async def look(n: int) -> int:
        return n

    @workflow("paying")
    async def paying() -> int:
        return await look(1) + await pay(2) + await pay(3)

    async with engine() as m:
        journals.append(m.journal)
        assert await m.workflows.run(paying, id="p", options={"checkpoints": {"frequency": frequency}}) == 6
    before = ["step_started 1", "step_completed 1", "step_started 2"]
    assert found == [before, [*before, "step_completed 2", "step_started 3"]]


@maos.step(idempotent=True)
async def note(n: int) -> int:
    return n


@workflow("noting")
async def noting(count: int) -> int:
    for n in range(count):
        await note(n)
        publish(progress=100 * (n + 1) // count)
    await checkpoint("before-the-end")
    return count


async def test_checkpoints_say_when_why_where_and_how_far(m: Maos) -> None:
    handle = await m.workflows.start(noting, 5, options={"checkpoints": {"frequency": "every_n_steps", "every": 2}})
    await handle.result()
    made = handle.run.checkpoints
    assert [(each.name, each.trigger, each.step, each.progress) for each in made] == [
        ("steps-1", "steps", "3", 20.0),
        ("steps-2", "steps", "7", 60.0),
        ("before-the-end", "manual", "9", 100.0),
    ]
    assert [each.steps for each in made] == [3, 7, 11]
    assert all(each.at_us for each in made)
    for each in made:
        record = await m.journal.event(f"workflow/{handle.id}", each.version)
        assert record is not None
        assert record.type == "workflow_checkpointed"


async def test_checkpoints_by_time_are_made_when_the_interval_has_passed(timed: Engine, clock: ManualClock) -> None:
    @maos.step(idempotent=True)
    async def wait(seconds: float) -> None:
        clock.advance(seconds)

    @workflow("slow")
    async def slow() -> None:
        for seconds in (1, 10, 25, 1, 31, 1):
            await wait(seconds)

    async with timed() as m:
        options = {"checkpoints": {"frequency": "time_based", "interval_s": 30}}
        handle = await m.workflows.start(slow, options=options)
        await handle.result()
    assert [(each.trigger, each.step) for each in handle.run.checkpoints] == [("time", "3"), ("time", "5")]


async def test_checkpoints_at_questions(m: Maos) -> None:
    @workflow("asking")
    async def asking() -> str:
        await note(1)
        return await gate("Go on?")

    handle = await m.workflows.start(asking, id="a", options={"checkpoints": {"frequency": "on_gates"}})
    await eventually(lambda: handle.run.waiting)
    await m.workflows.answer("a", "2", "yes")
    assert await handle.result() == "yes"
    assert [(each.name, each.trigger, each.step, each.steps) for each in handle.run.checkpoints] == [
        ("gate-1", "gate", "2", 1)
    ]


async def test_a_checkpoint_is_made_once_however_often_the_workflow_runs(engine: Engine) -> None:
    @workflow("twice")
    async def twice() -> None:
        await checkpoint("here")
        await maos.workflows.signal("go")

    async with engine() as m:
        handle = await m.workflows.start(twice, id="t")
        await eventually(lambda: handle.run.waiting)
    async with engine() as m:
        await m.workflows.signal("t", "go")
        await m.workflows.run(twice, id="t")
        assert [each.name for each in (await m.workflows.get("t")).checkpoints] == ["here"]


async def test_what_chance_said_is_on_disk_before_a_step_is_told_of_it(m: Maos) -> None:
    """Under every policy: an id made up for a service must not be another one after a crash."""
    recorded = []

    @maos.step(idempotent=True)
    async def order(id: str) -> None:
        flow = await m.workflows.get("o")
        recorded.append(id in [call.result for call in flow.steps.values()])

    @workflow("ordering")
    async def ordering() -> None:
        await order(maos.workflows.unique())
        await order(maos.workflows.unique())

    handle = await m.workflows.start(ordering, id="o", options={"checkpoints": {"frequency": "manual"}})
    await handle.result()
    assert recorded == [True, True]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"frequency": "sometimes"}, "Invalid enum value 'sometimes' - at `\\$.frequency`"),
        ({"frequency": "every_n_steps", "every": 0}, "Expected `int` >= 1 - at `\\$.every`"),
        ({"frequency": "time_based", "interval_s": 0}, "Expected `float` > 0.0 - at `\\$.interval_s`"),
    ],
)
async def test_a_policy_that_makes_no_sense_is_refused_before_it_begins(
    m: Maos, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(maos.InvalidInput, match=why):
        await m.workflows.start(noting, 1, options={"checkpoints": options})
    assert [flow async for flow in m.workflows.all()] == []


def test_checkpoints_can_be_switched_off() -> None:
    policy = CheckpointPolicy("every_n_steps", every=1, enabled=False)
    assert policy.due(steps=1, passed_us=0) == ""
    assert not policy.every_step


DAMAGE = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as connection:
    connection.execute("UPDATE events SET body = CAST(replace(body, 'damage', 'DAMAGE') AS BLOB) WHERE version = 2")
"""


@pytest.mark.parametrize("frequency", ["every_n_steps", "on_gates", "manual"])
async def test_a_checkpoint_that_cannot_be_read_back_is_none(tmp_path: Path, frequency: str) -> None:
    """R-1002, R-1005: validated when it is made; the workflow stops there, whatever its author catches."""
    database = tmp_path / "maos.db"
    seen = []

    @maos.step
    async def damage() -> None:
        # In a process of its own: closing a file that another SQLite in this process has open would drop its locks.
        await asyncio.to_thread(subprocess.run, [sys.executable, "-c", DAMAGE, database], check=True, timeout=60)

    @maos.step(idempotent=True)
    async def after(n: int) -> None:
        seen.append(n)

    @workflow("damaged")
    async def damaged() -> None:
        await damage()
        for n in range(3):
            with contextlib.suppress(Exception):
                await (gate("Go on?") if frequency == "on_gates" else checkpoint("here"))
            await after(n)

    async with maos.open(database) as m:
        options = {"checkpoints": {"frequency": frequency, "every": 1}}
        handle = await m.workflows.start(damaged, id="d", options=options)
        with pytest.raises(maos.Corrupt, match="workflow/d@2"):
            await handle.wait()
    assert seen == []


async def test_a_checkpoint_counts_though_others_write_at_the_same_time(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is being written while it is read back is not looked for."""
    append = Journal.append_all

    async def slow(self: Journal, *given: Any, **named: Any) -> Any:
        await asyncio.sleep(0.002)
        return await append(self, *given, **named)

    @maos.step
    async def work(n: int) -> int:
        await asyncio.sleep(0.001 * n)
        return n

    async def branch(n: int) -> None:
        await work(n)
        await checkpoint(f"after-{n}")

    @workflow("busy")
    async def busy() -> None:
        await maos.workflows.parallel(branch, range(20), limit=20)

    async with engine() as m:
        monkeypatch.setattr(Journal, "append_all", slow)
        handle = await m.workflows.start(busy)
        await handle.result()
    assert sorted(each.name for each in handle.run.checkpoints) == sorted(f"after-{n}" for n in range(20))


async def test_a_damaged_fold_costs_only_time(engine: Engine) -> None:
    """R-1005, I17."""

    @workflow("long")
    async def long() -> int:
        return sum([await note(n) for n in range(150)]) + len(await maos.workflows.signal("go"))

    async with engine() as m:
        handle = await m.workflows.start(long, id="l")
        await eventually(lambda: handle.run.waiting)
        kept = await m.journal.store.load("workflow", "l")
        assert kept is not None
        damaged = kept._replace(body=b'{"format": 1, "fold": ' + os.urandom(20).hex().encode())
        await m.journal.append_all([], documents=[damaged])
    async with engine() as m:
        await m.workflows.signal("l", "go", "x")
        assert await m.workflows.run(long, id="l") == 11176
