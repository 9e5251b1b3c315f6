"""The Gemini API (`models/NAME:generateContent`): parses its requests, and encodes steps as replies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from maos_testing.model_stub.conversation import ModelMessage, call_id, example_of
from maos_testing.model_stub.reply import StreamEvent, Turn, chunks
from maos_testing.model_stub.script import ScriptFault, ScriptStep

STREAMED = ":streamGenerateContent"
PATHS = (STREAMED, ":generateContent")
ERROR_STATUSES = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE",
}  # fmt: skip


def parse_conversation(body: Mapping[str, Any]) -> list[ModelMessage]:
    """Return the conversation in a request."""
    found = []
    for content in body.get("contents", ()):
        parts = [part for part in content.get("parts", ()) if isinstance(part, dict)]
        text = "\n".join(str(part["text"]) for part in parts if part.get("text") and not part.get("thought"))
        if content.get("role") == "model":
            found.append(ModelMessage("model", text))
            continue
        if any("functionResponse" in part for part in parts):
            found.append(ModelMessage("tool"))
        if text:
            found.append(ModelMessage("user", text))
    return found


def conversation(body: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    """Return a key that all requests of one conversation share: the API has none."""
    return ""


def side_reply(body: Mapping[str, Any]) -> ScriptStep | None:
    """Return the reply to a request outside the conversation, which must not use a step; None for an ordinary one."""
    config = body.get("generationConfig") or {}
    schema = config.get("responseJsonSchema") or config.get("responseSchema")
    return ScriptStep(text=json.dumps(example_of(schema))) if schema else None


def whole(turn: Turn) -> dict[str, Any]:
    """Return a reply in one piece."""
    return _reply(turn, _parts(turn), is_last=True)


def events(turn: Turn) -> Iterator[StreamEvent]:
    """Yield a reply as a stream; its events have no names."""
    for part in _parts(turn):
        for text in chunks(part["text"], turn.step) if "text" in part else [""]:
            piece = {**part, "text": text} if text else part
            yield StreamEvent("", _reply(turn, [piece]), len(text) or len(json.dumps(part)))
    yield StreamEvent("", _reply(turn, [], is_last=True))


def error_body(fault: ScriptFault) -> dict[str, Any]:
    """Return the body of an HTTP error."""
    status = ERROR_STATUSES.get(fault.status, "INTERNAL")
    return {"error": {"code": fault.status, "message": fault.message or status, "status": status}}


def error_event(fault: ScriptFault, turn: Turn) -> StreamEvent:
    """Return an error inside a stream."""
    return StreamEvent("", error_body(fault))


def _parts(turn: Turn) -> list[dict[str, Any]]:
    step = turn.step
    parts: list[dict[str, Any]] = [{"text": step.thought, "thought": True}] if step.thought else []
    parts += [{"text": step.text}] if step.text else []
    for index, call in enumerate(step.calls):
        made = {"id": call_id("call_", turn.id, index), "name": call.name, "args": call.input}
        parts.append({"functionCall": made, "thoughtSignature": "c3R1Yg=="})
    return parts


def _reply(turn: Turn, parts: list[dict[str, Any]], *, is_last: bool = False) -> dict[str, Any]:
    tokens = turn.step.tokens
    read = tokens.input + tokens.cache_read
    return {
        "candidates": [
            {"content": {"role": "model", "parts": parts}, "index": 0, **({"finishReason": "STOP"} if is_last else {})}
        ],
        "usageMetadata": {
            "promptTokenCount": read,
            "cachedContentTokenCount": tokens.cache_read,
            "candidatesTokenCount": tokens.output,
            "totalTokenCount": read + tokens.output,
        },
        "modelVersion": turn.model,
        "responseId": turn.id,
    }
