"""PostgreSQL: what an administrator or another user has set up changes nothing (I5, I25, A16, A21)."""

import asyncio
from pathlib import Path

import asyncpg
import pytest

import maos
from maos.clock import SystemClock
from maos.errors import StoreUnavailable
from maos.store.postgres import PostgresDatabase
from tests.journal.places import NOTE


async def test_another_default_isolation_refuses_nobody(postgres_url: str, tmp_path: Path) -> None:
    """I5: under REPEATABLE READ whoever waited for the lock did not see what it had waited for, and was refused."""
    connection = await asyncpg.connect(postgres_url)
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
    await connection.close()
    async with (
        maos.open(postgres_url, types=[NOTE], mark_path=tmp_path / "one") as one,
        maos.open(postgres_url, types=[NOTE], mark_path=tmp_path / "two") as two,
    ):
        for _ in range(10):
            await asyncio.gather(*(m.journal.append("run/1", maos.Event("note", {})) for m in (one, two)))
        assert await one.journal.version("run/1") == 20
        for _ in range(10):
            leases = await asyncio.gather(*(m.journal.acquire("name") for m in (one, two)))
            [held] = [lease for lease in leases if lease is not None]
            await one.journal.release(held)


async def test_a_copy_does_not_follow_a_link_put_in_its_way(postgres_url: str, tmp_path: Path) -> None:
    """A21: what the link led to was overwritten."""
    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / "copy.partial").symlink_to(precious)
    async with maos.open(postgres_url, mark_path=tmp_path / "mark") as m:
        await m.copy_to(tmp_path / "copy")
    assert precious.read_text() == "kept"
    assert not (tmp_path / "copy").is_symlink()


def test_a_password_among_the_options_is_not_shown(tmp_path: Path) -> None:
    """A16: only one before the host was left out of messages."""
    for url, shown in (
        ("postgresql://host/db?user=me&password=secret&port=1", "postgresql://host/db?user=me&port=1"),
        ("postgresql://host/db?pass%77ord=secret", "postgresql://host/db"),
        ("postgresql://me:secret@host/db?sslpassword=secret", "postgresql://me@host/db"),
        ("postgresql:///db?host=/tmp", "postgresql:///db?host=/tmp"),
    ):
        assert PostgresDatabase(url, clock=SystemClock(), mark_path=tmp_path / "mark").place == shown


async def test_a_server_that_is_not_as_the_url_demands_is_a_clear_error(postgres_url: str, tmp_path: Path) -> None:
    """It was a traceback: the error is none of those of a lost connection."""
    demanding = f"{postgres_url}{'&' if '?' in postgres_url else '?'}target_session_attrs=read-only"
    with pytest.raises(StoreUnavailable, match="cannot use postgresql://"):
        await maos.open(demanding, mark_path=tmp_path / "mark")
