"""Files: nobody else may read them, their names are synced, what is not ours is left as it is (I2)."""

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import asyncpg
import pytest

from maos.errors import Corrupt, MaosError, StoreUnavailable, UnknownFormat
from maos.store import sqlite
from maos.store.contract import Write
from tests.crash.levels import NEXT, SHIPPED, level_of, two_levels
from tests.crash.promises import damage, error_of, events, everything
from tests.crash.stores import Place

NOBODY = 65534


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


async def test_nobody_else_may_read_anything(tmp_path: Path) -> None:
    """Whatever the umask: the database, its log, the mark, copies and the bell."""
    place = Place(str(tmp_path))
    with umask(0):
        async with place.open() as store:
            await store.append(Write("run/1", events("secret")))
            await store.wait(after=99, timeout_s=0)
            await store.copy_to(tmp_path / "copy")
            modes = {path.relative_to(tmp_path): path.stat().st_mode for path in tmp_path.rglob("*")}
        async with place._replace(levels=str(two_levels(tmp_path / "schema"))).open():
            pass
    assert len(modes) == 7, modes
    for path, mode in modes.items():
        assert stat.S_IMODE(mode) == (0o700 if stat.S_ISDIR(mode) else 0o600), path
    assert stat.S_IMODE((tmp_path / f"maos.db.level-{SHIPPED}.bak").stat().st_mode) == 0o600


