"""The source of maos and of the distributions beside it as syntax trees, for tests that read it."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import maos

PACKAGE = Path(maos.__file__).parent
ROOT = Path(__file__).parents[2]
BESIDE = sorted((ROOT / "distributions").glob("*/src"))
"""The source folders of the distributions beside maos."""


class Source(NamedTuple):
    """A module."""

    name: str
    """Relative to the package: store/sqlite.py; with the package for another distribution: maos_testing/crash.py"""
    tree: ast.Module


@cache
def sources() -> list[Source]:
    """All modules of maos and of the distributions beside it."""
    return [
        Source(path.relative_to(folder).as_posix(), ast.parse(path.read_text(encoding="utf-8"), str(path)))
        for folder in (PACKAGE, *BESIDE)
        for path in sorted(folder.rglob("*.py"))
    ]


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Every call with the dotted name of what is called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every module that is imported, wherever that happens, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node.lineno
