"""The source of maos as syntax trees, for tests that read it."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import maos

PACKAGE = Path(maos.__file__).parent


class Source(NamedTuple):
    """A module."""

    name: str
    """Relative to the package: store/sqlite.py"""
    tree: ast.Module


@cache
def sources() -> list[Source]:
    """All modules of the package."""
    return [
        Source(path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text(encoding="utf-8"), str(path)))
        for path in sorted(PACKAGE.rglob("*.py"))
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
