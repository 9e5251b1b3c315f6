"""`maos admin doctor`: checks the database, agents, processes, folders and programs; findings say what to do."""

from __future__ import annotations

import asyncio
import platform
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import apsw
import msgspec

from maos import settings
from maos import workspaces as workspaces
from maos.agents import kinds
from maos.backup.alarm import LATE_S
from maos.backup.service import Backups
from maos.engine import attempt_spec
from maos.engine.recorder import Kind
from maos.engine.streams import ATTEMPT, RUN, WORKFLOW_RUN, RunReader
from maos.errors import InvalidInput, MaosError
from maos.holder import agent_process, client
from maos.holder.client import HolderInfo, Stray
from maos.journal.journal import Journal
from maos.journal.verify import Report
from maos.model.attempt import Attempt, agent_of
from maos.model.run import Run
from maos.model.status import AgentState, RunStatus
from maos.model.workflow import WorkflowRun
from maos.runs.service import Runs
from maos.store.contract import Document
from maos.tuples import NamedTuple
from maos.views.agent_status import resume_command, state_of
from maos.views.agents import Agents
from maos.workflows.service import Workflows
from maos.workflows.status import Status
from maos.workspaces import Left, Workspace, git

LOW_BYTES, GONE_BYTES = 2 << 30, 200 << 20
DAMAGE_SHOWN_MAX = 5
BACKUP_S_MAX = 30.0
COMMAND_CHARS_MAX = 60
KINDS: tuple[Kind, ...] = (ATTEMPT, RUN, WORKFLOW_RUN)  # type: ignore[type-arg]  # each of its own fold


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing."""
    LOOK = "look"
    """For a person to decide."""
    BAD = "bad"
    """Wrong."""


class Finding(NamedTuple):
    """Something that was found."""

    level: Level
    about: str
    what: str
    hint: str = ""
    question: str | None = None
    """What a person is asked before it is repaired."""
    fix: Callable[[], Coroutine[Any, Any, str]] | None = None
    """Repairs it, and returns what was done. While the database is open."""


async def examine(
    journal: Journal,
    agents: Agents,
    runs: Runs,
    workflows: Workflows,
    *,
    verify: Callable[[], Awaitable[Report]],
    version: str,
) -> list[Finding]:
    """Everything about an open database, and about this machine, in the order in which a person should read it."""
    name, folder = journal.store.place, agents.folder
    holders = client.holders(folder / attempt_spec.HOLDERS)
    trees = workspaces.left_behind(folder / workspaces.ROOT)
    attempts = {each.agent: each async for each in agents.open()}
    for each in {*(agent_of(holder.attempt) for holder in holders), *(tree.name for tree in trees)} - {*attempts}:
        if (newest := await agents.newest(each)) is not None:
            attempts[each] = newest
    what = f"{name} opens, and ends where it should, at position {await journal.head()}"
    found = [Finding(Level.OK, "database", what)]
    found += [each async for each in _journal(journal, workflows, verify)]
    found += _agents(attempts, len({agent async for agent in agents.names()}))
    found += [finding async for run in runs.views() for finding in _folders(run)]
    found += machine(name, folder, version)
    found += settings_finding(lambda: agents.settings)
    found += _holders(holders, attempts)
    found += await _workspaces(folder / workspaces.ROOT, trees, attempts, runs)
    return [_for_a_person(journal, each) for each in (*found, *await programs())]


async def backup_findings(backups: Backups, location: str) -> list[Finding]:
    """How the backup of the settings is; nothing where the settings name none."""
    if not location:
        return []
    try:
        async with asyncio.timeout(BACKUP_S_MAX):
            found = await backups.status(location)
    except (MaosError, TimeoutError) as error:
        what = error.what if isinstance(error, MaosError) else f"{location} does not answer"
        return [Finding(Level.BAD, "backup", what, getattr(error, "hint", ""))]
    if found.head is None:
        hint = "`maos serve` writes it, or `maos backup start`"
        return [Finding(Level.LOOK, "backup", f"nothing was backed up to {found.location} yet", hint)]
    if found.behind_s > LATE_S:
        what = f"{found.location} is {found.behind_s:,.0f} s behind, by {found.missing} positions"
        findings = [Finding(Level.BAD, "backup", what, "`maos serve` writes it, or `maos backup start`")]
    else:
        findings = [Finding(Level.OK, "backup", f"{found.location} is {found.behind_s:.1f} s behind")]
    if found.tested is None:
        hint = "`maos backup test` restores it to a temporary database"
        findings.append(Finding(Level.NOTE, "backup", "it was never restored for a test", hint))
    elif found.tested.problem:
        hint = "`maos backup verify` says what is damaged"
        findings.append(Finding(Level.BAD, "backup", f"its last test failed: {found.tested.problem}", hint))
    return findings


def _for_a_person(journal: Journal, finding: Finding) -> Finding:
    """A finding that no agent can repair."""
    repair = finding.fix
    if repair is None:
        return finding

    async def fix() -> str:
        journal.principal.check_may_decide("repair what was found")
        return await repair()

    return finding._replace(fix=fix)


async def _journal(
    journal: Journal, workflows: Workflows, verify: Callable[[], Awaitable[Report]]
) -> AsyncIterator[Finding]:
    """Every event against its hash, every kept fold against a rebuild, and workflows that need a person."""
    try:
        report = await verify()
        folds = await _folds(journal) if report.ok else []
        flows = [flow async for flow in workflows.open()]
    except MaosError as error:
        yield Finding(Level.BAD, "journal", error.what, error.hint)
        return
    if report.ok:
        what = f"{report.events} events in {report.streams} streams, as they were written"
        yield Finding(Level.OK, "journal", what)
    for each in report.damage[:DAMAGE_SHOWN_MAX]:
        yield Finding(Level.BAD, "journal", str(each), "docs/howto/recover-from-damage.md says what can be done")
    for finding in folds:
        yield finding
    for flow in flows:
        if flow.unknown or Status.of(flow).needs_resume:
            yield _flow(flow)


async def _folds(journal: Journal) -> list[Finding]:
    """How many kept folds are what their events say, and those that are not."""
    kept, found = 0, []
    for kind in KINDS:
        async for document in _documents(journal, kind.name):
            fold = kind.kept(document)
            if fold is None:
                continue
            kept += 1
            built = await kind.at(journal, document.key, version=fold.version)
            if built is None or msgspec.to_builtins(built) != msgspec.to_builtins(fold):
                found.append(_differing(journal, kind, document))
    what = f"{kept - len(found)} of {kept} stored folds match their events"
    return [Finding(Level.OK, "views", what), *found] if kept else []


async def _documents(journal: Journal, kind: str) -> AsyncIterator[Document]:
    after = ""
    while page := await journal.store.scan(kind, after=after):
        for each in page:
            yield each
        after = page[-1].key


def _differing(journal: Journal, kind: Kind[Any], document: Document) -> Finding:
    fold = f"{kind.name} {document.key}"

    async def fix() -> str:
        await journal.store.append(documents=[kind.nothing(document.key, document.version)])
        return f"deleted the stored fold of {fold}; it is computed again when it is needed"

    what = f"the stored fold of {fold} does not match its events"
    hint, question = "it can be computed again", f"Delete the stored fold of {document.key}?"
    return Finding(Level.BAD, "views", what, hint, question, fix)


async def without_database(name: str, error: MaosError, load: Callable[[], object], *, version: str) -> list[Finding]:
    """What can be said of a machine whose database could not be opened."""
    level = Level.NOTE if isinstance(error, InvalidInput) else Level.BAD
    found = [Finding(level, "database", error.what, error.hint), *machine(name, None, version), *settings_finding(load)]
    return [*found, *await programs()]


def _agents(attempts: Mapping[str, Attempt], known: int) -> Iterator[Finding]:
    running = 0
    for name, attempt in attempts.items():
        state = state_of(attempt)
        if state.meaning:
            resumable = resume_command(name, state) or f"maos agent resume {name}"
            yield Finding(Level.LOOK, "agent", f"{name} is {state}: {state.meaning}", f"resume: {resumable}")
        running += state in (AgentState.RUNNING, AgentState.STOPPING)
    if known:
        yield Finding(Level.OK, "agents", f"{known} known, {running} running")


def _folders(run: Run) -> list[Finding]:
    """Whether a run can be resumed, and its folders are not where they were."""
    try:
        if run.status != RunStatus.COMPLETED:
            attempt_spec.check_places(run)
    except MaosError as error:
        return [Finding(Level.LOOK, "run", error.what, error.hint)]
    return []


def _flow(flow: WorkflowRun) -> Finding:
    if flow.unknown:
        what = f"{flow.id}: unknown whether call {', '.join(flow.unknown)} took effect"
        return Finding(Level.LOOK, "workflow", what, f"maos workflow show {flow.id}")
    what = flow.why if flow.status == "changed" else "no engine runs it"
    return Finding(Level.LOOK, "workflow", f"{flow.id}: {what}", f"resume: maos workflow resume {flow.id}")


# --- the machine -------------------------------------------------------------------------------------------------


def machine(database: str, folder: Path | None, version: str) -> Iterator[Finding]:
    """Room on the disks, the versions of what maos stands on, and processes that no holder looks after."""
    places = {} if "://" in database else {"database": Path(database).absolute().parent}
    places |= {} if folder is None else {"agents": folder}
    for about, place in places.items():
        while not place.exists():
            place = place.parent
        free = shutil.disk_usage(place).free
        what = f"{free / 1e9:.1f} GB free where the {about} {'is' if about == 'database' else 'are'}"
        level = Level.BAD if free < GONE_BYTES else Level.LOOK if free < LOW_BYTES else Level.OK
        hint = "" if level is Level.OK else "free some space: maos admin cleanup, maos workflow state cleanup"
        yield Finding(level, "disk", what, hint)
    known = ", ".join(f"{name} {each}" for name, each in versions(version).items())
    yield Finding(Level.OK, "versions", known)
    for home in sorted(settings.state_folder().glob("*/")):
        yield from _strays(home / "holders")


def versions(version: str) -> dict[str, str]:
    """The versions of maos, which is given, and of what it stands on."""
    return {"maos": version, "Python": platform.python_version(), "SQLite": apsw.sqlite_lib_version()}


def settings_finding(load: Callable[[], object]) -> Iterator[Finding]:
    """Whether the settings can be read."""
    try:
        if settings.are_there():
            load()
            what = "every value is valid; `maos admin config show` shows where each comes from"
            yield Finding(Level.OK, "settings", what)
    except MaosError as error:
        yield Finding(Level.BAD, "settings", error.what, error.hint or "maos admin config validate")


async def programs() -> list[Finding]:
    """The programs that maos and agents need."""
    found = [await _git()]
    for each in kinds.installed():
        if each.missing:
            found.append(Finding(Level.NOTE, each.name, each.missing, each.hint))
        elif each.found:
            found.append(Finding(Level.OK, each.name, each.found))
    return found


async def _git() -> Finding:
    try:
        await git.check_version()
        version = (await git.Git(Path("/")).run("version")).line
    except MaosError as error:
        what = f"{error.what}: agents work in place, and their files are not saved"
        return Finding(Level.LOOK, "git", what, error.hint)
    return Finding(Level.OK, "git", version.removeprefix("git version "))


# --- what was left behind ----------------------------------------------------------------------------------------


def _holders(holders: Sequence[HolderInfo], attempts: Mapping[str, Attempt]) -> Iterator[Finding]:
    """Processes that hold an agent, and the folders of those that have exited."""
    living = 0
    for each in holders:
        attempt = attempts.get(agent_of(each.attempt))
        living += each.alive
        if attempt is None or Path(attempt.folder).parent != each.folder.parent:
            state = f"held by process {each.pid}" if each.alive else "not running"
            what = f"{each.attempt}, {state}, is not in this database"
            yield Finding(Level.NOTE, "holder", what, str(each.folder))
        elif attempt.id != each.attempt or not attempt.is_open:
            yield _left(each)
    yield Finding(Level.OK, "holders", f"{living} living")


def _left(info: HolderInfo) -> Finding:
    """The process that holds an agent whose attempt has ended, or its folder."""

    async def fix() -> str:
        if info.alive:
            return f"ended {info.attempt}: {await client.end(info)} processes"
        agent_process.remove(info.folder)
        return f"removed {info.folder}"

    if info.alive:
        about, what = "holder", f"process {info.pid} holds {info.attempt}, which has ended"
        question = f"End process {info.pid} and everything below it?"
    else:
        about, what = "folder", f"{info.folder} is of {info.attempt}, which has ended and is recorded"
        question = f"Remove {info.folder}?"
    return Finding(Level.BAD, about, what, "it is no longer needed", question, fix)


def _strays(root: Path) -> Iterator[Finding]:
    by_attempt: dict[Path, list[Stray]] = {}
    for each in client.strays(root):
        by_attempt.setdefault(each.folder, []).append(each)
    yield from map(_stray, by_attempt.values())


def _stray(strays: list[Stray]) -> Finding:
    """The processes of an attempt that no holder looks after, the one that started the others first."""

    async def fix() -> str:
        count = sum([await client.end_stray(each) for each in strays])
        return f"ended {count} of the processes of {first.attempt}" if count else "they were gone already"

    first = min(strays, key=lambda each: each.start_ticks)
    more = f" and {len(strays) - 1} more" if len(strays) > 1 else ""
    command = first.command
    command = command if len(command) <= COMMAND_CHARS_MAX else command[: COMMAND_CHARS_MAX - 1] + "…"
    return Finding(
        Level.BAD, "stray", f"process {first.pid}{more} of {first.attempt} runs without a holder: {command}",
        "its holder was killed, and it escaped", f"Kill process {first.pid}{more} and everything below?", fix,
    )  # fmt: skip


async def _workspaces(
    root: Path, trees: Sequence[Left], attempts: Mapping[str, Attempt], runs: RunReader
) -> list[Finding]:
    found = []
    for each in trees:
        if each.workspace is not None and await runs.has_tree(each.name):
            continue  # what its tasks have done is merged there
        attempt = attempts.get(each.name)
        if each.workspace is None and (attempt is None or not attempt.is_open):
            found.append(_unfinished(root, each.name))
        elif attempt is None and each.workspace is not None:
            found.append(_orphaned(each.tree, each.workspace))
    if trees:
        found.append(Finding(Level.OK, "worktrees", f"{len(trees)} below {root}"))
    return found


def _orphaned(tree: Path, workspace: Workspace) -> Finding:
    async def fix() -> str:
        try:
            await workspaces.remove(workspace)
        except (MaosError, OSError) as error:
            return f"nothing: {error}"
        return f"removed {tree}; what was saved of it is still below refs/maos in {workspace.repository}"

    return Finding(
        Level.LOOK, "worktree", f"{tree} belongs to no agent and no run in this database",
        "it was made by work that this database does not know: an older copy was restored, or runs were deleted",
        f"Remove {tree}, if everything in it is saved?", fix,
    )  # fmt: skip


def _unfinished(root: Path, name: str) -> Finding:
    async def fix() -> str:
        await workspaces.clear(root, name)
        return f"removed {root / name}"

    return Finding(
        Level.BAD, "worktree", f"{root / name} was begun and never finished", "everything in it is saved elsewhere",
        f"Remove {root / name}?", fix,
    )  # fmt: skip
