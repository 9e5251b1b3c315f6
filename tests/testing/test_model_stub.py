"""The model stub: its APIs, whole and streamed, its faults, and the step that the conversation itself decides."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from maos_testing.model_stub import END_TEXT, ModelStub, ScriptFault, ScriptStep, TokenCount, ToolCall, read_scripts
from maos_testing.model_stub.conversation import ModelMessage, example_of, place

LS = ToolCall(name="Bash", input={"command": "ls"})


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The data of server-sent events."""
        return [json.loads(line[6:]) for line in self.body.split(b"\n") if line.startswith(b"data: ")]


async def ask(stub_url: str, path: str, body: Any, *, method: str = "POST", **headers: str) -> Answer:
    """One request on a connection of its own; a connection that is cut ends the body early."""
    host, _, port = stub_url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "host: stub", f"content-length: {len(data)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + data)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        found = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        if "content-length" in found:
            content = await reader.readexactly(int(found["content-length"]))
        else:
            content = await _chunks(reader)
        return Answer(int(head[0].split()[1]), found, content)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    content = b""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while size := int(await reader.readuntil(b"\r\n"), 16):
            content += (await reader.readexactly(size + 2))[:-2]
        content += b'data: {"whole": true}\n'
    return content


def messages(*said: tuple[str, Any], **more: Any) -> dict[str, Any]:
    """A request to the Messages API."""
    return {"model": "m", "max_tokens": 9, "messages": [{"role": who, "content": what} for who, what in said], **more}


@contextlib.asynccontextmanager
async def stub_of(scripts: Any) -> AsyncIterator[str]:
    async with ModelStub(scripts) as stub:
        yield stub.url


async def test_a_whole_message_has_text_calls_and_usage() -> None:
    step = ScriptStep(
        thought="hm", text="I look.", calls=[LS], tokens=TokenCount(input=5, output=6, cache_read=7, cache_write=8)
    )
    async with stub_of([step]) as url:
        answer = (await ask(url, "/v1/messages?beta=true", messages(("user", "go")))).json
    thinking, text, call = answer["content"]
    assert (thinking["thinking"], text["text"], call["name"], call["input"]) == ("hm", "I look.", "Bash", LS.input)
    assert answer["stop_reason"] == "tool_use"
    assert answer["usage"] == {
        "input_tokens": 5,
        "output_tokens": 6,
        "cache_read_input_tokens": 7,
        "cache_creation_input_tokens": 8,
    }


async def test_a_streamed_message_adds_up_to_the_whole_one() -> None:
    step = ScriptStep(
        thought="thinking about it", text="A text in several parts, of course.", calls=[LS], chunk_chars=5
    )
    async with stub_of([step]) as url:
        events = (await ask(url, "/v1/messages", messages(("user", "go"), stream=True))).events
    kinds = [event.get("type") for event in events]
    assert kinds[0] == "message_start"
    assert events[0]["message"]["usage"]["output_tokens"] == 1
    assert kinds[-2] == "message_stop"
    deltas = [event["delta"] for event in events if event.get("type") == "content_block_delta"]
    assert "".join(delta.get("text", "") for delta in deltas) == step.text
    assert "".join(delta.get("thinking", "") for delta in deltas) == step.thought
    assert json.loads("".join(delta.get("partial_json", "") for delta in deltas)) == LS.input
    assert len(deltas) > 10


async def test_a_streamed_response_adds_up_to_the_whole_one() -> None:
    free = ToolCall(name="patch", input="free", namespace="n")
    step = ScriptStep(thought="hm", text="A text in parts.", chunk_chars=4, calls=[LS, free])
    async with stub_of([step]) as url:
        whole = (await ask(url, "/v1/responses", {"model": "m", "input": "go"})).json
        events = (await ask(url, "/openai/responses", {"model": "m", "input": "go", "stream": True})).events[:-1]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] == "response.completed"
    assert [item["type"] for item in whole["output"]] == ["reasoning", "message", "function_call", "custom_tool_call"]
    assert json.loads(whole["output"][2]["arguments"]) == LS.input
    assert (whole["output"][3]["input"], whole["output"][3]["namespace"]) == ("free", "n")
    assert whole["usage"]["total_tokens"] == 110
    text = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    assert text == step.text
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in done] == [item["type"] for item in whole["output"]]


