"""A real object store behind a network that fails: nothing is lost, nothing is written twice, and no gap is left."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import maos
from maos.app import Maos
from maos.backup import locations, service
from maos.backup.shipper import Progress, Shipper
from maos.errors import Conflict, HistoryLost, StoreUnavailable
from maos.journal.codec import Event
from maos_testing.manual_clock import ManualClock
from maos_testing.object_storage import ObjectStorage
from tests.backup.proxy import Fault, Proxy
from tests.backup.records import TYPES, rows

PATIENT = {name: getattr(locations, name) for name in ("TIMEOUT_S", "RETRIES_MAX", "RETRY_S_MAX")}


@pytest.fixture
async def proxy(storage: ObjectStorage, bucket: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Proxy]:
    """A proxy in front of the object store, which clients of this process use."""
    port = urlsplit(storage.variables["AWS_ENDPOINT_URL"]).port
    assert port is not None
    monkeypatch.setattr(locations, "TIMEOUT_S", 2)
    monkeypatch.setattr(locations, "RETRIES_MAX", 1)
    monkeypatch.setattr(locations, "RETRY_S_MAX", 1)
    monkeypatch.setattr("maos.backup.shipper.PAUSE_S_MAX", 0.2)
    async with Proxy(port).running() as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        yield proxy


async def note(m: Maos, text: str = "x") -> None:
    await m.journal.append("notes/1", Event("note", {"text": text}))


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.CUT, Fault.LOSE, Fault.HOLD], ids=lambda fault: fault.name.lower())
async def test_the_backup_catches_up_after_the_network_failed(
    fault: Fault, proxy: Proxy, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I34, I36: 500s, torn uploads, lost answers and silence; a request whose outcome is unknown is not done twice."""
    seen: list[Progress] = []
    async with maos.open(tmp_path / "maos.db", types=TYPES) as m:
        await note(m, "before")
        following = asyncio.create_task(m.backups.follow(bucket, seen.append, every_s=0.02))
        while not seen:
            await asyncio.sleep(0.02)
        proxy.fault = fault
        for number in range(5):
            await note(m, f"during {number} " * 2000)
        while not proxy.faults or not any(each.trouble for each in seen):
            assert not following.done(), following
            await asyncio.sleep(0.02)
        proxy.fault = Fault.NONE
        for name, value in PATIENT.items():  # from here on a slow machine is no fault
            monkeypatch.setattr(locations, name, value)
        while not following.done() and (await m.backups.status(bucket)).missing:
            await asyncio.sleep(0.05)
        assert not following.done(), following
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    check = await service.verify(bucket)
    assert (check.damage, check.events) == ("", 6)
    await maos.restore(bucket, tmp_path / "new.db")
    assert await rows(tmp_path / "new.db") == await rows(tmp_path / "maos.db")


async def test_of_two_writers_one_is_refused_whatever_its_lease_says(bucket: str, tmp_path: Path) -> None:
    """I36: a paused process that wakes and writes on, while another has taken over, cannot advance the backup."""
    async with maos.open(tmp_path / "maos.db", types=TYPES) as m:
        await note(m)
        location = locations.open_location(bucket)
        stale = Shipper(m.journal, m.clock, location)
        stale_head = await stale._begin()
        await m.backups.ship(bucket)
        await note(m, "more")
        with pytest.raises((Conflict, HistoryLost)):
            for _ in range(2):
                stale_head = await stale._add(stale_head)
        assert (await m.backups.ship(bucket)).position == 2
    assert (await service.verify(bucket)).damage == ""


async def test_a_clock_that_goes_back_changes_nothing(bucket: str, tmp_path: Path) -> None:
    """I35: positions decide what is missing, not times."""
    clock = ManualClock()
    async with maos.open(tmp_path / "maos.db", types=TYPES, clock=clock) as m:
        await note(m)
        await m.backups.ship(bucket)
        clock._now_us -= 3_600_000_000
        await note(m, "in the past")
        assert (await m.backups.status(bucket)).missing == 1
        await m.backups.ship(bucket)
        status = await m.backups.status(bucket)
        assert (status.missing, status.behind_s) == (0, 0)
    assert (await service.verify(bucket)).events == 2
    await maos.restore(bucket, tmp_path / "new.db")
    assert await rows(tmp_path / "new.db") == await rows(tmp_path / "maos.db")


async def test_a_redirect_takes_no_credentials_along(proxy: Proxy, bucket: str, tmp_path: Path) -> None:
    """A25: what an endpoint answers cannot send the credentials, or a signed request, to another address."""
    async with Proxy(1).running() as other:
        proxy.fault, proxy.elsewhere = Fault.REDIRECT, f"{other.url}/elsewhere".encode()
        other.fault = Fault.FAIL
        async with maos.open(tmp_path / "maos.db", types=TYPES) as m:
            await note(m)
            with pytest.raises(StoreUnavailable):
                await m.backups.ship(bucket)
        assert all(b"authorization" in head for head in proxy.heads)
        assert not [head for head in other.heads if b"authorization" in head or b"signature" in head]


async def test_merging_in_a_bucket_deletes_what_was_merged(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maos.backup.merger.NEIGHBOURS", 3)
    async with maos.open(tmp_path / "maos.db", types=TYPES) as m:
        for number in range(7):
            await note(m, f"{number}")
            await m.backups.ship(bucket)
        store = await m.backups.identity()
    names = [name async for name in locations.open_location(bucket).names(f"{store}/segments/")]
    assert len(names) == 3, names
    check = await service.verify(bucket)
    assert (check.damage, check.events) == ("", 7)
    assert await service.remove(bucket, store, now_us=1) == 4
    assert await service.find(bucket) == []
