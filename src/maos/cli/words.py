"""Words for people: what agents and runs do and ask, how an agent ended, how long something took and what it cost."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from maos.cli import render
from maos.cli.render import clean, fold, shorten
from maos.clock import MICROSECONDS, SystemClock
from maos.model.failure import TABLE
from maos.patterns import regex
from maos.text import command_text, without_escapes
from maos.text import cost as cost
from maos.text import duration as duration
from maos.text import money as money
from maos.text import one_line as one_line

if TYPE_CHECKING:
    from maos.backup.service import BackupStatus
    from maos.model.events.parts import Spent
    from maos.model.question import Open
    from maos.model.run import Run, TaskState
    from maos.runs.budgets import Allowance, Budget
    from maos.runs.results import FileChange
    from maos.web.documents import FileChangeInfo

NAME_WIDTH_MAX = 24
RESULT_WIDTH = 90
UUID = regex(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
QUESTION_WIDTH = 400
LINES_MAX, CONTEXT_LINES_MIN = 20, 3
"""How many lines a question has, and how many of its context are shown in any case."""
OUTPUT_LINES_MAX = 8
"""How many lines of a check that failed are repeated."""
EXPLAINED = ("failed", "gate_failed", "merge_conflict", "setup_failed")
"""Failures of which the first line of the reason says what happened."""

Fact = Mapping[str, Any]
"""A fact as plain data."""
Line = tuple[str, str, str]
"""A task, what is said of it, and a style."""

STOPPING = {
    "asked": "stopping, as requested",
    "answered": "stopping: it has answered and does not exit",
    "time_limit": "stopping: its time limit is reached",
    "silence": "stopping: it has been silent for too long",
    "budget": "stopping: it has cost as much as it may",
    "unattended": "stopping: no engine attached to it in time",
    "fenced": "stopping: another process has taken it over",
}

TELLING = ("command", "file_path", "path", "pattern", "query", "url", "description", "prompt", "text")
"""Arguments of tools that say by themselves what it is about, the most telling first."""
SETUP = regex(r"\.setup-[0-9a-f]{8}$|-setup$")
"""How the names of agents end that prepare workspaces."""


def tidy(text: str) -> str:
    """A line of output as a terminal shows it at its end: without colours, with spaces for tabs, and of a line that was
    printed over, such as a progress bar, what was printed last."""
    if text.isprintable():
        return text
    text = without_escapes(text).rstrip("\r")
    return clean(text.rpartition("\r")[2].expandtabs(8))


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
    found = " ".join(found.split())  # a person may be asked to allow it, so nothing of it is removed
    if found == name.strip():  # some agents name a tool by its command
        return shorten(clean(name or "a tool"), 1000)
    return f"{shorten(clean(name or 'a tool'), 40)}  {shorten(clean(found), 1000)}".rstrip()


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


def used(spent: Spent, budget: Budget, took_s: float, left: Allowance) -> list[str]:
    """What a run has taken, each with its limit and what is left of it, if it has one."""

    def of(taken: str, limit: str, left: str) -> str:
        return f"{taken} of {limit}, {left} left"

    money_used = cost(spent)
    if left.usd is not None:
        money_used = of(money_used or money(0), money(budget.cost_usd), money(left.usd))
    tokens = f"{count(spent.tokens)} tokens" if spent.tokens else ""
    if left.tokens is not None:
        tokens = of(count(spent.tokens), f"{count(budget.tokens)} tokens", count(left.tokens))
    time = duration(took_s)
    if left.time_s is not None:
        time = f"{time}, {duration(left.time_s)} of {duration(budget.time_s)} left"
    return [each for each in (money_used, tokens, time) if each]


LIMITS = {
    "cost_usd": "budget", "tokens": "tokens", "time_s": "run time", "time_limit_s": "time limit of agents",
    "concurrency": "agents at once",
}  # fmt: skip
"""What limits of a run are called."""


def limit(name: str, value: float | None) -> str:
    """A limit of a run as people say it."""
    if not value:
        return "not set" if value is None else "unlimited"
    if name == "cost_usd":
        return money(value)
    return duration(value) if name.endswith("_s") else str(int(value))


def left(found: Allowance) -> str:
    """What something may still take: `$4.20, 52k tokens, 48 min`; empty without a limit."""
    parts = [
        "" if found.usd is None else money(found.usd),
        "" if found.tokens is None else f"{count(found.tokens)} tokens",
        "" if found.time_s is None else brief(found.time_s),
    ]
    return ", ".join(filter(None, parts))


def brief(seconds: float) -> str:
    """A stretch of time in its largest unit only: 45 s, 12 min, 3 h, 2 d."""
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds // unit:.0f} {name}"
    return f"{seconds:.0f} s"


def count(number: int) -> str:
    """A number in at most four characters: 950, 1.2k, 48k, 3.1M."""
    if number < 1000:
        return str(number)
    for size, unit in ((1e3, "k"), (1e6, "M")):
        if number < 999.5 * size:
            return f"{number / size:.1f}{unit}" if number < 9.95 * size else f"{number / size:.0f}{unit}"
    return f"{number / 1e9:.1f}G"


def counts(change: FileChange | FileChangeInfo) -> str:
    """How many lines of a file were added and removed."""
    return "binary" if change.added is None else f"+{change.added} -{change.removed}"


def changed(files: Sequence[FileChange | FileChangeInfo]) -> str:
    """How many files were changed, and how many lines of them."""
    if not files:
        return "no file was changed"
    added, removed = sum(each.added or 0 for each in files), sum(each.removed or 0 for each in files)
    return f"{render.many(len(files), 'file')} changed, +{added} -{removed}"


# --- runs --------------------------------------------------------------------------------------------------------


def task_of(run: str, agent: str) -> str:
    """The task that an agent of a run does, in whichever branch of it."""
    from maos.model.run import BRANCH

    return BRANCH.sub("", agent.removeprefix(f"{run}.")) if agent.startswith(f"{run}.") else agent


def next_check(task: TaskState) -> str:
    """How the work of a task is being checked or merged; empty when it is not, and when a person is asked."""
    if task.status != "gated":
        return ""
    gates = task.plan.get("gates", ())
    gate = gates[task.gate] if task.gate < len(gates) else None
    if gate is None:
        return "" if task.conflict else "its work is merged"
    if gate.get("person"):
        return ""
    return command_text(gate["command"]) if gate.get("command") else f"an agent reviews: {gate.get('review', '')}"


def task_status(task: TaskState) -> str:
    """The status of a task as people say it: of one whose agent is done, whether it is being checked, or a person is
    asked."""
    if task.status != "gated":
        return str(task.status)
    return "checking" if next_check(task) else "waiting for you"


def of_event(run: Run, type_: str, data: Mapping[str, Any]) -> Iterator[Line]:
    """What there is to say of one event, after the run has it."""
    name = str(data.get("task", ""))
    match type_:
        case "task_started":
            yield name, "▸ started" if data["number"] == 1 else f"▸ resumed, attempt {data['number']}", "dim"
        case "task_finished":
            yield name, _finished(run.tasks[name]), "good"
        case "task_failed":
            yield name, f"✗ failed{_by(data)}: {_because(data)}", "bad"
            yield from _output(name, data)
        case "task_skipped":
            yield name, f"– skipped{_by(data)}{f': {why}' if (why := _because(data)) else ''}", "warning"
        case "task_retried":
            yield name, f"↻ is tried again{_by(data)}", "dim"
        case "task_stopping":
            yield name, f"‖ is being stopped{_by(data)}", "dim"
        case "task_released" if data.get("failure") == "stopped":
            yield name, "‖ stopped; it can be resumed", "warning"
        case "task_released" if data.get("failure") == "gate_failed" and _is_planner(run, name):
            yield name, f"↻ revises the plan: {one_line(str(data.get('why', '')), RESULT_WIDTH)}", "warning"
        case "task_released":
            until = f"; waits until {render.when(data['not_before_us'])}" if data.get("not_before_us") else ""
            if (known := TABLE.get(str(data.get("failure")))) and known.of_kind:
                until = "; waits until the run is resumed"
            yield name, f"↻ {_because(data)}{until or f'; retrying{_tries(run.tasks[name], data)}'}", "warning"
            yield from _output(name, data)
        case "task_gated" if "conflict" in data:
            yield name, f"✗ cannot be merged: {_because(data)}", "warning"
        case "task_gated" if data.get("resolve"):
            yield name, "▸ is merged again", "dim"
        case "task_gated" if data.get("failure"):
            yield name, f"↻ {_because(data)}; checking again{_tries(run.tasks[name], data)}", "warning"
        case "task_gated" if _is_planner(run, name):
            yield name, "· plan approved" if data["passed"] else "· planned", "dim"
        case "task_gated":
            gates = len(run.tasks[name].plan.get("gates", ()))
            passed = data["passed"]
            said = f"· passed check {passed} of {gates}{_by(data)}" if passed else "· agent finished; running checks"
            yield name, said, "dim"
        case "run_hibernated":
            limited = f"{data.get('kind', 'an agent')} has reached its rate limit"
            yield "", f"‖ {limited}; it continues by itself at {render.when(data['until_us'])}", "warning"
        case "run_blocked":
            meaning = TABLE[data["failure"]].meaning
            yield "", f"‖ {data['kind']}: {meaning}; {data['to_do']}", "warning"
        case "run_updated":
            before = data["before"]
            changed = [
                f"{LIMITS[name]} {limit(name, before.get(name))} → {limit(name, value)}"
                for name, value in data["limits"].items()
            ]
            yield "", f"· {', '.join(changed)}{_by(data)}", "dim"
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
            yield asker, f"· is answered{_by(data)}: {one_line(data['answer'], 200)}", "dim"


def of_run(run: Run, type_: str, data: Mapping[str, Any]) -> Iterator[Line]:
    """What there is to say in a log of an event of the run as a whole; the live view shows a page or a summary then."""
    match type_:
        case "run_created":
            yield "", f"{run.id}  {one_line(run.request, 200)}".rstrip(), "bold"
        case "run_claimed" if run.times_restored:
            yield "", f"▸ an engine resumed the run{_by(data)}", "dim"
        case "run_paused":
            yield (
                "",
                f"‖ paused{_by(data)}{f': {why}' if (why := one_line(str(data.get('why', '')), 200)) else ''}",
                "warning",
            )
        case "run_ended":
            why = f": {one_line(run.why, 200)}" if run.why else ""
            yield "", f"■ {run.status}{_by(data)}{why}", "good" if run.status == "completed" else "bad"


def by(principal: str) -> str:
    """Whose act it was; nothing for what the engine decided."""
    return f" by {clean(principal)}" if principal else ""


def decision(data: Mapping[str, Any], asked: str) -> str:
    """How a request for a permission was answered, by whom, or by which rule of whom."""
    why = f" ({one_line(data['why'], 200)})" if data.get("why") else ""
    whose = by(data.get("by", ""))
    if data.get("rule"):
        whose = f" by the rule {one_line(data['rule'], 80)}{whose.replace(' by ', ' of ', 1)}"
    return f"{'allowed' if data['allow'] else 'refused'}{whose}: {asked}{why}"


def _by(data: Mapping[str, Any]) -> str:
    return by(str(data.get("by", "")))


def _is_planner(run: Run, task: str) -> bool:
    return run.planner is not None and run.planner.name == task


def _asker(run: Run, data: Mapping[str, Any]) -> str:
    """The task that a question is about."""
    from maos.model.run import GATE, MERGE

    id = str(data["id"])
    if id.startswith((GATE, MERGE)):
        return id.split("/")[1]
    asked_by = list(data.get("asked_by", ()))
    return task_of(run.id, str(asked_by[0])) if asked_by else "?"


def _finished(task: TaskState) -> str:
    took = duration(task.worked_us / 1e6)
    took += f" · {cost(task)}" if cost(task) else ""
    result = one_line(task.result.strip().partition("\n")[0], RESULT_WIDTH)
    return f"✓ done · {took}{'  ' + result if result else ''}"


def _because(data: Mapping[str, Any]) -> str:
    failure, why = str(data.get("failure", "")), str(data.get("why", ""))
    if failure in EXPLAINED and why.strip():
        return one_line(why.strip().partition("\n")[0], None)
    return _reason(failure, why, RESULT_WIDTH)


def _output(task: str, data: Mapping[str, Any]) -> Iterator[Line]:
    """The end of what a check printed."""
    if data.get("failure") == "gate_failed":
        lines = str(data.get("why", "")).strip().split("\n")[1:]
        yield from ((task, f"  │ {tidy(each)}", "dim") for each in lines[-OUTPUT_LINES_MAX:] if each.strip())


def _tries(task: TaskState, data: Mapping[str, Any]) -> str:
    """Which try is next, of how many; nothing when it does not count."""
    known = TABLE.get(str(data.get("failure", "")))
    if known is None or not data.get("counts") or not known.tries_max:
        return ""
    return f" ({task.tries + 1} of {known.tries_max + 1})"


def _short_id(fact: Fact) -> str:
    """The id of a request; of a UUID its beginning, which tells it from the others of its agent."""
    id = clean(str(fact["id"]))
    return id.partition("-")[0] if UUID.fullmatch(id) else id


def notable(agent: str, fact: Mapping[str, Any]) -> tuple[str, str] | None:
    """What an agent of a run does that every watcher should know, and a style."""
    match fact["kind"]:
        case "discovery":
            return f"★ {fact.get('keyword', '')}: {one_line(fact.get('text', ''), 400)}", "found"
        case "permission_requested":
            asked = one_line(tool(fact.get("tool", ""), fact.get("input")), 120)
            if fact.get("rule"):
                return f"· uses {asked}  (rule {one_line(fact['rule'], 80)})", "dim"
            return f"? asks to use {asked}  (`maos answer {agent}/{_short_id(fact)} yes`)", "found"
        case "line" if SETUP.search(agent) and str(fact.get("text", "")).startswith("$ "):
            return one_line(fact["text"], 160), ""  # the command of a setup that begins now
        case "trouble" | "retry":
            return of_fact(fact, 160)[0]
    return None


def asks(question: Open) -> str:
    """What a question asks, in one line; the command of a permission is its context."""
    verb = "ask" if len(question.asked_by) > 1 else "asks"
    if question.kind == "permission":
        return f"{verb} to use {clean(question.asked.tool or question.tool) or 'a tool'}"
    return f"{verb}: {one_line(question.text, QUESTION_WIDTH)}"


def context_of(question: Open, lines_max: int) -> tuple[list[str], int]:
    """The first lines of a question's context, and how many more there are. What a person allows is shown whole."""
    if question.kind == "permission":
        command = question.asked.command
        what = clean(command, lines=True) if command else tool(question.tool, question.input)
        return [f"  {line}" for line in what.splitlines()], 0
    lines = [tidy(line.rstrip()) for line in question.context.strip("\n").split("\n")] if question.context else []
    return lines[:lines_max], max(0, len(lines) - lines_max)


