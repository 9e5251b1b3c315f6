"""The part of the store contract about leases and documents; see `maos_testing.store_contract`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from maos.errors import Conflict, LeaseLost
from maos.store.contract import Document, Key, Lease, Store
from maos_testing.store_contract.streams import log_of, write


async def acquire_lease(store: Store, name: str = "agent/1", owner: str = "me", ttl_s: float = 30) -> Lease:
    """Acquire a lease that is free."""
    lease = await store.acquire(name, owner=owner, ttl_s=ttl_s)
    assert lease is not None
    return lease


class LeaseContract:
    """Leases and fencing."""

    async def test_a_free_name_can_be_leased(self, store: Store) -> None:
        """I22: the first token is 1, and names do not concern one another."""
        lease = await acquire_lease(store, "agent/1", "me")
        assert (lease.name, lease.owner, lease.token) == ("agent/1", "me", 1)
        assert (await acquire_lease(store, "agent/é", "you")).token == 1

    async def test_a_leased_name_is_refused_to_everybody(self, store: Store) -> None:
        """I26: to its holder too: an equal owner may be an earlier start of the same program."""
        await acquire_lease(store)
        assert await store.acquire("agent/1", owner="you", ttl_s=30) is None
        assert await store.acquire("agent/1", owner="me", ttl_s=30) is None

    async def test_of_many_who_want_a_lease_one_gets_it(
        self, store: Store, pass_time: Callable[[float], Awaitable[None]]
    ) -> None:
        """I25: also when it has just expired; taking it is one conditional statement."""
        for token in range(1, 5):
            leases = await asyncio.gather(*(store.acquire("agent/1", owner=f"{each}", ttl_s=30) for each in range(8)))
            assert [lease.token for lease in leases if lease is not None] == [token]
            await pass_time(31)

    async def test_an_expired_lease_can_be_taken_with_a_larger_token(
        self, store: Store, pass_time: Callable[[float], Awaitable[None]]
    ) -> None:
        """I22: not before its time is up, by the time of the database."""
        first = await acquire_lease(store, owner="me", ttl_s=30)
        await pass_time(29)
        assert await store.acquire("agent/1", owner="you", ttl_s=30) is None
        await pass_time(2)
        second = await acquire_lease(store, owner="you")
        assert second.token == first.token + 1
        assert second.owner == "you"
        assert second.expires_us > first.expires_us

    async def test_a_lease_can_be_renewed_while_it_holds(
        self, store: Store, pass_time: Callable[[float], Awaitable[None]]
    ) -> None:
        """I22: the token stays; the new end counts from now."""
        lease = await acquire_lease(store, ttl_s=30)
        await pass_time(20)
        renewed = await store.renew(lease, ttl_s=30)
        assert renewed is not None
        assert renewed[:3] == lease[:3]
        assert renewed.expires_us > lease.expires_us
        await pass_time(20)
        assert await store.acquire("agent/1", owner="you", ttl_s=30) is None
        assert await store.renew(lease, ttl_s=30) is not None  # an older copy of it is the same lease

    async def test_a_lost_lease_cannot_be_renewed(
        self, store: Store, pass_time: Callable[[float], Awaitable[None]]
    ) -> None:
        """I23, I25: neither expired, nor taken by another, nor released, nor never had, nor of another owner."""
        lease = await acquire_lease(store, ttl_s=30)
        assert await store.renew(lease._replace(owner="you"), ttl_s=30) is None
        assert await store.renew(lease._replace(token=7), ttl_s=30) is None
        assert await store.renew(Lease("agent/2", "me", 1, lease.expires_us), ttl_s=30) is None
        await pass_time(31)
        assert await store.renew(lease, ttl_s=30) is None
        newer = await acquire_lease(store, owner="you")
        assert await store.renew(lease, ttl_s=30) is None
        await store.release(newer)
        assert await store.renew(newer, ttl_s=30) is None

    async def test_a_released_lease_is_free_and_its_token_goes_on_growing(self, store: Store) -> None:
        """I22: also when it is released and taken by the same owner."""
        for token in range(1, 5):
            lease = await acquire_lease(store)
            assert lease.token == token
            await store.release(lease)
            await store.release(lease)

    async def test_a_lost_lease_releases_nothing(
        self, store: Store, pass_time: Callable[[float], Awaitable[None]]
    ) -> None:
        """I25: the release of a late holder does not end the lease of the next one."""
        lease = await acquire_lease(store, ttl_s=30)
        await store.release(lease._replace(owner="you"))
        await store.release(lease._replace(token=2))
        await store.release(Lease("agent/2", "me", 1, 0))
        assert await store.acquire("agent/1", owner="you", ttl_s=30) is None
        await pass_time(31)
        newer = await acquire_lease(store, owner="you")
        await store.release(lease)
        assert await store.acquire("agent/1", owner="me", ttl_s=30) is None
        assert await store.renew(newer, ttl_s=30) is not None

    async def test_leases_hold_across_stores_and_reopening(
        self,
        store: Store,
        open_again: Callable[[], Awaitable[Store]],
        pass_time: Callable[[float], Awaitable[None]],
    ) -> None:
        """I22, I26: the database has them, not the process."""
        lease = await acquire_lease(store)
        other = await open_again()
        assert await other.acquire("agent/1", owner="you", ttl_s=30) is None
        await store.close()
        again = await open_again()
        assert await again.acquire("agent/1", owner="me", ttl_s=30) is None
        await pass_time(31)
        assert (await acquire_lease(again, owner="me")).token == lease.token + 1

    async def test_events_carry_the_token_they_were_written_under(self, store: Store) -> None:
        """I22: 0 when under none."""
        await store.release(await acquire_lease(store))
        lease = await acquire_lease(store)
        await store.append(write("a", b"1"))
        await store.append(write("a", b"2"), write("b", b"3"), under=lease)
        assert [event.token for event in await log_of(store)] == [0, 2, 2]

    async def test_an_append_under_a_valid_lease_is_written(
        self, store: Store, pass_time: Callable[[float], Awaitable[None]]
    ) -> None:
        """I22: however often, and beyond its first end if it was renewed."""
        lease = await acquire_lease(store, ttl_s=30)
        for version in range(5):
            await store.append(write("a", b"", expected=version), under=lease)
            await pass_time(10)
            assert await store.renew(lease, ttl_s=30) is not None
        assert await store.version("a") == 5

    async def test_an_append_under_an_expired_lease_is_refused(
        self, store: Store, pass_time: Callable[[float], Awaitable[None]]
    ) -> None:
        """I23: even if it was not acquired again: its holder may act only until then."""
        lease = await acquire_lease(store, ttl_s=30)
        await store.append(write("a", b"1"), under=lease)
        await pass_time(31)
        with pytest.raises(LeaseLost) as refused:
            await store.append(
                write("a", b"2"), under=lease, key=Key("k", b"f"), documents=[Document("view", "k", 1, b"")]
            )
        assert (refused.value.name, refused.value.token) == ("agent/1", 1)
        assert await store.head() == 1
        assert await store.load("view", "k") is None
        assert (await store.append(write("a", b"2"), key=Key("k", b"g")))[:3] == (2, (2,), False)

    async def test_an_append_under_a_lease_that_was_taken_over_is_refused(
        self,
        store: Store,
        open_again: Callable[[], Awaitable[Store]],
        pass_time: Callable[[float], Awaitable[None]],
    ) -> None:
        """I22, I23: the old holder, which wrote a moment ago, writes nothing more; the new one does."""
        old = await acquire_lease(store, ttl_s=30)
        await store.append(write("a", b"old"), under=old)
        await pass_time(31)
        other = await open_again()
        new = await acquire_lease(other, owner="you", ttl_s=30)
        for version in (1, 2):
            with pytest.raises(LeaseLost):
                await store.append(write("a", b"late"), under=old)
            await other.append(write("a", b"new", expected=version), under=new)
        assert [event.token for event in await store.read("a")] == [1, 2, 2]

    async def test_an_append_under_a_released_or_invented_lease_is_refused(self, store: Store) -> None:
        """I22: the claim must be the newest token of a name that was leased."""
        lease = await acquire_lease(store)
        for invented in (
            lease._replace(token=2),
            lease._replace(token=0),
            Lease("agent/2", "me", 1, lease.expires_us),
            Lease("agent/2", "me", 0, lease.expires_us),
        ):
            with pytest.raises(LeaseLost):
                await store.append(write("a", b"x"), under=invented)
        await store.release(lease)
        with pytest.raises(LeaseLost):
            await store.append(write("a", b"x"), under=lease)
        assert await store.head() == 0

    async def test_an_old_and_a_new_holder_at_the_same_moment_do_not_mix(self, store: Store) -> None:
        """I22: also when both appends share a transaction, each is judged by its own token."""
        old = await acquire_lease(store)
        await store.append(write("a", b"first"), under=old)
        await store.release(old)
        new = await acquire_lease(store, owner="you")
        for _ in range(3):
            outcomes = await asyncio.gather(
                *(store.append(write("a", b"."), under=lease) for lease in (old, new, old, new, old, new)),
                return_exceptions=True,
            )
            assert [type(outcome).__name__ for outcome in outcomes] == ["LeaseLost", "Appended"] * 3
        assert [event.token for event in await store.read("a")] == [1] + [2] * 9


class DocumentContract:
    """Documents: snapshots, views and cursors."""

    async def test_a_document_is_kept_until_a_newer_one_comes(self, store: Store) -> None:
        """An equal version replaces too: it was built from the same events."""
        assert await store.load("view", "k") is None
        for version, body in ((1, b"one"), (5, b"five"), (5, b"five again")):
            await store.append(documents=[Document("view", "k", version, body)])
            assert await store.load("view", "k") == Document("view", "k", version, body)

    async def test_an_older_document_never_overwrites_a_newer(self, store: Store) -> None:
        """A late writer simply loses; what else its append does is done."""
        await store.append(documents=[Document("view", "k", 5, b"new")])
        await store.append(write("a", b"1"), documents=[Document("view", "k", 4, b"old")])
        await store.append(documents=[Document("view", "k", 4, None)])
        assert await store.load("view", "k") == Document("view", "k", 5, b"new")
        assert await store.head() == 1

    async def test_a_document_without_a_body_deletes(self, store: Store) -> None:
        """Deleting what is not there is harmless."""
        await store.append(documents=[Document("view", "k", 1, b"one"), Document("view", "other", 1, b"kept")])
        await store.append(documents=[Document("view", "k", 1, None), Document("view", "nothing", 1, None)])
        assert await store.load("view", "k") is None
        assert await store.load("view", "other") is not None

    async def test_several_documents_are_saved_in_their_order(self, store: Store) -> None:
        """Within one append, and with several callers at once the newest version wins."""
        await store.append(
            documents=[
                Document("view", "k", 1, b"one"),
                Document("view", "k", 2, b"two"),
                Document("view", "gone", 1, b"one"),
                Document("view", "gone", 1, None),
            ]
        )
        assert await store.load("view", "k") == Document("view", "k", 2, b"two")
        assert await store.load("view", "gone") is None
        await asyncio.gather(
            *(store.append(documents=[Document("view", "k", version, b"%d" % version)]) for version in (7, 3, 9, 8))
        )
        assert await store.load("view", "k") == Document("view", "k", 9, b"9")

    async def test_documents_come_and_go_with_the_events_of_their_append(self, store: Store) -> None:
        """I5: a refused append saves none."""
        await store.append(write("a", b"1"), documents=[Document("view", "k", 1, b"one")])
        with pytest.raises(Conflict):
            await store.append(write("a", b"2", expected=0), documents=[Document("view", "k", 2, b"two")])
        assert await store.load("view", "k") == Document("view", "k", 1, b"one")

    async def test_documents_do_not_move_the_journal(self, store: Store) -> None:
        """They are not facts: no position, no version."""
        await store.append(write("a", b"1"))
        assert (await store.append(documents=[Document("view", "k", 1, b"one")]))[:3] == (1, (), False)
        assert await store.head() == 1

    @pytest.mark.parametrize("body", [b"", bytes(range(256)), bytes(1 << 20)], ids=["empty", "every", "1 MB"])
    async def test_a_document_is_kept_byte_for_byte(self, store: Store, body: bytes) -> None:
        """An empty body is a body."""
        await store.append(documents=[Document("view", "é/😀", 1, body)])
        assert await store.load("view", "é/😀") == Document("view", "é/😀", 1, body)

    async def test_documents_are_scanned_by_kind_prefix_and_page(self, store: Store) -> None:
        """Sorted by key, by code points; no wildcards."""
        keys = ["a", "a/1", "a/10", "a/2", "B", "ä", "\uffee", "😀", "a%"]
        await store.append(documents=[Document("view", key, 1, key.encode()) for key in keys])
        await store.append(documents=[Document("cursor", "a/3", 1, b"")])
        assert [document.key for document in await store.scan("view")] == sorted(keys)
        assert [document.key for document in await store.scan("view", prefix="a/")] == ["a/1", "a/10", "a/2"]
        assert [document.key for document in await store.scan("view", prefix="a%")] == ["a%"]
        assert [document.key for document in await store.scan("view", prefix="😀")] == ["😀"]
        assert await store.scan("cursor") == [Document("cursor", "a/3", 1, b"")]
        assert await store.scan("nothing") == []
        seen: list[str] = []
        while page := await store.scan("view", prefix="a", after=seen[-1] if seen else "", limit=2):
            seen += [document.key for document in page]
        assert seen == ["a", "a%", "a/1", "a/10", "a/2"]
