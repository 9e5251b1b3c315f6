"""Figures of what runs now: in the text format of Prometheus, which `maos stats --prometheus` prints and `maos serve`
has at /metrics, and as OpenTelemetry metrics, which `maos admin traces` sends. Their names are the same in both.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from maos.clock import Clock
from maos.errors import InvalidInput
from maos.tuples import NamedTuple

if TYPE_CHECKING:
    from maos.journal.journal import Journal
    from maos.runs.status import RunView
    from maos.state.records import CacheStatistics
    from maos.views.overview import Overview

Labels = Mapping[str, str]
SEND_S = 60.0
"""How often the figures are sent."""


class Metric(NamedTuple):
    """One figure: its name, what it means, and its values by labels."""

    name: str
    help: str
    values: Sequence[tuple[Labels, float]]
    kind: str = "gauge"


Measure = Callable[[], Awaitable[Sequence[Metric]]]
"""Reads the figures of now."""


class MetricExporter(Protocol):
    """What sends figures; `opentelemetry.sdk.metrics.export.MetricExporter` is one."""

    def export(self, metrics_data: Any) -> Any: ...

    def shutdown(self) -> None: ...


async def read(journal: Journal, clock: Clock, overview: Overview, cache: CacheStatistics) -> list[Metric]:
    """The figures of now."""
    now_us = clock.now_us()
    return [
        Metric("maos_journal_events_total", "Events in the journal.", [({}, await journal.head())], "counter"),
        *_of_runs(overview.runs),
        *_of_agents(overview, now_us),
        *_of_questions(overview, now_us),
        Metric("maos_workflow_runs_open", "Workflow runs that have not ended.", [({}, len(overview.flows))]),
        Metric("maos_effects_unknown", "Tools and steps whose outcome is unknown.", [({}, len(overview.unknown))]),
        Metric("maos_state_cache_reads_total", "Reads of agent states by this process, by result.",
               [({"result": name}, getattr(cache, name)) for name in ("hits", "misses", "refreshes")], "counter"),
        Metric("maos_state_cache_bytes", "Memory that cached agent states take in this process.", [({}, cache.bytes)]),
    ]  # fmt: skip


def _of_runs(runs: list[RunView]) -> Iterator[Metric]:
    states = Counter(str(each.now.state) for each in runs)
    yield Metric("maos_runs", "Runs that are open or failed lately, by state.", _counted("state", states))
    tasks: Counter[str] = Counter()
    for each in runs:
        tasks.update(str(task.status) for task in each.run.tasks.values())
    yield Metric("maos_tasks", "Tasks of these runs, by status.", _counted("status", tasks))
    costs = [({"run": each.run.id}, each.spent.cost_usd) for each in runs]
    yield Metric("maos_run_cost_usd", "What a run has cost so far, in US dollars.", costs)
    tokens = [({"run": each.run.id}, float(each.spent.tokens)) for each in runs]
    yield Metric("maos_run_tokens", "Tokens that a run has used so far.", tokens)


def _of_agents(overview: Overview, now_us: int) -> Iterator[Metric]:
    found: list[tuple[Labels, int | None]] = []
    for run in overview.runs:
        opened = [each for each in run.attempts.items() if each[1].is_open]
        found += [({"agent": name, "run": run.run.id}, attempt.output_us) for name, attempt in opened]
    found += [({"agent": each.agent, "run": ""}, each.output_us) for each in overview.agents]
    yield Metric("maos_agents_open", "Agents that work or are detached.", [({}, len(found))])
    silent = [(labels, _seconds(output_us, now_us)) for labels, output_us in found if output_us]
    yield Metric("maos_agent_silent_seconds", "Time since an agent last printed something.", silent)


def _of_questions(overview: Overview, now_us: int) -> Iterator[Metric]:
    asked = [each.asked_us for each in overview.questions]
    yield Metric("maos_questions_open", "Questions that wait for a person.", [({}, len(asked))])
    oldest = _seconds(min(asked), now_us) if asked else 0.0
    yield Metric("maos_question_oldest_seconds", "Age of the oldest open question.", [({}, oldest)])


def _counted(label: str, counts: Counter[str]) -> list[tuple[Labels, float]]:
    return [({label: name}, float(count)) for name, count in sorted(counts.items())]


def _seconds(since_us: int, now_us: int) -> float:
    return max(0.0, (now_us - since_us) / 1e6)


def render(metrics: list[Metric]) -> str:
    """The figures in the text format of Prometheus."""
    lines: list[str] = []
    for metric in metrics:
        lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
        for labels, value in metric.values:
            named = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            lines.append(f"{metric.name}{{{named}}} {value:.12g}" if named else f"{metric.name} {value:.12g}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# --- OpenTelemetry -----------------------------------------------------------------------------------------------


def otlp() -> MetricExporter | None:
    """The exporter that the variables OTEL_EXPORTER_OTLP_… describe; None with OTEL_METRICS_EXPORTER=none.

    It needs `maos[otel]`.
    """
    if os.environ.get("OTEL_METRICS_EXPORTER") == "none":
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    except ImportError as error:
        hint = "install it with `pip install 'maos[otel]'`"
        raise InvalidInput("sending figures needs the OpenTelemetry exporter", hint=hint) from error
    exporter: MetricExporter = OTLPMetricExporter()
    return exporter


async def send(exporter: MetricExporter, metrics: Sequence[Metric], *, since_us: int, now_us: int) -> bool:
    """Send figures once; whether the collector has accepted them. The exporter logs why it has not."""
    from opentelemetry.sdk.metrics.export import MetricExportResult

    data = _data(metrics, since_us * 1000, now_us * 1000)
    return await asyncio.to_thread(exporter.export, data) is MetricExportResult.SUCCESS


async def send_often(exporter: MetricExporter, measure: Measure, clock: Clock) -> None:
    """Send the figures of now every minute until cancelled; those that are refused are out of date by then."""
    since_us = clock.now_us()
    while True:
        await send(exporter, await measure(), since_us=since_us, now_us=clock.now_us())
        await asyncio.sleep(SEND_S)


def _data(metrics: Sequence[Metric], since_ns: int, now_ns: int) -> Any:
    from opentelemetry.sdk.metrics import export
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    def one(metric: Metric) -> Any:
        points = [export.NumberDataPoint(dict(labels), since_ns, now_ns, value) for labels, value in metric.values]
        if metric.kind == "counter":
            data: Any = export.Sum(points, export.AggregationTemporality.CUMULATIVE, is_monotonic=True)
        else:
            data = export.Gauge(points)
        return export.Metric(metric.name, metric.help, "", data)

    scope = export.ScopeMetrics(InstrumentationScope("maos"), [one(each) for each in metrics], "")
    return export.MetricsData([export.ResourceMetrics(Resource.create({"service.name": "maos"}), [scope], "")])
