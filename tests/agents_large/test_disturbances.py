"""Runs of the real Claude Code that are disturbed in every way: each ends as the one that was left in peace.

A planner and five agents write and edit files, run commands with an effect outside, report a discovery, send a message,
ask a person, and leave a process behind. Fifteen agents at once do the same without a planner. The model is careful:
told that the outcome of a tool is unknown, it looks before it repeats it.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from maos.app import Maos
from maos.model.attempt import Attempt
from maos.model.run import Run
from maos_testing.model_stub import ModelStub, ScriptFault, ScriptStep, ToolCall
from tests.agents.claude.stage import PATH, bash
from tests.engine.test_what_survives import holder_of
from tests.runs.commands import Commands, facts, until

pytestmark = [pytest.mark.agents, pytest.mark.timeout(900)]

NEEDS = {"a": [], "b": [], "c": ["a"], "d": ["a", "b"], "e": []}
TIME_LIMIT_S = 60.0
"""Of the agents in the run whose person takes longer than that to answer."""
KILLS = 4
WAIT_S_MAX = 180.0
"""A machine at work takes ten times as long to start five programs of this size."""
CROWD = [f"t{number:02}" for number in range(15)]
CROWD_EFFECTS = 3
CROWD_WAIT_S_MAX = 500.0
CROWD_LOOK_S = 0.5
"""How often the test looks at fifteen agents: each look takes time from them."""
TOOL_MS_MAX = 600_000
"""The longest time that Claude Code lets a command run."""
TYPE = "---\ndescription: Does everything\ntools: [Bash, Write, Edit]\npermission: edits\n---\nWork.\n"
PLAN = {
    "summary": "Five steps",
    "tasks": [
        {"name": name, "task": f"SCRIPT={name}", "agent": "worker", "needs": needs} for name, needs in NEEDS.items()
    ],
}
QUESTION = {"question": "May c finish?", "choices": ["yes", "no"], "wait_s": 100}
ASK = ToolCall(name="mcp__maos__ask_person", input=QUESTION)
FOUND = ToolCall(name="mcp__maos__report_discovery", input={"text": "the cache leaks", "keyword": "found"})
TOLD = "the cache is in src/cache"
TELL = ToolCall(name="mcp__maos__send_message", input={"to": "d", "text": TOLD})
WRITE = ToolCall(name="Write", input={"file_path": "b3.txt", "content": "a draft\n"})
EDIT = ToolCall(name="Edit", input={"file_path": "b3.txt", "old_string": "a draft", "new_string": "b3"})
BEGUN = "I begin. " * 6
LOOKS = "I look. " * 6
THE_PLAN = f"```json\n{json.dumps(PLAN)}\n```"


def effect(ledger: Path, name: str, *, after: str = "sleep 1") -> ToolCall:
    """A line in the ledger and a file."""
    return bash(f"{after}; echo {name} >> {ledger}; echo {name} > {name}.txt", timeout=TOOL_MS_MAX)


def check(ledger: Path, name: str) -> ToolCall:
    """The same, unless the line is there already."""
    return bash(f"grep -qx {name} {ledger} || {{ echo {name} >> {ledger}; }}; echo {name} > {name}.txt")


def last_words(name: str) -> str:
    return f"{name} is done. " + "And so on. " * 12


def ending(name: str, checks: list[ToolCall]) -> list[ScriptStep]:
    """The last words, as often as they may be needed."""
    last = ScriptStep(text=last_words(name), chunk_chars=12, delay_s=0.05)
    return [
        *[msgspec.structs.replace(last, careful=checks)] * KILLS,  # each kill may have cost it a step
        *[last] * 9,  # one more for each turn that a message or the end of a process in the background brings
    ]


def scripts(ledger: Path) -> dict[str, list[ScriptStep]]:
    """What the planner and the five agents do; each effect is a line in the ledger, once."""

    def steps(name: str) -> list[ScriptStep]:
        first, second = f"{name}1", f"{name}2"
        checks = [check(ledger, first), check(ledger, second)]
        if name == "b":
            checks.append(bash("echo b3 > b3.txt"))
        more = {
            "a": [FOUND, TELL],
            "b": [WRITE, EDIT],
            "c": [ASK],
            "e": [ToolCall(name="Bash", input={"command": "sleep 600", "run_in_background": True})],
        }.get(name, [])
        return [
            ScriptStep(
                text=BEGUN,
                calls=[effect(ledger, first)],
                careful=checks[:1],
                chunk_chars=8,
                delay_s=0.04,
            ),
            ScriptStep(calls=[effect(ledger, second)], careful=checks),
            *[ScriptStep(calls=[each], careful=checks if each in (WRITE, EDIT) else [*checks, each]) for each in more],
            *ending(name, checks),
        ]

    return {
        "plan": [
            ScriptStep(text=LOOKS, calls=[ToolCall(name="Glob", input={"pattern": "*"})], delay_s=0.1),
            ScriptStep(text=THE_PLAN, chunk_chars=24, delay_s=0.02),
        ],
        **{name: steps(name) for name in NEEDS},
    }


def crowd_scripts(ledger: Path) -> dict[str, list[ScriptStep]]:
    """What each of fifteen agents does. Its first tool waits until all are at work, its last one until the test is done
    with killing."""

    def steps(name: str) -> list[ScriptStep]:
        names = [f"{name}-{number}" for number in range(CROWD_EFFECTS)]
        waits = {0: "begin", CROWD_EFFECTS - 1: "end"}
        found = []
        for number, each in enumerate(names):
            file = ledger.with_name(waits[number]) if number in waits else None
            after = f"until [ -e {file} ]; do sleep 0.5; done" if file is not None else "sleep 1"
            checks = [check(ledger, before) for before in names[: number + 1]]
            found.append(ScriptStep(calls=[effect(ledger, each, after=after)], careful=checks))
        return [*found, *ending(name, [check(ledger, each) for each in names])]

    return {name: steps(name) for name in CROWD}


class Stage(Commands):
    """A repository, a person who answers late, and an engine that is started again whenever it has died."""

    def __init__(self, root: Path, stub: ModelStub) -> None:
        super().__init__(root, stub, PATH=PATH, MAOS_ENGINE_LEASE_S="3")
        self.stub = stub
        self.engine: asyncio.subprocess.Process | None = None
        self.time_limit_s = 1800.0
        self.answer_after_s = 2.0
        self.has_lost_holders = False

    @property
    def ledger(self) -> Path:
        return self.root / "ledger"

    async def prepare(self) -> None:
        await super().prepare()
        types = self.folder / ".maos" / "agents"
        types.mkdir(parents=True)
        (types / "worker.md").write_text(TYPE)
        self.ledger.touch()

    async def begin(self) -> None:
        await self.prepare()
        self.engine = await self.start(
            "run", "Do it. SCRIPT=plan", "--auto", "--json", "--time-limit", f"{self.time_limit_s}s"
        )

    async def begin_crowd(self) -> None:
        await self.prepare()
        plan = self.plan([{"name": name, "task": f"SCRIPT={name}", "agent": "worker"} for name in CROWD])
        self.engine = await self.start("run", "-f", plan, "--auto", "--json", "--concurrency", str(len(CROWD)))

    async def resume(self) -> None:
        self.engine = await self.start("resume", "--json")

    async def kill_engine(self) -> None:
        assert self.engine is not None
        self.engine.kill()
        await self.engine.communicate()

    async def agents(self) -> list[Attempt]:
        """Those that work now."""
        if not (self.folder / "maos.db").exists():
            return []
        async with self.look() as m:
            found = [each async for each in m.agents.all()]
        return [each for each in found if each.is_open and each.pid]

    async def until_agent(self, is_wanted: Callable[[Attempt], bool]) -> Attempt:
        async def look() -> Any:
            return next((each for each in await self.agents() if is_wanted(each)), None)

        found: Attempt = await until(look, wait_s_max=WAIT_S_MAX)
        return found

    async def until_planned(self) -> None:
        async def look() -> bool:
            return any(len(run.tasks) > 1 for run in await self.runs())

        await until(look, wait_s_max=WAIT_S_MAX)

    async def answer_late(self) -> None:
        """The person answers what c asks, after a while."""

        async def asked() -> Any:
            _code, out, _err = await self.call("inbox", "--json")
            return out.strip() and json.loads(out)["questions"]

        [question] = await until(asked, wait_s_max=WAIT_S_MAX)
        await asyncio.sleep(self.answer_after_s)
        code, _out, err = await self.call("answer", question["id"], "yes")
        assert code == 0, err

    async def finish(self) -> None:
        """Wait for the end; whenever the engine has died before it, another one resumes the run."""
        for _ in range(10):
            assert self.engine is not None
            out, err = await asyncio.wait_for(self.engine.communicate(), CROWD_WAIT_S_MAX)
            if self.engine.returncode == 0:
                break
            assert self.engine.returncode in (-signal.SIGKILL, 4), err.decode()[-2000:] + out.decode()[-2000:]
            await self.resume()


async def kill_agents(stage: Stage, is_wanted: Callable[[Attempt], bool], *, kills: int = KILLS) -> None:
    """Kill agents at the moments that are wanted, each attempt at most once."""
    killed: set[str] = set()
    for _ in range(kills):
        found = await stage.until_agent(lambda each: each.id not in killed and is_wanted(each))
        killed.add(found.id)
        kill(found.pid)


def kill(pid: int) -> bool:
    """Kill a process; return False when it has just ended by itself."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def uses_tool(attempt: Attempt) -> bool:
    return any(tool.name == "Bash" for tool in attempt.tools_open.values())


