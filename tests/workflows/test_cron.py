"""Times that come again."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maos.errors import InvalidInput
from maos.workflows.schedules import Cron

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        ("* * * * *", "2026-01-01T00:00", "2026-01-01T00:01"),
        ("*/15 * * * *", "2026-01-01T00:46", "2026-01-01T01:00"),
        ("0 3 * * *", "2026-01-01T03:00", "2026-01-02T03:00"),
        ("30 4 1,15 * *", "2026-01-15T04:30", "2026-02-01T04:30"),
        ("0 0 29 2 *", "2026-01-01T00:00", "2028-02-29T00:00"),
        ("0 9 * * mon-fri", "2026-11-13T10:00", "2026-11-16T09:00"),
        ("0 9 * * 7", "2026-11-13T10:00", "2026-11-15T09:00"),
        ("0 0 13 * fri", "2026-11-12T10:00", "2026-11-13T00:00"),
        ("0 0 13 * fri", "2026-11-14T10:00", "2026-11-20T00:00"),
        ("5-10/2 8 * jan *", "2026-01-31T08:09", "2027-01-01T08:05"),
        ("@monthly", "2026-01-31T08:09", "2026-02-01T00:00"),
    ],
)
def test_the_next_time(cron: str, after: str, expected: str) -> None:
    assert Cron(cron).after(at(after)) == at(expected)


def test_an_hour_that_is_left_out_in_spring_is_made_up_for() -> None:
    """In Berlin there is no 02:30 on the 29th of March 2026."""
    cron = Cron("30 2 * * *", "Europe/Berlin")
    before = datetime(2026, 3, 28, 12, tzinfo=BERLIN)
    first = cron.after(before)
    assert first is not None
    assert first.astimezone(UTC) == at("2026-03-29T01:30")
    second = cron.after(first)
    assert second is not None
    assert second.astimezone(UTC) == at("2026-03-30T00:30")


def test_an_hour_that_comes_twice_in_autumn_counts_once() -> None:
    cron = Cron("30 2 * * *", "Europe/Berlin")
    first = cron.after(datetime(2026, 10, 24, 12, tzinfo=BERLIN))
    assert first is not None
    second = cron.after(first)
    assert second is not None
    assert second.astimezone(UTC) - first.astimezone(UTC) == timedelta(hours=25)


@pytest.mark.parametrize(("text", "most"), [("*/5 * * * *", 5), ("0 * * * *", 60), ("*/20 * * * *", 20)])
def test_what_is_due_in_every_hour_goes_on_when_one_comes_twice(text: str, most: int) -> None:
    cron = Cron(text, "Europe/Berlin")
    moment = datetime(2026, 10, 24, 20, tzinfo=BERLIN).astimezone(UTC)
    for _ in range(10 * 60 // most):
        coming = cron.after(moment)
        assert coming is not None
        assert coming.astimezone(UTC) - moment == timedelta(minutes=most)
        assert cron.last(coming) == coming
        moment = coming.astimezone(UTC)


@given(st.integers(1_577_836_800, 1_893_456_000), st.sampled_from(["*/7 * * * *", "3 4 * * *", "0 0 1 * 1"]))
def test_last_and_next_agree(seconds: int, text: str) -> None:
    """Nothing lies between the last time and the next."""
    cron, moment = Cron(text), datetime.fromtimestamp(seconds, UTC)
    last, coming = cron.last(moment), cron.after(moment)
    assert last is not None
    assert coming is not None
    assert last <= moment < coming
    assert cron.after(last) == coming


@pytest.mark.parametrize(
    "text", ["", "* * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "*/0 * * * *",
             "5-1 * * * *", "a * * * *", "² * * * *", "*/² * * * *", "٣ * * * *", f"{'9' * 5000} * * * *",
             "0 0 31 2 *", "* * * * * *"],
)  # fmt: skip
def test_what_is_no_time_is_named(text: str) -> None:
    with pytest.raises(InvalidInput):
        Cron(text)


def test_an_unknown_zone_is_named() -> None:
    with pytest.raises(InvalidInput, match="Nowhere"):
        Cron("* * * * *", "Nowhere/None")
