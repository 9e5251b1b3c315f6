"""Commands that change something."""

import json
from pathlib import Path
from typing import Any

import apsw
import pytest

from maos.engine.principals import person
from tests.cli.conftest import Invoke


def document(invoke: Invoke, *args: str, **more: Any) -> Any:
    result = invoke(*args, "--json", **more)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_create_makes_the_database_too(no_db: Path, invoke: Invoke) -> None:
    result = invoke("state", "create", "a", '{"status": "idle"}')
    assert result.stdout == "created a at version 1 with 1 field\n"
    assert no_db.stat().st_mode & 0o777 == 0o600
    assert document(invoke, "state", "show", "a")["source"] == str(person())


@pytest.mark.parametrize("given", ["argument", "file", "stdin"])
def test_data_comes_from_anywhere(no_db: Path, invoke: Invoke, given: str) -> None:
    text = '{"name": "Zoë", "n": 12345678901234567890}'
    (no_db.parent / "data.json").write_text(text, encoding="utf-8")
    source = {"argument": text, "file": "@data.json", "stdin": "-"}[given]
    made = document(invoke, "state", "create", "a", source, stdin=text if given == "stdin" else None)
    assert made["data"] == {"name": "Zoë", "n": 12345678901234567890}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("{", "the argument is not JSON"),
        ("[1]", "the argument is not a JSON object"),
        ("@missing.json", "missing.json cannot be read: No such file or directory"),
        ("@.", "cannot be read: Is a directory"),
        ("@binary", "binary is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"x": NaN}', "/x is nan"),
        ('{"x": "\\ud800"}', "surrogates"),
        ('{"x": ' + "[" * 200 + "]" * 200 + "}", "levels deep"),
    ],
)
def test_data_that_cannot_be_stored_is_refused(no_db: Path, invoke: Invoke, data: str, says: str) -> None:
    (no_db.parent / "binary").write_bytes(b"\xff\xfe")
    result = invoke("state", "create", "a", data)
    assert result.exit_code == 2
    assert says in result.stderr


def test_update_shows_what_it_changed(db: Path, invoke: Invoke) -> None:
    result = invoke(
        "state", "update", "reviewer", '{"status": "idle", "/memory/new/0": 9}', "--append", "messages", '"bye"',
        "--append", "/messages", '"again"', "--delete", "execution/task",
    )  # fmt: skip
    assert result.stdout == (
        "reviewer is now at version 8\n"
        '~ /status          "busy" → "idle"\n'
        "~ /memory/new/0    1 → 9\n"
        '+ /messages/41     "bye"\n'
        '+ /messages/42     "again"\n'
        '- /execution/task  "review"\n'
    )


def test_update_as_json_with_everything_there_is_to_say(db: Path, invoke: Invoke) -> None:
    done = document(
        invoke, "state", "update", "planner", '{"status": "busy"}', "--meta", '{"why": "test"}', "--correlation",
        "run/2", "--causation", "agent/reviewer@7", "--source", "me", "--type", "task_assigned", "--critical",
        "--expected", "1",
    )  # fmt: skip
    assert (done["version"], done["previous"]) == (2, 1)
    event = json.loads(invoke("state", "events", "planner", "--after", "1", "--json").stdout)
    assert (event["metadata"], event["correlation"], event["causation"]) == (
        {"why": "test"},
        "run/2",
        "agent/reviewer@7",
    )
    assert (event["source"], event["type"], event["critical"]) == ("me", "task_assigned", True)


def test_an_update_that_changes_nothing_writes_nothing(db: Path, invoke: Invoke) -> None:
    assert "stays at version 7" in invoke("state", "update", "reviewer", '{"status": "busy"}').stdout
    result = invoke("state", "update", "reviewer")
    assert result.exit_code == 2
    assert "nothing to change" in result.stderr


def test_a_key_makes_repeating_harmless(db: Path, invoke: Invoke) -> None:
    command = ("state", "update", "reviewer", "--append", "messages", '"once"', "--key", "k1")
    assert document(invoke, *command)["version"] == document(invoke, *command)["version"] == 8
    result = invoke("state", "update", "reviewer", "--append", "messages", '"other"', "--key", "k1")
    assert result.exit_code == 4
    assert "key 'k1' already belongs" in result.stderr


def test_conflicts_have_their_own_exit_code(db: Path, invoke: Invoke) -> None:
    result = invoke("state", "update", "reviewer", '{"status": "x"}', "--expected", "3")
    assert result.exit_code == 4
    assert result.stderr.startswith("error: agent/reviewer is at version 7, expected 3\nhint: ")
    assert invoke("state", "create", "reviewer").exit_code == 4
    assert invoke("state", "rollback", "reviewer", "3", "--yes", "--expected", "3").exit_code == 4


def test_rollback_appends(db: Path, invoke: Invoke) -> None:
    plan = document(invoke, "state", "rollback", "reviewer", "4", "--dry-run")
    assert (plan["dry_run"], plan["to"], plan["version"], plan["previous"]) == (True, 4, None, 7)
    assert document(invoke, "state", "show", "reviewer")["version"] == 7
    done = document(invoke, "state", "rollback", "reviewer", "4", "--yes")
    assert (done["dry_run"], done["to"], done["version"], done["previous"]) == (False, 4, 8, 7)
    assert done["changes"] == plan["changes"]
    before, after = (document(invoke, "state", "at", "reviewer", version) for version in ("4", "newest"))
    assert before["data"] == after["data"]


