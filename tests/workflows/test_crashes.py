"""A workflow with steps, a question, signals, a sleep, a child and branches, killed at every crash point."""

import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import maos
from maos_testing.crash import SHARE, Life, Starter, crash_loop
from tests.workflows import flow_life

Place = Callable[[int], tuple[str, str, Path]]


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A new database, or a new schema, and a new outside for each life."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""

    def made(number: int) -> tuple[str, str, Path]:
        folder = tmp_path / str(number)
        folder.mkdir(exist_ok=True)
        return url or str(folder / "maos.db"), f"life_{number}", folder / "effects"

    return made


def check_effects(effects: Path, kills: int) -> None:
    """I31: what is not idempotent was done once; what is, at most once more for each kill, under the same key."""
    lines = effects.read_text().splitlines()
    done = Counter(line.partition(" ")[2] for line in lines)
    assert {what: done[what] for what in flow_life.ONCE} == dict.fromkeys(flow_life.ONCE, 1)
    assert all(often <= done[what] <= often + kills for what, often in flow_life.IDEMPOTENT.items()), done
    assert len(set(lines)) == len(done), "another key for the same effect"


async def check_end(database: str, schema: str, effects: Path, kills: int) -> None:
    """Go on here, and compare with what an undisturbed run gives."""
    assert await flow_life.live(database, schema, effects) == flow_life.RESULT
    check_effects(effects, kills)
    how = {"schema": schema, "mark_path": effects.with_name("mark")} if "://" in database else {}
    async with maos.open(database, **how) as m:  # type: ignore[arg-type]
        flows = {flow.id: flow async for flow in m.workflows.all()}
        assert {id: flow.status for id, flow in flows.items()} == {"whole": "completed", "whole.part": "completed"}
        for flow in flows.values():
            assert {call.status for call in flow.steps.values()} <= {"done", "failed"}, "a call without an outcome"
            assert not any(flow.signals.values())
        assert (await m.verify()).ok


async def test_undisturbed(place: Place) -> None:
    await check_end(*place(0), kills=0)


@pytest.mark.timeout(600)
async def test_killed_at_any_point_it_gives_the_same_result_and_repeats_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I29, I30, I31, I32, R-1001."""
    monkeypatch.setenv("MAOS_CRASH_ONLY", "workflow:")
    is_server = "://" in place(0)[0]  # where the engine is the same: each point by name
    await crash_everywhere(place, share=0.0 if is_server and os.environ.get(SHARE) else None)


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_killed_at_any_point_of_the_store_too(place: Place) -> None:
    """Killed at every crash point there is, none left out."""
    await crash_everywhere(place, share=1.0)


async def crash_everywhere(place: Place, share: float | None) -> None:
    def argv(number: int) -> list[str | Path]:
        return [sys.executable, flow_life.__file__, *place(number)]

    async def check(life: Life) -> None:
        await check_end(*place(life.number), kills=1)

    lives = await crash_loop(argv, check, share=share)
    died_at = {life.died_at for life in lives}
    assert len(lives) > 20
    for each in (
        "workflow:before pay",
        "workflow:after book",
        "workflow:before child",
        "workflow:after workflow_started",
    ):
        assert each in died_at, f"nothing died at {each!r}"
    assert lives[-1].acks == ["completed"]


@pytest.mark.timeout(600)
async def test_killed_again_and_again_it_still_comes_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I29, I31: with one life after the other on the same database, each a little longer or shorter."""
    monkeypatch.setenv("MAOS_CRASH_ONLY", "workflow:")
    database, effects = str(tmp_path / "maos.db"), tmp_path / "effects"
    kills = 0
    argv = [sys.executable, flow_life.__file__, database, "", effects]
    with Starter() as starter:
        while starter.start(argv, crash_at=6 + kills % 9).wait(kills).died_at is not None:
            kills += 1
            assert kills < 100, "it comes no further"
    assert kills > 5
    await check_end(database, "", effects, kills)
