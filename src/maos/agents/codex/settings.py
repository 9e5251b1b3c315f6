"""The settings of Codex for one agent: what it may do, which model it asks, and which tools it is given.

They are the only settings it has: it gets a home of its own, and the workspace is declared untrusted, so that nothing
in it is taken for a setting, a hook or a tool server. Without that declaration Codex would trust it by itself (A12).
Only the user can say otherwise.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from maos.agents.contract import LaunchOrder, McpServer
from maos.agents.values import as_count
from maos.errors import InvalidInput

STARTUP_S_MAX = 60
TOOL_S_MAX = 7 * 24 * 3600
"""A tool of ours may wait for a person."""

SANDBOXES = {"edits": "workspace-write", "ask": "read-only", "deny": "read-only"}
"""Codex cannot ask while it runs like this, so what would have to be asked for is not allowed."""

TRUST_VARIABLE = "MAOS_CODEX_TRUST_WORKSPACE"
"""Given to an agent with the value 1, it lets AGENTS.md and the settings of its workspace count."""

TOKENS = ("input_tokens", "cached_input_tokens", "cache_write_input_tokens", "output_tokens")

_SERVER_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OFF = (
    # They reach for the network, start programs that outlive the run, or run code of others.
    "apps",
    "daemon_auto_start",
    "hooks",
    "plugins",
    "remote_plugin",
    "skill_mcp_dependency_install",
    # When to try again is the engine's decision: with it, Codex waits for a network for ever.
    "unbounded_connection_retries",
    # A copy of the user's shell settings, of which there are none.
    "shell_snapshot",
)


def home(order: LaunchOrder) -> Path:
    """The folder that is all of Codex's world for this agent."""
    return order.home / "codex"


def write(order: LaunchOrder, *, base_url: str, has_key: bool) -> None:
    """Write the settings, for this user's eyes only: they hold the variables of the tool servers."""
    text = "\n".join(_lines(order, base_url=base_url, has_key=has_key)) + "\n"
    _write(home(order) / "config.toml", text)


def note_tokens_before(order: LaunchOrder, transcript: Path | None) -> None:
    """Keep the tokens that the thread had used before this attempt; what Codex tells is always its whole sum.

    Noted once for an attempt, for the transcript grows while it runs.
    """
    if _noted(order) is None:
        note = {"attempt": order.attempt, "tokens": _tokens_reported(transcript)}
        _write(home(order) / "tokens-before.json", json.dumps(note))


def tokens_before(order: LaunchOrder) -> Sequence[int]:
    """The noted tokens, in the order of `TOKENS`."""
    return _noted(order) or [0] * len(TOKENS)


def _lines(order: LaunchOrder, *, base_url: str, has_key: bool) -> Iterator[str]:
    if order.model:
        yield f"model = {_text(order.model)}"
    if order.instructions:
        yield f"developer_instructions = {_text(order.instructions)}"
    if base_url:
        yield 'model_provider = "maos"'
    yield 'approval_policy = "never"'
    yield f"sandbox_mode = {_text(_sandbox(order))}"
    yield f"web_search = {_text('live' if 'web_search' in order.tools_allowed else 'disabled')}"
    yield 'cli_auth_credentials_store = "file"'
    yield "check_for_update_on_startup = false"
    yield "analytics.enabled = false"
    yield "feedback.enabled = false"
    yield 'history.persistence = "none"'
    yield ""
    yield "[features]"
    for name in _OFF:
        yield f"{name} = false"
    yield ""
    yield "[sandbox_workspace_write]"
    yield f"network_access = {'true' if 'network_access' in order.tools_allowed else 'false'}"
    yield "exclude_slash_tmp = true"  # it has a temporary folder of its own; the shared one holds other agents' files
    yield ""
    yield "[shell_environment_policy]"
    yield 'inherit = "all"'
    yield "ignore_default_excludes = true"  # all there is was chosen for it
    yield 'exclude = ["OPENAI_API_KEY", "CODEX_API_KEY"]'
    yield ""
    yield f"[projects.{_text(str(order.cwd.resolve()))}]"
    yield f"trust_level = {_text('trusted' if order.env.get(TRUST_VARIABLE) == '1' else 'untrusted')}"
    if base_url:
        yield ""
        yield "[model_providers.maos]"
        yield 'name = "maos"'
        yield f"base_url = {_text(base_url)}"
        yield 'wire_api = "responses"'
        if has_key:
            yield 'env_key = "OPENAI_API_KEY"'
    for server in order.mcp:
        yield from _server(server)


def _server(server: McpServer) -> Iterator[str]:
    if not _SERVER_NAME.fullmatch(server.name):
        raise InvalidInput(
            f"Codex takes no tool server called {server.name!r}", hint="use letters, digits, dashes and underscores"
        )
    yield ""
    yield f"[mcp_servers.{server.name}]"
    yield f"command = {_text(server.argv[0])}"
    yield f"args = [{', '.join(_text(argument) for argument in server.argv[1:])}]"
    yield "required = true"  # an agent that was to have tools does not begin without them
    yield 'default_tools_approval_mode = "approve"'  # no person could be asked, and they are given to be used
    yield f"startup_timeout_sec = {STARTUP_S_MAX}"
    yield f"tool_timeout_sec = {TOOL_S_MAX}"
    yield f"env = {{{', '.join(f'{_text(name)} = {_text(value)}' for name, value in server.env.items())}}}"


def _sandbox(order: LaunchOrder) -> str:
    if order.permission not in SANDBOXES:
        known = ", ".join(SANDBOXES)
        raise InvalidInput(f"there is no permission called {order.permission!r}", hint=f"it is one of {known}")
    return SANDBOXES[order.permission]


def _text(text: str) -> str:
    """A text as TOML wants it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{text!r} is not valid text", hint="use names and folders that are UTF-8") from None
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def _write(path: Path, text: str) -> None:
    beside = path.with_name(path.name + ".new")
    beside.unlink(missing_ok=True)
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    beside.rename(path)


def _noted(order: LaunchOrder) -> Sequence[int] | None:
    try:
        note = json.loads((home(order) / "tokens-before.json").read_bytes())
        if note["attempt"] == order.attempt:
            return [int(count) for count in note["tokens"]]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # not noted yet, or for another attempt
    return None


def _tokens_reported(transcript: Path | None) -> list[int]:
    """The sum of tokens at the end of the last turn that went well: what was reported of the thread so far.

    Turns that were killed or failed reported nothing. Their tokens count for the turn that continues from there.
    """
    reported = running = [0] * len(TOKENS)
    if transcript is None:
        return reported
    with transcript.open("rb") as file:
        for line in file:
            if b'"token_count"' not in line and b'"task_complete"' not in line:
                continue
            payload = _payload(line)
            if payload.get("type") == "token_count" and isinstance(payload.get("info"), dict):
                total = payload["info"].get("total_token_usage")
                if isinstance(total, dict):
                    running = [as_count(total.get(name)) for name in TOKENS]
            elif payload.get("type") == "task_complete" and not payload.get("error"):
                reported = running
    return reported


def _payload(line: bytes) -> Mapping[str, Any]:
    try:
        payload = json.loads(line)["payload"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}  # a line that was torn by a kill, which Codex leaves out too
    return payload if isinstance(payload, dict) else {}
