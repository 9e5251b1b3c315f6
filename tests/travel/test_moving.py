"""A run whose folder was moved, or of which another machine has a copy: told so, it goes on with its files (R-203)."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.engine.ownership import Held
from maos.model.branch import digest
from maos.model.plan import Gate, Task
from maos.model.run import Run
from maos.runs.service import check_resumable
from maos.travel import points_in_time
from maos.travel.relocation import Moved
from tests.engine.conftest import processes_below
from tests.runs.commands import until
from tests.travel.conftest import files_of, git, on_disk, order, repository

WHOLE = {"first.txt": "first\n", "one.txt": "one\n", "two.txt": "half\nwhole\n"}


class Project:
    """A repository whose run was cut off in the middle of its second task, and the database beside it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.old = repository(root)
        self.new = root / "moved" / "shop"

    def open(self) -> maos.open:
        return maos.open(self.root / "maos.db", home=self.home)

    def tasks(self) -> list[Task]:
        """One that is done at once, and one that waits for a sign when it begins; its work is checked."""
        waits = f"until [ -e {self.root}/go ]; do sleep 0.02; done"
        half = f"test -e two.txt || {{ echo half > two.txt; touch {self.root}/begun; {waits}; }}; echo whole >> two.txt"
        gate = Gate(command=["sh", "-c", "grep -q whole two.txt && test -e one.txt"])
        return [
            Task(name="one", command=["sh", "-c", "echo one > one.txt"]),
            Task(name="two", command=["sh", "-c", half], needs=["one"], gates=[gate]),
        ]

    async def cut_off(self, m: Maos) -> Run:
        """Carry the run out until its second agent has begun, save its files, and let go of it."""
        run = await order(m, self.old, self.tasks(), id="r-1")
        carrying = asyncio.create_task(m.runs.execute(run.id))

        async def begun() -> bool:
            return (self.root / "begun").exists()

        await until(begun)
        await m.travel.checkpoint(run.id, "half")

        async def saved() -> bool:
            return "half" in {each.name for each in (await m.agents.get("r-1.two")).checkpoints}

        await until(saved)
        carrying.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await carrying
        return await m.runs.get(run.id)

    def end_agents(self) -> None:
        for pid in processes_below(self.root):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def move(self) -> Path:
        self.new.parent.mkdir()
        self.old.rename(self.new)
        return self.new


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    yield made
    made.end_agents()


async def test_a_moved_repository_is_found_again_and_the_run_ends_as_it_would_have(project: Project) -> None:
    """R-203: the interrupted agent goes on in its own worktree, with what it had not saved; nothing is done twice."""
    async with project.open() as m:
        run = await project.cut_off(m)
    project.end_agents()
    tree = project.home / "workspaces" / "r-1.two"
    (tree / "unsaved.txt").write_text("not saved yet\n")
    new = project.move()
    async with project.open() as m:
        with pytest.raises(maos.NotFound, match="is missing") as refused:
            check_resumable(run)
        assert "maos resume r-1 --cwd NEW" in str(refused.value.hint)
        foreseen = await m.runs.move("r-1", new, dry_run=True)
        assert (await m.runs.get("r-1")).folder == str(project.old)
        moved = await m.runs.move("r-1", new)
        assert moved == foreseen
        assert moved == Moved("r-1", str(project.old), str(new), str(new / ".git"), ["r-1", "r-1.two"], [], True)
        assert (tree / "unsaved.txt").read_text() == "not saved yet\n"
        run = await m.runs.get("r-1")
        check_resumable(run)
        assert (run.folder, run.options["workspace"]["repository"]) == (str(new), str(new / ".git"))
        two = await m.agents.get("r-1.two")
        assert two.workspace["gitdir"] == str(new / ".git" / "worktrees" / "r-1.two")
        assert (two.order["cwd"], two.moved_from) == (str(tree), ""), "its own folder was not moved"
        version = run.version
        assert not (await m.runs.move("r-1", new)).changed
        assert (await m.runs.get("r-1")).version == version, "told once"
        (project.root / "go").touch()
        run = await m.runs.execute("r-1")
        assert (run.status, run.tasks["one"].attempts) == ("completed", 1), run.why
        assert files_of(new, run.commit) == {**WHOLE, "unsaved.txt": "not saved yet\n"}
        assert (await m.verify()).ok
    assert git(new, "fsck", "--no-dangling") == ""
    listed = git(new, "worktree", "list", "--porcelain")
    assert str(project.old) not in listed.replace(str(new), "")
    assert "prunable" not in listed


