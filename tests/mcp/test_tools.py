"""Every tool, called by the official client through a door that is a process of its own."""

import asyncio
import json
from functools import partial
from typing import Any

import maos
from maos.model import tool_calls
from maos.model.message import history, inbox
from tests.mcp.conftest import World


async def test_a_door_greets_shows_its_tools_and_answers_pings(world: World) -> None:
    async with world.agent("writer") as agent:
        assert agent.client.server_info is not None
        assert agent.client.server_info.name == "maos"
        assert "never orders" in (agent.client.instructions or "")
        await agent.ping()
        listed = (await agent.client.list_tools()).tools
    assert [each.name for each in listed] == [
        "report_discovery", "report_progress", "send_message", "read_messages", "ask_person", "spawn_task",
        "save_state", "load_state", "list_agents", "run_status",
    ]  # fmt: skip
    assert all(each.description and each.input_schema["type"] == "object" for each in listed)


async def test_an_agent_without_a_run_is_not_offered_what_needs_one(world: World) -> None:
    async with world.agent("loner", run=False) as agent:
        listed = {each.name for each in (await agent.client.list_tools()).tools}
        assert not listed & {"ask_person", "spawn_task", "list_agents", "run_status"}
        refused = await agent.call("run_status")
        assert refused.failed
        assert "not part of a run" in refused
        assert await agent.call("report_discovery", text="it rains") == "recorded"
    assert [each["arguments"]["text"] for each in await world.events(tool_calls.stream("loner"))] == ["it rains"]


async def test_a_discovery_is_recorded_and_told_to_the_others(world: World) -> None:
    """R-104, R-301."""
    async with world.agent("writer") as agent:
        assert "sent to 1 other" in await agent.call("report_discovery", text="the cache leaks", keyword="found")
    writer, reader = f"{world.run.id}.writer", f"{world.run.id}.reader"
    [called] = await world.events(tool_calls.stream(writer))
    assert called["tool"] == "report_discovery"
    assert called["arguments"] == {"text": "the cache leaks", "keyword": "found"}
    [told] = await world.events(inbox(reader), "message_sent")
    assert (told["sender"], told["type"], told["text"]) == (writer, "discovery", "the cache leaks")
    assert await world.events(inbox(writer)) == []
    assert len(await world.events(history(world.run.id))) == 1


async def test_progress_is_recorded_and_shown_to_the_others(world: World) -> None:
    async with world.agent("writer") as agent:
        for percent in (10, 55.5):
            assert await agent.call("report_progress", percent=percent, activity=f"at {percent}") == "recorded"
    reports = tool_calls.Reports()
    for record in [each async for each in world.m.journal.read(tool_calls.stream(f"{world.run.id}.writer"))]:
        reports.apply(record.event)
    assert (reports.percent, reports.activity) == (55.5, "at 55.5")


async def test_two_agents_exchange_messages_and_each_is_told_once(world: World) -> None:
    """R-301, R-303, I19: the sender is the door's, the text is quoted, and what was read is not told again."""
    async with world.agent("writer") as writer, world.agent("reader") as reader:
        assert await reader.call("read_messages") == "no messages"
        sent = await writer.call("send_message", to="reader", text="What is the name?\nTell me.", type="request")
        assert f"to {world.run.id}.reader" in sent
        heard = await reader.call("read_messages")
        assert f"from {world.run.id}.writer (request)" in heard
        assert "> What is the name?\n> Tell me." in heard
        assert await reader.call("read_messages") == "no messages"
        await reader.call("send_message", to=f"{world.run.id}.writer", text="Emma", type="response")
        assert "> Emma" in await writer.call("read_messages", wait_s=20)
        await writer.call("send_message", broadcast=True, text="to all", type="info")
        assert "> to all" in await reader.call("read_messages")
        assert await writer.call("read_messages") == "no messages"
    receipts = await world.events(f"acks/{world.run.id}.reader", "message_acknowledged")
    assert [each["versions"] for each in receipts] == [[1]], "the last answer is not yet proved to have arrived"


async def test_agents_that_only_answer_each_other_are_stopped(world: World) -> None:
    """A9: neither says that it answers, and no text decides it; a loop ends by the hop limit all the same."""
    said = await _converse(world, rounds=30, between=partial(_use, world, "mcp__maos__read_messages", "send_message"))
    assert "17 messages led to this one" in said[-1]
    assert "continue your task" in said[-1]
    assert len(said) == 18


async def test_agents_that_work_between_their_messages_talk_as_long_as_they_like(world: World) -> None:
    async def work(task: str, number: int) -> None:
        if task == "writer":
            await _use(world, "mcp__maos__send_message", "Edit", task=task, number=number)

    said = await _converse(world, rounds=30, between=work)
    assert len(said) == 30
    assert not any(each.failed for each in said)


