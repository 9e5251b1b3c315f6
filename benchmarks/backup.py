"""Continuous backup to a real object store while 20 agents append: cost, delay and bytes, beside Litestream.

Both write to the same SeaweedFS at their default interval of a second. An event counts as remote for maos when the head
of the backup counts it. Litestream's files do not tell which commits they hold, so an event counts as remote for it
when the next file appears: never later than it is, and often earlier.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import maos
from benchmarks.measure import Figures, Missing, Report, Row, Subject, Timer, interleave
from benchmarks.scratch import Scratch
from maos.backup.archive import Archive
from maos.backup.locations import open_location
from maos_testing.object_storage import ObjectStorage, object_storage

if TYPE_CHECKING:
    from maos.app import Maos

AGENTS = 20
PAUSE_S = 0.05
BODY_CHARS = 600
LOOK_S = 0.02
READY_S_MAX = 60.0
TYPES = [maos.EventType("note")]

Position = Callable[[], Awaitable[int]]
"""How far a backup is; it only has to grow."""


async def measure(scratch: Scratch, quick: bool) -> Report:
    """Interleaved rounds without a backup, with that of maos, and with Litestream."""
    seconds, rounds = (6.0, 3) if quick else (20.0, 7)
    with scratch.directory() as directory, object_storage(directory) as storage:
        os.environ.update(storage.variables)
        os.environ.pop("AWS_CA_BUNDLE", None)  # the store has no TLS, and Litestream does not start with one's own
        litestream = shutil.which("litestream", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")

        async def alone() -> Figures:
            with scratch.directory() as folder:
                return await appended(folder / "maos.db", seconds)

        async def ours() -> Figures:
            with scratch.directory() as folder:
                return await beside_maos(folder, storage, seconds)

        async def theirs() -> Figures:
            assert litestream is not None
            with scratch.directory() as folder:
                return await beside_litestream(litestream, folder, storage, seconds)

        other = Subject("litestream", theirs) if litestream else Missing("litestream", "it is not installed")
        subjects = [Subject("no backup", alone), Subject("maos", ours), other]
        found = await interleave(f"backup, {AGENTS} agents", subjects, rounds)
    rows = [
        found.row("backup.append.vs_none", "maos", "no backup", "append ms", "<= 1.1"),
        found.row("backup.append.vs_litestream", "maos", "litestream", "append ms", "<= 1"),
        found.row("backup.cpu.vs_litestream", "maos", "litestream", "cpu s", "<= 2"),
        found.row("backup.delay.vs_litestream", "maos", "litestream", "delay p99 s", "<= 1.2"),
        found.row("backup.bytes.vs_litestream", "maos", "litestream", "stored kB", "<= 0.5"),
        found.row("backup.restore.vs_litestream", "maos", "litestream", "restore s", "<= 3"),
    ]
    copied = [each["copy s"] / each["restore s"] for each in found.figures["maos"]]
    return Report([found], [*rows, Row.of("backup.restore.speed_vs_copy", copied, ">= 0.05")])


async def appended(database: Path, seconds: float, position: Position | None = None) -> Figures:
    """Have agents append for some seconds; how long an append took, and how long until it was remote."""
    times: dict[int, float] = {}
    took: list[float] = []
    seen: list[tuple[float, int]] = []
    async with maos.open(database, types=TYPES) as m:
        ends = time.perf_counter() + seconds

        async def agent(number: int) -> None:
            while time.perf_counter() < ends:
                with Timer() as timer:
                    await note(m, f"notes/{number}")
                took.append(timer.seconds)
                times[await m.journal.head()] = time.perf_counter()
                await asyncio.sleep(PAUSE_S)

        watching = asyncio.create_task(watch(position, seen)) if position is not None else None
        await asyncio.gather(*(agent(number) for number in range(AGENTS)))
        last = max(times)
        while watching is not None and not any(at > times[last] and there >= last for at, there in seen):
            await asyncio.sleep(LOOK_S)
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
    figures = {"append ms": 1000 * sum(took) / len(took), "append p99 ms": 1000 * sorted(took)[len(took) * 99 // 100]}
    if position is not None:
        late = sorted(next(at for at, there in seen if at > when and there >= where) - when
                      for where, when in times.items())  # fmt: skip
        figures["delay p99 s"] = late[len(late) * 99 // 100]
    return figures


async def note(m: Maos, stream: str) -> None:
    text = (os.urandom(BODY_CHARS // 4).hex() * 2)[:BODY_CHARS]
    await m.journal.append(stream, maos.Event("note", {"text": text}))


async def watch(position: Position, seen: list[tuple[float, int]]) -> None:
    """Note when a backup was seen to be how far; the time is that after the look."""
    while True:
        found = await position()
        if not seen or found != seen[-1][1]:
            seen.append((time.perf_counter(), found))
        await asyncio.sleep(LOOK_S)


async def beside_maos(folder: Path, storage: ObjectStorage, seconds: float) -> Figures:
    """The workload beside `maos backup start`."""
    database, url = folder / "maos.db", f"{storage.url}/{folder.name}"
    async with maos.open(database, types=TYPES) as m:
        await note(m, "notes/0")
        store = await m.backups.identity()
    archive = Archive(open_location(url), store)

    async def position() -> int:
        head = await archive.head()
        return head.position if head is not None else 0

    command = [sys.executable, "-m", "maos", "--db", str(database), "backup", "start", url, "--json"]
    with running(command, folder) as process:
        await until(position)
        began_s = cpu_s(process.pid)
        figures = await appended(database, seconds, position)
        figures["cpu s"] = cpu_s(process.pid) - began_s
    figures["stored kB"] = await stored_kb(url)
    with Timer() as timer:
        await maos.restore(url, folder / "restored.db")
    with Timer() as copying, database.open("rb") as source, (folder / "copy.db").open("wb") as target:
        shutil.copyfileobj(source, target)
        target.flush()
        os.fsync(target.fileno())
    return figures | {"restore s": timer.seconds, "copy s": copying.seconds}


async def beside_litestream(program: str, folder: Path, storage: ObjectStorage, seconds: float) -> Figures:
    """The workload beside `litestream replicate`."""
    database, url, given = folder / "maos.db", f"{storage.url}/{folder.name}", storage.variables
    async with maos.open(database, types=TYPES) as m:
        await note(m, "notes/0")
    bucket, _, path = url.removeprefix("s3://").partition("/")
    config = folder / "litestream.yml"
    config.write_text(
        f"dbs:\n  - path: {database}\n    replica:\n      type: s3\n      bucket: {bucket}\n      path: {path}\n"
        f"      endpoint: {given['AWS_ENDPOINT_URL']}\n      region: us-east-1\n      force-path-style: true\n"
        f"      access-key-id: {given['AWS_ACCESS_KEY_ID']}\n"
        f"      secret-access-key: {given['AWS_SECRET_ACCESS_KEY']}\n"
    )
    counted = 0

    async def files() -> int:
        """A number beyond every position, larger with each new file."""
        nonlocal counted
        counted = max(counted, len(await sizes(url)))
        return counted * 10**9

    with running([program, "replicate", "-config", str(config)], folder) as process:
        await until(files)
        began_s = cpu_s(process.pid)
        figures = await appended(database, seconds, files)
        figures["cpu s"] = cpu_s(process.pid) - began_s
    figures["stored kB"] = await stored_kb(url)
    command = [program, "restore", "-config", str(config), "-o", str(folder / "restored.db"), str(database)]
    with Timer() as timer:
        done = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
        assert await done.wait() == 0
    return figures | {"restore s": timer.seconds}


class running:
    """A program beside the workload, killed at the end of the block."""

    def __init__(self, command: list[str], folder: Path) -> None:
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)

    def __enter__(self) -> subprocess.Popen[bytes]:
        return self._process

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


async def until(position: Position) -> None:
    async with asyncio.timeout(READY_S_MAX):
        while not await position():
            await asyncio.sleep(LOOK_S)


async def sizes(url: str) -> list[int]:
    """The bytes of every object below a URL; other programs' names are not those of `Location.names`."""
    import obstore
    from obstore.store import from_url

    store = from_url(url, client_options={"allow_http": True})
    return [each["size"] async for page in obstore.list(store) for each in page]


async def stored_kb(url: str) -> float:
    return sum(await sizes(url)) / 1000


def cpu_s(pid: int) -> float:
    """The processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
