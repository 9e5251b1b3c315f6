"""Kills programs, and lets a check look at what they leave.

`crash_loop` runs a program again and again, each time killed (SIGKILL) one crash point later than the time before,
until it gets through; `maos.faults` has the crash points. `kill_loop` kills programs at random moments instead. After
every death the check is given what the program had been told before it died, and looks whether that is still true.

The program is a real process. It reports each acknowledgement with `ack` the moment it gets it, through a pipe, so
what was acknowledged is known to a process that survives. In a scenario of your own:

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
from typing import IO, Any, NamedTuple

_PIPE = "MAOS_ACKS_FD"
LIFE_S_MAX = 60.0
LIVES_MAX = 1_000
KILL_AFTER_S = (0.03, 0.15)


def ack(value: Any) -> None:
    """Tell the watching process, if there is one, what was just acknowledged; anything that JSON can say."""
    pipe = os.environ.get(_PIPE)
    if pipe is not None:
        os.write(int(pipe), json.dumps(value).encode() + b"\n")


class Life(NamedTuple):
    """One run of a program."""

    number: int
    died_at: str | None
    """The crash point it died at, or `kill` when that was no crash point; None when it got through."""
    acks: list[Any]
    """What it had been told by then, in order."""


class Deaths(NamedTuple):
    """Programs that were killed at the same moment."""

    number: int
    lives: list[Life]


async def crash_loop(
    argv_for: Callable[[int], Sequence[str | os.PathLike[str]]],
    check: Callable[[Life], Awaitable[None]],
    *,
    cwd: Path | None = None,
) -> list[Life]:
    """Every life of a program that is killed at crash point 1, 2, 3 …; the last one gets through.

    `argv_for` is asked for the command of each life, by its number: start each on data of its own.
    """
    lives = []
    for number in itertools.count(1):
        assert number < LIVES_MAX, f"still dying after {LIVES_MAX} lives"
        argv = argv_for(number)
        process = ChildProcess(argv, crash_at=number, cwd=cwd)
        life = await asyncio.to_thread(process.wait, number)
        lives.append(life)
        try:
            await check(life)
        except BaseException as error:
            command = " ".join(map(str, argv))
            error.add_note(f"after dying at {life.died_at!r}; once more: MAOS_CRASH_AT={number} {command}")
            raise
        if life.died_at is None:
            break
    return lives


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
    """Start some programs that never end, wait until each has reported something, kill all of them a moment later.

    The programs of a round are numbered on from those of the round before. All rounds may use the same data.
    """
    chance = Random(seed)  # noqa: S311 - repeatable on purpose
    numbers = itertools.count(1)
    deaths = []
    for round_ in range(1, rounds + 1):
        group = {number: ChildProcess(argv_for(number), cwd=cwd) for number in itertools.islice(numbers, processes)}
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


class ChildProcess:
    """A running program and what it has reported so far."""

    def __init__(self, argv: Sequence[str | os.PathLike[str]], *, crash_at: int = 0, cwd: Path | None = None) -> None:
        self.acks: list[Any] = []
        self._reported = threading.Event()
        # Files, not pipes, for what nobody reads meanwhile: a full pipe would stop the program.
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `wait`
        self._trace: IO[str] = tempfile.NamedTemporaryFile("r", prefix="maos-trace-")  # noqa: SIM115
        reading, writing = os.pipe()
        environment = {**os.environ, _PIPE: str(writing), "MAOS_CRASH_TRACE": self._trace.name}
        environment.pop("MAOS_CRASH_AT", None)
        environment.pop("COVERAGE_PROCESS_CONFIG", None)  # who is killed writes no figures, and pays for them
        if crash_at:
            environment["MAOS_CRASH_AT"] = str(crash_at)
        try:
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
                if line.endswith(b"\n"):  # the last one may have been cut short by the death
                    self.acks.append(json.loads(line))
                    self._reported.set()
        self._reported.set()

    def wait_for_ack(self) -> None:
        """Return when it has reported something or has ended."""
        if not self._reported.wait(LIFE_S_MAX):
            raise TimeoutError(f"{self._process.args!r} reported nothing within {LIFE_S_MAX:.0f} s")

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def wait(self, number: int) -> Life:
        """Its life, once it is over; raises when it failed in a way nobody asked for."""
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
        died_at = self._trace.read().strip()
        self._errors.close()
        self._trace.close()
        if overdue:
            raise TimeoutError(f"{self._process.args!r} still ran after {LIFE_S_MAX:.0f} s:\n{errors}")
        if status == -signal.SIGKILL:
            return Life(number, died_at or "kill", self.acks)
        if status != 0:
            raise RuntimeError(f"{self._process.args!r} ended with status {status}:\n{errors}")
        return Life(number, None, self.acks)
