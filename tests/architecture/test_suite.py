"""The suite itself: what must not be taken out of it without anybody noticing."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"

KINDS = {
    "units": ["model", "settings"],
    "parts together": ["journal", "state", "bus", "engine", "runs", "workflows", "travel"],
    "end to end": ["cli", "demo", "mcp", "docs"],
    "properties": ["stateful", "interleaving"],
    "crashes": ["crash", "regressions"],
    "the same for every store": ["store"],
}
CORRUPTION = {
    "bits of the database, the log and snapshots": "crash/test_bit_flips.py",
    "a log that was cut off, an older copy put back": "crash/test_lost_ends.py",
    "what was not synced when the power went": "crash/test_power_cut.py",
    "writes and syncs that fail": "crash/test_failing_disk.py",
    "a disk that is full": "crash/test_full_disk.py",
    "hostile bodies of events": "journal/test_hostile_bytes.py",
    "bytes of bundles": "transfer/test_file.py",
    "checkpoints of workflows": "workflows/test_checkpoints.py",
    "everything that verification names": "state/test_verify.py",
}
DAMAGES = re.compile(r"flip|\^=|truncat|corrupt|damage|tamper|hostile|torn|cut|fail|full", re.IGNORECASE)


def test_less_than_nine_tenths_of_the_code_covered_fails_the_coverage_of_each_change() -> None:
    """R-1008: of all of maos, in the processes that tests start too, in a job of its own."""
    makefile = (ROOT / "Makefile").read_text()
    least = re.search(r"^COVERAGE_PERCENT_MIN := (\d+)$", makefile, re.MULTILINE)
    assert least is not None
    assert int(least[1]) >= 90
    recipe = makefile.partition("\ncoverage:")[2].partition("\n\n")[0]
    assert "--cov-fail-under=$(COVERAGE_PERCENT_MIN)" in recipe
    beside = sorted(each.relative_to(ROOT) for each in (ROOT / "distributions").iterdir())
    run = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["coverage"]["run"]
    assert run["source"] == ["src/maos", *(f"{each}/src/{each.name.replace('-', '_')}" for each in beside)]
    assert "subprocess" in run["patch"]
    assert "omit" not in run
    assert re.search(r"^make test$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert "- run: make coverage\n" in (ROOT / ".github" / "workflows" / "ci.yml").read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_there_are_tests_of_every_kind(kind: str) -> None:
    """R-1008."""
    for folder in KINDS[kind]:
        found = [path for path in (TESTS / folder).rglob("test_*.py") if "def test_" in path.read_text()]
        assert found, f"tests/{folder} has no tests"


@pytest.mark.parametrize("what", CORRUPTION)
def test_every_kind_of_corruption_has_its_tests(what: str) -> None:
    """R-1008: things that are spoilt on purpose, and looked at afterwards."""
    text = (TESTS / CORRUPTION[what]).read_text()
    assert re.search(r"def test_", text)
    assert DAMAGES.search(text), f"{CORRUPTION[what]} does not damage anything"


def test_editors_and_hooks_do_what_make_check_does() -> None:
    """As wide as ruff allows; hooks are the tools of the environment, and fetch nothing."""
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]
    assert f"max_line_length = {ruff['line-length']}\n" in (ROOT / ".editorconfig").read_text()
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    assert re.findall(r"repo: (.+)", hooks) == ["local"]
    entries = [each.removeprefix(".venv/bin/") for each in re.findall(r"entry: (.+)", hooks)]
    recipe = (ROOT / "Makefile").read_text().partition("\ncheck:")[2].partition("\n\n")[0]
    recipe = recipe.replace("$(PY) ", "python ").replace("$(VENV)/bin/", "")
    for entry in entries:
        assert f"@{entry}" in recipe, f"`make check` does not run {entry}"
    assert len(entries) == recipe.count("@echo")


@pytest.mark.parametrize("name", ["SECURITY.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"])
def test_what_a_stranger_looks_for_is_there(name: str) -> None:
    assert len((ROOT / name).read_text()) > 500


def test_importing_a_test_changes_no_constant_of_maos() -> None:
    """A program that tests start shortens leases for itself; imported, it would shorten them for every other test."""
    found = [
        f"{path.relative_to(ROOT)}:{statement.lineno}"
        for path in TESTS.rglob("*.py")
        for statement in ast.parse(path.read_text()).body
        if isinstance(statement, ast.Assign) and any(isinstance(each, ast.Attribute) for each in statement.targets)
    ]
    assert found == [], 'assign it below `if __name__ == "__main__"`, or by monkeypatch'
