"""Git is called so that nothing else runs, nothing hangs, and nothing is left behind."""

import asyncio
import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from maos.errors import MaosError
from maos.workspaces import Merged, checkpoint, diff, merge, patch, prepare, remove, restore, verify
from maos.workspaces import git as git_module
from maos.workspaces.git import Git, GitFailed, GitTimeout, lock_file
from tests.workspaces.repositories import commit, git, repository, write

HOOKS = """
applypatch-msg commit-msg fsmonitor-watchman post-applypatch post-checkout post-commit post-index-change post-merge
post-rewrite pre-auto-gc pre-commit pre-merge-commit pre-push pre-rebase prepare-commit-msg reference-transaction
""".split()


async def test_nothing_that_a_repository_names_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A12: hooks, monitors, filters, drivers and helpers, from the repository, the agent or the environment."""
    ran = tmp_path / "ran"
    evil = write(tmp_path / "evil", f'#!/bin/sh\necho "$0 $*" >> {ran}\ncat\n')
    evil.chmod(0o755)
    user = repository(
        tmp_path / "user",
        {"a.txt": "a\n", "b.txt": "b\n", ".gitattributes": "*.evil filter=evil diff=evil merge=evil\n"},
    )
    workspace = await prepare(user, "one", root=tmp_path / "workspaces")

    def plant() -> None:
        config = f"""
[core]
    fsmonitor = {evil}
    hooksPath = {user}/.git/hooks
    pager = {evil}
    editor = {evil}
    sshCommand = {evil}
    askPass = {evil}
    alternateRefsCommand = {evil}
    attributesFile = {user}/.git/evil-attributes
[filter "evil"]
    clean = {evil} clean
    smudge = {evil} smudge
    process = {evil} process
    required = true
[diff]
    external = {evil} external
[diff "evil"]
    command = {evil} diff
    textconv = {evil} textconv
[merge "evil"]
    driver = {evil} %O %A %B
[commit]
    gpgSign = true
[gpg]
    program = {evil}
[credential]
    helper = {evil}
[remote "origin"]
    url = ext::{evil}
    promisor = true
[protocol "ext"]
    allow = always
[gc]
    auto = 1
"""
        with open(user / ".git/config", "a", encoding="utf-8") as file:
            file.write(config)
        write(user / ".git/evil-attributes", "*.conf filter=evil diff=evil merge=evil\n")
        for hook in HOOKS:
            write(user / ".git/hooks" / hook, evil.read_bytes()).chmod(0o755)

    plant()
    for name in ("GIT_EXTERNAL_DIFF", "GIT_SSH_COMMAND", "GIT_PROXY_COMMAND", "GIT_ASKPASS", "PAGER", "GIT_EDITOR"):
        monkeypatch.setenv(name, str(evil))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(evil))

    write(workspace.tree / "x.evil", "x\n")
    write(workspace.tree / "y.conf", "y\n")
    write(workspace.tree / "b.txt", "changed\n")
    first = await checkpoint(workspace, "first")
    assert first is not None
    write(workspace.tree / "x.evil", "changed\n")
    assert await diff(workspace, first.commit)
    assert "changed" in await patch(workspace, first.commit)
    await restore(workspace, first.commit)
    assert await verify(workspace) == ()
    second = await prepare(user, "two", root=tmp_path / "workspaces", include_uncommitted=True)
    write(second.tree / "z.txt", "z\n")
    saved = await checkpoint(second, "z")
    assert saved is not None
    blocked = await merge(workspace, first.commit, into=user, message="m")
    assert not isinstance(blocked, Merged), "files that pass through a filter are the user's to merge"
    assert isinstance(await merge(second, saved.commit, into=user, message="m"), Merged)
    await remove(second)
    assert not ran.exists(), ran.read_text()


async def test_it_is_called_without_what_would_lead_it_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A14."""
    shown = write(tmp_path / "bin/git", '#!/bin/sh\nenv\nfor word; do echo "argument $word"; done\n')
    shown.chmod(0o755)
    monkeypatch.setenv("PATH", str(shown.parent), prepend=os.pathsep)
    monkeypatch.setenv("GIT_WORK_TREE", "/")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    said = (await Git(tmp_path).run("status", "$(touch x); `id`")).output.decode().splitlines()
    assert {"GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "LC_ALL=C"} <= set(said)
    assert not any(line.startswith(("GIT_WORK_TREE=", "LANG=")) for line in said)
    assert {"argument core.hooksPath=/dev/null", "argument core.fsmonitor=false"} <= set(said)
    assert said[-1] == "argument $(touch x); `id`"
    assert not (tmp_path / "x").exists()


@pytest.fixture
def stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A git that never ends, with a child, both deaf to TERM; it writes their pids into the file given back."""
    pids = tmp_path / "pids"
    script = f"trap '' TERM\nsleep 1000 &\necho $$ $! > {pids}.new\nmv {pids}.new {pids}\nwait\n"
    program = write(tmp_path / "bin/git", "#!/bin/sh\n" + script)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    monkeypatch.setattr(git_module, "_GRACE_S", 0.05)
    yield pids
    for pid in processes_in(tmp_path):
        os.kill(int(pid), signal.SIGKILL)


async def all_gone(pids: Path) -> None:
    """Wait for the end of those processes: a killed one takes a moment to go."""
    async with asyncio.timeout(60):
        while not gone(pids):
            await asyncio.sleep(0.005)


def gone(pids: Path) -> bool:
    """Whether those processes have ended; a zombie that its parent has not looked at yet has."""
    for pid in pids.read_text().split():
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            continue
        if state != "Z":
            return False
    return True


async def test_a_git_that_takes_too_long_is_ended_with_its_children(stuck: Path, tmp_path: Path) -> None:
    with pytest.raises(GitTimeout, match="was ended after"):
        await Git(tmp_path).run("status", limit_s=0.3)
    await all_gone(stuck)


async def test_a_git_whose_caller_is_cancelled_is_ended_before_the_caller_goes_on(stuck: Path, tmp_path: Path) -> None:
    task = asyncio.create_task(Git(tmp_path).run("status"))
    while not stuck.exists():
        await asyncio.sleep(0.005)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()  # twice: impatience must not leave anything behind
    with pytest.raises(asyncio.CancelledError):
        await task
    await all_gone(stuck)


async def test_however_early_its_caller_is_cancelled_a_git_is_ended_with_its_children(
    stuck: Path, tmp_path: Path
) -> None:
    for turns in range(12):
        task = asyncio.create_task(Git(tmp_path).run("status"))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    async with asyncio.timeout(60):
        while processes_in(tmp_path):
            await asyncio.sleep(0.005)


def processes_in(folder: Path) -> list[str]:
    """The processes that were started in a folder and have not ended."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/cwd") == str(folder):
                found.append(pid)
        except OSError:
            continue
    return found


