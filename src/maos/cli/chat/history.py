"""The earlier conversation about a run, with what happened to the run, in the order of the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from maos.bus.history import SentMessage
from maos.cli.agent import words
from maos.cli.runs import narration
from maos.model import chat, message, run
from maos.runs.status import is_executing

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.cli.runs.live import LiveView

SHOWN_MAX = 40


class PastChat(NamedTuple):
    """The end of a conversation."""

    lines: list[narration.Line]
    left_out: int
    typed: list[str]
    """What the person typed, all of it."""


async def read(m: Maos, id: str) -> PastChat:
    """The conversation about a run so far."""
    lines: list[narration.Line] = []
    typed: list[str] = []
    fold = run.Run(id=id)
    for each in await m.runs.conversations.read(id):
        if isinstance(each, SentMessage):
            said = each.message
            if said.sender != message.PERSON:
                lines.append((narration.task_of(id, said.sender), f"→ {words.one_line(said.text, 300)}", ""))
        elif each.stream == chat.stream(id):
            typed.append(each.data["text"])
            lines.append(("", f"› {words.one_line(each.data['text'], 1000)}", "bold"))
        else:
            fold.apply(each.event)
            lines += narration.of_event(fold, each.type, each.data)
    return PastChat(lines[-SHOWN_MAX:], max(0, len(lines) - SHOWN_MAX), typed)


def show(view: LiveView, past: PastChat) -> None:
    """Print the end of an earlier conversation."""
    if past.left_out:
        view.report(f"… {past.left_out} earlier lines left out")
    for task, text, style in past.lines:
        view.report(text, style, task=task)


async def latest(m: Maos) -> str:
    """The newest run or conversation that is unfinished and that no engine executes; empty when there is none."""
    unplanned = await m.runs.conversations.unplanned()
    left = [each for each in await m.runs.unfinished() if not is_executing(each)]
    if unplanned is not None and (not left or unplanned.at_us > left[0].updated_us):
        return unplanned.id
    return left[0].id if left else ""
