"""What is under way when a run goes back: agents, messages, answers, wishes. None of it counts afterwards (I14)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.clock import SystemClock
from maos.engine import checkpoints
from maos.engine.ownership import Held
from maos.journal.codec import Event
from maos.model.branch import digest
from maos.model.message import inbox, of_run
from maos.model.plan import Task
from maos.model.run import Run
from maos.runs.agent_tools import AgentTools
from maos.travel import points_in_time
from maos.travel.service import TimeTravel
from tests.engine.conftest import processes_below
from tests.runs.commands import until
from tests.travel.conftest import on_disk, order, repository

ANSWER = "Answer to your question 'Which one?': "


class Scene:
    """A run whose only agent waits for a sign to go on, and a checkpoint made meanwhile."""

    def __init__(self, m: Maos, folder: Path) -> None:
        self.m = m
        self.folder = folder
        self.run: Run
        self.agent = ""

    async def begin(self) -> None:
        """Carry it out until its agent has written a line."""
        waits = f"touch {self.folder}/one; while [ ! -e {self.folder}/two ]; do sleep 0.02; done; echo two >> w.txt"
        command = ["sh", "-c", f"test -e {self.folder}/over || {{ echo one > w.txt; {waits}; sleep 100; }}"]
        self.run = await order(self.m, repository(self.folder), [Task(name="w", command=command)])
        self.agent = self.run.agent("w")
        self.carrying = asyncio.create_task(self.m.runs.execute(self.run.id))
        await until(lambda: self._there("one"))

    async def mark(self) -> None:
        """A checkpoint of the run, with the files of its agent."""
        assert not await checkpoints.make(self.m.journal, SystemClock(), await self.m.runs.get(self.run.id), "mark"), (
            "it is asked of the engine that carries the run out"
        )

        async def saved() -> bool:
            return "mark" in {each.name for each in (await self.m.agents.get(self.agent)).checkpoints}

        await until(saved)

    async def end(self) -> Run:
        """Let the agent write a second line, and pause the run."""
        (self.folder / "two").touch()

        async def written() -> bool:
            attempt = await self.m.agents.get(self.agent)
            return "two" in (Path(attempt.order["cwd"]) / "w.txt").read_text()

        await until(written)
        await self.m.runs.pause(self.run.id)
        self.run = await self.carrying
        return self.run

    async def _there(self, name: str) -> bool:
        return (self.folder / name).exists()

    async def mail(self, agent: str) -> list[str]:
        """What lies in somebody's inbox."""
        found = self.m.journal.read(inbox(agent))
        return [record.data["text"] async for record in found if record.type == "message_sent"]


@pytest.fixture
async def scene(tmp_path: Path, m: Maos) -> AsyncIterator[Scene]:
    made = Scene(m, tmp_path)
    await made.begin()
    yield made
    made.carrying.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await made.carrying


async def test_files_conversation_mail_and_saved_values_go_back_together(scene: Scene, travel: TimeTravel) -> None:
    """R-703, I13, I19: what was heard by then is not sent again, what was not is; what came later is nobody's."""
    m, agent = scene.m, scene.agent
    for text in ("heard before", "heard later", "never heard"):
        await m.bus.send("other", agent, text)
    receiver = m.bus.receive(agent)
    await (await anext(receiver)).ack()
    await m.state.create(agent, {"saved": {"note": "then"}})
    await m.bus.subscribe(agent, "news")
    await scene.mark()
    recorded = (await m.runs.get(scene.run.id)).checkpoints[0].state
    await (await anext(receiver)).ack()
    await receiver.close()
    await m.bus.send("other", agent, "sent later")
    await m.state.update(agent, {"saved": {"note": "later", "more": 1}})
    run = await scene.end()
    old = Path((await m.agents.get(agent)).order["cwd"])
    assert on_disk(old)["w.txt"] == "one\ntwo\n"

    journey = await travel.rollback(run.id, await points_in_time.named(m.journal, run, "mark"))

    run = await m.runs.get(run.id)
    new = run.agent("w")
    assert new == f"{run.id}.w.b1"
    assert [(each.what, each.checkpoint, each.messages) for each in journey.steps] == [("continues", "mark", 2)]
    assert digest(run) == recorded
    assert run.tasks["w"].status == "running"
    attempt = await m.agents.get(new)
    assert (attempt.status, attempt.number, attempt.origin["attempt"]) == ("stopped", 1, f"{agent}.1")
    assert on_disk(Path(attempt.order["cwd"])) == {"first.txt": "first\n", "w.txt": "one\n"}
    assert on_disk(old)["w.txt"] == "one\ntwo\n", "the files of the branch that was given up stay"
    assert await scene.mail(new) == ["heard later", "never heard"]
    assert (await m.state.get(new)).data["saved"] == {"note": "then"}
    assert await m.bus.subscriptions(new) == ["news"]
    (scene.folder / "over").touch()
    run = await m.runs.execute(run.id)
    assert run.status == "completed"
    assert (await m.agents.get(new)).number == 2, "it goes on as the next attempt of the same work"
    await travel.fork(run.id, await points_in_time.named(m.journal, run, "mark"), into="r-second")
    assert await m.bus.subscriptions("r-second.w") == ["news"]
    assert (await m.verify()).ok, "a stream of everybody has the token of nobody"


