"""Every command, every --json, the check of the documentation and the SQL views say the same: of what was interrupted,
and of tasks that are not done although their agents are."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

from tests.cli.agent.conftest import Call, Start, call, here, start  # noqa: F401
from tests.cli.conftest import Invoke
from tests.cli.orchestrate.conftest import Plan, plan, repository  # noqa: F401
from tests.engine.test_what_survives import holder_of

WAIT_S_MAX = 60
FLOW = """
import pathlib
import maos
from maos.workflows import signal

@maos.workflow
async def nap() -> object:
    pathlib.Path("nap-began").touch()
    return await signal("wake")
"""
PLAN = "tasks:\n  - name: first\n    command: [sh, -c, 'echo $$ > first-began; exec sleep 300']\n"
VIEWS = ("SELECT status FROM orchestrations", "SELECT id, attached FROM agents ORDER BY id")
HOWTO = Path(__file__).parents[2] / "docs" / "howto" / "monitor.md"


def wait_until(holds: Callable[[], object]) -> None:
    until_s = time.monotonic() + WAIT_S_MAX
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.05)


def query(database: str, statement: str) -> list[tuple[Any, ...]]:
    """Ask as another program would, without maos."""
    if "://" not in database:
        connection = apsw.Connection(database, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()

    async def ask() -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(database, server_settings={"search_path": "maos"})
        try:
            return [tuple(row) for row in await connection.fetch(statement)]
        finally:
            await connection.close()

    return asyncio.run(ask())


@pytest.fixture
def killed(request: pytest.FixtureRequest, no_db: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A database in which a run, an agent and a workflow run were interrupted: their engines were killed, the agent
    too; the agent of the run still works."""
    database = request.getfixturevalue("postgres_url") if request.param == "postgres" else str(no_db)
    for name, value in {"MAOS_DB": database, "MAOS_ENGINE_LEASE_S": "3", "MAOS_HOME": str(no_db.parent / "h")}.items():
        monkeypatch.setenv(name, value)
    Path("flow.py").write_text(FLOW)
    Path("plan.yaml").write_text(PLAN)
    commands = (
        ("run", "-f", "plan.yaml", "--auto", "--in-place"),
        ("agent", "run", "--name", "alone", "--in-place", "--", "sh", "-c", "echo $$ > alone-began; exec sleep 300"),
        ("workflow", "run", "flow.py:nap", "--id", "nap-1"),
    )
    null = subprocess.DEVNULL
    engines = [
        subprocess.Popen([sys.executable, "-m", "maos", *each], stdin=null, stdout=null, stderr=null)
        for each in commands
    ]
    for name in ("first-began", "nap-began", "alone-began"):
        wait_until(Path(name).exists)
    wait_until(lambda: query(database, "SELECT count(*) FROM leases WHERE expires_us > 0") == [(4,)])
    for each in engines:
        each.kill()
        each.wait()
    first, alone = (int(Path(name).read_text()) for name in ("first-began", "alone-began"))
    os.kill(holder_of(alone), signal.SIGKILL)  # with which it ends
    yield database
    os.kill(holder_of(first), signal.SIGKILL)


