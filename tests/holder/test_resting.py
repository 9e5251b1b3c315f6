"""A holder with a little news all the time is read now and then, and one with much, or with an answer, at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from maos.holder import agent_process
from maos.holder.client import start
from tests.holder.agents import PATIENCE_S, py

LINES = 100
TALK = f"import time\nfor n in range({LINES}): print(n, flush=True); time.sleep(0.03)"
TALK_AND_LISTEN = """
import threading, time
def talk():
    while True:
        print("more", flush=True)
        time.sleep(0.03)
threading.Thread(target=talk, daemon=True).start()
print("got", input(), flush=True)
"""


async def test_what_comes_bit_by_bit_is_given_in_groups_and_whole(root: Path) -> None:
    """R-705: ten agents that stream their words must not wake the engine for each of them."""
    process = await start(root / "a", py(TALK))
    groups, lines = 0, []
    async with asyncio.timeout(PATIENCE_S):
        while records := await process.records():
            groups += 1
            lines += [record.data.decode().strip() for record in records if record.kind == "stdout"]
    assert lines == [str(n) for n in range(LINES)]
    assert groups < LINES / 2
    await process.finish()


async def test_an_answer_is_read_while_it_rests(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes behind what is on its way already."""
    monkeypatch.setattr(agent_process, "TICK_S", 3_600.0)
    process = await start(root / "a", py(TALK_AND_LISTEN, keeps_input_open=True))
    async with asyncio.timeout(PATIENCE_S):
        while not process._resting:
            await process.records()
        assert await process.write("w1", b"hello\n")
    await process.detach()