async def nothing(stage: Stage) -> None:
    """It is left in peace."""


async def engine_in_planning(stage: Stage) -> None:
    await stage.until_agent(lambda each: each.agent.endswith(".plan") and bool(each.session))
    await stage.kill_engine()
    await stage.resume()


async def engine_and_planner(stage: Stage) -> None:
    stage.has_lost_holders = True
    await stage.until_agent(lambda each: each.agent.endswith(".plan") and bool(each.session))
    await stage.kill_engine()
    stage.kill_everybody()
    await stage.resume()


async def engine_twice(stage: Stage) -> None:
    await stage.until_planned()
    for _ in range(2):
        await stage.until_agent(uses_tool)
        await stage.kill_engine()
        await asyncio.sleep(0.5)
        await stage.resume()


async def agent_in_a_tool(stage: Stage) -> None:
    await kill_agents(stage, uses_tool)


async def agent_in_its_text(stage: Stage) -> None:
    await stage.until_planned()
    await kill_agents(stage, lambda each: each.in_turn and not each.tools_open)


async def agent_at_random(stage: Stage) -> None:
    chance = random.Random(int(os.environ.get("MAOS_SEED", random.randrange(10**6))))
    killed: Counter[str] = Counter()
    await stage.until_agent(lambda each: True)
    for _ in range(6):
        at_work = [each for each in await stage.agents() if killed[each.agent] < 2]  # a task has four tries
        if at_work:
            victim = chance.choice(at_work)
            killed[victim.agent] += kill(victim.pid)
        await asyncio.sleep(chance.uniform(0.2, 1.5))
    assert killed.total() > 0


