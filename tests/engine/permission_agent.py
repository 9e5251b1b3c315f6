"""A small agent of the Agent Client Protocol that asks to be allowed commands, and notes the answers.

python permission_agent.py EFFECTS COMMAND...        a COMMAND of - is one of which it does not say what it is

It asks for one after the other, and appends a line with the number of the command and the answer to the file EFFECTS.
"""

import json
import sys

OPTIONS = [
    {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
    {"optionId": "ever", "name": "Always", "kind": "allow_always"},
    {"optionId": "no", "name": "Refuse", "kind": "reject_once"},
]


def send(**message: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def ask(number: int, command: str) -> None:
    given = {} if command == "-" else {"rawInput": {"command": command}}
    call = {"toolCallId": f"t{number}", "title": "Run", "kind": "execute", **given}
    params = {"sessionId": "s1", "toolCall": call, "options": OPTIONS}
    send(id=f"ask{number}", method="session/request_permission", params=params)
    reply = json.loads(sys.stdin.readline())
    with open(sys.argv[1], "a", encoding="utf-8") as file:
        file.write(f"{number} {reply['result']['outcome'].get('optionId', 'cancelled')}\n")


def main() -> None:
    while line := sys.stdin.readline():
        message = json.loads(line)
        match message.get("method"):
            case "initialize":
                send(id=message["id"], result={"protocolVersion": 1, "agentCapabilities": {}, "authMethods": []})
            case "session/new":
                send(id=message["id"], result={"sessionId": "s1"})
            case "session/prompt":
                for number, command in enumerate(sys.argv[2:], 1):
                    ask(number, command)
                send(id=message["id"], result={"stopReason": "end_turn"})


if __name__ == "__main__":
    main()
