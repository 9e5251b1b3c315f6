"""Runs, their tasks, agents, messages and questions: as tables, pages, summaries, and documents for programs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from maos.cli import render, words
from maos.cli.agent.status import AGENTS, code_of
from maos.cli.documents import Document, of, time
from maos.cli.failures import LIMIT_REACHED, STOPPED
from maos.cli.render import Column, Listing, clean
from maos.model.failure import TABLE
from maos.model.question import PERMISSION, Open, short

if TYPE_CHECKING:
    from maos.bus.history import SentMessage
    from maos.model.run import Run, TaskState
    from maos.runs.file_changes import Look
    from maos.runs.status import RunSummary, RunView
    from maos.views.agents import AgentStatus

STYLES = {
    "initializing": "dim", "idle": "dim", "working": "green", "waiting_for_user": "bold yellow",
    "waiting_for_tasks": "yellow", "blocked": "bold red", "completed": "", "failed": "red", "cancelled": "dim",
    "interrupted": "bold red",
}  # fmt: skip
STATES = {"waiting_for_user": "waits for you", "waiting_for_tasks": "waits"}
"""States as people say them; the others are said as they are."""
BAR_COLUMNS = 30
LABEL_WIDTH = 14
MESSAGES_SHOWN_MAX = 20
TASKS_SHOWN_MAX = 50
DISCOVERIES_SHOWN_MAX = 10
FILES_SHOWN_MAX = 20
RESULT_CHARS_MAX = 4000
_SPECIAL = str.maketrans({char: f"\\{char}" for char in "\\`*_[]<>|#"})

_TASK_MARKS = {
    "running": "▶", "gated": "?", "failed": "✗", "waiting": "·", "skipped": "–", "done": "✓",
}  # fmt: skip
"""In the order in which tasks are shown."""


def spoken(status: RunView) -> str:
    """A run's state as people say it."""
    state = status.now.state
    return status.run.status if state == "idle" else STATES.get(state, state)


def to_do(status: RunView) -> str:
    """What a person can do about a run; the logs that it names are those of the task that failed first."""
    failed = next((each.name for each in status.run.tasks.values() if each.status == "failed"), "TASK")
    return status.now.to_do.replace("`maos agent logs`", f"`maos logs {status.run.id}/{failed}`")


def _took(task: TaskState) -> str:
    """How long a task took; empty while it has not ended."""
    took_us = task.ended_us - task.started_us if task.ended_us and task.started_us else 0
    return words.duration(took_us / 1e6) if took_us > 0 else ""


def _cost(usd: float) -> str:
    """What something cost; empty for nothing."""
    return words.money(usd) if usd else ""


# --- documents ---------------------------------------------------------------------------------------------------


def summary(status: RunView) -> Document:
    """A run in a list (R-106)."""
    run, now = status.run, status.now
    return {
        **of(run, "id", "request", "status", "cost_usd", "tokens", "created_us", "updated_us"),
        **time(run.ended_us or None, "completed"),
        **of(now, "state", "activity"),
        "progress": run.progress,
        "error": now.error,
        "total_agents": len(run.tasks),
        "successful_agents": run.done,
        "active_agents": sum(each.is_open for each in status.attempts.values()),
        "message_count": status.messages,
        "duration_s": status.duration_us / 1e6,
        "to_do": to_do(status),
        "questions": len(status.questions),
        "permanent": status.permanent is not None,
        "resumable": status.resumable or None,
    }


def document(status: RunView, *, tasks: bool = False, messages: Sequence[SentMessage] | None = None) -> Document:
    """Everything that is known of a run (R-204)."""
    from maos.model.plan import Plan, Task, batches

    run, now = status.run, status.now
    again = run.times_restored
    return {
        **summary(status),
        **made_from(run),
        **of(run, "folder", "options", "summary", "commit"),
        "engine": run.owner,
        "batches": batches(Plan(tasks=[Task(name=each.name, needs=each.needs) for each in run.tasks.values()])),
        "spawned_tasks": [each.name for each in run.tasks.values() if each.attempts],
        "stuck_tasks": list(now.stuck),
        "pause_requested": status.commands.pause or None,
        **time(now.until_us or None, "resumes"),
        "restoration_count": again,
        "restoration_source": run.restored_from if again else None,
        **time(run.restored_us if again else None, "last_restored"),
        **AGENTS.document(agents_of(status)),
        "pending_questions": [question_document(each) for each in status.questions],
        "checkpoints": [{**of(each, "name", "version"), **time(each.at_us)} for each in run.checkpoints],
        **({"tasks": [task_document(each, run) for each in run.tasks.values()]} if tasks else {}),
        **(MESSAGES.document(messages) if messages is not None else {}),
    }


