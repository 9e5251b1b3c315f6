"""Kills programs, and checks what they leave.

`crash_loop` runs a program again and again, each time killed (SIGKILL) one crash point later than before, until it
completes; `maos.faults` has the crash points. With a share (or the variable `MAOS_CRASH_SHARE`), it dies at some of
them only. `kill_loop` kills programs at random times instead. After every crash, the check gets what had been
acknowledged to the program, and verifies that it is still true.

The program is a real process. It reports each acknowledgement with `ack` through a pipe as soon as it gets it, so the
test knows what was acknowledged. In a scenario of your own:

    async def scenario(path):                                  # scenario.py
        async with maos.open(path) as m:
            for n in range(5):
                reply = await m.journal.append("run/1", maos.Event("note", {"n": n}))
                ack([n, reply.version])

    async def check(life):                                     # test_scenario.py
        async with maos.open(path_of(life.number)) as m:
            for n, version in life.acks: ...

    await crash_loop(lambda number: [sys.executable, "scenario.py", path_of(number)], check)
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import IO, Any, NamedTuple, Self

from maos_testing.preload import Forked, Preloaded, program_of

_PIPE = "MAOS_ACKS_FD"
SHARE = "MAOS_CRASH_SHARE"
"""The variable with the share of crash points that `crash_loop` tries unless its caller names one."""
LIFE_S_MAX = 60.0
LIVES_MAX = 1_000
TRIES_MAX = 3
KILL_AFTER_S = (0.03, 0.15)


def ack(value: Any) -> None:
    """Report an acknowledgement to the watching process, if there is one; any JSON value."""
    pipe = os.environ.get(_PIPE)
    if pipe is not None:
        os.write(int(pipe), json.dumps(value).encode() + b"\n")


class Life(NamedTuple):
    """One run of a program."""

    number: int
    died_at: str | None
    """The crash point it was killed at, or `kill` when it was another; None when it completed."""
    acks: list[Any]
    """What it had reported by then, in order."""
    points: tuple[str, ...] = ()
    """The crash points it reached, if it was started to name them and not to crash (`crash_at=-1`)."""


class Deaths(NamedTuple):
    """Programs that were killed at the same time."""

    number: int
    lives: list[Life]


Check = Callable[[Life], Awaitable[None]]


async def crash_loop(
    argv_for: Callable[[int], Sequence[str | os.PathLike[str]]],
    check: Check,
    *,
    cwd: Path | None = None,
    share: float | None = None,
    seed: int = 1,
) -> list[Life]:
    """Run a program that is killed at crash point 1, 2, 3 … until it completes; return every life of it.

    `argv_for` returns the command of each life, by its number: use separate data for each.

    With a `share` below 1, life 0 completes and names the points; then the program dies only at those that `sample`
    chooses. A name that was not reached then, because the order differs from life to life, is tried again. By default
    the share is that of the variable `MAOS_CRASH_SHARE`, and without it every point is tried.
    """
    if share is None:
        share = float(os.environ.get(SHARE, "1"))
    with Starter(cwd=cwd) as starter:

        async def live(number: int, crash_at: int, name: str = "") -> Life:
            argv = argv_for(number)
            life = await asyncio.to_thread(starter.start(argv, crash_at=crash_at, crash_name=name).wait, number)
            try:
                await check(life)
            except BaseException as error:
                where = f"MAOS_CRASH_AT={crash_at}" + (f" MAOS_CRASH_NAME={name!r}" if name else "")
                error.add_note(f"after dying at {life.died_at!r}; once more: {where} {' '.join(map(str, argv))}")
                raise
            return life

        lives: list[Life] = []
        if share == 1.0:
            while not lives or lives[-1].died_at is not None:
                assert len(lives) < LIVES_MAX, f"still dying after {LIVES_MAX} lives"
                lives.append(await live(len(lives) + 1, len(lives) + 1))
            return lives
        through = await live(0, -1)
        for point in sample(through.points, share, seed):
            lives.append(await live(len(lives) + 1, point.time, point.name))
        for _ in range(TRIES_MAX):
            for name in sorted(set(through.points) - {life.died_at for life in lives}):
                lives.append(await live(len(lives) + 1, 1, name))
        missed = set(through.points) - {life.died_at for life in lives}
        assert not missed, f"nothing died at {sorted(missed)}"
        return [*lives, through]


class Point(NamedTuple):
    """One of the times that a process comes by a crash point."""

    name: str
    time: int


def sample(names: Sequence[str], share: float, seed: int) -> list[Point]:
    """Some of the crash points that a process came by: the first time of each name, the last, and a share of the rest.

    The same ones for the same names, share and seed.

    Example::

        sample(["a", "b", "a", "a"], 0.0, seed=1)  # [("a", 1), ("b", 1), ("a", 3)]
    """
    points = [Point(name, names[: at + 1].count(name)) for at, name in enumerate(names)]
    rest = [point for point in points[:-1] if point.time > 1]
    Random(seed).shuffle(rest)  # noqa: S311 - repeatable on purpose
    left_out = set(rest[round(share * len(rest)) :])
    return [point for point in points if point not in left_out]


async def kill_loop(
    argv_for: Callable[[int], Sequence[str | os.PathLike[str]]],
    check: Callable[[Deaths], Awaitable[None]],
    *,
    rounds: int,
    seed: int,
    processes: int = 1,
    after_s: tuple[float, float] = KILL_AFTER_S,
    cwd: Path | None = None,
) -> list[Deaths]:
    """Start programs that never end, wait until each has reported something, and kill all of them shortly after.

    Programs are numbered across rounds. All rounds may use the same data.
    """
    chance = Random(seed)  # noqa: S311 - repeatable on purpose
    numbers = itertools.count(1)
    deaths = []
    with Starter(cwd=cwd) as starter:
        for round_ in range(1, rounds + 1):
            group = {number: starter.start(argv_for(number)) for number in itertools.islice(numbers, processes)}
            try:
                for process in group.values():
                    await asyncio.to_thread(process.wait_for_ack)
                await asyncio.sleep(chance.uniform(*after_s))
            finally:
                for process in group.values():
                    process.kill()
                lives = [await asyncio.to_thread(process.wait, number) for number, process in group.items()]
            deaths.append(Deaths(round_, lives))
            try:
                await check(deaths[-1])
            except BaseException as error:
                error.add_note(f"in round {round_} of {rounds} with seed {seed}")
                raise
    return deaths


class Starter:
    """Starts lives of programs; one that this interpreter can import is imported once for all of its lives."""

    def __init__(self, *, cwd: Path | None = None) -> None:
        self._cwd = cwd
        self._preloaded: dict[tuple[str, str], Preloaded] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for each in self._preloaded.values():
            each.close()

    def start(self, argv: Sequence[str | os.PathLike[str]], *, crash_at: int = 0, crash_name: str = "") -> ChildProcess:
        """Start the next life."""
        program = program_of(argv)
        if program is not None and program not in self._preloaded:
            self._preloaded[program] = Preloaded(program, environment=_environment(), cwd=self._cwd)
        preloaded = self._preloaded.get(program) if program is not None else None
        return ChildProcess(argv, crash_at=crash_at, crash_name=crash_name, cwd=self._cwd, preloaded=preloaded)


def _environment() -> dict[str, str]:
    """Our own, without what is meant for us."""
    # A process that is killed writes no figures of coverage, and pays for them.
    return {
        name: value for name, value in os.environ.items() if name not in ("MAOS_CRASH_AT", "COVERAGE_PROCESS_CONFIG")
    }


class ChildProcess:
    """A running program and what it has reported so far."""

    def __init__(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        crash_at: int = 0,
        crash_name: str = "",
        cwd: Path | None = None,
        preloaded: Preloaded | None = None,
    ) -> None:
        self.acks: list[Any] = []
        self._reported = threading.Event()
        # Files, not pipes, for output that is read at the end: a full pipe would block the program.
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `wait`
        self._trace: IO[str] = tempfile.NamedTemporaryFile("r", prefix="maos-trace-")  # noqa: SIM115
        reading, writing = os.pipe()
        environment = {**_environment(), _PIPE: str(writing), "MAOS_CRASH_TRACE": self._trace.name}
        if crash_at:
            environment |= {"MAOS_CRASH_AT": str(crash_at), "MAOS_CRASH_NAME": crash_name}
        self._process: subprocess.Popen[bytes] | Forked
        try:
            if preloaded is not None:
                self._process = preloaded.start(argv, environment, self._errors.fileno(), writing)
            else:
                self._process = subprocess.Popen(
                    argv,
                    env=environment,
                    cwd=cwd,
                    pass_fds=(writing,),
                    stdin=subprocess.DEVNULL,
                    stdout=self._errors,
                    stderr=self._errors,
                )
        finally:
            os.close(writing)
        self._reader = threading.Thread(target=self._read, args=(reading,), daemon=True)
        self._reader.start()

    def _read(self, pipe: int) -> None:
        with open(pipe, "rb") as lines:
            for line in lines:
                if line.endswith(b"\n"):  # the last one may be incomplete
                    self.acks.append(json.loads(line))
                    self._reported.set()
        self._reported.set()

    def wait_for_ack(self) -> None:
        """Wait until it has reported something or has ended."""
        if not self._reported.wait(LIFE_S_MAX):
            raise TimeoutError(f"{self._process.args!r} reported nothing within {LIFE_S_MAX:.0f} s")

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self._process.kill()

    def wait(self, number: int) -> Life:
        """Wait until it has ended and return its life; raise when it failed other than by SIGKILL."""
        overdue = False
        try:
            status = self._process.wait(LIFE_S_MAX)
        except subprocess.TimeoutExpired:
            overdue = True
            self._process.kill()
            status = self._process.wait()
        self._reader.join()
        self._errors.seek(0)
        errors = self._errors.read().decode(errors="replace")
        points = tuple(self._trace.read().splitlines())
        self._errors.close()
        self._trace.close()
        if overdue:
            raise TimeoutError(f"{self._process.args!r} still ran after {LIFE_S_MAX:.0f} s:\n{errors}")
        if status == -signal.SIGKILL:
            return Life(number, points[0] if points else "kill", self.acks)
        if status != 0:
            raise RuntimeError(f"{self._process.args!r} ended with status {status}:\n{errors}")
        return Life(number, None, self.acks, points)
