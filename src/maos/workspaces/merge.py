"""Merges the work of a workspace into the user's branch and tree, or into another branch: completely, or not at all.

The merge is computed on trees alone, as one commit or as one for each part of the work. Only when it is clean, and the
user has no changes in the files that it would write, are those files written and the branch moved, once. A merge that
was killed in between is completed by repeating it: a file that already has its new content does not block it.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from maos.errors import InvalidInput
from maos.faults import crash_point
from maos.files import private_folder
from maos.tuples import NamedTuple
from maos.workspaces.checkpoints import NOT_COMMITTED, in_the_way, repositories_at, trailers
from maos.workspaces.conflicts import TASK_TRAILER, FileConflict, SideChange, changes, explain
from maos.workspaces.git import (
    CHECKOUT_LIMIT_S,
    Git,
    GitFailed,
    RepositoryFolder,
    decode_path,
    discover,
    identity,
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
    merges,
    private_git,
    refs_of,
)

OWN, OTHERS = SIDES = ("own", "others")
"""Which side's files to use where both changed the same: the workspace's, or those it is merged into."""
SUBJECT_CHARS_MAX = 72
_UNDER_WAY = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply", "BISECT_LOG")


class WorkPart(NamedTuple):
    """A part of the work that becomes a commit of its own: what is in `commit` and in no part before it."""

    commit: str
    subject: str
    body: str = ""
    trailers: tuple[tuple[str, str], ...] = ()
    """The lines at the end of the message that programs read, such as `Maos-Task: api`."""

    def message(self, *more: tuple[str, str]) -> bytes:
        """The message of its commit, with more trailers."""
        lines = [f"{key}: {' '.join(value.split())}" for key, value in (*self.trailers, *more)]
        parts = [" ".join(self.subject.split()), self.body.strip(), "\n".join(lines)]
        return ("\n\n".join(filter(None, parts)) + "\n").encode("utf-8", "replace")

    @classmethod
    def of(cls, parts: Sequence[WorkPart]) -> WorkPart:
        """Several parts as one: the work of the last has that of the others in it."""
        if len(parts) == 1:
            return parts[0]
        subject = "; ".join(each.subject for each in parts)
        if len(subject) > SUBJECT_CHARS_MAX:
            subject = subject[: SUBJECT_CHARS_MAX - 1] + "…"
        body = "\n\n".join(filter(None, (f"{each.subject}\n\n{each.body}".strip() for each in parts)))
        return cls(parts[-1].commit, subject, body, tuple(line for each in parts for line in each.trailers))


class MergedCommit(NamedTuple):
    """A commit that a merge made."""

    commit: str
    subject: str
    files: tuple[str, ...]
    tasks: tuple[str, ...] = ()
    """The tasks whose work it has, as its message says."""


class Merged(NamedTuple):
    """The work is in the branch, and in the user's tree if the branch is checked out there."""

    commit: str
    files: tuple[str, ...]
    """The files that were written; empty when the branch had everything already."""
    commits: tuple[MergedCommit, ...] = ()
    """What was added to the branch, the oldest first."""
    branch: str = ""
    """The branch, without `refs/heads/`; empty for a HEAD that is at no branch."""
    remote: str = ""
    """The remote that the branch is pushed to; empty when the repository has none."""
    dry_run: bool = False
    """Whether nothing was changed: the commits are what the merge would add."""


class Conflicted(NamedTuple):
    """Both sides changed the same lines; nothing was touched."""

    files: tuple[str, ...]
    messages: tuple[str, ...]
    """What git reports about each."""
    commit: str
    """A commit on top of both sides: the files merged as far as possible, with conflict markers in those named.

    Work that continues from it, with the markers resolved, can be merged.
    """
    conflicts: tuple[FileConflict, ...] = ()
    """Who changed these files on both sides, and the lines that differ, of the first so many files."""


