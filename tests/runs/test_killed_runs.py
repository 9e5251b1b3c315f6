"""`maos orchestrate` with the real Claude Code, killed at random and resumed until the work is done."""

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.testing.model_stub import Call, ModelStub, Step

KILLS = 4
GIT = "git -c user.name=n -c user.email=n@localhost"


def steps(name: str, effects: Path) -> list[Step]:
    """Something that can be counted from outside, a file, and words that take a while."""
    effect = f"echo {name} >> {effects}; echo {name} > {name}.txt"
    return [
        Step(text="I begin.", calls=[Call(name="Bash", input={"command": effect, "description": "x"})]),
        Step(text=f"found: {name} works. " + "And so on. " * 20, chunk_chars=12, delay_s=0.05),
    ]


@pytest.fixture
async def stub(tmp_path: Path) -> AsyncIterator[ModelStub]:
    scripts = {name: steps(name, tmp_path / "effects") for name in "abc"}
    scripts["slow"] = [Step(text="Let me think.", wait_s=60)]
    async with ModelStub(scripts) as running:
        yield running


class Commands:
    """The command line in a repository, with an environment of its own."""

    def __init__(self, folder: Path, home: Path, url: str) -> None:
        self.folder = folder
        self._environment = {
            "PATH": os.environ["PATH"], "HOME": str(folder.parent / "user"), "MAOS_HOME": str(home), "LANG": "C.UTF-8",
            "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "key-of-the-test", "GIT_CONFIG_GLOBAL": os.devnull,
        }  # fmt: skip

    async def start(self, *args: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "maos", *args, cwd=self.folder, env=self._environment,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip

    async def run(self, *args: str) -> list[dict[str, Any]]:
        process = await self.start(*args)
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode() + out.decode()
        return [json.loads(line) for line in out.splitlines()]

    async def merge(self, run: str) -> Any:
        process = await self.start("orchestration", "merge", run, "--json")
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return json.loads(out)


@pytest.fixture
async def commands(tmp_path: Path, home: Path, stub: ModelStub) -> Commands:
    folder = tmp_path / "work"
    folder.mkdir()
    for command in (f"{GIT} init -q", f"{GIT} commit -q --allow-empty -m first"):
        await (await asyncio.create_subprocess_shell(command, cwd=folder)).wait()
    return Commands(folder, home, stub.url)


@pytest.mark.timeout(180)
async def test_a_run_that_is_killed_again_and_again_ends_as_if_it_had_not_been(
    commands: Commands, tmp_path: Path, home: Path
) -> None:
    """R-202, I33: every task is done by one attempt, every tool runs once, and nothing that was said is lost."""
    seed = int(os.environ.get("MAOS_SEED", random.randrange(10**6)))
    print("MAOS_SEED", seed)
    chance = random.Random(seed)
    tasks = [
        {"name": name, "task": f"SCRIPT={name}", "tools": ["Bash"], "needs": needs.split()}
        for name, needs in (("a", ""), ("b", "a"), ("c", "a"))
    ]
    (tmp_path / "plan.json").write_text(json.dumps({"tasks": tasks}))
    first = ("orchestrate", "--plan", str(tmp_path / "plan.json"), "--auto", "--json")
    for number in range(KILLS):
        known = number and await _runs(commands.folder, home)
        engine = await commands.start(*(("resume", "--json") if known else first))
        await asyncio.sleep(chance.uniform(0.3, 2.5))
        if engine.returncode is None:
            engine.send_signal(signal.SIGKILL)
        await engine.communicate()
        if engine.returncode == 0:
            break
    known = await _runs(commands.folder, home)
    if known and known[0].status == "completed":
        run = known[0]
    else:
        last = (await commands.run(*(("resume", "--json") if known else first)))[-1]
        assert last["status"] == "completed"
        [run] = await _runs(commands.folder, home)
    async with maos.open(commands.folder / "maos.db", home=home) as m:
        found = [await m.attempts.get(f"{run.id}.{name}") for name in "abc"]
    assert sorted((tmp_path / "effects").read_text().split()) == ["a", "b", "c"]
    merged = await commands.merge(run.id)
    assert sorted(merged["files"]) == ["a.txt", "b.txt", "c.txt"]
    assert {name: task.attempts for name, task in run.tasks.items()} == {"a": 1, "b": 1, "c": 1}
    assert [each.tools_done for each in found] == [1, 1, 1]
    assert [each["text"].partition(".")[0] for each in (attempt.discoveries[0] for attempt in found)] == [
        "a works", "b works", "c works",
    ]  # fmt: skip


async def _runs(folder: Path, home: Path) -> list[Any]:
    if not (folder / "maos.db").exists():
        return []
    async with maos.open(folder / "maos.db", home=home) as m:
        return [run async for run in m.runs.all()]


async def test_an_interrupt_while_it_is_planned_stops_the_planner(commands: Commands, home: Path) -> None:
    engine = await commands.start("orchestrate", "Think it over. SCRIPT=slow", "--auto")

    async def planner() -> Any:
        async with maos.open(commands.folder / "maos.db", home=home) as m:
            return [each async for each in m.attempts.all()]

    async with asyncio.timeout(30):
        while not ((commands.folder / "maos.db").exists() and (found := await planner()) and found[0].pid):
            await asyncio.sleep(0.05)
    engine.send_signal(signal.SIGINT)
    await engine.communicate()
    assert engine.returncode == 130
    [attempt] = await planner()
    assert (attempt.status, attempt.failure) == ("stopped", "stopped")
    assert await _runs(commands.folder, home) == []
