"""The analyst: reads the code function by function, tells the others what it finds, and writes an inventory."""

from __future__ import annotations

import ast
from pathlib import Path

from maos.demo.agent import DemoAgent
from maos.demo.sample import ALL_FOUND, INVENTORY, NO_DOCSTRING, UNDECIDED, UNTESTED, WHO_CALLS


def main() -> None:
    """Do its task."""
    agent = DemoAgent()
    rows = []
    code = {path: path.read_text(encoding="utf-8") for path in sorted(Path("till").glob("*.py"))}
    for path, text in code.items():
        for number, line in enumerate(text.splitlines(), 1):
            if "TODO" in line:
                agent.discover(f"{UNDECIDED}{path}:{number} {line.strip()}")
    for path, text in code.items():
        agent.say(f"reads {path}, {len(text.splitlines())} lines")
        for function in [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]:
            place = f"{path}:{function.lineno} {function.name}"
            agent.say(f"{place}: {len(function.args.args)} arguments")
            if ast.get_docstring(function) is None:
                agent.discover(f"{NO_DOCSTRING}{place}")
            for node in function.body:
                agent.say(f"{place}: line {node.lineno}, {type(node).__name__.lower()}")
            agent.say(f"{place}: called from {_callers(code, function.name)}")
            rows.append(f"| `{function.name}` | {path} | {len(function.args.args)} | {_callers(code, function.name)} |")
    agent.discover(f"{ALL_FOUND}{len(rows)} functions in {len(code)} files")
    title = "# Functions\n\n| function | file | arguments | called from |\n|---|---|---|---|\n"
    agent.write(INVENTORY, title + "\n".join(rows) + "\n")
    agent.hear(lambda text: text.startswith(UNTESTED))
    asked = agent.hear(lambda text: text.startswith(WHO_CALLS))
    name = asked.removeprefix(WHO_CALLS).rstrip("?")
    agent.tell("developer", f"{name} is called from {_callers(code, name)}", type="response")
    agent.finish(f"{len(rows)} functions listed in {INVENTORY}")


def _callers(code: dict[Path, str], name: str) -> str:
    """The files that call a function."""
    found = [
        path.name
        for path, text in code.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and name in (getattr(node.func, "id", ""), getattr(node.func, "attr", ""))
    ]
    return ", ".join(dict.fromkeys(found)) or "nowhere"


if __name__ == "__main__":
    main()
