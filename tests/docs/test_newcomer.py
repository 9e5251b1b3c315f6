"""A person who has never seen maos gets from the README to a merged run of Claude Code on a project of their own.

What they type is what the README shows, on a terminal; the program is the real one, its model is scripted.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from maos_testing.model_stub import ModelStub, ScriptStep, ToolCall
from tests.cli.conftest import Terminal
from tests.docs.documents import ROOT
from tests.workspaces.repositories import repository, write

SECTION = "## Use it on your project\n"
PLAN = {
    "summary": "Two steps",
    "tasks": [
        {"name": "option", "task": "Add the option --shout, with a test. SCRIPT=option", "agent": "developer"},
        {"name": "docs", "task": "Describe it in README.md. SCRIPT=docs", "agent": "developer", "needs": ["option"]},
    ],
}
PROGRAM = 'import sys\n\nname = sys.argv[-1]\nprint(f"HELLO {name}" if "--shout" in sys.argv else f"Hello {name}")\n'
TEST = "import unittest\n\n\nclass Test(unittest.TestCase):\n    def test_it(self):\n        pass\n"


def call(tool: str, **given: str) -> ScriptStep:
    return ScriptStep(text="I do it.", calls=[ToolCall(name=tool, input=given)])


SCRIPTS = {
    "default": [
        call("Glob", pattern="*"),
        ScriptStep(text=f"```json\n{json.dumps(PLAN)}\n```"),
    ],
    "option": [
        call("Write", file_path="hello.py", content=PROGRAM),
        call("Write", file_path="test_hello.py", content=TEST),
        call("Bash", command="python3 hello.py --shout you", description="Try it"),
        call("Bash", command="python3 -m unittest", description="Run the tests"),
        ScriptStep(text="The option is there."),
    ],
    "docs": [
        call("Write", file_path="README.md", content="    python3 hello.py --shout you\n"),
        ScriptStep(text="It is described."),
    ],
}


def typed() -> tuple[list[str], str]:
    """The commands of the section, and what is answered to the plan."""
    _before, found, section = (ROOT / "README.md").read_text().partition(SECTION)
    assert found, "the README has no section for a project of one's own"
    section = section.partition("\n## ")[0]
    commands = re.findall(r"^\$ (.+)$", section, re.MULTILINE)
    [answer] = re.findall(r"^run this plan\? .* › (.+)$", section, re.MULTILINE)
    return commands, answer


def words_of(command: str, run: str) -> list[str]:
    """The arguments of a command of maos, with the id of the run for the one in the text."""
    shell = ["sh", "-c", f'printf "%s\\n" {command}']
    words = subprocess.run(shell, capture_output=True, text=True, check=True).stdout.splitlines()
    assert words[0] == "maos"
    return [re.sub(r"^r-[0-9a-f]{6}$", run, word) for word in words[1:]]


@pytest.mark.timeout(300)
async def test_the_readme_leads_to_a_merged_run_of_claude_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = repository(tmp_path / "your-project", {"hello.py": 'import sys\n\nprint(f"Hello {sys.argv[1]}")\n'})
    commands, answer = typed()
    assert [each.split()[:2] for each in commands] == [
        ["cd", "your-project"],
        ["maos", "run"],
        ["maos", "diff"],
        ["maos", "merge"],
    ]
    async with ModelStub(SCRIPTS) as stub:
        for name in [each for each in os.environ if each.startswith(("ANTHROPIC_", "CLAUDE_", "MAOS_"))]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
        write(tmp_path / "gitconfig", "[user]\n\tname = you\n\temail = you@localhost\n")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", stub.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-the-test")
        monkeypatch.chdir(project)
        await asyncio.to_thread(follow, commands, answer)
    log = subprocess.run(["git", "log", "--format=%s"], capture_output=True, text=True, check=True).stdout
    assert log.splitlines()[:2] == [f"docs: {PLAN['tasks'][1]['task']}", f"option: {PLAN['tasks'][0]['task']}"]  # type: ignore[index]
    said = subprocess.run([sys.executable, "hello.py", "--shout", "you"], capture_output=True, text=True, check=True)
    assert said.stdout == "HELLO you\n"


def follow(commands: list[str], answer: str) -> None:
    """Type what the README says, and answer what a person is asked."""
    _cd, start, look, merge = commands
    screen = Terminal(*words_of(start, ""))
    try:
        screen.wait_for("run this plan? yes, no, edit, or what to change ›")
        screen.type(f"{answer}\r")
        screen.wait_for("yes, no, always or never ›")
        screen.type("yes\r")
        assert screen.end() == 0, screen.shown
    finally:
        screen.close()
    assert "option · uses Bash python3 -m unittest" in screen.words, "the usual test commands need no answer"
    [run] = set(re.findall(r"maos merge (r-[0-9a-f]{6})", screen.words))
    for command in (look, merge):
        done = subprocess.run(
            [sys.executable, "-m", "maos", *words_of(command, run)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "option: Add the option --shout" in done.stdout
