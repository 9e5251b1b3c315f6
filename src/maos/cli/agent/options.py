"""Options that several commands about running agents have in common."""

from __future__ import annotations

from typing import Any

import click

from maos.cli.arguments import DURATION
from maos.clock import MICROSECONDS

GRACE_US = 10 * MICROSECONDS

turns_option = click.option("--turns", type=click.IntRange(min=1), metavar="N", help="End it after so many turns.")
budget_option = click.option(
    "--budget", type=click.FloatRange(min=0, min_open=True), metavar="USD", help="End it when it has cost so much."
)
env_option = click.option(
    "--env", "variables", multiple=True, metavar="NAME",
    help="A variable of ours that it may see. Can be repeated; others it does not see.",
)  # fmt: skip
grace_option = click.option(
    "--grace", type=DURATION, default=GRACE_US, help="How long it may take to end before it is killed.  [default: 10s]"
)


class TextType(click.ParamType):  # type: ignore[type-arg]  # takes no argument before click 8.4
    """A text, or @FILE for what is in a file."""

    name = "text|@file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not text.startswith("@"):
            return text
        try:
            with open(text[1:], encoding="utf-8") as file:
                return file.read()
        except OSError as error:
            self.fail(f"{text[1:]} cannot be read: {error.strerror}", param, ctx)
        except UnicodeDecodeError:
            self.fail(f"{text[1:]} is not text in UTF-8", param, ctx)


TEXT = TextType()


def seconds(duration_us: int | None) -> float | None:
    """A duration as the engine takes it."""
    return None if duration_us is None else duration_us / MICROSECONDS
