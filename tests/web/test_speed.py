"""What makes the server quick changes nothing of what it says: kept and compressed replies, shared folds, batches."""

import socket
from pathlib import Path
from typing import Any

import pytest

import maos
from benchmarks import serve_store
from maos.engine.streams import RUN
from maos.views import activity
from maos.web import api
from maos.web.api import KeptReplies
from tests.web.test_api import caller, served

PLAN = {"tasks": [{"name": "hello", "command": ["echo", "hello"]}]}


async def test_a_read_after_a_write_has_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a reply is kept: every event moves the end of the journal."""
    monkeypatch.setattr(api, "KEPT_S", 3_600.0)
    async with served(tmp_path) as (m, server), caller(m, server, "viewer") as http:
        for number in range(1, 6):
            await m.runs.create(PLAN, folder=tmp_path, options={"in_place": True}, id=f"r-{number}")
            assert (await http.get("/runs")).json()["total"] == number
            assert (await http.get("/runs")).json()["total"] == number
        async with maos.open(tmp_path / "maos.db", home=tmp_path / "home") as other:  # as another process does
            await other.runs.create(PLAN, folder=tmp_path, options={"in_place": True}, id="r-6")
        assert (await http.get("/runs")).json()["total"] == 6


async def test_a_kept_reply_is_given_to_nobody_whose_token_was_revoked(tmp_path: Path) -> None:
    async with served(tmp_path) as (m, server), caller(m, server, "viewer", "gone") as http:
        assert (await http.get("/runs")).status_code == 200
        await m.access.revoke("gone")
        assert (await http.get("/runs")).status_code == 401


async def test_replies_that_are_kept_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "KEPT_BYTES_MAX", 1_000)
    async with maos.open(tmp_path / "maos.db", home=tmp_path) as m:
        replies = KeptReplies(m.clock)
        for number in range(20):
            replies.keep((f"/{number}", b""), 1, api.Response(b"x" * 100))
        found = [number for number in range(20) if replies.get((f"/{number}", b""), 1) is not None]
        assert found == list(range(10, 20))
        assert replies.get(("/19", b""), 2) is None  # something was recorded since


async def test_a_large_reply_is_compressed_for_who_can_read_that(tmp_path: Path) -> None:
    async with served(tmp_path) as (m, server), caller(m, server, "viewer") as http:
        for number in range(20):
            await m.runs.create(PLAN, request="r" * 500, folder=tmp_path, options={"in_place": True}, id=f"r-{number}")
        plain = await http.get("/runs?status=running", headers={"Accept-Encoding": "identity"})
        packed = await http.get("/runs?status=running", headers={"Accept-Encoding": "gzip"})
        assert "content-encoding" not in plain.headers
        assert packed.headers["content-encoding"] == "gzip"
        assert int(packed.headers["content-length"]) < len(plain.content) / 4
        assert packed.json() == plain.json()
        page = await http.get(f"{server.url}/page/app.js", headers={"Accept-Encoding": "gzip"})
        assert page.headers["content-encoding"] == "gzip"
        assert int(page.headers["content-length"]) < len(page.content)


async def test_a_reply_waits_for_no_acknowledgement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With Nagle's algorithm the body of a reply follows its headers 40 ms later."""
    seen: list[int] = []
    accepted = socket.socket.accept

    def accept(self: socket.socket) -> tuple[socket.socket, object]:
        connection, address = accepted(self)
        seen.append(connection.proto)
        return connection, address

    monkeypatch.setattr(socket.socket, "accept", accept)
    async with served(tmp_path) as (m, server), caller(m, server, "viewer") as http:
        assert (await http.get("/runs")).status_code == 200
    assert seen
    assert set(seen) == {socket.IPPROTO_TCP}  # asyncio looks at this before it sets TCP_NODELAY


async def test_a_shared_fold_is_read_again_when_its_stream_has_grown(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db", home=tmp_path) as m:
        await m.runs.create(PLAN, folder=tmp_path, options={"in_place": True}, id="r-1")
        first = await m.runs.view("r-1")
        assert await m.runs.view("r-1") is first
        own = await m.runs.get("r-1")
        assert own is not first  # an engine changes what it reads
        await m.runs.execute("r-1")
        after = await RUN.view(m.journal, "r-1")
        assert after is not None
        assert (first.status, after.status) == ("running", "completed")


async def test_a_batch_has_a_limit_and_the_next_continues_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activity, "BATCH_BYTES", 2_000)
    monkeypatch.setattr(activity, "RECENT_EVENTS", 8)
    async with maos.open(tmp_path / "maos.db", home=tmp_path) as m:
        await m.state.create("one", {"text": ""})
        batches = m.activity.batches(after=0)
        found = list((await anext(batches)).events)
        for number in range(40):
            await m.state.update("one", {"text": f"{number} {'x' * 700}"})
        while not found or found[-1].position < 41:  # from the journal first, then from memory
            batch = await anext(batches)
            assert sum(len(each.json) for each in batch.events[:-1]) < 2_000
            found += batch.events
        assert [each.position for each in found] == list(range(1, 42))
        await batches.aclose()  # type: ignore[attr-defined]


async def test_an_agent_that_printed_much_is_shown_without_reading_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with maos.open(tmp_path / "maos.db", home=tmp_path) as m:
        agent = await serve_store.add_lines(m, "r-lines", 30_000, tmp_path)
        events = await m.journal.version(f"attempt/{agent}.2")
        store, rows = m.journal.store, 0
        read = store.read

        async def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal rows
            found = await read(*arguments, **options)
            rows += len(found)
            return found

        monkeypatch.setattr(store, "read", counted)
        found = await m.agents.details(agent)
        assert found.newest.number == 2
        window = await m.agents.window(agent, facts_max=300)
        assert (window.newest, len(window.events)) == (events, 6)  # its end, and events of a hundred lines
        assert events > 300
        assert rows < 200
