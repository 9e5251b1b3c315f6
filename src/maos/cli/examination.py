"""What `maos doctor` looks at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from maos import settings
from maos.cli import checkup
from maos.cli.agent import kinds, standing
from maos.cli.database import DatabaseTarget
from maos.cli.finding import Finding
from maos.cli.plain import shorten
from maos.errors import InvalidInput, MaosError

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.cli.agent.standing import AgentStanding
    from maos.holder.registry import HolderInfo, Stray
    from maos.model.run import Run
    from maos.workspaces import Workspace


class KnownStores(NamedTuple):
    """What the database says."""

    agents: Mapping[str, AgentStanding]
    folder: Path | None
    """Where its agents have their files; None when it cannot be read, and nothing can be said to belong to nobody."""
    runs: Sequence[Run] = ()


def examine(database: DatabaseTarget) -> list[Finding]:
    """Everything, in the order in which a person should hear of it."""
    findings: list[Finding] = []
    known = _database(database, findings)
    findings += _agents(known)
    findings += _places(known)
    findings += checkup.machine(database, known.folder)
    for home in sorted(settings.state_folder().glob("*/")):
        findings += _strays(home / "holders")
    if known.folder is not None:
        findings += _holders(known.folder / "holders", known)
        findings += _workspaces(known.folder / "workspaces", known)
    findings += _programs()
    return findings


def _database(database: DatabaseTarget, findings: list[Finding]) -> KnownStores:
    async def work(m: Maos) -> tuple[int, KnownStores]:
        agents = {}
        async for attempt in m.attempts.all():
            agents[attempt.agent] = standing.of_attempts([attempt])
        runs = [run async for run in m.runs.all()]
        return await m.journal.head(), KnownStores(agents, m.attempts.folder, runs)

    try:
        head, known = database.read(work)
    except InvalidInput as error:
        findings.append(Finding("note", "database", error.what, error.hint))
        return KnownStores({}, None)
    except MaosError as error:
        findings.append(Finding("bad", "database", error.what, error.hint))
        return KnownStores({}, None)
    what = f"{database.name} opens, and ends where it should, at position {head}"
    findings.append(Finding("ok", "database", what))
    findings += checkup.journal(database)
    return known


def _agents(known: KnownStores) -> Iterator[Finding]:
    running = 0
    for name, now in known.agents.items():
        if now.status in standing.MEANINGS:
            go_on = now.go_on or f"maos agent resume {name}"
            yield Finding(
                "look", "agent", f"{name} is {now.status}: {standing.MEANINGS[now.status]}", f"go on: {go_on}"
            )
        running += now.status in ("running", "stopping")
    if known.agents:
        yield Finding("ok", "agents", f"{len(known.agents)} known, {running} running")


def _places(known: KnownStores) -> Iterator[Finding]:
    """Runs that can go on, and whose folders are not where they were."""
    from maos.engine.orchestration import check_places

    for run in known.runs:
        try:
            if run.status != "completed":
                check_places(run)
        except MaosError as error:
            yield Finding("look", "run", error.what, error.hint)


def _holders(root: Path, known: KnownStores) -> Iterator[Finding]:
    """Processes that hold an agent, and the folders of those that are gone."""
    from maos.holder.registry import holders
    from maos.model.attempt import agent_of

    living = 0
    for each in holders(root) if root.is_dir() else ():
        now = known.agents.get(agent_of(each.attempt))
        living += each.alive
        if now is None or Path(now.attempt.folder).parent != each.folder.parent:
            state = f"held by process {each.pid}" if each.alive else "not running"
            yield Finding("note", "holder", f"{each.attempt}, {state}, is not in this database", str(each.folder))
        elif now.attempt.id != each.attempt or not now.attempt.is_open:
            yield _left_holder(each) if each.alive else _left_folder(each)
    yield Finding("ok", "holders", f"{living} living")


def _left_holder(info: HolderInfo) -> Finding:
    async def fix() -> str:
        from maos.holder.registry import end

        return f"ended {info.attempt}: {await end(info)} processes"

    return Finding(
        "bad", "holder", f"process {info.pid} holds {info.attempt}, which has ended",
        "nobody needs it any more", f"End process {info.pid} and everything below it?", fix,
    )  # fmt: skip


def _left_folder(info: HolderInfo) -> Finding:
    async def fix() -> str:
        from maos.holder.client import remove

        remove(info.folder)
        return f"removed {info.folder}"

    return Finding(
        "bad", "folder", f"{info.folder} is of {info.attempt}, which has ended and is recorded",
        "nobody needs it any more", f"Remove {info.folder}?", fix,
    )  # fmt: skip


def _strays(root: Path) -> Iterator[Finding]:
    from maos.holder.registry import strays

    by_attempt: dict[Path, list[Stray]] = {}
    for each in strays(root):
        by_attempt.setdefault(each.folder, []).append(each)
    yield from map(_stray, by_attempt.values())


def _stray(strays: list[Stray]) -> Finding:
    """The processes of an attempt that nobody holds, the one that started the others first."""

    async def fix() -> str:
        from maos.holder.registry import end_stray

        count = sum([await end_stray(each) for each in strays])
        return f"ended {count} of the processes of {first.attempt}" if count else "they were gone already"

    first = min(strays, key=lambda each: each.start_ticks)
    more = f" and {len(strays) - 1} more" if len(strays) > 1 else ""
    return Finding(
        "bad", "stray",
        f"process {first.pid}{more} of {first.attempt} runs and nobody holds it: {shorten(first.command, 60)}",
        "its holder was killed, and it escaped", f"Kill process {first.pid}{more} and everything below?", fix,
    )  # fmt: skip


def _workspaces(root: Path, known: KnownStores) -> Iterator[Finding]:
    from maos import workspaces as workspaces

    found = workspaces.left_behind(root)
    own = {f"{run.id}-b{branch}" if branch else run.id for run in known.runs for branch in range(run.branch + 1)}
    for each in found:
        if each.name in own and each.workspace is not None:
            continue  # what its tasks have done is merged there
        now = known.agents.get(each.name)
        if each.workspace is None and (now is None or not now.attempt.is_open):
            yield _unfinished(root, each.name)
        elif now is None and each.workspace is not None:
            yield _orphaned(each.tree, each.workspace)
    if found:
        yield Finding("ok", "worktrees", f"{len(found)} below {root}")


def _orphaned(tree: Path, workspace: Workspace) -> Finding:
    async def fix() -> str:
        from maos.workspaces import remove

        try:
            await remove(workspace)
        except (MaosError, OSError) as error:
            return f"nothing: {error}"
        return f"removed {tree}; what was saved of it is still below refs/maos in {workspace.repository}"

    return Finding(
        "look", "worktree", f"{tree} belongs to no agent and no run in this database",
        "it was made by work that this database does not know: an older copy was put back, or runs were deleted",
        f"Remove {tree}, if everything in it is saved?", fix,
    )  # fmt: skip


def _unfinished(root: Path, name: str) -> Finding:
    async def fix() -> str:
        from maos.workspaces import clear

        await clear(root, name)
        return f"removed {root / name}"

    return Finding(
        "bad", "worktree", f"{root / name} was begun and never finished", "nothing is in it that is not elsewhere",
        f"Remove {root / name}?", fix,
    )  # fmt: skip


def _programs() -> Iterator[Finding]:
    yield _git()
    for each in kinds.find():
        if each.missing:
            yield Finding("note", each.name, each.missing, each.hint)
        elif each.found:
            yield Finding("ok", each.name, each.found)


def _git() -> Finding:
    import asyncio

    from maos.workspaces import git

    try:
        asyncio.run(git.check_version())
        version = asyncio.run(git.Git(Path("/")).run("version")).line
    except MaosError as error:
        return Finding("look", "git", f"{error.what}: agents work in place, and their files are not saved", error.hint)
    return Finding("ok", "git", version.removeprefix("git version "))
