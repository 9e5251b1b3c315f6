"""Of several processes that act for one name, the newest holder of its lease alone is heard."""

import asyncio
import itertools
import time
from signal import Signals

import pytest

from maos.clock import SystemClock
from maos.errors import StoreUnavailable
from maos.store import sqlite
from maos.store.contract import Lease
from maos.store.sql_store import SqlStore
from maos_testing.store_contract.streams import check_journal, log_of, write
from tests.interleaving.conftest import StartPuppet
from tests.interleaving.processes import Place

DAY_S = 86_400


async def take_over(store: SqlStore, name: str) -> Lease:
    """The lease, as soon as it is free."""
    async with asyncio.timeout(60):
        while (lease := await store.acquire(name, owner="successor", ttl_s=60)) is None:
            await asyncio.sleep(0.05)
    return lease


@pytest.mark.parametrize(
    ("place", "stop_at"),
    [
        ("sqlite", "before an append"),
        ("sqlite", "commit: committed, not marked"),
        ("postgres", "before an append"),
        ("postgres", "commit: about to be sent"),
        ("postgres", "commit: committed, not marked"),
        ("postgres", "commit: written, not committed"),
    ],
    indirect=["place"],
)
async def test_a_process_stopped_for_longer_than_its_lease_commits_nothing(
    place: Place, stop_at: str, start_puppet: StartPuppet
) -> None:
    """I22, I23: woken after another took over, it is fenced; also when it had checked its lease before it stopped."""
    store = await place.open()
    puppet = await start_puppet(place, idle_ms_max=200)
    await puppet.tell(
        "act_under_lease",
        me="stopped",
        name="agent/1",
        stream="a",
        ttl_s=0.7,
        stop_at=stop_at,
        busy=stop_at == "commit: written, not committed",
    )
    token = (await puppet.hear())["token"]
    acknowledged = 0
    while "stopping" not in (answer := await puppet.hear()):
        acknowledged = answer["ack"]
    assert acknowledged == 3

    lease = await take_over(store, "agent/1")
    assert lease.token == token + 1
    written = await store.version("a")
    await store.append(write("a", b"successor"), under=lease)
    puppet.signal(Signals.SIGCONT)
    said = await puppet.finish()
    await store.append(write("a", b"successor"), under=lease)

    assert said[-1] == {"fenced": True}
    assert written == (4 if stop_at == "commit: committed, not marked" else 3)
    assert [answer["ack"] for answer in said[:-1]] == list(range(4, written + 1))
    events = [(event.body, event.token) for event in await store.read("a")]
    assert events == [(b"stopped", token)] * written + [(b"successor", lease.token)] * 2
    await check_journal(store)


