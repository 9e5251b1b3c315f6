"""`maos stats`, the figures of a real journal, and the text for Prometheus (R-903)."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import maos
from maos.app import Maos
from maos.cli.program import program
from maos.ops import statistics
from tests.engine.conftest import home  # noqa: F401


@pytest.fixture
async def m(tmp_path: Path, home: Path) -> AsyncIterator[Maos]:  # noqa: F811
    async with maos.open(tmp_path / "maos.db") as m:
        yield m


async def do_work(m: Maos, folder: Path) -> None:
    """One run of two tasks, the second of which fails."""
    hello = {"name": "hello", "command": ["sh", "-c", "seq 500"]}
    plan = {"tasks": [hello, {"name": "no", "command": ["false"], "needs": ["hello"]}]}
    await m.runs.start(plan, folder=folder, options={"in_place": True}, id="r-1")
    assert (await m.runs.execute("r-1")).status == "failed"


async def test_the_figures_are_those_of_the_journal(m: Maos, tmp_path: Path) -> None:
    await do_work(m, tmp_path)
    await m.state.create("reviewer", {"notes": "x" * 2000})
    found = await m.statistics()
    assert found.growth.events == await m.journal.head() == sum(each.events for each in found.activity)
    assert sum(each.events for each in found.usage) == found.growth.events
    assert found.growth.plain_bytes > found.growth.stored_bytes > 0
    assert (found.runs.count, found.runs.by_status) == (1, {"failed": 1})
    [agents] = found.agents
    assert (agents.kind, agents.done, agents.failed, agents.failures) == ("shell", 1, 1, {"failed": 1})
    assert sum(each.failures for each in found.activity) == 2  # the attempt, and its task


async def test_only_what_was_recorded_since_counts(m: Maos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "PAGE_EVENTS", 3)
    await m.state.create("old")
    await m.state.update("old", {"status": "busy"})
    changed = await m.state.get("old")
    await m.state.create("new")
    assert (await m.statistics(since_us=changed.time_us + 1)).growth.events == 1
    assert (await m.statistics(since_us=changed.time_us)).growth.events == 2
    assert (await m.statistics(since_us=1)).growth.events == 3


async def test_an_empty_journal_has_figures(m: Maos) -> None:
    found = await m.statistics()
    assert (found.growth.events, found.agents, found.anomalies) == (0, [], [])


async def test_prometheus_can_read_what_runs(m: Maos, tmp_path: Path) -> None:
    await do_work(m, tmp_path)
    text = await m.metrics()
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert all(re.fullmatch(r'[a-z_]+(\{([a-z_]+="[^"\n]*",?)+\})?', name) for name in samples)
    assert samples["maos_journal_events_total"] == str(await m.journal.head())
    assert samples['maos_runs{state="failed"}'] == "1"
    assert samples['maos_tasks{status="done"}'] == "1"
    named = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert {name.partition("{")[0] for name in samples} <= named


async def test_the_dashboard_for_grafana_shows_only_what_is_exported(m: Maos, tmp_path: Path) -> None:
    """And everything that is exported is on it."""
    await do_work(m, tmp_path)
    exported = {line.split()[2] for line in (await m.metrics()).splitlines() if line.startswith("# TYPE")}
    dashboard = json.loads((Path(__file__).parents[2] / "docs/reference/grafana-dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert {name for each in expressions for name in re.findall(r"maos_\w+", each)} == exported
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


async def test_an_agent_that_has_printed_nothing_counts(m: Maos, tmp_path: Path) -> None:
    running = await m.agents.start(kind="shell", argv=["sleep", "60"], cwd=tmp_path, name="quiet", in_place=True)
    assert "\nmaos_agents_open 1\n" in await m.metrics()
    await running.stop(grace_s=0.1)
    await running.wait()
    assert "\nmaos_agents_open 0\n" in await m.metrics()


def test_a_person_and_a_program_read_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MAOS_HOME", str(tmp_path / "home"))
    call = CliRunner().invoke
    assert call(program, ["state", "create", "reviewer"]).exit_code == 0
    said = call(program, ["stats"])
    assert said.exit_code == 0, said.output
    assert "1 event," in said.output
    assert said.output.endswith("nothing unusual\n")
    document = json.loads(call(program, ["stats", "--json"]).output)
    assert (document["growth"]["events"], document["usage"][0]["kind"]) == (1, "agent")
    assert "maos_journal_events_total 1\n" in call(program, ["stats", "--prometheus"]).output
    refused = call(program, ["stats", "--prometheus", "--json"])
    assert (refused.exit_code, "leave out" in refused.output) == (2, True)
