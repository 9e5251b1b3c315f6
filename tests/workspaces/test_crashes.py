"""Death at any point of a workspace's life: done again, each step ends as if nothing had happened."""

import asyncio
import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from random import Random

import pytest

from maos.errors import MaosError
from maos.workspaces import Workspace, checkpoint, exists, left_behind, prepare, restore
from maos_testing.crash import ChildProcess, Life, crash_loop
from tests.workspaces.life import STEPS, begin, step
from tests.workspaces.repositories import commit, contents, git, repository, users_things, write

ROOT = Path(__file__).parents[2]
BASE = {b".gitignore", b"a.txt", b"b.txt", b"d/c.txt"}
SAVED = {b".gitignore", b"a.txt", b"d/c.txt", b"new.txt"}


async def begun(name: str, folder: Path) -> None:
    """Everything that comes before a step."""
    begin(folder)
    for before in STEPS[: STEPS.index(name)]:
        if before == "restore" and name != "restore":
            continue
        if before == "repair" or (before in ("merge", "branch") and name in ("branch", "remove")):
            continue
        await step(before, folder)
    if name == "repair":
        shutil.rmtree(folder / "user/.git/worktrees/one")
        shutil.rmtree(folder / "workspaces/one")


async def ended(name: str, folder: Path) -> None:
    """What is true when a step is done, whatever happened on the way."""
    user, tree = folder / "user", folder / "workspaces/one"
    assert (user / "own.txt").read_text() == "the user's own, not committed"
    assert git(user, "fsck", "--no-dangling") == ""
    assert sorted(path.name for path in (user / ".git").rglob("*.lock")) == []
    landed = git(user, "log", "--format=%s", "main")
    assert landed == ("work\nfirst" if name == "merge" else "first")
    if name == "branch":
        assert git(user, "log", "--format=%s", "x/work") == "work\nfirst"
    status = git(user, "status", "--porcelain")
    assert status == "?? own.txt"
    refs = git(user, "for-each-ref", "--format=%(refname)", "refs/maos/one/").split()
    assert ("refs/maos/one/1" in refs) == (name != "prepare")
    if name == "remove":
        assert not tree.exists()
        assert left_behind(folder / "workspaces") == []
        assert len(git(user, "worktree", "list").splitlines()) == 1
        assert [path.name for path in (folder / "workspaces/.maos").iterdir() if path.name[0] != "."] == []
        return
    [left] = left_behind(folder / "workspaces")
    assert left.workspace is not None
    assert await exists(left.workspace)
    assert set(contents(tree)) == (BASE if name in ("prepare", "restore") else SAVED)
    assert len(git(user, "worktree", "list").splitlines()) == 2
    again = await checkpoint(left.workspace, "nothing new")
    assert again is not None
    assert again.changed == 0
    if name == "save":
        assert refs == ["refs/maos/one/1", "refs/maos/one/base"], "the same files are not saved twice"


@pytest.mark.parametrize("name", STEPS)
async def test_a_step_that_was_killed_is_finished_by_doing_it_again(name: str, tmp_path: Path) -> None:
    folders: dict[int, Path] = {}
    things: dict[int, tuple[object, ...]] = {}

    def argv(number: int) -> list[str | Path]:
        return [sys.executable, "-m", "tests.workspaces.life", name, folders[number]]

    async def get_ready(number: int) -> None:
        folders[number] = tmp_path / str(number)
        folders[number].mkdir()
        await begun(name, folders[number])
        things[number] = users_things(folders[number] / "user")

    async def check(life: Life) -> None:
        folder = folders[life.number]
        if name not in ("merge", "branch"):
            assert users_things(folder / "user") == things[life.number]
        result = life.acks[0] if life.acks else await step(name, folder)
        if name == "save":
            assert result == git(folder / "user", "rev-parse", "refs/maos/one/1")
        await ended(name, folder)
        await step(name, folder)  # and once more is no harm
        if life.died_at is not None:
            await get_ready(life.number + 1)

    await get_ready(1)
    lives = await crash_loop(argv, check, cwd=ROOT, share=1.0)
    assert len(lives) > 2, "there are no crash points where this step goes"


