"""The tester: writes tests for the till, and one for the rule of rounding once it is told which it is."""

from __future__ import annotations

import io
import unittest
from pathlib import Path

from maos.demo.agent import DemoAgent
from maos.demo.sample import ALL_FOUND, RULE, TESTED, TESTS, UNTESTED, rounding_test


def main() -> None:
    """Do its task."""
    agent = DemoAgent()
    count = 0

    def write(path: str, text: str) -> int:
        tests = [line.strip() for line in text.splitlines() if line.strip().startswith("def test_")]
        for each in tests:
            agent.say(f"{path}: {each[9:].partition('(')[0].replace('_', ' ')}")
        agent.write(path, text)
        return len(tests)

    functions = sum(path.read_text(encoding="utf-8").count("\ndef ") for path in Path("till").glob("*.py"))
    agent.discover(f"{UNTESTED}all {functions} functions; there are no tests yet")
    for path, text in TESTS.items():
        count += write(path, text)
        agent.say(f"runs {path}: {_run(path)}")
    agent.hear(lambda text: text.startswith(ALL_FOUND))
    rule = agent.hear(lambda text: text.startswith(RULE)).removeprefix(RULE)
    count += write("tests/test_rounding.py", rounding_test(rule))
    agent.tell("developer", f"{TESTED}{count} tests, also of rounding {rule}", type="response")
    agent.finish(f"{count} tests in tests/")


def _run(path: str) -> str:
    """How the tests of a file go, in the tester's own folder."""
    name = Path(path).with_suffix("").as_posix().replace("/", ".")
    result = unittest.TextTestRunner(stream=io.StringIO()).run(unittest.defaultTestLoader.loadTestsFromName(name))
    return f"{result.testsRun} run, {len(result.failures) + len(result.errors)} failed"


if __name__ == "__main__":
    import sys

    sys.path.insert(0, "")  # the code that it tests is in the folder it works in
    main()
