"""No event keeps a secret, whatever its type: every registered type is tried with a secret in each of its texts."""

from __future__ import annotations

import typing
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_type_hints

import msgspec
import pytest

import maos
from maos.errors import InvalidInput
from maos.journal.codec import EventType
from maos.model.events.core import EVENTS, EventBase, exact_fields
from maos.model.events.parts import Local
from maos.model.events.run import RunCreated
from tests.holder.test_redact import SHAPES

CANARY = SHAPES["github-token"]
CLEAN_AT_SOURCE = {"attempt_output", "attempt_transcript"}
"""The holder and `maos.engine.transcripts` remove secrets from these: tests/holder and tests/engine try that."""


def filled(hint: Any, text: str) -> Any:
    """A value of a type, with a text wherever it can have one."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    local = [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Local)]
    if local and local[0] not in (Local.SERVERS, Local.VARIABLES):
        text = "a place"  # folders and processes stay as they are
    if origin is typing.Annotated or origin is typing.NotRequired:
        return filled(arguments[0], text)
    if origin in (typing.Union, UnionType):
        return filled(next(each for each in arguments if each is not NoneType), text)
    if hint is str or hint is Any:
        return text
    if origin is list:
        return [filled(arguments[0], text)]
    if origin is tuple:
        return [filled(each, text) for each in arguments]
    if origin is dict:
        return {text: filled(arguments[1], text)}
    if typing.is_typeddict(hint):
        return {name: filled(each, text) for name, each in get_type_hints(hint, include_extras=True).items()}
    if hint in (int, float, bool):
        return hint(1)
    if isinstance(hint, type) and issubclass(hint, tuple):  # a named one
        return [filled(each, text) for each in get_type_hints(hint, include_extras=True).values()]
    if isinstance(hint, type) and issubclass(hint, str):  # an enumeration
        return next(iter(hint)).value  # type: ignore[call-overload]
    if hint is NoneType:
        return None
    assert issubclass(hint, msgspec.Struct), hint
    hints = get_type_hints(hint, include_extras=True)
    data = {each.encode_name: filled(hints[each.name], text) for each in msgspec.structs.fields(hint)}
    return list(data.values()) if hint.__struct_config__.array_like else data


def event_with(kind: type[EventBase], text: str, *, without: tuple[str, ...] = ()) -> EventBase:
    hints = get_type_hints(kind, include_extras=True)
    fields = msgspec.structs.fields(kind)
    data = {each.encode_name: filled(hints[each.name], text) for each in fields if each.name not in without}
    data |= {name: [] for name in without}
    return msgspec.convert(data, kind)


def stored(path: Path) -> bytes:
    return b"".join(each.read_bytes() for each in path.parent.glob(f"{path.name}*") if each.is_file())


@pytest.mark.parametrize("name", sorted(set(EVENTS) - CLEAN_AT_SOURCE))
async def test_no_type_of_event_keeps_a_secret(name: str, tmp_path: Path) -> None:
    """A type that is added is tried too. Its texts are redacted, and a field that must be exact refuses a secret."""
    exact = exact_fields(name)
    event = event_with(EVENTS[name], f"it is {CANARY} here", without=exact)
    async with maos.open(tmp_path / "maos.db") as m:
        await m.journal.append("run/1", event)
        if exact:
            with pytest.raises(InvalidInput, match="contains a secret"):
                await m.journal.append("run/1", event_with(EVENTS[name], f"it is {CANARY} here"))
        (record,) = [each async for each in m.journal.read("run/1")]
        body = msgspec.json.encode(record.data).decode()
        assert CANARY not in body
        has_text = CANARY.encode() in msgspec.json.encode(event)
        assert body.count("it is [redacted:github-token] here") == body.count("it is") == has_text * body.count("it is")
        assert not has_text or "it is" in body
    assert CANARY.encode() not in stored(tmp_path / "maos.db")


async def test_a_folder_whose_name_looks_like_a_key_stays_what_it_is(tmp_path: Path) -> None:
    folder = f"/home/{CANARY}/project"
    options = {"workspace": {"tree": f"{folder}/w"}, "model": CANARY}
    async with maos.open(tmp_path / "maos.db") as m:
        await m.journal.append("run/1", RunCreated(request=CANARY, folder=folder, options=options, owner={}, at_us=1))
        (record,) = [each async for each in m.journal.read("run/1")]
    assert (record.data["folder"], record.data["options"]["workspace"]) == (folder, options["workspace"])
    assert (record.data["request"], record.data["options"]["model"]) == ("[redacted:github-token]",) * 2


def test_only_what_is_redacted_at_its_source_is_passed_over() -> None:
    assert {name for name, kind in EVENTS.items() if kind.is_clean} == CLEAN_AT_SOURCE


@pytest.mark.parametrize("shape", SHAPES)
async def test_no_shape_reaches_the_file(shape: str, tmp_path: Path) -> None:
    """Also in events of a program's own types, as a value, inside a text, as a key, and coloured."""
    secret = SHAPES[shape]
    middle = len(secret) // 2
    data = {"a": secret, "b": [f"say {secret}, please"], "c": f"\x1b[31m{secret[:middle]}\x1b[0m{secret[middle:]}"}
    async with maos.open(tmp_path / "maos.db", types=[EventType("note")]) as m:
        await m.journal.append("run/1", maos.Event("note", data))
        await m.journal.append_all([maos.Append("run/2", [maos.Event("note", {secret: 1})])])
        (record,) = [each async for each in m.journal.read("run/1")]
        assert "[redacted:" in record.data["a"]
    found = stored(tmp_path / "maos.db")
    assert secret.encode() not in found
    assert secret[middle:].encode() not in found


async def test_a_state_is_redacted_before_its_checksum(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db") as m:
        await m.state.create("reviewer", {"note": CANARY})
        await m.state.update("reviewer", {"messages": maos.Extend([{"text": f"use {CANARY}"}]), "api_key": "a1" * 12})
        change = await m.state.composed("reviewer", {"more": CANARY})
        assert change is not None
        await m.journal.append_all([change])
        await m.state.snapshot("reviewer")
        state = (await m.state.get("reviewer")).raw()
        assert state["note"] == state["more"] == "[redacted:github-token]"
        assert state["api_key"] == "[redacted:key]"
        assert (await m.verify()).ok
    async with maos.open(tmp_path / "maos.db") as m:
        assert (await m.state.get("reviewer")).raw() == state
    assert CANARY.encode() not in stored(tmp_path / "maos.db")


async def test_a_name_of_a_stream_cannot_be_a_secret(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db", types=[EventType("note")]) as m:
        with pytest.raises(InvalidInput, match="name of a stream contains a secret") as refused:
            await m.journal.append(f"run/{CANARY}", maos.Event("note", {}))
    assert CANARY not in str(refused.value)
