"""Traces for OpenTelemetry: one span for each run, attempt and tool call, also after a crash (R-903)."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import maos
from maos.app import Maos
from maos.errors import StoreUnavailable
from maos.model.events.attempt import AttemptOutput
from maos.model.events.facts import ToolResult, ToolUse
from maos.ops import metrics, traces
from tests.engine.conftest import home  # noqa: F401


class Collector(ThreadingHTTPServer):
    """A collector of OTLP over HTTP that notes the spans, and can be unavailable."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[Any] = []
        self.metrics: list[dict[str, Any]] = []
        """One entry for each request: what it measured, by name."""
        self.unavailable = 0
        self.refused = 0

    @property
    def url(self) -> str:
        return f"{self.endpoint}/v1/traces"

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def named(self) -> dict[str, Any]:
        return {span.name: span for span in self.spans}


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.unavailable:
            self.server.unavailable -= 1
            self.server.refused += 1
            self.send_response(400)  # the exporter itself tries again after 503, for a minute
        else:
            body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            if self.path == "/v1/metrics":
                sent = ExportMetricsServiceRequest.FromString(body)
                scopes = [scope for resource in sent.resource_metrics for scope in resource.scope_metrics]
                self.server.metrics.append({each.name: each for scope in scopes for each in scope.metrics})
            else:
                request = ExportTraceServiceRequest.FromString(body)
                for resource in request.resource_spans:
                    for scope in resource.scope_spans:
                        self.server.spans += scope.spans
            self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        """Print nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
async def m(tmp_path: Path, home: Path) -> AsyncIterator[Maos]:  # noqa: F811
    async with maos.open(tmp_path / "maos.db") as m:
        yield m


async def do_work(m: Maos, folder: Path) -> None:
    plan = {"tasks": [{"name": "hello", "command": ["echo", "hello"]}, {"name": "no", "command": ["false"]}]}
    await m.runs.start(plan, folder=folder, options={"in_place": True}, id="r-1")
    await m.runs.execute("r-1")


async def send(m: Maos, collector: Collector) -> int:
    exporter = OTLPSpanExporter(collector.url)
    try:
        return await traces.follow(m.journal, exporter, until=await m.journal.head())
    finally:
        exporter.shutdown()


async def test_a_run_and_its_agents_are_spans_of_one_trace(m: Maos, tmp_path: Path, collector: Collector) -> None:
    await do_work(m, tmp_path)
    assert await send(m, collector) == len(collector.spans) == 3
    run, hello = collector.named["invoke_workflow r-1"], collector.named["invoke_agent r-1.hello"]
    assert (hello.trace_id, hello.parent_span_id) == (run.trace_id, run.span_id)
    assert run.start_time_unix_nano <= hello.start_time_unix_nano <= hello.end_time_unix_nano
    failed = {each.key: each.value.string_value for each in collector.named["invoke_agent r-1.no"].attributes}
    assert (failed["error.type"], failed["gen_ai.operation.name"]) == ("failed", "invoke_agent")


async def test_nothing_is_sent_twice_and_nothing_is_missing_after_an_outage(
    m: Maos, tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "PAUSE_S", 0.01)
    monkeypatch.setattr(traces, "BATCH", 2)
    collector.unavailable = 3
    await do_work(m, tmp_path)
    assert await send(m, collector) == 3
    assert (collector.refused, len(collector.spans)) == (3, 3)
    assert await send(m, collector) == 0


async def test_killed_before_it_noted_how_far_it_was_the_same_spans_are_sent_under_the_same_ids(
    m: Maos, tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    await do_work(m, tmp_path)

    async def die(*_args: object, **_documents: object) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as killed:
        killed.setattr(m.journal.store, "append", die)
        with pytest.raises(asyncio.CancelledError):
            await send(m, collector)
    first = [each.span_id for each in collector.spans]
    collector.spans.clear()
    assert await send(m, collector) == 3
    assert [each.span_id for each in collector.spans] == first


async def test_tools_are_spans_and_one_without_a_result_is_unknown(
    m: Maos, tmp_path: Path, collector: Collector
) -> None:
    """The facts are those of an agent with tools; the attempt itself is a real one."""
    running = await m.agents.start(kind="shell", argv=["cat"], cwd=tmp_path, name="fixer")
    facts = [ToolUse("t1", "Bash"), ToolUse("t2", "Edit"), ToolResult("t1", "done")]
    output = AttemptOutput(offset=running.attempt.offset, at_us=running.attempt.started_us + 5, facts=facts)
    await running.recorder.append(output)
    await running.stop(grace_s=0.1)
    await running.wait()
    await send(m, collector)
    agent = collector.named["invoke_agent fixer"]
    assert {collector.named[f"execute_tool {name}"].parent_span_id for name in ("Bash", "Edit")} == {agent.span_id}
    errors = {span.name: [each.value.string_value for each in span.attributes if each.key == "error.type"]
              for span in collector.spans}  # fmt: skip
    assert (errors["execute_tool Bash"], errors["execute_tool Edit"]) == ([], ["unknown"])


async def test_the_next_attempt_is_linked_to_the_one_before(m: Maos, tmp_path: Path, collector: Collector) -> None:
    for start in (
        lambda: m.agents.start(kind="shell", argv=["false"], cwd=tmp_path, name="fixer"),
        lambda: m.agents.resume("fixer"),
    ):
        await (await start()).wait()
    await send(m, collector)
    first, second = collector.spans
    assert (list(first.links), [each.span_id for each in second.links]) == ([], [first.span_id])


# --- figures -----------------------------------------------------------------------------------------------------


async def test_the_figures_of_now_are_sent_beside_the_spans(
    m: Maos, tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
    await do_work(m, tmp_path)
    assert await m.send_traces() == len(collector.spans) == 3
    [measured] = collector.metrics
    named = {line.split()[2] for line in (await m.metrics()).splitlines() if line.startswith("# TYPE")}
    assert set(measured) <= named
    events = measured["maos_journal_events_total"].sum
    assert (events.is_monotonic, events.data_points[0].as_double or events.data_points[0].as_int) == (
        True, await m.journal.head()
    )  # fmt: skip
    [failed] = measured["maos_runs"].gauge.data_points
    assert {each.key: each.value.string_value for each in failed.attributes} == {"state": "failed"}
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    await m.send_traces()
    assert len(collector.metrics) == 1


async def test_a_follower_sends_figures_again_and_again_also_after_an_outage(
    m: Maos, tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused figure is out of date; a refused span is sent again."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
    monkeypatch.setattr(metrics, "SEND_S", 0.05)
    monkeypatch.setattr(traces, "PAUSE_S", 0.01)
    collector.unavailable = 5
    following = asyncio.create_task(m.send_traces(follow=True))
    await do_work(m, tmp_path)
    async with asyncio.timeout(60):
        while len(collector.spans) < 3 or not any("maos_runs" in each for each in collector.metrics[1:]):
            assert not following.done()
            await asyncio.sleep(0.02)
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    assert collector.refused == 5
    assert sorted(collector.named) == ["invoke_agent r-1.hello", "invoke_agent r-1.no", "invoke_workflow r-1"]


async def test_a_follower_that_cannot_read_the_figures_says_so(
    m: Maos, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)

    async def fail() -> list[metrics.Metric]:
        raise StoreUnavailable("the disk is gone", written=False)

    with pytest.raises(StoreUnavailable):
        async with asyncio.timeout(60):
            await traces.send(m.journal, m.clock, fail, follows=True)
