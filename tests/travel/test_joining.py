"""Two runs that come from one are compared, and brought together again: tasks, answers and files."""

from pathlib import Path

import pytest

import maos
from maos.app import Maos
from maos.clock import SystemClock
from maos.engine import questions
from maos.model.branch import digest
from maos.model.plan import Plan, Task
from maos.model.run import Run
from maos.travel import points_in_time
from maos.travel.service import TimeTravel
from tests.travel.conftest import files_of, on_disk, order, repository, says

A = {"a.txt": "a\n", "first.txt": "first\n"}


@pytest.fixture
def joining(m: Maos) -> TimeTravel:
    return TimeTravel(m.journal, SystemClock(), m.runs, m.agents)


def same(folder: Path) -> Task:
    """A task that comes to something else each time: to what a file outside says."""
    word = folder / "word"
    return Task(name="b", command=["sh", "-c", f"cp {word} b.txt; cat {word}"])


async def parted(m: Maos, travel: TimeTravel, folder: Path) -> tuple[Run, Run]:
    """A run that has done one task, and a fork of it."""
    run = await order(m, repository(folder), [Task(name="a", command=says("a"))])
    run = await m.runs.execute(run.id)
    await travel.fork(run.id, await points_in_time.find(m.journal, run, None), into="r-fork")
    return run, await m.runs.get("r-fork")


async def more(m: Maos, run: Run, *tasks: Task) -> Run:
    """Have a run do some more."""
    await m.runs.add(run.id, Plan(tasks=list(tasks)))
    return await m.runs.execute(run.id)


async def test_what_only_one_side_did_is_taken_and_the_files_are_merged(
    tmp_path: Path, m: Maos, travel: TimeTravel, joining: TimeTravel
) -> None:
    """R-702: the other run is only read, and the join can be undone."""
    place = repository(tmp_path)
    ours, theirs = await parted(m, travel, tmp_path)
    ours = await more(m, ours, Task(name="b", command=says("b")))
    theirs = await more(m, theirs, Task(name="c", command=says("c")))
    await m.runs.add(theirs.id, Plan(tasks=[Task(name="d", command=says("d"), needs=["c"])]))
    theirs = await m.runs.get(theirs.id)
    before, left = digest(ours), digest(theirs)
    previewed = await joining.join(ours.id, theirs.id, dry_run=True)
    done = await joining.join(ours.id, theirs.id)
    assert previewed._replace(before=0) == done._replace(before=0, commit="")
    assert (list(done.added), list(done.taken), list(done.conflicts)) == (["c", "d"], [], [])
    assert done.base.run == ours.id
    ours = await m.runs.get(ours.id)
    assert {name: task.status for name, task in ours.tasks.items()} == {
        "a": "done", "b": "done", "c": "done", "d": "waiting",
    }  # fmt: skip
    assert ours.status == "paused"
    assert files_of(place, ours.commit) == {**A, "b.txt": "b\n", "c.txt": "c\n"}
    assert on_disk(Path(ours.options["workspace"]["tree"])) == files_of(place, ours.commit)
    assert ours.agent("c") == f"{theirs.id}.c", "whoever did it"
    again = await joining.join(ours.id, theirs.id)
    assert (again.commit, (await m.runs.get(ours.id)).version) == (ours.commit, ours.version), "once"
    ours = await m.runs.execute(ours.id)
    assert ours.status == "completed"
    assert files_of(place, ours.commit)["d.txt"] == "d\n"
    assert digest(await m.runs.get(theirs.id)) == left
    await travel.rollback(ours.id, await points_in_time.at_position(m.journal, ours, done.before))
    assert digest(await m.runs.get(ours.id)) == before


@pytest.mark.parametrize(("policy", "word"), [("ours", "one"), ("theirs", "two"), ("newest", "two")])
async def test_where_both_came_to_something_else_a_policy_decides(
    tmp_path: Path, m: Maos, travel: TimeTravel, joining: TimeTravel, policy: str, word: str
) -> None:
    """R-702: results and files alike."""
    ours, theirs = await parted(m, travel, tmp_path)
    (tmp_path / "word").write_text("one\n")
    ours = await more(m, ours, same(tmp_path))
    (tmp_path / "word").write_text("two\n")
    theirs = await more(m, theirs, same(tmp_path), Task(name="c", command=says("c")))
    done = await joining.join(ours.id, theirs.id, policy=policy)
    assert [each.id for each in done.conflicts] == ["task/b", "files"]
    assert done.conflicts[1].files == ("b.txt",)
    assert (done.open, set(done.chosen)) == ([], {"task/b", "files"})
    ours = await m.runs.get(ours.id)
    assert (ours.status, ours.tasks["b"].result) == ("completed", word)
    assert files_of(repository(tmp_path), ours.commit) == {**A, "b.txt": f"{word}\n", "c.txt": "c\n"}


