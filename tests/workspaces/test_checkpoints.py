"""A checkpoint has the bytes that were there, says what it left out, and can always be taken."""

import asyncio
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from maos.errors import NotFound
from maos.workspaces import FileCheckpoint, LeftOut, UnsavedWork, Workspace, checkpoint, diff, patch, prepare, restore
from maos.workspaces.layout import folder_of
from tests.workspaces.repositories import (
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
    return repository(tmp_path / "user", {"a.txt": "1\n2\n3\n", "d/b.txt": "b\n", ".gitignore": "*.log\nbuild/\n"})


@pytest.fixture
async def workspace(user: Path, tmp_path: Path) -> Workspace:
    """A workspace of it."""
    return await prepare(user, "one", root=tmp_path / "workspaces", file_bytes_max=1000, keep_ignored=["keep/*.log"])


async def saved(workspace: Workspace, label: str = "work") -> FileCheckpoint:
    """A checkpoint, of a workspace that has them."""
    taken = await checkpoint(workspace, label)
    assert taken is not None
    return taken


def files_of(user: Path, commit_: str) -> set[str]:
    """What a commit has."""
    return set(filter(None, git(user, "ls-tree", "-r", "-z", "--name-only", commit_).split("\0")))


async def test_untracked_files_are_in_it_and_ignored_ones_by_rule_only(user: Path, workspace: Workspace) -> None:
    before = users_things(user)
    for name in ("new.txt", "deep/er/new.txt", "noise.log", "build/out.o", "keep/wanted.log"):
        write(workspace.tree / name, name)
    (workspace.tree / "d/b.txt").unlink()
    taken = await saved(workspace)
    assert files_of(user, taken.commit) == {".gitignore", "a.txt", "new.txt", "deep/er/new.txt", "keep/wanted.log"}
    assert taken.changed == 4
    assert taken.left_out == ()
    assert taken.ref == "refs/maos/one/1"
    assert git(user, "rev-parse", taken.ref) == taken.commit
    assert git(user, "log", "-1", "--format=%an <%ae> %s", taken.commit) == "maos <maos@localhost> work"
    assert users_things(user) == before


async def test_what_the_user_ignores_outside_the_tree_is_ignored_here_too(
    user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    write(tmp_path / ".config/git/ignore", "*.swp")
    write(user / ".git/info/exclude", "private/\n")
    workspace = await prepare(user, "two", root=tmp_path / "workspaces")
    for name in ("x.swp", "private/x", "public"):
        write(workspace.tree / name, name)
    assert files_of(user, (await saved(workspace)).commit) == {".gitignore", "a.txt", "d/b.txt", "public"}


async def test_when_nothing_changed_it_is_the_same_one(user: Path, workspace: Workspace) -> None:
    nothing = await saved(workspace)
    assert nothing == FileCheckpoint(str(workspace.base), "refs/maos/one/base", 0, ())
    write(workspace.tree / "a.txt", "changed")
    first = await saved(workspace)
    os.utime(workspace.tree / "a.txt")
    again = await saved(workspace, "another label")
    assert again == first._replace(changed=0)
    assert git(user, "for-each-ref", "--format=%(refname)", "refs/maos") == "refs/maos/one/1\nrefs/maos/one/base"


async def test_neither_the_index_nor_the_head_of_the_agents_git_is_touched(workspace: Workspace) -> None:
    write(workspace.tree / "staged", "staged")
    git(workspace.tree, "add", "staged")
    assert workspace.gitdir is not None
    before = [(workspace.gitdir / name).read_bytes() for name in ("index", "HEAD")]
    await saved(workspace)
    assert [(workspace.gitdir / name).read_bytes() for name in ("index", "HEAD")] == before


async def test_what_the_agent_commits_stays_reachable_and_comes_back(user: Path, workspace: Workspace) -> None:
    write(workspace.tree / "x", "1")
    own = commit(workspace.tree, "by the agent")
    first = await saved(workspace)
    assert git(user, "merge-base", "--is-ancestor", own, first.commit) == ""
    git(workspace.tree, "checkout", "-q", "-b", "topic")
    write(workspace.tree / "y", "2")
    later = commit(workspace.tree, "more")
    git(workspace.tree, "commit", "-q", "--amend", "-m", "better")
    second = await saved(workspace)
    assert second.commit != first.commit
    await restore(workspace, first.commit)
    assert git(workspace.tree, "rev-parse", "HEAD") == own
    assert git(workspace.tree, "status", "--porcelain") == ""
    assert git(user, "rev-parse", "topic") not in (own, later)
    await restore(workspace, second.commit)
    assert git(workspace.tree, "rev-parse", "HEAD") == git(user, "rev-parse", "topic")


async def test_a_commit_alone_is_a_change(workspace: Workspace) -> None:
    write(workspace.tree / "x", "1")
    first = await saved(workspace)
    own = commit(workspace.tree, "by the agent")
    second = await saved(workspace)
    assert first.commit != second.commit
    assert git(workspace.tree, "merge-base", "--is-ancestor", own, second.commit) == ""


ODD = [
    b"new\nline",
    b'quo"te',
    b"'single'",
    b"back\\slash",
    b"\xff\xfe not utf-8",
    b"-rf",
    b"--",
    b":(exclude)x",
    b"*",
    b"tab\tbed",
    b" leading and trailing ",
    "ümlaut \N{SNOWMAN}".encode(),
    b"\x1b[31mred",
    b"deep/-x/\xff/\n",
]


async def test_odd_names_go_there_and_back(workspace: Workspace) -> None:
    """A14."""
    for name in ODD:
        path = Path(os.fsdecode(os.path.join(os.fsencode(workspace.tree), name)))
        write(path, name)
    before = contents(workspace.tree)
    taken = await saved(workspace)
    assert (taken.changed, taken.left_out) == (len(ODD), ())
    listed = await diff(workspace, str(workspace.base), taken.commit)
    assert sorted(change.path for change in listed) == sorted(name.decode("utf-8", "backslashreplace") for name in ODD)
    await restore(workspace, str(workspace.base))
    assert len(contents(workspace.tree)) == 3
    await restore(workspace, taken.commit)
    assert contents(workspace.tree) == before


async def test_bytes_modes_and_links_are_kept_whatever_the_attributes_say(workspace: Workspace, tmp_path: Path) -> None:
    """A13: a link that leads out of the tree is a link; what it leads to is neither read nor written."""
    secret = write(tmp_path / "secret" / "key", "secret")
    write(
        workspace.tree / ".gitattributes", "* text=auto eol=lf ident filter=evil\n*.utf working-tree-encoding=UTF-16\n"
    )
    write(workspace.tree / "crlf.txt", b"a\r\nb\nc\r\n")
    write(workspace.tree / "ident.txt", b"$Id: kept as it is $\n")
    write(workspace.tree / "wrong.utf", b"\xff\xfe\x00")
    write(workspace.tree / "empty", b"")
    write(workspace.tree / "binary", bytes(range(256)))
    write(workspace.tree / "run.sh", b"#!/bin/sh\n").chmod(0o755)
    (workspace.tree / "out").symlink_to(secret.parent)
    (workspace.tree / "nowhere").symlink_to("/nonexistent/\udcff")
    before = contents(workspace.tree)
    taken = await saved(workspace)
    assert taken.left_out == ()
    assert "out/key" not in files_of(workspace.tree, taken.commit)
    await restore(workspace, str(workspace.base))
    await restore(workspace, taken.commit)
    assert contents(workspace.tree) == before
    assert secret.read_text() == "secret"


async def test_a_folder_that_became_a_link_is_a_link_and_nothing_behind_it_is_touched(
    workspace: Workspace, tmp_path: Path
) -> None:
    """A13."""
    outside = write(tmp_path / "outside" / "b.txt", "outside").parent
    (workspace.tree / "d/b.txt").unlink()
    (workspace.tree / "d").rmdir()
    (workspace.tree / "d").symlink_to(outside)
    taken = await saved(workspace)
    assert files_of(workspace.tree, taken.commit) == {".gitignore", "a.txt", "d"}
    await restore(workspace, str(workspace.base))
    assert not (workspace.tree / "d").is_symlink()
    assert (workspace.tree / "d/b.txt").read_text() == "b\n"
    assert (outside / "b.txt").read_text() == "outside"
    await restore(workspace, taken.commit)
    assert (workspace.tree / "d").is_symlink()
    assert (outside / "b.txt").read_text() == "outside"


async def test_any_sequence_of_trees_can_be_gone_through_in_any_order(workspace: Workspace) -> None:
    """R-703: the files of each checkpoint come back exactly, files in the place of folders and the reverse included."""
    chance = Random(7)
    names = ["a", "a/b", "a/b/c", "b", "b/c", "c", "d/b.txt", "e/f/g"]
    trees = []
    for _ in range(8):
        for name in chance.sample(names, 3):
            path = workspace.tree / name
            if path.is_symlink() or path.is_file():
                path.unlink()
            elif path.is_dir():
                remove_forced(path)
            elif all(not (parent.is_symlink() or parent.is_file()) for parent in path.parents):
                path.parent.mkdir(parents=True, exist_ok=True)
                if chance.random() < 0.3:
                    path.symlink_to(chance.choice(names))
                else:
                    write(path, chance.randbytes(20)).chmod(chance.choice([0o644, 0o755]))
        trees.append(((await saved(workspace)).commit, contents(workspace.tree)))
    for commit_, before in chance.sample(trees, len(trees)):
        await restore(workspace, commit_)
        assert contents(workspace.tree) == before


async def test_large_files_are_left_out_and_listed_unless_the_base_has_them(user: Path, tmp_path: Path) -> None:
    write(user / "known", "x" * 2000)
    commit(user, "large")
    workspace = await prepare(user, "two", root=tmp_path / "workspaces", file_bytes_max=1000)
    write(workspace.tree / "known", "y" * 3000)
    write(workspace.tree / "huge", "z" * 1001)
    write(workspace.tree / "growing", "small")
    first = await saved(workspace)
    assert first.left_out == (LeftOut("huge", "too large"),)
    assert {"known", "growing"} < files_of(user, first.commit)
    write(workspace.tree / "growing", "w" * 5000)
    second = await saved(workspace)
    assert second.left_out == (LeftOut("growing", "too large"), LeftOut("huge", "too large"))
    assert "growing" not in files_of(user, second.commit)
    again = await saved(workspace)
    assert again == second._replace(changed=0)
    await restore(workspace, first.commit)
    assert (workspace.tree / "growing").read_text() == "small"
    assert (workspace.tree / "huge").read_text() == "z" * 1001, "what is in no checkpoint stays"


async def test_a_large_file_in_the_way_of_a_restore_is_saved_first(user: Path, workspace: Workspace) -> None:
    write(workspace.tree / "growing", "small")
    first = await saved(workspace)
    write(workspace.tree / "growing", "w" * 5000)
    undo = await restore(workspace, first.commit)
    assert git(user, "show", f"{undo.commit}:growing") == "w" * 5000
    await restore(workspace, undo.commit)
    assert (workspace.tree / "growing").read_text() == "w" * 5000


async def test_an_ignored_file_in_the_way_of_a_restore_is_saved_first(user: Path, workspace: Workspace) -> None:
    write(workspace.tree / "thing", "tracked")
    first = await saved(workspace)
    (workspace.tree / "thing").unlink()
    write(workspace.tree / ".gitignore", "thing\nother.log\n")
    await saved(workspace)
    write(workspace.tree / "thing/inner", "ignored and precious")
    write(workspace.tree / "other.log", "ignored, not in the way")
    undo = await restore(workspace, first.commit)
    assert (workspace.tree / "thing").read_text() == "tracked"
    assert (workspace.tree / "other.log").read_text() == "ignored, not in the way"
    assert git(user, "show", f"{undo.commit}:thing/inner") == "ignored and precious"
    await restore(workspace, undo.commit)
    assert (workspace.tree / "thing/inner").read_text() == "ignored and precious"


async def test_a_repository_within_is_left_out_listed_and_never_overwritten(workspace: Workspace) -> None:
    write(workspace.tree / "inner", "a file")
    first = await saved(workspace)
    (workspace.tree / "inner").unlink()
    repository(workspace.tree / "inner", {"x": "x"})
    git(workspace.tree, "init", "-q", "empty")
    second = await saved(workspace)
    assert second.left_out == (LeftOut("empty/", "nested repository"), LeftOut("inner/", "nested repository"))
    before = git(workspace.tree / "inner", "rev-parse", "HEAD")
    with pytest.raises(UnsavedWork, match="repositories are where the restore puts files: inner"):
        await restore(workspace, first.commit)
    assert git(workspace.tree / "inner", "rev-parse", "HEAD") == before
    await restore(workspace, str(workspace.base))
    assert git(workspace.tree / "inner", "rev-parse", "HEAD") == before


async def test_a_submodule_is_its_commit_and_what_is_in_it_is_listed(user: Path, tmp_path: Path) -> None:
    library = repository(tmp_path / "library", {"lib": "lib"})
    git(user, "submodule", "add", "-q", str(library), "lib")
    commit(user, "with a library")
    workspace = await prepare(user, "two", root=tmp_path / "workspaces")
    assert list((workspace.tree / "lib").iterdir()) == []
    write(workspace.tree / "new", "new")
    first = await saved(workspace)
    assert first.left_out == ()
    assert git(user, "rev-parse", f"{first.commit}:lib") == git(library, "rev-parse", "HEAD")
    git(workspace.tree, "submodule", "update", "--init", "-q")
    write(workspace.tree / "lib/changed", "changed")
    second = await saved(workspace)
    assert second.left_out == (LeftOut("lib", "submodule"),)
    await restore(workspace, str(workspace.base))
    assert (workspace.tree / "lib/changed").read_text() == "changed"


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that any user may walk into; the one of pytest is private."""
    folder = Path(tempfile.mkdtemp(prefix="maos-"))
    folder.chmod(0o755)
    yield folder
    remove_forced(folder)


async def test_what_may_not_be_read_is_listed_and_the_rest_is_saved(shared: Path) -> None:
    user = repository(shared / "user", {"a.txt": "a", "closed/known": "known"})
    with as_nobody(owning=shared):
        workspace = await prepare(user, "one", root=shared / "workspaces")
        write(workspace.tree / "secret", "secret").chmod(0)
        write(workspace.tree / "a.txt", "changed").chmod(0)
        write(workspace.tree / "fine", "fine")
        write(workspace.tree / "shut/x", "x")
        (workspace.tree / "shut").chmod(0)
        (workspace.tree / "closed").chmod(0)
        taken = await saved(workspace)
        left = dict(taken.left_out)
        assert {"secret", "a.txt", "shut/"} <= set(left)
        assert set(left.values()) == {"unreadable"}
        assert files_of(workspace.tree, taken.commit) == {"a.txt", "closed/known", "fine"}
        for folder in ("closed", "shut"):
            (workspace.tree / folder).chmod(0o755)  # also so that an ordinary user can remove them afterwards
        assert (workspace.tree / "closed/known").read_text() == "known"


async def test_what_is_no_file_is_listed_where_a_file_was(workspace: Workspace) -> None:
    (workspace.tree / "a.txt").unlink()
    os.mkfifo(workspace.tree / "a.txt")
    os.mkfifo(workspace.tree / "pipe")
    taken = await saved(workspace)
    assert taken.left_out == (LeftOut("a.txt", "not a file"),)
    assert files_of(workspace.tree, taken.commit) == {".gitignore", "d/b.txt"}


async def test_a_name_that_git_refuses_is_listed_and_the_rest_is_saved(workspace: Workspace) -> None:
    for name in ("git~1", "x/.GIT~1", "fine", "also fine"):
        write(workspace.tree / name, name)
    taken = await saved(workspace)
    assert {"fine", "also fine"} < files_of(workspace.tree, taken.commit)
    assert {left.path for left in taken.left_out} <= {"git~1", "x/.GIT~1"}
    assert taken.left_out


async def test_files_that_change_meanwhile_do_no_harm(user: Path, tmp_path: Path) -> None:
    """The one that shrinks kills the git that reads it."""
    workspace = await prepare(user, "two", root=tmp_path / "workspaces")
    stop = threading.Event()

    def churn() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            with open(workspace.tree / "busy", "wb") as file:
                file.write(os.urandom(2_000_000) if number % 2 else b"")
            (workspace.tree / f"come{number % 5}").write_bytes(b"x" * number)
            (workspace.tree / f"come{(number + 2) % 5}").unlink(missing_ok=True)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for number in range(5):
            write(workspace.tree / "steady", f"{number}")
            taken = await saved(workspace)
            assert git(user, "show", f"{taken.commit}:steady") == f"{number}"
    finally:
        stop.set()
        thread.join()
    last = await saved(workspace)
    assert last.left_out == ()
    assert git(user, "fsck", "--no-dangling", "--connectivity-only") == ""


Damage = Callable[[Path], object]
DAMAGE: dict[str, Damage] = {
    "index lock": lambda folder: write(folder / "index.lock", "left by a git that was killed"),
    "no index": lambda folder: (folder / "index").unlink(),
    "empty index": lambda folder: write(folder / "index", ""),
    "torn index": lambda folder: write(folder / "index", (folder / "index").read_bytes()[:-30]),
    "flipped index": lambda folder: write(folder / "index", b"x" + (folder / "index").read_bytes()[1:]),
    "no head": lambda folder: (folder / "HEAD").unlink(),
    "empty head": lambda folder: write(folder / "HEAD", ""),
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_what_a_kill_or_a_power_cut_left_of_ours_is_put_right(damage: str, workspace: Workspace) -> None:
    write(workspace.tree / "first", "first")
    first = await saved(workspace)
    write(workspace.tree / "second", "second")
    (workspace.tree / "a.txt").unlink()
    DAMAGE[damage](folder_of(workspace.tree.parent, workspace.name))
    second = await saved(workspace)
    assert second.changed == 2
    assert files_of(workspace.tree, second.commit) == {".gitignore", "d/b.txt", "first", "second"}
    assert git(workspace.tree, "rev-parse", f"{second.commit}^") == first.commit


async def test_a_ref_whose_lock_was_left_is_passed_over(user: Path, workspace: Workspace) -> None:
    write(user / ".git/refs/maos/one/1.lock", "")
    write(workspace.tree / "x", "x")
    assert (await saved(workspace)).ref == "refs/maos/one/2"


@pytest.mark.parametrize("label", ["", "\0\n\r\x1b[2J", "a\n\nMaos-Base: " + "0" * 40, "\udcff", "x" * 100_000, "-m"])
async def test_a_label_is_one_line_whatever_it_was(label: str, workspace: Workspace) -> None:
    """A14."""
    write(workspace.tree / "x", "x")
    taken = await saved(workspace, label)
    subject, _, trailers = git(workspace.tree, "log", "-1", "--format=%B", taken.commit).partition("\n\n")
    assert subject.isprintable()
    assert 0 < len(subject) <= 200
    assert trailers.strip() == f"Maos-Base: {workspace.base}\nMaos-Head: {workspace.base}"


async def test_a_restore_can_be_undone_and_a_checkpoint_after_it_goes_on_from_there(workspace: Workspace) -> None:
    write(workspace.tree / "a.txt", "one")
    first = await saved(workspace)
    write(workspace.tree / "a.txt", "two")
    write(workspace.tree / "unsaved", "unsaved")
    before = contents(workspace.tree)
    undo = await restore(workspace, first.commit)
    assert (workspace.tree / "a.txt").read_text() == "one"
    assert not (workspace.tree / "unsaved").exists()
    same = await saved(workspace)
    assert (same.commit, same.ref, same.changed) == (first.commit, first.ref, 0)
    write(workspace.tree / "b", "another way")
    branch = await saved(workspace)
    assert git(workspace.tree, "rev-parse", f"{branch.commit}^") == first.commit
    assert branch.ref == "refs/maos/one/3"
    await restore(workspace, undo.commit)
    assert contents(workspace.tree) == before


async def test_restoring_what_does_not_exist_changes_nothing(workspace: Workspace) -> None:
    write(workspace.tree / "unsaved", "unsaved")
    before = contents(workspace.tree)
    for name in ("0" * 40, "nothing", "--hard", ""):
        with pytest.raises(NotFound):
            await restore(workspace, name)
    assert contents(workspace.tree) == before


async def test_a_diff_says_what_happened_to_each_file(user: Path, workspace: Workspace) -> None:
    write(workspace.tree / "a.txt", "1\n2\nthree\nfour\n")
    (workspace.tree / "d/b.txt").unlink()
    (workspace.tree / ".gitignore").chmod(0o755)
    write(workspace.tree / "binary", b"\0\1")
    first = await saved(workspace)
    listed = [tuple(change) for change in await diff(workspace, str(workspace.base), first.commit)]
    assert listed == [
        (".gitignore", "mode changed", 0, 0),
        ("a.txt", "modified", 2, 1),
        ("binary", "added", None, None),
        ("d/b.txt", "deleted", 0, 1),
    ]
    (workspace.tree / "a.txt").unlink()
    (workspace.tree / "a.txt").symlink_to("x")
    assert [tuple(change)[:2] for change in await diff(workspace, first.commit)] == [("a.txt", "type changed")]
    assert await diff(workspace, first.commit, first.commit) == []
    assert git(user, "for-each-ref", "refs/maos/one/2") == "", "looking saves nothing"


async def test_a_patch_can_be_read_and_is_cut_when_it_is_long(workspace: Workspace) -> None:
    write(workspace.tree / "a.txt", "1\n2\nthree\n")
    whole = await patch(workspace, str(workspace.base))
    assert whole.startswith("diff --git a/a.txt b/a.txt\n")
    assert whole.endswith("-3\n+three\n")
    short = await patch(workspace, str(workspace.base), bytes_max=50)
    assert short.splitlines()[0] == "diff --git a/a.txt b/a.txt"
    assert short.endswith("bytes of the patch are not shown]\n")


async def test_a_call_that_is_cancelled_leaves_the_next_one_its_way(workspace: Workspace) -> None:
    for delay_ms in range(0, 60, 6):
        write(workspace.tree / f"file{delay_ms}", "x" * delay_ms)
        task = asyncio.create_task(checkpoint(workspace, "cancelled"))
        await asyncio.sleep(delay_ms / 1000)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    taken = await saved(workspace)
    assert {f"file{delay_ms}" for delay_ms in range(0, 60, 6)} < files_of(workspace.tree, taken.commit)
    assert not list(folder_of(workspace.tree.parent, "one").glob("*.lock"))
