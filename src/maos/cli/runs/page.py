"""Runs, their tasks, agents, messages and questions: as tables, pages, summaries, and documents for programs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from maos.cli import render, words
from maos.cli.agent.status import AGENTS, TIME_LEAST, code_of
from maos.cli.documents import Document, of, time
from maos.cli.failures import LIMIT_REACHED, NEEDS_PERSON, STOPPED
from maos.cli.render import Column, Listing, clean
from maos.model.question import PERMISSION, Open, short
from maos.text import cut, without_escapes
from maos.text import markdown as as_markdown

if TYPE_CHECKING:
    from maos.bus.history import SentMessage
    from maos.model.events.parts import Spent
    from maos.model.read_models import AgentStatus
    from maos.model.run import Run, TaskState
    from maos.runs.budgets import Allowance
    from maos.runs.file_changes import Look
    from maos.runs.results import RunSummary, UnmergedFiles
    from maos.runs.status import RunView

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
TEXT_LEAST = 20
"""How many characters of a text in a table say something."""
TASKS_BRIEF_MAX = 12
"""Tasks of a run that are shown although they were not asked for."""
DISCOVERIES_SHOWN_MAX = 10
FILES_SHOWN_MAX = 20
TRACEBACKS_SHOWN_MAX = 5
RESULT_CHARS_MAX = 4000

TASK_MARKS = {
    "running": "▶", "gated": "?", "failed": "✗", "waiting": "·", "skipped": "–", "done": "✓",
}  # fmt: skip
"""In the order in which tasks are shown."""
_TASK_STYLES = {"running": "green", "gated": "yellow", "failed": "red", "done": "green"}


def spoken(status: RunView) -> str:
    """A run's state as people say it."""
    state = status.now.state
    return status.run.status if state == "idle" else STATES.get(state, state)


def _took(task: TaskState) -> str:
    """How long the agents of a task worked; empty while it has not ended."""
    return words.duration(task.worked_us / 1e6) if task.ended_us and task.worked_us else ""


# --- documents ---------------------------------------------------------------------------------------------------


def summary(status: RunView) -> Document:
    """A run in a list (R-106)."""
    run, now = status.run, status.now
    return {
        **of(run, "id", "request"),
        "status": status.status,
        **of(run, "created_us", "updated_us"),
        **of(status.spent),
        **_limits(status),
        **time(run.ended_us or None, "completed"),
        **of(now, "state", "activity"),
        "progress": run.progress,
        "error": now.error,
        "total_agents": len(run.tasks),
        "successful_agents": run.done,
        "active_agents": sum(each.is_open for each in status.attempts.values()),
        "message_count": status.messages,
        "duration_s": status.duration_us / 1e6,
        "to_do": status.now.to_do,
        "questions": len(status.questions),
        "permanent": status.permanent is not None,
        "resumable": status.resumable or None,
    }


def _limits(status: RunView) -> Document:
    """The limits of a run, 0 where there is none, and what is left of each."""
    from maos.runs.budgets import Budget

    options, left = status.run.options, status.left
    return {
        "limits": {**of(Budget.of(options)), **{name: options.get(name) for name in ("time_limit_s", "concurrency")}},
        "left_usd": left.usd,
        "left_tokens": left.tokens,
        "left_s": left.time_s,
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
        "created_by": run.created_by or None,
        "stopped_by": run.stopped_by or None,
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
        **of(task, "status", "needs", "attempts", "result", "started_us", "worked_us", "not_before_us"),
        **of(task.spent),
        **time(task.ended_us or None, "completed"),
        "failure": task.failure or None,
        "why": task.why or None,
        "traceback": task.traceback or None,
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
    from maos.views.agent_status import status_of

    return [status_of([each], status.at_us) for each in status.attempts.values()]


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
        Column("done", lambda each: f"{each.run.progress} %", right=True, yields=6),
        Column("tasks", lambda each: f"{each.run.done}/{len(each.run.tasks)}", right=True, yields=1),
        Column("cost", lambda each: words.cost(each.spent), right=True, yields=2),
        Column("left", lambda each: words.left(each.left) if each.run.is_open else "", yields=3),
        Column("started", lambda each: render.when(each.run.created_us), yields=2, least=TIME_LEAST),
        Column("request", lambda each: words.one_line(each.run.request, 60), yields=4, least=TEXT_LEAST),
        Column(
            "doing",
            lambda each: words.one_line(each.now.error or each.now.activity, 80),
            style="dim",
            yields=5,
            least=TEXT_LEAST,
        ),
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
            Column("", lambda each: TASK_MARKS.get(each.status, "")),
            Column("task", lambda each: each.name, style="bold"),
            Column("agent", agent, yields=4),
            Column("status", words.task_status, yields=1),
            Column("needs", lambda each: " ".join(each.needs), style="dim", yields=5),
            Column("attempts", lambda each: str(each.attempts or ""), right=True, yields=6),
            Column("took", _took, right=True, yields=2),
            Column("cost", words.cost, right=True, yields=2),
            Column("result", result, style="dim", yields=3, least=TEXT_LEAST),
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
        "run": (asked.run or None) if is_permission else asked.owner,
        "question": asked.text,
        "tool": {"name": asked.tool, "input": asked.input} if is_permission else None,
        "command": asked.asked.command or None,
        "rule_tool": asked.asked.tool or None,
        "suggestions": list(asked.suggestions),
        "requests": asked.refs,
        **of(asked, "choices", "meanings", "context", "asked_us", "asked_by", "default", "expires_us", "recorded"),
    }


