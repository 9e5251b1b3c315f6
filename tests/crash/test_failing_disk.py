"""A disk that fails: nothing is acknowledged without its bytes, and work goes on by itself (I9, I10)."""

import asyncio
import itertools
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest

from maos.errors import DiskFull, InvalidInput, MaosError, StoreUnavailable
from maos.store import sqlite
from maos.store.contract import Document, Store, Write
from maos.store.sql_store import SqlStore
from maos_testing.power_cut import Disk, DiskFault, nothing
from tests.crash.promises import Found, Step, compaction, damage, error_of, events, everything, key
from tests.crash.stores import Place, copy_files, house_keeping

# Of several failures within one call of SQLite all but the last end there: see maos_testing.power_cut.Fault.
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in. None:pytest.PytestUnraisableExceptionWarning")

ERRORS = {
    "full": (apsw.SQLITE_FULL, ("write",)),
    "write": (apsw.SQLITE_IOERR_WRITE, ("write", "truncate")),
    "sync": (apsw.SQLITE_IOERR_FSYNC, ("sync",)),
    "committed": (apsw.SQLITE_IOERR, ("committed",)),
}
LIVES_MAX = 300


class Told(NamedTuple):
    """What became of an append, as its caller was told."""

    step: Step
    position: int = 0
    versions: tuple[int, ...] = ()
    error: MaosError | None = None


def steps(name: str, count: int) -> list[Step]:
    """Appends of one and of several pages, without a key, so that a second writing would show."""
    return [
        Step(
            (Write(f"run/{number % 2}", events(f"{name} {number}", 1 + number % 2, 5_000 if number == 1 else 40)),),
            documents=(Document("view", f"{number}", 1, b"seen"),) if number % 2 else (),
        )
        for number in range(count)
    ]


async def tell(store: Store, step: Step) -> Told:
    """Make an append; errors that are not ours are the test's."""
    try:
        reply = await step.take(store)
    except MaosError as error:
        return Told(step, error=error)
    return Told(step, reply.position, reply.versions)


async def alone(store: Store) -> list[Told]:
    """One append after the other: committed at once, on the caller's thread."""
    return [await tell(store, step) for step in steps("alone", 4)]


async def grouped(store: Store) -> list[Told]:
    """Appends at the same time: committed in groups, by the writer's thread."""
    told: list[Told] = []
    for part in range(2):
        told += await asyncio.gather(*(tell(store, step) for step in steps(f"grouped {part}", 5)))
    return told


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small journal that nobody has open."""
    folder = tmp_path_factory.mktemp("template")

    async def fill() -> None:
        async with Place(str(folder)).open() as store:
            for step in steps("before", 3):
                await step.take(store)

    asyncio.run(fill())
    return folder


@asynccontextmanager
async def failing(template: Path, folder: Path, fault: DiskFault) -> AsyncIterator[tuple[Place, Disk, SqlStore]]:
    """A store on a disk that fails from now on."""
    shutil.rmtree(folder, ignore_errors=True)
    place = copy_files(template, folder)
    disk = Disk()
    async with place.open(vfs=disk.name) as store:
        disk.fault = fault
        yield place, disk, store


async def told_the_truth(place: Place, told: list[Told], note: str) -> None:
    """Reopened: what was acknowledged is there, what was said not to be written is not, the rest is whole or absent."""
    async with place.open() as store:
        assert await damage(store) == [], note
        found = Found(await everything(store))
        for step, position, versions, error in told:
            there = found.has(step)
            if error is None:
                assert there, note
                found.keeps(step, position, versions)
            else:
                assert isinstance(error, StoreUnavailable), note
                assert not (there and error.written is False), f"{note}: it was written, but {error!r}"


@pytest.mark.parametrize("forever", [False, True], ids=["once", "forever"])
@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("work", [alone, grouped])
async def test_the_nth_operation_fails(
    work: Callable[[Store], Awaitable[list[Told]]], kind: str, forever: bool, template: Path, tmp_path: Path
) -> None:
    code, on = ERRORS[kind]
    for at in itertools.count(1):
        assert at < LIVES_MAX
        fault = DiskFault(code, at=at, on=on, forever=forever)
        note = f"{kind} at operation {at}"
        async with failing(template, tmp_path / "live", fault) as (place, disk, store):
            before = await everything(store)
            told = await work(store)
            errors = [each.error for each in told if each.error is not None]
            check_errors(kind, forever, errors, note)
            # Reads go on, whatever the disk does.
            found = Found(await everything(store))
            assert list(found.log[: len(before)]) == before
            for step, position, versions, error in told:
                if error is None:
                    found.keeps(step, position, versions)
            # What was acknowledged is on the disk, although a sync that failed lost what it should have synced.
            left = tmp_path / "left"
            shutil.rmtree(left, ignore_errors=True)
            left.mkdir()
            disk.cut_power(left, nothing)
            shutil.copyfile(place.mark, left / place.mark.name)
            await told_the_truth(Place(str(left)), told, f"{note}, then a power cut")
            # The next append needs nobody's help.
            disk.fault = None
            last = await tell(store, Step((Write("run/0", events("after")),)))
            assert last.error is None, note
        await told_the_truth(place, [*told, last], note)
        if not fault.hits:
            assert not errors
            assert at > 2
            return


def check_errors(kind: str, forever: bool, errors: list[MaosError], note: str) -> None:
    """A fault that passes is not told at all where the writer can repeat; one that stays is told as what it is."""
    for error in errors:
        assert error.hint, note
        if kind == "full":
            assert isinstance(error, DiskFull), note
            assert error.written is False, note
        else:
            assert not isinstance(error, DiskFull), note
            assert isinstance(error, StoreUnavailable), note
    if kind != "full" and not forever:
        assert errors == [], note
    if kind == "committed":
        assert errors == [], note


async def test_an_append_that_was_written_although_it_failed_is_there_once(template: Path, tmp_path: Path) -> None:
    """I3, I9: the writer looks before it repeats, without a key."""
    fault = DiskFault(apsw.SQLITE_IOERR, on=("committed",), forever=True)
    async with failing(template, tmp_path / "live", fault) as (place, _disk, store):
        told = await alone(store) + await grouped(store)
        assert [each.error for each in told] == [None] * len(told)
        assert fault.hits > 1
    await told_the_truth(place, told, "committed")


async def test_what_is_unknown_stays_unknown_until_it_is_looked_up(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that was written although it failed, and then a disk that is full, locked or gone when it is looked up.

    Whatever stops the looking, the append must neither be called unwritten nor be written again.
    """
    for error in (apsw.FullError("x"), apsw.BusyError("x"), apsw.IOError("x")):
        for place_of_failure in ("recover", "was_written"):
            fault = DiskFault(apsw.SQLITE_IOERR, on=("committed",))
            async with failing(template, tmp_path / "live", fault) as (place, _disk, store):
                with monkeypatch.context() as patch:
                    fail_twice(patch, place_of_failure, error)
                    told = [await tell(store, steps("unknown", 1)[0])]
                    told_error = told[0].error
                    assert isinstance(told_error, StoreUnavailable)
                    assert told_error.written is None, f"{error!r} in {place_of_failure}: {told_error!r}"
                last = await tell(store, steps("next", 1)[0])
                assert last.error is None
            await told_the_truth(place, [*told, last], f"{error!r} in {place_of_failure}")


