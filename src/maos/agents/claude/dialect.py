"""Claude Code: started without a terminal, spoken to in JSON lines, resumed in its own session.

It gets a configuration folder of its own, so its transcript is where we look for it and nothing of the person's own
set-up runs. Settings and hooks of the workspace are left out too (A12): the user enables them with the variable
MAOS_CLAUDE_SETTING_SOURCES, such as `project`. MCP servers are ours or none. What it may not do without permission, it
asks us.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from maos.agents import environment as environments
from maos.agents.claude import program
from maos.agents.claude.conversation import ClaudeConversation, user_line
from maos.agents.contract import AgentProgram, Capabilities, Dialect, LaunchCommand, LaunchOrder
from maos.errors import InvalidInput

SOURCES_VARIABLE = "MAOS_CLAUDE_SETTING_SOURCES"
SOURCES = ("user", "project", "local")
MODES = {"ask": "", "edits": "acceptEdits", "deny": "dontAsk"}
TOOLS_LEFT_OUT = (
    "AskUserQuestion",  # it has no terminal: a person is asked through our own tools
    "EnterPlanMode", "ExitPlanMode", "EnterWorktree", "ExitWorktree",  # the workspace is ours to choose
    "CronCreate", "CronDelete", "CronList", "ScheduleWakeup",  # would keep a finished agent alive
)  # fmt: skip
MCP_CALL_MS = 3_600_000
"""A tool of ours may wait for a person; the program's own limit would be a minute."""


class Claude(Dialect):
    """The dialect of Claude Code's stream-json."""

    kind = "claude"
    summary = "Claude Code; found on the PATH, or installed with maos[claude]"
    capabilities = Capabilities(resume=True, steer=True, cost=True, mcp=True, permission=True)
    variables: Sequence[str] = program.VARIABLES
    secret_variables: Sequence[str] = program.SECRET_VARIABLES

    def find(self, environment: Mapping[str, str], order_argv: Sequence[str] = ()) -> AgentProgram:
        """`claude` on the PATH if it is new enough, else the one that maos[claude] brings."""
        return program.find(environment)

    def command(self, order: LaunchOrder, program: AgentProgram, environment: Mapping[str, str]) -> LaunchCommand:
        """What to start; the task is the first line of its input, so it never shows up among the processes."""
        config = _config(order)
        env = self._environment(order, environment)
        sources = env.pop(SOURCES_VARIABLE, "")
        argv = [
            str(program.path),
            "-p",
            "--input-format=stream-json",
            "--output-format=stream-json",
            "--verbose",
            "--include-partial-messages",
            "--permission-prompt-tool=stdio",
            "--strict-mcp-config",
            f"--setting-sources={_checked_sources(sources)}",
            f"--disallowedTools={','.join(TOOLS_LEFT_OUT)}",
            *_session(order, self.transcript(order, order.session)),
            *_limits(order),
        ]
        config.mkdir(mode=0o700, parents=True, exist_ok=True)
        if order.model:
            argv.append(f"--model={order.model}")
        if order.instructions:
            argv.append(f"--append-system-prompt-file={_write(order.home / 'instructions.txt', order.instructions)}")
        if order.mcp:
            argv.append(f"--mcp-config={_write(order.home / 'mcp.json', json.dumps(_mcp(order)))}")
        secrets = environments.secrets_of(order, env, self.secret_variables)
        first = user_line(order.session, f"task/{order.attempt}", order.task)
        return LaunchCommand(argv, env, first_input=first, keeps_input_open=True, secrets=secrets)

    def converse(self, order: LaunchOrder, state: Mapping[str, Any] | None = None) -> ClaudeConversation:
        """A new conversation, or one that is resumed from a state."""
        return ClaudeConversation(order, state)

    def transcript(self, order: LaunchOrder, session: str) -> Path | None:
        """The session's file, wherever among the projects it is: a resume in another folder continues the old one."""
        name = f"{_checked_session(session)}.jsonl"
        found = sorted(_config(order).glob(f"projects/*/{name}"))
        return found[0] if found else None

    def transcript_home(self, order: LaunchOrder, session: str, name: str) -> Path:
        """Below the project of the folder it works in."""
        if name != f"{_checked_session(session)}.jsonl":
            raise InvalidInput(f"{name!r} is not the transcript of session {session}", hint="it is named after it")
        project = re.sub(r"[^A-Za-z0-9]", "-", str(order.cwd))[:200]
        return _config(order) / "projects" / project / name

    def _environment(self, order: LaunchOrder, environment: Mapping[str, str]) -> dict[str, str]:
        env = environments.of_child(order, environment, program.needed(environment, order.env))
        env |= program.login(env, environment)
        quiet = {
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
        }
        # What transcripts, temporary files and the end of a turn depend on is not for a user to change.
        fixed = {
            "CLAUDE_CONFIG_DIR": str(_config(order)),
            "CLAUDE_CODE_TMPDIR": env["TMPDIR"],
            "CLAUDE_CODE_SDK_READS_SESSION_STATE": "1",
        }
        return {**quiet, **env, **fixed}


