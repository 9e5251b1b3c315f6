"""Stored bytes that somebody else wrote: data or an error, never code, never a default (A6, A7, I11)."""

import base64
import os
import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import maos
from maos.app import Maos
from maos.errors import Corrupt, MaosError, UnknownFormat
from maos.journal.codec import Codec, EventType
from maos.journal.dictionary import MAGIC, Dictionaries, UnknownDictionary
from maos.store import chain
from maos.store.contract import GENESIS, RawEvent, Recorded, Write
from tests.journal.places import Place, readable
from tests.model.data import STATES, same


class Bomb:
    """What a revived object would do."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch revived",)


def recorded(body: bytes, type_: str = "note", format_: int = 1) -> Recorded:
    hash_ = chain.link(GENESIS, b"run/1", 1, type_.encode(), format_, 1, 0, body)
    return Recorded(1, "run/1", 1, 1, type_, format_, 1, 0, body, hash_)


def codec() -> Codec:
    return Codec((EventType("note"), EventType("dictionary_trained")), Dictionaries())


HOSTILE = {
    "nothing": b"",
    "pickle": pickle.dumps(Bomb()),
    "pickle, text protocol": pickle.dumps(Bomb(), 0),
    "msgpack": msgspec.msgpack.encode({"text": "hello"}),
    "msgpack extension": msgspec.msgpack.encode(msgspec.msgpack.Ext(5, b"data")),
    "yaml": b"!!python/object/apply:os.system ['touch revived']",
    "a list": b"[1, 2]",
    "a number": b"7",
    "null": b"null",
    "a text": b'"text"',
    "two objects": b"{}{}",
    "cut off": b'{"text": "he',
    "not a number": b'{"x": NaN}',
    "infinity": b'{"x": 1e999}',
    "lone surrogate": b'{"x": "\\ud800"}',
    "no utf-8": b'{"x": "\xff\xfe"}',
    "bottomless lists": b'{"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "bottomless dictionaries": b'{"x":' * 100_000 + b"1" + b"}" * 100_000,
    "endless number": b'{"x":' + b"9" * 10_000 + b"}",
    "gzip": b"\x1f\x8b\x08\x00",
    "cut off zstd": zstandard.ZstdCompressor().compress(b'{"text": "hello hello hello hello"}')[:-3],
    "zstd of garbage": zstandard.ZstdCompressor().compress(b"garbage"),
    "zstd of pickle": zstandard.ZstdCompressor().compress(pickle.dumps(Bomb())),
    "zstd that does not say how long": zstandard.ZstdCompressor(write_content_size=False).compress(b"{}" * 50),
    "a dictionary": MAGIC + bytes(100),
    "only the magic": MAGIC,
    "only the magic of zstd": b"\x28\xb5\x2f\xfd",
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_is_not_ours_is_corrupt_by_name(body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A6, I11: no import, no call, no value made up."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Corrupt, match=r"run/1@1 (cannot be decoded|is not an object)") as caught:
        codec().decode(recorded(body))
    assert (caught.value.stream, caught.value.version) == ("run/1", 1)
    assert not list(tmp_path.iterdir())


DATA_THAT_LOOKS_LIKE_MORE = [
    {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": "touch revived"}},
    {"__reduce__": ["os.system", ["touch revived"]], "py/object": "os.system", "__class__": "Exception"},
    {"!!python/object": 1, "$ref": "#/x", "@type": "java.lang.Runtime", "__proto__": {"x": 1}},
    {"ops": [["set", "", {}]], "sum": "0" * 32, "replaced": [], "meta": {}, "critical": True, "source": "root"},
    {"type": "compacted", "format": 99, "version": 0, "spans": 7, "token": 1, "stream": "other", "position": -1},
    {"": "", "/": "~", "~1": "/", "\u0000": "\u0000", "tab\t": "🦑", "b64": base64.b64encode(b"\x80\x04").decode()},
    {"extend": [1], "replace": 1, "delete": True, "fields": {"value": 1}, "value": None},
]


@pytest.mark.parametrize("data", DATA_THAT_LOOKS_LIKE_MORE, ids=lambda data: next(iter(data)) or "empty")
async def test_data_that_looks_like_more_stays_data(m: Maos, data: dict[str, Any]) -> None:
    """A7: our own words have no power in the data of others."""
    await m.journal.append("run/1", maos.Event("note", data))
    await m.state.create("a", {"data": data})
    await m.state.update("a", {"more": [data]})
    m.state.cache.clear()
    assert [record.data async for record in m.journal.read("run/1")] == [data]
    state = await m.state.get("a")
    assert same(state.to_dict(), {"data": data, "more": [data]})
    assert (await m.verify()).ok


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=STATES)
@example(data={"text": "x" * 5000})
def test_what_can_be_stored_comes_back_as_it_was(data: dict[str, Any]) -> None:
    """Whatever the keys and values, compressed or not."""
    ours = codec()
    for raw in (ours.encode(maos.Event("note", data)), ours.encode_sealed(maos.Event("note", data))):
        assert same(ours.data(recorded(raw.body)), data)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_bodies_are_corrupt_or_still_plain_data(data: st.DataObject) -> None:
    """The hash chain comes before; but no body, whatever is in it, does more than raise our own errors."""
    ours = codec()
    event = maos.Event("note", {"text": "hello " * data.draw(st.sampled_from([1, 200])), "n": [1, {"x": None}]})
    body = bytearray(data.draw(st.sampled_from([ours.encode(event).body, ours.encode_sealed(event).body])))
    for _ in range(data.draw(st.integers(1, 3))):
        index = data.draw(st.integers(0, len(body) - 1))
        body[index] = data.draw(st.integers(0, 255))
    del body[data.draw(st.integers(1, len(body))) :]
    try:
        found = ours.data(recorded(bytes(body)))
    except (MaosError, UnknownDictionary):
        return
    assert type(found) is dict


@pytest.mark.parametrize("format_", [0, -1, 2, 2**40])
def test_a_format_there_never_was_is_refused(format_: int) -> None:
    with pytest.raises(UnknownFormat, match=f"in format {format_},"):
        codec().decode(recorded(b"{}", format_=format_))


def test_a_small_body_that_would_fill_the_memory_is_refused() -> None:
    """A20: whoever decompresses knows how large the result may be."""
    huge = zstandard.ZstdCompressor(level=19).compress(bytes(300 << 20))
    assert len(huge) < 100_000
    with pytest.raises(Corrupt, match="declares 314572800 bytes"):
        codec().decode(recorded(huge))
    beside = zstandard.ZstdCompressor().compress(b'{"a": 1}') + huge  # a second frame is not ours
    assert codec().data(recorded(beside)) == {"a": 1}


def test_a_frame_that_lies_about_its_size_is_refused() -> None:
    """Its header promises little; there is more in it."""
    frame = bytearray(zstandard.ZstdCompressor(level=3).compress(b'{"text": "' + b"x" * 200 + b'"}'))
    assert frame[5] == 212 - 0 or frame[4] & 0x20
    index = 5 if frame[4] & 0x20 else 6
    frame[index] = 12
    with pytest.raises(Corrupt):
        codec().decode(recorded(bytes(frame)))


async def test_stored_bytes_of_somebody_else_are_reported_not_revived(
    durable: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A6, through the whole journal: correctly chained, and still only Corrupt."""
    monkeypatch.chdir(tmp_path)
    async with durable.open() as m:
        bodies = [b'{"text": "good"}', pickle.dumps(Bomb()), HOSTILE["yaml"]]
        await m.journal.store.append(Write("run/1", [RawEvent("note", 1, body) for body in bodies]))
        found, error = await readable(m, "run/1")
        assert [record.data for record in found] == [{"text": "good"}], "what comes before it is read all the same"
        assert isinstance(error, Corrupt)
        assert "run/1@2 cannot be decoded" in error.what
        assert [record.version async for record in m.journal.read("run/1", until=1)] == [1]
        report = await m.verify()
        assert [(each.stream, each.version) for each in report.damage] == [("run/1", 2), ("run/1", 3)]
        assert all("cannot be decoded" in each.what for each in report.damage)
        assert all(each.recoverable == "versions 1 verify" for each in report.damage)
    assert not (tmp_path / "revived").exists()
