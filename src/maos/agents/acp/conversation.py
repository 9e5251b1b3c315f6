"""The client's side of one conversation in the Agent Client Protocol: JSON-RPC 2.0, one message a line.

initialize → session/resume, session/load or session/new → (choice of the model) → session/prompt → … → the end of the
turn, after which the next session/prompt may follow. All that is known between two lines is in `state`, so another
engine can continue with the next line; ids of requests and replies are counted there and come out the same again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from maos.agents.acp import updates
from maos.agents.acp.updates import is_allowed, option, outcome
from maos.agents.contract import Conversation, Interpreted, Reply
from maos.agents.values import ID_CHARS_MAX, Object, as_count, as_id, as_json, as_number, as_object, as_objects, as_text
from maos.model import failure
from maos.model.events import facts
from maos.model.events.facts import Fact

PROTOCOL_VERSION = 1
CLIENT_VERSION = "1"
"""The version that agents get: that of this side of the conversation, which is what could matter to them."""
INITIALIZE_ID = 0

SAY_PREFIX = "say/"
"""Prompts that come later carry the id of their message, so that any engine recognises their response."""

AUTH_REQUIRED = -32000
METHOD_NOT_FOUND = -32601

QUESTIONS_MAX = 32
TOOLS_MAX = 64
"""More tools at once are not remembered as announced; they are then announced again with their outcome."""
SESSION_CHARS_MAX = 1000
LINE_CHARS_MAX = 500
"""A line is returned before its end when it has grown to this: what waits is kept small."""

INITIALIZE, OPEN, MODEL, TURN, READY, OVER = "initialize", "open", "model", "turn", "ready", "over"
_LOST = ("failed", "bad_request", "session_missing")
"""What the agent says when it cannot open a session that it should know. Limits and lost connections are passing, and
the session is opened in a later attempt."""
_STOPS = {
    "max_tokens": ("context_overflow", "the agent reached the maximum number of tokens"),
    "max_turn_requests": ("turns_reached", "the agent reached its limit of requests in one turn"),
    "refusal": ("failed", "the agent refuses to continue"),
}


class Speech(msgspec.Struct, omit_defaults=True):
    """An agent's words, which come in pieces as small as a syllable, returned line by line.

    A keyword must not be torn, and a fact for each syllable would be a waste. What was not returned yet is a part of
    the conversation's state, so nothing is lost between two engines.
    """

    voice: str = ""
    message: str = ""
    messages: int = 0
    said: str = ""
    """The text that was not returned yet."""
    mid_line: bool = False

    def hear(self, voice: str, message: str, words: str, *, turn: str) -> list[Fact]:
        """More words, spoken (`text`) or thought; the lines that are whole now. Messages without a name get one."""
        found: list[Fact] = []
        if voice != self.voice or (message and message != self.message):
            found += self.pause()
            self.messages += 1
            self.voice, self.message = voice, message or f"{turn}/{self.messages}"
        self.said += words
        line_end = self.said.rfind("\n")
        if line_end >= 0 and self.said[:line_end].strip():
            found.append(self._tell(self.said[:line_end]))
            self.said, self.mid_line = self.said[line_end + 1 :], False
        if len(self.said) > LINE_CHARS_MAX:
            cut = self.said.rfind(" ") + 1
            if len(self.said) - cut > LINE_CHARS_MAX:  # a word that is too long itself
                cut = len(self.said)
            found.append(self._tell(self.said[:cut]))
            self.said, self.mid_line = self.said[cut:], True
        return found

    def pause(self) -> list[Fact]:
        """Return the text that was not returned yet, because something else comes now."""
        found: list[Fact] = [self._tell(self.said.rstrip("\n"))] if self.said.strip() else []
        self.voice = self.message = self.said = ""
        self.mid_line = False
        return found

    def _tell(self, text: str) -> Fact:
        make = facts.Text if self.voice == "text" else facts.Thought
        return make(text, message=self.message, part=self.mid_line)


class AcpState(msgspec.Struct, omit_defaults=True):
    """What must be known to interpret the next line."""

    phase: str = INITIALIZE
    next: int = INITIALIZE_ID + 1
    awaited: int | str = INITIALIZE_ID
    """The request whose response begins the next phase."""
    session: str = ""
    way: str = ""
    other_ways: list[str] = []
    keeps: bool = False
    """Whether the agent says that it keeps sessions and can resume them."""
    version: str = ""
    logins: str = ""
    turn: int = 0
    cost: float | None = None
    """The session's cost so far, as last reported; None while it is unknown where it began."""
    cost_before: float = 0.0
    """The same before this turn."""
    speech: Speech = msgspec.field(default_factory=Speech)
    tools: dict[str, str] = {}
    """The names of the tools of this turn that were announced and have no outcome."""
    questions: dict[str, list[Any]] = {}
    """Permissions that were asked for in this turn: the request's id, the option that allows, the one that refuses,
    whether it was answered, the option that allows for always. They stay after that, so that an answer can be
    repeated."""


