"""A real agent of the Agent Client Protocol, built with the protocol's own Python package.

It has no model: the last line of the prompt that is a list in JSON has its steps, which it executes one by one; without
one it says how much it remembers. What it says is kept below its home, so that another process can load the session
after this one was killed, and replays it then. Options:

    --no-load       it cannot take up sessions          --resume        it can, without a replay
    --load-fails    it says it can, and cannot          --login         it wants a login first
    --models        it offers a choice of models        --version=N     it speaks another version
    --stays         it does not exit at the end of its input
    --load-waits    it waits for the file `go` before it loads a session
    --quiet         it says nothing to a prompt without steps
"""

import asyncio
import json
import os
import sys
import uuid
from pathlib import Path
from typing import Any

import acp
from acp import schema

OPTIONS = sys.argv[1:]
HOME = Path(os.environ["HOME"])


class Peer:
    """The agent."""

    def on_connect(self, connection: Any) -> None:
        self._client = connection
        self._cancelled = asyncio.Event()
        self._cost = 0.0

    async def initialize(self, protocol_version: int, **_: Any) -> schema.InitializeResponse:
        version = next((int(each.partition("=")[2]) for each in OPTIONS if each.startswith("--version")), 1)
        resume = schema.SessionResumeCapabilities() if "--resume" in OPTIONS else None
        login = schema.AuthMethodAgent(id="browser", name="Log in with a browser")
        return schema.InitializeResponse(
            protocol_version=version,
            agent_capabilities=schema.AgentCapabilities(
                load_session="--no-load" not in OPTIONS,
                session_capabilities=schema.SessionCapabilities(resume=resume),
            ),
            agent_info=schema.Implementation(name="peer", version="1.2.3"),
            auth_methods=[login] if "--login" in OPTIONS else [],
        )

    async def new_session(self, cwd: str, mcp_servers: Any = None, **_: Any) -> schema.NewSessionResponse:
        if "--login" in OPTIONS:
            raise acp.RequestError.auth_required()
        session = f"sess_{uuid.uuid4().hex[:12]}"
        self._note({"way": "new", "cwd": cwd, "mcp": [each.model_dump(by_alias=True) for each in mcp_servers or []]})
        (HOME / session).touch()
        return schema.NewSessionResponse(session_id=session, config_options=self._options())

    async def load_session(self, session_id: str, cwd: str, **_: Any) -> schema.LoadSessionResponse | None:
        self._note({"way": "load", "cwd": cwd})
        while "--load-waits" in OPTIONS and not (HOME / "go").exists():
            await asyncio.sleep(0.01)
        if "--load-fails" in OPTIONS or not (HOME / session_id).exists():
            raise acp.RequestError(-32603, "Internal error", {"details": "No previous sessions found"})
        for number, line in enumerate((HOME / session_id).read_text().splitlines()):
            kind, text = json.loads(line)
            if kind == "tool":
                for status in ("pending", "completed"):
                    tool = acp.start_tool_call(f"replayed-{number}", text, kind="edit", status=status)  # type: ignore[arg-type]
                    await self._client.session_update(session_id, tool)
                continue
            make = acp.update_user_message_text if kind == "user" else acp.update_agent_message_text
            await self._client.session_update(session_id, make(text))
        return None

    async def resume_session(self, session_id: str, cwd: str, **_: Any) -> schema.ResumeSessionResponse:
        self._note({"way": "resume", "cwd": cwd})
        return schema.ResumeSessionResponse()

    async def set_config_option(self, config_id: str, session_id: str, value: str, **_: Any) -> Any:
        self._note({"way": "choose", config_id: value})
        return schema.SetSessionConfigOptionResponse(config_options=self._options(value) or [])

    async def cancel(self, session_id: str, **_: Any) -> None:
        self._cancelled.set()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> schema.PromptResponse:
        text = prompt[0].text
        self._remember(session_id, "user", text)
        usage = schema.Usage(total_tokens=30, input_tokens=10, output_tokens=20, cached_read_tokens=5)
        self._cancelled.clear()
        stop: Any = "end_turn"
        lists = [line for line in text.splitlines() if line.startswith("[")]
        for step in json.loads(lists[-1]) if lists else [] if "--quiet" in OPTIONS else [{"remember": True}]:
            (name,) = step
            stop = await getattr(self, f"step_{name}")(session_id, step[name]) or stop
        return schema.PromptResponse(stop_reason=stop, usage=usage)

    async def step_say(self, session: str, words: str) -> None:
        await self._speak(session, words, acp.update_agent_message_text)
        self._remember(session, "agent", words)

    async def step_think(self, session: str, words: str) -> None:
        await self._speak(session, words, acp.update_agent_thought_text)

    async def step_remember(self, session: str, _: Any) -> None:
        """Say how much of the conversation it knows."""
        await self.step_say(session, f"I remember {len((HOME / session).read_text().splitlines())} things")

    async def step_tool(self, session: str, call: dict[str, Any]) -> None:
        """Append to a file: the outside world."""
        path = call["path"]
        await self._client.session_update(
            session, acp.start_tool_call(call["id"], "append", kind="edit", status="pending", raw_input={"path": path})
        )
        self._remember(session, "tool", "append")
        with open(path, "a") as file:
            file.write("once\n")
        so_far = [acp.tool_content(acp.text_block("writing"))]
        await self._client.session_update(
            session, acp.update_tool_call(call["id"], status="in_progress", content=so_far)
        )
        if call.get("hang"):
            await asyncio.sleep(600)
        result = [acp.tool_content(acp.text_block("appended"))]
        await self._client.session_update(
            session, acp.update_tool_call(call["id"], status=call.get("status", "completed"), content=result)
        )

    async def step_write(self, session: str, call: list[str]) -> None:
        """Write a file: path and text."""
        path, text = call
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)

    async def step_ask(self, session: str, call: dict[str, Any]) -> Any:
        options = [
            schema.PermissionOption(option_id="yes", name="Allow", kind="allow_once"),
            schema.PermissionOption(option_id="ever", name="Always", kind="allow_always"),
            schema.PermissionOption(option_id="no", name="Refuse", kind="reject_once"),
        ]
        locations = [schema.ToolCallLocation(path=path) for path in call.get("paths", [])]
        tool = schema.ToolCallUpdate(
            tool_call_id=call["id"], title=call["title"], kind=call["kind"], locations=locations, raw_input={"a": 1}
        )
        answer = await self._client.request_permission(session, tool, options)
        await self.step_say(session, f"answer: {getattr(answer.outcome, 'option_id', answer.outcome.outcome)}")
        return "cancelled" if answer.outcome.outcome == "cancelled" and self._cancelled.is_set() else None

    async def step_read(self, session: str, path: str) -> None:
        try:
            await self._client.read_text_file(session, path)
        except acp.RequestError as error:
            await self.step_say(session, f"refused with {error.code}")

    async def step_plan(self, session: str, entries: list[str]) -> None:
        await self._client.session_update(session, acp.update_plan([acp.plan_entry(entry) for entry in entries]))

    async def step_cost(self, session: str, amount: float) -> None:
        self._cost += amount
        cost = schema.Cost(amount=self._cost, currency="USD")
        update = schema.UsageUpdate(session_update="usage_update", used=100, size=200000, cost=cost)
        await self._client.session_update(session, update)

    async def step_fail(self, session: str, error: dict[str, Any]) -> None:
        raise acp.RequestError(error["code"], error["message"], error.get("data"))

    async def step_print(self, session: str, text: str) -> None:
        """What a badly behaved agent prints between its messages."""
        os.write(1, text.encode() + b"\n")
        os.write(2, b"a word of mine\n")

    async def step_stop(self, session: str, reason: str) -> str:
        return reason

    async def step_until(self, session: str, path: str) -> None:
        """Wait for a file of the outside world."""
        while not os.path.exists(path):
            await asyncio.sleep(0.01)

    async def step_wait(self, session: str, _: Any) -> str:
        await self._cancelled.wait()
        return "cancelled"

    async def _speak(self, session: str, words: str, make: Any) -> None:
        for start in range(0, len(words), 3):
            await self._client.session_update(session, make(words[start : start + 3]))

    def _options(self, current: str = "small") -> list[Any] | None:
        if "--models" not in OPTIONS:
            return None
        models = [schema.SessionConfigSelectOption(value=value, name=value.title()) for value in ("small", "large")]
        return [
            schema.SessionConfigOptionSelect(
                id="the-model", name="Model", category="model", type="select", current_value=current, options=models
            )
        ]

    def _remember(self, session: str, kind: str, text: str) -> None:
        with (HOME / session).open("a") as file:
            file.write(json.dumps([kind, text]) + "\n")

    def _note(self, what: dict[str, Any]) -> None:
        with (HOME / "notes").open("a") as file:
            file.write(json.dumps(what) + "\n")


async def serve() -> None:
    await acp.run_agent(Peer(), use_unstable_protocol="--resume" in OPTIONS)  # type: ignore[arg-type]
    if "--stays" in OPTIONS:
        await asyncio.Event().wait()


asyncio.run(serve())
