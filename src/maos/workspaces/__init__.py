"""Workspaces: each attempt works in a git worktree of its own, whose files are saved, restored and merged.

    workspace = await prepare(Path.cwd(), "attempt-7", root=state / "workspaces")
    saved = await checkpoint(workspace, "before the tests")      # a commit under refs/maos/attempt-7/
    await restore(workspace, saved.commit)                       # the files as they were
    done = await merge(workspace, saved.commit, into=Path.cwd(), message="Fix the parser")

Only `merge` touches the user's index, HEAD, branches and files. Outside git the agent works in place: `checkpoint`
returns None and nothing is saved. docs/explanation/workspaces.md has the rules and the reasons.

Other packages import from here, and from `git`, `commits` and `products`; the other modules are internal.
"""

from __future__ import annotations

from maos.workspaces.checkpoints import FileChange, FileCheckpoint, checkpoint, diff, patch, restore
from maos.workspaces.conflicts import TASK_TRAILER, FileConflict, SideChange
from maos.workspaces.git import GitUnavailable, RepositoryFolder, UntrustedRepository, discover
from maos.workspaces.index import LeftOut
from maos.workspaces.layout import ROOT, UnsavedWork, Workspace, check_workspace_name, is_object
from maos.workspaces.merge import (
    OTHERS,
    OWN,
    SIDES,
    Blocked,
    Conflicted,
    Merged,
    MergedCommit,
    WorkPart,
    landed,
    merge,
    preview,
)
from maos.workspaces.preparation import (
    exists,
    head,
    missing_commits,
    newest_checkpoint,
    prepare,
    relocate,
    verify,
)
from maos.workspaces.worktree import Left, clear, is_left, is_merged, keep, left_behind, names_below, remove
