"""The engine's side of holders: start an agent under one, attach to it as often as needed, list and end what is left.

The engine never owns the agent. It starts a holder, a small process of its own, which starts the agent, and talks to
the holder through a socket. So whatever happens to the engine, the agent keeps running, and the next engine continues
reading after the last record in the journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from pathlib import Path
from typing import NamedTuple

from maos.errors import InvalidInput
from maos.faults import crash_point
from maos.files import private_folder
from maos.holder import agent_process, identity, process_tree, wire
from maos.holder.agent_process import AgentProcess, HolderGone, StartFailed
from maos.holder.guard import ORPHANED_S
from maos.holder.spool import SUFFIX
from maos.holder.wire import HolderSpec
from maos.redact import VALUE_CHARS_MAX

ERRORS = "errors"
"""The file that receives a holder's standard error."""
CONNECT_S_MAX = 5.0
ANSWER_S_MAX = 1.0
END_S_MAX = 5.0
LINE_BYTES_MIN = 64 << 10
FIRST_INPUT_BYTES_MAX = 32 << 20

INTERPRETER = ("-I", "-S")
"""Start Python without environment variables and site packages."""
_BOOT = "import sys; sys.path.append(sys.argv[1]); from maos.holder.server import main; main(sys.argv[2])"
_ROOT = str(Path(__file__).parents[2])
PASSED_ON = ("LD_LIBRARY_PATH",)


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


async def start(folder: Path, spec: HolderSpec) -> AgentProcess:
    """Start an agent under a holder of its own; return when it runs, with this engine attached.

    A folder can be used once: a second start, by any process, raises InvalidInput. An engine that dies in here leaves
    either a holder with its agent, which can be attached to, or nothing. After any error but StartFailed and
    InvalidInput it is unknown which: `attach` finds out, and makes the answer final.
    """
    folder = _absolute(folder)
    holder_spec = _check(folder, spec)
    private_folder(folder)
    crash_point("start: folder made")
    process = AgentProcess(folder, spec.attempt, spec.token, after=0)
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process.holder_pid = _spawn(folder, spec.attempt, theirs.fileno())
        except BaseException:
            ours.close()
            raise
    crash_point("start: holder spawned")
    await process.open(ours)
    try:
        process.send(holder_spec.frame())
        crash_point("start: spec sent")
        await process.wait_until_attached()
    except StartFailed as error:
        await process.finish()  # nothing was started: nothing is left behind
        raise _explain(error, spec) from None
    except HolderGone as gone:
        await process.detach()
        raise HolderGone(
            f"{gone.what}{_last_words(folder)}", hint="attach to find out whether the agent runs; if not, start again"
        ) from None
    except BaseException:
        await process.detach()
        raise
    crash_point("start: agent runs")
    return process


async def attach(folder: Path, *, token: int, after: int) -> AgentProcess:
    """Attach to an agent that runs, or has run, under a holder; its records follow from an offset on.

    Raises HolderGone when no holder is alive, and makes sure that none can start there any more. Raises Fenced when an
    engine with a larger token has been attached.
    """
    folder = _absolute(folder)
    who = identity.read(folder)
    if who is None:
        identity.close_for_good(folder)
        who = identity.read(folder)
    sock = None if who is None else await _connect(folder, who)
    if who is None or sock is None:
        raise HolderGone(f"no holder is alive for {who.attempt if who else folder.name}{_last_words(folder)}")
    process = AgentProcess(folder, who.attempt, token, after)
    await process.open(sock)
    try:
        process.send(wire.frame(wire.HELLO, str(token).encode(), str(after).encode()))
        await process.wait_until_attached()
    except BaseException:
        await process.detach()
        raise
    return process


def _absolute(folder: Path) -> Path:
    return Path(os.path.abspath(folder))


