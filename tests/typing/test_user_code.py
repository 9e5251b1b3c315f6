"""What users write with `@maos.step` and `@maos.workflow` type-checks, and keeps the types of their results."""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAMPLE = Path(__file__).with_name("workflows.py")


@pytest.mark.timeout(300)  # the first time, mypy reads all of maos
def test_mypy_finds_the_mistakes_of_a_user_and_nothing_else() -> None:
    """By `mypy --strict`, as a user runs it on a file of his own."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(SAMPLE)]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert _found(output) == _planted(), output


def _found(output: str) -> dict[int, set[str]]:
    errors: dict[int, set[str]] = defaultdict(set)
    for line, code in re.findall(r"workflows\.py:(\d+): error: .*(\[[a-z-]+\])$", output, re.MULTILINE):
        errors[int(line)].add(code)
    return errors


def _planted() -> dict[int, set[str]]:
    lines = enumerate(SAMPLE.read_text(encoding="utf-8").splitlines(), 1)
    return {number: set(re.findall(r"\[[a-z-]+\]", line.partition("# error:")[2])) for number, line in lines
            if "# error: [" in line}  # fmt: skip
