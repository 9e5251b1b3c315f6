"""`maos chat`: a run that is begun and steered in conversation."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from maos.cli import completion
from maos.cli.commands import LINES, json_command
from maos.cli.database import DatabaseTarget
from maos.cli.runs.start import check_addresses, new_run, notify_option, run_options

if TYPE_CHECKING:
    from maos.app import Maos


@json_command(
    "maos chat", "maos chat r-1a2b3c", "printf 'Add a --verbose option\\nyes\\n' | maos chat --json", json=LINES
)
@click.argument("id", metavar="[ID]", required=False, default="", shell_complete=completion.runs)
@click.option("--auto", is_flag=True, help="Execute plans, and resume, without asking.")
@new_run
@notify_option
def chat(database: DatabaseTarget, /, id: str, auto: bool, notify: tuple[str, ...], as_json: bool, **given: Any) -> int:
    """Begin a run and steer it in conversation.

    Say what is to be done. An agent plans it; say yes, no, or what to change. While the agents work, you see what they
    do, answer what they ask, send them messages (@NAME TEXT), and give them more work (/add TEXT). /help lists all.

    Ctrl+C pauses and leaves. With ID, the conversation about an earlier run continues, days later too, or about one
    that another process executes. Without ID, you are asked whether to resume the newest unfinished run. Lines may also
    come from a pipe.
    """
    from pathlib import Path

    from maos import settings
    from maos.runs import agent_types

    folder = Path(given["cwd"]).absolute()
    check_addresses(database, notify)
    types = agent_types.known(folder, settings.config_folder())

    async def work(m: Maos) -> int:
        from maos.cli.chat.loop import ChatLoop, completions
        from maos.cli.chat.session import ChatSettings
        from maos.cli.input import PipedLines
        from maos.cli.runs.live import LiveView
        from maos.model.run import Run

        view = LiveView(Run(id=""), as_json=as_json, complete=lambda beginning: completions(view.run, beginning))
        is_person = sys.stdin is not None and sys.stdin.isatty()
        lines = view.terminal if is_person and view.terminal is not None else PipedLines()
        settings = ChatSettings(folder, run_options(database, given), types, notify, auto=auto)
        return await ChatLoop(m, view, lines, settings).hold(id)

    return database.write(work, create=not id)
