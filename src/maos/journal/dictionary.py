"""zstd for event bodies, with a dictionary the journal trains on its own events.

A 1 KB body alone compresses poorly; with a dictionary of what such bodies have in common, half as large again. The
dictionary is itself an event, in the stream `journal/dictionaries`: durable before the first body that needs it, covered
by the hash chain, and copied with the journal. Each frame names the dictionary it needs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from maos.errors import Corrupt
from maos.journal.compress import ZSTD_LEVEL, zstd

STREAM = "journal/dictionaries"
DICTIONARY_MAGIC = b"\x37\xa4\x30\xec"
SIZE_BYTES_MAX = 256 << 20

STAGES = ((64, 12 << 10), (2048, 64 << 10))
"""After so many samples, train a dictionary of so many bytes: a small one early, a better one for long journals."""

Load = Callable[[], Awaitable[list[bytes]]]
Save = Callable[[bytes, int], Awaitable[None]]


class Dictionaries:
    """All dictionaries of a journal, the newest in use, and the samples for the next."""

    def __init__(self) -> None:
        self._by_id: dict[int, Any] = {}
        self._count = 0
        self._current: Any = None
        self._plain = zstd.ZstdCompressor(level=ZSTD_LEVEL)
        self._samples: list[bytes] = []
        self._seen = 0

    def add(self, content: bytes) -> None:
        """Take a dictionary into use."""
        try:
            dictionary = zstd.ZstdDict(content)
        except (ValueError, zstd.ZstdError) as error:
            raise Corrupt(f"a compression dictionary in {STREAM} is damaged: {error}", stream=STREAM) from error
        if dictionary.dict_id in self._by_id:
            return
        self._by_id[dictionary.dict_id] = dictionary.as_digested_dict
        self._count += 1
        self._current = zstd.ZstdCompressor(level=ZSTD_LEVEL, zstd_dict=dictionary.as_digested_dict)
        self._samples = []
        self._seen = 0

    @property
    def count(self) -> int:
        """How many dictionaries the journal has."""
        return self._count

    def compress(self, body: bytes) -> bytes:
        """The body as a frame, or as it is when that saves too little."""
        if self._count < len(STAGES):
            self._sample(body)
        compressor = self._current or self._plain
        compressor.set_pledged_input_size(len(body))
        frame: bytes = compressor.compress(body, zstd.ZstdCompressor.FLUSH_FRAME)
        return frame if len(frame) < 0.9 * len(body) else body

    def compress_with_checksum(self, body: bytes) -> bytes:
        """The body as a frame that carries a checksum of its content."""
        parameters = zstd.CompressionParameter
        return zstd.compress(body, options={parameters.checksum_flag: 1, parameters.compression_level: ZSTD_LEVEL})

    def decompress(self, frame: bytes) -> bytes:
        """The body of a frame."""
        try:
            info: Any = zstd.get_frame_info(frame)
            if info.decompressed_size is None or info.decompressed_size > SIZE_BYTES_MAX:
                raise Corrupt(f"the frame declares {info.decompressed_size} bytes")
            if info.dictionary_id and info.dictionary_id not in self._by_id:
                raise Corrupt(f"compression dictionary {info.dictionary_id} is missing from {STREAM}")
            return zstd.decompress(frame, zstd_dict=self._by_id.get(info.dictionary_id))
        except zstd.ZstdError as error:
            raise Corrupt(str(error)) from error

    def knows(self, frame: bytes) -> bool:
        """Whether the dictionary a frame needs is loaded."""
        try:
            needed = zstd.get_frame_info(frame).dictionary_id
        except zstd.ZstdError:
            return True  # damaged: decompressing will say so
        return not needed or needed in self._by_id

    def due(self) -> bool:
        """Whether there are enough samples for the next dictionary."""
        return self._count < len(STAGES) and self._seen >= STAGES[self._count][0] and bool(self._samples)

    def train(self) -> Callable[[], bytes]:
        """The training of the next dictionary, to be run in a thread; the samples are used up."""
        samples, self._samples = self._samples, []
        size = STAGES[self._count][1]
        self._seen = 0
        return lambda: zstd.train_dict(samples, size).dict_content

    def _sample(self, body: bytes) -> None:
        self._seen += 1
        every = 1 if self._count == 0 else 4  # the second stage takes a wider view, not more memory
        if self._seen % every == 0 and len(body) < 1 << 16:
            self._samples.append(body)
