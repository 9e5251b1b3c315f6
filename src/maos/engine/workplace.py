"""Where an agent works: a worktree of its own, whose files go back with the conversation, or a folder as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from maos import workspaces as workspaces
from maos.errors import NotFound
from maos.model.attempt import AttemptCheckpoint
from maos.model.events.parts import WorkspaceData
from maos.model.run import Run

ASKED = "it works in the folder itself, as asked: files are not saved with checkpoints and cannot be brought back"


class Workplace:
    """An agent's files."""

    def __init__(self, workspace: workspaces.Workspace) -> None:
        self.workspace = workspace

    @staticmethod
    async def prepare(source: Path, agent: str, *, root: Path, in_place: bool, base: str | None = None) -> Workplace:
        """A place for an agent to work in: a worktree if the folder is in a git repository and nobody objects."""
        if in_place:
            return Workplace(workspaces.Workspace(agent, source, source, None, None, None, (ASKED,)))
        return Workplace(await workspaces.prepare(source, agent, root=root, base=base))

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> Workplace:
        """The place as the journal knows it."""
        return Workplace(workspaces.Workspace.from_data(data))

    def to_data(self) -> WorkspaceData:
        """What the journal keeps of it."""
        return self.workspace.to_data()

    @property
    def cwd(self) -> Path:
        """The folder the agent is started in."""
        return self.workspace.path

    @property
    def notes(self) -> Sequence[str]:
        """What a person should know of it."""
        return self.workspace.notes

    async def repair(self, checkpoints: Sequence[AttemptCheckpoint]) -> Sequence[str]:
        """Make it usable again after a crash, while no agent works in it; what had to be repaired."""
        saved = [each.commit for each in checkpoints if each.commit]
        return await workspaces.verify(self.workspace, saved[-1] if saved else None)

    async def checkpoint(self, name: str) -> str | None:
        """Save the files; the commit that holds them, None where none can."""
        saved = await workspaces.checkpoint(self.workspace, name)
        return saved.commit if saved is not None else None


def check_places(run: Run) -> None:
    """NotFound when what a run works on is not where it was."""
    workspace = run.options.get("workspace") or {}
    missing = [place for place in (run.folder, workspace.get("tree")) if place and not Path(place).is_dir()]
    if not missing and workspace and not Path(workspace["repository"]).is_dir():
        missing = [workspace["repository"]]
    if missing:
        where = run.folder if missing[0] != run.folder else "NEW"
        raise NotFound(
            f"orchestration {run.id} cannot go on: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} gone",
            hint="put back what was moved or removed, or a link to where it is now; or say where the folder is: "
            f"`maos resume {run.id} --cwd {where}`",
        )
