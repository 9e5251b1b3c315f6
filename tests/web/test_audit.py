"""The audit: acts are recorded before they are executed, and who removes or alters entries is noticed."""

import json
import shutil
import stat
from pathlib import Path

import httpx2
import pytest

import maos
from maos.model.events.audit import AuditEntry
from maos.ops.audit import KEY_FILE, PENDING_MAX
from maos.settings.schema import ServeSettings
from maos.web.server import MaosServer
from maos_testing.manual_clock import ManualClock
from tests.web.conftest import ServerProcess

NOW_US = 1_700_000_000_000_000


def entry(principal: str = "token:x", on: str = "run/r-1", outcome: str = "allowed") -> AuditEntry:
    return AuditEntry(
        principal=principal, verb="read", on=on, what="getRun", outcome=outcome, first_us=NOW_US, last_us=NOW_US
    )


async def test_acts_and_first_reads_of_output_are_recorded_before_they_are_answered(tmp_path: Path) -> None:
    """I40: nothing is flushed here, so what is in the journal was recorded by the request itself."""
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home") as m:
        await m.state.create("notes", {"n": 1})
        server = MaosServer(m, ServeSettings(port=6267), folder=tmp_path, is_executing=False)
        _token, secret = await m.access.create_token("phone", "operator", on=["agent/notes"])
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=server.app),
            base_url="http://127.0.0.1:6267",
            headers={"Authorization": f"Bearer {secret}", "User-Agent": "a phone"},
        ) as http:

            async def recorded() -> list[tuple[str, str, str, str, int]]:
                found = await m.audit.entries()
                return [(each.principal, each.what, each.on, each.outcome, each.count) for each in found]

            await http.get("/api/v1/runs")
            assert await recorded() == []
            for _ in range(3):
                await http.get("/api/v1/state/notes")
            assert ("token:phone", "getState", "agent/notes", "allowed", 1) in await recorded()
            assert (await http.get("/api/v1/state/other")).status_code == 403
            await http.get("/api/v1/runs", headers={"Authorization": "Bearer nothing"})
            changed = await http.patch("/api/v1/state/notes", json={"changes": {"n": 2}})
            assert changed.status_code == 200
            found = await recorded()
            assert ("token:phone", "updateState", "agent/notes", "allowed", 1) in found
            assert ("token:phone", "getState", "agent/notes", "allowed", 2) in found
            assert ("token:phone", "getState", "agent/other", "denied", 1) in found
            assert ("", "listRuns", "store", "unauthenticated", 1) in found
            refused = (await m.audit.entries(outcome="denied"))[0]
            assert (refused.address, refused.client, refused.verb) == ("127.0.0.1", "a phone", "read_output")
            # The entry of the act is before the act.
            acted = [each async for each in m.journal.read("agent/notes")][-1].position
            streams = [each async for each in m.journal.streams("audit/")]
            written = [
                each for name in streams for each in await m.journal.page(name) if "updateState" in str(each.data)
            ]
            assert written[0].position < acted
            assert secret not in str([each.data for each in written])
        await server.context.close()


async def test_entries_that_wait_are_bounded_and_kept_when_the_store_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(NOW_US)
    async with maos.open(tmp_path / "maos.db", clock=clock) as m:
        for number in range(PENDING_MAX + 1):
            await m.audit.count(entry(on=f"run/r-{number}"))
        assert len(await m.audit.entries()) == PENDING_MAX
        await m.audit.record_first(entry())
        before = len(await m.audit.entries())
        await m.audit.record_first(entry())
        assert len(await m.audit.entries()) == before
        clock.advance(61)
        await m.audit.record_first(entry())
        assert len(await m.audit.entries()) > before

        async def fail(*_given: object, **_more: object) -> None:
            raise maos.StoreUnavailable("gone", written=False, hint="")

        with monkeypatch.context() as patched, pytest.raises(maos.StoreUnavailable):
            patched.setattr(m.journal, "append", fail)
            await m.audit.record(entry("token:kept"))
        await m.audit.flush()
        assert len(await m.audit.entries(principal="token:kept")) == 1
        assert [each async for each in m.journal.streams("audit/")] == ["audit/2023-11"]


async def test_a_witness_shows_what_was_removed_or_rewritten(tmp_path: Path) -> None:
    """Whoever owns the database file puts an older copy in its place, or another history; the chain alone is sound."""
    home, backup = tmp_path / "home", tmp_path / "backup"
    async with maos.open(tmp_path / "maos.db", home=home) as m:
        await m.audit.record(entry("token:first"))
        await m.audit.witness(str(backup))
        assert (await m.audit.verify(str(backup))).problems == []
        store = await m.journal.store.identity()
    assert stat.S_IMODE((home / KEY_FILE).stat().st_mode) == 0o600
    shutil.copy(tmp_path / "maos.db", tmp_path / "older.db")
    async with maos.open(tmp_path / "maos.db", home=home) as m:
        await m.audit.record(entry("token:thief"))
        assert await m.audit.witness(str(backup)) is not None
        assert await m.audit.witness(str(backup)) is None
        assert (await m.audit.verify(str(backup))) == (2, 2, [])
    for each in tmp_path.glob("maos.db-*"):
        each.unlink()
    (tmp_path / "maos.db").write_bytes((tmp_path / "older.db").read_bytes())  # the same file to the file system
    async with maos.open(tmp_path / "maos.db", home=home) as m:
        assert (await m.audit.verify()).problems == []
        found = (await m.audit.verify(str(backup))).problems
        assert any("the journal ended at position" in each for each in found), found
        assert any("version 2 of audit/" in each and "missing" in each for each in found), found
        await m.audit.record(entry("token:innocent"))
        found = (await m.audit.verify(str(backup))).problems
        assert any("is another one than was signed" in each for each in found), found
        heads = sorted((backup / store / "witness").iterdir())
        heads[-1].write_bytes(heads[-1].read_bytes().replace(b'"position":', b'"position":9'))
        assert any("not signed" in each for each in (await m.audit.verify(str(backup))).problems)
        heads[0].write_bytes(b"{}")
        assert any("no signed head" in each for each in (await m.audit.verify(str(backup))).problems)
        nothing = await m.audit.verify(str(tmp_path / "elsewhere"))
        assert "there is no signed head" in nothing.problems[0]


async def test_an_agent_signs_nothing(tmp_path: Path) -> None:
    from maos.model.principal import Principal, PrincipalKind

    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home") as m:
        agent = m.acting_for(Principal(PrincipalKind.AGENT, "r-1.fix", attempt="r-1.fix.1"))
        with pytest.raises(maos.NotPermitted):
            await agent.audit.witness(str(tmp_path / "backup"))


def test_a_server_records_who_uses_it_and_keeps_what_waits_when_it_is_stopped(server: ServerProcess) -> None:
    made = server.maos("token", "create", "watched", "--role", "auditor").stdout.strip()
    with server.client(made) as http:
        assert http.get("/api/v1/runs").status_code == 200
        assert http.get("/api/v1/agents/r-done.hello/output").status_code == 403
        shown = http.get("/api/v1/audit", params={"principal": "token:watched"}).json()["entries"]
    assert {(each["what"], each["outcome"]) for each in shown} >= {("listRuns", "allowed"), ("readOutput", "denied")}
    listed = json.loads(server.maos("audit", "list", "--principal", "token:watched", "--json").stdout)["entries"]
    assert {each["what"] for each in listed} >= {"listRuns", "readOutput"}
