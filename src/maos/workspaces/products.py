"""Files of a workspace that git does not track: copied from the person's folder, or made by setup commands.

Setup commands run once, in a workspace that no agent works in, the template. What they have made there, its products,
is copied into the workspaces of agents. A product that names the template's folder, as scripts of a Python environment
do, names the workspace's folder in the copy. Programs cannot be changed like that: a template with one that names its
folder is not shared.

A template is complete when `products.json` is in its private folder, and a workspace is prepared when `prepared` is in
its own. Both are written last, so whatever was killed before is done again.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import fnmatch
import hashlib
import json
import os
import shutil
import stat
import struct
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from maos.faults import crash_point
from maos.files import replace_file
from maos.workspaces.git import Git, discover, lexists
from maos.workspaces.layout import (
    PREPARED,
    PRODUCTS,
    Workspace,
    WorkspaceFolder,
    folder_of,
    open_locked,
    read_workspace,
    refs_of,
)
from maos.workspaces.worktree import clear

INPUTS = (
    "pyproject.toml", "setup.py", "setup.cfg", "MANIFEST.in", "requirements*.txt", "requirements*.in", "constraints*",
    "environment*.yml", "Pipfile", ".python-version", "*.lock", "package.json", "package-lock.json", "npm-shrinkwrap*",
    "pnpm-*.yaml", ".npmrc", ".yarnrc*", ".nvmrc", ".node-version", ".tool-versions", "Cargo.toml", "go.mod", "go.sum",
    "Gemfile", "*.gemspec", "composer.json", "mix.exs", "pom.xml", "*.gradle*", "CMakeLists.txt", "*.cmake",
    "meson*", "Makefile", "*.mk", "configure*", "*.c", "*.cc", "*.cpp", "*.cxx", "*.h", "*.hpp", "*.pyx", "*.pxd",
    "*.rs", "*.go", "*.f90", "*.proto",
)  # fmt: skip
"""What setup commands usually depend on: lists of dependencies, build files, and sources of compiled languages."""
NOT_WORTH_NAMING = (
    "__pycache__", "*.pyc", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".coverage*", ".DS_Store",
    "maos.db*", "*.egg-info", ".tox", ".nox", ".idea", ".vscode",
)  # fmt: skip
"""Ignored files that no project needs."""
_FICLONE = 0x40049409


class Products(msgspec.Struct, kw_only=True):
    """What setup commands have made in a template."""

    template: str
    files: list[str]
    """Files, links and folders, each folder before what is in it."""
    rewritten: list[str]
    """Those of them, and links, that name the template's folder."""
    bound: str = ""
    """A program that names the template's folder, so that nothing of the template can be used elsewhere."""
    untracked: list[str] = []
    """Those that git does not ignore: they are kept out of checkpoints."""
    changed: list[str] = []
    """Tracked files that the commands have changed; they stay as they are in workspaces."""


# --- what a template is made from ---------------------------------------------------------------------------------


async def inputs(repository: Path, commit: str, patterns: Sequence[str], words: Collection[str]) -> list[str]:
    """The files of a commit that setup commands depend on, each with its content's id: those that match a pattern, and
    those that a word of the commands names."""
    listed = await Git.of(repository).run("ls-tree", "-r", "-z", "--full-tree", commit)
    named = {word.removeprefix("./") for word in words if word and not word.startswith("-")}
    found = []
    for entry in listed.fields:
        about, _, raw = entry.partition(b"\t")
        path = os.fsdecode(raw)
        if path in named or any(_matches(path, each) for each in patterns or INPUTS):
            found.append(f"{about.decode()} {path}")
    return found


def _matches(path: str, pattern: str) -> bool:
    """Whether a pattern describes a path; one without a slash describes names in any folder."""
    if "/" not in pattern:
        return fnmatch.fnmatchcase(path.rpartition("/")[2], pattern) or pattern == "**"
    return fnmatch.fnmatchcase(path, pattern.removeprefix("**/")) or fnmatch.fnmatchcase(path, pattern)


