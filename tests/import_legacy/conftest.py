"""Databases of the original, as its real code left them, and a journal to bring them into."""

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

import maos
from maos.app import Maos
from maos.transfer.importers import ImportedRun
from maos_import_legacy import file, parser
from maos_import_legacy.importer import LegacySource
from tests.engine.conftest import home  # noqa: F401

HERE = Path(__file__).parent
VERSIONS = sorted(each.stem for each in HERE.glob("*.sql"))
RUNNING, PAUSED, FAILED = "1111cccc", "2222cccc", "3333cccc"
"""The orchestrations that every dump has, by what the original calls them."""

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A file of the original, of one version, and changed by some SQL."""

    def database(version: str = "0.9.4", change: str = "", name: str = "original.db") -> Path:
        path = tmp_path / name
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript((HERE / f"{version}.sql").read_text(encoding="utf-8"))
            connection.executescript(change)
        return path

    return database


@pytest.fixture
async def m(tmp_path: Path, home: Path) -> AsyncIterator[Maos]:  # noqa: F811
    """A journal of the test's own."""
    async with maos.open(tmp_path / "runs.db", home=home) as opened:
        yield opened


async def bring(m: Maos, path: Path, *, wanted: str = "", dry_run: bool = False) -> dict[str, ImportedRun]:
    """Import a file; what became of each orchestration, by its id here."""
    source = LegacySource(parser.parse(file.read(path)), claude=path.parent / "claude")
    imported = await m.transfer.import_runs(source, folder=path.parent, wanted=wanted, dry_run=dry_run)
    return {each.run.id: each for each in imported}


def killed(path: Path) -> str:
    """The id that the orchestration gets which was killed before it was recorded."""
    with closing(sqlite3.connect(path)) as connection:
        [(agent,)] = connection.execute("SELECT id FROM agents WHERE metadata LIKE '%for the printer%'").fetchall()
    return str(agent).rpartition("-")[2]
