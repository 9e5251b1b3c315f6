"""`maos report`: a run as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from maos.cli import render
from maos.cli.commands import complete_runs, json_command
from maos.cli.database import DatabaseTarget
from maos.cli.render import clean
from maos.cli.serve import check_packages
from maos.ids import RUN

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.web.report import RunReport


@json_command("maos report r-1a2b3c", "maos report r-1a -o parser.html --json")
@click.argument("id", metavar="RUN", shell_complete=complete_runs)
@click.option("-o", "--output", metavar="FILE", default="", help="The file, which is replaced.  [default: RUN.html]")
def report(database: DatabaseTarget, id: str, output: str, as_json: bool) -> None:
    """Write a run as one HTML file that opens from disk.

    It shows the run as the page of `maos serve` does: the timeline, tasks, messages, what agents printed last, changed
    lines, and the run as it was at earlier times. It reaches no network. It holds what agents said and changed, without
    keys and passwords: send it to people who may know that.
    """
    check_packages()
    from maos.web import report as reports

    async def work(m: Maos) -> RunReport:
        run = (await m.ids.find(id, RUN)).id
        return await reports.write(m, run, Path(output or f"{run}.html"))

    made = database.read(work)
    told = f"wrote {clean(str(made.path))} ({render.size(made.bytes)}): open it with a browser"
    document = {"run": made.run, "file": str(made.path), "bytes": made.bytes}
    render.show(document, told, as_json=as_json)
