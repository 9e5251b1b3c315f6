"""Every command and every program that the documents show does what they say."""

import re
import sys
from pathlib import Path

import pytest

from tests.docs.documents import ROOT, Document, matches

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]
RUNNABLE = [name for name in NAMES if Document((ROOT / name).read_text()).steps]


@pytest.mark.parametrize("name", RUNNABLE)
def test_a_reader_who_types_what_is_written_sees_what_is_written(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    document = Document((ROOT / name).read_text())
    server = request.getfixturevalue("postgres_url") if document.wants_postgresql else ""
    document.run(tmp_path, path=Path(sys.executable).parent, server=server)


@pytest.mark.parametrize("name", ["README.md", "docs/tutorial/durable-state.md"])
def test_the_entrances_show_commands_and_programs(name: str) -> None:
    """So that a mistake in the reader of documents cannot make the test above pass by running nothing."""
    document = Document((ROOT / name).read_text())
    assert any(step.command.startswith("maos ") for step in document.steps)
    assert any(step.command.startswith("python ") for step in document.steps)


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    """Links to files and to headings; addresses elsewhere are not looked up."""
    path = ROOT / name
    for target in re.findall(r"\]\(([^)\s]+)\)", _without_code(path.read_text())):
        if "://" in target:
            continue
        file, _, heading = target.partition("#")
        goal = (path.parent / file).resolve() if file else path
        assert goal.exists(), f"{target} is not there"
        if heading:
            assert heading in _headings(goal), f"{target}: there is no such heading"


@pytest.mark.parametrize(
    ("expected", "output", "same"),
    [
        ("a  b\n", "a b\n\n", True),
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("a\n...\nd\n", "a\nd\n", True),
        ("a ... d\n", "a b c d\n", True),
        ("a ... d\n", "a b\nc d\n", False),
        ("at 2026-01-31 10:00:00\n", "at 2031-12-01 23:59:59\n", True),
        ("took 3 ms\n", "took 12.5 ms\n", True),
        ("version 3\n", "version 4\n", False),
        ("", "surprise\n", False),
    ],
)
def test_outputs_are_compared_loosely(expected: str, output: str, same: bool) -> None:
    assert matches(expected, output) is same


@pytest.mark.parametrize(
    "text",
    [
        "```console\n$ echo a\nb\n```\n",
        "```console\n$ false\n```\n",
        "```python\nprint(1)\n```\n\n```output\n2\n```\n",
    ],
)
def test_a_wrong_output_and_a_failing_command_are_noticed(text: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        Document(text).run(tmp_path, path=Path(sys.executable).parent)


def test_what_is_left_out_says_why(tmp_path: Path) -> None:
    assert Document("<!-- not run: needs a network -->\n```console\n$ false\n```\n").steps == []
    assert len(Document("<!-- not run: -->\n```console\n$ false\n```\n").steps) == 1


def _headings(path: Path) -> set[str]:
    """The anchors of a file, made as code hosts make them."""
    lines = re.findall(r"^#+ (.+)$", _without_code(path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


def _without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
