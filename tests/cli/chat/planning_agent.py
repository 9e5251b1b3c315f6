"""A small agent that speaks the Agent Client Protocol: it plans when it is asked to, and does small tasks.

What a task tells it decides: `until FILE` waits for a file, `may I COMMAND` asks to be allowed something. It
writes what it is told into `heard`, in the folder it is given.
"""

import json
import sys
import time
from pathlib import Path

TWO = [
    {"name": "api", "task": "until api.go", "agent": "developer"},
    {"name": "docs", "task": "write", "agent": "developer", "needs": ["api"]},
]
ONE = [{"name": "only", "task": "may I rm -rf build", "agent": "developer"}]


def send(**message: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    send(method="session/update", params={"sessionId": "s1", "update": update})


def ask(command: str) -> str:
    call = {"toolCallId": "call1", "title": "Run", "kind": "execute", "rawInput": {"command": command}}
    options = [{"optionId": each, "name": each, "kind": f"{each}_once"} for each in ("allow", "reject")]
    params = {"sessionId": "s1", "toolCall": call, "options": options}
    send(id="ask1", method="session/request_permission", params=params)
    return str(json.loads(sys.stdin.readline())["result"]["outcome"].get("optionId"))


def do(told: str) -> str:
    folder = Path(sys.argv[1])
    if "wants this change of the plan" in told:
        return json.dumps({"summary": "Smaller", "tasks": ONE})
    if "Plan this piece of work" in told:
        if "slowly" in told:
            (folder / "planning").touch()
            while not (folder / "plan.go").exists():
                time.sleep(0.02)
        return json.dumps({"summary": "Two steps", "tasks": TWO})
    with (folder / "heard").open("a") as heard:
        heard.write(told.replace("\n", " ") + "\n")
    if "until " in told:
        say("found: a door\n")
        while not (folder / told.partition("until ")[2].split()[0]).exists():
            time.sleep(0.02)
    if "may I " in told:
        return f"answered {ask(told.partition('may I ')[2].splitlines()[0])}"
    return "done"


def main() -> None:
    while line := sys.stdin.readline():
        message = json.loads(line)
        match message.get("method"):
            case "initialize":
                send(id=message["id"], result={"protocolVersion": 1, "agentCapabilities": {}, "authMethods": []})
            case "session/new":
                send(id=message["id"], result={"sessionId": "s1"})
            case "session/prompt":
                say(do("\n".join(str(each.get("text", "")) for each in message["params"]["prompt"])))
                send(id=message["id"], result={"stopReason": "end_turn"})


main()
