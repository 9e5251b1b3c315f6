"""Questions to a person: answered before, after, by nobody; with an engine and without one (R-207)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from maos.engine.questions import Answered
from maos.model.message import inbox
from maos.model.question import question_id
from maos.model.run import Run, TaskState, agent_name
from maos.runs.budgets import Purse
from maos.runs.decisions import Outcome
from tests.mcp.conftest import World
from tests.mcp.raw import Gone, raw_door

QUESTION = "Tabs or spaces?"
ID = question_id(QUESTION)


class Patient:
    """A worker whose tasks go on until they are stopped."""

    def __init__(self) -> None:
        self._stopped = asyncio.Event()

    async def work(self, run: Run, task: TaskState) -> Outcome:
        await self._stopped.wait()
        return Outcome(failure="stopped")

    check = complete = work

    def watch(self, purse: Purse) -> None:
        """Nothing here costs money."""

    async def stop(self, run: Run, task: TaskState) -> None:
        self._stopped.set()


@asynccontextmanager
async def engine(world: World) -> AsyncIterator[None]:
    """Somebody carries out the run."""
    carrying = asyncio.create_task(world.runs.execute(world.run.id, worker=Patient()))
    try:
        yield
        world.runs.pause_here(world.run.id, "test")
        await carrying
    finally:
        carrying.cancel()


async def test_an_answer_comes_while_the_agent_waits(world: World, wait_for: Callable[..., Any]) -> None:
    async with engine(world), world.agent("writer") as agent:
        asking = asyncio.create_task(
            agent.call("ask_person", question=QUESTION, choices=["tabs", "spaces"], context="a style", wait_s=60)
        )

        async def asked() -> Any:
            return (await world.runs.get(world.run.id)).open_questions

        [question] = await wait_for(asked)
        assert (question.id, question.question, question.choices) == (ID, QUESTION, ["tabs", "spaces"])
        assert question.context == "a style"
        assert question.asked_us
        await world.runs.answer(world.run.id, ID, "tabs")
        assert await asking == "Answer (person): tabs"
    assert (await world.runs.get(world.run.id)).open_questions == []


async def test_an_answer_that_was_given_before_is_there_at_once(world: World, wait_for: Callable[..., Any]) -> None:
    """Equal questions are asked once, in whatever words around them, and a second agent gets the first one's answer."""
    async with engine(world), world.agent("writer") as writer, world.agent("reader") as reader:
        assert "recorded as" in await writer.call("ask_person", question=QUESTION, wait_s=0)
        await world.runs.answer(world.run.id, ID, "spaces")

        async def answered() -> bool:
            run = await world.runs.get(world.run.id)
            return bool(run.questions) and not run.open_questions

        await wait_for(answered)
        assert await reader.call("ask_person", question="  tabs OR  spaces ") == "Answer (person): spaces"
        told = await writer.call("read_messages", wait_s=30)
        assert await writer.call("ask_person", question=QUESTION) == "Answer (person): spaces"
    assert "spaces" in told, "whoever stopped waiting is told as a message"
    run = await world.runs.get(world.run.id)
    assert list(run.questions) == [ID]


async def test_a_question_that_nobody_answers_lets_the_agent_go(world: World) -> None:
    async with world.agent("writer") as agent:
        told = await agent.call("ask_person", question=QUESTION, wait_s=0.5)
        assert not told.failed
        assert "the answer will be sent to you" in told
        assert "stop now" in told
        await agent.call("ask_person", question=QUESTION, wait_s=0)
    assert len(await world.events(inbox(world.run.id), "question_asked")) == 1


async def test_without_an_engine_an_answer_counts_all_the_same(world: World) -> None:
    """The first one does, as it will for the engine."""
    async with world.agent("writer") as agent:
        asking = asyncio.create_task(agent.call("ask_person", question=QUESTION, wait_s=60))
        async with asyncio.timeout(30):
            while not await world.events(inbox(world.run.id), "question_asked"):
                await asyncio.sleep(0.01)
        await world.runs.answer(world.run.id, ID, "first")
        with pytest.raises(Answered):
            await world.runs.answer(world.run.id, ID, "second")
        assert await asking == "Answer (person): first"


