"""Verifying everything: what is damaged, what can still be had, and that nothing sound is called damaged."""

from pathlib import Path

import pytest

import maos
from maos.app import Maos
from maos.errors import Corrupt
from tests.journal.places import Place


async def team(m: Maos) -> None:
    """Three agents and a stream of notes."""
    for name in ("a", "b", "c"):
        await m.state.create(name, {"n": 0, "log": []})
        for number in range(1, 9):
            await m.state.update(name, {"n": number, "log": maos.Extend([number])})
            if number == 4:
                await m.state.snapshot(name, name="half")
    await m.journal.append("run/1", maos.Event("note", {"text": "hello"}))


async def test_what_is_sound_verifies(m: Maos) -> None:
    await team(m)
    await m.state.rollback("a", 3)
    await m.state.compact("b", strategy="merge")
    await m.state.compact("c", keep_last=2)
    heard: list[tuple[int, int]] = []
    report = await m.verify(progress=lambda done, of: heard.append((done, of)))
    assert report.ok
    assert report.damage == report.notes == []
    assert report.streams == 4
    assert report.head == await m.journal.head()
    assert heard[-1] == (report.events, report.head)
    one = await m.verify("a")
    assert (one.ok, one.streams, one.events) == (True, 1, 11)


async def test_damage_is_named_and_what_can_be_recovered_is_said(durable: Place) -> None:
    """R-1005: the versions before and after it, and the states that snapshots hold."""
    async with durable.open() as m:
        await team(m)
        damaged = "stream = (SELECT id FROM streams WHERE name = 'agent/b') AND version = 7"
        await durable.sql("UPDATE events SET time_us = time_us + 1 WHERE " + damaged)
        report = await m.verify()
        (found,) = report.damage
        assert found == ("agent/b", 7, "does not match its hash", "versions 1-6, 8-10 verify")
        m.state.cache.clear()
        with pytest.raises(Corrupt, match="agent/b@7"):
            await m.state.get("b")
        assert (await m.state.at("b", version=6)).data["n"] == 4, "what is said to verify can be had"
        assert [each.version for each in await m.state.events("b", until=6)] == [1, 2, 3, 4, 5, 6]
        assert (await m.state.read_snapshot("b", "half")).data["n"] == 4
        assert (await m.state.get("a")).data["n"] == 8, "nobody else is affected"
        assert (await m.verify("a")).ok
        assert not (await m.verify("b")).ok


async def test_an_agent_whose_events_are_all_gone_is_reported(durable: Place) -> None:
    async with durable.open() as m:
        await team(m)
        await durable.sql("DELETE FROM events WHERE stream = (SELECT id FROM streams WHERE name = 'agent/b')")
        report = await m.verify()
        assert not report.ok
        assert {each.stream for each in report.damage} == {"", "agent/b"}


async def test_a_copy_is_verified_like_the_original(sqlite: Place, tmp_path: Path) -> None:
    async with sqlite.open() as m:
        await team(m)
        await m.state.compact("b")
        position = await m.copy_to(tmp_path / "copy.db")
        assert position == await m.journal.head()
        states = {each.agent: (await m.state.get(each.agent)).checksum async for each in m.state.all()}
    async with maos.open(tmp_path / "copy.db", types=[maos.EventType("note")]) as copy:
        report = await copy.verify()
        assert report.damage == []
        assert {each.agent: (await copy.state.get(each.agent)).checksum async for each in copy.state.all()} == states


async def test_a_state_that_only_a_snapshot_still_has_is_named(durable: Place) -> None:
    async with durable.open() as m:
        await team(m)
        damaged = "stream = (SELECT id FROM streams WHERE name = 'agent/b') AND version = 4"
        await durable.sql("UPDATE events SET time_us = time_us + 1 WHERE " + damaged)
        (found,) = (await m.verify()).damage
        assert found.recoverable == "versions 1-3, 5-10 verify; the state at version 5, from a snapshot"
