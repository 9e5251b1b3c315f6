"""Codex (`codex exec --json`): one turn for each process, resumed by the id of its thread.

Codex chooses that id itself, so it is known from its first line on and not before the start. All it needs lives in a
folder of its own below the agent's home: settings that the dialect writes for every attempt, its databases, and the
`rollout` files that are its transcripts. The prompt goes to its standard input, where no length and no leading dash
can do harm (A14).

Those settings are the only ones it has, and the workspace is declared untrusted, so that nothing in it is taken for a
setting, a hook or a tool server. Without that declaration Codex would trust it by itself (A12). Only the person can say
otherwise.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from maos.agents import environment as environments
from maos.agents.codex.events import THREAD_ID, TOKENS, CodexConversation
from maos.agents.contract import (
    AgentMissing,
    AgentProgram,
    Capabilities,
    Dialect,
    LaunchCommand,
    LaunchOrder,
    McpServer,
)
from maos.agents.project_files import copy_skills
from maos.agents.values import as_count, as_object, decoded
from maos.clock import Clock, SystemClock
from maos.errors import InvalidInput
from maos.files import is_regular, private_folder, replace_file
from maos.model import tool_calls
from maos.model.preparation import HOOKS, SETTINGS, SKILLS
from maos.patterns import regex

VERSION_MIN = (0, 160, 0)
"""The oldest version that was tried. Before 0.23.0 a workspace could make it run anything (CVE-2025-61260)."""

INSTALL = "install it with `npm install -g @openai/codex`, or put the folder of its program on the PATH"
LOG_IN = "set OPENAI_API_KEY (and OPENAI_BASE_URL, if it is not OpenAI itself), or log in with `codex login`"

STARTUP_S_MAX = 60
TOOL_S_MAX = 7 * 24 * 3600
"""A tool of ours may wait for a person."""

SANDBOXES = {"edits": "workspace-write", "ask": "read-only", "deny": "read-only"}
"""Codex cannot ask while it runs like this, so what would have to be asked for is not allowed."""

_SKILLS = ((".agents/skills", "skills"),)
_VERSION = regex(r"\b(\d+)\.(\d+)\.(\d+)")
_ROLLOUT = regex(r"rollout-(\d{4})-(\d{2})-(\d{2})T[0-9-]{8}-[0-9A-Za-z-]{1,64}\.jsonl")

_SERVER_NAME = regex(r"[A-Za-z0-9_-]{1,64}")
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


class Codex(Dialect):
    """The dialect of OpenAI's Codex."""

    kind = "codex"
    summary = "OpenAI's Codex, through `codex exec`"
    login = LOG_IN
    capabilities = Capabilities(resume=True, steer=False, cost=False, mcp=True, permission=False, names_model=False)
    variables: Sequence[str] = (
        "OPENAI_API_KEY",
        "CODEX_API_KEY",
        "OPENAI_BASE_URL",
        "OPENAI_ORGANIZATION",
        "OPENAI_PROJECT",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "SSL_CERT_FILE",
        "TZ",  # codex tells the end of a usage limit in local time, which must be ours too
    )
    secret_variables: Sequence[str] = ("OPENAI_API_KEY", "CODEX_API_KEY", "HTTPS_PROXY", "ALL_PROXY")

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()

    def find(self, environment: Mapping[str, str], order_argv: Sequence[str] = ()) -> AgentProgram:
        """The program, without the node script that npm puts before it: a signal must reach the program itself."""
        path = environments.program_path(order_argv[0] if order_argv else "codex", environment, hint=INSTALL)
        path = _native(path) or path
        version = _version(path, environment)
        found = _VERSION.search(version)
        if found is None:
            raise AgentMissing(f"{path} does not say which version of Codex it is", hint=INSTALL)
        if tuple(int(part) for part in found.groups()) < VERSION_MIN:
            oldest = ".".join(str(part) for part in VERSION_MIN)
            raise AgentMissing(f"{path} is Codex {found.group()}, older than {oldest}", hint=INSTALL)
        return AgentProgram(path, found.group())

    def command(self, order: LaunchOrder, program: AgentProgram, environment: Mapping[str, str]) -> LaunchCommand:
        """What to start, with its settings written; AgentMissing when it has neither a key nor a login."""
        child = environments.of_child(order, environment, self.variables)
        home = _home(order)
        private_folder(home)
        key = child.pop("CODEX_API_KEY", "") or child.get("OPENAI_API_KEY", "")
        base_url = child.get("OPENAI_BASE_URL", "")
        if base_url and key:
            child["OPENAI_API_KEY"] = key
        elif key:
            child["CODEX_API_KEY"] = key
        login = None if base_url or key else _login(environment)
        if not (base_url or key or login):
            raise AgentMissing("Codex has neither a key nor a login", hint=LOG_IN)
        text = _settings(order, base_url=base_url, has_key=bool(key))
        replace_file(home / "config.toml", text.encode(), sync=False)
        _link(home / "auth.json", login)
        copy_skills(order.cwd, home, _SKILLS if SKILLS in order.project else ())
        _note_tokens_before(order, self.transcript(order, order.session) if order.resume else None)
        flags = ["--json", "--skip-git-repo-check", "--"]
        if order.resume:
            if not THREAD_ID.fullmatch(order.session):
                raise InvalidInput(f"{order.session!r} is not a session of Codex", hint="start a new agent")
            argv = [str(program.path), "exec", "resume", *flags, order.session, "-"]
        else:
            argv = [str(program.path), "exec", *flags, "-"]
        return LaunchCommand(
            argv,
            {**child, "CODEX_HOME": str(home)},
            first_input=order.task.encode("utf-8", "backslashreplace"),
            secrets=environments.secrets_of(order, environment, self.secret_variables),
        )

    def converse(self, order: LaunchOrder, state: Mapping[str, Any] | None = None) -> CodexConversation:
        """A new conversation, or one that is resumed from a state."""
        if state is None:
            state = {"since_us": self._clock.now_us(), "before": _noted(order)}
        return CodexConversation(order, state)

    def transcript(self, order: LaunchOrder, session: str) -> Path | None:
        """The rollout file of a thread; None before there is one."""
        if not THREAD_ID.fullmatch(session):
            return None
        found = (_home(order) / "sessions").glob(f"*/*/*/rollout-*-{session}.jsonl")
        return max(filter(is_regular, found), default=None)

    def transcript_home(self, order: LaunchOrder, session: str, name: str) -> Path:
        """Where a rollout belongs: a folder for the day that its name tells."""
        found = _ROLLOUT.fullmatch(name)
        if found is None:
            raise InvalidInput(f"{name!r} is not the name of a transcript of Codex", hint="start a new agent")
        return _home(order).joinpath("sessions", *found.groups(), name)


