"""`maos resume --cwd`: a run whose files are elsewhere now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maos.cli import documents as shared
from maos.cli.plain import clean

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.run import Run
    from maos.travel.relocation import Moved


async def move(m: Maos, run: Run, cwd: str, *, as_json: bool) -> Run:
    """Have a run work there from now on."""
    _show(await m.transfer.move(run.id, cwd), as_json=as_json, dry_run=False)
    return await m.runs.get(run.id)


async def foresee(m: Maos, run: Run, cwd: str, *, as_json: bool) -> None:
    """Say what that would mean; nothing is changed."""
    _show(await m.transfer.move(run.id, cwd, dry_run=True), as_json=as_json, dry_run=True)


def _show(moved: Moved, *, as_json: bool, dry_run: bool) -> None:
    if as_json:
        found = {**moved._asdict(), "found": list(moved.found), "anew": list(moved.anew)}
        shared.show_line({"kind": "moved", "dry_run": dry_run, **found})
        return
    from maos.cli import render

    if moved.changed:
        verb = "would work" if dry_run else "works"
        where = f"{clean(moved.folder)}, and no more in {clean(moved.before)}"
        render.line((clean(moved.run), "bold"), f" {verb} in {where}")
    for name in moved.anew:
        verb = "would be made" if dry_run else "is made"
        render.line((f"the worktree {clean(name)} {verb} anew, with what was last saved", "dim"))
