"""Work lands in the user's branch and tree wholly or not at all, and no edit of anybody is lost."""

from pathlib import Path

import pytest

from maos.errors import InvalidInput
from maos.workspaces import (
    TASK_TRAILER,
    Blocked,
    Conflicted,
    Merged,
    MergedCommit,
    WorkPart,
    Workspace,
    checkpoint,
    merge,
    prepare,
    remove,
)
from tests.workspaces.repositories import commit, contents, git, repository, users_things, write

LINES = "".join(f"{n}\n" for n in range(1, 21))


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """A user's repository."""
    return repository(tmp_path / "user", {"a.txt": LINES, "d/b.txt": "b\n", "old.txt": "old\n" * 9})


@pytest.fixture
async def workspace(user: Path, tmp_path: Path) -> Workspace:
    """A workspace of it."""
    return await prepare(user, "one", root=tmp_path / "workspaces")


async def merged(workspace: Workspace, user: Path, message: str = "the work") -> Merged | Conflicted | Blocked:
    """Save what is there and merge it."""
    saved = await checkpoint(workspace, "done")
    assert saved is not None
    return await merge(workspace, saved.commit, into=user, message=message)


def clean(user: Path) -> bool:
    """Whether the user's tree is what their branch says."""
    return git(user, "status", "--porcelain") == "" and git(user, "fsck", "--no-dangling") == ""


async def test_work_lands_as_one_commit_with_its_files(user: Path, workspace: Workspace) -> None:
    before = git(user, "rev-parse", "HEAD")
    write(workspace.tree / "a.txt", LINES + "agent\n")
    await checkpoint(workspace, "half")
    write(workspace.tree / "new/file.sh", "#!/bin/sh\n").chmod(0o755)
    (workspace.tree / "d/b.txt").unlink()
    (workspace.tree / "link").symlink_to("a.txt")
    done = await merged(workspace, user, "Add a file\n\nand more")
    commit, files = git(user, "rev-parse", "main"), ("a.txt", "d/b.txt", "link", "new/file.sh")
    assert done == Merged(commit, files, (MergedCommit(commit, "Add a file", files),), "main")
    assert contents(user) == contents(workspace.tree)
    assert clean(user)
    assert git(user, "log", "--format=%s", "main") == "Add a file\nfirst"
    assert git(user, "rev-parse", "main^") == before
    assert git(user, "symbolic-ref", "HEAD") == "refs/heads/main"


async def test_both_sides_are_kept_when_they_do_not_meet(user: Path, workspace: Workspace) -> None:
    write(workspace.tree / "a.txt", LINES + "agent\n")
    (workspace.tree / "old.txt").rename(workspace.tree / "renamed.txt")
    write(user / "a.txt", "user\n" + LINES)
    write(user / "old.txt", "old\n" * 9 + "by the user\n")
    commit(user, "the user goes on")
    done = await merged(workspace, user)
    assert isinstance(done, Merged)
    assert (user / "a.txt").read_text() == "user\n" + LINES + "agent\n"
    assert (user / "renamed.txt").read_text() == "old\n" * 9 + "by the user\n"
    assert clean(user)


async def test_a_conflict_names_its_files_and_touches_nothing(user: Path, workspace: Workspace) -> None:
    write(workspace.tree / "a.txt", LINES.replace("10\n", "agent\n"))
    write(workspace.tree / 'odd\n"name', "agent")
    (workspace.tree / "d/b.txt").unlink()
    write(workspace.tree / "fine", "fine")
    write(user / "a.txt", LINES.replace("10\n", "user\n"))
    write(user / 'odd\n"name', "user")
    write(user / "d/b.txt", "changed")
    commit(user, "the user goes on")
    before = users_things(user)
    done = await merged(workspace, user)
    assert isinstance(done, Conflicted)
    assert done.files == ("a.txt", "d/b.txt", 'odd\n"name')
    assert any("CONFLICT (modify/delete): d/b.txt" in message for message in done.messages)
    assert users_things(user) == before
    half = git(user, "show", f"{done.commit}:a.txt")
    assert "agent" in half
    assert "user" in half
    assert not list((user / ".git").glob("MERGE*"))


async def test_changes_of_the_user_elsewhere_stay_as_they_are(user: Path, workspace: Workspace) -> None:
    write(workspace.tree / "a.txt", LINES + "agent\n")
    write(user / "d/b.txt", "not committed\n")
    write(user / "staged", "staged\n")
    git(user, "add", "staged")
    write(user / "untracked", "untracked")
    assert isinstance(await merged(workspace, user), Merged)
    assert git(user, "status", "--porcelain") == " M d/b.txt\nA  staged\n?? untracked"
    assert (user / "d/b.txt").read_text() == "not committed\n"


