"""Conversations with a real agent of the protocol, built with the protocol's own package (see peer.py)."""

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from maos.agents.acp.dialect import Acp
from maos.agents.contract import LaunchOrder, McpServer, Reply
from maos.model.failure import Ending, understand
from tests.agents.driving import Run, an_order, started

PEER = Path(__file__).parent / "peer.py"


def peer(*options: str) -> Acp:
    """The dialect of the peer."""
    return Acp(" ".join([sys.executable, str(PEER), *options]))


def order_of(folder: Path, *steps: dict[str, Any], **fields: Any) -> LaunchOrder:
    """An order whose prompt is a list of steps."""
    return an_order(folder, **{"task": json.dumps(steps)} | fields)


def notes(folder: Path) -> list[dict[str, Any]]:
    """How the peer's sessions were opened."""
    return [json.loads(line) for line in (folder / "home" / "notes").read_text().splitlines()]


async def one_turn(run: Run) -> None:
    """Hear one turn to its end and let the agent go."""
    await run.until_fact("turn_ended")
    assert await run.finish() == 0


@pytest.mark.parametrize("forgetful", [False, True], ids=["one engine", "another engine for every line"])
async def test_a_turn_from_the_first_word_to_the_last(tmp_path: Path, forgetful: bool) -> None:
    """R-103: words, thoughts, a plan, a tool with intent and outcome (I31), usage and cost."""
    marks = tmp_path / "marks"
    order = order_of(
        tmp_path,
        {"think": "hmm, let me see"},
        {"say": "First line\ndiscovery: the tests pass\nand a last one"},
        {"plan": ["read", "write"]},
        {"tool": {"id": "t1", "path": str(marks)}},
        {"cost": 0.25},
        {"cost": 0.5},
        {"say": "done"},
    )
    async with started(peer(), order, forgetful=forgetful) as run:
        await one_turn(run)
    session = run.of("session")[0]
    assert session["id"].startswith("sess_")
    assert session["version"] == "peer 1.2.3"
    assert [fact["kind"] for fact in run.facts if fact["kind"] not in ("line", "session")] == [
        "thought", "text", "text", "text", "plan", "tool_use", "tool_progress", "tool_result", "cost", "cost", "text",
        "usage", "turn_ended",
    ]  # fmt: skip
    assert run.text() == "First line\ndiscovery: the tests pass\nand a last one\ndone"
    assert run.of("thought")[0]["text"] == "hmm, let me see"
    assert [entry["content"] for entry in run.of("plan")[0]["entries"]] == ["read", "write"]
    assert run.of("tool_use") == [{"kind": "tool_use", "id": "t1", "name": "append", "input": {"path": str(marks)}}]
    assert run.of("tool_result") == [{"kind": "tool_result", "id": "t1", "output": "appended"}]
    assert [(fact["usd"], fact["turn"]) for fact in run.of("cost")] == [(0.25, "tester.1/1"), (0.75, "tester.1/1")]
    assert run.of("usage") == [{"kind": "usage", "message": "tester.1/1", "input": 10, "output": 20, "cache_read": 5}]
    assert run.of("turn_ended") == [{"kind": "turn_ended", "reason": "end_turn"}]
    assert understand(Ending(exit_code=0), run.heard) is None
    assert len(json.dumps(dict(run.conversation.state()))) < 500


async def test_another_message_is_another_turn_of_the_same_session(tmp_path: Path) -> None:
    """R-202: the protocol has no messages inside a turn, so they wait for its end."""
    order = order_of(tmp_path, {"cost": 1.0}, {"ask": {"id": "t1", "title": "run", "kind": "execute"}})
    async with started(peer(), order, forgetful=True) as run:
        (asked,) = await run.until_fact("permission_requested")
        assert run.conversation.say("inbox/1", "now?") is None
        await run.write(run.conversation.answer(asked["id"], allow=True))
        await run.until_fact("turn_ended")
        text = json.dumps([{"remember": 1}, {"cost": 0.5}])
        assert await run.say("inbox/1", text)
        assert run.conversation.say("inbox/2", "and this?") is None
        assert run.conversation.say("inbox/1", text) == run.conversation.say("inbox/1", text)  # a repetition
        await run.until_fact("turn_ended", 2)
        assert run.conversation.say("inbox/1", text) is None  # answered
        assert await run.finish() == 0
    assert run.text() == "answer: yes\nI remember 3 things"
    assert [(fact["usd"], fact["turn"]) for fact in run.of("cost")] == [(1.0, "tester.1/1"), (0.5, "tester.1/2")]


