"""A file that somebody gives us: whatever it is, it is read or refused, stays as it is, and is never believed."""

import hashlib
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import pytest

import maos
from maos.app import Maos
from maos_import_legacy import file, parser
from tests.import_legacy.conftest import RUNNING, Make, bring


def refused(path: Path, kind: type[maos.MaosError], what: str) -> None:
    """It is, with what is wrong, with which file, and what to do."""
    with pytest.raises(kind, match=what) as caught:
        file.read(path)
    assert str(path) in caught.value.what
    assert caught.value.hint


def listing(folder: Path) -> dict[str, str]:
    """All files of a folder, and what is in them."""
    return {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in folder.iterdir() if each.is_file()}


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    refused(tmp_path / "no.db", maos.NotFound, "there is no file")


def test_a_folder(tmp_path: Path) -> None:
    refused(tmp_path, maos.InvalidInput, "is a folder")


def test_something_that_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", maos.InvalidInput, "is not a file")


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    refused(tmp_path / "empty.db", maos.InvalidInput, "is empty")


def test_a_database_without_tables(tmp_path: Path) -> None:
    path = tmp_path / "bare.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE a (b); DROP TABLE a")
    refused(path, maos.InvalidInput, "has no tables")


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("just some text, long enough to be read as a page\n" * 50)
    refused(path, maos.InvalidInput, "is not a SQLite database")


async def test_a_journal_of_ours(m: Maos, tmp_path: Path) -> None:
    await m.state.create("a")
    await m.runs.create({"tasks": [{"name": "a", "command": ["true"]}]}, options={"kind": "shell"})
    refused(tmp_path / "runs.db", maos.InvalidInput, "is a journal of this maos")


def test_a_database_of_another_program(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE agents (id TEXT PRIMARY KEY)")
    refused(path, maos.UnknownFormat, "has no table sessions")


def test_a_version_that_is_not_known(make: Make) -> None:
    refused(make(change="ALTER TABLE messages RENAME COLUMN acknowledged TO seen"), maos.UnknownFormat, "acknowledged")


def test_a_view_in_the_place_of_a_table(make: Make) -> None:
    """It could make us compute without end."""
    change = "DROP TABLE checkpoints; CREATE VIEW checkpoints AS SELECT 1 AS id, 2 AS name"
    refused(make(change=change), maos.UnknownFormat, "no table checkpoints")


def test_a_damaged_file(make: Make) -> None:
    path = make()
    content = bytearray(path.read_bytes())
    content[4096 : 3 * 4096] = random.Random(1).randbytes(2 * 4096)
    path.write_bytes(content)
    refused(path, maos.Corrupt, "is damaged")


def test_a_file_that_was_cut_short(make: Make) -> None:
    path = make()
    os.truncate(path, path.stat().st_size // 2)
    refused(path, maos.Corrupt, "is damaged")


@pytest.mark.parametrize("seed", range(20))
def test_flipped_bytes_never_make_it_fall_over(make: Make, seed: int) -> None:
    """It is read, or refused with an error that says so."""
    path = make()
    chance = random.Random(seed)
    content = bytearray(path.read_bytes())
    for _ in range(chance.randint(1, 200)):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    try:
        parser.parse(file.read(path))
    except maos.MaosError as error:
        assert error.hint


@contextmanager
def another_process(path: Path, *statements: str) -> Iterator[None]:
    """Somebody who has done something to the file, and has not committed it."""
    program = (
        "import sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "for each in sys.argv[2:]: connection.execute(each)\n"
        "print('ready', flush=True); sys.stdin.read()"
    )
    argv = [sys.executable, "-c", program, str(path), *statements]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield
        finally:
            process.kill()


def test_a_locked_file(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "BUSY_MS", 50)
    path = make()
    with another_process(path, "BEGIN EXCLUSIVE"):
        refused(path, maos.StoreUnavailable, "is locked")
    assert file.read(path).rows["agents"]


def test_while_somebody_is_about_to_write(make: Make) -> None:
    """It is read as it was before."""
    path = make()
    with another_process(path, "BEGIN IMMEDIATE", "DELETE FROM agents"):
        assert file.read(path).rows["agents"]


def test_what_is_read_is_of_one_moment(make: Make) -> None:
    """Nobody changes the file between two tables."""
    path = make()
    program = (
        "import sqlite3, sys; connection = sqlite3.connect(sys.argv[1], timeout=0);"
        "connection.execute('DELETE FROM agents'); connection.commit()"
    )
    with file._open(path):
        tried = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, timeout=30)
    assert "database is locked" in tried.stderr


def test_the_two_ways_in_which_times_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's are in UTC, Python's in the time zone of the machine."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        noon_us = parser.parse_time("2026-01-02 12:00:00")
        assert noon_us == 1_767_355_200_000_000
        assert parser.parse_time("2026-01-02T21:00:00.000001") == noon_us + 1
        assert parser.parse_time("2026-01-02T12:00:00+00:00") == noon_us
        assert [parser.parse_time(each) for each in (None, 7, "", "soon", "0001-01-01T00:00:00")] == [0] * 5
    time.tzset()


def test_a_log_beside_the_file_is_read_and_left_alone(make: Make, tmp_path: Path) -> None:
    """Its writer was killed; what it had committed counts, and nothing is written beside the file."""
    path = make()
    (tmp_path / "dead").mkdir()
    dead = tmp_path / "dead" / "original.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("UPDATE orchestrations SET request = 'from the log' WHERE id LIKE '1111%'")
        connection.commit()
        for end in ("", "-wal"):
            shutil.copy(f"{path}{end}", f"{dead}{end}")
    before = listing(dead.parent)
    requests = [row["request"] for row in file.read(dead).rows["orchestrations"]]
    assert "from the log" in requests
    assert listing(dead.parent) == before


def test_what_a_killed_writer_has_half_written_is_undone_in_a_copy(make: Make, tmp_path: Path) -> None:
    """A hot rollback journal: the file itself is in the middle of a change."""
    path = make()
    (tmp_path / "dead").mkdir()
    dead = tmp_path / "dead" / "original.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("PRAGMA cache_spill = 1")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("UPDATE sessions SET task = hex(randomblob(3000))")
        connection.execute("UPDATE agents SET name = hex(randomblob(3000))")
        for end in ("", "-journal"):
            shutil.copy(f"{path}{end}", f"{dead}{end}")
        connection.execute("ROLLBACK")
    before = listing(dead.parent)
    assert file.read(dead).rows == file.read(path).rows
    assert listing(dead.parent) == before


def test_reading_leaves_the_file_and_its_folder_as_they_are(make: Make, tmp_path: Path) -> None:
    path = make()
    os.chmod(path, 0o400)
    before = listing(tmp_path)
    file.read(path)
    assert listing(tmp_path) == before


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [("FILE_BYTES_MAX", 1000, "bytes, more than"), ("ROWS_MAX", 3, "more than 3 rows"), ("TOTAL_BYTES_MAX", 99, "99")],
)
def test_more_than_is_allowed(make: Make, monkeypatch: pytest.MonkeyPatch, name: str, value: int, what: str) -> None:
    monkeypatch.setattr(file, name, value)
    refused(make(), maos.InvalidInput, what)


