"""The part of the store contract about events of another store; see `maos_testing.store_contract`."""

from __future__ import annotations

import pytest

from maos.errors import Corrupt, KeyReused
from maos.store import chain
from maos.store.contract import GENESIS, Key, Recorded, Store, UsedKey
from maos_testing.store_contract.streams import check_journal, log_of, write


def recorded(*bodies: bytes, stream: str = "a", first: int = 1, token: int = 0) -> list[Recorded]:
    """Return the first events of a stream, as another store has recorded them from a position on."""
    found: list[Recorded] = []
    hash_ = GENESIS
    for version, body in enumerate(bodies, 1):
        position, time_us = first + version - 1, (first + version) * 1_000
        hash_ = chain.link(hash_, stream.encode(), version, b"noted", 1, time_us, token, body)
        found.append(Recorded(position, stream, version, 1, "noted", 1, time_us, token, body, hash_))
    return found


class RestoreContract:
    """What a backup needs of a store: events, keys and tokens of another one."""

    async def test_restored_events_are_as_they_were_recorded(self, store: Store) -> None:
        """I35: positions, times, tokens and hashes stay, and the journal continues behind them."""
        await store.restore(recorded(b"1", b"2"), [])
        await store.restore(recorded(b"3", stream="b", first=3, token=7), [])
        assert await log_of(store) == [*recorded(b"1", b"2"), *recorded(b"3", stream="b", first=3, token=7)]
        await store.append(write("a", b"4", expected=2))
        await check_journal(store)

    async def test_a_restored_key_is_a_used_one(self, store: Store) -> None:
        """I2: a repetition after the restoration adds nothing."""
        await store.restore(recorded(b"1"), [UsedKey("k", b"f" * 32, 1, "[1]")])
        assert (await store.append(write("a", b"1"), key=Key("k", b"f" * 32))).repeated
        with pytest.raises(KeyReused):
            await store.append(write("a", b"2"), key=Key("k", b"g" * 32))
        assert await store.head() == 1

    async def test_keys_are_read_by_the_positions_of_their_appends(self, store: Store) -> None:
        for name in ("x", "y", "z"):
            await store.append(write("a", b"1"), key=Key(name, name.encode() * 32))
        assert [key.id for key in await store.read_keys(first=2, last=3)] == ["y", "z"]
        assert await store.read_keys(first=2, last=2) == [UsedKey("y", b"y" * 32, 2, "[2]")]

    async def test_leases_begin_above_restored_tokens(self, store: Store) -> None:
        """I22: a token never falls, also not that of a lease with another name."""
        await store.restore(recorded(b"1", token=41), [])
        lease = await store.acquire("any", owner="me", ttl_s=60)
        assert lease is not None
        assert lease.token == 42
        assert (await store.append(write("a", b"2"), under=lease)).position == 2

    @pytest.mark.parametrize("change", [{"body": b"x"}, {"version": 3}, {"token": 1}, {"hash": b"h" * 32}])
    async def test_an_event_that_does_not_match_is_refused_with_all_others(
        self, store: Store, change: dict[str, object]
    ) -> None:
        """I7: nothing is written."""
        one, two = recorded(b"1", b"2")
        with pytest.raises(Corrupt):
            await store.restore([one, two._replace(**change)], [UsedKey("k", b"f" * 32, 1, "[1]")])  # type: ignore[arg-type]
        assert await log_of(store) == []
        assert await store.read_keys(first=1, last=9) == []

    async def test_events_that_are_there_already_are_refused(self, store: Store) -> None:
        """I4: a position is written once."""
        await store.restore(recorded(b"1"), [])
        with pytest.raises(Corrupt):
            await store.restore(recorded(b"1"), [])
        assert await log_of(store) == recorded(b"1")
