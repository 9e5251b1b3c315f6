"""R-104: what one agent finds, the others of its run can see, however it was reported."""

from pathlib import Path

from maos.app import Maos
from maos.clock import SystemClock
from maos.runs.agent_tools import AgentTools
from maos.runs.feed import ReportedDiscovery
from tests.runs.test_scheduler import plan


async def test_what_the_agents_of_a_run_have_found_is_known_by_who_found_it(engine_m: Maos, tmp_path: Path) -> None:
    """Whoever begins later is told; whoever works sees it with `run_status`."""
    made = plan(a="", b="a")
    for task in made.tasks:
        task.command = ["sh", "-c", f"echo 'found: {task.name} was here'; echo nothing"]
    run = await engine_m.runs.create(made, folder=str(tmp_path), options={"in_place": True, "kind": "shell"})
    run = await engine_m.runs.execute(run.id)
    assert run.status == "completed"
    found = [("a", "a was here"), ("b", "b was here")]
    assert [(task.name, each.text) for task, each in await engine_m.agents.discoveries(run)] == found
    others = await engine_m.agents.discoveries(run, but=f"{run.id}.a")
    assert [(task.name, each.text) for task, each in others] == found[1:]


async def test_a_discovery_of_every_attempt_and_by_every_way_is_one(engine_m: Maos, tmp_path: Path) -> None:
    """In a line of an attempt that was killed, and by a tool: in the feed, the summary and the details of the agent."""
    made = plan(a="")
    killed = "if test -f twice; then echo 'found: gold'; else touch twice; echo 'found: silver'; kill -9 $$; fi"
    made.tasks[0].command = ["sh", "-c", killed]
    run = await engine_m.runs.create(made, folder=str(tmp_path), options={"in_place": True, "kind": "shell"})
    agent = f"{run.id}.a"
    async with engine_m.runs.follow(run.id) as feed:
        run = await engine_m.runs.execute(run.id)
        tools = AgentTools(
            engine_m.journal,
            SystemClock(),
            engine_m.bus,
            engine_m.state,
            agent=agent,
            attempt=f"{agent}.2",
            run=run.id,
        )
        for text in ("copper", "gold"):
            await tools.report_discovery(text=text, keyword="found")
        updates = [each async for each in feed.recorded() if isinstance(each, ReportedDiscovery)]
    assert (run.status, run.tasks["a"].attempts) == ("completed", 2)
    assert [(each.agent, each.discovery.text) for each in updates] == [(agent, "copper"), (agent, "gold")]
    summary = await engine_m.runs.summary(run)
    assert [(each["task"], each["text"]) for each in summary.discoveries] == [
        ("a", "copper"), ("a", "gold"), ("a", "silver"),
    ]  # fmt: skip
    assert {each.text for each in (await engine_m.agents.details(agent)).discoveries} == {"copper", "gold", "silver"}


async def test_only_lines_that_begin_with_a_keyword_are_discoveries_and_not_too_many(
    engine_m: Maos, tmp_path: Path
) -> None:
    """B3: `AssertionError: …` is none, and neither are thousands of lines of a compiler."""
    made = plan(a="")
    said = [
        "AssertionError: 3 != 4", "src/x.c:3: error: expected ;", "- found: a list", "2. Result: numbered",
        "> **Found:** quoted", "  error: the disk is full",
    ]  # fmt: skip
    script = "".join(f"echo '{line}'\n" for line in said) + "for i in $(seq 5000); do echo error: $i; done"
    made.tasks[0].command = ["sh", "-c", script]
    run = await engine_m.runs.create(made, folder=str(tmp_path), options={"in_place": True, "kind": "shell"})
    run = await engine_m.runs.execute(run.id)
    found = [each for _task, each in await engine_m.agents.discoveries(run)]
    assert [(each.keyword, each.text) for each in found][:5] == [
        ("found", "a list"), ("result", "numbered"), ("found", "quoted"), ("error", "the disk is full"), ("error", "1"),
    ]  # fmt: skip
    assert len(found) == 50
