"""An import that is killed at any moment and begun again ends like one that was not disturbed."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos_testing.crash import Life, crash_loop
from tests.crash.stores import ROOT
from tests.transfer.runs import ID, Parts, bring, everything, exported
from tests.transfer.test_commits import refs, saved
from tests.workspaces.repositories import git, repository

POINTS = {"import:checked", "import:objects checked", "import:objects there", "import:refs", "import:before append",
          "import:after append", "copy: begun", "copy: not yet named"}  # fmt: skip
UNDISTURBED = 9_999
"""The number of the life that is not killed."""


def without_places(found: dict[str, Any], root: Path) -> str:
    """What a journal holds, whichever of the places it is at."""
    return str(found).replace(str(root), "…")


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
async def test_every_crash_point_of_an_import(
    here: Maos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, store: str
) -> None:
    """I30: events and commits are here as a whole or not at all; worktrees and files too; again, and it is whole."""
    origin = repository(tmp_path / "origin", {"readme.txt": "hello\n"})
    await saved(here, origin, "first", "second")
    (tmp_path / "bundle").write_bytes(await exported(here))
    monkeypatch.setenv("MAOS_CRASH_ONLY", "import: copy:")
    url = request.getfixturevalue("postgres_url") if store == "postgresql" else ""
    empty = repository(tmp_path / "empty")

    def places(number: int) -> tuple[str, Path, Path, Path]:
        root = tmp_path / f"life-{number}"
        if not root.exists():
            root.mkdir()
            shutil.copytree(empty, root / "work")
        return url or str(root / "maos.db"), root / "home", root / "work", root / "again.maos"

    def argv(number: int) -> list[str]:
        words = (tmp_path / "bundle", *places(number), schema(number))
        return [sys.executable, "-m", "tests.transfer.bundle_life", *map(str, words)]

    def schema(number: int) -> str:
        return f"life{number}" if url else "maos"

    def opened(number: int) -> maos.open:
        database, home, _work, _target = places(number)
        return maos.open(database, home=home, schema=schema(number), mark_path=home.parent / "mark" if url else None)

    undisturbed: list[str] = []
    async with opened(UNDISTURBED) as m:
        await bring(m, (tmp_path / "bundle").read_bytes(), places(UNDISTURBED)[2])
        undisturbed.append(without_places(await everything(m), tmp_path / f"life-{UNDISTURBED}"))
        names = refs(places(UNDISTURBED)[2])

    async def look(life: Life) -> None:
        _database, _home, work, target = places(life.number)
        async with opened(life.number) as m:
            head = await m.journal.head()
            found = refs(work)
            known = {ref: commit for ref, commit in found.items() if ref in names}
            assert known in ({}, names), "some of the commits"
            assert not head or known == names, "events without their commits"
            if not head:
                assert life.acks == []
            await bring(m, (tmp_path / "bundle").read_bytes(), work)
            there = await everything(m)
            there["bundle/r-1"] = there["bundle/r-1"][:1]
            assert without_places(there, tmp_path / f"life-{life.number}") == undisturbed[0]
            assert names.items() <= refs(work).items()
            assert git(work, "fsck", "--strict", "--no-dangling") == ""
            assert (await m.verify()).ok
            if target.exists():
                assert Parts(target.read_bytes()).manifest["id"] == ID, "a file is there as a whole"
            if life.died_at is None:
                assert (m.agents.folder / "workspaces" / ID).is_dir()

    lives = await crash_loop(argv, look, cwd=ROOT)
    assert {life.died_at for life in lives} >= POINTS
