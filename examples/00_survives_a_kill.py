"""A process is killed again and again while it works; no acknowledged update is ever missing.

    python examples/00_survives_a_kill.py

A child process updates the state of eight agents as fast as it can and reports every acknowledgement through a pipe.
The parent kills it (SIGKILL: no handler runs, nothing is flushed) at a random time, opens the journal and compares it
with the reports: each acknowledged update must be there exactly once, in order. The next child continues where the
journal ends. At the end the parent flips one bit of a copy, and `verify` has to name the damaged event.

The exit status is 0 only if every comparison held. A kill shows what the death of a process does; what a power cut
does is shown by tests with a file system that forgets unsynced writes (tests/crash).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

import maos

AGENTS = [f"worker-{n}" for n in range(1, 9)]
KILLS = 8
LIFE_S = (0.2, 1.0)

console = Console(highlight=False, soft_wrap=True)


class Broken(Exception):
    """The proof failed."""


# --- the child -------------------------------------------------------------------------------------------------------


async def work(path: str) -> None:
    """Update all agents until killed, each from where its state ends."""
    async with maos.open(path) as m, asyncio.TaskGroup() as tasks:
        for agent in AGENTS:
            tasks.create_task(keep_updating(m, agent))


async def keep_updating(m: maos.Maos, agent: str) -> None:
    """One step after another, each reported once it is on disk."""
    try:
        state = await m.state.get(agent)
    except maos.NotFound:
        state = await m.state.create(agent, {"step": 0})
    step = state.data["step"]
    while True:
        step += 1
        update = await m.state.update(agent, {"step": step, "last": says(agent, step)})
        # Shorter than the pipe's buffer: a report is whole or not there.
        os.write(sys.stdout.fileno(), f"{agent} {step} {update.version}\n".encode())


def says(agent: str, step: int) -> str:
    """A text that is nowhere else in the journal."""
    return f"{agent} did step {step}."


# --- the parent ------------------------------------------------------------------------------------------------------


class Life(NamedTuple):
    """What a child reported before it was killed: for each agent, the version of each step."""

    seconds: float
    reports: dict[str, dict[int, int]]

    @property
    def acknowledged(self) -> int:
        return sum(map(len, self.reports.values()))


class Watcher:
    """Knows what was acknowledged, because it was told and was never killed."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self.path = path
        self.chance = chance
        self.places: dict[str, list[int]] = {agent: [0] for agent in AGENTS}
        """The version of each step of each agent, as found in the journal so far."""

    async def run_and_kill(self) -> Life:
        """One life of the child, from its first report to its death."""
        child = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--work", str(self.path), stdout=asyncio.subprocess.PIPE
        )
        assert child.stdout is not None
        first = await child.stdout.readline()
        begin = time.monotonic()
        asyncio.get_running_loop().call_later(self.chance.uniform(*LIFE_S), child.kill)
        lines = first + await child.stdout.read()
        seconds = time.monotonic() - begin
        if await child.wait() != -signal.SIGKILL:
            raise Broken("the child ended by itself")
        reports: dict[str, dict[int, int]] = {agent: {} for agent in AGENTS}
        for line in lines.decode().splitlines():
            agent, step, version = line.split()
            reports[agent][int(step)] = int(version)
        return Life(seconds, reports)

    async def compare(self, life: Life) -> tuple[int, int]:
        """How many reported updates are in their places, and how many are there that were never reported."""
        found = unreported = 0
        async with maos.open(self.path) as m:
            for agent, reports in life.reports.items():
                places = self.places[agent]
                known = len(places)
                await self._read_on(m, agent)
                found += sum(step < len(places) and places[step] == version for step, version in reports.items())
                extra = len(places) - known - len(reports)
                if extra > 1:
                    raise Broken(f"{agent}: {extra} updates more than were reported")
                unreported += max(0, extra)
        return found, unreported

    async def _read_on(self, m: maos.Maos, agent: str) -> None:
        """Note the place of every new step. Reading compares each event with its hash and the one before it."""
        places = self.places[agent]
        version = places[-1] or 0
        for event in await m.state.events(agent, after=version):
            version += 1
            if event.version != version:
                raise Broken(f"agent/{agent}@{version} is missing")
            step = next(change.new for change in event.changes if change.path == "/step")
            if step == 0:
                places[0] = 1  # the agent's beginning
            elif step != len(places):
                raise Broken(f"{event.id} is step {step}, expected {len(places)}")
            else:
                places.append(version)
        if (await m.state.get(agent)).data["step"] != len(places) - 1:
            raise Broken(f"the state of {agent} is not at step {len(places) - 1}")


