"""`maos audit`."""

import asyncio
import json
from pathlib import Path

import maos
from maos.model.events.audit import AuditEntry
from tests.cli.conftest import Invoke


def test_the_commands_list_export_sign_and_verify(db: Path, invoke: Invoke, tmp_path: Path) -> None:
    at = {"first_us": 1_700_000_000_000_000, "last_us": 1_700_000_000_000_000}
    denied = AuditEntry(principal="token:x", verb="read", on="run/r-1", what="getRun", outcome="denied", **at)

    async def fill() -> None:
        async with maos.open(db) as m:
            await m.audit.record(denied)

    asyncio.run(fill())
    assert "token:x" in invoke("audit", "list", "--outcome", "denied").stdout
    assert [json.loads(each)["on"] for each in invoke("audit", "export").stdout.splitlines()] == ["run/r-1"]
    assert "signed up to" in invoke("audit", "sign", str(tmp_path / "backup")).stdout
    verified = invoke("audit", "verify", str(tmp_path / "backup"), "--json")
    assert (verified.exit_code, json.loads(verified.stdout)["heads"]) == (0, 1)
    assert invoke("audit", "verify", str(tmp_path / "none")).exit_code == 1
