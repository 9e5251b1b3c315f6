"""An agent's process, seen from the engine: started once, attached to as often as needed.

The engine never owns the agent. It asks a holder, a small process of its own, to start it, and talks to that holder
through a socket. So whatever happens to the engine, the agent goes on, and the next engine reads on where this one
had recorded everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from maos.errors import InvalidInput
from maos.faults import crash_point
from maos.holder import identity, process_tree, wire
from maos.holder.connect import connect
from maos.holder.errors import Fenced, HolderGone, InputFull, StartFailed
from maos.holder.held_agent import INPUT_BYTES_MAX
from maos.holder.link import Link
from maos.holder.records import NO_NEWLINE, PARTIAL, Exit, SpoolRecord, left_behind
from maos.holder.registry import HolderInfo, Stray, end, end_stray, holders, strays
from maos.redact import VALUE_CHARS_MAX

__all__ = [
    "NO_NEWLINE",
    "PARTIAL",
    "AgentProcess",
    "Exit",
    "Fenced",
    "HolderGone",
    "HolderInfo",
    "InputFull",
    "Spec",
    "SpoolRecord",
    "StartFailed",
    "Stray",
    "attach",
    "end",
    "end_stray",
    "holders",
    "left_behind",
    "remove",
    "start",
    "strays",
]

ERRORS = "errors"
"""The file a holder's own last words go to."""
START_S_MAX = 30.0
CONNECT_S_MAX = 5.0
FINISH_S_MAX = 10.0
LINE_BYTES_MIN = 64 << 10
FIRST_INPUT_BYTES_MAX = 32 << 20
DAY_S = 86_400.0

INTERPRETER = ("-I", "-S")
"""As little Python as there is: no environment variables, no site packages."""
_BOOT = "import sys; sys.path.append(sys.argv[1]); from maos.holder.boot import main; main(sys.argv[2])"
_ROOT = str(Path(__file__).parents[2])
PASSED_ON = ("LD_LIBRARY_PATH",)

_children: set[int] = set()
"""Holders this process has started and not seen end: somebody has to bury them."""


class Spec(NamedTuple):
    """What to run, and how."""

    argv: Sequence[str]
    env: Mapping[str, str]
    """The whole environment of the agent; nothing is inherited. MAOS_ATTEMPT and MAOS_ATTEMPT_FOLDER are added."""
    cwd: str | os.PathLike[str]
    attempt: str
    token: int
    """The token of the lease under which the engine acts."""
    first_input: bytes = b""
    keep_stdin_open: bool = False
    """Whether more input may follow; if not, the agent sees the end of its input after the first."""
    time_limit_s: float | None = None
    stop_grace_s: float = 10.0
    """What the agent gets between TERM and KILL when a limit ends it."""
    unattended_limit_s: float = DAY_S
    """Nobody attached for so long: the agent is ended."""
    linger_s: float = 3600.0
    """How long the holder stays after the agent's end when nobody is attached; then only the spool stays."""
    spool_bytes_max: int = 256 << 20
    """What may wait on disk for being confirmed; then the agent has to wait."""
    line_bytes_max: int = 1 << 20
    """Longer lines come in parts."""
    secrets: Mapping[str, str] = MappingProxyType({})
    """Values that must not be written anywhere, by the name that is put in their place."""


async def start(folder: Path, spec: Spec) -> AgentProcess:
    """Start an agent under a holder of its own; returns when it runs, attached from the beginning.

    At most once for a folder, whoever tries: a second start raises InvalidInput. An engine that dies in here leaves
    either a holder that can be attached to, with its agent, or nothing. After any error but StartFailed and
    InvalidInput it is unknown which: `attach` finds out, and settles it.
    """
    folder = _absolute(folder)
    order = _order(folder, spec)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    crash_point("start: folder made")
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            holder_pid = _spawn(folder, spec.attempt, theirs.fileno())
        except BaseException:
            ours.close()
            raise
    crash_point("start: holder spawned")
    link = await Link.open(ours, name=spec.attempt, token=spec.token, after=0)
    try:
        link.send(order.frame())
        crash_point("start: spec sent")
        await link.attached(START_S_MAX)
    except StartFailed as error:
        await link.finish()
        await _buried(holder_pid)
        await asyncio.to_thread(remove, folder)  # nothing was started: nothing is left behind
        raise _explained(error, spec) from None
    except HolderGone as gone:
        await link.close()
        raise HolderGone(f"{gone.what}{_last_words(folder)}", hint="attach, to be sure, then start anew") from None
    except BaseException:
        await link.close()
        raise
    crash_point("start: agent runs")
    return AgentProcess(folder, link)