async def test_the_response_to_a_message_nobody_recorded_is_understood(tmp_path: Path) -> None:
    """The engine wrote a message and was killed before it could record that: the next one hears the response."""
    dialect, order = peer(), order_of(tmp_path, {"say": "one"})
    async with started(dialect, order) as run:
        await run.until_fact("turn_ended")
        recorded = dict(run.conversation.state())
        assert await run.say("inbox/7", json.dumps([{"say": "two"}]))
        run.conversation = dialect.converse(order, recorded)
        await run.until_fact("turn_ended", 2)
        assert run.conversation.say("inbox/7", "two") is None
        assert await run.finish() == 0
    assert run.text() == "one\ntwo"


async def test_permissions_are_asked_for_and_answered(tmp_path: Path) -> None:
    ask = {"ask": {"id": "t1", "title": "rm -r build", "kind": "execute"}}
    dialect, order = peer(), order_of(tmp_path, ask, ask)
    async with started(dialect, order, forgetful=True) as run:
        for number, allow in ((1, True), (2, False)):
            asked = (await run.until_fact("permission_requested", number))[-1]
            assert (asked["tool"], asked["input"]) == ("rm -r build", {"a": 1})
            assert [option["kind"] for option in asked["options"]] == ["allow_once", "allow_always", "reject_once"]
            reply = run.conversation.answer(asked["id"], allow=allow)
            taken_over = dialect.converse(order, json.loads(json.dumps(dict(run.conversation.state()))))
            assert taken_over.answer(asked["id"], allow=allow) == reply  # whoever takes over can repeat it
            await run.write(reply)
        await one_turn(run)
    assert run.text() == "answer: yes\nanswer: no"
    assert run.conversation.answer(asked["id"], allow=True) is None


async def test_a_turn_can_be_broken_off(tmp_path: Path) -> None:
    """By another client; what the agent had asked for is answered too, as the protocol demands."""
    order = order_of(tmp_path, {"ask": {"id": "t1", "title": "run", "kind": "execute"}}, {"wait": True})
    async with started(peer(), order) as run:
        await run.until_fact("permission_requested")
        state = run.conversation.state()
        ((id, *_),) = state["questions"].values()
        cancel = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": state["session"]}}
        answer = {"jsonrpc": "2.0", "id": id, "result": {"outcome": {"outcome": "cancelled"}}}
        await run.write(Reply("cancel", b"".join(json.dumps(each).encode() + b"\n" for each in (cancel, answer))))
        await one_turn(run)
    assert run.text() == "answer: cancelled"
    assert run.of("turn_ended") == [{"kind": "turn_ended", "failed": True, "reason": "cancelled"}]


FAILURES: list[tuple[dict[str, Any], str]] = [
    ({"fail": {"code": -32603, "message": "Internal error", "data": {"details": "429 rate limit"}}}, "rate_limited"),
    ({"fail": {"code": 529, "message": "Overloaded"}}, "overloaded"),
    ({"fail": {"code": -32000, "message": "Authentication required"}}, "login_expired"),
    ({"fail": {"code": -32603, "message": "x", "data": {"statusCode": 500}}}, "server_error"),
    ({"fail": {"code": -32603, "message": "prompt is too long: 200001 tokens"}}, "context_overflow"),
    ({"fail": {"code": -32603, "message": "Internal error"}}, "failed"),
    ({"stop": "max_tokens"}, "context_overflow"),
    ({"stop": "max_turn_requests"}, "turns_reached"),
    ({"stop": "refusal"}, "failed"),
]


async def test_every_failed_turn_says_why_and_another_may_follow(tmp_path: Path) -> None:
    async with started(peer(), order_of(tmp_path, {"say": "ready"})) as run:
        await run.until_fact("turn_ended")
        for number, (step, failure) in enumerate(FAILURES, 2):
            before = len(run.facts)
            assert await run.say(f"inbox/{number}", json.dumps([{"say": f"half {number}"}, step]))
            await run.until_fact("turn_ended", number)
            verdict = understand(Ending(exit_code=0), run.heard[before:])
            assert verdict is not None
            assert (verdict.failure, step) == (failure, step)
            assert run.of("text")[-1]["text"] == f"half {number}"
        assert await run.say("inbox/99", json.dumps([{"say": "well again"}]))
        await run.until_fact("turn_ended", len(FAILURES) + 2)
        assert await run.finish() == 0
    assert understand(Ending(exit_code=0), run.heard) is None


