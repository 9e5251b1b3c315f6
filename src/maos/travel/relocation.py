"""Relocation: the folder of a run was moved or renamed, or another machine has a copy of it.

The records of git that name folders are corrected on disk first, which can be repeated and changes no file of an agent.
Then one append records the new folders for the run and the newest attempt of each of its agents. Everything else
follows from these: the next attempts, gates and merges, and rollbacks (`points_in_time.run_at`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from maos import workspaces as workspaces
from maos.clock import Clock
from maos.engine import consent, ownership
from maos.engine.attempts import Attempts
from maos.engine.streams import RUN, own_run
from maos.errors import InvalidInput
from maos.faults import crash_point
from maos.journal.journal import Append, Journal
from maos.model.attempt import Attempt, last_saved, stream
from maos.model.events.attempt import AttemptMoved
from maos.model.events.run import RunMoved
from maos.model.run import Run
from maos.model.run import stream as stream_of
from maos.tuples import NamedTuple
from maos.workspaces import Workspace, commits

NAMES_SHOWN_MAX = 3


class Moved(NamedTuple):
    """Where a run is now, or would be."""

    run: str
    before: str
    folder: str
    repository: str
    """The git folder that has its commits; empty when its agents work in the folder itself."""
    found: Sequence[str]
    """Worktrees that are there."""
    anew: Sequence[str]
    """Those that are not, and are made from what was last saved."""
    changed: bool
    """Whether anything is elsewhere than it was."""


_Ways = Sequence[tuple[Path, Path]]
"""What was where, and where it is now, the longest paths first."""


def _moved(before: Path, ways: _Ways) -> Path:
    """Where something is now."""
    found = ((old, new) for old, new in ways if before.is_relative_to(old))
    return next((new / before.relative_to(old) for old, new in found), before)


def _moved_workspace(before: Workspace, ways: _Ways) -> Workspace:
    """Where a workspace is now."""
    path, tree = _moved(before.path, ways), _moved(before.tree, ways)
    repository, gitdir = (each and _moved(each, ways) for each in (before.repository, before.gitdir))
    return before._replace(path=path, tree=tree, repository=repository, gitdir=gitdir)


class _Agent(NamedTuple):
    attempt: Attempt
    """Its newest."""
    before: Workspace
    now: Workspace
    saved: str
    """The commit of the files that it would continue with; empty when none was saved."""
    needed: bool
    """Whether it has something left to do."""


async def move(
    journal: Journal, clock: Clock, attempts: Attempts, id: str, folder: Path, *, dry_run: bool = False
) -> Moved:
    """Have a run resume in another folder, with the same repository or a copy of it; Held while an engine executes it.

    InvalidInput when that cannot work: its commits are not there, or it is another part of the repository.
    """
    run = await RUN.load(journal, id)
    assert run is not None
    if dry_run:
        return await _Move(journal, attempts, run, folder).preview()
    async with own_run(journal, clock, run) as recorder:
        found = _Move(journal, attempts, recorder.fold, folder)
        moved = await found.preview()
        place = await found.lay_out()
        crash_point("move: laid out")
        if moved.changed:
            workspace = place.to_data() if place is not None else None
            by, at_us = journal.by, clock.now_us()
            event = RunMoved(folder=moved.folder, from_=moved.before, workspace=workspace, by=by, at_us=at_us)
            async with AsyncExitStack() as leases:
                for each in found.agents:
                    if each.attempt.is_open:  # for us alone: Held while an engine runs it
                        name, hint = f"attempt/{each.attempt.agent}", f"`maos agent stop {each.attempt.agent}` ends it"
                        lease = await ownership.claim(journal, clock, name, each.attempt, is_open=True, hint=hint)
                        leases.push_async_callback(journal.release, lease)
                # Not under the lease of the run, which we hold: its token would be in streams that have another.
                own = Append(stream_of(run.id), [event], expected=recorder.fold.version)
                await journal.append_all([own, *(_told(each, found.ways) for each in found.agents)])
        return moved


async def restore(journal: Journal, clock: Clock, attempts: Attempts, run: Run) -> bool:
    """Create the worktrees of a run again that it needs and that were removed, from what was saved; whether any was."""
    if not run.options.get("workspace") or not await asyncio.to_thread(Path(run.folder).is_dir):
        return False
    if await workspaces.exists(Workspace.located(run.options["workspace"], attempts.folder)):
        return False
    return bool((await move(journal, clock, attempts, run.id, Path(run.folder))).anew)


async def merged_work(folder: Path, place: Workspace, commit: str) -> Workspace:
    """The worktree that the work of all tasks is merged into, at a commit (empty: its base); created if missing."""
    wanted = commit or place.base
    how: dict[str, Any] = {"root": place.tree.parent, "base": place.base, "at": wanted}
    made = await workspaces.prepare(folder, place.name, **how)
    if await workspaces.head(made) != wanted:  # its repository knows it no more, or the work continued elsewhere
        await workspaces.checkpoint(made, "before it is brought up to date")
        await workspaces.remove(made)
        made = await workspaces.prepare(folder, place.name, **how)
    return made


class _Move:
    """One move of one run."""

    def __init__(self, journal: Journal, attempts: Attempts, run: Run, folder: Path) -> None:
        self._journal = journal
        self._attempts = attempts
        self._run = run
        self._given = folder
        self._own: Workspace | None = None
        """Where the work of all tasks is merged, now."""
        self.ways: _Ways
        self.agents: list[_Agent] = []

    async def preview(self) -> Moved:
        """Find out what the move does; InvalidInput when it cannot work."""
        run, given = self._run, await asyncio.to_thread(self._given.resolve)
        if not await asyncio.to_thread(given.is_dir):
            raise InvalidInput(f"{self._given} is not a folder", hint="give the folder that the run works in now")
        self._folder = given
        own = Workspace.from_data(run.options["workspace"]) if run.options.get("workspace") else None
        newest = [each async for each in self._newest()]
        places = [Workspace.from_data(each.workspace) for each in newest]
        in_git = [each for each in (own, *places) if each is not None and not each.in_place]
        pairs = [(Path(run.folder), given)]
        repository = _checked(run, given, await workspaces.discover(given), in_git[0]) if in_git else None
        if repository is not None:
            pairs += [(each.repository, repository) for each in in_git if each.repository is not None]
        pairs += await asyncio.to_thread(self._homes, newest, in_git)
        self.ways = sorted(set(pairs), key=lambda pair: len(pair[0].parts), reverse=True)
        self._own = None if own is None else _moved_workspace(own, self.ways)
        self.agents = [await self._agent(each, place) for each, place in zip(newest, places, strict=True)]
        if repository is not None:
            await self._check_commits(repository, given)
        found: list[str] = []
        anew: list[str] = []
        for place in {place.name: place for place, _commit in self._needed()}.values():
            here = await asyncio.to_thread(workspaces.is_left, place)
            (found if here else anew).append(place.name)
        changed = str(given) != run.folder or any(each.before != each.now for each in self.agents) or own != self._own
        return Moved(run.id, run.folder, str(given), str(repository or ""), found, anew, changed)

    async def lay_out(self) -> Workspace | None:
        """Correct the folders that git has recorded, create what is missing, and return the workspace of the run."""
        waits = bool(await consent.waits(self._journal, self._run.id))  # then they are made once a person has agreed
        own = self._own
        for place, commit in self._needed():  # in a copy there may be no refs, and git clears such commits away
            assert place.repository is not None
            if commit not in (await commits.known(place.repository)).values():
                await workspaces.keep(place.repository, place.name, f"moved-{commit[:12]}", commit)
        if own is not None and (await workspaces.relocate(own) or not waits):
            own = await merged_work(self._folder, own, self._run.commit)
        for each in self.agents:
            if each.now.in_place:
                continue
            if not await workspaces.relocate(each.now):
                if each.needed and not waits:
                    how: dict[str, Any] = {"root": each.now.tree.parent, "base": each.now.base}
                    start = await workspaces.newest_checkpoint(each.now) or each.saved or None
                    await workspaces.prepare(self._folder, each.now.name, **how, start=start)
            elif each.needed and not each.attempt.is_open:
                await workspaces.verify(each.now, each.saved or None)
            crash_point("move: one laid out")
        return own

    def _needed(self) -> list[tuple[Workspace, str]]:
        """The worktrees that something is left to do in, and the commits that this takes."""
        own = [] if self._own is None else [(self._own, self._own.base), (self._own, self._run.commit)]
        agents = [(each.now, each.saved or each.now.base) for each in self.agents if each.needed]
        return [(place, commit) for place, commit in (*own, *agents) if commit and not place.in_place]

    async def _newest(self) -> AsyncIterator[Attempt]:
        """The newest attempt of every agent of the run, those of its gates and of branches that were given up too."""
        for name in [name async for name in self._attempts.names(f"{self._run.id}.")]:
            attempt = await self._attempts.newest(name)
            if attempt is not None and attempt.order.get("run", "") in ("", self._run.id):
                yield attempt

    def _homes(self, newest: Sequence[Attempt], places: Sequence[Workspace]) -> list[tuple[Path, Path]]:
        """Where agents have their files: where they were, if they are there; or else where this machine keeps them. The
        last part of that has a checksum of where the database is, and a folder that was moved has the one of before."""
        known = {Path(each.folder).parent.parent for each in newest} | {each.tree.parent.parent for each in places}
        here = self._attempts.folder.resolve()
        gone = [each for each in known if each.resolve() != here and not each.is_dir()]
        return [(each, moved if (moved := here.parent / each.name).is_dir() else here) for each in gone]

    async def _agent(self, attempt: Attempt, place: Workspace) -> _Agent:
        saved = last_saved(await self._attempts.history(attempt.agent))
        tasks = [each for each in self._run.tasks.values() if self._run.agent(each.name) == attempt.agent]
        done = next((each.commit for each in tasks if each.commit), "")
        needed = any(not each.status.is_done for each in tasks)
        return _Agent(attempt, place, _moved_workspace(place, self.ways), done or saved, needed)

    async def _check_commits(self, repository: Path, given: Path) -> None:
        missing = await workspaces.missing_commits(repository, [commit for _place, commit in self._needed()])
        if not missing:
            return
        shown = ", ".join(each[:12] for each in missing[:NAMES_SHOWN_MAX])
        raise InvalidInput(
            f"the repository of {given} has not the commits of {self._run.id}: {shown} "
            f"{'is' if len(missing) == 1 else 'are'} missing",
            hint="give the repository it was made in, wherever that is now; a clone needs what its agents have saved: "
            "`git fetch OLD 'refs/maos/*:refs/maos/*'` there, or `maos admin export` and `maos admin import --cwd`",
        )


def _checked(run: Run, given: Path, target: workspaces.RepositoryFolder | None, before: Workspace) -> Path:
    """The repository of a folder, if the run can be resumed there."""
    if target is None:
        raise InvalidInput(
            f"{given} is not in a git repository, and the files of {run.id} are commits",
            hint="give the repository it was made in, wherever that is now",
        )
    prefix = str(before.path.relative_to(before.tree))
    now = str(Path(target.prefix))
    if prefix != now:
        top = given if now == "." else given.parents[len(Path(now).parts) - 1]
        raise InvalidInput(
            f"{run.id} works in {'the root' if prefix == '.' else prefix} of its repository, and {given} is "
            f"{'its root' if now == '.' else f'{now} of it'}",
            hint=f"--cwd {top / prefix}",
        )
    return target.repository


def _told(agent: _Agent, ways: _Ways) -> Append:
    attempt = agent.attempt
    event = AttemptMoved(
        agent=attempt.agent,
        number=attempt.number,
        workspace=agent.now.to_data(),
        folder=str(_moved(Path(attempt.folder), ways)),
        cwd=str(_moved(Path(attempt.order["cwd"]), ways)),
        home=str(_moved(Path(attempt.order["home"]), ways)),
    )
    return Append(stream(attempt.id), [event], expected=attempt.version)