async def test_without_a_policy_a_person_is_asked_and_nothing_is_joined_before(
    tmp_path: Path, m: Maos, travel: TimeTravel, joining: TimeTravel
) -> None:
    """Conflicts are listed, and settled one by one by answers like those to any run, also of one that is over."""
    ours, theirs = await parted(m, travel, tmp_path)
    (tmp_path / "word").write_text("one\n")
    ours = await more(m, ours, same(tmp_path))
    (tmp_path / "word").write_text("two\n")
    theirs = await more(m, theirs, same(tmp_path))
    before = digest(ours)
    done = await joining.join(ours.id, theirs.id)
    assert [each.id for each in done.open] == ["task/b", "files"]
    for _ in range(2):
        asked = (await joining.join(ours.id, theirs.id)).asked
        assert [each.choices for each in asked] == [("ours", "theirs")] * 2
    ours = await m.runs.get(ours.id)
    assert digest(ours) == before
    await questions.answer(m.journal, SystemClock(), ours, asked[0].id, "theirs")
    assert [each.id for each in (await joining.join(ours.id, theirs.id)).open] == ["files"]
    await questions.answer(m.journal, SystemClock(), ours, asked[1].id, "ours")
    done = await joining.join(ours.id, theirs.id)
    assert done.open == []
    ours = await m.runs.get(ours.id)
    assert ours.tasks["b"].result == "two"
    assert files_of(repository(tmp_path), ours.commit)["b.txt"] == "one\n"
    assert questions.of_run(ours, await questions.pending_of(m.journal, ours)) == []


async def test_two_forks_of_one_run_are_joined_from_where_they_parted(
    tmp_path: Path, m: Maos, travel: TimeTravel, joining: TimeTravel
) -> None:
    run, one = await parted(m, travel, tmp_path)
    await travel.fork(run.id, await points_in_time.find(m.journal, run, None), into="r-other")
    one = await more(m, one, Task(name="b", command=says("b")))
    other = await more(m, await m.runs.get("r-other"), Task(name="c", command=says("c")))
    done = await joining.join(one.id, other.id)
    assert done.base == (run.id, run.version)
    one = await m.runs.get(one.id)
    assert files_of(repository(tmp_path), one.commit) == {**A, "b.txt": "b\n", "c.txt": "c\n"}


async def test_what_was_taken_back_is_not_what_two_runs_have_in_common(
    tmp_path: Path, m: Maos, travel: TimeTravel, joining: TimeTravel
) -> None:
    """They parted where the one went back to, not where the other left it."""
    run, _fork = await parted(m, travel, tmp_path)
    then = run.version
    run = await more(m, run, Task(name="b", command=says("b")))
    await travel.fork(run.id, await points_in_time.find(m.journal, run, None), into="r-late")
    await travel.rollback(run.id, await points_in_time.at_version(m.journal, run, then))
    previewed = await joining.join(run.id, "r-late", dry_run=True)
    assert previewed.base == (run.id, then)
    assert list(previewed.added) == ["b"]


async def test_runs_that_have_nothing_in_common_are_not_joined(
    tmp_path: Path, m: Maos, travel: TimeTravel, joining: TimeTravel
) -> None:
    run, _fork = await parted(m, travel, tmp_path)
    other = await order(m, repository(tmp_path), [Task(name="a", command=says("a"))], id="r-stranger")
    with pytest.raises(maos.InvalidInput, match="nothing in common"):
        await joining.join(run.id, other.id)
    with pytest.raises(maos.InvalidInput, match="with itself"):
        await joining.join(run.id, run.id)


async def test_two_moments_and_two_runs_are_compared(tmp_path: Path, m: Maos, travel: TimeTravel) -> None:
    """Tasks, messages and files; what was said in a branch that was given up is not what was said."""
    run, fork = await parted(m, travel, tmp_path)
    first = await points_in_time.at_version(m.journal, run, 2)
    last = await points_in_time.find(m.journal, run, None)
    found = await points_in_time.compare(
        await points_in_time.side(m.journal, first),
        await points_in_time.side(m.journal, last),
        m.agents.folder,
        patch=True,
    )
    assert [(each.name, each.before, each.after) for each in found.tasks] == [("a", "waiting", "done")]
    assert [(each.path, each.kind) for each in found.files or ()] == [("a.txt", "added")]
    assert "+a\n" in found.patch
    await m.bus.send("person", run.agent("a"), "before", run=run.id)
    await travel.rollback(run.id, first)
    await m.bus.send("person", run.agent("a"), "after", run=run.id)
    await m.bus.send("person", fork.agent("a"), "elsewhere", run=fork.id)
    run = await m.runs.get(run.id)
    sides = [
        await points_in_time.side(m.journal, await points_in_time.find(m.journal, each, None)) for each in (run, fork)
    ]
    found = await points_in_time.compare(*sides, m.agents.folder)
    assert [[each.text for each in side] for side in found.messages] == [["after"], ["elsewhere"]]
    assert [(each.name, each.before, each.after) for each in found.tasks] == [("a", "waiting", "done")]
    nothing = await points_in_time.compare(sides[0], sides[0], m.agents.folder)
    assert not any((nothing.tasks, nothing.questions, *nothing.messages, nothing.files))
