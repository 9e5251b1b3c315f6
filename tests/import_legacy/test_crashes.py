"""An import that is killed at any moment and begun again ends like one that was not disturbed."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

import maos
from maos_testing.crash import Life, crash_loop
from tests.crash.stores import ROOT
from tests.import_legacy.conftest import Make, bring
from tests.import_legacy.test_importing import everything

FEWER = """DELETE FROM orchestrations WHERE id NOT LIKE '1111%'; DELETE FROM agents
           WHERE id NOT LIKE '%-11%' AND metadata NOT LIKE '%Wait for%'"""
"""Leaves one that was recorded and one that was not: fewer deaths, and all kinds of them."""


async def test_every_crash_point_of_an_import(make: Make, tmp_path: Path) -> None:
    """Nothing is lost, nothing comes twice, and each orchestration is here as a whole or not at all (I30)."""
    path = make(change=FEWER)
    async with maos.open(tmp_path / "whole.db", home=tmp_path / "home") as m:
        whole = [(each.run.id, each.what) for each in (await bring(m, path)).values()]
        undisturbed = await everything(m)

    def argv(number: int) -> list[str]:
        return [sys.executable, "-m", "tests.import_legacy.import_life", str(path), *map(str, place(number))]

    def place(number: int) -> tuple[Path, Path]:
        return tmp_path / f"{number}.db", tmp_path / "home"

    async def look(life: Life) -> None:
        database, home = place(life.number)
        async with maos.open(database, home=home) as m:
            here = [run.id async for run in m.runs.all()]
            assert set(here) <= {id for id, _what in whole}
            after_death = await everything(m)
            for name, events in after_death.items():
                if name.startswith("run/"):
                    assert events == undisturbed[name], "half an orchestration"
            again = await bring(m, path)
            assert {each.what for each in again.values()} <= {"new", "same"}
            assert sorted(id for id, each in again.items() if each.what == "same") == sorted(here)
            assert await everything(m) == undisturbed
            assert (await m.verify()).ok

    lives = await crash_loop(argv, look, cwd=ROOT)
    assert {"import:before append", "import:after append"} <= {life.died_at for life in lives}
    assert [tuple(each) for each in lives[-1].acks] == whole


async def test_death_while_more_is_added(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second import, with news, dies before and after it has written; a third one brings the same result."""
    monkeypatch.setenv("MAOS_CRASH_ONLY", "import:")
    path = make(change=FEWER)
    for database in ("a.db", "b.db"):
        async with maos.open(tmp_path / database, home=tmp_path / "home") as m:
            await bring(m, path)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("UPDATE tasks SET status = 'completed', completed_at = '2026-01-02 03:04:05'")
    async with maos.open(tmp_path / "a.db", home=tmp_path / "home") as m:
        assert [each.what for each in (await bring(m, path)).values()] == ["more", "more"]
        undisturbed = await everything(m)

    def argv(_number: int) -> list[str]:
        words = (path, tmp_path / "b.db", tmp_path / "home")
        return [sys.executable, "-m", "tests.import_legacy.import_life", *map(str, words)]

    async def look(life: Life) -> None:
        async with maos.open(tmp_path / "b.db", home=tmp_path / "home") as m:
            assert (await m.verify()).ok

    lives = await crash_loop(argv, look, cwd=ROOT, share=1.0)
    assert [life.died_at for life in lives] == ["import:before append", "import:after append", None]
    async with maos.open(tmp_path / "b.db", home=tmp_path / "home") as m:
        assert await everything(m) == undisturbed
