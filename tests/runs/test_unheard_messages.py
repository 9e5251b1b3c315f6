"""Messages to an agent that accepts none while it works: it gets them in another turn, and its task waits for that."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

import maos
from maos.app import Maos
from maos.model.run import Run
from maos_testing.crash import ChildProcess
from tests.engine.test_what_survives import gone, until
from tests.runs import unheard_life

ROOT = Path(__file__).parents[2]

CODEX = '''#!{python}
"""Speaks as `codex exec --json` does: one turn for each process, which begins or resumes a thread."""
import json, os, pathlib, sys, time
THREAD = "0199a213-81c0-7800-8aa1-bbab2a035a53"
prompt = sys.stdin.read()
home = pathlib.Path(os.environ["CODEX_HOME"])
rollout = home / "sessions/2026/01/02" / f"rollout-2026-01-02T03-04-05-{{THREAD}}.jsonl"
assert rollout.exists() == ("resume" in sys.argv)
rollout.parent.mkdir(parents=True, exist_ok=True)
with rollout.open("a") as file:
    file.write(json.dumps({{"prompt": prompt}}) + "\\n")
print(json.dumps({{"type": "thread.started", "thread_id": THREAD}}), flush=True)
while prompt.startswith("WAIT") and not pathlib.Path("go").exists():
    time.sleep(0.01)
text = f"answer {{len(rollout.read_text().splitlines())}}"
said = {{"id": "i", "type": "agent_message", "text": text}}
print(json.dumps({{"type": "item.completed", "item": said}}), flush=True)
print(json.dumps({{"type": "turn.completed", "usage": {{}}}}), flush=True)
'''


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, and a Codex on the PATH."""
    program = tmp_path / "codex" / "bin" / "codex"
    program.parent.mkdir(parents=True)
    program.write_text(CODEX.format(python=sys.executable))
    program.chmod(0o755)
    (tmp_path / "codex" / "codex-package.json").write_text('{"version": "0.166.0"}')
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-test")
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def prompts(home: Path) -> list[str]:
    """What Codex was told, one prompt for each turn."""
    found = list(home.glob("**/homes/*/codex/sessions/*/*/*/rollout-*.jsonl"))
    return [json.loads(line)["prompt"] for line in found[0].read_text().splitlines()] if found else []


async def tell_while_it_works(m: Maos, home: Path, work: Path) -> None:
    """Send a message in the middle of the first turn, and let that end."""

    async def works() -> bool:
        return len(prompts(home)) == 1

    await until(works)
    (run,) = [each async for each in m.runs.all()]
    await m.bus.send("person", run.agent("a"), "look at the tests")
    (work / "go").touch()


async def check(m: Maos, home: Path, run: Run) -> None:
    assert (run.status, run.tasks["a"].result, run.tasks["a"].tries) == ("completed", "answer 2", 0)
    first, second = await m.agents.history(run.agent("a"))
    assert (first.status, second.status, second.session) == ("done", "done", first.session)
    assert ["look at the tests" in each for each in prompts(home)] == [False, True]
    assert not [each async for each in m.bus.waiting(run.agent("a"))]


async def test_a_task_is_done_when_its_agent_has_got_its_messages(tmp_path: Path, home: Path, work: Path) -> None:
    async with maos.open(tmp_path / "maos.db", home=home) as m:
        executing = asyncio.create_task(unheard_life.work(m, work))
        await tell_while_it_works(m, home, work)
        await check(m, home, await executing)


@pytest.mark.parametrize(
    ("point", "times"),
    [("attempt:files saved", 1), ("attempt:before start", 2), ("attempt:after start", 2), ("attempt:files saved", 2)],
)
async def test_the_engine_is_killed_between_the_turns(
    tmp_path: Path, home: Path, work: Path, point: str, times: int
) -> None:
    """At the end of the first turn, and around the beginning and at the end of the second (I19, I21)."""
    database = tmp_path / "maos.db"
    program = [sys.executable, "-m", "tests.runs.unheard_life", database, home, work]
    async with maos.open(database, home=home) as m:
        engine = ChildProcess(program, cwd=ROOT, crash_at=times, crash_name=point)
        await tell_while_it_works(m, home, work)
        assert (await asyncio.to_thread(engine.wait, 1)).died_at == point
        run = await unheard_life.work(m, work)
        assert (run.status, run.done) == ("completed", 1)
        assert sum("look at the tests" in each for each in prompts(home)) == 1
        assert not [each async for each in m.bus.waiting(run.agent("a"))]
        await until(lambda: gone(home))


async def test_a_message_that_comes_after_the_end_begins_no_other_turn(tmp_path: Path, home: Path, work: Path) -> None:
    async with maos.open(tmp_path / "maos.db", home=home) as m:
        (work / "go").touch()
        run = await unheard_life.work(m, work)
        attempt = await m.agents.get(run.agent("a"))
        assert not await m.agents.has_unheard(attempt)
        await m.bus.send("person", attempt.agent, "too late")
        assert not await m.agents.has_unheard(attempt)
        assert len(prompts(home)) == 1