def choices_of(question: Open, *, typed: bool = False) -> list[str]:
    """What can be answered, with the number of each and what it does; nothing for a yes or no. A rule is made by what
    is `typed` at a prompt, else by options of a command."""
    if question.kind == "permission":
        return [*map("{:<6}  {}".format, question.choices, question.meanings), *_rules_of(question, typed=typed)]
    if question.kind not in ("question", "workflow") or not question.choices:
        return []
    width = max(len(clean(each)) for each in question.choices)
    if not question.meanings:
        return ["   ".join(f"{number} {clean(each)}" for number, each in enumerate(question.choices, 1))]
    pairs = enumerate(zip(question.choices, question.meanings, strict=False), 1)
    return [f"{number} {clean(name):<{width}}  {clean(meaning)}" for number, (name, meaning) in pairs]


def _rules_of(question: Open, *, typed: bool) -> list[str]:
    """How a wider rule is made of a permission."""
    if "always" not in question.choices or question.is_for_program:
        return []
    pattern = clean(next(iter(question.suggestions), ""))
    scopes = f"for {'agent|run|project' if question.run else 'agent|project'}"
    if typed:
        return [f"wider:  always {scopes} {pattern}".rstrip()]
    return [f"wider:  --pattern '{pattern}' --{scopes}" if pattern else f"wider:  --{scopes}"]


