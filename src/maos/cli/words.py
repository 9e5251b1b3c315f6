"""Words for people: what agents and runs do and ask, how an agent ended, how long something took and what it cost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from maos.cli import render
from maos.cli.render import clean, shorten
from maos.model.failure import TABLE

if TYPE_CHECKING:
    from maos.model.question import Open
    from maos.model.run import Run, TaskState
    from maos.runs.status import FileChange

NAME_WIDTH_MAX = 24
RESULT_WIDTH = 90
QUESTION_WIDTH = 400

Fact = Mapping[str, Any]
"""A fact as plain data."""
Line = tuple[str, str, str]
"""A task, what is said of it, and a style."""

STOPPING = {
    "asked": "stopping, as requested",
    "time_limit": "stopping: its time limit is reached",
    "silence": "stopping: it has been silent for too long",
    "unattended": "stopping: no engine attached to it in time",
    "fenced": "stopping: another process has taken it over",
}

TELLING = ("command", "file_path", "path", "pattern", "query", "url", "description", "prompt", "text")
"""Arguments of tools that say by themselves what it is about, the most telling first."""


def tidy(text: str) -> str:
    """A line of output as a terminal would show it: tabs are spaces, and the line's end is not part of it."""
    return clean(text.removesuffix("\r").expandtabs(8))


def one_line(text: str, width: int | None) -> str:
    """A text on one line of a width."""
    return shorten(clean(" ".join(text.split())), width)


def of_fact(fact: Fact, width: int) -> Sequence[tuple[str, str]]:
    """What there is to say of a fact, and how it looks; nothing for what only counts."""
    match fact["kind"]:
        case "tool_result" if fact.get("failed"):
            return [(shorten(f"  failed: {one_line(fact.get('output', ''), width)}", width), "bad")]
        case "thought":
            return [(shorten(f"… {one_line(fact.get('text', ''), width)}", width), "dim")]
        case "retry":
            return [(_retry(fact), "warning")]
        case "trouble":
            return [(_trouble(fact), "bad")]
        case "permission_denied":
            return [(f"was refused {fact.get('tool', 'a tool')}: {one_line(fact.get('message', ''), width)}", "bad")]
        case "session":
            new = "its session could not be resumed; a new one is started" if fact.get("instead_of") else ""
            model = f"model {fact['model']}" if fact.get("model") else ""
            return [(text, style) for text, style in ((new, "warning"), (model, "dim")) if text]
        case "plan":
            return [(shorten(_plan(fact), width), "dim")]
    return []


def tool(name: str, input: Any) -> str:
    """A tool with what it is used for."""
    if isinstance(input, Mapping):
        found = next((input[key] for key in TELLING if isinstance(input.get(key), str)), None)
        if found is None:
            found = json.dumps(input, ensure_ascii=False) if input else ""
    else:
        found = "" if input is None else str(input)
    return f"{one_line(name or 'a tool', 40)}  {one_line(found, 1000)}".rstrip()


def _plan(fact: Fact) -> str:
    """How far an agent is with its plan."""
    entries = fact.get("entries", [])
    done = sum(each.get("status") == "completed" for each in entries)
    now = next((each.get("content", "") for each in entries if each.get("status") == "in_progress"), "")
    return f"plan: {done} of {len(entries)} done{f', now: {one_line(now, 200)}' if now else ''}"


def _retry(fact: Fact) -> str:
    why = fact.get("error") or (f"status {fact['status']}" if fact.get("status") else "no answer")
    return f"retries in {duration(float(fact.get('delay_s', 0)))} ({one_line(str(why), 80)})"


def _trouble(fact: Fact) -> str:
    until = f"; until {render.when(fact['reset_us'])}" if fact.get("reset_us") else ""
    return _reason(fact["failure"], str(fact.get("message", "")), 400) + until


def _reason(failure: str, said: str, width: int) -> str:
    """What a failure means, and what was said of it."""
    known, text = TABLE.get(failure), one_line(said, width)
    meaning = known.meaning if known else failure
    return f"{meaning} ({text})" if text and text != meaning else meaning


def continue_with(command: str) -> str:
    """The command that attaches to an agent or resumes it, after its verb."""
    return f"{command.split()[2]} with: {command}"


def ending(status: str, failure: str = "", message: str = "") -> str:
    """How an attempt ended, in a few words."""
    if status == "done":
        return "done"
    if failure == "stopped":
        return "stopped on request"
    if failure == "failed" and message.strip():  # the message says all there is: exit code 1
        return f"{status}: {one_line(message, 400)}"
    return f"{status}: {_reason(failure or 'reason unknown', message, 400)}"


