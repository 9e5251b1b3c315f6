"""The scripted agents of the demonstration: plain programs that print, write files, and use the tools of maos.

Started as `python -P -m maos_demo.agents ROLE NOTES PAUSE_S` in the folder they work in. Each writes notes about itself
into a file that maos does not know: a line of JSON before it prints a line or sends a message, and after it has read
one or written a file.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import time
import unittest
from pathlib import Path

from maos_demo import sample

TYPE_CHECKING = False  # an agent is a plain script, and starts quickly
if TYPE_CHECKING:
    from typing import Any

WAIT_S = 100.0
"""How long to wait for a message or an answer."""
_HEADING = re.compile(r"Message (?P<id>\S+) from (?P<sender>\S+) \(")


class ToolClient:
    """The tools of one agent: starts `maos mcp`, and exchanges lines of JSON with it, as agent programs do."""

    def __init__(self) -> None:
        command = [sys.executable, "-P", "-m", "maos.mcp"]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._number = 0
        self._send("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "demo"}})

    def call(self, tool: str, **arguments: Any) -> str:
        """Use a tool, and return its answer."""
        result = self._send("tools/call", {"name": tool, "arguments": arguments})
        text: str = result["content"][0]["text"]
        if result.get("isError"):
            raise RuntimeError(f"{tool}: {text}")
        return text

    def close(self) -> None:
        """End the tool server."""
        self._server.communicate(timeout=30)

    def _send(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self._server.stdin.write(f"{json.dumps(request)}\n")
        self._server.stdin.flush()
        answer: dict[str, Any] = json.loads(self._server.stdout.readline() or '{"error": "the server has exited"}')
        if "result" not in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result


class DemoAgent:
    """One agent at work."""

    def __init__(self, notes: str, pause_s: float) -> None:
        self._notes = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._pause_s = pause_s
        self._lines = 0
        self._unread: list[str] = []
        self._note(began=os.getpid())
        self._tools = ToolClient()

    def _note(self, **note: object) -> None:
        """Write one note; it is in the file when this returns, whichever process is killed then."""
        os.write(self._notes, json.dumps(note).encode() + b"\n")

    def say(self, text: str) -> None:
        """Print a line after some work. Each has a number, so no two are alike."""
        time.sleep(self._pause_s)
        self._lines += 1
        line = f"{self._lines:03} {text}"
        self._note(line=line)
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    def write(self, path: str, text: str) -> None:
        """Write a file."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text, encoding="utf-8")
        self._note(file=path, sha256=hashlib.sha256(text.encode()).hexdigest())
        self.say(f"wrote {path}, {len(text.splitlines())} lines")

    def discover(self, text: str) -> None:
        """Report a discovery to all other agents."""
        self.say(f"found: {text}")
        self._note(sent=text, to="")
        self._tools.call("report_discovery", text=text, keyword="found")

    def send(self, to: str, text: str, *, type: str = "info") -> None:
        """Send a message to one other agent."""
        self.say(f"to {to}: {text}")
        self._note(sent=text, to=to)
        self._tools.call("send_message", to=to, text=text, type=type)

    def receive(self, beginning: str) -> str:
        """Wait for the first unread message that contains some words, and return what follows them."""
        until_s = time.monotonic() + WAIT_S
        while True:
            for text in self._unread:
                if beginning in text:
                    self._unread.remove(text)
                    return text.partition(beginning)[2]
            if time.monotonic() > until_s:
                raise RuntimeError(f"no message says {beginning!r}")
            self._read(until_s - time.monotonic())

    def receive_all(self, beginning: str) -> list[str]:
        """Return what follows some words in all unread messages that begin with them."""
        self._read(0)
        found = [text for text in self._unread if text.startswith(beginning)]
        self._unread = [text for text in self._unread if text not in found]
        return [text.removeprefix(beginning) for text in found]

    def _read(self, wait_s: float) -> None:
        output = self._tools.call("read_messages", wait_s=max(0.0, wait_s))
        for block in output.split("\n\n") if output != "no messages" else ():
            heading, _, rest = block.partition("\n")
            found = _HEADING.match(heading)  # the words of another agent are quoted below a heading, a person's are not
            lines = [line.removeprefix("> ") for line in rest.splitlines()]
            text = "\n".join(line for line in lines if not line.startswith("metadata: ")) if found else block
            sender = found["sender"] if found else "person"
            self._note(**{"got": found["id"] if found else "", "from": sender, "text": text})
            self.say(f"from {sender.rpartition('.')[2]}: {text}")
            self._unread.append(text)

    def ask(self, question: str, choices: list[str], context: str) -> str:
        """Ask a person, and return the answer."""
        self._note(asked=question)
        self.say(f"asks: {question}")
        output = self._tools.call("ask_person", question=question, choices=choices, context=context, wait_s=WAIT_S)
        answer = output.rpartition(": ")[2]
        self._note(answer=answer)
        self.say(f"the answer is {answer}")
        return answer

    def finish(self, result: str) -> None:
        """Report the result. This call also acknowledges all messages that were read before it."""
        self._tools.call("report_progress", percent=100, activity="done")
        self._tools.close()
        self.say(f"result: {result}")
        self._note(ended=True)


