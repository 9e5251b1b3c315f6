"""What happens to a run, and what it and its agents ask, as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from maos.cli import render
from maos.cli.agent import words
from maos.cli.input import Prompt
from maos.cli.render import clean
from maos.model.failure import TABLE
from maos.model.question import Open
from maos.model.run import GATE, MERGE, Run, TaskState

NAME_WIDTH_MAX = 24
RESULT_WIDTH = 90
QUESTION_WIDTH = 400

Line = tuple[str, str, str]
"""A task, what is said of it, and a style."""


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
            yield name, f"✗ failed: {_why(data)}", "bad"
        case "task_skipped":
            yield name, f"– skipped{f': {why}' if (why := _why(data)) else ''}", "warning"
        case "task_retried":
            yield name, "↻ is tried again", "dim"
        case "task_stopping":
            yield name, "‖ is being stopped", "dim"
        case "task_released" if data.get("failure") == "stopped":
            yield name, "‖ stopped; it can be resumed", "warning"
        case "task_released":
            until = f"; waits until {render.when(data['not_before_us'])}" if data.get("not_before_us") else ""
            yield name, f"↻ {_why(data)}{until or '; tries again'}", "warning"
        case "task_gated" if "conflict" in data:
            yield name, f"✗ cannot be merged: {_why(data)}", "warning"
        case "task_gated" if data.get("resolve"):
            yield name, "▸ is merged again", "dim"
        case "task_gated" if data.get("failure"):
            yield name, f"↻ {_why(data)}; is checked again", "warning"
        case "task_gated":
            gates = len(run.tasks[name].plan.get("gates", ()))
            passed = data["passed"]
            said = f"· passed check {passed} of {gates}" if passed else "· agent finished; running checks"
            yield name, said, "dim"
        case "run_hibernated":
            limited = f"{data.get('kind', 'an agent')} has reached its rate limit"
            yield "", f"‖ {limited}; it continues by itself at {render.when(data['until_us'])}", "warning"
        case "run_note_added" if data.get("text"):
            yield "", f"· {words.one_line(data['text'], 200)}", "warning"
        case "run_planned" if len(data["tasks"]) < len(run.tasks):
            for each in data["tasks"]:
                what = words.one_line(str(each.get("task") or ""), RESULT_WIDTH)
                yield str(each["name"]), f"+ is added: {what}", "dim"
        case "question_asked":
            answer = f"maos answer {run.id}/{clean(str(data['id']))} …"
            yield _asker(run, data), f"? {words.one_line(data['question'], 200)}  (`{answer}`)", "found"
        case "question_answered":
            question = run.questions[data["id"]]
            asker = _asker(run, {"id": question.id, "asked_by": question.asked_by})
            yield asker, f"· is answered: {words.one_line(data['answer'], 200)}", "dim"


def _asker(run: Run, data: Mapping[str, Any]) -> str:
    """The task that a question is about."""
    id = str(data["id"])
    if id.startswith((GATE, MERGE)):
        return id.split("/")[1]
    asked_by = list(data.get("asked_by", ()))
    return task_of(run.id, str(asked_by[0])) if asked_by else "?"


def _finished(task: TaskState) -> str:
    took = words.duration(max(0, task.ended_us - task.started_us) / 1e6)
    cost = f" · {words.money(task.cost_usd)}" if task.cost_usd else ""
    result = words.one_line(task.result.strip().partition("\n")[0], RESULT_WIDTH)
    return f"✓ done · {took}{cost}{'  ' + result if result else ''}"


def _why(data: Mapping[str, Any]) -> str:
    known = TABLE.get(str(data.get("failure", "")))
    meaning = known.meaning if known else str(data.get("failure", ""))
    said = words.one_line(str(data.get("why", "")).strip(), RESULT_WIDTH)
    return f"{meaning} ({said})" if said and said != meaning else meaning


def of_fact(agent: str, fact: Mapping[str, Any]) -> tuple[str, str] | None:
    """What an agent does that every watcher should know, and a style."""
    match fact["kind"]:
        case "discovery":
            return f"★ {fact.get('keyword', '')}: {words.one_line(fact.get('text', ''), 400)}", "found"
        case "permission_requested":
            tool = words.one_line(words.tool(fact.get("tool", ""), fact.get("input")), 120)
            return f"? asks to use {tool}  (`maos agent answer {agent} {clean(str(fact['id']))} yes`)", "found"
        case "trouble" | "retry":
            return words.of_fact(fact, 160)[0]
    return None


def lines_of(run: str, question: Open) -> list[str]:
    """A question as it is rendered above the prompt."""
    names = [task_of(run, each) for each in question.asked_by]
    asker = clean(", ".join(names) or question.id.partition("/")[2].partition("/")[0] or run)
    text = question.text
    if question.kind == "permission":
        text = f"asks to use {words.tool(question.tool, question.input)}"
    lines = [f"? {asker}  {words.one_line(text, QUESTION_WIDTH)}"]
    if question.kind == "question" and question.choices:
        lines.append("  " + "   ".join(f"{n} {clean(each)}" for n, each in enumerate(question.choices, 1)))
    if question.default is not None:
        lines.append(f"  without an answer by {render.when(question.expires_us)}: {clean(question.default)}")
    return lines


def prompt_of(run: str, question: Open, left: int) -> Prompt:
    """The prompt for the answer to a question, with the number of questions after it."""
    label = "answer › " if question.kind == "question" else "yes or no › "
    about = [*lines_of(run, question), *([f"  and {left} more"] if left else [])]
    return Prompt("answer", label, about, question.ref)
