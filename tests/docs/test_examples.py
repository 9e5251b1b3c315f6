"""Every example runs, and prints what its docstring says."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.documents import ROOT, matches

EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))
NUMBERED = [name for name in EXAMPLES if not name.startswith("00")]


def run(name: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an example in a folder of its own."""
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / name), *arguments]
    environment = {**os.environ, "NO_COLOR": "1", "XDG_STATE_HOME": str(folder / ".state")}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, env=environment)


def promised(name: str) -> str:
    """The last indented part of an example's docstring: what it prints."""
    docstring = ast.get_docstring(ast.parse((ROOT / "examples" / name).read_text()))
    assert docstring is not None
    return "\n".join(line.strip() for line in docstring.rpartition("\n\n")[2].splitlines())


def test_they_are_numbered_without_gaps() -> None:
    assert [name[:2] for name in EXAMPLES] == [f"{number:02}" for number in range(len(EXAMPLES))]


@pytest.mark.parametrize("name", NUMBERED)
def test_an_example_prints_what_it_says(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    arguments = [request.getfixturevalue("postgres_url")] if "postgresql" in name else ["example.db"]
    result = run(name, tmp_path, *arguments)
    assert (result.returncode, result.stderr) == (0, "")
    assert matches(promised(name), result.stdout), result.stdout


def test_the_first_one_goes_on_where_it_ended(tmp_path: Path) -> None:
    run("01_first_state.py", tmp_path)
    assert "reviewer has read 2 files" in run("01_first_state.py", tmp_path).stdout


def test_the_one_for_postgresql_says_what_it_needs(tmp_path: Path) -> None:
    result = run("08_postgresql.py", tmp_path)
    assert result.returncode == 0
    assert result.stdout.startswith("skipped: give the URL")


def test_the_demonstration_proves_what_it_says(tmp_path: Path) -> None:
    result = run("00_survives_a_kill.py", tmp_path, "--seed", "1", "--kills", "3")
    assert (result.returncode, result.stderr) == (0, ""), result.stdout
    assert "killed 3 times: none lost, none twice" in result.stdout
    assert "does not match its hash" in result.stdout


def test_the_demonstration_notices_a_lie(tmp_path: Path) -> None:
    """A child that reports before the update is on disk: the proof has to fail."""
    honest = (ROOT / "examples" / "00_survives_a_kill.py").read_text()
    report = '        os.write(sys.stdout.fileno(), f"{agent} {step} {update.version}\\n".encode())\n'
    update = "        update = await m.state.update("
    assert report in honest
    assert update in honest
    early = report.replace("update.version", "step + 1")
    lying = tmp_path / "lying.py"
    lying.write_text(honest.replace(report, "").replace(update, early + update))
    for seed in range(1, 6):  # a kill must come between the report and the disk, which depends on the machine
        command = [sys.executable, str(lying), "--seed", str(seed), "--kills", "3"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if result.returncode:
            break
    assert result.returncode == 1, result.stdout
    assert "The proof failed" in result.stdout
