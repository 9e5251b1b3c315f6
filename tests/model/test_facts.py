"""Facts: plain data, ready for the journal."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maos.model import facts


@given(st.binary())
def test_the_bytes_of_a_line_can_be_had_back(data: bytes) -> None:
    for make in (facts.line, facts.unknown):
        for stderr in (False, True):
            fact = msgspec.json.decode(msgspec.json.encode(make(data, stderr=stderr)))
            assert facts.raw(fact) == data
            assert fact.get("stderr", False) is stderr


def test_text_is_not_wrapped_and_binary_is_readable() -> None:
    assert facts.line("grüße".encode()) == {"kind": "line", "text": "grüße"}
    assert facts.line(b"\xffx") == {"kind": "line", "text": "\\xffx", "base64": "/3g="}
    assert facts.line(b"") == {"kind": "line"}
    assert facts.raw({"kind": "line"}) == b""


@given(st.text(st.characters()))
def test_any_text_can_be_stored(text: str) -> None:
    """Halves of characters can be spelled in JSON, and nothing can store them."""
    stored = json.loads(msgspec.json.encode(facts.unknown(text + "\ud800")))
    assert stored["text"].endswith("\\ud800")


def test_what_would_be_empty_is_left_out_but_no_cost_is_a_cost() -> None:
    assert facts.text("hi") == {"kind": "text", "text": "hi"}
    assert facts.turn_ended("") == {"kind": "turn_ended"}
    assert facts.cost(0.0, turn="1") == {"kind": "cost", "usd": 0.0, "turn": "1"}
    assert facts.session("s", instead_of="r") == {"kind": "session", "id": "s", "instead_of": "r"}


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([], ""),
        ([facts.line("x")], ""),
        ([facts.text("a")], "a"),
        ([facts.text("a"), facts.text("b")], "b"),
        ([facts.text("a", message="1"), facts.text("b", message="1")], "a\nb"),
        ([facts.text("a", message="1"), facts.text("b", message="2"), facts.text("c", message="2")], "b\nc"),
        ([facts.text("long ", message="1"), facts.text("line", message="1", part=True)], "long line"),
        ([facts.text("a", message="1"), facts.tool_use("t", "ls", None), facts.text("b", message="1")], "a\nb"),
        ([facts.text("a", message="1"), facts.thought("hm", message="1")], "a"),
    ],
)
def test_the_last_message_is_put_together(told: list[facts.Fact], expected: str) -> None:
    assert facts.last_message(told) == expected
