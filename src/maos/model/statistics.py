"""Figures about a journal: what was recorded when, what it takes, and how agents, models and runs compare (R-903).

`EventCounts` folds the events of a time span; `compare` groups attempts by kind and model; `find_anomalies` says in
words what is unlike the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from maos.model.read_models import Label

MINUTE_US, HOUR_US, DAY_US = 60_000_000, 3_600_000_000, 86_400_000_000
WIDTHS_US = (MINUTE_US, 5 * MINUTE_US, 15 * MINUTE_US, HOUR_US, 6 * HOUR_US, DAY_US, 7 * DAY_US, 30 * DAY_US)
BUCKETS_MAX = 60
BUCKETS_MIN = 6
"""Below so many buckets with events there is no usual rate to compare with."""
RATE_FACTOR = 5.0
TIME_FACTOR = 4.0
FAILURES_MIN = 3
FAILURE_SHARE_MIN = 0.3
SAMPLE_MIN = 5
LONG_S_MIN = 300.0
"""An attempt that is open for less is not unusual, however short others are."""


class Period(msgspec.Struct, frozen=True):
    """What was recorded in a part of the time span."""

    start_us: int
    events: int
    stored_bytes: int
    failures: int
    """Attempts, tasks and steps that failed."""


class StreamUsage(msgspec.Struct, frozen=True):
    """What the streams of one kind take, such as attempts or messages."""

    kind: Label
    streams: int
    events: int
    stored_bytes: int
    plain_bytes: int
    """The same bodies without compression."""


class Growth(msgspec.Struct, frozen=True):
    """How the journal grows in the time span."""

    events: int
    stored_bytes: int
    plain_bytes: int
    events_per_hour: float
    bytes_per_day: float
    trend: float | None
    """Bytes in the second half of the time span for each byte in the first; None when the first has none, or the time
    span is too short to tell."""

    @property
    def compression(self) -> float | None:
        """Which part of the bytes compression saves; None without any."""
        return 1 - self.stored_bytes / self.plain_bytes if self.plain_bytes else None


class Trial(msgspec.Struct, frozen=True):
    """One attempt, as far as it is compared with others."""

    id: str
    kind: str
    model: str
    status: str
    failure: str
    started_us: int
    ended_us: int
    """0 while it is open."""
    cost_usd: float
    tokens: int
    turns: int


class Comparison(msgspec.Struct, frozen=True):
    """What the attempts of one kind of agent with one model came to."""

    kind: Label
    model: Label
    attempts: int
    open: int
    done: int
    failed: int
    stopped: int
    success: float | None
    """Done among done and failed; None when there are none of either."""
    median_s: float | None
    longest_s: float | None
    cost_usd: float
    tokens: int
    failures: dict[Label, int]
    """How often each failure occurred."""


class Anomaly(msgspec.Struct, frozen=True):
    """Something unlike the rest."""

    about: Label
    """What it is about: a kind of agent, an attempt, or `journal`."""
    what: Label
    """What is unusual and compared with what, in words."""


class EventCounts:
    """The events of a time span, by time and by kind of stream."""

    def __init__(self, since_us: int, until_us: int) -> None:
        self.since_us, self.until_us = since_us, max(until_us, since_us + 1)
        span_us = self.until_us - since_us
        fitting = (width_us for width_us in WIDTHS_US if span_us <= BUCKETS_MAX * width_us)
        self._width_us = next(fitting, -(-span_us // BUCKETS_MAX))
        self._buckets: dict[int, list[int]] = {}
        self._kinds: dict[str, list[int]] = {}
        self._streams: dict[str, set[str]] = {}

    def add(self, stream: str, time_us: int, stored_bytes: int, plain_bytes: int) -> None:
        """Count one event."""
        bucket = self._bucket(time_us)
        bucket[0] += 1
        bucket[1] += stored_bytes
        kind = stream.partition("/")[0]
        for index, value in enumerate((1, stored_bytes, plain_bytes)):
            self._kinds.setdefault(kind, [0, 0, 0])[index] += value
        self._streams.setdefault(kind, set()).add(stream)

    def add_failure(self, time_us: int) -> None:
        """Count one failure."""
        self._bucket(time_us)[2] += 1

    def _bucket(self, time_us: int) -> list[int]:
        return self._buckets.setdefault((time_us - self.since_us) // self._width_us, [0, 0, 0])

    @property
    def buckets(self) -> list[Period]:
        """All parts of the time span in order, also those without events."""
        count = -(-(self.until_us - self.since_us) // self._width_us)
        return [
            Period(self.since_us + number * self._width_us, *self._buckets.get(number, (0, 0, 0)))
            for number in range(count)
        ]

    @property
    def usage(self) -> list[StreamUsage]:
        """What each kind of stream takes, the largest first."""
        found = [StreamUsage(kind, len(self._streams[kind]), *counts) for kind, counts in self._kinds.items()]
        return sorted(found, key=lambda each: -each.stored_bytes)

    @property
    def growth(self) -> Growth:
        """How the journal grows."""
        events, stored, plain = (sum(counts[index] for counts in self._kinds.values()) for index in range(3))
        buckets, span_us = self.buckets, self.until_us - self.since_us
        first = sum(each.stored_bytes for each in buckets[: len(buckets) // 2])
        second = sum(each.stored_bytes for each in buckets[len(buckets) - len(buckets) // 2 :])
        return Growth(
            events,
            stored,
            plain,
            events_per_hour=events * HOUR_US / span_us,
            bytes_per_day=stored * DAY_US / span_us,
            trend=second / first if first and len(buckets) >= BUCKETS_MIN else None,
        )


def compare(trials: Iterable[Trial]) -> list[Comparison]:
    """What attempts came to, by kind of agent and model, the most used first."""
    groups: dict[tuple[str, str], list[Trial]] = {}
    for each in trials:
        groups.setdefault((each.kind, each.model), []).append(each)
    return sorted((_compared(*group) for group in groups.items()), key=lambda each: -each.attempts)


def _compared(key: tuple[str, str], trials: Sequence[Trial]) -> Comparison:
    statuses = Counter(each.status for each in trials)
    done, failed, stopped = statuses["done"], statuses["failed"], statuses["stopped"]
    times = _times_s(trials)
    return Comparison(
        *key,
        attempts=len(trials),
        open=len(trials) - done - failed - stopped,
        done=done,
        failed=failed,
        stopped=stopped,
        success=done / (done + failed) if done + failed else None,
        median_s=median(times) if times else None,
        longest_s=max(times, default=None),
        cost_usd=sum(each.cost_usd for each in trials),
        tokens=sum(each.tokens for each in trials),
        failures=dict(Counter(each.failure for each in trials if each.failure).most_common()),
    )


def _times_s(trials: Iterable[Trial]) -> list[float]:
    return [(each.ended_us - each.started_us) / 1e6 for each in trials if each.ended_us and each.started_us]


def find_anomalies(activity: EventCounts, trials: Sequence[Trial], now_us: int) -> list[Anomaly]:
    """What is unlike the rest: bursts of events, kinds of agents that fail more often than before, attempts that take
    or cost far more than others of their kind."""
    return [*_bursts(activity), *_failing(activity, trials), *_outliers(trials, now_us)]


def _bursts(activity: EventCounts) -> Iterable[Anomaly]:
    buckets = activity.buckets
    counts = sorted(each.events for each in buckets if each.events)
    if len(counts) < BUCKETS_MIN:
        return
    usual = median(counts)
    newest = buckets[-1]
    if newest.events > RATE_FACTOR * usual:
        yield Anomaly(
            "journal",
            f"{newest.events} events in the newest period, where {usual:.0f} are usual: an agent or a loop writes far"
            " more than before",
        )


def _failing(activity: EventCounts, trials: Sequence[Trial]) -> Iterable[Anomaly]:
    """Kinds whose newest quarter fails more often than the time before."""
    since_us = activity.until_us - (activity.until_us - activity.since_us) // 4
    groups: dict[str, tuple[list[Trial], list[Trial]]] = {}
    for each in trials:
        if each.status in ("done", "failed"):
            groups.setdefault(each.kind, ([], []))[each.ended_us >= since_us].append(each)
    for kind, (before, newest) in groups.items():
        failed = [each for each in newest if each.status == "failed"]
        if len(failed) < FAILURES_MIN or len(before) < SAMPLE_MIN:
            continue
        share = len(failed) / len(newest)
        earlier = sum(each.status == "failed" for each in before) / len(before)
        if share >= FAILURE_SHARE_MIN and share > 2 * earlier:
            reason, count = Counter(each.failure or "unknown" for each in failed).most_common(1)[0]
            yield Anomaly(
                kind,
                f"{len(failed)} of its last {len(newest)} attempts failed ({share:.0%}), {earlier:.0%} before;"
                f" most often with {reason} ({count})",
            )


def _outliers(trials: Sequence[Trial], now_us: int) -> Iterable[Anomaly]:
    """Attempts that are open for far longer, or cost far more, than those of their kind that were done."""
    for kind in sorted({each.kind for each in trials}):
        same = [each for each in trials if each.kind == kind]
        done = [each for each in same if each.status == "done"]
        if len(done) < SAMPLE_MIN:
            continue
        longest_s, cost_usd = max(_times_s(done), default=0.0), max(each.cost_usd for each in done)
        for each in same:
            took_s = ((each.ended_us or now_us) - each.started_us) / 1e6 if each.started_us else 0.0
            if not each.ended_us and longest_s and took_s > max(LONG_S_MIN, TIME_FACTOR * longest_s):
                yield Anomaly(
                    each.id,
                    f"open for {took_s:.0f} s; no attempt of {kind} that was done took more than {longest_s:.0f} s",
                )
            if each.status != "done" and cost_usd and each.cost_usd > TIME_FACTOR * cost_usd:
                yield Anomaly(
                    each.id,
                    f"has cost ${each.cost_usd:.2f}; no attempt of {kind} that was done cost more than ${cost_usd:.2f}",
                )
