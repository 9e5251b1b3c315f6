"""Writes a run or a workflow to one file: its events, as of one position, and the commits of its files."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from maos.clock import Clock
from maos.engine import ownership
from maos.engine.ownership import Liveness
from maos.engine.streams import RUN as RUNS
from maos.engine.streams import WORKFLOW_RUN
from maos.errors import InvalidInput, NotFound
from maos.journal.journal import Journal, Record
from maos.model.events.attempt import AttemptPlanned
from maos.model.events.run import RunRestoredBase
from maos.model.run import Run
from maos.model.status import RunStatus
from maos.model.workflow import WorkflowRun
from maos.transfer import contents, file, membership, validation
from maos.transfer.contents import RUN, TEXT_CHARS_MAX, WORKFLOW, BundleKind, EventLine, Manifest, StreamHead
from maos.transfer.membership import Members
from maos.travel.points_in_time import merged_commit
from maos.workspaces import commits, is_object

SHOWN_CHARS_MAX = 200


class Exported(NamedTuple):
    """A bundle that was written."""

    manifest: Manifest
    events: int
    bytes: int
    sha256: str


class _Gathered(NamedTuple):
    """Everything of a run, as of one position."""

    root: Run | WorkflowRun
    heads: list[StreamHead]
    lines: list[EventLine]
    workspaces: list[Mapping[str, Any]]
    left_out: list[str]
    left: dict[str, str]
    """Merged work of branches that were given up."""


async def kind_of(journal: Journal, id: str) -> BundleKind:
    """Whether an id is that of a run or of a workflow."""
    kinds: tuple[BundleKind, ...] = (RUN, WORKFLOW)
    for kind in kinds:
        if await journal.version(f"{kind}/{id}"):
            return kind
    hint = "`maos ps` and `maos workflow list` show them"
    raise NotFound(f"there is no run and no workflow run {id!r}", hint=hint)


async def export(
    journal: Journal, clock: Clock, target: BinaryIO, kind: BundleKind, id: str, *, made_by: str, files: bool = True
) -> Exported:
    """Write all of a run or a workflow. An engine may execute it meanwhile: what it does now is not in the file."""
    position = await journal.head()
    members = await membership.here(journal, kind, id)
    gathered = await _gather(journal, kind, id, members, position)
    refs, repository = await _commits(gathered, members, id) if files else ({}, None)
    root = gathered.root
    manifest = Manifest(
        kind=kind,
        id=id,
        title=(root.request if isinstance(root, Run) else root.name)[:SHOWN_CHARS_MAX],
        status=root.status,
        made_by=made_by,
        made_us=clock.now_us(),
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
    with tempfile.TemporaryDirectory(prefix="maos-export-") as folder:
        packed = await commits.pack(repository, refs, Path(folder)) if repository is not None and refs else None
        return await asyncio.to_thread(_write, target, manifest, gathered.lines, packed)


def _write(target: BinaryIO, manifest: Manifest, lines: list[EventLine], packed: tuple[bytes, Path] | None) -> Exported:
    writer = file.BundleWriter(target)
    contents.write(writer, manifest, lines)
    if packed is not None:
        writer.file(file.GIT, *packed)
    sha256 = writer.end()
    return Exported(manifest, len(lines), writer.bytes, sha256)


async def _gather(journal: Journal, kind: str, id: str, members: Members, position: int) -> _Gathered:
    root: Any = RUNS.fold(id=id) if kind == RUN else WORKFLOW_RUN.fold(id=id)
    heads: list[StreamHead] = []
    found: list[tuple[int, EventLine]] = []
    workspaces: list[Mapping[str, Any]] = []
    left_out: list[str] = []
    left: dict[str, str] = {}
    size = 0
    async for name in membership.streams(journal, members):
        records = [each async for each in journal.read(name) if each.position <= position and each.type != "compacted"]
        if name.startswith("agent/") and any(each.spans > 1 for each in records):
            left_out.append(f"{name}: its history was compacted")
            continue
        if not records:
            continue
        for record in records:
            line = _line(journal, record, len(heads))
            size += len(bytes(line.data)) + len(record.type) + 32
            found.append((record.position, line))
            if name == f"{kind}/{id}":
                if isinstance(record.event, RunRestoredBase) and root.commit:
                    left[f"left-{root.branch}"] = root.commit  # of a branch that was given up, and can be restored
                root.apply(record.event)
            if isinstance(record.event, AttemptPlanned) and record.event.workspace["repository"]:
                workspaces.append(record.event.workspace)
        heads.append(StreamHead(name, len(records)))
        if size > file.JOURNAL_BYTES_MAX:
            hint = f"at most {file.JOURNAL_BYTES_MAX >> 20} MB; `maos admin copy` copies the whole journal"
            raise InvalidInput(f"{id} has more events than a bundle can hold", hint=hint)
    if isinstance(root, Run) and root.options.get("workspace"):
        workspaces.insert(0, root.options["workspace"])
    found.sort(key=lambda each: each[0])
    return _Gathered(root, heads, [line for _position, line in found], workspaces, left_out, left)


def _line(journal: Journal, record: Record, stream: int) -> EventLine:
    data = msgspec.Raw(msgspec.json.encode(record.data))
    return EventLine(stream, record.type, journal.codec.format_of(record.type), record.time_us, data)


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
