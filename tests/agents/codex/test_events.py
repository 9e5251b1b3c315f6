"""What single events of Codex mean, also those that are hard to provoke."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maos.agents.codex.dialect import Codex
from maos.agents.codex.events import OPEN_MAX, CodexConversation, failure_of, reset_of
from maos.model.events.facts import Fact
from maos_testing.manual_clock import ManualClock
from tests.agents.driving import an_order
from tests.events import plain

THREAD = "0199a213-81c0-7800-8aa1-bbab2a035a53"
HOUR_US = 3600 * 1_000_000
NOON_US = 1_772_366_400_000_000
"""2026-03-01 12:00 UTC."""


@pytest.fixture
def conversation(tmp_path: Path) -> CodexConversation:
    return Codex(ManualClock()).converse(an_order(tmp_path))


def said(conversation: CodexConversation, *events: dict[str, Any]) -> list[Fact]:
    """The facts of events."""
    return [
        fact for event in events for fact in plain(conversation.hear(json.dumps(event).encode(), stderr=False).facts)
    ]


def item(phase: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"item.{phase}", "item": {"id": "item_7", **fields}}


def test_a_plan_is_told_whole_each_time(conversation: CodexConversation) -> None:
    steps = [{"text": "look", "completed": True}, {"text": "mend", "completed": False}]
    entries = [{"content": "look", "status": "completed"}, {"content": "mend", "status": "pending"}]
    for phase in ("started", "updated", "completed"):
        assert said(conversation, item(phase, type="todo_list", items=steps)) == [{"kind": "plan", "entries": entries}]


def test_a_web_search_is_a_tool(conversation: CodexConversation) -> None:
    found = said(
        conversation,
        item("started", type="web_search", query="", action={"type": "other"}),
        item("completed", type="web_search", query="what is new", action={"type": "search", "query": "what is new"}),
    )
    assert [fact["kind"] for fact in found] == ["tool_use", "tool_result"]
    assert found[0]["name"] == "web_search"
    assert found[1]["output"] == "what is new"


def test_an_outcome_without_a_beginning_brings_its_intent_along(conversation: CodexConversation) -> None:
    """I31: no outcome without an intent before it."""
    done = item("completed", type="file_change", changes=[{"path": "/a", "kind": "add"}], status="failed")
    intent, outcome = said(conversation, done)
    assert intent["kind"] == "tool_use"
    assert outcome == {"kind": "tool_result", "id": "item_7", "output": "add /a", "failed": True}


def test_a_command_that_was_declined_has_failed(conversation: CodexConversation) -> None:
    found = said(conversation, item("completed", type="command_execution", command="rm x", status="declined"))
    assert found[-1]["failed"]


def test_the_exit_code_of_a_command_is_kept_with_its_output(conversation: CodexConversation) -> None:
    done = {"type": "command_execution", "command": "x", "aggregated_output": "no newline", "status": "failed"}
    assert said(conversation, item("completed", **done, exit_code=3))[-1]["output"] == "no newline\n[exit code 3]"


def test_a_command_that_still_runs_shows_its_output(conversation: CodexConversation) -> None:
    running = {"type": "command_execution", "command": "make", "status": "in_progress"}
    found = said(conversation, item("started", **running), item("updated", **running, aggregated_output="cc x.c"))
    assert found[1] == {"kind": "tool_progress", "id": "item_7", "output": "cc x.c"}


def test_a_tool_of_ours_that_breaks_says_how(conversation: CodexConversation) -> None:
    broken = item(
        "completed", type="mcp_tool_call", server="maos", tool="ask_person", arguments={"q": 1}, result=None,
        error={"message": "gone"}, status="failed",
    )  # fmt: skip
    intent, outcome = said(conversation, broken)
    assert (intent["name"], intent["input"]) == ("mcp__maos__ask_person", {"q": 1})
    assert (outcome["output"], outcome["failed"]) == ("gone", True)


def test_agents_of_the_agent_are_tools(conversation: CodexConversation) -> None:
    spawned = item(
        "completed", type="collab_tool_call", tool="spawn_agent", prompt="help", receiver_thread_ids=["t"],
        agents_states={"t": {"status": "running"}}, status="completed",
    )  # fmt: skip
    intent, outcome = said(conversation, spawned)
    assert (intent["name"], intent["input"]["prompt"]) == ("spawn_agent", "help")
    assert "running" in outcome["output"]


def test_an_item_nobody_knows_is_kept_as_it_is(conversation: CodexConversation) -> None:
    line = json.dumps(item("completed", type="dream", text="sheep")).encode()
    assert plain(conversation.hear(line, stderr=False).facts) == [{"kind": "unknown", "text": line.decode()}]


def test_the_same_trouble_is_told_once(conversation: CodexConversation) -> None:
    error = {"message": "Selected model is at capacity. Please try a different model."}
    found = said(conversation, {"type": "error", **error}, {"type": "turn.failed", "error": error})
    assert [fact["kind"] for fact in found] == ["trouble", "turn_ended"]
    assert found[1]["failed"]


def test_a_turn_that_fails_without_an_error_before_is_trouble(conversation: CodexConversation) -> None:
    found = said(conversation, {"type": "turn.failed", "error": {"message": "Quota exceeded."}})
    assert [fact["kind"] for fact in found] == ["trouble", "turn_ended"]
    assert found[0]["failure"] == "no_credit"


def test_waiting_for_the_network_is_a_retry(conversation: CodexConversation) -> None:
    message = "Reconnecting... waiting for network (Connection failed: error sending request)"
    (fact,) = said(conversation, {"type": "error", "message": message})
    assert fact == {"kind": "retry", "error": "Connection failed: error sending request"}


def test_another_thread_than_the_one_to_resume_says_whose_place_it_takes(tmp_path: Path) -> None:
    conversation = Codex(ManualClock()).converse(an_order(tmp_path, resume=True, session="0199-lost"))
    (fact,) = said(conversation, {"type": "thread.started", "thread_id": THREAD})
    assert fact == {"kind": "session", "id": THREAD, "instead_of": "0199-lost"}


def test_an_id_that_could_lead_elsewhere_is_no_session(conversation: CodexConversation) -> None:
    for id in ("../../etc", "--last", "*", "", "a" * 65):
        (fact,) = said(conversation, {"type": "thread.started", "thread_id": id})
        assert fact["kind"] == "unknown"


def test_the_state_stays_small_whatever_is_printed(conversation: CodexConversation) -> None:
    for number in range(OPEN_MAX * 4):
        event = {"type": "item.started", "item": {"id": f"item_{number}" + "x" * 10_000, "type": "web_search"}}
        said(conversation, event)
    assert len(json.dumps(dict(conversation.state()))) < OPEN_MAX * 220 + 200


def test_a_tool_that_has_ended_is_forgotten(conversation: CodexConversation) -> None:
    change = {"type": "file_change", "changes": []}
    said(conversation, item("started", **change))
    assert conversation.state()["open"] == ["item_7"]
    said(conversation, item("completed", **change))
    assert conversation.state()["open"] == []


def test_messages_and_answers_cannot_be_given(conversation: CodexConversation) -> None:
    assert conversation.say("1", "hello") is None
    assert conversation.answer("1", allow=True) is None
    assert conversation.end() is None


@pytest.mark.parametrize(
    ("message", "failure"),
    [
        ('{"error": {"message": "Your input exceeds the context window", "type": "invalid_request_error"}}',
         "context_overflow"),
        ('{"error": {"message": "bad", "type":"invalid_request_error"}}', "bad_request"),
        ("unexpected status 403 Forbidden: no, url: http://127.0.0.1:8080/v1/responses", "login_expired"),
        ("unexpected status 502 Bad Gateway: x, url: http://127.0.0.1:8080/v1/responses", "server_error"),
        ("Your access token could not be refreshed because your refresh token was already used.", "login_expired"),
        ("Error loading config.toml: invalid type", "start_failed"),
        ("something nobody has seen", "failed"),
    ],
)  # fmt: skip
def test_its_words_are_understood(message: str, failure: str) -> None:
    assert failure_of(message) == failure


@pytest.mark.parametrize(
    ("words", "reset_us"),
    [
        ("try again at 3:20 PM.", NOON_US + 2 * HOUR_US + HOUR_US // 3),  # 15:20 in Berlin is 14:20 UTC
        ("try again at 12:05 AM.", NOON_US + 11 * HOUR_US + HOUR_US // 12),  # the run went on over midnight
        ("try again at Mar 2nd, 2026 1:00 PM.", NOON_US + 24 * HOUR_US),
        ("try again at Jul 1st, 2026 2:00 PM.", NOON_US + 122 * 24 * HOUR_US),  # in summer
        ("try again later.", 0),
        ("try again at 99:99 PM.", 0),
        ("try again at Foo 99th, 9999 1:00 PM.", 0),
    ],
)
def test_the_end_of_a_limit_is_found_in_its_words(words: str, reset_us: int, local_time: Callable[[str], None]) -> None:
    local_time("Europe/Berlin")  # not UTC, and with a summer
    assert reset_of(f"You’ve hit your usage limit. Visit somewhere or {words}", NOON_US) == reset_us


def test_log_lines_are_kept_and_greetings_are_not(conversation: CodexConversation) -> None:
    assert not plain(conversation.hear(b"Reading prompt from stdin...", stderr=True).facts)
    assert not plain(conversation.hear(b"", stderr=True).facts)
    logged = plain(conversation.hear(b"2026-03-01T10:00:00Z ERROR codex_core: x\xff", stderr=True).facts)
    assert logged[0]["kind"] == "diagnostic"
    assert logged[0]["stderr"]
