"""Transfers commits between machines: packs them with all objects they need, and imports them after a strict check.

An imported pack is first put into a folder beside the objects of the repository, where git checks every object as it
does when it fetches. Only complete and valid commits become part of the repository, under `refs/maos/` alone. Hooks,
configuration and branches are neither transferred nor touched.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from maos.errors import Corrupt, InvalidInput, NotFound
from maos.faults import crash_point
from maos.files import sync_folder
from maos.workspaces.git import CHECKOUT_LIMIT_S, Git, GitFailed, check_version

ALLOC_BYTES_MAX = 1 << 30
"""The most memory that git may use for one object: a small compressed object can be very large."""
MOVES = ("merged", "bundle")
"""Refs that move as the work continues; the others are written once."""

_IMPORT = (
    ("core.bigFileThreshold", "64m"),  # larger files are never in memory as a whole
    ("pack.threads", "1"),
)


async def known(repository: Path) -> dict[str, str]:
    """Return the commits that agents have saved in a repository, by their refs."""
    if not await asyncio.to_thread((repository / "objects").is_dir):
        raise NotFound(
            f"the repository {repository} is missing", hint="restore it, or leave out the files: --without-files"
        )
    await check_version()
    return await Git.of(repository).refs("refs/maos/")


async def object_format(repository: Path) -> str:
    """Return the object format of a repository: sha1 or sha256."""
    return await Git.of(repository).line("rev-parse", "--show-object-format")


async def pack(
    repository: Path, refs: Mapping[str, str], folder: Path, *, without: Sequence[str] = ()
) -> tuple[bytes, Path]:
    """Pack the commits of refs with all objects they need, apart from those that commits in `without` have.

    Returns the head of a git bundle and the file of its pack.
    """
    git = Git.of(repository)
    if await git.line("rev-parse", "--is-shallow-repository") == "true":
        hint = "fetch the rest with git fetch --unshallow, or leave out the files: --without-files"
        raise InvalidInput(f"{repository} is a shallow clone", hint=hint)
    wanted = "".join([*(f"{commit}\n" for commit in sorted(set(refs.values()))), *(f"^{each}\n" for each in without)])
    try:
        name = await git.run(
            "pack-objects", "--revs", "--quiet", str(folder / "pack"), given=wanted.encode(), limit_s=CHECKOUT_LIMIT_S
        )
    except GitFailed as error:
        hint = "find out what is missing with git fsck, or leave out the files: --without-files"
        raise GitFailed(error.command, error.result, hint=hint) from error
    return head(refs, await object_format(repository), without), folder / f"pack-{name.line}.pack"


def head(refs: Mapping[str, str], object_format: str, needs: Sequence[str] = ()) -> bytes:
    """Return the header of a git bundle, which needs some commits to be there."""
    first = "# v2 git bundle\n" if object_format == "sha1" else f"# v3 git bundle\n@object-format={object_format}\n"
    first += "".join(f"-{commit}\n" for commit in needs)
    return (first + "".join(f"{commit} {ref}\n" for ref, commit in sorted(refs.items())) + "\n").encode()


def missing(here: Mapping[str, str], refs: Mapping[str, str]) -> dict[str, str]:
    """Return the refs that a repository does not have; raise InvalidInput when it has one for another commit."""
    for ref, commit in refs.items():
        if here.get(ref, commit) != commit and ref.rpartition("/")[2] not in MOVES:
            raise InvalidInput(
                f"the repository has another commit as {ref}",
                hint="another copy of this run uses it; name a clone of it: --cwd CLONE",
            )
    return {ref: commit for ref, commit in refs.items() if here.get(ref) != commit}


async def take(repository: Path, file: Path, refs: Mapping[str, str]) -> int:
    """Import the commits of a pack under their refs, in one transaction; return how many refs are new.

    Raises Corrupt, with nothing changed, when an object in the pack is invalid or missing.
    """
    here = await known(repository)
    new = missing(here, refs)
    if not new:
        return 0
    objects = repository / "objects"
    with tempfile.TemporaryDirectory(prefix="tmp_objdir-maos-", dir=objects) as beside:
        variables = {"GIT_OBJECT_DIRECTORY": beside, "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(objects)}
        limits = {"GIT_DIR": str(repository), "GIT_ALLOC_LIMIT": str(ALLOC_BYTES_MAX)}
        git = Git(repository, {**variables, **limits}, _IMPORT)
        try:
            with file.open("rb") as packed:
                await git.run("index-pack", "--strict", "--stdin", given=packed.fileno(), limit_s=CHECKOUT_LIMIT_S)
            await _check_whole(git, set(new.values()))
        except GitFailed as error:
            raise Corrupt(
                f"the commits of the bundle are not valid: {error.result.complaint}",
                hint="nothing was imported; if you trust its author, ask for an export --without-files, and fetch "
                "refs/maos/* from their repository with git",
            ) from error
        crash_point("import:objects checked")
        await asyncio.to_thread(_move, Path(beside) / "pack", objects / "pack")
    crash_point("import:objects there")
    lines = "".join(f"update {ref} {commit} {here.get(ref, '0' * len(commit))}\n" for ref, commit in new.items())
    await Git.of(repository).run("update-ref", "--no-deref", "--stdin", given=f"start\n{lines}commit\n".encode())
    crash_point("import:refs")
    return len(new)


async def _check_whole(git: Git, commits: set[str]) -> None:
    """Raise GitFailed when an object that a commit needs is missing, Corrupt when one is no commit."""
    wanted = "".join(f"{commit}\n" for commit in sorted(commits))
    types = (await git.run("cat-file", "--batch-check=%(objecttype)", given=wanted.encode())).output.split()
    if types != [b"commit"] * len(commits):
        raise Corrupt("the bundle has refs to objects that are not commits", hint="nothing was imported")
    walk = ("--objects", "--quiet", "--stdin", "--not", "--all")
    await git.run("rev-list", *walk, given=wanted.encode(), limit_s=CHECKOUT_LIMIT_S)


def _move(source: Path, target: Path) -> None:
    """Move checked packs to the others, each index last: git finds the objects of a pack by its index."""
    target.mkdir(exist_ok=True)
    for path in sorted(source.iterdir(), key=lambda each: each.suffix == ".idx"):
        if path.suffix in (".pack", ".idx", ".rev"):
            os.replace(path, target / path.name)
    sync_folder(target)