def show_open(asked: Sequence[Open], others: Sequence[Open] | None = None, *, lines_max: int = words.LINES_MAX) -> None:
    """Print questions, each with the command that answers it; its id is shorter when the questions of all are known."""
    for each in asked:
        by = [clean(name) for name in each.asked_by] or [clean(each.owner)]
        asked_by = ", ".join(by)
        text = render.wrap(words.asks(each), sys.stdout, indent="  ", used=len(asked_by) + 3)
        render.line(("? ", "bold yellow"), (asked_by, "bold"), f" {text}")
        shown, more = words.context_of(each, lines_max)
        for text in shown:
            render.line("  ", text)
        if more:
            render.line((f"  … and {render.many(more, 'more line')} (`maos inbox`, or --json for all)", "dim"))
        if each.kind == "unknown":
            continue  # the command that resolves it is its context
        for text in words.choices_of(each):
            render.line(render.wrap(f"  {text}", sys.stdout, indent=" " * 6))
        if each.default is not None:
            render.line((f"  without an answer by {render.when(each.expires_us)}: ", "dim"), clean(each.default))
        id = short(each, asked, others)
        render.line(("  answer with: ", "dim"), (f"maos answer {clean(id)} {words.answers(each)}", "bold"))


def questions_of(status: RunView, task: TaskState) -> list[Open]:
    """What a task, its agent or a check of its work asks."""
    from maos.model.run import asked_for
    from maos.model.run_status import agents_of

    names = {status.run.agent(task.name), *agents_of(status.run, task)}
    return [
        each
        for each in status.questions
        if asked_for(each.id) == task.name or not names.isdisjoint((each.owner, *each.asked_by))
    ]


# --- the page ----------------------------------------------------------------------------------------------------


def show(status: RunView, *, tasks: bool, messages: Sequence[SentMessage] | None) -> None:
    """Print the whole page about a run."""
    run, now = status.run, status.now
    render.line(
        (clean(run.id), "bold"), "  ", (spoken(status), STYLES.get(now.state, "")), "  ",
        words.one_line(run.request, render.room_for_value(30)),
    )  # fmt: skip
    counts = " · ".join(_counts(status))
    columns = min(BAR_COLUMNS, render.console().width - len(counts) - 8) if render.terminal() else BAR_COLUMNS
    filled = max(0, columns) * max(0, min(100, run.progress)) // 100
    bar = "█" * filled + "░" * (columns - filled)
    render.line((bar, "green"), f" {run.progress:>3} %  ", (counts, "dim"))
    for label, text in _fields(status):
        if text:
            _show_field(label, text)
    if status.attempts:
        render.line()
        AGENTS.table(agents_of(status))
    if tasks or len(run.tasks) <= TASKS_BRIEF_MAX:
        render.line()
        found = sorted(run.tasks.values(), key=lambda each: list(TASK_MARKS).index(each.status))
        tasks_of(run).table(found, shown_max=TASKS_SHOWN_MAX)
    for task in [each for each in run.tasks.values() if each.traceback][:TRACEBACKS_SHOWN_MAX]:
        render.line()
        render.line((clean(task.name), "bold"), ":")
        render.traceback(task.traceback)
    if messages is not None:
        render.line()
        show_messages(messages, status.messages)
    if status.questions:
        render.line()
        show_open(status.questions)