async def ignored_files(source: Path, patterns: Sequence[str] = (), *, as_folders: bool = False) -> list[str]:
    """Ignored files of the person's worktree, relative to its root; those that match a pattern if there are any."""
    found = await discover(source)
    if found is None or found.top is None:
        return []
    with tempfile.NamedTemporaryFile() as excludes:
        excludes.write(found.excludes)
        excludes.flush()
        listed = await found.git.run(
            "ls-files", "-z", "--others", "--ignored", *(["--directory"] if as_folders else []),
            "--exclude-per-directory=.gitignore", f"--exclude-from={excludes.name}",
            "--", *(f":(glob){each.rstrip('/')}" for each in patterns),
            variables={"GIT_LITERAL_PATHSPECS": "0"},
        )  # fmt: skip
    return [os.fsdecode(each) for each in listed.fields]


async def worth_naming(source: Path) -> list[str]:
    """Ignored files and folders of the person's worktree that a project may need."""
    found = await ignored_files(source, as_folders=True)
    names = {each: each.rstrip("/").rpartition("/")[2] for each in found}
    return [each for each, name in names.items() if not any(fnmatch.fnmatchcase(name, no) for no in NOT_WORTH_NAMING)]


async def signature(source: Path, files: Sequence[str]) -> str:
    """A hash of the names, sizes and times of files of the person's worktree."""
    found = await discover(source)
    if not files or found is None or found.top is None:
        return ""
    top = found.top

    def digest() -> str:
        made = hashlib.sha256()
        for each in sorted(files):
            about = os.lstat(top / each)
            made.update(os.fsencode(f"{each}\0{about.st_size} {about.st_mtime_ns} {about.st_mode}\n"))
        return made.hexdigest()

    return await asyncio.to_thread(digest)


async def copy_ignored(source: Path, workspace: Workspace, files: Sequence[str], *, key: str = "") -> None:
    """Copy ignored files of the person's worktree into a workspace. What the workspace tracks is left as it is.

    With a key it is prepared with that.
    """
    found = await discover(source)
    async with open_locked(workspace) as place:
        if found is not None and found.top is not None:
            top, tracked = found.top, await _tracked(place)

            def copy() -> None:
                for each in files:
                    _copy(top, workspace.tree, each, tracked)

            await asyncio.to_thread(copy)
        crash_point("setup: ignored files")
        if key:
            replace_file(place.folder / PREPARED, key.encode())


# --- templates and workspaces -------------------------------------------------------------------------------------


def read_products(template: Workspace) -> Products | None:
    """The products of a template; None when its commands have not run to their end."""
    try:
        content = (private_folder_of(template) / PRODUCTS).read_bytes()
    except FileNotFoundError:
        return None
    return msgspec.json.decode(content, type=Products)


async def seal(template: Workspace) -> Products:
    """Record what setup commands have made in a template, which is complete with that."""
    async with open_locked(template) as place:
        tracked = await _tracked(place)
        changed, untracked = await _changed(place)

        def scan() -> Products:
            old = os.fsencode(template.tree)
            found = Products(template=str(template.tree), files=[], rewritten=[], untracked=untracked, changed=changed)
            for path in _walk(template.tree, tracked):
                found.files.append(path)
                names = _names_folder(template.tree / path, old)
                if names == "text":
                    found.rewritten.append(path)
                elif names == "program" and not found.bound:
                    found.bound = path
            os.sync()  # what is recorded as complete must survive a power cut
            return found

        products = await asyncio.to_thread(scan)
        crash_point("setup: products")
        replace_file(place.folder / PRODUCTS, msgspec.json.encode(products))
        return products


def is_prepared(workspace: Workspace) -> bool:
    """Whether a workspace was prepared; one whose files were lost and restored was not."""
    return (private_folder_of(workspace) / PREPARED).exists()


async def apply(products: Products, workspace: Workspace, key: str) -> None:
    """Copy the products of a template into a workspace, which is prepared with that."""
    async with open_locked(workspace) as place:
        tracked = await _tracked(place)

        def copy() -> None:
            source, rewritten = Path(products.template), frozenset(products.rewritten)
            for each in products.files:
                _copy(source, workspace.tree, each, tracked, is_rewritten=each in rewritten)
            crash_point("setup: copied")
            _exclude(place, products.untracked)
            replace_file(place.folder / PREPARED, key.encode())

        await asyncio.to_thread(copy)
        crash_point("setup: prepared")


