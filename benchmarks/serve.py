"""What the server of `maos serve` costs: reads over HTTP, streams for many clients, and the page in a browser."""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import ours, serve_page, serve_store
from benchmarks.measure import Figures, Report, Rounds, Row, Subject, interleave, progress
from benchmarks.peers import bare_starlette
from benchmarks.peers.servers import free_port, running
from benchmarks.scratch import REPOSITORY, Scratch
from benchmarks.serve_process import OURS, serving

AFTER_EVENT = "maos serve, each after an event"
SLOW_CLIENTS = 20
SLOW = f"maos serve, and {SLOW_CLIENTS} clients that read nothing"
BARE = bare_starlette.NAME
CORES = "cores"
MEMORY = "MB"
P99 = "ms p99"
CPU = "us of processor"
WAIT = "ms to reply"
TOKENS = 60
"""Each may send 200 requests at once, and 50 a second."""
READS = {
    "list": "/api/v1/runs?limit=50",
    "status": "/api/v1/runs/r-000100",
    "output": "/api/v1/agents/r-lines.prints/output?limit=80&facts_max=2000&text_chars_max=20000",
}


def cpu_ns(pid: int) -> int:
    """The processor time that all threads of a process have had."""
    total = 0
    for each in Path(f"/proc/{pid}/task").iterdir():
        total += int((each / "schedstat").read_text().split()[0])
    return total


class Connection:
    """One HTTP/1.1 connection that is kept alive; its requests cost this process as little as possible."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._host = f"{host}:{port}"

    def get(self, path: str, token: str = "") -> bytes:
        """The body of a reply; RuntimeError unless it has status 200."""
        return self.send("GET", path, token)

    def send(self, method: str, path: str, token: str = "") -> bytes:
        """The body of a reply to any request without a body."""
        credential = f"Authorization: Bearer {token}\r\n" if token else ""
        self._socket.sendall(f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\n{credential}\r\n".encode())
        reply = b""
        while b"\r\n\r\n" not in reply:
            reply += self._received()
        head, _, body = reply.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"{path}: {head[:200]!r} {body[:300]!r}")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        parts, left = [body], length - len(body)
        while left:
            parts.append(self._received())
            left -= len(parts[-1])
        return b"".join(parts)

    def _received(self) -> bytes:
        part = self._socket.recv(1 << 20)
        if not part:
            raise RuntimeError("the server has closed the connection")
        return part

    def close(self) -> None:
        """Close it."""
        self._socket.close()


def reads(pid: int, connection: Connection, requests: Sequence[tuple[str, str]]) -> Figures:
    """What a reply to each of some requests takes, one after the other."""
    waits, before = [], cpu_ns(pid)
    for path, token in requests:
        began = time.perf_counter()
        connection.get(path, token)
        waits.append(time.perf_counter() - began)
    return {CPU: (cpu_ns(pid) - before) / len(requests) / 1e3, WAIT: median(waits) * 1e3}


async def make_tokens(database: Path) -> list[str]:
    """Tokens of viewers."""
    import maos

    async with maos.open(database) as m:
        return [(await m.access.create_token(f"reader-{number}"))[1] for number in range(TOKENS)]


@contextmanager
def bare(folder: Path, log: Path) -> Iterator[tuple[int, int]]:
    """The bare server, with what it returns in a folder; its port and its process id."""
    port = free_port()
    argv = [sys.executable, "-m", "benchmarks.peers.bare_starlette", str(port), str(folder)]
    with running(argv, port, log) as pid:
        yield port, pid


# --- reads -------------------------------------------------------------------------------------------------------


async def measure_reads(scratch: Scratch, quick: bool) -> tuple[list[Rounds], list[Row]]:
    """Each read against a handler that returns its bytes: repeated, and when something was recorded before each."""
    import maos

    requests, rounds = (300, 5) if quick else (300, 15)
    found, rows = [], []
    with scratch.directory() as directory:
        database, files = directory / "maos.db", directory / "files"
        files.mkdir()
        progress("serve: 200 runs, and an agent that printed 20,000 lines")
        async with maos.open(database) as m:
            for number in range(200):
                await serve_store.add_run(m, f"r-{number:06}", 5, f"Change number {number}, in a few words")
            await serve_store.add_lines(m, "r-lines", 20_000, directory)
        tokens = cycle(await make_tokens(database))
        async with maos.open(database) as m:
            with serving(database) as ours:
                connection = Connection(ours.host, ours.port)
                for name, path in READS.items():
                    (files / name).write_bytes(connection.get(path, next(tokens)))
                with bare(files, directory / "bare.log") as (port, pid):
                    limit = Connection("127.0.0.1", port)
                    for name, path in READS.items():

                        async def plain(name: str = name) -> Figures:
                            return reads(pid, limit, [(f"/{name}", "")] * requests)

                        async def kept(path: str = path) -> Figures:
                            return reads(ours.pid, connection, [(path, next(tokens)) for _ in range(requests)])

                        async def new(path: str = path) -> Figures:
                            taken: list[Figures] = []
                            for _ in range(10):
                                await m.state.create(secrets.token_hex(8), {})
                                taken.append(reads(ours.pid, connection, [(path, next(tokens))]))
                            return {figure: median(each[figure] for each in taken) for figure in (CPU, WAIT)}

                        subjects = [Subject(BARE, plain), Subject(OURS, kept), Subject(AFTER_EVENT, new)]
                        size = (files / name).stat().st_size
                        table = await interleave(f"serve, {name} ({size:,} bytes)", subjects, rounds)
                        found.append(table)
                        rows.append(table.row(f"serve.{name}.vs_bare", OURS, BARE, CPU, "<= 1.5"))
                        rows.append(table.row(f"serve.{name}.after_event_vs_bare", AFTER_EVENT, BARE, CPU, "<= 1.5"))
                    limit.close()
                connection.close()
    return found, rows


# --- streams -----------------------------------------------------------------------------------------------------


class Clients:
    """Clients of a stream, in a process of their own."""

    def __init__(self, port: int, path: str, clients: int, slow: int, tokens: Sequence[str]) -> None:
        argv = [sys.executable, "-m", "benchmarks.serve_clients", str(port), path, str(clients), str(slow)]
        self._process = subprocess.Popen(
            argv, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(tokens) + "\n")
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError(f"{argv!r} ended with status {self._process.wait()}")

    def result(self, events: int) -> dict[str, Any]:
        """What they got, once each has so many events or does not get more."""
        output, _ = self._process.communicate(f"{events}\n", timeout=120)
        result: dict[str, Any] = json.loads(output)
        return result

    def end(self) -> None:
        """Leave nothing behind."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


