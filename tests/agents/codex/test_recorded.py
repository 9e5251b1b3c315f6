"""What Codex 0.166.0 really printed, and what it means."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from maos.agents.codex.dialect import Codex
from maos.model.events.facts import Fact, ToolResult, ToolUse, Unknown
from maos.model.failure import Ending, understand
from maos_testing.manual_clock import ManualClock
from tests.agents.driving import an_order
from tests.events import plain

RECORDED = Path(__file__).parents[1] / "recorded" / "codex"
NAMES = sorted(path.name for path in RECORDED.iterdir() if path.suffix in {".jsonl", ".stderr"})


def heard(name: str, folder: Path, *, forgetful: bool = False) -> list[Fact]:
    """The facts of a recording, heard in one go or by a new engine for every line."""
    codex = Codex(ManualClock())
    order = an_order(folder, attempt="tester.1", model="gpt-5.5")
    conversation = codex.converse(order)
    found: list[Fact] = []
    for line in (RECORDED / name).read_bytes().splitlines():
        if forgetful:
            conversation = codex.converse(order, json.loads(json.dumps(dict(conversation.state()))))
        found += conversation.hear(line, stderr=name.endswith(".stderr")).facts
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_means_what_it_meant_before(
    name: str, tmp_path: Path, golden: Callable[[str, str], None], local_time: Callable[[str], None]
) -> None:
    """Golden facts beside every recording (R-103)."""
    local_time("UTC")
    text = "".join(json.dumps(fact, ensure_ascii=False) + "\n" for fact in plain(heard(name, tmp_path)))
    golden(f"../agents/recorded/codex/{name}.facts", text)


@pytest.mark.parametrize("name", NAMES)
def test_another_engine_in_the_middle_makes_no_difference(name: str, tmp_path: Path) -> None:
    assert heard(name, tmp_path, forgetful=True) == heard(name, tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_that_codex_prints_is_unknown(name: str, tmp_path: Path) -> None:
    assert not [fact for fact in heard(name, tmp_path) if isinstance(fact, Unknown)]


@pytest.mark.parametrize(
    ("name", "failure"),
    [
        ("text_and_command.jsonl", None),
        ("tools.jsonl", None),
        ("resumed.jsonl", None),
        ("warning.jsonl", None),
        ("dropped_once.jsonl", None),
        ("rate_limited_once.jsonl", None),
        ("rate_limited.jsonl", "rate_limited"),
        ("usage_limit.jsonl", "rate_limited"),
        ("unauthorized.jsonl", "login_expired"),
        ("no_key.jsonl", "login_expired"),
        ("no_credit.jsonl", "no_credit"),
        ("bad_request.jsonl", "bad_request"),
        ("context_overflow.jsonl", "context_overflow"),
        ("overloaded.jsonl", "overloaded"),
        ("server_error.jsonl", "server_error"),
        ("connection_lost.jsonl", "connection_lost"),
        ("connection_refused.jsonl", "connection_lost"),
        ("session_missing.stderr", "session_missing"),
        ("active_writer.stderr", "crashed"),
        ("tools_missing.stderr", "start_failed"),
    ],
)
def test_every_way_to_fail_is_told_apart(name: str, failure: str | None, tmp_path: Path) -> None:
    verdict = understand(Ending(exit_code=1 if failure else 0), heard(name, tmp_path))
    assert (verdict and verdict.failure) == failure


def test_a_run_that_was_killed_leaves_its_tool_open(tmp_path: Path) -> None:
    """An intent without an outcome stays one (I31)."""
    found = heard("killed_in_a_tool.jsonl", tmp_path)
    assert [fact.id for fact in found if isinstance(fact, ToolUse)] == ["item_1"]
    assert not [fact for fact in found if isinstance(fact, ToolResult)]
    verdict = understand(Ending(signal=9), found)
    assert verdict is not None
    assert verdict.failure == "killed"


def test_a_usage_limit_says_when_it_ends(tmp_path: Path, local_time: Callable[[str], None]) -> None:
    local_time("UTC")
    verdict = understand(Ending(exit_code=1), heard("usage_limit.jsonl", tmp_path))
    assert verdict is not None
    assert verdict.reset_us == 1_894_800_000_000_000  # Jan 16th, 2030 1:20 PM
