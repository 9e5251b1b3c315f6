"""Claude Code on this machine: where it is, whether it is new enough, and which keys and login it gets."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from maos.agents import environment as environments
from maos.agents.contract import AgentMissing, AgentProgram
from maos.agents.environment import PATH_DEFAULT

VERSION_MIN = (2, 1, 211)
"""The oldest version tried that takes the answer to a permission without the tool's whole input in it."""
VERSION_S_MAX = 30.0
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

VARIABLES = (*KEYS, *PLAIN, *SECRET_PLAIN, *CLOUDS, *(name for names in CLOUDS.values() for name in names))
SECRET_VARIABLES = (
    *KEYS, *SECRET_PLAIN,
    "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK", "ANTHROPIC_FOUNDRY_API_KEY",
)  # fmt: skip


def find(environment: Mapping[str, str]) -> AgentProgram:
    """The program; AgentMissing says what is wrong with what there is, and what to install."""
    import shutil  # it loads four compression libraries, and most commands never come here

    looked_at = []
    on_path = shutil.which("claude", path=environment.get("PATH") or PATH_DEFAULT)
    for path in (Path(os.path.abspath(on_path)) if on_path else None, bundled()):
        if path is None:
            continue
        version = _version(path, path.stat().st_mtime_ns, environment.get("PATH") or PATH_DEFAULT)
        if _numbers(version) >= VERSION_MIN:
            return AgentProgram(path, version)
        looked_at.append(f"{path} is version {version}" if version else f"{path} does not tell its version")
    oldest = ".".join(map(str, VERSION_MIN))
    if not looked_at:
        raise AgentMissing("Claude Code is not on this machine", hint=INSTALL_HINT)
    raise AgentMissing(
        f"Claude Code is too old: {', '.join(looked_at)}; {oldest} or newer is needed",
        hint=f"run `claude update`, or {INSTALL_HINT}",
    )


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
    printed = environments.version_told(path, env, limit_s=VERSION_S_MAX) or ""
    found = re.match(r"\d+\.\d+\.\d+", printed.strip())
    return found.group() if found else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")) if version else ()


def needed(environment: Mapping[str, str], given: Mapping[str, str]) -> list[str]:
    """Names of the variables that the program gets from ours."""
    names = [*KEYS, *PLAIN, *SECRET_PLAIN]
    for switch, variables in CLOUDS.items():
        if (given.get(switch) or environment.get(switch)) not in (None, "", "0", "false"):
            names += [switch, *variables]
    return names


def login(env: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
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
