"""The one way to hand out, acknowledge and dead-letter the messages of an inbox, and to read which are left."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

import msgspec

from maos.bus.outbox import appends_of
from maos.clock import MICROSECONDS, Clock
from maos.errors import Conflict, NotFound
from maos.journal.journal import Append, Journal
from maos.model.events.messages import (
    DeadLetterAdded,
    DeadLetterRequeued,
    MessageAcknowledged,
    MessageDeadLettered,
    MessageDelivered,
    MessageSent,
)
from maos.model.message import FORMAT, Acknowledgements, Message, acks, dead, inbox, message
from maos.store.contract import Document

KIND = "acks"
"""The kind of the documents that keep folds of acknowledgements."""


class Waiting(NamedTuple):
    """A message that is not acknowledged."""

    message: Message
    tries: int


class Undeliverable(NamedTuple):
    """A message that becomes a dead letter, with the reason."""

    message: Message
    why: str
    tries: int


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


def dead_letter(
    name: str, letters: Sequence[Undeliverable], *, floor: int = 0, expected: int | None = None
) -> list[Append]:
    """Return the appends that make messages dead letters; `expected` is the version of the acknowledgements."""
    if not letters:
        return []
    resolved = MessageDeadLettered(versions=[each.message.version for each in letters], floor=floor)
    added = [
        DeadLetterAdded(version=said.version, why=why, tries=tries, message=said.id) for said, why, tries in letters
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


async def waiting(journal: Journal, name: str) -> AsyncIterator[Waiting]:
    """Yield the messages of an inbox that are neither acknowledged nor dead letters, the oldest first."""
    fold = await load(journal, name)
    async for record in journal.read(inbox(name), after=fold.floor):
        if isinstance(record.event, MessageSent) and not fold.is_resolved(record.version):
            said = message(record.event, version=record.version)
            yield Waiting(said, fold.tries.get(record.version, 0))


# --- dead letters -----------------------------------------------------------------------------------------------------


async def expire(journal: Journal, clock: Clock, name: str, *, restore_s: float = 0.0) -> None:
    """Make the expired messages of an inbox dead letters, and those too old to restore; a receiver does it itself."""
    while True:
        fold = await load(journal, name)
        now_us = clock.now_us()
        oldest_us = now_us - int(restore_s * MICROSECONDS) if restore_s else 0
        given_up = [
            Undeliverable(each.message, why, each.tries)
            async for each in waiting(journal, name)
            if (why := each.message.reason_to_give_up(now_us, oldest_us))
        ]
        if not given_up:
            return
        try:
            await journal.append_all(dead_letter(name, given_up, expected=fold.version))
            return
        except Conflict:
            continue  # a receiver has acknowledged a message meanwhile


async def dead_letters(journal: Journal, name: str | None) -> AsyncIterator[DeadLetter]:
    """Yield the dead letters of one inbox, or of all, that were not requeued."""
    names = [name] if name is not None else [each.removeprefix(dead("")) async for each in journal.streams(dead(""))]
    for each in names:
        found, _version = await _dead_letters_of(journal, each)
        for letter in found.values():
            yield letter


async def requeue(journal: Journal, clock: Clock, name: str, version: int) -> None:
    """Send a dead letter again, once."""
    while True:
        found, read_until = await _dead_letters_of(journal, name)
        letter = found.get(version)
        if letter is None:
            hint = "`maos message dead` lists them; each can be sent again once"
            raise NotFound(f"{name!r} has no dead letter {version}", hint=hint)
        said = letter.message._replace(at_us=clock.now_us())
        requeued = Append(dead(name), [DeadLetterRequeued(version=version)], expected=read_until)
        try:
            await journal.append_all([requeued, *appends_of(said, [name])])
            return
        except Conflict:
            continue  # there is another dead letter, or this one was requeued meanwhile


async def _dead_letters_of(journal: Journal, name: str) -> tuple[dict[int, DeadLetter], int]:
    """The dead letters of an inbox by their versions in it, and the version up to which they were read."""
    found: dict[int, DeadLetter] = {}
    read_until = 0
    async for record in journal.read(dead(name)):
        read_until = record.version
        match record.event:
            case DeadLetterRequeued(version=version):
                del found[version]
            case DeadLetterAdded(version=version, why=why, tries=tries):
                sent = await journal.event(inbox(name), version)
                if sent is not None:
                    said = message(sent.event, version=version)
                    found[version] = DeadLetter(name, version, why, tries, record.time_us, said)
    return found, read_until
