"""Work of two tasks that changed the same places: a person or an agent says what becomes of it, and nothing is lost."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from maos import workspaces
from maos.app import Maos
from maos.engine.attempts import Attempts
from maos.model.plan import BadPlan, Task
from maos.model.run import Run
from maos.runs.worker import AgentWorker
from maos_testing.crash import Life, crash_loop
from maos_testing.model_stub import ModelStub, ScriptStep, ToolCall
from tests.engine import claude_engine
from tests.engine.conftest import processes_below
from tests.events import event
from tests.runs import conflict_life
from tests.runs.conflict_life import Person, change, order, repository, shown


async def conflicted(m: Maos, home: Path, folder: Path, *answers: str) -> tuple[Run, Person, Path]:
    place = repository(folder)
    run = await order(m, home, place)
    person = Person(m.runs, *answers)
    return await person.execute(run), person, place


@pytest.mark.parametrize(("answer", "line"), [("own", "b"), ("others", "a")])
async def test_a_person_chooses_one_side_and_the_run_goes_on(
    tmp_path: Path, home: Path, engine_m: Maos, answer: str, line: str
) -> None:
    """The question names the files; what is not in conflict is kept of both sides."""
    run, person, place = await conflicted(engine_m, home, tmp_path, answer)
    assert run.status == "completed", run.why
    assert person.asked == ["merge/b/1"]
    assert "conflict in f.txt" in person.contexts[0]
    assert "['retry', 'own', 'others', 'give up']" in person.contexts[0]  # a command can be told nothing
    assert shown(place, run.commit) == f"one\n{line}\nthree\n"
    assert [shown(place, run.commit, f"{name}.txt") for name in "ab"] == ["a\n", "b\n"]
    assert shown(place, run.tasks["b"].commit) == "one\nb\nthree\n"
    assert run.tasks["c"].result.split() == ["one", line, "three"]  # what needs it saw what was chosen
    assert run.tasks["b"].attempts == 1


async def test_a_person_mends_the_files_and_has_them_merged_again(tmp_path: Path, home: Path, engine_m: Maos) -> None:
    """Whoever says so without having changed anything is asked again."""
    place = repository(tmp_path)
    run = await order(engine_m, home, place)

    class Mending(Person):
        def look(self, run: Run, events: object) -> None:
            if len(self.asked) == 1 and len(run.open_questions) == 1 and run.open_questions[0].id not in self.asked:
                [tree] = (home / "workspaces").glob("*.b")
                (tree / "f.txt").write_text("one\na\nthree\n")
            super().look(run, ())

    person = Mending(engine_m.runs, "retry", "retry")
    run = await person.execute(run)
    assert person.asked == ["merge/b/1", "merge/b/2"]
    assert run.status == "completed"
    assert shown(place, run.commit) == "one\na\nthree\n"
    assert shown(place, run.commit, "b.txt") == "b\n"


async def test_files_that_still_have_conflict_markers_are_not_merged(
    tmp_path: Path, home: Path, engine_m: Maos
) -> None:
    place = repository(tmp_path)
    run = await order(engine_m, home, place)

    class Careless(Person):
        def look(self, run: Run, events: object) -> None:
            if run.open_questions:
                [tree] = (home / "workspaces").glob("*.b")
                (tree / "f.txt").write_text("one\n<<<<<<< ours\na\n=======\nb\n>>>>>>> theirs\nthree\n")
            super().look(run, ())

    person = Careless(engine_m.runs, "retry", "others")
    run = await person.execute(run)
    assert "conflict markers in f.txt" in person.contexts[1]
    assert run.status == "completed"


async def test_who_gives_up_is_asked_again_when_the_run_is_resumed(tmp_path: Path, home: Path, engine_m: Maos) -> None:
    """R-201: the work is kept and not done again."""
    run, person, place = await conflicted(engine_m, home, tmp_path, "give up")
    assert (run.status, run.why, run.tasks["b"].failure) == ("failed", "b failed", "merge_conflict")
    person = Person(engine_m.runs, "own")
    run = await person.execute(run)
    assert run.status == "completed"
    assert person.asked == ["merge/b/2"]
    assert run.tasks["b"].attempts == 1
    assert shown(place, run.commit) == "one\nb\nthree\n"


def test_whoever_resolves_a_conflict_is_counted_anew() -> None:
    """Or an agent that has resolved one before a crash would be had to do so again after it."""
    run = Run(id="r")
    run.apply(event("run_planned", tasks=[{"name": "a", "task": "x"}], at_us=1))
    run.apply(event("task_started", task="a", number=1, at_us=1))
    lost: dict[str, object] = {"task": "a", "passed": 0, "failure": "merge_conflict", "conflict": ["f"], "at_us": 1}
    for data in (lost, {"task": "a", "passed": 0, "resolve": "retry", "at_us": 1}, lost):
        run.apply(event("task_gated", **data))
    run.apply(event("task_gated", task="a", passed=0, resolve="agent", at_us=1))
    task = run.tasks["a"]
    assert (task.checks, task.conflicts, task.resolve) == (0, 2, "agent")
    run.apply(event("task_gated", task="a", passed=0, resolve="agent", failure="killed", at_us=1))
    assert (task.checks, task.resolve) == (1, "agent")


def test_a_plan_says_who_resolves_conflicts() -> None:
    with pytest.raises(BadPlan, match="resolved by 'dice'"):
        from maos.model.plan import from_data

        from_data({"tasks": [{"name": "a", "task": "x"}], "conflicts": "dice"})


@pytest.fixture
async def attempts(tmp_path: Path, home: Path, engine_m: Maos) -> AsyncIterator[Attempts]:
    into = home / "workspaces" / "the-run"
    bash = [ToolCall(name="Bash", input={"command": change("b", into), "description": "x"})]
    careless = [
        ToolCall(name="Bash", input={"command": "test -e b.txt || (" + change("b", into) + ")", "description": "x"})
    ]
    steps = {
        "work": [ScriptStep(calls=bash), ScriptStep(text="Done.")],
        "careless": [ScriptStep(calls=careless), ScriptStep(text="Done.")],
    }
    async with ModelStub(steps) as stub:
        engine = claude_engine.engine(engine_m, home, stub.url)
        yield engine
        await engine.close()


@pytest.mark.parametrize(("script", "asked"), [("work", []), ("careless", ["merge/b/2"])])
async def test_an_agent_resolves_it_if_the_plan_says_so(
    tmp_path: Path, home: Path, engine_m: Maos, attempts: Attempts, script: str, asked: list[str]
) -> None:
    """In the files with both sides in them. If it leaves markers, a person is asked after all."""
    place = repository(tmp_path)
    task = Task(name="b", task=f"SCRIPT={script}", kind="claude", tools=["Bash"])
    run = await order(engine_m, home, place, [task], conflicts="agent")
    person = Person(engine_m.runs, "own")
    run = await person.execute(run, AgentWorker(attempts))
    assert run.status == "completed", run.tasks
    assert person.asked == asked
    resolver = await attempts.get(f"{run.id}.b-merge1")
    assert "f.txt" in resolver.task
    assert shown(place, run.commit) == "one\nb\nthree\n"
    assert shown(place, run.commit, "a.txt") == "a\n"


async def test_the_conflict_markers_are_in_the_files_that_the_agent_gets(
    tmp_path: Path, home: Path, engine_m: Maos
) -> None:

    place = repository(tmp_path)
    into, own = [await workspaces.prepare(place, name, root=home / "workspaces") for name in ("into", "own")]
    (into.tree / "f.txt").write_text("one\na\nthree\n")
    (own.tree / "f.txt").write_text("one\nb\nthree\n")
    first, second = [await workspaces.checkpoint(each, "x") for each in (into, own)]
    assert first is not None
    assert second is not None
    other = await workspaces.prepare(place, "other", root=home / "workspaces")
    await workspaces.merge(into, first.commit, into=other.path, message="a")
    done = await workspaces.merge(own, second.commit, into=other.path, message="b")
    assert isinstance(done, workspaces.Conflicted)
    await workspaces.restore(own, done.commit)
    assert "<<<<<<< " in (own.tree / "f.txt").read_text()
    (own.tree / "f.txt").write_text("one\na and b\nthree\n")
    saved = await workspaces.checkpoint(own, "both")
    assert saved is not None
    merged = await workspaces.merge(own, saved.commit, into=other.path, message="both")
    assert isinstance(merged, workspaces.Merged)
    assert (other.tree / "f.txt").read_text() == "one\na and b\nthree\n"


@pytest.mark.timeout(300)
async def test_an_engine_killed_at_any_point_asks_once_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I29, I30."""
    monkeypatch.setenv("MAOS_CRASH_ONLY", "run:after")

    def argv_for(number: int) -> list[str | Path]:
        folder = tmp_path / str(number)
        return [sys.executable, conflict_life.__file__, folder / "maos.db", folder / "home", repository(folder)]

    async def check(life: Life) -> None:
        folder = tmp_path / str(life.number)
        run = await conflict_life.live(str(folder / "maos.db"), folder / "home", repository(folder))
        assert run.status == "completed", (run.why, run.tasks)
        assert list(run.questions) == ["merge/b/1"]
        assert shown(repository(folder), run.commit) == "one\nb\nthree\n"
        assert [shown(repository(folder), run.commit, f"{name}.txt") for name in "ab"] == ["a\n", "b\n"]
        assert run.tasks["b"].attempts == 1
        assert processes_below(folder / "home") == []

    lives = await crash_loop(argv_for, check)
    assert len(lives) > 5
    assert lives[-1].acks == ["completed"]
