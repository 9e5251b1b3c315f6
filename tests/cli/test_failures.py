"""What goes wrong: a message, a hint, a number, and never a traceback."""

import importlib.metadata
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

import maos
from maos.cli.failures import EXIT_CODES, code_for
from tests.cli.conftest import WAIT_S_MAX, Invoke, Run

READING = [
    ["state", "list"], ["state", "show", "a"], ["state", "at", "a", "1"], ["state", "peek", "a", "/x"],
    ["state", "history", "a"], ["state", "events", "a"], ["state", "diff", "a"], ["state", "stream", "a"],
    ["state", "verify"], ["state", "verify", "--accept-loss"], ["state", "snapshot", "a", "--list"], ["copy", "b.db"],
    ["state", "rollback", "a", "1", "--dry-run"], ["state", "restore", "a", "s", "--dry-run"],
    ["state", "compact", "a", "--dry-run"],
    # These write, but only to what is there.
    ["state", "update", "a", "{}"], ["state", "rollback", "a", "1", "--yes"], ["state", "snapshot", "a"],
]  # fmt: skip


def alter(db: Path, *statements: str) -> None:
    connection = apsw.Connection(str(db))
    for statement in statements:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("args", READING, ids=" ".join)
def test_no_database_is_made_by_looking_for_one(no_db: Path, invoke: Invoke, args: list[str]) -> None:
    result = invoke(*args)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: there is no database maos.db\nhint: ")
    assert list(no_db.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "says"),
    [(":memory:", "ends with the command"), (".", "is a folder"), ("empty.db", "there is no database"),
     ("mysql://x", "neither a path nor a PostgreSQL URL")],
)  # fmt: skip
def test_what_cannot_be_a_database(no_db: Path, invoke: Invoke, name: str, says: str) -> None:
    empty = no_db.parent / "empty.db"
    empty.touch()
    result = invoke("--db", name, "state", "list")
    assert result.exit_code == 2
    assert says in result.stderr
    assert empty.stat().st_size == 0


def test_the_variable_names_the_database(db: Path, run: Run) -> None:
    os.rename(db, "other.db")
    os.rename("maos.db-head", "other.db-head")
    assert run("state", "list").returncode == 2
    assert run("state", "list", MAOS_DB="other.db").returncode == 0
    assert run("--db", "other.db", "state", "list", MAOS_DB="none.db").returncode == 0


def test_a_file_that_is_no_database(no_db: Path, run: Run) -> None:
    no_db.write_text("just some text\n" * 500)
    for command in ("list", "verify"):
        done = run("state", command)
        assert done.returncode == 1
        assert done.stderr.startswith("error: maos.db is damaged or not a maos database")
        assert "hint: restore a copy" in done.stderr
    assert no_db.read_text() == "just some text\n" * 500


def test_a_newer_database(db: Path, run: Run) -> None:
    alter(db, "PRAGMA user_version = 99")
    done = run("state", "show", "reviewer")
    assert done.returncode == 1
    assert "has schema level 99" in done.stderr
    assert "hint: upgrade maos" in done.stderr


def test_a_database_with_the_names_of_a_pre_release(db: Path, run: Run) -> None:
    alter(db, "PRAGMA user_version = 1")
    before = db.read_bytes()
    done = run("state", "show", "reviewer")
    assert done.returncode == 1
    assert "schema level 1, which only pre-release versions of maos wrote" in done.stderr
    assert "hint: finish its runs with the maos that wrote it" in done.stderr
    assert db.read_bytes() == before


