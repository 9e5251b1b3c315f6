"""The database of a run that really took place, and the program `sqlite3` to look into it."""

import json
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Query = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "maos.db"


@pytest.fixture
def query(database: Path) -> Query:
    """Ask the database as somebody without maos would: with the program `sqlite3` if there is one."""
    program = shutil.which("sqlite3")

    def ask(sql: str) -> list[dict[str, Any]]:
        if program is not None:
            done = subprocess.run(
                [program, "-readonly", "-json", str(database), sql], capture_output=True, text=True, check=True
            )
            found: list[dict[str, Any]] = json.loads(done.stdout or "[]")
            return found
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
            connection.row_factory = sqlite3.Row
            rows = [dict(row) for row in connection.execute(sql)]
        connection.close()
        return rows

    return ask
