"""The tests of a file are found with one command, `make where FILE=…`."""

import pytest

from tests.architecture.sources import PACKAGE
from tools import where

THROUGH_OTHERS_MAX = 4


def test_every_module_has_tests() -> None:
    """Those that import it or must notice a bug in it, those of its folder, or those of the modules that use it."""
    without = [name for name, path in where.modules().items() if name.startswith("maos") and not where.tests_of(path)]
    assert without == []


def test_every_package_has_a_folder_of_tests_of_its_name() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    folders = {path.relative_to(where.TESTS).parts[0] for path in where.TESTS.rglob("test_*.py")}
    assert packages - folders == set()
    for package, tests in where.SOURCES.items():
        assert list(tests.rglob("test_*.py")), f"{tests} has no tests of {package.name}"


def test_nearly_every_module_has_tests_of_its_own() -> None:
    """Not only through the modules that use it."""
    found = {name: where.tests_of(path) for name, path in where.modules().items() if name.startswith("maos")}
    through = {name for name, tests in found.items() if next(iter(tests)).startswith("exercises it through")}
    assert len(through) <= THROUGH_OTHERS_MAX, through


def test_what_is_found_is_there() -> None:
    found = where.tests_of(PACKAGE / "store" / "sqlite.py")
    assert "tests/crash/test_lost_ends.py" in set().union(*found.values())
    for tests in found.values():
        assert all((where.ROOT / name).is_file() for name in tests)


def test_tests_that_import_it_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    where.main("src/maos/redact.py")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "# imports it"
    assert any(line.endswith("test_redact.py") for line in lines)
    assert len(set(lines)) == len(lines)


def test_a_file_that_is_no_module_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"README\.md is no module of maos"):
        where.main("README.md")
