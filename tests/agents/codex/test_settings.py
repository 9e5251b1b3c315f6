"""What Codex is started with: its settings, its environment, its login."""

import json
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest

from maos.agents.codex.dialect import Codex
from maos.agents.contract import AgentMissing, AgentProgram, LaunchCommand, LaunchOrder, McpServer
from maos.errors import InvalidInput
from maos_testing.manual_clock import ManualClock
from tests.agents.driving import an_order
from tests.events import plain

THREAD = "0199a213-81c0-7800-8aa1-bbab2a035a53"
ROLLOUT = f"rollout-2026-03-01T10-00-00-{THREAD}.jsonl"
KEY = {"PATH": "/bin", "OPENAI_API_KEY": "sk-stub-key-for-tests"}
STUB = {**KEY, "OPENAI_BASE_URL": "http://127.0.0.1:8080/v1"}


def command(order: LaunchOrder, environment: dict[str, str]) -> LaunchCommand:
    return Codex(ManualClock()).command(order, AgentProgram(Path("/opt/codex")), environment)


def settings(order: LaunchOrder, environment: dict[str, str] = STUB) -> dict[str, Any]:
    """The settings that Codex would read."""
    command(order, environment)
    return tomllib.loads((order.home / "codex" / "config.toml").read_text())


def test_a_first_attempt_begins_and_a_second_resumes(tmp_path: Path) -> None:
    """The prompt goes to the input, where it can be anything (A14)."""
    first = command(an_order(tmp_path, task="--last\n$(rm x)"), STUB)
    assert first.argv == ["/opt/codex", "exec", "--json", "--skip-git-repo-check", "--", "-"]
    assert first.first_input == b"--last\n$(rm x)"
    assert not first.keeps_input_open
    second = command(an_order(tmp_path, resume=True, session=THREAD), STUB)
    assert second.argv[1:] == ["exec", "resume", "--json", "--skip-git-repo-check", "--", THREAD, "-"]


def test_a_session_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        command(an_order(tmp_path, resume=True, session="--last"), STUB)


def test_the_program_gets_only_what_it_needs(tmp_path: Path) -> None:
    """A12: no variable of the engine's that was not named reaches the agent."""
    given = command(
        an_order(tmp_path, env={"CHOSEN": "1", "GITHUB_TOKEN": "ghp-something"}),
        {**STUB, "AWS_SECRET_ACCESS_KEY": "x", "LD_PRELOAD": "y", "CODEX_HOME": "/elsewhere"},
    )
    assert set(given.env) == {
        "PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "TERM", "OPENAI_API_KEY", "OPENAI_BASE_URL", "CODEX_HOME",
        "CHOSEN", "GITHUB_TOKEN",
    }  # fmt: skip
    assert given.env["CODEX_HOME"] == str(tmp_path / "home" / "codex")
    assert dict(given.secrets) == {"OPENAI_API_KEY": "sk-stub-key-for-tests", "GITHUB_TOKEN": "ghp-something"}


def test_settings_are_for_this_user_only(tmp_path: Path) -> None:
    """A21."""
    order = an_order(tmp_path)
    settings(order)
    home = order.home / "codex"
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "config.toml").stat().st_mode) == 0o600


def test_the_workspace_is_not_trusted_under_the_name_codex_knows_it_by(tmp_path: Path) -> None:
    """A12: Codex looks for the folder without symbolic links, and trusts what it does not find."""
    (tmp_path / "work").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "work")
    found = settings(an_order(tmp_path, cwd=tmp_path / "link"))
    assert found["projects"] == {str((tmp_path / "work").resolve()): {"trust_level": "untrusted"}}
    assert found["features"]["hooks"] is False
    assert found["features"]["plugins"] is False


def test_only_the_user_can_trust_a_workspace(tmp_path: Path) -> None:
    trusting = settings(an_order(tmp_path, project=["settings"], project_text="Be kind."))
    (trusted,) = trusting["projects"].values()
    (not_trusted,) = settings(an_order(tmp_path))["projects"].values()
    assert (trusted["trust_level"], not_trusted["trust_level"]) == ("trusted", "untrusted")
    assert trusting["features"]["hooks"] is False
    assert "developer_instructions" not in trusting  # Codex reads AGENTS.md of a trusted folder by itself
    assert "hooks" not in settings(an_order(tmp_path, project=["settings", "hooks"]))["features"]


