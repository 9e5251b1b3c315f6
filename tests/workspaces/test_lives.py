"""Workspaces are found whole or made whole after a crash, and go only when nothing is lost by it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from maos.errors import InvalidInput, NotFound
from maos.workspaces import (
    Left,
    UnsavedWork,
    Workspace,
    checkpoint,
    clear,
    diff,
    exists,
    left_behind,
    prepare,
    remove,
    restore,
    verify,
)
from maos.workspaces.layout import folder_of
from tests.workspaces.repositories import commit, contents, git, repository, users_things, write


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """A user's repository."""
    return repository(tmp_path / "user", {"a.txt": "a\n", "d/b.txt": "b\n", ".gitignore": "*.log\n"})


@pytest.fixture
async def workspace(user: Path, tmp_path: Path) -> Workspace:
    """A workspace of it, in a folder of it, with a checkpoint and work that is not saved."""
    made = await prepare(user / "d", "one", root=tmp_path / "workspaces", file_bytes_max=1000)
    write(made.tree / "saved", "saved")
    await checkpoint(made, "saved")
    write(made.tree / "unsaved", "unsaved")
    return made


def gitdir(workspace: Workspace) -> Path:
    assert workspace.gitdir is not None
    return workspace.gitdir


def notes(workspace: Workspace) -> Path:
    return folder_of(workspace.tree.parent, workspace.name)


