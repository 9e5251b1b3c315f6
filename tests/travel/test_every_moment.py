"""A run is taken to every moment of its past: what it had come to, and its files, are what they were then."""

from pathlib import Path

from maos.app import Maos
from maos.model.branch import digest
from maos.model.plan import Gate, Plan, Task
from maos.model.run import Run
from maos.travel import points_in_time
from maos.travel.service import TimeTravel
from tests.engine.conftest import processes_below
from tests.travel.conftest import Recorded, files_of, git, on_disk, order, repository, says

WHOLE = {f"{name}.txt": f"{name}\n" for name in "abcd"} | {"all": "a\nb\nc\nd\nfirst\n", "first.txt": "first\n"}


def tasks(folder: Path) -> list[Task]:
    """Two at once, one that fails the first time, and one with a gate."""
    once = f"test -e {folder}/once || {{ touch {folder}/once; exit 1; }}"
    return [
        Task(name="a", command=says("a")),
        Task(name="b", command=says("b"), needs=["a"]),
        Task(name="c", command=says("c", once), needs=["a"]),
        Task(
            name="d",
            command=says("d", "cat *.txt > all"),
            needs=["b", "c"],
            gates=[Gate(command=["test", "-e", "d.txt"])],
        ),
    ]


async def carried_out(m: Maos, folder: Path, recorded: Recorded, *, id: str = "") -> Run:
    """A run that fails, is resumed, and is then completed."""
    run = await order(m, repository(folder), tasks(folder), id=id)
    run = await m.runs.execute(run.id, listener=recorded.look)
    assert (run.status, run.why) == ("failed", "c failed")
    run = await m.runs.execute(run.id, listener=recorded.look)
    assert run.status == "completed", run.why
    assert files_of(repository(folder), run.commit) == WHOLE
    return run


async def test_a_run_goes_back_to_every_version_with_its_files_and_back_again(
    tmp_path: Path, home: Path, m: Maos, travel: TimeTravel
) -> None:
    """R-703, I13, I14: what it hashes to is what it hashed to when the version was current."""
    recorded = Recorded()
    run = await carried_out(m, tmp_path, recorded)
    place, last, end, commit = repository(tmp_path), run.version, digest(run), run.commit
    head = await m.journal.head()
    before = [(each.id, each.data) async for each in m.journal.read(f"run/{run.id}")]
    for version in sorted(recorded.digests):
        await travel.rollback(run.id, await points_in_time.at_version(m.journal, run, version))
        run = await m.runs.get(run.id)
        assert digest(run) == recorded.digests[version], version
        assert {name: task.status for name, task in run.tasks.items()} == recorded.statuses[version]
        assert run.commit == recorded.commits[version]
        assert on_disk(Path(run.options["workspace"]["tree"])) == files_of(place, run.commit)
    assert len(set(recorded.commits.values())) == 5
    await travel.rollback(run.id, await points_in_time.at_position(m.journal, run, head))
    run = await m.runs.get(run.id)
    assert (run.status, digest(run), run.commit) == ("completed", end, commit), "a rollback can itself be undone"
    after = [(each.id, each.data) async for each in m.journal.read(f"run/{run.id}", until=last)]
    assert after == before, "a rollback only appends"
    assert (await m.verify()).ok
    assert processes_below(home) == []


async def test_from_wherever_it_went_back_to_it_ends_as_it_had(tmp_path: Path, m: Maos, travel: TimeTravel) -> None:
    """R-703: results of what was done are kept; what was not is done, once, by agents of other names."""
    recorded = Recorded()
    run = await carried_out(m, tmp_path, recorded)
    place, versions = repository(tmp_path), sorted(recorded.digests)
    by = {name: run.agent(name) for name in run.tasks}
    for version in versions[1::3]:
        await travel.rollback(run.id, await points_in_time.at_version(m.journal, run, version))
        run = await m.runs.execute(run.id)
        assert run.status == "completed", (version, run.why)
        assert files_of(place, run.commit) == WHOLE
        for name, status in recorded.statuses[version].items():
            assert (run.agent(name) == by[name]) is (status == "done")
            assert run.tasks[name].result.endswith(f"done {name}")
    left = git(place, "for-each-ref", "--format=%(refname)", "refs/maos/the-run/").split()
    assert "refs/maos/the-run/left-0" in left, "the work that was given up is still there"


