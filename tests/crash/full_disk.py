"""Works on a disk of a few megabytes until it is full, and on: `unshare -rm python -m tests.crash.full_disk FOLDER`.

Mounts that disk over the folder, which only this process sees, and reports each thing that held true.
"""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from maos.errors import DiskFull
from maos.store.contract import Store, Write
from maos_testing.crash import ack
from tests.crash.promises import Found, Step, damage, error_of, events, everything
from tests.crash.stores import Place

SIZE = "3m"
APPENDS_MAX = 2_000


class Ballast:
    """A file that takes all the space there is."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "ballast"

    def load(self) -> None:
        with self._path.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                return

    def drop(self) -> None:
        self._path.unlink()


class Work:
    """Numbered appends, and which of them were acknowledged."""

    def __init__(self) -> None:
        self.acks: list[tuple[Step, int, tuple[int, ...]]] = []
        self.refused: list[Step] = []
        self._number = 0

    async def append(self, store: Store) -> None:
        self._number += 1
        step = Step((Write(f"run/{self._number % 3}", events(f"append {self._number}", 2, 1_500)),))
        try:
            reply = await step.take(store)
        except DiskFull:
            self.refused.append(step)
            raise
        self.acks.append((step, reply.position, reply.versions))

    async def until_full(self, store: Store, at_once: int) -> None:
        for _ in range(APPENDS_MAX):
            results = await asyncio.gather(*(self.append(store) for _ in range(at_once)), return_exceptions=True)
            for error in filter(None, results):
                assert isinstance(error, DiskFull), repr(error)
                assert error.written is False
                assert error.hint
            if any(results):
                return
        raise AssertionError("the disk never became full")

    async def look(self, store: Store) -> None:
        assert await damage(store) == []
        found = Found(await everything(store))
        for step, position, versions in self.acks:
            found.keeps(step, position, versions)
        for step in self.refused:
            assert not found.has(step)


async def main() -> None:
    folder = Path(sys.argv[1])
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=700", "tmpfs", folder], check=True)
    ack("mounted")
    place, ballast, work = Place(str(folder)), Ballast(folder), Work()
    async with place.open() as store:
        for at_once in (1, 8):
            await work.append(store)
            ballast.load()
            await work.until_full(store, at_once)
            await work.look(store)  # reads go on
            assert await store.wait(after=await store.head(), timeout_s=0.01) == await store.head()
            ack(f"{at_once} at once: told, and nothing lost")

            copy = folder / "copy"
            assert isinstance(await error_of(store.copy_to(copy)), DiskFull)
            assert [file.name for file in folder.iterdir() if "copy" in file.name] == []
            ack(f"{at_once} at once: no half copy")

            error = await error_of(store.acquire("agent/a", owner="me", ttl_s=0.001))
            assert error is None or isinstance(error, DiskFull)
            ballast.drop()
            await work.append(store)
            await asyncio.gather(*(work.append(store) for _ in range(at_once)))
            await work.look(store)
            ack(f"{at_once} at once: went on by itself")
        ballast.load()
        await work.until_full(store, 1)
    ack("closed while full")

    async with place.open() as store:
        await work.look(store)
        with pytest.raises(DiskFull):
            await work.append(store)
    ack("read while full")

    ballast.drop()
    async with place.open() as store:
        await work.append(store)
        await work.look(store)
    ack("opened again")

    for file in folder.glob("maos.db*"):
        if file.is_file():
            file.unlink()
    ballast.load()
    assert isinstance(await place.refusal(), DiskFull)
    ballast.drop()
    async with place.open() as store:
        assert await store.head() == 0
        await store.append(Write("run/1", events("first")))
    ack("made after space returned")


if __name__ == "__main__":
    asyncio.run(main())