@pytest.mark.parametrize("killed", ["sqlite", "postgres"], indirect=True)
def test_an_interrupted_run_agent_and_workflow_run_are_interrupted_everywhere(killed: str, invoke: Invoke) -> None:
    def document(*args: str) -> Any:
        """What a command prints, without the time that is left, which runs on."""
        without = lambda found: {name: value for name, value in found.items() if name != "left_s"}  # noqa: E731
        return json.loads(invoke(*args, "--json").stdout, object_hook=without)

    def row(id: str, *args: str) -> str:
        """The status of something in a table."""
        (found,) = [line for line in invoke(*args).stdout.splitlines() if line.startswith(f"{id}  ")]
        return found.split()[2 if args[0] in ("agent", "workflow") or id != run else 1]

    (run,) = [each["id"] for each in document("ps")["runs"]]
    wait_until(lambda: "alone" in document("status")["interrupted"])  # once its processes have ended
    status = document("status")
    assert status["interrupted"] == [run, "alone", "nap-1"]
    assert document("recover") == status
    assert {each["status"] for each in (*status["runs"], *status["agents"], *status["workflows"])} == {"interrupted"}
    assert document("ps") == {"runs": status["runs"], "others": 0}
    assert document("ps", "--status", "interrupted") == document("ps")
    assert document("ps", "--status", "running")["runs"] == []
    listed = {each["id"]: each["status"] for each in document("workflow", "list")["workflows"]}
    assert listed == {run: "interrupted", "nap-1": "interrupted"}
    agents = {each["agent"]: each["status"] for each in document("agent", "list")["agents"]}
    assert agents == {f"{run}.first": "detached", "alone": "interrupted"}
    assert document("status", run)["status"] == document("status", "nap-1")["status"] == "interrupted"
    for alone in (("status",), ("recover",), ()):
        text = invoke(*alone).stdout
        for id, command in ((run, "maos resume"), ("alone", "maos agent resume"), ("nap-1", "maos workflow resume")):
            assert f"! {id} is interrupted" in text
            assert f"  resume with: {command} {id}" in text
    assert row(run, "ps") == row(run, "workflow", "list") == "interrupted"
    assert row("nap-1", "workflow", "list") == row("alone", "agent", "list") == "interrupted"
    check = HOWTO.read_text().partition("# check_maos.py\n")[2].partition("```")[0]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    checked = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, env=environment)
    assert (checked.returncode, checked.stdout) == (1, "3 interrupted\n")
    # SQL cannot look at processes: it sees that no engine holds a lease, once the leases have run out.
    wait_until(lambda: query(killed, VIEWS[0]) == [("interrupted",)])
    wait_until(lambda: [(id, bool(held)) for id, held in query(killed, VIEWS[1])] == [
        ("alone", False), (f"{run}.first", False)])  # fmt: skip


def test_a_task_is_what_the_run_says_although_its_agent_is_done(
    repository: Path,  # noqa: F811
    plan: Plan,  # noqa: F811
    call: Call,  # noqa: F811
    start: Start,  # noqa: F811
) -> None:
    """One task fails its check, another one cannot be merged: the agents of both are done."""
    checked = {"command": ["sh", "-c", "echo x > b.txt"], "gates": [{"command": ["sh", "-c", "echo no y; exit 3"]}]}
    path = plan(work=checked, one="echo one > readme.txt", two="echo two > readme.txt")
    engine = start("run", "-f", str(path), "--auto")
    engine.wait_for("cannot be merged")
    engine.wait_for("work  ✗ failed")
    engine.kill()
    (run,) = [each["id"] for each in json.loads(call("ps", "--json").stdout)["runs"]]
    of_run = {each["task"]: each for each in json.loads(call("status", run, "--tasks", "--json").stdout)["tasks"]}
    (other,) = [name for name, each in of_run.items() if each["status"] == "gated"]
    for name in ("work", other):
        found = json.loads(call("status", f"{run}/{name}", "--json").stdout)
        assert {field: found[field] for field in of_run[name]} == of_run[name]
        assert found["details"]["status"] == "done"
        assert json.loads(call("logs", f"{run}/{name}", "--json").stdout.splitlines()[-1])["status"] == found["status"]
    failed = call("status", f"{run}/work").stdout
    assert failed.startswith(f"✗ work of {run}  failed\n")
    assert "failed: exit code 3" in failed
    assert "│ no y" in failed
    assert f"maos retry {run}/work" in failed
    assert "agent merge" not in failed
    assert "✗ work failed: check" in call("logs", f"{run}/work").stdout
    conflicted = call("status", f"{run}/{other}").stdout
    assert conflicted.startswith(f"? {other} of {run}  waiting for you\n")
    assert f"answer with: maos answer {run}/merge/{other}" in conflicted
    assert f"the task's worktree, which `maos status {run}/{other}` names" in conflicted
    assert "works in  " in conflicted
    assert f"? {other} waiting for you" in call("logs", f"{run}/{other}").stdout
    assert re.search(rf"{other} +shell +waiting for you", call("status", run).stdout)
