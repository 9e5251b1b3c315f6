"""What each line of the protocol means, without a program behind it; garbage, above all."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maos.agents.acp.conversation import LINE_CHARS_MAX, AcpConversation, Speech
from maos.agents.acp.dialect import Acp
from maos.agents.contract import AgentMissing, LaunchOrder
from maos.errors import InvalidInput, NotFound
from maos.model.events import facts
from tests.agents.driving import an_order
from tests.events import last_message, plain

RECORDED = Path(__file__).parents[1] / "recorded" / "acp"
ORDER = an_order(Path("/"), cwd=Path("/home/user/project"))


def line(**fields: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **fields}).encode()


def update(**fields: Any) -> bytes:
    return line(method="session/update", params={"sessionId": "s1", "update": fields})


def in_a_turn(order: LaunchOrder = ORDER) -> AcpConversation:
    """A conversation whose first turn runs."""
    conversation = Acp("agent").converse(order)
    conversation.hear(line(id=0, result={"protocolVersion": 1}), stderr=False)
    conversation.hear(line(id=1, result={"sessionId": "s1"}), stderr=False)
    return conversation


def asking(**call: Any) -> bytes:
    options = [
        {"optionId": "ever", "name": "Always", "kind": "allow_always"},
        {"optionId": "yes", "name": "Once", "kind": "allow_once"},
        {"optionId": "never", "name": "Never", "kind": "reject_always"},
    ]
    params = {"sessionId": "s1", "toolCall": {"toolCallId": "t1", **call}, "options": options}
    return line(id="q-1", method="session/request_permission", params=params)


@pytest.mark.parametrize(
    ("rule", "call", "chosen"),
    [
        ({"permission": "deny"}, {"kind": "edit", "locations": [{"path": "a.py"}]}, "never"),
        ({"permission": "deny", "tools_allowed": ["read"]}, {"kind": "read", "title": "Read a"}, "yes"),
        ({"tools_allowed": ["npm test"]}, {"kind": "execute", "title": "npm test"}, "yes"),
        ({"permission": "edits"}, {"kind": "edit", "locations": [{"path": "a.py"}, {"path": "b/c.py"}]}, "yes"),
        ({"permission": "edits"}, {"kind": "edit", "locations": [{"path": "/home/user/project/a"}]}, "yes"),
        ({"permission": "edits"}, {"kind": "edit", "content": [{"type": "diff", "path": "a.py"}]}, "yes"),
        ({"permission": "edits"}, {"kind": "edit", "locations": [{"path": "../a.py"}]}, None),
        ({"permission": "edits"}, {"kind": "edit", "locations": [{"path": "/home/user/project2/a"}]}, None),
        ({"permission": "edits"}, {"kind": "edit", "locations": [{"path": "a"}, {"path": "/etc/passwd"}]}, None),
        ({"permission": "edits"}, {"kind": "edit", "locations": [{"path": "a"}, {}]}, None),
        ({"permission": "edits"}, {"kind": "edit"}, None),
        ({"permission": "edits"}, {"kind": "execute", "locations": [{"path": "a.py"}]}, None),
        ({}, {"kind": "edit", "locations": [{"path": "a.py"}]}, None),
    ],
)
def test_what_the_order_has_decided_is_not_asked(
    rule: dict[str, Any], call: dict[str, Any], chosen: str | None
) -> None:
    """A13: a path out of the workspace is a person's decision, however it is written."""
    heard = in_a_turn(ORDER._replace(**rule)).hear(asking(**call), stderr=False)
    kinds = [fact["kind"] for fact in plain(heard.facts)]
    if chosen is None:
        assert kinds == ["tool_use", "permission_requested"]
        assert heard.replies == ()
    else:
        (reply,) = heard.replies
        answer = json.loads(reply.data)
        assert answer["id"] == "q-1"
        assert answer["result"] == {"outcome": {"outcome": "selected", "optionId": chosen}}
        assert kinds == (["tool_use", "permission_denied"] if chosen == "never" else ["tool_use"])


