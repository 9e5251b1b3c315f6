"""What agents did, as OpenTelemetry traces: a follower of the journal sends a span for each run, attempt and tool call
that has ended, with the names of the GenAI conventions. Figures of what runs now are sent beside them.

The ids of spans are computed from the ids of streams and tool calls. So a span that is sent a second time, after a
crash, replaces the first, and the next attempt of an agent can be linked to the one before it. How far the follower has
come is a document beside the journal, written when the collector has accepted the spans.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable
from typing import Any, Protocol

from maos.clock import Clock
from maos.engine.streams import ATTEMPT, RUN
from maos.errors import InvalidInput
from maos.journal.journal import Journal, Record
from maos.model.attempt import Attempt, attempt_id, stream
from maos.model.events.attempt import AttemptEnded, AttemptOutput
from maos.model.events.facts import ToolResult, ToolUse
from maos.model.events.run import RunEnded, RunPaused
from maos.model.run import Run
from maos.ops import metrics
from maos.ops.metrics import Measure
from maos.store.contract import Document
from maos.tuples import NamedTuple

CURSOR = "cursor"
NAME = "traces"
PAUSE_S, PAUSE_S_MAX = 1.0, 60.0
BATCH = 256
VERSION = "1.45"
"""The version of the conventions that names and attributes follow; they may change before they are stable."""


class Span(NamedTuple):
    """One operation that has ended. Ids are numbers of 128 and 64 bits."""

    trace: int
    id: int
    parent: int
    """0 for the span of a run, and of an agent without one."""
    name: str
    start_us: int
    end_us: int
    attributes: dict[str, Any]
    error: str = ""
    link: int = 0
    """The span of the attempt before it."""


class Exporter(Protocol):
    """What sends spans; `opentelemetry.sdk.trace.export.SpanExporter` is one."""

    def export(self, spans: Any) -> Any: ...

    def shutdown(self) -> None: ...


def trace_id(name: str) -> int:
    """The trace of a run, or of an agent that belongs to none."""
    return int.from_bytes(hashlib.sha256(f"trace {name}".encode()).digest()[:16])


def span_id(name: str) -> int:
    """The span of a run, an attempt or a tool call."""
    return int.from_bytes(hashlib.sha256(f"span {name}".encode()).digest()[:8])


async def send(journal: Journal, clock: Clock, measure: Measure, *, follows: bool) -> int:
    """Send spans and figures to the collector that the environment names: once, or until cancelled.

    Returns how many spans were sent.
    """
    exporter, figures = otlp(), metrics.otlp()
    works: list[asyncio.Task[int | None]] = []
    try:
        if not follows:
            if figures is not None:
                now_us = clock.now_us()
                await metrics.send(figures, await measure(), since_us=now_us, now_us=now_us)
            return await follow(journal, exporter, until=await journal.head())
        works = [asyncio.create_task(follow(journal, exporter))]
        if figures is not None:
            works.append(asyncio.create_task(metrics.send_often(figures, measure, clock)))
        done, _pending = await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
        return sum(each.result() or 0 for each in done)  # neither ends unless it fails
    finally:
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        exporter.shutdown()
        if figures is not None:
            figures.shutdown()


async def follow(journal: Journal, exporter: Exporter, *, until: int | None = None) -> int:
    """Send a span for everything that ends, from where the last follower stopped; with `until`, up to that position.

    Returns how many were sent. While the collector does not accept spans, it tries again and loses none.
    """
    kept = await journal.store.load(CURSOR, NAME)
    position = kept.version if kept is not None else 0
    sent = 0
    while until is None or position < until:
        page = await journal.store.read_log(after=position, limit=BATCH)
        if not page:
            await journal.store.wait(after=position, timeout_s=60)
            continue
        records = [found for each in page if (found := await journal.decode_unless_erased(each)) is not None]
        spans = [span for record in records async for span in _ended(journal, record)]
        if spans:
            await _send(exporter, spans)
            sent += len(spans)
        position = page[-1].position
        await journal.store.append(documents=[Document(CURSOR, NAME, position, b"{}")])
    return sent


async def _ended(journal: Journal, record: Record) -> AsyncIterator[Span]:
    """The spans of what an event ends."""
    id = record.stream.partition("/")[2]
    match record.event:
        case AttemptEnded() if (attempt := await ATTEMPT.at(journal, id, version=record.version)) is not None:
            yield _of_attempt(attempt)
            async for span in _of_tools(journal, attempt):
                yield span
        case RunEnded() | RunPaused() if (run := await RUN.at(journal, id, version=record.version)) is not None:
            yield _of_run(run, record)


def _of_run(run: Run, record: Record) -> Span:
    spent = run.spent
    attributes = {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": run.id,
        "maos.run.id": run.id,
        "maos.run.status": str(run.status),
        "maos.run.tasks": len(run.tasks),
        "maos.cost_usd": spent.cost_usd,
        "gen_ai.usage.total_tokens": spent.tokens,
    }
    error = run.why or str(run.status) if str(run.status) == "failed" else ""
    return Span(
        trace_id(run.id),
        span_id(RUN.stream(run.id)),
        0,
        f"invoke_workflow {run.id}",
        run.created_us,
        record.time_us,
        attributes,
        error,
    )


def _run_of(attempt: Attempt) -> str:
    return str(attempt.order.get("run", ""))


def _of_attempt(attempt: Attempt) -> Span:
    run, tokens = _run_of(attempt), attempt.total_tokens
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": attempt.agent,
        "gen_ai.provider.name": attempt.kind,
        "gen_ai.request.model": attempt.model,
        "gen_ai.conversation.id": attempt.session,
        "gen_ai.usage.input_tokens": tokens.input,
        "gen_ai.usage.output_tokens": tokens.output,
        "maos.run.id": run,
        "maos.attempt": attempt.number,
        "maos.status": str(attempt.status),
        "maos.cost_usd": attempt.cost_usd,
    }
    return Span(
        trace_id(run or attempt.agent),
        span_id(stream(attempt.id)),
        span_id(RUN.stream(run)) if run else 0,
        f"invoke_agent {attempt.agent}",
        attempt.started_us or attempt.planned_us,
        attempt.ended_us,
        {name: value for name, value in attributes.items() if value != ""},
        attempt.failure,
        span_id(stream(attempt_id(attempt.agent, attempt.number - 1))) if attempt.number > 1 else 0,
    )


async def _of_tools(journal: Journal, attempt: Attempt) -> AsyncIterator[Span]:
    """A span for each tool call; the outcome of one without a result is unknown."""
    begun: dict[str, tuple[ToolUse, int]] = {}
    async for record in journal.read(stream(attempt.id)):
        if isinstance(record.event, AttemptOutput):
            for fact in record.event.facts:
                if isinstance(fact, ToolUse):
                    begun[fact.id] = fact, record.event.at_us
                elif isinstance(fact, ToolResult) and fact.id in begun:
                    use, start_us = begun.pop(fact.id)
                    yield _of_tool(attempt, use, start_us, record.event.at_us, "failed" if fact.failed else "")
    for use, start_us in begun.values():
        yield _of_tool(attempt, use, start_us, attempt.ended_us, "unknown")


def _of_tool(attempt: Attempt, use: ToolUse, start_us: int, end_us: int, error: str) -> Span:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": use.name,
        "gen_ai.tool.call.id": use.id,
        "gen_ai.agent.name": attempt.agent,
    }
    name, parent = f"{stream(attempt.id)}/{use.id}", span_id(stream(attempt.id))
    trace = trace_id(_run_of(attempt) or attempt.agent)
    return Span(trace, span_id(name), parent, f"execute_tool {use.name}", start_us, end_us, attributes, error)


# --- sending -----------------------------------------------------------------------------------------------------


def otlp() -> Exporter:
    """The exporter that the variables OTEL_EXPORTER_OTLP_… describe; it needs `maos[otel]`."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        hint = "install it with `pip install 'maos[otel]'`"
        raise InvalidInput("sending traces needs the OpenTelemetry exporter", hint=hint) from error
    exporter: Exporter = OTLPSpanExporter()
    return exporter


async def _send(exporter: Exporter, spans: Iterable[Span]) -> None:
    """Send spans until the collector has accepted them."""
    from opentelemetry.sdk.trace.export import SpanExportResult

    readable = [_readable(each) for each in spans]
    pause_s = PAUSE_S
    while await asyncio.to_thread(exporter.export, readable) is not SpanExportResult.SUCCESS:
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_S_MAX)


def _readable(span: Span) -> Any:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags
    from opentelemetry.trace.status import Status, StatusCode

    def context(id: int) -> SpanContext:
        return SpanContext(span.trace, id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    attributes = {**span.attributes, **({"error.type": span.error} if span.error else {})}
    return ReadableSpan(
        name=span.name,
        context=context(span.id),
        parent=context(span.parent) if span.parent else None,
        resource=Resource.create({"service.name": "maos"}),
        attributes=attributes,
        links=[Link(context(span.link))] if span.link else [],
        kind=SpanKind.INTERNAL,
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.OK),
        start_time=span.start_us * 1000,
        end_time=max(span.end_us, span.start_us) * 1000,
        instrumentation_scope=InstrumentationScope("maos", VERSION),
    )