async def test_looking_up_may_fail_and_succeed_the_second_time(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place_of_failure in ("recover", "was_written"):
        fault = DiskFault(apsw.SQLITE_IOERR, on=("committed",))
        async with failing(template, tmp_path / "live", fault) as (place, _disk, store):
            with monkeypatch.context() as patch:
                fail_twice(patch, place_of_failure, apsw.IOError("x"), times=1)
                told = [await tell(store, step) for step in steps("unknown", 2)]
        await told_the_truth(place, told, place_of_failure)


def fail_twice(patch: pytest.MonkeyPatch, method: str, error: apsw.Error, times: int = 2) -> None:
    """Let a method of the database fail before it does anything, as it would translate that error."""
    real = getattr(sqlite.SqliteDatabase, method)
    count = itertools.count(1)

    async def failing_first(self: sqlite.SqliteDatabase, *arguments: object) -> object:
        if next(count) <= times:
            raise sqlite.translate(error, self.place)
        return await real(self, *arguments)

    patch.setattr(sqlite.SqliteDatabase, method, failing_first)


async def test_what_happens_after_a_commit_cannot_undo_it(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file descriptors left to ring the bell or to write the mark with: the append is there once, and told."""
    place = copy_files(template, tmp_path / "live")
    async with place.open() as store:
        bell = place.path.with_name("maos.db-wake")
        bell.mkdir()

        def no_more_files(*_arguments: object, **_options: object) -> None:
            raise OSError(24, "Too many open files")

        with monkeypatch.context() as patch:
            patch.setattr("maos.store.sqlite_file.os.listdir", no_more_files)
            patch.setattr("maos.store.database.os.open", no_more_files)
            patch.setattr("maos.store.database.os.pwrite", no_more_files)
            told = await alone(store) + await grouped(store)
        assert [each.error for each in told] == [None] * len(told)
        assert any("Too many open files" in note for note in (await store.check()).notes)
    await told_the_truth(place, told, "after a commit")


async def test_an_append_refused_half_way_leaves_nothing_behind(template: Path, tmp_path: Path) -> None:
    """A compaction that turns out to be impossible when its event is written: no event, no key, and no lock."""
    place = copy_files(template, tmp_path / "live")
    async with place.open() as store:
        await compaction("run/0", 1, 2, "possible").take(store)
        before = await everything(store)
        for at_once in (1, 3):
            refused = [compaction("run/0", 2, 3, f"impossible {at_once} {number}") for number in range(at_once)]
            fine = Step((Write("run/1", events(f"fine {at_once}")),))
            told = await asyncio.gather(tell(store, fine), *(tell(store, step) for step in refused))
            assert [type(each.error) for each in told] == [type(None)] + [InvalidInput] * at_once
            other = apsw.Connection(str(place.path))  # does not wait
            other.execute("BEGIN IMMEDIATE")
            other.execute("ROLLBACK")
            other.close()
        assert [event for event in await everything(store) if event.stream == "run/0"] == [
            event for event in before if event.stream == "run/0"
        ]
        alone_again = await error_of(compaction("run/0", 2, 3, "impossible").take(store))
        assert isinstance(alone_again, InvalidInput)
        other = apsw.Connection(str(place.path))
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
        other.close()
        assert await damage(store) == []


@pytest.mark.parametrize("kind", ["full", "write", "sync"])
async def test_a_copy_of_the_log_into_the_database_may_fail(
    kind: str, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """House-keeping fails, appends go on, and what was acknowledged survives a power cut all the same."""
    monkeypatch.setattr(sqlite, "WAL_PAGES_MAX", 12)
    monkeypatch.setattr(sqlite, "WAL_PAGES_PREALLOCATED", 1)
    monkeypatch.setattr(sqlite, "WAL_PREALLOCATED_PAGES", (1,))
    code, on = ERRORS[kind]
    hits = 0
    for at, forever in itertools.product(range(1, 8), (False, True)):
        fault = DiskFault(code, at=at, on=on, file="maos.db", forever=forever)
        async with failing(template, tmp_path / "live", fault) as (place, disk, store):
            told = []
            for part in range(6):
                told += [await tell(store, step) for step in steps(f"part {part}", 4)]
                await house_keeping(store)
            assert [each.error for each in told] == [None] * len(told)
            left = tmp_path / "left"
            shutil.rmtree(left, ignore_errors=True)
            left.mkdir()
            disk.cut_power(left, nothing)
            shutil.copyfile(place.mark, left / place.mark.name)
            await told_the_truth(Place(str(left)), told, f"{kind} {at}")
            disk.fault = None
        hits += fault.hits
        await told_the_truth(place, told, f"{kind} {at}")
    assert hits > 10


@pytest.mark.parametrize("kind", ["full", "write", "sync"])
async def test_a_lease_that_could_not_be_written(kind: str, template: Path, tmp_path: Path) -> None:
    """Told as an error; afterwards appends and leases work."""
    code, on = ERRORS[kind]
    for at in range(1, 8):
        fault = DiskFault(code, at=at, on=on, forever=True)
        async with failing(template, tmp_path / "live", fault) as (place, disk, store):
            error = await error_of(store.acquire("agent/a", owner="me", ttl_s=60))
            assert error is None or isinstance(error, DiskFull if kind == "full" else StoreUnavailable)
            assert error is None or error.hint
            disk.fault = None
            lease = await store.acquire("agent/b", owner="me", ttl_s=60)
            assert lease is not None
            reply = await store.append(Write("agent/a", events("under")), under=lease)
            told = [Told(Step((Write("agent/a", events("under")),)), reply.position, reply.versions)]
            left = tmp_path / "left"
            shutil.rmtree(left, ignore_errors=True)
            left.mkdir()
            disk.cut_power(left, nothing)
            await told_the_truth(Place(str(left)), told, f"{kind} {at}")
        await told_the_truth(place, told, f"{kind} {at}")


@pytest.mark.parametrize("kind", ["full", "write", "sync"])
async def test_a_copy_that_could_not_be_written_leaves_nothing(kind: str, template: Path, tmp_path: Path) -> None:
    """I10, I34: no half copy, and no space taken by one."""
    code, on = ERRORS[kind]
    fault = DiskFault(code, at=2, on=on, file="copy.partial", forever=True)
    async with failing(template, tmp_path / "live", fault) as (place, disk, store):
        copy = Path(place.folder) / "copy"
        if kind == "sync":
            disk.fault = None
            await store.copy_to(copy)  # SQLite does not sync a copy; we do, with no VFS in between
            return
        with pytest.raises(DiskFull if kind == "full" else StoreUnavailable) as caught:
            await store.copy_to(copy)
        assert caught.value.hint
        assert [file.name for file in Path(place.folder).iterdir() if "copy" in file.name] == []
        disk.fault = None
        assert await store.copy_to(copy) == await store.head()


@pytest.mark.parametrize("kind", ["full", "write", "sync"])
async def test_a_database_that_could_not_be_made_can_be_made_later(kind: str, tmp_path: Path) -> None:
    code, on = ERRORS[kind]
    for at in itertools.count(1):
        folder = tmp_path / str(at)
        folder.mkdir()
        place = Place(str(folder))
        disk = Disk()
        disk.fault = DiskFault(code, at=at, on=on, forever=True)
        error = await place.refusal(vfs=disk.name)
        if not disk.fault.hits:
            assert error is None
            break
        if error is not None:  # else it failed only when it was closed
            assert isinstance(error, DiskFull if kind == "full" else StoreUnavailable), f"{kind} {at}: {error!r}"
            assert error.hint
        disk.fault = None
        async with place.open(vfs=disk.name) as store:
            await store.append(Write("run/1", events("later")), key=key("later"))
        async with place.open() as store:
            assert await damage(store) == []
            assert await store.head() == 1
    assert at > 2