class Blocked(NamedTuple):
    """The merge is clean, but the user's tree or branch is not ready for it; nothing was touched."""

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
    workspace: Workspace,
    commit: str,
    *,
    into: Path,
    message: str = "",
    parts: Sequence[WorkPart] = (),
    branch: str = "",
    prefer: str = "",
    as_user: bool = False,
    dry_run: bool = False,
) -> Merged | Conflicted | Blocked:
    """Merge a checkpoint into the branch that is checked out at `into`, or into another `branch` of its repository.

    It becomes one commit with a message, or one for each of the `parts`, of which the last has all of the work. A
    branch that does not exist is created where the work began. With `prefer`, files that both sides changed in the same
    places are taken whole from one of them: OWN or OTHERS. With `as_user` the commits have the name and address that
    the user's git has; else those of maos. With `dry_run` no file and no ref is changed.
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
    if branch and (await source.git.run("check-ref-format", "--branch", branch, allowed=(0, 1, 128))).status:
        raise InvalidInput(f"{branch!r} cannot name a branch", hint="see `git help check-ref-format`")
    await asyncio.to_thread(private_folder, workspace.tree.parent / PRIVATE)
    async with lock_file(workspace.tree.parent / PRIVATE / ".merge.lock"):
        with tempfile.TemporaryDirectory(prefix="maos-merge-") as scratch:
            found = _Merge(workspace, source, Path(scratch), prefer, branch=branch, dry_run=dry_run)
            if as_user:
                found.variables = await identity(source)
            subject, _, body = message.strip().partition("\n")
            return await found.run(commit, parts or [WorkPart(commit, subject or f"Merge {workspace.name}", body)])


async def landed(workspace: Workspace, commit: str) -> tuple[SideChange, ...]:
    """Return the commits that `merge` has made in a workspace since it began, up to a commit, the oldest first."""
    if workspace.repository is None or workspace.base is None:
        return ()
    return tuple(reversed(await changes(Git.of(workspace.repository), "--first-parent", f"{workspace.base}..{commit}")))


async def preview(workspace: Workspace, commit: str, *, onto: str) -> tuple[str, ...]:
    """Return the files that would conflict if a checkpoint was merged onto a commit; touch no file and no ref."""
    source = None if workspace.repository is None else await discover(workspace.tree)
    if source is None:
        raise InvalidInput(f"{workspace.tree} is not in a git repository", hint="restore it from a backup")
    with tempfile.TemporaryDirectory(prefix="maos-merge-") as scratch:
        return await _Merge(workspace, source, Path(scratch), "").preview(commit, onto)


class _Merge:
    """One merge, with a private git folder: it runs no merge driver or filter that the repository names."""

    def __init__(
        self,
        workspace: Workspace,
        source: RepositoryFolder,
        scratch: Path,
        prefer: str,
        *,
        branch: str = "",
        dry_run: bool = False,
    ) -> None:
        assert workspace.base is not None
        self.prefer = prefer
        self.branch = branch
        """The branch to merge into, if that is not the one that is checked out."""
        self.dry_run = dry_run
        self.variables: dict[str, str] = {}
        """Whose the commits are, if not those of maos."""
        self.workspace = workspace
        self.base = workspace.base
        self.source = source
        self.scratch = scratch
        self.git = private_git(scratch / "git", source.repository, scratch)
        self.users = source.git
        create_git_folder(scratch / "git", object_format=source.object_format)

    async def run(self, named: str, parts: Sequence[WorkPart]) -> Merged | Conflicted | Blocked:
        """Merge a commit and move the branch, or return what prevents it."""
        commit = await find_commit(self.source.git, named)
        head = await self._head()
        if isinstance(head, Blocked):
            return head
        since = await self._since(head, commit)
        parts = [*parts[:-1], parts[-1]._replace(commit=commit)]
        made = await self._commits(since, head, commit, parts)
        if isinstance(made, Conflicted):
            return made
        name = self.branch or (await self.users.run("symbolic-ref", "-q", "--short", "HEAD", allowed=(0, 1))).line
        remote = await self._remote(name)
        if not made:
            return Merged(head, (), (), name, remote, self.dry_run)
        new = made[-1].commit
        changed = (await self.git.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", head, new)).fields
        files = tuple(decode_path(path) for path in changed)
        done = Merged(new, files, tuple(made), name, remote, self.dry_run)
        if self.dry_run:
            ready = None if self.branch else await self._ready(head, new, changed)
            return ready or done
        # Recorded before the branch moves: a record of a commit that the branch does not contain is ignored.
        noted = await self.source.git.commit_at(refs_of(self.workspace.name) + "merged")
        parents = (new, commit, *([noted] if noted else []))
        arguments = [part for parent in parents for part in ("-p", parent)]
        note = await self.git.line("commit-tree", new + "^{tree}", *arguments, given=b"merged\n")
        await self.source.git.run("update-ref", refs_of(self.workspace.name) + "merged", note)
        crash_point("merge: noted")
        return await (self._move_branch(head, new) if self.branch else self._land(head, new, changed)) or done

    async def _head(self) -> str | Blocked:
        """Return the commit to merge onto, or what prevents that."""
        if self.branch:
            return await self._tip()
        head = await self.source.git.commit_at("HEAD")
        if not head:
            return Blocked("nothing is committed in the repository yet", (), "commit your files, then merge again")
        if trouble := next((name for name in _UNDER_WAY if lexists(self.source.gitdir / name)), ""):
            return Blocked(f"{trouble} is in progress in {self.source.top}", (), "finish or abort it, then merge again")
        return head

    async def _tip(self) -> str | Blocked:
        """Return the tip of the branch; for one that does not exist, the commit that the work began with."""
        ref = f"refs/heads/{self.branch}"
        listed = (await self.users.run("worktree", "list", "--porcelain")).output.decode("utf-8", "replace")
        for entry in listed.split("\n\n"):
            if f"branch {ref}" in entry.splitlines():
                where = entry.partition("\n")[0].removeprefix("worktree ")
                return Blocked(
                    f"the branch {self.branch} is checked out in {where}", (), "merge there, without --branch"
                )
        if tip := await self.source.git.commit_at(ref):
            return tip
        text = (await self.git.run("cat-file", "commit", self.base)).output
        if not text.endswith(b"\n\n" + NOT_COMMITTED):
            return self.base
        if start := await self.source.git.commit_at(f"{self.base}^"):  # the base has changes that are not committed
            return start
        return Blocked("nothing is committed in the repository yet", (), "commit your files, then merge again")

    async def _remote(self, branch: str) -> str:
        """Return the remote that a branch is pushed to, as git chooses it; none for no branch."""
        if not branch:
            return ""
        known = (await self.users.run("remote")).output.decode("utf-8", "replace").split("\n")[:-1]
        for name in (f"branch.{branch}.pushRemote", "remote.pushDefault", f"branch.{branch}.remote"):
            said = (await self.users.run("config", "--get", name, allowed=(0, 1))).line
            if said in known:
                return said
        return "origin" if "origin" in known else known[0] if known else ""

    async def _commits(
        self, since: str, head: str, commit: str, parts: Sequence[WorkPart]
    ) -> list[MergedCommit] | Conflicted:
        """Make the commits: the work up to each part is merged with the branch. A part that alone conflicts with the
        branch, where later parts do not, is committed together with those."""
        new = set((await self.git.run("rev-list", commit, f"^{since}")).output.decode().split())
        left = [part for part in parts if part.commit in new] or list(parts[-1:])
        made: list[MergedCommit] = []
        tip, before, waiting = head, await self.git.line("rev-parse", head + "^{tree}"), list[WorkPart]()
        for number, part in enumerate(left, 1):
            theirs = await self._as_git_would_commit(since, part.commit, self.scratch / str(number))
            tried = await self._try(since, head, theirs)
            if tried.files and self.prefer:
                tried = await self._resolve(tried, theirs if self.prefer == OWN else head)
            waiting.append(part)
            if tried.files and number < len(left):
                continue
            if tried.files:
                return await self._conflicted(tried, since, head, commit)
            if tried.tree != before:
                whole = WorkPart.of(waiting)
                message = whole.message(("Maos-Checkpoint", whole.commit))
                arguments = ("commit-tree", tried.tree, "-p", tip)
                tip = (await self.git.run(*arguments, given=message, variables=self.variables)).line
                listed = await self.git.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", before, tried.tree)
                files = tuple(map(decode_path, listed.fields))
                tasks = tuple(value for key, value in whole.trailers if key == TASK_TRAILER)
                made.append(MergedCommit(tip, message.decode().partition("\n")[0], files, tasks))
            before, waiting = tried.tree, []
        return made

    async def _conflicted(self, tried: _Tried, since: str, head: str, commit: str) -> Conflicted:
        agent_head = (await trailers(self.source.git, commit)).get("Head", self.base)
        text = f"conflict\n\nMaos-Base: {self.base}\nMaos-Head: {agent_head}\n"
        both = await self.git.line("commit-tree", tried.tree, "-p", commit, "-p", head, given=text.encode())
        found = await explain(self.git, tried.files, since=since, ours=head, theirs=commit, tree=tried.tree)
        return Conflicted(tuple(map(decode_path, tried.files)), tried.messages, both, found)

    async def preview(self, named: str, onto: str) -> tuple[str, ...]:
        """Return the files that both sides changed in the same places."""
        commit, head = await find_commit(self.source.git, named), await find_commit(self.source.git, onto)
        since = await self._since(head, commit)
        tried = await self._try(since, head, await self._as_git_would_commit(since, commit, self.scratch / "1"))
        return tuple(map(decode_path, tried.files))

    async def _since(self, head: str, commit: str) -> str:
        """Return the merge base: what was merged last, else the common ancestor, else where the work began."""
        git = self.source.git
        async for landed, merged in merges(git, self.workspace.name):
            if await self._contains(head, landed) and await self._contains(commit, merged):
                return merged
        parted = await git.run("merge-base", head, commit, allowed=(0, 1))
        if parted.status == 0 and await self._contains(parted.line, self.base):
            return parted.line  # the agent may have merged newer work of others
        return self.base

    async def _contains(self, newer: str, older: str) -> bool:
        return (await self.source.git.run("merge-base", "--is-ancestor", older, newer, allowed=(0, 1))).status == 0

    async def _as_git_would_commit(self, since: str, commit: str, scratch: Path) -> str:
        """Return the tree of a checkpoint with line ends and encodings converted as its attributes require.

        `scratch` is a folder that does not exist. A checkpoint has the bytes of the files; a commit in the user's
        branch should look as if git had added it.
        """
        local = await asyncio.to_thread(read_or_empty, self.source.repository / "info" / "attributes")
        before, after = await listing(self.git, since), await listing(self.git, commit)
        known = [path for path in after if path.split(b"/")[-1] == b".gitattributes"]
        changed = [path for path, line in after.items() if line != before.get(path) and line.startswith(b"100")]
        if not changed or not (known or local):
            return await self.git.line("rev-parse", commit + "^{tree}")
        files = scratch / "files"
        await asyncio.to_thread(files.mkdir, parents=True)
        raw = private_git(self.scratch / "git", self.source.repository, files)
        await raw.run("read-tree", commit)
        wanted = b"".join(path + b"\0" for path in {*known, *changed})
        await raw.run("checkout-index", "-z", "--stdin", given=wanted, limit_s=CHECKOUT_LIMIT_S)
        create_git_folder(scratch / "convert", object_format=self.source.object_format, attributes=local)
        converting = private_git(scratch / "convert", self.source.repository, files)
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

    async def _land(self, head: str, new: str, files: list[bytes]) -> Blocked | None:
        """Write the files and move the branch that is checked out, if no change of the user blocks it."""
        if self.source.top is not None:
            if blocked := await self._ready(head, new, files):
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
        return None

    async def _move_branch(self, tip: str, new: str) -> Blocked | None:
        """Create or move a branch that is checked out nowhere."""
        ref = f"refs/heads/{self.branch}"
        before = await self.source.git.commit_at(ref)
        if before not in ("", tip):
            return Blocked(f"the branch {self.branch} was moved meanwhile", (), "merge again")
        try:
            await self.users.run("update-ref", "-m", "maos: merge", ref, new, before or "0" * len(new))
        except GitFailed as error:  # also for a name such as a/b where there is a branch a
            return Blocked(f"the branch could not be moved: {error.result.complaint}", (), "merge again")
        crash_point("merge: branch")
        return None

    async def _ready(self, head: str, new: str, files: list[bytes]) -> Blocked | None:
        """Return what prevents writing files to the user's tree, or None; from then on git runs no filter program."""
        if self.source.top is None:
            return None
        listed = await self.users.run("config", "-z", "--name-only", "--get-regexp", r"^filter\.", allowed=(0, 1))
        drivers = {os.fsdecode(name).split(".", 1)[1].rpartition(".")[0] for name in listed.fields}
        off = {"clean": "", "smudge": "", "process": "", "required": "false"}
        settings = tuple((f"filter.{each}.{key}", value) for each in sorted(drivers) for key, value in off.items())
        variables = {"GIT_DIR": str(self.source.gitdir), "GIT_WORK_TREE": str(self.source.top)}
        self.users = Git(self.source.top, variables, settings)
        return await self._blocked(head, new, files, drivers)

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
