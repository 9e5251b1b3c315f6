"""What `maos doctor` checks of the journal and of the machine."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from maos.cli.finding import Finding
from maos.errors import MaosError

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.cli.database import DatabaseTarget
    from maos.engine.folds import Differing
    from maos.journal.verify import Report
    from maos.model.workflow import WorkflowRun

LOW_BYTES, GONE_BYTES = 2 << 30, 200 << 20
DAMAGE_SHOWN_MAX = 5


def journal(database: DatabaseTarget) -> Iterator[Finding]:
    """Every event against its hash, every kept fold against a rebuild, and workflows that wait for somebody."""

    async def work(m: Maos) -> tuple[Report, int, list[Differing], list[WorkflowRun]]:
        from maos.engine import folds

        report = await m.verify()
        kept, differing = await folds.check(m.journal) if report.ok else (0, [])
        return report, kept, differing, [flow async for flow in m.workflows.all() if flow.is_open]

    try:
        report, kept, differing, flows = database.read(work)
    except MaosError as error:
        yield Finding("bad", "journal", error.what, error.hint)
        return
    if report.ok:
        yield Finding("ok", "journal", f"{report.events} events in {report.streams} streams, as they were written")
    for each in report.damage[:DAMAGE_SHOWN_MAX]:
        yield Finding("bad", "journal", str(each), "docs/howto/recover-from-damage.md says what can be done")
    if kept:
        yield Finding("ok", "views", f"{kept - len(differing)} of {kept} kept folds are what their events say")
    yield from (_differing(database, each) for each in differing)
    yield from map(_flow, filter(_needs_somebody, flows))


def _differing(database: DatabaseTarget, differing: Differing) -> Finding:
    async def fix() -> str:
        from maos.app import open as open_
        from maos.engine import folds

        async with open_(database.name, create=False) as m:
            await folds.drop(m.journal, differing)
        return f"dropped the kept fold of {differing.kind} {differing.id}; it is built anew when somebody asks"

    what = f"the kept fold of {differing.kind} {differing.id} is not what its events say"
    return Finding("bad", "views", what, "it can be built anew", f"Drop the kept fold of {differing.id}?", fix)


def _needs_somebody(flow: WorkflowRun) -> bool:
    from maos.engine import ownership

    return (
        bool(flow.unknown) or flow.status == "changed" or (flow.status == "running" and ownership.is_gone(flow.owner))
    )


def _flow(flow: WorkflowRun) -> Finding:
    if flow.unknown:
        places = ", ".join(flow.unknown)
        hint = f"maos workflow show {flow.id}"
        return Finding("look", "workflow", f"{flow.id}: nobody knows whether call {places} took effect", hint)
    what = flow.why if flow.status == "changed" else "nobody runs it"
    return Finding("look", "workflow", f"{flow.id}: {what}", f"go on: maos workflow resume {flow.id}")


def machine(database: DatabaseTarget, folder: Path | None) -> Iterator[Finding]:
    """Room on the disks, and the versions of what maos stands on."""
    places = {} if "://" in database.name else {"database": Path(database.name).absolute().parent}
    places |= {} if folder is None else {"agents": folder}
    for about, place in places.items():
        while not place.exists():
            place = place.parent
        free = shutil.disk_usage(place).free
        what = f"{free / 1e9:.1f} GB free where the {about} {'is' if about == 'database' else 'are'}"
        level = "bad" if free < GONE_BYTES else "look" if free < LOW_BYTES else "ok"
        hint = "" if level == "ok" else "make room: maos orchestration cleanup, maos workflow state cleanup"
        yield Finding(level, "disk", what, hint)
    yield Finding("ok", "versions", _versions())
    yield from _settings(database)


def _versions() -> str:
    import apsw

    import maos

    return f"maos {maos.__version__}, Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}"


def _settings(database: DatabaseTarget) -> Iterator[Finding]:
    from maos import settings

    try:
        if settings.are_there():
            _ = database.settings
            yield Finding("ok", "settings", "every value makes sense; `maos config show` tells where each comes from")
    except MaosError as error:
        yield Finding("bad", "settings", error.what, error.hint or "maos config validate")
