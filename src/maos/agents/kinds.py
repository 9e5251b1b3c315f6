"""The kinds of agents there are: a name for each dialect, loaded when it is asked for."""

from __future__ import annotations

import difflib
import importlib
from typing import Any, cast

from maos.agents.contract import Dialect
from maos.errors import InvalidInput

ACP_PREFIX = "acp:"

_DIALECTS = {
    "claude": "maos.agents.claude.dialect:Claude",
    "codex": "maos.agents.codex.dialect:Codex",
    "acp": "maos.agents.acp.dialect:Acp",
    "python": "maos.agents.python.dialect:Python",
    "shell": "maos.agents.shell:Shell",
}


def names() -> list[str]:
    """The kinds, in the order a person should hear of them; `acp` stands for all that are `acp:<command>`."""
    return list(_DIALECTS)


def dialect(kind: str) -> Dialect:
    """The dialect of a kind; InvalidInput names those there are.

    `acp:<command>` is the Agent Client Protocol spoken with that command, given as shell words: `acp:opencode acp`.
    """
    if kind.startswith(ACP_PREFIX):
        return cast(Dialect, _load("acp")(kind.removeprefix(ACP_PREFIX)))
    if kind not in _DIALECTS:
        raise InvalidInput(f"there is no kind of agent called {kind!r}", hint=_guess(kind))
    return cast(Dialect, _load(kind)())


def _load(kind: str) -> Any:
    """The class of a dialect."""
    module, _, name = _DIALECTS[kind].partition(":")
    return getattr(importlib.import_module(module), name)


def _guess(kind: str) -> str:
    """What was meant, if that can be told, and what there is."""
    there_are = f"the kinds are {', '.join(_DIALECTS)} and acp:<command>"
    close = difflib.get_close_matches(kind.lower(), [*_DIALECTS, ACP_PREFIX], n=1)
    return f"did you mean {close[0]!r}? {there_are}" if close else there_are
