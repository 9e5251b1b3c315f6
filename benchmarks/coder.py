"""A stand-in for Claude Code that works all the time: streamed words, uses of tools, their results, and a transcript.

`install` puts it into a folder for the PATH, with its lines made beforehand, so that running it costs next to nothing.
A step (some words, one tool, its result) has about forty lines, most of them pieces of a few words.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.workload import Writer

STEPS = 50
PROGRAM = """#!{python} -IS
import os, sys, time
if "--version" in sys.argv:
    print("2.9.0 (stand-in)")
    sys.exit()
session = next(each.partition("=")[2] for each in sys.argv if each.startswith(("--session-id=", "--resume=")))
folder = os.environ["CLAUDE_CONFIG_DIR"] + "/projects/-work"
os.makedirs(folder, exist_ok=True)
lines = open({lines!r}, "rb").read().replace(b"SESSION", session.encode()).splitlines(True)
begun, number = time.monotonic(), 0
with open(f"{{folder}}/{{session}}.jsonl", "ab", 0) as transcript:
    while True:
        for line in lines:
            if line.startswith(b"T"):
                transcript.write(line[1:])
                continue
            time.sleep(max(0, begun + number / {rate} - time.monotonic()))
            os.write(1, line)
            number += 1
"""


def install(folder: Path, rate: float) -> None:
    """Make `claude` in a folder; it prints `rate` lines a second."""
    folder.mkdir()
    lines = folder / "lines"
    lines.write_text("".join(lines_of(STEPS)))
    program = folder / "claude"
    program.write_text(PROGRAM.format(python=sys.executable, lines=str(lines), rate=rate))
    program.chmod(0o755)


def lines_of(steps: int) -> Iterator[str]:
    """What it prints, and, behind a T, what it writes into its transcript."""
    author = Writer("coder")
    yield _line({"type": "system", "subtype": "init", "session_id": "SESSION", "model": "m", "tools": ["Bash"]})
    for number in range(steps):
        yield from _step(author, f"msg_{number}", f"toolu_{number}")


def _step(author: Writer, id: str, tool: str) -> Iterator[str]:
    words, given = author.text(700), author.tool()["input"]
    usage = {"input_tokens": 12, "cache_read_input_tokens": 41_000, "output_tokens": 180}
    head = {"id": id, "role": "assistant", "model": "m", "usage": usage}
    use = {"type": "tool_use", "id": tool, "name": "Read", "input": given}
    result = {"type": "tool_result", "tool_use_id": tool, "content": author.text(1_500)}
    yield _event({"type": "message_start", "message": {**head, "content": []}})
    yield _event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    for at in range(0, len(words), 30):
        yield _event({"type": "content_block_delta", "delta": {"type": "text_delta", "text": words[at : at + 30]}})
    yield from _said("assistant", {**head, "content": [{"type": "text", "text": words}]})
    yield _event({"type": "content_block_stop", "index": 0})
    yield _event({"type": "content_block_start", "index": 1, "content_block": {**use, "input": {}}})
    text = json.dumps(given)
    for at in range(0, len(text), 20):
        part = {"type": "input_json_delta", "partial_json": text[at : at + 20]}
        yield _event({"type": "content_block_delta", "delta": part})
    yield from _said("assistant", {**head, "content": [use]})
    yield _event({"type": "content_block_stop", "index": 1})
    yield _event({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": usage})
    yield _event({"type": "message_stop"})
    yield from _said("user", {"role": "user", "content": [result]})


def _said(kind: str, message: dict[str, Any]) -> Iterator[str]:
    said = {"type": kind, "message": message, "session_id": "SESSION", "uuid": "00000000-0000-4000-8000-000000000000"}
    yield _line(said)
    yield "T" + _line({**said, "cwd": "/work", "version": "2.9.0", "timestamp": "2026-11-16T00:00:00.000Z"})


def _event(event: dict[str, Any]) -> str:
    return _line({"type": "stream_event", "event": event, "session_id": "SESSION", "parent_tool_use_id": None})


def _line(message: dict[str, Any]) -> str:
    return json.dumps(message) + "\n"
