"""`maos state snapshot`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import documents
from maos.cli.arguments import DURATION
from maos.cli.commands import LazyCommand, agent_argument, json_option, source_option
from maos.cli.database import DatabaseTarget
from maos.cli.plain import clean, shorten
from maos.clock import SystemClock

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.state.records import SnapshotInfo

# As in maos.state.snapshots and maos.journal.compress, which are not loaded only to show the help.
KINDS = ("full", "incremental", "checkpoint")
COMPRESSIONS = ("zstd", "lz4", "snappy", "gzip", "none")


@click.command(
    cls=LazyCommand,
    examples=[
        "maos state snapshot reviewer",
        "maos state snapshot reviewer --name before-upgrade --permanent",
        "maos state snapshot reviewer --kind checkpoint --name monday --keep-for 30d",
        "maos state snapshot reviewer --list",
    ],
)
@agent_argument
@click.option("--list", "only_list", is_flag=True, help="Show the snapshots there are instead.")
@click.option("--name", default="", help="A name to restore it by.")
@click.option(
    "--kind", type=click.Choice(KINDS), default=KINDS[0], show_default=True,
    help="All data, what changed since the last snapshot, or only a name for the version.",
)  # fmt: skip
@click.option(
    "--compression",
    type=click.Choice(COMPRESSIONS),
    default=COMPRESSIONS[0],
    show_default=True,
    help="zstd is smallest, lz4 fastest.",
)
@click.option("--keep-for", type=DURATION, help="It may be removed after that long, such as 30d.  [default: kept]")
@click.option("--permanent", is_flag=True, help="Never removed unless by force.")
@source_option
@json_option
@click.pass_obj
def snapshot(
    database: DatabaseTarget,
    agent: str,
    only_list: bool,
    name: str,
    kind: str,
    compression: str,
    keep_for: int | None,
    permanent: bool,
    source: str,
    as_json: bool,
) -> None:
    """Keep the newest state of an agent, to restore it later.

    Every version can be gone back to without snapshots. They remain when the history is compacted.
    """
    if only_list:
        _show_snapshots(database, agent, as_json)
        return
    expires_us = None if keep_for is None else SystemClock().now_us() + keep_for

    async def work(m: Maos) -> SnapshotInfo:
        from maos.state.records import Retention

        return await m.agents.snapshot(
            agent, kind=kind, name=name, compression=compression, source=source,
            retention=Retention(expires_us=expires_us, permanent=permanent),
        )  # fmt: skip

    info = database.write(work)
    if as_json:
        documents.show(documents.snapshot(info))
        return
    from maos.cli import render

    kept = (
        f"{render.size(info.bytes_plain)} in {render.size(info.bytes_stored)}" if info.bytes_stored else "a name only"
    )
    named = f" ({clean(info.name)})" if info.name else ""
    render.line(
        "snapshot ", (info.id, "bold"), f"{named} of {clean(agent)} at version {info.version}: "
        f"{info.kind}, {kept}",
    )  # fmt: skip


def _show_snapshots(database: DatabaseTarget, agent: str, as_json: bool) -> None:
    async def work(m: Maos) -> list[SnapshotInfo]:
        await m.agents.get(agent)  # no such agent is not the same as no snapshots
        return await m.agents.snapshots(agent)

    found = database.read(work)
    if as_json:
        documents.show({"agent": agent, "snapshots": [documents.snapshot(info) for info in found]})
        return
    from maos.cli import render

    if not found:
        render.line(f"no snapshots of {clean(agent)}")
        return
    columns = (
        render.Column("id", style="bold"),
        render.Column("name", yields=1),
        render.Column("version", right=True),
        render.Column("kind"),
        render.Column("taken"),
        render.Column("stored", right=True),
        render.Column("kept"),
    )
    render.table(
        columns,
        [
            (info.id, shorten(info.name, 40), str(info.version), info.kind, render.when(info.time_us),
             render.size(info.bytes_stored), _kept(info))
            for info in found
        ],
    )  # fmt: skip


def _kept(info: SnapshotInfo) -> str:
    from maos.cli import render

    if info.retention.permanent or info.retention.critical:
        return "permanently" if info.retention.permanent else "critical"
    return "" if info.retention.expires_us is None else f"until {render.when(info.retention.expires_us)}"
