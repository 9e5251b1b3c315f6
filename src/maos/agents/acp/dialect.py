"""Any agent that speaks the Agent Client Protocol over its standard input and output: `acp:<command>`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from maos.agents import environment as environments
from maos.agents.acp.conversation import AcpConversation, initialize
from maos.agents.contract import AgentProgram, Capabilities, Dialect, LaunchCommand, LaunchOrder
from maos.errors import InvalidInput

_ANTHROPIC = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
_OPENAI = ("OPENAI_API_KEY", "CODEX_API_KEY")
_GEMINI = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
_KEYS = {
    "claude-agent-acp": _ANTHROPIC, "claude-code-acp": _ANTHROPIC, "codex-acp": _OPENAI, "gemini": _GEMINI,
    "qwen": ("OPENAI_API_KEY",), "opencode": (*_ANTHROPIC, *_OPENAI, *_GEMINI),
}  # fmt: skip
"""The keys of the agents we know. Others get theirs by `--env`: a key goes only where it is needed."""
_ADDRESSES = {
    "claude-agent-acp": ("ANTHROPIC_BASE_URL",), "claude-code-acp": ("ANTHROPIC_BASE_URL",),
    "codex-acp": ("OPENAI_BASE_URL",), "gemini": ("GOOGLE_GEMINI_BASE_URL",), "qwen": ("OPENAI_BASE_URL",),
}  # fmt: skip


class Acp(Dialect):
    """The dialect of one such command. Without one (`acp`), the whole command is the order's."""

    summary = "any agent that speaks the Agent Client Protocol: acp:<command>"
    capabilities = Capabilities(resume=True, steer=False, cost=True, mcp=True, permission=True, varies=True)
    conversation = AcpConversation

    def __init__(self, command: str = "") -> None:
        self.kind = f"acp:{command}" if command else "acp"
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise InvalidInput(f"{command!r} is not a command: {error}", hint="close the quotation marks") from error
        program = Path(self._words[0]).name if self._words else ""
        self.secret_variables: Sequence[str] = _KEYS.get(program, ())
        self.variables: Sequence[str] = (*self.secret_variables, *_ADDRESSES.get(program, ()))

    def find(self, environment: Mapping[str, str], order_argv: Sequence[str] = ()) -> AgentProgram:
        """The agent's program."""
        argv = [*self._words, *order_argv]
        if not argv or not argv[0]:
            raise InvalidInput(
                "there is no command that speaks the protocol", hint="name one, such as acp:'opencode acp'"
            )
        hint = f"install {argv[0]}, or give the path of the program"
        return AgentProgram(environments.program_path(argv[0], environment, hint=hint))

    def command(self, order: LaunchOrder, program: AgentProgram, environment: Mapping[str, str]) -> LaunchCommand:
        """The command, greeted with the first message of the protocol."""
        name, *rest = [*self._words, *order.argv]
        return LaunchCommand(
            [name if "/" in name else str(program.path), *rest],
            environments.of_child(order, environment, self.variables),
            first_input=initialize(),
            keeps_input_open=True,
            secrets=environments.secrets_of(order, environment, self.secret_variables),
        )
