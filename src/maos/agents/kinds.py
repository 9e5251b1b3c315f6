"""The kinds of agents there are: a name for each dialect, loaded when it is asked for."""

from __future__ import annotations

import difflib
import importlib
import os
from typing import Any, cast

from maos.agents.contract import Capabilities, Dialect
from maos.errors import InvalidInput, MaosError
from maos.tuples import NamedTuple

ACP_PREFIX = "acp:"

DIALECTS = {
    "claude": "maos.agents.claude.dialect:Claude",
    "codex": "maos.agents.codex.dialect:Codex",
    "acp": "maos.agents.acp.dialect:Acp",
    "python": "maos.agents.python.dialect:Python",
    "shell": "maos.agents.shell:Shell",
}
"""The kinds, in the order in which they are listed; `acp` stands for all that are `acp:<command>`."""


def dialect(kind: str) -> Dialect:
    """The dialect of a kind; InvalidInput names those there are.

    `acp:<command>` is the Agent Client Protocol spoken with that command, given as shell words: `acp:opencode acp`.
    """
    if kind.startswith(ACP_PREFIX):
        return cast(Dialect, _load("acp")(kind.removeprefix(ACP_PREFIX)))
    if kind not in DIALECTS:
        there_are = f"the kinds are {', '.join(DIALECTS)} and acp:<command>"
        close = difflib.get_close_matches(kind.lower(), [*DIALECTS, ACP_PREFIX], n=1)
        hint = f"did you mean {close[0]!r}? {there_are}" if close else there_are
        raise InvalidInput(f"there is no kind of agent called {kind!r}", hint=hint)
    return cast(Dialect, _load(kind)())


def _load(kind: str) -> Any:
    module, _, name = DIALECTS[kind].partition(":")
    return getattr(importlib.import_module(module), name)


class Installed(NamedTuple):
    """A kind of agent, and whether its program is on this machine."""

    name: str
    summary: str
    capabilities: Capabilities
    found: str
    """The program and its version; empty when it is not here, or when the order names it."""
    missing: str
    """Why it cannot run here."""
    hint: str


def installed() -> list[Installed]:
    """Every kind, looked for on this machine."""
    return [_look(name) for name in DIALECTS]


def _look(name: str) -> Installed:
    found = missing = hint = ""
    own = dialect(ACP_PREFIX if name == "acp" else name)
    try:
        program = own.find(os.environ)
        found = program.version or str(program.path)
    except InvalidInput:
        pass  # it runs what the order names, and there is none yet
    except MaosError as error:
        missing, hint = error.what, error.hint
    shown = f"{ACP_PREFIX}COMMAND" if name == "acp" else name
    return Installed(shown, own.summary, own.capabilities, found, missing, hint)
