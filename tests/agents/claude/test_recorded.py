"""What the real Claude Code printed, understood as facts, and anything at all that it might print."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maos.agents.claude.conversation import TAIL_CHARS_MAX, ClaudeConversation
from maos.agents.claude.dialect import Claude
from maos.model.events.facts import Fact
from maos.model.failure import TABLE
from tests.agents.driving import an_order
from tests.events import plain

RECORDED = Path(__file__).parents[1] / "recorded" / "claude"
NAMES = sorted(path.stem for path in RECORDED.glob("*.jsonl"))
LINES = [line for name in NAMES for line in (RECORDED / f"{name}.jsonl").read_bytes().splitlines()]
ORDER = an_order(Path("/tmp"))._replace(cwd=Path("/home/user/project"), home=Path("/home/user/agent"))


def hear_all(lines: list[bytes]) -> tuple[list[Fact], ClaudeConversation]:
    """Facts of all lines, each heard by a conversation that was taken up anew."""
    state: dict[str, Any] | None = None
    found: list[Fact] = []
    conversation = Claude().converse(ORDER)
    for line in lines:
        conversation = Claude().converse(ORDER, state)
        found += plain(conversation.hear(line, stderr=False).facts)
        state = json.loads(json.dumps(dict(conversation.state())))
    return found, conversation


@pytest.mark.parametrize("name", NAMES)
def test_recorded_lines_mean_what_they_meant(name: str, golden: Callable[[str, str], None]) -> None:
    found, conversation = hear_all((RECORDED / f"{name}.jsonl").read_bytes().splitlines())
    found += plain(conversation.rest())
    text = "".join(json.dumps(fact, ensure_ascii=False) + "\n" for fact in found)
    golden(f"../agents/recorded/claude/{name}.facts", text)
    assert all(fact["failure"] in TABLE for fact in found if fact["kind"] == "trouble")
    assert not [fact for fact in found if fact["kind"] == "unknown"]


def test_an_interim_result_is_no_end_in_versions_that_do_not_tell_when_they_are_idle() -> None:
    lines = (RECORDED / "own_agent.jsonl").read_bytes().splitlines()
    found, _ = hear_all([line for line in lines if b"session_state_changed" not in line])
    assert [fact["result"] for fact in found if fact["kind"] == "turn_ended"] == ["All is done."]


def test_after_the_end_of_its_input_a_result_ends_the_turn() -> None:
    """With a process in the background it never says that it is idle: the task would wait until its time limit."""
    working = {"type": "system", "subtype": "session_state_changed", "state": "running"}
    result = {"type": "result", "subtype": "success", "is_error": False, "result": "done"}
    conversation = Claude().converse(ORDER)
    conversation.hear(json.dumps(working).encode(), stderr=False)
    assert plain(conversation.hear(json.dumps(result).encode(), stderr=False).facts) == []
    conversation.end()
    heard = plain(conversation.hear(json.dumps(result).encode(), stderr=False).facts)
    assert [fact["kind"] for fact in heard] == ["turn_ended"]


def test_a_limit_with_a_time_of_reset_is_told_with_it() -> None:
    event = {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 1_900_000_000}}
    result = {"type": "result", "subtype": "success", "is_error": True, "api_error_status": 429, "result": "limit"}
    old = {**result, "api_error_status": None, "result": "Claude AI usage limit reached|1900000300"}
    found, _ = hear_all([json.dumps(each).encode() for each in (event, result, old)])
    troubles = [fact for fact in found if fact["kind"] == "trouble"]
    assert [fact["failure"] for fact in troubles] == ["rate_limited", "rate_limited"]
    assert [fact["reset_us"] for fact in troubles] == [1_900_000_000_000_000, 1_900_000_300_000_000]


def test_windows_of_the_plan_are_told_as_the_program_says_them() -> None:
    """Some versions tell the window that counts, others all of them; a share is told when there is one."""

    def told(**info: Any) -> list[dict[str, Any]]:
        found, _ = hear_all([json.dumps({"type": "rate_limit_event", "rate_limit_info": info}).encode()])
        return [{name: fact.get(name) for name in ("window", "used", "reset_us", "status")} for fact in found]

    at = {"reset_us": 1_900_000_000_000_000}
    one = told(status="allowed", resetsAt=1_900_000_000, rateLimitType="five_hour")
    assert one == [{"window": "five_hour", "used": None, **at, "status": "allowed"}]
    windows = {
        "five_hour": {"utilization": 0.42, "resetsAt": 1_900_000_000},
        "seven_day": {"utilization": 0.91, "resetsAt": 1_900_000_000},
    }
    both = told(status="allowed_warning", rateLimitType="seven_day", unifiedWindows=windows)
    assert [(each["window"], each["used"], each["status"]) for each in both] == [
        ("five_hour", 0.42, None),
        ("seven_day", 0.91, "allowed_warning"),
    ]
    assert told(status=7, rateLimitType=["x"], unifiedWindows="none") == []


def test_an_answer_is_on_its_way_from_the_last_result_of_a_tool_on() -> None:
    """An agent that is stopped at a limit is not stopped then: the answer is paid for, and would not be counted."""

    def call(tool: str) -> dict[str, Any]:
        return {"type": "assistant", "message": {"id": "m", "content": [{"type": "tool_use", "id": tool, "name": "T"}]}}

    def result(tool: str, **more: Any) -> dict[str, Any]:
        return {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": tool}]}, **more}

    def event(**data: Any) -> dict[str, Any]:
        return {"type": "stream_event", "event": data}

    begun = event(type="message_start", message={"id": "n", "model": "m", "usage": {"input_tokens": 5}})
    expected = [
        (call("1"), False), (call("2"), False), (result("1"), False), (result("3", parent_tool_use_id="2"), False),
        (result("2"), True), ({"type": "system", "subtype": "status", "status": "requesting"}, True), (begun, True),
        (event(type="message_delta", usage={"output_tokens": 7}), False), (call("4"), False), (result("4"), True),
        ({"type": "result", "subtype": "error_max_budget_usd", "is_error": True}, False),
    ]  # fmt: skip
    state: dict[str, Any] | None = None
    for line, is_answering in expected:
        conversation = Claude().converse(ORDER, state)
        conversation.hear(json.dumps(line).encode(), stderr=False)
        state = json.loads(json.dumps(dict(conversation.state())))
        assert conversation.is_answering == is_answering, line


@pytest.mark.parametrize("session", ["../../../../etc/passwd", "x" * 100_000, "not-a-uuid", "", 7, None, ["a"]])
def test_a_session_whose_id_is_none_is_the_one_that_was_ordered(session: object) -> None:
    """A14: the id is the name of a file, and what is recorded is used when the agent is resumed."""
    line = {"type": "system", "subtype": "init", "session_id": session, "model": "m"}
    found, conversation = hear_all([json.dumps(line).encode()])
    is_said = isinstance(session, str) and session
    assert [fact["id"] for fact in found if fact["kind"] == "session"] == ([ORDER.session] if is_said else [])
    assert str(session) not in json.dumps([found, dict(conversation.state())]) or not is_said


def test_costs_of_an_older_version_are_differences_of_its_totals() -> None:
    """A total that was carried over a resume is nobody's cost of this attempt."""
    lines = [json.dumps({"type": "result", "total_cost_usd": usd, "uuid": str(usd)}).encode() for usd in (1.0, 1.5)]
    found, _ = hear_all(lines)
    assert [fact["usd"] for fact in found if fact["kind"] == "cost"] == [1.0, 0.5]
    resumed = Claude().converse(ORDER._replace(resume=True))
    facts = [fact for line in lines for fact in plain(resumed.hear(line, stderr=False).facts)]
    assert [fact["usd"] for fact in facts if fact["kind"] == "cost"] == [0.5]


