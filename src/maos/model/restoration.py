"""What an agent is told when it goes on after an interruption (R-206): what happened, what is done, what is unknown."""

from __future__ import annotations

from collections.abc import Sequence

from maos.model.attempt import Attempt
from maos.model.failure import TABLE

TOOL_CHARS_MAX = 300
RESULT_CHARS_MAX = 4000
TAKEN_BACK = (
    "The run you are part of goes on from an earlier moment. You were interrupted there, and now go on. Your files are "
    "as they were then, in a folder of your own: {folder}. Work there, whatever other folder you remember. What you or "
    "others did after that moment does not count."
)

MOVED = (
    "Your files were moved meanwhile: what was in {before} is now in {folder}. Work there, whatever other folder you "
    "remember."
)


def restoration(before: Attempt, *, remembers: bool, messages: Sequence[str] = ()) -> str:
    """The message for an agent whose last attempt was `before`.

    `remembers` is whether it goes on in its own session; without it, it must be told the task and what it had found.
    `messages` are told as they are: `maos.model.message.spoken` has quoted what must be.
    """
    why = TABLE[before.failure].meaning if before.failure in TABLE else "it had finished its turn"
    parts = [f"You were interrupted ({why}) and now go on. Your files are as you left them."]
    if before.origin:
        parts = [TAKEN_BACK.format(folder=before.order["cwd"])]
    elif before.moved_from:
        parts.append(MOVED.format(before=before.moved_from, folder=before.order["cwd"]))
    if not remembers:
        parts.append(f"You do not remember it, so here is the task again:\n\n{before.task}")
        if before.last_text:
            parts.append(f"The last you said was:\n\n{_short(before.last_text, RESULT_CHARS_MAX)}")
        found = [f"- {each.text}" for each in before.discoveries]
        if found:
            parts.append("You had reported:\n" + "\n".join(found))
    if before.tools_done:
        parts.append(f"{before.tools_done} tool calls were completed and recorded; do not repeat them.")
    if before.tools_open:
        unknown = before.tools_open.values()
        tools = [f"- {tool.name}: {_short(str(tool.input), TOOL_CHARS_MAX)}" for tool in unknown]
        parts.append(
            "It is not known whether these took effect. Check before you rely on them or run them again:\n"
            + "\n".join(tools)
        )
    if messages:
        parts.append("\n\n".join(("These messages came meanwhile.", *messages)))
    parts.append("Continue from where you stopped and finish the task.")
    return "\n\n".join(parts)


def _short(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else text[:chars_max] + " …"
