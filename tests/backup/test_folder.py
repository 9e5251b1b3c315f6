"""A backup in a folder: everything that is recorded comes back, event by event, and nothing that is damaged does."""

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

import maos
from maos.app import Maos
from maos.backup import segments, service
from maos.backup.archive import Archive, choose
from maos.backup.locations import FolderLocation, open_location
from maos.errors import Conflict, Corrupt, HistoryLost, InvalidInput, KeyReused, NotFound
from maos.journal.codec import Event
from maos.journal.journal import Append
from maos.settings.loader import Current
from tests.backup.records import TYPES, rows


@pytest.fixture
async def m(tmp_path: Path) -> AsyncIterator[Maos]:
    async with maos.open(tmp_path / "maos.db", types=TYPES) as m:
        yield m


async def fill(m: Maos, events: int = 20) -> None:
    for number in range(events):
        stream = f"notes/{number % 3}"
        await m.journal.append(stream, Event("note", {"text": f"{number} " * 50}), key=f"note-{number}")


async def test_everything_comes_back_as_it_was_recorded(m: Maos, tmp_path: Path) -> None:
    await fill(m)
    head = await m.backups.ship(str(tmp_path / "backups"))
    assert head.position == head.events == await m.journal.head()
    await fill_state(m)
    await m.backups.ship(str(tmp_path / "backups"))
    done = await maos.restore(str(tmp_path / "backups"), tmp_path / "new.db")
    assert await rows(tmp_path / "new.db") == await rows(tmp_path / "maos.db")
    assert done.position == await m.journal.head()
    assert not list(tmp_path.glob("*restoring*"))


async def fill_state(m: Maos) -> None:
    await m.state.create("reviewer", {"status": "idle"})
    for number in range(10):
        await m.state.update("reviewer", {"status": f"busy {number}"})


async def test_a_restored_database_is_used_after_a_person_agreed(m: Maos, tmp_path: Path) -> None:
    await fill(m, 3)
    await m.backups.ship(str(tmp_path / "backups"))
    await maos.restore(str(tmp_path / "backups"), tmp_path / "new.db")
    async with maos.open(tmp_path / "new.db", types=TYPES) as new:
        with pytest.raises(maos.UntrustedStore):
            await new.journal.append("notes/0", Event("note", {"text": "more"}))
        await new.trust()
        await new.journal.append("notes/0", Event("note", {"text": "more"}))


async def test_a_key_that_was_used_before_adds_nothing_after_a_restoration(m: Maos, tmp_path: Path) -> None:
    await fill(m, 5)
    await m.backups.ship(str(tmp_path / "backups"))
    await maos.restore(str(tmp_path / "backups"), tmp_path / "new.db")
    async with maos.open(tmp_path / "new.db", types=TYPES) as new:
        await new.trust()
        reply = await new.journal.append("notes/0", Event("note", {"text": "0 " * 50}), key="note-0")
        assert reply.repeated
        with pytest.raises(KeyReused):
            await new.journal.append("notes/0", Event("note", {"text": "else"}), key="note-0")


async def test_leases_have_larger_tokens_than_every_restored_event(m: Maos, tmp_path: Path) -> None:
    for _ in range(4):
        lease = await m.journal.acquire("notes/0")
        assert lease is not None
        await m.journal.append("notes/1", Event("note", {"text": "x"}), under=lease)
        await m.journal.release(lease)
    await m.backups.ship(str(tmp_path / "backups"))
    await maos.restore(str(tmp_path / "backups"), tmp_path / "new.db")
    async with maos.open(tmp_path / "new.db", types=TYPES) as new:
        await new.trust()
        lease = await new.journal.acquire("another name")
        assert lease is not None
        assert lease.token > 4
        await new.journal.append("notes/1", Event("note", {"text": "x"}), under=lease)
        assert (await new.verify()).ok


async def test_to_a_position_no_commit_is_divided(m: Maos, tmp_path: Path) -> None:
    for number in range(5):
        both = [Append(f"notes/{each}", [Event("note", {"text": f"{number}"})]) for each in range(2)]
        await m.journal.append_all(both)
        await asyncio.sleep(0.002)
    await m.backups.ship(str(tmp_path / "backups"))
    for position, expected in ((1, 0), (2, 2), (5, 4), (10, 10), (99, 10)):
        target = tmp_path / f"to-{position}.db"
        if not expected:
            with pytest.raises(InvalidInput, match="no events up to then"):
                await maos.restore(str(tmp_path / "backups"), target, position=position)
            assert not target.exists()
            continue
        done = await maos.restore(str(tmp_path / "backups"), target, position=position)
        assert (done.position, len(await rows(target))) == (expected, expected)


async def test_to_a_time(m: Maos, tmp_path: Path) -> None:
    await fill(m, 10)
    await m.backups.ship(str(tmp_path / "backups"))
    recorded = await rows(tmp_path / "maos.db")
    at = recorded[6].time_us
    await maos.restore(str(tmp_path / "backups"), tmp_path / "new.db", time_us=at)
    assert await rows(tmp_path / "new.db") == [each for each in recorded if each.time_us <= at]


