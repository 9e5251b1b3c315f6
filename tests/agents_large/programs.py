"""Where `make test-agents` has put the agent programs, and what tests with them share."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from maos.agents.contract import McpServer
from maos_testing.model_stub import ModelStub

ROOT = Path(__file__).parents[2]
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
KEY = "sk-stub-0123456789-for-tests"
GONE_S_MAX = 60.0

_MCP_SERVER = """
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    if asked["method"] == "initialize":
        result = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "notes", "version": "1"}}
    elif asked["method"] == "tools/list":
        result = {"tools": [{"name": "note", "description": "Keeps a note.",
                             "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}]}
    elif asked["method"] == "tools/call":
        with open(os.environ["NOTES"], "a") as file:
            file.write(asked["params"]["arguments"]["text"] + "\\n")
        result = {"content": [{"type": "text", "text": "noted"}]}
    else:
        result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


def program_folder(name: str) -> Path:
    """The folder of an installed agent program, for a PATH."""
    found = sorted((ROOT / ".agents" / name).glob(f"**/bin/{name}"))
    assert found, f"there is no .agents/{name}: `make test-agents` fetches it"
    return found[0].parent


def environment(name: str, url: str) -> dict[str, str]:
    """An environment in which an agent program finds itself, the stub at `url`, and nothing of this machine's user."""
    return {
        "PATH": f"{program_folder(name)}:{SYSTEM_PATH}",
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": f"{url}/v1",
    }


def notes_server(folder: Path) -> McpServer:
    """A tool server that appends notes to `folder/notes`."""
    script = folder / "notes_server.py"
    script.write_text(_MCP_SERVER)
    return McpServer("notes", [sys.executable, str(script)], {"NOTES": str(folder / "notes")})


def processes_with(word: str) -> list[int]:
    """The processes with a word in their command line, other than ourselves."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if word.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue  # it has just ended
    return found


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have, as far as they are in its tree."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has just ended
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Wait until a condition holds that nobody tells us of."""
    end = time.monotonic() + GONE_S_MAX
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def said_to_the_model(stub: ModelStub) -> str:
    """All that was in the last request, as text."""
    return json.dumps(stub.requests[-1].body)
