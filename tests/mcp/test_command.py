"""`maos mcp` for people, doors to other stores, and what becomes of calls when the input ends."""

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import maos
from maos import settings
from maos.engine.attempt_spec import ARGV, ToolServers
from maos.mcp.tools import BY_NAME
from maos.model import tool_calls
from maos.runs.agent_tools import TOOLS, AgentTools
from maos.settings import DatabaseName
from tests.attempts import plan_attempt
from tests.mcp.conftest import World
from tests.mcp.raw import raw_door


def run(*args: str) -> str:
    done = subprocess.run([sys.executable, "-m", "maos", "mcp", *args], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_every_tool_is_listed_and_does_something() -> None:
    assert tuple(BY_NAME) == TOOLS
    assert all(inspect.iscoroutinefunction(getattr(AgentTools, name)) for name in TOOLS)
    assert [each["name"] for each in json.loads(run("--json"))["tools"]] == list(BY_NAME)
    assert "report_discovery(text, keyword?)\n" in run("--list")


async def test_the_command_serves_as_the_module_does(world: World) -> None:
    variables = {
        name: value for name, value in (await world.variables("writer")).items() if name != tool_calls.DATABASE
    }
    with raw_door(variables, argv=("-m", "maos", "--db", str(world.path), "mcp")) as raw:
        assert raw.call("report_progress", percent=1, activity="x") == ("recorded", False)
        assert raw.end() == 0
    with raw_door({**variables, tool_calls.ATTEMPT: ""}, argv=("-m", "maos", "mcp"), greet=False) as raw:
        assert raw.end() == 2


async def test_what_was_asked_before_the_input_ended_is_done_and_waits_for_nobody(world: World) -> None:
    asked = [("report_progress", {"percent": 1, "activity": "x"}), ("read_messages", {"wait_s": 600})]
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": {"name": name, "arguments": given}})
        for n, (name, given) in enumerate(asked)
    ]
    done = subprocess.run(
        ARGV,
        input="\n".join(lines) + "\n" + lines[0],  # a last line without an end is none
        env={"PATH": os.environ["PATH"], **await world.variables("writer")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [0]
    assert len(await world.events(tool_calls.stream(f"{world.run.id}.writer"))) == 1


async def test_a_door_to_postgresql(postgres_url: str, tmp_path: Path) -> None:
    async with maos.open(postgres_url, schema="elsewhere", mark_path=tmp_path / "mark") as m:
        server = ToolServers(DatabaseName(postgres_url), schema="elsewhere").server("a.1")
        proof = await plan_attempt(m.journal, "a")
        with raw_door({**server.env, **proof, "XDG_STATE_HOME": str(tmp_path)}) as raw:
            assert raw.call("save_state", key="k", value=[1]) == ("saved, in version 2 of your state", False)
            assert raw.call("report_discovery", text="it works") == ("recorded", False)
        assert (await m.state.get("a")).data["saved"] == {"k": [1]}
        assert await m.journal.version(tool_calls.stream("a")) == 2


def test_a_door_belongs_to_one_attempt() -> None:
    server = ToolServers(DatabaseName("/tmp/x.db")).server("r-1.a.2", run="r-1")
    assert server.name == "maos"
    identity = {"MAOS_ATTEMPT": "r-1.a.2", "MAOS_RUN": "r-1"}
    assert server.env == {"MAOS_DB": "/tmp/x.db", "MAOS_HOME": str(settings.state_folder()), **identity}
    assert server.argv[:2] == (sys.executable, "-P")