async def test_a_process_stopped_in_the_middle_of_a_commit_is_told_by_name(
    sqlite_place: Place, start_puppet: StartPuppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A SQLite database has one lock and no server to take it away: others say what is wrong, and go on afterwards."""
    monkeypatch.setattr(sqlite, "BUSY_MS_MAX", 200)
    store = await sqlite_place.open()
    puppet = await start_puppet(sqlite_place)
    await puppet.tell(
        "act_under_lease", me="p", name="agent/1", stream="a", ttl_s=60, stop_at="commit: written, not committed"
    )
    while "stopping" not in await puppet.hear():
        pass
    with pytest.raises(StoreUnavailable, match="another process") as refused:
        await store.append(write("b", b"1"))
    assert refused.value.written is False
    assert await store.version("a") == 3
    puppet.signal(Signals.SIGCONT)
    assert (await puppet.hear())["ack"] == 4
    await puppet.kill()
    await store.append(write("b", b"1"))
    await check_journal(store)


@pytest.mark.parametrize("ahead_s", [DAY_S, -DAY_S], ids=["a day ahead", "a day behind"])
async def test_a_wrong_clock_changes_availability_only(place: Place, start_puppet: StartPuppet, ahead_s: int) -> None:
    """I24, I22: whoever gets the lease, tokens never decrease and each has one owner; no acknowledged event is lost."""
    puppets = [await start_puppet(place), await start_puppet(place, clock_ahead_s=ahead_s)]
    for puppet in puppets:
        await puppet.tell("take_turns", me=puppet.name, name="agent/1", stream="a", turns=12)
    said = [answer for puppet in puppets for answer in await puppet.finish()]

    store = await place.open()
    log = await log_of(store)
    tokens = [event.token for event in log]
    assert tokens == sorted(tokens)
    owners: dict[int, set[str]] = {}
    for event, follower in itertools.pairwise(log):
        owners.setdefault(event.token, set()).add(event.body.decode().split()[0])
        assert event.token <= follower.token
    assert all(len(names) == 1 for names in owners.values())
    assert {answer["ack"][1] for answer in said if "ack" in answer} <= {event.version for event in log}
    await check_journal(store)
    if place.on_postgres:
        # All times are the server's: nothing tells which of the two has the wrong clock.
        assert all(abs(event.time_us / 1e6 - SystemClock().now_us() / 1e6) < DAY_S / 2 for event in log)
        assert all(answer["taken"] == 12 for answer in said if "taken" in answer)


async def test_a_clock_put_wrong_while_it_works_changes_no_recorded_time(postgres_place: Place) -> None:
    """I24: a node that asks its own clock for the time between two commits would drag all others along with it."""

    class Drifting(SystemClock):
        ahead_us = 0

        def now_us(self) -> int:
            return super().now_us() + self.ahead_us

    clock = Drifting()
    store = await postgres_place.open(clock)
    lease = await store.acquire("agent/1", owner="me", ttl_s=60)
    for ahead_s in (0, DAY_S, -DAY_S, 2 * DAY_S):
        clock.ahead_us = ahead_s * 1_000_000
        for _ in range(3):
            await store.append(write("a", b"x"), under=lease)
    times = [event.time_us / 1e6 for event in await log_of(store)]
    assert all(abs(recorded - time.time()) < DAY_S / 2 for recorded in times)


async def test_each_start_of_a_process_has_a_name_of_its_own(start_puppet: StartPuppet) -> None:
    """I26: the host and the number of a process may come again, its name does not."""
    names = {(await start_puppet()).incarnation for _ in range(3)}
    assert len(names) == 3


async def test_two_processes_do_not_mistake_each_other_for_themselves(place: Place, start_puppet: StartPuppet) -> None:
    """I26: one that was started again does not get the lease of its predecessor as a present."""
    store = await place.open()
    puppet = await start_puppet(place)
    await puppet.tell("act_under_lease", me="same name", name="agent/1", stream="a", ttl_s=60)
    await puppet.hear()
    await puppet.kill()
    assert await store.acquire("agent/1", owner="same name", ttl_s=60) is None


async def test_processes_that_take_turns_lose_nothing(place: Place, start_puppet: StartPuppet) -> None:
    """I22, I25: a lease goes from hand to hand; each holder's events stand together, none is missing."""
    puppets = [await start_puppet(place), await start_puppet(place)]
    for puppet in puppets:
        await puppet.tell("take_turns", me=puppet.name, name="agent/1", stream="a", turns=15)
    said = [answer for puppet in puppets for answer in await puppet.finish()]

    store = await place.open()
    log = await log_of(store)
    groups = [list(group) for _token, group in itertools.groupby(log, key=lambda event: event.token)]
    assert [group[0].token for group in groups] == sorted({event.token for event in log})
    assert all(len({event.body.split()[0] for event in group}) == 1 for group in groups)
    acks = {answer["ack"][2] for answer in said if "ack" in answer}
    assert acks == set(range(1, len(log) + 1))
    assert sum(answer["fenced"] for answer in said if "fenced" in answer) == 0
    await check_journal(store)
