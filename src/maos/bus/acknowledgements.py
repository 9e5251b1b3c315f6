"""The one way to hand out, acknowledge and dead-letter the messages of an inbox, and to read which are left."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from maos.journal.journal import Append, Journal
from maos.model.events.messages import (
    DeadLetterAdded,
    MessageAcknowledged,
    MessageDeadLettered,
    MessageDelivered,
)
from maos.model.message import FORMAT, Acknowledgements, Message, acks, dead
from maos.store.contract import Document
from maos.tuples import NamedTuple

KIND = "acks"
"""The kind of the documents that keep folds of acknowledgements."""


class Waiting(NamedTuple):
    """A message that is not acknowledged."""

    message: Message
    tries: int
    why: str = ""
    """Why it is not delivered any more, if it becomes a dead letter."""


class DeadLetter(NamedTuple):
    """A message that could not be delivered."""

    name: str
    """Its recipient."""
    version: int
    """Its version in the inbox."""
    why: str
    tries: int
    since_us: int
    message: Message


class _KeptFold(msgspec.Struct):
    format: int
    fold: Acknowledgements


# --- appends, to be written alone or as part of a larger append -------------------------------------------------------


def hand_out(name: str, versions: Sequence[int]) -> list[Append]:
    """Return the appends that record that messages are handed out, which is recorded before they are (I21)."""
    return [Append(acks(name), [MessageDelivered(versions=list(versions))])] if versions else []


def acknowledge(name: str, versions: Sequence[int], *, floor: int = 0, by: str = "") -> list[Append]:
    """Return the appends that acknowledge messages.

    `floor` is the version up to which every message is resolved, if the receiver knows it; `by` is its attempt.
    """
    acknowledged = MessageAcknowledged(versions=list(versions), floor=floor, by=by)
    return [Append(acks(name), [acknowledged])] if versions else []


def dead_letter(name: str, letters: Sequence[Waiting], *, floor: int = 0, expected: int | None = None) -> list[Append]:
    """Return the appends that make messages dead letters; `expected` is the version of the acknowledgements."""
    if not letters:
        return []
    resolved = MessageDeadLettered(versions=[each.message.version for each in letters], floor=floor)
    added = [
        DeadLetterAdded(version=said.version, why=why, tries=tries, message=said.id) for said, tries, why in letters
    ]
    return [Append(acks(name), [resolved], expected), Append(dead(name), added)]


# --- what is left of an inbox -----------------------------------------------------------------------------------------


async def load(journal: Journal, name: str) -> Acknowledgements:
    """Return which messages of an inbox are handed out, acknowledged or dead letters now."""
    document = await journal.store.load(KIND, name)
    fold = Acknowledgements(id=name)
    if document is not None and document.body is not None:
        try:
            kept = msgspec.json.decode(document.body, type=_KeptFold)
        except msgspec.MsgspecError:
            kept = None  # the fold is then read from the journal, which costs only time
        if kept is not None and kept.format == FORMAT and kept.fold.version == document.version:
            fold = kept.fold
    async for record in journal.read(acks(name), after=fold.version):
        fold.apply(record.event)
    return fold


def keep(fold: Acknowledgements) -> Document:
    """Return the document from which `load` reads a fold again."""
    return Document(KIND, fold.id, fold.version, msgspec.json.encode(_KeptFold(FORMAT, fold)))
