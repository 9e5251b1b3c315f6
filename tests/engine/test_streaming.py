"""Agents that stream their words: what means nothing by itself waits for what does, and nothing is lost by it."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import maos
from benchmarks import coder
from maos.app import Maos
from maos.model.attempt import Attempt, stream
from maos.model.events.facts import ToolResult

RATE = 100


def words_of(steps: int) -> dict[str, str]:
    """What the stand-in says in each message, without its spaces."""
    said = {}
    for line in coder.lines_of(steps):
        message = json.loads(line.removeprefix("T")).get("message", {})
        for block in message.get("content", ()):
            if block["type"] == "text":
                said[message["id"]] = "".join(block["text"].split())
    return said


async def until_steps(m: Maos, steps: int, *, adopt: bool) -> None:
    """Run the agent, or take it up, until it has got so many results of tools, and let go of it in the middle."""
    enough = asyncio.Event()
    results = 0

    def heard(_attempt: Attempt, facts: Sequence[Any]) -> None:
        nonlocal results
        results += sum(isinstance(each, ToolResult) for each in facts)
        if results >= steps:
            enough.set()

    if adopt:
        assert await m.agents.adopt("coder", listener=heard) is not None
    else:
        await m.agents.start("Work.", kind="claude", name="coder", cwd=m.agents.folder.parent, in_place=True,
                               listener=heard)  # fmt: skip
    async with asyncio.timeout(60):
        await enough.wait()
        await asyncio.sleep(0.1)  # into the next message


async def test_pieces_of_a_paragraph_are_recorded_with_its_end_and_survive_a_new_engine(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-705, I22: an event for each line would cost ten times as much; every word is there all the same, once."""
    coder.install(tmp_path / "bin", RATE)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    for engine in range(3):
        async with maos.open(tmp_path / "maos.db", home=home) as m:
            await until_steps(m, 3, adopt=engine > 0)
    async with maos.open(tmp_path / "maos.db", home=home) as m:
        running = await m.agents.adopt("coder")
        assert running is not None
        await running.stop(grace_s=0)
        attempt = await running.wait()
        records = [each async for each in m.journal.read(stream(attempt.id)) if each.type == "attempt_output"]
    facts = [fact for record in records for fact in record.data["facts"]]
    said: dict[str, str] = {}
    for fact in facts:
        if fact["kind"] == "text":
            said[fact["message"]] = said.get(fact["message"], "") + "".join(fact["text"].split())
    done = [f"msg_{number}" for number in range(attempt.tools_done)]
    wanted = words_of(coder.STEPS)
    assert len(done) >= 9
    assert {id: said[id] for id in done} == {id: wanted[id] for id in done}
    results = [fact["id"] for fact in facts if fact["kind"] == "tool_result"]
    assert results == [f"toolu_{number}" for number in range(attempt.tools_done)]
    assert sum(not record.data["facts"] for record in records) <= 4
