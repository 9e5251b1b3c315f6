"""Formats: old ones are brought up to date when read, newer and unknown ones are refused by name."""

from collections.abc import Callable
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.errors import InvalidInput, UnknownFormat
from tests.journal.places import Place


def two(data: dict[str, Any]) -> dict[str, Any]:
    """From format 1, a text, to format 2, a list of lines."""
    return {"lines": data["text"].splitlines()}


def three(data: dict[str, Any]) -> dict[str, Any]:
    """From format 2 to format 3, lines with their numbers."""
    return {"lines": [{"number": number, "text": line} for number, line in enumerate(data["lines"], 1)]}


V1 = maos.EventType("note")
V2 = maos.EventType("note", 2, upcasts={1: two})
V3 = maos.EventType("note", 3, upcasts={1: two, 2: three})


async def notes(m: Maos) -> list[dict[str, Any]]:
    return [record.data async for record in m.journal.read("run/1")]


async def test_older_formats_are_read_as_the_newest(durable: Place) -> None:
    """I16, R-1004: nothing stored is rewritten; what wrote it may be two formats back."""
    async with durable.open((V1,)) as m:
        await m.journal.append("run/1", maos.Event("note", {"text": "one\ntwo"}))
    async with durable.open((V2,)) as m:
        assert await notes(m) == [{"lines": ["one", "two"]}]
        await m.journal.append("run/1", maos.Event("note", {"lines": ["three"]}))
    async with durable.open((V3,)) as m:
        await m.journal.append("run/1", maos.Event("note", {"lines": [{"number": 1, "text": "four"}]}))
        assert await notes(m) == [
            {"lines": [{"number": 1, "text": "one"}, {"number": 2, "text": "two"}]},
            {"lines": [{"number": 1, "text": "three"}]},
            {"lines": [{"number": 1, "text": "four"}]},
        ]
        assert (await m.verify()).ok
    assert await durable.sql("SELECT format FROM events ORDER BY position") == [(1,), (2,), (3,)]


async def test_a_newer_format_is_refused_by_name(durable: Place) -> None:
    """R-1004: never guessed at."""
    async with durable.open((V1,)) as m:
        await m.journal.append("run/1", maos.Event("note", {"text": "old"}))
    async with durable.open((V3,)) as m:
        await m.journal.append("run/1", maos.Event("note", {"lines": []}))
    async with durable.open((V2,)) as m:
        with pytest.raises(UnknownFormat, match=r"run/1@2 is note in format 3, this maos knows formats up to 2"):
            await notes(m)
        report = await m.verify()
        assert [(each.stream, each.version) for each in report.damage] == [("run/1", 2)]
        assert "format 3" in report.damage[0].what


async def test_an_unknown_type_is_refused_by_name(durable: Place) -> None:
    """I16: fails closed."""
    async with durable.open((V1, maos.EventType("remark"))) as m:
        await m.journal.append("run/1", maos.Event("remark", {}))
    async with durable.open((V1,)) as m:
        with pytest.raises(UnknownFormat, match="run/1@1 has the unknown type 'remark'"):
            await notes(m)
        with pytest.raises(UnknownFormat, match="'remark' is not registered"):
            await m.journal.append("run/1", maos.Event("remark", {}))


async def test_a_type_is_registered_once(sqlite: Place) -> None:
    async with sqlite.open((V1, V1)) as m:  # the same one twice is no contradiction
        await m.journal.append("run/1", maos.Event("note", {"text": "x"}))
    for types in [(V1, V2), (maos.EventType("note"), V1), (maos.EventType("status_changed"),)]:
        with pytest.raises(InvalidInput, match="is registered twice"):
            await sqlite.open(types)
    async with sqlite.open((V1,)) as m:  # and the refused ones left nothing open
        assert await m.journal.head() == 1


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: maos.EventType(""), "cannot name an event type"),
        (lambda: maos.EventType("x" * 101), "cannot name an event type"),
        (lambda: maos.EventType("new\nline"), "cannot name an event type"),
        (lambda: maos.EventType("note", 0), "cannot have format 0"),
        (lambda: maos.EventType("note", 2), "no upcast from 1"),
        (lambda: maos.EventType("note", 4, upcasts={1: two, 3: two}), "no upcast from 2"),
    ],
)
def test_a_type_that_could_not_read_its_own_past_is_refused(make: Callable[[], Any], complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        make()
