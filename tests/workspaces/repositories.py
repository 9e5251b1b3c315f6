"""Repositories for the tests of workspaces, made with the git that is here."""

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534
QUIET = {
    "HOME": "/nonexistent",
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "user",
    "GIT_AUTHOR_EMAIL": "user@localhost",
    "GIT_COMMITTER_NAME": "user",
    "GIT_COMMITTER_EMAIL": "user@localhost",
}


def git(folder: Path, *arguments: str, given: bytes = b"") -> str:
    """What the user's, or an agent's, own git says."""
    argv = ["git", "-c", "gc.auto=0", "-c", "core.fsync=none", "-c", "protocol.file.allow=always", *arguments]
    done = subprocess.run(argv, cwd=folder, env=QUIET, input=given, capture_output=True)
    assert done.returncode == 0, f"{argv}: {done.stderr.decode()}"
    return done.stdout.decode("utf-8", "surrogateescape").rstrip("\n")


def repository(folder: Path, files: dict[str, str] | None = None, *options: str) -> Path:
    """A repository with one commit, or with none when there are no files."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main", *options)
    for name, content in (files or {}).items():
        write(folder / name, content)
    if files:
        commit(folder, "first")
    return folder


def commit(folder: Path, message: str) -> str:
    """Commit everything that is there."""
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def write(path: Path, content: str | bytes) -> Path:
    """A file, with the folders that lead to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def contents(tree: Path, *, without: tuple[str, ...] = ()) -> dict[bytes, tuple[str, bytes]]:
    """Every file of a tree: what kind it is, and its bytes or where its link leads."""
    top = os.fsencode(tree)
    found: dict[bytes, tuple[str, bytes]] = {}
    for folder, folders, files in os.walk(top):
        if folder == top:
            folders[:] = [name for name in folders if name != b".git"]
            files = [name for name in files if name != b".git" and os.fsdecode(name) not in without]
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in (*files, *links):
            path = os.path.join(folder, name)
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                found[os.path.relpath(path, top)] = ("link", os.readlink(path))
            elif stat.S_ISREG(status.st_mode):
                with open(path, "rb") as file:
                    kind = "program" if status.st_mode & 0o100 else "file"
                    found[os.path.relpath(path, top)] = (kind, file.read())
    return found


def users_things(folder: Path) -> tuple[object, ...]:
    """What must not change while agents work: the user's files, index, HEAD, branches and configuration."""
    gitdir = folder / ".git"
    return (
        contents(folder),
        (gitdir / "index").read_bytes() if (gitdir / "index").exists() else None,
        (gitdir / "HEAD").read_bytes(),
        (gitdir / "config").read_bytes(),
        git(folder, "for-each-ref", "refs/heads", "refs/tags"),
        sorted(path.name for path in gitdir.glob("*.lock")),
    )


@contextmanager
def as_nobody(*, owning: Path) -> Iterator[None]:
    """As an ordinary user, who owns what is in a folder; for whoever is one already, nothing changes."""
    if os.geteuid() != 0:
        yield
        return
    for path in (owning, *owning.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def remove_forced(folder: Path) -> None:
    """Remove a folder whatever the modes in it are."""
    for path, _folders, _files in os.walk(folder):
        os.chmod(path, 0o700)
    shutil.rmtree(folder)
