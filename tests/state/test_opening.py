"""Opening: a file, memory, a server; and what happens when it goes wrong."""

import asyncio
from pathlib import Path

import pytest

import maos
from maos.app import Maos
from maos.errors import InvalidInput, NotFound, StoreUnavailable
from tests.journal.places import Place


async def test_a_journal_is_opened_for_a_while_or_for_good(durable: Place) -> None:
    async with durable.open() as m:
        assert isinstance(m, Maos)
        await m.state.create("a", {"n": 1})
    again = await durable.open()
    assert (await again.state.get("a")).data == {"n": 1}
    await again.close()


async def test_what_is_in_memory_is_gone_afterwards() -> None:
    async with maos.open(":memory:") as m:
        await m.state.create("a")
        with pytest.raises(StoreUnavailable, match="memory"):
            await m.copy_to("copy.db")
    async with maos.open(":memory:") as m:
        with pytest.raises(NotFound):
            await m.state.get("a")


@pytest.mark.parametrize("target", ["mysql://here", "http://127.0.0.1/x", "file://maos.db"])
async def test_what_is_neither_a_path_nor_a_server_is_refused(target: str) -> None:
    with pytest.raises(InvalidInput, match="neither a path nor a PostgreSQL URL"):
        await maos.open(target)


async def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="nowhere"):
        await maos.open(tmp_path / "nowhere" / "maos.db")


async def test_a_path_may_be_a_path(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db") as m:
        await m.state.create("a")
    assert (tmp_path / "maos.db").exists()


async def test_whoever_leaves_by_an_error_leaves_a_closed_journal(durable: Place) -> None:
    left: list[Maos] = []

    async def leave() -> None:
        async with durable.open() as m:
            left.append(m)
            await m.state.create("a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await leave()
    with pytest.raises(StoreUnavailable, match="closed"):
        await left[0].state.update("a", {"n": 1})


async def test_what_was_accepted_before_closing_is_finished(durable: Place) -> None:
    async with durable.open() as m:
        await m.state.create("a", {"log": []})
        tasks = [asyncio.create_task(m.journal.append("run/1", maos.Event("note", {"n": n}))) for n in range(20)]
        await asyncio.sleep(0)
    replies = await asyncio.gather(*tasks, return_exceptions=True)
    async with durable.open() as m:
        written = [reply for reply in replies if not isinstance(reply, BaseException)]
        assert await m.journal.version("run/1") >= len(written)