BLOCKING = {
    "changed": "a.txt",
    "staged": "a.txt",
    "deleted": "a.txt",
    "untracked": "new",
    "ignored": "new",
    "folder": "new/inner",
    "repository": "new",
}


@pytest.mark.parametrize("how", BLOCKING)
async def test_changes_of_the_user_in_the_way_are_named_and_nothing_is_touched(
    how: str, user: Path, workspace: Workspace
) -> None:
    write(workspace.tree / "a.txt", LINES + "agent\n")
    write(workspace.tree / "new", "agent")
    match how:
        case "changed" | "staged":
            write(user / "a.txt", LINES + "user\n")
            if how == "staged":
                git(user, "add", "a.txt")
        case "deleted":
            (user / "a.txt").unlink()
        case "untracked" | "ignored":
            write(user / "new", "user")
            if how == "ignored":
                write(user / ".git/info/exclude", "new\n")
        case "folder":
            write(user / "new/inner", "user")
        case "repository":
            repository(user / "new")
    before = users_things(user)
    done = await merged(workspace, user)
    assert isinstance(done, Blocked)
    assert done.files == (BLOCKING[how],)
    assert "then merge again" in done.hint
    assert users_things(user) == before
    if how == "changed":
        commit(user, "now it is")
        assert isinstance(await merged(workspace, user), Conflicted)


async def test_what_the_user_has_done_alike_is_not_in_the_way(user: Path, workspace: Workspace) -> None:
    """Nor is what a merge that was killed has written already."""
    write(workspace.tree / "a.txt", LINES + "agent\n")
    write(workspace.tree / "new", "agent")
    (workspace.tree / "d/b.txt").unlink()
    write(user / "a.txt", LINES + "agent\n")
    write(user / "new", "agent")
    (user / "d/b.txt").unlink()
    done = await merged(workspace, user)
    assert isinstance(done, Merged)
    assert clean(user)
    assert contents(user) == contents(workspace.tree)


async def test_files_that_were_only_touched_are_not_in_the_way(user: Path, workspace: Workspace) -> None:
    write(workspace.tree / "a.txt", LINES + "agent\n")
    write(user / "a.txt", LINES)
    assert isinstance(await merged(workspace, user), Merged)
    assert clean(user)


@pytest.mark.parametrize("what", ["MERGE_HEAD", "rebase-merge", "CHERRY_PICK_HEAD"])
async def test_nothing_is_done_while_the_user_merges_or_rebases(what: str, user: Path, workspace: Workspace) -> None:
    write(workspace.tree / "new", "agent")
    write(user / ".git" / what, git(user, "rev-parse", "HEAD"))
    done = await merged(workspace, user)
    assert isinstance(done, Blocked)
    assert what in done.why
    assert not (user / "new").exists()


async def test_a_locked_index_blocks_and_says_so(user: Path, workspace: Workspace) -> None:
    write(workspace.tree / "new", "agent")
    lock = write(user / ".git/index.lock", "")
    before = users_things(user)
    done = await merged(workspace, user)
    assert isinstance(done, Blocked)
    assert "index.lock" in done.hint
    assert users_things(user) == before
    lock.unlink()
    assert isinstance(await merged(workspace, user), Merged)


async def test_conflicts_that_the_user_has_not_resolved_block(user: Path, workspace: Workspace) -> None:
    write(user / "a.txt", "stashed")
    git(user, "stash", "-q")
    write(user / "a.txt", "committed")
    commit(user, "the user goes on")
    with pytest.raises(AssertionError, match="stash"):
        git(user, "stash", "pop")
    write(workspace.tree / "new", "agent")
    before = users_things(user)
    done = await merged(workspace, user)
    assert isinstance(done, Blocked)
    assert done.files == ("a.txt",)
    assert users_things(user) == before


async def test_merged_twice_it_is_there_once(user: Path, workspace: Workspace) -> None:
    write(workspace.tree / "new", "agent")
    first = await merged(workspace, user)
    assert isinstance(first, Merged)
    assert await merged(workspace, user) == Merged(first.commit, (), (), "main")
    assert git(user, "rev-parse", "main") == first.commit


