"""Room on the disk: worktrees of completed runs are removed, where nothing is lost by it.

The journal keeps everything. So do the checkpoints of files, which are refs in the user's repository. Runs that
failed or were paused can be resumed, and need their worktrees for it. Runs that a person has made permanent stay whole.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from maos.clock import MICROSECONDS, Clock
from maos.engine import log
from maos.engine.streams import RunReader
from maos.errors import InvalidInput, MaosError, NotFound
from maos.faults import crash_point
from maos.ids import incarnation
from maos.journal.journal import Journal
from maos.model.cleanup import PERMANENT, STREAM, Old, Rule, Statistics, choose
from maos.model.events.records import CleanupEnded, PinAdded, PinRemoved, RemovalStarted
from maos.model.run import Run
from maos.model.status import RunStatus
from maos.settings.schema import CleanupSettings as Policies
from maos.settings.schema import PolicySettings
from maos.workspaces import Workspace, checkpoint, is_left, is_merged, remove

if TYPE_CHECKING:
    from maos.engine.attempts import Attempts

DAY_US = 86_400 * MICROSECONDS
LEASE_S = 60.0
"""For how long no other engine begins a cleanup after one has died in the middle of one."""


_ENDED = log.Action("cleanup.ended", "cleanup ended")


class Removed(NamedTuple):
    """A worktree that was removed, or would be."""

    run: str
    agent: str
    tree: str
    bytes: int
    why: str
    """age, number or size: which limit its run is beyond."""


class Kept(NamedTuple):
    """A worktree that could go, by the policy, and stays all the same."""

    run: str
    agent: str
    tree: str
    why: str


class Cleanup(NamedTuple):
    """What a cleanup did or would do."""

    runs: int
    """Runs that are completed and beyond a limit."""
    removed: list[Removed]
    kept: list[Kept]

    @property
    def bytes(self) -> int:
        """How much room that is."""
        return sum(each.bytes for each in self.removed)


class Removal(NamedTuple):
    """What the removal of a run frees, or would."""

    run: str
    worktrees: list[Removed]
    blocked: list[Kept]
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


def kind_of(run: Run) -> str:
    """Which policy counts for a run: that of its workflow, or that of orchestrations."""
    made_from = run.options.get("workflow")
    return str(made_from["name"]) if isinstance(made_from, dict) and made_from.get("name") else "orchestration"


async def cleanup(
    journal: Journal,
    clock: Clock,
    runs: RunReader,
    attempts: Attempts,
    rule_of: RuleOf,
    *,
    by: str,
    dry_run: bool = False,
) -> Cleanup:
    """Remove the worktrees of completed runs that are beyond a limit. If it is killed, the next one continues."""
    trees: dict[str, list[_Tree]] = {}
    completed: dict[str, Run] = {}
    stay = await permanent(journal)
    async for run in runs.all():
        if run.status == RunStatus.COMPLETED and run.id not in stay:
            measured = bool(rule_of(kind_of(run)).bytes_max)
            trees[run.id] = [each async for each in _trees(attempts, run, measured=measured)]
            completed[run.id] = run
    old = [
        Old(run.id, kind_of(run), run.ended_us, sum(each.bytes for each in trees[run.id]))
        for run in completed.values()
        if trees[run.id]
    ]
    chosen = choose(old, rule_of)
    done = Cleanup(len(chosen), [], [])
    refused: list[tuple[str, str]] = []
    for id, why in chosen.items():
        for tree in trees[id]:
            if not await _one(journal, clock, runs, id, tree, why, done, by=by, dry_run=dry_run):
                refused.append((id, tree.agent))
    if not dry_run:
        ended = CleanupEnded(
            by=by,
            runs=done.runs,
            removed=len(done.removed),
            kept=len(done.kept),
            bytes=done.bytes,
            refused=refused,
            at_us=clock.now_us(),
        )
        await journal.append(STREAM, ended)
        log.write(log.OPS, _ENDED, reason=f"{len(done.removed)} worktrees removed, {len(done.kept)} kept")
    return done


async def permanent(journal: Journal) -> dict[str, str]:
    """The runs that are never cleaned up, and why."""
    found: dict[str, str] = {}
    async for record in journal.read(PERMANENT):
        match record.event:
            case PinAdded(run=id, why=why):
                found[id] = why
            case PinRemoved(run=id):
                found.pop(id, None)
    return found


async def set_permanent(journal: Journal, clock: Clock, run: Run, why: str = "") -> bool:
    """Have no cleanup, by whatever policy, ever take anything of a run; False when that was so already."""
    known = await permanent(journal)
    if known.get(run.id) == why:
        return False
    await journal.append(PERMANENT, PinAdded(run=run.id, why=why, at_us=clock.now_us()))
    return True


async def unset_permanent(journal: Journal, clock: Clock, run: Run) -> bool:
    """Have policies count for a run again; False when they did already."""
    if run.id not in await permanent(journal):
        return False
    await journal.append(PERMANENT, PinRemoved(run=run.id, at_us=clock.now_us()))
    return True


async def when_due(
    journal: Journal, clock: Clock, runs: RunReader, attempts: Attempts, policies: Policies
) -> Cleanup | None:
    """Clean up as the settings say, if it is due; None when it is not, or another engine does it."""
    if not policies.enabled or not _is_due(await statistics(journal), policies, clock.now_us()):
        return None
    lease = await journal.acquire(STREAM, ttl_s=LEASE_S, owner=incarnation())
    if lease is None:
        return None
    try:
        if not _is_due(await statistics(journal), policies, clock.now_us()):
            return None  # another engine was faster
        return await cleanup(journal, clock, runs, attempts, by_policy(policies, clock.now_us()), by="engine")
    finally:
        await journal.release(lease)


async def statistics(journal: Journal) -> Statistics:
    """What was removed so far."""
    found = Statistics()
    async for record in journal.read(STREAM):
        found.apply(record.event)
    return found


def _is_due(known: Statistics, policies: Policies, now_us: int) -> bool:
    return now_us - known.ended_us >= policies.every_hours * 3600 * MICROSECONDS


async def _trees(attempts: Attempts, run: Run, *, measured: bool) -> AsyncIterator[_Tree]:
    """What the agents of a run have on disk, with what a removal that was killed has left."""
    for agent in (agent for task in run.tasks for agent in run.agents(task)):
        try:
            attempt = await attempts.get(agent)
        except NotFound:
            continue
        workspace = Workspace.from_data(attempt.workspace) if attempt.workspace else None
        if workspace is None or workspace.in_place or not await asyncio.to_thread(is_left, workspace):
            continue
        size = await asyncio.to_thread(_bytes_below, workspace.tree) if measured else 0
        yield _Tree(agent, workspace, attempt.is_open, size)


async def _one(
    journal: Journal,
    clock: Clock,
    runs: RunReader,
    run: str,
    tree: _Tree,
    why: str,
    done: Cleanup,
    *,
    by: str,
    dry_run: bool,
) -> bool:
    """Remove one worktree, if nothing is lost by it; False when it was to be removed, and then was not."""
    place, begun = str(tree.workspace.tree), False
    size = tree.bytes or await asyncio.to_thread(_bytes_below, tree.workspace.tree)
    try:
        if tree.is_open:
            done.kept.append(Kept(run, tree.agent, place, "its agent runs"))
            return True
        if (await runs.get(run)).status != RunStatus.COMPLETED:
            done.kept.append(Kept(run, tree.agent, place, "its run continues"))
            return True
        if run in await permanent(journal):
            done.kept.append(Kept(run, tree.agent, place, "its run is permanent"))
            return True
        await remove(tree.workspace, dry_run=True)
        if not dry_run:
            begun = True
            removed = Removed(run, tree.agent, place, size, why)
            await _remove_tree(journal, clock, tree.workspace, removed, by)
    except (MaosError, OSError) as error:
        done.kept.append(Kept(run, tree.agent, place, str(error)))
        return not begun
    done.removed.append(Removed(run, tree.agent, place, size, why))
    return True


async def _remove_tree(journal: Journal, clock: Clock, workspace: Workspace, each: Removed, by: str) -> None:
    """Remove a worktree after it is recorded that this was begun."""
    crash_point("cleanup: chosen")
    await journal.append(STREAM, RemovalStarted(**each._asdict(), by=by, at_us=clock.now_us()))
    crash_point("cleanup: noted")
    await remove(workspace)
    crash_point("cleanup: removed")


async def removal(attempts: Attempts, run: Run) -> Removal:
    """What the removal of a run would free, and what is in the way."""
    found = Removal(run.id, [], [], await _unmerged(run))
    async for tree in _all_trees(attempts, run):
        try:
            if tree.agent:
                await remove(tree.workspace, dry_run=True)
        except (MaosError, OSError) as error:
            found.blocked.append(Kept(run.id, tree.agent, str(tree.workspace.tree), str(error)))
        else:
            found.worktrees.append(Removed(run.id, tree.agent, str(tree.workspace.tree), tree.bytes, "removed"))
    return found


async def remove_run(journal: Journal, clock: Clock, attempts: Attempts, run: Run) -> Removal:
    """Remove all worktrees of a run; InvalidInput, and nothing is removed, if one has changes that nothing else has."""
    found = await removal(attempts, run)
    if found.blocked:
        first = found.blocked[0]
        hint = f"save or delete what is in {first.tree}, and try again"
        raise InvalidInput(f"{run.id} cannot be removed: {first.why}", hint=hint)
    trees = {str(tree.workspace.tree): tree async for tree in _all_trees(attempts, run)}
    for each in found.worktrees:
        if not each.agent:  # agents save their files themselves, and the merged work is saved here
            await checkpoint(trees[each.tree].workspace, "removed")
        await _remove_tree(journal, clock, trees[each.tree].workspace, each, "person")
    return found


async def _all_trees(attempts: Attempts, run: Run) -> AsyncIterator[_Tree]:
    """The worktrees of a run's agents, and its own for the merged work."""
    async for tree in _trees(attempts, run, measured=True):
        yield tree
    if kept := run.options.get("workspace"):
        own = Workspace.from_data(kept)
        if await asyncio.to_thread(is_left, own):
            yield _Tree("", own, False, await asyncio.to_thread(_bytes_below, own.tree))


async def _unmerged(run: Run) -> str:
    kept = run.options.get("workspace")
    if not kept or not run.commit:
        return ""
    try:
        return "" if await is_merged(Workspace.from_data(kept), run.commit) else run.commit
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
