"""Plans: read from a file, rendered as a tree, approved by a person, and edited by one."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from maos.cli import documents, render, words
from maos.cli.commands import named_text
from maos.cli.database import ask, need_yes
from maos.cli.failures import FAILED, note, report_error
from maos.cli.render import clean
from maos.errors import InvalidInput
from maos.model import preparation
from maos.model.plan import BadPlan, Task, batches
from maos.model.preparation import Preparation
from maos.model.run import Run
from maos.plans import parser, source
from maos.plans.source import Source
from maos.runs import agent_types, plan_input
from maos.runs.agent_types import SHIPPED, AgentType, shown_tools
from maos.runs.plan_input import Addition, ValidPlan, validate

if TYPE_CHECKING:
    from maos.runs.consent import Act
    from maos.settings.schema import Settings

TASKS_SHOWN_MAX = 200
TASK_WIDTH = 70
ACT_WIDTH = 4_000
NAME_WIDTH_MAX = 24
ANSWERS = click.Choice(["y", "yes", "n", "no", "e", "edit"], case_sensitive=False)


def read(path: str, variables: Sequence[str] = ()) -> Source:
    """The text of a plan in a file, or on standard input, with the values of --var as text: 1.10 stays 1.10."""
    if path.endswith(".py") or ".py:" in path:
        raise InvalidInput(f"{path} is a program, not a plan", hint=f"`maos workflow run {path}` runs a function of it")
    given = dict(named_text(each, "--var") for each in variables)
    return source.receive(sys.stdin.buffer, "standard input", given) if path == "-" else source.load(path, given)


def addition(run: Run, texts: Sequence[str]) -> Addition:
    """Tasks to add to a run, each given as text or as @FILE for a plan; BadPlan says what is wrong with them."""
    said = [text for text in texts if not text.startswith("@")]
    files = [parser.parse(read(text[1:]), is_whole=False) for text in texts if text.startswith("@")]
    return plan_input.addition(run, said, files)


def approve(
    draft: Source,
    types: Mapping[str, AgentType],
    given: Mapping[str, Any],
    values: Settings,
    *,
    auto: bool,
    as_json: bool,
) -> ValidPlan:
    """Show a plan and ask a person to approve it, perhaps after editing it. Never called within an event loop."""
    found = validate(draft, types)
    options = {**given, **plan_input.workspace_options(values, found.options, given)}
    if as_json:
        documents.show_line({"kind": "plan", **msgspec.to_builtins(found.plan)})
    else:
        show(found, options)
    need_yes("the plan is not approved", yes=auto, as_json=as_json, flags="--auto")
    if auto:
        return found
    while True:
        answer = click.prompt("Run this plan? [y]es, [n]o, [e]dit", type=ANSWERS, show_choices=False, err=True)
        if answer in ("y", "yes"):
            return found
        if answer in ("n", "no"):
            click.echo("nothing was started", err=True)
            raise click.exceptions.Exit(FAILED)
        draft, found = _edited(draft, types)
        show(found, {**given, **plan_input.workspace_options(values, found.options, given)})


def _edited(draft: Source, types: Mapping[str, AgentType]) -> tuple[Source, ValidPlan]:
    """The plan after a person has edited it, as often as it takes to be right."""
    while True:
        text = click.edit(draft.text, extension=draft.suffix)
        draft = draft._replace(text=draft.text if text is None else text)
        try:
            return draft, validate(draft, types)
        except BadPlan as error:
            report_error(error)
        ask("Edit it again?", default=True)


def approve_added(run: Run, found: Addition, *, auto: bool, as_json: bool) -> None:
    """Show what is to be added, and have a person say yes to it."""
    if not as_json:
        show_added(run, found)
    need_yes("the new work is not approved", yes=auto, as_json=as_json, flags="--auto")
    if not auto:
        ask("Add it and resume?")


def show(found: ValidPlan, options: Mapping[str, Any]) -> None:
    """A plan as a tree: batches, and in each the tasks with their agents and what they need."""
    plan, types = found.plan, found.types
    groups = batches(plan)
    about = words.one_line(plan.summary or plan.request, TASK_WIDTH)
    size = f"{render.many(len(plan.tasks), 'task')} in {render.many(len(groups), 'batch', 'batches')}"
    render.line(
        ("Plan", "bold"),
        render.wrap(f"{': ' + about if about else ''}  {size}", sys.stdout, indent="  ", used=len("Plan")),
    )
    tasks = {task.name: task for task in plan.tasks}
    kinds = agent_types.kinds(plan, {**options, "agents": agent_types.to_data(plan, types)})
    width = min(NAME_WIDTH_MAX, max(map(len, tasks)))
    left = TASKS_SHOWN_MAX
    for number, group in enumerate(groups, 1):
        is_last = number == len(groups)
        together = ", together" if len(group) > 1 else ""
        render.line(("└─ " if is_last else "├─ ", "dim"), f"batch {number}", (together, "dim"))
        stem = "   " if is_last else "│  "
        for name in group[:left]:
            _show_task(tasks[name], kinds[name], stem, last=name == group[-1], width=width)
        if len(group) > left:
            render.line((f"{stem}… and {len(group) - left} more", "dim"))
        left = max(0, left - len(group))
    _show_preparation(preparation.of_options(options), options, "")
    for name in sorted({task.agent for task in plan.tasks if task.agent in types}):
        each = types[name]
        if not each.source.startswith(str(SHIPPED)):  # a repository may have brought it
            unasked = f", may use {', '.join(shown_tools(each.tools))} without asking" if each.tools else ""
            note(f"{name} is from {each.source}{unasked}")
    sys.stdout.flush()


def show_added(run: Run, found: Addition) -> None:
    """Print the tasks that are to be added."""
    tasks = found.plan.tasks
    kinds = agent_types.kinds(found.plan, {**run.options, **found.options})
    render.line((f"{render.many(len(tasks), 'more task')} for {run.id}", "bold"))
    for task in tasks:
        _show_task(task, kinds[task.name], "", last=task is tasks[-1], width=0)
    sys.stdout.flush()


def _show_task(task: Task, kind: str, stem: str, *, last: bool, width: int) -> None:
    """A task as a branch of a tree."""
    agent = clean(f"{task.agent} ({kind})" if task.agent else kind)
    said = words.one_line(task.task or shlex.join(task.command), TASK_WIDTH)
    below = stem + ("   " if last else "│  ")
    before = (
        (stem + ("└─ " if last else "├─ "), "dim"),
        (clean(task.name).ljust(width), "bold"),
        (f"  {agent}", "cyan"),
        (f"  after {clean(', '.join(task.needs))}" if task.needs else "", "yellow"),
    )
    used = sum(len(text) for text, _style in before) + 2
    render.line(*before, f"  {render.wrap(said, sys.stdout, indent=f'{below}  ', used=used)}")
    for gate in task.gates:
        text = shlex.join(gate.command) if gate.command else gate.person or gate.review
        who = "a person" if gate.person else "a reviewer" if gate.review else "a check"
        check = render.wrap(
            f"then {who}: {words.one_line(text, TASK_WIDTH)}", sys.stdout, indent=f"{below}  ", used=len(below)
        )
        render.line((below + check, "dim"))
    _show_preparation(preparation.of_options(msgspec.structs.asdict(task)), {}, below)
    limits = (
        words.duration(task.time_limit_s) if task.time_limit_s else "",
        words.money(task.budget_usd) if task.budget_usd else "",
        f"{words.count(task.tokens_max)} tokens" if task.tokens_max else "",
    )
    if any(limits):
        render.line((below + ", ".join(f"at most {each}" for each in limits if each), "dim"))


def _show_preparation(found: Preparation, options: Mapping[str, Any], below: str) -> None:
    """How workspaces are prepared: whole, as commands and variables are what a person agrees to."""
    lines = [f"setup: {_one_line(shlex.join(each))}" for each in found.setup or ()]
    lines += [f"copies ignored files: {clean(', '.join(found.copy_ignored))}"] if found.copy_ignored else []
    lines += [f"variables: {_one_line(', '.join(found.env))}"] if found.env else []
    if options.get("include_uncommitted"):
        lines.append("starts with your uncommitted changes")
    if options.get("project_settings"):
        lines.append(f"uses the project's {', '.join(options['project_settings'])}")
    for line in lines:
        render.line((below + line, "dim" if below else ""))


def show_acts(id: str, acts: Sequence[Act]) -> None:
    """Print what resuming something starts, by which kind of agent, and what each may do without asking."""
    if not acts:
        return
    render.line(f"resuming {clean(id)} starts:")
    width = max(len(each.task) for each in acts)
    for each in acts:
        may = [f"permission {each.permission}"] if each.permission and not each.command else []
        may += [f"tools {', '.join(shown_tools(each.tools))}"] if each.tools else []
        may += [f"variables {', '.join(each.env)}"] if each.env else []
        may += [f"the project's {', '.join(each.project)}"] if each.project else []
        who = f"{each.kind}{' ' + each.what if each.what != 'task' else ''}{', ' + '; '.join(may) if may else ''}"
        said = _command(each.command) if each.command else _prompt(each.words)
        render.line("  ", (clean(each.task).ljust(width), "bold"), f"  {said}  ", (f"({clean(who)})", "dim"))
        more = [f"with the MCP server {_command(server)}" for server in each.servers]
        more += [f"in {clean(each.folder)}"] if each.folder else []
        for text in more:
            render.line("  ", " " * width, f"    {text}")


def _command(argv: Sequence[str]) -> str:
    """A command that a person is to agree to: all of it, on one line."""
    return _one_line(shlex.join(argv))


def _prompt(text: str) -> str:
    """A prompt that a person is to agree to, on one line; of a very long one, how much is left out."""
    text = _one_line(text)
    left = len(text) - ACT_WIDTH
    return text if left <= 0 else f"{text[:ACT_WIDTH]} … and {left:,} more characters (--json prints all)"


def _one_line(text: str) -> str:
    return " ".join(clean(text, lines=True).split())