def task_document(task: TaskState, run: Run) -> Document:
    """A task of a run (R-107)."""
    return {
        "task": task.name,
        "description": task.plan.get("task", "") or " ".join(task.plan.get("command", ())),
        "agent": run.agent(task.name),
        **of(task, "status", "needs", "attempts", "result", "cost_usd", "tokens", "started_us", "not_before_us"),
        **time(task.ended_us or None, "completed"),
        "failure": task.failure or None,
        "why": task.why or None,
    }


def made_from(run: Run, on_change: str = "keep") -> Document:
    """The file that a run was made from, and how it has changed since; nothing when it was made from none."""
    from maos.runs.file_changes import look

    found = look(run)
    return {} if found is None else {"made_from": look_document(found, on_change)}


def look_document(found: Look, on_change: str) -> Document:
    """A file that a run was made from, as it was found now."""
    head = {"file": found.origin.file, "state": found.state, "on_change": on_change}
    return {**head, **of(found.changes), "what": found.what or None}


def agents_of(status: RunView) -> list[AgentStatus]:
    """The agents of a run that are at work, each by its newest attempt."""
    from maos.views.agents import status_of

    return [status_of([each]) for each in status.attempts.values()]


def _message(each: SentMessage) -> Document:
    said = each.message
    known = {**of(said, "id", "to", "type", "text", "topic", "metadata"), "reply_to": said.reply_to or None}
    return {**known, "from": said.sender, **time(said.at_us)}


# --- tables ------------------------------------------------------------------------------------------------------

RUNS: Listing[RunView] = Listing(
    "runs",
    (
        Column("id", lambda each: each.run.id, style="bold"),
        Column("status", lambda each: spoken(each) + ("" if each.permanent is None else ", pinned")),
        Column("done", lambda each: f"{each.run.progress} %", right=True),
        Column("tasks", lambda each: f"{each.run.done}/{len(each.run.tasks)}", right=True),
        Column("cost", lambda each: _cost(each.run.cost_usd), right=True),
        Column("started", lambda each: render.when(each.run.created_us)),
        Column("request", lambda each: words.one_line(each.run.request, 60), yields=2),
        Column("doing", lambda each: words.one_line(each.now.error or each.now.activity, 80), style="dim", yields=3),
    ),
    of=summary,
)


def tasks_of(run: Run) -> Listing[TaskState]:
    """How the tasks of a run are listed."""

    def agent(task: TaskState) -> str:
        usual = "shell" if task.plan.get("command") else run.options.get("kind", "")
        return str(task.plan.get("agent") or task.plan.get("kind") or usual)

    def result(task: TaskState) -> str:
        text = task.why or task.result or str(task.plan.get("task", ""))
        return words.one_line(text.strip().partition("\n")[0], 80)

    return Listing(
        "tasks",
        (
            Column("", lambda each: _TASK_MARKS.get(each.status, "")),
            Column("task", lambda each: each.name, style="bold", yields=1),
            Column("agent", agent, yields=1),
            Column("status", lambda each: each.status),
            Column("needs", lambda each: " ".join(each.needs), style="dim", yields=2),
            Column("attempts", lambda each: str(each.attempts or ""), right=True),
            Column("took", _took, right=True),
            Column("cost", lambda each: _cost(each.cost_usd), right=True),
            Column("result", result, style="dim", yields=3),
        ),
    )


MESSAGES: Listing[SentMessage] = Listing(
    "messages",
    (
        Column("sent", lambda each: render.when(each.message.at_us)),
        Column("from", lambda each: each.message.sender, style="bold", yields=1),
        Column("to", lambda each: ", ".join(each.message.to) or each.message.topic, yields=2),
        Column("type", lambda each: each.message.type),
        Column("message", lambda each: words.one_line(each.message.text, 120), style="dim", yields=3),
    ),
    empty="no messages",
    of=_message,
)


def show_messages(messages: Sequence[SentMessage], total: int) -> None:
    """Print messages between agents, the newest last, and how many there were before."""
    MESSAGES.show(messages, as_json=False)
    if total > len(messages):
        render.line((f"… and {render.many(total - len(messages), 'earlier message')} (--json prints all)", "dim"))


# --- questions ---------------------------------------------------------------------------------------------------


def question_document(asked: Open) -> Document:
    """A question as programs see it (R-207)."""
    is_permission = asked.kind == PERMISSION
    return {
        "id": asked.ref,
        "kind": asked.kind,
        "run": None if is_permission else asked.owner,
        "question": asked.text,
        "tool": {"name": asked.tool, "input": asked.input} if is_permission else None,
        **of(asked, "choices", "context", "asked_us", "asked_by", "default", "expires_us", "recorded"),
    }


