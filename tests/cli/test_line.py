"""The line that a person types: keys in whatever pieces they come, and nothing that steers the terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from maos.cli.line import LINE_CHARS_MAX, InputLine


def typed(*keys: bytes) -> InputLine:
    line = InputLine(complete=lambda beginning: [each for each in ("/status ", "/stop ") if each.startswith(beginning)])
    for each in keys:
        line.feed(each)
    return line


@pytest.mark.parametrize(
    ("keys", "text", "cursor"),
    [
        (b"hello", "hello", 5),
        (b"hello\x1b[D\x1b[DX", "helXlo", 4),
        (b"hello\x7f\x08", "hel", 3),
        (b"ab\x1b[H\x1b[3~", "b", 0),
        (b"one two\x17three", "one three", 9),
        (b"one two\x1b[1;5D\x0b", "one ", 4),
        (b"one two\x01\x1b[1;5CX", "oneX two", 4),
        (b"one\x15two", "two", 3),
        (b"one\x01\x1b[C\x05!", "one!", 4),
        (b"/st", "/st", 3),
        (b"/st\t", "/st", 3),
        (b"/sta\t", "/status ", 8),
        (b"x\t", "x", 1),
        (b"\x1b[200~a\nb\tc\x1b[201~", "a b c", 5),
        (b"\x1b[99~\x1b[5;7~\x1bOPx\x00\x07", "x", 1),
        ("grün ✓ 漢".encode(), "grün ✓ 漢", 8),
    ],
)
def test_keys_become_text(keys: bytes, text: str, cursor: int) -> None:
    line = typed(keys)
    assert (line.text, line.cursor) == (text, cursor)


KEYS = st.sampled_from(
    [b"a", b" ", "ü".encode(), b"\x1b[D", b"\x1b[3~", b"\x1b[A", b"\x1b[200~", b"\x1bb", b"\r", b"\x17"]
)


@given(st.binary(max_size=60) | st.lists(KEYS).map(b"".join), st.integers(0, 60))
def test_it_does_not_matter_in_which_pieces_keys_come(keys: bytes, cut: int) -> None:
    whole, pieces = typed(keys), typed(keys[:cut], keys[cut:])
    assert (whole.text, whole.cursor, whole.history) == (pieces.text, pieces.cursor, pieces.history)
    assert 0 <= whole.cursor <= len(whole.text)
    assert not whole.text or whole.text.isprintable()


def test_lines_are_finished_and_remembered() -> None:
    line = InputLine()
    assert line.feed(b"one\rtwo\nthr") == ["one", "two"]
    assert line.feed(b"\x1b[A") == []
    assert line.text == "two"
    line.feed(b"\x1b[A\x1b[A")
    assert line.text == "one"
    line.feed(b"\x1b[B\x1b[B\x1b[B")
    assert line.text == "thr"  # what was being typed is still there
    assert line.feed(b"\x15\r") == [""]
    assert line.history == ["one", "two"]


def test_ctrl_d_ends_only_an_empty_line() -> None:
    line = InputLine()
    line.feed(b"x\x04")
    assert not line.ended
    line.feed(b"\x7f\x04")
    assert line.ended


def test_a_line_has_an_end() -> None:
    line = InputLine()
    line.feed(b"x" * (LINE_CHARS_MAX + 100))
    assert len(line.text) == LINE_CHARS_MAX
