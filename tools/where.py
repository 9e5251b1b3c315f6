"""Finds the tests of a file: `make where FILE=src/maos/bus/bus.py`.

Read from what tests import, themselves or through helpers below tests/, and from the lists of planted bugs. A module
that has no tests of its own is exercised through the modules that import it; then their tests are given.
"""

import ast
import sys
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
SOURCES = {ROOT / "src" / "maos": TESTS} | {
    path: TESTS / path.name.removeprefix("maos_") for path in (ROOT / "distributions").glob("*/src/*")
}
"""The packages, with the folder below tests/ that is theirs."""


@cache
def modules() -> dict[str, Path]:
    """Return every module of maos, of the distributions beside it and of the tests, by its dotted name."""
    found = {}
    for folder in (*SOURCES, TESTS):
        for path in sorted(folder.rglob("*.py")):
            name = path.relative_to(folder.parent).with_suffix("")
            found[".".join(name.parts).removesuffix(".__init__")] = path
    return found


def _imported(path: Path) -> set[str]:
    """Return the modules that a file imports, and those it names in a string, as in `python -m NAME`."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= {node.value, f"{node.value}.__main__"}
    return found & modules().keys()


@cache
def importers() -> dict[str, set[str]]:
    """Return the modules that import each module."""
    found = defaultdict(set)
    for name, path in modules().items():
        for other in _imported(path) - {name}:
            found[other].add(name)
    return found


@cache
def planted() -> dict[str, set[str]]:
    """Return the test files that must notice the bugs planted in each file."""
    found = defaultdict(set)
    for path in TESTS.glob("mutants/*.toml"):
        for bug in tomllib.loads(path.read_text()).values():
            found[bug["file"]] |= {test.partition("::")[0] for test in bug["tests"]}
    return found


def _tests_of(module: str) -> set[str]:
    """Return the test files that import a module, or a helper below tests/ that does."""
    found, seen, left = set(), {module}, [module]
    while left:
        for name in importers()[left.pop()] - seen:
            if name.startswith("tests."):
                seen.add(name)
                left.append(name)
                if name.rpartition(".")[2].startswith("test_"):
                    found.add(modules()[name].relative_to(ROOT).as_posix())
    return found


def _beside(path: Path) -> set[str]:
    """Return the test files of the folder below tests/ with the name of the file's own, or of the one around it."""
    package = next(each for each in SOURCES if path.is_relative_to(each))
    for folder in path.relative_to(package).parents:
        tests = SOURCES[package] / folder
        if tests != TESTS and (found := {each.relative_to(ROOT).as_posix() for each in tests.rglob("test_*.py")}):
            return found
    return set()


def _through(module: str) -> dict[str, set[str]]:
    """Return the test files of the nearest modules that import this one."""
    left, seen = {module}, {module}
    while left := set().union(*(importers()[each] for each in left)) - seen:
        if found := set().union(*map(_tests_of, left)):
            return {f"exercises it through {', '.join(sorted(left))}": found}
        seen |= left
    return {}


def tests_of(path: Path) -> dict[str, set[str]]:
    """Return the test files of a file, by how they are related to it."""
    module = next(name for name, each in modules().items() if each == path)
    found = {
        "imports it": _tests_of(module),
        "must notice a bug planted in it": planted()[path.relative_to(ROOT).as_posix()],
        "is in the folder of its name": _beside(path),
    }
    return {why: tests for why, tests in found.items() if tests} or _through(module)


def main(name: str) -> None:
    """Print the tests of a file, each once, under how they are related to it."""
    path = (ROOT / name).resolve()
    if path not in modules().values():
        sys.exit(f"{name or 'FILE'} is no module of maos: make where FILE=src/maos/bus/bus.py")
    printed: set[str] = set()
    for why, tests in tests_of(path).items():
        if tests - printed:
            print("\n".join([f"# {why}", *sorted(tests - printed)]))
        printed |= tests


if __name__ == "__main__":
    main(*sys.argv[1:] or [""])
