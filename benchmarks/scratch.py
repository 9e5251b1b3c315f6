"""The place a benchmark works in: fresh directories and one PostgreSQL server, all removed at the end."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import asyncpg

from benchmarks.measure import progress

if TYPE_CHECKING:
    from maos_testing.postgres import PostgresServer

REPOSITORY = Path(__file__).resolve().parent.parent
EPHEMERAL = {"tmpfs", "ramfs", "overlay"}


class Scratch:
    """A directory under ``.bench/`` that lives as long as one benchmark, with what runs inside it."""

    def __init__(self, parent: Path | None = None) -> None:
        self.parent = parent or REPOSITORY / ".bench"
        self.root = self.parent / str(os.getpid())
        self._numbers = count(1)
        self._server: PostgresServer | None = None

    def __enter__(self) -> Scratch:
        self.root.mkdir(parents=True)
        if self.parent.name == ".bench":
            (self.parent / ".gitignore").write_text("*\n")
        # maos keeps the newest position of a PostgreSQL journal in the user's state directory.
        os.environ["XDG_STATE_HOME"] = str(self.root / "state")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._server is not None:
                progress("stopping PostgreSQL")
                self._server.close()
        finally:
            self.remove()

    def remove(self) -> None:
        """End what still runs below, and delete all files. A server is ended by its guard once this process is gone."""
        end_processes(self.root)
        for _ in range(10):
            shutil.rmtree(self.root, ignore_errors=True)
            if not self.root.exists():
                break
            time.sleep(0.05)  # threads of a peer may still be writing
        ignored = self.parent / ".gitignore"
        if self.parent.name == ".bench" and list(self.parent.iterdir()) == [ignored]:
            ignored.unlink()
            self.parent.rmdir()

    @contextmanager
    def directory(self) -> Iterator[Path]:
        """A new empty directory for one store, removed when the round is over."""
        path = self.root / f"store-{next(self._numbers)}"
        path.mkdir()
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def server(self) -> PostgresServer:
        """The PostgreSQL server, started at first use."""
        if self._server is None:
            from maos_testing.postgres import PostgresServer

            progress("starting PostgreSQL")
            self._server = PostgresServer()
        return self._server

    async def database(self) -> str:
        """The URL of a new empty database, on a server that is known to write to disk."""
        name = f"bench_{next(self._numbers)}"
        server = self.server()
        url = server.create_database(name)
        connection = await asyncpg.connect(url)
        try:
            for setting in ("fsync", "synchronous_commit", "full_page_writes"):
                value = await connection.fetchval(f"SHOW {setting}")
                if value != "on":
                    raise RuntimeError(f"PostgreSQL runs with {setting}={value}: its figures would mean nothing")
        finally:
            await connection.close()
        return url

    def machine(self) -> str:
        """One line on what the figures were taken on."""
        kind = file_system(self.root)
        lines = [
            f"{platform.system()} {platform.release()}, {os.cpu_count()} CPU, {platform.machine()}, "
            f"Python {platform.python_version()}, files on {kind}"
        ]
        if kind in EPHEMERAL:
            lines.append(f"WARNING: durable writes may cost nothing on {kind}; use --directory on a disk")
        if self._server is not None and (other := file_system(self._server.directory)) != kind:
            lines.append(f"WARNING: PostgreSQL's files are on {other}; set TMPDIR to put them beside the others")
        return "\n".join(lines)


def end_processes(folder: Path) -> None:
    """Kill, by pid, every process that was given something below a folder in its environment: agents, holders."""
    for entry in os.listdir("/proc"):
        try:
            pid = int(entry) if entry.isdigit() else os.getpid()
            if pid != os.getpid() and os.fsencode(folder) in Path(f"/proc/{pid}/environ").read_bytes():
                os.kill(pid, signal.SIGKILL)
        except OSError:
            continue  # it is not ours, or gone


def size(directory: Path) -> int:
    """The bytes of all files of a closed store."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def file_system(path: Path) -> str:
    """The kind of file system `path` is on, where the system tells."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return "an unknown file system"
    fitting = [(Path(point), kind) for point, kind in mounts if path.is_relative_to(point)]
    return max(fitting, key=lambda mount: len(mount[0].parts))[1]
