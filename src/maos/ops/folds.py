"""Saved folds compared with the events they stand for: one that differs is dropped, and costs only time (I17)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec

from maos.engine.recorder import Kind
from maos.engine.streams import ATTEMPT, RUN, WORKFLOW_RUN
from maos.journal.journal import Journal
from maos.store.contract import Document

KINDS: tuple[Kind, ...] = (ATTEMPT, RUN, WORKFLOW_RUN)  # type: ignore[type-arg]  # each of its own fold


class Differing(NamedTuple):
    """A kept fold that is not what its events say."""

    kind: str
    id: str
    version: int


async def check(journal: Journal) -> tuple[int, list[Differing]]:
    """How many folds are kept, and those that differ from a rebuild."""
    kept = 0
    found: list[Differing] = []
    for kind in KINDS:
        async for document in _documents(journal, kind.name):
            fold = kind.kept(document)
            if fold is None:
                continue
            kept += 1
            built = await kind.at(journal, document.key, version=fold.version)
            if built is None or msgspec.to_builtins(built) != msgspec.to_builtins(fold):
                found.append(Differing(kind.name, document.key, document.version))
    return kept, found


async def _documents(journal: Journal, kind: str) -> AsyncIterator[Document]:
    after = ""
    while page := await journal.store.scan(kind, after=after):
        for each in page:
            yield each
        after = page[-1].key


async def drop(journal: Journal, differing: Differing) -> None:
    """Delete a kept fold; the next reader builds it from the events."""
    kind = next(each for each in KINDS if each.name == differing.kind)
    await journal.store.append(documents=[kind.nothing(differing.id, differing.version)])
