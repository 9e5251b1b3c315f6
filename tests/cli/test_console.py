"""One description of a noun, rendered for people and for programs."""

import json
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
import pytest

from maos.cli import documents
from maos.cli.render import Column, Listing


class Colour(StrEnum):
    RED = "red"


class Part(NamedTuple):
    begun_us: int | None
    duration_us: int


class Thing(msgspec.Struct):
    name: str
    colour: Colour
    parts: list[Part]
    data: dict[str, Any]


THING = Thing("a", Colour.RED, [Part(1, 5), Part(None, 6), Part(0, 7)], {"at_us": 1, "part": [1]})

THINGS: Listing[Thing] = Listing(
    "things",
    (
        Column("name", lambda each: each.name, style="bold"),
        Column("parts", lambda each: str(len(each.parts)), right=True),
    ),
    empty="no things",
)


def test_times_of_a_read_model_come_twice_and_data_of_users_stays_as_it_is() -> None:
    assert documents.of(THING) == {
        "name": "a",
        "colour": "red",
        "parts": [
            {"begun": "1970-01-01T00:00:00.000001Z", "begun_us": 1, "duration_us": 5},
            {"begun": None, "begun_us": None, "duration_us": 6},
            {"begun": None, "begun_us": None, "duration_us": 7},
        ],
        "data": {"at_us": 1, "part": [1]},
    }


def test_a_listing_is_a_table_or_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    THINGS.show([THING], as_json=False)
    assert capsys.readouterr().out == "name  parts\na         3\n"
    THINGS.show([], as_json=False)
    assert capsys.readouterr().out == "no things\n"
    THINGS.show([THING], as_json=True, older=3)
    assert json.loads(capsys.readouterr().out) == {"things": [documents.of(THING)], "older": 3}


def test_a_time_does_not_hide_a_field_of_the_same_name() -> None:
    class Saved(NamedTuple):
        saved: str
        saved_us: int
        ended_us: int

    assert documents.of(Saved("mark", 1_000_000, 0)) == {
        "saved": "mark",
        "saved_at": "1970-01-01T00:00:01.000000Z",
        "saved_at_us": 1_000_000,
        "ended": None,
        "ended_us": None,
    }
