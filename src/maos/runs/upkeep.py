"""What an engine does beside executing a run: it applies settings that change, and cleans up the disk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from maos.errors import MaosError
from maos.runs import notify
from maos.runs.cleanup import Cleaner
from maos.runs.notify import Notifier
from maos.settings.current import Current, News

T = TypeVar("T")

LOOK_S = 1.0
"""How soon a change of the settings is noticed."""
CLEANUP_AFTER_S = 5.0
"""A run that is over sooner is not kept waiting."""
CLEANUP_LOOK_S = 600.0
"""How often an engine that runs looks whether it is time for a cleanup."""

Tell = Callable[[str, dict[str, Any]], None]


class Upkeep:
    """For one run that this engine executes."""

    def __init__(
        self,
        cleaner: Cleaner,
        settings: Current,
        *,
        tell: Tell,
        concurrency: int | None = None,
        set_concurrency: Callable[[int], None] | None = None,
        notifier: Notifier | None = None,
    ) -> None:
        self._cleaner = cleaner
        self._settings = settings
        self._set_concurrency = set_concurrency
        self._tell = tell
        self._fixed = concurrency
        """How many agents a person wants to work at once, whatever the settings say."""
        self._notifier = notifier

    @property
    def concurrency(self) -> int:
        """How many agents work at once."""
        return self._settings.values.orchestrate.concurrency if self._fixed is None else self._fixed

    async def beside(self, work: Awaitable[T]) -> T:
        """Await work, and meanwhile apply changed settings and clean up. What fails of that is only told."""
        keeping = asyncio.create_task(self._keep())
        try:
            return await work
        finally:
            keeping.cancel()
            for error in await asyncio.gather(keeping, return_exceptions=True):
                if isinstance(error, Exception):
                    what = f"{type(error).__name__}: {error}"
                    said = f"the settings and the disk were not looked after to the end: {what}"
                    self._tell(said, {"kind": "upkeep", "problem": what})

    async def _keep(self) -> None:
        cleanup_at_s = time.monotonic() + CLEANUP_AFTER_S
        while True:
            await asyncio.sleep(LOOK_S)
            news = await asyncio.to_thread(self._settings.look)
            if news is not None:
                await self._take(news)
            if time.monotonic() >= cleanup_at_s:
                cleanup_at_s = time.monotonic() + CLEANUP_LOOK_S
                await self._clean_up()

    async def _take(self, news: News) -> None:
        """Say what has changed, and go by it."""
        if news.problem is not None:
            said = {"what": news.problem.what, "hint": news.problem.hint or None}
            hint = f" ({news.problem.hint})" if news.problem.hint else ""
            text = f"the settings were changed and cannot be used, those before stay: {news.problem.what}{hint}"
            self._tell(text, {"kind": "settings", "changed": [], "problem": said})
            return
        changed = []
        for each in news.changed:
            text, live = f"settings: {each}", each.live
            if each.name == "orchestrate.concurrency" and self._fixed is not None:
                text, live = f"{text}; this run keeps {self._fixed}, as was asked for", False
            elif each.name == "orchestrate.concurrency" and self._set_concurrency is not None:
                self._set_concurrency(self.concurrency)
            elif each.name == "notify.urls":
                problem = await self._readdress(each.before)
                text, live = (f"{text}: {problem}", False) if problem else (text, live)
            hidden = each.name == "notify.urls"
            values = {} if hidden else {"before": each.before, "after": each.after}
            changed.append(({"name": each.name, **values, "live": live}, text))
        for document, text in changed:
            self._tell(text, {"kind": "settings", "changed": [document], "problem": None})

    async def _readdress(self, before: list[str]) -> str:
        """Tell those that are addressed now; what is wrong with them."""
        if self._notifier is None:
            return ""
        given = [each.url for each in self._notifier.to if each.url not in before]
        urls = list(dict.fromkeys([*given, *self._settings.values.notify.urls]))
        try:
            await self._notifier.readdress(notify.addresses(urls))
        except MaosError as error:
            return str(error)
        return ""

    async def _clean_up(self) -> None:
        try:
            done = await self._cleaner.when_due(self._settings.values.cleanup)
        except MaosError as error:
            self._tell(f"cleanup: {error}", {"kind": "cleanup", "problem": error.what})
            return
        if done is not None and done.removed:
            worktrees = "1 worktree" if len(done.removed) == 1 else f"{len(done.removed)} worktrees"
            text = f"cleanup: {worktrees} of completed runs removed, {done.bytes / 1e6:.1f} MB"
            self._tell(text, {"kind": "cleanup", "removed": len(done.removed), "bytes": done.bytes})
