"""An expired login, or an account without credit, stops the agents of its kind, not one task after the other."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from maos.agents import kinds
from maos.agents.claude.dialect import bundled
from maos.app import Maos
from maos.clock import SystemClock
from maos.engine.attempts import Attempts
from maos.model.plan import Gate, Plan, Task
from maos.model.run import Run, TaskState
from maos.model.run_status import PendingCommands, status_of
from maos.runs.decisions import Outcome
from maos.runs.service import Runs
from maos.runs.worker import AgentWorker
from maos_testing.model_stub import ModelStub, ScriptFault, ScriptStep
from tests.agents.claude.stage import bash, environment
from tests.runs.test_scheduler import Hands, m, runs, until  # noqa: F401

FAILURES = ("login_expired", "no_credit")


class LoggedOut(Hands):
    """A worker whose agents of one kind cannot work until a person has done something."""

    def __init__(self, failure: str = "login_expired", *, where: str = "work") -> None:
        super().__init__()
        self.is_fixed = False
        self._failure, self._where = failure, where

    async def work(self, run: Run, task: TaskState) -> Outcome:
        done = await super().work(run, task)
        is_other = bool(task.plan.get("kind") or task.plan.get("command"))
        return done if self.is_fixed or is_other or self._where != "work" else self._refused()

    async def check(self, run: Run, task: TaskState) -> Outcome:
        done = await super().check(run, task)
        return done if self.is_fixed or self._where != "check" else self._refused()

    def _refused(self) -> Outcome:
        return Outcome(failure=self._failure, message="401", to_do="log in with `it login`")


@pytest.mark.parametrize("failure", FAILURES)
async def test_one_login_failure_pauses_the_run_and_one_resume_wakes_all(runs: Runs, failure: str) -> None:  # noqa: F811
    """Tasks of that kind are not begun one by one, and none of them has failed."""
    hands = LoggedOut(failure)
    tasks = [Task(name=name, task="x") for name in "abcdef"]
    run = await runs.create(Plan(tasks=tasks), options={"kind": "claude"})
    run = await runs.execute(run.id, worker=hands, concurrency=1)
    assert (run.status, hands.did) == ("paused", ["a"])
    assert {task.status for task in run.tasks.values()} == {"waiting"}
    assert run.why.startswith("claude: the ")
    assert run.why.endswith(f"log in with `it login`, then `maos resume {run.id}`")
    now = status_of(run, {}, PendingCommands(), lives=False, now_us=SystemClock().now_us())
    assert (now.state, now.needs_person) == ("blocked", True)
    assert "`it login`" in now.to_do
    hands.is_fixed = True
    run = await runs.execute(run.id, worker=hands, concurrency=1)
    assert (run.status, run.blocked) == ("completed", {})
    assert hands.did == ["a", "a", "b", "c", "d", "e", "f"]
    assert {task.tries for task in run.tasks.values()} == {0}


async def test_agents_of_other_kinds_go_on_before_it_pauses(runs: Runs) -> None:  # noqa: F811
    tasks = [Task(name="a", task="x"), Task(name="other", task="x", kind="codex"), Task(name="sh", command=["true"])]
    tasks += [Task(name="same", task="x"), Task(name="later", task="x", kind="codex", needs=["other"])]
    hands = LoggedOut()
    run = await runs.create(Plan(tasks=tasks), options={"kind": "claude"})
    run = await runs.execute(run.id, worker=hands, concurrency=1)
    assert run.status == "paused"
    assert sorted(hands.did) == ["a", "later", "other", "sh"]
    assert list(run.blocked) == ["claude"]


async def test_a_person_wakes_it_while_other_kinds_are_at_work(runs: Runs) -> None:  # noqa: F811
    hands = LoggedOut()
    hands.after = {"other": "b"}
    tasks = [Task(name="other", task="x", kind="codex"), Task(name="a", task="x"), Task(name="b", task="x")]
    run = await runs.create(Plan(tasks=tasks), options={"kind": "claude"})
    seen: list[Run] = []
    going = asyncio.create_task(
        runs.execute(run.id, worker=hands, concurrency=2, listener=lambda now, _events: seen.append(now))
    )
    await until(lambda: bool(seen and seen[-1].blocked))
    hands.is_fixed = True
    assert await runs.wake(run.id)
    async with asyncio.timeout(60):
        assert (await going).status == "completed"


async def test_a_review_without_a_login_is_made_later_and_the_work_is_not_done_again(runs: Runs) -> None:  # noqa: F811
    hands = LoggedOut(where="check")
    run = await runs.create(
        Plan(tasks=[Task(name="a", task="x", gates=[Gate(review="look")])]), options={"kind": "claude"}
    )
    run = await runs.execute(run.id, worker=hands)
    assert (run.status, run.tasks["a"].status) == ("paused", "gated")
    hands.is_fixed = True
    run = await runs.execute(run.id, worker=hands)
    assert (run.status, hands.did) == ("completed", ["a"])


async def test_an_engine_killed_before_it_could_pause_leaves_nothing_blocked(runs: Runs, m: Maos) -> None:  # noqa: F811
    """Whoever resumes it may have logged in, so agents are tried again."""
    hands = LoggedOut()
    hands.after = {"other": "b"}
    tasks = [Task(name="other", task="x", kind="codex"), Task(name="a", task="x"), Task(name="b", task="x")]
    run = await runs.create(Plan(tasks=tasks), options={"kind": "claude"})
    going = asyncio.create_task(runs.execute(run.id, worker=hands, concurrency=2))
    async with asyncio.timeout(60):
        while not (await runs.get(run.id)).blocked:
            await asyncio.sleep(0.01)
    going.cancel()
    await asyncio.gather(going, return_exceptions=True)
    other = Runs(m.journal, SystemClock(), m.agents, worker=Hands)
    run = await other.execute(run.id, worker=Hands())
    assert (run.status, run.blocked) == ("completed", {})


async def test_a_person_who_has_no_claude_of_their_own_is_told_which_one_to_log_in_with(
    engine_m: Maos, tmp_path: Path, home: Path
) -> None:
    """The program that comes with maos is not on the PATH, so `claude` is not what a person can start."""

    def login(path: str) -> str:
        attempts = Attempts(
            engine_m.journal, SystemClock(), dialect=kinds.dialect, folder=home, environment={"PATH": path}
        )
        return attempts.login("claude")

    ours = bundled()
    assert ours is not None
    assert f"start `{ours}`, then `/login`" in login(str(tmp_path))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "claude").symlink_to(ours)
    assert "start `claude`, then `/login`" in login(f"{tmp_path / 'bin'}:/usr/bin:/bin")


async def test_claude_without_a_valid_key_says_once_what_to_do(engine_m: Maos, tmp_path: Path, home: Path) -> None:
    fault = ScriptFault(status=401, times=0, message="invalid x-api-key")
    async with ModelStub([ScriptStep(text="never", faults=[fault])]) as stub:
        variables = {**environment(stub), "CLAUDE_CODE_MAX_RETRIES": "0"}
        attempts = Attempts(
            engine_m.journal, SystemClock(), dialect=kinds.dialect, folder=home, environment=variables, bus=engine_m.bus
        )
        tasks = Plan(tasks=[Task(name=name, task="x") for name in "abc"])
        run = await engine_m.runs.create(tasks, folder=tmp_path, options={"kind": "claude", "in_place": True})
        run = await engine_m.runs.execute(run.id, worker=AgentWorker(attempts), concurrency=1)
        await attempts.close()
    assert run.status == "paused"
    assert [task.attempts for task in run.tasks.values()] == [1, 0, 0]
    assert "log in to Claude Code" in run.why
    assert f"`maos resume {run.id}`" in run.why
    hint = (await engine_m.agents.details(f"{run.id}.a")).now.failure.hint
    assert hint.startswith("log in to Claude Code (start `")
    assert hint.endswith("or set ANTHROPIC_API_KEY, then `maos agent resume`")


async def test_a_key_that_expires_in_the_middle_and_is_renewed_costs_no_step(
    engine_m: Maos, tmp_path: Path, home: Path
) -> None:
    """After `maos resume` the agent continues in its session: what it had done is not done again."""
    expired = ScriptFault(status=401, times=0, message="invalid x-api-key")
    steps = [ScriptStep(text=f"Step {n}.", calls=[bash(f"echo {n} >> ledger")]) for n in (1, 2, 3)]
    steps.append(ScriptStep(text="It is done."))
    async with ModelStub([*steps[:2], msgspec.structs.replace(steps[2], faults=[expired]), steps[3]]) as stub:
        variables = {**environment(stub), "CLAUDE_CODE_MAX_RETRIES": "0"}
        attempts = Attempts(
            engine_m.journal, SystemClock(), dialect=kinds.dialect, folder=home, environment=variables, bus=engine_m.bus
        )
        tasks = Plan(tasks=[Task(name="a", task="x", tools=["Bash"])])
        run = await engine_m.runs.create(tasks, folder=tmp_path, options={"kind": "claude", "in_place": True})
        run = await engine_m.runs.execute(run.id, worker=AgentWorker(attempts))
        assert (run.status, (tmp_path / "ledger").read_text()) == ("paused", "1\n2\n")
        stub.script("default", *steps)
        run = await engine_m.runs.execute(run.id, worker=AgentWorker(attempts))
        await attempts.close()
    assert (run.status, run.tasks["a"].attempts) == ("completed", 2)
    assert (tmp_path / "ledger").read_text() == "1\n2\n3\n"
    assert (await engine_m.agents.get(f"{run.id}.a")).order["resume"]
