"""The same commands on a server."""

import asyncio
import json
from pathlib import Path

import pytest

import maos
from tests.cli.conftest import Invoke, Run


async def fill(url: str) -> None:
    async with maos.open(url) as m:
        await m.state.create("reviewer", {"status": "idle"}, source="setup")
        await m.state.update("reviewer", {"status": "busy"})


@pytest.fixture
def url(postgres_url: str, no_db: Path) -> str:
    asyncio.run(fill(postgres_url))
    return postgres_url


def test_reading_and_writing(url: str, invoke: Invoke) -> None:
    assert [each["agent"] for each in json.loads(invoke("--db", url, "state", "list", "--json").stdout)["agents"]] == [
        "reviewer"
    ]
    assert '"idle" → "busy"' in invoke("--db", url, "state", "diff", "reviewer").stdout
    assert invoke("--db", url, "state", "rollback", "reviewer", "-1", "--yes").exit_code == 0
    assert invoke("--db", url, "state", "update", "reviewer", "{}", "--expected", "1").exit_code == 4
    assert invoke("--db", url, "state", "show", "nobody").exit_code == 3
    assert invoke("--db", url, "state", "verify").stdout.startswith("ok: 3 events in 1 stream")


def test_the_variable_may_hold_a_url(url: str, run: Run) -> None:
    done = run("state", "history", "reviewer", MAOS_DB=url)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 3


def test_a_copy_is_lines_of_json(url: str, invoke: Invoke, no_db: Path) -> None:
    assert json.loads(invoke("--db", url, "copy", "copy.jsonl", "--json").stdout)["position"] == 2
    rows = [json.loads(line) for line in (no_db.parent / "copy.jsonl").read_text().splitlines()]
    assert [row["version"] for row in rows if row["table"] == "events"] == [1, 2]


def test_a_database_that_the_server_does_not_have(url: str, invoke: Invoke) -> None:
    result = invoke("--db", url.rpartition("/")[0] + "/none", "state", "list")
    assert result.exit_code == 5
    assert "hint: check that the server is running" in result.stderr
