"""The protocol as anybody may speak it, well or badly: versions, methods, and lines that are no messages (A14, A20)."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from maos.engine.attempt_spec import ARGV
from maos.mcp import server, tools
from maos.mcp.protocol import LINE_BYTES_MAX
from maos.model import tool_calls
from tests.mcp.conftest import World
from tests.mcp.raw import raw_door

NOBODY = {"MAOS_DB": "/nowhere/maos.db", "MAOS_ATTEMPT": "a.1"}
GREETING = {"capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


def test_the_versions_are_those_of_the_official_package() -> None:
    assert sorted(server.VERSIONS) == sorted(HANDSHAKE_PROTOCOL_VERSIONS)


def test_versions_are_negotiated_and_what_is_unknown_is_refused() -> None:
    with raw_door(NOBODY, greet=False) as raw:
        for version in HANDSHAKE_PROTOCOL_VERSIONS:
            about = raw.ask("initialize", {"protocolVersion": version, **GREETING})["result"]
            assert about["protocolVersion"] == version
        for version in ("1999-01-01", None, 7):
            about = raw.ask("initialize", {"protocolVersion": version, **GREETING})["result"]
            assert about["protocolVersion"] == max(HANDSHAKE_PROTOCOL_VERSIONS)
        raw.send("notifications/initialized")
        raw.send("notifications/nobody/knows/this", {"x": 1})
        for method in ("resources/list", "prompts/list", "server/discover", "nonsense\n\x1b[31m"):
            error = raw.ask(method)["error"]
            assert error["code"] == -32601
            assert "\x1b" not in error["message"]
        assert raw.ask("ping")["result"] == {}
        assert raw.end() == 0


@pytest.mark.parametrize(
    ("line", "code", "id"),
    [
        (b"hello", -32700, None),
        (b"\xff\xfe{}", -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}', -32700, None),
        (b"[" * 100_000, -32700, None),
        (b"9" * 10_000, -32700, None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600, None),
        (b'"text"', -32600, None),
        (b'{"id":1,"method":"ping"}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":"a","method":7}', -32600, "a"),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}', -32602, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm"}}', -32602, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":["rm"]}}', -32602, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"' + b"x" * LINE_BYTES_MAX + b'"}}', -32700, None),
    ],
    ids=lambda value: str(value)[:60] if isinstance(value, bytes) else None,
)
def test_what_is_no_message_gets_an_error_and_the_door_goes_on(line: bytes, code: int, id: Any) -> None:
    with raw_door(NOBODY, greet=False) as raw:
        raw.write(b"\n  \n" + b'{"jsonrpc":"2.0","id":5,"result":{}}\n' + line + b"\n")
        answer = raw.read()
        assert (answer["error"]["code"], answer["id"]) == (code, id)
        assert len(answer["error"]["message"]) < 300
        assert raw.ask("ping")["result"] == {}


def test_a_door_that_nobody_calls_loads_nothing_heavy() -> None:
    """Start-up is paid by every agent, whether it calls a tool or not."""
    heavy = {"asyncio", "apsw", "msgspec", "click", "typing", "pathlib", "hashlib", "maos.app"}
    code = (
        "import sys, json, os\n"
        "from maos.mcp.server import main\n"
        "main()\n"
        f"sys.stderr.write(','.join(sorted({heavy!r} & set(sys.modules))))"
    )
    asked = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode() + b"\n"
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path.append({str(Path(tools.__file__).parents[2])!r})\n{code}"],
        input=asked,
        env=NOBODY,
        capture_output=True,
        timeout=60,
    )
    assert len(json.loads(done.stdout)["result"]["tools"]) == 6
    assert done.stderr == b""


@pytest.mark.parametrize("missing", [tool_calls.DATABASE, tool_calls.ATTEMPT])
def test_a_door_without_an_owner_does_not_open(missing: str) -> None:
    variables = {name: value for name, value in NOBODY.items() if name != missing}
    done = subprocess.run(ARGV, env=variables, input=b"", capture_output=True, text=False, timeout=60)
    assert done.returncode == 2
    assert missing.encode() in done.stderr


def test_a_door_ends_with_its_client_even_while_it_waits(tmp_path: Path) -> None:
    """No process of ours outlives its agent."""
    with raw_door({**NOBODY, "MAOS_DB": str(tmp_path / "none.db")}) as raw:
        said, failed = raw.call("report_progress", percent=1, activity="x")
        assert failed
        assert "none.db" in said
        assert not (tmp_path / "none.db").exists(), "a door never makes a journal"
        assert raw.end() == 0


async def test_a_door_that_waits_ends_with_its_client(world: World) -> None:
    patient = "from maos.mcp import server, session; session.FINISH_S_MAX = 1e9; raise SystemExit(server.main())"
    with raw_door(await world.variables("reader"), argv=("-P", "-c", patient)) as raw:
        raw.send("tools/call", {"name": "read_messages", "arguments": {"wait_s": 600}}, id=1)
        assert raw.ask("ping")["result"] == {}
        assert raw.end() == 0
        assert raw.process.stderr is not None
        assert os.read(raw.process.stderr.fileno(), 1000) == b""


async def test_nothing_in_the_working_folder_is_loaded(world: World, tmp_path: Path) -> None:
    """A12: the agent's folder is somebody's repository."""
    for name in ("json.py", "maos.py", "asyncio.py", "sitecustomize.py"):
        (tmp_path / name).write_text("raise SystemExit('hostile')")
    with raw_door(await world.variables("writer"), cwd=tmp_path) as raw:
        assert raw.call("report_progress", percent=1, activity="x") == ("recorded", False)