def _check(folder: Path, spec: HolderSpec) -> HolderSpec:
    """Return the spec as it is sent to the holder; raise InvalidInput when it cannot be right."""
    for text, what in ((spec.attempt, "attempt"), *((part, "argument") for part in spec.argv)):
        if "\0" in text or (what == "attempt" and not text.isprintable()):
            raise InvalidInput(f"{what} {text!r} cannot be given to a program", hint="use printable characters")
    if not spec.argv or not spec.argv[0] or not spec.attempt:
        raise InvalidInput("there is no program to start", hint="give argv and the attempt's id")
    if spec.line_bytes_max < LINE_BYTES_MIN:
        raise InvalidInput(f"line_bytes_max is {spec.line_bytes_max}", hint=f"use at least {LINE_BYTES_MIN}")
    if len(spec.first_input) > FIRST_INPUT_BYTES_MAX:
        raise InvalidInput(f"the first input has {len(spec.first_input)} bytes", hint="put it into a file")
    for name, value in spec.secrets.items():
        if len(value) > VALUE_CHARS_MAX:
            raise InvalidInput(
                f"secret {name} has {len(value)} characters", hint=f"at most {VALUE_CHARS_MAX} are allowed"
            )
    for name, value in spec.env.items():
        if not name or "=" in name or "\0" in name + value:
            raise InvalidInput(
                f"{name!r} cannot be an environment variable",
                hint="a name has no =, and neither name nor value has a NUL",
            )
    env = {**spec.env, "MAOS_ATTEMPT": spec.attempt, "MAOS_ATTEMPT_FOLDER": str(folder)}
    return HolderSpec(**{**vars(spec), "env": env, "cwd": os.path.abspath(spec.cwd), "umask": _umask()})


def _spawn(folder: Path, attempt: str, connection: int) -> int:
    agent_process.reap()
    env = {"MAOS_ATTEMPT": attempt, "MAOS_ATTEMPT_FOLDER": str(folder)}
    env.update((name, os.environ[name]) for name in PASSED_ON if name in os.environ)
    if "MAOS_HOLDER_CRASH_AT" in os.environ:  # set by tests only
        env["MAOS_CRASH_AT"] = os.environ["MAOS_HOLDER_CRASH_AT"]
        env["MAOS_CRASH_TRACE"] = os.environ.get("MAOS_CRASH_TRACE", "")
    errors = os.open(folder / ERRORS, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, *INTERPRETER, "-c", _BOOT, _ROOT, str(folder)],
            env,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, connection, 0),
                (os.POSIX_SPAWN_DUP2, errors, 1),
                (os.POSIX_SPAWN_DUP2, errors, 2),
            ],
            setsigmask=[],
        )
    finally:
        os.close(errors)
    agent_process.children.add(pid)
    return pid


async def _connect(folder: Path, who: identity.HolderIdentity) -> socket.socket | None:
    """Connect to a holder, retrying while it may not listen yet; return None when it is dead."""
    loop = asyncio.get_running_loop()
    until = loop.time() + CONNECT_S_MAX
    while who.process() is not None:
        try:
            return agent_process.connect(folder)
        except OSError as error:
            if loop.time() > until:
                raise HolderGone(
                    f"the holder of {who.attempt} (pid {who.pid}) is alive but does not answer: {error.strerror}",
                    hint="end it, then read what it left",
                ) from error
            await asyncio.sleep(0.01)
    return None


def _umask() -> int:
    """Return the umask of this process; os.umask could read it only by changing it for a moment."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return 0o022


def _explain(error: StartFailed, spec: HolderSpec) -> StartFailed:
    """Return the error with the names of folder and program, which the holder does not send back."""
    why = os.strerror(error.errno)
    if error.where == "cwd":
        what, hint = f"cannot start in {spec.cwd}: {why}", "create the folder, or name another"
    elif error.where == "program":
        what = f"cannot start {spec.argv[0]}: {why}"
        hint = "install it, or give its full path; it is searched for in the PATH of the agent's own environment"
    else:
        what, hint = (
            f"cannot prepare a process for {spec.argv[0]}: {why}",
            "check whether the machine has run out of memory, processes or file descriptors",
        )
    return StartFailed(what, where=error.where, errno=error.errno, hint=hint)


def _last_words(folder: Path) -> str:
    """Return the last line a dead holder wrote to its standard error, for an error message."""
    with contextlib.suppress(OSError):
        words = (folder / ERRORS).read_text(errors="replace").strip()
        if words:
            return f"; its last error: {words.splitlines()[-1]}"
    return ""


# --- the holders on this machine, and stray processes --------------------------------------------------------------


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
        variables = process_tree.environment(process.pid)
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
        with agent_process.connect(folder) as sock:
            sock.settimeout(ANSWER_S_MAX)
            sock.sendall(wire.frame(wire.STATUS))
            return wire.unpack_map(wire.unpack(wire.receive_frame(sock)[1])[0])
    except (OSError, EOFError, ValueError):
        return {}


def _age_s(process: process_tree.Seen) -> float:
    uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    return uptime_s - process.start_ticks / os.sysconf("SC_CLK_TCK")


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
