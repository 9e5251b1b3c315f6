"""The one way in for every front end: what starting, resuming and executing a run promise, also to a Python program."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.clock import SystemClock
from maos.engine.consent import NotAgreed
from maos.engine.ownership import Held
from maos.engine.questions import Answered
from maos.errors import StoreUnavailable
from maos.journal.journal import Journal
from maos.model.events.facts import Line
from maos.model.events.parts import PERSON
from maos.model.events.records import BundleImported
from maos.model.message import Message
from maos.model.plan import BadPlan, Plan, Task
from maos.model.run import Run, TaskState, bundle_stream, stream
from maos.runs import cleanup, file_changes, notify
from maos.runs.budgets import Purse
from maos.runs.consent import Act
from maos.runs.decisions import Outcome
from maos.runs.feed import AgentOutput, Observer, RunUpdate
from maos.runs.plan_input import addition
from maos.runs.service import Runs
from maos.runs.status import is_executing
from maos.settings import SettingsSource
from maos.settings.loader import Current
from maos.travel.relocation import Moved

HELLO = {"tasks": [{"name": "hello", "command": ["echo", "hello"]}]}
IN_PLACE = {"in_place": True, "kind": "shell"}


class Waits:
    """Does a task when it is let, or stops it."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.begun = asyncio.Event()
        self._stopped = False

    async def work(self, run: Run, task: TaskState) -> Outcome:
        self.begun.set()
        await self.go.wait()
        return Outcome(failure="stopped") if self._stopped else Outcome(result="done")

    async def check(self, run: Run, task: TaskState) -> Outcome:
        return Outcome()

    complete = check

    def watch(self, purse: Purse) -> None:
        """Nothing here costs money."""

    async def stop(self, run: Run, task: TaskState) -> None:
        self._stopped = True
        self.go.set()


class Says(Observer):
    """Notes everything in order, and agrees when it is to."""

    def __init__(self, *, agrees: bool = False, version: Callable[[], Any] | None = None) -> None:
        self.said: list[str] = []
        self._agrees = agrees
        self._version = version

    async def agree(self, run: Run, acts: Sequence[Act]) -> bool:
        version = "" if self._version is None else f" at version {await self._version()}"
        self.said.append(f"agree to {', '.join(each.task for each in acts)}{version}")
        return self._agrees

    def moved(self, moved: Moved) -> None:
        self.said.append(f"moved to {Path(moved.folder).name}")

    def definition_changed(self, run: Run, change: object) -> None:
        self.said.append(f"changed {change}")

    def notice(self, text: str, document: dict[str, Any]) -> None:
        self.said.append(text)


async def types(m: Maos, id: str) -> list[str]:
    return [each.type for each in await m.runs.versions(id)]


# --- starting ----------------------------------------------------------------------------------------------------


async def test_a_run_is_started_with_one_append_and_executed_under_the_same_lease(m: Maos, tmp_path: Path) -> None:
    appends: list[int] = []
    write = m.journal.append_all

    async def counted(*args: Any, **more: Any) -> Any:
        appends.append(len(args[0][0].events))
        return await write(*args, **more)

    m.journal.append_all = counted  # type: ignore[method-assign]
    run = await m.runs.start(HELLO, folder=tmp_path, options=IN_PLACE)
    assert appends == [3]
    assert await types(m, run.id) == ["run_created", "run_planned", "run_claimed"]
    token = run.owner["token"]
    run = await m.runs.execute(run.id)
    assert (run.status, run.tasks["hello"].result, run.owner["token"]) == ("completed", "hello", token)
    assert (await types(m, run.id)).count("run_claimed") == 1


