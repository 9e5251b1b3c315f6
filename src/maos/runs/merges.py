"""The work of a run as commits: one for each task, or one for all, with messages that say whose work it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from maos.model.attempt import Attempt
from maos.model.events.parts import Spent
from maos.model.run import Run, TaskState
from maos.text import command_text, cost, one_line, shorten, without_escapes
from maos.workspaces import TASK_TRAILER, FileConflict, SideChange, WorkPart

SUBJECT_CHARS_MAX = 72
TEXT_CHARS_MAX = 2_000
RESULT_CHARS_MAX = 1_000
RUN_TRAILER, AGENT_TRAILER, COST_TRAILER = "Maos-Run", "Maos-Agent", "Maos-Cost"


def subject_of(task: TaskState) -> str:
    """What a task is, in one line: its name, and the first line of its text."""
    title = one_line(_text(task).partition("\n")[0], None)
    return shorten(f"{task.name}: {title}" if title else task.name, SUBJECT_CHARS_MAX)


def agent_of(attempt: Attempt | None) -> str:
    """The kind of an agent, and its model if it has one."""
    if attempt is None:
        return ""
    model = one_line(attempt.model, 100)
    return f"{attempt.kind} ({model})" if model else attempt.kind


def parts(run: Run, landed: Sequence[SideChange], attempts: Mapping[str, Attempt]) -> list[WorkPart]:
    """The parts of a run's work, as its tasks were merged; `attempts` has the newest attempt at each task."""
    return [_part(run, each, attempts.get(each.task)) for each in landed]


def whole(run: Run, message: str, landed: Sequence[SideChange]) -> WorkPart:
    """All of the work as one part; without a message, the request says what it is."""
    request = message.strip() or run.request.strip() or f"Work of {run.id}"
    title, _, rest = request.partition("\n")
    subject = shorten(one_line(title, None), SUBJECT_CHARS_MAX)
    body = [shorten(without_escapes(rest if subject == title else request).strip(), TEXT_CHARS_MAX)]
    if not message.strip():
        body.append("\n".join(f"- {_subject(run, each)}" for each in landed))
    return WorkPart(run.commit, subject, "\n\n".join(filter(None, body)), _trailers(run, "", "", run.spent))


def explain(conflicts: Sequence[FileConflict], *, ours: str, theirs: str, own: str = "") -> list[str]:
    """Both sides of conflicts, in lines: who changed each file, and the lines that differ.

    `ours` is the name of the side that is merged into, and `theirs` that of the work; `own` says what the work is if it
    is one commit.
    """
    lines = []
    width = max(len(ours), len(theirs)) + 1
    for each in conflicts:
        lines.append(each.path)
        for side, changed in ((ours, each.ours), (theirs, each.theirs)):
            said = [own] if own and side == theirs else [f"{by.commit[:12]} {by.subject}" for by in changed]
            lines += [f"  {f'{side}:':<{width}} {text}" for text in said]
        shown = each.lines.split("\n") if each.lines else []
        marked = {"<<<<<<<": f"<<<<<<< {ours}", ">>>>>>>": f">>>>>>> {theirs}"}
        lines += [f"    {marked.get(line, line)}" for line in shown]
        if each.left_out:
            lines.append(f"    … and {each.left_out} more lines")
    return lines


def _part(run: Run, landed: SideChange, attempt: Attempt | None) -> WorkPart:
    task = run.tasks.get(landed.task)
    if task is None:  # of a run that was joined
        return WorkPart(landed.commit, landed.subject, trailers=_trailers(run, landed.task, "", Spent()))
    text, result = _text(task), without_escapes(task.result).strip()
    body = [shorten(without_escapes(text), TEXT_CHARS_MAX) if "\n" in text or len(text) > SUBJECT_CHARS_MAX else ""]
    if result and task.plan.get("task"):  # the last words of an agent; the last line of a command says little
        body.append(f"The agent reported:\n\n{shorten(result, RESULT_CHARS_MAX)}")
    trailers = _trailers(run, task.name, agent_of(attempt), task.spent)
    return WorkPart(landed.commit, subject_of(task), "\n\n".join(filter(None, body)), trailers)


def _trailers(run: Run, task: str, agent: str, spent: Spent) -> tuple[tuple[str, str], ...]:
    known = ((TASK_TRAILER, task), (RUN_TRAILER, run.id), (AGENT_TRAILER, agent), (COST_TRAILER, cost(spent)))
    return tuple((key, value) for key, value in known if value)


def _subject(run: Run, landed: SideChange) -> str:
    task = run.tasks.get(landed.task)
    return landed.subject if task is None else subject_of(task)


def _text(task: TaskState) -> str:
    return str(task.plan.get("task") or command_text(task.plan.get("command", ()))).strip()
