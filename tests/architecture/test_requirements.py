"""Every requirement that is reached is shown by a test that cites it, and no test cites one that does not exist."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REACHED = [
    f"R-{number}"
    for number in (
        *range(101, 110),
        *range(201, 209),
        *range(301, 306),
        *range(401, 409),
        *range(702, 706),
        901,
        *range(1001, 1011),
    )
]
"""What must hold from now on. Others are cited by tests as they are reached."""


def cite(pattern: str) -> dict[str, dict[str, list[str]]]:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, dict[str, list[str]]] = module.cited(pattern)
    return found


@pytest.fixture(scope="module")
def cited() -> dict[str, dict[str, list[str]]]:
    """The tests that cite each requirement."""
    return cite(r"\bR-\d+\b")


@pytest.fixture(scope="module")
def cited_attacks() -> dict[str, dict[str, list[str]]]:
    """The tests that cite each attack."""
    return cite(r"\bA\d+\b")


@pytest.fixture(scope="module")
def rows() -> dict[str, str]:
    """What each requirement says."""
    text = (ROOT / "docs" / "reference" / "requirements.toml").read_text()
    return {id: says for part in tomllib.loads(text).values() for id, says in part.items() if id != "title"}


def test_every_requirement_that_is_reached_is_cited_by_a_test_that_runs(cited: dict[str, dict[str, list[str]]]) -> None:
    """Not only by one that is left out of `make test`."""
    assert [id for id in REACHED if not cited.get(id)] == []


def test_no_test_cites_what_does_not_exist(rows: dict[str, str]) -> None:
    found = {
        (id, path.relative_to(ROOT).as_posix())
        for path in ROOT.glob("tests/**/*.py")
        for id in re.findall(r"\bR-\d+\b", path.read_text())
    }
    assert {each for each in found if each[0] not in rows} == set()


def test_a_row_says_one_thing_in_one_line(rows: dict[str, str]) -> None:
    assert len(rows) == 9 + 8 + 5 + 8 + 5 + 2 + 3 + 10
    assert [id for id, says in rows.items() if "\n" in says or len(says) > 160 or not says.endswith(".")] == []


def test_every_attack_on_what_there_is_is_tried_by_a_test(cited_attacks: dict[str, dict[str, list[str]]]) -> None:
    """Those on parts that maos does not have yet say *later*, and no others do."""
    text = (ROOT / "docs" / "explanation" / "security.md").read_text()
    attacks = dict(re.findall(r"^\| (A\d+) \| [^|]+ \| ([^|]+) \|", text, re.MULTILINE))
    assert list(attacks) == [f"A{number}" for number in range(1, 26)]
    later = {id for id, says in attacks.items() if "later" in says.lower()}
    assert [id for id in attacks if id not in later and not cited_attacks.get(id)] == []
    assert [id for id in later if cited_attacks.get(id)] == [], "a test tries it, so there is what it attacks"