async def test_what_the_user_took_out_again_stays_out(user: Path, workspace: Workspace) -> None:
    """The second merge starts from what was merged last, not from where the work began."""
    write(workspace.tree / "a.txt", LINES.replace("10\n", "agent\n"))
    write(workspace.tree / "unwanted", "agent")
    assert isinstance(await merged(workspace, user), Merged)
    write(user / "a.txt", LINES.replace("10\n", "user\n"))
    (user / "unwanted").unlink()
    commit(user, "the user changes it again")
    write(workspace.tree / "more", "agent")
    done = await merged(workspace, user)
    assert isinstance(done, Merged)
    assert done.files == ("more",)
    assert not (user / "unwanted").exists()
    assert "user\n" in (user / "a.txt").read_text()


async def test_what_the_agent_took_in_from_the_user_is_no_conflict(user: Path, workspace: Workspace) -> None:
    write(user / "a.txt", LINES.replace("10\n", "user\n"))
    commit(user, "the user goes on")
    write(workspace.tree / "new", "agent")
    commit(workspace.tree, "by the agent")
    git(workspace.tree, "merge", "-q", "main", "-m", "take in main")
    write(workspace.tree / "a.txt", LINES.replace("10\n", "agent after user\n"))
    done = await merged(workspace, user)
    assert isinstance(done, Merged)
    assert done.files == ("a.txt", "new")


async def test_two_workspaces_land_one_after_the_other(user: Path, workspace: Workspace, tmp_path: Path) -> None:
    other = await prepare(user, "two", root=tmp_path / "workspaces")
    write(workspace.tree / "a.txt", "one\n" + LINES)
    write(other.tree / "a.txt", LINES + "two\n")
    assert isinstance(await merged(workspace, user), Merged)
    assert isinstance(await merged(other, user), Merged)
    assert (user / "a.txt").read_text() == "one\n" + LINES + "two\n"


async def test_a_branch_that_does_not_have_the_base_gets_the_work_and_nothing_else(
    user: Path, workspace: Workspace
) -> None:
    git(user, "checkout", "-q", "--orphan", "other")
    git(user, "rm", "-q", "-r", "--cached", "d")
    git(user, "commit", "-q", "-m", "another history")
    write(workspace.tree / "new", "agent")
    done = await merged(workspace, user)
    assert isinstance(done, Merged)
    assert done.files == ("new",)


async def test_uncommitted_changes_it_started_with_are_the_users_to_commit(user: Path, tmp_path: Path) -> None:
    write(user / "a.txt", "user\n" + LINES)
    write(user / "draft", "draft")
    workspace = await prepare(user, "two", root=tmp_path / "workspaces", include_uncommitted=True)
    write(workspace.tree / "new", "agent")
    done = await merged(workspace, user)
    assert isinstance(done, Merged)
    assert done.files == ("new",)
    write(workspace.tree / "a.txt", "user\n" + LINES + "agent\n")
    done = await merged(workspace, user)
    assert isinstance(done, Conflicted | Blocked)
    commit(user, "the user commits")
    assert isinstance(await merged(workspace, user), Merged)
    assert (user / "a.txt").read_text() == "user\n" + LINES + "agent\n"


async def test_into_a_bare_repository_only_the_branch_moves(user: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(user), "bare")
    bare = tmp_path / "bare"
    workspace = await prepare(bare, "two", root=tmp_path / "workspaces")
    write(workspace.tree / "new", "agent")
    done = await merged(workspace, bare)
    assert isinstance(done, Merged)
    assert git(bare, "show", "main:new") == "agent"


async def test_into_a_repository_without_a_commit_nothing_is_merged(tmp_path: Path) -> None:
    user = repository(tmp_path / "user")
    write(user / "a.txt", LINES)
    workspace = await prepare(user, "two", root=tmp_path / "workspaces")
    write(workspace.tree / "a.txt", LINES + "agent\n")
    done = await merged(workspace, user)
    assert isinstance(done, Blocked)
    assert "nothing is committed" in done.why
    commit(user, "first")
    assert isinstance(await merged(workspace, user), Merged)
    assert (user / "a.txt").read_text() == LINES + "agent\n"


async def test_line_ends_land_as_the_attributes_want_them(user: Path, tmp_path: Path) -> None:
    write(user / ".gitattributes", "* text=auto\n*.bat eol=crlf\n")
    write(user / "run.bat", "one\ntwo\n")
    commit(user, "attributes")
    workspace = await prepare(user, "two", root=tmp_path / "workspaces")
    write(workspace.tree / "crlf.txt", b"a\r\nb\r\n")
    write(workspace.tree / "run.bat", b"one\ntwo\nthree\n")
    write(workspace.tree / "binary", b"\0\r\n")
    assert isinstance(await merged(workspace, user), Merged)
    assert git(user, "cat-file", "-p", "main:crlf.txt") == "a\nb"
    assert (user / "run.bat").read_bytes() == b"one\r\ntwo\r\nthree\r\n"
    assert (user / "binary").read_bytes() == b"\0\r\n"
    assert clean(user)