async def test_the_step_is_read_from_the_conversation_so_another_stub_goes_on() -> None:
    scripts = {"a": [ScriptStep(text="one", calls=[LS]), ScriptStep(text="two")], "b": [ScriptStep(text="other")]}
    said: list[tuple[str, Any]] = [("user", "SCRIPT=a please")]
    async with stub_of(scripts) as url:
        first = (await ask(url, "/v1/messages", messages(*said))).json
    call = next(block for block in first["content"] if block["type"] == "tool_use")
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "SCRIPT=b is only a file's content"}
    said += [("assistant", first["content"]), ("user", [result])]
    async with stub_of(scripts) as url:
        second = (await ask(url, "/v1/messages", messages(*said))).json
        assert second["content"][0]["text"] == "two"
        said += [("assistant", second["content"]), ("user", "and now?")]
        assert (await ask(url, "/v1/messages", messages(*said))).json["content"][0]["text"] == END_TEXT
        said += [("user", "then SCRIPT=b.")]
        assert (await ask(url, "/v1/messages", messages(*said))).json["content"][0]["text"] == "other"


def test_a_reply_that_a_resumed_client_puts_in_by_itself_is_no_step() -> None:
    began = [ModelMessage("user", "SCRIPT=x"), ModelMessage("model", "one"), ModelMessage("tool")]
    resumed = [*began, ModelMessage("model", "No response requested."), ModelMessage("user", "go on")]
    assert place(resumed) == place(began) == ("x", 1)


def test_calls_of_one_turn_are_one_step_even_with_results_between_them() -> None:
    first, second = frozenset({"call_abcx00"}), frozenset({"call_abcx01"})
    between = [
        ModelMessage("user", "go"),
        ModelMessage("model", calls=first),
        ModelMessage("tool"),
        ModelMessage("model", calls=second),
        ModelMessage("tool"),
    ]
    assert place(between).step == 1
    assert place([*between, ModelMessage("model", calls=frozenset({"call_defx00"}))]).step == 2


async def test_requests_beside_the_conversation_use_up_no_step() -> None:
    title = {"type": "json_schema", "schema": {"type": "object", "properties": {"title": {"type": "string"}}}}
    async with ModelStub([ScriptStep(text="the step")]) as stub:
        given = messages(("user", "name this"), output_config={"format": title})
        assert json.loads((await ask(stub.url, "/v1/messages", given)).json["content"][0]["text"]) == {"title": "stub"}
        await ask(stub.url, "/v1/messages", {**messages(("user", "quota")), "max_tokens": 1})
        asked = {"input": "name this", "text": {"format": title}}
        assert (await ask(stub.url, "/v1/responses", asked)).json["output"][0]["content"][0][
            "text"
        ] == '{"title": "stub"}'
        assert (await ask(stub.url, "/v1/messages/count_tokens", messages(("user", "x")))).json["input_tokens"] > 0
        assert (await ask(stub.url, "/v1/models", b"", method="GET")).status == 200
        assert (await ask(stub.url, "/", b"", method="HEAD")).status == 200
        assert [request.script for request in stub.requests] == ["", "", ""]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
