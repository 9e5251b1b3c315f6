"""The five ways in which work is interrupted, from end to end: a person at the command line, and real agents.

Each is gone through with commands and with the real Claude Code. Nothing is lost: what was said is recorded once, what
is done stays done, a conversation goes on in its own session, and no tool runs twice.
"""

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from maos.model.run import Run, agent_name
from maos_testing.model_stub import ModelStub, ScriptFault, ScriptStep, ToolCall
from tests.agents.claude.stage import PATH
from tests.runs.commands import Commands, facts, until

LINES = 60
SAID = "found: " + " ".join(f"word{number}" for number in range(60))
KINDS = ("shell", "claude")
LATER = ("work", "hang", "drop")
"""Scripts of the task that is interrupted."""


def steps(name: str, effects: Path, **last: Any) -> list[ScriptStep]:
    """A tool whose use can be counted from outside, and words that take a while."""
    command = f"echo {name} >> {effects}; echo {name} > {name}.txt"
    return [
        ScriptStep(text="I begin.", calls=[ToolCall(name="Bash", input={"command": command, "description": "x"})]),
        ScriptStep(text=SAID, chunk_chars=12, delay_s=0.03, **last),
    ]


@pytest.fixture
async def stub(tmp_path: Path) -> AsyncIterator[ModelStub]:
    effects = tmp_path / "effects"
    scripts = {name: steps(name, effects) for name in ("first", "work")}
    scripts["hang"] = steps("work", effects, faults=[ScriptFault(kind="hang", times=1)])
    scripts["drop"] = steps("work", effects, faults=[ScriptFault(kind="drop", times=1)])
    async with ModelStub(scripts) as running:
        yield running


@pytest.fixture
async def commands(tmp_path: Path, stub: ModelStub) -> AsyncIterator[Commands]:
    made = Commands(tmp_path / "there", stub, PATH=PATH, CLAUDE_CODE_MAX_RETRIES="1")
    await made.prepare()
    yield made
    await made.close()


