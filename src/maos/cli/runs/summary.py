"""The last words about a run: what became of its tasks, what they took, found and changed, and how to go on."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from maos.cli import documents as shared
from maos.cli import render
from maos.cli.agent import words
from maos.cli.agent.status import code_of
from maos.cli.failures import LIMIT_REACHED, STOPPED
from maos.cli.plain import clean

if TYPE_CHECKING:
    from maos.cli.documents import Document
    from maos.model.run import Run, TaskState
    from maos.runs.status import RunSummary

TASKS_SHOWN_MAX = 50
DISCOVERIES_SHOWN_MAX = 10
FILES_SHOWN_MAX = 20
RESULT_CHARS_MAX = 4000
_SPECIAL = str.maketrans({char: f"\\{char}" for char in "\\`*_[]<>|#"})


def exit_code(run: Run) -> int:
    """What a script is told: whether it worked, and if not, who can do something about it."""
    if run.status == "completed":
        return 0
    if run.status == "paused":
        from maos.runs.status import is_at_limit

        return LIMIT_REACHED if is_at_limit(run) else STOPPED
    failed = [task.failure for task in run.tasks.values() if task.status == "failed"]
    return code_of(failed[0] if failed else "")


# --- for people --------------------------------------------------------------------------------------------------


def show(found: RunSummary) -> None:
    """The summary of a run that has ended or is paused."""

    run = found.run
    style = {"completed": "green", "failed": "red"}.get(run.status, "yellow")
    render.line()
    render.line((run.status, f"bold {style}"), "".join(f" · {each}" for each in figures(run)))
    if run.why and run.status != "completed":
        render.line(f"  {clean(run.why)}")
    shown = list(run.tasks.values())[:TASKS_SHOWN_MAX]
    columns = (
        render.Column("task", style="bold", yields=1), render.Column("agent", yields=1), render.Column("status"),
        render.Column("took", right=True), render.Column("cost", right=True),
        render.Column("result", style="dim", yields=2),
    )  # fmt: skip
    render.table(columns, [row(task, str(run.options.get("kind", ""))) for task in shown])
    if len(run.tasks) > len(shown):
        render.line((f"… and {len(run.tasks) - len(shown)} more tasks", "dim"))
    _show_discoveries(found.discoveries)
    _show_files(found)
    for text in advice(run):
        render.line(f"  {text}")
    sys.stdout.flush()


def figures(run: Run) -> list[str]:
    """How far it came and what it took."""
    took_us = max(0, (run.ended_us or run.updated_us) - run.created_us)
    parts = [f"{run.done} of {len(run.tasks)} tasks done", words.duration(took_us / 1e6)]
    parts += [words.money(run.cost_usd)] if run.cost_usd else []
    parts += [f"{words.count(run.tokens)} tokens"] if run.tokens else []
    return parts


def row(task: TaskState, kind: str) -> tuple[str, ...]:
    """A task: name, agent, status, what it took and cost, and its result."""
    took_us = task.ended_us - task.started_us if task.ended_us and task.started_us else 0
    text = task.why if task.status == "failed" else task.result
    return (
        task.name,
        str(task.plan.get("agent") or task.plan.get("kind") or ("shell" if task.plan.get("command") else kind)),
        task.status,
        words.duration(took_us / 1e6) if took_us > 0 else "",
        words.money(task.cost_usd) if task.cost_usd else "",
        words.one_line(text.strip().partition("\n")[0], 80),
    )


def _show_discoveries(found: list[dict[str, Any]]) -> None:

    if not found:
        return
    render.line(f"  {render.many(len(found), 'discovery', 'discoveries')}")
    for each in found[-DISCOVERIES_SHOWN_MAX:]:
        text = words.one_line(f"{each['task']}: {each.get('text', '')}", 100)
        render.line("    ", ("★ ", "yellow"), text)


def _show_files(found: RunSummary) -> None:

    if found.files is None:
        return
    if not found.files:
        render.line("  no file was changed")
        return
    added, removed = (sum(getattr(each, key) or 0 for each in found.files) for key in ("added", "removed"))
    render.line(f"  {render.many(len(found.files), 'file')} changed, +{added} -{removed}")
    for each in found.files[:FILES_SHOWN_MAX]:
        counts = "binary" if each.added is None else f"+{each.added} -{each.removed}"
        render.line("    ", clean(each.path), (f"  {counts}", "dim"))
    if len(found.files) > FILES_SHOWN_MAX:
        render.line((f"    … and {len(found.files) - FILES_SHOWN_MAX} more", "dim"))
    render.line(f"  to take them: maos orchestration merge {found.run.id}")


def advice(run: Run) -> list[str]:
    """What a person can do next."""
    from maos.model.failure import TABLE

    lines: list[str] = []
    for task in run.tasks.values():
        known = TABLE.get(task.failure) if task.status == "failed" else None
        if known is not None and known.hint and len(lines) < DISCOVERIES_SHOWN_MAX:
            agent = f"{run.id}.{task.name}"
            hint = known.hint.replace("`maos agent logs`", f"`maos agent logs {agent}`")
            lines.append(f"{clean(task.name)}: {hint}")
    if run.status != "completed":
        lines.append(f"to go on: maos resume {run.id}")
    return lines


# --- for programs ------------------------------------------------------------------------------------------------


def document(run: Run) -> Document:
    """A run."""
    return {
        "run": run.id,
        "status": run.status,
        "request": run.request,
        "folder": run.folder,
        "done": run.done,
        "tasks": [_task(task) for task in run.tasks.values()],
        "cost_usd": run.cost_usd,
        "tokens": run.tokens,
        "why": run.why,
        **shared.time(run.created_us, "created"),
        **shared.time(run.ended_us or None, "ended"),
    }


def whole(found: RunSummary) -> Document:
    """A run with what its agents found and changed."""
    return {
        **document(found.run),
        "discoveries": found.discoveries,
        "files": None if found.files is None else [each._asdict() for each in found.files],
        "commit": found.run.commit or None,
        "go_on": None if found.run.status == "completed" else f"maos resume {found.run.id}",
    }


def _task(task: TaskState) -> Document:
    return {
        "task": task.name,
        "status": task.status,
        "needs": task.needs,
        "agent": task.plan.get("agent", ""),
        "attempts": task.attempts,
        "result": task.result,
        "failure": task.failure or None,
        "why": task.why,
        "cost_usd": task.cost_usd,
        "tokens": task.tokens,
        **shared.time(task.started_us or None, "started"),
        **shared.time(task.ended_us or None, "ended"),
    }


# --- as Markdown -------------------------------------------------------------------------------------------------


def markdown(found: RunSummary) -> str:
    """Everything that a reader needs to know; what agents said is quoted, and cannot pass for ours."""
    run = found.run
    title = words.one_line(run.request, 100) or run.id
    lines = [f"# {_plain(title)}", "", f"{run.status} · {' · '.join(figures(run))}", ""]
    if run.why and run.status != "completed":
        lines += [_plain(run.why), ""]
    lines += ["| task | agent | status | took | cost |", "|---|---|---|---|---|"]
    kind = str(run.options.get("kind", ""))
    lines += [f"| {' | '.join(_plain(cell) for cell in row(task, kind)[:5])} |" for task in run.tasks.values()]
    if found.discoveries:
        lines += ["", "## Discoveries", ""]
        lines += [f"- {_plain(each['task'])}: {_plain(str(each.get('text', '')))}" for each in found.discoveries]
    if found.files:
        lines += ["", "## Files", ""]
        for each in found.files:
            counts = "binary" if each.added is None else f"+{each.added} -{each.removed}"
            lines.append(f"- {_plain(each.path)} {counts}")
    said = [task for task in run.tasks.values() if task.result.strip()]
    if said:
        lines += ["", "## Results"]
    for task in said:
        quoted = clean(task.result.strip()[:RESULT_CHARS_MAX], lines=True).splitlines()
        lines += ["", f"### {_plain(task.name)}", "", *(f"> {line}".rstrip() for line in quoted)]
    if next_ := advice(run):
        lines += ["", "## Next", "", *(f"- {each}" for each in next_)]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """A text on one line that Markdown takes for nothing else."""
    return clean(" ".join(text.split())).translate(_SPECIAL)