def test_the_instructions_of_a_project_need_no_trust(tmp_path: Path) -> None:
    found = settings(an_order(tmp_path, project=["instructions"], project_text="Be kind.", instructions="Be quick."))
    assert found["developer_instructions"] == "Be quick.\n\nBe kind."
    assert [each["trust_level"] for each in found["projects"].values()] == ["untrusted"]


def test_any_text_survives_the_way_into_the_settings(tmp_path: Path) -> None:
    text = 'quotes " and \\ and \n newline \x00\x1f\x7f é 🙂 """ \'\'\' ]'
    cwd = tmp_path / 'a "folder"]\n'
    cwd.mkdir()
    server = McpServer("notes", ["/bin/x", text], {text: text})
    found = settings(an_order(tmp_path, cwd=cwd, model=text, instructions=text, mcp=[server]))
    assert found["model"] == found["developer_instructions"] == text
    assert list(found["projects"]) == [str(cwd.resolve())]
    assert found["mcp_servers"]["notes"]["args"] == [text]
    assert found["mcp_servers"]["notes"]["env"] == {text: text}


def test_text_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        settings(an_order(tmp_path, model="\udcff"))


def test_a_tool_server_may_be_used_without_asking_and_must_be_there(tmp_path: Path) -> None:
    found = settings(an_order(tmp_path, mcp=[McpServer("maos", ["maos", "mcp"], {"A": "b"})]))["mcp_servers"]["maos"]
    assert found["default_tools_approval_mode"] == "approve"
    assert found["required"] is True
    assert found["tool_timeout_sec"] >= 24 * 3600
    with pytest.raises(InvalidInput):
        settings(an_order(tmp_path, mcp=[McpServer("a.b]", ["x"], {})]))


@pytest.mark.parametrize(
    ("permission", "sandbox"), [("ask", "read-only"), ("deny", "read-only"), ("edits", "workspace-write")]
)
def test_what_would_have_to_be_asked_for_is_not_allowed(tmp_path: Path, permission: str, sandbox: str) -> None:
    found = settings(an_order(tmp_path, permission=permission))
    assert (found["sandbox_mode"], found["approval_policy"]) == (sandbox, "never")
    assert found["sandbox_workspace_write"] == {"network_access": False, "exclude_slash_tmp": True}


def test_an_unknown_permission_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        settings(an_order(tmp_path, permission="everything"))


def test_the_network_and_searching_it_are_allowed_by_name(tmp_path: Path) -> None:
    assert settings(an_order(tmp_path))["web_search"] == "disabled"
    found = settings(an_order(tmp_path, permission="edits", tools_allowed=["web_search", "network_access"]))
    assert found["web_search"] == "live"
    assert found["sandbox_workspace_write"]["network_access"] is True


def test_keys_are_kept_from_the_commands_it_runs(tmp_path: Path) -> None:
    found = settings(an_order(tmp_path))["shell_environment_policy"]
    assert {"OPENAI_API_KEY", "CODEX_API_KEY"} <= set(found["exclude"])


def test_a_base_url_makes_a_provider_of_its_own(tmp_path: Path) -> None:
    found = settings(an_order(tmp_path))
    provider = found["model_providers"][found["model_provider"]]
    assert (provider["base_url"], provider["env_key"]) == (STUB["OPENAI_BASE_URL"], "OPENAI_API_KEY")
    without_key = settings(an_order(tmp_path), {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"})
    assert "env_key" not in without_key["model_providers"]["maos"]


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "CODEX_API_KEY"])
def test_a_key_alone_is_for_openai(tmp_path: Path, name: str) -> None:
    given = command(an_order(tmp_path), {name: "sk-stub-key"})
    assert given.env["CODEX_API_KEY"] == "sk-stub-key"
    assert "model_provider" not in settings(an_order(tmp_path), {name: "sk-stub-key"})