def _native(path: Path) -> Path | None:
    """The program behind the script of an npm package; None when there is no such script.

    The script would stand between us and the program: killed, it leaves the program running.
    """
    script = path.resolve()
    if script.name != "codex.js":
        return None
    package = script.parent.parent
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    platform = f"codex-{os.uname().sysname.lower()}-{machine}"
    for folder in (package / "node_modules" / "@openai" / platform, package.parent / platform, package):
        for program in sorted(folder.glob("vendor/*/bin/codex")):
            if os.access(program, os.X_OK):
                return program
    return None


def _version(path: Path, environment: Mapping[str, str]) -> str:
    """What the program says of its version: in the file that comes with it, else by itself."""
    package = path.resolve().parent.parent / "codex-package.json"
    if package.is_file():
        return package.read_text(errors="replace")
    # It makes helper programs in its home whenever it starts; a home that cannot be one spares the user's.
    scrubbed = {"PATH": environment.get("PATH") or environments.PATH_DEFAULT, "CODEX_HOME": os.devnull}
    asked = environments.version_told(path, scrubbed)
    if asked is None:
        raise AgentMissing(f"{path} did not report its version", hint=INSTALL)
    return asked


def _login(environment: Mapping[str, str]) -> Path | None:
    """The file with the user's own login, if they have one."""
    home = environment.get("CODEX_HOME") or (f"{environment['HOME']}/.codex" if environment.get("HOME") else "")
    path = Path(home, "auth.json") if home else None
    return path.absolute() if path and path.is_file() else None


def _link(path: Path, target: Path | None) -> None:
    """Let the program find the user's login, or make sure that it finds none.

    A link and not a copy: the program renews the login from time to time and writes it back, and of two copies the
    older one is then worth nothing.
    """
    path.unlink(missing_ok=True)
    if target is not None:
        path.symlink_to(target)