async def agent_around_the_start_of_a_tool(stage: Stage) -> None:
    """Two agents when the model has just asked for a tool, two when its effect is there and its end is not recorded."""

    async def kill_at(name: str, is_time: Callable[[], bool], after_s: float = 0.0) -> None:
        victim = await stage.until_agent(lambda each: each.agent.endswith(f".{name}"))

        async def look() -> bool:
            return is_time()

        await until(look, wait_s_max=WAIT_S_MAX, every_s=0.002)
        await asyncio.sleep(after_s)
        assert kill(victim.pid), f"{name} had ended"

    def asks_again(name: str) -> bool:
        return any(each.step > 0 for each in stage.stub.asked(name))

    def has_effect(line: str) -> bool:
        return line in stage.ledger.read_text().split()

    async with asyncio.TaskGroup() as all_of_them:
        all_of_them.create_task(kill_at("a", lambda: asks_again("a")))
        all_of_them.create_task(kill_at("b", lambda: asks_again("b"), 0.05))
        all_of_them.create_task(kill_at("e", lambda: has_effect("e1")))
        all_of_them.create_task(kill_at("c", lambda: has_effect("c2")))


async def agent_twice_in_a_row(stage: Stage) -> None:
    """The second attempt is killed at its start: the third is told of the tool that the first one had begun."""
    first = await stage.until_agent(lambda each: each.agent.endswith(".a") and uses_tool(each))
    kill(first.pid)
    second = await stage.until_agent(lambda each: each.agent == first.agent and each.number > first.number)
    kill(second.pid)


