"""The pictures of the documentation show what maos prints: each is drawn from a real terminal, and compared."""

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.docs.pictures import Screen

ROOT = Path(__file__).parents[2]
PLAN = """\
request = "Prepare release 2.0"

[[tasks]]
name = "changelog"
task = "Write the changelog since 1.9"
command = ["sh", "-c", "echo reading 41 commits; echo found: 3 breaking changes; echo notes > CHANGES.md"]

[[tasks]]
name = "parser"
task = "Fix the crash on empty input"
needs = ["changelog"]
command = ["sh", "-c", "echo found: the tokenizer returns None; until [ -e ../go ]; do sleep 0.1; done"]

[[tasks]]
name = "docs"
task = "Bring the install page up to date"
needs = ["changelog"]
command = ["sh", "-c", "echo rewriting docs/install.md; until [ -e ../go ]; do sleep 0.1; done"]

[[tasks]]
name = "tests"
task = "Run the whole suite"
needs = ["parser"]
command = ["sh", "-c", "echo 212 passed"]
"""
VARYING = (r"r-[0-9a-f]{6}", r"\d+(\.\d+)? (ms|s|min)")


@pytest.fixture
def project() -> Iterator[Path]:
    """A repository with a commit, and a plan beside it, in a folder whose name is short: it fits on a line."""
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as place:
        yield _project(Path(place))


def _project(place: Path) -> Path:
    (place / "plan.toml").write_text(PLAN.replace("../go", str(place / "go")))
    folder = place / "project"
    folder.mkdir()
    (folder / ".gitignore").write_text("maos.db*\n")
    git = ["git", "-C", str(folder), "-c", "user.name=you", "-c", "user.email=you@localhost"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "Version 1.9"]):
        subprocess.run([*git, *words], check=True)
    return folder


@pytest.fixture
def screen(project: Path) -> Iterator[Screen]:
    environment = {**os.environ, "HOME": str(project.parent), "MAOS_HOME": str(project.parent / "home")}
    opened = Screen("run", "-f", "../plan.toml", "--auto", cwd=project, environment=environment)
    yield opened
    (project.parent / "go").touch()
    opened.end()
    opened.close()


@pytest.fixture
def golden_picture(request: pytest.FixtureRequest) -> Callable[[str, Screen, str], None]:
    """Compare the text of a picture with a screen, without ids and durations; `make golden` draws it again."""
    update: bool = request.config.getoption("--update-golden")

    def compare(name: str, screen: Screen, command: str) -> None:
        path = ROOT / "docs/pictures" / f"{name}.svg"
        drawn = screen.draw(command)
        if update:
            path.parent.mkdir(exist_ok=True)
            path.write_text(drawn)
        assert path.exists(), f"{path} is missing: `make golden` draws it"
        assert _texts(path.read_text()) == _texts(drawn), "the picture is outdated: `make golden` draws it again"

    return compare


def test_the_picture_of_a_run(screen: Screen, golden_picture: Callable[[str, Screen, str], None]) -> None:
    screen.wait_until(lambda text: text.count("running  ") >= 2 and "tokenizer" in text and "rewriting" in text)
    golden_picture("run", screen, "maos run -f plan.toml --auto")


def _texts(picture: str) -> set[str]:
    """The pieces of text in a picture, as a set: the order of lines of agents that work at once differs."""
    found = set()
    for text in re.findall(r">([^<]+)</text>", picture):
        for pattern in VARYING:
            text = re.sub(pattern, "…", text)
        found.add(" ".join(text.split()))
    return found
