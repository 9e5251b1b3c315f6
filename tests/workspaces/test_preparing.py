"""Workspaces are made next to what the user has, in every kind of repository, and touch none of it."""

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from maos import workspaces as workspaces
from maos.errors import InvalidInput, NotFound
from maos.workspaces import UntrustedRepository, Workspace, checkpoint, prepare, restore
from tests.workspaces.repositories import (
    NOBODY,
    as_nobody,
    commit,
    contents,
    git,
    remove_forced,
    repository,
    users_things,
    write,
)


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """A user's repository."""
    return repository(tmp_path / "user", {"a.txt": "1\n2\n3\n", "src/deep/b.txt": "b\n", ".gitignore": "*.log\n"})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where workspaces go."""
    return tmp_path / "workspaces"


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that any user may walk into; the one of pytest is private."""
    folder = Path(tempfile.mkdtemp(prefix="maos-"))
    folder.chmod(0o755)
    yield folder
    remove_forced(folder)


async def test_it_has_the_files_of_head_and_nothing_of_the_users_is_touched(user: Path, root: Path) -> None:
    before = users_things(user)
    workspace = await prepare(user, "one", root=root)
    assert users_things(user) == before
    assert contents(workspace.tree) == contents(user)
    assert workspace.path == workspace.tree == root / "one"
    assert workspace.base == git(user, "rev-parse", "HEAD")
    assert workspace.notes == ()
    assert not workspace.in_place
    assert git(workspace.path, "status", "--porcelain") == ""
    assert git(workspace.path, "rev-parse", "--abbrev-ref", "HEAD") == "HEAD", "no branch of the user's is used"
    assert git(user, "branch", "--list", "-a") == "* main"


async def test_asked_for_again_it_is_the_same_and_what_was_done_in_it_stays(user: Path, root: Path) -> None:
    workspace = await prepare(user, "one", root=root)
    write(workspace.tree / "new.txt", "work")
    commit(user, "the user goes on")
    assert await prepare(user, "one", root=root) == workspace
    assert (workspace.tree / "new.txt").read_text() == "work"


async def test_it_is_plain_data(user: Path, root: Path) -> None:
    workspace = await prepare(user, "one", root=root, keep_ignored=["*.log"])
    assert Workspace.from_data(json.loads(json.dumps(workspace.to_data()))) == workspace
    in_place = await prepare(root.parent, "two", root=root)
    assert Workspace.from_data(json.loads(json.dumps(in_place.to_data()))) == in_place


async def test_a_folder_of_the_repository_is_the_same_folder_of_the_workspace(user: Path, root: Path) -> None:
    workspace = await prepare(user / "src" / "deep", "one", root=root)
    assert workspace.path == root / "one" / "src" / "deep"
    assert (workspace.path / "b.txt").read_text() == "b\n"
    (user / "not committed").mkdir()
    other = await prepare(user / "not committed", "two", root=root)
    assert other.path.is_dir()


async def test_a_link_in_the_commit_does_not_lead_the_agent_elsewhere(user: Path, root: Path, tmp_path: Path) -> None:
    """A13."""
    (user / "out").symlink_to(tmp_path)
    commit(user, "a link")
    (user / "out").unlink()
    (user / "out").mkdir()
    with pytest.raises(InvalidInput, match="not a folder in this commit"):
        await prepare(user / "out", "one", root=root)


