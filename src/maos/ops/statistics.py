"""Figures about a journal, read from its events and the folds of its attempts and runs; nothing is counted twice or
kept beside the journal."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec
import zstandard

from maos.clock import Clock
from maos.engine.streams import ATTEMPT, RUN
from maos.journal.journal import Journal
from maos.model.attempt import Attempt, stream
from maos.model.read_models import Label
from maos.model.statistics import (
    DAY_US,
    Anomaly,
    Comparison,
    EventCounts,
    Growth,
    Period,
    StreamUsage,
    Trial,
    compare,
    find_anomalies,
)
from maos.model.status import AttemptStatus
from maos.state.records import CacheStatistics

PAGE_EVENTS = 500
"""How many are read at once: between two pages others have their turn."""
SINCE_US = 7 * DAY_US
FAILED = frozenset({"task_failed", "step_retried", "dead_letter_added"})
"""Events that are failures themselves; attempts that failed are counted from their folds."""


class RunTotals(msgspec.Struct, frozen=True):
    """The runs that were changed in the time span, by status, with what all of each has cost."""

    count: int
    by_status: dict[Label, int]
    cost_usd: float


class JournalStatistics(msgspec.Struct, frozen=True):
    """What happened in a journal from one time to another."""

    since_us: int
    until_us: int
    growth: Growth
    activity: list[Period]
    usage: list[StreamUsage]
    runs: RunTotals
    agents: list[Comparison]
    cache: CacheStatistics
    """The cache of states in this process; empty in a process that has read none."""
    anomalies: list[Anomaly]


async def read(journal: Journal, clock: Clock, cache: CacheStatistics, *, since_us: int = 0) -> JournalStatistics:
    """Read the figures from a time on, but not from before the first event; 0: of the last seven days."""
    now_us = clock.now_us()
    since_us = since_us or now_us - SINCE_US
    first = await _position_at(journal, since_us)
    if oldest := await journal.store.read_log(after=first, limit=1):
        since_us = max(since_us, min(oldest[0].time_us, now_us))
    activity = EventCounts(since_us, now_us)
    touched: set[str] = set()
    while page := await journal.store.read_log(after=first, limit=PAGE_EVENTS):
        for event in page:
            activity.add(event.stream, event.time_us, len(event.body), _plain_bytes(event.body))
            if event.type in FAILED:
                activity.add_failure(event.time_us)
            touched.add(event.stream)
        first = page[-1].position
        await asyncio.sleep(0)
    attempts = [each for name in sorted(touched) if (each := await _attempt(journal, name)) is not None]
    trials = [_trial(each) for each in attempts]
    for trial in trials:
        if trial.status == AttemptStatus.FAILED and trial.ended_us >= since_us:
            activity.add_failure(trial.ended_us)
    return JournalStatistics(
        since_us=since_us,
        until_us=now_us,
        growth=activity.growth,
        activity=activity.buckets,
        usage=activity.usage,
        runs=await _runs(journal, touched),
        agents=compare(trials),
        cache=cache,
        anomalies=find_anomalies(activity, trials, now_us),
    )


async def _position_at(journal: Journal, time_us: int) -> int:
    """The position of the last event before a time, found by bisection; times of events do not decrease by much."""
    low, high = 0, await journal.head()
    while low < high:
        middle = (low + high) // 2
        found = await journal.store.read_log(after=middle, limit=1)
        if found and found[0].time_us < time_us:
            low = found[0].position
        else:
            high = middle
    return low


def _plain_bytes(body: bytes) -> int:
    """The size of a stored body without compression: a frame says it in its header."""
    if body[:4] != zstandard.FRAME_HEADER:
        return len(body)
    return zstandard.get_frame_parameters(body).content_size


async def _attempt(journal: Journal, name: str) -> Attempt | None:
    kind, _, id = name.partition("/")
    return await ATTEMPT.load(journal, id) if kind == stream("").rstrip("/") else None


def _trial(attempt: Attempt) -> Trial:
    spent = attempt.spent
    return Trial(
        id=attempt.id,
        kind=attempt.kind,
        model=attempt.model,
        status=str(attempt.status),
        failure=attempt.failure,
        started_us=attempt.started_us,
        ended_us=attempt.ended_us,
        cost_usd=spent.cost_usd,
        tokens=spent.tokens,
        turns=attempt.turns,
    )


async def _runs(journal: Journal, touched: set[str]) -> RunTotals:
    found = []
    for name in sorted(touched):
        kind, _, id = name.partition("/")
        if kind == RUN.name and (run := await RUN.load(journal, id)) is not None:
            found.append(run)
    statuses = Counter(str(each.status) for each in found)
    return RunTotals(len(found), dict(statuses), sum(each.spent.cost_usd for each in found))