async def holders(stage: Stage) -> None:
    stage.has_lost_holders = True
    killed: set[str] = set()
    for _ in range(KILLS):
        found = await stage.until_agent(lambda each: each.id not in killed and uses_tool(each))
        killed.add(found.id)
        kill(holder_of(found.pid))


async def holders_and_engine(stage: Stage) -> None:
    stage.has_lost_holders = True
    await stage.until_agent(uses_tool)
    holding = [holder_of(each.pid) for each in await stage.agents()]
    await stage.kill_engine()
    for each in holding:
        kill(each)
    await stage.resume()


async def everything_at_once(stage: Stage) -> None:
    stage.has_lost_holders = True
    await stage.until_agent(uses_tool)
    assert stage.engine is not None
    stage.engine.kill()
    stage.kill_everybody()
    await stage.engine.communicate()
    await stage.resume()


async def engine_stopped_beyond_its_lease(stage: Stage) -> None:
    await stage.until_agent(uses_tool)
    old = stage.engine
    assert old is not None
    [before] = await stage.runs()
    old.send_signal(signal.SIGSTOP)

    async def is_taken_over() -> bool:
        assert stage.engine is not None
        if stage.engine is old or stage.engine.returncode is not None:
            await stage.resume()
            await asyncio.sleep(0.5)
        return bool((await stage.runs())[0].restored > before.restored)

    await until(is_taken_over, wait_s_max=WAIT_S_MAX)
    old.send_signal(signal.SIGCONT)
    _out, err = await old.communicate()
    assert (old.returncode, "Traceback" in err.decode()) == (4, False), err.decode()


async def conversation_too_long(stage: Stage) -> None:
    """The model refuses the conversation of b after its first tool: b continues in a new session, and checks first."""
    usual = stage.stub.scripts["b"]
    fault = ScriptFault(status=400, times=0, message="prompt is too long: 250000 tokens > 200000 maximum")
    stage.stub.scripts["b"] = [usual[0], msgspec.structs.replace(usual[1], faults=[fault]), *usual[2:]]

    async def is_given_up() -> bool:
        attempt = await stage.attempt("b")
        return attempt is not None and (attempt.number > 1 or attempt.failure == "context_overflow")

    await until(is_given_up, wait_s_max=WAIT_S_MAX)
    stage.stub.scripts["b"] = usual


async def person_is_late(stage: Stage) -> None:
    """The person answers later than the time limit of the agent that asks."""
    stage.answer_after_s = TIME_LIMIT_S + 5


