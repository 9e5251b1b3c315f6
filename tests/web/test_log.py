"""The log of `maos serve`: lines for people or programs, with stable keys, in which failed requests are (R-903)."""

import io
import json
import logging
from collections.abc import Callable

import pytest

from maos.engine import log
from maos.ops import server_log
from tests.web.conftest import ServerProcess, write_plan

PLANTED = "sk-ant-api03-" + "Ab3dE5gH7j" * 9
BROKEN = f"""
from maos.app import Maos

async def statistics(self, **given):
    raise ValueError("out of order\\nERROR forged: line {PLANTED}")

Maos.statistics = statistics
"""
"""A module of workflows that breaks a service of the server that loads it."""


def entries(server: ServerProcess) -> list[dict[str, str]]:
    """What the server has logged; every line must be a document."""
    return [json.loads(line) for line in server.log.read_text().splitlines()]


def test_every_line_is_a_document_with_the_stable_keys(new_server: Callable[[], ServerProcess]) -> None:
    server = new_server()
    (server.folder / "broken.py").write_text(BROKEN)
    write_plan(server.folder, {"name": "hello", "command": ["echo", "hello"]})
    server.start("--log-format", "json", "broken.py")
    token = server.tokens()["admin"]
    with server.client(token) as client:
        failed = client.get("/api/v1/statistics")
        assert (failed.status_code, failed.json()["detail"]) == (500, "the server failed")
        for path in ("/health", "/api/v1/overview", "/api/v1/runs/none"):
            client.get(path)
    started = server.maos("run", "--detach", "-f", "plan.json", "--auto", "--in-place", "--json")
    id = json.loads(started.stdout.splitlines()[-1])["run"]
    server.wait_for_run(id)
    assert server.stop() == 0

    found = entries(server)
    for each in found:
        assert {"at", "level", "logger", "message", *log.KEYS} <= set(each)
    [request] = [each for each in found if each["action"] == "request.failed"]
    assert (request["level"], request["method"], request["path"]) == ("error", "GET", "/api/v1/statistics")
    assert (request["by"], request["logger"]) == ("token:the-admin", "maos.server")
    assert "ValueError" in request["traceback"]
    assert PLANTED not in server.log.read_text()
    done = [(each["action"], each["task"]) for each in found if each["run"] == id]
    assert ("task.completed", "hello") in done
    assert ("run.completed", "") in done
    assert {"server.started", "server.stopping"} <= {each["action"] for each in found}
    assert not [each for each in found if "/health" in str(each)], "there is no line for each request"


def test_lines_for_people_cannot_be_forged(caplog: pytest.LogCaptureFixture) -> None:
    written = io.StringIO()
    with server_log.logging_to(written):
        try:
            raise ValueError("broken\n2026-01-01 ERROR server.problem: forged\x1b[2J")
        except ValueError as error:
            server_log.write(server_log.REQUEST_FAILED, error, path="/x", reason="a\nb")
        server_log.note("started \x1b[31mw-1\nforged")
        logging.getLogger("other").warning("of a library")
        logging.getLogger("other").info("nothing of interest")
    first, *rest = written.getvalue().splitlines()
    assert first.endswith(" ERROR   request.failed: request failed path=/x: a")
    assert all(each.startswith("    ") for each in rest[:-2])
    assert rest[-2].endswith("server.noted: started  [31mw-1 forged")
    assert rest[-1].endswith("WARNING other: of a library")
    assert "\x1b" not in written.getvalue()
    server_log.note("after the block")
    assert "after the block" not in written.getvalue()


@pytest.mark.parametrize(("level", "expected"), [("info", 2), ("warning", 1), ("error", 0)])
def test_the_level_is_a_setting(level: str, expected: int) -> None:
    written = io.StringIO()
    with server_log.logging_to(written, format="json", level=level):
        server_log.note("started w-1")
        server_log.write(server_log.PROBLEM, run="r-1", reason="no agent")
    assert len(written.getvalue().splitlines()) == expected