async def test_values_of_any_kind_are_taken_for_what_they_can_be(m: Maos, make: Make) -> None:
    """Bytes, half characters, numbers beyond all bounds, JSON that is none, or of another shape, or without end."""
    deep = "[" * 100_000
    change = f"""
        PRAGMA foreign_keys = OFF;
        UPDATE agents SET metadata = x'00ff', type = CAST(x'ff41' AS TEXT) WHERE id LIKE '%1110aaaa';
        UPDATE sessions SET conversation_history = '{deep}', total_cost = 9e999;
        UPDATE tasks SET result = '["not", "an object"]', completed_at = 'yesterday', created_at = x'01';
        UPDATE messages SET timestamp = '99999-99-99', message_type = 'unheard of', acknowledged = 'no';
        UPDATE orchestrations SET total_cost = 'a lot', created_at = 12, completed_at = '9999-12-31 23:59:59';
        UPDATE checkpoints SET orchestrator_state = '{{"orchestration_id": "\\ud800"}}';
        INSERT INTO orchestrations (id, request, agents, batches) VALUES ('empty', 'x', '{{}}', 'null');
    """
    brought = await bring(m, make(change=change))
    run = await m.runs.get(RUNNING)
    assert list(run.tasks.values())[1].plan["agent"] == "A"
    assert brought[RUNNING].messages == 6
    assert {each.message.metadata.get("type") async for each in m.bus.history(run=RUNNING)} == {"unheard of"}
    assert (await m.verify()).ok


def test_names_in_the_file_are_names_and_nothing_else(make: Make) -> None:
    """A5: a column or a table may be called anything."""
    name = 'x"" FROM tasks; DROP TABLE agents; --'
    change = f"""ALTER TABLE agents ADD COLUMN "{name}" DEFAULT 'kept'; CREATE TABLE "{name}" (a)"""
    found = file.read(make(change=change))
    assert {row[name.replace('""', '"')] for row in found.rows["agents"]} == {"kept"}
    assert found.others == {"key_value_store": 1, name.replace('""', '"'): 0}


def test_a_value_without_end_is_cut(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "VALUE_BYTES_MAX", 300)
    found = file.read(make(change=f"UPDATE tasks SET description = '{'é' * 1000}' WHERE id LIKE '%1110aaaa'"))
    [text] = [row["description"] for row in found.rows["tasks"] if row["id"].endswith("1110aaaa")]
    assert text == "é" * 150
    assert parser.parse(found).left_out["values that were too long or not text, cut"] >= 1


def test_an_expression_in_the_file_makes_no_gigabytes(make: Make) -> None:
    """A20: a column that is computed when it is read or checked."""
    change = "ALTER TABLE tasks ADD COLUMN x TEXT GENERATED ALWAYS AS (printf('%.*c', 900000000, 'x')) VIRTUAL"
    try:
        found = file.read(make(change=change))
    except maos.MaosError as error:
        assert "too big" in str(error)
    else:
        assert all("x" not in row for row in found.rows["tasks"])


def test_what_belongs_to_no_orchestration_is_named(make: Make) -> None:
    change = """PRAGMA foreign_keys = OFF;
        INSERT INTO messages (from_agent, message) VALUES ('nobody', 'x');
        INSERT INTO tasks (id, description) VALUES ('task-of-a-plan', 'x');
        INSERT INTO checkpoints (id, name) VALUES ('x', 'by the way');
        CREATE TABLE extra (a); INSERT INTO extra VALUES (1), (2)"""
    left_out = parser.parse(file.read(make(change=change))).left_out
    assert left_out == {
        "messages of agents that do not exist": 1,
        "checkpoints of no orchestration": 1,
        "empty records of plans": 3,
        "planned tasks that no agent had": 1,
        "rows of table extra": 2,
        "settings": 1,
    }


def test_the_library_can_do_what_is_asked_of_it() -> None:
    """Older ones would ignore it without a word."""
    assert apsw.SQLITE_VERSION_NUMBER >= 3_031_000  # trusted_schema
