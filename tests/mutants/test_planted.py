"""The list of planted bugs fits the code as it is, and what tries them out tells outcomes apart."""

import ast
import io
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutants import heard, planted, trial
from tests.mutants.__main__ import execute
from tests.mutants.planted import PROJECT, Mutant

PARTS = {
    "agents", "bus", "cli", "engine", "holder", "journal", "keys", "maos_demo", "maos_import_legacy", "mcp", "model",
    "redact.py", "settings", "state", "store", "transfer", "travel", "views", "workflows", "workspaces",
}  # fmt: skip


def test_every_bug_of_the_list_can_be_planted() -> None:
    """Its old text is in the file once, and what comes of it can still be read by Python."""
    wrong = []
    for mutant in planted.read():
        path = PROJECT / mutant.file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if text.count(mutant.old) != 1:
            wrong.append(f"{mutant.name}: its old text is {text.count(mutant.old)} times in {mutant.file}")
        elif path.suffix == ".py":
            ast.parse(text.replace(mutant.old, mutant.new), mutant.name)
    assert wrong == [], "bring tests/mutants up to date with what you changed, then `make mutants`"


def test_every_test_that_the_list_names_exists(request: pytest.FixtureRequest) -> None:
    """What this run has collected itself is not collected again."""
    here = {part for item in request.session.items for part in _parts(item.nodeid)}
    tests = sorted({test for mutant in planted.read() for test in mutant.tests} - here)
    if not tests:
        return
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *tests]
    found = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-2000:]


def _parts(nodeid: str) -> Iterator[str]:
    """The names by which a test can be asked for: its file, itself, and itself with and without parameters."""
    yield nodeid
    yield nodeid.partition("::")[0]
    yield nodeid.partition("[")[0]


def test_every_part_of_the_project_has_bugs() -> None:
    found = [mutant.file.split("/") for mutant in planted.read()]
    assert {parts[3] if parts[0] == "distributions" else parts[2] for parts in found} >= PARTS


def test_bugs_are_chosen_by_name_or_part() -> None:
    every = planted.read()
    assert planted.chosen(every, []) == every
    assert {mutant.name.split("/")[0] for mutant in planted.chosen(every, ["bus"])} == {"bus"}
    assert [mutant.name for mutant in planted.chosen(every, [every[0].name])] == [every[0].name]
    with pytest.raises(planted.Wrong, match="no planted bug is called nothing"):
        planted.chosen(every, ["nothing"])


SETTINGS = """
[tool.pytest.ini_options]
asyncio_default_fixture_loop_scope = "function"
"""
SOURCE = """
def double(n):
    return 2 * n  # times two
"""
TESTS = """
import subprocess, sys
import pytest
from maos import double

@pytest.fixture
def four():
    return {2: 4}[2] if double(1) == 2 else 1 / 0

def test_here():
    assert double(2) == 4

def test_in_a_process_without_an_environment():
    code = "import maos; print(maos.double(2))"
    done = subprocess.run([sys.executable, "-c", code], env={}, capture_output=True, text=True)
    assert done.stdout == "4\\n"

def test_with_a_fixture(four):
    assert four == 4

@pytest.mark.skip
def test_skipped():
    pass

def test_that_fails_anyway():
    assert False
"""


@pytest.mark.soak
def test_outcomes_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small project in the place of ours; processes with a clean environment import the copy too."""
    project = tmp_path / "project"
    for name, text in (
        ("src/maos/__init__.py", SOURCE),
        ("tests/test_it.py", TESTS),
        ("pyproject.toml", SETTINGS),
    ):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    (project / "tests/mutants").mkdir()
    shutil.copy(heard.__file__, project / "tests/mutants")
    monkeypatch.setattr(trial, "TEST_S_MAX", 3)

    def bug(name: str, new: str, test: str = "test_here", old: str = "2 * n") -> Mutant:
        return Mutant(
            f"x/{name}",
            "two times is not three times",
            "src/maos/__init__.py",
            old,
            new,
            (f"tests/test_it.py::{test}",),
        )

    bugs = [
        bug("caught-elsewhere", "3 * n", "test_in_a_process_without_an_environment"),
        bug("survives", "n * 2"),
        bug("is-an-error-before-the-test", "3 * n", "test_with_a_fixture"),
        bug("hangs", """__import__("time").sleep(60) or n"""),
        bug("does-not-apply", "3 * n", old="4 * n"),
        bug("has-a-skipped-test", "3 * n", "test_skipped"),
        bug("has-a-bad-test", "3 * n", "test_that_fails_anyway"),
    ]
    said = io.StringIO()
    found = {each.mutant.name[2:]: each for each in execute(project, bugs, 1, said)}
    assert {name: each.outcome for name, each in found.items()} == {
        "caught-elsewhere": "caught",
        "survives": "SURVIVED",
        "is-an-error-before-the-test": "broken",
        "hangs": "timed out",
        "does-not-apply": "does not apply",
        "has-a-skipped-test": "skipped",
        "has-a-bad-test": "no verdict",
    }
    assert [name for name, each in found.items() if each.good] == ["caught-elsewhere", "has-a-skipped-test"]
    assert found["caught-elsewhere"].said == "tests/test_it.py::test_in_a_process_without_an_environment"
    assert "SURVIVED: x/survives: two times is not three times" in said.getvalue()
    assert (project / "src/maos/__init__.py").read_text() == SOURCE, "the project itself is never touched"
