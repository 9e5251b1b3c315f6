"""Upkeep: settings that change are applied to a run while it is executed, and worktrees of completed runs are removed,
where nothing is lost by it.

The journal keeps everything. So do the checkpoints of files, which are refs in the user's repository. Runs that
failed or were paused can be resumed, and need their worktrees for it. Runs that a person has made permanent stay whole.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from maos.clock import MICROSECONDS, Clock
from maos.engine import log
from maos.engine.attempts import Attempts
from maos.engine.streams import RunReader, permanent, statistics
from maos.errors import InvalidInput, MaosError
from maos.faults import crash_point
from maos.ids import incarnation
from maos.model.cleanup import STREAM, Old, Rule, choose
from maos.model.events.records import CleanupEnded, RemovalStarted
from maos.model.run import Run
from maos.model.status import RunStatus
from maos.runs import notify
from maos.runs.notify import Notifier
from maos.settings.loader import Current, News
from maos.settings.schema import CleanupSettings as Policies
from maos.settings.schema import PolicySettings
from maos.travel.points_in_time import workspace_of
from maos.workspaces import Workspace, checkpoint, is_left, is_merged, remove

DAY_US = 86_400 * MICROSECONDS
LEASE_S = 60.0
"""For how long no other engine begins a cleanup after one has died in the middle of one."""

LOOK_S = 1.0
"""How soon a change of the settings is noticed."""
CLEANUP_AFTER_S = 5.0
"""A run that is over sooner is not kept waiting."""
CLEANUP_LOOK_S = 600.0
"""How often an engine that runs looks whether it is time for a cleanup."""
T = TypeVar("T")
Tell = Callable[[str, dict[str, Any]], None]
_ENDED = log.Action("cleanup.ended", "cleanup ended")


class Worktree(NamedTuple):
    """A worktree that was removed, or would be; or one that could go, by the policy, and stays all the same."""

    run: str
    agent: str
    tree: str
    bytes: int
    why: str
    """Why it goes (age, number or size: which limit its run is beyond), or stays."""


class Cleanup(NamedTuple):
    """What a cleanup did or would do."""

    runs: int
    """Runs that are completed and beyond a limit."""
    removed: list[Worktree]
    kept: list[Worktree]

    @property
    def bytes(self) -> int:
        """How much room that is."""
        return sum(each.bytes for each in self.removed)


class Removal(NamedTuple):
    """What the removal of a run frees, or would."""

    run: str
    worktrees: list[Worktree]
    blocked: list[Worktree]
    """Worktrees with changes that no checkpoint has: the run is not removed while there are any."""
    unmerged: str
    """The commit with the work of all tasks, if no branch has it; it stays in the repository under a ref."""


class _Tree(NamedTuple):
    agent: str
    workspace: Workspace
    is_open: bool
    bytes: int


RuleOf = Callable[[str], Rule]


def older_than(days: float, now_us: int) -> RuleOf:
    """Whatever was completed longer ago than this."""
    return lambda _kind: Rule(before_us=now_us - int(days * DAY_US))


def by_policy(policies: Policies, now_us: int) -> RuleOf:
    """As the settings say."""

    def rule(kind: str) -> Rule:
        policy: PolicySettings = policies.of.get(kind, policies)
        before_us = now_us - int(policy.older_than_days * DAY_US) if policy.older_than_days else 0
        return Rule(before_us, policy.keep_runs, policy.size_mb << 20)

    return rule


class Cleaner:
    """Removes worktrees of runs."""

    def __init__(self, clock: Clock, runs: RunReader, attempts: Attempts) -> None:
        self._journal = attempts.journal
        self._clock = clock
        self._runs = runs
        self._attempts = attempts

    async def clean_up(self, rule_of: RuleOf, *, by: str, dry_run: bool = False) -> Cleanup:
        """Remove the worktrees of completed runs that are beyond a limit. If it is killed, the next one continues."""
        trees: dict[str, list[_Tree]] = {}
        old: list[Old] = []
        stay = await permanent(self._journal)
        async for run in self._runs.all():
            if run.status == RunStatus.COMPLETED and run.id not in stay:
                kind = _kind_of(run)
                measured = bool(rule_of(kind).bytes_max)
                if found := [each async for each in self._trees(run, measured=measured)]:
                    trees[run.id] = found
                    old.append(Old(run.id, kind, run.ended_us, sum(each.bytes for each in found)))
        chosen = choose(old, rule_of)
        done = Cleanup(len(chosen), [], [])
        refused: list[tuple[str, str]] = []
        for id, why in chosen.items():
            for tree in trees[id]:
                if not await self._one(id, tree, why, done, by=by, dry_run=dry_run):
                    refused.append((id, tree.agent))
        if not dry_run:
            ended = CleanupEnded(
                by=by,
                runs=done.runs,
                removed=len(done.removed),
                kept=len(done.kept),
                bytes=done.bytes,
                refused=refused,
                at_us=self._clock.now_us(),
            )
            await self._journal.append(STREAM, ended)
            log.write(log.OPS, _ENDED, reason=f"{len(done.removed)} worktrees removed, {len(done.kept)} kept")
        return done

    async def when_due(self, policies: Policies) -> Cleanup | None:
        """Clean up as the settings say, if it is due; None when it is not, or another engine does it."""
        if not await self._is_due(policies):
            return None
        lease = await self._journal.acquire(STREAM, ttl_s=LEASE_S, owner=incarnation())
        if lease is None:
            return None
        try:
            if not await self._is_due(policies):
                return None  # another engine was faster
            return await self.clean_up(by_policy(policies, self._clock.now_us()), by="engine")
        finally:
            await self._journal.release(lease)

    async def _is_due(self, policies: Policies) -> bool:
        since_us = self._clock.now_us() - (await statistics(self._journal)).ended_us
        return policies.enabled and since_us >= policies.every_hours * 3600 * MICROSECONDS

    async def _trees(self, run: Run, *, measured: bool) -> AsyncIterator[_Tree]:
        """What the agents of a run have on disk, with what a removal that was killed has left."""
        for agent in (agent for task in run.tasks for agent in run.agents(task)):
            attempt = await self._attempts.newest(agent)
            if attempt is None or not attempt.workspace:
                continue
            workspace = Workspace.located(attempt.workspace, self._attempts.folder)
            if workspace.in_place or not await asyncio.to_thread(is_left, workspace):
                continue
            size = await asyncio.to_thread(_bytes_below, workspace.tree) if measured else 0
            yield _Tree(agent, workspace, attempt.is_open, size)

    async def _one(self, run: str, tree: _Tree, why: str, done: Cleanup, *, by: str, dry_run: bool) -> bool:
        """Remove one worktree, if nothing is lost by it; False when it was to be removed, and then was not."""
        size = tree.bytes or await asyncio.to_thread(_bytes_below, tree.workspace.tree)
        removed, begun = Worktree(run, tree.agent, str(tree.workspace.tree), size, why), False
        try:
            stays = await self._why_it_stays(run, tree)
            if not stays:
                await remove(tree.workspace, dry_run=True)
            if not stays and not dry_run:
                begun = True
                await self._remove_tree(tree.workspace, removed, by)
        except (MaosError, OSError) as error:
            stays = str(error)
        if stays:
            done.kept.append(removed._replace(why=stays))
        else:
            done.removed.append(removed)
        return not (begun and stays)

    async def _why_it_stays(self, run: str, tree: _Tree) -> str:
        if tree.is_open:
            return "its agent runs"
        if (await self._runs.get(run)).status != RunStatus.COMPLETED:
            return "its run continues"
        return "its run is permanent" if run in await permanent(self._journal) else ""

    async def _remove_tree(self, workspace: Workspace, each: Worktree, by: str) -> None:
        """Remove a worktree after it is recorded that this was begun."""
        crash_point("cleanup: chosen")
        await self._journal.append(STREAM, RemovalStarted(**each._asdict(), by=by, at_us=self._clock.now_us()))
        crash_point("cleanup: noted")
        await remove(workspace)
        crash_point("cleanup: removed")

    async def removal(self, run: Run) -> Removal:
        """What the removal of a run would free, and what is in the way."""
        found = Removal(run.id, [], [], await _unmerged(run, self._attempts.folder))
        async for tree in self._all_trees(run):
            each = Worktree(run.id, tree.agent, str(tree.workspace.tree), tree.bytes, "removed")
            try:
                if tree.agent:
                    await remove(tree.workspace, dry_run=True)
            except (MaosError, OSError) as error:
                found.blocked.append(each._replace(why=str(error)))
            else:
                found.worktrees.append(each)
        return found

    async def remove_run(self, run: Run) -> Removal:
        """Remove all worktrees of a run; InvalidInput, and nothing is removed, if one has changes nothing else has."""
        found = await self.removal(run)
        if found.blocked:
            first = found.blocked[0]
            hint = f"save or delete what is in {first.tree}, and try again"
            raise InvalidInput(f"{run.id} cannot be removed: {first.why}", hint=hint)
        trees = {str(tree.workspace.tree): tree async for tree in self._all_trees(run)}
        for each in found.worktrees:
            if not each.agent:  # agents save their files themselves, and the merged work is saved here
                await checkpoint(trees[each.tree].workspace, "removed")
            await self._remove_tree(trees[each.tree].workspace, each, "person")
        return found

    async def _all_trees(self, run: Run) -> AsyncIterator[_Tree]:
        """The worktrees of a run's agents, and its own for the merged work."""
        async for tree in self._trees(run, measured=True):
            yield tree
        own = workspace_of(run, self._attempts.folder)
        if own is not None and await asyncio.to_thread(is_left, own):
            yield _Tree("", own, False, await asyncio.to_thread(_bytes_below, own.tree))


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
        """Await work, and meanwhile apply changed settings and clean up. A failure of that is only reported."""
        keeping = asyncio.create_task(self._keep())
        try:
            return await work
        finally:
            keeping.cancel()
            for error in await asyncio.gather(keeping, return_exceptions=True):
                if isinstance(error, Exception):
                    what = f"{type(error).__name__}: {error}"
                    said = f"reloading settings and cleaning up have stopped: {what}"
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
        if news.problem is not None:
            said = {"what": news.problem.what, "hint": news.problem.hint or None}
            hint = f" ({news.problem.hint})" if news.problem.hint else ""
            text = f"the changed settings are invalid, the previous ones stay in effect: {news.problem.what}{hint}"
            self._tell(text, {"kind": "settings", "changed": [], "problem": said})
            return
        for each in news.changed:
            text, live = f"settings: {each}", each.live
            if each.name == "orchestrate.concurrency" and self._fixed is not None:
                text, live = f"{text}; this run keeps {self._fixed}, as its options say", False
            elif each.name == "orchestrate.concurrency" and self._set_concurrency is not None:
                self._set_concurrency(self.concurrency)
            elif each.name == "notify.urls":
                problem = await self._readdress(each.before)
                text, live = (f"{text}: {problem}", False) if problem else (text, live)
            hidden = each.name == "notify.urls"
            values = {} if hidden else {"before": each.before, "after": each.after}
            changed = {"name": each.name, **values, "live": live}
            self._tell(text, {"kind": "settings", "changed": [changed], "problem": None})

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


def _kind_of(run: Run) -> str:
    """Which policy counts for a run: that of its workflow, or that of orchestrations."""
    made_from = run.options.get("workflow")
    return str(made_from["name"]) if isinstance(made_from, dict) and made_from.get("name") else "orchestration"


async def _unmerged(run: Run, home: Path) -> str:
    own = workspace_of(run, home)
    if own is None or not run.commit:
        return ""
    try:
        return "" if await is_merged(own, run.commit) else run.commit
    except (MaosError, OSError):
        return run.commit  # its repository is elsewhere: it cannot be known


def _bytes_below(folder: Path) -> int:
    found = 0
    for parent, _folders, files in os.walk(folder):
        for name in files:
            try:
                found += os.lstat(os.path.join(parent, name)).st_size
            except FileNotFoundError:
                pass  # it went away meanwhile
    return found
