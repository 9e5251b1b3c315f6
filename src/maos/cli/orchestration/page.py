"""The page about one run, for people: how far it is, who does what, who waits for whom, and how to go on."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from maos.cli.agent import words
from maos.cli.orchestration.standing import STYLES
from maos.cli.plain import clean

if TYPE_CHECKING:
    from maos.bus.history import SentMessage
    from maos.cli.orchestration.standing import RunStanding
    from maos.engine.questions import Open
    from maos.model.run import Run, TaskState

BAR_COLUMNS = 30
LABEL_WIDTH = 12
MESSAGES_SHOWN_MAX = 20
TASKS_SHOWN_MAX = 50

STATES = {
    "waiting_for_user": "waits for you",
    "waiting_for_tasks": "waits",
    "idle": "paused",
}
"""States as people say them; the others are said as they are."""

_TASK_MARKS = {"done": "✓", "failed": "✗", "running": "▶", "gated": "?", "waiting": "·"}
_TASK_ORDER = ("running", "gated", "failed", "waiting", "done")


def spoken(standing: RunStanding) -> str:
    """A run's state as people say it."""
    state = standing.now.state
    return standing.run.status if state == "idle" else STATES.get(state, state)


def bar(percent: int) -> str:
    """How far it is, as a bar."""
    filled = BAR_COLUMNS * max(0, min(100, percent)) // 100
    return "█" * filled + "░" * (BAR_COLUMNS - filled)


def show(standing: RunStanding, *, tasks: bool, messages: Sequence[SentMessage] | None) -> None:
    """The whole page."""
    from maos.cli import render
    from maos.cli.workflow import changes

    run, now = standing.run, standing.now
    render.line(
        (clean(run.id), "bold"), "  ", (spoken(standing), STYLES.get(now.state, "")), "  ",
        words.one_line(run.request, render.room_for_value(30)),
    )  # fmt: skip
    render.line((bar(now.progress), "green"), f" {now.progress:>3} %  ", (" · ".join(counts(standing)), "dim"))
    _field("doing", now.activity)
    if now.until_us:
        _field("goes on", f"at {words.when(now.until_us)}")
    _field("wrong", now.error)
    _field("to do", now.to_do)
    if now.stuck:
        _field("stuck", f"{', '.join(now.stuck)}: what they need has failed")
    if now.restored:
        _field("restored", f"{render.many(now.restored, 'time')}, last {words.when(now.restored_us)}, "
                           f"{now.restored_from.replace('_', ' ')}")  # fmt: skip
    _field("made from", changes.line(run))
    if standing.permanent is not None:
        _field("permanent", standing.permanent or "no cleanup takes anything of it")
    _field("summary", run.summary)
    _field("to go on", "" if now.state == "interrupted" else standing.go_on)
    if standing.attempts:
        render.line()
        agents(standing)
    if tasks:
        render.line()
        task_table(run)
    if messages is not None:
        render.line()
        message_table(messages, standing.messages)
    if standing.questions:
        render.line()
        questions(standing.questions)


def counts(standing: RunStanding) -> list[str]:
    """What it took so far, in numbers."""
    from maos.cli import render

    run = standing.run
    failed = sum(each.status == "failed" for each in run.tasks.values())
    found = [f"{run.done} of {render.many(len(run.tasks), 'task')} done"]
    if run.running:
        found.append(f"{run.running} running")
    if failed:
        found.append(f"{failed} failed")
    if standing.messages:
        found.append(render.many(standing.messages, "message"))
    if run.cost_usd:
        found.append(words.money(run.cost_usd))
    if run.tokens:
        found.append(f"{words.count(run.tokens)} tokens")
    return [*found, words.duration(standing.duration_us / 1e6)]


def agents(standing: RunStanding) -> None:
    """Who is at work."""
    from maos.cli import render
    from maos.cli.agent.standing import status_of

    columns = (
        render.Column("agent", style="bold", yields=1),
        render.Column("kind", yields=1),
        render.Column("status"),
        render.Column("turns", right=True),
        render.Column("cost", right=True),
        render.Column("doing", style="dim", yields=2),
    )
    rows = [
        (
            name,
            each.kind,
            status_of(each),
            str(each.turns or ""),
            words.money(each.total_cost_usd) if each.total_cost_usd else "",
            words.one_line(each.activity, 80),
        )
        for name, each in standing.attempts.items()
    ]
    render.table(columns, rows)


