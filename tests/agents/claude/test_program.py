"""Claude Code on this machine: found, judged by its version, and given its keys and nothing more."""

import json
from pathlib import Path

import pytest

from maos.agents.claude import dialect
from maos.agents.claude.dialect import Claude, cut_torn_line
from maos.agents.contract import AgentMissing, AgentProgram
from maos.errors import InvalidInput
from tests.agents.claude.stage import PATH, SESSION
from tests.agents.driving import an_order


def a_program(folder: Path, says: str) -> dict[str, str]:
    """An environment in which `claude` prints something."""
    folder.mkdir(exist_ok=True)
    path = folder / "claude"
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_the_one_on_the_path_is_taken(tmp_path: Path) -> None:
    environment = a_program(tmp_path / "bin", "echo '9.9.9 (Claude Code)'")
    assert Claude().find(environment) == AgentProgram(tmp_path / "bin" / "claude", "9.9.9")


def test_the_one_of_the_extra_is_taken_when_the_path_has_none_or_an_old_one(tmp_path: Path) -> None:
    ours = dialect.bundled()
    assert ours is not None
    for says in ("echo '2.1.210 (Claude Code)'", "echo 'no version'", "exit 3", "kill -9 $$"):
        assert Claude().find(a_program(tmp_path / "bin", says)).path == ours
    found = Claude().find({"PATH": str(tmp_path)})
    assert found.path == ours
    assert tuple(map(int, found.version.split("."))) >= dialect.VERSION_MIN


def test_when_there_is_none_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialect, "bundled", lambda: None)
    with pytest.raises(AgentMissing, match="not on this machine") as missing:
        Claude().find({"PATH": str(tmp_path)})
    assert "pip install 'maos[claude]'" in missing.value.hint
    with pytest.raises(AgentMissing, match=r"version 1\.0\.3; 2\.1\.211 or newer") as old:
        Claude().find(a_program(tmp_path / "bin", "echo 1.0.3"))
    assert "claude update" in old.value.hint


def a_login(home: Path) -> None:
    (home / ".claude").mkdir(parents=True)
    stored = {"claudeAiOauth": {"accessToken": "token-of-the-person", "refreshToken": "never-to-be-lent"}}
    (home / ".claude" / ".credentials.json").write_text(json.dumps(stored))


def test_the_persons_own_login_is_lent_when_there_is_no_key(tmp_path: Path) -> None:
    """A copy of it would be renewed by the agent, and the person would be logged out."""
    a_login(tmp_path / "person")
    order = an_order(tmp_path)
    engine = {"PATH": PATH, "HOME": str(tmp_path / "person")}
    command = Claude().command(order, AgentProgram(Path("/claude")), engine)
    assert command.env["CLAUDE_CODE_OAUTH_TOKEN"] == "token-of-the-person"
    assert "token-of-the-person" in command.secrets.values()
    written = [path.read_text() for path in order.home.rglob("*") if path.is_file()]
    assert "never-to-be-lent" not in "".join([*command.env.values(), *written, *command.argv])
    assert "token-of-the-person" not in "".join([*written, *command.argv])


@pytest.mark.parametrize(
    "given",
    [
        {"ANTHROPIC_API_KEY": "a-key-of-its-own"},
        {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1"},
        {"CLAUDE_CODE_USE_BEDROCK": "1"},
    ],
)
def test_the_persons_login_is_not_lent_along_with_a_key_or_to_another_address(
    tmp_path: Path, given: dict[str, str]
) -> None:
    a_login(tmp_path / "person")
    engine = {"PATH": PATH, "HOME": str(tmp_path / "person"), **given}
    assert (
        "CLAUDE_CODE_OAUTH_TOKEN" not in Claude().command(an_order(tmp_path), AgentProgram(Path("/claude")), engine).env
    )
    in_order = Claude().command(an_order(tmp_path, env=given), AgentProgram(Path("/claude")), {"HOME": engine["HOME"]})
    assert "CLAUDE_CODE_OAUTH_TOKEN" not in in_order.env


def test_keys_of_a_cloud_are_passed_on_only_when_that_cloud_is_used(tmp_path: Path) -> None:
    engine = {"AWS_SECRET_ACCESS_KEY": "aws-secret", "AWS_REGION": "eu-north-1", "CLOUD_ML_REGION": "somewhere"}
    without = Claude().command(an_order(tmp_path), AgentProgram(Path("/claude")), engine)
    assert not set(engine) & set(without.env)
    used = Claude().command(
        an_order(tmp_path), AgentProgram(Path("/claude")), {**engine, "CLAUDE_CODE_USE_BEDROCK": "1"}
    )
    assert used.env["AWS_REGION"] == "eu-north-1"
    assert "aws-secret" in used.secrets.values()
    assert "CLOUD_ML_REGION" not in used.env


def test_values_cannot_be_taken_for_options(tmp_path: Path) -> None:
    """A14: every value stands in the same word as its option; the task is in none."""
    evil = "--dangerously-skip-permissions"
    order = an_order(
        tmp_path, task=evil, model=evil, instructions=evil, tools_allowed=[evil], turns_max=3, budget_usd=0.5
    )
    command = Claude().command(order, AgentProgram(Path("/claude")), {})
    assert evil not in command.argv
    assert all(word.startswith("-") for word in command.argv[1:])
    assert "--max-turns=3" in command.argv
    assert "--max-budget-usd=0.500000" in command.argv
    message = json.loads(command.first_input)
    assert message["message"]["content"] == evil
    assert message["client_composed"] is True


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"session": "../../etc"}, "not a session"),
        ({"permission": "everything"}, "permission"),
    ],
)
def test_orders_that_make_no_sense_are_refused(tmp_path: Path, fields: dict[str, object], what: str) -> None:
    with pytest.raises(InvalidInput, match=what) as refused:
        Claude().command(an_order(tmp_path, **fields), AgentProgram(Path("/claude")), {})
    assert refused.value.hint


def test_a_transcript_is_put_only_where_its_session_is(tmp_path: Path) -> None:
    order = an_order(tmp_path)
    place = Claude().transcript_home(order, SESSION, f"{SESSION}.jsonl")
    assert place.is_relative_to(order.home)
    for name in ("../../x.jsonl", "x.jsonl", "/etc/passwd"):
        with pytest.raises(InvalidInput):
            Claude().transcript_home(order, SESSION, name)


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        (b"", b""),
        (b"whole\n", b"whole\n"),
        (b"whole\ntorn", b"whole\n"),
        (b"torn", b""),
        (b"whole\n" + b"x" * 200_000, b"whole\n"),
        (b"x" * 200_000 + b"\n", b"x" * 200_000 + b"\n"),
    ],
)
def test_a_torn_last_line_is_cut_off(tmp_path: Path, content: bytes, kept: bytes) -> None:
    path = tmp_path / "transcript"
    path.write_bytes(content)
    cut_torn_line(path)
    assert path.read_bytes() == kept