def test_a_question_without_a_way_to_say_yes_is_answered_with_no() -> None:
    conversation = in_a_turn()
    for options in (
        [],
        "all",
        [{"optionId": 7, "kind": "allow_once"}],
        [{"optionId": "x" * 999, "kind": "allow_once"}],
    ):
        params = {"sessionId": "s1", "toolCall": {"toolCallId": "t"}, "options": options}
        heard = conversation.hear(line(id=5, method="session/request_permission", params=params), stderr=False)
        assert json.loads(heard.replies[0].data)["result"]["outcome"] == {"outcome": "cancelled"}
        assert plain(heard.facts)[-1]["kind"] == "permission_denied"


def test_a_flood_of_questions_does_not_grow_the_state() -> None:
    conversation = in_a_turn()
    heard = [conversation.hear(asking(kind="execute"), stderr=False) for _ in range(200)]
    assert len([each for each in heard if each.replies]) == 200 - 32
    assert len(json.dumps(dict(conversation.state()))) < 3000
    ids = {reply.id for each in heard for reply in each.replies}
    assert len(ids) == 200 - 32  # an agent that gives all its questions one id still gets all its answers


def test_a_long_turn_may_ask_as_often_as_it_is_answered() -> None:
    conversation = in_a_turn()
    for _ in range(100):
        heard = conversation.hear(asking(kind="execute"), stderr=False)
        asked = plain(heard.facts)[-1]
        assert (asked["kind"], asked["tool_use"]) == ("permission_requested", "t1")
        reply = conversation.answer(asked["id"], allow=True)
        assert reply is not None
        assert conversation.answer(asked["id"], allow=True) == reply
    assert len(json.dumps(dict(conversation.state()))) < 3000


def test_a_tool_that_says_little_by_little_what_it_does() -> None:
    conversation = in_a_turn()
    lines = [
        update(sessionUpdate="tool_call", toolCallId="t1", title="Run", kind="execute"),
        update(sessionUpdate="tool_call_update", toolCallId="t1", rawInput={"command": "make"}, title="make"),
        update(sessionUpdate="tool_call_update", toolCallId="t1", status="in_progress", content=[
            {"type": "content", "content": {"type": "text", "text": "cc -c a.c"}}]),
        update(sessionUpdate="tool_call_update", toolCallId="t1", status="failed", rawOutput={"code": 2}),
        update(sessionUpdate="tool_call", toolCallId="t2", title="Edit", status="completed", content=[
            {"type": "diff", "path": "a.c", "oldText": "x", "newText": "y"}]),
    ]  # fmt: skip
    found = [fact for each in lines for fact in plain(conversation.hear(each, stderr=False).facts)]
    assert found == [
        {"kind": "tool_use", "id": "t1", "name": "Run", "input": {"kind": "execute"}},
        {"kind": "tool_use", "id": "t1", "name": "make", "input": {"command": "make"}},
        {"kind": "tool_progress", "id": "t1", "output": "cc -c a.c"},
        {"kind": "tool_result", "id": "t1", "output": '{"code":2}', "failed": True},
        {"kind": "tool_use", "id": "t2", "name": "Edit"},
        {
            "kind": "tool_result",
            "id": "t2",
            "output": '{"type":"diff","path":"a.c","oldText":"x","newText":"y"}',
        },
    ]


def test_pictures_are_named_and_left_out() -> None:
    picture = {"type": "image", "mimeType": "image/png", "data": "A" * 100_000}
    conversation = in_a_turn()
    conversation.hear(update(sessionUpdate="agent_message_chunk", content=picture), stderr=False)
    (said, *_) = plain(conversation.hear(line(id=2, result={"stopReason": "end_turn"}), stderr=False).facts)
    assert "image/png" in said["text"]
    assert "100000 characters left out" in said["text"]


def test_known_updates_that_mean_nothing_are_no_facts() -> None:
    conversation = in_a_turn()
    for kind in ("available_commands_update", "current_mode_update", "user_message_chunk", "session_info_update"):
        heard = conversation.hear(update(sessionUpdate=kind), stderr=False)
        assert not plain(heard.facts)
        assert not heard.replies
    heard = conversation.hear(update(sessionUpdate="a_new_invention"), stderr=False)
    assert plain(heard.facts)[0]["kind"] == "unknown"


