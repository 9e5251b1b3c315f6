"""Commands that look and change nothing."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import START_US, Invoke


def document(invoke: Invoke, *args: str) -> Any:
    result = invoke(*args, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_list_shows_every_agent(db: Path, invoke: Invoke) -> None:
    lines = invoke("state", "list").stdout.splitlines()
    assert lines[0].split() == ["agent", "version", "status", "last", "event", "changed", "by"]
    assert [line.split()[0] for line in lines[1:]] == ["[bold]evil[/bold]", "planner", "reviewer"]
    assert lines[3].split() == ["reviewer", "7", "busy", "task_assigned", "2020-01-02", "02:00:00"]  # in Tokyo


def test_list_as_json_has_stable_keys_and_both_forms_of_time(db: Path, invoke: Invoke) -> None:
    agents = document(invoke, "state", "list")["agents"]
    reviewer = agents[-1]
    assert list(reviewer) == ["agent", "version", "status", "type", "source", "time", "time_us"]
    assert reviewer["time"] == "2020-01-01T17:00:00.000000Z"
    assert reviewer["time_us"] == START_US + 5 * 3600 * 1_000_000


def test_list_by_prefix(db: Path, invoke: Invoke) -> None:
    assert [each["agent"] for each in document(invoke, "state", "list", "--prefix", "pl")["agents"]] == ["planner"]
    none = invoke("state", "list", "--prefix", "x").stdout
    assert none == "no agent has a state; `maos state create AGENT` creates one\n"


def test_show_prints_the_state(db: Path, invoke: Invoke) -> None:
    heading, _, text = invoke("state", "show", "reviewer").stdout.partition("\n")
    assert heading == "reviewer at version 7, task_assigned 2020-01-02 02:00:00"
    assert json.loads(text)["memory"] == {"new": [1, 2]}
    whole = document(invoke, "state", "show", "reviewer")
    assert whole["data"] == json.loads(text)
    assert len(whole["checksum"]) == 32


@pytest.mark.parametrize("path", ["/messages/0", "messages/0"])
def test_show_one_value(db: Path, invoke: Invoke, path: str) -> None:
    found = document(invoke, "state", "show", "reviewer", "--path", path)
    assert found == {
        "agent": "reviewer",
        "version": 7,
        "path": "/messages/0",
        "value": {"role": "user", "text": "hello"},
    }
    assert json.loads(invoke("state", "show", "reviewer", "--path", path).stdout) == found["value"]


def test_show_a_value_that_is_not_there(db: Path, invoke: Invoke) -> None:
    result = invoke("state", "show", "reviewer", "--path", "/messages/99")
    assert result.exit_code == 3
    assert "has nothing at /messages/99" in result.stderr


@pytest.mark.parametrize(
    ("asked", "version"),
    [("3", 3), ("-1", 6), ("-0", 7), ("newest", 7), ("newest-6", 1)],
)
def test_at_a_version(db: Path, invoke: Invoke, asked: str, version: int) -> None:
    assert document(invoke, "state", "at", "reviewer", asked)["version"] == version


@pytest.mark.parametrize(
    ("time", "version"),
    [
        ("2020-01-01T13:30:00Z", 2),
        ("2020-01-01T22:30:00", 2),  # in Tokyo
        ("2020-01-01T14:30:00+01:00", 2),
        ("2h", 7),
        ("1.5d ago", 7),
        ("0s", 7),
    ],
)
def test_at_a_time(db: Path, invoke: Invoke, time: str, version: int) -> None:
    assert document(invoke, "state", "at", "reviewer", "--time", time)["version"] == version


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["8"], 3),
        (["-7"], 3),
        (["newest-99"], 3),
        (["--time", "2019-12-31"], 3),
        (["--time", "later"], 2),
        (["--time", "99999999w"], 2),
        (["--time", "99999-01-01"], 2),
        (["newish"], 2),
        ([""], 2),
        (["٣"], 2),
        (["9" * 30], 2),
        ([], 2),
        (["1", "--time", "2h"], 2),
    ],
)
def test_at_nowhere(db: Path, invoke: Invoke, args: list[str], code: int) -> None:
    result = invoke("state", "at", "reviewer", *args)
    assert result.exit_code == code
    assert result.stderr.startswith("error: ")
    assert "\nhint: " in result.stderr or "did not exist" in result.stderr


@pytest.mark.parametrize("command", [["show", "reviewer", "--path"], ["peek", "reviewer"]])
def test_the_end_of_a_list_is_shown_without_the_rest(db: Path, invoke: Invoke, command: list[str]) -> None:
    found = document(invoke, "state", *command, "messages", "--last", "2")
    assert (found["start"], found["length"], found["entries"]) == (39, 41, ["message 38", "message 39"])
    assert "messages" not in found["head"]
    assert (found["left_out"], found["path"]) == ({"/messages": 41}, "/messages")
    text = invoke("state", *command, "/messages", "--last", "2").stdout
    assert text.endswith('/messages: the last 2 of 41 entries\n39  "message 38"\n40  "message 39"\n')
    assert invoke("state", *command, "/status", "--last", "2").exit_code == 2


def test_the_end_of_a_list_needs_a_list(db: Path, invoke: Invoke) -> None:
    assert len(document(invoke, "state", "peek", "reviewer", "messages")["entries"]) == 10
    result = invoke("state", "show", "reviewer", "--last", "2")
    assert result.exit_code == 2
    assert "hint: name it with --path" in result.stderr


def test_history_shows_the_newest_last(db: Path, invoke: Invoke) -> None:
    lines = invoke("state", "history", "reviewer", "--last", "2").stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:3]] == [["6", "snapshot_created"], ["7", "task_assigned"]]
    assert lines[3] == "5 earlier versions not shown (--all shows them)"
    everything = document(invoke, "state", "history", "reviewer", "--all")
    assert everything["earlier"] == 0
    assert [each["version"] for each in everything["versions"]] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("filters", "versions"),
    [
        ([], [1, 2, 3, 4, 5, 6, 7]),
        (["--after", "5"], [6, 7]),
        (["--after", "-2"], [6, 7]),
        (["--after", "-99", "--until", "-5"], [1, 2]),
        (["--type", "status_changed", "--type", "task_assigned"], [2, 7]),
        (["--since", "2020-01-01T15:00Z", "--before", "2020-01-01T16:30Z"], [4, 5, 6]),
        (["--source", "runner"], [2, 3, 5]),
        (["--correlation", "run/1"], [2]),
        (["--path", "memory/old"], [1, 4]),
        (["--limit", "2"], [1, 2]),
    ],
)
def test_events_pass_filters(db: Path, invoke: Invoke, filters: list[str], versions: list[int]) -> None:
    lines = invoke("state", "events", "reviewer", *filters, "--json").stdout.splitlines()
    assert [json.loads(line)["version"] for line in lines] == versions


def test_an_event_as_json_says_everything(db: Path, invoke: Invoke) -> None:
    event = json.loads(invoke("state", "events", "reviewer", "--after", "3", "--limit", "1", "--json").stdout)
    assert event["changes"] == [
        {"path": "/memory/old", "kind": "delete", "old": 1, "new": None},
        {"path": "/memory/new", "kind": "create", "old": None, "new": [1, 2]},
    ]
    assert (event["id"], event["critical"], event["metadata"]) == ("agent/reviewer@4", True, {"why": "tidy"})
    assert datetime.fromisoformat(event["time"]) == datetime.fromtimestamp(event["time_us"] / 1e6, UTC)


def test_events_as_text(db: Path, invoke: Invoke) -> None:
    assert invoke("state", "events", "reviewer", "--after", "3", "--until", "4").stdout == (
        "agent/reviewer@4  state_updated  2020-01-02 00:00:00  critical\n"
        '    metadata {"why": "tidy"}\n'
        "    - /memory/old  1\n"
        "    + /memory/new  [1, 2]\n"
    )
    result = invoke("state", "events", "reviewer", "--type", "nonsense")
    assert result.exit_code == 2
    assert "status_changed" in result.stderr


def test_diff_shows_what_came_went_and_changed(db: Path, invoke: Invoke) -> None:
    assert invoke("state", "diff", "reviewer", "1", "4").stdout == (
        "reviewer from version 1 to 4: 4 changes\n"
        '~ /status      "idle" → "busy"\n'
        '+ /messages/0  {"role": "user", "text": "hello"}\n'
        "- /memory/old  1\n"
        "+ /memory/new  [1, 2]\n"
    )


def test_diff_is_of_the_last_change_by_default(db: Path, invoke: Invoke) -> None:
    found = document(invoke, "state", "diff", "reviewer")
    assert (found["from"], found["to"]) == (6, 7)
    assert found["changes"] == [{"path": "/execution/task", "kind": "update", "old": None, "new": "review"}]
    assert document(invoke, "state", "diff", "reviewer", "-2", "-1")["from"] == 5
    assert "no difference" in invoke("state", "diff", "reviewer", "5", "6").stdout


def test_a_long_diff_is_shortened_unless_asked_for(db: Path, invoke: Invoke) -> None:
    short = invoke("state", "diff", "reviewer", "4", "5").stdout
    assert [line.split()[1] for line in short.splitlines()[1:]] == [
        "/messages/1", "/messages/2", "/messages/3", "36", "/messages/40",
    ]  # fmt: skip
    assert len(invoke("state", "diff", "reviewer", "4", "5", "--full").stdout.splitlines()) == 41


def test_long_values_are_shown_where_they_differ(db: Path, invoke: Invoke) -> None:
    invoke("state", "update", "planner", json.dumps({"text": "x" * 500 + "old" + "y" * 500, "many": {}}))
    wanted = {"text": "x" * 500 + "new" + "y" * 500, "many": {f"field{n}": n for n in range(60)}}
    invoke("state", "update", "planner", json.dumps(wanted))
    lines = invoke("state", "diff", "planner").stdout.splitlines()
    assert "…xxxxxxxxxxxxold" in lines[1]
    assert "…xxxxxxxxxxxxnew" in lines[1]
    assert len(lines[1]) < 180
    assert lines[-1] == "… and 21 more changes (--full shows all)"
    full = invoke("state", "diff", "planner", "--full").stdout
    assert "x" * 500 + "new" + "y" * 500 in full
    assert "field59" in full


@pytest.mark.parametrize("args", [["show"], ["history"], ["events"], ["diff"], ["at", "x", "1"], ["peek", "x", "/y"],
                                  ["stream"], ["snapshot"], ["snapshot", "x", "--list"], ["verify"],
                                  ["rollback", "x", "1", "--yes"], ["restore", "x", "y", "--yes"],
                                  ["compact", "x", "--yes"], ["update", "x", "{}"]])  # fmt: skip
def test_no_such_agent(db: Path, invoke: Invoke, args: list[str]) -> None:
    result = invoke("state", *args, *(["x"] if len(args) == 1 else []))
    assert result.exit_code == 3
    assert result.stderr == "error: agent 'x' has no state\nhint: `maos state list` lists the agents that have one\n"
    assert result.stdout == ""