class Scene:
    """A run of three tasks, the second of which is to be interrupted, by agents of one kind."""

    def __init__(self, commands: Commands, stub: ModelStub, kind: str, outside: Path) -> None:
        self.commands = commands
        self.stub = stub
        self.kind = kind
        self.outside = outside
        self.engine: asyncio.subprocess.Process

    def tasks(self, script: str, **more: Any) -> list[dict[str, Any]]:
        last = {"name": "last", "command": ["sh", "-c", f"echo last >> {self.outside}; ls *.txt"], "needs": ["work"]}
        if self.kind == "claude":
            first: dict[str, Any] = {"task": "SCRIPT=first", "tools": ["Bash"]}
            work: dict[str, Any] = {"task": f"SCRIPT={script}", "tools": ["Bash"], **more}
        else:
            said = f"i=0; while [ $i -lt {LINES} ]; do echo line $i; i=$((i+1)); sleep 0.02; done"
            hang = f"test -e {self.outside}.hung || {{ touch {self.outside}.hung; sleep 100; }};" * (script == "hang")
            done = f"echo work >> {self.outside}; echo work > work.txt"
            first = {"command": ["sh", "-c", f"echo first >> {self.outside}; echo first > first.txt"]}
            work = {"command": ["sh", "-c", f"{said}; {hang} {done}"], **more}
        return [{"name": "first", **first}, {"name": "work", "needs": ["first"], **work}, last]

    async def begin(self, script: str = "work", **more: Any) -> None:
        plan = self.commands.plan(self.tasks(script, **more))
        self.engine = await self.commands.start("orchestrate", "--plan", plan, "--auto", "--json")

    async def in_the_middle(self) -> Any:
        """The agent that has said something, and has more to say."""

        async def reached() -> Any:
            attempt = await self.commands.attempt("work")
            if attempt is None or not attempt.is_open:
                return None
            if self.kind == "shell":
                return attempt if attempt.lines >= 5 else None
            speaks = any(each.step == 1 and each.script in LATER for each in self.stub.requests)
            # Claude Code writes its transcript some time after it has said that the tool is done. Killed in between, it
            # resumes without the tool, and this model does what its script says, not what it is told.
            transcripts = self.commands.home.glob(f"*/homes/*/claude/projects/*/{attempt.session}.jsonl")
            written = any("tool_result" in path.read_text() for path in transcripts)
            return attempt if attempt.tools_done == 1 and speaks and written else None

        return await until(reached)

    async def kill_engine(self) -> None:
        self.engine.kill()
        await self.engine.communicate()

    async def ended(self) -> int:
        out, err = await asyncio.wait_for(self.engine.communicate(), 60)
        assert self.engine.returncode is not None
        assert b"Traceback" not in out + err, err.decode()
        return self.engine.returncode

    async def check(self, *, attempts: int, session: str) -> Run:
        """Zero loss: R-202."""
        [run] = await self.commands.runs()
        assert (run.status, run.why) == ("completed", "")
        assert {name: task.attempts for name, task in run.tasks.items()} == {"first": 1, "work": attempts, "last": 1}
        assert Counter(self.outside.read_text().split()) == {"first": 1, "work": 1, "last": 1}
        assert "work.txt" in run.tasks["last"].result
        async with self.commands.look() as m:
            agent = agent_name(run.id, "work")
            history = await m.agents.history(agent)
            assert [each.number for each in history] == list(range(1, attempts + 1))
            if self.kind == "claude":
                assert {each.session for each in history} == {session}, "it did not go on in its own conversation"
                used = [each["id"] for each in await facts(m, agent, "tool_use")]
                assert len(used) == len(set(used)) == 1, "a tool ran twice"
                assert history[-1].result == SAID
            else:
                lines = [each["text"] for each in await facts(m, agent, "line")]
                whole = [f"line {number}" for number in range(LINES)]
                before = lines[: len(lines) - LINES]  # a command that was ended begins anew
                assert lines[len(before) :] == whole
                assert bool(before) == (attempts > 1)
                assert before == whole[: len(before)], "a line is missing, or was recorded twice"
            assert (await m.verify()).ok
        await until(lambda: asyncio.to_thread(self.commands.nobody_is_left))
        return run

    def told(self, stub: ModelStub) -> str:
        """The whole conversation, as the model saw it last."""
        return json.dumps([each.body["messages"] for each in stub.requests if each.script][-1:])


@pytest.fixture(params=KINDS)
def scene(request: pytest.FixtureRequest, commands: Commands, stub: ModelStub, tmp_path: Path) -> Scene:
    return Scene(commands, stub, request.param, tmp_path / "effects")


async def test_a_clean_stop_is_gone_on_with_after_a_gap_of_days(scene: Scene, stub: ModelStub) -> None:
    """R-108, R-201, R-202 (clean stop; a gap of days), R-206."""
    days = 40
    await scene.begin()
    attempt = await scene.in_the_middle()
    scene.engine.send_signal(signal.SIGINT)
    assert await scene.ended() == 130
    [run] = await scene.commands.runs()
    assert (run.status, run.tasks["work"].status) == ("paused", "waiting")
    if scene.kind == "claude":
        sent, _out, err = await scene.commands.call("messages", "send", f"{run.id}.work", "Mind the gap.", days=days)
        assert sent == 0, err
    last = (await scene.commands.run("resume", days=days))[-1]
    assert last["status"] == "completed"
    await scene.check(attempts=2, session=attempt.session)
    if scene.kind == "claude":
        assert "You were interrupted" in scene.told(stub)
        assert "Mind the gap." in scene.told(stub), "what came meanwhile was not delivered"
        assert "I begin." in scene.told(stub), "it does not remember"


async def test_a_killed_engine_is_replaced_and_its_agents_never_notice(scene: Scene) -> None:
    """R-202 (crash of the engine): what still works is taken up, not begun again."""
    await scene.begin()
    attempt = await scene.in_the_middle()
    await scene.kill_engine()
    assert (await scene.commands.run("resume"))[-1]["status"] == "completed"
    await scene.check(attempts=1, session=attempt.session)


