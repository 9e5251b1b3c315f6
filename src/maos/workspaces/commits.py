"""Commits on their way to another machine: packed with all that they need, and taken in after a close look.

What comes is put beside the objects of the repository first, where git checks every object of it as it does with what
it fetches. Only whole and sound commits become part of the repository, under `refs/maos/` and nowhere else. No hook, no
configuration and no branch travels, or is touched.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from maos.errors import Corrupt, InvalidInput, NotFound
from maos.faults import crash_point
from maos.workspaces.git import CHECKOUT_LIMIT_S, Git, GitFailed, check_version
from maos.workspaces.layout import sync_folder
from maos.workspaces.source import discover

ALLOC_BYTES_MAX = 1 << 30
"""The most that git may take for one object: what is smaller on its way can be very large."""
MOVES = ("merged", "bundle")
"""Refs that go on with the work; the others are written once."""

_TAKING = (
    ("core.bigFileThreshold", "64m"),  # larger files are never in memory as a whole
    ("pack.threads", "1"),
)


class CommitTarget(NamedTuple):
    """A folder that work goes on in, and the repository that it is in, if it is in one."""

    repository: Path | None
    prefix: str
    object_format: str


async def target(folder: Path) -> CommitTarget:
    """Where a folder is."""
    found = await discover(await asyncio.to_thread(folder.resolve))
    return (
        CommitTarget(None, "", "")
        if found is None
        else CommitTarget(found.repository, found.prefix, found.object_format)
    )


async def known(repository: Path) -> dict[str, str]:
    """All that agents have saved in a repository: commits by their refs."""
    if not await asyncio.to_thread((repository / "objects").is_dir):
        raise NotFound(f"the repository {repository} is gone", hint="put it back, or leave files out: --without-files")
    await check_version()
    listed = await _git(repository).run("for-each-ref", "--format=%(objecttype) %(objectname) %(refname)", "refs/maos/")
    found = {}
    for line in listed.output.decode("utf-8", "replace").splitlines():
        kind, commit, ref = line.split(" ", 2)
        if kind == "commit":
            found[ref] = commit
    return found


async def object_format(repository: Path) -> str:
    """How a repository names its objects."""
    return await _git(repository).line("rev-parse", "--show-object-format")


async def pack(repository: Path, refs: Mapping[str, str], folder: Path) -> tuple[bytes, Path]:
    """The commits of some refs and all that they need: the head of a git bundle, and a file with the rest of it."""
    git = _git(repository)
    if await git.line("rev-parse", "--is-shallow-repository") == "true":
        hint = "fetch the rest with git fetch --unshallow, or leave files out: --without-files"
        raise InvalidInput(f"{repository} has only the last part of its history", hint=hint)
    wanted = "".join(f"{commit}\n" for commit in sorted(set(refs.values())))
    try:
        name = await git.run(
            "pack-objects", "--revs", "--quiet", str(folder / "pack"), given=wanted.encode(), limit_s=CHECKOUT_LIMIT_S
        )
    except GitFailed as error:
        hint = "see what is missing with git fsck, or leave files out: --without-files"
        raise GitFailed(error.command, error.result, hint=hint) from error
    return head(refs, await object_format(repository)), folder / f"pack-{name.line}.pack"


def head(refs: Mapping[str, str], object_format: str) -> bytes:
    """How a git bundle begins."""
    first = "# v2 git bundle\n" if object_format == "sha1" else f"# v3 git bundle\n@object-format={object_format}\n"
    return (first + "".join(f"{commit} {ref}\n" for ref, commit in sorted(refs.items())) + "\n").encode()


def missing(here: Mapping[str, str], refs: Mapping[str, str]) -> dict[str, str]:
    """The refs that a repository has not; InvalidInput when it has one for something else."""
    for ref, commit in refs.items():
        if here.get(ref, commit) != commit and ref.rpartition("/")[2] not in MOVES:
            raise InvalidInput(
                f"the repository has another commit as {ref}",
                hint="another copy of this run works in it; give a clone of it: --cwd CLONE",
            )
    return {ref: commit for ref, commit in refs.items() if here.get(ref) != commit}


async def take(repository: Path, file: Path, refs: Mapping[str, str]) -> int:
    """Take in the commits of a pack under their refs, in one step; how many refs are new.

    Corrupt, and nothing is changed, when anything in the pack is not as it should be, or something is missing.
    """
    here = await known(repository)
    new = missing(here, refs)
    if not new:
        return 0
    objects = repository / "objects"
    with tempfile.TemporaryDirectory(prefix="tmp_objdir-maos-", dir=objects) as beside:
        variables = {"GIT_OBJECT_DIRECTORY": beside, "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(objects)}
        git = _git(repository, {**variables, "GIT_ALLOC_LIMIT": str(ALLOC_BYTES_MAX)}, _TAKING)
        try:
            await _index(git, file)
            await _check_whole(git, set(new.values()))
        except GitFailed as error:
            raise Corrupt(
                f"the commits of the bundle are not as they should be: {error.result.complaint}",
                hint="nothing was imported; if you trust who made it, have it exported --without-files, and fetch "
                "refs/maos/* from their repository with git",
            ) from error
        crash_point("import:objects checked")
        await asyncio.to_thread(_move, Path(beside) / "pack", objects / "pack")
    crash_point("import:objects there")
    lines = "".join(f"update {ref} {commit} {here.get(ref, '0' * len(commit))}\n" for ref, commit in new.items())
    await _git(repository).run("update-ref", "--no-deref", "--stdin", given=f"start\n{lines}commit\n".encode())
    crash_point("import:refs")
    return len(new)


async def _index(git: Git, file: Path) -> None:
    with file.open("rb") as pack:
        await git.run("index-pack", "--strict", "--stdin", given=pack.fileno(), limit_s=CHECKOUT_LIMIT_S)


async def _check_whole(git: Git, commits: set[str]) -> None:
    """GitFailed unless each is a commit, and nothing that it leads to is missing."""
    wanted = "".join(f"{commit}\n" for commit in sorted(commits))
    told = (await git.run("cat-file", "--batch-check=%(objecttype)", given=wanted.encode())).output.split()
    if told != [b"commit"] * len(commits):
        raise Corrupt("the bundle has names for what are no commits", hint="nothing was imported")
    walk = ("--objects", "--quiet", "--stdin", "--not", "--all")
    await git.run("rev-list", *walk, given=wanted.encode(), limit_s=CHECKOUT_LIMIT_S)


def _move(source: Path, target: Path) -> None:
    """Have checked packs join the others: what they hold is found once the index is there, so that goes last."""
    target.mkdir(exist_ok=True)
    for path in sorted(source.iterdir(), key=lambda each: each.suffix == ".idx"):
        if path.suffix in (".pack", ".idx", ".rev"):
            os.replace(path, target / path.name)
    sync_folder(target)


def _git(
    repository: Path, variables: Mapping[str, str] | None = None, configuration: tuple[tuple[str, str], ...] = ()
) -> Git:
    return Git(repository, {"GIT_DIR": str(repository), **(variables or {})}, configuration)