# --- its settings, and the tokens it has used


def _home(order: LaunchOrder) -> Path:
    """The folder that is all of Codex's world for this agent."""
    return order.home / "codex"


def _settings(order: LaunchOrder, *, base_url: str, has_key: bool) -> str:
    """The settings as TOML; for this user's eyes only, as they hold the variables of the tool servers."""
    if order.permission not in SANDBOXES:
        known = ", ".join(SANDBOXES)
        raise InvalidInput(f"there is no permission called {order.permission!r}", hint=f"it is one of {known}")
    is_trusted = SETTINGS in order.project or HOOKS in order.project
    guidance = order.instructions if is_trusted else order.guidance  # it reads those of a trusted project by itself
    chosen = {"model": order.model, "developer_instructions": guidance, "model_provider": base_url and "maos"}
    text = "".join(f"{name} = {_text(value)}\n" for name, value in chosen.items() if value)
    allowed = order.tools_allowed
    features = "".join(f"{name} = false\n" for name in _OFF if name != "hooks" or HOOKS not in order.project)
    text += f"""\
approval_policy = "never"
sandbox_mode = {_text(SANDBOXES[order.permission])}
web_search = {_text("live" if "web_search" in allowed else "disabled")}
cli_auth_credentials_store = "file"
check_for_update_on_startup = false
analytics.enabled = false
feedback.enabled = false
history.persistence = "none"

[features]
{features}
[sandbox_workspace_write]
network_access = {"true" if "network_access" in allowed else "false"}
# It has a temporary folder of its own; the shared one holds other agents' files.
exclude_slash_tmp = true

[shell_environment_policy]
inherit = "all"
# All there is was chosen for it.
ignore_default_excludes = true
exclude = ["OPENAI_API_KEY", "CODEX_API_KEY"]

[projects.{_text(str(order.cwd.resolve()))}]
trust_level = {_text("trusted" if is_trusted else "untrusted")}
"""
    if base_url:
        text += f'\n[model_providers.maos]\nname = "maos"\nbase_url = {_text(base_url)}\nwire_api = "responses"\n'
        text += 'env_key = "OPENAI_API_KEY"\n' if has_key else ""
    return text + "".join(map(_server, order.mcp))


def _server(server: McpServer) -> str:
    if not _SERVER_NAME.fullmatch(server.name):
        raise InvalidInput(
            f"Codex takes no tool server called {server.name!r}", hint="use letters, digits, dashes and underscores"
        )
    return f"""
[mcp_servers.{server.name}]
command = {_text(server.argv[0])}
args = [{", ".join(map(_text, server.argv[1:]))}]
# An agent that was to have tools does not begin without them.
required = true
# No person could be asked, and they are given to be used.
default_tools_approval_mode = "approve"
startup_timeout_sec = {STARTUP_S_MAX}
tool_timeout_sec = {TOOL_S_MAX}
# It passes nothing else of its own environment on.
env_vars = [{_text(tool_calls.SECRET) if server.name == tool_calls.NAME else ""}]
env = {{{", ".join(f"{_text(name)} = {_text(value)}" for name, value in server.env.items())}}}
"""


def _note_tokens_before(order: LaunchOrder, transcript: Path | None) -> None:
    """Keep the tokens that the thread had used before this attempt; what Codex tells is always its whole sum.

    Noted once for an attempt, for the transcript grows while it runs.
    """
    if _noted(order) is None:
        note = {"attempt": order.attempt, "tokens": _tokens_reported(transcript)}
        replace_file(_home(order) / "tokens-before.json", json.dumps(note).encode(), sync=False)


def _text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{text!r} is not valid text", hint="use names and folders that are UTF-8") from None
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def _noted(order: LaunchOrder) -> Sequence[int] | None:
    try:
        note = json.loads((_home(order) / "tokens-before.json").read_bytes())
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
            payload = as_object((decoded(line) or {}).get("payload"))  # Codex leaves out a torn one too
            total = as_object(payload.get("info")).get("total_token_usage")
            if payload.get("type") == "token_count" and isinstance(total, dict):
                running = [as_count(total.get(name)) for name in TOKENS]
            elif payload.get("type") == "task_complete" and not payload.get("error"):
                reported = running
    return reported
