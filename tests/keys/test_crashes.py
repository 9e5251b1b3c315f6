"""Killed at any moment, a rotation, an encryption or an erasure leaves everything readable, and can be repeated."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import maos
from maos_testing.crash import Life, crash_loop
from tests.crash.stores import ROOT
from tests.keys.key_life import AGENTS, fill, main
from tests.keys.vaults import TYPES, files_with, new_key, open_with

ROTATE = {"rotate: written, not committed", "rotate: new key in use", "rewrap: written, not committed",
          "remove old key: written, not committed"}  # fmt: skip
CONVERT = {"encrypt: written, not committed", "convert: events written", "convert: mark removed", "convert: in place"}
ERASE = {"erase: recorded", "erase: folders removed", "erase: written, not committed", "erase: keys destroyed",
         "erase: end recorded", "backup: keys written"}  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAOS_HOME", str(tmp_path / "home"))


async def texts(m: maos.Maos) -> list[str]:
    names = [name.removeprefix("agent/") async for name in m.journal.streams("agent/")]
    return [(await m.state.get(name)).data["text"] for name in names]


def program(what: str, prepared: Callable[[int], Path]) -> Callable[[int], list[str]]:
    return lambda number: [sys.executable, "-m", "tests.keys.key_life", what, str(prepared(number))]


def folder_of(root: Path, number: int) -> Path:
    folder = root / f"life-{number}"
    folder.mkdir(exist_ok=True)
    return folder


async def test_every_crash_point_of_a_rotation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I39: stopped anywhere, everything can be read with one of the two keys, and the next rotation finishes it."""
    monkeypatch.setenv("MAOS_CRASH_ONLY", "rotate: rewrap: remove")
    every = [f"canary-{number}" for number in range(AGENTS)]

    template = tmp_path / "template"
    key, new = new_key(template), new_key(template, "new")
    async with open_with(template / "maos.db", key) as m:
        await fill(m)

    def prepared(number: int) -> Path:
        return copied(template, folder_of(tmp_path, number))

    async def look(life: Life) -> None:
        folder = folder_of(tmp_path, life.number)
        try:
            m = await open_with(folder / "maos.db", folder / "key")
        except maos.Locked:
            m = await open_with(folder / "maos.db", folder / "new")
        else:
            assert "done" not in life.acks
        try:
            assert await texts(m) == every
            await m.keys.rotate(f"file:{folder}/new")
            assert not (await m.keys.list()).is_rotating
        finally:
            await m.close()
        with pytest.raises(maos.Locked):
            await open_with(folder / "maos.db", folder / "key")
        async with open_with(folder / "maos.db", folder / "new") as m:
            assert await texts(m) == every
            assert (await m.verify()).ok

    lives = await crash_loop(program("rotate", prepared), look, cwd=ROOT)
    assert {life.died_at for life in lives} >= ROTATE
    assert new.exists()


async def test_every_crash_point_of_an_encryption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any time there is the old database or the new one, whole."""
    monkeypatch.setenv("MAOS_CRASH_ONLY", "encrypt: convert")
    every = [f"canary-{number}" for number in range(AGENTS)]
    template = tmp_path / "template"
    new_key(template)
    async with maos.open(template / "maos.db", types=TYPES) as m:
        await fill(m)

    def prepared(number: int) -> Path:
        return copied(template, folder_of(tmp_path, number))

    async def look(life: Life) -> None:
        folder = folder_of(tmp_path, life.number)
        async with open_with(folder / "maos.db", folder / "key") as m:
            is_encrypted = m.journal.vault is not None
            assert await texts(m) == every
            assert is_encrypted or "done" not in life.acks
        if not is_encrypted:
            await main("convert", folder)
        assert files_with(every, folder) == {}
        async with open_with(folder / "maos.db", folder / "key") as m:
            assert await texts(m) == every
            assert (await m.verify()).ok

    lives = await crash_loop(program("convert", prepared), look, cwd=ROOT)
    assert {life.died_at for life in lives} >= CONVERT


async def test_every_crash_point_of_an_erasure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I39: what was acknowledged as erased is gone, also from the backup; an interrupted erasure can be repeated."""
    monkeypatch.setenv("MAOS_CRASH_ONLY", "erase: backup: keys")
    template = tmp_path / "template"
    key = new_key(template)
    async with open_with(template / "maos.db", key) as m:
        await fill(m)
        await m.backups.ship(str(template / "backups"))

    def prepared(number: int) -> Path:
        return copied(template, folder_of(tmp_path, number))

    async def look(life: Life) -> None:
        folder = folder_of(tmp_path, life.number)
        async with open_with(folder / "maos.db", folder / "key") as m:
            found = await texts(m)
            assert (await m.verify()).ok
        assert {f"canary-{number}" for number in range(AGENTS) if number != 3} <= set(found)
        if "done" not in life.acks:
            await main("erase", folder)
        await maos.restore(str(folder / "backups"), folder / "restored.db")
        for database in ("maos.db", "restored.db"):
            async with open_with(folder / database, folder / "key") as m:
                assert "canary-3" not in await texts(m)
                assert (await m.verify()).ok

    lives = await crash_loop(program("erase", prepared), look, cwd=ROOT)
    assert {life.died_at for life in lives} >= ERASE


def copied(template: Path, folder: Path) -> Path:
    """Copy a database that is closed, with its keys and its backup, once."""
    if not (folder / "maos.db").exists():
        for path in template.rglob("*"):
            target = folder / path.relative_to(template)
            if path.is_dir():
                target.mkdir(exist_ok=True)
            else:
                target.write_bytes(path.read_bytes())
                target.chmod(path.stat().st_mode & 0o777)
    return folder
