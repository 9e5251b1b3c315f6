"""The reference says what the code says."""

import importlib.util
import re
from types import ModuleType

import pytest

import maos
from maos import errors
from maos.model import status, workflow
from maos.model.events import EVENTS
from maos.plans.parser import parse
from maos.plans.source import TOML, YAML, Source
from maos.store import database
from tests.docs.documents import ROOT

REFERENCE = ROOT / "docs" / "reference"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name", ["python_api", "cli", "exit_codes", "settings", "states", "plan_format", "requirements"]
)
def test_generated_pages_are_up_to_date(name: str, generate: ModuleType) -> None:
    """`python docs/generate.py` writes them."""
    page = REFERENCE / f"{name.replace('_', '-')}.md"
    assert page.read_text() == getattr(generate, name)()


def test_the_schema_of_plan_files_is_up_to_date(generate: ModuleType) -> None:
    """`python docs/generate.py` writes it."""
    assert (REFERENCE / "plan.schema.json").read_text() == generate.plan_schema()


def test_the_examples_of_a_plan_are_one_plan_in_two_formats(generate: ModuleType) -> None:
    in_yaml = parse(Source(generate.PLAN_YAML, YAML, "plan.yaml"))
    in_toml = parse(Source(generate.PLAN_TOML, TOML, "plan.toml"))
    assert (in_yaml.plan, in_yaml.file) == (in_toml.plan, in_toml.file)
    assert len(in_yaml.plan.tasks) == 5


def test_the_list_of_examples_is_up_to_date(generate: ModuleType) -> None:
    """`python docs/generate.py` writes it."""
    assert (ROOT / "docs" / "examples.md").read_text() == generate.examples()


def test_every_public_name_is_in_the_reference() -> None:
    text = (REFERENCE / "python-api.md").read_text() + (REFERENCE / "errors.md").read_text()
    missing = [name for name in maos.__all__ if not re.search(rf"\b{name}\b", text) and name != "Maos"]
    assert missing == []


def test_every_error_is_explained() -> None:
    text = (REFERENCE / "errors.md").read_text()
    kinds = [name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert [name for name in kinds if name != "MaosError" and f"| `{name}` |" not in text] == []


def test_every_event_type_is_explained() -> None:
    text = (REFERENCE / "event-types.md").read_text()
    assert [name for name in EVENTS if f"\n### {name}\n" not in text] == []


def test_every_table_is_explained() -> None:
    """And every column, of the newest schema."""
    text = (REFERENCE / "store-format.md").read_text()
    level = database.steps("sqlite")[-1].level
    assert f"Schema level {level}." in text
    queries = " ".join(database.statements().values())
    tables = set(re.findall(r"(?:FROM|JOIN|INTO|UPDATE) (\w+)", queries)) - {"SET", "events"}
    assert [table for table in (*tables, "events") if f"**{table}**" not in text] == []


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    for path in folder.glob("0*.md"):
        assert f"({path.name})" in index
        for heading in ("## Context", "## Decision", "## Consequences", "## What would change our mind"):
            assert heading in path.read_text(), f"{path.name} has no {heading!r}"


def test_every_guarantee_names_tests_that_exist() -> None:
    text = (ROOT / "docs" / "explanation" / "guarantees.md").read_text()
    rows = re.findall(r"^\| (I\d+) \|.*\| ([^|]+) \|$", text, re.MULTILINE)
    assert [name for name, _folders in rows] == [f"I{n}" for n in (*range(1, 27), *range(29, 34))]
    for name, cell in rows:
        folders = re.findall(r"`(\w+)`", cell)
        assert folders, f"{name} names no tests"
        for folder in folders:
            assert (ROOT / "tests" / folder).is_dir(), f"{name}: there is no tests/{folder}"


def test_every_guarantee_is_cited_by_a_test_that_runs(generate: ModuleType) -> None:
    """By name, so that the list of them in the reference is complete."""
    text = (REFERENCE / "requirements.md").read_text().partition("## Guarantees")[2]
    rows = re.findall(r"^\| (I\d+) \|.*\| ([^|]+) \|$", text, re.MULTILINE)
    assert len(rows) == 31
    assert [id for id, tests in rows if "not yet" in tests] == []


@pytest.mark.parametrize("name", ["explanation/what-survives-what.md", "explanation/security.md"])
def test_pages_with_attacks_and_disasters_name_tests_that_exist(name: str) -> None:
    """As files or folders below `tests`, in the last column."""
    text = (ROOT / "docs" / name).read_text()
    cells = re.findall(r"^\|.*\| ([^|]*`[^|]*) \|$", text, re.MULTILINE)
    named = {each for cell in cells for each in re.findall(r"`([\w/]+(?:\.py)?)`", cell)}
    tests = {each for each in named if each.endswith(".py") or (ROOT / "tests" / each.split("/")[0]).is_dir()}
    assert len(tests) > 5
    assert [each for each in sorted(tests) if not (ROOT / "tests" / each).exists()] == []


def test_states_are_those_of_the_code() -> None:
    """Every value that a fold can give to `status`, and every state of a run as it is seen."""
    text = (REFERENCE / "states.md").read_text()
    for title, names in {
        "Runs": list(status.RunStatus),
        "Runs, as seen": list(status.SupervisorState),
        "Tasks": list(status.TaskStatus),
        "Agents and their attempts": list(status.AttemptStatus),
        "Workflows": (*workflow.OPEN, workflow.COMPLETED, workflow.FAILED, workflow.CANCELLED),
        "Steps of workflows": (workflow.STARTED, workflow.DONE, workflow.FAILED, workflow.UNKNOWN, workflow.ABANDONED),
    }.items():
        part = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        meanings, _, transitions = part.partition("| from | to |")
        assert sorted(re.findall(r"^\| `(\w+)` \|", meanings, re.MULTILINE)) == sorted(names), title
        assert not transitions or set(re.findall(r"`(\w+)`", transitions)) == set(names)


def test_functions_are_named_by_the_path_that_they_are_imported_from() -> None:
    """Not by their files, such as `__init__.sleep` or `app.restore`."""
    headings = re.findall(r"^### (\S+)$", (REFERENCE / "python-api.md").read_text(), re.MULTILINE)
    called = [each.rpartition(".") for each in headings if "." in each and not each.startswith("m.")]
    assert {"maos.restore", "maos.connect", "maos.workflows.sleep"} <= {f"{path}.{name}" for path, _, name in called}
    assert [path for path, _, name in called if not hasattr(importlib.import_module(path), name)] == []
