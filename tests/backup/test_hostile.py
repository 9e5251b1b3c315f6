"""Backups from attackers: whatever an object declares or is named, it is refused, or stays plain data; nothing else."""

import asyncio
import hashlib
import os
import pickle
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

import maos
from maos.app import Maos
from maos.backup import segments, service
from maos.backup.archive import Archive
from maos.backup.commits import CommitIndex
from maos.backup.locations import FolderLocation
from maos.errors import Corrupt, MaosError, UnknownFormat
from maos.journal.codec import Event
from tests.backup.records import TYPES, rows


@pytest.fixture
async def m(tmp_path: Path) -> AsyncIterator[Maos]:
    async with maos.open(tmp_path / "maos.db", types=TYPES) as m:
        for number in range(3):
            await m.journal.append("notes/1", Event("note", {"text": f"{number}"}), key=f"{number}")
        await m.backups.ship(str(tmp_path / "backups"))
        yield m


def segment_of(tmp_path: Path) -> Path:
    [found] = (tmp_path / "backups").glob("*/segments/*")
    return found


def sealed(header: dict[str, Any], content: bytes, *, format_: int = segments.FORMAT) -> bytes:
    """A segment with a true seal, whatever its header and its content are."""
    declared = msgspec.json.encode(header)
    whole = segments._HEAD.pack(segments.MAGIC, format_, len(declared)) + declared + content
    return whole + hashlib.sha256(whole).digest()


def header_of(path: Path, **changes: Any) -> dict[str, Any]:
    known = msgspec.to_builtins(segments.read_header("x", path.read_bytes()))
    return {**known, **changes}


async def check_refused(tmp_path: Path, words: str) -> None:
    """Neither verification nor restoration accept the backup, and no file is left."""
    check = await service.verify(str(tmp_path / "backups"))
    assert words in check.damage, check.damage
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises((Corrupt, UnknownFormat)):
        await maos.restore(str(tmp_path / "backups"), tmp_path / "new.db")
    assert sorted(path.name for path in tmp_path.iterdir()) == before


async def test_a_small_object_that_becomes_large_is_refused(m: Maos, tmp_path: Path) -> None:
    """A8: 64 GB from some kilobytes; neither the declared size nor the frame is believed."""
    victim = segment_of(tmp_path)
    bomb = zstandard.ZstdCompressor(level=19).compress(bytes(256 << 20))
    header = header_of(victim)
    victim.write_bytes(sealed({**header, "size": 1 << 36}, bomb))
    await check_refused(tmp_path, "its header is not valid")
    victim.write_bytes(sealed({**header, "size": 1000}, bomb))
    await check_refused(tmp_path, "its content")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"events": 10**9}, "not what it declares"),
        ({"keys": 10**6}, "not what it declares"),
        ({"last": 10**18}, "not what it declares"),
        ({"size": 1}, "its content"),
        ({"store": "../../../../etc/passwd"}, "its header is not valid"),
        ({"store": "0" * 32}, "does not follow"),
        ({"first": 0}, "its header is not valid"),
        ({"follows": "11" * 32}, "does not follow"),
        ({"other": "field"}, "its header is not valid"),
    ],
)
async def test_what_a_segment_declares_is_compared(
    m: Maos, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    """A6, A8, A18: sizes, counts, ranges and the database that it is of."""
    victim = segment_of(tmp_path)
    end = segments._HEAD.size + segments._HEAD.unpack_from(victim.read_bytes())[2]
    content = victim.read_bytes()[end:-32]
    victim.write_bytes(sealed(header_of(victim, **changes), content))
    await check_refused(tmp_path, words)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(pickle.dumps([os.getcwd]), id="pickle"),
        pytest.param(b"\xc7\x03\x01abc", id="extension"),
        pytest.param(msgspec.msgpack.encode([[], [], [], []]), id="one more"),
        pytest.param(msgspec.msgpack.encode([["a"], [[1, 7, 1, 1, "t", 1, 1, 1, b"", bytes(32)]], []]), id="stream"),
        pytest.param(msgspec.msgpack.encode([["a" * 10_000], [], []]), id="name"),
        pytest.param(b"\x93\xdd\xff\xff\xff\xff", id="four billion names"),
    ],
)
async def test_content_of_another_kind_stays_data(m: Maos, tmp_path: Path, content: bytes) -> None:
    """A6: nothing is unpickled or constructed; lengths inside are not believed either."""
    victim = segment_of(tmp_path)
    packed = zstandard.ZstdCompressor().compress(content)
    victim.write_bytes(sealed(header_of(victim, size=len(content)), packed))
    await check_refused(tmp_path, "its content")