async def test_history_that_is_compacted_later_is_still_in_the_backup(m: Maos, tmp_path: Path) -> None:
    await fill_state(m)
    before = await rows(tmp_path / "maos.db")
    await m.backups.ship(str(tmp_path / "backups"))
    await m.state.compact("reviewer", keep_last=2)
    await m.backups.ship(str(tmp_path / "backups"))
    await maos.restore(str(tmp_path / "backups"), tmp_path / "new.db")
    assert (await rows(tmp_path / "new.db"))[: len(before)] == before
    async with maos.open(tmp_path / "new.db") as new:
        assert (await new.state.get("reviewer")).to_dict() == (await m.state.get("reviewer")).to_dict()


async def test_what_is_appended_without_pause_is_shipped_without_gaps(m: Maos, tmp_path: Path) -> None:
    following = asyncio.create_task(m.backups.follow(str(tmp_path / "backups"), every_s=0.01))
    await asyncio.gather(*(fill_stream(m, f"notes/{number}", 60) for number in range(4)))
    while (await m.backups.status(str(tmp_path / "backups"))).missing:
        await asyncio.sleep(0.02)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await maos.restore(str(tmp_path / "backups"), tmp_path / "new.db")
    assert await rows(tmp_path / "new.db") == await rows(tmp_path / "maos.db")


async def fill_stream(m: Maos, stream: str, events: int) -> None:
    for number in range(events):
        await m.journal.append(stream, Event("note", {"text": f"{number}"}))