async def test_what_it_is_given_and_what_it_is_not(tmp_path: Path) -> None:
    """Its folder, our tools, its role and a model; no files or terminals of ours (A12); noise does no harm."""
    server = McpServer("maos", ["/opt/maos", "mcp", "--stdio"], {"A": "b"})
    order = order_of(
        tmp_path,
        {"read": "/etc/passwd"},
        {"print": "Warning: out of milk"},
        {"print": "[1, 2]"},
        mcp=[server],
        instructions="You are a reviewer.",
        model="Large",
    )
    async with started(peer("--models"), order, forgetful=True) as run:
        await one_turn(run)
    opened, chosen = notes(tmp_path)
    assert opened["cwd"] == str(tmp_path / "work")
    (given,) = opened["mcp"]
    assert (given["name"], given["command"], given["args"]) == ("maos", "/opt/maos", ["mcp", "--stdio"])
    assert [(each["name"], each["value"]) for each in given["env"]] == [("A", "b")]
    assert chosen == {"way": "choose", "the-model": "large"}
    first = json.loads((tmp_path / "home" / run.of("session")[0]["id"]).read_text().splitlines()[0])
    assert first == ["user", f"You are a reviewer.\n\n{order.task}"]
    assert run.text() == "refused with -32601"
    assert any("fs/read_text_file" in fact["text"] for fact in run.of("diagnostic"))
    assert [fact["text"] for fact in run.of("unknown")] == ["Warning: out of milk", "[1, 2]"]
    assert {"kind": "diagnostic", "text": "a word of mine", "stderr": True} in run.facts
    assert not run.of("line")


@pytest.mark.parametrize(
    ("option", "fields", "failure", "said"),
    [
        ("--login", {}, "login_expired", "Log in with a browser"),
        ("--version=2", {}, "start_failed", "version 2"),
        ("--models", {"model": "huge"}, "start_failed", "large, small"),
    ],
)
async def test_a_start_that_leads_nowhere_ends_the_agent(
    tmp_path: Path, option: str, fields: dict[str, Any], failure: str, said: str
) -> None:
    async with started(peer(option), order_of(tmp_path, {"say": "no"}, **fields)) as run:
        assert await run.ended() == 0
    verdict = understand(Ending(exit_code=0), run.heard)
    assert verdict is not None
    assert verdict.failure == failure
    assert said in verdict.message
    assert run.text() == ""


# --- resuming ----------------------------------------------------------------------------------------------------


async def killed_in_a_tool(dialect: Acp, folder: Path) -> str:
    """An agent that is killed while a tool of it runs; its session."""
    order = order_of(folder, {"say": "before\n"}, {"tool": {"id": "t1", "path": str(folder / "marks"), "hang": True}})
    async with started(dialect, order) as run:
        await run.until_fact("tool_progress")
        run.kill(signal.SIGKILL)
        assert await run.ended() == -signal.SIGKILL
    assert run.of("tool_result") == []
    return str(run.of("session")[0]["id"])


@pytest.mark.parametrize("option", ["", "--resume"], ids=["load", "resume"])
async def test_a_killed_agent_goes_on_in_its_session(tmp_path: Path, option: str) -> None:
    """I29, I31: what was said is not said again, and no tool runs twice."""
    dialect = peer(*option.split())
    session = await killed_in_a_tool(dialect, tmp_path)
    order = order_of(tmp_path, {"remember": 1}, {"cost": 3.0}, {"cost": 0.5}, session=session, resume=True)
    async with started(dialect, order, forgetful=True) as run:
        await one_turn(run)
    assert run.of("session")[0]["id"] == session
    assert "instead_of" not in run.of("session")[0]
    assert run.text() == "I remember 4 things"  # nothing of the replay was taken for new
    assert (tmp_path / "marks").read_text() == "once\n"
    assert [note["way"] for note in notes(tmp_path)] == ["new", "resume" if option else "load"]
    assert [fact["usd"] for fact in run.of("cost")] == [0.5]  # the first figure may count what was paid before


@pytest.mark.parametrize("option", ["--no-load", "--load-fails"])
async def test_a_session_that_cannot_be_resumed_is_begun_anew(tmp_path: Path, option: str) -> None:
    """In the same process, with the task for that case; the fact says which session is lost."""
    anew = json.dumps([{"say": "from the beginning"}])
    order = order_of(tmp_path, {"say": "go on"}, session="sess_gone", resume=True, task_anew=anew)
    async with started(peer(option), order, forgetful=True) as run:
        await one_turn(run)
    (told,) = run.of("session")
    assert told["instead_of"] == "sess_gone"
    assert told["id"] != "sess_gone"
    assert told.get("kept", False) is (option == "--load-fails")  # it says that it can, and is asked again
    assert run.text() == "from the beginning"
    assert understand(Ending(exit_code=0), run.heard) is None
