"""Real projects: their own tests pass in the worktrees of a run, and Claude Code works on them.

The plans are those of docs/howto/work-on-a-real-project.md. `make test-projects` fetches the sources by name, with what
they need, so that no setup uses a network.
"""

import asyncio
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from maos_testing.model_stub import ModelStub, ScriptStep, ToolCall
from tests.engine.conftest import processes_below
from tests.workspaces.repositories import commit, git

pytestmark = [pytest.mark.projects, pytest.mark.timeout(1800)]
FETCHED = Path(__file__).parent.parent.parent / ".projects"
PYTHON = ".venv/bin/python"
IGNORED = ".venv/\n*.so\nbuild/\n*.egg-info/\n__pycache__/\n.pytest_cache/\n.benchmarks/\n.codspeed/\n.coverage*\n"


class Project(NamedTuple):
    """One project, and how a person would have maos prepare its workspaces."""

    archive: str
    install: str
    """What `pip install` is given."""
    tests: list[str]
    """Its own tests, as its authors run them."""
    check: str
    """A test that an agent writes."""
    copy_ignored: Sequence[str] = ()
    env: Mapping[str, str] = MappingProxyType({})


PROJECTS = {
    # Its version is in a file that the build generates and git ignores.
    "humanize": Project(
        "humanize-4.16.0",
        "pytest pytest-benchmark pytest-codspeed pytest-cov freezegun",
        ["-m", "pytest", "-q", "-p", "no:cacheprovider"],
        "import humanize\n\n\ndef test_it() -> None:\n    assert humanize.intcomma(12345) == '12,345'\n",
        copy_ignored=["src/humanize/_version.py"],
        env={"PYTHONPATH": "src"},
    ),
    # It is compiled: the tests of its C extension are skipped if there is none. Those for leaks and its C API run too;
    # its own pytest.ini leaves those with hypothesis out, for which its authors have a job of their own.
    "multidict": Project(
        "multidict-7.2.1",
        "pytest pytest-codspeed pytest-cov objgraph psutil cffi --editable .",
        ["-m", "pytest", "-q", "--no-cov", "tests"],
        "from multidict import _multidict\n\n\ndef test_it():\n    assert _multidict.MultiDict(a=1)['a'] == 1\n",
    ),
    # Its tests take minutes on a busy machine. The two modules are all that it has.
    "more-itertools": Project(
        "more_itertools-11.2.1",
        "pytest --editable .",
        ["-m", "unittest", "-q", "tests.test_more", "tests.test_recipes"],
        "import more_itertools\n\n\ndef test_it() -> None:\n    assert more_itertools.ilen('abc') == 3\n",
    ),
}


@pytest.fixture(params=PROJECTS)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Project, Path]]:
    """The sources as a person has them: committed, with what a build has generated beside them."""
    found = PROJECTS[request.param]
    with tarfile.open(FETCHED / "sources" / f"{found.archive}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / found.archive
    ignored = folder / ".gitignore"
    ignored.write_text((ignored.read_text() if ignored.exists() else "") + IGNORED)
    git(folder, "init", "-q", "-b", "main")
    commit(folder, "as it was published")
    yield found, folder
    assert processes_below(tmp_path / "home") == []


@pytest.fixture
async def stub(project: tuple[Project, Path]) -> AsyncIterator[ModelStub]:
    """A model that writes a test, runs it with the project's tests, and answers."""
    write = ToolCall(name="Write", input={"file_path": "tests/test_by_agent.py", "content": project[0].check})
    run = ToolCall(name="Bash", input={"command": f"{PYTHON} -m pytest -q tests/test_by_agent.py", "description": "x"})
    async with ModelStub(
        [ScriptStep(calls=[write]), ScriptStep(calls=[run]), ScriptStep(text="It passes.")]
    ) as running:
        yield running


def plan(project: Project, tasks: list[dict[str, Any]]) -> dict[str, Any]:
    """The plan of the guide, for this project."""
    return {
        "setup": [[sys.executable, "-m", "venv", ".venv"], f"{PYTHON} -m pip install --quiet {project.install}"],
        "copy_ignored": list(project.copy_ignored),
        "env": {"PIP_NO_INDEX": 1, "PIP_FIND_LINKS": str(FETCHED / "wheels"), **project.env},
        "tasks": tasks,
    }


def run(folder: Path, *words: str | Path, **variables: str) -> str:
    """What a maos command prints, in an environment that has nothing of this machine's own set-up."""
    home = folder.parent / "home"
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "MAOS_HOME": str(home / "maos"), **variables}
    argv = [sys.executable, "-m", "maos", *map(str, words), "--json"]
    done = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stderr}\n{done.stdout[-5000:]}"
    return done.stdout


def executed(folder: Path, given: dict[str, Any], **variables: str) -> str:
    """The id of a run of a plan that was completed."""
    file = folder.parent / "plan.json"
    file.write_text(json.dumps(given))
    printed = run(folder, "run", "-f", file, "--auto", "--time-limit", "30m", **variables)
    lines = [json.loads(line) for line in printed.splitlines()]
    return str(next(each for each in lines if each["kind"] == "run")["run"])


async def test_the_tests_of_a_project_pass_in_worktrees_and_claude_code_works_there(
    project: tuple[Project, Path], stub: ModelStub
) -> None:
    found, folder = project
    tests = [PYTHON, *found.tests]
    tasks = [
        {"name": "one", "command": tests},
        {"name": "two", "command": ["sh", "-c", "echo changed >> CHANGED.md"], "gates": [{"command": tests}]},
    ]
    id = executed(folder, plan(found, tasks))
    agents = _agents(folder)
    assert [each for each in agents if each.startswith(f"{id}.setup-")], "the setup is an agent of its own"
    assert len([each for each in agents if ".setup-" in each]) == 1, "it ran once for all tasks"
    run(folder, "merge", id)
    assert (folder / "CHANGED.md").read_text() == "changed\n"

    claude = {
        "name": "cover",
        "kind": "claude",
        "task": "Write a test of your own and run it",
        "tools": [f"Bash({PYTHON} -m pytest *)"],
        "gates": [{"command": tests}],
    }
    key = {"ANTHROPIC_BASE_URL": stub.url, "ANTHROPIC_API_KEY": "key-of-the-test"}
    id = await asyncio.to_thread(executed, folder, plan(found, [claude]), **key)  # the stub runs on this thread
    assert not [each for each in _agents(folder) if each.startswith(f"{id}.setup-")], "the setup is used again"
    results = json.dumps([each.body for each in stub.requests])
    assert "1 passed" in results
    run(folder, "merge", id)
    assert (folder / "tests" / "test_by_agent.py").read_text() == found.check
    assert git(folder, "status", "--porcelain", "--untracked-files=all") == ""
    assert git(folder, "diff", "--name-only", "HEAD~2").split() == ["CHANGED.md", "tests/test_by_agent.py"]


def _agents(folder: Path) -> list[str]:
    return [str(each["agent"]) for each in json.loads(run(folder, "agent", "list", "--all"))["agents"]]
