"""The file itself: cut, changed or swollen, it is refused before anything is written (A8)."""

import hashlib
import io
import os
import stat
import struct
from pathlib import Path

import msgspec
import pytest
import zstandard

import maos
from maos.app import Maos
from maos.files import whole_file
from maos.journal.codec import Event
from maos.transfer import bundle as file
from maos.transfer.bundle import GIT, JOURNAL, MANIFEST, BundleReader, BundleWriter, is_bundle
from tests.transfer import runs
from tests.transfer.runs import Parts, assemble, bring

PART = struct.Struct(">cQQ32s")


def refused(bundle: bytes) -> bool:
    """Whether not even its checksums fit."""
    try:
        BundleReader(io.BytesIO(bundle), "bundle")
    except (maos.Corrupt, maos.UnknownFormat):
        return True
    return False


def sealed(*parts: tuple[bytes, bytes, int], digest: bytes = b"") -> bytes:
    """A file of parts with whatever they say of their content, and right checksums unless another is given."""
    body = file.MAGIC + struct.pack(">H", 1)
    for kind, stored, size in parts:
        body += PART.pack(kind, len(stored), size, digest or hashlib.sha256(stored).digest()) + stored
    return body + PART.pack(b"Z", len(parts), len(body) + PART.size, hashlib.sha256(body).digest())


async def small(here: Maos) -> bytes:
    """The smallest run there is."""
    await runs.write(here, {"run/r-1": runs.told()["run/r-1"][:2]})
    return await runs.exported(here)


async def test_a_bit_flip_at_every_byte_is_noticed(here: Maos) -> None:
    """Nothing in a bundle is outside its checksums, not even its format and its end."""
    bundle = await small(here)
    for at in range(len(bundle)):
        for bit in (0, 7):
            flipped = bytearray(bundle)
            flipped[at] ^= 1 << bit
            assert refused(bytes(flipped)), f"byte {at}, bit {bit}"
    assert not refused(bundle)


async def test_a_cut_at_every_length_is_noticed(here: Maos) -> None:
    bundle = await small(here)
    assert all(refused(bundle[:length]) for length in range(len(bundle)))
    assert refused(bundle + b"\0")
    assert refused(bundle + bundle)


@pytest.mark.parametrize("format_", [file.FORMAT + 1, 7])
async def test_a_newer_bundle_is_refused_by_its_format(there: Maos, bundle: bytes, folder: Path, format_: int) -> None:
    newer = bundle[: len(file.MAGIC)] + struct.pack(">H", format_) + bundle[len(file.MAGIC) + 2 :]
    with pytest.raises(maos.UnknownFormat, match=f"is a bundle of format {format_}, this maos knows up to 1"):
        await bring(there, newer, folder)


async def test_nothing_is_written_for_a_bundle_that_is_damaged(there: Maos, bundle: bytes, folder: Path) -> None:
    for damaged in (bundle[:-1], bundle[:100], bundle.replace(b"maos", b"m\xe4os"), b"", b"text"):
        with pytest.raises(maos.Corrupt, match=r"cannot be imported: .* \(nothing was imported"):
            await bring(there, damaged, folder)
    assert await there.journal.head() == 0


# --- lies ------------------------------------------------------------------------------------------------------------


def bomb(size: int) -> bytes:
    """Many zeros, in a few bytes."""
    stream = zstandard.ZstdCompressor(level=1).compressobj(size=size)
    zeros = bytes(1 << 20)
    return b"".join(stream.compress(zeros) for _ in range(size >> 20)) + stream.flush()


async def test_a_part_that_unpacks_to_more_than_it_says_is_refused(there: Maos, folder: Path) -> None:
    """10 kB that become gigabytes: memory is taken for what is declared, and what is declared has a limit."""
    large = bomb(200 << 20)
    assert len(large) < 100_000
    for size in (10, file.JOURNAL_BYTES_FREE):
        with pytest.raises(maos.Corrupt, match="cannot be decompressed: declares 209715200 bytes"):
            await bring(there, sealed((MANIFEST, large, size)), folder)
    for kind, size in ((MANIFEST, file.MANIFEST_BYTES_MAX), (JOURNAL, 1 << 40), (GIT, 1 << 62)):
        with pytest.raises(maos.Corrupt, match="more bytes than a bundle can have"):
            await bring(there, sealed((kind, b"x", size)), folder)


