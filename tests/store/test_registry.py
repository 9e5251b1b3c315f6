"""A12, A21: a database that this user did not make on this machine can be read; writing needs consent."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

import maos
from maos.errors import Corrupt, StoreUnavailable, UntrustedStore


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for the state of the user, with the registry."""
    monkeypatch.delenv("MAOS_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


async def make(place: str | Path) -> None:
    async with maos.open(place) as m:
        await m.state.create("reviewer", {"n": 1})


async def change(place: str | Path) -> None:
    async with maos.open(place) as m:
        await m.state.update("reviewer", {"n": (await m.state.get("reviewer")).data["n"] + 1})


async def test_a_database_is_its_makers_also_after_it_was_moved(tmp_path: Path) -> None:
    await make(tmp_path / "a.db")
    await change(tmp_path / "a.db")
    for file in tmp_path.glob("a.db*"):
        file.rename(tmp_path / file.name.replace("a.db", "b.db"))
    await change(tmp_path / "b.db")


async def test_a_copy_can_be_read_and_is_not_written_before_the_user_agrees(tmp_path: Path) -> None:
    await make(tmp_path / "a.db")
    shutil.copy(tmp_path / "a.db", tmp_path / "cloned.db")
    async with maos.open(tmp_path / "cloned.db") as m:
        assert (await m.state.get("reviewer")).data["n"] == 1
        head = await m.journal.head()
        with pytest.raises(UntrustedStore, match="was not made by you on this machine"):
            await m.state.update("reviewer", {"n": 2})
        with pytest.raises(UntrustedStore):
            await m.check_own()
        assert await m.journal.head() == head
        await m.trust()
        await m.state.update("reviewer", {"n": 2})
    await change(tmp_path / "cloned.db")


async def test_a_file_that_replaces_ones_own_is_not_ones_own(tmp_path: Path) -> None:
    """A pull replaces the file; its identity can be that of the file before."""
    await make(tmp_path / "a.db")
    shutil.copy(tmp_path / "a.db", tmp_path / "changed")
    (tmp_path / "changed").rename(tmp_path / "a.db")
    with pytest.raises(UntrustedStore):
        await change(tmp_path / "a.db")


async def test_another_machine_does_not_know_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await make(tmp_path / "a.db")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    with pytest.raises(UntrustedStore):
        await change(tmp_path / "a.db")


async def test_a_copy_that_maos_makes_is_ones_own(tmp_path: Path) -> None:
    await make(tmp_path / "a.db")
    async with maos.open(tmp_path / "a.db") as m:
        await m.copy_to(tmp_path / "copy.db")
    await change(tmp_path / "copy.db")


async def test_an_empty_database_becomes_the_first_writers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with maos.open(tmp_path / "a.db"):
        pass
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    await make(tmp_path / "a.db")
    await change(tmp_path / "a.db")


@pytest.mark.parametrize("identity", ["../../../../victim", "", "x" * 32])
async def test_a_hostile_identity_is_no_path(tmp_path: Path, state: Path, identity: str) -> None:
    await make(tmp_path / "a.db")
    connection = apsw.Connection(str(tmp_path / "a.db"))
    connection.execute("UPDATE identity SET id = ?", (identity,))
    connection.close()
    async with maos.open(tmp_path / "a.db") as m:
        with pytest.raises(UntrustedStore):
            await m.state.update("reviewer", {"n": 2})
        with pytest.raises(Corrupt, match="identity"):
            await m.trust()
    assert {file.parent for file in tmp_path.rglob("*victim*")} == set()


async def test_a_registry_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(StoreUnavailable, match="MAOS_HOME"):
        await make(tmp_path / "a.db")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of another user")
async def test_a_database_of_another_user_is_not_ones_own_even_if_it_is_empty(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "a.db"):
        pass
    for file in tmp_path.glob("a.db*"):
        os.chown(file, 12345, 12345)
    with pytest.raises(UntrustedStore, match="belongs to the user with the number 12345"):
        await make(tmp_path / "a.db")


async def test_processes_that_create_it_at_once_all_own_it(tmp_path: Path) -> None:
    script = (
        "import asyncio, maos, sys\n"
        "async def work():\n"
        "    async with maos.open(sys.argv[1]) as m:\n"
        "        for number in range(5):\n"
        "            await m.state.create(f'{sys.argv[2]}-{number}')\n"
        "asyncio.run(work())\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "a.db")]
    lives = [subprocess.Popen([*command, str(number)], stderr=subprocess.PIPE) for number in range(6)]
    errors = await asyncio.gather(*(asyncio.to_thread(each.communicate) for each in lives))
    assert [each[1].decode() for each in errors] == [""] * 6


async def test_a_server_is_known_by_its_identity(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(postgres_url)
    await change(postgres_url)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
    with pytest.raises(UntrustedStore):
        await change(postgres_url)
    async with maos.open(postgres_url) as m:
        await m.trust()
    await change(postgres_url)