def _config(order: LaunchOrder) -> Path:
    return order.home / "claude"


def _checked_session(session: str) -> str:
    try:
        return str(uuid.UUID(session))
    except ValueError:
        raise InvalidInput(f"{session!r} is not a session of Claude Code", hint="sessions are UUIDs") from None


def _checked_sources(sources: str) -> str:
    wanted = [each.strip() for each in sources.split(",") if each.strip()]
    if wrong := [each for each in wanted if each not in SOURCES]:
        raise InvalidInput(
            f"{SOURCES_VARIABLE} names {wrong[0]!r}", hint=f"what there is: {', '.join(SOURCES)}; with commas between"
        )
    return ",".join(wanted)


def _session(order: LaunchOrder, transcript: Path | None) -> list[str]:
    """Resume the session if there is one to resume, whatever was ordered: the program refuses both to begin
    a session whose file exists and to resume one that holds no message."""
    session = _checked_session(order.session)
    if transcript is not None:
        cut_torn_line(transcript)
        if _holds_messages(transcript):
            return [f"--resume={session}"]
        transcript.rename(transcript.with_name(transcript.name + ".empty"))
    return [f"--session-id={session}"]


def cut_torn_line(transcript: Path) -> None:
    """Remove a last line that a killed program did not finish: what it writes next would be glued to it."""
    with transcript.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        size = 1 << 16
        start = end
        tail = b""
        while start and b"\n" not in tail:
            start = max(0, start - size)
            file.seek(start)
            tail = file.read(end - start)
        kept = tail.rfind(b"\n") + 1
        if kept < len(tail):
            file.truncate(start + kept)


def _holds_messages(transcript: Path) -> bool:
    with transcript.open("rb") as file:
        for line in file:
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # a line torn by an earlier kill; the program skips it too
            if isinstance(entry, dict) and entry.get("type") in ("user", "assistant"):
                return True
    return False


def _limits(order: LaunchOrder) -> list[str]:
    """Every value stands behind a `=`, so that none of them can be taken for an option (A14)."""
    if order.permission not in MODES:
        raise InvalidInput(f"permission {order.permission!r} is not known", hint=f"use one of {', '.join(MODES)}")
    found = []
    if mode := MODES[order.permission]:
        found.append(f"--permission-mode={mode}")
    allowed = [*order.tools_allowed, *(f"mcp__{server.name}" for server in order.mcp)]
    if allowed:
        found.append(f"--allowedTools={','.join(allowed)}")
    if order.turns_max:
        found.append(f"--max-turns={order.turns_max}")
    if order.budget_usd:
        found.append(f"--max-budget-usd={order.budget_usd:.6f}")
    return found


def _mcp(order: LaunchOrder) -> dict[str, Any]:
    servers = {
        server.name: {
            "type": "stdio",
            "command": server.argv[0],
            "args": list(server.argv[1:]),
            "env": dict(server.env),
            "alwaysLoad": True,  # otherwise its tools are hidden until the model searches for them
            "timeout": MCP_CALL_MS,
        }
        for server in order.mcp
    }
    return {"mcpServers": servers}


def _write(path: Path, text: str) -> Path:
    """A file that only its owner can read: instructions may be private, and variables of a tool may be keys."""
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w", encoding="utf-8"
    ) as file:
        file.write(text)
    return path
