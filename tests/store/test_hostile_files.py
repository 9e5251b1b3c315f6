"""A12, A13, A21: files that a cloned repository or another user has put beside a database stay as they are."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from maos.errors import InvalidInput
from maos.store import sqlite_file
from maos.store.sql_store import SqlStore
from maos.store.sqlite import SqliteDatabase
from maos_testing.manual_clock import ManualClock
from maos_testing.store_contract.streams import write

SECRET = b"ssh-ed25519 AAAA of a person\n"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of the person, outside the project."""
    file = tmp_path / "authorized_keys"
    file.write_bytes(SECRET)
    return file


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqlStore]:
    store = await SqlStore.open(SqliteDatabase(path, clock=ManualClock()))
    try:
        yield store
    finally:
        await store.close()


async def append_some(path: Path, count: int = 5) -> None:
    async with opened(path) as store:
        for number in range(count):
            await store.append(write("s", b"%d" % number))


@pytest.mark.parametrize("kind", ["link", "file", "pipe of a link"])
async def test_what_is_no_pipe_of_ours_is_not_written_or_removed(project: Path, victim: Path, kind: str) -> None:
    wake = project / "maos.db-wake"
    wake.mkdir()
    planted = wake / "a"
    if kind == "link":
        planted.symlink_to(victim)
    elif kind == "file":
        planted.write_bytes(SECRET)
    else:
        os.mkfifo(project / "pipe")
        planted.symlink_to(project / "pipe")
    await append_some(project / "maos.db")
    assert victim.read_bytes() == SECRET
    assert os.path.lexists(planted)
    assert kind != "file" or planted.read_bytes() == SECRET


async def test_a_folder_of_pipes_that_is_a_link_is_not_entered(project: Path, tmp_path: Path) -> None:
    documents = tmp_path / "Documents"
    documents.mkdir()
    (documents / "thesis").write_bytes(SECRET)
    os.mkfifo(documents / "pipe")
    (project / "maos.db-wake").symlink_to(documents)
    async with opened(project / "maos.db") as store:
        waiting = asyncio.create_task(store.wait(after=0, timeout_s=5))
        await asyncio.sleep(0)
        await append_some(project / "maos.db")
        await waiting  # it only polls
    assert sorted(each.name for each in documents.iterdir()) == ["pipe", "thesis"]
    assert (documents / "thesis").read_bytes() == SECRET


async def test_a_folder_of_pipes_that_others_can_write_to_is_not_used(project: Path) -> None:
    wake = project / "maos.db-wake"
    wake.mkdir()
    wake.chmod(0o777)
    os.mkfifo(wake / "dead")  # in a folder of ours it would be removed, as the pipe of a process that died
    await append_some(project / "maos.db")
    assert (wake / "dead").exists()


async def test_a_mark_that_is_a_link_is_not_written(project: Path, victim: Path) -> None:
    (project / "maos.db-head").symlink_to(victim)
    async with opened(project / "maos.db") as store:
        await store.append(write("s", b"0"))
        health = await store.check()
    assert victim.read_bytes() == SECRET
    assert any("maos.db-head" in problem for problem in health.notes)


@pytest.mark.parametrize("leads_to", ["/dev/zero", "a pipe"])
async def test_a_mark_without_end_is_not_read(project: Path, leads_to: str) -> None:
    head = project / "maos.db-head"
    if leads_to == "a pipe":
        os.mkfifo(head)
    else:
        head.symlink_to(leads_to)
    await asyncio.wait_for(append_some(project / "maos.db"), 60)


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_database_that_is_a_link_is_refused(project: Path, tmp_path: Path, is_there: bool) -> None:
    elsewhere = tmp_path / "elsewhere.db"
    if is_there:
        await append_some(elsewhere)
    (project / "maos.db").symlink_to(elsewhere)
    with pytest.raises(InvalidInput, match="is a link to"):
        await append_some(project / "maos.db")
    assert elsewhere.exists() == is_there


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
async def test_a_pipe_of_another_user_is_not_written(project: Path) -> None:
    wake = project / "maos.db-wake"
    wake.mkdir()
    os.mkfifo(wake / "theirs")
    os.chown(wake / "theirs", 12345, 12345)
    bell = sqlite_file.Bell(wake)
    bell.ring(["a"])
    assert (wake / "theirs").exists()
    bell.close()
