"""Options that say what a whole run may take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from maos.cli.agent.options import seconds
from maos.cli.arguments import DURATION


def run_limits(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the limits of a run."""
    for option in reversed((
        click.option(
            "--budget", type=click.FloatRange(min=0, min_open=True), metavar="USD",
            help="Pause the run when it has cost so much; its agents are told in time.",
        ),
        click.option(
            "--tokens", type=click.IntRange(min=1), metavar="N", help="Pause the run when it has used so many tokens."
        ),
        click.option("--run-time", type=DURATION, help="Pause the run after so long."),
    )):  # fmt: skip
        command = option(command)
    return command


summary_option = click.option(
    "--summary", type=click.Path(dir_okay=False, writable=True), default="", metavar="FILE",
    help="Also write the summary to a file, as Markdown.",
)  # fmt: skip


def limits(budget: float | None, tokens: int | None, run_time: int | None) -> dict[str, float]:
    """The limits as a run keeps them; those that were not given are left out."""
    given = {"cost_usd": budget, "tokens": tokens, "time_s": seconds(run_time)}
    return {name: value for name, value in given.items() if value}
