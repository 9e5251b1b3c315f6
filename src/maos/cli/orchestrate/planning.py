"""A plan from an agent, for a request in words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from maos.cli.agent import words
from maos.cli.agent.summary import code_of
from maos.cli.database import DatabaseTarget
from maos.cli.failures import note, report
from maos.cli.orchestrate import plans

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.engine.agent_types import AgentType


def ask(
    database: DatabaseTarget,
    request: str,
    run: str,
    *,
    folder: Path,
    options: Mapping[str, Any],
    types: Mapping[str, AgentType],
    as_json: bool,
) -> plans.PlanDraft:
    """The plan that an agent makes; what is wrong with one that cannot be used is said, and we leave."""
    from maos.engine.planner import PlanningFailed
    from maos.model.plan import BadPlan

    try:
        return database.write(lambda m: _ask(m, request, run, folder, options, types, as_json), create=True)
    except BadPlan as error:
        plans.refuse("the plan of the agent", error.problems)
    except PlanningFailed as error:
        report(error.what, error.hint)
        raise click.exceptions.Exit(code_of(error.failure)) from error


async def _ask(
    m: Maos,
    request: str,
    run: str,
    folder: Path,
    options: Mapping[str, Any],
    types: Mapping[str, AgentType],
    as_json: bool,
) -> plans.PlanDraft:
    from maos.cli.orchestrate import interrupted
    from maos.engine import planner

    if not as_json:
        await interrupted.tell(m)
        note(f"{options['kind']} plans; `maos agent logs -f {planner.planner_of(run)}` shows how")
    plan = await planner.ask(
        m.attempts,
        request,
        run=run,
        folder=folder,
        kind=options["kind"],
        model=options["model"],
        types=types,
        time_limit_s=options["time_limit_s"],
    )
    if not as_json:
        attempts = await m.attempts.history(planner.planner_of(run))
        took_us = attempts[-1].ended_us - attempts[0].planned_us
        cost_usd = sum(each.total_cost_usd for each in attempts)
        note(f"planned in {words.duration(took_us / 1e6)}{f', {words.money(cost_usd)}' if cost_usd else ''}")
    return plans.as_draft(plan, "the plan of the agent")
