"""Merges the work of a workspace into the user's branch and tree: completely, or not at all.

The merge is computed on trees alone. Only when it is clean, and the user has no changes in the files that it would
write, are those files written and the branch moved. A merge that was killed in between is completed by repeating it: a
file that already has its new content does not block it.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from maos.errors import InvalidInput
from maos.faults import crash_point
from maos.files import private_folder
from maos.workspaces.checkpoints import in_the_way, repositories_at, trailers
from maos.workspaces.git import (
    CHECKOUT_LIMIT_S,
    Git,
    GitFailed,
    RepositoryFolder,
    decode_path,
    discover,
    lexists,
    lock_file,
    read_or_empty,
)
from maos.workspaces.index import put_into_index
from maos.workspaces.layout import (
    PRIVATE,
    Workspace,
    create_git_folder,
    find_commit,
    last_merge,
    private_git,
    refs_of,
)

OWN, OTHERS = SIDES = ("own", "others")
"""Which side's files to use where both changed the same: the workspace's, or those it is merged into."""
_UNDER_WAY = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply", "BISECT_LOG")


class Merged(NamedTuple):
    """The work is in the user's branch and tree."""

    commit: str
    files: tuple[str, ...]
    """The files that were written; empty when the branch had everything already."""


class Conflicted(NamedTuple):
    """Both sides changed the same lines; nothing was touched."""

    files: tuple[str, ...]
    messages: tuple[str, ...]
    """What git reports about each."""
    commit: str
    """A commit on top of both sides: the files merged as far as possible, with conflict markers in those named.

    Work that continues from it, with the markers resolved, can be merged.
    """


class Blocked(NamedTuple):
    """The merge is clean, but the user's tree is not ready for it; nothing was touched."""

    why: str
    files: tuple[str, ...]
    hint: str

    @classmethod
    def by(cls, why: str, files: Iterable[bytes], hint: str) -> Blocked:
        """Return it with the paths of files as git prints them."""
        return cls(why, tuple(map(decode_path, files)), hint)


class _Tried(NamedTuple):
    tree: str
    files: tuple[bytes, ...]
    messages: tuple[str, ...]


async def merge(
    workspace: Workspace, commit: str, *, into: Path, message: str, prefer: str = ""
) -> Merged | Conflicted | Blocked:
    """Merge a checkpoint into the branch that is checked out at `into`, as one commit on top of it.

    With `prefer`, files that both sides changed in the same places are taken whole from one of them: OWN or OTHERS.
    """
    if workspace.repository is None:
        raise InvalidInput(f"{workspace.path} was worked in directly", hint="its files are already where they belong")
    source = await discover(await asyncio.to_thread(into.resolve))
    repository = await asyncio.to_thread(workspace.repository.resolve)  # it may have moved, with a link where it was
    if source is None or source.repository != repository:
        raise InvalidInput(
            f"{into} is not in the repository of workspace {workspace.name}",
            hint=f"merge into a worktree of {workspace.repository}",
        )
    if source.top == workspace.tree:
        raise InvalidInput(f"{into} is the workspace itself", hint="merge into the user's tree")
    await asyncio.to_thread(private_folder, workspace.tree.parent / PRIVATE)
    async with lock_file(workspace.tree.parent / PRIVATE / ".merge.lock"):
        with tempfile.TemporaryDirectory(prefix="maos-merge-") as scratch:
            return await _Merge(workspace, source, Path(scratch), prefer).run(commit, message)


async def preview(workspace: Workspace, commit: str, *, onto: str) -> tuple[str, ...]:
    """Return the files that would conflict if a checkpoint was merged onto a commit; touch no file and no ref."""
    source = None if workspace.repository is None else await discover(workspace.tree)
    if source is None:
        raise InvalidInput(f"{workspace.tree} is not in a git repository", hint="restore it from a backup")
    with tempfile.TemporaryDirectory(prefix="maos-merge-") as scratch:
        return await _Merge(workspace, source, Path(scratch), "").preview(commit, onto)


