"""The stream: every event once and in order, also when the server is killed, and for readers that are slow."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

import maos
from maos.views import activity
from maos.views.activity import ActivityEvent, ActivityFilter
from maos.web.endpoints import stream
from tests.web.conftest import ServerProcess, write_plan
from tests.web.test_api import served

LINES = "for i in 1 2 3 4 5 6 7 8 9 10; do echo line $i; sleep 0.1; done"


async def positions(database: Path, kinds: tuple[str, ...] = activity.KINDS) -> list[int]:
    """The positions of everything that is shown, read from the journal itself."""
    async with maos.open(database) as m:
        head = await m.journal.head()
        found = []
        async for record in m.journal.follow():
            if record.stream.partition("/")[0] in kinds:
                found.append(record.position)
            if record.position >= head:
                return found
    raise AssertionError


async def test_after_kill_9_of_the_server_a_client_has_every_event_once(
    new_server: Callable[[], ServerProcess],
) -> None:
    server = new_server()
    await asyncio.to_thread(server.start)
    token = (await asyncio.to_thread(server.maos, "token", "create", "watch", "--role", "operator")).stdout.strip()
    plan = write_plan(server.folder, {"name": "count", "command": ["sh", "-c", LINES]})
    async with maos.Client(server.url, token=token) as client:
        seen: list[int] = []
        lines: list[str] = []
        done = asyncio.Event()

        async def watch() -> None:
            async for event in client.follow(after=0):
                seen.append(event.position)
                if event.type == "attempt_output":
                    lines.extend(fact.get("text", "") for fact in event.data["facts"] if fact["kind"] == "line")
                if event.type == "run_ended":
                    done.set()
                    return

        watching = asyncio.create_task(watch())
        started = await asyncio.to_thread(
            server.maos, "run", "-f", str(plan), "--auto", "--in-place", "--detach", "--json"
        )
        assert '"handed_over"' in started.stdout, started.stderr
        port = int(server.url.rpartition(":")[2])
        for _ in range(2):
            before = len(seen)
            while len(seen) < before + 3 and not done.is_set():
                await asyncio.sleep(0.05)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start, port=port)
        await asyncio.wait_for(done.wait(), 60)
        await watching
    assert seen == [each for each in await positions(server.database) if each <= seen[-1]]
    assert "".join(lines).count("line") == 10, lines


async def test_a_reader_resumes_from_any_position_without_gap_or_repetition(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db", home=tmp_path) as m:
        await m.state.create("one", {"n": 0})
        for number in range(1, 30):
            await m.state.update("one", {"n": number})
        await m.access.create_token("hidden")
        await m.state.create("two", {"n": 0})
        everything = await take(m, after=0, until=32)
        assert [each.position for each in everything] == [*range(1, 31), 32]  # 31 is the token
        for after in (0, 1, 15, 30, 31):
            rest = await take(m, after=after, until=32)
            assert rest == [each for each in everything if each.position > after]


async def take(m: maos.Maos, *, after: int, until: int, wanted: ActivityFilter | None = None) -> list[ActivityEvent]:
    """Follow from a position until everything up to another one was read."""
    found: list[ActivityEvent] = []
    following = m.activity.follow(after=after, wanted=wanted)
    async for each in following:
        if isinstance(each, ActivityEvent):
            found.append(each)
        elif each >= until:
            break
    await following.aclose()  # type: ignore[attr-defined]
    return found


async def test_events_reach_a_reader_while_it_waits_and_filters_are_applied(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db", home=tmp_path) as m:
        plan = {"tasks": [{"name": "hello", "command": ["echo", "hello"]}]}
        await m.runs.start(plan, folder=tmp_path, options={"in_place": True}, id="r-1")
        await m.state.create("other", {})
        wanted = ActivityFilter(run="r-1", types=("task_*", "run_ended"))

        async def read() -> list[str]:
            found: list[str] = []
            async for each in m.activity.follow(after=0, wanted=wanted):
                if isinstance(each, ActivityEvent):
                    found.append(each.type)
                if "run_ended" in found:
                    return found
            raise AssertionError

        reading = asyncio.create_task(read())
        await m.runs.execute("r-1")
        assert await reading == ["task_started", "task_finished", "run_ended"]
        head = await m.activity.head()
        agent = await take(m, after=0, until=head, wanted=ActivityFilter(agent="r-1.hello"))
        assert {each.stream for each in agent} == {"attempt/r-1.hello.1"}


async def test_a_slow_reader_costs_no_memory_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "RECENT_EVENTS", 8)
    async with maos.open(tmp_path / "maos.db", home=tmp_path) as m:
        await m.state.create("one", {"n": 0})
        following = m.activity.follow(after=0)
        first = await anext(following)
        assert isinstance(first, ActivityEvent)
        for number in range(1, 50):
            await m.state.update("one", {"n": number})
        await asyncio.sleep(0.1)
        kept = [each for each in m.activity._recent if each.position]
        assert len(kept) <= 8
        assert len(m.activity._recent) <= 2 * 8
        found = [first.position]
        async for each in following:
            if isinstance(each, ActivityEvent):
                found.append(each.position)
            elif each >= 50:
                break
        assert found == list(range(1, 51))
        await following.aclose()  # type: ignore[attr-defined]


async def test_a_reader_that_allows_it_skips_what_it_missed(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db", home=tmp_path) as m:
        await m.state.create("one", {"n": 0})
        for number in range(1, 50):
            await m.state.update("one", {"n": number})
        following = m.activity.follow(after=1, lag_max=10)
        assert await anext(following) == -50
        await m.state.update("one", {"n": 50})
        event = await anext(following)
        assert isinstance(event, ActivityEvent)
        assert event.position == 51
        await following.aclose()  # type: ignore[attr-defined]


async def test_a_reader_that_comes_while_the_only_other_one_leaves_gets_events(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db", home=tmp_path) as m:
        await m.state.create("one", {"n": 0})
        first = m.activity.follow(after=0)
        await anext(first)
        second = m.activity.follow(after=1)
        leaving = asyncio.create_task(first.aclose())  # type: ignore[attr-defined]  # as when a page is reloaded
        coming = asyncio.ensure_future(anext(second))
        await leaving
        await m.state.update("one", {"n": 1})
        async with asyncio.timeout(10):
            found = await coming
        assert isinstance(found, ActivityEvent)
        assert found.position == 2
        await second.aclose()  # type: ignore[attr-defined]


async def test_readers_that_come_at_once_share_one_follower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with maos.open(tmp_path / "maos.db", home=tmp_path) as m:
        await m.state.create("one", {"n": 0})
        head = m.journal.head

        async def head_of_a_server() -> int:
            await asyncio.sleep(0.01)  # as PostgreSQL takes
            return await head()

        monkeypatch.setattr(m.journal, "head", head_of_a_server)
        readers = [m.activity.follow(after=1) for _ in range(3)]
        coming = [asyncio.ensure_future(anext(each)) for each in readers]
        await asyncio.sleep(0.1)
        for number in range(1, 4):
            await m.state.update("one", {"n": number})
        async with asyncio.timeout(10):
            await asyncio.gather(*coming)
            while m.activity._newest < 4:
                await asyncio.sleep(0.01)
        assert [each.position for each in m.activity._recent] == [2, 3, 4]
        for each in readers:
            await each.aclose()  # type: ignore[attr-defined]
        assert m.activity._tasks == []


async def test_readers_are_told_of_an_event_that_cannot_be_read(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db", home=tmp_path) as m:
        await m.state.create("one", {"n": 0})
        following = m.activity.follow(after=1)
        coming = asyncio.ensure_future(anext(following))
        await asyncio.sleep(0.05)
        async with maos.open(tmp_path / "maos.db", types=[maos.EventType("from_elsewhere", 1)]) as other:
            await other.journal.append("run/r-9", maos.Event("from_elsewhere", {}))
        async with asyncio.timeout(10):
            with pytest.raises(maos.UnknownFormat):
                await coming


async def test_the_stream_of_a_token_that_is_revoked_or_expires_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "CHECK_S", 0.0)
    monkeypatch.setattr("maos.views.activity.IDLE_S", 0.2)
    async with served(tmp_path) as (m, server):
        for name, expires_s in (("revoked", 0.0), ("expires", 2.0)):
            _token, secret = await m.access.create_token(name, expires_s=expires_s)
            headers = {"Authorization": f"Bearer {secret}"}
            async with (
                httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False) as http,
                http.stream("GET", f"{server.url}/api/v1/stream") as response,
            ):
                assert response.status_code == 200
                chunks = response.aiter_bytes()
                await anext(chunks)
                if not expires_s:
                    await m.access.revoke(name)
                await m.state.create(f"after-{name}", {})
                async with asyncio.timeout(30):
                    rest = b"".join([each async for each in chunks])
                assert expires_s or b"after-revoked" not in rest
