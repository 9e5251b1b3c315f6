"""Makes a `maos.db` with the original's own code, and prints it as SQL.

Run it with the Python of an environment that has the original (`make .venv-bench-original/.installed`), or with an
unpacked version of it first in PYTHONPATH:

    .venv-bench-original/bin/python tests/import_legacy/make_database.py > tests/import_legacy/0.9.4.sql

The agents are real processes; the program `claude` they run is a script that answers at once and costs nothing. What
is in it: an orchestration that completed, one that completed although an agent failed, one that was killed in the
middle, and one each that is running, paused and failed in the words of the original. Up to 0.9.1 the original fails
when an orchestration has a second agent (it lets it speak before it is recorded); what it leaves then is in the dump.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

CLAUDE = """#!{python}
import json, sys, time, uuid
told = sys.stdin.read()
if "--output-format" not in sys.argv:
    tasks = [("analyst", "Read the parser"), ("developer", "Mend the parser"), ("tester", "Test the parser"),
             ("reviewer", "Review the parser")]
    if "which fails" in told:
        tasks = [("analyst", "Look at the lexer"), ("developer", "Break the lexer")]
    elif "which is killed" in told:
        tasks = [("analyst", "Wait for the printer"), ("developer", "Wait for the paper"),
                 ("tester", "Wait for the ink"), ("security", "Wait for the guard")]
    steps = [{{"id": "t%d" % n, "description": text, "agent_type": kind, "assigned_agent": "generic",
              "estimated_duration": "5 minutes", "dependencies": []}} for n, (kind, text) in enumerate(tasks)]
    print(json.dumps({{"analysis": {{"user_intent": "parse", "identified_tasks": [t for _, t in tasks],
        "complexity": "low", "requires_parallel": True, "dependencies": {{}}}}, "execution_plan": [
        {{"phase": 1, "parallel": True, "tasks": steps}}], "reasoning": "short", "orchestrator_prompt": "go"}}))
elif "Wait" in told:
    print("discovery: " + told + " has begun", flush=True)
    time.sleep(600)
else:
    print(json.dumps({{"type": "result", "session_id": str(uuid.uuid4()), "result": "found: " + told,
        "total_cost_usd": 0.25, "duration_ms": 1200, "num_turns": 3, "is_error": "Break" in told}}))
"""


async def orchestrate(database: str, request: str) -> None:
    """What `maos orchestrate` of the original does."""
    from maos.core.orchestrator_v7 import OrchestratorV7
    from maos.interfaces.sqlite_persistence import SqlitePersistence

    persistence = SqlitePersistence(database)
    await persistence.initialize()
    orchestrator = OrchestratorV7(persistence)
    try:
        await orchestrator.orchestrate(request, auto_approve=True)
        await orchestrator.message_bus.stop()
    finally:
        await persistence.close()  # its thread would keep the process alive


async def by_hand(database: str) -> None:
    """Orchestrations that the original's own methods write when it is paused, fails, or is killed later."""
    from maos.core.agent_message_bus import MessageType
    from maos.core.orchestrator_v7 import OrchestratorV7
    from maos.interfaces.sqlite_persistence import SqlitePersistence

    persistence = SqlitePersistence(database)
    await persistence.initialize()
    for number, status in enumerate(("running", "paused", "failed"), 1):
        orchestrator = OrchestratorV7(persistence)
        await orchestrator.message_bus.start()
        ids = [f"{kind}-{number}{number}{place}0aaaa" for place, kind in enumerate(("analyst", "developer", "tester"))]
        for place, id in enumerate(ids):
            kind = id.partition("-")[0]
            task = SimpleNamespace(agent_type=kind, description=f"Part {place + 1} of what is {status}")
            await orchestrator._save_agent(id, task)
            await orchestrator.message_bus.register_agent(
                id, {"name": id, "type": kind}, subscriptions=[MessageType.BROADCAST], create_in_db=False
            )
        session = f"{number}0000000-0000-4000-8000-000000000001"
        await persistence.create_session(session, ids[0], f"Part 1 of what is {status}")
        await persistence.update_session(session, {"role": "result", "content": "found: part 1"}, cost=0.5)
        await persistence.update_agent_session(ids[0], session, "4711")
        await persistence.complete_task(f"task-{ids[0]}", {"success": True, "output": "found: part 1"})
        session = f"{number}0000000-0000-4000-8000-000000000002"
        await persistence.create_session(session, ids[1], f"Part 2 of what is {status}")
        partial = {"role": "partial", "content": "I am in the middle of it", "timestamp": "2025-09-01T10:00:00"}
        await persistence.update_session(session, partial, cost=0.125)
        await persistence.update_agent_session(ids[1], session, "4712")
        await persistence.update_task_progress(f"task-{ids[1]}", 40.0, "failed" if status == "failed" else "running")
        heard = await persistence.save_message(ids[0], ids[1], "the grammar is in grammar.txt", "discovery")
        await persistence.acknowledge_message(heard)
        await persistence.save_message(ids[0], ids[1], "mind the empty line", "request")
        await persistence.save_message(ids[1], None, "I begin", "broadcast")
        id = f"{number}{number}{number}{number}cccc-0000-4000-8000-00000000000{number}"
        await persistence.save_orchestration(id, f"What is {status}", ids, [ids[:2], ids[2:]], status, {"by": "test"})
        if status != "running":
            await persistence.update_orchestration(id, status=status, total_cost=0.625, total_duration_ms=90_000)
        states = {f"task-{ids[0]}": "completed"}
        data = {"description": "by hand", "orchestrator_state": {"orchestration_id": id}, "task_states": states}
        await persistence.save_checkpoint(f"checkpoint-{number}", f"before-{status}", data)
        if status == "paused":
            await orchestrator.message_bus.shutdown()
        else:
            await orchestrator.message_bus.stop()
    await persistence.save("settings", {"theme": "dark"})
    await persistence.close()