async def test_from_a_linked_worktree_it_starts_where_that_one_is(user: Path, root: Path, tmp_path: Path) -> None:
    git(user, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    write(tmp_path / "side" / "side.txt", "side")
    there = commit(tmp_path / "side", "on the side")
    workspace = await prepare(tmp_path / "side", "one", root=root)
    assert workspace.base == there
    assert workspace.repository == user / ".git"
    assert (workspace.tree / "side.txt").exists()


async def test_from_a_workspace_another_one_can_be_made(user: Path, root: Path) -> None:
    first = await prepare(user, "one", root=root)
    second = await prepare(first.path, "two", root=root)
    assert second.repository == first.repository


async def test_a_bare_repository_will_do(user: Path, root: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(user), "bare")
    workspace = await prepare(tmp_path / "bare", "one", root=root)
    assert contents(workspace.tree) == contents(user)
    write(workspace.tree / "new", "new")
    saved = await checkpoint(workspace, "work")
    assert saved is not None
    assert git(tmp_path / "bare", "show", f"{saved.ref}:new") == "new"


async def test_a_repository_with_sha256_will_do(root: Path, tmp_path: Path) -> None:
    user = repository(tmp_path / "user", {"a": "a"}, "--object-format=sha256")
    workspace = await prepare(user, "one", root=root)
    write(workspace.tree / "b", "b")
    saved = await checkpoint(workspace, "work")
    assert saved is not None
    assert len(saved.commit) == 64
    (workspace.tree / "b").unlink()
    removed = await checkpoint(workspace, "removed")
    assert removed is not None
    assert removed.changed == 1
    await restore(workspace, saved.commit)
    await restore(workspace, str(workspace.base))
    assert not (workspace.tree / "b").exists()


@pytest.mark.parametrize("files", [{}, {"a.txt": "not committed"}])
async def test_a_repository_without_a_commit_gives_its_files_as_they_are(
    files: dict[str, str], root: Path, tmp_path: Path
) -> None:
    user = repository(tmp_path / "user")
    for name, content in files.items():
        write(user / name, content)
    before = users_things(user)
    workspace = await prepare(user, "one", root=root)
    assert contents(workspace.tree) == contents(user)
    assert users_things(user) == before
    assert "nothing is committed yet" in workspace.notes[0]


async def test_uncommitted_changes_stay_out_and_that_is_said(user: Path, root: Path) -> None:
    write(user / "a.txt", "changed")
    write(user / "new.txt", "new")
    workspace = await prepare(user, "one", root=root)
    assert (workspace.tree / "a.txt").read_text() == "1\n2\n3\n"
    assert not (workspace.tree / "new.txt").exists()
    assert workspace.notes == (f"2 uncommitted changes in {user} will not be visible to agents",)


async def test_uncommitted_changes_are_in_it_when_asked_for(user: Path, root: Path) -> None:
    write(user / "a.txt", "staged")
    git(user, "add", "a.txt")
    write(user / "a.txt", "changed")
    write(user / "new.txt", "new")
    write(user / "noise.log", "ignored")
    write(user / "huge", "x" * 1001)
    (user / "src/deep/b.txt").unlink()
    before = users_things(user)
    workspace = await prepare(user, "one", root=root, include_uncommitted=True, file_bytes_max=1000)
    assert contents(workspace.tree) == contents(user, without=("noise.log", "huge"))
    assert workspace.notes == ("huge is not in it: too large",)
    assert users_things(user) == before
    assert git(workspace.tree, "rev-parse", "HEAD^") == git(user, "rev-parse", "HEAD")


async def test_outside_git_the_agent_works_in_place_and_nothing_is_promised(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    write(folder / "a", "a")
    workspace = await prepare(folder, "one", root=tmp_path / "workspaces")
    assert workspace.in_place
    assert workspace.path == folder
    assert "not saved" in workspace.notes[0]
    assert await checkpoint(workspace, "work") is None
    assert await workspaces.verify(workspace) == ()
    assert await workspaces.exists(workspace)
    for refused in (restore(workspace, "HEAD"), workspaces.diff(workspace, "HEAD")):
        with pytest.raises(InvalidInput, match="not in a git repository"):
            await refused
    with pytest.raises(InvalidInput, match="worked in directly"):
        await workspaces.merge(workspace, "HEAD", into=folder, message="no")
    await workspaces.remove(workspace)
    assert (folder / "a").read_text() == "a"
    shutil.rmtree(folder)
    assert not await workspaces.exists(workspace)
    with pytest.raises(NotFound, match="is missing"):
        await workspaces.verify(workspace)


async def test_without_git_a_repository_is_refused_and_a_plain_folder_is_not(
    user: Path, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plain").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "plain"))
    assert (await prepare(tmp_path / "plain", "one", root=root)).in_place
    with pytest.raises(workspaces.GitUnavailable) as caught:
        await prepare(user / "src", "one", root=root)
    assert "install git 2.38 or newer" in caught.value.hint


async def test_an_old_git_is_refused(user: Path, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = write(tmp_path / "old" / "git", "#!/bin/sh\necho git version 2.30.2\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(old.parent), prepend=os.pathsep)
    with pytest.raises(workspaces.GitUnavailable, match=r"too old: git version 2\.30\.2"):
        await prepare(user, "one", root=root)


HOSTILE = ["", ".", "..", "-rf", "a/b", "../up", "a b", "a;rm", "$(id)", "a\nb", "a.lock", "a..b", "a.", "é", "x" * 101]


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_name_that_could_be_something_else_is_refused(name: str, user: Path, root: Path) -> None:
    """A14."""
    with pytest.raises(InvalidInput, match="cannot be the name of a workspace"):
        await prepare(user, name, root=root)
    assert not root.exists()


@pytest.mark.parametrize("base", ["--upload-pack=touch x", "-x", "no such branch", "HEAD:a.txt", "\0", "\udcff", ""])
async def test_a_commit_that_is_none_is_refused(base: str, user: Path, root: Path) -> None:
    """A14."""
    with pytest.raises(NotFound, match="there is no commit"):
        await prepare(user, "one", root=root, base=base)


async def test_a_folder_that_is_there_is_not_taken(user: Path, root: Path) -> None:
    write(root / "one" / "precious", "precious")
    with pytest.raises(InvalidInput, match="exists and is not a workspace"):
        await prepare(user, "one", root=root)
    assert (root / "one" / "precious").read_text() == "precious"


async def test_a_name_that_another_repository_uses_is_refused(user: Path, root: Path, tmp_path: Path) -> None:
    other = repository(tmp_path / "other", {"a": "a"})
    await prepare(other, "one", root=root)
    with pytest.raises(InvalidInput, match="belongs to"):
        await prepare(user, "one", root=root)


async def test_folders_that_are_no_place_to_work_are_refused(user: Path, root: Path, tmp_path: Path) -> None:
    for source, match in ((tmp_path / "none", "not a folder"), (user / ".git" / "refs", "inside a git folder")):
        with pytest.raises(InvalidInput, match=match):
            await prepare(source, "one", root=root)
    git(user, "config", "core.worktree", str(tmp_path))
    with pytest.raises(InvalidInput, match=r"core\.worktree|has no \.git"):
        await prepare(user, "one", root=root)
    not_text = tmp_path / os.fsdecode(b"\xff")
    repository(not_text, {"a": "a"})
    with pytest.raises(InvalidInput, match="not valid UTF-8"):
        await prepare(not_text, "one", root=root)


async def test_below_the_users_tree_it_is_not_shown_by_their_git(user: Path) -> None:
    workspace = await prepare(user, "one", root=user / "deep" / "workspaces")
    assert git(user, "status", "--porcelain", "-uall") == ""
    assert git(workspace.path, "status", "--porcelain") == ""


async def test_a_fork_has_the_files_of_a_checkpoint_and_the_base_of_the_first(user: Path, root: Path) -> None:
    first = await prepare(user, "one", root=root)
    write(first.tree / "work.txt", "work")
    own = commit(first.tree, "the agent commits")
    write(first.tree / "more.txt", "more")
    saved = await checkpoint(first, "half")
    assert saved is not None
    second = await prepare(user, "two", root=root, start=saved.commit)
    assert contents(second.tree) == contents(first.tree)
    assert second.base == first.base
    assert git(second.tree, "rev-parse", "HEAD") == own
    assert git(second.tree, "status", "--porcelain") == "?? more.txt"
    again = await checkpoint(second, "nothing yet")
    assert again is not None
    assert (again.commit, again.changed) == (saved.commit, 0)


async def test_many_at_once_in_one_repository_do_not_disturb_each_other(user: Path, root: Path) -> None:
    async def life(number: int) -> None:
        workspace = await prepare(user, f"w{number}", root=root)
        for step in range(3):
            write(workspace.tree / f"{number}.txt", f"{step}")
            saved = await checkpoint(workspace, f"step {step}")
            assert saved is not None
            assert saved.ref == f"refs/maos/w{number}/{step + 1}"
        assert [path.name for path in workspace.tree.glob("[0-9]*.txt")] == [f"{number}.txt"]

    await asyncio.gather(*(life(number) for number in range(8)))
    assert len(git(user, "worktree", "list").splitlines()) == 9


async def test_two_callers_of_one_workspace_take_turns(user: Path, root: Path) -> None:
    made = await asyncio.gather(*(prepare(user, "one", root=root) for _ in range(4)))
    assert len(set(made)) == 1
    write(made[0].tree / "new", "new")
    saved = await asyncio.gather(*(checkpoint(made[0], "at once") for _ in range(4)))
    assert len({one.commit for one in saved if one is not None}) == 1
    assert git(user, "for-each-ref", "--format=%(refname)").count("refs/maos/one/1") == 1


async def test_a_repository_of_another_user_is_refused_until_it_is_trusted(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A12: whoever owns the repository could have put anything into its configuration."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a repository to somebody else")
    user = repository(shared / "user", {"a": "a"})
    home = shared / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for path in (user, *user.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    with pytest.raises(UntrustedRepository) as caught:
        await prepare(user, "one", root=shared / "workspaces")
    assert f"git config --global --add safe.directory {user}" in caught.value.hint
    assert not (shared / "workspaces").exists()
    write(home / ".gitconfig", f"[safe]\n\tdirectory = {user}\n")
    workspace = await prepare(user, "one", root=shared / "workspaces")
    write(workspace.tree / "b", "b")
    assert await checkpoint(workspace, "trusted") is not None


async def test_an_ordinary_user_needs_no_configuration(shared: Path) -> None:
    user = repository(shared / "user", {"a": "a"})
    with as_nobody(owning=shared):
        workspace = await prepare(user, "one", root=shared / "workspaces")
        write(workspace.tree / "b", "b")
        saved = await checkpoint(workspace, "work")
        assert saved is not None
        await restore(workspace, str(workspace.base))
        assert not (workspace.tree / "b").exists()
        done = await workspaces.merge(workspace, saved.commit, into=user, message="work")
        assert isinstance(done, workspaces.Merged)
        await workspaces.remove(workspace)
    assert (user / "b").read_text() == "b"
