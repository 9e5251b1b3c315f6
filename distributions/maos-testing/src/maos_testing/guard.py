"""Runs one server for a test process and cleans up after it, however the test process ends.

The test process has the other end of the guard's standard input. When it ends, even by `kill -9`, that pipe
closes; the guard then ends the server with all its children and removes its directory. Nothing else would
do: `atexit` and fixtures do not run in a killed process, and a parent-death signal would leave the files.

How the guard knows that *all* processes have exited: the server inherits the writing end of a pipe, the
lifeline, and so does every process it forks. The guard reads end-of-file from the lifeline when the last of
them has exited. No pid is guessed, and a reused pid is never signalled.

Started by path as `python -I guard.py BASE UID`, so it imports nothing but the standard library. One JSON
object per line in, one out:

    (at the start)                             -> {"directory": the new private directory}
    {"start": argv, "log": file}               -> {"pid": n}
    {"wait": seconds, "signal": n or null}     -> {"status": exit status, or null when some still run}
    {"kill": true}                             -> {"status": exit status}
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

POLITE_S = 2.0  # how long everything may take to end by itself, after SIGQUIT or its parent's SIGKILL
FORCED_S = 5.0  # how long the kernel may take to end killed processes


def main() -> None:
    base, uid = Path(sys.argv[1]), int(sys.argv[2])
    signal.signal(signal.SIGTERM, _exit)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the test process; the guard notices its end
    directory = Path(tempfile.mkdtemp(prefix="maos-", dir=base))
    server = GuardedServer(directory, uid)
    try:
        if os.getuid() != uid:
            os.chown(directory, uid, uid)
        _reply({"directory": str(directory)})
        for line in sys.stdin:
            _reply(server.answer(json.loads(line)))
    except BrokenPipeError:
        pass  # the test process has ended
    finally:
        server.end(signal.SIGQUIT)
        shutil.rmtree(directory, ignore_errors=True)


class GuardedServer:
    """The server process, and the lifeline that shows whether it or a child is alive."""

    def __init__(self, directory: Path, uid: int) -> None:
        self._directory = directory
        self._uid = uid
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline = -1

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if "start" in request:
            return {"pid": self.start(request["start"], Path(request["log"]))}
        if "kill" in request:
            return {"status": self.end(signal.SIGKILL)}
        return {"status": self.wait(request["wait"], request["signal"])}

    def start(self, argv: list[str], log: Path) -> int:
        self._lifeline, inherited = os.pipe()
        other_user = None if os.getuid() == self._uid else self._uid
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                argv,
                cwd=self._directory,
                env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(inherited,),
                start_new_session=True,
                umask=0o077,
                user=other_user,
                group=other_user,
                extra_groups=None if other_user is None else [],
            )
        os.close(inherited)
        return self._process.pid

    def wait(self, timeout_s: float, signal_number: int | None = None) -> int | None:
        """Return its exit status once it and all its children have exited; None when some still run."""
        if self._process is None:
            return 0
        if signal_number is not None:
            self._process.send_signal(signal_number)
        ended, _, _ = select.select([self._lifeline], [], [], timeout_s)
        if not ended:
            return None
        status = self._process.wait()
        os.close(self._lifeline)
        self._process = None
        return status

    def end(self, how: signal.Signals) -> int | None:
        """Signal the server, give its children time to end, then kill those that are left."""
        status = self.wait(POLITE_S, how)
        if status is None:
            for pid in self._family():
                os.kill(pid, signal.SIGKILL)
            status = self.wait(FORCED_S, signal.SIGKILL)
        return status

    def _family(self) -> set[int]:
        """Return every process that has the lifeline open (on Linux; elsewhere SIGQUIT and SIGKILL must suffice)."""
        lifeline = Path(f"pipe:[{os.fstat(self._lifeline).st_ino}]")
        family = set()
        for link in Path("/proc").glob("[0-9]*/fd/*"):
            try:
                if link.readlink() == lifeline:
                    family.add(int(link.parts[2]))
            except OSError:
                continue  # it has ended, or belongs to another user
        return family - {os.getpid()}


def _reply(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)  # noqa: T201 - the reply channel


def _exit(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(1)


if __name__ == "__main__":
    main()