async def test_a_default_is_recorded_with_its_time(world: World) -> None:
    async with world.agent("writer") as agent:
        half = await agent.call("ask_person", question=QUESTION, default="tabs", wait_s=0)
        assert half.failed
        assert "default_after_s" in half
        await agent.call("ask_person", question=QUESTION, default="tabs", default_after_s=60, wait_s=0)
    [asked] = await world.events(inbox(world.run.id), "question_asked")
    assert asked["default"] == "tabs"
    assert asked["expires_us"] == asked["at_us"] + 60_000_000


async def test_two_agents_with_one_question_are_both_told(world: World, wait_for: Callable[..., Any]) -> None:
    async with engine(world), world.agent("writer") as writer, world.agent("reader") as reader:
        asking = [
            asyncio.create_task(each.call("ask_person", question=QUESTION, wait_s=60)) for each in (writer, reader)
        ]

        async def asked() -> bool:
            questions = (await world.runs.get(world.run.id)).questions
            return ID in questions and len(questions[ID].asked_by) == 2

        await wait_for(asked)
        await world.runs.answer(world.run.id, ID, "tabs")
        assert await asyncio.gather(*asking) == ["Answer (person): tabs"] * 2


async def test_a_door_killed_while_it_waits_asks_once(world: World) -> None:
    """R-207: before or after a crash."""
    with raw_door(await world.variables("writer")) as raw:
        raw.send("tools/call", {"name": "ask_person", "arguments": {"question": QUESTION}}, id=1)
        while not await world.events(inbox(world.run.id), "question_asked"):
            await asyncio.sleep(0.02)
        raw.process.kill()
        with pytest.raises(Gone):
            raw.read()
    await world.runs.answer(world.run.id, ID, "tabs")
    with raw_door(await world.variables("writer", number=2)) as raw:
        assert raw.call("ask_person", question=QUESTION) == ("Answer (person): tabs", False)
    [asked] = await world.events(inbox(world.run.id), "question_asked")
    assert asked["asked_by"] == [agent_name(world.run.id, "writer")]


async def test_a_call_that_waits_can_be_cancelled_and_says_that_it_is_there(world: World) -> None:
    params = {
        "name": "ask_person",
        "arguments": {"question": QUESTION, "wait_s": 600},
        "_meta": {"progressToken": "p"},
    }
    hurried = (
        "from maos.mcp import server, session; from maos.runs import agent_tools; "
        "session.PROGRESS_S = agent_tools.NO_ENGINE_S = 0.2; raise SystemExit(server.main())"
    )
    with raw_door(await world.variables("writer"), argv=("-c", hurried)) as raw:
        raw.send("tools/call", params, id="long")
        seen = [raw.read()["params"] for _ in range(3)]
        assert all(each["progressToken"] == "p" and "waiting for a person" in each["message"] for each in seen)
        assert seen[0]["progress"] < seen[1]["progress"] < seen[2]["progress"]
        raw.send("ping", id="meanwhile")
        while (answer := raw.read()).get("method"):
            pass
        assert answer == {"jsonrpc": "2.0", "id": "meanwhile", "result": {}}
        raw.send("notifications/cancelled", {"requestId": "long", "reason": "enough"})
        while True:
            raw.send("ping", id="again")
            if raw.read() == {"jsonrpc": "2.0", "id": "again", "result": {}}:
                break
        with pytest.raises(TimeoutError):
            raw.read(timeout_s=0.6)
        assert raw.end() == 0


@pytest.mark.parametrize("same", ["tabs or spaces", " Tabs  or\nSPACES?! ", "“Tabs” or spaces…"])
def test_a_question_has_one_name_however_it_is_written(same: str) -> None:
    assert question_id(same) == ID
    assert question_id(f"not {same}") != ID
    assert question_id("?!") != question_id("!?")


async def test_who_was_answered_here_is_not_told_the_same_as_a_message(
    world: World, wait_for: Callable[..., Any]
) -> None:
    """The next request proves that the answer has arrived; until then the message is kept."""
    async with engine(world), world.agent("writer") as writer:
        assert "recorded as" in await writer.call("ask_person", question=QUESTION, wait_s=0)
        await world.runs.answer(world.run.id, ID, "spaces")
        assert await writer.call("ask_person", question=QUESTION, wait_s=30) == "Answer (person): spaces"
        waiting = [each async for each in world.m.bus.waiting(f"{world.run.id}.writer")]
        assert [(each.tries, each.message.metadata) for each in waiting] == [(1, {"question": ID})]
        assert await writer.call("read_messages", wait_s=0) == "no messages"