def show_open(asked: Sequence[Open], others: Sequence[Open] | None = None) -> None:
    """Print questions, each with the command that answers it; its id is shorter when the questions of all are known."""
    for each in asked:
        by = ", ".join(each.asked_by) or each.owner
        render.line(("? ", "bold yellow"), (clean(by), "bold"), f" {_line(each)}")
        if each.context:
            render.line("  ", words.one_line(each.context, render.room_for_value(2)))
        if each.kind == "unknown":
            continue  # the command that resolves it is its context
        is_free = each.kind == "question" or (each.kind == "workflow" and not each.choices)
        if each.choices and is_free:
            render.line(("  choose: ", "dim"), clean(" | ".join(each.choices)))
        if each.default is not None:
            render.line((f"  without an answer by {render.when(each.expires_us)}: ", "dim"), clean(each.default))
        id = short(each, asked, others)
        what = '"…"' if is_free else "|".join(map(shlex.quote, each.choices)) or "yes|no"
        render.line(("  answer with: ", "dim"), (f"maos answer {clean(id)} {what}", "bold"))


def _line(each: Open) -> str:
    if each.kind == "permission":
        return f"asks to use {words.tool(each.tool, each.input)}"
    return f"asks: {words.one_line(each.text, 400)}"


# --- the page ----------------------------------------------------------------------------------------------------


def show(status: RunView, *, tasks: bool, messages: Sequence[SentMessage] | None) -> None:
    """Print the whole page about a run."""
    run, now = status.run, status.now
    render.line(
        (clean(run.id), "bold"), "  ", (spoken(status), STYLES.get(now.state, "")), "  ",
        words.one_line(run.request, render.room_for_value(30)),
    )  # fmt: skip
    filled = BAR_COLUMNS * max(0, min(100, run.progress)) // 100
    bar = "█" * filled + "░" * (BAR_COLUMNS - filled)
    render.line((bar, "green"), f" {run.progress:>3} %  ", (" · ".join(_counts(status)), "dim"))
    for label, text in _fields(status):
        if text:
            room = render.room_for_value(LABEL_WIDTH)
            render.line((f"  {label:<{LABEL_WIDTH - 2}}", "dim"), words.one_line(text, room))
    if status.attempts:
        render.line()
        AGENTS.table(agents_of(status))
    if tasks:
        render.line()
        found = sorted(run.tasks.values(), key=lambda each: list(_TASK_MARKS).index(each.status))
        tasks_of(run).table(found, shown_max=TASKS_SHOWN_MAX)
    if messages is not None:
        render.line()
        show_messages(messages, status.messages)
    if status.questions:
        render.line()
        show_open(status.questions)


def _fields(status: RunView) -> list[tuple[str, str]]:
    run, now = status.run, status.now
    again = run.times_restored
    restored = f"{render.many(again, 'time')}, last {render.when(run.restored_us)}, {run.restored_from}"
    return [
        ("doing", now.activity),
        ("resumes", f"at {render.when(now.until_us)}" if now.until_us else ""),
        ("error", now.error),
        ("to do", to_do(status)),
        ("stuck", f"{', '.join(now.stuck)}: what they need has failed" if now.stuck else ""),
        ("restored", restored.replace("_", " ") if again else ""),
        ("plan file", _plan_file(run)),
        ("pinned", status.permanent or "exempt from cleanup" if status.permanent is not None else ""),
        ("summary", run.summary),
        ("resume with", "" if now.state == "interrupted" else status.resumable),
    ]


def _plan_file(run: Run) -> str:
    """The file that a run was made from, and whether it has changed; empty when it was made from none."""
    from maos.runs.file_changes import STATES, look

    found = look(run)
    if found is None:
        return ""
    state = STATES.get(found.state, "")
    return f"{found.origin.file}{f', which {state}' if state else ''}"


def _figures(run: Run, took_us: int) -> list[str]:
    """What a run took so far, in numbers."""
    found = [
        _cost(run.cost_usd),
        f"{words.count(run.tokens)} tokens" if run.tokens else "",
        words.duration(took_us / 1e6),
    ]
    return [each for each in found if each]


def _counts(status: RunView) -> list[str]:
    run = status.run
    failed = sum(each.status == "failed" for each in run.tasks.values())
    found: list[Any] = [
        f"{run.done} of {render.many(len(run.tasks), 'task')} done",
        run.running and f"{run.running} running",
        failed and f"{failed} failed",
        status.messages and render.many(status.messages, "message"),
    ]
    return [*(each for each in found if each), *_figures(run, status.duration_us)]


# --- the summary -------------------------------------------------------------------------------------------------


def exit_code(run: Run) -> int:
    """The exit code of a run: 0 if it completed; else the reason says who can do something about it."""
    from maos.runs.budgets import is_at_limit

    if run.status == "completed":
        return 0
    if run.status == "paused":
        return LIMIT_REACHED if is_at_limit(run) else STOPPED
    failed = [task.failure for task in run.tasks.values() if task.status == "failed"]
    return code_of(failed[0] if failed else "")


