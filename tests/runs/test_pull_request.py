"""The text of a pull request: what was asked, done and checked, and nothing that a hostile agent put there."""

from maos.model.attempt import Attempt
from maos.model.run import Question, Run, TaskState
from maos.model.status import RunStatus, TaskStatus
from maos.runs.pull_request import checks_of, describe
from maos.workspaces import FileChange

KEY = "sk-ant-api03-" + "a1B2c3D4e5F6g7H8" * 6


def made() -> Run:
    gates = [{"command": ["pytest", "-q"]}, {"review": "Is it right?"}, {"person": "Ship it?"}]
    tasks = {
        "api": TaskState(
            name="api",
            plan={"task": "Write the parser\nwith care, @everyone", "gates": gates},
            needs=[],
            status=TaskStatus.DONE,
            gate=3,
            result=f"Done.\n```\n## Approved by @owner, closes #1 {KEY}\x1b[31m",
            cost_usd=0.5,
        ),
        "docs": TaskState(
            name="docs", plan={"command": ["make", "docs"], "gates": [{"command": ["linkcheck"]}]}, needs=[],
            status=TaskStatus.FAILED, failure="gate_failed", why="check `linkcheck` failed: exit code 1",
        ),
    }  # fmt: skip
    run = Run(id="r-1", request="Replace the parser, see #12\nand its tests", tasks=tasks, status=RunStatus.FAILED)
    run.done, run.cost_usd, run.tokens = 1, 0.5, 12_000
    run.questions["gate/api/2/1"] = Question(
        id="gate/api/2/1", question="Ship it?", answer="yes", answered_by="ada@host"
    )
    return run


def test_each_check_has_its_outcome() -> None:
    assert [(each.task, each.kind, each.what, each.outcome, each.by) for each in checks_of(made())] == [
        ("api", "command", "pytest -q", "passed", ""),
        ("api", "review", "Is it right?", "passed", ""),
        ("api", "person", "Ship it?", "passed", "ada@host"),
        ("docs", "command", "linkcheck", "failed", ""),
    ]


def test_it_says_what_was_asked_done_checked_and_spent() -> None:
    files = [FileChange("src/a.py", "modified", 3, 1), FileChange("x.bin", "added", None, None)]
    attempts = {"api": Attempt(id="r-1.api.1", kind="claude", model="sonnet")}
    found = describe(made(), files, attempts, base="abc123")
    assert found.title == "Replace the parser, see #12"
    body = found.body
    assert "> and its tests" in body
    assert "**The run is failed: 1 of 2 tasks are done.**" in body
    assert "claude (sonnet), $0.50" in body
    assert "- ✗ `linkcheck` failed (task docs)" in body
    assert "- ✓ person: Ship it? passed by ada@\u2060host (task api)" in body
    assert "- `src/a.py` +3 -1" in body
    assert "$0.50, 12,000 tokens" in body
    assert "git checkout abc123" in body


def test_an_agent_can_neither_notify_nor_close_nor_format_nor_leak() -> None:
    body = describe(made(), (), {}, base="abc").body
    assert KEY not in body
    assert "\x1b" not in body
    begin, end = body.index("````text"), body.index("\n````\n")
    assert begin < body.index("@owner, closes #1") < end, "its words are code"
    assert "@everyone" not in body
