"""A10: for whom an MCP server acts: the attempt that its variables name and prove, and nothing else they say."""

from collections.abc import Awaitable, Callable

import pytest

from maos.model import tool_calls
from maos.model.message import inbox
from tests.attempts import plan_attempt, secret_of
from tests.mcp.conftest import World
from tests.mcp.raw import raw_door

Variables = dict[str, str]


def named(attempt: str, secret: str) -> Variables:
    return {tool_calls.ATTEMPT: attempt, tool_calls.SECRET: secret}


async def own(world: World) -> Variables:
    return {}


async def without_a_secret(world: World) -> Variables:
    return named(f"{world.run.id}.writer.1", "")


async def with_a_wrong_secret(world: World) -> Variables:
    return named(f"{world.run.id}.writer.1", "x" * 43)


async def another_agent(world: World) -> Variables:
    await world.variables("reader")
    return named(f"{world.run.id}.reader.1", secret_of(f"{world.run.id}.writer.1"))


async def an_agent_of_another_run(world: World) -> Variables:
    other = await world.runs.create({"tasks": [{"name": "writer", "task": "do"}]})
    await plan_attempt(world.m.journal, f"{other.id}.writer", run=other.id)
    return {**named(f"{other.id}.writer.1", secret_of(f"{world.run.id}.writer.1")), tool_calls.RUN: other.id}


async def a_name_that_is_no_agent(world: World) -> Variables:
    return named("nobody.1", secret_of("nobody.1"))


async def its_next_attempt(world: World) -> Variables:
    await plan_attempt(world.m.journal, f"{world.run.id}.writer", 2, run=world.run.id)
    return named(f"{world.run.id}.writer.2", secret_of(f"{world.run.id}.writer.1"))


async def an_attempt_that_has_ended(world: World) -> Variables:
    await plan_attempt(world.m.journal, f"{world.run.id}.writer", 2, run=world.run.id)
    return {}


IDENTITIES: list[tuple[Callable[[World], Awaitable[Variables]], str]] = [
    (own, ""),
    (without_a_secret, "is not proved to be the attempt"),
    (with_a_wrong_secret, "is not proved to be the attempt"),
    (another_agent, "is not proved to be the attempt"),
    (an_agent_of_another_run, "is not proved to be the attempt"),
    (a_name_that_is_no_agent, "is not proved to be the attempt"),
    (its_next_attempt, "is not proved to be the attempt"),
    (an_attempt_that_has_ended, "has ended"),
]


@pytest.mark.parametrize(("identity", "refusal"), IDENTITIES, ids=[each.__name__ for each, _ in IDENTITIES])
async def test_a_server_acts_for_the_attempt_that_it_proves_or_not_at_all(
    world: World, identity: Callable[[World], Awaitable[Variables]], refusal: str
) -> None:
    """F9: four of these eight were served before."""
    variables = await world.variables("writer")
    forged = await identity(world)
    await world.variables("reader")
    before = await world.m.journal.head()
    with raw_door({**variables, **forged}) as raw:
        for tool, arguments in (
            ("send_message", {"to": "reader", "text": "hello"}),
            ("spawn_task", {"name": "more", "task": "do more"}),
            ("read_messages", {}),
            ("run_status", {}),
        ):
            said, failed = raw.call(tool, **arguments)
            assert failed == bool(refusal), (tool, said)
            assert refusal in said
    if refusal:
        assert await world.m.journal.head() == before, "nothing is written"
    else:
        [told] = await world.events(inbox(f"{world.run.id}.reader"), "message_sent")
        assert told["sender"] == f"{world.run.id}.writer"


async def test_variables_for_an_agent_and_a_run_change_nothing(world: World) -> None:
    """F9: which agent and run it is, the journal says."""
    other = await world.runs.create({"tasks": [{"name": "writer", "task": "do"}]})
    variables = await world.variables("writer")
    with raw_door({**variables, "MAOS_AGENT": f"{world.run.id}.reader", "MAOS_RUN": other.id}) as raw:
        assert not raw.call("send_message", to="reader", text="hello")[1]
        assert not raw.call("spawn_task", name="more", task="do more")[1]
    [told] = await world.events(inbox(f"{world.run.id}.reader"), "message_sent")
    [wanted] = await world.events(inbox(world.run.id), "tasks_requested")
    assert (told["sender"], wanted["asked_by"]) == (f"{world.run.id}.writer", f"{world.run.id}.writer")
    assert await world.events(inbox(other.id)) == []
