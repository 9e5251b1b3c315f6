"""Facts: what is stored of them."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maos.model.events import facts
from tests.events import last_message


@given(st.binary())
def test_the_bytes_of_a_line_can_be_had_back(data: bytes) -> None:
    for kind in (facts.Line, facts.Unknown):
        for stderr in (False, True):
            fact = msgspec.json.decode(msgspec.json.encode(kind.of(data, stderr=stderr)), type=kind)
            assert fact.raw() == data
            assert fact.stderr is stderr


def test_text_is_not_wrapped_and_binary_is_readable() -> None:
    assert facts.Line.of("grüße".encode()).data == {"kind": "line", "text": "grüße"}
    assert facts.Line.of(b"\xffx").data == {"kind": "line", "text": "\\xffx", "base64": "/3g="}
    assert facts.Line.of(b"").data == {"kind": "line"}
    assert facts.Line().raw() == b""


@given(st.text(st.characters()))
def test_any_text_can_be_stored(text: str) -> None:
    """Halves of characters can be spelled in JSON, and nothing can store them."""
    stored = json.loads(msgspec.json.encode(facts.Unknown.of(text + "\ud800")))
    assert stored["text"].endswith("\\ud800")


def test_what_would_be_empty_is_left_out_but_no_cost_is_a_cost() -> None:
    assert facts.Text("hi").data == {"kind": "text", "text": "hi"}
    assert facts.TurnEnded("").data == {"kind": "turn_ended"}
    assert facts.Cost(0.0, turn="1").data == {"kind": "cost", "usd": 0.0, "turn": "1"}
    assert facts.SessionOpened("s", instead_of="r").data == {"kind": "session", "id": "s", "instead_of": "r"}


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([], ""),
        ([facts.Line.of("x")], ""),
        ([facts.Text("a")], "a"),
        ([facts.Text("a"), facts.Text("b")], "b"),
        ([facts.Text("a", message="1"), facts.Text("b", message="1")], "a\nb"),
        ([facts.Text("a", message="1"), facts.Text("b", message="2"), facts.Text("c", message="2")], "b\nc"),
        ([facts.Text("long ", message="1"), facts.Text("line", message="1", part=True)], "long line"),
        ([facts.Text("a", message="1"), facts.ToolUse("t", "ls", None), facts.Text("b", message="1")], "a\nb"),
        ([facts.Text("a", message="1"), facts.Thought("hm", message="1")], "a"),
    ],
)
def test_the_last_message_is_put_together(told: list[facts.Fact], expected: str) -> None:
    assert last_message(told) == expected