async def test_a_fork_from_every_version_ends_on_its_own_and_touches_nothing(
    tmp_path: Path, m: Maos, travel: TimeTravel
) -> None:
    """R-702, I13."""
    recorded = Recorded()
    origin = await carried_out(m, tmp_path, recorded)
    place, before = repository(tmp_path), digest(origin)
    tree = Path(origin.options["workspace"]["tree"])
    for version in sorted(recorded.digests):
        journey = await travel.fork(origin.id, await points_in_time.at_version(m.journal, origin, version))
        fork = await m.runs.get(journey.run)
        assert digest(fork) == recorded.digests[version] == journey.digest
        assert on_disk(Path(fork.options["workspace"]["tree"])) == files_of(place, recorded.commits[version])
        assert (fork.origin["run"], fork.origin["version"]) == (origin.id, version)
    fork = await m.runs.execute(fork.id) if fork.is_open else fork
    assert fork.status == "completed"
    assert files_of(place, fork.commit) == WHOLE
    origin = await m.runs.get(origin.id)
    assert digest(origin) == before
    assert on_disk(tree) == WHOLE


async def test_every_position_of_the_journal_is_a_moment_of_the_run(tmp_path: Path, m: Maos) -> None:
    """R-703, I13: also between two versions, where agents went on."""
    recorded = Recorded()
    run = await carried_out(m, tmp_path, recorded)
    versions = {each.position: each.version async for each in m.journal.read(f"run/{run.id}")}
    current, looked = 0, 0
    for position in range(1, await m.journal.head() + 1):
        current = versions.get(position, current)
        if current not in recorded.digests:
            continue  # nothing was planned yet
        journey = await m.travel.rollback(run.id, f"@{position}", dry_run=True)
        assert (journey.point.version, journey.digest) == (current, recorded.digests[current]), position
        assert {each.task: each.then for each in journey.steps} == recorded.statuses[current], position
        assert journey.commit == recorded.commits[current], position
        for each in journey.steps:
            begun = await m.journal.event(f"attempt/{run.id}.{each.task}.1", 1)
            is_at_work = each.then != "done" and begun is not None and begun.position <= position
            assert (each.what == "continues") is is_at_work, (position, each)
        looked += 1
    assert looked > 2 * len(recorded.digests), "most positions are between versions"
    assert (await m.runs.get(run.id)).version == run.version, "nothing was changed"


async def test_runs_that_parted_at_any_version_are_joined(tmp_path: Path, m: Maos) -> None:
    """R-702: what the other one has planned since comes in, nothing of ours is lost, and it can be undone."""
    recorded = Recorded()
    origin = await carried_out(m, tmp_path, recorded)
    place, end = repository(tmp_path), digest(origin)
    for version in sorted(recorded.digests):
        other = f"r-other{version}"
        await m.travel.fork(origin.id, version, into=other)
        await m.runs.add(other, Plan(tasks=[Task(name="x", command=says("x"))]))
        done = await m.travel.join(origin.id, other, policy="ours")
        assert done.base.version == version
        assert list(done.added) == ["x"]
        joined = await m.runs.get(origin.id)
        statuses = {name: task.status for name, task in joined.tasks.items()}
        assert statuses == {**dict.fromkeys("abcd", "done"), "x": "waiting"}, version
        assert files_of(place, joined.commit) == on_disk(Path(joined.options["workspace"]["tree"])) == WHOLE
        await m.travel.rollback(origin.id, done.undo)
        origin = await m.runs.get(origin.id)
        assert (digest(origin), origin.status) == (end, "completed"), version
    assert (await m.verify()).ok