async def test_files_that_pass_through_a_filter_are_left_to_the_user(user: Path, workspace: Workspace) -> None:
    """A12: maos runs no program that a repository names; a wrong file in the user's tree would be no better."""
    write(user / ".gitattributes", "*.big filter=lfs\n")
    commit(user, "attributes")
    git(user, "config", "filter.lfs.clean", f"touch {user}/ran; cat")
    git(user, "config", "filter.lfs.smudge", f"touch {user}/ran; cat")
    write(workspace.tree / "x.big", "agent")
    before = users_things(user)
    done = await merged(workspace, user)
    assert isinstance(done, Blocked)
    assert done.files == ("x.big",)
    assert done.hint.startswith("merge it yourself: git cherry-pick ")
    assert users_things(user) == before
    git(user, *done.hint.split("git ")[1].split())
    assert (user / "ran").exists()
    assert git(user, "show", "main:x.big") == "agent"


async def test_only_a_worktree_of_its_repository_can_take_it(user: Path, workspace: Workspace, tmp_path: Path) -> None:
    other = repository(tmp_path / "other", {"a": "a"})
    for folder, match in ((other, "not in the repository"), (tmp_path, "not in"), (workspace.path, "itself")):
        with pytest.raises(InvalidInput, match=match):
            await merge(workspace, str(workspace.base), into=folder, message="no")


async def test_work_can_land_when_its_workspace_is_gone(user: Path, workspace: Workspace) -> None:
    write(workspace.tree / "new", "agent")
    saved = await checkpoint(workspace, "done")
    assert saved is not None
    await remove(workspace)
    done = await merge(workspace, saved.commit, into=user, message="")
    assert isinstance(done, Merged)
    assert git(user, "log", "-1", "--format=%s") == "Merge one"


# --- in parts, into a branch, and without doing it ---------------------------------------------------------------


async def saved(workspace: Workspace, **files: str) -> str:
    """Write files, and save them; the commit."""
    for name, text in files.items():
        write(workspace.tree / f"{name}.txt", text)
    found = await checkpoint(workspace, "part")
    assert found is not None
    return found.commit


def part(name: str, commit: str) -> WorkPart:
    """The work of a task."""
    return WorkPart(commit, f"{name}: its title", f"What {name} did.", ((TASK_TRAILER, name), ("Maos-Run", "r-1")))


async def test_each_part_becomes_a_commit_of_the_user(user: Path, workspace: Workspace) -> None:
    git(user, "config", "user.name", "Ada")
    git(user, "config", "user.email", "ada@example.org")
    parts = [part("one", await saved(workspace, one="1")), part("two", await saved(workspace, two="2", a=LINES + "2"))]
    done = await merge(workspace, parts[-1].commit, into=user, parts=parts, as_user=True)
    assert isinstance(done, Merged)
    assert [(each.subject, each.files, each.tasks) for each in done.commits] == [
        ("one: its title", ("one.txt",), ("one",)),
        ("two: its title", ("a.txt", "two.txt"), ("two",)),
    ]
    assert git(user, "log", "--format=%an <%ae> %cn: %s", "-2") == (
        "Ada <ada@example.org> Ada: two: its title\nAda <ada@example.org> Ada: one: its title"
    )
    message = git(user, "log", "--format=%B", "-1")
    assert message.startswith("two: its title\n\nWhat two did.\n\nMaos-Task: two\nMaos-Run: r-1\nMaos-Checkpoint: ")
    assert clean(user)


async def test_parts_that_were_merged_before_are_not_merged_again(user: Path, workspace: Workspace) -> None:
    parts = [part("one", await saved(workspace, one="1"))]
    await merge(workspace, parts[-1].commit, into=user, parts=parts)
    parts.append(part("two", await saved(workspace, two="2")))
    done = await merge(workspace, parts[-1].commit, into=user, parts=parts)
    assert isinstance(done, Merged)
    assert [each.tasks for each in done.commits] == [("two",)]


