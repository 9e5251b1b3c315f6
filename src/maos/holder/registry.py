"""The holders on this machine: listing them, finding stray processes, and ending both."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import NamedTuple

from maos.holder import identity, process_tree, wire
from maos.holder.agent_process import connect
from maos.holder.guard import ORPHANED_S
from maos.holder.spool import SUFFIX

ANSWER_S_MAX = 1.0
END_S_MAX = 5.0


class HolderInfo(NamedTuple):
    """The holder of one attempt, living or dead."""

    folder: Path
    attempt: str
    pid: int
    """0 when none was ever started."""
    alive: bool
    agent_pid: int
    """0 when it is not known, because the holder is dead or does not answer."""
    since_us: int
    attached: bool
    over: bool
    """Whether the agent has ended."""
    spool_bytes: int


class Stray(NamedTuple):
    """A process of an attempt whose holder is dead."""

    pid: int
    start_ticks: int
    attempt: str
    folder: Path
    command: str


def holders(root: Path) -> list[HolderInfo]:
    """List the holder of every attempt folder below a folder."""
    found = []
    for folder in sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else ():
        who = identity.read(folder)
        alive = who is not None and who.process() is not None
        state = _query(folder) if alive else {}
        found.append(
            HolderInfo(
                folder=folder,
                attempt=who.attempt if who else folder.name,
                pid=who.pid if who else 0,
                alive=alive,
                agent_pid=int(state.get("agent_pid", 0)),
                since_us=who.since_us if who else 0,
                attached=state.get("attached") == "1",
                over=state.get("over") == "1",
                spool_bytes=sum(path.stat().st_size for path in folder.glob(f"*{SUFFIX}")),
            )
        )
    return found


async def end(info: HolderInfo) -> int:
    """End a holder, its agent and all their descendants, strays included; return how many processes died.

    The spool stays. A process that has reused the pid of a dead one is left alone.
    """
    return await asyncio.to_thread(_end, info)


def strays(root: Path) -> list[Stray]:
    """List the processes of attempts below a folder whose holder is dead.

    They are recognized by their environment, which children inherit. A process that was started with another
    environment is not found.
    """
    root = root.absolute()
    held: dict[Path, bool | None] = {}
    found = []
    for process in process_tree.all_processes():
        variables = _environment(process.pid)
        folder = Path(os.fsdecode(variables.get(b"MAOS_ATTEMPT_FOLDER", b"")))
        if b"MAOS_ATTEMPT" not in variables or root not in folder.parents:
            continue
        if folder not in held:
            who = identity.read(folder)
            held[folder] = who.process() is not None if who else None
        if held[folder] is None and _age_s(process) < wire.SPEC_S_MAX:
            continue  # a holder that is just starting has not written its identity yet
        if not held[folder]:
            attempt = variables[b"MAOS_ATTEMPT"].decode(errors="replace")
            found.append(Stray(process.pid, process.start_ticks, attempt, folder, _command(process.pid)))
    return found


async def end_stray(stray: Stray) -> int:
    """Kill a stray process and its descendants; return how many processes died."""
    return await asyncio.to_thread(_kill_all, [stray])


def _end(info: HolderInfo) -> int:
    who = identity.read(info.folder)
    holder = who.process() if who else None
    if holder is not None:
        return _end_living(holder)
    folder = info.folder.absolute()
    return _kill_all([stray for stray in strays(folder.parent) if stray.folder == folder])


def _end_living(holder: process_tree.Seen) -> int:
    """Kill the holder and let its guard end the rest: only the guard knows for certain when no process is left."""
    below = process_tree.descendants(holder.pid)
    guards = [process for process in below if process.parent == holder.pid]
    process_tree.send(holder, signal.SIGKILL)
    for guard in guards:
        process_tree.send(guard, signal.SIGCONT)
    if not process_tree.wait_until_dead([holder, *below], ORPHANED_S + END_S_MAX):
        process_tree.kill_all([each for each in below if process_tree.living(each.pid, each.start_ticks)])
        process_tree.wait_until_dead(below, END_S_MAX)
    return 1 + len(below)


def _kill_all(found: list[Stray]) -> int:
    living = [process_tree.living(each.pid, each.start_ticks) for each in found]
    roots = [process for process in living if process is not None]
    tree = {process.pid: process for root in roots for process in [root, *process_tree.descendants(root.pid)]}
    killed = process_tree.kill_all(roots)
    process_tree.wait_until_dead(list(tree.values()), END_S_MAX)
    return killed


def _query(folder: Path) -> dict[str, str]:
    """Return the state that a holder reports; empty when it does not answer."""
    try:
        with connect(folder) as sock:
            sock.settimeout(ANSWER_S_MAX)
            sock.sendall(wire.frame(wire.STATUS))
            return wire.unpack_map(wire.unpack(wire.receive_frame(sock)[1])[0])
    except (OSError, EOFError, ValueError):
        return {}


def _age_s(process: process_tree.Seen) -> float:
    uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    return uptime_s - process.start_ticks / os.sysconf("SC_CLK_TCK")


def _environment(pid: int) -> dict[bytes, bytes]:
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}  # it has ended, or belongs to another user
    return dict(entry.partition(b"=")[::2] for entry in text.split(b"\0") if entry)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