async def test_an_agent_that_works_on_while_the_folder_is_moved_is_taken_up(project: Project) -> None:
    """I33: it is not begun a second time, and what it does is saved in the repository where that is now."""
    async with project.open() as m:
        await project.cut_off(m)
    new = project.move()
    async with project.open() as m:
        await m.runs.move("r-1", new)
        two = await m.agents.get("r-1.two")
        assert two.is_open
        (project.root / "go").touch()
        run = await m.runs.execute("r-1")
        assert (run.status, run.tasks["two"].attempts) == ("completed", 1), run.why
        assert files_of(new, run.commit) == WHOLE


async def test_everything_can_be_moved_the_folders_of_agents_too(tmp_path: Path, project: Project) -> None:
    """A folder with the repository, the database and MAOS_HOME in it gets another name."""
    async with project.open() as m:
        await project.cut_off(m)
    project.end_agents()
    inside = tmp_path / "renamed"
    inside.mkdir()
    for name in ("repository", "home", "maos.db", "maos.db-head", "begun"):
        (tmp_path / name).rename(inside / name)
    async with maos.open(inside / "maos.db", home=inside / "home") as m:
        moved = await m.runs.move("r-1", inside / "repository")
        assert list(moved.found) == ["r-1", "r-1.two"]
        run = await m.runs.get("r-1")
        assert run.options["workspace"]["tree"] == str(inside / "home" / "workspaces" / "r-1")
        two = await m.agents.get("r-1.two")
        tree = str(inside / "home" / "workspaces" / "r-1.two")
        assert (two.order["cwd"], two.order["home"]) == (tree, str(inside / "home" / "homes" / "r-1.two"))
        assert two.moved_from == str(tmp_path / "home" / "workspaces" / "r-1.two"), "and it will be told so"
        (tmp_path / "go").touch()
        run = await m.runs.execute("r-1")
        assert run.status == "completed", run.why
        assert files_of(inside / "repository", run.commit) == WHOLE


async def test_worktrees_that_are_gone_are_made_anew_from_what_was_saved(project: Project) -> None:
    async with project.open() as m:
        await project.cut_off(m)
    project.end_agents()
    shutil.rmtree(project.home)
    async with project.open() as m:
        moved = await m.runs.move("r-1", project.old)
        assert list(moved.anew) == ["r-1", "r-1.two"]
        assert on_disk(project.home / "workspaces" / "r-1.two") == {
            "first.txt": "first\n", "one.txt": "one\n", "two.txt": "half\n",
        }  # fmt: skip
        (project.root / "go").touch()
        run = await m.runs.execute("r-1")
        assert run.status == "completed", run.why
        assert files_of(project.old, run.commit) == WHOLE


async def test_a_way_back_leads_to_the_moved_files_and_a_fork_begins_there(project: Project) -> None:
    """R-703, I13: where files are does not go back in time, and is no part of the checksum of a checkpoint."""
    async with project.open() as m:
        await project.cut_off(m)
    project.end_agents()
    new = project.move()
    async with project.open() as m:
        with pytest.raises(maos.NotFound, match="is missing"):
            await m.travel.rollback("r-1", "half")
        await m.runs.move("r-1", new)
        (project.root / "go").touch()
        run = await m.runs.execute("r-1")
        recorded = run.checkpoints[0].state
        journey = await m.travel.fork("r-1", "half", into="r-2")
        await m.travel.rollback("r-1", "half")
        for id in ("r-1", "r-2"):
            run = await m.runs.get(id)
            assert (run.folder, digest(run), journey.digest) == (str(new), recorded, recorded)
            tree = Path((await m.agents.get(run.agent("two"))).order["cwd"])
            assert on_disk(tree)["two.txt"] == "half\n"
            run = await m.runs.execute(id)
            assert (run.status, files_of(new, run.commit)) == ("completed", WHOLE), run.why
        found = await m.travel.diff("r-1", "half")
        assert [each.path for each in found.files or ()] == ["two.txt"]


async def test_agents_that_work_in_place_go_on_in_the_new_folder(tmp_path: Path, m: Maos) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    plan: dict[str, Any] = {"tasks": [{"name": "w", "command": ["sh", "-c", "pwd; test -e go"]}]}
    await m.runs.create(plan, folder=old, options={"in_place": True, "kind": "shell"}, id="r-1")
    assert (await m.runs.execute("r-1")).status == "failed"
    old.rename(new)
    (new / "go").touch()
    moved = await m.runs.move("r-1", new)
    assert (moved.repository, list(moved.found)) == ("", [])
    run = await m.runs.execute("r-1")
    assert (run.status, run.tasks["w"].result) == ("completed", str(new))
    await m.travel.rollback("r-1", 3, without_files=True)
    assert (await m.runs.execute("r-1")).tasks["w"].result == str(new), "also from before it was moved"


