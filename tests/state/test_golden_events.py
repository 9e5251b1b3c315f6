"""Events of every format there ever was, as they were stored: they are read for ever (I16, R-1004).

Each file below tests/golden/events holds one stored event, what it decodes to, and the state before and after it. A
file is written once, by `make golden`, when its type or format is new; after that it only ever gets company.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.errors import UnknownFormat
from maos.journal import journal as journal_module
from maos.journal.codec import Codec
from maos.journal.dictionary import Dictionaries
from maos.model import changes, checksum
from maos.state import agents as states
from maos.store import chain
from maos.store.contract import GENESIS, Recorded
from maos_testing.manual_clock import ManualClock
from tests.journal.places import Place
from tests.model.data import same

FOLDER = Path(__file__).parents[1] / "golden" / "events"
FILES = sorted(FOLDER.glob("*/*.json"))
TYPES = (*journal_module.TYPES, *states.TYPES)

State = dict[str, Any]


async def live(m: Maos, clock: ManualClock) -> None:
    """A history with an event of every type."""
    await m.state.create("a", source="cli", metadata={"team": "é🦑"}, correlation="job-1")
    long = [
        {"role": "user", "content": f"line {n} of a message that is long enough to be compressed"} for n in range(12)
    ]
    updates: list[tuple[State, State]] = [
        ({"status": "busy"}, {"source": "scheduler", "causation": "agent/boss@7"}),
        ({"configuration": {"model": "large", "limits": {"tokens": 2**40, "ratio": 0.25}}}, {}),
        ({"capabilities": maos.Extend(["search", "write"])}, {}),
        ({"capabilities": ["search"]}, {}),
        ({"execution": {"task": "t1"}}, {}),
        ({"execution": {"task": None}}, {}),
        ({"status": "failed"}, {"type": "error_occurred", "critical": True}),
        ({"resources": {"gpu/0": 1, "~home": None}}, {}),
        ({"resources": {"gpu/0": maos.DELETE}}, {}),
        ({"status": "moving"}, {"type": "migration_started"}),
        ({"status": "idle"}, {"type": "migration_completed"}),
        ({"messages": long, "big": 2**70, "odd": ["\0", "\u2028", True, -1.5e-7, {}, []]}, {}),
        ({"messages": maos.Extend([{"role": "agent"}]), "/odd/0": "changed"}, {}),
    ]
    for wanted, more in updates:
        clock.advance(1)
        await m.state.update("a", wanted, **more)
    snapshot = await m.state.snapshot("a", name="golden")
    await m.state.rollback("a", 8, source="operator")
    await m.state.restore("a", snapshot.id)
    lease = await m.journal.acquire("a", ttl_s=60)
    await m.state.update("a", {"status": "under a lease"}, under=lease)


async def collect(m: Maos, found: dict[str, State]) -> None:
    """The stored events of an agent by type, the last of each, with the states around them."""
    before: State = {}
    previous = GENESIS
    for event in await m.journal.store.read("agent/a", limit=1000):
        data = (await m.journal.decode(event)).data
        after = changes.apply(before, data["ops"])
        stored = event._asdict()
        body, hash_ = stored.pop("body"), stored.pop("hash")
        text = {"body": body.decode()} if body.startswith(b"{") else {"body_hex": body.hex()}
        found[event.type] = {
            **stored,
            **text,
            "hash": hash_.hex(),
            "previous_hash": previous.hex(),
            "data": data,
            "before": before,
            "after": after,
        }
        before, previous = after, event.hash


async def every_type(place: Place) -> dict[str, State]:
    """A stored event of every type there is."""
    found: dict[str, State] = {}
    clock = ManualClock()
    async with place.open(clock=clock) as m:
        await live(m, clock)
        await collect(m, found)
        await m.state.compact("a", strategy="merge", keep_last=5, source="cron")
        await collect(m, found)
        await m.state.compact("a", strategy="delete", keep_last=3)
        merged = found["merged"]
        await collect(m, found)
        found["merged"] = merged
        for number in range(70):
            await m.journal.append("run/1", maos.Event("note", {"text": f"similar but not the same {number} " * 20}))
    async with place.open(clock=clock) as m:
        [event] = await m.journal.store.read("journal/dictionaries")
        found[event.type] = {
            **event._asdict(),
            "body": None,
            "body_hex": event.body.hex(),
            "hash": event.hash.hex(),
            "previous_hash": GENESIS.hex(),
            "data": {"bytes": len(event.body)},
        }
        last = (await m.journal.store.read("run/1", limit=100))[-1]
        found["dictionary_trained"]["used_by"] = {
            "body_hex": last.body.hex(),
            "data": (await m.journal.decode(last)).data,
        }
    return found


async def test_every_type_of_event_has_a_golden_file_in_its_format(
    sqlite: Place, golden: Callable[[str, str], None], request: pytest.FixtureRequest
) -> None:
    """A new type, or a new format of one, adds a file; nothing ever changes one."""
    missing = [kind for kind in TYPES if not (FOLDER / f"v{kind.format}" / f"{kind.name}.json").exists()]
    if missing and request.config.getoption("--update-golden"):
        events = await every_type(sqlite)
        for kind in missing:
            golden(f"events/v{kind.format}/{kind.name}.json", json.dumps(events[kind.name], indent=1) + "\n")
        return
    assert [f"v{kind.format}/{kind.name}.json" for kind in missing] == [], "`make golden` writes them"


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_event_of_the_past_is_read_as_it_was_meant(path: Path) -> None:
    """I16: its bytes verify, decode to the same data, and lead from the same state to the same state."""
    stored = json.loads(path.read_text())
    body = bytes.fromhex(stored["body_hex"]) if "body_hex" in stored else stored["body"].encode()
    event = Recorded(
        *(stored[name] for name in ("position", "stream", "version", "spans", "type", "format", "time_us", "token")),
        body,
        bytes.fromhex(stored["hash"]),
    )
    assert event.spans > 1 or event.hash == chain.hash_of(event, bytes.fromhex(stored["previous_hash"]))
    dictionaries = Dictionaries()
    codec = Codec((*TYPES, maos.EventType("note")), dictionaries)
    data = codec.data(event)
    assert same(data, stored["data"])
    if "before" in stored:
        before = checksum.checksum(stored["before"])
        total, after = checksum.after(before, stored["before"], data["ops"])
        assert same(after, stored["after"])
        assert checksum.text(total) == data["sum"] == checksum.text(checksum.checksum(stored["after"]))
    if "used_by" in stored:
        dictionaries.add(body)
        user = event._replace(type="note", body=bytes.fromhex(stored["used_by"]["body_hex"]))
        assert same(codec.data(user), stored["used_by"]["data"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_is_written_today_is_written_the_same_way(path: Path) -> None:
    """Unless the format got a new number: then the older file stays, and is only read."""
    stored = json.loads(path.read_text())
    kind = next(kind for kind in TYPES if kind.name == stored["type"])
    if "body" not in stored or stored["body"] is None or kind.format != stored["format"]:
        return
    raw = Codec(TYPES, Dictionaries()).encode(maos.Event(kind.name, stored["data"]))
    assert (raw.type, raw.format, raw.body.decode()) == (kind.name, stored["format"], stored["body"])


def test_an_event_of_the_future_is_refused_by_name() -> None:
    """I16: fails closed."""
    codec = Codec(TYPES, Dictionaries())
    event = Recorded(1, "agent/a", 1, 1, "status_changed", 2, 1, 0, b'{"ops":[],"sum":"0"}', bytes(32))
    with pytest.raises(UnknownFormat, match="agent/a@1 is status_changed in format 2, this maos knows formats up to 1"):
        codec.decode(event)
    with pytest.raises(UnknownFormat, match="agent/a@1 has the unknown type 'teleported'"):
        codec.decode(event._replace(type="teleported"))