def test_a_long_text_without_paragraphs_is_told_in_parts_and_completely() -> None:
    text = " ".join(f"word{n}" for n in range(2000))
    found, conversation = hear_all(_streamed(text, 37))
    parts = [fact["text"] for fact in found if fact["kind"] == "text"]
    assert len(parts) > 5
    assert "".join(parts) == text
    assert max(map(len, parts)) <= TAIL_CHARS_MAX + 37
    assert len(json.dumps(dict(conversation.state()))) < 2 * TAIL_CHARS_MAX


@given(st.text(alphabet="ab \n", max_size=200), st.integers(min_value=1, max_value=50))
def test_whatever_is_streamed_is_told_once_and_in_order(text: str, size: int) -> None:
    found, _ = hear_all(_streamed(text, size))
    told = "\n".join(fact["text"] for fact in found if fact["kind"] == "text")
    assert told.split() == text.split()


def test_requests_we_do_not_know_are_refused_so_that_nobody_waits() -> None:
    line = b'{"type":"control_request","request_id":"r1","request":{"subtype":"hook_callback"}}'
    heard = Claude().converse(ORDER).hear(line, stderr=False)
    [reply] = heard.replies
    assert json.loads(reply.data)["response"] == {"subtype": "error", "request_id": "r1", "error": "not supported"}
    assert plain(heard.facts)


