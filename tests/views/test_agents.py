"""Agents through the Python API: names, status with liveness, output, and the commands that reach them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import maos
from maos.app import Maos
from maos.engine import ownership
from maos.engine.live import LiveAttempt
from maos.engine.ownership import Liveness
from maos.errors import InvalidInput, NotFound
from maos.model.events import facts
from maos.model.status import AgentState
from maos.views import agents
from tests.views.test_effects import ran


@pytest.fixture
async def m(tmp_path: Path) -> AsyncIterator[Maos]:
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home") as opened:
        yield opened


async def begin(m: Maos, tmp_path: Path, line: str, name: str, **more: bool) -> LiveAttempt:
    argv = ("sh", "-c", line)
    return await m.agents.start(line, name=name, argv=argv, cwd=tmp_path, in_place=True, **more)


async def test_an_agent_is_found_by_the_beginning_of_its_name(m: Maos) -> None:
    for name in ("fix", "fixer", "writer"):
        await ran(m, name, [], ends=True)
    assert await m.agents.find("w") == "writer"
    assert await m.agents.find("fix") == "fix"
    with pytest.raises(InvalidInput, match="'fi' could be any of 2 agents: fix, fixer"):
        await m.agents.find("fi")
    with pytest.raises(NotFound, match="there is no agent 'x'"):
        await m.agents.find("x")
    assert [name async for name in m.agents.names("fi")] == ["fix", "fixer"]


async def test_the_status_of_an_agent_that_has_ended(m: Maos, tmp_path: Path) -> None:
    running = await begin(m, tmp_path, "echo hello; exit 3", "a")
    await running.wait()
    status = await m.agents.status("a")
    assert (status.agent, status.attempt, status.status, status.result) == ("a", 1, AgentState.FAILED, "hello")
    assert status.failure is not None
    assert (status.failure.name, status.resumable) == ("failed", "maos agent resume a")
    assert status.ended_us is not None
    assert status.since_us == status.ended_us
    found, older = await m.agents.statuses(everything=False)
    assert ([each.agent for each in found], older) == (["a"], 0)
    details = await m.agents.details("a")
    assert details.now == status
    assert (details.newest.lines, details.files, [each.status for each in details.attempts]) == (1, None, ["failed"])


async def test_agents_that_ended_long_ago_are_only_counted(m: Maos) -> None:
    await ran(m, "old", [], ends=True)  # in 1970
    await ran(m, "open", [], ends=False)
    found, older = await m.agents.statuses(everything=False)
    assert ([each.agent for each in found], older) == (["open"], 1)
    assert [each.agent for each in (await m.agents.statuses())[0]] == ["open", "old"]


async def test_an_agent_without_engine_and_holder_is_interrupted(m: Maos, monkeypatch: pytest.MonkeyPatch) -> None:
    await ran(m, "a", [], ends=False)
    assert (await m.agents.status("a")).status is AgentState.RUNNING
    monkeypatch.setattr(ownership, "liveness", lambda _owner: Liveness.GONE)
    status = await m.agents.status("a")
    assert (status.status, status.resumable) == (AgentState.INTERRUPTED, "maos agent resume a")
    monkeypatch.setattr(ownership, "agent_liveness", lambda _attempt: Liveness.DETACHED)
    status = await m.agents.status("a")
    assert (status.status, status.resumable) == (AgentState.DETACHED, "maos agent attach a")


async def test_output_is_followed_until_the_attempt_has_ended(m: Maos, tmp_path: Path) -> None:
    await begin(m, tmp_path, "echo one; sleep 0.2; echo two", "a")
    async with asyncio.timeout(20):
        events = [event async for event in m.agents.output("a", follow=True)]
    assert (events[0].type, events[-1].type) == ("attempt_planned", "attempt_ended")
    lines = [fact["text"] for event in events for fact in event.data.get("facts", ()) if fact["kind"] == "line"]
    assert lines == ["one", "two"]
    assert [event.id for event in events] == [f"attempt/a.1@{version}" for version in range(1, len(events) + 1)]
    assert [event async for event in m.agents.output("a", attempt=1)] == events
    with pytest.raises(NotFound, match="'a' has no attempt 2"):
        await anext(m.agents.output("a", attempt=2))


async def test_a_follower_is_told_once_that_no_engine_records_the_agent(
    m: Maos, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ran(m, "a", [], ends=False)
    monkeypatch.setattr(agents, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(ownership, "liveness", lambda _owner: Liveness.GONE)
    seen: list[str] = []
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            async for event in m.agents.follow("a.1", after=3, owner={"pid": 1}):
                seen.append(event.type)
                assert event.data == {"status": AgentState.INTERRUPTED, "resumable": "maos agent resume a"}
    assert seen == [agents.UNATTENDED]


async def test_an_agent_is_stopped_and_it_is_known_how_it_ended(m: Maos, tmp_path: Path) -> None:
    await begin(m, tmp_path, "sleep 60", "a")
    async with asyncio.timeout(20):
        ran_, status = await m.agents.stop_and_wait("a")
    assert (ran_, status.status) == (True, AgentState.STOPPED)
    ran_, status = await m.agents.stop_and_wait("a")
    assert (ran_, status.status) == (False, AgentState.STOPPED)


async def test_a_command_without_input_cannot_be_told_anything(m: Maos, tmp_path: Path) -> None:
    await begin(m, tmp_path, "sleep 60", "deaf")
    await begin(m, tmp_path, "sleep 60", "listening", takes_input=True)
    with pytest.raises(InvalidInput, match="started without input"):
        await m.agents.tell("deaf", "hello")
    assert await m.agents.tell("listening", "hello") == (1, True)
    for name in ("deaf", "listening"):
        await m.agents.stop_and_wait(name, grace_s=0.0)
    with pytest.raises(InvalidInput, match="accepts no further task"):
        await m.agents.resume_attached("deaf", task="more")
    with pytest.raises(InvalidInput, match="has ended: stopped"):
        await m.agents.attach("deaf")


async def test_a_permission_is_answered_once(m: Maos) -> None:
    asked = [
        facts.PermissionRequested("toolu_1", "Bash", {"command": "ls"}),
        facts.PermissionRequested("toolu_2", "Edit", {}),
    ]
    await ran(m, "a", asked, ends=False)
    assert [each.ref for each in await m.questions.open()] == ["a/toolu_1", "a/toolu_2"]
    with pytest.raises(InvalidInput, match="asks for 2 things"):
        await m.questions.answer_permission("a", "yes")
    assert (await m.questions.answer_permission("a", "yes", request="toolu_1")).question.tool == "Bash"
    with pytest.raises(NotFound, match="there is no request 'toolu_1'"):
        await m.questions.answer_permission("a", "no", request="toolu_1")
    given = await m.questions.answer("a/toolu_2", "No", why="not there")
    assert (given.answer, given.question.tool) == ("no", "Edit")
    with pytest.raises(NotFound, match="asks for nothing"):
        await m.questions.answer_permission("a", "yes")
    assert await m.questions.open() == []


async def test_the_doctor_reports_to_programs_too(m: Maos, tmp_path: Path) -> None:
    running = await begin(m, tmp_path, "true", "a")
    await running.wait()
    left = tmp_path / "home" / "holders" / "a.1"
    left.mkdir(parents=True, exist_ok=True)
    found = {each.about: each for each in await m.doctor()}
    assert {"database", "journal", "agents", "disk", "versions", "holders", "git"} <= set(found)
    assert found["agents"].what == "1 known, 0 running"
    bad = found["folder"]
    assert bad.level == "bad"
    assert bad.fix is not None
    assert await bad.fix() == f"removed {left}"
    assert "folder" not in {each.about for each in await m.doctor()}


async def test_messages_are_followed_from_where_the_list_ends(m: Maos) -> None:
    await m.bus.send("x", "y", "old")
    await m.bus.send("x", "y", "new")
    page = await m.messages.newest(last=1)
    assert ([each.message.text for each in page.messages], page.earlier) == (["new"], 1)
    assert page.messages[0].receivers == {"y": "waiting"}
    assert page.messages[0].pending == ["waiting"]
    await m.bus.send("x", "z", "not for y")
    await m.bus.send("x", "y", "newest")
    async with asyncio.timeout(10):
        following = m.messages.follow(agent="y", after=page.position)
        assert (await anext(following)).message.text == "newest"
        await following.aclose()  # type: ignore[attr-defined]
