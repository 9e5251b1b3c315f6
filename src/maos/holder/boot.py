"""Start of a holder: it reads the spec, claims the folder, and serves.

The engine starts it with one end of a socket pair as standard input, sends the spec through it, and stays attached
through it. If the engine dies before the spec is complete, the holder exits and has started nothing; if the engine
dies later, the agent runs and the next engine finds the holder by its folder.
"""

from __future__ import annotations

import _socket
import os

from maos.holder import process_tree, wire
from maos.holder.connections import HolderConnection
from maos.holder.guard import rename, wake_on
from maos.holder.machine import boot_id, crash_point, now_us
from maos.holder.server import Holder

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal


def main(folder: str) -> None:
    """Run the holder of a folder until it is no longer needed."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            os.closerange(int(name), int(name) + 1)  # descriptors that the engine left inheritable
    os.chdir(folder)
    os.umask(0o077)
    os.setsid()
    rename("maos-holder")
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    waking = wake_on(signal.SIGTERM)

    engine = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, _take_standard_input())
    engine.settimeout(wire.SPEC_S_MAX)
    try:
        kind, body = wire.receive_frame(engine)
    except (OSError, EOFError, ValueError):
        return  # the engine died or stopped before the spec was complete: nothing has been started
    if kind != wire.START:
        return
    spec = wire.HolderSpec.from_body(body)
    crash_point("holder has the spec")
    if not claim(spec.attempt):
        engine.send(wire.frame(wire.REFUSED, wire.TAKEN))
        return
    crash_point("holder has claimed the folder")
    holder = Holder(spec, HolderConnection(engine), waking)
    holder.start()
    holder.run()


def claim(attempt: str) -> bool:
    """Write this process into the identity file; return False if the folder has a holder: each gets at most one."""
    myself = process_tree.look(os.getpid())
    assert myself is not None
    text = f"{myself.pid}\n{myself.start_ticks}\n{boot_id()}\n{now_us()}\n{attempt}\n"
    draft = f"{wire.IDENTITY}.{myself.pid}"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(fd, text.encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    try:
        os.link(draft, wire.IDENTITY)
    except FileExistsError:
        return False
    finally:
        os.unlink(draft)
    return True


def _take_standard_input() -> int:
    """Move the engine's connection away from descriptor 0, where the agent's input will be."""
    fd = os.dup(0)
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    return fd
