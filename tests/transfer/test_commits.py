"""The commits of a run: all that they need and nothing else, checked like anything that git fetches."""

import hashlib
import os
import struct
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

import maos
from maos.app import Maos
from maos.transfer.bundle_import import MORE, NEW, SAME
from maos.workspaces import Workspace, checkpoint, commits, prepare
from tests.transfer import runs
from tests.transfer.runs import ID, Parts, bring, exported
from tests.workspaces.repositories import QUIET, commit, git, repository, write

ONE = "r-1.one"


async def saved(m: Maos, repo: Path, *labels: str) -> Workspace:
    """A run with an agent that has a worktree, and has saved its files."""
    workspace = await prepare(repo, ONE, root=m.agents.folder / "workspaces")
    commits_ = []
    for label in labels or ("first",):
        write(workspace.tree / "one.txt", f"{label}\n")
        made = await checkpoint(workspace, label)
        assert made is not None
        commits_.append(made.commit)
    streams = runs.told()
    attempt = streams[f"attempt/{ONE}.1"]
    attempt[0].data["workspace"] = workspace.to_data()  # type: ignore[index]
    attempt[4].data["commit"] = commits_[-1]  # type: ignore[index]
    own = await prepare(repo, ID, root=m.agents.folder / "workspaces")
    streams["run/r-1"][0].data["options"] |= {"in_place": False, "workspace": own.to_data()}
    await runs.write(m, streams)
    return workspace