async def test_an_engine_killed_at_random_leaves_work_that_goes_on(tmp_path: Path) -> None:
    """The git it had started goes on for a moment; whoever comes next waits for it."""
    chance = Random(3)
    begin(tmp_path)
    await step("prepare", tmp_path)
    [left] = left_behind(tmp_path / "workspaces")
    assert left.workspace is not None
    for number in range(6):
        write(left.tree / f"work{number}", chance.randbytes(200_000))
        process = ChildProcess([sys.executable, "-m", "tests.workspaces.life", "save", tmp_path], cwd=ROOT)
        await wait_for_git(process._process.pid, chance.uniform(0, 0.02))
        process.kill()
        await asyncio.to_thread(process.wait, number)
        saved = await checkpoint(left.workspace, "goes on")
        assert saved is not None
        assert f"work{number}" in git(tmp_path / "user", "ls-tree", "--name-only", saved.commit)
    assert git(tmp_path / "user", "fsck", "--no-dangling") == ""


async def wait_for_git(pid: int, then_s: float) -> None:
    """Wait until a process has started a git, or has ended, and a moment more."""
    while Path(f"/proc/{pid}/stat").exists() and not children_of(pid):
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return
        await asyncio.sleep(0.002)
    await asyncio.sleep(then_s)


def children_of(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except OSError:
            continue
    return found


def is_git(pid: int) -> bool:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "git"
    except OSError:
        return False


async def test_a_git_killed_at_random_is_an_error_at_worst_and_the_next_call_works(tmp_path: Path) -> None:
    user = repository(tmp_path / "user", {f"{number}.txt": f"{number}\n" * 50 for number in range(50)})
    workspace = await prepare(user, "one", root=tmp_path / "workspaces")
    chance = Random(11)
    stop = threading.Event()
    killed = 0

    def kill() -> None:
        nonlocal killed
        while not stop.wait(chance.uniform(0.001, 0.03)):
            for pid in filter(is_git, children_of(os.getpid())):
                try:
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
                except ProcessLookupError:
                    pass

    things = users_things(user)
    thread = threading.Thread(target=kill)
    thread.start()
    try:
        for number in range(25):
            write(workspace.tree / f"{number}.txt", chance.randbytes(50_000))
            await one_that_may_fail(workspace, number)
    finally:
        stop.set()
        thread.join()
    assert killed > 5
    before = contents(workspace.tree)
    saved = await checkpoint(workspace, "in peace")
    assert saved is not None
    await restore(workspace, str(workspace.base))
    await restore(workspace, saved.commit)
    assert contents(workspace.tree) == before
    assert users_things(user)[:4] == things[:4]
    assert git(user, "fsck", "--no-dangling") == ""


async def one_that_may_fail(workspace: Workspace, number: int) -> None:
    try:
        if number % 5 == 4:
            await restore(workspace, str(workspace.base))
        else:
            await checkpoint(workspace, f"{number}")
    except MaosError as error:
        assert error.hint


async def test_a_prepare_whose_git_was_killed_can_be_made_again(tmp_path: Path) -> None:
    user = repository(tmp_path / "user", {"a": "a"})
    base = commit(user, "second")
    admin = user / ".git/worktrees/one"
    admin.mkdir(parents=True)
    write(admin / "locked", "maos\n")
    (tmp_path / "workspaces/.maos/one").mkdir(parents=True)
    write(tmp_path / "workspaces/.maos/one/repository", os.fsencode(user / ".git"))
    write(tmp_path / "workspaces/one/half", "half")
    workspace = await prepare(user, "one", root=tmp_path / "workspaces")
    assert workspace.base == base
    assert workspace.gitdir == admin
    assert set(contents(workspace.tree)) == {b"a"}
