"""A door killed in the middle of each tool: the call is made again, and what it does is there once (I18, I19)."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from maos.clock import SystemClock
from maos.model import tool_calls
from maos.model.attempt import stream
from maos.model.events.attempt import AttemptEnded
from maos.model.message import inbox
from maos.model.run import agent_name
from maos.model.status import AttemptStatus
from maos.runs.agent_tools import AgentTools
from tests.mcp.conftest import World
from tests.mcp.raw import Gone, raw_door

Effects = Callable[[World], Any]


async def calls(world: World) -> list[Any]:
    """Every call of the writer that was recorded."""
    found = await world.events(tool_calls.stream(agent_name(world.run.id, "writer")))
    return [(each["tool"], each["arguments"]) for each in found]


async def messages(world: World) -> list[Any]:
    found = await world.events(inbox(agent_name(world.run.id, "reader")), "message_sent")
    of_run = [each.message async for each in world.m.bus.history(run=world.run.id)]
    return [[(each["text"], each["sender"]) for each in found], [(each.text, each.sender) for each in of_run]]


async def wishes(world: World) -> list[Any]:
    found = await world.events(inbox(world.run.id))
    return [{name: value for name, value in each.items() if name not in ("at_us", "by")} for each in found]


async def state(world: World) -> list[Any]:
    versions = await world.m.state.history(agent_name(world.run.id, "writer"))
    now = await world.m.state.get(agent_name(world.run.id, "writer"))
    return [now.raw()["saved"], [each.type for each in versions]]


async def effect_is_there(world: World, tool: str) -> bool:
    """Whether anything is there that the tool writes beside its call."""
    if tool == "save_state":
        agent = agent_name(world.run.id, "writer")
        exists = await world.m.journal.version(f"agent/{agent}")
        return bool(exists) and "saved" in (await world.m.state.get(agent)).raw()
    streams = [inbox(agent_name(world.run.id, "reader")), inbox(world.run.id)]
    if tool == "report_progress":
        streams = [tool_calls.stream(agent_name(world.run.id, "writer"))]
    return any([await world.events(each) for each in streams])


TOOLS: list[tuple[str, dict[str, Any], list[Effects]]] = [
    ("report_progress", {"percent": 5, "activity": "begins"}, [calls]),
    ("report_discovery", {"text": "it leaks"}, [calls, messages]),
    ("send_message", {"to": "reader", "text": "hello"}, [calls, messages]),
    ("send_message", {"broadcast": True, "text": "all of you"}, [calls, messages]),
    ("ask_person", {"question": "Which one?", "wait_s": 0}, [calls, wishes]),
    ("spawn_task", {"name": "more", "task": "do more"}, [calls, wishes]),
    ("save_state", {"key": "a", "value": [1, 2]}, [calls, state]),
]


@pytest.mark.parametrize(
    ("tool", "arguments", "effects"), TOOLS, ids=[f"{tool} {next(iter(a))}" for tool, a, _ in TOOLS]
)
async def test_a_call_that_was_cut_short_is_made_again_and_does_its_work_once(
    world: World, tool: str, arguments: dict[str, Any], effects: list[Effects]
) -> None:
    """R-301: at every crash point; half of the time the whole agent was lost, and its next attempt repeats the call."""
    expected = None
    for number in itertools.count(0):
        await world.begin("writer", "reader")
        crash = {"MAOS_CRASH_AT": str(number), "MAOS_CRASH_ONLY": "tool: bus:"} if number else {}
        died = False
        with raw_door({**await world.variables("writer"), **crash}) as raw:
            try:
                _said, failed = raw.call(tool, **arguments)
                assert not failed
            except Gone:
                died = True
        if died:
            recorded, done = await calls(world), await effect_is_there(world, tool)
            assert bool(recorded) == done, "a call without its effect, or an effect without its call"
            with raw_door(await world.variables("writer", number=1 + number % 2)) as raw:
                _said, failed = raw.call(tool, **arguments)
                assert not failed
        found = str([await each(world) for each in effects]).replace(world.run.id, "RUN")
        expected = expected or found
        assert found == expected, f"after dying at point {number}"
        if number and not died:
            break
    assert number > 2, "it never died"


async def test_messages_are_told_again_unless_their_reader_is_known_to_have_got_them(world: World) -> None:
    """I19, I20: read and answered by a door that dies before anything else is asked of it: they are told again."""
    with raw_door(await world.variables("writer")) as raw:
        raw.call("send_message", to="reader", text="once")
    with raw_door(await world.variables("reader")) as raw:
        assert "> once" in raw.call("read_messages")[0]
    with raw_door({**await world.variables("reader"), "MAOS_CRASH_AT": "1", "MAOS_CRASH_ONLY": "tool:"}) as raw:
        assert "> once" in raw.call("read_messages")[0]
        with pytest.raises(Gone):
            raw.call("read_messages")
    with raw_door(await world.variables("reader")) as raw:
        assert "> once" in raw.call("read_messages")[0]
        assert raw.call("run_status")[1] is False
    with raw_door(await world.variables("reader")) as raw:
        assert raw.call("read_messages")[0] == "no messages"


async def test_only_a_call_without_a_proved_answer_is_taken_for_a_repeat(world: World) -> None:
    with raw_door(await world.variables("writer")) as raw:
        for text in ("a", "b"):
            raw.call("send_message", to="reader", text=text)
    with raw_door(await world.variables("writer", number=2)) as raw:
        for text in ("a", "b", "b"):  # the answer to the first a had arrived, for b was sent after it
            raw.call("send_message", to="reader", text=text)
    sent, _history = await messages(world)
    assert [text for text, _sender in sent] == ["a", "b", "a", "b"]


async def test_what_an_agent_did_not_repeat_at_once_is_no_repeat_later(world: World) -> None:
    for number, text in enumerate(("a", "b", "a"), 1):
        with raw_door(await world.variables("writer", number=number)) as raw:
            raw.call("send_message", to="reader", text=text)
    sent, _history = await messages(world)
    assert [text for text, _sender in sent] == ["a", "b", "a"]


async def test_a_request_that_was_written_before_an_answer_came_proves_nothing_of_it(world: World) -> None:
    agent = agent_name(world.run.id, "writer")
    m = world.m
    tools = AgentTools(m.journal, SystemClock(), m.bus, m.state, agent=agent, attempt=f"{agent}.1", run=world.run.id)
    first = await tools.report_progress(percent=1, activity="x")
    tools.sent(first._replace(read=[7]), 5)
    tools.prove(4)
    await tools.acknowledge()
    assert (await tools.report_progress(percent=1, activity="x")).calls == first.calls
    tools.prove(5)
    await tools.acknowledge()
    assert (await tools.report_progress(percent=1, activity="x")).calls != first.calls
    assert [each["proved"] for each in await world.events(tool_calls.stream(agent))] == [[], [1]]
    assert [each["versions"] for each in await world.events(f"acks/{agent}")] == [[7]]


async def test_what_is_asked_for_twice_at_once_is_done_once(world: World) -> None:
    """A client that gives up waiting and asks again, while the first is still under way."""
    params = {"name": "send_message", "arguments": {"to": "reader", "text": "hi"}}
    both = [json.dumps({"jsonrpc": "2.0", "method": "tools/call", "params": params, "id": id}) for id in ("one", "two")]
    with raw_door(await world.variables("writer")) as raw:
        raw.write("".join(f"{each}\n" for each in both).encode())
        assert {raw.read()["id"] for _ in range(2)} == {"one", "two"}
    sent, _history = await messages(world)
    assert len(sent) == 1


async def test_an_attempt_that_ended_well_had_all_its_answers(world: World) -> None:
    """What its next attempt says again, it says again."""
    for number in (1, 2):
        with raw_door(await world.variables("solo", number=number, run=False)) as raw:
            assert raw.call("send_message", to="solo", text="note to myself")[1] is False
        ended = AttemptEnded(status=AttemptStatus.DONE, at_us=1)
        await world.m.journal.append(stream(f"solo.{number}"), ended)
    assert len(await world.events(inbox("solo"), "message_sent")) == 2
