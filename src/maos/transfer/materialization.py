"""What is made on this machine once a person has agreed to a run that came from elsewhere: its worktrees, from the
commits that came with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from maos import workspaces as workspaces
from maos.clock import Clock
from maos.engine import consent
from maos.engine.attempts import Attempts
from maos.errors import InvalidInput, NotFound
from maos.journal.journal import Journal
from maos.model.attempt import Attempt
from maos.model.run import DONE, Run
from maos.travel.relocation import merged_work
from maos.workspaces import Workspace


async def materialize(journal: Journal, clock: Clock, attempts: Attempts, run: Run) -> dict[str, Any]:
    """Make the worktrees of a run that a person agrees to, and note that they do; options that it goes on with.

    Killed anywhere, it can be done again. `Runs.execute(run.id, options=…)` keeps the options.
    """
    options: dict[str, Any] = {}
    if kept := run.options.get("workspace"):
        made = await merged_work(Path(run.folder), Workspace.from_data(kept), run.commit)
        options["workspace"] = made.to_data()
    for task in run.tasks.values():
        if task.status != DONE:
            try:
                history = await attempts.history(run.agent(task.name))
            except NotFound:
                continue  # it has not begun
            await _of_agent(Path(run.folder), history, task.commit)
    await consent.agree(journal, clock, run.id)
    return options


async def _of_agent(folder: Path, history: list[Attempt], commit: str) -> None:
    """The worktree of an agent, with its files as they were last saved."""
    before = Workspace.from_data(history[-1].workspace)
    if before.in_place:
        return
    saved = [each.commit for attempt in history for each in attempt.checkpoints if each.commit]
    start = commit or (saved[-1] if saved else before.base)
    was_there = await workspaces.exists(before)
    made = await workspaces.prepare(folder, before.name, root=before.tree.parent, base=before.base, start=start)
    if made[:5] != before[:5]:
        raise InvalidInput(
            f"the worktree of {before.name} is at {made.tree} for {made.gitdir}, and should be at {before.tree} for "
            f"{before.gitdir}",
            hint="another copy of this run works in the repository; import it with a clone: --cwd CLONE",
        )
    if was_there and start is not None:
        await workspaces.restore(made, start)
