"""Death at every crash point: what was acknowledged stays, the rest is whole or absent (I1, I3, I4, I7)."""

import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest

from maos.errors import LeaseLost
from maos.store.contract import Lease, Recorded, Store
from maos_testing.crash import Life, crash_loop
from tests.crash.levels import NEXT, SHIPPED, level_of, two_levels
from tests.crash.promises import damage, everything, kept, repeated
from tests.crash.scenarios import STEPS
from tests.crash.stores import ROOT, Place, copy_files

Places = Callable[[int], Place]
Check = Callable[[Life, Place], Awaitable[None]]


@pytest.fixture(params=["sqlite", "postgres"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Places:
    """A new place for each life."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""

    def place(number: int) -> Place:
        folder = tmp_path / str(number)
        folder.mkdir(exist_ok=True)
        return Place(str(folder), url, f"life_{number}")

    return place


async def lives_of(name: str, places: Places, check: Check) -> list[Life]:
    """Kill a scenario at each of its crash points."""

    def argv(number: int) -> list[str]:
        return [sys.executable, "-m", "tests.crash.scenarios", name, places(number).said()]

    async def check_place(life: Life) -> None:
        await places(life.number).settled()
        await check(life, places(life.number))

    lives = await crash_loop(argv, check_place, cwd=ROOT)
    assert len(lives) > 2, "there are no crash points where this scenario goes"
    assert len({life.died_at for life in lives}) > 2
    return lives


@pytest.mark.parametrize("name", ["append", "group"])
async def test_appends_survive(name: str, places: Places) -> None:
    steps = STEPS[name]()

    async def check(life: Life, place: Place) -> None:
        async with place.open() as store:
            found = await kept(store, steps, life.acks)
            reply = await steps[0].take(store)  # and it goes on
            assert reply.position == len(found.log) + steps[0].size

    lives = await lives_of(name, places, check)
    assert len(lives[-1].acks) == len(steps)
    assert any(0 < len(life.acks) < len(steps) for life in lives)


async def test_appends_to_several_streams_survive_with_their_keys_and_documents(places: Places) -> None:
    steps = STEPS["together"]()

    async def check(life: Life, place: Place) -> None:
        async with place.open() as store:
            found = await kept(store, steps, life.acks)
            await documents_are_as_old_as_the_events(store, sum(found.has(step) for step in steps))
            await repeated(store, steps, life.acks)
            await documents_are_as_old_as_the_events(store, len(steps))

    await lives_of("together", places, check)


async def documents_are_as_old_as_the_events(store: Store, done: int) -> None:
    """Documents are written with their append or not at all (I3)."""
    steps = STEPS["together"]()
    view = await store.load("view", "run/1")
    assert view == (steps[done - 1].documents[0] if done else None)
    last = [steps[done - 1].documents[2]] if done else []
    assert await store.scan("view", prefix="only/") == last


async def test_compaction_merges_wholly_or_not_at_all(places: Places) -> None:
    steps = STEPS["compaction"]()

    async def check(life: Life, place: Place) -> None:
        async with place.open() as store:
            found = await kept(store, steps, life.acks)
            spans = [event.spans for event in found.log]
            assert spans in ([], [1] * 3, [1] * 6, [4, 1, 1, 1], [4, 1, 1, 1, 1], [4, 2, 1, 1, 1])
            await repeated(store, steps, life.acks)
            assert [event.spans for event in await everything(store)] == [4, 2, 1, 1, 1]
            assert await store.version("agent/a") == 9

    await lives_of("compaction", places, check)


async def test_a_lease_survives_and_its_token_only_grows(places: Places) -> None:
    """I22: the token of each event was the newest one when it was written."""
    steps = STEPS["lease"]()

    async def check(life: Life, place: Place) -> None:
        replies = [ack[1:] for ack in life.acks if ack[0] == "appended"]
        told = {what: [Lease(*ack[1]) for ack in life.acks if ack[0] == what] for what in ("acquired", "released")}
        async with place.open() as store:
            log = (await kept(store, steps, replies)).log
            assert [event.token for event in log] == sorted(event.token for event in log)
            for number, position, _versions in replies:
                assert log[position - 1].token == told["acquired"][number].token
            if len(told["acquired"]) > len(told["released"]):
                held = told["acquired"][-1]
                assert await store.acquire("agent/a", owner="other", ttl_s=1) is None
                await steps[0].take(store, held)
                await store.release(held)
            newer = await store.acquire("agent/a", owner="other", ttl_s=60)
            assert newer is not None
            for older in told["acquired"]:
                assert newer.token > older.token
                with pytest.raises(LeaseLost):
                    await steps[0].take(store, older)

    await lives_of("lease", places, check)


async def test_an_upgrade_is_whole_and_what_was_there_before_it_is_kept(places: Places, tmp_path: Path) -> None:
    steps = STEPS["upgrade"]()
    old = steps[:-1]
    before: dict[int, list[Recorded]] = {}
    levels = two_levels(tmp_path)

    async def check(life: Life, place: Place) -> None:
        upgraded = await level_of(place) == NEXT
        assert upgraded or not life.acks
        if upgraded:
            assert await copy_from_before(place, tmp_path) == before[life.number]
        else:
            async with place.open() as store:
                assert await everything(store) == before[life.number]
        async with place._replace(levels=str(levels)).open() as store:
            assert (await everything(store))[: len(before[life.number])] == before[life.number]
            await kept(store, steps, life.acks[1:])
            await repeated(store, steps, life.acks[1:])
        assert await level_of(place) == NEXT
        assert await copy_from_before(place, tmp_path) == before[life.number]

    def upgrading(number: int) -> Place:
        return places(number)._replace(levels=str(levels))

    async def fill(number: int) -> None:
        async with places(number).open() as store:
            for step in old:
                await step.take(store)
            before[number] = await everything(store)

    for number in range(12):
        await fill(number)
    lives = await lives_of("upgrade", upgrading, check)
    assert len(lives) < 12


async def copy_from_before(place: Place, scratch: Path) -> list[Recorded]:
    """The events in the copy that was kept before an upgrade; opened as any journal of that level is."""
    if place.url:
        connection, kept = await asyncpg.connect(place.url), f"{place.schema_name}_level_{SHIPPED}"
        try:
            # The tables of the copy have no keys and no functions; reading is all they are for.
            rows = await connection.fetch(
                f"SELECT position, s.name, version, spans, type, format, time_us, token, body, hash"
                f"  FROM {kept}.events JOIN {kept}.streams s ON s.id = stream"
                f" ORDER BY position"
            )
            return [Recorded._make(row) for row in rows]
        finally:
            await connection.close()
    copy = copy_files(Path(place.folder), scratch / "opened copy", f"maos.db.level-{SHIPPED}.bak")
    Path(copy.folder, f"maos.db.level-{SHIPPED}.bak").rename(copy.path)
    async with copy.open() as store:
        assert await damage(store) == []
        log = await everything(store)
    for file in Path(copy.folder).iterdir():
        file.unlink()
    return log


async def test_a_copy_is_whole_or_not_there(places: Places, tmp_path: Path) -> None:
    """I34: built beside, then named."""
    steps = STEPS["copy"]()

    async def check(life: Life, place: Place) -> None:
        copy = Path(place.folder) / "copy"
        async with place.open() as store:
            told = [ack for ack in life.acks if ack[0] == "copied"]
            assert copy.exists() or not told
            log = (await kept(store, steps, [ack for ack in life.acks if ack[0] != "copied"])).log
            if copy.exists():
                assert await content_of(copy, place, tmp_path) == log
            assert await store.copy_to(copy) == await store.head()
            assert await content_of(copy, place, tmp_path) == log

    await lives_of("copy", places, check)


async def content_of(copy: Path, place: Place, scratch: Path) -> list[Recorded]:
    """The events in a copy."""
    if not place.url:
        opened = Place(str(scratch / "opened copy"))
        Path(opened.folder).mkdir(exist_ok=True)
        opened.path.write_bytes(copy.read_bytes())
        async with opened.open() as store:
            assert await damage(store) == []
            log = await everything(store)
        for file in Path(opened.folder).iterdir():
            file.unlink()
        return log
    rows = [json.loads(line) for line in copy.read_text().splitlines()]
    names = {row["id"]: row["name"] for row in rows if row["table"] == "streams"}
    log = []
    for row in sorted((row for row in rows if row["table"] == "events"), key=lambda row: row["position"]):
        row.update(body=bytes.fromhex(row["body"]), hash=bytes.fromhex(row["hash"]), stream=names[row["stream"]])
        del row["table"]
        log.append(Recorded(**row))
    return log
