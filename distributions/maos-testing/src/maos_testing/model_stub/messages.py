"""The Messages API: parses its requests, and encodes steps as replies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from maos_testing.model_stub.conversation import ModelMessage, call_id, example_of, text_of
from maos_testing.model_stub.reply import StreamEvent, Turn, chunks
from maos_testing.model_stub.script import ScriptFault, ScriptStep

ERROR_TYPES = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error", 529: "overloaded_error",
}  # fmt: skip


def parse_conversation(body: Mapping[str, Any]) -> list[ModelMessage]:
    """Return the conversation in a request."""
    found = []
    for message in body.get("messages", ()):
        content = message.get("content", "")
        blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
        if message.get("role") == "assistant":
            calls = frozenset(str(block.get("id")) for block in blocks if block.get("type") == "tool_use")
            found.append(ModelMessage("model", text_of(content), calls))
        elif message.get("role") == "user":
            results = [block for block in blocks if block.get("type") == "tool_result"]
            if results:
                found.append(ModelMessage("tool", "\n".join(text_of(each.get("content")) for each in results)))
            if text := text_of(content):
                found.append(ModelMessage("user", text))
    return found


def conversation(body: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    """Return a key that all requests of one conversation share, and no others."""
    return headers.get("x-claude-code-session-id", "")


def side_reply(body: Mapping[str, Any]) -> ScriptStep | None:
    """Return the reply to a request outside the conversation, which must not use a step; None for an ordinary one.

    Programs ask for titles and summaries with a schema for the answer, and try whether the API answers at all with a
    limit of one token.
    """
    output = body.get("output_config") or {}
    shape = body.get("output_format") or (output.get("format") if isinstance(output, dict) else None)
    if isinstance(shape, dict) and shape.get("type") == "json_schema":
        return ScriptStep(text=json.dumps(example_of(shape.get("schema"))))
    if body.get("max_tokens") == 1:
        return ScriptStep(text="OK", stop_reason="max_tokens")
    return None


def whole(turn: Turn) -> dict[str, Any]:
    """Return a reply in one piece."""
    step = turn.step
    content: list[dict[str, Any]] = []
    if step.thought:
        content.append({"type": "thinking", "thinking": step.thought, "signature": _signature(turn)})
    if step.text:
        content.append({"type": "text", "text": step.text})
    for index, call in enumerate(step.calls):
        content.append(
            {"type": "tool_use", "id": call_id("toolu_", turn.id, index), "name": call.name, "input": call.input}
        )
    return _message(turn, content, stop_reason=_stop_reason(step), output=step.tokens.output)


def events(turn: Turn) -> Iterator[StreamEvent]:
    """Yield a reply as a stream."""
    message = whole(turn)
    yield _event("message_start", message=_message(turn, [], stop_reason=None, output=1))
    yield _event("ping")
    for index, block in enumerate(message["content"]):
        start: dict[str, Any]
        if block["type"] == "thinking":
            start = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": part} for part in chunks(block["thinking"], turn.step)]
            tail = [{"type": "signature_delta", "signature": block["signature"]}]
        elif block["type"] == "text":
            start = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": part} for part in chunks(block["text"], turn.step)]
            tail = []
        else:
            start = {**block, "input": {}}
            parts = chunks(json.dumps(block["input"]), turn.step)
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
            tail = []
        yield _event("content_block_start", index=index, content_block=start)
        for delta in deltas:
            size = len(next(value for name, value in delta.items() if name != "type"))
            yield _event("content_block_delta", index=index, delta=delta)._replace(chars=size)
        for delta in tail:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield _event("message_delta", delta=stop, usage=message["usage"])
    yield _event("message_stop")


def error_body(fault: ScriptFault) -> dict[str, Any]:
    """Return the body of an HTTP error."""
    kind = ERROR_TYPES.get(fault.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": fault.message or kind.replace("_", " ")}}


def error_event(fault: ScriptFault, turn: Turn) -> StreamEvent:
    """Return an error inside a stream."""
    return _event("error", error=error_body(fault)["error"])


def _message(turn: Turn, content: list[dict[str, Any]], *, stop_reason: str | None, output: int) -> dict[str, Any]:
    tokens = turn.step.tokens
    return {
        "id": f"msg_{turn.id}",
        "type": "message",
        "role": "assistant",
        "model": turn.model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": {
            "input_tokens": tokens.input,
            "cache_creation_input_tokens": tokens.cache_write,
            "cache_read_input_tokens": tokens.cache_read,
            "output_tokens": output,
        },
    }


def _stop_reason(step: ScriptStep) -> str:
    return step.stop_reason or ("tool_use" if step.calls else "end_turn")


def _signature(turn: Turn) -> str:
    return f"c3R1Yi{turn.id}"


def _event(name: str, **data: Any) -> StreamEvent:
    return StreamEvent(name, {"type": name, **data})