async def test_a_person_who_speaks_begins_a_conversation_anew(world: World) -> None:
    async def interrupt(task: str, number: int) -> None:
        if number == 13:
            await world.m.bus.send("person", f"{world.run.id}.{_other(task)}", "and now?", run=world.run.id)

    said = await _converse(world, rounds=30, between=interrupt)
    assert len(said) == 30
    assert not any(each.failed for each in said)


async def _use(world: World, *names: str, task: str, number: int) -> None:
    """What the engine records of an agent that uses tools."""
    uses = [{"kind": "tool_use", "id": f"{name}-{number}", "name": name, "input": {}} for name in names]
    data = {"offset": number + 1, "at_us": number, "facts": uses}
    await world.m.journal.append(f"attempt/{world.run.id}.{task}.1", maos.Event("attempt_output", data))


def _other(task: str) -> str:
    return {"writer": "reader", "reader": "writer"}[task]


async def _converse(world: World, *, rounds: int, between: Any = None) -> list[Any]:
    """Two agents that answer whatever they hear, at once, until one of them may not."""
    said = []
    async with world.agent("writer") as writer, world.agent("reader") as reader:
        agents = {"writer": writer, "reader": reader}
        for number in range(rounds):
            me = "writer" if number % 2 == 0 else "reader"
            other = _other(me)
            if number:
                assert await agents[me].call("read_messages", wait_s=20) != "no messages"
            if between is not None:
                await between(task=me, number=number)
            said.append(await agents[me].call("send_message", to=other, text=f"{number}: thanks!"))
            if said[-1].failed:
                break
    return said


async def test_a_message_that_is_waited_for_arrives_when_it_is_sent(world: World) -> None:
    async with world.agent("writer") as writer, world.agent("reader") as reader:
        waiting = asyncio.create_task(reader.call("read_messages", wait_s=60))
        await reader.ping()
        await writer.call("send_message", to="reader", text="here it is")
        assert "> here it is" in await waiting


async def test_a_topic_reaches_those_who_joined_it(world: World) -> None:
    await world.m.journal.append("topics", _joined("style", f"{world.run.id}.reader"))
    async with world.agent("writer") as writer, world.agent("reader") as reader:
        await writer.call("send_message", topic="style", text="two spaces")
        assert "> two spaces" in await reader.call("read_messages")


async def test_the_same_thing_said_twice_on_purpose_is_said_twice(world: World) -> None:
    async with world.agent("writer") as writer:
        for _ in range(2):
            await writer.call("send_message", to="reader", text="ping")
    assert len(await world.events(inbox(f"{world.run.id}.reader"), "message_sent")) == 2


async def test_what_is_saved_is_loaded_again_by_the_next_attempt(world: World) -> None:
    values = ["text", 7, 1.5, True, "", [], {}, ["a", {"b": [None, "é🦑"]}], {"deep": {"er": {"x": 1}}}, {"x": 2}]
    async with world.agent("writer") as agent:
        for n, value in enumerate(values):
            for key in (f"value {n}", "plan/β ~1"):
                assert "saved" in await agent.call("save_state", key=key, value=value)
    async with world.agent("writer", number=2) as agent:
        for n, value in enumerate(values):
            assert json.loads(await agent.call("load_state", key=f"value {n}")) == value
        assert json.loads(await agent.call("load_state", key="plan/β ~1")) == values[-1]
        assert "plan/β ~1" in json.loads(await agent.call("load_state"))
        await agent.call("save_state", key="plan/β ~1", value=None)
        missing = await agent.call("load_state", key="plan/β ~1")
        assert missing.failed
        assert "nothing is saved under" in missing
    state = await world.m.state.get(f"{world.run.id}.writer")
    assert state.data["status"] == "idle", "the agent's own keys are apart from what maos keeps of it"


async def test_a_task_that_is_asked_for_is_a_wish_in_the_runs_inbox(world: World) -> None:
    async with world.agent("writer") as agent:
        for _ in range(2):
            told = await agent.call("spawn_task", name="docs", task="write the docs", needs=["writer"], agent="writer")
            assert f"{world.run.id}.docs" in told
        other = await agent.call("spawn_task", name="docs", task="something else")
        assert other.failed
        assert "choose another name" in other
        taken = await agent.call("spawn_task", name="reader", task="something else")
        assert taken.failed
    [wish] = await world.events(inbox(world.run.id), "tasks_requested")
    assert wish["tasks"] == [{"name": "docs", "task": "write the docs", "needs": ["writer"], "agent": "writer"}]
    assert wish["asked_by"] == f"{world.run.id}.writer"


async def test_the_run_and_its_agents_can_be_looked_at(world: World) -> None:
    async with world.agent("writer") as agent:
        status = json.loads(await agent.call("run_status"))
        listed = json.loads(await agent.call("list_agents"))
    assert status["run"] == world.run.id
    assert status["tasks"] == {"waiting": ["writer", "reader"]}
    assert [each["task"] for each in listed] == ["writer", "reader"]
    assert [each.get("you", False) for each in listed] == [True, False]


def _joined(topic: str, name: str) -> Any:
    return maos.Event("topic_joined", {"topic": topic, "name": name})
