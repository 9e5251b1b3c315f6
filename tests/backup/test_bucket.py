"""A backup in a bucket of a real object store, which answers, refuses, is slow, or is away."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

import maos
from maos.app import Maos
from maos.backup import service
from maos.backup.locations import open_location
from maos.backup.shipper import Progress
from maos.errors import InvalidInput, StoreUnavailable
from maos.journal.codec import Event
from maos_testing.object_storage import ObjectStorage
from tests.backup.records import TYPES, rows


async def note(m: Maos, text: str) -> None:
    await m.journal.append("notes/1", Event("note", {"text": text}))


async def test_everything_comes_back_from_a_bucket(bucket: str, tmp_path: Path) -> None:
    """R-701."""
    async with maos.open(tmp_path / "maos.db", types=TYPES) as m:
        for number in range(5):
            await note(m, f"{number} " * 1000)
            await m.backups.ship(bucket)
        assert (await m.backups.status(bucket)).missing == 0
    assert (await service.verify(bucket)).damage == ""
    assert [each.position for each in await service.find(bucket)] == [5]
    await maos.restore(bucket, tmp_path / "new.db")
    assert await rows(tmp_path / "new.db") == await rows(tmp_path / "maos.db")


async def test_an_object_is_created_once_and_replaced_by_one_writer(bucket: str) -> None:
    location = open_location(bucket)
    assert await location.read("a/head") is None
    assert await location.create("a/1", b"one")
    assert not await location.create("a/1", b"two")
    first = await location.replace("a/head", b"1", tag="")
    assert first
    assert await location.replace("a/head", b"x", tag="") is None, "it is there already"
    second = await location.replace("a/head", b"2", tag=first)
    assert second
    assert await location.replace("a/head", b"3", tag=first) is None, "another writer has replaced it"
    found = await location.read("a/head")
    assert found is not None
    assert (found.content, found.tag) == (b"2", second)
    assert [name async for name in location.names("")] == ["a/1", "a/head"]


async def test_a_wrong_secret_is_refused_with_words(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong" * 6)
    async with maos.open(tmp_path / "maos.db", types=TYPES) as m:
        await note(m, "x")
        with pytest.raises(StoreUnavailable, match="cannot be used") as raised:
            await m.backups.ship(bucket)
        assert "wrongwrong" not in str(raised.value)


async def test_a_store_that_stands_still_delays_the_backup_and_not_the_agents(
    bucket: str, storage: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I34: an outage loses nothing and leaves no gap; appends never wait for it."""
    monkeypatch.setattr("maos.backup.locations.TIMEOUT_S", 1)
    monkeypatch.setattr("maos.backup.locations.RETRY_S_MAX", 1)
    seen: list[Progress] = []
    async with maos.open(tmp_path / "maos.db", types=TYPES) as m:
        await note(m, "before")
        following = asyncio.create_task(m.backups.follow(bucket, seen.append, every_s=0.05))
        while not seen:
            await asyncio.sleep(0.05)
        os.kill(storage.process.pid, signal.SIGSTOP)
        try:
            for number in range(50):
                await note(m, f"during {number}")
            while not any(each.trouble for each in seen):
                await asyncio.sleep(0.05)
        finally:
            os.kill(storage.process.pid, signal.SIGCONT)
        while not following.done() and (await m.backups.status(bucket)).missing:
            await asyncio.sleep(0.1)
        assert not following.done(), following
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    await maos.restore(bucket, tmp_path / "new.db")
    assert await rows(tmp_path / "new.db") == await rows(tmp_path / "maos.db")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("ftp://x/y", "cannot hold a backup"),
        ("file:///etc/passwd", "cannot hold a backup"),
        ("http://169.254.169.254/latest", "cannot hold a backup"),
        ("https://127.0.0.1:9/x", "cannot hold a backup"),
        ("memory://x", "cannot hold a backup"),
        ("s3://user:secret@bucket/x", "a user name or a password"),
    ],
)
def test_other_urls_are_refused_with_words(name: str, what: str) -> None:
    """A25: a location is a folder, or a bucket of a provider by name; no address of a host."""
    with pytest.raises(InvalidInput, match=what) as raised:
        open_location(name)
    assert "secret" not in str(raised.value).replace("AWS_SECRET_ACCESS_KEY", "")


async def test_a_server_without_tls_is_refused_unless_a_person_allows_it(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A25: credentials go over plain HTTP only with AWS_ALLOW_HTTP."""
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    monkeypatch.setattr("maos.backup.locations.RETRY_S_MAX", 1)
    async with maos.open(tmp_path / "maos.db", types=TYPES) as m:
        await note(m, "x")
        with pytest.raises((StoreUnavailable, InvalidInput), match="cannot be used"):
            await m.backups.ship(bucket)