def test_updates_of_another_session_are_not_ours() -> None:
    other = {"sessionId": "s2", "update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text"}}}
    heard = in_a_turn().hear(line(method="session/update", params=other), stderr=False)
    assert plain(heard.facts)[0]["kind"] == "unknown"


def test_a_response_counts_once() -> None:
    conversation = in_a_turn()
    ended = line(id=2, result={"stopReason": "end_turn"})
    assert [fact["kind"] for fact in plain(conversation.hear(ended, stderr=False).facts)] == ["turn_ended"]
    assert [fact["kind"] for fact in plain(conversation.hear(ended, stderr=False).facts)] == ["unknown"]
    failed = conversation.hear(line(id=2, error={"code": -32603, "message": "too late"}), stderr=False)
    assert [fact["kind"] for fact in plain(failed.facts)] == ["unknown"]
    assert not failed.replies
    for id in (3, "2", 2.0, None, True, [2], "say"):
        heard = in_a_turn().hear(line(id=id, result={"stopReason": "end_turn"}), stderr=False)
        assert [fact["kind"] for fact in plain(heard.facts)] == ["unknown"]


def test_another_currency_is_not_counted_as_dollars() -> None:
    conversation = in_a_turn()
    told = update(sessionUpdate="usage_update", used=1, size=2, cost={"amount": 3, "currency": "EUR"})
    assert plain(conversation.hear(told, stderr=False).facts)[0]["kind"] == "unknown"


def test_a_cost_that_begins_anew_is_not_taken_back() -> None:
    conversation = in_a_turn()

    def told(amount: float) -> list[float]:
        cost = {"amount": amount, "currency": "USD"}
        heard = conversation.hear(update(sessionUpdate="usage_update", used=1, size=2, cost=cost), stderr=False)
        return [fact["usd"] for fact in plain(heard.facts)]

    assert told(1.0) == [1.0]
    conversation.hear(line(id=2, result={"stopReason": "end_turn"}), stderr=False)
    assert conversation.say("m1", "more") is not None
    assert told(1.5) == [0.5]
    assert told(0.2) == []
    assert told(0.3) == [pytest.approx(0.1)]


def test_what_was_said_before_a_death_can_be_had() -> None:
    conversation = in_a_turn()
    words = {"type": "text", "text": "I was about to"}
    conversation.hear(update(sessionUpdate="agent_message_chunk", content=words), stderr=False)
    taken_over = Acp("agent").converse(ORDER, json.loads(json.dumps(dict(conversation.state()))))
    assert [fact["text"] for fact in plain(taken_over.rest())] == ["I was about to"]
    assert plain(taken_over.rest()) == []


chunks = st.lists(
    st.tuples(st.sampled_from(["text", "thought"]), st.sampled_from(["", "m1", "m2"]), st.text(" ab\n", max_size=8)),
    max_size=40,
)


@given(chunks, st.integers(1, LINE_CHARS_MAX * 3))
def test_no_word_is_lost_whatever_the_pieces(pieces: list[tuple[str, str, str]], long: int) -> None:
    speech = Speech()
    found: list[facts.Fact] = []
    for voice, message, words in [*pieces, ("text", "m1", "x" * long)]:
        speech = msgspec.json.decode(msgspec.json.encode(speech), type=Speech)
        found += speech.hear(voice, message, words, turn="t")
        assert len(msgspec.json.encode(speech)) < LINE_CHARS_MAX * 2 + 200
    found += speech.pause()
    said = "".join(words for _, _, words in pieces) + "x" * long
    assert "".join("".join(fact["text"].split()) for fact in plain(found)) == "".join(said.split())
    assert all("\n" not in fact["text"].strip("\n") or fact["text"].strip() for fact in plain(found))


@given(st.text("ab \n", min_size=1, max_size=3000), st.integers(1, 30))
def test_a_message_can_be_put_together_again(message: str, size: int) -> None:
    speech = Speech()
    found: list[facts.Fact] = []
    for start in range(0, len(message), size):
        found += speech.hear("text", "m1", message[start : start + size], turn="t")
    found += speech.pause()
    assert last_message(found) == (message.rstrip("\n") if message.strip() else "") or (
        last_message(found).rstrip() == message.rstrip()
    )


# --- garbage -------------------------------------------------------------------------------------------------------

scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=6,
)
NAMES = [
    "jsonrpc", "id", "method", "params", "result", "error", "code", "message", "data", "sessionId", "update", "options",
    "sessionUpdate", "content", "type", "text", "toolCallId", "title", "kind", "status", "rawInput", "rawOutput",
    "locations", "path", "toolCall", "optionId", "name", "stopReason", "usage", "inputTokens", "cost", "amount",
    "currency", "entries", "messageId", "protocolVersion", "agentCapabilities", "loadSession", "sessionCapabilities",
    "resume", "agentInfo", "authMethods", "configOptions", "category", "currentValue", "value", "resource", "blob",
]  # fmt: skip
WORDS = [
    "session/update", "session/request_permission", "fs/read_text_file", "agent_message_chunk", "tool_call",
    "tool_call_update", "plan", "usage_update", "text", "diff", "content", "completed", "failed", "s1", "allow_once",
    "end_turn", "max_tokens", "USD", "model", "say/x", "image", "resource",
]  # fmt: skip
plausible = st.recursive(
    st.one_of(st.sampled_from([0, 1, 2, 1e300, -1]), st.sampled_from(WORDS), scalars),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, min_size=1, max_size=6)
    ),
    max_leaves=25,
)
lines = st.one_of(
    st.binary(max_size=60),
    values.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(st.sampled_from(NAMES), plausible, min_size=1, max_size=6).map(
        lambda value: json.dumps(value).encode()
    ),
    st.builds(lambda fields: update(**fields), st.dictionaries(st.sampled_from(NAMES), plausible, max_size=6)),
)


def check(conversation: AcpConversation, printed: bytes) -> None:
    """Hearing it does not raise, can be recorded, and is a function of state and line."""
    state = msgspec.json.decode(msgspec.json.encode(dict(conversation.state())))
    heard = conversation.hear(printed, stderr=False)
    msgspec.json.decode(msgspec.json.encode(heard.facts), type=list[facts.Fact])
    msgspec.json.encode(dict(conversation.state()))
    for reply in heard.replies:
        assert reply.closes or json.loads(reply.data)["jsonrpc"] == "2.0"
    again = Acp("agent").converse(ORDER, state)
    assert again.hear(printed, stderr=False) == heard
    assert dict(again.state()) == dict(conversation.state())


@settings(max_examples=150)
@given(st.lists(lines, min_size=1, max_size=8), st.integers(0, 2))
def test_no_line_raises_and_each_is_a_function_of_the_state(printed: list[bytes], phase: int) -> None:
    conversation = [Acp("agent").converse(ORDER), in_a_turn(), in_a_turn(ORDER._replace(permission="edits"))][phase]
    for each in printed:
        check(conversation, each)


def kinds_of_lines() -> list[bytes]:
    """One recorded line of every shape."""
    found: dict[str, bytes] = {}
    for path in sorted(RECORDED.glob("*.jsonl")):
        for recorded in path.read_bytes().splitlines():
            message = json.loads(recorded)
            inner = message.get("params", {}).get("update", {})
            shape = [*message, inner.get("sessionUpdate"), inner.get("status"), *inner, *message.get("result", {})]
            found.setdefault(" ".join(map(str, shape)), recorded)
    return list(found.values())


