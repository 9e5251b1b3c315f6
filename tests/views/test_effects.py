"""The ledger of effects outside: intents, outcomes, and what nobody knows (I31)."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec

import maos
from maos.app import Maos
from maos.engine.recorder import Recorder
from maos.engine.streams import ATTEMPT
from maos.model.attempt import Attempt
from maos.model.events import facts
from maos.model.events.attempt import AttemptEnded, AttemptOutput, AttemptStarted
from maos.model.status import AttemptStatus
from maos.views import effects
from tests.events import event


def planned(agent: str) -> Any:
    workspace = {
        "name": agent, "path": "", "tree": "", "repository": None, "gitdir": None, "base": None, "notes": [],
        "file_bytes_max": 1, "keep_ignored": [],
    }  # fmt: skip
    order = {
        "task": "", "resume": False, "cwd": "", "home": "", "model": "", "instructions": "", "turns_max": 0,
        "budget_usd": 0.0, "tools_allowed": [], "permission": "ask", "takes_input": False, "mcp": [], "env": [],
        "argv": [], "time_limit_s": 0.0,
    }  # fmt: skip
    return event(
        "attempt_planned", agent=agent, number=1, agent_kind="claude", task="", order=order, owner={}, session="",
        folder="", workspace=workspace, at_us=1, inbox_cursor=0, transcript=["", 0],
    )  # fmt: skip


async def ran(m: Maos, agent: str, said: list[facts.Fact], *, ends: bool) -> None:
    """An attempt that said all that, as its engine would have recorded it."""
    lease = await m.journal.acquire(f"attempt/{agent}")
    assert lease is not None
    recorder = Recorder(m.journal, ATTEMPT, Attempt(id=f"{agent}.1"), lease)
    await recorder.append(planned(agent))
    await recorder.append(AttemptStarted(pid=1, at_us=2))
    await recorder.append(AttemptOutput(offset=1, at_us=3, facts=said))
    if ends:
        await recorder.append(AttemptEnded(status=AttemptStatus.FAILED, failure="killed", at_us=4))
    await m.journal.release(lease)


SAID = [
    facts.ToolUse("t1", "Bash", {"command": "make"}),
    facts.ToolResult("t1", "ok"),
    facts.ToolUse("t2", "Edit", {"file": "a"}),
    facts.ToolResult("t2", "no such file", failed=True),
    facts.ToolUse("t3", "Bash", {"command": "deploy"}),
]


async def test_a_tool_without_an_outcome_is_unknown_once_its_agent_has_ended(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home") as m:
        await ran(m, "dead", SAID, ends=True)
        await ran(m, "alive", SAID, ends=False)
        dead = [each async for each in effects.of_agent(m.agents, "dead")]
        alive = [each async for each in effects.of_agent(m.agents, "alive")]
    assert [(each.id, each.outcome) for each in dead] == [("t1", "done"), ("t2", "failed"), ("t3", "unknown")]
    assert [each.outcome for each in alive] == ["done", "failed", "running"]
    assert (dead[2].what, dead[2].given, dead[1].said) == ("Bash", '{"command": "deploy"}', "no such file")


@maos.step
async def ledger_step(number: int) -> int:
    if number == 2:
        raise ValueError("two")
    if number == 3:
        await asyncio.Event().wait()
    return number


@maos.workflow
async def ledger_flow() -> None:
    await ledger_step(1)
    try:
        await ledger_step(2)
    except maos.MaosError:
        await ledger_step(3)


async def test_steps_of_workflows_are_in_it_too(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db") as m:
        await m.workflows.start(ledger_flow, id="w")
        async with asyncio.timeout(60):
            while len((await m.workflows.get("w")).steps) < 3:
                await asyncio.sleep(0.02)
        flow = await m.workflows.get("w")
    assert [each.outcome for each in effects.of_workflow(flow)] == ["done", "failed", "running"]
    found = effects.of_workflow(msgspec.structs.replace(flow, owner={**flow.owner, "since": 1}))
    assert [(each.what, each.given, each.outcome) for each in found] == [
        ("ledger_step", "1", "done"),
        ("ledger_step", "2", "failed"),
        ("ledger_step", "3", "unknown"),
    ]