class AcpConversation(Conversation[AcpState]):
    """One conversation with an agent that speaks the protocol."""

    memory = AcpState

    # --- hearing ---------------------------------------------------------------------------------------------

    def _understand(self, message: dict[str, Any], line: bytes) -> Interpreted | None:
        if "method" in message:
            params = as_object(message.get("params"))
            if "id" not in message:
                if message["method"] != "session/update":  # an extension, of which the agent expects nothing
                    return Interpreted([facts.Diagnostic.of(line)])
                return self._hear_update(params)
            if isinstance(message["id"], (int, str)) and len(str(message["id"])) <= ID_CHARS_MAX:  # a reply repeats it
                return self._hear_request(message["id"], message["method"], params, line)
        elif "id" in message and ("result" in message or "error" in message):
            return self._hear_response(message["id"], message)
        return None

    def _hear_response(self, id: Any, message: Object) -> Interpreted | None:
        is_awaited = type(id) is type(self._state.awaited) and id == self._state.awaited
        if self._state.phase == READY and isinstance(id, str) and id.startswith(SAY_PREFIX) and not is_awaited:
            self._begin_turn(id)  # asked by an engine that exited before it could record it
        elif not is_awaited or self._state.phase == READY:
            return None
        if message.get("error") is not None:
            return self._hear_error(as_object(message["error"]))
        result = as_object(message.get("result"))
        match self._state.phase:
            case "initialize":
                return self._initialized(result)
            case "open":
                return self._opened(result)
            case "model":
                return self._prompted()
            case "turn":
                return self._turn_ended(result)
        return None

    def _hear_error(self, error: Object) -> Interpreted:
        text = updates.error_text(error) or "the agent reports an error without a message"
        name = failure.from_words(text, status=updates.error_status(error))
        if error.get("code") == AUTH_REQUIRED:
            name = "login_expired"
            text += f"; it offers these logins: {self._state.logins}" if self._state.logins else ""
        if self._state.phase == OPEN and self._state.way != "new" and name in _LOST:
            return self._open()
        return self._give_up(name, text, ends=self._state.phase != TURN)

    def _initialized(self, result: Object) -> Interpreted:
        version = result.get("protocolVersion")
        if version != PROTOCOL_VERSION:
            why = f"the agent speaks version {str(version)[:20]} of the protocol, maos speaks {PROTOCOL_VERSION}"
            return self._give_up("start_failed", why)
        about = as_object(result.get("agentInfo"))
        self._state.version = f"{as_text(about.get('name'))} {as_text(about.get('version'))}".strip()[:100]
        logins = [as_text(each.get("name")) for each in as_objects(result.get("authMethods"))]
        self._state.logins = ", ".join(filter(None, logins))[:200]
        able = as_object(result.get("agentCapabilities"))
        ways = ["resume"] if as_object(able.get("sessionCapabilities")).get("resume") is not None else []
        ways += ["load"] if able.get("loadSession") is True else []
        self._state.keeps = bool(ways)
        self._state.other_ways = [*(ways if self._order.resume else []), "new"]
        return self._open()

    def _open(self) -> Interpreted:
        """Open the session in the best way that was not tried yet; the last is a new one, which gets the task anew."""
        self._state.phase, self._state.way = OPEN, self._state.other_ways.pop(0)
        servers = [
            {
                "name": server.name,
                "command": server.argv[0],
                "args": list(server.argv[1:]),
                "env": [{"name": name, "value": value} for name, value in server.env.items()],
            }
            for server in self._order.mcp
        ]
        params: dict[str, Any] = {"cwd": str(self._order.cwd), "mcpServers": servers}
        if self._state.way != "new":
            params["sessionId"] = self._order.session
        return Interpreted(replies=[self._ask(f"session/{self._state.way}", params)])

    def _opened(self, result: Object) -> Interpreted:
        is_new = self._state.way == "new"
        session_id = as_text(result.get("sessionId")) if is_new else self._order.session
        if not session_id or len(session_id) > SESSION_CHARS_MAX:
            return self._give_up("start_failed", "the agent opened a session without a usable id")
        self._state.session = session_id
        if is_new:
            self._state.cost = 0.0
        lost = self._order.session if is_new and self._order.resume else ""
        choice = _model_choice(result)
        current = as_text(choice.get("currentValue"))
        session = facts.SessionOpened(
            self._state.session,
            model=current,
            version=self._state.version,
            instead_of=lost,
            kept=self._state.keeps,
        )
        wanted = self._order.model
        if not wanted or wanted == current:
            return self._prompted([session])
        offered = _offered(choice)
        if wanted not in offered:
            instead = ", ".join(sorted(set(offered.values()))) or "no choice"
            given_up = self._give_up("start_failed", f"the agent has no model {wanted!r}; it offers {instead}"[:1000])
            return given_up._replace(facts=[session, *given_up.facts])
        self._state.phase = MODEL
        params = {"sessionId": self._state.session, "configId": choice.get("id"), "value": offered[wanted]}
        return Interpreted([session], [self._ask("session/set_config_option", params)])

    def _prompted(self, found: list[Fact] | None = None) -> Interpreted:
        """The first prompt of this process."""
        order = self._order
        text = order.task_anew if order.resume and self._state.way == "new" else order.task
        if self._state.way == "new" and order.guidance:
            text = f"{order.guidance}\n\n{text}"
        self._begin_turn(self._state.next)
        return Interpreted(found or [], [self._ask("session/prompt", self._prompt(text))])

    def _turn_ended(self, result: Object) -> Interpreted:
        found = self._state.speech.pause()
        reason = as_text(result.get("stopReason"))[:100]
        used = as_object(result.get("usage"))
        if used:
            found.append(
                facts.Usage(
                    self._turn_name(),
                    input=as_count(used.get("inputTokens")),
                    output=as_count(used.get("outputTokens")),
                    cache_read=as_count(used.get("cachedReadTokens")),
                    cache_write=as_count(used.get("cachedWriteTokens")),
                )
            )
        if reason in _STOPS:
            found.append(facts.Trouble(*_STOPS[reason]))
        found.append(facts.TurnEnded("", failed=reason != "end_turn", reason=reason))
        self._state.phase, self._state.questions, self._state.tools = READY, {}, {}
        return Interpreted(found)

    def _give_up(self, name: str, why: str, *, ends: bool = True) -> Interpreted:
        """Trouble; if there is no way on, the end of the input lets the agent go."""
        found = [
            *self._state.speech.pause(),
            facts.Trouble(name, why),
            facts.TurnEnded("", failed=True, reason="error"),
        ]
        self._state.phase, self._state.questions, self._state.tools = (OVER if ends else READY), {}, {}
        return Interpreted(found, [self.end()] if ends else [])

    def _hear_update(self, params: Object) -> Interpreted | None:
        update = as_object(params.get("update"))
        kind = update.get("sessionUpdate")
        if self._state.phase == OPEN:  # what it remembers: all of this was recorded when it happened
            if kind == "usage_update":
                self._cost_told(update)
                self._state.cost_before = self._state.cost or 0.0
            return Interpreted()
        if params.get("sessionId") != self._state.session:
            return None
        match kind:
            case "agent_message_chunk" | "agent_thought_chunk":
                voice = "text" if kind == "agent_message_chunk" else "thought"
                message = as_id(update.get("messageId"))
                words = updates.words_of(update.get("content"))
                return Interpreted(self._state.speech.hear(voice, message, words, turn=self._turn_name()))
            case "tool_call" | "tool_call_update":
                return self._tool_told(update, is_new=kind == "tool_call")
            case "plan" if isinstance(update.get("entries"), list):
                return Interpreted([*self._state.speech.pause(), updates.plan_fact(update)])
            case "usage_update":
                return self._cost_told(update)
        return Interpreted() if kind in updates.SILENT else None

    def _tool_told(self, update: Object, *, is_new: bool) -> Interpreted | None:
        """A tool that begins, continues or ends. One that only a request for permission announced is known already."""
        id = updates.tool_id(update)
        if not id:
            return None
        known = self._state.tools.pop(id, "")
        name = as_text(update.get("title")) or known or updates.tool_name(update)
        found = updates.tool_facts(update, name, is_new=is_new or not known)
        if not any(isinstance(each, facts.ToolResult) for each in found):
            self._note_tool(id, name)
        return Interpreted([*self._state.speech.pause(), *found])

    def _note_tool(self, id: str, name: str) -> None:
        while len(self._state.tools) >= TOOLS_MAX:
            del self._state.tools[next(iter(self._state.tools))]
        self._state.tools[id] = name[:ID_CHARS_MAX]

    def _cost_told(self, update: Object) -> Interpreted | None:
        """The session's cost so far becomes what this turn has cost so far."""
        cost = as_object(update.get("cost"))
        if not cost:
            return Interpreted()
        amount = as_number(cost.get("amount"))
        if amount is None or amount < 0 or cost.get("currency") != "USD":
            return None
        if self._state.cost is None or amount < self._state.cost_before:
            self._state.cost = self._state.cost_before = (
                amount  # a count that began before us, or anew: only what follows counts
            )
            return Interpreted()
        self._state.cost = amount
        return Interpreted([facts.Cost(round(amount - self._state.cost_before, 10), turn=self._turn_name())])

    def rest(self) -> list[Fact]:
        """What was said before the program ended in the middle of a line."""
        return self._state.speech.pause()

    # --- permissions -----------------------------------------------------------------------------------------

    def _hear_request(self, id: int | str, method: Any, params: Object, line: bytes) -> Interpreted:
        if method != "session/request_permission":
            error = {"code": METHOD_NOT_FOUND, "message": "maos does not offer this method"}
            return Interpreted([facts.Diagnostic.of(line)], [self._respond(id, {"error": error})])
        call = as_object(params.get("toolCall"))
        tool = updates.tool_id(call)
        name = as_text(call.get("title")) or self._state.tools.get(tool, "") or updates.tool_name(call)
        options = as_objects(params.get("options"))
        allow, refuse = option(options, "allow"), option(options, "reject")
        is_denied = self._order.permission == "deny" and not is_allowed(call, self._order)
        found = self._state.speech.pause()
        if tool and (tool not in self._state.tools or call.get("rawInput")):  # nothing else may tell it
            found.append(facts.ToolUse(tool, name, updates.tool_input(call) or None))
            self._note_tool(tool, name)
        if allow and is_allowed(call, self._order):
            return Interpreted(found, [self._respond(id, outcome(allow))])
        if is_denied or not allow or not self._has_room():
            why = "too many requests are open, or it offers no way to allow it"
            denied = facts.PermissionDenied(name, "its permission is deny" if is_denied else why, tool)
            return Interpreted([*found, denied], [self._respond(id, outcome(refuse))])
        question = str(self._state.next)
        self._state.next += 1
        self._state.questions[question] = [id, allow, refuse, False, option(options, "allow", ("always",))]
        choices = [
            {"id": as_text(each.get("optionId")), "name": as_text(each.get("name")), "kind": as_text(each.get("kind"))}
            for each in options
        ]
        request = updates.request_of(call)
        asked = facts.PermissionRequested(
            question,
            name,
            updates.tool_input(call) or None,
            choices or None,
            tool,
            rule_tool=request.tool,
            command=request.command,
        )
        return Interpreted([*found, asked])

    def _has_room(self) -> bool:
        """Whether one more question can be kept: the oldest that was answered makes room."""
        if len(self._state.questions) >= QUESTIONS_MAX:
            answered = [question for question, asked in self._state.questions.items() if asked[3]]
            for question in answered[:1]:
                del self._state.questions[question]
        return len(self._state.questions) < QUESTIONS_MAX

    # --- speaking --------------------------------------------------------------------------------------------

    def say(self, id: str, text: str) -> Reply | None:
        """The next prompt; None while a turn runs, for the protocol has no messages in between.

        Asked again for the message that is being answered, it gives the same bytes: another engine may repeat it.
        """
        request = SAY_PREFIX + id
        if self._state.phase == READY and request != self._state.awaited:
            self._begin_turn(request)
        elif self._state.phase != TURN or request != self._state.awaited:
            return None
        return Reply(id, _message({"id": request, "method": "session/prompt", "params": self._prompt(text)}))

    def answer(self, request: str, *, allow: bool, why: str = "", always: bool = False) -> Reply | None:
        """The answer to a permission that was asked for in this turn; given twice, it is the same."""
        if request not in self._state.questions:
            return None
        id, allowing, refusing, _, for_always = self._state.questions[request]
        self._state.questions[request] = [id, allowing, refusing, True, for_always]
        result = outcome((for_always if always and for_always else allowing) if allow else refusing)
        return Reply(f"permission/{request}", _message({"id": id, **result}))

    def end(self) -> Reply:
        """The end of its input, on which an agent leaves."""
        return Reply("acp/end", b"", closes=True)

    def _begin_turn(self, request: int | str) -> None:
        self._state.phase, self._state.awaited = TURN, request
        self._state.turn += 1
        self._state.cost_before = self._state.cost or 0.0

    def _turn_name(self) -> str:
        return f"{self._order.attempt}/{self._state.turn}"

    def _prompt(self, text: str) -> dict[str, Any]:
        words = text.encode("utf-8", "backslashreplace").decode()
        return {"sessionId": self._state.session, "prompt": [{"type": "text", "text": words}]}

    def _ask(self, method: str, params: Mapping[str, Any]) -> Reply:
        """A request of ours, whose response is waited for."""
        self._state.awaited, self._state.next = self._state.next, self._state.next + 1
        data = _message({"id": self._state.awaited, "method": method, "params": params})
        return Reply(f"acp/{self._state.awaited}", data)

    def _respond(self, id: int | str, outcome: Mapping[str, Any]) -> Reply:
        self._state.next += 1
        return Reply(f"acp/{self._state.next - 1}", _message({"id": id, **outcome}))


def initialize() -> bytes:
    """The first message: who we are, and that agents use files and terminals themselves."""
    capabilities = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
    params = {
        "protocolVersion": PROTOCOL_VERSION,
        "clientCapabilities": capabilities,
        "clientInfo": {"name": "maos", "title": "maos", "version": CLIENT_VERSION},
    }
    return _message({"id": INITIALIZE_ID, "method": "initialize", "params": params})


def _message(fields: Mapping[str, Any]) -> bytes:
    return as_json({"jsonrpc": "2.0", **fields}).encode() + b"\n"


def _model_choice(result: Object) -> Object:
    """The choice of the model, if the agent offers one."""
    options = as_objects(result.get("configOptions"))
    chosen = [each for each in options if each.get("category") == "model" and as_text(each.get("id"))]
    return chosen[0] if chosen else {}


def _offered(choice: Object) -> dict[str, str]:
    """The models by every name they have: the agent's value for each, and the name it shows."""
    found: dict[str, str] = {}
    groups = as_objects(choice.get("options"))
    for each in groups + [inner for group in groups for inner in as_objects(group.get("options"))]:
        value = as_text(each.get("value"))
        if value:
            found.setdefault(as_text(each.get("name")) or value, value)
    return found | {value: value for value in found.values()}