async def test_after_a_power_cut_everything_goes_on_from_the_journal(scene: Scene, stub: ModelStub) -> None:
    """R-202 (power loss): the engine, the holder and the agent die at the same moment."""
    await scene.begin()
    attempt = await scene.in_the_middle()
    scene.engine.kill()
    scene.commands.kill_everybody()
    await scene.engine.communicate()
    foreseen = (await scene.commands.run("resume", "--dry-run"))[0]
    assert {each["task"]: each["what"] for each in foreseen["tasks"]} == {
        "first": "kept", "work": "resumed", "last": "begun",
    }  # fmt: skip
    assert (await scene.commands.run("resume"))[-1]["status"] == "completed"
    # What a run is told of an agent that is gone is recorded first, then it is begun again.
    await scene.check(attempts=2, session=attempt.session)
    if scene.kind == "claude":
        assert "do not repeat them" in scene.told(stub)


async def test_an_agent_that_the_kernel_kills_is_resumed_by_the_run_itself(scene: Scene, stub: ModelStub) -> None:
    """R-202 (out of memory): nobody has to do anything."""
    await scene.begin()
    attempt = await scene.in_the_middle()
    os.kill(attempt.pid, signal.SIGKILL)
    assert await scene.ended() == 0
    await scene.check(attempts=2, session=attempt.session)


async def test_an_agent_that_exceeds_its_time_can_be_read_and_given_more(scene: Scene, stub: ModelStub) -> None:
    """R-102, R-202 (an agent that exceeds its time): all it said is there, and it goes on where it was."""
    await scene.begin("hang", time_limit_s=8.0 if scene.kind == "claude" else 3.0)
    await scene.in_the_middle()
    assert await scene.ended() == 7
    attempt = await scene.commands.attempt("work")
    assert attempt is not None
    assert (attempt.status, attempt.failure) == ("failed", "timed_out")
    _code, logs, _err = await scene.commands.call("agent", "logs", attempt.agent)
    assert ("word3 " if scene.kind == "claude" else f"line {LINES - 1}\n") in logs, "the partial result is lost"
    last = (await scene.commands.run("resume", "--time-limit", "5m"))[-1]
    assert last["status"] == "completed", last
    await scene.check(attempts=2, session=attempt.session)


async def test_a_lost_connection_to_the_model_is_waited_out(
    commands: Commands, stub: ModelStub, tmp_path: Path
) -> None:
    """R-202 (lost connection): the reply breaks off, then nobody answers at all, then the model is back."""
    scene = Scene(commands, stub, "claude", tmp_path / "effects")
    await scene.begin("drop")
    attempt = await scene.in_the_middle()
    port, requests = stub.port, stub.requests
    await stub.close()

    async def given_up() -> bool:
        [run] = await commands.runs()
        return run.tasks["work"].failure == "connection_lost"

    await until(given_up)
    async with ModelStub(stub.scripts, port=port) as back:
        assert await scene.ended() == 0
        assert "I begin." in scene.told(back)
    assert requests
    await scene.check(attempts=2, session=attempt.session)


async def test_days_later_and_in_another_folder_it_says_what_is_missing_and_goes_on_once_it_is_there(
    scene: Scene, tmp_path: Path
) -> None:
    """R-201, R-202 (a gap of days): the database, the repository and the agents' files have all been moved.

    Agents worked in places that are recorded as they were: what is not there is named, nothing is begun anew in the
    dark, and a link where it was is enough.
    """
    await scene.begin()
    attempt = await scene.in_the_middle()
    if scene.kind == "shell":
        scene.engine.send_signal(signal.SIGINT)
        assert await scene.ended() == 130
    else:
        scene.engine.kill()
        scene.commands.kill_everybody()
        await scene.engine.communicate()
    before = scene.commands.root
    scene.commands.move(tmp_path / "elsewhere" / "deep")
    code, _out, err = await scene.commands.call("resume", days=9)
    assert code == 3
    assert f"cannot be resumed: {before}/work and {before}/home/maos-" in err
    assert "or a link to where it is now" in err
    before.symlink_to(scene.commands.root)
    last = (await scene.commands.run("resume", days=10))[-1]
    assert last["status"] == "completed", last["why"]
    await scene.check(attempts=2, session=attempt.session)
