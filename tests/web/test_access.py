"""Credentials: only hashes are recorded, codes count once, and agents create none."""

import asyncio
from pathlib import Path

import pytest

import maos
from maos.model.access import CredentialKind, Role, Unauthenticated
from maos.model.principal import Principal, PrincipalKind
from maos.redact import Redactor
from maos_testing.manual_clock import ManualClock


async def test_a_token_is_recorded_as_a_hash_and_counts_until_it_is_revoked_or_expires(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000_000)
    async with maos.open(tmp_path / "maos.db", clock=clock) as m, maos.open(tmp_path / "maos.db", clock=clock) as other:
        token, secret = await m.access.create_token("ci", "operator", expires_s=60)
        assert secret.startswith(f"maos_{token.id}_")
        assert (await other.access.authenticate(secret)).role is Role.OPERATOR
        events = [record.data async for record in m.journal.read("access")]
        assert secret not in str(events)
        assert secret.rpartition("_")[2] not in str(events)
        for wrong in ("", "maos_", secret[:-1], secret + "x", f"maos_{token.id}_", token.proof, secret.upper()):
            with pytest.raises(Unauthenticated):
                await m.access.authenticate(wrong)
        with pytest.raises(Unauthenticated):
            await m.access.authenticate(secret, CredentialKind.SESSION)
        clock.advance(61)
        with pytest.raises(Unauthenticated):
            await m.access.authenticate(secret)
        _token, second = await m.access.create_token("phone")
        with pytest.raises(maos.InvalidInput, match="already"):
            await other.access.create_token("phone")
        await other.access.revoke("phone")
        with pytest.raises(Unauthenticated):
            await m.access.authenticate(second)
        with pytest.raises(maos.InvalidInput, match="no role"):
            await m.access.create_token("x", "root")


async def test_of_many_that_present_a_code_at_once_one_signs_in(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db") as m, maos.open(tmp_path / "maos.db") as other:
        code = await m.access.offer_sign_in("viewer")
        tries = [each.access.sign_in(code) for each in (m, other) for _ in range(4)]
        found = await asyncio.gather(*tries, return_exceptions=True)
        signed_in = [each for each in found if isinstance(each, tuple)]
        assert len(signed_in) == 1
        assert all(isinstance(each, Unauthenticated) for each in found if not isinstance(each, tuple))
        session, secret = signed_in[0]
        assert (await m.access.authenticate(secret, CredentialKind.SESSION)).id == session.id
        assert str(session.principal) == f"token:{m.principal}/{session.id}"
        assert session.role is Role.VIEWER


async def test_an_agent_creates_no_credentials_and_output_with_one_is_redacted(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db") as m:
        agent = m.acting_for(Principal(PrincipalKind.AGENT, "r-1.fix", attempt="r-1.fix.1"))
        for act in (agent.access.create_token("x"), agent.access.offer_sign_in(), agent.access.revoke("x")):
            with pytest.raises(maos.NotPermitted):
                await act
        with pytest.raises(maos.NotPermitted):
            await agent.supervisor.supervise()
        _token, secret = await m.access.create_token("x")
        assert secret not in Redactor({}).text(f"the token is {secret}, use it")


async def test_services_for_another_principal_are_another_owner_of_leases(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db") as m:
        other = m.acting_for(Principal(PrincipalKind.TOKEN, "phone"))
        lease = await m.journal.acquire("run/r-1")
        assert lease is not None
        assert await other.journal.acquire("run/r-1") is None
        await other.state.create("notes", {})
        assert (await m.state.get("notes")).version == 1
        assert other.journal.by == "token:phone"
        await other.close()
        await m.state.update("notes", {"still": "open"})


async def test_closing_the_services_of_one_caller_ends_no_waiting_of_the_others(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db") as m:
        await m.acting_for(Principal(PrincipalKind.TOKEN, "phone")).close()
        assert m.journal.store.patience.begin()._may_continue("the disk is full")  # an engine here still waits for it


async def test_the_name_of_an_expired_token_can_be_used_again_and_expired_credentials_are_forgotten(
    tmp_path: Path,
) -> None:
    clock = ManualClock(1_700_000_000_000_000)
    async with maos.open(tmp_path / "maos.db", clock=clock) as m:
        await m.access.create_token("ci", expires_s=60)
        for _ in range(3):
            await m.access.offer_sign_in(expires_s=60)
        clock.advance(61)
        token, secret = await m.access.create_token("ci")
        assert (await m.access.authenticate(secret)).id == token.id
        assert [each.id for each in await m.access.all()] == [token.id]
        assert list((await m.access._load()).credentials) == [token.id]
