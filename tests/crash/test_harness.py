"""The crash-loop harness of the test kit: it kills where it says, hears every ack, and tells what failed."""

import ast
import sys
import time
from pathlib import Path

import pytest

from maos_testing import preload
from maos_testing.crash import ChildProcess, Deaths, Life, Starter, crash_loop, kill_loop, sample
from tests.architecture.sources import sources

THREE_POINTS = """if True:
    from maos.faults import crash_point
    from maos_testing.crash import ack
    for number in range(3):
        crash_point(f"before {number}")
        ack({"number": number})
"""
FOREVER = "from maos_testing.crash import ack\nwhile True: ack(['still here'])"


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


async def test_each_life_dies_one_crash_point_later() -> None:
    seen: list[Life] = []

    async def check(life: Life) -> None:
        seen.append(life)

    lives = await crash_loop(lambda _number: python(THREE_POINTS), check, share=1.0)
    assert seen == lives
    assert [life.died_at for life in lives] == ["before 0", "before 1", "before 2", None]
    assert [life.acks for life in lives] == [[{"number": number} for number in range(count)] for count in range(4)]


async def test_a_check_that_fails_says_how_to_die_there_again() -> None:
    async def check(life: Life) -> None:
        assert life.number < 2

    with pytest.raises(AssertionError) as caught:
        await crash_loop(lambda _number: python(THREE_POINTS), check, share=1.0)
    assert "after dying at 'before 1'; once more: MAOS_CRASH_AT=2 " in caught.value.__notes__[0]


async def test_programs_are_killed_at_random_moments_with_all_they_said() -> None:
    async def check(deaths: Deaths) -> None:
        for life in deaths.lives:
            assert life.died_at == "kill"
            assert life.acks

    rounds = await kill_loop(lambda _number: python(FOREVER), check, rounds=2, seed=1, processes=2, after_s=(0.0, 0.01))
    assert [life.number for deaths in rounds for life in deaths.lives] == [1, 2, 3, 4]


async def test_a_round_that_fails_names_its_seed() -> None:
    async def check(_deaths: Deaths) -> None:
        raise AssertionError

    with pytest.raises(AssertionError) as caught:
        await kill_loop(lambda _number: python(FOREVER), check, rounds=2, seed=77, after_s=(0.0, 0.0))
    assert caught.value.__notes__ == ["in round 1 of 2 with seed 77"]


def test_a_program_that_fails_by_itself_is_told_with_its_words() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)status 1.*ZeroDivisionError"):
        ChildProcess(python("1 / 0")).wait(1)


def test_a_program_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maos_testing.crash.LIFE_S_MAX", 0.2)
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        ChildProcess(python("import time; time.sleep(600)")).wait(1)
    assert time.monotonic() - began < 30


PROGRAM = """if True:
    import json, os, sys
    from maos.faults import crash_point
    from maos_testing.crash import ack
    MINE = [os.environ.get("MAOS_CRASH_AT"), __name__, *sys.argv[1:]]
    if __name__ == "__main__":
        ack([os.getpid(), *MINE])
        for name in ("a", "b", "a", "c", "a", "a"):
            crash_point(name)
        sys.exit(3 if "fail" in sys.argv else 0)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def test_lives_of_a_program_that_was_imported_share_nothing(program: Path) -> None:
    """Each is a process of its own, with its own arguments and countdown."""
    with Starter() as starter:
        begun = [starter.start([sys.executable, program, f"life-{n}"], crash_at=n) for n in (2, 3, 0)]
        lives = [process.wait(number) for number, process in enumerate(begun)]
    assert [life.died_at for life in lives] == ["b", "a", None]
    assert [life.acks[0][1:] for life in lives] == [
        ["2", "__main__", "life-2"], ["3", "__main__", "life-3"], [None, "__main__", "life-0"],
    ]  # fmt: skip
    assert len({life.acks[0][0] for life in lives}) == 3


def test_a_life_that_fails_or_never_ends_is_told(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Starter() as starter:
        with pytest.raises(RuntimeError, match=r"status 3"):
            starter.start([sys.executable, program, "fail"]).wait(1)
        program.write_text("import time\ntime.sleep(600)")
        monkeypatch.setattr("maos_testing.crash.LIFE_S_MAX", 0.2)
        with pytest.raises(TimeoutError):
            starter.start([sys.executable, program]).wait(2)


async def test_a_sample_dies_at_every_name_and_names_how_to_die_there_again(program: Path) -> None:
    async def look(life: Life) -> None:
        assert life.died_at != "c", "planted"

    with pytest.raises(AssertionError) as caught:
        await crash_loop(lambda number: [sys.executable, program, str(number)], look, share=0.0)
    assert "once more: MAOS_CRASH_AT=1 MAOS_CRASH_NAME='c' " in caught.value.__notes__[0]

    async def accept(life: Life) -> None: ...

    lives = await crash_loop(lambda number: [sys.executable, program, str(number)], accept, share=0.0)
    assert [(life.number, life.died_at) for life in lives] == [(1, "a"), (2, "b"), (3, "c"), (4, "a"), (0, None)]
    assert lives[-1].points == ("a", "b", "a", "c", "a", "a")


def test_a_sample_is_the_same_each_time_and_grows_with_its_share() -> None:
    names = ["a", "b", *("a" for _ in range(40)), "c"]
    some = sample(names, 0.25, seed=1)
    assert some == sample(names, 0.25, seed=1) != sample(names, 0.25, seed=2)
    assert len(some) == 3 + 10
    assert some == sorted(some, key=sample(names, 1.0, seed=1).index)
    assert len(sample(names, 1.0, seed=1)) == len(names)


def test_every_countdown_is_set_for_each_life() -> None:
    """A module that reads MAOS_CRASH_AT when it is imported would keep what it read for all lives."""
    counting = {
        "maos." + source.name.removesuffix(".py").replace("/", ".")
        for source in sources()
        if any(
            isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_remaining" for node in source.tree.body
        )
    }
    assert counting == set(preload._COUNTDOWNS)