def refs(repo: Path) -> dict[str, str]:
    """Everything that has a name in a repository."""
    lines = git(repo, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return dict(line.split() for line in lines)  # type: ignore[misc]


def objects(repo: Path) -> set[str]:
    """Everything that is in a repository."""
    return set(git(repo, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").splitlines())


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """Two commits, and another branch that is nobody's business."""
    made = repository(tmp_path / "origin", {"readme.txt": "hello\n"})
    write(made / "two.txt", "2\n")
    commit(made, "second")
    git(made, "checkout", "-q", "-b", "private")
    write(made / "diary.txt", "not for you\n")
    commit(made, "private")
    git(made, "checkout", "-q", "main")
    return made


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A repository that has nothing yet."""
    return repository(tmp_path / "other")


async def test_what_agents_saved_arrives_with_all_that_it_needs(
    here: Maos, there: Maos, origin: Path, other: Path
) -> None:
    """Into a repository without a single commit; and nothing of other branches."""
    await saved(here, origin, "first", "second")
    bundle, made = await runs.export(here)
    assert set(made.manifest.refs) == {f"refs/maos/{ONE}/1", f"refs/maos/{ONE}/2", f"refs/maos/{ONE}/base",
                                       "refs/maos/r-1/bundle"}  # fmt: skip
    brought = await bring(there, bundle, other)
    assert (brought.what, brought.refs) == (NEW, 4)
    assert refs(other) == made.manifest.refs
    assert git(other, "show", f"refs/maos/{ONE}/2:one.txt") == "second"
    assert git(other, "log", "--format=%s", f"refs/maos/{ONE}/base") == "second\nfirst"
    assert git(other, "fsck", "--strict") == ""
    secret = git(origin, "rev-parse", "private:diary.txt")
    assert secret in objects(origin)
    assert secret not in objects(other)
    assert os.listdir(other / ".git" / "objects" / "pack") != []
    assert [name for name in os.listdir(other / ".git" / "objects") if name.startswith("tmp_")] == []
    assert (await bring(there, bundle, other)).what == SAME


async def test_plain_git_can_read_the_commits_too(here: Maos, origin: Path, other: Path, tmp_path: Path) -> None:
    await saved(here, origin)
    (tmp_path / "commits.bundle").write_bytes(Parts(await exported(here)).git)
    git(other, "fetch", "-q", str(tmp_path / "commits.bundle"), "refs/maos/*:refs/kept/*")
    assert git(other, "show", f"refs/kept/{ONE}/1:one.txt") == "first"


async def test_the_users_own_things_stay_as_they_are(here: Maos, there: Maos, origin: Path, tmp_path: Path) -> None:
    """Branches, index, HEAD, configuration and hooks: nothing of them travels, nothing of them is touched or run."""
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(origin), str(clone))
    write(clone / "readme.txt", "changed and not committed\n")
    for hook in ("post-checkout", "reference-transaction", "post-receive", "pre-receive", "update"):
        write(clone / ".git" / "hooks" / hook, f"#!/bin/sh\ntouch {tmp_path}/hooked\n").chmod(0o755)
    before, status = refs(clone), git(clone, "status", "--porcelain")
    config = (clone / ".git" / "config").read_bytes()
    await saved(here, origin)
    await bring(there, await exported(here), clone)
    after = refs(clone)
    assert {ref: after[ref] for ref in before} == before
    assert all(ref.startswith("refs/maos/r-1") for ref in set(after) - set(before))
    assert git(clone, "status", "--porcelain") == status
    assert (clone / ".git" / "config").read_bytes() == config
    assert not (tmp_path / "hooked").exists()


async def test_later_commits_follow(here: Maos, there: Maos, origin: Path, other: Path) -> None:
    workspace = await saved(here, origin)
    await bring(there, await exported(here), other)
    write(workspace.tree / "one.txt", "later\n")
    made = await checkpoint(workspace, "later")
    assert made is not None
    await here.runs.pause(ID)
    brought = await bring(there, await exported(here), other)
    assert (brought.what, brought.refs) == (MORE, 1)
    assert git(other, "show", f"{made.commit}:one.txt") == "later"


async def test_without_files_nothing_of_the_repository_is_in_it(here: Maos, origin: Path) -> None:
    await saved(here, origin)
    bundle, made = await runs.export(here, files=False)
    assert (made.manifest.refs, made.manifest.left_out) == ({}, ["the commits of its files, as asked"])
    assert Parts(bundle).git == b""


async def test_a_repository_that_is_gone_is_said(here: Maos, origin: Path) -> None:
    await saved(here, origin)
    origin.rename(origin.with_name("moved"))
    with pytest.raises(maos.NotFound, match="--without-files"):
        await exported(here)
    assert await exported(here, files=False)


async def test_a_repository_without_its_whole_history_is_said(here: Maos, origin: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth=1", origin.as_uri(), str(tmp_path / "shallow"))
    await saved(here, tmp_path / "shallow")
    with pytest.raises(maos.InvalidInput, match="--unshallow"):
        await exported(here)


# --- where it does not fit -------------------------------------------------------------------------------------------


async def test_commits_need_a_repository(here: Maos, there: Maos, origin: Path, folder: Path) -> None:
    await saved(here, origin)
    for how in ({}, {"files": False}):
        with pytest.raises(maos.InvalidInput, match=r"is not in a git repository.*--cwd REPOSITORY"):
            await bring(there, await exported(here, **how), folder)
    assert await there.journal.head() == 0


async def test_a_repository_that_names_its_objects_otherwise_is_refused(
    here: Maos, there: Maos, origin: Path, tmp_path: Path
) -> None:
    await saved(here, origin)
    sha256 = repository(tmp_path / "sha256", {}, "--object-format=sha256")
    with pytest.raises(maos.InvalidInput, match="names its objects by sha256"):
        await bring(there, await exported(here), sha256)


async def test_commits_of_a_repository_with_longer_names_travel_too(here: Maos, there: Maos, tmp_path: Path) -> None:
    origin = repository(tmp_path / "sha256", {"a.txt": "a\n"}, "--object-format=sha256")
    other = repository(tmp_path / "other256", {}, "--object-format=sha256")
    await saved(here, origin)
    assert (await bring(there, await exported(here), other)).refs == 3


async def test_two_copies_of_a_run_do_not_share_a_repository(here: Maos, there: Maos, origin: Path) -> None:
    """They would save their files under the same names."""
    await saved(here, origin)
    with pytest.raises(maos.InvalidInput, match=r"worktrees/r-1 is there already.*--cwd CLONE"):
        await bring(there, await exported(here), origin)


async def test_commits_of_the_same_name_are_not_replaced(here: Maos, there: Maos, origin: Path, tmp_path: Path) -> None:
    await saved(here, origin)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(origin), str(clone))
    git(clone, "update-ref", f"refs/maos/{ONE}/1", "HEAD")
    with pytest.raises(maos.InvalidInput, match=f"has another commit as refs/maos/{ONE}/1"):
        await bring(there, await exported(here), clone)
    assert refs(clone)[f"refs/maos/{ONE}/1"] == git(clone, "rev-parse", "HEAD")
    assert await there.journal.head() == 0


# --- bad packs -------------------------------------------------------------------------------------------------------


def packed(*made: tuple[int, bytes]) -> bytes:
    """A pack of objects, each with its kind (1 commit, 2 tree, 3 blob)."""
    body = b"PACK" + struct.pack(">II", 2, len(made))
    for kind, content in made:
        size, first = len(content), True
        while first or size:
            byte = (kind << 4 | size & 15) if first else size & 127
            size >>= 4 if first else 7
            body += bytes([byte | (128 if size else 0)])
            first = False
        body += zlib.compress(content)
    return body + hashlib.sha1(body).digest()


def named(kind: str, content: bytes) -> str:
    return hashlib.sha1(f"{kind} {len(content)}\0".encode() + content).hexdigest()


def evil(name: bytes, mode: bytes = b"100644", content: bytes = b"evil\n") -> tuple[str, bytes]:
    """A commit with one file of some name, and its pack."""
    tree = mode + b" " + name + b"\0" + bytes.fromhex(named("blob", content))
    told = f"tree {named('tree', tree)}\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\nx\n".encode()
    return named("commit", told), packed((3, content), (2, tree), (1, told))


def lone_commit() -> tuple[str, bytes]:
    """A commit whose files are missing."""
    told = f"tree {'1' * 40}\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\nx\n".encode()
    return named("commit", told), packed((1, told))


def no_commit() -> tuple[str, bytes]:
    return named("blob", b"x"), packed((3, b"x"))


def bad_commit() -> tuple[str, bytes]:
    told = f"tree {named('tree', b'')}\nauthor \ncommitter a <a@b> 1 +0000\n\nx\n".encode()
    return named("commit", told), packed((2, b""), (1, told))


SOUND = evil(b"file.txt")
PACKS: dict[str, Callable[[], tuple[str, bytes]]] = {
    "a file that is a repository": lambda: evil(b".git"),
    "the same in other letters": lambda: evil(b".GIT"),
    "a way out": lambda: evil(b".."),
    "an absolute path": lambda: evil(b"a/b"),
    "modules that run something": lambda: evil(
        b".gitmodules", content=b'[submodule "x"]\n\tpath = x\n\turl = -uevil\n'
    ),
    "modules that are a link": lambda: evil(b".gitmodules", b"120000"),
    "files that are missing": lone_commit,
    "no commit": no_commit,
    "a commit without an author": bad_commit,
    "no pack": lambda: (SOUND[0], b"no pack at all"),
    "half a pack": lambda: (SOUND[0], SOUND[1][:-25]),
    "a pack of too many": lambda: (SOUND[0], SOUND[1][:8] + struct.pack(">I", 1 << 30) + SOUND[1][12:]),
    "another commit": lambda: ("1" * 40, SOUND[1]),
    "more behind it": lambda: (SOUND[0], SOUND[1] + b"more"),
}


async def bundle_of(here: Maos, origin: Path, pack: bytes, tip: str) -> bytes:
    """A bundle whose commits are some pack."""
    await saved(here, origin)
    parts = Parts(await exported(here))
    parts.manifest["refs"] = {f"refs/maos/{ONE}/1": tip}
    parts.git = commits.head(parts.manifest["refs"], "sha1") + pack
    return parts.bytes()


@pytest.mark.parametrize("what", PACKS)
async def test_a_bad_pack_is_refused_and_leaves_nothing(
    here: Maos, there: Maos, origin: Path, other: Path, what: str
) -> None:
    tip, pack = PACKS[what]()
    bundle = await bundle_of(here, origin, pack, tip)
    before = sorted(each for each in (other / ".git").rglob("*"))
    with pytest.raises(maos.MaosError):
        await bring(there, bundle, other)
    assert sorted(each for each in (other / ".git").rglob("*")) == before
    assert await there.journal.head() == 0


async def test_a_sound_pack_of_the_same_kind_is_taken(here: Maos, there: Maos, origin: Path, other: Path) -> None:
    """So what is refused above is refused for what is wrong with it."""
    bundle = await bundle_of(here, origin, SOUND[1], SOUND[0])
    assert (await bring(there, bundle, other)).refs == 1
    assert git(other, "show", f"refs/maos/{ONE}/1:file.txt") == "evil"


async def test_the_names_of_the_commits_are_those_of_the_bundle(
    here: Maos, there: Maos, origin: Path, other: Path
) -> None:
    """Git's own list of names in front of the pack is not believed."""
    await saved(here, origin)
    parts = Parts(await exported(here))
    parts.git = parts.git.replace(f"refs/maos/{ONE}/1".encode(), f"refs/maos/{ONE}/7".encode())
    with pytest.raises(maos.Corrupt, match="not those that it names"):
        await bring(there, parts.bytes(), other)
    parts = Parts(await exported(here))
    parts.git = b""
    with pytest.raises(maos.Corrupt, match="names without commits"):
        await bring(there, parts.bytes(), other)
    assert refs(other) == {}


async def test_an_object_that_is_huge_takes_no_memory(
    here: Maos, there: Maos, origin: Path, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few kilobytes that unpack to more than git may take at once."""
    monkeypatch.setattr(commits, "ALLOC_BYTES_MAX", 4 << 20)
    tip, _pack = evil(b"x")
    huge = packed((2, bytes(16 << 20)), (1, b"x"))
    assert len(huge) < 50_000
    bundle = await bundle_of(here, origin, huge, tip)
    with pytest.raises(maos.Corrupt, match=r"not valid: .* over limit"):
        await bring(there, bundle, other)


def test_the_git_that_is_here_agrees_about_what_is_evil(tmp_path: Path) -> None:
    """The packs above are whole packs: git reads them as long as it need not look into them."""
    for name in ("a file that is a repository", "a way out", "modules that run something"):
        _tip, pack = PACKS[name]()
        folder = repository(tmp_path / name.replace(" ", "-"))
        done = subprocess.run(["git", "index-pack", "--stdin"], cwd=folder, env=QUIET, input=pack, capture_output=True)
        assert done.returncode == 0, done.stderr
