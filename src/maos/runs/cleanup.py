"""Upkeep: settings that change are applied to a run while it is executed, and worktrees of runs are removed where
nothing is lost by it.

The journal keeps everything. So do the checkpoints of files, which are refs in the user's repository: a run that failed
or was paused gets its worktrees back from them when it is resumed. Runs that a person has pinned stay whole.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence, Set
from pathlib import Path
from typing import Any, TypeVar

from maos import settings
from maos.clock import MICROSECONDS, Clock
from maos.engine import log, ownership
from maos.engine.attempts import Attempts
from maos.engine.ownership import Held
from maos.engine.streams import RunReader, own_run, permanent, statistics
from maos.errors import InvalidInput, LeaseLost, MaosError
from maos.faults import crash_point
from maos.ids import incarnation
from maos.model.cleanup import STREAM, Old, Rule, choose
from maos.model.events.records import CleanupEnded, RemovalStarted
from maos.model.principal import ENGINE
from maos.model.run import Run
from maos.model.status import RunStatus
from maos.runs import notify
from maos.runs.notify import Notifier
from maos.settings.loader import Current, News
from maos.settings.schema import CleanupSettings as Policies
from maos.settings.schema import PolicySettings
from maos.store.contract import Lease
from maos.travel.points_in_time import workspace_of
from maos.tuples import NamedTuple
from maos.workspaces import ROOT, Workspace, checkpoint, is_left, is_merged, names_below, remove
from maos.workspaces.products import bytes_below

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
_ORCHESTRATION = "orchestration"
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
    """Runs that are beyond a limit."""
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

CANCELLED = "cancelled"
"""Why the worktrees of a run are removed that a person has cancelled."""
UNFINISHED = "/unfinished"
"""The kind that runs count as that can be resumed; no workflow has this name."""


def older_than(days: float, policies: Policies, now_us: int) -> RuleOf:
    """Whatever was completed longer ago than this; what can be resumed goes as the settings say, but not before."""

    def rule(kind: str) -> Rule:
        if kind != UNFINISHED:
            return Rule(before_us=now_us - int(days * DAY_US))
        least = policies.unfinished_days
        return Rule(before_us=now_us - int(max(days, least) * DAY_US) if least else 0)

    return rule


def by_policy(policies: Policies, now_us: int) -> RuleOf:
    """As the settings say."""

    def rule(kind: str) -> Rule:
        if kind == UNFINISHED:
            return Rule(before_us=now_us - int(policies.unfinished_days * DAY_US) if policies.unfinished_days else 0)
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

    async def clean_up(self, rule_of: RuleOf, *, by: str, dry_run: bool = False, under: Lease | None = None) -> Cleanup:
        """Remove the worktrees of runs that are beyond a limit. If it is killed, the next one continues.

        LeaseLost if it was not finished under the lease: another engine may have begun the same cleanup meanwhile.
        """
        trees: dict[str, list[_Tree]] = {}
        known: dict[str, Run] = {}
        old: list[Old] = []
        stay = await permanent(self._journal)
        names = await asyncio.to_thread(self._names_on_disk)
        async for run in self._runs.of_trees(names):
            if run.id in stay or _is_executed(run):
                continue
            is_completed = run.status == RunStatus.COMPLETED
            kind, at_us = (_kind_of(run), run.ended_us) if is_completed else (UNFINISHED, run.updated_us)
            measured = bool(rule_of(kind).bytes_max)
            if found := [each async for each in self._all_trees(run, measured=measured, names=names)]:
                trees[run.id], known[run.id] = found, run
                old.append(Old(run.id, kind, at_us, sum(each.bytes for each in found)))
        chosen = choose(old, rule_of)
        done = Cleanup(len(chosen), [], [])
        refused: list[tuple[str, str]] = []
        for id, why in chosen.items():
            refused += [(id, agent) for agent in await self._some(known[id], trees[id], why, done, by, dry_run=dry_run)]
        before_us = rule_of(_ORCHESTRATION).before_us
        for folder, size in await self._attempts.setups.remove_unused(before_us, dry_run=dry_run):
            done.removed.append(Worktree("", "template", str(folder), size, "age"))
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
            await self._journal.append(STREAM, ended, under=under)
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
            return await self.clean_up(by_policy(policies, self._clock.now_us()), by=str(ENGINE), under=lease)
        except LeaseLost:
            return None  # suspended for longer than the lease, and another engine does it
        finally:
            await self._journal.release(lease)

    async def _is_due(self, policies: Policies) -> bool:
        since_us = self._clock.now_us() - (await statistics(self._journal)).ended_us
        return policies.enabled and since_us >= policies.every_hours * 3600 * MICROSECONDS

    async def _trees_of(self, agents: Iterable[str], *, measured: bool) -> AsyncIterator[_Tree]:
        """What agents have on disk, with what a removal that was killed has left."""
        for agent in agents:
            attempt = await self._attempts.newest(agent)
            if attempt is None or not attempt.workspace:
                continue
            workspace = Workspace.located(attempt.workspace, self._attempts.folder)
            if workspace.in_place or not await asyncio.to_thread(is_left, workspace):
                continue
            size = await asyncio.to_thread(bytes_below, workspace.tree) if measured else 0
            yield _Tree(agent, workspace, attempt.is_open, size)

    async def free(self, run: Run) -> Cleanup:
        """Remove the worktrees of a run that a person has cancelled; those with work that cannot be saved stay."""
        done = Cleanup(1, [], [])
        if run.id not in await permanent(self._journal):
            trees = [each async for each in self._all_trees(run)]
            await self._some(run, trees, CANCELLED, done, self._journal.by)
        return done

    async def free_agents(self, id: str, agents: Iterable[str]) -> Cleanup:
        """The same for the agents of a workflow run."""
        done = Cleanup(1, [], [])
        async for tree in self._trees_of(agents, measured=True):
            await self._one(id, tree, CANCELLED, "", done, by=self._journal.by)
        return done

    async def _some(
        self, run: Run, trees: Sequence[_Tree], why: str, done: Cleanup, by: str, *, dry_run: bool = False
    ) -> list[str]:
        """Remove worktrees of a run that no engine executes meanwhile; the agents whose were to be removed, and then
        were not."""
        if dry_run:
            for tree in trees:
                await self._one(run.id, tree, why, "", done, by=by, dry_run=True)
            return []
        try:
            async with own_run(self._journal, self._clock, run) as recorder:
                stays = "" if recorder.fold.version == run.version else "its run continues"
                if run.id in await permanent(self._journal):
                    stays = "its run is permanent"
                return [each.agent for each in trees if not await self._one(run.id, each, why, stays, done, by=by)]
        except Held:
            done.kept.extend(
                Worktree(run.id, each.agent, str(each.workspace.tree), each.bytes, "its run continues")
                for each in trees
            )
            return []

    async def _one(
        self, run: str, tree: _Tree, why: str, stays: str, done: Cleanup, *, by: str, dry_run: bool = False
    ) -> bool:
        """Remove one worktree, if nothing is lost by it; False when it was to be removed, and then was not."""
        size = tree.bytes or await asyncio.to_thread(bytes_below, tree.workspace.tree)
        removed, begun = Worktree(run, tree.agent, str(tree.workspace.tree), size, why), False
        try:
            stays = stays or ("its agent runs" if tree.is_open else "")
            is_saved_first = not tree.agent or why == CANCELLED  # else it is an agent's own checkpoint that counts
            if not stays and is_saved_first and not dry_run and await asyncio.to_thread(tree.workspace.tree.is_dir):
                await checkpoint(tree.workspace, "removed")
            if not stays and not (is_saved_first and dry_run):
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

    async def _remove_tree(self, workspace: Workspace, each: Worktree, by: str) -> None:
        """Remove a worktree after it is recorded that this was begun."""
        crash_point("cleanup: chosen")
        await self._journal.append(STREAM, RemovalStarted(**each._asdict(), by=by, at_us=self._clock.now_us()))
        crash_point("cleanup: noted")
        await remove(workspace)
        crash_point("cleanup: removed")

    async def removal(self, run: Run) -> Removal:
        """What the removal of a run would free, and what is in the way."""
        found = await self._look(run.id, [each async for each in self._all_trees(run)])
        return found._replace(unmerged=await _unmerged(run, self._attempts.folder))

    async def remove_run(self, run: Run) -> Removal:
        """Remove all worktrees of a run; InvalidInput, and nothing is removed, if one has changes nothing else has."""
        unmerged = await _unmerged(run, self._attempts.folder)
        found = await self._remove_all(run.id, [each async for each in self._all_trees(run)])
        return found._replace(unmerged=unmerged)

    async def removal_of(self, id: str, agents: Iterable[str]) -> Removal:
        """What the removal of a workflow run with these agents would free, and what is in the way."""
        return await self._look(id, [each async for each in self._trees_of(agents, measured=True)])

    async def remove_agents(self, id: str, agents: Iterable[str]) -> Removal:
        """Remove the worktrees of the agents of a workflow run; InvalidInput as for a run."""
        return await self._remove_all(id, [each async for each in self._trees_of(agents, measured=True)])

    async def _look(self, id: str, trees: Sequence[_Tree]) -> Removal:
        found = Removal(id, [], [], "")
        for tree in trees:
            each = Worktree(id, tree.agent, str(tree.workspace.tree), tree.bytes, "removed")
            try:
                if tree.is_open:
                    raise InvalidInput("its agent runs", hint=f"`maos agent stop {tree.agent}` ends it")
                if tree.agent:
                    await remove(tree.workspace, dry_run=True)
            except (MaosError, OSError) as error:
                found.blocked.append(each._replace(why=str(error)))
            else:
                found.worktrees.append(each)
        return found

    async def _remove_all(self, id: str, trees: Sequence[_Tree]) -> Removal:
        found = await self._look(id, trees)
        if found.blocked:
            first = found.blocked[0]
            hint = f"save or delete what is in {first.tree}, and try again"
            raise InvalidInput(f"{id} cannot be removed: {first.why}", hint=hint)
        places = {str(tree.workspace.tree): tree.workspace for tree in trees}
        for each in found.worktrees:
            if not each.agent:  # agents save their files themselves, and the merged work is saved here
                await checkpoint(places[each.tree], "removed")
            await self._remove_tree(places[each.tree], each, self._journal.by)
        return found

    def _names_on_disk(self) -> set[str]:
        """The names of the worktrees of this user on disk, those of other databases and what interrupted removals have
        left included: a database can be moved."""
        homes = [self._attempts.folder, *settings.state_folder().glob("*/")]
        return {name for home in homes for name in names_below(home / ROOT)}

    async def _all_trees(
        self, run: Run, *, measured: bool = True, names: Set[str] | None = None
    ) -> AsyncIterator[_Tree]:
        """The worktree of a run for the merged work, and those of its agents. Its own goes first: a run without it gets
        back all that it needs when it is resumed. With `names`, only agents with such a name are looked at."""
        own = workspace_of(run, self._attempts.folder)
        if own is not None and await asyncio.to_thread(is_left, own):
            yield _Tree("", own, False, await asyncio.to_thread(bytes_below, own.tree) if measured else 0)
        agents = [agent for task in run.tasks for agent in run.agents(task) if names is None or agent in names]
        async for tree in self._trees_of(agents, measured=measured):
            yield tree


class Upkeep:
    """For one run that this engine executes."""

    def __init__(
        self,
        cleaner: Cleaner,
        settings: Current,
        *,
        tell: Tell,
        concurrency: Callable[[], int | None] = lambda: None,
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
        fixed = self._fixed()
        return self._settings.values.orchestrate.concurrency if fixed is None else fixed

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
            if each.name == "orchestrate.concurrency" and (fixed := self._fixed()) is not None:
                text, live = f"{text}; this run keeps {fixed}, as its options say", False
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


def _is_executed(run: Run) -> bool:
    """Whether an engine executes a run, or may."""
    return run.is_going and not ownership.liveness(run.owner).has_ended


def _kind_of(run: Run) -> str:
    """Which policy counts for a run: that of its workflow, or that of orchestrations."""
    made_from = run.options.get("workflow")
    return str(made_from["name"]) if isinstance(made_from, dict) and made_from.get("name") else _ORCHESTRATION


async def _unmerged(run: Run, home: Path) -> str:
    own = workspace_of(run, home)
    if own is None or not run.commit:
        return ""
    try:
        return "" if await is_merged(own, run.commit) else run.commit
    except (MaosError, OSError):
        return run.commit  # its repository is elsewhere: it cannot be known