def test_rollback_counts_from_the_newest(db: Path, invoke: Invoke) -> None:
    result = invoke("state", "rollback", "reviewer", "-1", "--yes")
    assert result.stdout == (
        "reviewer is now at version 8, with the state of version 6\n"
        '~ /execution/task  "review" → null\n'
    )  # fmt: skip
    dry = invoke("state", "rollback", "reviewer", "1", "--dry-run").stdout
    assert dry.startswith("reviewer from version 8 to the state of version 1: 4")


@pytest.mark.parametrize("more", [[], ["--json"]])
@pytest.mark.parametrize("args", [["rollback", "reviewer", "3"], ["restore", "reviewer", "before-upgrade"],
                                  ["compact", "reviewer"]])  # fmt: skip
def test_without_a_terminal_a_yes_is_needed(db: Path, invoke: Invoke, args: list[str], more: list[str]) -> None:
    result = invoke("state", *args, *more, stdin="y\n")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "hint: repeat it with --yes, or with --dry-run" in result.stderr
    assert document(invoke, "state", "show", "reviewer")["version"] == 7


def test_snapshots_are_taken_listed_and_restored(db: Path, invoke: Invoke) -> None:
    taken = document(invoke, "state", "snapshot", "planner", "--name", "first", "--keep-for", "30d", "--source", "me")
    assert taken["expires_us"] - taken["time_us"] == pytest.approx(30 * 86_400e6, abs=60e6)
    assert invoke("state", "snapshot", "planner", "--kind", "checkpoint", "--permanent").stdout.endswith(
        "a name only\n"
    )
    text = invoke("state", "snapshot", "planner", "--list").stdout
    assert f"{taken['id']}  first" in text
    assert "until 20" in text
    assert "permanently" in text
    assert [each["kind"] for each in document(invoke, "state", "snapshot", "planner", "--list")["snapshots"]] == [
        "full", "checkpoint",
    ]  # fmt: skip
    assert invoke("state", "snapshot", "[bold]evil[/bold]", "--list").stdout.startswith("no snapshots of [bold]evil")
    invoke("state", "update", "planner", '{"status": "broken"}')
    plan = document(invoke, "state", "restore", "planner", "first", "--dry-run")
    assert plan["changes"] == [{"path": "/status", "kind": "update", "old": "broken", "new": "idle"}]
    done = document(invoke, "state", "restore", "planner", "first", "--yes")
    assert (done["snapshot"], done["version"], done["previous"], done["warnings"]) == (taken["id"], 5, 4, [])
    assert document(invoke, "state", "show", "planner", "--path", "/status")["value"] == "idle"


def test_a_damaged_snapshot_is_restored_from_the_events(db: Path, invoke: Invoke) -> None:
    id_ = document(invoke, "state", "snapshot", "reviewer", "--list")["snapshots"][0]["id"]
    connection = apsw.Connection(str(db))
    connection.execute("UPDATE documents SET body = zeroblob(100) WHERE kind = 'snapshot'")
    connection.close()
    dry = invoke("state", "restore", "reviewer", id_, "--dry-run")
    assert "warning: the snapshot is damaged" in dry.stdout
    done = invoke("state", "restore", "reviewer", id_, "--yes")
    assert "warning: the snapshot is damaged" in done.stdout
    assert "is now at version 8" in done.stdout
    assert "note: a snapshot of 'reviewer' cannot be used" in invoke("state", "snapshot", "reviewer", "--list").stderr


def test_compaction_shortens_the_history(db: Path, invoke: Invoke) -> None:
    command = ("state", "compact", "reviewer", "--keep-last", "3")
    assert invoke(*command, "--dry-run").stdout == "reviewer: versions 1 to 4, 4 events would become 1\n"
    before = document(invoke, "state", "show", "reviewer")
    done = document(invoke, *command, "--yes")
    assert (done["dry_run"], done["through"], done["events_before"], done["events_after"]) == (False, 4, 4, 1)
    assert document(invoke, "state", "show", "reviewer")["data"] == before["data"]
    lines = invoke("state", "history", "reviewer", "--last", "7").stdout.splitlines()
    assert lines[1].split()[:2] == ["1–4", "baseline"]
    assert "earlier" not in lines[-1]
    assert "covers 4 versions" in invoke("state", "events", "reviewer").stdout
    assert invoke("state", "at", "reviewer", "2").exit_code == 3
    assert "nothing to compact" in invoke(*command[:-1], "5", "--strategy", "merge", "--yes").stdout
    assert invoke("state", "compact", "reviewer", "--keep-last", "1", "--critical-only", "--yes").exit_code == 2


def test_a_copy_is_a_database(db: Path, invoke: Invoke) -> None:
    copied = document(invoke, "copy", "copy.db")
    assert copied["position"] == 9
    assert copied["bytes"] == (db.parent / "copy.db").stat().st_size
    listed = [document(invoke, "--db", name, "state", "list") for name in ("maos.db", "copy.db")]
    assert listed[0] == listed[1]
    assert invoke("copy", "other.db").stdout.startswith("copied everything up to position 9 to other.db (")


@pytest.mark.parametrize("target", ["maos.db", "maos.db-head", "nowhere/copy.db", "."])
def test_a_copy_overwrites_nothing(db: Path, invoke: Invoke, target: str) -> None:
    before = db.read_bytes()
    assert invoke("copy", target).exit_code == 2
    assert db.read_bytes() == before
