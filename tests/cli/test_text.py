"""What a person reads steers neither their terminal nor a page; numbers read as people say them."""

import subprocess
from pathlib import Path

import pytest

from maos.cli import words
from maos.cli.render import Column, choose_columns, fold
from maos.cli.words import task_of
from maos.model.question import Open
from maos.text import clean, code, code_block, command_text, markdown, one_line, unlinked, without_escapes


@pytest.mark.parametrize(
    "escaped",
    [
        "\x1b[31m\x1b[1m5 errors\x1b[0m",
        "5\x1b[K errors\x1b[?25l",
        "\x1b]0;title\x075 errors",
        "\x1b]8;;https://example.org\x1b\\5 errors\x1b]8;;\x1b\\",
        "\x1bP+q544e\x1b\\5 errors",
        "\x1b(B5 errors\x1b7",
        "\x9b31m5 errors\x9b0m",
    ],
)
def test_escape_sequences_of_tools_are_removed(escaped: str) -> None:
    assert without_escapes(escaped) == one_line(escaped, None) == words.tidy(escaped) == "5 errors"


def test_what_is_left_of_a_sequence_is_spelled_out() -> None:
    assert one_line("a\x1b", None) == "a\\x1b"
    assert one_line("a\x1b]0;never ended", None) == "a0;never ended"
    assert clean("a\x1b[31mb\n") == "a\\x1b[31mb\\n"


def test_a_progress_bar_is_its_last_state() -> None:
    assert words.tidy("10 %\r50 %\r100 %\r") == "100 %"
    assert words.tidy("a\tb\r") == "a       b"


def test_what_a_person_is_asked_to_allow_is_shown_whole() -> None:
    assert words.tool("Bash", {"command": "ls\x1b[8m; rm x\x1b[0m"}) == "Bash  ls\\x1b[8m; rm x\\x1b[0m"


def test_lines_end_between_words_and_commands_stay_whole() -> None:
    text = "edit-a  the work cannot be merged, resume with `maos resume r-1`"
    assert fold(text, 40, indent="  ").split("\n") == [
        "edit-a  the work cannot be merged,",
        "  resume with `maos resume r-1`",
    ]
    assert fold("short", 40) == "short"
    assert fold("a b c", 4, used=3, indent="  ") == "a\n  b\n  c"


def test_markdown_takes_words_of_others_for_words() -> None:
    assert markdown("a `b` <img> [x](y) | # *c*") == r"a \`b\` \<img\> \[x\](y) \| \# \*c\*"
    assert unlinked("@team fixes #12") == "@\u2060team fixes \\#\u206012"
    assert code("a `b`") == "`` a `b` ``"
    assert code_block("x\n```\n@all\x1b[1m", 100) == ["````text", "x", "```", "@all", "````"]


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (200, ["task", "agent", "status", "result"]),
        (60, ["task", "agent", "status", "result"]),
        (45, ["task", "agent", "status"]),
        (30, ["task", "status"]),
    ],
)
def test_a_narrow_table_leaves_out_what_yields_and_keeps_names_whole(columns: int, shown: list[str]) -> None:
    table = [
        Column[str]("task", str),
        Column[str]("agent", str, yields=1),
        Column[str]("status", str),
        Column[str]("result", str, yields=3),
    ]
    assert [table[index].title for index in choose_columns(table, [20, 9, 6, 80], columns)] == shown


def test_a_text_keeps_enough_to_say_something_and_others_are_left_out_first() -> None:
    table = [
        Column[str]("task", str),
        Column[str]("needs", str, yields=3),
        Column[str]("result", str, yields=1, least=20),
    ]
    widths = [10, 8, 60]
    assert [table[index].title for index in choose_columns(table, widths, 80)] == ["task", "needs", "result"]
    assert [table[index].title for index in choose_columns(table, widths, 40)] == ["task", "result"]


@pytest.mark.parametrize(
    ("agent", "task"),
    [
        ("r-1.check", "check"), ("r-1.check.b1", "check"), ("r-1.check.b12-gate1-2", "check-gate1-2"),
        ("r-1.b1", "b1"), ("reviewer", "reviewer"), ("reviewer.b1", "reviewer.b1"),
    ],
)  # fmt: skip
def test_an_agent_is_shown_as_its_task_in_every_branch_of_a_run(agent: str, task: str) -> None:
    assert task_of("r-1", agent) == task


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["sh", "-c", "sed -i 's/a/b/' x"], "sed -i 's/a/b/' x"),
        (["/bin/bash", "-c", " make test\n"], "make test"),
        (["sh", "-ec", "make 'a b'"], """sh -ec 'make '"'"'a b'"'"''"""),
        (["sh", "-c", "echo $1", "sh", "x"], "sh -c 'echo $1' sh x"),
        (["grep", "-q", "a b"], "grep -q 'a b'"),
        ([], ""),
    ],
)
def test_a_script_of_a_shell_is_said_without_its_shell(argv: list[str], said: str) -> None:
    assert command_text(argv) == said


def test_no_shell_executes_what_stands_for_an_answer(tmp_path: Path) -> None:
    gate = Open("r-1", "gate/a", "gate", "Good?")
    for asked in (gate, gate._replace(kind="question"), gate._replace(kind="question", choices=("give up", "a"))):
        typed = f"touch {tmp_path}/x {words.answers(asked)}\n"
        assert subprocess.run(["bash", "-s"], input=typed, text=True, capture_output=True).returncode == 2
    assert list(tmp_path.iterdir()) == []