async def crowd(stage: Stage) -> None:
    """The engine is killed three times, and five agents: while all work, while no engine runs, and in between."""
    killed: set[str] = set()

    async def at_work() -> list[Attempt]:
        return [each for each in await stage.agents() if uses_tool(each)]

    async def kill_agents_at_work(kills: int) -> None:
        async def are_there() -> list[Attempt]:
            found = [each for each in await at_work() if each.agent not in killed]
            return found if len(found) >= kills else []

        found = await until(are_there, wait_s_max=CROWD_WAIT_S_MAX, every_s=CROWD_LOOK_S)
        for each in found[:kills]:
            killed.add(each.agent)
            kill(each.pid)

    async def are_all_at_work() -> bool:
        return len(await at_work()) == len(CROWD)

    await until(are_all_at_work, wait_s_max=CROWD_WAIT_S_MAX, every_s=CROWD_LOOK_S)
    await stage.kill_engine()
    await kill_agents_at_work(2)
    await stage.resume()
    stage.ledger.with_name("begin").touch()
    for _ in range(2):
        await kill_agents_at_work(1)
        await stage.kill_engine()
        await stage.resume()
    await kill_agents_at_work(1)
    assert len(killed) == 5
    stage.ledger.with_name("end").touch()


DISTURBANCES = (
    nothing, person_is_late, engine_in_planning, engine_and_planner, engine_twice, agent_in_a_tool, agent_in_its_text,
    agent_around_the_start_of_a_tool, agent_at_random, agent_twice_in_a_row, holders, holders_and_engine,
    everything_at_once, engine_stopped_beyond_its_lease, conversation_too_long,
)  # fmt: skip


def remembered(stub: ModelStub, name: str) -> list[dict[str, Any]]:
    """The conversation of an agent with its model, as far as its program has it in the end."""
    found: list[dict[str, Any]] = stub.asked(name)[-1].body["messages"]
    return found


async def check_record(stage: Stage, m: Maos, run: Run, name: str) -> set[str]:
    """Return what is recorded that an agent said; each text and each tool is there once, and none is missing."""
    agent, words = run.agent(name), said(name)
    messages: defaultdict[str, str] = defaultdict(str)
    for each in await facts(m, agent, "text"):
        if each.get("message", "").startswith("msg_"):  # else it is a word of the program itself, about an error
            messages[each["message"]] += plain(each["text"])
    texts = Counter(messages.values())
    assert [text for text in texts if not any(plain(each).startswith(text) for each in words)] == []
    for kind in ("tool_use", "tool_result"):
        times = Counter(each["id"] for each in await facts(m, agent, kind))
        assert [id for id, count in times.items() if count > 1] == [], f"{name}: {kind} is recorded twice"
    if not stage.has_lost_holders:  # which take along what an agent has just printed
        blocks = [
            block for each in remembered(stage.stub, name) if each["role"] == "assistant" for block in _parts(each)
        ]
        uses = {each["id"] for each in await facts(m, agent, "tool_use")}
        assert [each for each in blocks if each["type"] == "tool_use" and each["id"] not in uses] == []
        its_texts = Counter(plain(each["text"]) for each in blocks if each["type"] == "text")
        assert Counter({text: count for text, count in its_texts.items() if text in map(plain, words)}) <= texts
    return {each for each in words if texts[plain(each)]}