def answers(question: Open) -> str:
    """What stands for the answer in a printed command. No shell executes it as it is: of `yes|no` it would make a
    pipeline."""
    if question.kind in ("question", "workflow") and not question.choices:
        return "<answer>"
    return f"<{'|'.join(map(shlex.quote, map(clean, question.choices))) or 'yes|no'}>"


def choices(question: Open) -> str:
    """The answers to a question of yes or no, as a prompt names them."""
    *first, last = question.choices if question.kind == "permission" else ("yes", "no")
    return f"{', '.join(first)} or {last}"


def lines_of(run: str, question: Open, *, width: int = 0, lines_max: int = LINES_MAX) -> list[str]:
    """A question in lines of a width, such as above the prompt of a terminal; as many as there is room for have its
    context, and a few in any case."""
    names = [task_of(run, each) for each in question.asked_by]
    asker = clean(", ".join(names) or question.id.partition("/")[2].partition("/")[0] or run)
    text = f"? {asker}  {one_line(question.text, QUESTION_WIDTH)}"
    if question.kind == "permission":
        text = f"? {asker} {asks(question)}"
    lines = fold(text, width, indent="  ").split("\n")
    parts = [fold(f"  {line}", width, indent=" " * 6).split("\n") for line in choices_of(question, typed=True)]
    choices = [part for each in parts for part in each]
    if question.default is not None:
        choices.append(f"  without an answer by {render.when(question.expires_us)}: {clean(question.default)}")
    shown, more = context_of(question, max(CONTEXT_LINES_MIN, lines_max - len(lines) - len(choices)))
    lines += [f"  {line}" for line in shown]
    lines += [f"  … and {render.many(more, 'more line')} (`maos inbox`)"] if more else []
    return lines + choices


def backup_line(found: BackupStatus | str) -> render.Part:
    """How the backup is, on one line: how far behind, and its last test; or why that is not known."""
    if isinstance(found, str):
        return clean(found), "bold red"
    if found.head is None:
        return f"nothing was backed up to {clean(found.location)} yet", "yellow"
    behind = f"{duration(found.behind_s)} behind" if found.missing else "up to date"
    if found.tested is None:
        return f"{behind}, never tested", "yellow"
    ago = duration((SystemClock().now_us() - found.tested.at_us) / MICROSECONDS)
    if found.tested.problem:
        return f"{behind}, last test {ago} ago failed: {clean(found.tested.problem)}", "bold red"
    took = f"{render.size(found.tested.bytes)} in {duration(found.tested.took_us / MICROSECONDS)}"
    return f"{behind}, last test {ago} ago: {took}", ""
