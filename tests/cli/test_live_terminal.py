"""The live terminal, on a real one: keys, prompts, signals, resizing, and a terminal that does not read."""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Terminal

PROGRAM = Path(__file__).with_name("live_program.py")
Start = Callable[..., Terminal]


@pytest.fixture
def live() -> Iterator[Terminal]:
    screen = Terminal(command=[str(PROGRAM)])
    screen.wait_for("first › ")
    yield screen
    screen.close()


TYPED = [
    ("hello", "hello"),
    ("hello\x1b[D\x1b[DX", "helXlo"),
    ("hello\x7f\x08", "hel"),
    ("ab\x1b[H\x1b[3~", "b"),
    ("one two\x17three", "one three"),
    ("one two\x1b[1;5D\x0b", "one "),
    ("one\x15two", "two"),
    ("one\x01\x1b[C\x05!", "one!"),
    ("\x1b[A\x1b[Anot this\x15kept", "kept"),
    ("/sta\t", "/status "),
    ("x\t", "x"),
    ("\x1b[200~a\nb\tc\x1b]0;title\x07\x1b[201~", "a b c]0;title"),
    ("\x1bOP\x1b[5;7~x\x00", "x"),
    ("grün ✓ 漢", "grün ✓ 漢"),
    ("\x12helX\r", "helXlo"),
]


def test_keys_become_lines(live: Terminal) -> None:
    """Those of readline, a paste as one line without control characters, completion, and a search in the history."""
    for number, (keys, text) in enumerate(TYPED, 1):
        live.type(f"{keys}\r")
        live.wait_for(f"line {number}: first {text!r}")
    live.type("\x04")
    assert live.end() == 0


def test_a_paste_has_an_end(live: Terminal) -> None:
    live.type(f"\x1b[200~{'x' * 30_000}\x1b[201~\r")
    live.wait_for("line 1: first 'xxx")
    live.wait_for("x'\r\n")
    assert live.text.count("x", live.text.rindex("line 1")) <= 20_000


def test_completions_are_listed_and_go_with_the_next_key(live: Terminal) -> None:
    live.type("/st\t")
    live.wait_for("/status   /stop")
    live.type("o")
    live.wait_until(lambda: "/status" not in live.shown)
    assert "first › /sto" in live.shown


def test_a_line_keeps_the_meaning_it_had_when_its_first_key_was_pressed(live: Terminal) -> None:
    live.type("no")
    live.wait_for("first › no")
    live.interrupt(signal.SIGUSR1)  # a question appears
    time.sleep(0.3)
    live.type("t this\r")
    live.wait_for("line 1: first 'not this'")
    live.wait_for("second › ")
    assert "\\x1b[2J it" in live.shown  # what is asked steers no terminal
    live.type("yes\r")
    live.wait_for("line 2: second 'yes'")


@pytest.mark.parametrize("how", ["key", "signal"])
def test_ctrl_c_interrupts_as_a_key_and_as_a_signal(live: Terminal, how: str) -> None:
    live.type("never mind")
    live.wait_for("never mind")
    for expected in ("interrupted, dropped", "interrupted, nothing typed"):
        if how == "key":
            live.type("\x03")
        else:
            live.interrupt()
        live.wait_for(expected)
    assert "never mind" not in live.shown


def test_ctrl_c_in_a_search_ends_only_the_search(live: Terminal) -> None:
    live.type("hello\r")
    live.wait_for("line 1")
    live.type("\x12hel")
    live.wait_for("history › hel")
    live.type("\x03")
    live.wait_until(lambda: "history" not in live.shown)
    assert "interrupted" not in live.shown


def test_lines_are_printed_above_the_frame(live: Terminal) -> None:
    live.type("one\rtwo\r")
    live.wait_for("line 2")
    live.wait_until(lambda: live.shown.endswith("first ›"))
    assert live.shown.splitlines() == [
        "line 1: first 'one'", "line 2: first 'two'", "the frame", "has two lines", "first ›",
    ]  # fmt: skip


def test_a_terminal_of_another_size_is_drawn_anew(live: Terminal) -> None:
    live.type("x" * 50)
    live.wait_for("x" * 50)
    live.resize(lines=12, columns=40)
    live.wait_until(lambda: live.shown.endswith("first › " + "x" * 32 + "\n" + "x" * 18))
    live.resize(lines=3, columns=40)  # hardly room for the prompt
    live.wait_until_idle()
    live.resize(lines=30, columns=80)
    live.type("\r")
    live.wait_for("line 1: first")


def test_a_stopped_process_draws_and_reads_again_when_it_is_continued(live: Terminal) -> None:
    live.type("hel")
    live.wait_for("hel")
    live.interrupt(signal.SIGSTOP)
    live.make_plain()  # as the shell does that has the terminal meanwhile
    live.interrupt(signal.SIGCONT)
    live.wait_until(lambda: not live.echoes)
    live.type("lo\r")
    live.wait_for("line 1: first 'hello'")


def test_another_program_gets_a_terminal_as_it_was(live: Terminal) -> None:
    live.type("edit\r")
    live.wait_for("not drawn now: ")
    assert live.echoes
    assert "the frame" not in live.shown
    live.type("x\n")
    live.wait_for("first › ")
    live.wait_until(lambda: not live.echoes)


@pytest.mark.parametrize("keys", ["\x04", "half a line\x15\x04"])
def test_ctrl_d_on_an_empty_line_ends_and_leaves_the_terminal_as_it_was(live: Terminal, keys: str) -> None:
    live.type(keys)
    live.wait_for("ended")
    assert live.echoes
    assert live.end() == 0
    assert live.shown == "ended"


def test_the_keys_of_vi_for_those_who_have_them_in_readline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inputrc").write_text("set editing-mode vi\n")
    monkeypatch.setenv("INPUTRC", str(tmp_path / "inputrc"))
    screen = Terminal(command=[str(PROGRAM)])
    try:
        screen.wait_for("first › ")
        screen.type("one two")
        screen.wait_for("one two")
        screen.type("\x1b")
        time.sleep(0.8)  # a lone escape is one after a while
        screen.type("0dw")
        screen.wait_until(lambda: "first › two" in screen.shown)
        screen.type("\r")
        screen.wait_for("line 1: first 'two'")
    finally:
        screen.close()


def test_a_terminal_that_does_not_read_stops_no_program(live: Terminal) -> None:
    """What is drawn waits in a thread; keys and signals are handled meanwhile."""
    for _line in range(40):  # far more than the terminal holds, and nothing is read
        live.type(f"{'y' * 1000}\r")
        time.sleep(0.005)
    live.wait_until_idle()
    live.interrupt()
    live.type("\x04")
    live.wait_for("interrupted, nothing typed")
    live.wait_for("line 40: ")
    assert live.end() == 0
