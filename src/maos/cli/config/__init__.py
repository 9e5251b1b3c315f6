"""`maos config`: what is set, where it is set, and what is wrong with it."""

from __future__ import annotations

import click

from maos.cli.commands import LazyGroup


@click.group(
    cls=LazyGroup,
    lazy={
        "show": "maos.cli.config.showing:show",
        "validate": "maos.cli.config.showing:validate",
        "path": "maos.cli.config.showing:path",
        "edit": "maos.cli.config.editing:edit",
    },
    examples=["maos config show", "maos config show checkpoint.interval_s", "maos config edit"],
)
def config() -> None:
    """Look at the settings, check and change them.

    They come from your own maos.toml, from the nearest one in or above the current folder, from variables MAOS_… and
    from flags; what is later in this list counts. Processes that run notice a change within seconds.
    """
