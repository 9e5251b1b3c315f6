"""The page about one run, for people: how far it is, who does what, who waits for whom, and how to go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from maos.cli import questions, render
from maos.cli.agent import words
from maos.cli.plain import clean
from maos.cli.workflow import changes

if TYPE_CHECKING:
    from maos.bus.history import SentMessage
    from maos.model.run import Run, TaskState
    from maos.runs.status import RunView

STYLES = {
    "initializing": "dim", "idle": "dim", "working": "green", "waiting_for_user": "bold yellow",
    "waiting_for_tasks": "yellow", "blocked": "bold red", "completed": "", "failed": "red", "cancelled": "dim",
    "interrupted": "bold red",
}  # fmt: skip
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

_TASK_MARKS = {"done": "✓", "failed": "✗", "skipped": "–", "running": "▶", "gated": "?", "waiting": "·"}
_TASK_ORDER = ("running", "gated", "failed", "waiting", "skipped", "done")


def spoken(status: RunView) -> str:
    """A run's state as people say it."""
    state = status.now.state
    return status.run.status if state == "idle" else STATES.get(state, state)


def bar(percent: int) -> str:
    """How far it is, as a bar."""
    filled = BAR_COLUMNS * max(0, min(100, percent)) // 100
    return "█" * filled + "░" * (BAR_COLUMNS - filled)


def show(status: RunView, *, tasks: bool, messages: Sequence[SentMessage] | None) -> None:
    """The whole page."""

    run, now = status.run, status.now
    render.line(
        (clean(run.id), "bold"), "  ", (spoken(status), STYLES.get(now.state, "")), "  ",
        words.one_line(run.request, render.room_for_value(30)),
    )  # fmt: skip
    render.line((bar(now.progress), "green"), f" {now.progress:>3} %  ", (" · ".join(counts(status)), "dim"))
    _field("doing", now.activity)
    if now.until_us:
        _field("goes on", f"at {render.when(now.until_us)}")
    _field("wrong", now.error)
    _field("to do", now.to_do)
    if now.stuck:
        _field("stuck", f"{', '.join(now.stuck)}: what they need has failed")
    if now.restored:
        _field("restored", f"{render.many(now.restored, 'time')}, last {render.when(now.restored_us)}, "
                           f"{now.restored_from.replace('_', ' ')}")  # fmt: skip
    _field("made from", changes.line(run))
    if status.permanent is not None:
        _field("permanent", status.permanent or "no cleanup takes anything of it")
    _field("summary", run.summary)
    _field("to go on", "" if now.state == "interrupted" else status.go_on)
    if status.attempts:
        render.line()
        agents(status)
    if tasks:
        render.line()
        task_table(run)
    if messages is not None:
        render.line()
        message_table(messages, status.messages)
    if status.questions:
        render.line()
        questions.show_open(status.questions)


def counts(status: RunView) -> list[str]:
    """What it took so far, in numbers."""

    run = status.run
    failed = sum(each.status == "failed" for each in run.tasks.values())
    found = [f"{run.done} of {render.many(len(run.tasks), 'task')} done"]
    if run.running:
        found.append(f"{run.running} running")
    if failed:
        found.append(f"{failed} failed")
    if status.messages:
        found.append(render.many(status.messages, "message"))
    if run.cost_usd:
        found.append(words.money(run.cost_usd))
    if run.tokens:
        found.append(f"{words.count(run.tokens)} tokens")
    return [*found, words.duration(status.duration_us / 1e6)]


def agents(status: RunView) -> None:
    """Who is at work."""
    from maos.views.agents import state_of

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
            state_of(each),
            str(each.turns or ""),
            words.money(each.total_cost_usd) if each.total_cost_usd else "",
            words.one_line(each.activity, 80),
        )
        for name, each in status.attempts.items()
    ]
    render.table(columns, rows)


def task_table(run: Run) -> None:
    """The tasks, those that something happens to first."""

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


def _field(label: str, text: str) -> None:

    if text:
        room = render.room_for_value(LABEL_WIDTH)
        render.line((f"  {label:<{LABEL_WIDTH - 2}}", "dim"), words.one_line(text, room))
