"""Whatever comes out of the program's pipes, nothing is raised and every fact can be stored."""

import json
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maos.agents.codex.dialect import Codex
from maos.model.events.facts import Fact
from maos_testing.manual_clock import ManualClock
from tests.agents.codex.test_recorded import RECORDED
from tests.agents.driving import an_order
from tests.events import plain

LINES = [line for path in sorted(RECORDED.glob("*.jsonl")) for line in path.read_bytes().splitlines()]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
any_state = st.dictionaries(st.sampled_from(["since_us", "before", "open", "troubled", "x"]), json_values)


def hear(folder: Path, *lines: bytes, state: Any = None, stderr: bool = False) -> None:
    """Hear lines twice, from the same state; the facts are the same, and can be stored."""
    codex, order = Codex(ManualClock()), an_order(folder)
    first, second = codex.converse(order, state), codex.converse(order, state)
    for line in lines:
        heard = first.hear(line, stderr=stderr)
        assert heard == second.hear(line, stderr=stderr)
        for fact in plain(heard.facts):
            assert isinstance(fact["kind"], str)
            msgspec.json.decode(msgspec.json.encode(fact), type=Fact)
    msgspec.json.encode(first.state())


quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@quick
@given(line=st.binary(max_size=200), stderr=st.booleans())
def test_any_bytes(tmp_path: Path, line: bytes, stderr: bool) -> None:
    hear(tmp_path, line, stderr=stderr)


@quick
@given(line=st.sampled_from(LINES), data=st.data())
def test_lines_that_were_cut(tmp_path: Path, line: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(line)))
    hear(tmp_path, line[:cut], line[cut:], line)


@quick
@given(line=st.sampled_from(LINES), data=st.data(), value=json_values, state=any_state)
def test_wrong_types_in_every_field(tmp_path: Path, line: bytes, data: st.DataObject, value: Any, state: Any) -> None:
    event = json.loads(line)
    place = event
    while True:
        key = data.draw(st.sampled_from(sorted(place)))
        if isinstance(place[key], dict) and place[key] and data.draw(st.booleans()):
            place = place[key]
            continue
        place[key] = value
        break
    hear(tmp_path, json.dumps(event).encode(), state=state)


def test_deep_and_huge_things(tmp_path: Path) -> None:
    deep = b'{"type":"item.started","item":{"id":"i","type":"mcp_tool_call","arguments":' + b"[" * 900 + b"]" * 900
    huge = b"9" * 5000
    hear(
        tmp_path,
        b"[" * 200_000,
        b'{"a":' * 100_000,
        deep + b"}}",
        b'{"type":"turn.completed","usage":{"input_tokens":' + huge + b',"output_tokens":-1}}',
        b'{"type":"turn.completed","usage":{"input_tokens":1e400}}',
        b'{"type":"item.completed","item":{"id":"i","type":"agent_message","text":"\\ud800"}}',
        b'{"type":"error","message":"Reconnecting... ' + huge + b'/5"}',
        b'{"type":"error","message":"try again at Feb 31st, 9999 1:00 PM"}',
    )