async def test_a_part_that_alone_conflicts_is_committed_with_the_one_that_does_not(
    user: Path, workspace: Workspace
) -> None:
    parts = [part("one", await saved(workspace, a=LINES.replace("10\n", "ten\n")))]
    parts.append(part("two", await saved(workspace, a=LINES, two="2")))
    write(user / "a.txt", LINES.replace("10\n", "TEN\n"))
    commit(user, "the user's ten")
    done = await merge(workspace, parts[-1].commit, into=user, parts=parts)
    assert isinstance(done, Merged), done
    assert [(each.tasks, each.files) for each in done.commits] == [(("one", "two"), ("two.txt",))]
    assert (user / "a.txt").read_text() == LINES.replace("10\n", "TEN\n")


async def test_a_branch_is_made_where_the_work_began_and_no_file_is_touched(user: Path, workspace: Workspace) -> None:
    base = git(user, "rev-parse", "HEAD")
    write(user / "a.txt", LINES.replace("10\n", "user\n"))
    commit(user, "the user goes on")
    write(user / "a.txt", "not committed")
    before = (contents(user), git(user, "status", "--porcelain"), git(user, "rev-parse", "HEAD"))
    parts = [part("one", await saved(workspace, a=LINES.replace("10\n", "agent\n")))]
    done = await merge(workspace, parts[-1].commit, into=user, parts=parts, branch="work/one")
    assert isinstance(done, Merged), done
    assert git(user, "rev-parse", "work/one") == done.commit
    assert git(user, "rev-parse", "work/one^") == base
    assert (contents(user), git(user, "status", "--porcelain"), git(user, "rev-parse", "HEAD")) == before
    parts.append(part("two", await saved(workspace, two="2")))
    more = await merge(workspace, parts[-1].commit, into=user, parts=parts, branch="work/one")
    assert isinstance(more, Merged)
    assert git(user, "rev-parse", "work/one^") == done.commit


async def test_a_merge_into_a_branch_does_not_hide_an_earlier_one_into_another(
    user: Path, workspace: Workspace
) -> None:
    parts = [part("one", await saved(workspace, one="1"))]
    await merge(workspace, parts[-1].commit, into=user, parts=parts)
    write(user / "one.txt", "1, and what the user made of it")
    commit(user, "the user goes on")
    await merge(workspace, parts[-1].commit, into=user, parts=parts, branch="other")
    parts.append(part("two", await saved(workspace, two="2")))
    done = await merge(workspace, parts[-1].commit, into=user, parts=parts)
    assert isinstance(done, Merged), done
    assert done.files == ("two.txt",)


async def test_a_branch_that_is_checked_out_or_cannot_be_is_refused(user: Path, workspace: Workspace) -> None:
    commit = await saved(workspace, one="1")
    blocked = await merge(workspace, commit, into=user, message="work", branch="main")
    assert isinstance(blocked, Blocked)
    assert "checked out" in blocked.why
    below = await merge(workspace, commit, into=user, message="work", branch="main/x")
    assert isinstance(below, Blocked)
    for name in ("-x", "a..b", "a b", "x.lock"):
        with pytest.raises(InvalidInput, match="cannot name a branch"):
            await merge(workspace, commit, into=user, message="work", branch=name)


async def test_a_dry_run_changes_nothing_and_says_what_would_be(user: Path, workspace: Workspace) -> None:
    parts = [part("one", await saved(workspace, one="1")), part("two", await saved(workspace, a="agent"))]
    before = users_things(user)
    for branch in ("", "other"):
        done = await merge(workspace, parts[-1].commit, into=user, parts=parts, branch=branch, dry_run=True)
        assert isinstance(done, Merged)
        assert (done.dry_run, [each.tasks for each in done.commits]) == (True, [("one",), ("two",)])
    write(user / "a.txt", "not committed")
    blocked = await merge(workspace, parts[-1].commit, into=user, parts=parts, dry_run=True)
    assert isinstance(blocked, Blocked)
    write(user / "a.txt", LINES)
    assert users_things(user) == before


async def test_a_conflict_shows_both_sides(user: Path, workspace: Workspace) -> None:
    work = await saved(workspace, a=LINES.replace("10\n", "agent\n"))
    write(user / "a.txt", LINES.replace("10\n", "user\n"))
    ours = commit(user, f"the user's ten\n\n{TASK_TRAILER}: ten\n  and more")  # a trailer may have several lines
    done = await merge(workspace, work, into=user, message="work")
    assert isinstance(done, Conflicted)
    (found,) = done.conflicts
    assert (found.path, found.left_out) == ("a.txt", 0)
    assert [tuple(each) for each in found.ours] == [(ours, "the user's ten", "ten and more")]
    assert [each.commit for each in found.theirs] == [work]
    assert found.lines == "8\n9\n<<<<<<<\nuser\n=======\nagent\n>>>>>>>\n11\n12"
