"""Works on a disk of a few megabytes until it is full, and on: `unshare -rm python -m tests.crash.full_disk FOLDER`.

Mounts that disk over the folder, which only this process sees, and reports each thing that held true.
"""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from maos.errors import DiskFull
from maos.store.contract import Store, Write
from maos.store.patience import Outage
from maos.store.sql_store import SqlStore
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


async def engine_waits(store: SqlStore, work: Work, ballast: Ballast) -> None:
    """An engine gets no error: its appends and leases wait, with one report, until there is space."""
    reports: list[Outage] = []
    store.patience.report = reports.append
    ballast.load()
    await work.until_full(store, 1)
    store.patience.add_engine()
    appending = [asyncio.create_task(work.append(store)) for _ in range(3)]
    leasing = asyncio.create_task(store.acquire("agent/b", owner="me", ttl_s=60))
    while not reports:
        await asyncio.sleep(0.05)
    assert not any(task.done() for task in (*appending, leasing))
    ballast.drop()
    await asyncio.gather(*appending)
    assert await leasing is not None
    await work.look(store)
    assert [bool(each.until_us) for each in reports] == [False, True]
    assert all("no space left in" in each.why for each in reports)


def run(*args: str) -> subprocess.CompletedProcess[str]:
    """Run a command of maos in this disk."""
    return subprocess.run([sys.executable, "-m", "maos", *args], capture_output=True, text=True, check=False)


def commands(folder: Path, ballast: Ballast) -> None:
    """What a person sees: reading works, writing says why not, and an agent's engine continues by itself."""
    os.chdir(folder)
    os.environ |= {"HOME": str(folder.parent), "MAOS_HOME": str(folder.parent / "home")}
    subprocess.run(["mount", "-o", "remount,size=8m", folder], check=True)
    says = "echo before; until [ -e go ]; do sleep 0.05; done; head -c 1500000 /dev/urandom | base64; echo after"
    argv = ["sh", "-c", says]
    with (folder.parent / "printed").open("w+") as printed:
        engine = subprocess.Popen(
            [sys.executable, "-m", "maos", "--db", "engine.db", "agent", "run", "--in-place", "--", *argv],
            stdout=printed,
            stderr=printed,
        )
        while "before" not in (folder.parent / "printed").read_text():
            assert engine.poll() is None
            time.sleep(0.05)
        (folder / "go").touch()
        ballast.load()
        while "note: waiting for the database since" not in (folder.parent / "printed").read_text():
            assert engine.poll() is None
            time.sleep(0.05)
        ack("the disk is full under an engine")
        for reading in (("status",), ("ps",), ("agent", "list"), ("status", "--json")):
            done = run("--db", "engine.db", *reading)
            assert done.returncode == 0, done
        done = run("--db", "other.db", "state", "create", "x")
        assert done.returncode == 5, done
        assert done.stderr == (
            f"error: no space left in {folder}\nhint: free some space there, and repeat it; reading still works\n"
        )
        ack("commands said what there is to say")
        ballast.drop()
        assert engine.wait() == 0, (folder.parent / "printed").read_text()
        assert (folder.parent / "printed").read_text().count("note: ") == 2
    ack("the engine went on by itself")


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
        await work.append(store)
        await work.look(store)
    ack("opened while full, and went on by itself")

    async with place.open() as store:
        await work.append(store)
        await work.look(store)
    ack("opened again")

    async with place.open() as store:
        await engine_waits(store, work, ballast)
    ack("an engine waited for space")

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
    commands(folder, ballast)


if __name__ == "__main__":
    asyncio.run(main())
