"""`maos import` as a person meets it."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from maos.transfer import importers
from tests.cli.conftest import Invoke, Run

DUMP = Path(__file__).parents[1] / "import_legacy" / "0.9.4.sql"


@pytest.fixture
def original(no_db: Path) -> Path:
    """The original's own maos.db, in the current folder."""
    with closing(sqlite3.connect(no_db)) as connection:
        connection.executescript(DUMP.read_text(encoding="utf-8"))
    return no_db


def test_a_database_is_moved_over(original: Path, invoke: Invoke) -> None:
    """Shown first, then imported, then found to be here."""
    before = original.read_bytes()
    foreseen = invoke("--db", "runs.db", "import", "maos.db", "--dry-run")
    assert foreseen.exit_code == 0
    assert "1111cccc  paused       1/3         6        6  $0.62" in foreseen.stdout
    assert "would be imported" in foreseen.stdout
    assert not Path("runs.db").exists()
    done = invoke("--db", "runs.db", "import", "maos.db")
    assert done.exit_code == 0
    assert "left out: settings (1)" in done.stdout
    assert "7 agents can resume: 0 in their conversations" in done.stdout
    assert "`maos resume " in done.stdout
    again = invoke("--db", "runs.db", "import", "maos.db")
    assert again.stdout.count("already here") == 6
    assert original.read_bytes() == before
    assert "What is running" in invoke("--db", "runs.db", "ps").stdout
    ahead = invoke("--db", "runs.db", "resume", "1111", "--dry-run").stdout
    assert "analyst-1100aaaa    done; will not run again" in ahead
    assert "> mind the empty line" in ahead


def test_the_same_as_json(original: Path, invoke: Invoke) -> None:
    shown = json.loads(invoke("--db", "runs.db", "import", "maos.db", "--orchestration", "1111", "--json").stdout)
    assert shown["file"] == "maos.db"
    assert shown["left_out"] == {"empty records of plans": 3, "settings": 1}
    [only] = shown["orchestrations"]
    assert (only["id"], only["what"], only["status"], only["original_status"]) == (
        "1111cccc", "new", "paused", "running",
    )  # fmt: skip
    assert (only["tasks"], only["done"], only["interrupted"], only["sessions"]) == (3, 1, 1, 0)
    assert (only["messages"], only["messages_waiting"], only["cost_usd"]) == (6, 6, 0.625)
    assert only["original_id"] == "1111cccc-0000-4000-8000-000000000001"


def test_a_file_is_not_imported_into_itself(original: Path, invoke: Invoke) -> None:
    """Both programs call theirs maos.db."""
    before = original.read_bytes()
    for words in (["import", "maos.db"], ["import", "./maos.db", "--dry-run"]):
        refused = invoke(*words)
        assert refused.exit_code == 2
        assert "is also the database to import into" in refused.stderr
        assert "maos --db runs.db admin import" in refused.stderr
    assert original.read_bytes() == before


@pytest.mark.parametrize("words", [["import", "nothing.db"], ["import", "notes.txt"], ["import", "maos.db"]])
def test_what_cannot_be_imported_is_refused_and_nothing_is_made(no_db: Path, invoke: Invoke, words: list[str]) -> None:
    Path("notes.txt").write_text("some text\n" * 1000)
    refused = invoke(*words)
    assert refused.exit_code in (1, 2, 3, 4)
    assert "error: " in refused.stderr
    assert "hint: " in refused.stderr
    assert not no_db.exists()


def test_without_the_importer_the_package_to_install_is_named(
    original: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The importer is a distribution of its own, found by its entry point."""
    monkeypatch.setattr(importers, "entry_points", lambda group: [])
    refused = invoke("--db", "runs.db", "import", "maos.db")
    assert refused.exit_code == 2
    assert "is a database of maos-cli" in refused.stderr
    assert "pip install maos-import-legacy" in refused.stderr
    Path("notes.txt").write_text("some text\n")
    assert "notes.txt is not a bundle" in invoke("--db", "runs.db", "import", "notes.txt").stderr
    assert "there is no file nothing.db" in invoke("--db", "runs.db", "import", "nothing.db").stderr
    assert not Path("runs.db").exists()


def test_a_file_without_orchestrations(original: Path, invoke: Invoke) -> None:
    with closing(sqlite3.connect(original)) as connection:
        connection.executescript("DELETE FROM messages; DELETE FROM orchestrations; DELETE FROM agents")
    result = invoke("--db", "runs.db", "import", "maos.db")
    assert result.exit_code == 0
    assert "maos.db has no orchestrations" in result.stdout


def test_agents_work_where_they_are_told_to(original: Path, run: Run, tmp_path: Path) -> None:
    """In the folder of the file, unless another one is named."""
    (tmp_path / "project").mkdir()
    run("--db", "runs.db", "import", "maos.db", "--orchestration", "1111")
    run("--db", "runs.db", "import", "maos.db", "--orchestration", "2222", "--cwd", "project")
    with closing(sqlite3.connect("runs.db")) as connection:
        rows = connection.execute("SELECT json_extract(body, '$.folder') FROM events WHERE type = 'run_created'")
        assert [folder for (folder,) in rows] == [str(original.parent), str(tmp_path / "project")]
    missing = run("--db", "runs.db", "import", "maos.db", "--cwd", "nowhere")
    assert missing.returncode == 2
