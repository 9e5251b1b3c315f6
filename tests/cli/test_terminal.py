"""What a person sees and answers; and data that would like to steer the terminal."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from maos.cli.render import clean, shorten, size, wrap
from tests.cli.conftest import HOSTILE, WAIT_S_MAX, Invoke, Run, Terminal

Start = Callable[..., Terminal]

OUR_STYLES = re.compile(r"\x1b\[[0-9;]*m")
"""Colours and weights, which is all that we ever send."""


def versions(invoke: Invoke, agent: str = "reviewer") -> int:
    found: int = json.loads(invoke("state", "show", agent, "--json").stdout)["version"]
    return found


@pytest.mark.parametrize("answer", ["y", "n"])
@pytest.mark.parametrize(
    ("args", "question", "done"),
    [
        (["rollback", "reviewer", "4"], "Roll reviewer back to version 4? [y/N]: ", "is now at version 8"),
        (["restore", "reviewer", "before-upgrade"], "Restore reviewer from snapshot v5-", "is now at version 8"),
        (["compact", "reviewer", "--keep-last", "2"], "Compact reviewer? ", "5 events became 1"),
    ],
)
def test_a_person_is_asked(
    db: Path, terminal: Start, invoke: Invoke, args: list[str], question: str, done: str, answer: str
) -> None:
    screen = terminal("state", *args)
    screen.wait_for(question)
    screen.wait_for("[y/N]: ")
    screen.type(f"{answer}\n")
    assert screen.end() == (0 if answer == "y" else 1)
    assert (done if answer == "y" else "nothing was changed") in OUR_STYLES.sub("", screen.text)
    assert versions(invoke) == (8 if answer == "y" else 7)


@pytest.mark.parametrize(("how", "code"), [("interrupt", 130), ("end of input", 1)])
def test_a_question_that_is_not_answered(db: Path, terminal: Start, invoke: Invoke, how: str, code: int) -> None:
    screen = terminal("state", "rollback", "reviewer", "4")
    screen.wait_for("[y/N]: ")
    if how == "interrupt":
        screen.wait_until_idle()
        screen.interrupt()
    else:
        screen.type("\x04")
    assert screen.end() == code
    assert "Traceback" not in screen.text
    assert versions(invoke) == 7


def test_what_was_agreed_to_is_what_was_shown(db: Path, terminal: Start, invoke: Invoke) -> None:
    screen = terminal("state", "rollback", "reviewer", "4")
    screen.wait_for("[y/N]: ")
    invoke("state", "update", "reviewer", '{"status": "changed meanwhile"}')
    screen.type("y\n")
    assert screen.end() == 4
    assert "agent/reviewer is at version 8, expected 7" in screen.text


def test_nothing_to_compact_is_not_asked_about(db: Path, terminal: Start) -> None:
    screen = terminal("state", "compact", "planner")
    assert screen.end() == 0
    assert "nothing to compact" in screen.text


def test_a_stream_follows_until_it_is_interrupted(db: Path, terminal: Start, run: Run) -> None:
    screen = terminal("state", "stream", "reviewer", "--after", "-1")
    screen.wait_for("/execution/task")
    assert "events of reviewer after version 6, as they happen; Ctrl+C ends this" in screen.text
    assert run("state", "update", "reviewer", '{"status": "seen"}').returncode == 0
    screen.wait_for('"seen"')
    screen.interrupt()
    assert screen.end() == 130
    assert "Traceback" not in screen.text
    assert "error" not in screen.text


def test_a_stream_as_json_begins_with_what_is_new(db: Path, run: Run) -> None:
    command = [sys.executable, "-m", "maos", "state", "stream", "reviewer", "--json", "--after"]
    with subprocess.Popen([*command, "5"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert [json.loads(process.stdout.readline())["version"] for _ in range(2)] == [6, 7]
        run("state", "update", "reviewer", '{"status": "seen"}')
        event = json.loads(process.stdout.readline())
        assert (event["version"], event["changes"][0]["new"]) == (8, "seen")
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S_MAX) == 130
        assert process.stderr.read().strip() == ""


@pytest.mark.parametrize(
    "args",
    [
        ["list"], ["show", "[bold]evil[/bold]"], ["events", "[bold]evil[/bold]"], ["history", "[bold]evil[/bold]"],
        ["diff", "[bold]evil[/bold]"], ["show", "[bold]evil[/bold]", "--json"], ["verify", "[bold]evil[/bold]"],
        ["show", "no\x1b[2Jbody"], ["show", "reviewer", "--path", "/\x1b[2J"], ["update", "planner", "\x1b[2J"],
    ],
    ids=lambda args: args[0],
)  # fmt: skip
def test_hostile_data_steers_no_terminal(db: Path, terminal: Start, invoke: Invoke, args: list[str]) -> None:
    invoke("state", "update", "[bold]evil[/bold]", json.dumps({"more": HOSTILE, "list": [HOSTILE, {HOSTILE: None}]}))
    screen = terminal("state", *args)
    screen.end()
    shown = OUR_STYLES.sub("", screen.text.replace("\r\n", "\n"))
    if args[0] == "verify":  # the bar moves the cursor: nothing of the data may
        shown = re.sub(r"\x1b\[(\?25[lh]|2K|1A)|\r", "", shown)
    assert [char for char in shown if not char.isprintable() and char != "\n"] == []
    if "evil" in args[-1] and args[0] != "history":
        assert "[bold]evil[/bold]" in shown
    piped = invoke("state", *args)
    assert [char for char in piped.output if not char.isprintable() and char != "\n"] == []


def test_a_terminal_gets_a_table_that_fits(db: Path, terminal: Start) -> None:
    screen = terminal("state", "list")
    assert screen.end() == 0
    lines = OUR_STYLES.sub("", screen.text).replace("\r", "").splitlines()
    assert lines[1].startswith("──────")
    assert max(map(len, lines)) <= 100
    assert {line.split()[0] for line in lines[2:]} == {"[bold]evil[/bold]", "planner", "reviewer"}
    assert "\x1b[1m" in screen.text


def test_verification_shows_how_far_it_is(db: Path, terminal: Start) -> None:
    screen = terminal("state", "verify")
    assert screen.end() == 0
    assert "9/9" in screen.text
    assert "everything as it was written" in screen.text


def test_no_colour_when_it_is_not_wanted(db: Path, terminal: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    screen = terminal("state", "diff", "reviewer")
    screen.end()
    assert "\x1b[3" not in screen.text
    screen = terminal("state", "show", "nobody")
    assert screen.end() == 3
    assert "\x1b" not in screen.text


def test_output_in_an_old_encoding(db: Path, run: Run) -> None:
    done = run("state", "diff", "reviewer", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert '~ /execution/task  null \\u2192 "review"' in done.stdout


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("plain ü 日本 👍", "plain ü 日本 👍"),
        ("a\u00a0b", "a\u00a0b"),
        ("👩\u200d🚀", "👩\u200d🚀"),
        ("\x1b\x9b\x7f\x00", "\\x1b\\x9b\\x7f\\x00"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\u202e\u2066\ufeff\u2028", "\\u202e\\u2066\\ufeff\\u2028"),
        ("\ud800\U000e0041", "\\ud800\\U000e0041"),
    ],
)
def test_what_is_not_seen_is_spelled_out(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


def test_line_breaks_stay_where_they_are_wanted() -> None:
    assert clean("a\nb\rc", lines=True) == "a\nb\\rc"


@pytest.mark.parametrize(
    ("count", "text"),
    [(999, "999 B"), (1000, "1.0 kB"), (999_949, "999.9 kB"), (999_950, "1.0 MB"), (5_250_000_000_000, "5250.0 GB")],
)
def test_sizes_as_people_say_them(count: int, text: str) -> None:
    assert size(count) == text


def test_shortening_says_that_it_did() -> None:
    assert (shorten("abcdef", 4), shorten("abc", 4), shorten("abc", None), shorten("abc", 0)) == (
        "abc…",
        "abc",
        "abc",
        "a…",
    )


def test_messages_are_wrapped_between_words_and_commands_stay_whole(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 30, 0, 0))
    text = "the files are not saved with checkpoints; `maos agent resume fixer --budget 5` goes on"
    with os.fdopen(theirs, "w") as terminal:
        assert wrap(text, terminal, indent="  ").splitlines() == [
            "the files are not saved with",
            "  checkpoints;",
            "  `maos agent resume fixer --budget 5`",
            "  goes on",
        ]
    os.close(ours)
    with (tmp_path / "file").open("w") as file:
        assert wrap(text, file) == text