def test_a_damaged_event_is_named(db: Path, run: Run) -> None:
    connection = apsw.Connection(str(db))
    query = (
        "SELECT body, position FROM events JOIN streams ON id = stream WHERE name = 'agent/reviewer' AND version = 3"
    )
    body, position = connection.execute(query).fetchone()  # type: ignore[misc]
    damaged = bytes(body[:-4]) + bytes([body[-4] ^ 1]) + bytes(body[-3:])
    connection.execute("UPDATE events SET body = ? WHERE position = ?", (damaged, position))
    connection.close()

    done = run("state", "verify")
    assert done.returncode == 1
    assert "agent/reviewer@3  does not match its hash\n    can be recovered: versions 1-2, 4-7 verify" in done.stdout
    assert "\ndamaged: " in done.stdout
    report = json.loads(run("state", "verify", "reviewer", "--json").stdout)
    assert not report["ok"]
    damage = report["damage"][0]
    assert (damage["stream"], damage["version"]) == ("agent/reviewer", 3)
    assert run("state", "verify", "planner").returncode == 0

    done = run("state", "show", "reviewer")
    assert done.returncode == 1
    assert done.stderr.startswith("error: agent/reviewer@3 does not match its hash\nhint: run `maos admin verify`")
    done = run("state", "list", "--json")
    assert done.returncode == 1
    assert [each["agent"] for each in json.loads(done.stdout)["agents"]] == ["[bold]evil[/bold]", "planner"]
    assert done.stderr.startswith("error: agent/reviewer@3 does not match its hash\n")


def test_a_sound_database_verifies(db: Path, run: Run) -> None:
    done = run("state", "verify")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "ok: 9 events in 3 streams, everything as it was written\n"
    assert json.loads(run("state", "verify", "--json").stdout)["ok"] is True


def test_a_lost_end_is_accepted_only_when_told_so(db: Path, run: Run) -> None:
    shutil.copy(db, "older.db")
    assert run("state", "update", "reviewer", '{"status": "done"}').returncode == 0
    shutil.copy("older.db", db)
    for command in (["list"], ["verify"], ["update", "reviewer", "{}"]):
        done = run("state", *command)
        assert done.returncode == 1
        assert "position 10 was acknowledged, but the journal ends at 9" in done.stderr
        assert "maos admin verify --accept-loss" in done.stderr
    done = run("state", "verify", "--accept-loss")
    assert done.returncode == 0
    assert done.stdout.startswith("lost: maos.db: position 10 was acknowledged, but the journal ends at 9\n")
    assert "lost after position 9: 1 event" in done.stdout
    assert run("state", "list").returncode == 0


def test_a_lost_end_as_json(db: Path, run: Run) -> None:
    shutil.copy(db, "older.db")
    run("state", "update", "reviewer", '{"status": "done"}')
    shutil.copy("older.db", db)
    report = json.loads(run("state", "verify", "--accept-loss", "--json").stdout)
    assert (report["ok"], report["lost"]["acknowledged"], report["lost"]["found"]) == (True, 10, 9)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["state", "list", "--nonsense"], "error: no such option '--nonsense'\nhint: `maos state list --help`"),
        (["state", "lst"], "error: no command 'lst'; did you mean 'list'?\n"),
        (["statistics"], "error: no command 'statistics'; "),
        (["state", "list", "--db", "x"], "hint: --db comes before the command: `maos --db TEXT state list …`\n"),
        (["state", "show"], "error: missing argument 'AGENT'"),
        (["state", "diff", "a", "1", "2", "3"], "error: got unexpected extra argument"),
        (["state", "history", "a", "--last", "-3"], "error: invalid value for '--last': -3 is not in the range"),
        (["state", "snapshot", "a", "--keep-for", "ever"], "'ever' is not a duration"),
        (["state", "update", "a", "--append", "x", "{"], "is not JSON"),
        (["state", "show", "\udcff"], "error: '\\udcff' is not text"),
    ],
)
def test_wrong_usage(db: Path, invoke: Invoke, args: list[str], says: str) -> None:
    result = invoke(*args)
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stderr.startswith("error: ")


@pytest.mark.parametrize("args", [["state"], ["admin"]])
def test_a_group_alone_shows_its_help(no_db: Path, invoke: Invoke, args: list[str]) -> None:
    result = invoke(*args)
    assert result.exit_code == 2
    assert "Commands:" in result.stderr


def test_maos_alone_says_how_to_begin_where_there_is_no_database(no_db: Path, invoke: Invoke) -> None:
    result = invoke()
    assert result.exit_code == 0
    assert "maos demo" in result.stdout
    assert "pip install" not in result.stdout
    assert not no_db.exists()