def _parts(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def plain(text: str) -> str:
    """A text without the line breaks that its lines are recorded without."""
    return "".join(text.split())


def said(name: str) -> set[str]:
    """What an agent says that is left in peace."""
    if name in CROWD:
        return {last_words(name)}
    return {LOOKS, THE_PLAN} if name == "plan" else {BEGUN, last_words(name)}


async def outcome(stage: Stage, names: Collection[str]) -> dict[str, Any]:
    """What is left, without what the clock and the killing change."""
    [run] = await stage.runs()
    shown = subprocess.run(
        ["git", "grep", "-h", "", run.commit, "--", "*.txt"],
        cwd=stage.folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    async with stage.look() as m:
        assert (await m.verify()).ok
        summary = await m.runs.summary(run)
        words = {name: await check_record(stage, m, run, name) for name in run.tasks}
        sent = [each.message async for each in m.bus.history(run=run.id) if each.message.text == TOLD]
    heard = [json.dumps(remembered(stage.stub, "d")).count(f"Message {each.id} from") for each in sent]
    return {
        "said": words,
        "messages": [
            (_task(each.sender), tuple(map(_task, each.to)), times) for each, times in zip(sent, heard, strict=True)
        ],
        "status": (run.status, {name: task.status for name, task in run.tasks.items()}),
        "results": {name: _result(run, name) for name in names},
        "effects": sorted(stage.ledger.read_text().split()),
        "files": sorted(shown.stdout.splitlines()),
        "discoveries": sorted((each["task"], each["text"]) for each in summary.discoveries),
        "questions": [(each.question, each.answer) for each in run.questions.values()],
    }


def _task(agent: str) -> str:
    return agent.partition(".")[2]


def _result(run: Run, name: str) -> str:
    return run.tasks[name].result.strip().partition(".")[0]


def undisturbed(names: Collection[str], effects: list[str]) -> dict[str, Any]:
    """What is left by agents that were left in peace."""
    return {
        "status": ("completed", dict.fromkeys(names, "done")),
        "results": {name: f"{name} is done" for name in names},
        "said": {name: said(name) for name in names},
        "messages": [],
        "effects": sorted(effects),
        "files": sorted(effects),
        "discoveries": [],
        "questions": [],
    }


EXPECTED = {
    **undisturbed(NEEDS, [f"{name}{number}" for name in NEEDS for number in (1, 2)]),
    "status": ("completed", dict.fromkeys(["plan", *NEEDS], "done")),
    "said": {name: said(name) for name in ("plan", *NEEDS)},
    "messages": [("a", ("d",), 1)],
    "files": sorted([*(f"{name}{number}" for name in NEEDS for number in (1, 2)), "b3"]),
    "discoveries": [("a", "the cache leaks")],
    "questions": [("May c finish?", "yes")],
}
CROWD_EXPECTED = undisturbed(CROWD, [f"{name}-{number}" for name in CROWD for number in range(CROWD_EFFECTS)])


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    ledger = tmp_path / "stage" / "ledger"
    async with ModelStub({**scripts(ledger), **crowd_scripts(ledger)}) as stub:
        made = Stage(tmp_path / "stage", stub)
        yield made
        await made.close()


@pytest.mark.parametrize("disturb", DISTURBANCES, ids=lambda each: each.__name__)
async def test_a_disturbed_run_ends_as_one_that_was_left_in_peace(
    stage: Stage, disturb: Callable[[Stage], Awaitable[None]]
) -> None:
    """Every tool takes effect once, every file is merged, nothing that was found or asked is lost, nobody is left."""
    if disturb is person_is_late:
        stage.time_limit_s = TIME_LIMIT_S
    await stage.begin()
    await disturb(stage)
    async with asyncio.TaskGroup() as both:
        both.create_task(stage.answer_late())
        both.create_task(stage.finish())
    assert await outcome(stage, NEEDS) == EXPECTED
    await until(lambda: asyncio.to_thread(stage.nobody_is_left), wait_s_max=WAIT_S_MAX)


@pytest.mark.timeout(1800)
async def test_fifteen_agents_at_once_end_as_if_neither_they_nor_the_engine_had_been_killed(stage: Stage) -> None:
    """Each of 45 tools takes effect once, all 45 files are merged, and no process is left."""
    await stage.begin_crowd()
    await crowd(stage)
    await stage.finish()
    assert await outcome(stage, CROWD) == CROWD_EXPECTED
    await until(lambda: asyncio.to_thread(stage.nobody_is_left), wait_s_max=WAIT_S_MAX)
