"""Export and import of runs, for programs.

An export has the events of a run or a workflow run as of one position, and the commits of its files.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from maos.clock import Clock
from maos.engine import ownership
from maos.engine.attempts import Attempts
from maos.engine.ownership import Liveness
from maos.engine.streams import RUN as RUNS
from maos.engine.streams import WORKFLOW_RUN
from maos.errors import InvalidInput, NotFound
from maos.files import whole_file
from maos.journal.journal import Journal
from maos.model.events.attempt import AttemptPlanned
from maos.model.events.run import RunRestoredBase
from maos.model.run import Run
from maos.model.status import RunStatus
from maos.model.workflow import WorkflowRun
from maos.transfer import bundle, validation
from maos.transfer.bundle import RUN, TEXT_CHARS_MAX, WORKFLOW, BundleKind, EventLine, Manifest, StreamHead
from maos.transfer.bundle_import import BundleImporter, Imported, readable
from maos.transfer.importers import ImportedRun, ImportTarget, RunSource
from maos.transfer.validation import Members
from maos.travel.points_in_time import merged_commit
from maos.tuples import NamedTuple
from maos.workspaces import commits, is_object

SHOWN_CHARS_MAX = 200


class Exported(NamedTuple):
    """A bundle that was written."""

    manifest: Manifest
    events: int
    bytes: int
    sha256: str


class _Gathered(msgspec.Struct):
    """Everything of a run, as of one position."""

    root: Run | WorkflowRun
    heads: list[StreamHead] = []
    lines: list[EventLine] = []
    workspaces: list[Mapping[str, Any]] = []
    left_out: list[str] = []
    left: dict[str, str] = {}
    """Merged work of branches that were given up."""


class Transfer:
    """Runs as files: exported to one, and imported from one."""

    def __init__(self, journal: Journal, clock: Clock, attempts: Attempts, *, made_by: str) -> None:
        self._journal = journal
        self._clock = clock
        self._attempts = attempts
        self._made_by = made_by

    async def export(self, id: str, target: Path | str | BinaryIO, *, files: bool = True) -> Exported:
        """Export a run or a workflow run to one file, or to a binary file object: its events, conversations and
        messages, and the commits of its files unless `files` is off.

        Example::

            made = await m.transfer.export("r-1", "r-1.maos")
            print(made.bytes, made.sha256)
        """
        kind = await self._kind_of(id)
        with _writable(target) as out:  # an engine may execute it meanwhile: what it does now is not in the file
            position = await self._journal.head()
            members = await validation.here(self._journal, kind, id)
            gathered = await _gather(self._journal, kind, id, members, position)
            refs, repository = await _commits(gathered, members, id) if files else ({}, None)
            root = gathered.root
            manifest = Manifest(
                kind=kind,
                id=id,
                title=(root.request if isinstance(root, Run) else root.name)[:SHOWN_CHARS_MAX],
                status=root.status,
                made_by=self._made_by,
                made_us=self._clock.now_us(),
                position=position,
                carried_out=root.status in (RunStatus.PLANNING, RunStatus.RUNNING)
                and ownership.liveness(root.owner) is not Liveness.GONE,
                streams=gathered.heads,
                refs=refs,
                object_format="sha1" if repository is None else await commits.object_format(repository),
                left_out=[text[:TEXT_CHARS_MAX] for text in gathered.left_out],
            )
            if not files and gathered.workspaces:
                manifest.left_out.append("the commits of its files, as asked")
            # Git renames the finished pack, which works within one file system only.
            beside = None if repository is None else repository / "objects"
            with tempfile.TemporaryDirectory(prefix="tmp_objdir-maos-", dir=beside) as folder:
                packed = await commits.pack(repository, refs, Path(folder)) if repository is not None and refs else None
                size, sha256 = await asyncio.to_thread(bundle.write, out, manifest, gathered.lines, packed)
            return Exported(manifest, len(gathered.lines), size, sha256)

    async def import_(self, source: Path | str, *, folder: Path | str = ".", dry_run: bool = False) -> Imported:
        """Import what is in a file that `export` wrote, on any machine. Nothing of it is executed before
        `Runs.agree`. `folder` is where its agents will work. Importing again brings what is new.

        Example::

            await m.transfer.export("r-1", "r-1.maos")
            print((await m.transfer.import_("r-1.maos", dry_run=True)).what)
        """
        if not dry_run:
            self._journal.principal.check_may_decide("import a file")
        place, home = Path(os.getcwd(), folder), self._attempts.folder
        with readable(Path(source)) as file:
            importer = BundleImporter(self._journal, self._clock, file, str(source), folder=place, home=home)
            return await importer.bring(dry_run=dry_run)

    async def import_runs(
        self, source: RunSource, *, folder: Path, wanted: str = "", dry_run: bool = False
    ) -> list[ImportedRun]:
        """Import runs of another program, which `importers.read` found in a file. `folder` is where their agents will
        work. Importing again brings what is new.
        """
        if not dry_run:
            self._journal.principal.check_may_decide("import runs")
        target = ImportTarget(self._journal, self._clock, folder, self._attempts.folder)
        return [each async for each in source.import_into(target, wanted=wanted, dry_run=dry_run)]

    async def _kind_of(self, id: str) -> BundleKind:
        kinds: tuple[BundleKind, ...] = (RUN, WORKFLOW)
        for kind in kinds:
            if await self._journal.version(f"{kind}/{id}"):
                return kind
        hint = "`maos ps` and `maos workflow list` show them"
        raise NotFound(f"there is no run and no workflow run {id!r}", hint=hint)


@contextmanager
def _writable(target: Path | str | BinaryIO) -> Iterator[BinaryIO]:
    if not isinstance(target, (Path, str)):
        yield target
        return
    path = Path(target)
    if path.is_dir():
        raise InvalidInput(f"{path} is a folder", hint=f"name a file in it, such as {path / 'run.maos'}")
    if path.exists() or path.is_symlink():
        raise InvalidInput(f"{path} exists already", hint="name a file that does not exist, or move that one away")
    if not path.parent.is_dir():
        raise InvalidInput(f"there is no folder {path.parent}", hint="create it first")
    with whole_file(path) as partial, partial.open("wb") as out:
        yield out


async def _gather(journal: Journal, kind: str, id: str, members: Members, position: int) -> _Gathered:
    root: Any = RUNS.fold(id=id) if kind == RUN else WORKFLOW_RUN.fold(id=id)
    gathered = _Gathered(root)
    found: list[tuple[int, EventLine]] = []
    size = 0
    async for name in validation.streams(journal, members):
        records = [each async for each in journal.read(name) if each.position <= position and each.type != "compacted"]
        if name.startswith("agent/") and any(each.spans > 1 for each in records):
            gathered.left_out.append(f"{name}: its history was compacted")
            continue
        if not records:
            continue
        for record in records:
            data, format_ = msgspec.json.encode(record.data), journal.codec.format_of(record.type)
            line = EventLine(len(gathered.heads), record.type, format_, record.time_us, msgspec.Raw(data))
            size += len(data) + len(record.type) + 32
            found.append((record.position, line))
            if name == f"{kind}/{id}":
                if isinstance(record.event, RunRestoredBase) and root.commit:
                    gathered.left[f"left-{root.branch}"] = root.commit  # it was given up, and can be restored
                root.apply(record.event)
            if isinstance(record.event, AttemptPlanned) and record.event.workspace["repository"]:
                gathered.workspaces.append(record.event.workspace)
        gathered.heads.append(StreamHead(name, len(records)))
        if size > bundle.JOURNAL_BYTES_MAX:
            raise bundle.too_large(id)
    if isinstance(root, Run) and root.options.get("workspace"):
        gathered.workspaces.insert(0, root.options["workspace"])
    found.sort(key=lambda each: each[0])
    gathered.lines = [line for _position, line in found]
    return gathered


async def _commits(gathered: _Gathered, members: Members, id: str) -> tuple[dict[str, str], Path | None]:
    """The refs of everything that its agents have saved, and the repository that they are in."""
    repositories = list(dict.fromkeys(str(each["repository"]) for each in gathered.workspaces))
    if not repositories:
        return {}, None
    repository = Path(repositories[0])
    others = {each["name"] for each in gathered.workspaces if str(each["repository"]) != repositories[0]}
    gathered.left_out.extend(f"the files of {name}, which are in another repository" for name in sorted(others))
    refs = {
        ref: commit
        for ref, commit in (await commits.known(repository)).items()
        if validation.is_ref_of(members, ref) and ref.split("/")[2] not in members.roots
    }
    root = gathered.root
    if isinstance(root, Run):
        merged = merged_commit(root)
        if is_object(merged):
            refs[f"refs/maos/{id}/bundle"] = merged
        refs |= {f"refs/maos/{id}/{label}": commit for label, commit in gathered.left.items() if is_object(commit)}
    return refs, repository
