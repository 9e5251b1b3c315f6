"""Scopes: which streams and documents belong together, because one key seals them and one erasure covers them.

The scope of a run has its events, its inbox, its notices, its conversation, and everything of its agents, whose names
begin with its id. The scope of an agent without a run is its name. Everything else is in the scope of the store.
"""

from __future__ import annotations

from maos.model.attempt import agent_of

STORE = ""
"""The scope of what belongs to no run and no agent."""
_NAMED = frozenset("run attempt agent inbox acks dead-letters messages tools notices chat workflow bundle".split())


def of_name(name: str) -> str:
    """Return the scope of a run or an agent by its name."""
    return name.partition(".")[0] if name.startswith("r-") else name


def of_stream(stream: str) -> str:
    """Return the scope of a stream."""
    kind, _, name = stream.partition("/")
    if kind not in _NAMED or not name:
        return STORE
    return of_name(agent_of(name) if kind == "attempt" else name)


def of_document(kind: str, key: str) -> str:
    """Return the scope of a document: that of the stream that it was computed from."""
    if kind in ("fold", "segment", "snapshot"):  # their keys begin with the name of the stream
        return of_stream(key.partition("\t")[0])
    return of_stream(f"{kind}/{key}")
