"""A small agent that speaks the Agent Client Protocol: it says something, asks to be allowed a tool, and tells."""

import json
import sys


def send(**message: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def update(**what: object) -> None:
    send(method="session/update", params={"sessionId": "s1", "update": what})


def hear() -> dict[str, object]:
    return json.loads(sys.stdin.readline())  # type: ignore[no-any-return]


def ask(number: int, command: str) -> str:
    """Ask to be allowed to run something; `allow` or `reject`."""
    call = {"toolCallId": f"call{number}", "title": "Run", "kind": "execute", "rawInput": {"command": command}}
    update(sessionUpdate="tool_call", status="pending", **call)
    options = [{"optionId": f"{each}_it", "name": each, "kind": f"{each}_once"} for each in ("allow", "reject")]
    send(
        id=f"ask{number}",
        method="session/request_permission",
        params={"sessionId": "s1", "toolCall": call, "options": options},
    )
    reply = hear()
    outcome = reply["result"]["outcome"]  # type: ignore[index]
    update(sessionUpdate="tool_call_update", toolCallId=f"call{number}", status="completed")
    return str(outcome.get("optionId", "cancelled"))


def main() -> None:
    while line := sys.stdin.readline():
        message = json.loads(line)
        match message.get("method"):
            case "initialize":
                send(id=message["id"], result={"protocolVersion": 1, "agentCapabilities": {}, "authMethods": []})
            case "session/new":
                send(id=message["id"], result={"sessionId": "s1"})
            case "session/prompt":
                update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "I look around.\n"})
                answers = [ask(number, command) for number, command in enumerate(sys.argv[1:], 1)]
                said = f"answered {' '.join(answers)}"
                update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": said})
                send(id=message["id"], result={"stopReason": "end_turn"})


main()