async def finish(workspace: Workspace, key: str) -> list[str]:
    """Mark a workspace as prepared in which setup commands have run; returns the tracked files that they changed, and
    that have their content again."""
    async with open_locked(workspace) as place:
        changed, untracked = await _changed(place)
        await _put_back(place, changed)
        _exclude(place, untracked)
        replace_file(place.folder / PREPARED, key.encode())
        return changed


async def reset(workspace: Workspace) -> None:
    """Undo what setup commands that did not end have done in a workspace in which no agent has worked yet."""
    async with open_locked(workspace) as place:
        await _put_back(place, (await _changed(place))[0])
        tracked = await _tracked(place)

        def remove() -> None:
            for each in reversed(list(_walk(workspace.tree, tracked))):
                path = workspace.tree / each
                if path.is_dir() and not path.is_symlink():
                    path.chmod(0o700)
                    path.rmdir()
                else:
                    path.unlink()

        await asyncio.to_thread(remove)


async def discard(root: Path, name: str) -> None:
    """Remove a template; it can be made again."""
    folder = folder_of(root, name)
    template = await asyncio.to_thread(read_workspace, folder)
    if template is not None and template.repository is not None:
        for each in (PRODUCTS, "workspace.json"):
            (folder / each).unlink(missing_ok=True)
        if await asyncio.to_thread(template.repository.is_dir):
            await Git.of(template.repository).run("update-ref", "-d", refs_of(name) + "base")
    await clear(root, name)


def bytes_below(folder: Path) -> int:
    """How much room the files in a folder take."""
    found = 0
    for parent, _folders, files in os.walk(folder):
        for name in files:
            try:
                found += os.lstat(os.path.join(parent, name)).st_size
            except FileNotFoundError:
                pass  # it went away meanwhile
    return found


def persons_folder(workspace: Workspace) -> Path:
    """The folder of the repository's main worktree that corresponds to the one that an agent is started in."""
    assert workspace.repository is not None
    top = workspace.repository.parent if workspace.repository.name == ".git" else workspace.repository
    folder = top / workspace.path.relative_to(workspace.tree)
    return folder if folder.is_dir() else top


def private_folder_of(workspace: Workspace) -> Path:
    """The folder that maos keeps beside the tree of a workspace."""
    return folder_of(workspace.tree.parent, workspace.name)


async def _tracked(place: WorkspaceFolder) -> frozenset[str]:
    """The tracked files, and the folders that they are in."""
    listed = await place.git.run("ls-files", "-z")
    files = {os.fsdecode(each) for each in listed.fields}
    folders = {parent for each in files for parent in _parents(each)}
    return frozenset(files | folders)