async def test_errors_come_as_often_as_they_should_and_to_each_conversation(path: str) -> None:
    faults = [
        ScriptFault(status=429, times=2, retry_after_s=0.5, headers={"x-reset": "7"}),
        ScriptFault(status=529, message="busy"),
    ]
    async with stub_of([ScriptStep(text="ok", faults=faults)]) as url:
        for session in ("one", "two"):
            body = {"model": "m", "input": session, "messages": [{"role": "user", "content": session}]}
            answers = [await ask(url, path, body) for _ in range(4)]
            assert [answer.status for answer in answers] == [429, 429, 529, 200]
            assert answers[0].headers["retry-after"] == "0.5"
            assert answers[0].headers["x-reset"] == "7"
            assert answers[2].json["error"]["message"] == "busy"


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
async def test_a_drop_cuts_the_reply_in_the_middle(path: str) -> None:
    body = {"model": "m", "input": "x", "messages": [{"role": "user", "content": "x"}], "stream": True}
    async with stub_of(
        [ScriptStep(text="a" * 100, chunk_chars=10, faults=[ScriptFault(kind="drop", after_chars=30)])]
    ) as url:
        cut, whole = await ask(url, path, body), await ask(url, path, body)
    assert b"a" * 10 in cut.body
    assert {"whole": True} not in cut.events
    assert {"whole": True} in whole.events
    assert cut.body.count(b"aaaaaaaaaa") == 3


@pytest.mark.parametrize(("path", "kind"), [("/v1/messages", "error"), ("/v1/responses", "response.failed")])
async def test_an_error_event_ends_a_stream(path: str, kind: str) -> None:
    body = {"model": "m", "input": "x", "messages": [{"role": "user", "content": "x"}], "stream": True}
    async with stub_of([ScriptStep(text="abc", faults=[ScriptFault(kind="error", status=503)])]) as url:
        events = (await ask(url, path, body)).events
        assert events[-2]["type"] == kind
        assert (await ask(url, path, {**body, "stream": False})).status == 200


async def test_a_stub_can_be_closed_while_a_client_hangs() -> None:
    async with ModelStub([ScriptStep(text="never", faults=[ScriptFault(kind="hang")])]) as stub:
        waiting = asyncio.create_task(ask(stub.url, "/v1/messages", messages(("user", "x"), stream=True)))
        await stub.arrived.wait()
    assert {"whole": True} not in (await waiting).events


async def test_the_same_request_twice_is_two_turns_with_ids_of_their_own() -> None:
    async with stub_of([ScriptStep(calls=[LS, LS])]) as url:
        one, two = [(await ask(url, "/v1/messages", messages(("user", "x")))).json for _ in range(2)]
    assert len({one["id"], two["id"]}) == 2
    assert len({block["id"] for answer in (one, two) for block in answer["content"]}) == 4


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/v1/messages", messages(("user", "SCRIPT=nosuch")), "no script 'nosuch', only a"),
        ("/v1/messages", messages(("user", "nothing named")), "put SCRIPT=name"),
        ("/v1/messages", b"{", "truncated"),
        ("/v1/responses", b"[]", "object"),
        ("/v1/responses", {"input": [7]}, "int"),
        ("/v1/messages", {"messages": ["x"]}, "str"),
    ],
)
async def test_what_makes_no_sense_is_refused_with_a_reason(path: str, body: Any, words: str) -> None:
    async with stub_of({"a": [ScriptStep(text="x")]}) as url:
        answer = await ask(url, path, body)
        assert answer.status == 400
        assert words in answer.json["error"]["message"]
        assert (await ask(url, "/nowhere", b"")).status == 404
        assert (await ask(url, path, b"", method="PUT")).status == 405