def test_a_line_torn_anywhere_does_no_harm() -> None:
    for recorded in kinds_of_lines():
        for length in range(0, len(recorded), 1 + len(recorded) // 50):
            check(in_a_turn(), recorded[:length])


def test_a_wrong_type_in_any_field_does_no_harm() -> None:
    shapes = [each for each in kinds_of_lines() if len(each) < 3000]
    assert len(shapes) > 10
    for recorded in shapes:
        for wrong in (None, 7, "x", [{}]):
            for spoiled in _with_one_wrong(json.loads(recorded), wrong):
                check(in_a_turn(), json.dumps(spoiled).encode())
                check(Acp("agent").converse(ORDER), json.dumps(spoiled).encode())


def _with_one_wrong(value: Any, wrong: Any) -> list[Any]:
    """Every copy of the value with one field replaced."""
    found = []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        for changed in (wrong, *_with_one_wrong(inner, wrong)):
            copy = dict(value) if isinstance(value, dict) else list(value)
            copy[key] = changed
            found.append(copy)
    return found


@pytest.mark.parametrize("depth", [30, 41, 99, 101, 900, 100_000])
def test_depth_does_no_harm(depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    call = b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":'
    call += b'"tool_call","toolCallId":"t1","title":"x","rawInput":' + nested + b"}}}"
    check(in_a_turn(), call)
    check(in_a_turn(), nested)


@pytest.mark.parametrize("number", ["1" * 400, "1" * 5000, "1e999", "-0", "1e308", "NaN", "-Infinity"])
def test_numbers_do_no_harm(number: str) -> None:
    for field in ('"toolCallId":"t","rawInput":%s', '"cost":{"amount":%s,"currency":"USD"}', '"toolCallId":%s'):
        for kind in ("tool_call", "usage_update"):
            inner = f'"sessionUpdate":"{kind}",' + field % number
            check(
                in_a_turn(),
                f'{{"method":"session/update","params":{{"sessionId":"s1","update":{{{inner}}}}}}}'.encode(),
            )
    check(in_a_turn(), f'{{"jsonrpc":"2.0","id":{number},"result":{{}}}}'.encode())
    check(in_a_turn(), f'{{"jsonrpc":"2.0","id":{number},"method":"session/request_permission"}}'.encode())


@pytest.mark.parametrize("half", [r"\ud800", r"\udfff", r"a\udc00b", r"\ud800\ud800"])
def test_half_characters_do_no_harm(half: str) -> None:
    inner = f'{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{half}\\n"}}}}'
    check(in_a_turn(), f'{{"method":"session/update","params":{{"sessionId":"s1","update":{inner}}}}}'.encode())
    said = in_a_turn()
    said.hear(line(id=2, result={"stopReason": "end_turn"}), stderr=False)
    reply = said.say("m1", "\ud800")
    assert reply is not None
    assert json.loads(reply.data)["params"]["prompt"][0]["text"] == "\\ud800"


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.jsonl")), ids=lambda path: path.stem)
def test_recorded_conversations_mean_what_they_meant(path: Path, golden: Callable[[str, str], None]) -> None:
    """What agents printed, kept with the facts it was understood as."""
    resumes = path.stem.endswith(("resumed", "loaded"))
    (session,) = {
        json.loads(each)["params"]["sessionId"] for each in path.read_bytes().splitlines() if b"params" in each
    }
    conversation = Acp("agent").converse(ORDER._replace(resume=resumes, session=session))
    found: list[facts.Fact] = []
    for recorded in path.read_bytes().splitlines():
        found += plain(conversation.hear(recorded, stderr=False).facts)
    golden(f"../agents/recorded/acp/{path.stem}.facts.json", json.dumps(found, indent=1) + "\n")


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_program_is_found_and_its_keys_with_it(tmp_path: Path) -> None:
    gemini = tmp_path / "gemini"
    gemini.write_text("#!/bin/sh\n")
    gemini.chmod(0o755)
    environment = {"PATH": str(tmp_path), "GEMINI_API_KEY": "g-secret-1", "OPENAI_API_KEY": "o-secret-2"}
    dialect = Acp("gemini --acp")
    order = an_order(tmp_path, argv=["--debug"])
    program = dialect.find(environment, order.argv)
    command = dialect.command(order, program, environment)
    assert command.argv == [str(gemini), "--acp", "--debug"]
    assert command.env["GEMINI_API_KEY"] == "g-secret-1"
    assert "OPENAI_API_KEY" not in command.env
    assert "g-secret-1" in command.secrets.values()
    assert json.loads(command.first_input)["method"] == "initialize"


def test_a_missing_program_says_what_to_install() -> None:
    with pytest.raises(AgentMissing) as caught:
        Acp("opencode acp").find({"PATH": "/nowhere"})
    assert "opencode" in caught.value.hint


def test_no_command_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        Acp().find({"PATH": "/usr/bin"})
    assert Acp().find({"PATH": "/usr/bin:/bin"}, ["sh"]).path.name == "sh"
    order = an_order(tmp_path)
    assert Acp("x").transcript(order, order.session) is None
    with pytest.raises(NotFound):
        Acp("x").transcript_home(order, order.session, "x.jsonl")