def _parents(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


async def _put_back(place: WorkspaceFolder, paths: Sequence[str]) -> None:
    """Give tracked files the content that they have in the last checkpoint."""
    given = b"".join(os.fsencode(each) + b"\0" for each in paths)
    await place.git.run("checkout-index", "-f", "-u", "-z", "--stdin", given=given)


async def _changed(place: WorkspaceFolder) -> tuple[list[str], list[str]]:
    """Tracked files that differ from the last checkpoint, and files that are neither tracked nor ignored."""
    await place.git.run("update-index", "-q", "--refresh", allowed=(0, 1))
    changed = await place.git.run("diff-files", "-z", "--name-only", "--ignore-submodules=all")
    others = await place.git.run("ls-files", "-z", "--others", "--exclude-standard")
    return [os.fsdecode(each) for each in changed.fields], [os.fsdecode(each) for each in others.fields]


def _exclude(place: WorkspaceFolder, paths: Iterable[str]) -> None:
    """Keep files out of the checkpoints of a workspace."""
    known = (place.folder / "info" / "exclude").read_bytes().splitlines()
    escaped = [b"/" + b"".join(b"\\" + bytes([c]) if c in b"*?[\\ !#" else bytes([c]) for c in os.fsencode(each))
               for each in paths if "\n" not in each]  # fmt: skip
    if lines := [each for each in escaped if each not in known]:
        replace_file(place.folder / "info" / "exclude", b"".join(line + b"\n" for line in (*known, *lines)))


# --- files --------------------------------------------------------------------------------------------------------


def _walk(tree: Path, tracked: Collection[str], below: str = "") -> Iterator[str]:
    """Everything in a tree that is not tracked, each folder before what is in it."""
    with os.scandir(tree / below) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            path = f"{below}/{entry.name}" if below else entry.name
            if path == ".git":
                continue
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name == "__pycache__" and (not below or below in tracked):
                continue  # byte code of tracked files, which may have another content in another workspace
            if path not in tracked:
                yield path
            if is_folder:
                yield from _walk(tree, tracked, path)


def _names_folder(path: Path, folder: bytes) -> str:
    """`text` when a file or link that can be rewritten contains the path of a folder, `program` for any other."""
    about = path.lstat()
    if stat.S_ISLNK(about.st_mode):
        return "text" if folder in os.fsencode(os.readlink(path)) else ""
    if not stat.S_ISREG(about.st_mode) or path.suffix == ".pyc":  # Python corrects the paths in those itself
        return ""
    content = path.read_bytes()
    if folder not in content:
        return ""
    if b"\0" not in content:
        return "text"
    return "program" if folder in _without_debug(content) else ""


def _without_debug(content: bytes) -> bytes:
    """An ELF file without its debugging information, which names the folder of its sources; other files as they are."""
    if content[:6] != b"\x7fELF\x02\x01":
        return content
    try:
        table, size, count, names = struct.unpack_from("<Q", content, 40) + struct.unpack_from("<HHH", content, 58)
        headers = [struct.unpack_from("<IIQQQQ", content, table + size * each) for each in range(count)]
        begin = headers[names][4]
        kept = [content[:64]]
        for name, _type, _flags, _address, offset, length in headers:
            if not content.startswith((b".debug", b".gnu.debuglto"), begin + name):
                kept.append(content[offset : offset + length])
    except (struct.error, IndexError):
        return content
    return b"\0".join(kept)


def _copy(source: Path, target: Path, path: str, tracked: Collection[str], *, is_rewritten: bool = False) -> None:
    """Copy a file, a link or a folder; nothing is written through a link that leads elsewhere (A13)."""
    if path in tracked or any((target / each).is_symlink() for each in _parents(path)):
        return
    old, new = source / path, target / path
    about = old.lstat()
    if stat.S_ISDIR(about.st_mode):
        if new.is_symlink() or (lexists(new) and not new.is_dir()):
            new.unlink()
        new.mkdir(parents=True, exist_ok=True)
        return
    if new.is_dir() and not new.is_symlink():
        shutil.rmtree(new)
    new.unlink(missing_ok=True)
    new.parent.mkdir(parents=True, exist_ok=True)
    if stat.S_ISLNK(about.st_mode):
        leads = os.readlink(old)
        new.symlink_to(leads.replace(str(source), str(target)) if is_rewritten else leads)
    elif stat.S_ISREG(about.st_mode):
        _copy_content(old, new)
        if is_rewritten:
            new.write_bytes(new.read_bytes().replace(os.fsencode(source), os.fsencode(target)))
        new.chmod(stat.S_IMODE(about.st_mode))
        os.utime(new, ns=(about.st_atime_ns, about.st_mtime_ns))


def _copy_content(old: Path, new: Path) -> None:
    """Copy a file: the file system shares the blocks if it can, and a change of one file never changes the other."""
    with open(old, "rb") as given, open(new, "xb") as made:
        try:
            fcntl.ioctl(made.fileno(), _FICLONE, given.fileno())
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS):
                raise
            shutil.copyfileobj(given, made, 1 << 20)


def to_key(parts: Any) -> str:
    """A name for a template: a hash of everything that it is made from."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
