"""Options that say what a whole run may take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from maos.cli.arguments import DURATION, seconds
from maos.cli.database import DatabaseTarget

if TYPE_CHECKING:
    from maos.runs.notify import Address
    from maos.settings.loader import Current


PERMISSIONS = ("ask", "edits", "deny")
TIME_LIMIT = "10m"
CONCURRENCY = 4


def new_run(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command what a run is made with; `run_options` makes one thing of it."""
    for option in reversed((
        click.option(
            "--concurrency", type=click.IntRange(min=1, max=1000), default=CONCURRENCY, show_default=True, metavar="N",
            help="How many agents work at once.",
        ),
        click.option("--kind", default="claude", show_default=True,
                     help="The agents' kind, unless the plan says another."),
        click.option("--model", default="", help="The model they use, unless the plan says another."),
        click.option("--permission", type=click.Choice(PERMISSIONS), default="edits", show_default=True,
                     help="What agents may do unasked, unless their type says another: nothing, or edit files."),
        click.option("--cwd", type=click.Path(exists=True, file_okay=False), default=".",
                     help="The folder to work in."),
        click.option("--in-place", is_flag=True,
                     help="All work in the folder itself, not in git worktrees of their own."),
        click.option("--time-limit", type=DURATION, default=TIME_LIMIT, show_default=True,
                     help="For each agent; 0s: none."),
        run_limits,
    )):  # fmt: skip
        command = option(command)
    return command


def run_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """What a run is made with, as it keeps it: as the flags say, else the settings."""
    from maos.runs.plan_input import with_defaults

    names = ("kind", "permission", "model", "concurrency")
    said = {name: given[name] for name in names if is_given(name)}
    if is_given("time_limit"):
        said["time_limit_s"] = seconds(given["time_limit"]) or 0.0
    budget = limits(given["budget"], given["tokens"], given["run_time"])
    return with_defaults(current().values, {**said, "in_place": given["in_place"], "budget": budget})


def is_given(name: str) -> bool:
    """Whether a person said it, rather than leaving it to the settings."""
    return click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT


def current() -> Current:
    """The settings that the command goes by."""
    target = click.get_current_context().find_object(DatabaseTarget)
    assert target is not None
    return target.settings


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


notify_option = click.option(
    "--notify", multiple=True, metavar="URL",
    help="Tell me there when it needs me, ends, fails or is paused by a limit. Can be repeated; others see it in the "
    "list of processes, so MAOS_NOTIFY is better.",
)  # fmt: skip


def check_addresses(urls: Sequence[str]) -> list[Address]:
    """The addresses that were given, and those of the settings; InvalidInput for a wrong one."""
    found = [*urls, *current().values.notify.urls]
    if not found:
        return []
    from maos.runs import notify

    return notify.addresses(found)


def limits(budget: float | None, tokens: int | None, run_time: int | None) -> dict[str, float]:
    """The limits as a run keeps them; those that were not given are left out."""
    given = {"cost_usd": budget, "tokens": tokens, "time_s": seconds(run_time)}
    return {name: value for name, value in given.items() if value}
