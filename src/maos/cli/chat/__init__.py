"""`maos chat`: a run that is begun and steered in conversation."""

from __future__ import annotations

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
def chat(database: DatabaseTarget, /, id: str, **given: Any) -> int:
    """Begin a run and steer it in conversation.

    Say what is to be done. An agent plans it; say yes, no, or what to change. While the agents work, you see what they
    do, answer what they ask, send them messages (@NAME TEXT), and give them more work (/add TEXT). /help lists all.

    Ctrl+C pauses and leaves. With ID, the conversation about an earlier run continues, days later too, or about one
    that another process executes. Without ID, you are asked whether to resume the newest unfinished run. Lines may also
    come from a pipe.
    """
    from pathlib import Path

    from maos.runs import agent_types

    check_addresses(database, given["notify"])
    folder = Path(given["cwd"]).absolute()
    types = agent_types.known(folder)
    made_with = {"folder": folder, "options": run_options(database, given), "types": types}

    async def work(m: Maos) -> int:
        from maos.cli.chat.loop import ChatLoop

        return await ChatLoop(m, made_with, given).hold(id)

    return database.write(work, create=not id)