async def attach(folder: Path, *, token: int, after: int) -> AgentProcess:
    """Go on with an agent that runs, or has run, under a holder; its records come after an offset.

    Raises HolderGone when no holder lives, and sees to it then that none can begin there any more. Raises Fenced when
    an engine with a larger token has been attached.
    """
    folder = _absolute(folder)
    who = identity.read(folder)
    if who is None:
        identity.close_for_good(folder)
        who = identity.read(folder)
    sock = None if who is None else await _connect(folder, who)
    if who is None or sock is None:
        raise HolderGone(f"no holder lives for {who.attempt if who else folder.name}{_last_words(folder)}")
    link = await Link.open(sock, name=who.attempt, token=token, after=after)
    try:
        link.send(wire.frame(wire.HELLO, str(token).encode(), str(after).encode()))
        await link.attached(START_S_MAX)
    except BaseException:
        await link.close()
        raise
    return AgentProcess(folder, link)


class AgentProcess:
    """An agent's process, as long as this engine is attached to it."""

    def __init__(self, folder: Path, link: Link) -> None:
        self.folder = folder
        self.pid = int(link.state["agent_pid"])
        self.holder_pid = int(link.state["holder_pid"])
        self._link = link

    async def records(self) -> list[SpoolRecord]:
        """Line 2/8: what happened next, at least one record; none when everything has been given, the exit included.

        Raises Fenced when another engine has taken over, HolderGone when the holder has died.
        """
        return await self._link.records()

    async def confirm(self, offset: int) -> None:
        """Let the holder drop everything up to an offset, because it is in the journal."""
        self._link.send(wire.frame(wire.CONFIRM, str(offset).encode()))

    async def write(self, id: str, data: bytes, *, close: bool = False) -> bool:
        """Give the agent input, once for an id; True when it was accepted, now or before, and that is on disk.

        False when the agent takes no more input. Raises InputFull when it does not read what it was given before.
        """
        if len(data) > INPUT_BYTES_MAX:
            raise InvalidInput(f"input {id} has {len(data)} bytes", hint=f"at most {INPUT_BYTES_MAX} at a time")
        return await self._link.write(id, data, close=close)

    async def stop(self, *, grace_s: float) -> None:
        """Ask the agent to end (TERM), and kill it with everything it has started if it has not done so in time."""
        self._link.send(wire.frame(wire.STOP, repr(float(grace_s)).encode()))

    async def kill(self) -> None:
        """Kill the agent and everything it has started."""
        self._link.send(wire.frame(wire.KILL))

    async def detach(self) -> None:
        """Leave. The agent goes on, and what it prints is kept for the next engine."""
        await self._link.close()

    async def finish(self) -> None:
        """End the holder of an agent that has ended, and remove its folder with the spool."""
        await self._link.finish()
        crash_point("finish: holder said goodbye")
        await _buried(self.holder_pid)
        await asyncio.to_thread(remove, self.folder)


def _absolute(folder: Path) -> Path:
    return Path(os.path.abspath(folder))


def remove(folder: Path) -> None:
    """Remove the folder of an attempt whose holder is gone."""
    who = identity.read(folder)
    if who is not None and who.process() is not None:
        raise InvalidInput(f"the holder of {who.attempt} lives", hint="attach and finish, or end it")
    shutil.rmtree(folder, ignore_errors=False)


