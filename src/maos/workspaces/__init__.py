"""Workspaces: each attempt works in a git worktree of its own, whose files are saved, brought back and merged.

    workspace = await prepare(Path.cwd(), "attempt-7", root=state / "workspaces")
    saved = await checkpoint(workspace, "before the tests")      # a commit under refs/maos/attempt-7/
    await restore(workspace, saved.commit)                       # the files as they were
    done = await merge(workspace, saved.commit, into=Path.cwd(), message="Fix the parser")

The user's index, HEAD, branches and files are touched by nothing here but `merge`. Outside git the agent works in
place: `checkpoint` gives None and nothing is promised. docs/explanation/workspaces.md has the rules and the reasons.
"""

from __future__ import annotations

from maos.workspaces.checkpoints import FileChange, FileCheckpoint, checkpoint, diff, patch, restore
from maos.workspaces.creation import prepare
from maos.workspaces.git import IDENTITY, GitFailed, GitTimeout, GitUnavailable, UntrustedRepository
from maos.workspaces.index import LeftOut
from maos.workspaces.layout import FILE_BYTES_MAX, UnsavedWork, Workspace
from maos.workspaces.merge import OTHERS, OWN, SIDES, Blocked, Conflicted, Merged, merge, preview
from maos.workspaces.relocation import head, lacking, relocate
from maos.workspaces.removal import Left, clear, forget, is_left, keep, left_behind, remove
from maos.workspaces.repair import exists, verify

__all__ = [
    "FILE_BYTES_MAX",
    "IDENTITY",
    "OTHERS",
    "OWN",
    "SIDES",
    "Blocked",
    "Conflicted",
    "FileChange",
    "FileCheckpoint",
    "GitFailed",
    "GitTimeout",
    "GitUnavailable",
    "Left",
    "LeftOut",
    "Merged",
    "UnsavedWork",
    "UntrustedRepository",
    "Workspace",
    "checkpoint",
    "clear",
    "diff",
    "exists",
    "forget",
    "head",
    "is_left",
    "keep",
    "lacking",
    "left_behind",
    "merge",
    "patch",
    "prepare",
    "preview",
    "relocate",
    "remove",
    "restore",
    "verify",
]