async def test_objects_with_odd_names_are_not_looked_at(m: Maos, tmp_path: Path) -> None:
    """A8: names that are paths, links, pipes or of another form have no effect."""
    folder = segment_of(tmp_path).parent
    (tmp_path / "secret").write_text("x")
    for name in ("..0", "00000000000000000002.partial", "A" * 20, "1to2", "9" * 40, "0" * 19 + "é"):
        (folder / name).write_bytes(b"x")
    (folder / "1").mkdir()
    (folder / "1" / f"{1:020d}").write_bytes(b"a small one in the place of a merged one")
    (folder / "1" / f"{1:020d}to").write_bytes(b"x")
    os.mkfifo(folder / "pipe-1")
    (tmp_path / "backups" / "link").symlink_to(tmp_path)
    assert (await service.verify(str(tmp_path / "backups"))).damage == ""
    await maos.restore(str(tmp_path / "backups"), tmp_path / "new.db")
    assert len(await rows(tmp_path / "new.db")) == 3
    with pytest.raises(MaosError):
        await maos.restore(str(tmp_path / "backups"), tmp_path / "none.db", store="../link")


async def test_a_range_in_a_name_that_its_content_has_not_is_refused(m: Maos, tmp_path: Path) -> None:
    """I36, A18: a merged segment that promises more than it has hides nothing."""
    victim = segment_of(tmp_path)
    (victim.parent / "3").mkdir()
    (victim.parent / "3" / f"{1:020d}to{9:020d}").write_bytes(victim.read_bytes())
    await check_refused(tmp_path, "does not follow")


async def test_an_older_head_is_noticed_by_the_writer(m: Maos, tmp_path: Path) -> None:
    """A18: an object store that returns an old head leads to no second history."""
    [head] = (tmp_path / "backups").glob("*/head")
    old = head.read_bytes()
    await m.journal.append("notes/1", Event("note", {"text": "more"}))
    await m.backups.ship(str(tmp_path / "backups"))
    head.write_bytes(old)
    again = await m.backups.ship(str(tmp_path / "backups"))
    assert again.position == 4, "what was there was compared, and counted once more"
    assert (await service.verify(str(tmp_path / "backups"))).events == 4


async def test_a_head_of_another_form_is_refused(m: Maos, tmp_path: Path) -> None:
    """A18."""
    [head] = (tmp_path / "backups").glob("*/head")
    known = msgspec.json.decode(head.read_bytes())
    for content in (b"", b"[]", b"{" * 10_000, msgspec.json.encode({**known, "format": 99}), head.read_bytes()[:-5]):
        head.write_bytes(content)
        with pytest.raises(Corrupt):
            await service.verify(str(tmp_path / "backups"))
        with pytest.raises(Corrupt):
            await m.backups.ship(str(tmp_path / "backups"))


@pytest.mark.parametrize("ref", ["refs/heads/main", "refs/maos/../../heads/x", "refs/maos/a/-x", "HEAD"])
async def test_a_name_of_a_commit_that_is_no_checkpoint_is_refused(m: Maos, tmp_path: Path, ref: str) -> None:
    """A8: an index of commits cannot move a branch of the repository that takes them."""
    store = await m.backups.identity()
    entry = {"sha256": "0" * 64, "bytes": 1, "refs": {ref: "0" * 40}}
    index = {"format": 1, "repository": "/x", "object_format": "sha1", "bundles": [entry]}
    msgspec.convert(index, CommitIndex)
    location = FolderLocation(tmp_path / "backups")
    assert await location.create(f"{store}/commits/{'a' * 32}/index", msgspec.json.encode(index))
    clone = tmp_path / "clone"
    git = await asyncio.create_subprocess_exec("git", "init", "--quiet", str(clone))
    assert await git.wait() == 0
    with pytest.raises(Corrupt, match="cannot name a checkpoint"):
        await maos.restore_files(str(tmp_path / "backups"), into=clone)


async def test_files_are_private_while_they_are_written(
    m: Maos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A21: the restored database, its test and every object are for their owner alone, whatever the umask is."""
    seen: set[int] = set()
    read = Archive.open

    async def look(archive: Archive, piece: Any) -> Any:
        for path in [*tmp_path.rglob("*restoring*"), *Path(temporary).rglob("*")]:
            seen.add(stat.S_IMODE(path.stat().st_mode))
        return await read(archive, piece)

    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setattr(Archive, "open", look)
    before = os.umask(0)
    try:
        await maos.restore(str(tmp_path / "backups"), tmp_path / "new.db")
        await m.backups.test(str(tmp_path / "backups"))
    finally:
        os.umask(before)
    assert seen
    assert seen <= {0o600, 0o700}, [oct(each) for each in seen]
    assert stat.S_IMODE((tmp_path / "new.db").stat().st_mode) == 0o600
    assert list(temporary.iterdir()) == []