def make(database: Path) -> None:
    """Fill a database; the killed orchestration is a process that is killed."""
    with tempfile.TemporaryDirectory() as folder:
        claude = Path(folder, "claude")
        claude.write_text(CLAUDE.format(python=sys.executable), encoding="utf-8")
        claude.chmod(0o755)
        env = {**os.environ, "PATH": f"{folder}:/usr/bin:/bin", "HOME": folder, "TZ": "UTC"}

        def start(*words: str) -> subprocess.Popen[bytes]:
            argv = [sys.executable, os.path.abspath(__file__), *words]
            return subprocess.Popen(argv, env=env, cwd=folder, stdout=sys.stderr, start_new_session=True)

        for request in ("mend the parser", "a lexer which fails"):
            if start("orchestrate", str(database), request).wait():
                print(f"the original failed: {request}", file=sys.stderr)
        process = start("orchestrate", str(database), "a printer which is killed")
        try:
            until_s = time.monotonic() + 60
            while _count(database, "messages WHERE message LIKE 'discovery: Wait%'") < 3 and process.poll() is None:
                if time.monotonic() > until_s:
                    raise SystemExit("the agents that were to be killed did not begin")
                time.sleep(0.1)
        finally:
            with contextlib.suppress(ProcessLookupError):  # it failed by itself, as old versions do
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if start("by-hand", str(database)).wait():
            raise SystemExit("the original could not write what is made by hand")


def _count(database: Path, what: str) -> int:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {what}").fetchone()[0])


def main() -> None:
    words = sys.argv[1:]
    if words[:1] == ["orchestrate"]:
        asyncio.run(orchestrate(*words[1:]))
    elif words[:1] == ["by-hand"]:
        asyncio.run(by_hand(*words[1:]))
    else:
        version = importlib.metadata.version("maos-cli")
        with tempfile.TemporaryDirectory() as folder:
            database = Path(folder, "maos.db")
            make(database)
            if words:
                with open(words[0], "wb") as file:
                    file.write(database.read_bytes())
                return
            with contextlib.closing(sqlite3.connect(database)) as connection:
                dump = "\n".join(connection.iterdump())
        assert folder not in dump, "the dump names a folder of this machine"
        print(f"-- Made by make_database.py with maos-cli {version}.")
        print(dump)


if __name__ == "__main__":
    main()
