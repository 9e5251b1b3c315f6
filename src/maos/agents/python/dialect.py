"""A Python function as an agent, in a process of its own (see `maos.agents.python.context` for what it is given)."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from maos.agents import environment as environments
from maos.agents.contract import (
    AgentProgram,
    Capabilities,
    Conversation,
    Dialect,
    Interpreted,
    LaunchCommand,
    LaunchOrder,
    Reply,
)
from maos.errors import InvalidInput
from maos.model.events import facts
from maos.model.events.facts import Fact
from maos.model.failure import TABLE
from maos.model.plan import FUNCTION


class PythonState(msgspec.Struct, omit_defaults=True):
    """What must be known to understand the next line."""

    returned: bool = False


class PythonConversation(Conversation[PythonState]):
    """One call of a function."""

    memory = PythonState

    def _understand(self, message: dict[str, Any], line: bytes) -> Interpreted | None:
        is_ours = all(isinstance(each, str) for each in message.values())
        found = self._facts(message) if is_ours else []
        return Interpreted(found) if found else None

    def _aside(self, line: bytes) -> list[Fact]:
        return [facts.Line.of(line, stderr=True)]

    def _facts(self, message: dict[str, str]) -> list[Fact]:
        text = message.get("text", "")
        match message.get("is"):
            case "started":
                return [facts.SessionOpened(self._order.session, version=f"Python {message.get('python', '')}")]
            case "line":
                return _printed(message)
            case "report":
                return [facts.Text(text)]
            case "discovery":
                return [facts.Discovery(message.get("keyword", ""), text)]
            case "result":
                self._state.returned = True
                return [facts.TurnEnded(text, form=message.get("form", ""))]
            case "failed":
                self._state.returned = True
                failure = message.get("failure", "")
                return [
                    facts.Trouble(
                        failure if failure in TABLE else "failed", text, traceback=message.get("traceback", "")
                    ),
                    facts.TurnEnded("", failed=True),
                ]
        return []

    def say(self, id: str, text: str) -> Reply | None:
        """A message for the function; None once it has returned."""
        if self._state.returned:
            return None
        return Reply(id, msgspec.json.encode({"say": text.encode("utf-8", "backslashreplace").decode()}) + b"\n")


class Python(Dialect):
    """The dialect of functions."""

    kind = "python"
    summary = "a Python function, module:name"
    capabilities = Capabilities(resume=True, steer=True, cost=False, mcp=False, permission=False, prose=False)
    conversation = PythonConversation

    def find(self, environment: Mapping[str, str], order_argv: Sequence[str] = ()) -> AgentProgram:
        """The Python that maos runs on; InvalidInput when the order names no function."""
        name = order_argv[0] if order_argv else ""
        if len(order_argv) != 1 or not FUNCTION.fullmatch(name):
            raise InvalidInput(
                f"{' '.join(order_argv)!r} does not name a function",
                hint="name it as module:function, such as jobs.nightly:run",
            )
        return AgentProgram(Path(sys.executable), ".".join(map(str, sys.version_info[:3])))

    def command(self, order: LaunchOrder, program: AgentProgram, environment: Mapping[str, str]) -> LaunchCommand:
        """A Python without the working folder on its path until the function is looked for."""
        order_data = {
            "function": order.argv[0],
            "task": order.task,
            "session": order.session,
            "attempt": order.attempt,
            "resumed": order.resume,
        }
        return LaunchCommand(
            [str(program.path), "-P", "-m", "maos.agents.python.child"],
            environments.of_child(order, environment, self.variables),
            first_input=json.dumps(order_data).encode() + b"\n",
            keeps_input_open=True,
            secrets=environments.secrets_of(order, environment),
        )


def _printed(message: dict[str, str]) -> list[Fact]:
    try:
        return [facts.Line.of(facts.Line(message.get("text", ""), message.get("base64", "")).raw())]
    except ValueError:  # not what our own process writes
        return []
