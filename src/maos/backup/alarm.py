"""Raises an alarm when a backup does not advance while the journal does, or when its last test failed.

The age of what is missing is measured by the clock of this process that only moves forward, from when it was first seen
missing: a wrong time of day raises no alarm and hides none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from maos.backup.service import Backups, BackupStatus
from maos.clock import MICROSECONDS, Clock
from maos.engine import log
from maos.errors import Corrupt, MaosError, StoreUnavailable
from maos.journal.journal import Journal
from maos.runs import notify

LATE_S = 60.0
"""How long the journal may be ahead of a backup that does not advance."""
LOOK_S = 5.0
NOTICES = "backup"
"""The name under which its notifications are recorded, in the place of a run's."""


class BackupAlarm:
    """Watches the backup of one database at one location."""

    def __init__(self, journal: Journal, clock: Clock, backups: Backups, location: str, *, page: str = "") -> None:
        self._journal = journal
        self._clock = clock
        self._backups = backups
        self._location = location
        self._page = page
        self._position = 0
        """How far the backup was when it was last seen."""
        self._moved_us = clock.steady_us()
        """When it was last seen to advance, or to have everything."""

    async def watch(self, report: Callable[[MaosError | None], None], urls: Sequence[str] = ()) -> None:
        """Look every few seconds until cancelled; report what is wrong, or None, and notify a person of it once."""
        to = notify.addresses(urls)

        def tell(text: str) -> None:
            log.write(log.OPS, log.NOTICE_UNSENT, reason=text)

        notifier = notify.Notifier(self._journal, self._clock, NOTICES, to, tell=tell, url=self._page)
        await notifier.open()
        try:
            while True:
                trouble, id = await self._look()
                report(trouble)
                if trouble is not None:
                    notifier.alarm(id, "needs you", trouble.what, "maos backup status")
                await asyncio.sleep(LOOK_S)
        finally:
            await notifier.close()

    async def _look(self) -> tuple[MaosError | None, str]:
        """Return what is wrong and a name for it, the same for as long as it lasts; None when nothing is."""
        found: BackupStatus | None = None
        why, now_us = "", self._clock.steady_us()
        try:
            found = await self._backups.status(self._location)
        except StoreUnavailable as error:
            why = f": {error.what}"
        except Corrupt as error:
            return error, f"damaged/{self._position}"
        position = found.head.position if found is not None and found.head is not None else self._position
        if position != self._position or position == await self._journal.head():
            self._position, self._moved_us = position, now_us
        if now_us - self._moved_us > LATE_S * MICROSECONDS:
            what = f"{self._location} has not advanced beyond position {position}, and the journal has{why}"
            hint = "what is recorded is safe in the database; `maos backup status` says how far the backup is"
            return MaosError(what, hint=hint), f"late/{position}"
        if found is not None and found.tested is not None and found.tested.problem:
            what = f"{self._location} could not be restored for a test: {found.tested.problem}"
            return Corrupt(what, hint="`maos backup verify` says what is damaged"), f"test/{found.tested.at_us}"
        return None, ""