DAMAGE: dict[str, Callable[[Workspace], object]] = {
    "worktree forgotten": lambda workspace: shutil.rmtree(gitdir(workspace)),
    "all worktrees forgotten": lambda workspace: shutil.rmtree(gitdir(workspace).parent),
    "pointer to the repository": lambda workspace: (workspace.tree / ".git").unlink(),
    "pointer to elsewhere": lambda workspace: write(workspace.tree / ".git", "gitdir: /nonexistent\n"),
    "index.lock of a git that was killed": lambda workspace: write(gitdir(workspace) / "index.lock", ""),
    "index of the agent's git": lambda workspace: write(gitdir(workspace) / "index", "torn"),
    "head of the agent's git": lambda workspace: write(gitdir(workspace) / "HEAD", ""),
    "notes": lambda workspace: (notes(workspace) / "state.json").unlink(),
    "torn notes": lambda workspace: write(notes(workspace) / "state.json", '{"commit": "'),
    "private git folder": lambda workspace: [
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        for entry in notes(workspace).iterdir()
        if entry.name not in ("workspace.json", "repository")
    ],
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("by", ["verify", "prepare"])
async def test_what_is_broken_is_repaired_and_the_work_in_the_tree_stays(
    by: str, damage: str, user: Path, workspace: Workspace
) -> None:
    before = contents(workspace.tree)
    things = users_things(user)
    DAMAGE[damage](workspace)
    if by == "verify":
        assert await verify(workspace) != ()
    else:
        assert await prepare(user / "d", "one", root=workspace.tree.parent) == workspace
    assert await exists(workspace)
    assert await verify(workspace) == ()
    assert contents(workspace.tree) == before
    assert users_things(user) == things
    assert "?? unsaved" in git(workspace.tree, "status", "--porcelain")
    assert git(workspace.tree, "rev-parse", "HEAD") == workspace.base
    taken = await checkpoint(workspace, "goes on")
    assert taken is not None
    assert git(user, "show", f"{taken.commit}:unsaved") == "unsaved"
    assert git(user, "rev-parse", f"{taken.commit}^") == git(user, "rev-parse", "refs/maos/one/1")
    assert taken.ref == "refs/maos/one/2"


@pytest.mark.parametrize("chosen", [False, True])
async def test_a_tree_that_is_gone_comes_back_from_a_checkpoint(chosen: bool, user: Path, workspace: Workspace) -> None:
    first = git(user, "rev-parse", "refs/maos/one/1")
    write(workspace.tree / "later", "later")
    own = commit(workspace.tree, "by the agent")
    await checkpoint(workspace, "later")
    before = contents(workspace.tree)
    shutil.rmtree(workspace.tree)
    assert not await exists(workspace)
    with pytest.raises(NotFound, match="are missing from"):
        await checkpoint(workspace, "of nothing")
    assert "files" in await verify(workspace, first if chosen else None)
    if chosen:
        assert sorted(contents(workspace.tree)) == [b".gitignore", b"a.txt", b"d/b.txt", b"saved"]
        assert git(workspace.tree, "rev-parse", "HEAD") == workspace.base
    else:
        assert contents(workspace.tree) == before
        assert git(workspace.tree, "rev-parse", "HEAD") == own
        assert git(workspace.tree, "status", "--porcelain") == ""
    assert workspace.path.is_dir()


async def test_a_repository_that_is_gone_is_said_to_be(user: Path, workspace: Workspace) -> None:
    shutil.rmtree(user)
    assert not await exists(workspace)
    with pytest.raises(NotFound, match=r"the repository .* is missing"):
        await verify(workspace)
    assert (workspace.tree / "unsaved").read_text() == "unsaved"


async def test_a_workspace_nobody_has_made_is_said_to_be_missing(workspace: Workspace) -> None:
    other = workspace._replace(name="other", tree=workspace.tree.parent / "other")
    for call in (checkpoint(other, "x"), restore(other, "HEAD"), verify(other)):
        with pytest.raises(NotFound, match="workspace other is not at"):
            await call
    assert not await exists(other)
    assert [path.name for path in notes(workspace).parent.glob("other*")] == []
    assert not other.tree.exists()


@pytest.mark.parametrize("is_changed", [False, True])
async def test_a_removed_workspace_is_created_again(is_changed: bool, user: Path, workspace: Workspace) -> None:
    """From its newest checkpoint; one that has none, because nothing was changed in it, from its base."""
    place = workspace if is_changed else await prepare(user / "d", "two", root=workspace.tree.parent)
    await checkpoint(place, "all")
    before = contents(place.tree)
    await remove(place)
    assert not place.tree.exists()
    assert await verify(place) == ("worktree", "files")
    assert await verify(place) == ()
    assert contents(place.tree) == before
    assert ("unsaved" in {os.fsdecode(name) for name in before}) == is_changed


async def test_a_workspace_without_refs_is_created_again_from_the_commit_that_was_recorded(
    user: Path, workspace: Workspace
) -> None:
    saved = await checkpoint(workspace, "all")
    assert saved is not None
    git(user, "branch", "kept", saved.commit)
    await remove(workspace)
    for ref in git(user, "for-each-ref", "--format=%(refname)", "refs/maos/one/").splitlines():
        git(user, "update-ref", "-d", ref)
    with pytest.raises(NotFound, match="workspace one is not at"):
        await verify(workspace)
    assert await verify(workspace, saved.commit) == ("worktree", "files")
    assert (workspace.tree / "unsaved").read_text() == "unsaved"


async def test_notes_that_make_no_sense_never_lead_to_a_deletion(user: Path, workspace: Workspace) -> None:
    write(notes(workspace) / "workspace.json", "{")
    with pytest.raises(InvalidInput, match="is damaged"):
        await prepare(user / "d", "one", root=workspace.tree.parent)
    with pytest.raises(InvalidInput, match="is complete"):
        await clear(workspace.tree.parent, "one")
    assert (workspace.tree / "unsaved").read_text() == "unsaved"


async def test_it_is_not_removed_while_there_is_work_in_no_checkpoint(user: Path, workspace: Workspace) -> None:
    with pytest.raises(UnsavedWork) as caught:
        await remove(workspace)
    assert caught.value.files == ("unsaved",)
    assert (workspace.tree / "unsaved").read_text() == "unsaved"
    await checkpoint(workspace, "now it is")
    write(workspace.tree / "noise.log", "ignored")
    await remove(workspace)
    assert not workspace.tree.exists()
    assert not notes(workspace).exists()
    assert git(user, "worktree", "list").count("\n") == 0
    assert git(user, "show", "refs/maos/one/2:unsaved") == "unsaved"
    await remove(workspace)  # once more is no harm


async def test_it_is_not_removed_while_something_is_left_out(workspace: Workspace) -> None:
    write(workspace.tree / "huge", "x" * 1001)
    repository(workspace.tree / "inner", {"x": "x"})
    await checkpoint(workspace, "without them")
    with pytest.raises(UnsavedWork, match=r"huge \(too large\), inner/ \(nested repository\)"):
        await remove(workspace)
    assert (workspace.tree / "inner/x").exists()


async def test_it_is_not_removed_while_a_commit_is_under_no_ref(user: Path, workspace: Workspace) -> None:
    await checkpoint(workspace, "all")
    lonely = commit(workspace.tree, "by the agent")
    with pytest.raises(UnsavedWork, match="commits that no ref leads to") as caught:
        await remove(workspace)
    assert caught.value.files == (lonely,)
    git(workspace.tree, "branch", "kept")
    await remove(workspace)
    assert git(user, "rev-parse", "kept") == lonely


async def test_it_is_not_removed_when_its_checkpoints_were_deleted(user: Path, workspace: Workspace) -> None:
    await checkpoint(workspace, "all")
    for ref in git(user, "for-each-ref", "--format=%(refname)", "refs/maos/one/").splitlines():
        git(user, "update-ref", "-d", ref)
    with pytest.raises(UnsavedWork, match="commits that no ref leads to"):
        await remove(workspace)
    assert (workspace.tree / "saved").exists()


async def test_a_tree_closed_against_us_is_removed_too(workspace: Workspace) -> None:
    write(workspace.tree / "shut/noise.log", "ignored")
    await checkpoint(workspace, "all")
    (workspace.tree / "shut").chmod(0o500)
    await remove(workspace)
    assert not workspace.tree.exists()


async def test_after_removal_checkpoints_are_compared_and_a_new_workspace_goes_on_counting(
    user: Path, workspace: Workspace
) -> None:
    saved = await checkpoint(workspace, "all")
    assert saved is not None
    await remove(workspace)
    assert [change.path for change in await diff(workspace, str(workspace.base), saved.commit)] == ["saved", "unsaved"]
    again = await prepare(user, "one", root=workspace.tree.parent, start=saved.commit)
    assert (again.tree / "unsaved").exists()
    write(again.tree / "more", "more")
    more = await checkpoint(again, "more")
    assert more is not None
    assert more.ref == "refs/maos/one/3"


async def test_those_that_nobody_owns_are_found(user: Path, workspace: Workspace) -> None:
    root = workspace.tree.parent
    other = await prepare(user, "two", root=root)
    assert left_behind(root) == [Left("one", workspace.tree, workspace), Left("two", other.tree, other)]
    assert left_behind(root / "none") == []
    (notes(other) / "workspace.json").unlink()
    assert left_behind(root) == [Left("one", workspace.tree, workspace), Left("two", other.tree, None)]
    await clear(root, "two")
    await clear(root, "two")
    assert [left.name for left in left_behind(root)] == ["one"]
    assert not other.tree.exists()
    assert not gitdir(other).exists()


async def test_our_folders_are_for_nobody_else(workspace: Workspace) -> None:
    """A21."""
    for path in (notes(workspace).parent, notes(workspace)):
        assert path.stat().st_mode & 0o077 == 0
    for file in notes(workspace).rglob("*.json"):
        assert file.stat().st_mode & 0o077 == 0
    assert os.stat(notes(workspace).parent).st_uid == os.geteuid()