async def survive(watcher: Watcher, kills: int) -> int:
    """Kill, look, go on; returns how many updates were acknowledged."""
    console.print(f"  {'kill':>4}  {'after':>7}  {'acknowledged':>12}  {'found':>6}  {'lost':>4}  {'unreported':>10}")
    total = 0
    for number in range(1, kills + 1):
        life = await watcher.run_and_kill()
        found, unreported = await watcher.compare(life)
        lost = life.acknowledged - found
        console.print(
            f"  {number:>4}  {life.seconds:>5.2f} s  {life.acknowledged:>12,}  {found:>6,}"
            f"  [{'red' if lost else 'green'}]{lost:>4}[/]  {unreported:>10}"
        )
        if lost:
            raise Broken(f"{lost} acknowledged updates are gone")
        total += life.acknowledged
    console.print("\n  unreported: on disk, but the process died before it could say so; at most one an agent")
    return total


async def verify(watcher: Watcher) -> None:
    """Check everything that is stored."""
    async with maos.open(watcher.path) as m:
        report = await m.verify()
    if not report.ok:
        raise Broken(f"verify found {report.damage}")
    console.print(f"\n  verify, all {report.events:,} events: [green]every hash matches, every state replays[/]")


async def flip_one_bit(watcher: Watcher) -> None:
    """Damage a copy where the database's own check does not look, and verify again."""
    agent = watcher.chance.choice(AGENTS)
    step = watcher.chance.randrange(1, len(watcher.places[agent]))
    version = watcher.places[agent][step]
    copy = watcher.path.with_name("copy.db")
    async with maos.open(watcher.path) as m:
        await m.copy_to(copy)
        record = await m.journal.event(f"agent/{agent}", version)
    assert record is not None
    content = bytearray(copy.read_bytes())
    # Bytes that SQLite no longer uses come first, and the hash of an event follows its body.
    place = content.rindex(says(agent, step).encode(), 0, content.rindex(record.hash))
    content[place] ^= 1
    copy.write_bytes(content)
    async with maos.open(copy) as m:
        damage = (await m.verify()).damage
    console.print(f"\n  one bit flipped in a copy: byte {place:,} of {len(content):,}")
    noticed = any(not each.stream for each in damage)
    console.print(f"  SQLite's own integrity check: {'finds it too' if noticed else 'finds nothing'}")
    named = [each for each in damage if (each.stream, each.version) == (f"agent/{agent}", version)]
    if not named:
        raise Broken(f"the bit was in agent/{agent}@{version}, verify named {damage}")
    console.print(f"  verify: [red]agent/{agent}@{version} {named[0].what}[/]; {named[0].recoverable}")


async def demo(seed: int, kills: int) -> int:
    """The whole proof."""
    console.print(
        f"\n[bold]{len(AGENTS)} agents, one journal, killed {times(kills)}[/] (SIGKILL, at random; seed {seed})\n"
    )
    with tempfile.TemporaryDirectory(prefix="maos-demo-") as folder:
        watcher = Watcher(Path(folder) / "maos.db", random.Random(seed))
        try:
            total = await survive(watcher, kills)
            await verify(watcher)
            await flip_one_bit(watcher)
        except Broken as error:
            console.print(f"\n[bold red]The proof failed:[/] {error}\n")
            return 1
    console.print(f"\n[bold green]{total:,} acknowledged updates, killed {times(kills)}: none lost, none twice.[/]")
    console.print("What else is promised, and the tests that show it: docs/explanation/guarantees.md\n")
    return 0


def times(count: int) -> str:
    """Once, or so many times."""
    return "once" if count == 1 else f"{count} times"


def main() -> int:
    """Be the parent, or the child."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=random.randrange(10_000), help="choose the same moments again")
    parser.add_argument("--kills", type=int, default=KILLS, help="how often (default: %(default)s)")
    parser.add_argument("--work", metavar="DATABASE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        asyncio.run(work(options.work))
    return asyncio.run(demo(options.seed, options.kills))


if __name__ == "__main__":
    sys.exit(main())