@pytest.mark.parametrize("through", ["HOME", "CODEX_HOME"])
def test_the_users_own_login_is_linked_and_never_copied(tmp_path: Path, through: str) -> None:
    own = tmp_path / "user" / ".codex"
    own.mkdir(parents=True)
    (own / "auth.json").write_text("{}")
    order = an_order(tmp_path)
    command(order, {through: str(own if through == "CODEX_HOME" else own.parent)})
    link = order.home / "codex" / "auth.json"
    assert link.is_symlink()
    assert link.resolve() == (own / "auth.json").resolve()
    command(order, KEY)
    assert not link.is_symlink(), "with a key of its own it must not use the login"


def test_neither_key_nor_login_is_told_before_the_start(tmp_path: Path) -> None:
    with pytest.raises(AgentMissing) as error:
        command(an_order(tmp_path), {"PATH": "/bin", "HOME": str(tmp_path)})
    assert "codex login" in error.value.hint


def test_a_transcript_is_found_and_has_its_place(tmp_path: Path) -> None:
    codex, order = Codex(ManualClock()), an_order(tmp_path)
    place = codex.transcript_home(order, THREAD, ROLLOUT)
    assert place == order.home / "codex" / "sessions" / "2026" / "03" / "01" / ROLLOUT
    assert codex.transcript(order, THREAD) is None
    place.parent.mkdir(parents=True)
    place.write_text("")
    assert codex.transcript(order, THREAD) == place
    assert codex.transcript(order, "*") is None


@pytest.mark.parametrize("name", ["../../x.jsonl", f"x/{ROLLOUT}", "rollout-x.jsonl", f"{ROLLOUT}\n", ""])
def test_a_transcript_with_another_name_has_no_place(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput):
        Codex(ManualClock()).transcript_home(an_order(tmp_path), THREAD, name)


def rollout(order: LaunchOrder, *turns: tuple[int, str]) -> Path:
    """A transcript of turns: the tokens they brought the sum to, and how they ended."""
    path = Codex(ManualClock()).transcript_home(order, THREAD, ROLLOUT)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines: list[dict[str, Any]] = []
    for total, end in turns:
        usage = {"input_tokens": total, "cached_input_tokens": total // 2, "output_tokens": total // 10}
        lines.append({"type": "token_count", "info": {"total_token_usage": usage}})
        if end != "killed":
            lines.append({"type": "task_complete", "error": {"message": "x"} if end == "failed" else None})
    text = "".join(json.dumps({"type": "event_msg", "payload": each}) + "\n" for each in lines)
    path.write_text('{"type":"event_msg","payload":null}\nnot "token_count" json\n' + text)
    return path


def usage_of(order: LaunchOrder, total: int) -> dict[str, Any]:
    """The usage fact of an attempt that ends with that sum."""
    conversation = Codex(ManualClock()).converse(order)
    usage = {"input_tokens": total, "cached_input_tokens": total // 2, "output_tokens": total // 10}
    line = json.dumps({"type": "turn.completed", "usage": usage}).encode()
    return plain(conversation.hear(line, stderr=False).facts)[0]


def test_tokens_of_earlier_turns_are_not_counted_again(tmp_path: Path) -> None:
    """Codex tells the sum of the whole thread; an attempt's usage is what came to it."""
    order = an_order(tmp_path, resume=True, session=THREAD, attempt="tester.2")
    rollout(order, (1000, "done"), (3000, "done"))
    command(order, STUB)
    fact = usage_of(order, 5000)
    assert (fact["input"], fact["cache_read"], fact["output"]) == (1000, 1000, 200)


def test_tokens_that_nobody_told_of_count_for_the_next_attempt(tmp_path: Path) -> None:
    order = an_order(tmp_path, resume=True, session=THREAD, attempt="tester.3")
    rollout(order, (1000, "done"), (2000, "failed"), (3000, "killed"))
    command(order, STUB)
    assert usage_of(order, 4000)["output"] == 300


def test_an_engine_that_comes_later_counts_from_the_same_tokens(tmp_path: Path) -> None:
    """The transcript has grown since the attempt began, also by its own turn."""
    order = an_order(tmp_path, resume=True, session=THREAD, attempt="tester.2")
    rollout(order, (1000, "done"))
    command(order, STUB)
    rollout(order, (1000, "done"), (4000, "done"))
    command(order, STUB)
    assert usage_of(order, 4000)["output"] == 300
    assert usage_of(an_order(tmp_path, attempt="tester.1"), 1000)["output"] == 100
