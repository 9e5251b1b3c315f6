"""Modules that import one another can only be read together: there are none, not even for types."""

import ast

import pytest

from tests.architecture.sources import Source, sources

UNTIED = ["workflows/", "cli/"]
FRONT_DOORS_ASK_THE_SERVICE = ("maos.engine", "maos.journal", "maos.runner", "maos.store")


@pytest.mark.parametrize("package", UNTIED)
def test_no_two_modules_import_one_another(package: str) -> None:
    """Imports inside functions and those under TYPE_CHECKING count."""
    left = {_module(each): _imported(each) for each in sources() if each.name.startswith(package)}
    assert len(left) > 5, "a test that looks at nothing finds nothing"
    while free := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in free:
            del left[name]
    assert left == {}, "these cannot be put in an order"


def test_the_commands_for_workflows_ask_the_service() -> None:
    """What a workflow run is, and how it stands, is answered below the command line."""
    found = [
        f"{source.name}:{node.lineno}"
        for source in sources()
        if source.name.startswith("cli/workflow/")
        for node in ast.walk(source.tree)
        if (isinstance(node, ast.ImportFrom) and (node.module or "").startswith(FRONT_DOORS_ASK_THE_SERVICE))
        or (isinstance(node, ast.Attribute) and node.attr == "journal")
    ]
    assert found == []


def _module(source: Source) -> str:
    return "maos." + source.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imported(source: Source) -> set[str]:
    """What a module imports, without the package it is in, whose `__init__` only gathers names."""
    found: set[str] = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found - {_module(source), _module(source).rpartition(".")[0]}
