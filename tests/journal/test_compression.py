"""Compression: every algorithm there and back, comparing them, choosing one, and bombs."""

import gzip
import json
import random

import cramjam
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from maos.errors import Corrupt, InvalidInput
from maos.journal import compress

ALGORITHMS = ("zstd", "gzip", "lz4", "snappy", "none")


def typical_state() -> bytes:
    """The state of an agent in the middle of some work: fields, memory, a conversation."""
    chance = random.Random(7)
    words = "the agent reads a file finds an error in test and writes patch then runs it again result was ok".split()
    messages = [
        {
            "role": chance.choice(["user", "assistant", "tool"]),
            "content": " ".join(chance.choices(words, k=60)),
            "id": f"msg_{chance.getrandbits(64):016x}",
            "time_us": 1_800_000_000_000_000 + number * 1_713_007,
            "usage": {"input": chance.randrange(10_000), "output": chance.randrange(2_000)},
        }
        for number in range(60)
    ]
    memory = {f"src/module_{number}.py": {"lines": chance.randrange(900), "seen": True} for number in range(40)}
    return json.dumps({"status": "busy", "messages": messages, "execution": {"memory": memory}}).encode()


def test_the_algorithms_are_those_that_were_asked_for() -> None:
    """R-407."""
    assert set(compress.ALGORITHMS) == set(ALGORITHMS)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_gives_back_what_it_was_given(algorithm: str) -> None:
    for data in (b"", b"x", b"abc" * 1000, bytes(100_000), random.Random(1).randbytes(5000), typical_state()):
        squeezed = compress.compress(data, algorithm)
        assert compress.decompress(squeezed, algorithm, size=len(data)) == data
        assert type(squeezed) is bytes


@pytest.mark.parametrize("algorithm", ["zstd", "gzip"])
def test_more_than_seventy_per_cent_is_saved_on_a_typical_state(algorithm: str) -> None:
    """R-407."""
    data = typical_state()
    assert len(compress.compress(data, algorithm)) < 0.3 * len(data)


def test_compression_is_the_same_everywhere_and_every_time() -> None:
    """I15: no time stamp inside."""
    for algorithm in ALGORITHMS:
        assert compress.compress(b"abc" * 99, algorithm) == compress.compress(b"abc" * 99, algorithm)


def test_many_are_compressed_at_once() -> None:
    items = [b"a" * 100, b"", b"b" * 2000]
    for algorithm in ALGORITHMS:
        squeezed = compress.compress_all(items, algorithm)
        assert compress.decompress_all(squeezed, algorithm, sizes=[100, 0, 2000]) == items
    with pytest.raises(ValueError, match="shorter"):
        compress.decompress_all(items, "none", sizes=[100])


def test_all_are_compared_and_the_smallest_comes_first() -> None:
    results = compress.compare(typical_state(), rounds=1)
    assert {result.algorithm for result in results} == set(ALGORITHMS)
    assert [result.ratio for result in results] == sorted((result.ratio for result in results), reverse=True)
    assert results[-1].algorithm == "none"
    assert results[-1].ratio == 1.0
    assert all(result.compress_us > 0 and result.decompress_us > 0 for result in results)
    assert [result.algorithm for result in compress.compare(b"abc" * 99, ["lz4"], rounds=1)] == ["lz4"]


def test_the_best_is_recommended_for_what_matters() -> None:
    data = typical_state()
    smallest = compress.compare(data, rounds=1)[0].algorithm
    assert compress.recommend(data, prefer="size").algorithm == smallest
    assert compress.recommend(data, prefer="speed").algorithm in ("lz4", "snappy", "zstd")
    assert compress.recommend(data).algorithm in ALGORITHMS
    assert compress.recommend(random.Random(1).randbytes(3000)).algorithm == "none", "nothing is saved on noise"
    assert compress.recommend(b"").algorithm == "none"
    with pytest.raises(InvalidInput, match="cannot prefer 'beauty'"):
        compress.recommend(data, prefer="beauty")


def test_an_unknown_algorithm_is_refused_by_name() -> None:
    for work in (
        lambda: compress.compress(b"x", "brotli"),
        lambda: compress.decompress(b"x", "brotli", size=1),
        lambda: compress.compare(b"x", ["brotli"]),
    ):
        with pytest.raises(InvalidInput, match="'brotli'"):
            work()


BOMBS = {
    "zstd": zstandard.ZstdCompressor(level=19).compress(bytes(64 << 20)),
    "zstd without a size": zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 20)),
    "gzip": gzip.compress(bytes(8 << 20)),
    "lz4": bytes(cramjam.lz4.compress_block(bytes(8 << 20))),
    "snappy": bytes(cramjam.snappy.compress_raw(bytes(8 << 20))),
    "none": bytes(8 << 20),
}


@pytest.mark.parametrize("name", BOMBS)
def test_what_grows_beyond_what_was_declared_is_refused(name: str) -> None:
    """A20: a small file cannot fill the memory."""
    with pytest.raises(Corrupt):
        compress.decompress(BOMBS[name], name.split()[0], size=1000)


def test_a_declaration_beyond_reason_is_refused() -> None:
    with pytest.raises(Corrupt, match="at most"):
        compress.decompress(b"", "zstd", size=(1 << 30) + 1)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_comes_to_another_size_is_refused(algorithm: str) -> None:
    squeezed = compress.compress(b"0123456789", algorithm)
    for size in (0, 9, 11, 1000):
        with pytest.raises(Corrupt):
            compress.decompress(squeezed, algorithm, size=size)


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(ALGORITHMS), st.binary(max_size=60), st.integers(0, 200))
def test_garbage_is_corrupt_and_nothing_else(algorithm: str, garbage: bytes, size: int) -> None:
    """I11: or, if it happens to be of that size, plain bytes; never any other error."""
    try:
        assert len(compress.decompress(garbage, algorithm, size=size)) == size
    except Corrupt:
        pass


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(ALGORITHMS), st.data())
def test_damage_is_noticed_or_harmless(algorithm: str, data: st.DataObject) -> None:
    original = b"some text that repeats, some text that repeats, some text that ends"
    squeezed = bytearray(compress.compress(original, algorithm))
    index = data.draw(st.integers(0, len(squeezed) - 1))
    squeezed[index] ^= 1 << data.draw(st.integers(0, 7))
    try:
        assert len(compress.decompress(bytes(squeezed), algorithm, size=len(original))) == len(original)
    except Corrupt:
        pass