class _Merge:
    """One merge, with a private git folder: it runs no merge driver or filter that the repository names."""

    def __init__(self, workspace: Workspace, source: RepositoryFolder, scratch: Path, prefer: str) -> None:
        assert workspace.base is not None
        self.prefer = prefer
        self.workspace = workspace
        self.base = workspace.base
        self.source = source
        self.scratch = scratch
        self.git = private_git(scratch / "git", source.repository, scratch)
        self.users = source.git
        create_git_folder(scratch / "git", object_format=source.object_format)

    async def run(self, named: str, message: str) -> Merged | Conflicted | Blocked:
        """Merge a commit and move the user's branch, or return what prevents it."""
        commit = await find_commit(self.source.git, named)
        head = await self.source.git.commit_at("HEAD")
        if not head:
            return Blocked("nothing is committed in the repository yet", (), "commit your files, then merge again")
        if trouble := next((name for name in _UNDER_WAY if lexists(self.source.gitdir / name)), ""):
            return Blocked(f"{trouble} is in progress in {self.source.top}", (), "finish or abort it, then merge again")
        since = await self._since(head, commit)
        theirs = await self._as_git_would_commit(since, commit)
        tried = await self._try(since, head, theirs)
        if tried.files and self.prefer:
            tried = await self._resolve(tried, theirs if self.prefer == OWN else head)
        if tried.files:
            agent_head = (await trailers(self.source.git, commit)).get("Head", self.base)
            text = f"conflict\n\nMaos-Base: {self.base}\nMaos-Head: {agent_head}\n"
            both = await self.git.line("commit-tree", tried.tree, "-p", commit, "-p", head, given=text.encode())
            return Conflicted(tuple(map(decode_path, tried.files)), tried.messages, both)
        if tried.tree == await self.git.line("rev-parse", head + "^{tree}"):
            return Merged(head, ())
        text = f"{message.strip() or 'Merge ' + self.workspace.name}\n\nMaos-Checkpoint: {commit}\n"
        new = await self.git.line("commit-tree", tried.tree, "-p", head, given=text.encode("utf-8", "replace"))
        # Recorded before the branch moves: a record of a commit that the branch does not contain is ignored.
        note = await self.git.line("commit-tree", tried.tree, "-p", new, "-p", commit, given=b"merged\n")
        await self.source.git.run("update-ref", refs_of(self.workspace.name) + "merged", note)
        crash_point("merge: noted")
        changed = await self.git.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", head, new)
        return await self._land(head, new, changed.fields)

    async def preview(self, named: str, onto: str) -> tuple[str, ...]:
        """Return the files that both sides changed in the same places."""
        commit, head = await find_commit(self.source.git, named), await find_commit(self.source.git, onto)
        since = await self._since(head, commit)
        tried = await self._try(since, head, await self._as_git_would_commit(since, commit))
        return tuple(map(decode_path, tried.files))

    async def _since(self, head: str, commit: str) -> str:
        """Return the merge base: what was merged last, else the common ancestor, else where the work began."""
        git = self.source.git
        if noted := await last_merge(git, self.workspace.name):
            landed, merged = noted
            if await self._contains(head, landed) and await self._contains(commit, merged):
                return merged
        parted = await git.run("merge-base", head, commit, allowed=(0, 1))
        if parted.status == 0 and await self._contains(parted.line, self.base):
            return parted.line  # the agent may have merged newer work of others
        return self.base

    async def _contains(self, newer: str, older: str) -> bool:
        return (await self.source.git.run("merge-base", "--is-ancestor", older, newer, allowed=(0, 1))).status == 0

    async def _as_git_would_commit(self, since: str, commit: str) -> str:
        """Return the tree of a checkpoint with line ends and encodings converted as its attributes require.

        A checkpoint has the bytes of the files. A commit in the user's branch should look as if git had added it.
        """
        local = await asyncio.to_thread(read_or_empty, self.source.repository / "info" / "attributes")
        before, after = await listing(self.git, since), await listing(self.git, commit)
        known = [path for path in after if path.split(b"/")[-1] == b".gitattributes"]
        changed = [path for path, line in after.items() if line != before.get(path) and line.startswith(b"100")]
        if not changed or not (known or local):
            return await self.git.line("rev-parse", commit + "^{tree}")
        files = self.scratch / "files"
        await asyncio.to_thread(files.mkdir)
        raw = private_git(self.scratch / "git", self.source.repository, files)
        await raw.run("read-tree", commit)
        wanted = b"".join(path + b"\0" for path in {*known, *changed})
        await raw.run("checkout-index", "-z", "--stdin", given=wanted, limit_s=CHECKOUT_LIMIT_S)
        create_git_folder(self.scratch / "convert", object_format=self.source.object_format, attributes=local)
        converting = private_git(self.scratch / "convert", self.source.repository, files)
        await converting.run("read-tree", commit)
        # How git converts line ends depends on the version in the index, so give it the version from before.
        old = (before.get(path, b"0 " + b"0" * len(commit) + b"\t" + path) for path in changed)
        await converting.change_index(old)
        refused = await put_into_index(converting, changed)
        await converting.change_index(after[path] for path in refused)
        return await converting.line("write-tree")

    async def _try(self, since: str, head: str, theirs: str) -> _Tried:
        """Merge three trees. Git takes commits and finds their base itself, so make commits with the right parents."""
        base = await self.git.line("commit-tree", since + "^{tree}", given=b"base\n")
        sides = [
            await self.git.line("commit-tree", tree, "-p", base, given=b"side\n") for tree in (head + "^{tree}", theirs)
        ]
        result = await self.git.run("merge-tree", "--write-tree", "-z", "--messages", *sides, allowed=(0, 1))
        tree, *fields = result.output.split(b"\0")
        if result.status == 0:
            return _Tried(tree.decode(), (), ())
        end = fields.index(b"")
        files = sorted({field.split(b"\t", 1)[1] for field in fields[:end]})
        return _Tried(tree.decode(), tuple(files), tuple(_messages(fields[end + 1 :])))

    async def _resolve(self, tried: _Tried, side: str) -> _Tried:
        """Resolve conflicts: use one side's files, and delete those that it does not have."""
        entries = await listing(self.git, side)
        await self.git.run("read-tree", tried.tree)
        gone = b"0 " + b"0" * len(tried.tree) + b"\t"
        await self.git.change_index(entries.get(path, gone + path) for path in tried.files)
        return _Tried(await self.git.line("write-tree"), (), ())

    # --- the user's branch, index and files -------------------------------------------------------------------

    async def _land(self, head: str, new: str, files: list[bytes]) -> Merged | Blocked:
        """Write the files and move the branch, if no change of the user blocks it."""
        if self.source.top is not None:
            listed = await self.users.run("config", "-z", "--name-only", "--get-regexp", r"^filter\.", allowed=(0, 1))
            drivers = {os.fsdecode(name).split(".", 1)[1].rpartition(".")[0] for name in listed.fields}
            off = {"clean": "", "smudge": "", "process": "", "required": "false"}  # no filter program is run
            settings = tuple((f"filter.{each}.{key}", value) for each in sorted(drivers) for key, value in off.items())
            variables = {"GIT_DIR": str(self.source.gitdir), "GIT_WORK_TREE": str(self.source.top)}
            self.users = Git(self.source.top, variables, settings)
            if blocked := await self._blocked(head, new, files, drivers):
                return blocked
            await self.users.run("read-tree", "-m", "-u", head, new, limit_s=CHECKOUT_LIMIT_S)
            crash_point("merge: files")
        try:
            await self.users.run("update-ref", "-m", "maos: merge", "HEAD", new, head)
        except GitFailed as error:
            if self.source.top is not None:
                await self.users.run("read-tree", "-m", "-u", new, head, limit_s=CHECKOUT_LIMIT_S)
            return Blocked(f"the branch could not be moved: {error.result.complaint}", (), "merge again")
        crash_point("merge: branch")
        return Merged(new, tuple(decode_path(path) for path in files))

    async def _blocked(self, head: str, new: str, files: list[bytes], drivers: set[str]) -> Blocked | None:
        """Return what prevents writing the files to the user's tree, or None."""
        if drivers and (filtered := await self._filtered(files, drivers)):
            hint = f"merge it yourself: git cherry-pick {new}"
            return Blocked.by("some files need a filter program, which maos does not run", filtered, hint)
        assert self.source.top is not None
        if nested := await asyncio.to_thread(repositories_at, self.source.top, files):
            hint = "move them away, then merge again"
            return Blocked.by("repositories are where the merge would write files", nested, hint)
        lock = self.source.gitdir / "index.lock"
        if lexists(lock):
            hint = f"wait for it, or if there is none, remove {lock}"
            return Blocked(f"another git is running in {self.source.top}", (), hint)
        if unmerged := (await self.users.run("ls-files", "-z", "--unmerged")).fields:
            files = sorted({line.split(b"\t", 1)[1] for line in unmerged})
            hint = "resolve them and git add them, then merge again"
            return Blocked.by("there are unresolved conflicts", files, hint)
        await self.users.run("update-index", "-q", "--refresh", allowed=(0, 1))
        before, after = await listing(self.users, head), await listing(self.users, new)
        same = await self._up_to_date(after, files)
        changed = await self.users.run("diff-index", "-z", "--name-only", "--ignore-submodules", head)
        own = set(files) & set(changed.fields)
        added, leaving = set(files) - set(before), set(files) - set(after)
        own.update(await asyncio.to_thread(lambda: set(in_the_way(Path(self.users.cwd), added, leaving))))
        if dirty := sorted(own - set(same)):  # in no commit, and the merge would overwrite it
            hint = "commit or stash them, or move them away, then merge again"
            return Blocked.by("you have changes of your own in files that the merge would write", dirty, hint)
        await self.users.change_index(same.values())
        result = await self.users.run("read-tree", "-m", "-u", "-n", head, new, allowed=(0, 128))
        return None if result.status == 0 else Blocked(result.complaint, (), "fix that, then merge again")

    async def _filtered(self, files: list[bytes], drivers: set[str]) -> list[bytes]:
        given = b"".join(path + b"\0" for path in files)
        fields = (await self.users.run("check-attr", "-z", "--stdin", "filter", given=given)).fields
        return [path for path, driver in zip(fields[::3], fields[2::3], strict=True) if os.fsdecode(driver) in drivers]

    async def _up_to_date(self, wanted: dict[bytes, bytes], files: list[bytes]) -> dict[bytes, bytes]:
        """Return the files whose content on disk is already the new one, with their lines for the index."""
        create_git_folder(self.scratch / "look", object_format=self.source.object_format, attributes=b"")
        assert self.source.top is not None
        top = os.fsencode(self.source.top)
        look = private_git(self.scratch / "look", self.source.repository, self.source.top)
        present = [path for path in files if path in wanted and lexists(os.path.join(top, path))]
        await put_into_index(look, present)
        found = {}
        for line in (await look.run("ls-files", "-z", "--stage")).fields:
            mode, identity, _stage_and_path = line.split(b" ", 2)
            path = line.split(b"\t", 1)[1]
            if wanted[path].split(b"\t")[0].split(b" ")[::2] == [mode, identity]:
                found[path] = wanted[path]
        gone = [path for path in files if path not in wanted and not lexists(os.path.join(top, path))]
        return {**found, **{path: b"0 " + b"0" * len(self.base) + b"\t" + path for path in gone}}


def _messages(fields: list[bytes]) -> list[str]:
    """Parse the messages of git merge-tree: for each, a number of paths, the paths, a kind and a text."""
    found = []
    at = 0
    while at < len(fields) and fields[at].isdigit():
        at += 1 + int(fields[at])
        if fields[at].startswith(b"CONFLICT"):
            found.append(decode_path(fields[at + 1].strip()))
        at += 2
    return found


async def listing(git: Git, commit: str) -> dict[bytes, bytes]:
    """List the files of a commit: their paths, and their lines for `update-index --index-info`."""
    listed = await git.run("ls-tree", "-r", "-z", "--full-tree", commit)
    return {line.split(b"\t", 1)[1]: line for line in listed.fields}