async def test_a_question_is_asked_again_and_only_the_new_answer_counts(scene: Scene, travel: TimeTravel) -> None:
    """I14: what was answered, asked and wished for in the branch that was given up is not applied to the new one."""
    m, agent, runs = scene.m, scene.agent, scene.m.runs
    await runs.ask(scene.run.id, "Which one?", key="which", asked_by=agent)

    async def is_recorded(id: str) -> bool:
        return id in (await runs.get(scene.run.id)).questions

    await until(lambda: is_recorded("which"))
    await scene.mark()
    await runs.answer(scene.run.id, "which", "the wrong one")
    await runs.ask(scene.run.id, "And then?", key="then", asked_by=agent)
    await until(lambda: is_recorded("then"))
    assert await scene.mail(agent) == [ANSWER + "the wrong one"]
    run = await scene.end()
    await runs.ask(run.id, "Too late?", key="late-before", asked_by=agent)
    await runs.pause(run.id, "too late as well")

    await travel.rollback(run.id, await points_in_time.named(m.journal, run, "mark"))

    run = await runs.get(run.id)
    new = run.agent("w")
    assert {id: (each.answer, each.asked_by) for id, each in run.questions.items()} == {"which": (None, [new])}
    tasks: dict[str, Any] = {"tasks": [{"name": "evil", "command": ["true"]}], "asked_by": agent, "at_us": 1}
    await m.journal.append(inbox(run.id), Event("tasks_requested", tasks))
    await runs.ask(run.id, "Still here?", key="late-after", asked_by=f"{agent}-gate1-1")
    await runs.answer(run.id, "which", "the right one")
    (scene.folder / "over").touch()
    run = await runs.execute(run.id)
    assert run.status == "completed"
    assert {id: each.answer for id, each in run.questions.items()} == {"which": "the right one"}
    assert list(run.tasks) == ["w"]
    assert await scene.mail(new) == [ANSWER + "the right one"]
    assert await scene.mail(agent) == [ANSWER + "the wrong one"]


async def test_what_nobody_had_got_to_by_then_is_wanted_again(tmp_path: Path, m: Maos, travel: TimeTravel) -> None:
    """A question that only lay in the inbox, and an answer to it, are not lost on the way back."""
    run = await order(m, repository(tmp_path), [Task(name="w", command=["true"])])
    agent = run.agent("w")
    await m.runs.ask(run.id, "Which one?", key="which", asked_by=agent)
    await m.runs.answer(run.id, "which", "this one")
    then = await m.journal.head()
    run = await m.runs.execute(run.id)
    assert run.questions["which"].answer == "this one"
    await travel.rollback(run.id, await points_in_time.at_position(m.journal, run, then))
    run = await m.runs.get(run.id)
    assert run.questions == {}
    run = await m.runs.execute(run.id)
    question = run.questions["which"]
    assert (question.answer, question.asked_by) == ("this one", [run.agent("w")])
    said = [each.data["text"] async for each in m.journal.read(inbox(run.agent("w")))]
    assert said == [ANSWER + "this one"]


async def test_an_answer_and_the_message_that_tells_it_are_not_torn_apart(
    tmp_path: Path, m: Maos, travel: TimeTravel
) -> None:
    """They are one append, though the message has a later position; also for somebody who has not begun."""
    run = await order(m, repository(tmp_path), [Task(name="w", command=["true"])])
    await m.runs.ask(run.id, "Which one?", key="which", asked_by=run.agent("w"))
    await m.runs.answer(run.id, "which", "this one")
    run = await m.runs.execute(run.id)
    records = [record async for record in m.journal.read(f"run/{run.id}")]
    [version] = [each.version for each in records if each.type == "question_answered"]
    await travel.rollback(run.id, await points_in_time.at_version(m.journal, run, version))
    run = await m.runs.get(run.id)
    assert run.questions["which"].answer == "this one"
    assert [each.data["text"] async for each in m.journal.read(inbox(run.agent("w")))] == [ANSWER + "this one"]


