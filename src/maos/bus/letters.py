"""What waits in inboxes, and the dead letters: what could not be delivered, with the reason."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from maos.bus.receiving import load, reason_to_park
from maos.clock import MICROSECONDS, Clock
from maos.errors import Conflict, NotFound
from maos.journal.codec import Event
from maos.journal.journal import Append, Journal
from maos.model.message import Message, acks, dead, dead_letter, history, inbox, message


class Letter(NamedTuple):
    """A message that was given up."""

    name: str
    """Whose it was."""
    version: int
    """Its place in the inbox."""
    why: str
    tries: int
    parked_us: int
    message: Message


class Waiting(NamedTuple):
    """A message that is not acknowledged."""

    version: int
    tries: int
    message: Message


async def waiting(journal: Journal, name: str) -> AsyncIterator[Waiting]:
    """What somebody was sent and has not acknowledged, the oldest first."""
    fold = await load(journal, name)
    async for record in journal.read(inbox(name), after=fold.floor):
        if record.type == "message_sent" and record.version not in fold.settled:
            said = message(record.data, version=record.version)
            yield Waiting(record.version, fold.tries.get(record.version, 0), said)


async def expire(journal: Journal, clock: Clock, name: str, *, restore_s: float = 0.0) -> None:
    """Make dead letters of what waits for somebody beyond its time, where nobody receives who would."""
    while True:
        fold = await load(journal, name)
        now_us = clock.now_us()
        oldest_us = now_us - int(restore_s * MICROSECONDS) if restore_s else 0
        waits = [(each, reason_to_park(each.message, now_us, oldest_us)) async for each in waiting(journal, name)]
        overdue = [(each, why) for each, why in waits if why]
        if not overdue:
            return
        parked = Event("message_dead_lettered", {"versions": [each.version for each, _why in overdue]})
        dead_ones = [Event("dead_letter_added", dead_letter(each.message, why, each.tries)) for each, why in overdue]
        try:
            await journal.append_all(
                [Append(acks(name), [parked], expected=fold.version), Append(dead(name), dead_ones)]
            )
        except Conflict:
            continue  # somebody receives after all


async def letters(journal: Journal, name: str | None) -> AsyncIterator[Letter]:
    """The dead letters of somebody, or of all, that were not sent again."""
    names = [name] if name is not None else [each.removeprefix(dead("")) async for each in journal.streams(dead(""))]
    for each in names:
        found, _version = await _of(journal, each)
        for each_letter in found.values():
            yield each_letter


async def revive(journal: Journal, clock: Clock, name: str, version: int) -> None:
    """Send a dead letter again; whoever asks for it twice does it once."""
    while True:
        found, read_until = await _of(journal, name)
        parked = found.get(version)
        if parked is None:
            hint = "`maos messages dead` lists them; each can be sent again once"
            raise NotFound(f"{name!r} has no dead letter {version}", hint=hint)
        said = parked.message._replace(at_us=clock.now_us())
        sent = Event("message_sent", said.data())
        try:
            await journal.append_all(
                [
                    Append(dead(name), [Event("dead_letter_requeued", {"version": version})], expected=read_until),
                    Append(inbox(name), [sent]),
                    Append(history(said.run), [Event("message_sent", {**said.data(), "to": [name]})]),
                ]
            )
            return
        except Conflict:
            continue  # another letter came, or somebody else sends this one


async def _of(journal: Journal, name: str) -> tuple[dict[int, Letter], int]:
    """The dead letters of somebody by their place in the inbox, and up to where they were read."""
    found: dict[int, Letter] = {}
    read_until = 0
    async for record in journal.read(dead(name)):
        read_until = record.version
        version = record.data["version"]
        if record.type == "dead_letter_requeued":
            del found[version]
            continue
        sent = await journal.event(inbox(name), version)
        if sent is not None:
            said = message(sent.data, version=version)
            found[version] = Letter(name, version, record.data["why"], record.data["tries"], record.time_us, said)
    return found, read_until
