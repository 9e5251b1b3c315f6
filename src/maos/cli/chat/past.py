"""What was said before: the conversation about a run and what became of it, in the order in which it happened."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from maos.cli.agent import words
from maos.cli.orchestrate import narrating
from maos.cli.orchestrate.interrupted import is_carried_out
from maos.engine import orchestration
from maos.journal.codec import Event
from maos.model import chat, message, run

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.cli.orchestrate.screen import RunScreen

SHOWN_MAX = 40


class Past(NamedTuple):
    """The end of a conversation."""

    lines: list[narrating.Line]
    left_out: int
    typed: list[str]
    """What the person typed, all of it."""


async def read(m: Maos, id: str) -> Past:
    """The conversation about a run so far."""
    shown: deque[tuple[int, narrating.Line]] = deque(maxlen=SHOWN_MAX * 4)
    typed: list[str] = []
    total = 0
    async for record in m.journal.read(chat.stream(id)):
        typed.append(record.data["text"])
        shown.append((record.position, ("", f"› {words.one_line(record.data['text'], 1000)}", "bold")))
        total += 1
    found = list(shown)
    shown.clear()
    fold = run.Run(id=id)
    async for record in m.journal.read(run.stream(id)):
        fold.apply(record.type, record.data)
        for line in narrating.of_events(fold, [Event(record.type, record.data)]):
            shown.append((record.position, line))
            total += 1
    found += shown
    shown.clear()
    async for record in m.journal.read(message.history(id)):
        said = message.message(record.data)
        if said.sender != message.PERSON:
            name = narrating.task_of(id, said.sender)
            shown.append((record.position, (name, f"→ {words.one_line(said.text, 300)}", "")))
            total += 1
    found = sorted([*found, *shown], key=lambda each: each[0])[-SHOWN_MAX:]
    return Past([line for _position, line in found], total - len(found), typed)


def show(screen: RunScreen, before: Past) -> None:
    """The end of it."""
    if before.left_out:
        screen.tell(f"… {before.left_out} earlier lines left out")
    for name, text, style in before.lines:
        screen.told(name, text, style)


class Unplanned(NamedTuple):
    """A conversation about something that was asked for, and of which there is no run."""

    id: str
    request: str
    at_us: int


async def unplanned(m: Maos, beginning: str = "") -> Unplanned | None:
    """The newest such conversation whose id begins like this; not one whose plan was refused."""
    newest: Unplanned | None = None
    async for name in m.journal.streams(chat.stream(beginning)):
        id = name.removeprefix(chat.stream(""))
        if await m.journal.version(run.stream(id)):
            continue
        request, at_us, refused = "", 0, False
        async for record in m.journal.read(name):
            request = record.data.get("request", request)
            refused = record.data.get("refused", False)
            at_us = record.data["at_us"]
        if request and not refused and (newest is None or at_us > newest.at_us):
            newest = Unplanned(id, request, at_us)
    return newest


async def latest(m: Maos) -> str:
    """The run or conversation that was left in the middle last; nothing when there is none."""
    waits = await unplanned(m)
    left = [each for each in await orchestration.unfinished(m.runs) if not is_carried_out(each)]
    if waits is not None and (not left or waits.at_us > left[0].updated_us):
        return waits.id
    return left[0].id if left else ""
