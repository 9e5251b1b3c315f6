"""Bit rot: every flipped bit is harmless or reported; what is read is never silently different (I7, I8, I11, R-1008).

SQLite notices few of them. The chain covers events; what keys, leases and documents hold is not covered by it.
"""

import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from maos.errors import Corrupt, HistoryLost, MaosError
from maos.store.contract import Recorded
from tests.crash.promises import compaction, damage, everything
from tests.crash.stores import Abandoned, Place


@pytest.fixture
async def closed(abandoned: Abandoned, tmp_path: Path) -> tuple[Place, list[Recorded]]:
    """A journal that was closed in order: everything is in the database itself."""
    place = abandoned.copy(tmp_path / "closed")
    async with place.open() as store:
        await compaction("run/1", 1, 3, "merged").take(store)
        log = await everything(store)
    assert not place.path.with_name("maos.db-wal").exists()
    return place, log


async def flip(source: Place, file: str, bits: Iterable[int], log: list[Recorded], scratch: Path) -> Counter[str]:
    """Flip each of some bits, in a copy of its own, and look how it is noticed."""
    folder = scratch / "flipped"
    content = (Path(source.folder) / file).read_bytes()
    seen: Counter[str] = Counter()
    for bit in bits:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name in ("maos.db", "maos.db-wal", "maos.db-head"):
            if (Path(source.folder) / name).exists():
                shutil.copyfile(Path(source.folder) / name, folder / name)
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        (folder / file).write_bytes(flipped)
        seen[await noticed(Place(str(folder)), log, f"bit {bit % 8} of byte {bit // 8} of {file}")] += 1
    return seen


async def noticed(place: Place, log: list[Recorded], what: str) -> str:
    """How a damage shows."""
    try:
        async with place.open() as store:
            read = await everything(store)
            found = await damage(store)
    except HistoryLost:
        return "lost end"
    except Corrupt:
        return "corrupt"
    except MaosError as error:
        return type(error).__name__
    except Exception as error:
        error.add_note(f"{what}: an error that nobody explained")
        raise
    if found:
        return "verification"
    assert covered(read) == covered(log), f"{what}: different events, and nothing tells"
    return "harmless"


def covered(log: list[Recorded]) -> list[Recorded]:
    """What hashes and seals cover: of a merged event neither the time nor the token."""
    return [event._replace(time_us=0, token=0) if event.type == "merged" else event for event in log]


async def test_flips_in_the_database(closed: tuple[Place, list[Recorded]], tmp_path: Path) -> None:
    place, log = closed
    bits = Random(1).sample(range(place.path.stat().st_size * 8), 400)
    seen = await flip(place, "maos.db", bits, log, tmp_path)
    assert seen["verification"] > 0
    assert seen["lost end"] + seen["corrupt"] + seen["harmless"] > 0


async def test_flips_in_the_first_page(closed: tuple[Place, list[Recorded]], tmp_path: Path) -> None:
    """The header and the schema, where a bit can change what everything means."""
    place, log = closed
    header = Random(2).sample(range(100 * 8), 150)
    schema = Random(3).sample(range(100 * 8, 4096 * 8), 150)
    seen = await flip(place, "maos.db", [*header, *schema], log, tmp_path)
    assert sum(seen.values()) - seen["harmless"] > 20


async def test_flips_in_the_log(abandoned: Abandoned, tmp_path: Path) -> None:
    """SQLite takes a damaged frame for the end of the log: without the mark every one of these would be silent."""
    place = Place(str(abandoned.folder))
    bits = Random(4).sample(range(abandoned.used * 8), 150)
    seen = await flip(place, "maos.db-wal", bits, abandoned.log, tmp_path)
    assert seen["lost end"] > 100


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
async def test_many_flips(
    seed: int, closed: tuple[Place, list[Recorded]], abandoned: Abandoned, tmp_path: Path
) -> None:
    place, log = closed
    await flip(place, "maos.db", Random(seed).sample(range(place.path.stat().st_size * 8), 3_000), log, tmp_path)
    bits = Random(seed).sample(range(abandoned.used * 8), 2_000)
    await flip(Place(str(abandoned.folder)), "maos.db-wal", bits, abandoned.log, tmp_path)
