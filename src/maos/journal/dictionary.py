"""zstd for event bodies, with a dictionary the journal trains on its own events.

A 1 KB body alone compresses poorly; with a dictionary of what such bodies have in common, half as large again. The
dictionary is itself an event, in the stream `journal/dictionaries`: durable before the first body that needs it,
covered by the hash chain, and copied with the journal. Each frame names the dictionary it needs.
"""

from __future__ import annotations

from collections.abc import Callable

import zstandard

from maos.errors import Corrupt

ZSTD_LEVEL = 3
STREAM = "journal/dictionaries"
TYPE = "dictionary_trained"
MAGIC = b"\x37\xa4\x30\xec"
"""How a dictionary begins."""
SIZE_BYTES_MAX = 256 << 20
WORTH_IT = 0.9
"""A frame that is not at least this much smaller than its body is not used."""

STAGES = ((64, 12 << 10), (2048, 64 << 10))
"""After so many samples, train a dictionary of so many bytes: a small one early, a better one for long journals."""


class UnknownDictionary(Exception):
    """A frame needs a dictionary that has not been read from the journal yet, or is not there."""


class Dictionaries:
    """All dictionaries of a journal, the newest in use, and the samples for the next."""

    def __init__(self, *, trains: bool = True) -> None:
        self._stages = STAGES if trains else ()
        self._decompressors = {0: zstandard.ZstdDecompressor()}  # 0: frames that need no dictionary
        self._newest: zstandard.ZstdCompressionDict | None = None
        self._compressor: zstandard.ZstdCompressor | None = None  # made at the first use: who only reads needs none
        self._samples: list[bytes] = []
        self._seen = 0

    def add(self, content: bytes) -> None:
        """Take a dictionary into use."""
        try:
            dictionary = zstandard.ZstdCompressionDict(content)
            number = dictionary.dict_id()
            if number == 0:  # zstd takes anything for a dictionary without a number
                raise Corrupt(f"a compression dictionary in {STREAM} is damaged", stream=STREAM)
            if number in self._decompressors:
                return
            self._decompressors[number] = zstandard.ZstdDecompressor(dict_data=dictionary)
            self._newest = dictionary
            self._compressor = None
        except zstandard.ZstdError as error:
            raise Corrupt(f"a compression dictionary in {STREAM} is damaged: {error}", stream=STREAM) from error
        self._samples = []
        self._seen = 0

    @property
    def count(self) -> int:
        """How many dictionaries the journal has."""
        return len(self._decompressors) - 1

    def compress(self, body: bytes) -> bytes:
        """The body as a frame, or as it is when that saves too little."""
        if self.count < len(self._stages):
            self._sample(body)
        if self._compressor is None:
            self._compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL, dict_data=self._newest)
        frame = self._compressor.compress(body)
        return frame if len(frame) < WORTH_IT * len(body) else body

    def decompress(self, frame: bytes) -> bytes:
        """The body of a frame; UnknownDictionary when it needs one that was not added."""
        try:
            needs = zstandard.get_frame_parameters(frame)
            if needs.content_size > SIZE_BYTES_MAX:  # a frame that does not say declares the largest number there is
                raise Corrupt(f"the frame declares {needs.content_size} bytes")
            decompressor = self._decompressors.get(needs.dict_id)
            if decompressor is None:
                raise UnknownDictionary(needs.dict_id)
            return decompressor.decompress(frame)
        except zstandard.ZstdError as error:
            raise Corrupt(str(error)) from error

    def due(self) -> bool:
        """Whether there are enough samples for the next dictionary."""
        return self.count < len(self._stages) and self._seen >= STAGES[self.count][0] and bool(self._samples)

    def train(self) -> Callable[[], bytes]:
        """The training of the next dictionary, to be run in a thread; the samples are used up."""
        samples, self._samples = self._samples, []
        size = STAGES[self.count][1]
        self._seen = 0
        # Parameters given, not searched for: a twentieth of the time for a dictionary that is a few per cent worse.
        return lambda: zstandard.train_dictionary(size, list(samples), k=500, d=8, f=16, accel=10).as_bytes()

    def _sample(self, body: bytes) -> None:
        self._seen += 1
        every = 1 if self.count == 0 else 4  # the second stage takes a wider view, not more memory
        if self._seen % every == 0 and len(body) < 1 << 16:
            self._samples.append(body)


def repack(body: bytes, dictionaries: Dictionaries) -> bytes:
    """The body as a frame that needs no dictionary, if it is one that does."""
    try:
        if not body.startswith(zstandard.FRAME_HEADER) or zstandard.get_frame_parameters(body).dict_id == 0:
            return body
    except zstandard.ZstdError as error:
        raise Corrupt(str(error)) from error
    return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(dictionaries.decompress(body))
