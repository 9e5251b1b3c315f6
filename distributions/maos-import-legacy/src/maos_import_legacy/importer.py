"""Imports orchestrations of maos-cli into the journal, each in one append.

Importing again is harmless. A run is recognized by the id of the orchestration or of one of its agents, and only what
is new is added; a run that was resumed here since is left alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from maos import settings
from maos.engine import transcripts
from maos.engine.streams import RUN
from maos.errors import Conflict, InvalidInput
from maos.ids import match_id
from maos.model import message
from maos.model.events.attempt import AttemptTranscript
from maos.model.events.run import RunNoteAdded
from maos.model.run import Run, agent_name, stream
from maos.runs import agent_types
from maos.transfer.importers import ImportedRun, ImportTarget, is_legacy
from maos_import_legacy import file, parser
from maos_import_legacy.builder import KnownAgents, RunBuilder
from maos_import_legacy.parser import DONE, WAITING, LegacyContents, LegacyRun

ID_CHARS = (8, 12, 16, 20)
TRANSCRIPT_BYTES_MAX = 64 << 20
TRIES_MAX = 5
NEW, MORE, SAME, MOVED_ON = "new", "more", "same", "moved_on"

_UNFIT = re.compile(r"[^A-Za-z0-9-]+")


class LegacySource:
    """The orchestrations of a file of maos-cli, as a source of runs."""

    def __init__(self, contents: LegacyContents, *, claude: Path) -> None:
        """Prepare to import. `claude` is the folder of Claude Code, with the transcripts of its sessions."""
        self.left_out = contents.left_out
        self._contents = contents
        self._claude = claude

    def import_into(
        self, target: ImportTarget, *, wanted: str = "", dry_run: bool = False
    ) -> AsyncIterator[ImportedRun]:
        """Import all orchestrations, or the one with this id or unique beginning of an id."""
        importer = _Importer(target, self._contents, self._claude)
        return importer.import_chosen(_choose(self._contents, wanted), dry_run=dry_run)


class _Importer:
    """Imports orchestrations of one file into a journal."""

    def __init__(self, target: ImportTarget, found: LegacyContents, claude: Path) -> None:
        self._target = target
        self._journal = target.journal
        self._types = agent_types.known(target.folder, settings.config_folder())
        self._found = found.orchestrations
        self._claude = claude
        self._runs: dict[str, Run] = {}

    async def import_chosen(self, chosen: Sequence[LegacyRun], *, dry_run: bool) -> AsyncIterator[ImportedRun]:
        """Import some orchestrations of the file, each in one append."""
        self._runs = {run.id: run async for run in self._imported()}
        ids = {id(each): await self._id(each) for each in self._found}
        names = {agent.id: agent_name(ids[id(each)], agent.name) for each in self._found for agent in each.agents}
        for each in chosen:
            yield await self._import(each, ids[id(each)], names, dry_run=dry_run)

    async def _import(self, each: LegacyRun, id: str, names: Mapping[str, str], *, dry_run: bool) -> ImportedRun:
        found = await asyncio.to_thread(self._transcripts, each)
        unfinished = [agent for agent in each.agents if agent.status not in (DONE, WAITING)]
        sessions = sum(agent.session in found for agent in unfinished)
        for _ in range(TRIES_MAX):
            known = await self._known(id)
            run = known.run
            if run.restored:
                return ImportedRun(MOVED_ON, run, each.id, each.said_status, 0, 0, sessions, len(unfinished))
            built = RunBuilder(each, known, self._target, self._types, names=names, transcripts=found).build()
            what = NEW if not run.version else MORE if built.run or built.others else SAME
            version = run.version
            for event in built.run:
                run.apply(event)
            try:
                if what != SAME and not dry_run:
                    await self._target.append(run, version, built.run, built.others)
            except Conflict:
                continue  # another process is importing or resuming it
            self._runs[id] = run
            counts = (built.messages, built.waiting, sessions, len(unfinished))
            return ImportedRun(what, run, each.id, each.said_status, *counts)
        raise InvalidInput(f"run {id} keeps changing", hint="pause it, and import again")

    # --- runs in the journal ---------------------------------------------------------------------------------

    async def _imported(self) -> AsyncIterator[Run]:
        async for name in self._journal.streams(stream("")):
            run = await RUN.load(self._journal, name.removeprefix(stream("")))
            if run is not None and "imported" in run.options:
                yield run

    async def _id(self, each: LegacyRun) -> str:
        """Return the id of the imported run: the beginning of the orchestration's id, so that people recognize it."""
        agents = {agent.id for agent in each.agents}
        for run in self._runs.values():
            imported = run.options["imported"]
            if imported["id"] == each.id or agents & set(imported["agents"]):
                return run.id
        others = [one for one in self._found if one is not each]
        plain = _UNFIT.sub("", each.id).strip("-").lower()
        for chars in ID_CHARS:
            id = plain[:chars].rstrip("-")
            is_free = id and not any(_UNFIT.sub("", one.id).lower().startswith(id) for one in others)
            if is_free and not await self._journal.version(stream(id)):
                return id
        return f"o-{hashlib.sha256(each.id.encode()).hexdigest()[:12]}"

    async def _known(self, id: str) -> KnownAgents:
        run = await RUN.load(self._journal, id)
        if run is None:
            return KnownAgents(Run(id=id))
        notes = [
            record.event.original["sha"]
            async for record in self._journal.read(stream(id))
            if isinstance(record.event, RunNoteAdded) and record.event.original
        ]
        messages = [record.data.get("id") async for record in self._journal.read(message.history(id))]
        return KnownAgents(run, frozenset(filter(None, messages)), frozenset(notes))

    def _transcripts(self, each: LegacyRun) -> dict[str, Sequence[AttemptTranscript]]:
        """Return the transcripts of an orchestration's agents that are still on this machine, by session."""
        found: dict[str, Sequence[AttemptTranscript]] = {}
        for session in sorted({agent.session for agent in each.agents} - {""}):
            for path in sorted(self._claude.glob(f"projects/*/{session}.jsonl")):
                try:
                    if path.is_file() and path.stat().st_size <= TRANSCRIPT_BYTES_MAX:
                        events = transcripts.read(path)
                        if events:
                            found[session] = events
                            break
                except OSError:
                    continue  # an unreadable transcript counts as missing
        return found


def recognizes(path: Path) -> bool:
    """Return whether a file is a database of maos-cli."""
    return is_legacy(path)


def read(path: Path) -> LegacySource:
    """Return the orchestrations in a file of maos-cli."""
    given = os.environ.get("CLAUDE_CONFIG_DIR")  # as maos-cli found it
    claude = Path(given) if given else Path.home() / ".claude"
    return LegacySource(parser.parse(file.read(path)), claude=claude)


def _choose(found: LegacyContents, wanted: str) -> list[LegacyRun]:
    if not wanted:
        return found.orchestrations
    known = [each.id for each in found.orchestrations]
    hint = f"it has {', '.join(each[:8] for each in known[:10])}" if known else "check that it is the right file"
    id = match_id(wanted, known, "orchestration", hint=hint)
    return [each for each in found.orchestrations if each.id == id]