def show_task(status: RunView, task: TaskState) -> None:
    """Print the status of a task, why it is so, what can be done, and what is asked about it."""
    from maos.model.run_status import advice

    run = status.run
    spoken = words.task_status(task)
    mark = f"{TASK_MARKS.get(task.status, '')} "
    render.line(mark, (clean(task.name), "bold"), f" of {run.id}  ", (spoken, _TASK_STYLES.get(task.status, "")))
    why, *output = task.why.strip().split("\n")
    fields = [
        ("why", why),
        ("to do", advice(run, task) if task.status == "failed" else ""),
        ("check", words.next_check(task)),
        ("needs", ", ".join(task.needs) if task.status == "waiting" else ""),
        ("result", "" if task.attempts else task.result.strip().partition("\n")[0]),
    ]
    for label, text in fields:
        if text:
            _show_field(label, text)
        if label == "why" and task.status == "failed":  # else it is the context of a question
            for line in output[-words.OUTPUT_LINES_MAX :]:
                render.line(("  │ ", "dim"), words.tidy(line))
    if task.traceback:
        render.traceback(task.traceback)
    show_open(questions_of(status, task))


def _show_field(label: str, text: str) -> None:
    shown = render.wrap(words.one_line(text, None), sys.stdout, indent=" " * LABEL_WIDTH, used=LABEL_WIDTH)
    render.line((f"  {label:<{LABEL_WIDTH - 2}}", "dim"), shown)


def _fields(status: RunView) -> list[tuple[str, str]]:
    run, now = status.run, status.now
    again = run.times_restored
    restored = f"{render.many(again, 'time')}, last {render.when(run.restored_us)}, {run.restored_from}"
    return [
        ("doing", now.activity),
        ("resumes", f"at {render.when(now.until_us)}" if now.until_us else ""),
        ("error", now.error),
        ("to do", status.now.to_do),
        ("stuck", f"{', '.join(now.stuck)}: what they need has failed" if now.stuck else ""),
        ("restored", restored.replace("_", " ") if again else ""),
        ("plan file", _plan_file(run)),
        *_preparation(run.options),
        ("pinned", status.permanent or "exempt from cleanup" if status.permanent is not None else ""),
        ("summary", run.summary),
        ("resume with", "" if now.state == "interrupted" else status.resumable),
    ]


