"""Backups over HTTP: status, list, checks as started work; never a restoration."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import maos
from maos.web.endpoints.table import ENDPOINTS
from tests.web.conftest import ServerProcess

WAIT_S_MAX = 60


def until(read: Callable[[], Any]) -> Any:
    """What a function returns once it is true."""
    deadline = time.monotonic() + WAIT_S_MAX
    while not (found := read()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_the_backup_of_a_server_is_shown_and_checked(new_server: Callable[[], ServerProcess], tmp_path: Path) -> None:
    """R-701: by the API, by `maos.Client` and by commands with MAOS_URL."""
    server = new_server()
    server.environment |= {"MAOS_BACKUP_TO": str(tmp_path / "backups"), "MAOS_BACKUP_TEST_HOURS": "0"}
    server.start()
    tokens = server.tokens()
    with server.client(tokens["viewer"]) as viewer, server.client(tokens["operator"]) as operator:
        until(lambda: viewer.get("/api/v1/backups/status").json()["backup"])
        assert viewer.post("/api/v1/backups/test").status_code == 403
        started = operator.post("/api/v1/backups/test")
        assert (started.status_code, started.json()["kind"]) == (202, "test")
        check = until(lambda: [e for e in viewer.get("/api/v1/backups/status").json()["checks"] if e["ended_us"]])
        assert check[0]["problem"] == ""
        found = viewer.get("/api/v1/backups/status").json()
        assert found["tested"]["problem"] == ""
        assert "the-operator" in found["tested"]["by"]
        [listed] = viewer.get("/api/v1/backups").json()["backups"]
        assert listed["is_own"]
        assert viewer.post("/api/v1/backups/restore").status_code in (403, 404, 405)

    remote = {"MAOS_URL": server.url, "MAOS_TOKEN": tokens["operator"]}
    shown = server.maos("backup", "status", environment=remote)
    assert "backups: " in shown.stdout, shown.stderr
    assert "it can be restored, up to position" in shown.stdout
    verified = server.maos("backup", "verify", environment=remote)
    assert (verified.returncode, "it is as it was written" in verified.stdout) == (0, True), verified.stderr
    assert json.loads(server.maos("backup", "list", "--json", environment=remote).stdout)["backups"][0]["is_own"]
    segments = list((tmp_path / "backups").rglob("segments/**/0*"))
    for path in segments:
        path.write_bytes(b"damaged")
    tested = server.maos("backup", "test", environment=remote)
    assert (tested.returncode, "does not begin as a segment does" in tested.stdout) == (1, True), tested.stderr


def test_a_server_without_a_location_says_so(server: ServerProcess, tokens: dict[str, str]) -> None:
    async def ask() -> None:
        async with maos.Client(server.url, token=tokens["operator"]) as client:
            status = await client.backup_status()
            assert (status.location, status.backup, status.problem) == ("", None, "")
            assert (await client.backups()).backups == []
            for refused in (client.test_backup, client.verify_backup):
                try:
                    await refused()
                except maos.MaosError as error:
                    assert "name no location" in str(error)
                else:
                    raise AssertionError

    asyncio.run(ask())


def test_nothing_is_restored_over_http() -> None:
    assert not [each.name for each in ENDPOINTS if "restor" in f"{each.name}{each.path}".lower()]
