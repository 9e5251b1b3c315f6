"""Claude Code: started without a terminal, spoken to in JSON lines, resumed in its own session.

It gets a configuration folder of its own, so its transcript is where we look for it and nothing of the person's own
set-up runs. Settings, hooks and skills of the workspace are left out too (A12), unless the person says otherwise. MCP
servers are those of the order. What it may not do without permission, it asks us.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import mmap
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from maos.agents import environment as environments
from maos.agents.claude.conversation import ClaudeConversation, user_line
from maos.agents.contract import AgentMissing, AgentProgram, Capabilities, Dialect, LaunchCommand, LaunchOrder
from maos.agents.environment import PATH_DEFAULT
from maos.agents.project_files import copy_skills
from maos.agents.values import decoded
from maos.errors import InvalidInput
from maos.files import is_regular, private_folder, replace_file
from maos.model.permission import SHELL
from maos.model.preparation import HOOKS, SETTINGS, SKILLS

_SKILLS = ((".claude/skills", "skills"), (".claude/commands", "commands"), (".claude/agents", "agents"))
MODES = {"ask": "", "edits": "acceptEdits", "deny": "dontAsk"}
TOOLS_LEFT_OUT = (
    "AskUserQuestion",  # it has no terminal: a person is asked through our own tools
    "EnterPlanMode", "ExitPlanMode", "EnterWorktree", "ExitWorktree",  # the workspace is ours to choose
    "CronCreate", "CronDelete", "CronList", "ScheduleWakeup",  # would keep a finished agent alive
)  # fmt: skip
MCP_CALL_MS = 3_600_000
"""A tool of ours may wait for a person; the program's own limit would be a minute."""


VERSION_MIN = (2, 1, 211)
"""The oldest version tried that takes the answer to a permission without the tool's whole input in it."""
INSTALL_HINT = "install it with `pip install 'maos[claude]'`, or put `claude` on the PATH"

KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
PLAIN = (
    "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    "API_TIMEOUT_MS", "CLAUDE_CODE_MAX_RETRIES",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE",
)  # fmt: skip
SECRET_PLAIN = ("ANTHROPIC_CUSTOM_HEADERS",)
CLOUDS: dict[str, Sequence[str]] = {
    "CLAUDE_CODE_USE_BEDROCK": (
        "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK",
        "ANTHROPIC_BEDROCK_BASE_URL",
    ),
    "CLAUDE_CODE_USE_VERTEX": (
        "ANTHROPIC_VERTEX_PROJECT_ID", "ANTHROPIC_VERTEX_BASE_URL", "CLOUD_ML_REGION", "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT",
    ),
    "CLAUDE_CODE_USE_FOUNDRY": (
        "ANTHROPIC_FOUNDRY_API_KEY", "ANTHROPIC_FOUNDRY_BASE_URL", "ANTHROPIC_FOUNDRY_RESOURCE",
    ),
}  # fmt: skip
"""Variables of a cloud are passed on only when Claude Code is to use that cloud."""