async def test_the_lease_is_kept_between_start_and_execute(
    m: Maos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maos.engine.ownership.CLAIM_S", 1.0)
    runs = Runs(m.journal, SystemClock(), m.agents, worker=Waits, lease_s=1.0)
    run = await runs.start(HELLO, folder=tmp_path, options=IN_PLACE)
    await asyncio.sleep(2.5)
    assert is_executing(run)
    with pytest.raises(Held):
        await m.runs.execute(run.id)
    assert (await m.runs.get(run.id)).owner == run.owner
    await runs.close()
    assert (await m.runs.execute(run.id)).status == "completed"


@pytest.mark.parametrize(
    ("task", "problem"),
    [({"needs": ["nothing"]}, "nothing"), ({"agent": "nobody"}, "there is no type of agent called 'nobody'")],
)
async def test_a_plan_that_cannot_be_executed_leaves_no_trace(
    m: Maos, tmp_path: Path, task: dict[str, Any], problem: str
) -> None:
    with pytest.raises(BadPlan) as caught:
        await m.runs.start({"tasks": [{"name": "a", "task": "x", **task}]}, folder=tmp_path, options={"kind": "shell"})
    assert problem in str(caught.value.problems)
    assert await m.journal.head() == 0


async def test_options_of_a_run_that_is_claimed_are_not_ignored(m: Maos, tmp_path: Path) -> None:
    run = await m.runs.start(HELLO, folder=tmp_path, options=IN_PLACE)
    with pytest.raises(maos.InvalidInput, match="is claimed already"):
        await m.runs.execute(run.id, options={"concurrency": 2})


# --- executing from Python ---------------------------------------------------------------------------------------


@asynccontextmanager
async def opened(tmp_path: Path, home: Path, text: str) -> AsyncIterator[tuple[Maos, Path]]:
    file = tmp_path / "maos.toml"
    file.write_text(text)
    found = lambda: [SettingsSource(file, is_project=False)]  # noqa: E731
    async with maos.open(tmp_path / "api.db", home=home, settings=lambda: Current(found)) as m:
        yield m, file


async def test_a_run_executed_from_python_applies_settings_that_change(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "LOOK_S", 0.02)
    worker, told = Waits(), Says()
    async with opened(tmp_path, home, "[orchestrate]\nconcurrency = 1\n") as (m, file), asyncio.timeout(30):
        plan = Plan(tasks=[Task(name=name, task="x") for name in "ab"])
        run = await m.runs.create(plan, folder=tmp_path)
        executing = asyncio.create_task(m.runs.execute(run.id, told, worker=worker))
        await worker.begun.wait()
        assert (await m.runs.get(run.id)).running == 1
        file.write_text("[orchestrate]\nconcurrency = 7\n")
        while (await m.runs.get(run.id)).running < 2:
            await asyncio.sleep(0.01)
        worker.go.set()
        assert (await executing).status == "completed"
    assert told.said == ["settings: orchestrate.concurrency: 1 → 7"]


async def test_a_run_executed_from_python_notifies(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    monkeypatch.setattr(notify, "send", lambda _to, title, _body: sent.append(title) or "")
    monkeypatch.setattr("maos.runs.service.addresses", lambda urls: [notify.Address(each, "1 (json)") for each in urls])
    async with opened(tmp_path, home, "[notify]\nurls = ['json://127.0.0.1:9']\n") as (m, _file):
        run = await m.runs.start(HELLO, folder=tmp_path, options=IN_PLACE)
        await m.runs.execute(run.id)
        assert [each.addresses for each in await m.runs.notices()] == [{"1 (json)": "sent"}]
    assert sent == [f"maos {run.id}: completed, 1 of 1 tasks done"]


async def test_a_run_executed_from_python_cleans_up(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "LOOK_S", 0.02)
    monkeypatch.setattr(cleanup, "CLEANUP_AFTER_S", 0)
    worker = Waits()
    async with opened(tmp_path, home, "") as (m, _file), asyncio.timeout(30):
        run = await m.runs.create(HELLO, folder=tmp_path)
        executing = asyncio.create_task(m.runs.execute(run.id, worker=worker))
        while not (await m.runs.cleaned_up()).ended_us:
            await asyncio.sleep(0.01)
        worker.go.set()
        await executing


# --- resuming ----------------------------------------------------------------------------------------------------


async def foreign(m: Maos, folder: Path) -> Run:
    """A run that came with a file, of which nobody has agreed to anything."""
    run = await m.runs.create(HELLO, folder=folder, options=IN_PLACE)
    await m.journal.append(bundle_stream(run.id), BundleImported(at_us=1))
    return run


async def test_consent_comes_before_the_claim_and_without_it_nothing_is_claimed(m: Maos, tmp_path: Path) -> None:
    run = await foreign(m, tmp_path)
    told = Says(version=lambda: m.journal.version(stream(run.id)))
    for resumed in (m.runs.resume(run.id, told), m.runs.resume(run.id), m.runs.execute(run.id)):
        with pytest.raises(NotAgreed):
            await resumed
    assert told.said == ["agree to hello at version 2"]
    assert await types(m, run.id) == ["run_created", "run_planned"]
    assert await m.journal.acquire(stream(run.id)) is not None


async def test_a_person_who_agrees_is_asked_once_and_before_the_claim(m: Maos, tmp_path: Path) -> None:
    run = await foreign(m, tmp_path)
    told = Says(agrees=True, version=lambda: m.journal.version(stream(run.id)))
    assert await m.runs.resume(run.id, told) is not None
    assert told.said == ["agree to hello at version 2"]
    assert (await m.runs.execute(run.id)).status == "completed"


async def test_resuming_does_everything_in_one_order(m: Maos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def apply_file(_journal: object, _clock: object, run: Run, on_change: str) -> tuple[Run, object | None]:
        return run, f"({on_change}) at version {await m.journal.version(stream(run.id))}"

    monkeypatch.setattr(file_changes, "apply", apply_file)
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    after.mkdir()
    runs = Runs(m.journal, SystemClock(), m.agents, bus=m.bus)
    run = await foreign(m, before)
    told = Says(agrees=True, version=lambda: m.journal.version(stream(run.id)))
    more = addition(run, ["again after hello: echo again"])
    resumed = await runs.resume(run.id, told, folder=after, on_change="replay", add=more)
    assert resumed is not None
    assert told.said == ["moved to after", "agree to hello at version 3", "changed (replay) at version 3"]
    assert await types(m, run.id) == ["run_created", "run_planned", "run_moved", "run_planned", "run_claimed"]
    run = await runs.execute(run.id)
    assert (run.status, run.tasks["again"].result) == ("completed", "again")


async def test_a_completed_run_is_not_claimed_without_more_work(m: Maos, tmp_path: Path) -> None:
    run = await m.runs.start(HELLO, folder=tmp_path, options=IN_PLACE)
    await m.runs.execute(run.id)
    with pytest.raises(maos.InvalidInput, match="is completed"):
        await m.runs.resume(run.id)
    assert await m.runs.resume(run.id, add=addition(await m.runs.get(run.id), ["more: echo more"])) is not None
    assert (await m.runs.execute(run.id)).tasks["more"].result == "more"


async def test_a_failed_task_is_tried_again_also_when_work_is_added(m: Maos, tmp_path: Path) -> None:
    plan = {"tasks": [{"name": "a", "command": ["test", "-e", str(tmp_path / "go")]}]}
    run = await m.runs.start(plan, folder=tmp_path, options=IN_PLACE)
    assert (await m.runs.execute(run.id)).status == "failed"
    (tmp_path / "go").touch()
    assert await m.runs.resume(run.id, add=addition(await m.runs.get(run.id), ["b after a: echo b"])) is not None
    run = await m.runs.execute(run.id)
    assert (run.status, run.tasks["a"].status, run.tasks["b"].result) == ("completed", "done", "b")


# --- cancelling --------------------------------------------------------------------------------------------------


async def test_a_run_is_cancelled_by_the_engine_that_executes_it(m: Maos, tmp_path: Path) -> None:
    worker = Waits()
    run = await m.runs.create(HELLO, folder=tmp_path)
    executing = asyncio.create_task(m.runs.execute(run.id, worker=worker))
    async with asyncio.timeout(30):
        await worker.begun.wait()
        run = await m.runs.cancel(run.id, why="no longer needed")
        assert (await executing).status == "cancelled"
    assert (run.status, run.why, run.is_open) == ("cancelled", "no longer needed", False)
    assert (await m.runs.status(run.id)).now.state == "cancelled"
    assert (await m.runs.cancel(run.id)).version == run.version


async def test_a_run_that_no_engine_executes_is_cancelled_too_and_can_be_resumed(m: Maos, tmp_path: Path) -> None:
    run = await m.runs.create(HELLO, folder=tmp_path, options=IN_PLACE)
    paused = asyncio.create_task(m.runs.execute(run.id, worker=Waits()))
    m.runs.pause_here(run.id, "for a while")
    assert (await paused).status == "paused"
    assert (await m.runs.cancel(run.id)).status == "cancelled"
    assert await m.runs.resume(run.id) is not None
    run = await m.runs.execute(run.id)
    assert run.status == "completed"
    with pytest.raises(maos.InvalidInput, match="is completed"):
        await m.runs.cancel(run.id)


# --- answers and feeds -------------------------------------------------------------------------------------------


async def test_a_second_answer_is_refused_from_python_too(m: Maos, tmp_path: Path) -> None:
    run = await m.runs.create(HELLO, folder=tmp_path)
    await m.runs.ask(run.id, "Which?", key="q", asked_by="a")
    await m.runs.answer(run.id, "q", "this")
    with pytest.raises(Answered, match="this"):
        await m.runs.answer(run.id, "q", "that")
    with pytest.raises(maos.NotFound):
        await m.runs.answer(run.id, "another", "this")


async def test_one_feed_has_the_run_its_agents_and_its_messages(m: Maos, tmp_path: Path) -> None:
    run = await m.runs.start(HELLO, folder=tmp_path, options=IN_PLACE)
    async with m.runs.follow(run.id) as feed, asyncio.timeout(30):
        executing = asyncio.create_task(m.runs.execute(run.id))
        await m.bus.send(PERSON, run.agent("hello"), "hi", run=run.id)
        seen: list[str] = []
        async for update in feed:
            if isinstance(update, RunUpdate):
                seen.append(update.event.type)
            elif isinstance(update, AgentOutput):
                seen += [fact.text for fact in update.facts if isinstance(fact, Line)]
            elif isinstance(update, Message):
                seen.append(update.text)
            if seen[-1:] == ["run_ended"]:
                break
        ended = await executing
    assert [each for each in seen if each != "hi"] == ["task_started", "hello", "task_finished", "run_ended"]
    assert "hi" in seen
    assert feed.run == ended
    assert [each.status for each in feed.attempts.values()] == ["done"]
    whole = m.runs.follow(run.id, from_start=True)
    assert len([each async for each in whole.recorded()]) >= len(seen) + 3
    assert [each async for each in whole.recorded()] == []


async def test_a_feed_outlives_a_store_that_is_away(m: Maos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maos.runs.feed.RETRY_S", 0.01)
    run = await m.runs.create(HELLO, folder=tmp_path)
    follow, fails = Journal.follow, [True, True]

    def away(self: Journal, **more: Any) -> Any:
        if fails:
            fails.pop()
            raise StoreUnavailable("the server is away", written=False)
        return follow(self, **more)

    monkeypatch.setattr(Journal, "follow", away)
    async with m.runs.follow(run.id) as feed, asyncio.timeout(30):
        await m.runs.add(run.id, Plan(tasks=[Task(name="b", command=["true"])]))
        async for update in feed:
            assert isinstance(update, RunUpdate)
            break
    assert not fails
    assert list(feed.run.tasks) == ["hello", "b"]
