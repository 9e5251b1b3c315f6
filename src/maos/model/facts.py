"""What an agent's output means: the vocabulary that every dialect translates into.

A fact is plain data, ready for the journal: a dictionary whose `kind` says which of these it is. Keys that would be
empty are left out. Facts are what was observed; sums and states are folds of them (see `maos.model.attempt`).
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from typing import Any

Fact = dict[str, Any]


def session(id: str, *, model: str = "", version: str = "", instead_of: str = "") -> Fact:
    """The agent's program says which conversation this is, and may say its model and its own version.

    `instead_of` names the session that was to be resumed and is lost: the agent remembers nothing of it.
    """
    return _fact("session", id=id, model=model, version=version, instead_of=instead_of)


def text(text: str, *, message: str = "", part: bool = False) -> Fact:
    """Something the agent says; `message` is the id of the model's message it is part of.

    Texts of one message are lines of it; one that is a `part` goes on in the line of the text before it.
    """
    return _fact("text", text=text, message=message, part=part)


def thought(text: str, *, message: str = "", part: bool = False) -> Fact:
    """Something the agent thinks aloud."""
    return _fact("thought", text=text, message=message, part=part)


def plan(entries: list[dict[str, str]]) -> Fact:
    """What the agent means to do, with how far it is: the whole plan, in the place of the one before."""
    return _fact("plan", entries=entries)


def tool_use(id: str, name: str, input: Any) -> Fact:
    """A tool is about to run: the intent, without which an outcome would mean nothing (I31).

    Said again for the same `id`, it is the same intent, better known.
    """
    return _fact("tool_use", id=id, name=name, input=input)


def tool_progress(id: str, output: str) -> Fact:
    """What a tool that still runs has given so far, in the place of what was said of it before."""
    return _fact("tool_progress", id=id, output=output)


def tool_result(id: str, output: str, *, failed: bool = False) -> Fact:
    """What became of a tool."""
    return _fact("tool_result", id=id, output=output, failed=failed)


def usage(
    message: str,
    *,
    model: str = "",
    input: int = 0,
    output: int = 0,
    cache_read: int = 0,
    cache_write: int = 0,
) -> Fact:
    """Tokens of one message of the model. Said again for the same `message`, it replaces what was said before."""
    tokens = {"input": input, "output": output, "cache_read": cache_read, "cache_write": cache_write}
    return _fact("usage", message=message, model=model, **tokens)


def cost(usd: float, *, turn: str) -> Fact:
    """What one turn cost, as the agent's program computed it: never a running total. `turn` makes it count once."""
    return _fact("cost", usd=usd, turn=turn)


def retry(*, attempt: int, delay_s: float, status: int = 0, error: str = "") -> Fact:
    """The agent's program tries a request to its model again, by itself."""
    return _fact("retry", attempt=attempt, delay_s=delay_s, status=status, error=error)


def trouble(failure: str, message: str, *, status: int = 0, reset_us: int = 0) -> Fact:
    """Something that may end the attempt; `failure` is a name from `maos.model.failure`."""
    return _fact("trouble", failure=failure, message=message, status=status, reset_us=reset_us)


def permission_requested(id: str, tool: str, input: Any, *, options: list[dict[str, str]] | None = None) -> Fact:
    """The agent may not do something unless somebody says so, and waits."""
    return _fact("permission_requested", id=id, tool=tool, input=input, options=options)


def permission_denied(tool: str, message: str) -> Fact:
    """The agent's program refused a tool by its own rules."""
    return _fact("permission_denied", tool=tool, message=message)


def discovery(keyword: str, text: str) -> Fact:
    """A line that others should hear of (R-104)."""
    return _fact("discovery", keyword=keyword, text=text)


def turn_ended(result: str, *, failed: bool = False, reason: str = "", turns: int = 0) -> Fact:
    """The agent has answered and would take another message now."""
    return _fact("turn_ended", result=result, failed=failed, reason=reason, turns=turns)


def line(text: str | bytes, *, stderr: bool = False) -> Fact:
    """A line of output that is its own meaning: what a plain command prints.

    Bytes that are not UTF-8 are shown with escapes such as `\\xff`, and kept as they were beside it (see `raw`).
    """
    return _fact("line", **_readable(text), stderr=stderr)


def unknown(text: str | bytes, *, stderr: bool = False) -> Fact:
    """A line the dialect does not understand, kept as it is."""
    return _fact("unknown", **_readable(text), stderr=stderr)


def last_message(facts: Sequence[Fact]) -> str:
    """The last thing the agent said, whole: its texts that belong to the same message."""
    said = [fact for fact in facts if fact["kind"] == "text"]
    if not said:
        return ""
    message = said[-1].get("message", "")
    first = len(said) - 1
    while message and first and said[first - 1].get("message", "") == message:
        first -= 1
    whole = ""
    for number, fact in enumerate(said[first:]):
        whole += ("" if not number or fact.get("part") else "\n") + fact.get("text", "")
    return whole


def raw(fact: Fact) -> bytes:
    """The bytes of a `line` or an `unknown`, exactly as they were printed."""
    if "base64" in fact:
        return binascii.a2b_base64(fact["base64"])
    return str(fact.get("text", "")).encode()


def _readable(text: str | bytes) -> dict[str, str]:
    if isinstance(text, str):
        try:
            text.encode()
        except UnicodeEncodeError:  # half a character, which JSON can spell and nothing can store
            return {"text": text.encode("utf-8", "backslashreplace").decode()}
        return {"text": text}
    try:
        return {"text": text.decode()}
    except UnicodeDecodeError:
        exact = binascii.b2a_base64(text, newline=False).decode("ascii")
        return {"text": text.decode("utf-8", "backslashreplace"), "base64": exact}


def _fact(kind: str, **fields: Any) -> Fact:
    fact: Fact = {"kind": kind}
    for name, value in fields.items():
        if value or (value == 0 and name in {"usd"}):
            fact[name] = value
    return fact
