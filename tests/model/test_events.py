"""Typed events: one class for each, which is all that says what is stored."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from maos.errors import Corrupt, InvalidInput
from maos.journal.codec import Codec, Event, EventType, loose_fields
from maos.journal.dictionary import Dictionaries
from maos.model.events import EVENTS, facts
from maos.model.events.attempt import AttemptOutput
from maos.model.events.core import EventBase, event
from maos.model.events.run import RunHibernated, RunMoved, TaskFinished, TaskStarted
from maos.store.contract import Recorded

CODEC = Codec([EventType.of(each) for each in EVENTS.values()], Dictionaries())
STARTED = TaskStarted(task="a", number=1, at_us=5)


def recorded(type_: str, body: bytes, format: int = 1) -> Recorded:
    return Recorded(1, "run/r", 3, 1, type_, format, 1, 0, body, b"")


def test_an_event_is_stored_as_its_fields_without_defaults() -> None:
    raw = CODEC.encode(STARTED)
    assert (raw.type, raw.format, msgspec.json.decode(raw.body)) == (
        "task_started", 1, {"task": "a", "number": 1, "at_us": 5},
    )  # fmt: skip
    assert CODEC.decode(recorded(*raw[::2]))[0] == STARTED
    assert STARTED.data == {"task": "a", "number": 1, "at_us": 5}
    moved = RunMoved(folder="/b", from_="/a", at_us=1)
    assert moved.data == {"folder": "/b", "from": "/a", "at_us": 1}


def test_plain_data_of_a_typed_event_is_the_same_event() -> None:
    assert CODEC.encode(Event("task_started", {"at_us": 5, "task": "a", "number": 1})).type == "task_started"
    with pytest.raises(InvalidInput, match=r"task_started: Expected `int`, got `str` - at `\$.number`"):
        CODEC.encode(Event("task_started", {"at_us": 5, "task": "a", "number": "1"}))


def test_fields_that_nobody_knows_are_ignored_and_stay_readable() -> None:
    stored = recorded("task_started", b'{"at_us":5,"task":"a","number":1,"colour":"blue"}')
    assert CODEC.decode(stored)[0] == STARTED
    assert CODEC.data(stored)["colour"] == "blue"


@pytest.mark.parametrize(
    "body", [b'{"at_us":5,"task":"a","number":"1"}', b'{"at_us":5,"task":"a"}', b"[]", b"{", b'{"at_us":5,"task":null}']
)
def test_what_is_not_of_its_type_is_corrupt_by_name(body: bytes) -> None:
    """I11."""
    with pytest.raises(Corrupt, match="run/r@3 cannot be decoded") as caught:
        CODEC.decode(recorded("task_started", body))
    assert (caught.value.stream, caught.value.version) == ("run/r", 3)


@pytest.mark.parametrize(
    "bad",
    [
        TaskStarted(task="a", number="1", at_us=5),  # type: ignore[arg-type]
        TaskStarted(task=None, number=1, at_us=5),  # type: ignore[arg-type]
        TaskFinished(task="a", cost_usd=float("nan"), at_us=5),
        TaskFinished(task="a", cost_usd=float("inf"), at_us=5),
        TaskFinished(task="\ud800", at_us=5),
        AttemptOutput(offset=1, at_us=1, facts=[facts.ToolUse("t", "x", {"a": [float("nan")]})]),
        AttemptOutput(offset=1, at_us=1, facts=[facts.ToolUse("t", "x", {1: 2})]),
        AttemptOutput(offset=1, at_us=1, facts=[facts.ToolUse("t", "x", {"a": {2}})]),
        AttemptOutput(offset=1, at_us=1, facts=[facts.Line(7)]),  # type: ignore[arg-type]
        AttemptOutput(offset=1, at_us=1, facts=[], conversation={"a": object()}),
    ],
)
def test_what_could_not_be_read_again_is_not_written(bad: EventBase) -> None:
    """A6: by whatever way a wrong value comes into an event."""
    with pytest.raises(InvalidInput):
        CODEC.encode(bad)


def test_what_is_nested_too_deeply_is_not_written() -> None:
    deep: Any = 1
    for _ in range(101):
        deep = [deep]
    with pytest.raises(InvalidInput, match="nested"):
        CODEC.encode(AttemptOutput(offset=1, at_us=1, facts=[facts.ToolUse("t", "x", deep)]))


def test_an_older_format_is_brought_up_to_date() -> None:
    @event("test_renamed")
    class Renamed(EventBase, frozen=True, kw_only=True):
        text: str

    del EVENTS["test_renamed"]
    Renamed.format, Renamed.upcasts = 2, {1: lambda data: {"text": data["body"]}}
    codec = Codec([EventType.of(Renamed)], Dictionaries())
    old = recorded("test_renamed", b'{"body":"hello"}')
    assert codec.decode(old)[0] == Renamed(text="hello")
    assert codec.data(old) == {"text": "hello"}
    with pytest.raises(Corrupt, match="cannot be decoded"):
        codec.decode(recorded("test_renamed", b'{"body":7}'))


def test_a_type_is_defined_once() -> None:
    with pytest.raises(ValueError, match="task_started is defined twice"):
        event("task_started")(TaskStarted)


@pytest.mark.parametrize("kind", EVENTS.values(), ids=list(EVENTS))
def test_every_event_says_what_it_is(kind: type[EventBase]) -> None:
    """Its docstring is the reference, and what can hold anything is looked at before it is written."""
    assert kind.__doc__
    assert kind.__doc__.splitlines()[0].endswith(".")
    assert kind.__struct_config__.frozen
    assert kind.__struct_config__.omit_defaults
    assert EventType.of(kind).loose == loose_fields(kind)


def test_only_fields_that_can_hold_anything_are_walked() -> None:
    assert loose_fields(TaskStarted) == loose_fields(RunHibernated) == ()
    assert loose_fields(AttemptOutput) == ("facts", "conversation")
    assert loose_fields(facts.ToolUse) == ("input",)


USES = """
from maos.model.events.run import TaskStarted
started = TaskStarted(task="a", number=1, at_us=1)
print(started.number)
print(started.nubmer)
"""


def test_a_field_that_is_misspelt_is_found_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "use.py").write_text(USES)
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(tmp_path / "use.py")]
    cache = ["--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run([*command, *cache], cwd=root, capture_output=True, text=True, env={"MYPYPATH": "src"})
    assert done.returncode == 1, done.stdout + done.stderr
    assert 'use.py:5: error: "TaskStarted" has no attribute "nubmer"' in done.stdout
    assert "Found 1 error in 1 file" in done.stdout, "the field that is spelt right is known"
