"""More work for a run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from maos.cli.failures import FAILED
from maos.cli.orchestrate import plans
from maos.errors import InvalidInput

if TYPE_CHECKING:
    from maos.engine.agent_types import AgentType
    from maos.model.plan import Plan
    from maos.model.run import Run


def types_for(run: Run) -> dict[str, AgentType]:
    """The types of agents that new work can name: those of the run as it recorded them, and those there are now."""
    from pathlib import Path

    from maos import settings
    from maos.engine import agent_types

    recorded = run.options.get("agents") or {}
    known = agent_types.known(Path(run.folder), settings.config_folder())
    return {**known, **{name: agent_types.of_task(run.options, name) for name in recorded}}


def plan(run: Run, texts: Sequence[str], types: Mapping[str, AgentType]) -> Plan:
    """The tasks that are to be added; what is wrong with them is said, and we leave."""
    from maos.model.plan import BadPlan

    try:
        return understand(run, texts, types)
    except BadPlan as error:
        plans.refuse("the new work", error.problems)


def understand(run: Run, texts: Sequence[str], types: Mapping[str, AgentType]) -> Plan:
    """The tasks that are to be added, checked together with those of the run."""
    from maos.engine import orchestration
    from maos.model.plan import Plan

    said = [text for text in texts if not text.startswith("@")]
    tasks = orchestration.more(run, said).tasks if said else []
    for path in (text[1:] for text in texts if text.startswith("@")):
        tasks += plans.parse_loosely(plans.read(path)).tasks
    return plans.checked(orchestration.with_more(run, Plan(tasks=tasks)), types)


def show(run: Run, added: Plan, options: Mapping[str, Any]) -> None:
    """What is to be added."""
    from maos.cli import render
    from maos.engine import orchestration

    kinds = orchestration.kinds(added, {**run.options, **options})
    render.line((f"{render.many(len(added.tasks), 'more task')} for {run.id}", "bold"))
    for task in added.tasks:
        plans.show_task(task, kinds[task.name], "", last=task is added.tasks[-1], width=0)
    sys.stdout.flush()


def approve(run: Run, added: Plan, options: Mapping[str, Any], *, auto: bool, as_json: bool) -> None:
    """Show what is to be added, and have a person say yes to it."""
    if not as_json:
        show(run, added, options)
    if auto:
        return
    if as_json or sys.stdin is None or not sys.stdin.isatty():
        raise InvalidInput("nobody has approved the new work, and there is nobody to ask", hint="repeat it with --auto")
    if not click.confirm("Add it and go on?", err=True):
        click.echo("nothing was changed", err=True)
        raise click.exceptions.Exit(FAILED)
