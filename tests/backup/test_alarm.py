"""A backup that does not advance, or cannot be restored, is told to a person: nothing stops silently."""

import asyncio
import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

import maos
from maos.backup import alarm, service
from maos.backup.alarm import BackupAlarm
from maos.cli.program import program
from maos.errors import MaosError
from maos.journal.codec import Event
from maos.settings.loader import Current
from maos_testing.manual_clock import ManualClock
from tests.backup.records import TYPES
from tests.cli.notify.server import SECRET, Server

PROBLEM = "alarm of the backup"


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


async def note(m: maos.Maos, text: str = "x") -> None:
    await m.journal.append("notes/1", Event("note", {"text": text}))


async def test_a_backup_that_stands_still_while_the_journal_grows_is_late(tmp_path: Path) -> None:
    """I35: after more than a minute, and not before; a backup that advances slowly, or has all, is not late."""
    clock, where = ManualClock(), str(tmp_path / "backups")
    async with maos.open(tmp_path / "maos.db", types=TYPES, clock=clock) as m:
        watcher = BackupAlarm(m.journal, clock, m.backups, where)

        async def look() -> MaosError | None:
            return (await watcher._look())[0]

        await note(m)
        await m.backups.ship(where)
        assert await look() is None
        clock.advance(3600)
        assert await look() is None, "nothing is missing"
        await note(m)
        clock.advance(59)
        assert await look() is None
        clock.advance(2)
        late = await look()
        assert late is not None
        assert "has not advanced beyond position 1" in late.what
        await m.backups.ship(where)
        assert await look() is None
        await note(m)
        shutil.rmtree(where)
        (tmp_path / "backups").write_text("a file is in the way")
        clock.advance(61)
        late = await look()
        assert late is not None
        assert "cannot be used" in late.what, "and why"


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")  # of what apprise imports
async def test_a_server_says_so_notifies_once_and_takes_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    """I35: a problem of the server while it lasts, and a notification of it."""
    monkeypatch.setattr(alarm, "LOOK_S", 0.05)
    monkeypatch.setattr(alarm, "LATE_S", 0.1)
    monkeypatch.setattr("maos.backup.shipper.PAUSE_S_MAX", 0.1)
    where = tmp_path / "backups"
    where.write_text("a file is in the way")
    given = {
        "MAOS_BACKUP_TO": str(where),
        "MAOS_BACKUP_EVERY_S": "0.05",
        "MAOS_BACKUP_TEST_HOURS": "0",
        "MAOS_NOTIFY": server.url,
    }
    settings = partial(Current, environment=given)
    async with maos.open(tmp_path / "maos.db", types=TYPES, settings=settings) as m, m.supervisor.announced(""):
        while PROBLEM not in m.supervisor.problems or not server.heard:
            await asyncio.sleep(0.02)
        assert "has not advanced" in m.supervisor.problems[PROBLEM].what
        monkeypatch.setattr(alarm, "LATE_S", 3600.0)  # a slow machine is not late
        where.unlink()
        while PROBLEM in m.supervisor.problems:
            await asyncio.sleep(0.02)
    assert [each["title"] for each in server.heard] == ["maos backup: needs you"]
    assert SECRET not in str(server.heard)


async def test_a_test_that_failed_is_an_alarm_until_one_succeeds(tmp_path: Path) -> None:
    where = str(tmp_path / "backups")
    async with maos.open(tmp_path / "maos.db", types=TYPES) as m:
        await note(m)
        await m.backups.ship(where)
        [segment] = (tmp_path / "backups").glob("*/segments/*")
        whole = segment.read_bytes()
        segment.write_bytes(whole[:-1])
        await m.backups.test(where)
        watcher = BackupAlarm(m.journal, m.clock, m.backups, where)
        trouble, _id = await watcher._look()
        assert trouble is not None
        assert "could not be restored for a test" in trouble.what
        segment.write_bytes(whole)
        await m.backups.test(where)
        assert (await watcher._look())[0] is None


async def prepare(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db") as m:
        await m.state.create("reviewer")
        await m.backups.ship(str(tmp_path / "backups"))
        await m.backups.test(str(tmp_path / "backups"))
        await m.backups.ship(str(tmp_path / "backups"))


def test_status_and_doctor_have_a_line_about_the_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MAOS_BACKUP_TO", str(tmp_path / "backups"))
    call = partial(CliRunner().invoke, program)
    asyncio.run(prepare(tmp_path))
    shown = call(["--db", "maos.db", "status"])
    assert "backup: up to date, last test" in shown.output, shown.output
    assert re.search(r"last test .* in \d", shown.output), shown.output
    assert '"backup": {' in call(["--db", "maos.db", "status", "--json"]).output
    checked = call(["--db", "maos.db", "admin", "doctor"])
    assert "0.0 s behind" in checked.output, checked.output
    for segment in (tmp_path / "backups").glob("*/segments/*"):
        segment.write_bytes(b"damaged")

    async def test() -> None:
        async with maos.open(tmp_path / "maos.db") as m:
            await m.backups.test(str(tmp_path / "backups"))

    asyncio.run(test())
    assert "failed: " in call(["--db", "maos.db", "status"]).output
    checked = call(["--db", "maos.db", "admin", "doctor"])
    assert "its last test failed" in checked.output
    shutil.rmtree(tmp_path / "backups")
    assert "nothing was backed up to" in call(["--db", "maos.db", "status"]).output
    (tmp_path / "backups").write_text("a file is in the way")
    assert "cannot be used" in call(["--db", "maos.db", "status"]).output
    checked = call(["--db", "maos.db", "admin", "doctor"])
    assert "cannot be used" in checked.output
    assert checked.exit_code == 1


def test_alarms_are_looked_at_often_enough() -> None:
    """I35: the interval of looking is much shorter than the minute after which a backup is late."""
    assert alarm.LOOK_S * 4 < alarm.LATE_S <= 60
    assert service.LOOK_S <= alarm.LATE_S
