"""The Responses API: parses its requests, and encodes steps as replies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from maos_testing.model_stub.conversation import ModelMessage, call_id, example_of, text_of
from maos_testing.model_stub.reply import StreamEvent, Turn, chunks
from maos_testing.model_stub.script import ScriptFault, ScriptStep, ToolCall

ERROR_CODES = {
    400: "invalid_request_error", 401: "invalid_api_key", 402: "insufficient_quota", 404: "model_not_found",
    429: "rate_limit_exceeded", 503: "server_is_overloaded",
}  # fmt: skip

OUTCOMES = ("function_call_output", "custom_tool_call_output", "local_shell_call_output", "mcp_tool_call_output")
CALLS = ("function_call", "custom_tool_call", "local_shell_call")


def parse_conversation(body: Mapping[str, Any]) -> list[ModelMessage]:
    """Return the conversation in a request."""
    given = body.get("input", ())
    if isinstance(given, str):
        return [ModelMessage("user", given)]
    found = []
    for item in given:
        kind = item.get("type", "message")
        if kind in CALLS:
            found.append(ModelMessage("model", calls=frozenset({str(item.get("call_id"))})))
        elif kind in OUTCOMES:
            found.append(ModelMessage("tool"))
        elif kind == "message" and item.get("role") == "assistant":
            found.append(ModelMessage("model", text_of(item.get("content"))))
        elif kind == "message" and item.get("role") == "user":
            found.append(ModelMessage("user", text_of(item.get("content"))))
    return found


def conversation(body: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    """Return a key that all requests of one conversation share, and no others."""
    for name in ("session_id", "session-id", "conversation_id"):
        if headers.get(name):
            return headers[name]
    return str(body.get("prompt_cache_key") or "")


def side_reply(body: Mapping[str, Any]) -> ScriptStep | None:
    """Return the reply to a request outside the conversation, which must not use a step; None for an ordinary one."""
    text = body.get("text")
    shape = text.get("format") if isinstance(text, dict) else None
    if isinstance(shape, dict) and shape.get("type") == "json_schema":
        return ScriptStep(text=json.dumps(example_of(shape.get("schema"))))
    return None


def whole(turn: Turn) -> dict[str, Any]:
    """Return a reply in one piece."""
    return _response(turn, "completed", _items(turn), with_usage=True)


def events(turn: Turn) -> Iterator[StreamEvent]:
    """Yield a reply as a stream; every event has its number."""
    for number, event in enumerate(_events(turn)):
        event.data["sequence_number"] = number
        yield event


def _events(turn: Turn) -> Iterator[StreamEvent]:
    items = _items(turn)
    yield _event("response.created", response=_response(turn, "in_progress", []))
    yield _event("response.in_progress", response=_response(turn, "in_progress", []))
    for index, item in enumerate(items):
        place = {"item_id": item["id"], "output_index": index}
        yield _event("response.output_item.added", output_index=index, item=_begun(item))
        if item["type"] == "reasoning":
            yield from _reasoning_events(turn, item, place)
        elif item["type"] == "message":
            yield from _message_events(turn, item, place)
        else:
            yield from _call_events(turn, item, place)
        yield _event("response.output_item.done", output_index=index, item=item)
    yield _event("response.completed", response=_response(turn, "completed", items, with_usage=True))


def error_body(fault: ScriptFault) -> dict[str, Any]:
    """Return the body of an HTTP error."""
    code = ERROR_CODES.get(fault.status, "server_error")
    return {
        "error": {"message": fault.message or code.replace("_", " "), "type": code, "param": None, "code": code},
    }


def error_event(fault: ScriptFault, turn: Turn) -> StreamEvent:
    """Return an error inside a stream."""
    error = error_body(fault)["error"]
    response = _response(turn, "failed", []) | {"error": {"code": error["code"], "message": error["message"]}}
    return _event("response.failed", response=response)


def _reasoning_events(turn: Turn, item: dict[str, Any], place: dict[str, Any]) -> Iterator[StreamEvent]:
    place = {**place, "summary_index": 0}
    yield _event("response.reasoning_summary_part.added", **place, part={"type": "summary_text", "text": ""})
    for part in chunks(turn.step.thought, turn.step):
        yield _event("response.reasoning_summary_text.delta", **place, delta=part)._replace(chars=len(part))
    yield _event("response.reasoning_summary_text.done", **place, text=turn.step.thought)
    yield _event("response.reasoning_summary_part.done", **place, part=item["summary"][0])


def _message_events(turn: Turn, item: dict[str, Any], place: dict[str, Any]) -> Iterator[StreamEvent]:
    place = {**place, "content_index": 0}
    empty = {**item["content"][0], "text": ""}
    yield _event("response.content_part.added", **place, part=empty)
    for part in chunks(turn.step.text, turn.step):
        yield _event("response.output_text.delta", **place, delta=part, logprobs=[])._replace(chars=len(part))
    yield _event("response.output_text.done", **place, text=turn.step.text, logprobs=[])
    yield _event("response.content_part.done", **place, part=item["content"][0])


def _call_events(turn: Turn, item: dict[str, Any], place: dict[str, Any]) -> Iterator[StreamEvent]:
    free = item["type"] == "custom_tool_call"
    name = "response.custom_tool_call_input" if free else "response.function_call_arguments"
    key = "input" if free else "arguments"
    for part in chunks(item[key], turn.step):
        yield _event(f"{name}.delta", **place, delta=part)._replace(chars=len(part))
    yield _event(f"{name}.done", **place, **{key: item[key]})


def _items(turn: Turn) -> list[dict[str, Any]]:
    step = turn.step
    items: list[dict[str, Any]] = []
    if step.thought:
        summary = [{"type": "summary_text", "text": step.thought}]
        items.append({"type": "reasoning", "id": f"rs_{turn.id}", "summary": summary, "encrypted_content": None})
    if step.text:
        content = [{"type": "output_text", "text": step.text, "annotations": [], "logprobs": []}]
        item = {"type": "message", "id": f"msg_{turn.id}", "role": "assistant"}
        items.append({**item, "status": "completed", "content": content})
    items.extend(_call(turn, index, call) for index, call in enumerate(step.calls))
    return items


def _call(turn: Turn, index: int, call: ToolCall) -> dict[str, Any]:
    free = isinstance(call.input, str)
    item = {
        "type": "custom_tool_call" if free else "function_call",
        "id": call_id("fc_", turn.id, index),
        "call_id": call_id("call_", turn.id, index),
        "name": call.name,
        "status": "completed",
    }
    if call.namespace:
        item["namespace"] = call.namespace
    return {**item, "input": call.input} if free else {**item, "arguments": json.dumps(call.input)}


def _begun(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item as it is announced, without its content."""
    empty = {"content": [], "summary": [], "arguments": "", "input": "", "status": "in_progress"}
    return {name: empty.get(name, value) for name, value in item.items()}


def _response(turn: Turn, status: str, output: list[dict[str, Any]], *, with_usage: bool = False) -> dict[str, Any]:
    tokens = turn.step.tokens
    read = tokens.input + tokens.cache_read
    usage = {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": tokens.cache_read},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + tokens.output,
    }
    return {
        "id": f"resp_{turn.id}",
        "object": "response",
        "created_at": 1_800_000_000,
        "status": status,
        "model": turn.model,
        "output": output,
        "error": None,
        "incomplete_details": None,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage if with_usage else None,
    }


def _event(name: str, **data: Any) -> StreamEvent:
    return StreamEvent(name, {"type": name, **data})
