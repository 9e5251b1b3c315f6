"""Compression of bytes: which algorithms there are, which suits what, and how they compare.

The journal uses zstd for events by itself. States and snapshots may choose: zstd is smallest, lz4 fastest to read.
The caller of `decompress` says how large the result may be, so a hostile file cannot fill the memory.
"""

from __future__ import annotations

import gzip
import time
import zlib
from collections.abc import Callable, Iterable, Sequence

import cramjam
import zstandard

from maos.errors import Corrupt, InvalidInput
from maos.journal.dictionary import ZSTD_LEVEL
from maos.tuples import NamedTuple

GZIP_LEVEL = 6
SIZE_BYTES_MAX = 1 << 30


class CompressionResult(NamedTuple):
    """The result of one algorithm on one piece of data."""

    algorithm: str
    ratio: float
    """Original size over compressed size: 4.0 means three quarters saved."""
    compress_us: float
    decompress_us: float


def _gunzip(data: bytes, size_max: int) -> bytes:
    stream = zlib.decompressobj(wbits=31)
    content = stream.decompress(data, size_max + 1)
    if len(content) > size_max or not stream.eof:
        raise ValueError("longer than declared, or cut off")
    return content


def _unzstd(data: bytes, size_max: int) -> bytes:
    declared = zstandard.get_frame_parameters(data).content_size
    if declared > size_max:  # a frame that does not say declares the largest number there is
        raise ValueError(f"declares {declared} bytes")
    return zstandard.ZstdDecompressor().decompress(data)


def _unlz4(data: bytes, size_max: int) -> bytes:
    if int.from_bytes(data[:4], "little") > size_max:
        raise ValueError("longer than declared")
    return bytes(cramjam.lz4.decompress_block(data))


def _unsnappy(data: bytes, size_max: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(data) > size_max:
        raise ValueError("longer than declared")
    return bytes(cramjam.snappy.decompress_raw(data))


_PAIRS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes, int], bytes]]] = {
    "zstd": (lambda data: zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(data), _unzstd),
    "gzip": (lambda data: gzip.compress(data, GZIP_LEVEL, mtime=0), _gunzip),
    "lz4": (lambda data: bytes(cramjam.lz4.compress_block(data)), _unlz4),
    "snappy": (lambda data: bytes(cramjam.snappy.compress_raw(data)), _unsnappy),
    "none": (bytes, lambda data, _size_max: data),
}

ALGORITHMS = tuple(_PAIRS)


def compress(data: bytes, algorithm: str = "zstd") -> bytes:
    """Compress data.

    Example::

        small = compress.compress(b"hello " * 100, "lz4")
    """
    return _pair(algorithm)[0](data)


def decompress(data: bytes, algorithm: str, *, size: int) -> bytes:
    """Decompress data; Corrupt unless the result has exactly `size` bytes.

    Example::

        small = compress.compress(b"hello " * 100, "lz4")
        data = compress.decompress(small, "lz4", size=600)
    """
    if size > SIZE_BYTES_MAX:
        raise Corrupt(f"{algorithm} data declares {size} bytes, at most {SIZE_BYTES_MAX} are allowed")
    try:
        content = _pair(algorithm)[1](data, size)
    except (ValueError, EOFError, OSError, zlib.error, zstandard.ZstdError, cramjam.DecompressionError) as error:
        raise Corrupt(f"{algorithm} data cannot be decompressed: {error}") from error
    if len(content) != size:
        raise Corrupt(f"{algorithm} data came to {len(content)} bytes instead of {size}")
    return content


def compress_all(items: Iterable[bytes], algorithm: str = "zstd") -> list[bytes]:
    """Compress several pieces of data.

    Example::

        small = compress.compress_all([b"hello " * 100, b"world " * 50])
    """
    return [compress(item, algorithm) for item in items]


def decompress_all(items: Sequence[bytes], algorithm: str, *, sizes: Sequence[int]) -> list[bytes]:
    """Decompress several pieces of data.

    Example::

        small = compress.compress_all([b"hello " * 100, b"world " * 50])
        items = compress.decompress_all(small, "zstd", sizes=[600, 300])
    """
    return [decompress(item, algorithm, size=size) for item, size in zip(items, sizes, strict=True)]


def compare(data: bytes, algorithms: Iterable[str] = ALGORITHMS, *, rounds: int = 5) -> list[CompressionResult]:
    """Every algorithm on the same data, the smallest result first; times are the best of some rounds.

    Example::

        for result in compress.compare(b"hello " * 100, ["zstd", "lz4"]):
            print(result.algorithm, result.ratio, result.compress_us)
    """
    results = []
    for algorithm in algorithms:
        squeeze, restore = _pair(algorithm)
        squeezed = squeeze(data)
        there = _best_us(lambda squeeze=squeeze: squeeze(data), rounds)  # type: ignore[misc]
        back = _best_us(lambda restore=restore, squeezed=squeezed: restore(squeezed, len(data)), rounds)  # type: ignore[misc]
        results.append(CompressionResult(algorithm, len(data) / max(1, len(squeezed)), there, back))
    results.sort(key=lambda result: -result.ratio)
    return results


def recommend(data: bytes, *, prefer: str = "balance") -> CompressionResult:
    """The algorithm to use: the smallest ("size"), the quickest ("speed"), or the best of both ("balance").

    Example::

        best = compress.recommend(b"hello " * 100, prefer="size")
        small = compress.compress(b"hello " * 100, best.algorithm)
    """
    measured = [result for result in compare(data, rounds=3) if result.algorithm != "none"]
    scores: dict[str, Callable[[CompressionResult], float]] = {
        "size": lambda result: result.ratio,
        "speed": lambda result: -(result.compress_us + result.decompress_us),
        "balance": lambda result: result.ratio / (1 + (result.compress_us + result.decompress_us) / max(1, len(data))),
    }
    if prefer not in scores:
        raise InvalidInput(f"cannot prefer {prefer!r}", hint=f"choose one of {', '.join(scores)}")
    best = max(measured, key=scores[prefer])
    # What saves less than a tenth is not worth the time.
    return best if best.ratio > 1.1 else CompressionResult("none", 1.0, 0.0, 0.0)


def _pair(algorithm: str) -> tuple[Callable[[bytes], bytes], Callable[[bytes, int], bytes]]:
    try:
        return _PAIRS[algorithm]
    except KeyError:
        raise InvalidInput(
            f"unknown compression {algorithm!r}", hint=f"choose one of {', '.join(ALGORITHMS)}"
        ) from None


def _best_us(work: Callable[[], object], rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter_ns()
        work()
        best = min(best, (time.perf_counter_ns() - begin) / 1000)
    return best
