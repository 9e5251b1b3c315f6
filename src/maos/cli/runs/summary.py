"""The summary of a run: its tasks, what they took, found and changed, and what to do next."""

from __future__ import annotations

import sys
from typing import Any

from maos.cli import render
from maos.cli.agent import words
from maos.cli.agent.status import code_of
from maos.cli.console import Field, Listing
from maos.cli.documents import Document, time
from maos.cli.failures import LIMIT_REACHED, STOPPED
from maos.cli.plain import clean
from maos.cli.runs import page
from maos.model.failure import TABLE
from maos.model.run import Run, TaskState
from maos.runs.budgets import is_at_limit
from maos.runs.status import RunSummary

TASKS_SHOWN_MAX = 50
DISCOVERIES_SHOWN_MAX = 10
FILES_SHOWN_MAX = 20
RESULT_CHARS_MAX = 4000
_SPECIAL = str.maketrans({char: f"\\{char}" for char in "\\`*_[]<>|#"})


def exit_code(run: Run) -> int:
    """The exit code of a run: 0 if it completed; else the reason says who can do something about it."""
    if run.status == "completed":
        return 0
    if run.status == "paused":
        return LIMIT_REACHED if is_at_limit(run) else STOPPED
    failed = [task.failure for task in run.tasks.values() if task.status == "failed"]
    return code_of(failed[0] if failed else "")


# --- for people --------------------------------------------------------------------------------------------------


def show(found: RunSummary) -> None:
    """Print the summary of a run that has ended or is paused."""
    run = found.run
    style = {"completed": "green", "failed": "red"}.get(run.status, "yellow")
    render.line()
    render.line((run.status, f"bold {style}"), "".join(f" · {each}" for each in figures(run)))
    if run.why and run.status != "completed":
        render.line(f"  {clean(run.why)}")
    _tasks(str(run.options.get("kind", ""))).table(list(run.tasks.values()), shown_max=TASKS_SHOWN_MAX)
    _show_discoveries(found.discoveries)
    _show_files(found)
    for text in advice(run):
        render.line(f"  {text}")
    sys.stdout.flush()


def figures(run: Run) -> list[str]:
    """How far it came and what it took."""
    took_us = max(0, (run.ended_us or run.updated_us) - run.created_us)
    return [f"{run.done} of {len(run.tasks)} tasks done", *page.figures(run, took_us)]


def _tasks(kind: str) -> Listing[TaskState]:
    """How tasks are listed in a run whose agents are of a kind unless their task says another."""

    def agent(task: TaskState) -> str:
        return str(task.plan.get("agent") or task.plan.get("kind") or ("shell" if task.plan.get("command") else kind))

    def result(task: TaskState) -> str:
        text = task.why if task.status == "failed" else task.result
        return words.one_line(text.strip().partition("\n")[0], 80)

    return Listing(
        "tasks",
        (
            Field("task", lambda each: each.name, style="bold", yields=1),
            Field("agent", agent, yields=1),
            Field("status", lambda each: each.status),
            Field("took", page.took, right=True),
            Field("cost", lambda each: page.cost(each.cost_usd), right=True),
            Field("result", result, style="dim", yields=2),
        ),
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
    render.line(f"  to merge them: maos merge {found.run.id}")


def advice(run: Run) -> list[str]:
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


# --- for programs ------------------------------------------------------------------------------------------------


def document(run: Run) -> Document:
    """A run."""
    return {
        "run": run.id,
        "status": run.status,
        "request": run.request,
        "folder": run.folder,
        "done": run.done,
        "tasks": [page.task_document(task, run) for task in run.tasks.values()],
        "cost_usd": run.cost_usd,
        "tokens": run.tokens,
        "why": run.why,
        **time(run.created_us, "created"),
        **time(run.ended_us or None, "ended"),
    }


def whole(found: RunSummary) -> Document:
    """A run with what its agents found and changed."""
    return {
        **document(found.run),
        "discoveries": found.discoveries,
        "files": None if found.files is None else [each._asdict() for each in found.files],
        "commit": found.run.commit or None,
        "resumable": None if found.run.status == "completed" else f"maos resume {found.run.id}",
    }


# --- as Markdown -------------------------------------------------------------------------------------------------


def markdown(found: RunSummary) -> str:
    """The summary as Markdown; what agents said is quoted, so that it cannot pass for the text of maos."""
    run = found.run
    title = words.one_line(run.request, 100) or run.id
    lines = [f"# {_plain(title)}", "", f"{run.status} · {' · '.join(figures(run))}", ""]
    if run.why and run.status != "completed":
        lines += [_plain(run.why), ""]
    lines += ["| task | agent | status | took | cost |", "|---|---|---|---|---|"]
    listing = _tasks(str(run.options.get("kind", "")))
    lines += [f"| {' | '.join(map(_plain, listing.cells(task)[:5]))} |" for task in run.tasks.values()]
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