def _preparation(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How the workspaces of a run are prepared, and what of the project reaches its agents."""
    setup = [shlex.join(each) for each in options.get("setup") or ()]
    return [
        ("setup", "; ".join(setup)),
        ("copied", ", ".join(options.get("copy_ignored") or ())),
        ("variables", ", ".join(options.get("env") or ())),
        ("project's", ", ".join(options.get("project_settings") or ())),
    ]


def _plan_file(run: Run) -> str:
    """The file that a run was made from, and whether it has changed; empty when it was made from none."""
    from maos.runs.file_changes import STATES, look

    found = look(run)
    if found is None:
        return ""
    state = STATES.get(found.state, "")
    return f"{found.origin.file}{f', which {state}' if state else ''}"


def _figures(run: Run, spent: Spent, took_us: int, left: Allowance) -> list[str]:
    """What a run took so far, in numbers, and what is left of its limits."""
    from maos.runs.budgets import Budget

    return words.used(spent, Budget.of(run.options), took_us / 1e6, left)


def _counts(status: RunView) -> list[str]:
    run = status.run
    failed = sum(each.status == "failed" for each in run.tasks.values())
    found: list[Any] = [
        f"{run.done} of {render.many(len(run.tasks), 'task')} done",
        run.running and f"{run.running} running",
        failed and f"{failed} failed",
        status.messages and render.many(status.messages, "message"),
    ]
    return [*(each for each in found if each), *_figures(run, status.spent, status.duration_us, status.left)]


# --- the summary -------------------------------------------------------------------------------------------------


def exit_code(run: Run) -> int:
    """The exit code of a run: 0 if it completed; else the reason says who can do something about it."""
    from maos.runs.budgets import is_at_limit

    if run.status == "completed":
        return 0
    if run.status == "paused" and run.blocked:
        return NEEDS_PERSON
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
        render.line(f"  {clean(run.why)}{words.by(run.stopped_by)}")
    tasks_of(run).table(list(run.tasks.values()), shown_max=TASKS_SHOWN_MAX)
    if found.discoveries:
        render.line(f"  {render.many(len(found.discoveries), 'discovery', 'discoveries')}")
    for each in found.discoveries[-DISCOVERIES_SHOWN_MAX:]:
        text = words.one_line(f"{each['task']}: {each.get('text', '')}", 100)
        render.line("    ", ("★ ", "yellow"), text)
    _show_files(found)
    for text in _advice(run):
        render.line(render.wrap(f"  {text}", sys.stdout, indent="    "))
    sys.stdout.flush()


def _end_figures(run: Run) -> list[str]:
    """How far it came and what it took."""
    from maos.runs.budgets import left_of

    ended_us = run.ended_us or run.updated_us
    left = left_of(run, run.spent, ended_us)
    figures = _figures(run, run.spent, max(0, ended_us - run.created_us), left)
    return [f"{run.done} of {len(run.tasks)} tasks done", *figures]


def _show_files(found: RunSummary) -> None:
    if found.files is None:
        return
    render.line(f"  {words.changed(found.files)}{' by tasks that are done' if found.unmerged else ''}")
    for each in found.files[:FILES_SHOWN_MAX]:
        render.line("    ", clean(each.path), (f"  {words.counts(each)}", "dim"))
    if len(found.files) > FILES_SHOWN_MAX:
        render.line((f"    … and {len(found.files) - FILES_SHOWN_MAX} more", "dim"))
    if found.files:
        render.line(f"  to look: maos diff {found.run.id} --patch")
        render.line(f"  to merge them: maos merge {found.run.id}")
    for left in found.unmerged:
        render.line(f"  {_not_merged(found.run, left)}")


def _not_merged(run: Run, left: UnmergedFiles) -> str:
    """What a task that failed has changed, and how to see it."""
    changed = words.changed(left.files)
    return f"{clean(left.task)}, which failed: {changed} in its worktree: maos diff {run.id}/{clean(left.task)}"


def _advice(run: Run) -> list[str]:
    """What a person can do next."""
    from maos.model.run_status import advice
    from maos.runs.budgets import resume_command

    lines: list[str] = []
    for task in run.tasks.values():
        hint = advice(run, task) if task.status == "failed" else ""
        if hint and len(lines) < DISCOVERIES_SHOWN_MAX:
            lines.append(f"{clean(task.name)}: {clean(hint)}")
    for asked in run.questions.values() if run.is_open else ():
        if asked.answer is None:
            text = words.one_line(asked.question, words.RESULT_WIDTH)
            lines.append(f"asks: {text}: `maos answer {run.id}/{clean(asked.id)} …`")
    if run.status != "completed":
        lines.append(f"resume with: {resume_command(run)}")
    return lines


def run_document(run: Run) -> Document:
    """A run as it begins and ends."""
    return {
        "run": run.id,
        **of(run, "status", "request", "folder", "done", "why", "created_us", "ended_us"),
        **of(run.spent),
        "tasks": [task_document(task, run) for task in run.tasks.values()],
    }


def summary_document(found: RunSummary) -> Document:
    """A run with what its agents found and changed."""
    from maos.runs.budgets import resume_command

    return {
        **run_document(found.run),
        "discoveries": found.discoveries,
        "files": of(found.files),
        "unmerged": of(found.unmerged),
        "commit": found.run.commit or None,
        "resumable": None if found.run.status == "completed" else resume_command(found.run),
    }


def markdown(found: RunSummary) -> str:
    """The summary as Markdown; what agents said is quoted, so that it cannot pass for the text of maos."""
    run = found.run
    title = words.one_line(run.request, 100) or run.id
    lines = [f"# {as_markdown(title)}", "", f"{run.status} · {' · '.join(_end_figures(run))}", ""]
    if run.why and run.status != "completed":
        lines += [as_markdown(run.why), ""]
    columns = tasks_of(run).columns[1:-1]  # without the mark and the result
    lines += [f"| {' | '.join(each.title for each in columns)} |", "|---" * len(columns) + "|"]
    for task in run.tasks.values():
        lines.append(f"| {' | '.join(as_markdown(each.text(task)) for each in columns)} |")
    if found.discoveries:
        lines += ["", "## Discoveries", ""]
        found_lines = ((each["task"], str(each.get("text", ""))) for each in found.discoveries)
        lines += [f"- {as_markdown(task)}: {as_markdown(text)}" for task, text in found_lines]
    if found.files:
        lines += ["", "## Files", ""]
        lines += [f"- {as_markdown(each.path)} {words.counts(each)}" for each in found.files]
    if found.unmerged:
        lines += ["", "## Files of tasks that failed", ""]
        lines += [f"- {as_markdown(_not_merged(run, each))}" for each in found.unmerged]
    said = [task for task in run.tasks.values() if task.result.strip()]
    if said:
        lines += ["", "## Results"]
    for task in said:
        quoted = clean(cut(without_escapes(task.result).strip(), RESULT_CHARS_MAX), lines=True).splitlines()
        lines += ["", f"### {as_markdown(task.name)}", "", *(f"> {line}".rstrip() for line in quoted)]
    if next_ := _advice(run):
        lines += ["", "## Next", "", *(f"- {each}" for each in next_)]
    return "\n".join(lines) + "\n"
