"""The dead letters: messages that could not be delivered, with the reason."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from maos.bus.composing import appends_of
from maos.bus.mailbox import Undeliverable, dead_letter, load, waiting
from maos.clock import MICROSECONDS, Clock
from maos.errors import Conflict, NotFound
from maos.journal.codec import Event
from maos.journal.journal import Append, Journal
from maos.model.message import Message, dead, inbox, message


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


async def expire(journal: Journal, clock: Clock, name: str, *, restore_s: float = 0.0) -> None:
    """Make dead letters of what waits for somebody beyond its time, where nobody receives who would."""
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
            continue  # a receiver has written meanwhile


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
            hint = "`maos message dead` lists them; each can be sent again once"
            raise NotFound(f"{name!r} has no dead letter {version}", hint=hint)
        said = parked.message._replace(at_us=clock.now_us())
        try:
            await journal.append_all(
                [
                    Append(dead(name), [Event("dead_letter_requeued", {"version": version})], expected=read_until),
                    *appends_of(said, [name]),
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