async def test_many_parts_that_are_too_large_together_are_refused(there: Maos, folder: Path) -> None:
    part = (JOURNAL, b"x", file.JOURNAL_PART_BYTES_MAX)
    with pytest.raises(maos.Corrupt, match="more bytes than a bundle can have"):
        await bring(there, sealed(*[part] * 6), folder)
    with pytest.raises(maos.Corrupt, match="parts that no bundle has"):
        await bring(there, sealed(*[(JOURNAL, b"", 0)] * (file.PARTS_MAX + 1)), folder)


async def test_a_length_that_is_longer_than_the_file_takes_no_memory(there: Maos, folder: Path) -> None:
    head = file.MAGIC + struct.pack(">H", 1) + PART.pack(b"G", file.GIT_BYTES_MAX, file.GIT_BYTES_MAX, bytes(32))
    with pytest.raises(maos.Corrupt, match="ends too early"):
        await bring(there, head + b"short", folder)


def test_the_checksum_of_each_part_counts_too() -> None:
    assert refused(sealed((MANIFEST, b"x", 1), digest=bytes(32)))
    assert not refused(sealed((MANIFEST, b"x", 1)))


async def test_parts_are_those_of_a_bundle_in_their_order(there: Maos, bundle: bytes, folder: Path) -> None:
    parts = Parts(bundle)
    manifest = (MANIFEST, msgspec.json.encode(parts.manifest))
    journal = (JOURNAL, b"\n".join(map(msgspec.json.encode, parts.lines)))
    for wrong in ([manifest, manifest, journal], [journal, manifest], [manifest], [journal], []):
        with pytest.raises(maos.Corrupt):
            await bring(there, assemble(wrong), folder)
    for wrong in ([manifest, journal, journal], [manifest, (JOURNAL, b"")], [(MANIFEST, b"null"), journal]):
        with pytest.raises(maos.Corrupt):
            await bring(there, assemble(wrong), folder)
    assert await there.journal.head() == 0


@pytest.mark.parametrize(
    "manifest",
    [
        {"kind": "settings"}, {"id": 7}, {"id": "../../etc"}, {"id": ""}, {"id": "person"}, {"id": "a" * 65},
        {"streams": []}, {"streams": "all"}, {"refs": {"a": 1}}, {"made_us": "now"}, {"position": None}, {"more": 1},
        {"title": "x" * 10_000}, {"left_out": ["x"] * 1000}, {"object_format": "md5"}, {"carried_out": "no"},
    ],
)  # fmt: skip
async def test_what_a_bundle_says_of_itself_is_checked(
    there: Maos, bundle: bytes, folder: Path, manifest: dict[str, object]
) -> None:
    parts = Parts(bundle)
    parts.manifest |= manifest
    with pytest.raises(maos.Corrupt):
        await bring(there, parts.bytes(), folder)
    assert await there.journal.head() == 0


