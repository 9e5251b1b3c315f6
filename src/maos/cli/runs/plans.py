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
"""How many tasks are shown of a plan that is not asked about."""
SUMMARY_WIDTH = 70
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
        show(found, options, tasks_max=TASKS_SHOWN_MAX if auto else None)
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


def show(found: ValidPlan, options: Mapping[str, Any], *, tasks_max: int | None = None) -> None:
    """A plan as a tree: batches, and in each the tasks with their agents and what they need.

    A person agrees to what is shown, so everything that would run is in it, whole; with `tasks_max`, for a plan that is
    approved already, only so many tasks are.
    """
    plan, types = found.plan, found.types
    groups = batches(plan)
    about = words.one_line(plan.summary or plan.request, SUMMARY_WIDTH)
    size = f"{render.many(len(plan.tasks), 'task')} in {render.many(len(groups), 'batch', 'batches')}"
    render.line(
        ("Plan", "bold"),
        render.wrap(f"{': ' + about if about else ''}  {size}", sys.stdout, indent="  ", used=len("Plan")),
    )
    tasks = {task.name: task for task in plan.tasks}
    options = {**options, "agents": agent_types.to_data(plan, types)}
    width = min(NAME_WIDTH_MAX, max(map(len, tasks)))
    left = len(tasks) if tasks_max is None else tasks_max
    for number, group in enumerate(groups, 1):
        is_last = number == len(groups)
        together = ", together" if len(group) > 1 else ""
        render.line(("└─ " if is_last else "├─ ", "dim"), f"batch {number}", (together, "dim"))
        stem = "   " if is_last else "│  "
        for name in group[:left]:
            _show_task(tasks[name], options, stem, last=name == group[-1], width=width)
        if len(group) > left:
            render.line((f"{stem}… and {len(group) - left} more (--json prints all)", "dim"))
        left = max(0, left - len(group))
    _show_preparation(preparation.of_options(options), options, "")
    _note_types(plan.tasks, types)
    sys.stdout.flush()


def show_added(run: Run, found: Addition) -> None:
    """Print the tasks that are to be added, with everything that they would run."""
    tasks, options = found.plan.tasks, {**run.options, **found.options}
    render.line((f"{render.many(len(tasks), 'more task')} for {run.id}", "bold"))
    for task in tasks:
        _show_task(task, options, "", last=task is tasks[-1], width=0)
    _note_types(tasks, {name: agent_types.of_task(options, name) for name in options.get("agents") or {}})
    sys.stdout.flush()


def _show_task(task: Task, options: Mapping[str, Any], stem: str, *, last: bool, width: int) -> None:
    """A task as a branch of a tree: what does it, and below that what else it starts and may do."""
    role, kind = agent_types.of_task(options, task.agent), agent_types.kind_of(options, msgspec.to_builtins(task))
    agent = _one_line(f"{task.agent} ({kind})" if task.agent else kind)
    below = stem + ("   " if last else "│  ")
    before = (
        (stem + ("└─ " if last else "├─ "), "dim"),
        (clean(task.name).ljust(width), "bold"),
        (f"  {agent}", "cyan"),
        (f"  after {clean(', '.join(task.needs))}" if task.needs else "", "yellow"),
    )
    used = sum(len(text) for text, _style in before) + 2
    said, *more = _works(task)
    render.line(*before, f"  {render.wrap(said, sys.stdout, indent=f'{below}  ', used=used)}")
    for line in more:
        _show_below(line, below, "")
    if task.tools:
        _show_below(f"may use {_one_line(', '.join(shown_tools(task.tools)))} without asking", below)
    for gate in task.gates:
        text = _command(gate.command) if gate.command else _prompt(gate.person or gate.review)
        who = "a person" if gate.person else "a reviewer" if gate.review else "a check"
        _show_below(f"then {who}: {text}", below)
    places = map(preparation.of_options, map(msgspec.structs.asdict, (role, task)))
    _show_preparation(preparation.combine(places), {}, below)
    limits = (
        words.duration(task.time_limit_s) if task.time_limit_s else "",
        words.money(task.budget_usd) if task.budget_usd else "",
        f"{words.count(task.tokens_max)} tokens" if task.tokens_max else "",
    )
    if any(limits):
        _show_below(", ".join(f"at most {each}" for each in limits if each), below)


def _works(task: Task) -> Sequence[str]:
    """What a task does: the prompt of its agent, or what it is for, and the command or the function that it runs."""
    if not task.command:
        return [_prompt(task.task)]
    if task.kind == "python":
        arguments = _one_line(task.task)
        return [_command(task.command) + (f" with {arguments}" if arguments not in ("", "{}") else "")]
    if task.task.strip() in ("", task.command[-1].strip()):  # a task that is given as a text for the shell has both
        return [_command(task.command)]
    return [_prompt(task.task), f"runs {_command(task.command)}"]


def _show_preparation(found: Preparation, options: Mapping[str, Any], below: str) -> None:
    """How workspaces are prepared: whole, as commands and variables are what a person agrees to."""
    lines = [f"setup: {_command(each)}" for each in found.setup or ()]
    lines += [f"copies ignored files: {_one_line(', '.join(found.copy_ignored))}"] if found.copy_ignored else []
    lines += [f"variables: {_one_line(', '.join(found.env))}"] if found.env else []
    if options.get("include_uncommitted"):
        lines.append("starts with your uncommitted changes")
    if options.get("project_settings"):
        lines.append(f"uses the project's {', '.join(options['project_settings'])}")
    for line in lines:
        _show_below(line, below, "dim" if below else "")


def _show_below(text: str, below: str, style: str = "dim") -> None:
    """A line about a task, below it."""
    render.line((below + render.wrap(text, sys.stdout, indent=f"{below}  ", used=len(below)), style))


def _note_types(tasks: Sequence[Task], types: Mapping[str, AgentType]) -> None:
    """Say of each type of agents that maos does not come with where it is from, and what it may do without asking."""
    for name in sorted({task.agent for task in tasks if task.agent in types}):
        each = types[name]
        if not each.source.startswith(str(SHIPPED)):  # a repository may have brought it
            may = [f"permission {each.permission}"] if each.permission else []
            may += [f"may use {', '.join(shown_tools(each.tools))} without asking"] if each.tools else []
            note(", ".join([f"{name} is from {each.source}", *may]))


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
