"""What happens to a workspace, a step at a time, for programs that are killed while they do it.

    python -m tests.workspaces.life STEP FOLDER

A step that was killed is done again by calling it again, as an engine does that finds it unfinished in its journal.
"""

import asyncio
import json
import sys
from pathlib import Path

from maos.workspaces import Merged, Workspace, checkpoint, merge, prepare, remove, restore, verify
from maos_testing.crash import ack
from tests.workspaces.repositories import git, repository, write

STEPS = ("prepare", "save", "restore", "repair", "merge", "branch", "remove")
"""Each needs those before it, but for `repair`, which begins with a worktree that its repository has forgotten, and
`branch`, which is another merge."""


def begin(folder: Path) -> None:
    """The user's side."""
    user = repository(folder / "user", {"a.txt": "a\n", "b.txt": "b\n", "d/c.txt": "c\n", ".gitignore": "*.log\n"})
    write(user / "own.txt", "the user's own, not committed")


async def step(name: str, folder: Path) -> str:
    """Do a step; a word about what came of it."""
    user = folder / "user"
    if name == "prepare":
        workspace = await prepare(user / "d", "one", root=folder / "workspaces")
        (folder / "journal.json").write_text(json.dumps(workspace.to_data()))
        return str(workspace.base)
    workspace = Workspace.from_data(json.loads((folder / "journal.json").read_text()))
    match name:
        case "save":
            write(workspace.tree / "new.txt", "new")
            write(workspace.tree / "a.txt", "a\nagent\n")
            (workspace.tree / "b.txt").unlink(missing_ok=True)
            saved = await checkpoint(workspace, "saved")
            assert saved is not None
            return saved.commit
        case "restore":
            return (await restore(workspace, str(workspace.base))).commit
        case "repair":
            return " ".join(await verify(workspace))
        case "merge":
            done = await merge(workspace, git(user, "rev-parse", "refs/maos/one/1"), into=user, message="work")
            assert isinstance(done, Merged), done
            return done.commit
        case "branch":
            done = await merge(
                workspace, git(user, "rev-parse", "refs/maos/one/1"), into=user, message="work", branch="x/work"
            )
            assert isinstance(done, Merged), done
            return done.commit
        case "remove":
            await remove(workspace)
            return ""
    raise AssertionError(name)


if __name__ == "__main__":
    ack(asyncio.run(step(sys.argv[1], Path(sys.argv[2]))))
