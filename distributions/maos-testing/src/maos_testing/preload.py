"""Starts a Python program many times, each life a fork of a process that has imported it already.

Most of a short life is the start of the interpreter and the imports. `Preloaded` pays for them once. Each life is a
process of its own, with its own environment, arguments and open files: it can be killed at any instant, and nothing
of it is left in the next one.
"""

from __future__ import annotations

import ast
import gc
import importlib.util
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import maos
from maos import faults

_SERVE = "import sys; from maos_testing.preload import serve; serve(int(sys.argv[1]), sys.argv[2], sys.argv[3])"
_MESSAGE_BYTES_MAX = 1 << 20
_ENVIRONMENT = "MAOS_ACKS_FD", "MAOS_CRASH_AT", "MAOS_CRASH_NAME", "MAOS_CRASH_TRACE"
"""What differs from life to life; the rest of the environment is the one that the program was imported with."""
_FRONT_ENDS = "__main__", "cli", "mcp"
_COUNTDOWNS = ("maos.faults",)
"""Modules that have read MAOS_CRASH_AT when they were imported."""


def program_of(argv: Sequence[str | os.PathLike[str]]) -> tuple[str, str] | None:
    """Return the program of a command, as `-m` and a module or `-f` and a file; None if this Python does not run it."""
    words = [os.fspath(word) for word in argv[:3]]
    if words[:1] != [sys.executable]:
        return None
    if words[1] == "-m":
        return "-m", words[2]
    return ("-f", words[1]) if words[1].endswith(".py") else None


class Preloaded:
    """A process that has imported a program and forks once for each of its lives."""

    def __init__(self, program: tuple[str, str], *, environment: Mapping[str, str], cwd: Path | None) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        shared = {name: value for name, value in environment.items() if name not in _ENVIRONMENT}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVE, str(theirs.fileno()), *program],
                env=shared, cwd=cwd, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def start(
        self, argv: Sequence[str | os.PathLike[str]], environment: Mapping[str, str], output: int, acks: int
    ) -> Forked:
        """Start one life; its output and errors go to one file, its acknowledgements to another."""
        first = 3 if argv[1] == "-m" else 2
        own = {name: environment[name] for name in _ENVIRONMENT if name in environment}
        request = {"arguments": [os.fspath(word) for word in argv[first:]], "environment": own}
        socket.send_fds(self._ours, [json.dumps(request).encode()], [output, acks])
        return Forked(argv, self.answer(None), self)

    def ask(self, pid: int) -> None:
        """Request the exit status of one life, negative when a signal ended it; `answer` returns it next."""
        self._ours.send(json.dumps({"wait": pid}).encode())

    def answer(self, limit_s: float | None) -> int:
        """Return the next number that the process sends."""
        self._ours.settimeout(limit_s)
        answer = self._ours.recv(_MESSAGE_BYTES_MAX)
        if not answer:
            raise RuntimeError(f"{self._process.args!r} ended with status {self._process.wait()}")
        return int(answer)

    def close(self) -> None:
        """End the process, after its lives have ended."""
        self._ours.close()
        self._process.wait()


class Forked:
    """One life, used as a `subprocess.Popen` is."""

    def __init__(self, argv: Sequence[str | os.PathLike[str]], pid: int, server: Preloaded) -> None:
        self.args = argv
        self.pid = pid
        self._server = server
        self._asked = False

    def kill(self) -> None:
        """Send SIGKILL. The process has not been waited for, so the pid is still its own."""
        os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit status."""
        if not self._asked:
            self._server.ask(self.pid)
            self._asked = True
        try:
            return self._server.answer(timeout)
        except TimeoutError:
            raise subprocess.TimeoutExpired([os.fspath(word) for word in self.args], timeout or 0) from None


def serve(descriptor: int, kind: str, name: str) -> None:
    """Import what a program imports, then fork a life for each request."""
    sys.path[0] = os.getcwd() if kind == "-m" else str(Path(name).parent)
    spec = importlib.util.find_spec(name) if kind == "-m" else None
    _import_as(Path(spec.origin) if spec is not None and spec.origin is not None else Path(name))
    gc.freeze()
    server = socket.socket(fileno=descriptor)
    while True:
        message, descriptors, _flags, _address = socket.recv_fds(server, _MESSAGE_BYTES_MAX, 2)
        if not message:
            return
        request = json.loads(message)
        if "wait" in request:
            server.send(str(os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])).encode())
            continue
        pid = os.fork()
        if pid == 0:
            server.close()
            _live(kind, name, request, descriptors)
            return
        for each in descriptors:
            os.close(each)
        server.send(str(pid).encode())


def _import_as(program: Path) -> None:
    """Import what a program imports at its top, and what `maos` would import at first use; the rest is not run."""
    for node in ast.parse(program.read_bytes()).body:
        if isinstance(node, ast.Import):
            for each in node.names:
                importlib.import_module(each.name)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            module = importlib.import_module(node.module)
            for each in node.names:
                if not hasattr(module, each.name):
                    importlib.import_module(f"{node.module}.{each.name}")
    for found in pkgutil.walk_packages(maos.__path__, "maos."):
        if found.name.split(".")[1] not in _FRONT_ENDS:
            importlib.import_module(found.name)


def _live(kind: str, name: str, request: dict[str, Any], descriptors: list[int]) -> None:
    """Run the program in this process, as if the interpreter had been started for it."""
    output, acks = descriptors
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.update(request["environment"])
    os.environ["MAOS_ACKS_FD"] = str(acks)
    for module in _COUNTDOWNS:
        if module in sys.modules:
            sys.modules[module]._remaining = int(os.environ.get("MAOS_CRASH_AT", "0"))  # type: ignore[attr-defined]
    faults._name = os.environ.get("MAOS_CRASH_NAME", "")
    sys.argv = [name, *request["arguments"]]
    if kind == "-m":
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(name, run_name="__main__")