async def test_a_run_that_is_carried_out_does_not_go_back_behind_its_engine(scene: Scene, travel: TimeTravel) -> None:
    """I5: nothing is changed, nobody is stopped."""
    await scene.mark()
    run = await scene.m.runs.get(scene.run.id)
    moment = await points_in_time.named(scene.m.journal, run, "mark")
    with pytest.raises(Held, match="is run by process"):
        await travel.rollback(run.id, moment)
    previewed = await travel.rollback(run.id, moment, dry_run=True)
    assert [each.agent for each in previewed.steps] == [f"{run.id}.w.b1"]
    assert (await scene.m.agents.get(scene.agent)).is_open
    assert (await scene.m.runs.get(run.id)).version == run.version


async def test_a_fork_of_a_run_that_goes_on_leaves_it_alone(scene: Scene, travel: TimeTravel) -> None:
    """R-702: from where its agents' files were last saved."""
    m = scene.m
    await scene.mark()
    run = await m.runs.get(scene.run.id)
    journey = await travel.fork(run.id, await points_in_time.find(m.journal, run, None), into="r-second")
    again = await travel.fork(run.id, await points_in_time.find(m.journal, run, None), into="r-second")
    assert (journey.run, again.run) == ("r-second", "r-second")
    with pytest.raises(maos.InvalidInput, match="there is a run"):
        await travel.fork(run.id, await points_in_time.at_version(m.journal, run, 2), into="r-second")
    fork = await m.runs.get("r-second")
    assert (fork.status, fork.agent("w")) == ("paused", "r-second.w")
    assert on_disk(Path((await m.agents.get("r-second.w")).order["cwd"]))["w.txt"] == "one\n"
    assert (await m.agents.get(scene.agent)).is_open
    (scene.folder / "over").touch()
    fork = await m.runs.execute("r-second")
    assert fork.status == "completed"
    assert (await scene.end()).status == "paused"


async def test_agents_that_nobody_runs_any_more_are_ended_before_a_run_goes_back(
    tmp_path: Path, home: Path, scene: Scene
) -> None:
    """I14, I33: their engine has let go of them, and they were still at work."""
    await scene.mark()
    scene.carrying.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await scene.carrying
    await scene.m.agents.close()
    assert (await scene.m.agents.get(scene.agent)).is_open
    assert processes_below(home)
    run = await scene.m.runs.get(scene.run.id)
    journey = await TimeTravel(scene.m.journal, SystemClock(), scene.m.runs, scene.m.agents).rollback(
        run.id, await points_in_time.named(scene.m.journal, run, "mark")
    )
    assert list(journey.stopped) == [scene.agent]
    assert not (await scene.m.agents.get(scene.agent)).is_open
    assert processes_below(home) == []


async def test_tools_of_an_abandoned_branch_reach_no_other_agent(tmp_path: Path, m: Maos, travel: TimeTravel) -> None:
    """I14: whoever still speaks for it, on whatever machine, reaches none of those who go on."""
    tasks = [Task(name="w", command=["false"]), Task(name="x", command=["true"], needs=["w"])]
    run = await order(m, repository(tmp_path), tasks)
    run = await m.runs.execute(run.id)
    old = run.agent("w")
    await travel.rollback(run.id, await points_in_time.at_version(m.journal, run, 2))
    run = await m.runs.get(run.id)
    for agent, refusal in ((old, "no longer part of it"), (run.agent("w"), "")):
        tools = AgentTools(m.journal, SystemClock(), m.bus, m.state, agent=agent, attempt=f"{agent}.1", run=run.id)
        if refusal:
            with pytest.raises(maos.InvalidInput, match=refusal):
                await tools.send_message(text="hello", to="x")
            with pytest.raises(maos.InvalidInput, match=refusal):
                await tools.send_message(text="hello", topic=of_run(run.id))
            with pytest.raises(maos.InvalidInput, match=refusal):
                await tools.spawn_task(name="evil", task="x")
            await tools.report_discovery(text="found: nothing")
        else:
            await tools.send_message(text="hello", to="x")
    assert [each.data["sender"] async for each in m.journal.read(inbox(run.agent("x")))] == [run.agent("w")]
    said = await m.bus.broadcast("person", run.id, "to all")
    assert set(said.to) == {run.agent("w"), run.agent("x")}