class Claude(Dialect):
    """The dialect of Claude Code's stream-json."""

    kind = "claude"
    summary = "Claude Code; found on the PATH, or installed with maos[claude]"
    login = "log in to Claude Code (start `{program}`, then `/login`) or set ANTHROPIC_API_KEY"
    capabilities = Capabilities(resume=True, steer=True, cost=True, mcp=True, permission=True, limits_cost=True)
    variables = (*KEYS, *PLAIN, *SECRET_PLAIN, *CLOUDS, *(name for names in CLOUDS.values() for name in names))
    secret_variables = (
        *KEYS, *SECRET_PLAIN,
        "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK", "ANTHROPIC_FOUNDRY_API_KEY",
    )  # fmt: skip
    conversation = ClaudeConversation

    def find(self, environment: Mapping[str, str], order_argv: Sequence[str] = ()) -> AgentProgram:
        """`claude` on the PATH if it is new enough, else the one that maos[claude] brings."""
        import shutil  # it loads four compression libraries, and most commands never come here

        looked_at, search = [], environment.get("PATH") or PATH_DEFAULT
        on_path = shutil.which("claude", path=search)
        for path in (Path(os.path.abspath(on_path)) if on_path else None, bundled()):
            if path is None:
                continue
            version = _version(path, path.stat().st_mtime_ns, search)
            if version and tuple(map(int, version.split("."))) >= VERSION_MIN:
                return AgentProgram(path, version)
            looked_at.append(f"{path} is version {version}" if version else f"{path} does not report its version")
        oldest = ".".join(map(str, VERSION_MIN))
        if not looked_at:
            raise AgentMissing("Claude Code is not on this machine", hint=INSTALL_HINT)
        raise AgentMissing(
            f"Claude Code is too old: {', '.join(looked_at)}; {oldest} or newer is needed",
            hint=f"run `claude update`, or {INSTALL_HINT}",
        )

    def command(self, order: LaunchOrder, program: AgentProgram, environment: Mapping[str, str]) -> LaunchCommand:
        """What to start; the task is the first line of its input, so it never shows up among the processes."""
        config = _config(order)
        env = self._environment(order, environment)
        is_project = SETTINGS in order.project or HOOKS in order.project
        argv = [
            str(program.path),
            "-p",
            "--input-format=stream-json",
            "--output-format=stream-json",
            "--verbose",
            "--include-partial-messages",
            "--permission-prompt-tool=stdio",
            "--strict-mcp-config",
            f"--setting-sources={'project' if is_project else 'user' if SKILLS in order.project else ''}",
            f"--disallowedTools={','.join(TOOLS_LEFT_OUT)}",
            *_session(order, self.transcript(order, order.session)),
            *_limits(order),
        ]
        private_folder(config)
        # Its own folder stands for the user's: skills that are there need no settings of the project.
        copy_skills(order.cwd, config, _SKILLS if SKILLS in order.project and not is_project else ())
        if is_project and HOOKS not in order.project:
            argv.append('--settings={"disableAllHooks": true}')
        if order.model:
            argv.append(f"--model={order.model}")
        guidance = order.instructions if is_project else order.guidance  # it reads those of the project by itself
        if guidance:
            replace_file(order.home / "instructions.txt", guidance.encode(), sync=False)
            argv.append(f"--append-system-prompt-file={order.home / 'instructions.txt'}")
        if order.mcp:
            replace_file(order.home / "mcp.json", json.dumps(_mcp(order)).encode(), sync=False)
            argv.append(f"--mcp-config={order.home / 'mcp.json'}")
        secrets = environments.secrets_of(order, env, self.secret_variables)
        first = user_line(order.session, f"task/{order.attempt}", order.task)
        return LaunchCommand(argv, env, first_input=first, keeps_input_open=True, secrets=secrets)

    def transcript(self, order: LaunchOrder, session: str) -> Path | None:
        """The session's file, wherever among the projects it is: a resume in another folder continues the old one."""
        name = f"{_checked_session(session)}.jsonl"
        found = sorted(filter(is_regular, _config(order).glob(f"projects/*/{name}")))
        return found[0] if found else None

    def transcript_home(self, order: LaunchOrder, session: str, name: str) -> Path:
        """Below the project of the folder it works in."""
        if name != f"{_checked_session(session)}.jsonl":
            raise InvalidInput(f"{name!r} is not the transcript of session {session}", hint="it is named after it")
        project = re.sub(r"[^A-Za-z0-9]", "-", str(order.cwd))[:200]
        return _config(order) / "projects" / project / name

    def _environment(self, order: LaunchOrder, environment: Mapping[str, str]) -> dict[str, str]:
        env = environments.of_child(order, environment, _needed(environment, order.env))
        env |= _login(env, environment)
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
        size = file.seek(0, os.SEEK_END)
        if size:
            with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as content:
                kept = content.rfind(b"\n") + 1
            if kept < size:
                file.truncate(kept)


def _holds_messages(transcript: Path) -> bool:
    with transcript.open("rb") as file:  # a line torn by an earlier kill is skipped; the program does it too
        return any((decoded(line) or {}).get("type") in ("user", "assistant") for line in file)


def _limits(order: LaunchOrder) -> list[str]:
    """Every value stands behind a `=`, so that none of them can be taken for an option (A14)."""
    if order.permission not in MODES:
        raise InvalidInput(f"permission {order.permission!r} is not known", hint=f"use one of {', '.join(MODES)}")
    found = []
    if mode := MODES[order.permission]:
        found.append(f"--permission-mode={mode}")
    # Patterns of commands are matched by the engine, which is asked; only one that may not ask is given them.
    own = [each for each in order.tools_allowed if order.permission == "deny" or not each.startswith(f"{SHELL}(")]
    allowed = [*own, *(f"mcp__{server.name}" for server in order.mcp if server.is_allowed)]
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


# --- the program on this machine, and the keys and the login it gets


def bundled() -> Path | None:
    """The program inside the package that maos[claude] installs; None when it is not installed."""
    specification = importlib.util.find_spec("claude_agent_sdk")  # found, not imported: that would take a second
    if specification is None or specification.origin is None:
        return None
    path = Path(specification.origin).parent / "_bundled" / "claude"
    return path if path.is_file() else None


@functools.lru_cache(maxsize=16)
def _version(path: Path, changed_ns: int, search_path: str) -> str:
    """What the program says of itself; empty when it says nothing of use."""
    env = {"PATH": search_path, "DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    printed = environments.version_told(path, env) or ""
    found = re.match(r"\d+\.\d+\.\d+", printed.strip())
    return found.group() if found else ""


def _needed(environment: Mapping[str, str], given: Mapping[str, str]) -> list[str]:
    """Names of the variables that the program gets from ours."""
    names = [*KEYS, *PLAIN, *SECRET_PLAIN]
    for switch, variables in CLOUDS.items():
        if (given.get(switch) or environment.get(switch)) not in (None, "", "0", "false"):
            names += [switch, *variables]
    return names


def _login(env: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The person's own login as a variable, if the program has no other means.

    Only the token itself is lent, in memory: a copy of the file would be renewed by the agent, and the person's own
    would then be worthless. It is sent only to the API it was made for, so never along with another base URL.
    """
    elsewhere = (*KEYS, *CLOUDS, "ANTHROPIC_BASE_URL")
    if any(env.get(name) for name in elsewhere):
        return {}
    home = environment.get("CLAUDE_CONFIG_DIR") or (environment.get("HOME") and f"{environment['HOME']}/.claude")
    if not home:
        return {}
    try:
        stored = json.loads((Path(home) / ".credentials.json").read_bytes())
        token = stored["claudeAiOauth"]["accessToken"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}  # not logged in here; the program will say so, with what to do
    return {"CLAUDE_CODE_OAUTH_TOKEN": token} if isinstance(token, str) and token else {}