@pytest.mark.parametrize("data", [b"nonsense\r\n\r\n", b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n", b"x" * 99_999])
async def test_bytes_that_are_no_request_are_refused(data: bytes) -> None:
    async with ModelStub([]) as stub:
        reader, writer = await asyncio.open_connection("127.0.0.1", stub.port)
        writer.write(data)
        assert b" 400 " in await reader.readline()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_chunked_requests_on_one_connection_are_read() -> None:
    data = json.dumps(messages(("user", "x"))).encode()
    chunked = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (data[:9], data[9:], b""))
    async with ModelStub([ScriptStep(text="hello")]) as stub:
        reader, writer = await asyncio.open_connection("127.0.0.1", stub.port)
        for _ in range(2):
            writer.write(b"POST /v1/messages HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n" + chunked)
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            assert json.loads(await reader.readexactly(size))["content"][0]["text"] == "hello"
        writer.close()
        await writer.wait_closed()


def test_scripts_are_read_from_json_and_mistakes_are_named() -> None:
    scripts = read_scripts(b'{"a": [{"text": "hi", "calls": [{"name": "Bash", "input": {"command": "ls"}}]}]}')
    assert scripts == {"a": [ScriptStep(text="hi", calls=[LS])]}
    assert list(read_scripts(b'[{"text": "hi"}]')) == ["default"]
    with pytest.raises(ValueError, match="unknown field `txt`"):
        read_scripts(b'[{"txt": "hi"}]')


def test_an_example_of_a_schema_fits_it() -> None:
    inner = {"a": {"enum": ["x", "y"]}, "b": {"type": ["integer", "null"]}, "c": {"anyOf": [{"const": 3}]}}
    schema = {"type": "object", "properties": {**inner, "d": {"type": "array"}, "e": {"type": "boolean"}}}
    assert example_of(schema) == {"a": "x", "b": 0, "c": 3, "d": [], "e": False}


async def test_it_runs_as_a_program_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('[{"text": "from another process"}]')
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "maos_testing.model_stub", "--script", str(script), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().strip()
        answer = (await ask(url, "/v1/messages", messages(("user", "x")), x_api_key="k")).json
        assert answer["content"][0]["text"] == "from another process"
        [recorded] = (await ask(url, "/stub/requests", b"", method="GET")).json
        assert (recorded["script"], recorded["step"], recorded["headers"]["x-api-key"]) == ("default", 0, "k")
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]


# --- the Gemini API ------------------------------------------------------------------------------------------------

GEMINI = "/v1beta/models/gemini-x:"


async def test_the_gemini_api_whole_and_streamed_by_its_path() -> None:
    """The conversation decides the step here too: the result of the call is the second."""
    script = [ScriptStep(text="I look.", calls=[LS], tokens=TokenCount(input=7, output=3)), ScriptStep(text="Nothing.")]
    begun: list[dict[str, Any]] = [{"role": "user", "parts": [{"text": "look"}]}]
    async with ModelStub(script) as stub:
        first = await ask(stub.url, f"{GEMINI}streamGenerateContent?alt=sse", {"contents": begun})
        *events, whole = first.events
        assert whole == {"whole": True}
        parts = [part for each in events for part in each["candidates"][0]["content"]["parts"]]
        assert b"event:" not in first.body
        assert "".join(part.get("text", "") for part in parts) == "I look."
        assert (parts[-1]["functionCall"]["name"], parts[-1]["functionCall"]["args"]) == ("Bash", {"command": "ls"})
        assert events[-1]["candidates"][0]["finishReason"] == "STOP"
        assert events[-1]["usageMetadata"]["totalTokenCount"] == 10
        result = {"functionResponse": {"name": "Bash", "response": {"output": ""}}}
        talk = [*begun, {"role": "model", "parts": parts}, {"role": "user", "parts": [result]}]
        second = await ask(stub.url, f"{GEMINI}generateContent", {"contents": talk})
        assert second.json["candidates"][0]["content"]["parts"] == [{"text": "Nothing."}]
        assert second.json["modelVersion"] == "gemini-x"


async def test_errors_and_side_requests_of_the_gemini_api() -> None:
    limited = ScriptFault(status=429, message="slow down")
    async with ModelStub([ScriptStep(text="Well.", faults=[limited])]) as stub:
        body = {"contents": [{"role": "user", "parts": [{"text": "go"}]}]}
        shape = {"type": "object", "properties": {"model": {"enum": ["flash"]}}}
        side = await ask(stub.url, f"{GEMINI}generateContent", {**body, "generationConfig": {"responseSchema": shape}})
        assert json.loads(side.json["candidates"][0]["content"]["parts"][0]["text"]) == {"model": "flash"}
        failed = await ask(stub.url, f"{GEMINI}generateContent", body)
        assert (failed.status, failed.json["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")
        assert (await ask(stub.url, f"{GEMINI}generateContent", body)).status == 200