def test_a_permission_that_is_withdrawn_cannot_be_answered_any_more() -> None:
    conversation = Claude().converse(ORDER)
    ask = b'{"type":"control_request","request_id":"r1","request":{"subtype":"can_use_tool","tool_name":"Bash"}}'
    conversation.hear(ask, stderr=False)
    assert conversation.answer("r1", allow=True) is not None
    conversation.hear(b'{"type":"control_cancel_request","request_id":"r1"}', stderr=False)
    assert conversation.answer("r1", allow=True) is None


def test_after_the_end_of_its_input_nothing_can_be_said() -> None:
    conversation = Claude().converse(ORDER)
    assert conversation.say("inbox/1", "hello") is not None
    end = conversation.end()
    assert end is not None
    assert end.closes
    taken_up = Claude().converse(ORDER, conversation.state())
    assert taken_up.say("inbox/2", "hello") is None


# --- anything at all -----------------------------------------------------------------------------------------

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def survives(line: bytes) -> None:
    """Hearing it raises nothing, and what comes out can be stored."""
    conversation = Claude().converse(ORDER)
    for stderr in (False, True):
        heard = conversation.hear(line, stderr=stderr)
        json.dumps([list(plain(heard.facts)), dict(conversation.state())], allow_nan=False).encode()
        conversation = Claude().converse(ORDER, json.loads(json.dumps(dict(conversation.state()))))


@given(st.binary(max_size=64))
def test_any_bytes_are_heard(line: bytes) -> None:
    survives(line)


@given(st.sampled_from(LINES), st.data())
def test_lines_that_are_cut_or_overwritten_are_heard(line: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(min_value=0, max_value=len(line)))
    survives(line[:cut])
    survives(line[:cut] + data.draw(st.binary(min_size=1, max_size=4)) + line[cut + 1 :])


@given(st.sampled_from(LINES), st.data())
def test_lines_with_a_field_of_the_wrong_type_are_heard(line: bytes, data: st.DataObject) -> None:
    message = json.loads(line)
    holder: Any = message
    while True:  # walk down to any field of it
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        key = data.draw(st.sampled_from(keys))
        inner = holder[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            break
        holder = inner
    holder[key] = data.draw(ANYTHING)
    survives(json.dumps(message).encode())


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'{"type":"assistant","message":{"content":[{"type":"tool_use","input":' + b"[" * 700 + b"]" * 700 + b"}]}}",
        b'{"type":"user","message":{"content":[{"type":"tool_result","content":' + b"[" * 700 + b"]" * 700 + b"}]}}",
        b'{"type":"user","message":{"content":[{"type":"tool_result","content":{"a":[1]}}]}}',
        b'{"type":"result","num_turns":1e300,"total_cost_usd":-5,"is_error":true}',
        b'{"type":"result","num_turns":' + b"9" * 400 + b"}",
        b'{"type":"system","subtype":"api_retry","retry_delay_ms":"soon"}',
        b'{"type":"assistant","message":{"content":[{"type":"text","text":"\\ud800"}]}}',
        b'{"type":"system","subtype":"init","session_id":7}',
        b"\xff\xfe",
        b"null",
        b"",
    ],
)  # fmt: skip
def test_strange_lines_are_heard(line: bytes) -> None:
    survives(line)


def _streamed(text: str, size: int) -> list[bytes]:
    """A message as it is streamed, with the whole block at its end."""
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"id": "m1", "model": "m"}}]
    events += [{"type": "content_block_start", "content_block": {"type": "text"}}]
    events += [{"type": "content_block_delta", "delta": {"type": "text_delta", "text": part}} for part in parts]
    lines: list[dict[str, Any]] = [{"type": "stream_event", "event": event} for event in events]
    lines.append({"type": "assistant", "message": {"id": "m1", "content": [{"type": "text", "text": text}]}})
    lines.append({"type": "stream_event", "event": {"type": "content_block_stop"}})
    return [json.dumps(line).encode() for line in lines]
