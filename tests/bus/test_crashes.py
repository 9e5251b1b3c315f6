"""Death at every crash point of sending, handing out and acknowledging: nothing lost, nothing done twice."""

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos_testing.crash import ChildProcess, Life, crash_loop
from tests.bus.bus_life import VISIBILITY_S
from tests.bus.receivers import take
from tests.crash.stores import ROOT, Place

TEXTS = ["one", "bad"]


async def check(m: Maos, life: Life) -> None:
    """What the dead program was told is true, and the rest is whole or absent."""
    told: dict[str, list[str]] = {}
    for what, text in life.acks:
        told.setdefault(what, []).append(text)
    sent = [each.message.text async for each in m.bus.history()]
    assert sent == TEXTS[: len(sent)]
    assert len(sent) >= len(told.get("sent", ()))
    assert [each.data["text"] async for each in m.journal.read("inbox/b")] == sent, "the history is the inbox (I18)"

    await m.bus.send("a", "b", "one", key="one")  # and it goes on: what was sent is not sent twice
    await m.bus.subscribe("b", "news")
    await m.bus.publish("a", "news", "bad", key="bad")
    dead = [each.message.text async for each in m.bus.dead_letters("b")]
    waiting = [each.message.text async for each in m.bus.waiting("b")]
    assert sorted([*dead, *waiting, *(text for text in TEXTS if text not in dead + waiting)]) == sorted(TEXTS)
    assert not set(told.get("acknowledged", ())) & set(waiting + dead), "acknowledged, and it comes again (I19)"
    assert "bad" in dead or "bad" not in told.get("rejected", ())

    began = time.monotonic()
    receiver = m.bus.receive("b", visibility_s=VISIBILITY_S)
    came = []
    while len(came) < len(waiting):
        [delivery] = await take(receiver)
        came.append(delivery.message.text)
        assert delivery.tries <= 2
        await delivery.ack()
    assert came == waiting, "in order, and everything that was not done with (I20, I21)"
    assert time.monotonic() - began < VISIBILITY_S + 1 + 20  # and whatever a busy machine adds
    assert [each async for each in m.bus.waiting("b")] == []


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_every_crash_point_of_the_bus(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I18, I19, I20, I21."""
    url: str = request.getfixturevalue("postgres_url") if kind == "postgres" else ""
    monkeypatch.setenv("MAOS_CRASH_ONLY", "bus:")

    def place(number: int) -> tuple[str, str, Path]:
        folder = tmp_path / str(number)
        folder.mkdir(exist_ok=True)
        return url or str(folder / "maos.db"), f"life_{number}" if url else "", folder / "head"

    def argv(number: int) -> list[str]:
        target, schema, mark = place(number)
        return [sys.executable, "-m", "tests.bus.bus_life", target, schema, str(mark)]

    async def look(life: Life) -> None:
        target, schema, mark = place(life.number)
        await Place(str(mark.parent), url).settled()
        more: dict[str, Any] = {"schema": schema, "mark_path": mark} if schema else {}
        async with maos.open(target, **more) as m:
            await check(m, life)

    lives = await crash_loop(argv, look, cwd=ROOT)
    assert {life.died_at for life in lives} >= {
        f"bus:{when} {what}" for when in ("before", "after") for what in ("send", "handing out", "ack", "dead letter")
    }
    assert [what for what, _text in lives[-1].acks] == ["joined", "sent", "sent", "acknowledged", "rejected"]


async def test_a_killed_process_loses_nothing_and_another_goes_on(tmp_path: Path) -> None:
    """I19, I20: one process sends, one receives and is killed again and again, the last one gets what is left."""
    path = str(tmp_path / "maos.db")
    acknowledged: list[str] = []
    async with maos.open(path) as m:
        enough = asyncio.Event()
        sending = asyncio.create_task(send_slowly(m, enough))
        for _ in range(4):
            process = ChildProcess([sys.executable, "-m", "tests.bus.receiving_life", path, "b"], cwd=ROOT)
            try:
                await asyncio.to_thread(process.wait_for_ack)
                await asyncio.sleep(0.1)
            finally:
                process.kill()
                life = await asyncio.to_thread(process.wait, 1)
            acknowledged += life.acks
        enough.set()
        total = await sending
        waiting = [each.message.text async for each in m.bus.waiting("b")]
        assert not set(acknowledged) & set(waiting)
        assert len(acknowledged) == len(set(acknowledged))
        assert len(acknowledged) + len(waiting) >= total - 4  # each death may hide one acknowledgement
        receiver = m.bus.receive("b", visibility_s=VISIBILITY_S, tries_max=50)
        rest = []
        while len(rest) < len(waiting):
            [delivery] = await take(receiver)
            rest.append(delivery.message.text)
            await delivery.ack()
        assert rest == waiting
        everything = acknowledged + rest
        assert everything == sorted(everything, key=int)
        assert [each async for each in m.bus.dead_letters()] == []


async def send_slowly(m: Maos, enough: asyncio.Event) -> int:
    number = 0
    while not enough.is_set():
        await m.bus.send("a", "b", str(number))
        number += 1
        await asyncio.sleep(0.005)
    return number