# --- the roles ---------------------------------------------------------------------------------------------------


def analyst(agent: DemoAgent) -> None:
    """Read the code function by function, report what is wrong, and write an inventory."""
    rows = []
    code = {path: path.read_text(encoding="utf-8") for path in sorted(Path("till").glob("*.py"))}
    for path, text in code.items():
        for number, line in enumerate(text.splitlines(), 1):
            if "TODO" in line:
                agent.discover(f"{sample.UNDECIDED}{path}:{number} {line.strip()}")
    for path, text in code.items():
        agent.say(f"reads {path}, {len(text.splitlines())} lines")
        for function in [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]:
            where, callers = f"{path}:{function.lineno} {function.name}", _callers(code, function.name)
            agent.say(f"{where}: {len(function.args.args)} arguments")
            if ast.get_docstring(function) is None:
                agent.discover(f"{sample.NO_DOCSTRING}{where}")
            for node in function.body:
                agent.say(f"{where}: line {node.lineno}, {type(node).__name__.lower()}")
            agent.say(f"{where}: called from {callers}")
            rows.append(f"| `{function.name}` | {path} | {len(function.args.args)} | {callers} |")
    agent.discover(f"{sample.ALL_FOUND}{len(rows)} functions in {len(code)} files")
    title = "# Functions\n\n| function | file | arguments | called from |\n|---|---|---|---|\n"
    agent.write(sample.INVENTORY, title + "\n".join(rows) + "\n")
    agent.receive(sample.UNTESTED)
    name = agent.receive(sample.WHO_CALLS).rstrip("?")
    agent.send("developer", f"{name}{sample.CALLED_FROM}{_callers(code, name)}", type="response")
    agent.finish(f"{len(rows)} functions listed in {sample.INVENTORY}")


def _callers(code: dict[Path, str], name: str) -> str:
    """The files that call a function."""
    return ", ".join(path.name for path, text in code.items() if re.search(rf"(?<!def )\b{name}\(", text)) or "nowhere"


def developer(agent: DemoAgent) -> None:
    """Document what the analyst finds undocumented, ask how to round, and change the code accordingly."""
    agent.say("waits for what the analyst finds")
    rule = agent.ask(sample.QUESTION, list(sample.ROUNDING), agent.receive(sample.UNDECIDED))
    agent.send("analyst", f"{sample.WHO_CALLS}share?", type="request")
    for awaited in (sample.CALLED_FROM, sample.ALL_FOUND, sample.UNTESTED):
        agent.receive(awaited)
    for where in agent.receive_all(sample.NO_DOCSTRING):
        path, function = re.sub(r":\d+", "", where).split(" ")
        code = Path(path).read_text(encoding="utf-8")
        docstring = rf'\g<0>    """Return the {function.replace("_", " ")}."""\n'
        agent.write(path, re.sub(rf"def {function}\(.*\n", docstring, code))
    agent.receive("Answer to your question")  # the same answer, now in its inbox
    code = Path("till/money.py").read_text(encoding="utf-8")
    agent.write("till/money.py", code.replace(sample.UNDECIDED_CODE, sample.ROUNDING[rule]))
    agent.send("tester", f"{sample.RULE}{rule}", type="coordination")
    agent.receive(sample.TESTED)
    agent.finish(f"till/ is documented, and rounds {rule}")


def tester(agent: DemoAgent) -> None:
    """Write tests for the till, and one for the rule of rounding when the developer reports it."""
    sys.path.insert(0, "")  # the code that it tests is in the folder it works in
    functions = sum(path.read_text(encoding="utf-8").count("\ndef ") for path in Path("till").glob("*.py"))
    agent.discover(f"{sample.UNTESTED}all {functions} functions; there are no tests yet")
    count = 0
    for path, text in sample.TESTS.items():
        count += _write_tests(agent, path, text)
        tests = unittest.defaultTestLoader.loadTestsFromName(path.removesuffix(".py").replace("/", "."))
        result = unittest.TextTestRunner(stream=io.StringIO()).run(tests)
        agent.say(f"runs {path}: {result.testsRun} run, {len(result.failures) + len(result.errors)} failed")
    agent.receive(sample.ALL_FOUND)
    rule = agent.receive(sample.RULE)
    count += _write_tests(agent, "tests/test_rounding.py", sample.rounding_test(rule))
    agent.send("developer", f"{sample.TESTED}{count} tests, also of rounding {rule}", type="response")
    agent.finish(f"{count} tests in tests/")


def _write_tests(agent: DemoAgent, path: str, text: str) -> int:
    names = re.findall(r"def test_(\w+)", text)
    for name in names:
        agent.say(f"{path}: {name.replace('_', ' ')}")
    agent.write(path, text)
    return len(names)


if __name__ == "__main__":
    _role, _notes, _pause_s = sys.argv[1:]
    {"analyst": analyst, "developer": developer, "tester": tester}[_role](DemoAgent(_notes, float(_pause_s)))