async def test_a_failure_says_what_git_said(tmp_path: Path) -> None:
    user = repository(tmp_path / "user", {"a": "a"})
    with pytest.raises(GitFailed) as caught:
        await Git(user).run("cat-file", "-p", "nothing")
    assert "git cat-file ended with status 128: fatal: Not a valid object name nothing" in caught.value.what
    assert caught.value.hint


async def test_a_lock_is_held_by_one_and_passes_on(tmp_path: Path) -> None:
    order: list[int] = []

    async def use(number: int) -> None:
        async with lock_file(tmp_path / "lock"):
            order.append(number)
            await asyncio.sleep(0.01)
            order.append(number)

    await asyncio.gather(*(use(number) for number in range(5)))
    assert order[::2] == order[1::2]
    async with lock_file(tmp_path / "lock"):
        with pytest.raises(MaosError, match="has been locked for"):
            async with lock_file(tmp_path / "lock", wait_s=0.05):
                pass
    assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == 0o600


async def test_a_lock_whose_file_was_removed_is_taken_anew(tmp_path: Path) -> None:
    """Or two would hold it: one the file that is gone, one the file that took its place."""
    entered = asyncio.Event()

    async def wait_for_it() -> None:
        async with lock_file(tmp_path / "lock") as descriptor:
            assert os.path.samestat(os.fstat(descriptor), os.stat(tmp_path / "lock"))
            entered.set()

    async with lock_file(tmp_path / "lock"):
        waiting = asyncio.create_task(wait_for_it())
        await asyncio.sleep(0.03)
        (tmp_path / "lock").unlink()
        assert not entered.is_set()
    await waiting


async def test_a_lock_outlives_its_holder_while_its_git_runs(tmp_path: Path, stuck: Path) -> None:
    """So whoever comes next never meets the git of one that was killed."""
    async with lock_file(tmp_path / "lock") as descriptor:
        task = asyncio.create_task(Git(tmp_path, lock=descriptor).run("status"))
        while not stuck.exists():
            await asyncio.sleep(0.005)
    with pytest.raises(MaosError, match="has been locked for"):
        async with lock_file(tmp_path / "lock", wait_s=0.05):
            pass
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    async with lock_file(tmp_path / "lock", wait_s=1):
        pass


async def test_git_itself_is_not_fooled_by_the_wrappers_of_these_tests(tmp_path: Path) -> None:
    user = repository(tmp_path / "user", {"a": "a"})
    assert await Git(user).line("rev-parse", "HEAD") == git(user, "rev-parse", "HEAD") != commit(user, "second")