def duration(seconds: float) -> str:
    """A stretch of time as people say it: 0.4 s, 12 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, name, smaller, small_name in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit:
            rest = whole % unit // smaller
            return f"{whole // unit} {name} {rest} {small_name}" if rest else f"{whole // unit} {name}"
    return f"{whole} s"


def money(usd: float) -> str:
    """An amount of dollars; the smallest ones with more digits."""
    return f"${usd:.2f}" if usd >= 0.01 or not usd else f"${usd:.4f}"


def count(number: int) -> str:
    """A number in at most four characters: 950, 1.2k, 48k, 3.1M."""
    if number < 1000:
        return str(number)
    for size, unit in ((1e3, "k"), (1e6, "M")):
        if number < 999.5 * size:
            return f"{number / size:.1f}{unit}" if number < 9.95 * size else f"{number / size:.0f}{unit}"
    return f"{number / 1e9:.1f}G"


def counts(change: FileChange) -> str:
    """How many lines of a file were added and removed."""
    return "binary" if change.added is None else f"+{change.added} -{change.removed}"


def changed(files: Sequence[FileChange]) -> str:
    """How many files were changed, and how many lines of them."""
    if not files:
        return "no file was changed"
    added, removed = sum(each.added or 0 for each in files), sum(each.removed or 0 for each in files)
    return f"{render.many(len(files), 'file')} changed, +{added} -{removed}"


# --- runs --------------------------------------------------------------------------------------------------------


def task_of(run: str, agent: str) -> str:
    """The task that an agent of a run does."""
    return agent.removeprefix(f"{run}.")


def of_event(run: Run, type_: str, data: Mapping[str, Any]) -> Iterator[Line]:
    """What there is to say of one event, after the run has it."""
    name = str(data.get("task", ""))
    match type_:
        case "task_started":
            yield name, "▸ started" if data["number"] == 1 else f"▸ resumed, attempt {data['number']}", "dim"
        case "task_finished":
            yield name, _finished(run.tasks[name]), "good"
        case "task_failed":
            yield name, f"✗ failed: {_because(data)}", "bad"
        case "task_skipped":
            yield name, f"– skipped{f': {why}' if (why := _because(data)) else ''}", "warning"
        case "task_retried":
            yield name, "↻ is tried again", "dim"
        case "task_stopping":
            yield name, "‖ is being stopped", "dim"
        case "task_released" if data.get("failure") == "stopped":
            yield name, "‖ stopped; it can be resumed", "warning"
        case "task_released":
            until = f"; waits until {render.when(data['not_before_us'])}" if data.get("not_before_us") else ""
            yield name, f"↻ {_because(data)}{until or '; tries again'}", "warning"
        case "task_gated" if "conflict" in data:
            yield name, f"✗ cannot be merged: {_because(data)}", "warning"
        case "task_gated" if data.get("resolve"):
            yield name, "▸ is merged again", "dim"
        case "task_gated" if data.get("failure"):
            yield name, f"↻ {_because(data)}; is checked again", "warning"
        case "task_gated":
            gates = len(run.tasks[name].plan.get("gates", ()))
            passed = data["passed"]
            said = f"· passed check {passed} of {gates}" if passed else "· agent finished; running checks"
            yield name, said, "dim"
        case "run_hibernated":
            limited = f"{data.get('kind', 'an agent')} has reached its rate limit"
            yield "", f"‖ {limited}; it continues by itself at {render.when(data['until_us'])}", "warning"
        case "run_note_added" if data.get("text"):
            yield "", f"· {one_line(data['text'], 200)}", "warning"
        case "run_planned" if len(data["tasks"]) < len(run.tasks):
            for each in data["tasks"]:
                what = one_line(str(each.get("task") or ""), RESULT_WIDTH)
                yield str(each["name"]), f"+ is added: {what}", "dim"
        case "question_asked":
            answer = f"maos answer {run.id}/{clean(str(data['id']))} …"
            yield _asker(run, data), f"? {one_line(data['question'], 200)}  (`{answer}`)", "found"
        case "question_answered":
            question = run.questions[data["id"]]
            asker = _asker(run, {"id": question.id, "asked_by": question.asked_by})
            yield asker, f"· is answered: {one_line(data['answer'], 200)}", "dim"


def _asker(run: Run, data: Mapping[str, Any]) -> str:
    """The task that a question is about."""
    from maos.model.run import GATE, MERGE

    id = str(data["id"])
    if id.startswith((GATE, MERGE)):
        return id.split("/")[1]
    asked_by = list(data.get("asked_by", ()))
    return task_of(run.id, str(asked_by[0])) if asked_by else "?"


def _finished(task: TaskState) -> str:
    took = duration(max(0, task.ended_us - task.started_us) / 1e6)
    cost = f" · {money(task.cost_usd)}" if task.cost_usd else ""
    result = one_line(task.result.strip().partition("\n")[0], RESULT_WIDTH)
    return f"✓ done · {took}{cost}{'  ' + result if result else ''}"


def _because(data: Mapping[str, Any]) -> str:
    return _reason(str(data.get("failure", "")), str(data.get("why", "")), RESULT_WIDTH)


def notable(agent: str, fact: Mapping[str, Any]) -> tuple[str, str] | None:
    """What an agent of a run does that every watcher should know, and a style."""
    match fact["kind"]:
        case "discovery":
            return f"★ {fact.get('keyword', '')}: {one_line(fact.get('text', ''), 400)}", "found"
        case "permission_requested":
            asked = one_line(tool(fact.get("tool", ""), fact.get("input")), 120)
            return f"? asks to use {asked}  (`maos agent answer {agent} {clean(str(fact['id']))} yes`)", "found"
        case "trouble" | "retry":
            return of_fact(fact, 160)[0]
    return None


def lines_of(run: str, question: Open) -> list[str]:
    """A question as it is rendered above the prompt."""
    names = [task_of(run, each) for each in question.asked_by]
    asker = clean(", ".join(names) or question.id.partition("/")[2].partition("/")[0] or run)
    text = question.text
    if question.kind == "permission":
        text = f"asks to use {tool(question.tool, question.input)}"
    lines = [f"? {asker}  {one_line(text, QUESTION_WIDTH)}"]
    if question.kind == "question" and question.choices:
        lines.append("  " + "   ".join(f"{n} {clean(each)}" for n, each in enumerate(question.choices, 1)))
    if question.default is not None:
        lines.append(f"  without an answer by {render.when(question.expires_us)}: {clean(question.default)}")
    return lines