async def test_one_process_ships_at_a_time(m: Maos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maos.backup.shipper.LEASE_S", 1.0)
    await fill(m, 2)
    following = asyncio.create_task(m.backups.follow(str(tmp_path / "backups"), every_s=0.01))
    while (await m.backups.status(str(tmp_path / "backups"))).head is None:
        await asyncio.sleep(0.01)
    with pytest.raises(Conflict, match="another process backs"):
        await m.backups.ship(str(tmp_path / "backups"))
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await m.backups.ship(str(tmp_path / "backups"))


async def test_a_writer_that_is_behind_is_refused_by_the_head(m: Maos, tmp_path: Path) -> None:
    await fill(m, 2)
    location = open_location(str(tmp_path / "backups"))
    await m.backups.ship(location.name)
    stale = Archive(location, await m.journal.store.identity())
    head = await stale.head()
    assert head is not None
    await fill_state(m)
    await m.backups.ship(location.name)
    with pytest.raises(Conflict, match="another process writes"):
        await stale.advance(head)


async def test_a_copy_that_went_its_own_way_is_refused(m: Maos, tmp_path: Path) -> None:
    await fill(m, 4)
    await m.copy_to(tmp_path / "copy.db")
    await m.backups.ship(str(tmp_path / "backups"))
    async with maos.open(tmp_path / "copy.db", types=TYPES) as copy:
        await fill_stream(copy, "notes/9", 3)
        await m.journal.append("notes/8", Event("note", {"text": "x"}))
        await m.backups.ship(str(tmp_path / "backups"))
        with pytest.raises(Conflict, match="has other events"):
            await copy.backups.ship(str(tmp_path / "backups"))


async def test_a_database_that_lost_its_end_is_noticed(m: Maos, tmp_path: Path) -> None:
    await fill(m, 4)
    await m.copy_to(tmp_path / "older.db")
    await fill_stream(m, "notes/1", 3)
    await m.backups.ship(str(tmp_path / "backups"))
    async with maos.open(tmp_path / "older.db", types=TYPES) as older:
        with pytest.raises(HistoryLost, match="its backup has later events"):
            await older.backups.ship(str(tmp_path / "backups"))


@pytest.mark.parametrize("seed", range(20))
async def test_a_flipped_bit_is_named_and_nothing_is_restored(m: Maos, tmp_path: Path, seed: int) -> None:
    await fill(m, 6)
    await m.backups.ship(str(tmp_path / "backups"))
    await fill_stream(m, "notes/1", 6)
    await m.backups.ship(str(tmp_path / "backups"))
    chance = random.Random(seed)
    victim = chance.choice(sorted((tmp_path / "backups").glob("*/segments/*")))
    content = bytearray(victim.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    victim.write_bytes(content)
    check = await service.verify(str(tmp_path / "backups"))
    assert victim.name in check.damage
    assert check.intact == (0 if int(victim.name) == 1 else int(victim.name) - 1)
    with pytest.raises((Corrupt, maos.UnknownFormat)):
        await maos.restore(str(tmp_path / "backups"), tmp_path / "new.db")
    assert not list(tmp_path.glob("new.db*"))


async def test_a_missing_or_foreign_segment_is_named(m: Maos, tmp_path: Path) -> None:
    """A18."""
    await fill(m, 3)
    await m.backups.ship(str(tmp_path / "backups"))
    [victim] = (tmp_path / "backups").glob("*/segments/*")
    whole = victim.read_bytes()
    victim.unlink()
    assert "is missing" in (await service.verify(str(tmp_path / "backups"))).damage
    segment = segments.read("x", whole)
    victim.write_bytes(segments.seal("0" * 32, bytes(32), 1, segment.events, segment.keys))
    assert "does not follow" in (await service.verify(str(tmp_path / "backups"))).damage
    changed = [each._replace(body=b'{"text": "changed"}') for each in segment.events]
    victim.write_bytes(segments.seal(segment.header.store, bytes(32), 1, changed, segment.keys))
    assert "does not match its hash" in (await service.verify(str(tmp_path / "backups"))).damage


async def test_a_backup_is_restored_for_a_test_and_the_result_is_recorded(m: Maos, tmp_path: Path) -> None:
    """R-701."""
    await fill(m, 5)
    where = str(tmp_path / "backups")
    await m.backups.ship(where)
    assert (await m.backups.status(where)).tested is None
    tested = await m.backups.test(where)
    assert (tested.problem, tested.position, tested.events) == ("", 5, 5)
    assert (await m.backups.status(where)).tested == tested
    [victim] = (tmp_path / "backups").glob("*/segments/*")
    victim.write_bytes(victim.read_bytes()[:-1])
    broken = await m.backups.test(where)
    assert "does not match its seal" in broken.problem
    assert (await m.backups.status(where)).tested == broken


async def test_a_server_keeps_the_backup_of_the_settings_and_tests_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-701: nobody has to think of it; a backup that cannot be restored is a problem that is shown."""
    monkeypatch.setattr(service, "LOOK_S", 0.05)
    where = str(tmp_path / "backups")
    given = {"MAOS_BACKUP_TO": where, "MAOS_BACKUP_EVERY_S": "0.05", "MAOS_BACKUP_TEST_HOURS": "0.00003"}
    settings = partial(Current, environment=given)
    async with maos.open(tmp_path / "maos.db", types=TYPES, settings=settings) as m, m.supervisor.announced(""):
        await fill(m, 5)
        while (await m.backups.status(where)).tested is None:
            await asyncio.sleep(0.02)
        assert m.supervisor.problems == {}
        for path in (tmp_path / "backups").glob("*/segments/*"):
            path.write_bytes(b"damaged")
        while "test of the backup" not in m.supervisor.problems:
            await asyncio.sleep(0.02)
        assert "does not begin as a segment does" in m.supervisor.problems["test of the backup"].what


async def test_an_existing_database_is_not_replaced(m: Maos, tmp_path: Path) -> None:
    await fill(m, 1)
    await m.backups.ship(str(tmp_path / "backups"))
    with pytest.raises(InvalidInput, match="exists"):
        await maos.restore(str(tmp_path / "backups"), tmp_path / "maos.db")
    with pytest.raises(NotFound, match="there is no backup at"):
        await maos.restore(str(tmp_path / "nothing"), tmp_path / "new.db")


async def test_of_several_databases_one_is_chosen(m: Maos, tmp_path: Path) -> None:
    await fill(m, 1)
    await m.backups.ship(str(tmp_path / "backups"))
    async with maos.open(tmp_path / "other.db", types=TYPES) as other:
        await fill(other, 2)
        head = await other.backups.ship(str(tmp_path / "backups"))
    with pytest.raises(NotFound, match="has several backups"):
        await choose(open_location(str(tmp_path / "backups")))
    done = await maos.restore(str(tmp_path / "backups"), tmp_path / "new.db", store=head.store[:6])
    assert done.store == head.store
    assert {each.store for each in await service.find(str(tmp_path / "backups"))} == {
        head.store,
        await m.journal.store.identity(),
    }


async def test_objects_are_for_their_owner_alone_and_links_are_not_followed(m: Maos, tmp_path: Path) -> None:
    await fill(m, 1)
    await m.backups.ship(str(tmp_path / "backups"))
    found = list((tmp_path / "backups").rglob("*"))
    assert {path.stat().st_mode & 0o777 for path in found if path.is_file()} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in found if path.is_dir()} == {0o700}
    (tmp_path / "secret").write_text("x")
    location = FolderLocation(tmp_path / "backups")
    (tmp_path / "backups" / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(maos.StoreUnavailable, match="not a regular file"):
        await location.read("link")
    with pytest.raises(InvalidInput, match="cannot name"):
        await location.read("../secret")


def test_plain_sqlite_reads_what_was_restored(tmp_path: Path) -> None:
    async def prepare() -> None:
        async with maos.open(tmp_path / "maos.db", types=TYPES) as m:
            await fill(m, 3)
            await m.backups.ship(str(tmp_path / "backups"))
        await maos.restore(str(tmp_path / "backups"), tmp_path / "new.db")

    asyncio.run(prepare())
    connection = sqlite3.connect(tmp_path / "new.db")
    assert connection.execute("SELECT count(*) FROM events").fetchone() == (3,)
    connection.close()
