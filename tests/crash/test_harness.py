"""The crash-loop harness of the test kit: it kills where it says, hears every ack, and tells what failed."""

import sys
import time

import pytest

from maos.testing.crash import ChildProcess, Deaths, Life, crash_loop, kill_loop

THREE_POINTS = """if True:
    from maos.faults import crash_point
    from maos.testing.crash import ack
    for number in range(3):
        crash_point(f"before {number}")
        ack({"number": number})
"""
FOREVER = "from maos.testing.crash import ack\nwhile True: ack(['still here'])"


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


async def test_each_life_dies_one_crash_point_later() -> None:
    seen: list[Life] = []

    async def check(life: Life) -> None:
        seen.append(life)

    lives = await crash_loop(lambda _number: python(THREE_POINTS), check)
    assert seen == lives
    assert [life.died_at for life in lives] == ["before 0", "before 1", "before 2", None]
    assert [life.acks for life in lives] == [[{"number": number} for number in range(count)] for count in range(4)]


async def test_a_check_that_fails_says_how_to_die_there_again() -> None:
    async def check(life: Life) -> None:
        assert life.number < 2

    with pytest.raises(AssertionError) as caught:
        await crash_loop(lambda _number: python(THREE_POINTS), check)
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
    monkeypatch.setattr("maos.testing.crash.LIFE_S_MAX", 0.2)
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        ChildProcess(python("import time; time.sleep(600)")).wait(1)
    assert time.monotonic() - began < 30