def task_table(run: Run) -> None:
    """The tasks, those that something happens to first."""
    from maos.cli import render

    columns = (
        render.Column(""),
        render.Column("task", style="bold", yields=1),
        render.Column("status"),
        render.Column("needs", style="dim", yields=2),
        render.Column("tries", right=True),
        render.Column("took", right=True),
        render.Column("cost", right=True),
        render.Column("result", style="dim", yields=3),
    )
    found = sorted(run.tasks.values(), key=lambda each: _TASK_ORDER.index(each.status))
    render.table(columns, [_task_row(each) for each in found[:TASKS_SHOWN_MAX]])
    if len(found) > TASKS_SHOWN_MAX:
        render.line((f"… and {len(found) - TASKS_SHOWN_MAX} more (--json shows all)", "dim"))


def _task_row(task: TaskState) -> tuple[str, ...]:
    took_us = task.ended_us - task.started_us if task.ended_us and task.started_us else 0
    return (
        _TASK_MARKS.get(task.status, ""),
        task.name,
        task.status,
        " ".join(task.needs),
        str(task.attempts or ""),
        words.duration(took_us / 1e6) if took_us > 0 else "",
        words.money(task.cost_usd) if task.cost_usd else "",
        words.one_line(task.why or task.result or str(task.plan.get("task", "")), 80),
    )


def message_table(messages: Sequence[SentMessage], total: int) -> None:
    """What the agents told each other, the newest last."""
    from maos.cli import render

    if not messages:
        render.line(("no messages", "dim"))
        return
    columns = (
        render.Column("sent"),
        render.Column("from", style="bold", yields=1),
        render.Column("to", yields=2),
        render.Column("type"),
        render.Column("message", style="dim", yields=3),
    )
    rows = [
        (
            render.when(each.at_us),
            each.sender,
            ", ".join(each.to) or each.topic,
            each.type,
            words.one_line(each.text, 120),
        )
        for _position, each in messages
    ]
    render.table(columns, rows)
    if total > len(messages):
        render.line((f"… and {render.many(total - len(messages), 'earlier message')} (--json shows all)", "dim"))


def questions(asked: Sequence[Open], everybody: Sequence[Open] | None = None) -> None:
    """What a person is asked, each with the command that answers it; shorter when all questions are known."""
    from maos.cli import render
    from maos.engine.questions import short, short_of_owner

    for each in asked:
        by = ", ".join(each.asked_by) or each.owner
        render.line(("? ", "bold yellow"), (clean(by), "bold"), f" {said(each)}")
        if each.context:
            render.line("  ", words.one_line(each.context, render.room_for_value(2)))
        if each.kind == "unknown":
            continue  # the command that settles it is its context
        is_free = each.kind == "question" or (each.kind == "workflow" and not each.choices)
        if each.choices and is_free:
            render.line(("  choose: ", "dim"), clean(" | ".join(each.choices)))
        if each.default is not None:
            render.line((f"  without an answer by {words.when(each.expires_us)}: ", "dim"), clean(each.default))
        id = short_of_owner(asked, each) if everybody is None else short(everybody, each)
        what = '"…"' if is_free else "|".join(map(shlex.quote, each.choices)) or "yes|no"
        render.line(("  answer with: ", "dim"), (f"maos answer {clean(id)} {what}", "bold"))


def said(each: Open) -> str:
    """A question on one line."""
    if each.kind == "permission":
        return f"asks to use {words.tool(each.tool, each.input)}"
    return f"asks: {words.one_line(each.text, 400)}"


def _field(label: str, text: str) -> None:
    from maos.cli import render

    if text:
        room = render.room_for_value(LABEL_WIDTH)
        render.line((f"  {label:<{LABEL_WIDTH - 2}}", "dim"), words.one_line(text, room))