def show_summary(found: RunSummary) -> None:
    """Print the summary of a run that has ended or is paused."""
    run = found.run
    style = {"completed": "green", "failed": "red"}.get(run.status, "yellow")
    render.line()
    render.line((run.status, f"bold {style}"), "".join(f" · {each}" for each in _end_figures(run)))
    if run.why and run.status != "completed":
        render.line(f"  {clean(run.why)}")
    tasks_of(run).table(list(run.tasks.values()), shown_max=TASKS_SHOWN_MAX)
    if found.discoveries:
        render.line(f"  {render.many(len(found.discoveries), 'discovery', 'discoveries')}")
    for each in found.discoveries[-DISCOVERIES_SHOWN_MAX:]:
        text = words.one_line(f"{each['task']}: {each.get('text', '')}", 100)
        render.line("    ", ("★ ", "yellow"), text)
    _show_files(found)
    for text in _advice(run):
        render.line(f"  {text}")
    sys.stdout.flush()


def _end_figures(run: Run) -> list[str]:
    """How far it came and what it took."""
    took_us = max(0, (run.ended_us or run.updated_us) - run.created_us)
    return [f"{run.done} of {len(run.tasks)} tasks done", *_figures(run, took_us)]


def _show_files(found: RunSummary) -> None:
    if found.files is None:
        return
    render.line(f"  {words.changed(found.files)}")
    if not found.files:
        return
    for each in found.files[:FILES_SHOWN_MAX]:
        render.line("    ", clean(each.path), (f"  {words.counts(each)}", "dim"))
    if len(found.files) > FILES_SHOWN_MAX:
        render.line((f"    … and {len(found.files) - FILES_SHOWN_MAX} more", "dim"))
    render.line(f"  to merge them: maos merge {found.run.id}")


def _advice(run: Run) -> list[str]:
    """What a person can do next."""
    lines: list[str] = []
    for task in run.tasks.values():
        known = TABLE.get(task.failure) if task.status == "failed" else None
        if known is not None and known.hint and len(lines) < DISCOVERIES_SHOWN_MAX:
            hint = known.hint.replace("`maos agent logs`", f"`maos logs {run.id}/{task.name}`")
            lines.append(f"{clean(task.name)}: {hint}")
    if run.status != "completed":
        lines.append(f"resume with: maos resume {run.id}")
    return lines


def run_document(run: Run) -> Document:
    """A run as it begins and ends."""
    return {
        "run": run.id,
        **of(run, "status", "request", "folder", "done", "cost_usd", "tokens", "why", "created_us", "ended_us"),
        "tasks": [task_document(task, run) for task in run.tasks.values()],
    }


def summary_document(found: RunSummary) -> Document:
    """A run with what its agents found and changed."""
    return {
        **run_document(found.run),
        "discoveries": found.discoveries,
        "files": of(found.files),
        "commit": found.run.commit or None,
        "resumable": None if found.run.status == "completed" else f"maos resume {found.run.id}",
    }


def markdown(found: RunSummary) -> str:
    """The summary as Markdown; what agents said is quoted, so that it cannot pass for the text of maos."""
    run = found.run
    title = words.one_line(run.request, 100) or run.id
    lines = [f"# {_plain(title)}", "", f"{run.status} · {' · '.join(_end_figures(run))}", ""]
    if run.why and run.status != "completed":
        lines += [_plain(run.why), ""]
    columns = tasks_of(run).columns[1:-1]  # without the mark and the result
    lines += [f"| {' | '.join(each.title for each in columns)} |", "|---" * len(columns) + "|"]
    for task in run.tasks.values():
        lines.append(f"| {' | '.join(_plain(each.text(task)) for each in columns)} |")
    if found.discoveries:
        lines += ["", "## Discoveries", ""]
        lines += [f"- {_plain(each['task'])}: {_plain(str(each.get('text', '')))}" for each in found.discoveries]
    if found.files:
        lines += ["", "## Files", ""]
        lines += [f"- {_plain(each.path)} {words.counts(each)}" for each in found.files]
    said = [task for task in run.tasks.values() if task.result.strip()]
    if said:
        lines += ["", "## Results"]
    for task in said:
        quoted = clean(task.result.strip()[:RESULT_CHARS_MAX], lines=True).splitlines()
        lines += ["", f"### {_plain(task.name)}", "", *(f"> {line}".rstrip() for line in quoted)]
    if next_ := _advice(run):
        lines += ["", "## Next", "", *(f"- {each}" for each in next_)]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """A text on one line that Markdown takes for nothing else."""
    return clean(" ".join(text.split())).translate(_SPECIAL)