def rss_mb(pid: int) -> float:
    """How much memory a process has now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def streamed(pid: int, clients: Clients, seconds: float, print_events: Callable[[], int]) -> Figures:
    """What a server takes while events are printed, and what its clients got."""
    try:
        before, began = cpu_ns(pid), time.monotonic()
        printed = print_events()
        got = clients.result(printed)
        cores = (cpu_ns(pid) - before) / 1e9 / (time.monotonic() - began)
        memory = rss_mb(pid)
    finally:
        clients.end()
    if set(got["events"]) != {printed}:
        raise RuntimeError(
            f"{printed} events were printed, and clients got {min(got['events'])} to {max(got['events'])}"
        )
    return {CORES: cores, MEMORY: memory, P99: got["p99_s"] * 1e3, "ms p50": got["p50_s"] * 1e3, "events": printed}


async def example_event(scratch: Scratch) -> bytes:
    """An event of an agent that prints, as the stream of the server has it, without its time."""
    import maos
    from maos.views.activity import ActivityFilter

    with scratch.directory() as directory:
        printing = start_printing(directory / "maos.db", 0.2)
        assert printing.stdin is not None
        printing.communicate("\n", timeout=60)
        async with maos.open(directory / "maos.db") as m:
            wanted = ActivityFilter(types=("attempt_output",), agent="prints-00")
            events, _position = await m.activity.page(after=0, wanted=wanted)
        json = re.sub(rb"\d{10}\.\d{6} ", bare_starlette.TIME + b" ", events[-1].json)
        return b"id: %d\nevent: recorded\ndata: %b\n\n" % (events[-1].position, json)


def start_printing(database: Path, seconds: float) -> subprocess.Popen[str]:
    """A process that records agents which print, as soon as it is told to."""
    argv = [sys.executable, "-m", "benchmarks.serve_store", "print", str(database), str(seconds)]
    process = subprocess.Popen(
        argv, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        raise RuntimeError(f"{argv!r} ended with status {process.wait()}")
    return process


async def measure_streams(scratch: Scratch, quick: bool) -> tuple[list[Rounds], list[Row]]:
    """A stream for many clients against a broadcast of the same bytes, and with clients that are slow."""
    clients, seconds, rounds = (50, 5.0, 3) if quick else (200, 20.0, 5)
    per_s = serve_store.LINES_A_SECOND / serve_store.PRINTED_LINES
    event = await example_event(scratch)

    async def plain() -> Figures:
        with scratch.directory() as directory:
            files = directory / "files"
            files.mkdir()
            (files / "event").write_bytes(event)
            with bare(files, directory / "bare.log") as (port, pid):
                found = Clients(port, "/stream", clients, 0, ())
                path = f"/stream?per_s={per_s}&seconds={seconds}"
                connection = Connection("127.0.0.1", port)
                return streamed(pid, found, seconds, lambda: int(connection.send("POST", path)))

    async def ours(slow: int) -> Figures:
        with scratch.directory() as directory:
            database = directory / "maos.db"
            printing = start_printing(database, seconds)
            try:
                tokens = await make_tokens(database)
                with serving(database) as server:
                    found = Clients(server.port, "/api/v1/stream?types=attempt_output", clients, slow, tokens)
                    return streamed(server.pid, found, seconds, lambda: int(printing.communicate("\n", timeout=600)[0]))
            finally:
                if printing.poll() is None:
                    printing.kill()
                    printing.communicate()

    subjects = [
        Subject(BARE, plain),
        Subject(OURS, lambda: ours(0)),
        Subject(SLOW, lambda: ours(SLOW_CLIENTS)),
    ]
    title = f"serve, a stream of {serve_store.LINES_A_SECOND:,} lines/s for {clients} clients, {seconds:g} s"
    table = await interleave(title, subjects, rounds)
    fast, slow = table.figures[OURS], table.figures[SLOW]
    more = [with_slow[MEMORY] - without[MEMORY] for with_slow, without in zip(slow, fast, strict=True)]
    rows = [
        table.row("serve.stream.cpu_vs_bare", OURS, BARE, CORES, "<= 1.5"),
        table.row("serve.stream.memory_vs_bare", OURS, BARE, MEMORY, "<= 3"),
        Row.of("serve.stream.p99_s", [each[P99] / 1e3 for each in fast], "<= 0.5"),
        Row.of("serve.stream.slow_mb", more, "<= 20"),
    ]
    return [table], rows


async def measure(scratch: Scratch, quick: bool) -> Report:
    """Reads, streams and the page."""
    why = ours.absent()
    if why:
        return Report([], [Row("serve", None, "<= 1.5", note=f"not measured: {why}")])
    tables: list[Rounds] = []
    rows: list[Row] = []
    for each in (measure_reads, measure_streams, serve_page.measure_page):
        some, more = await each(scratch, quick)
        tables += some
        rows += more
    return Report(tables, rows)