async def test_counts_are_compared_and_limited(
    there: Maos, bundle: bytes, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for change in (-1, 1, 1 << 60):
        parts = Parts(bundle)
        parts.manifest["streams"][0]["events"] += change
        with pytest.raises(maos.Corrupt, match="do not match its manifest"):
            await bring(there, parts.bytes(), folder)
    parts = Parts(bundle)
    parts.manifest["streams"].append(dict(parts.manifest["streams"][0]))
    with pytest.raises(maos.Corrupt, match="same stream twice"):
        await bring(there, parts.bytes(), folder)
    for number in (-1, 1 << 40, len(Parts(bundle).manifest["streams"])):
        parts = Parts(bundle)
        parts.lines[0][0] = number
        with pytest.raises(maos.Corrupt, match="an event of no stream"):
            await bring(there, parts.bytes(), folder)
    with monkeypatch.context() as patched:
        patched.setattr(file, "EVENTS_MAX", 5)
        with pytest.raises(maos.Corrupt, match="more"):
            await bring(there, bundle, folder)
    streams = [{"name": f"run/{number}", "events": 0} for number in range(file.STREAMS_MAX + 1)]
    refs = {f"refs/maos/r-1/{number}": "0" * 40 for number in range(file.REFS_MAX + 1)}
    for field, value in (("streams", streams), ("refs", refs), ("left_out", ["x"] * 101), ("title", "x" * 2_001)):
        parts = Parts(bundle)
        parts.manifest[field] = value
        with pytest.raises(maos.Corrupt, match=r"Expected .* of length <="):
            await bring(there, parts.bytes(), folder)
    assert await there.journal.head() == 0


@pytest.mark.parametrize(
    "body", [b"7", b'"x"', b"[]", b"null", b"{", b'{"a":1', b"(\xb5/\xfd", b'{"a":"\\ud800"}', b"{}{}"]
)
async def test_data_is_a_json_object_or_refused(there: Maos, bundle: bytes, folder: Path, body: bytes) -> None:
    """A6: nothing else is tried, and nothing is made of it but data."""
    parts = Parts(bundle)
    lines = [msgspec.json.encode(line) for line in parts.lines]
    lines[0] = msgspec.json.encode([*parts.lines[0][:4], msgspec.Raw(body)]) if b"\xfd" not in body else body
    wrong = assemble([(MANIFEST, msgspec.json.encode(parts.manifest)), (JOURNAL, b"\n".join(lines))])
    with pytest.raises(maos.MaosError):
        await bring(there, wrong, folder)
    assert await there.journal.head() == 0


async def test_deep_nesting_is_refused(there: Maos, bundle: bytes, folder: Path) -> None:
    parts = Parts(bundle)
    deep: object = 1
    for _ in range(150):
        deep = [deep]
    parts.line("run_created")["options"]["deep"] = deep
    with pytest.raises(maos.Corrupt, match="nested too deeply"):
        await bring(there, parts.bytes(), folder)


# --- writing ---------------------------------------------------------------------------------------------------------


def test_a_file_is_for_its_owner_and_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "run.maos"
    with whole_file(path) as partial, partial.open("wb") as target:
        target.write(b"all of it")
        assert not path.exists()
    assert path.read_bytes() == b"all of it"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def half() -> None:
        with whole_file(tmp_path / "other.maos") as partial, partial.open("wb") as target:
            target.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    assert os.listdir(tmp_path) == ["run.maos"]


def test_a_run_that_is_too_large_is_not_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(file, "JOURNAL_BYTES_MAX", 100)
    writer = BundleWriter(io.BytesIO())
    writer.part(JOURNAL, bytes(60))
    with pytest.raises(maos.InvalidInput, match="more events than a bundle can hold"):
        writer.part(JOURNAL, bytes(60))
    monkeypatch.setitem(file._CONTENT_MAX, GIT, 10)
    (tmp_path / "pack").write_bytes(bytes(11))
    with pytest.raises(maos.InvalidInput, match="--without-files"):
        writer.file(GIT, b"", tmp_path / "pack")


async def test_a_run_with_more_events_than_fit_is_refused_while_it_is_read(
    here: Maos, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "JOURNAL_BYTES_MAX", 2_000)
    await runs.write(here)
    await here.journal.append("messages/r-1", Event("message_sent", {"text": "x" * 3_000, "at_us": 1}))
    with pytest.raises(maos.InvalidInput, match="`maos admin copy` copies the whole journal"):
        await runs.exported(here)


def test_what_is_no_bundle_is_told_from_one(tmp_path: Path, bundle: bytes) -> None:
    (tmp_path / "yes").write_bytes(bundle)
    (tmp_path / "no").write_bytes(b"SQLite format 3\0")
    os.mkfifo(tmp_path / "pipe")
    assert is_bundle(tmp_path / "yes")
    assert not is_bundle(tmp_path / "no")
    assert not is_bundle(tmp_path / "nothing")
    assert not is_bundle(tmp_path)
