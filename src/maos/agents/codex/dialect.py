"""Codex (`codex exec --json`): one turn for each process, resumed by the id of its thread.

Codex chooses that id itself, so it is known from its first line on and not before the start. All it needs lives in a
folder of its own below the agent's home: settings that we write anew for every attempt, its databases, and the
`rollout` files that are its transcripts. The prompt goes to its standard input, where no length and no leading dash
can do harm (A14).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from maos.agents import environment as environments
from maos.agents.codex import settings
from maos.agents.codex.events import THREAD_ID, CodexConversation
from maos.agents.contract import AgentMissing, AgentProgram, Capabilities, Dialect, LaunchCommand, LaunchOrder
from maos.clock import Clock, SystemClock
from maos.errors import InvalidInput

VERSION_MIN = (0, 160, 0)
"""The oldest version that was tried. Before 0.23.0 a workspace could make it run anything (CVE-2025-61260)."""

INSTALL = "install it with `npm install -g @openai/codex`, or put the folder of its program on the PATH"
LOG_IN = "set OPENAI_API_KEY (and OPENAI_BASE_URL, if it is not OpenAI itself), or log in with `codex login`"

_VERSION = re.compile(r"\b(\d+)\.(\d+)\.(\d+)")
_ROLLOUT = re.compile(r"rollout-(\d{4})-(\d{2})-(\d{2})T[0-9-]{8}-[0-9A-Za-z-]{1,64}\.jsonl")


class Codex(Dialect):
    """The dialect of OpenAI's Codex."""

    kind = "codex"
    summary = "OpenAI's Codex, through `codex exec`"
    capabilities = Capabilities(resume=True, steer=False, cost=False, mcp=True, permission=False)
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
        home = settings.home(order)
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = child.pop("CODEX_API_KEY", "") or child.get("OPENAI_API_KEY", "")
        base_url = child.get("OPENAI_BASE_URL", "")
        if base_url and key:
            child["OPENAI_API_KEY"] = key
        elif key:
            child["CODEX_API_KEY"] = key
        login = None if base_url or key else _login(environment)
        if not (base_url or key or login):
            raise AgentMissing("Codex has neither a key nor a login", hint=LOG_IN)
        settings.write(order, base_url=base_url, has_key=bool(key))
        _link(home / "auth.json", login)
        settings.note_tokens_before(order, self.transcript(order, order.session) if order.resume else None)
        flags = ["--json", "--skip-git-repo-check", "--"]
        if order.resume:
            if not THREAD_ID.fullmatch(order.session):
                raise InvalidInput(f"{order.session!r} is not a session of Codex", hint="start the agent anew")
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
            state = {"since_us": self._clock.now_us(), "before": settings.tokens_before(order)}
        return CodexConversation(order, state)

    def transcript(self, order: LaunchOrder, session: str) -> Path | None:
        """The rollout file of a thread; None before there is one."""
        if not THREAD_ID.fullmatch(session):
            return None
        found = (settings.home(order) / "sessions").glob(f"*/*/*/rollout-*-{session}.jsonl")
        return max(found, default=None)

    def transcript_home(self, order: LaunchOrder, session: str, name: str) -> Path:
        """Where a rollout belongs: a folder for the day that its name tells."""
        found = _ROLLOUT.fullmatch(name)
        if found is None:
            raise InvalidInput(f"{name!r} is not the name of a transcript of Codex", hint="start the agent anew")
        return settings.home(order).joinpath("sessions", *found.groups(), name)


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
        raise AgentMissing(f"{path} could not be asked for its version", hint=INSTALL)
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