def _order(folder: Path, spec: Spec) -> wire.HolderSpec:
    """The spec as the holder gets it, or an error that says what cannot be right about it."""
    for text, what in ((spec.attempt, "attempt"), *((part, "argument") for part in spec.argv)):
        if "\0" in text or (what == "attempt" and not text.isprintable()):
            raise InvalidInput(f"{what} {text!r} cannot be given to a program", hint="leave out such characters")
    if not spec.argv or not spec.argv[0] or not spec.attempt:
        raise InvalidInput("there is no program to start", hint="give argv and the attempt's id")
    if spec.line_bytes_max < LINE_BYTES_MIN:
        raise InvalidInput(f"line_bytes_max is {spec.line_bytes_max}", hint=f"use at least {LINE_BYTES_MIN}")
    if len(spec.first_input) > FIRST_INPUT_BYTES_MAX:
        raise InvalidInput(f"the first input has {len(spec.first_input)} bytes", hint="put it into a file")
    for name, value in spec.secrets.items():
        if len(value) > VALUE_CHARS_MAX:
            raise InvalidInput(f"secret {name} has {len(value)} characters", hint=f"at most {VALUE_CHARS_MAX}")
    for name, value in spec.env.items():
        if not name or "=" in name or "\0" in name + value:
            raise InvalidInput(f"{name!r} cannot be an environment variable", hint="names without =, no NUL")
    return wire.HolderSpec(
        argv=list(spec.argv),
        env={**spec.env, "MAOS_ATTEMPT": spec.attempt, "MAOS_ATTEMPT_FOLDER": str(folder)},
        cwd=os.path.abspath(spec.cwd),
        attempt=spec.attempt,
        token=spec.token,
        first_input=spec.first_input,
        keep_stdin_open=spec.keep_stdin_open,
        time_limit_s=spec.time_limit_s,
        stop_grace_s=spec.stop_grace_s,
        unattended_limit_s=spec.unattended_limit_s,
        linger_s=spec.linger_s,
        spool_bytes_max=spec.spool_bytes_max,
        line_bytes_max=spec.line_bytes_max,
        secrets=dict(spec.secrets),
        umask=_umask(),
    )


def _spawn(folder: Path, attempt: str, connection: int) -> int:
    """Start a holder; its pid."""
    _bury()
    env = {"MAOS_ATTEMPT": attempt, "MAOS_ATTEMPT_FOLDER": str(folder)}
    env.update((name, os.environ[name]) for name in PASSED_ON if name in os.environ)
    if "MAOS_HOLDER_CRASH_AT" in os.environ:  # by tests only
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
    _children.add(pid)
    return pid


async def _connect(folder: Path, who: identity.HolderIdentity) -> socket.socket | None:
    """A connection to a holder, or None when it does not live. One that has just been started may not listen yet."""
    loop = asyncio.get_running_loop()
    until = loop.time() + CONNECT_S_MAX
    while who.process() is not None:
        try:
            return connect(folder)
        except OSError as error:
            if loop.time() > until:
                raise HolderGone(
                    f"the holder of {who.attempt} (pid {who.pid}) lives but does not answer: {error.strerror}",
                    hint="end it, then read what it left",
                ) from error
            await asyncio.sleep(0.01)
    return None


def _bury() -> None:
    """Take note of holders of ours that have ended, so that the kernel can forget them."""
    for pid in list(_children):
        try:
            ended = os.waitpid(pid, os.WNOHANG)[0] == pid
        except ChildProcessError:
            ended = True  # somebody else has
        if ended:
            _children.discard(pid)


async def _buried(pid: int) -> None:
    """Return when a holder has ended."""
    async with asyncio.timeout(FINISH_S_MAX):
        while True:
            _bury()
            seen = process_tree.look(pid)
            if seen is None or seen.state in "ZX":
                return
            await asyncio.sleep(0.002)


def _umask() -> int:
    """Ours, which can be read without changing it for a moment, as opposed to what os.umask does."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return 0o022


def _explained(error: StartFailed, spec: Spec) -> StartFailed:
    """The same error with the names the holder does not repeat."""
    why = os.strerror(error.errno)
    if error.where == "cwd":
        what, hint = f"cannot work in {os.fspath(spec.cwd)}: {why}", "make the folder, or name another"
    elif error.where == "program":
        what = f"cannot start {spec.argv[0]}: {why}"
        hint = "install it, or give its full path; it is looked for in the PATH of its own environment"
    else:
        what, hint = f"cannot prepare a process for {spec.argv[0]}: {why}", "see what the machine has run out of"
    return StartFailed(what, where=error.where, errno=error.errno, hint=hint)


def _last_words(folder: Path) -> str:
    """What a holder that died had to say, for an error message."""
    with contextlib.suppress(OSError):
        words = (folder / ERRORS).read_text(errors="replace").strip()
        if words:
            return f"; its last words: {words.splitlines()[-1]}"
    return ""
