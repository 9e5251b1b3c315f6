"""A person moves here in the middle of their work: the real Claude Code goes on in the conversation it had before."""

import asyncio
import json
import os
import subprocess
from pathlib import Path

from maos.agents.claude.dialect import Claude
from maos.app import Maos
from maos.runs.worker import AgentWorker
from maos_testing.model_stub import ModelStub, ScriptStep
from tests.agents.claude.stage import environment
from tests.engine import claude_engine
from tests.import_legacy.conftest import RUNNING, Make, bring

SCRIPTS = {
    "before": [ScriptStep(text="I have read the grammar: it is PINEAPPLE."), ScriptStep(text="Part 2 is finished.")],
    "fresh": [ScriptStep(text="Part 3 is finished.")] * 10,  # each message that waited for it is a turn of its own
}


def as_the_original_would(stub: ModelStub, folder: Path, task: str) -> str:
    """Run Claude Code in the way of the original, with a home of its own; the session."""
    env = environment(stub, HOME=str(folder), CLAUDE_CONFIG_DIR=str(folder / "claude"))
    argv = [str(Claude().find(env).path), "-p", "--output-format", "json"]
    done = subprocess.run(argv, input=task, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=True)
    return str(json.loads(done.stdout)["session_id"])


async def test_an_imported_run_goes_on_where_the_original_was_left(
    m: Maos, make: Make, tmp_path: Path, home: Path
) -> None:
    """R-202, R-206: in its own session, told what came meanwhile; what is done is not done again."""
    async with ModelStub(SCRIPTS) as stub:
        session = await asyncio.to_thread(as_the_original_would, stub, tmp_path, "Part 2, SCRIPT=before")
        asked_before = len(stub.requests)
        change = f"""UPDATE agents SET session_id = '{session}' WHERE id = 'developer-1110aaaa';
                     UPDATE tasks SET description = 'Part 3, SCRIPT=fresh' WHERE id = 'task-tester-1120aaaa'"""
        brought = await bring(m, make(change=change))
        assert brought[RUNNING].sessions == 1
        os.rename(tmp_path / "claude", tmp_path / "gone")  # what came is enough
        attempts = claude_engine.engine(m, home, stub.url)
        try:
            run = await m.runs.execute(RUNNING, worker=AgentWorker(attempts))
        finally:
            await attempts.close()
        assert (run.status, run.done) == ("completed", 3)
        assert run.tasks["developer-1110aaaa"].result == "Part 2 is finished."
        assert run.tasks["tester-1120aaaa"].result == "Part 3 is finished."
        assert run.tasks["analyst-1100aaaa"].attempts == 1
        developer = await attempts.get(f"{RUNNING}.developer-1110aaaa")
        assert (developer.number, developer.session) == (2, session)
        asked = [json.dumps(each.body["messages"]) for each in list(stub.requests)[asked_before:]]
        resumed = next(each for each in asked if "You were interrupted" in each)
        assert "PINEAPPLE" in resumed, "it remembers what it said before"
        assert "mind the empty line" in resumed, "and hears what was said to it"
        assert "grammar.txt" not in resumed.replace("found: part 1", ""), "but not what it had acknowledged"
        begun = next(each for each in asked if "SCRIPT=fresh" in each)
        assert "found: part 1" in begun, "what the tasks before it reported"
        left = [each async for each in m.bus.waiting(f"{RUNNING}.developer-1110aaaa")]
        assert left == []
