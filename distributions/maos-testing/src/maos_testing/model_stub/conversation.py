"""The position of a conversation: its script, and how many steps have been sent.

The last prompt of the user that has `SCRIPT=name` starts that script; every turn of the model after it is one step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from maos_testing.model_stub.script import DEFAULT, Scripts, ScriptStep

MARKER = re.compile(r"\bSCRIPT=([A-Za-z0-9_.-]*[A-Za-z0-9_])")
END_TEXT = "The script has ended."
"""The reply of the stub after the last step of a script."""

INTERRUPTED = re.compile(
    r"unknown whether these tool calls took effect|tool calls were completed and recorded|its outcome is unknown"
)
"""What a prompt, or the result of a tool, says to an agent that was killed after it had begun to use tools."""
SYNTHETIC = frozenset({"No response requested."})
"""Turns that a client inserts when it resumes: the stub did not send them, so they are no steps."""


class ModelMessage(NamedTuple):
    """A message of a conversation, from either API."""

    who: str
    """user, model, or tool (the result of a call)."""
    text: str = ""
    calls: frozenset[str] = frozenset()
    """Ids of the calls it makes, if it is from the model."""


class ScriptPosition(NamedTuple):
    """A position in a script."""

    script: str
    step: int


class UnknownScript(Exception):
    """A prompt names a script that the stub does not have."""


def place(said: Sequence[ModelMessage]) -> ScriptPosition:
    """Return the script that a conversation follows, and the number of its next step."""
    script, steps = DEFAULT, 0
    speaking = False
    known: set[str] = set()
    for each in said:
        if each.who != "model":
            speaking = False
            if each.who == "user" and (found := MARKER.findall(each.text)):
                script, steps = found[-1], 0
            continue
        if each.text.strip() in SYNTHETIC and not each.calls:
            continue
        # Results of parallel calls may be between the calls; their ids show that it is still the same turn.
        turns = {turn_of(call) for call in each.calls}
        if not speaking and not turns & known:
            steps += 1
        known |= turns
        speaking = True
    return ScriptPosition(script, steps)


def next_step(scripts: Scripts, where: ScriptPosition, said: Sequence[ModelMessage] = ()) -> ScriptStep:
    """Return the step at a position of a conversation; END_TEXT after the last."""
    steps = scripts.get(where.script)
    if steps is None:
        if where.script == DEFAULT:
            hint = "put SCRIPT=name into the prompt"
        else:
            hint = "check the name behind SCRIPT= in the prompt"
        raise UnknownScript(f"the stub has no script {where.script!r}, only {', '.join(sorted(scripts))}: {hint}")
    step = steps[where.step] if where.step < len(steps) else ScriptStep(text=END_TEXT)
    if step.careful and any(INTERRUPTED.search(each.text) for each in said if each.who != "model"):
        return msgspec.structs.replace(step, calls=step.careful)
    return step


def call_id(prefix: str, turn: str, index: int) -> str:
    """Return the id of a call, from which `turn_of` gets the turn."""
    return f"{prefix}{turn}x{index:02d}"


def turn_of(call: str) -> str:
    """Return the part of a call's id that all calls of one turn share."""
    return call[:-3]


def text_of(content: Any) -> str:
    """Return the text of a message's content: a string, or a list of blocks of which some have a `text`."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (block.get("text") for block in content if isinstance(block, dict))
    return "\n".join(text for text in texts if isinstance(text, str))


def example_of(schema: Any) -> Any:
    """Return the smallest value that a JSON schema allows, for structured replies."""
    if not isinstance(schema, dict):
        return {}
    if "const" in schema:
        return schema["const"]
    if isinstance(choices := schema.get("enum"), list) and choices:
        return choices[0]
    for key in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(key), list) and choices:
            return example_of(choices[0])
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0] if kind else "null"
    if kind == "object" or "properties" in schema:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        return {name: example_of(inner) for name, inner in properties.items()}
    plain: dict[Any, Any] = {"string": "stub", "integer": 0, "number": 0, "boolean": False, "array": []}
    return plain.get(kind)
