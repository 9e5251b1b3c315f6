"""Figures about a journal: what is counted, compared, and called unusual (R-903)."""

from maos.model.statistics import DAY_US, HOUR_US, EventCounts, Trial, compare, find_anomalies

DAY = 100 * DAY_US


def trial(number: int, status: str = "done", **fields: object) -> Trial:
    """An attempt of a minute, in the hour of its number."""
    start_us = DAY + number * HOUR_US
    known = {"id": f"a.{number}", "kind": "claude", "model": "m", "status": status, "failure": "", "turns": 1}
    times = {"started_us": start_us, "ended_us": start_us + 60_000_000, "cost_usd": 0.1, "tokens": 100}
    return Trial(**{**known, **times, **fields})  # type: ignore[arg-type]


def test_events_are_counted_by_time_and_by_kind_of_stream() -> None:
    activity = EventCounts(DAY, DAY + 24 * HOUR_US)
    for hour in (0, 0, 13):
        activity.add("attempt/a.1", DAY + hour * HOUR_US, 100, 400)
    activity.add("run/r-1", DAY + 23 * HOUR_US, 50, 50)
    activity.add_failure(DAY + 13 * HOUR_US)
    buckets = activity.buckets
    assert (len(buckets), buckets[0].events, buckets[13].events, buckets[13].failures) == (24, 2, 1, 1)
    assert [(each.kind, each.streams, each.events) for each in activity.usage] == [("attempt", 1, 3), ("run", 1, 1)]
    growth = activity.growth
    assert (growth.events, growth.stored_bytes, growth.plain_bytes) == (4, 350, 1250)
    assert (growth.compression, growth.trend) == (1 - 350 / 1250, 150 / 200)


def test_a_journal_without_events_has_figures() -> None:
    growth = EventCounts(DAY, DAY).growth
    assert (growth.events, growth.compression, growth.trend) == (0, None, None)
    assert compare([]) == []


def test_any_time_span_has_few_buckets() -> None:
    for span_us in (1, HOUR_US, DAY_US, 400 * DAY_US, 40_000 * DAY_US):
        assert 1 <= len(EventCounts(DAY, DAY + span_us).buckets) <= 60


def test_agents_are_compared_by_kind_and_model() -> None:
    trials = [
        *(trial(number) for number in range(3)),
        trial(3, "failed", failure="rate_limited"),
        trial(4, "running", ended_us=0),
        trial(5, "stopped", model="other", cost_usd=1.0),
    ]
    [first, second] = compare(trials)
    assert (first.kind, first.model, first.attempts, first.open) == ("claude", "m", 5, 1)
    assert (first.success, first.median_s, first.failures) == (0.75, 60.0, {"rate_limited": 1})
    assert (second.model, second.success, second.cost_usd) == ("other", None, 1.0)


def test_usual_work_is_not_called_unusual() -> None:
    activity = EventCounts(DAY, DAY + 24 * HOUR_US)
    for hour in range(24):
        for _ in range(20 + hour % 5):
            activity.add("attempt/a.1", DAY + hour * HOUR_US, 1, 1)
    trials = [trial(number, "failed" if number % 6 == 0 else "done") for number in range(24)]
    assert find_anomalies(activity, trials, DAY + 24 * HOUR_US) == []


def test_a_burst_is_named() -> None:
    activity = EventCounts(DAY, DAY + 24 * HOUR_US)
    for hour in range(24):
        for _ in range(10 if hour < 23 else 100):
            activity.add("attempt/a.1", DAY + hour * HOUR_US, 1, 1)
    [found] = find_anomalies(activity, [], DAY + 24 * HOUR_US)
    assert found.about == "journal"
    assert found.what.startswith("100 events in the newest period, where 10 are usual")


def test_a_kind_that_begins_to_fail_is_named_with_the_reason() -> None:
    activity = EventCounts(DAY, DAY + 24 * HOUR_US)
    trials = [trial(number) for number in range(17)]
    trials += [trial(number, "failed", failure="authentication") for number in range(19, 23)]
    [found] = find_anomalies(activity, trials, DAY + 24 * HOUR_US)
    assert found.about == "claude"
    assert found.what == "4 of its last 4 attempts failed (100%), 0% before; most often with authentication (4)"


def test_an_attempt_that_takes_or_costs_far_more_than_others_is_named() -> None:
    activity = EventCounts(DAY, DAY + 24 * HOUR_US)
    trials = [*(trial(number) for number in range(6)), trial(7, "running", ended_us=0, cost_usd=5.0)]
    found = {each.what for each in find_anomalies(activity, trials, DAY + 8 * HOUR_US) if each.about == "a.7"}
    assert found == {
        "open for 3600 s; no attempt of claude that was done took more than 60 s",
        "has cost $5.00; no attempt of claude that was done cost more than $0.10",
    }
