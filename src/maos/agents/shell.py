"""Any command as an agent: its lines are the output, and exit code 0 means that it is done.

The command is `order.argv`, a list that no shell reads; a shell must be named (`["sh", "-c", "make && make test"]`). It
has no standard input unless the order says that it accepts messages; then each is written to it as lines. One that may
use the tool server has the variables that say for which agent it acts, and may start `maos mcp` itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from maos.agents import environment as environments
from maos.agents.contract import (
    AgentProgram,
    Capabilities,
    Conversation,
    Dialect,
    Interpreted,
    LaunchCommand,
    LaunchOrder,
    Nothing,
    Reply,
)
from maos.errors import InvalidInput
from maos.model.events import facts
from maos.model.tool_calls import NAME as TOOL_SERVER


class ShellConversation(Conversation[Nothing]):
    """One run of a command, with nothing to remember: every line means itself."""

    memory = Nothing

    def hear(self, line: bytes, *, stderr: bool) -> Interpreted:
        """The line itself, every byte of it."""
        return Interpreted([facts.Line.of(line, stderr=stderr)])

    def say(self, id: str, text: str) -> Reply | None:
        """A line for the command's input, or several; None when it was started without input."""
        if not self._order.takes_input:
            return None
        return Reply(id, text.encode("utf-8", "backslashreplace") + b"\n")

    def end(self) -> Reply | None:
        """The end of its input, if it has one."""
        return Reply("end", b"", closes=True) if self._order.takes_input else None


class Shell(Dialect):
    """The dialect of plain commands: none."""

    kind = "shell"
    summary = "any command; its lines are the output"
    capabilities = Capabilities(
        resume=False, steer=True, cost=False, mcp=False, permission=False, prose=False, answers=False
    )
    conversation = ShellConversation

    def find(self, environment: Mapping[str, str], order_argv: Sequence[str] = ()) -> AgentProgram:
        """The command's program; a path with a slash is not looked for before the start."""
        if not order_argv or not order_argv[0]:
            raise InvalidInput("there is no command to run", hint="give one, such as `make test`")
        return AgentProgram(
            environments.program_path(order_argv[0], environment, hint="install it, or give the path of the program")
        )

    def command(self, order: LaunchOrder, program: AgentProgram, environment: Mapping[str, str]) -> LaunchCommand:
        """The command as it was given, in the environment that was chosen for it."""
        name = order.argv[0] if "/" in order.argv[0] else str(program.path)  # a Path would forget the ./ of ./run.sh
        whose = {key: value for each in order.mcp if each.name == TOOL_SERVER for key, value in each.env.items()}
        return LaunchCommand(
            [name, *order.argv[1:]],
            {**environments.of_child(order, environment, self.variables), **whose},
            keeps_input_open=order.takes_input,
            secrets=environments.secrets_of(order, environment),
        )
