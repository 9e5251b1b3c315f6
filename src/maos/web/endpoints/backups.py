"""The backup of the server's database: how far it is, what is there, checks of it. Nothing is restored over HTTP."""

from __future__ import annotations

import asyncio

from maos.backup import service
from maos.backup.archive import BackupHead
from maos.backup.checks import TEST, VERIFY, Report
from maos.errors import InvalidInput, MaosError
from maos.web import documents as d
from maos.web import system_documents as sd
from maos.web.api import Call

ANSWER_S_MAX = 10.0


async def list_backups(call: Call) -> sd.BackupList:
    """List the backups at the location of the settings, of all databases."""
    location, own = call.m.settings.values.backup.to, await call.m.backups.identity()
    found = await service.find(location) if location else []
    return sd.BackupList(location=location, backups=[_info(each, own) for each in found])


async def show_status(call: Call) -> sd.BackupStatusInfo:
    """Show how far the backup of this database is, its last test, and the checks in progress."""
    location, own = call.m.settings.values.backup.to, await call.m.backups.identity()
    checks = [d.of(each, sd.BackupCheckInfo) for each in call.server.backup_checks.all()]
    problem, found = "", None
    if location:
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                found = await call.m.backups.status(location)
        except TimeoutError:
            problem = f"{location} does not answer"
        except MaosError as error:
            problem = error.what
    return sd.BackupStatusInfo(
        location=location,
        problem=problem,
        recorded=found.recorded if found is not None else 0,
        missing=found.missing if found is not None else 0,
        behind_s=found.behind_s if found is not None else 0.0,
        backup=_info(found.head, own) if found is not None and found.head is not None else None,
        tested=d.of(found.tested, sd.BackupTestInfo) if found is not None and found.tested is not None else None,
        checks=checks,
    )


async def test(call: Call) -> sd.BackupCheckInfo:
    """Restore the backup to a temporary database, check it, and record the result."""
    location = _location(call)

    async def work(report: Report) -> str:
        return (await call.m.backups.test(location, report)).problem

    return d.of(call.server.backup_checks.start(TEST, work), sd.BackupCheckInfo)


async def verify(call: Call) -> sd.BackupCheckInfo:
    """Read the whole backup of this database, and check every event of it."""
    location, own = _location(call), await call.m.backups.identity()

    async def work(report: Report) -> str:
        return (await service.verify(location, own, report)).damage

    return d.of(call.server.backup_checks.start(VERIFY, work), sd.BackupCheckInfo)


def _location(call: Call) -> str:
    found = call.m.settings.values.backup.to
    if not found:
        raise InvalidInput("the settings name no location of a backup", hint="set backup.to, and start the server anew")
    return found


def _info(head: BackupHead, own: str) -> sd.BackupInfo:
    return d.of(head, sd.BackupInfo, is_own=head.store == own)
