"""Records what the real Claude Code prints, as fixtures for the parser: `python -m tests.agents.claude.record`.

Run it for a new version of the program, then `make golden`, and read what has changed. Paths, ids and ports are
replaced. Not made here: `older_version` (2.1.211, the oldest that is supported) and `session_missing`.
"""

import asyncio
import itertools
import re
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from maos_testing.model_stub import ModelStub, ScriptFault, ScriptStep, TokenCount, ToolCall
from tests.agents.claude.stage import agent, bash, interrupt, mcp_server, texts, turn
from tests.agents.driving import Run

RECORDED = Path(__file__).parents[1] / "recorded" / "claude"
UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

TALK = [
    ScriptStep(
        thought="Look first.",
        text="I look around.\n\nThen I tell.",
        calls=[bash("ls")],
        tokens=TokenCount(input=50, output=20, cache_write=7),
    ),
    ScriptStep(text="Nothing here.", tokens=TokenCount(input=70, output=30, cache_read=5)),
]
HELPER = {"description": "helper", "prompt": "SCRIPT=helper", "subagent_type": "general-purpose"}
OWN_AGENT = {
    "default": [ScriptStep(calls=[ToolCall(name="Agent", input=HELPER)]), *texts(["I wait.", "All is done."])],
    "helper": [ScriptStep(text="I help.", calls=[bash("echo helped")]), ScriptStep(text="I helped.")],
}
NO_RETRY = {"CLAUDE_CODE_MAX_RETRIES": "0"}
BASH: dict[str, Any] = {"tools_allowed": ["Bash"]}


async def until_idle(run: Run) -> None:
    await turn(run)
    await run.finish()


async def yes_and_no(run: Run) -> None:
    for count, allow in enumerate((True, False), start=1):
        asked = await run.until_fact("permission_requested", count)
        await run.write(run.conversation.answer(asked[-1]["id"], allow=allow, why="" if allow else "Not that."))
    await until_idle(run)


async def interrupted(run: Run) -> None:
    await run.until(lambda: run.conversation.state().get("tail"))
    await run.write(interrupt("interrupt 1"))
    await until_idle(run)


async def killed(run: Run) -> None:
    await run.until(lambda: "Second" in run.conversation.state().get("tail", ""))
    run.kill()
    await run.ended()


async def twice(run: Run) -> None:
    await turn(run, 2)
    await run.finish()


Scenario = tuple[Any, Callable[[Run], Awaitable[None]], dict[str, Any]]

SCENARIOS: dict[str, Scenario] = {
    "talk_and_tool": (TALK, until_idle, BASH),
    "mcp_tool": (
        [ScriptStep(calls=[ToolCall(name="mcp__notes__note", input={"text": "x"})]), ScriptStep(text="Noted.")],
        until_idle,
        {"mcp": [mcp_server()]},
    ),
    "permission_yes_and_no": (
        [ScriptStep(calls=[bash("touch a")]), ScriptStep(calls=[bash("touch b")]), ScriptStep(text="So be it.")],
        yes_and_no,
        {},
    ),
    "permission_denied": (
        [ScriptStep(calls=[bash("touch a")]), ScriptStep(text="No.")],
        until_idle,
        {"permission": "deny"},
    ),
    "background": (
        [ScriptStep(calls=[bash("sleep 0.3", run_in_background=True)]), *texts(["It runs.", "It has ended."])],
        twice,
        BASH,
    ),
    "own_agent": (OWN_AGENT, until_idle, BASH),
    "retried": ([ScriptStep(text="Finally.", faults=[ScriptFault(status=429, retry_after_s=0.05)])], until_idle, {}),
    "dropped": ([ScriptStep(text="Cut off once, and then whole.", faults=[ScriptFault(kind="drop")])], until_idle, {}),
    "rate_limited": ([ScriptStep(faults=[ScriptFault(status=429, times=0)])], until_idle, {"variables": NO_RETRY}),
    "overloaded": ([ScriptStep(faults=[ScriptFault(status=529, times=0)])], until_idle, {"variables": NO_RETRY}),
    "no_key": (texts(["never"]), until_idle, {"variables": {"ANTHROPIC_API_KEY": ""}}),
    "turns_reached": ([ScriptStep(calls=[bash("true")])] * 3, until_idle, {**BASH, "turns_max": 1}),
    "budget_reached": ([ScriptStep(calls=[bash("true")])] * 3, until_idle, {**BASH, "budget_usd": 0.0001}),
    "interrupted": (
        [ScriptStep(text="First.\n\nSecond, unfinished.", chunk_chars=9, faults=[ScriptFault(kind="hang")])],
        interrupted,
        {},
    ),
    "killed_in_text": (
        [
            ScriptStep(
                text="First.\n\nSecond, unfinished.", chunk_chars=9, faults=[ScriptFault(kind="hang", after_chars=20)]
            )
        ],
        killed,
        {},
    ),
}


def neutral(lines: list[bytes], folder: Path) -> bytes:
    """The lines without traces of the machine they were recorded on."""
    text = b"".join(line + b"\n" for line in lines)
    for path, name in ((str(folder / "work"), "/home/user/project"), (str(folder), "/home/user/agent")):
        text = text.replace(path.encode(), name.encode())
        text = text.replace(re.sub(r"[^A-Za-z0-9]", "-", path).encode(), name.replace("/", "-").encode())
    text = re.sub(rb"127\.0\.0\.1:\d+", b"127.0.0.1:8000", text)
    text = re.sub(rb'("pid":|cc-socks/)\d+', rb"\g<1>4711", text)
    numbers: dict[bytes, bytes] = {}
    counter = itertools.count(1)

    def renamed(found: re.Match[bytes]) -> bytes:
        if found.group() not in numbers:
            numbers[found.group()] = b"00000000-0000-4000-8000-%012d" % next(counter)
        return numbers[found.group()]

    return UUID.sub(renamed, text)


async def record(name: str) -> None:
    script, act, order = SCENARIOS[name]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        async with ModelStub(script) as stub, agent(stub, folder, "do it", **order) as run:
            await act(run)
        (RECORDED / f"{name}.jsonl").write_bytes(neutral(run.lines, folder))


async def main() -> None:
    RECORDED.mkdir(parents=True, exist_ok=True)
    for name in SCENARIOS:
        await record(name)
        print(name)


if __name__ == "__main__":
    asyncio.run(main())
