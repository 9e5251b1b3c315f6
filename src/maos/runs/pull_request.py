"""The text of a pull request for the work of a run: what was asked, done and checked, its cost, and how to repeat it.

It is Markdown. Words of agents are in blocks of code, so that they notify no person, refer to no issue and show no
picture; keys and passwords are removed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from maos.model.attempt import Attempt
from maos.model.plan_file import origin
from maos.model.run import Run, TaskState
from maos.redact import without_secrets
from maos.runs import merges
from maos.text import (
    code,
    code_block,
    command_text,
    cost,
    duration,
    markdown,
    one_line,
    shorten,
    unlinked,
    without_escapes,
)
from maos.tuples import NamedTuple
from maos.workspaces import FileChange

TITLE_CHARS_MAX = 72
REQUEST_CHARS_MAX = 4_000
RESULT_CHARS_MAX = 1_500
FILES_MAX = 50
PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"
_MARKS = {PASSED: "✓", FAILED: "✗", NOT_RUN: "–"}


class GateResult(NamedTuple):
    """A gate of a task, and what it came to."""

    task: str
    kind: str
    """command, review or person"""
    what: str
    """The command, the prompt of the review, or the question."""
    outcome: str
    """passed, failed or not run"""
    by: str = ""
    """The person who answered."""


class PullRequest(NamedTuple):
    """The text of a pull request."""

    title: str
    body: str
    """Markdown."""
    checks: list[GateResult]


def checks_of(run: Run) -> list[GateResult]:
    """Every gate of every task, in the order of the plan."""
    return [check for task in run.tasks.values() for check in _checks(run, task)]


def _checks(run: Run, task: TaskState) -> Iterator[GateResult]:
    for number, gate in enumerate(task.plan.get("gates", ())):
        kind = next((each for each in ("command", "review", "person") if gate.get(each)), "")
        given = gate.get(kind, "")
        what = command_text(given) if kind == "command" else str(given)
        outcome = PASSED if number < task.gate else NOT_RUN
        if number == task.gate and task.failure == "gate_failed":
            outcome = FAILED
        asked = [each for id, each in run.questions.items() if id.startswith(f"gate/{task.name}/{number}/")]
        yield GateResult(task.name, kind, what, outcome, asked[-1].answered_by if asked else "")


def describe(run: Run, files: Sequence[FileChange], attempts: Mapping[str, Attempt], *, base: str) -> PullRequest:
    """Describe what the tasks of a run did; `attempts` has the newest attempt at each task."""
    checks = checks_of(run)
    title = shorten(one_line(run.request.strip().partition("\n")[0], None) or f"Work of {run.id}", TITLE_CHARS_MAX)
    lines = [
        *_request(run, title),
        *_tasks(run, attempts),
        *_check_lines(checks),
        *_files(files),
        *_cost(run),
        *_reproduction(run, checks, base),
    ]
    return PullRequest(without_secrets(title, {}), without_secrets("\n".join(lines) + "\n", {}), checks)


def _request(run: Run, title: str) -> list[str]:
    request = without_escapes(run.request).strip()
    shown = [f"> {markdown(line)}".rstrip() for line in shorten(request, REQUEST_CHARS_MAX).splitlines()]
    lines = [*shown, ""] if request and one_line(request, None) != title else []
    if run.status != "completed":
        lines += [f"**The run is {run.status}: {run.done} of {len(run.tasks)} tasks are done.**", ""]
    return lines


def _tasks(run: Run, attempts: Mapping[str, Attempt]) -> Iterator[str]:
    yield from ("## What was done", "")
    for task in run.tasks.values():
        if task is run.planner:
            continue
        about = [merges.agent_of(attempts.get(task.name)), cost(task.spent)]
        status = "" if task.status == "done" else f" **{task.status}**"
        text = str(task.plan.get("task") or "").strip().partition("\n")[0]
        said = code(command_text(task.plan["command"])) if task.plan.get("command") else unlinked(text)
        yield f"### {unlinked(task.name)}{status}"
        yield from ("", said)
        yield from ("", ", ".join(unlinked(each) for each in about if each))
        if task.why and task.status == "failed":
            yield from ("", *code_block(task.why, RESULT_CHARS_MAX))
        if task.result.strip() and task.plan.get("task"):
            yield from ("", *code_block(task.result, RESULT_CHARS_MAX))
        yield ""


def _check_lines(checks: Sequence[GateResult]) -> Iterator[str]:
    yield from ("## Checks", "")
    for each in checks:
        what = code(each.what) if each.kind == "command" else f"{each.kind}: {unlinked(shorten(each.what, 200))}"
        by = f" by {unlinked(each.by)}" if each.by else ""
        yield f"- {_MARKS[each.outcome]} {what} {each.outcome}{by} (task {unlinked(each.task)})"
    if not checks:
        yield "The plan has no checks."
    yield ""


def _files(files: Sequence[FileChange]) -> Iterator[str]:
    if not files:
        return
    added, removed = (sum(getattr(each, side) or 0 for each in files) for side in ("added", "removed"))
    yield from (f"## Files ({len(files)}, +{added} -{removed})", "")
    for each in files[:FILES_MAX]:
        yield f"- {code(each.path)} {'binary' if each.added is None else f'+{each.added} -{each.removed}'}"
    if len(files) > FILES_MAX:
        yield f"- and {len(files) - FILES_MAX} more"
    yield ""


def _cost(run: Run) -> Iterator[str]:
    took_s = max(0, (run.ended_us or run.updated_us) - run.created_us) / 1e6
    spent = [cost(run.spent), f"{run.spent.tokens:,} tokens" if run.spent.tokens else "", duration(took_s)]
    yield from ("## Cost", "", ", ".join(filter(None, spent)), "")


def _reproduction(run: Run, checks: Sequence[GateResult], base: str) -> Iterator[str]:
    kind = str(run.options.get("kind") or "")
    made_from = origin(run)
    command = ["maos", "run"]
    if made_from is not None:
        command += ["-f", made_from.file.rpartition("/")[2]]
    elif run.planner is not None:
        command += [run.request, *(["--kind", kind] if kind else [])]
    yield from ("## How to reproduce", "")
    start = [f"git checkout {base}", *([shlex.join(command)] if len(command) > 2 else [])]
    commands = dict.fromkeys(each.what for each in checks if each.kind == "command")
    yield from code_block("\n".join([*start, *commands]), REQUEST_CHARS_MAX)
    yield from ("", f"Made by run {code(run.id)} of maos.")