async def test_what_cannot_work_is_refused_and_nothing_is_changed(project: Project, tmp_path: Path) -> None:
    async with project.open() as m:
        run = await project.cut_off(m)
    async with project.open() as m:
        plain, other, clone = tmp_path / "plain", repository(tmp_path / "other"), tmp_path / "clone"
        (plain / "sub").mkdir(parents=True)
        git(tmp_path, "clone", "-q", "--no-local", str(project.old), str(clone))
        (project.old / "sub").mkdir()
        for folder, words in (
            (plain, "is not in a git repository"),
            (other, "has not the commits of r-1"),
            (clone, "has not the commits of r-1"),
            (project.old / "sub", "works in the root of its repository"),
            (tmp_path / "nowhere", "is not a folder"),
        ):
            with pytest.raises(maos.InvalidInput, match=words) as refused:
                await m.runs.move("r-1", folder)
            assert refused.value.hint
        assert (await m.runs.get("r-1")).version == run.version
        git(clone, "fetch", "-q", str(project.old), "refs/maos/*:refs/maos/*")
        moved = await m.runs.move("r-1", clone)
        assert list(moved.found) == ["r-1", "r-1.two"], "a clone with what agents have saved will do"
        (project.root / "go").touch()
        run = await m.runs.execute("r-1")
        assert (run.status, files_of(clone, run.commit)) == ("completed", WHOLE), run.why


async def test_a_copy_keeps_what_agents_have_saved_whatever_git_clears_away(project: Project, tmp_path: Path) -> None:
    """A clone on the same disk has every object of the other, and names for none of them but those of branches."""
    async with project.open() as m:
        await project.cut_off(m)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(project.old), str(clone))
    async with project.open() as m:
        await m.runs.move("r-1", clone)
        git(clone, "reflog", "expire", "--expire=now", "--all")
        git(clone, "gc", "-q", "--prune=now")
        (project.root / "go").touch()
        run = await m.runs.execute("r-1")
        assert (run.status, files_of(clone, run.commit)) == ("completed", WHOLE), run.why


async def test_a_run_that_somebody_carries_out_is_not_moved(project: Project) -> None:
    """I5."""
    async with project.open() as m:
        run = await order(m, project.old, project.tasks(), id="r-1")
        carrying = asyncio.create_task(m.runs.execute(run.id))

        async def begun() -> bool:
            return (project.root / "begun").exists()

        await until(begun)
        async with project.open() as other:
            with pytest.raises(Held, match="is run by process"):
                await other.runs.move("r-1", project.old)
        carrying.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await carrying


async def test_a_run_that_was_moved_travels_in_a_bundle(project: Project, tmp_path: Path) -> None:
    """What a machine says of its folders is not said on another; and it can come back."""
    async with project.open() as m:
        await project.cut_off(m)
    project.end_agents()
    new = project.move()
    async with project.open() as m:
        await m.runs.move("r-1", new)
        await m.transfer.export("r-1", tmp_path / "r-1.maos")
    house = tmp_path / "house"
    git(tmp_path, "clone", "-q", str(new), str(house))
    async with maos.open(tmp_path / "there.db", home=tmp_path / "there") as m:
        await m.transfer.import_(tmp_path / "r-1.maos", folder=house)
        two = await m.agents.get("r-1.two")
        assert (await m.runs.get("r-1")).folder == str(house)
        assert two.order["cwd"] == str(tmp_path / "there" / "workspaces" / "r-1.two")
        assert str(new) not in json.dumps([two.workspace, (await m.runs.get("r-1")).options])
        second = tmp_path / "second"
        house.rename(second)
        await m.runs.move("r-1", second)
        assert not (tmp_path / "there" / "workspaces").exists(), "nothing is laid out before somebody agrees"
        (project.root / "go").touch()
        run = await m.runs.execute("r-1", options=await m.runs.agree("r-1"))
        assert (run.status, files_of(second, run.commit)) == ("completed", WHOLE), run.why
        assert (await points_in_time.named(m.journal, run, "half")).name == "half"
        assert (await m.travel.at("r-1", "half")).done == 1, "the checksum of a checkpoint holds on every machine"
        await m.transfer.export("r-1", tmp_path / "back.maos")
    async with project.open() as m:
        assert (await m.transfer.import_(tmp_path / "back.maos", folder=new)).what == "more"
        run = await m.runs.get("r-1")
        assert (run.status, run.folder) == ("completed", str(new))