@pytest.fixture
def no_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo is a distribution of its own, found by its entry point; here it is not installed."""
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_asked: [])


@pytest.mark.parametrize("args", [[], ["--help"], ["--json"], ["my-folder", "--keep"]], ids=" ".join)
def test_a_demo_that_is_not_installed_says_how_to_get_it(
    no_demo: None, no_db: Path, invoke: Invoke, args: list[str]
) -> None:
    result = invoke("demo", *args)
    assert (result.exit_code, result.stdout) == (3, "")
    told = "error: the demo, .+, is the package maos-demo, which is not installed: `pip install maos-demo`, or .+\n"
    assert re.fullmatch(told, result.stderr)
    assert list(no_db.parent.iterdir()) == []


def test_a_demo_that_is_not_installed_is_not_promised(no_demo: None, no_db: Path, invoke: Invoke) -> None:
    assert re.search("^  maos demo .+ after `pip install maos-demo`$", invoke().stdout, re.MULTILINE)
    assert " demo " in invoke("--help").stdout


def test_maos_alone_says_what_runs_and_what_to_do_next(db: Path, invoke: Invoke) -> None:
    shown = invoke().stdout
    assert shown.startswith("nothing is running\n")
    assert len(re.findall("^  maos .+", shown, re.MULTILINE)) == 3


@pytest.mark.parametrize("args", [["help"], ["state", "help"]])
def test_help_is_also_a_command(no_db: Path, invoke: Invoke, args: list[str]) -> None:
    assert invoke(*args).stdout == invoke(*args[:-1], "--help").stdout


def test_a_server_that_does_not_answer(no_db: Path, run: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and nobody listens
        done = run("--db", f"postgresql://maos:secret@127.0.0.1:{taken.getsockname()[1]}/maos", "state", "list")
    assert done.returncode == 5
    assert done.stderr.startswith("note: waiting for the database since ")
    assert "error: cannot use postgresql://maos@127.0.0.1" in done.stderr
    assert "hint: check that the server is running" in done.stderr
    assert "secret" not in done.stderr


def test_a_folder_that_is_not_there(no_db: Path, run: Run) -> None:
    done = run("--db", "none/maos.db", "state", "create", "a")
    assert done.returncode == 5
    assert "hint: check that the folder exists" in done.stderr


def test_a_failure_of_the_system_is_a_message(no_db: Path, invoke: Invoke) -> None:
    result = invoke("--db", "x" * 300, "state", "list")
    assert result.exit_code == 5
    assert result.stderr.endswith(": File name too long\n")


def test_every_error_has_an_exit_code() -> None:
    known = {code for code, _meaning in EXIT_CODES}
    codes = {
        maos.Corrupt: 1, maos.UnknownFormat: 1, maos.InvalidInput: 2, maos.NotFound: 3, maos.MaosError: 1, OSError: 5,
    }  # fmt: skip
    for kind, code in codes.items():
        assert code_for(kind("x")) == code
        assert code in known
    assert code_for(maos.HistoryLost("x", acknowledged=2, found=1, why="y")) == 1
    assert code_for(maos.Conflict("x", expected=1, actual=2)) == code_for(maos.LeaseLost("x", token=1, why="y")) == 4
    assert code_for(maos.KeyReused("x")) == 4
    assert code_for(maos.StoreUnavailable("x", written=None)) == code_for(maos.DiskFull("x")) == 5


@pytest.mark.parametrize(
    ("args", "unbuffered"),
    [
        (["events", "planner", "--full"], ""),
        (["events", "planner", "--full"], "1"),
        (["events", "planner", "--json"], ""),
        (["show", "planner"], ""),
        (["show", "planner", "--json"], ""),
    ],
)
def test_a_reader_who_has_seen_enough(db: Path, invoke: Invoke, args: list[str], unbuffered: str) -> None:
    Path("large.json").write_text(json.dumps({f"field{n}": "x" * 300 for n in range(1000)}))
    invoke("state", "update", "planner", "@large.json")
    with subprocess.Popen(
        [sys.executable, "-m", "maos", "state", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(WAIT_S_MAX) == 141


def test_a_reader_of_the_help_who_has_seen_enough(no_db: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-m", "maos", "--help"], stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_closed_standard_output_is_no_error(db: Path) -> None:
    """`maos ps >&-`: the command does what it does, and prints nothing."""
    done = subprocess.run(["sh", "-c", f"{sys.executable} -m maos state list >&-"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