class Calls:
    """Syncs and renames, in order."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[str, str]] = []
        fsync, rename = os.fsync, Path.rename

        def recorded_fsync(descriptor: int) -> None:
            self.made.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
            fsync(descriptor)

        def recorded_rename(path: Path, target: Path) -> Path:
            self.made.append(("rename", str(target)))
            return rename(path, target)

        patch.setattr(os, "fsync", recorded_fsync)
        patch.setattr(Path, "rename", recorded_rename)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names of open files are read from /proc")
async def test_new_names_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I2: a new file is safe when its folder is; a copy is safe before it has its name, and its name after."""
    place = Place(str(tmp_path))
    calls = Calls(monkeypatch)
    async with place.open() as store:
        assert calls.made == [("sync", str(tmp_path))]  # before anything can be acknowledged
        calls.made.clear()
        await store.append(Write("run/1", events("first")))
        copy = tmp_path / "copy"
        await store.copy_to(copy)
        assert calls.made == [("sync", f"{copy}.partial"), ("rename", str(copy)), ("sync", str(tmp_path))]
    calls.made.clear()
    async with place.open():
        assert calls.made == []  # nothing new


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names of open files are read from /proc")
async def test_the_name_of_a_copy_of_a_server_is_synced(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Place(str(tmp_path), postgres_url).open() as store:
        await store.append(Write("run/1", events("first")))
        calls = Calls(monkeypatch)
        copy = tmp_path / "copy"
        await store.copy_to(copy)
        assert calls.made == [("sync", f"{copy}.partial"), ("rename", str(copy)), ("sync", str(tmp_path))]
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600


# --- what is refused ----------------------------------------------------------------------------------------------


def text(path: Path) -> None:
    path.write_text("This is not a database, only a text that is long enough to be taken for one. " * 20)


def short_text(path: Path) -> None:
    path.write_text("note")


def noise(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 20)


def foreign(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE recipes (name)")
    connection.close()


def foreign_with_a_level(path: Path) -> None:
    foreign(path)
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version = 1")
    connection.close()


def folder(path: Path) -> None:
    path.mkdir()


REFUSED: dict[Callable[[Path], None], type[MaosError]] = {
    text: Corrupt,
    short_text: Corrupt,
    noise: Corrupt,
    foreign: UnknownFormat,
    foreign_with_a_level: UnknownFormat,
    folder: StoreUnavailable,
}


@pytest.mark.parametrize("make", REFUSED, ids=lambda make: make.__name__)
async def test_what_is_not_a_journal_is_refused_and_left_as_it_is(make: Callable[[Path], None], tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    make(place.path)
    before = content(tmp_path)
    with pytest.raises(REFUSED[make]) as caught:
        async with place.open():
            pass
    assert caught.value.hint
    assert str(place.path) in caught.value.what
    assert content(tmp_path) == before


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


async def test_an_empty_file_becomes_a_journal(tmp_path: Path) -> None:
    """Whoever made it died before the first byte; there is nothing in it to lose."""
    place = Place(str(tmp_path))
    place.path.touch(0o600)
    async with place.open() as store:
        await store.append(Write("run/1", events("first")))
    async with place.open() as store:
        assert await damage(store) == []


async def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="No such file or directory") as caught:
        async with Place(str(tmp_path / "nowhere")).open():
            pass
    assert "folder" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


async def test_a_copy_into_a_missing_folder_is_told(tmp_path: Path) -> None:
    async with Place(str(tmp_path)).open() as store:
        await store.append(Write("run/1", events("first")))
        with pytest.raises(MaosError) as caught:
            await store.copy_to(tmp_path / "nowhere" / "copy")
        assert caught.value.hint


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_newer_level_is_refused_and_left_as_it_is(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else ""
    place = Place(str(tmp_path / "live"), url)
    Path(place.folder).mkdir()
    newer = place._replace(levels=str(two_levels(tmp_path)))
    async with newer.open() as store:
        await store.append(Write("run/1", events("from the future")))
        log = await everything(store)
    before = content(Path(place.folder))
    with pytest.raises(UnknownFormat, match=f"level {NEXT}, this maos knows levels up to {SHIPPED}") as caught:
        async with place.open():
            pass
    assert "upgrade maos" in caught.value.hint
    assert content(Path(place.folder)) == before
    assert await level_of(place) == NEXT
    async with newer.open() as store:
        assert await everything(store) == log


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that any user may walk into; the one of pytest is private."""
    with tempfile.TemporaryDirectory(prefix="maos-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


@contextmanager
def without_rights() -> Iterator[None]:
    """As a user who owns nothing here: root may write whatever the mode says."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("writable_folder", [True, False])
async def test_a_file_that_may_not_be_written(writable_folder: bool, shared_folder: Path) -> None:
    """It may be read where SQLite can, an append says what is wrong, and the file stays as it is."""
    place = Place(str(shared_folder))
    async with place.open() as store:
        await store.append(Write("run/1", events("first")))
        log = await everything(store)
    before = place.path.read_bytes()
    place.path.chmod(0o444)
    shared_folder.chmod(0o777 if writable_folder else 0o555)
    with without_rights():
        error = await place.refusal()
        if error is None:
            async with place.open() as store:
                assert await everything(store) == log
                error = await error_of(store.append(Write("run/1", events("second"))))
    assert isinstance(error, StoreUnavailable)
    assert error.written is False
    assert "is writable" in error.hint
    shared_folder.chmod(0o755)
    assert place.path.read_bytes() == before
    for file in shared_folder.glob("maos.db*"):  # SQLite gave the mode of the database to what it made beside it
        file.chmod(0o600)
    async with place.open() as store:
        assert await everything(store) == log
        await store.append(Write("run/1", events("second")))


async def test_a_folder_that_may_not_be_written(shared_folder: Path) -> None:
    shared_folder.chmod(0o555)
    with without_rights(), pytest.raises(StoreUnavailable, match="Permission denied") as caught:
        async with Place(str(shared_folder)).open():
            pass
    assert "folder" in caught.value.hint


async def test_a_lock_that_is_never_released_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads go on meanwhile, and appends afterwards."""
    monkeypatch.setattr(sqlite, "BUSY_MS_MAX", 100)
    place = Place(str(tmp_path))
    async with place.open() as store:
        await store.append(Write("run/1", events("first")))
        other = apsw.Connection(str(place.path))
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="another process") as caught:
            await store.append(Write("run/1", events("second")))
        assert caught.value.written is False
        assert caught.value.hint
        assert len(await store.read("run/1")) == 1
        other.execute("ROLLBACK")
        other.close()
        await store.append(Write("run/1", events("third")))
        assert [event.version for event in await store.read("run/1")] == [1, 2]


async def test_a_server_that_does_not_sync_is_refused(tmp_path: Path, postgres_url: str) -> None:
    """With fsync off nothing it acknowledges is safe; it must not look as if it were (I2)."""
    administrator = await asyncpg.connect(postgres_url)
    try:
        await administrator.execute("ALTER SYSTEM SET fsync = off")
        await administrator.execute("SELECT pg_reload_conf()")
        while await administrator.fetchval("SHOW fsync") == "on":
            pass
        with pytest.raises(StoreUnavailable, match="fsync off") as caught:
            async with Place(str(tmp_path), postgres_url).open():
                pass
        assert "fsync = on" in caught.value.hint
    finally:
        await administrator.execute("ALTER SYSTEM RESET fsync")
        await administrator.execute("SELECT pg_reload_conf()")
        while await administrator.fetchval("SHOW fsync") != "on":
            pass
        await administrator.close()
