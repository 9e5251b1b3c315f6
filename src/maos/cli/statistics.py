"""`maos stats`: figures about the journal, the agents and their models."""

from __future__ import annotations

from collections.abc import Sequence

import click

from maos.cli import documents, remote, render, words
from maos.cli.commands import WHEN, json_command
from maos.cli.database import DatabaseTarget
from maos.cli.render import Column, Listing, clean
from maos.errors import InvalidInput
from maos.model.statistics import Comparison, Period, StreamUsage
from maos.ops.statistics import JournalStatistics

BARS = " ▁▂▃▄▅▆▇█"
USAGE_SHOWN_MAX = 8

AGENTS: Listing[Comparison] = Listing(
    "agents",
    (
        Column("agents of kind", lambda each: each.kind, style="bold", yields=1),
        Column("model", lambda each: each.model or "-", yields=2),
        Column("attempts", lambda each: str(each.attempts), right=True),
        Column("success", lambda each: "-" if each.success is None else f"{each.success:.0%}", right=True),
        Column("median", lambda each: "-" if each.median_s is None else words.duration(each.median_s), right=True),
        Column("cost", lambda each: f"${each.cost_usd:.2f}", right=True),
        Column("tokens", lambda each: f"{each.tokens:,}", right=True),
        Column(
            "failures", lambda each: ", ".join(f"{name} {count}" for name, count in each.failures.items()), yields=3
        ),
    ),
)
USAGE: Listing[StreamUsage] = Listing(
    "usage",
    (
        Column("streams of", lambda each: each.kind, style="bold"),
        Column("streams", lambda each: f"{each.streams:,}", right=True),
        Column("events", lambda each: f"{each.events:,}", right=True),
        Column("stored", lambda each: render.size(each.stored_bytes), right=True),
        Column("uncompressed", lambda each: render.size(each.plain_bytes), right=True),
    ),
)


@json_command("maos stats", "maos stats --since 30d --json", "maos stats --prometheus")
@click.option("--since", type=WHEN, help="From a time on: ISO 8601, or 2h, 3d ago.  [default: 7d]")
@click.option("--prometheus", is_flag=True, help="Print what runs now in the text format of Prometheus instead.")
def stats(database: DatabaseTarget, since: int | None, prometheus: bool, as_json: bool) -> None:
    """Show figures: growth, agents and models, what is unusual.

    Everything is computed from the journal. Attempts and runs count if something of them was recorded in the time.
    """
    if prometheus:
        if since is not None or as_json:
            raise InvalidInput("--prometheus has the figures of now", hint="leave out --since and --json")
        click.echo(database.read(lambda m: m.metrics()), nl=False)
        return
    if database.is_remote:
        found = remote.call(lambda client: client.statistics(since_us=since or 0))
    else:
        found = database.read(lambda m: m.statistics(since_us=since or 0))
    if as_json:
        documents.show(found)
        return
    _show(found)


def _show(found: JournalStatistics) -> None:
    growth = found.growth
    saved = "" if growth.compression is None else f", {growth.compression:.0%} saved by compression"
    total = f"{render.many(growth.events, 'event')}, {render.size(growth.stored_bytes)}{saved}"
    render.line(f"since {render.when(found.since_us)}: {total}")
    trend = "" if growth.trend is None else f", {growth.trend:.1f} times as much in the second half as in the first"
    per_day = render.size(int(growth.bytes_per_day))
    render.line((f"  {growth.events_per_hour:,.0f} events an hour, {per_day} a day{trend}", "dim"))
    if growth.events:
        render.line(f"  events    {_bars([each.events for each in found.activity])}")
    if any(each.failures for each in found.activity):
        render.line(
            (f"  failures  {_bars([each.failures for each in found.activity])}  {_failures(found.activity)}", "bad")
        )
    if found.runs.count:
        statuses = ", ".join(f"{count} {status}" for status, count in found.runs.by_status.items())
        render.line(f"  {render.many(found.runs.count, 'run')}: {statuses} · ${found.runs.cost_usd:.2f}")
    if found.agents:
        render.line()
        AGENTS.table(found.agents)
    if found.usage:
        render.line()
        USAGE.table(found.usage, shown_max=USAGE_SHOWN_MAX)
    render.line()
    for each in found.anomalies:
        render.line(("! ", "warning"), (clean(each.about), "bold"), f": {clean(each.what)}")
    if not found.anomalies:
        render.line(("nothing unusual", "dim"))


def _bars(values: Sequence[int]) -> str:
    """A row of bars, one for each value."""
    highest = max(values, default=0) or 1
    return "".join(BARS[-(-value * (len(BARS) - 1) // highest)] for value in values).rstrip()


def _failures(buckets: Sequence[Period]) -> str:
    return str(sum(each.failures for each in buckets))


@json_command("maos admin traces", "maos admin traces --follow --json")
@click.option("-f", "--follow", is_flag=True, help="Keep sending what ends; Ctrl+C ends it.")
def traces(database: DatabaseTarget, follow: bool, as_json: bool) -> None:
    """Send what agents did to an OpenTelemetry collector.

    A span for each run, attempt and tool call that has ended since the last time, with the names of the GenAI
    conventions; and the figures of `maos stats --prometheus` as metrics, with --follow every minute
    (OTEL_METRICS_EXPORTER=none: no metrics). The standard variables OTEL_EXPORTER_OTLP_ENDPOINT and so on name the
    collector. How far it has come is stored in the database: after a crash no span is missing, and what is sent again
    has the same ids. Needs `pip install 'maos[otel]'`.
    """
    sent = database.write(lambda m: m.send_traces(follow=follow))
    render.show({"sent": sent}, f"sent {render.many(sent, 'span')}", as_json=as_json)
