"""A digest of a function's source, which tells whether a workflow's code has changed."""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

_UNSPELLED = ("ctx", "kind", "type_comment")
"""Fields of syntax nodes that follow from where a node stands, or are comments."""


def digest(function: Callable[..., Any]) -> str:
    """Digest what a function takes and does. Comments, file names, its docstring and the version of Python do not
    count. Nor do the types of its arguments: recorded arguments are checked against them when a run is resumed.
    """
    try:
        tree = _parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        compiled = function.__code__
        takes = compiled.co_varnames[: compiled.co_argcount + compiled.co_kwonlyargcount]
        return hashlib.sha256(compiled.co_code + repr((compiled.co_names, takes)).encode()).hexdigest()[:16]
    definition: Any = tree.body[0]  # a function's own source is one definition
    body = definition.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    for each in ast.walk(definition.args):
        if isinstance(each, ast.arg):
            each.annotation = None
    return hashlib.sha256(_spell([definition.args, body]).encode()).hexdigest()[:16]


def _parse(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SystemError:
        # Python 3.11 counts the depth of all trees together: a finaliser that ran meanwhile and printed a traceback,
        # which parses the line it shows, makes the count wrong.
        return ast.parse(source)


def _spell(part: Any) -> str:
    """Render a part of a program as text that every version of Python writes alike, which neither `ast.dump` nor
    `ast.unparse` does: fields that are empty, or that only some versions know, are left out.
    """
    if isinstance(part, ast.AST):
        fields = sorted((name, each) for name, each in ast.iter_fields(part) if name not in _UNSPELLED)
        said = ",".join(f"{name}={_spell(each)}" for name, each in fields if each is not None and each != [])
        return f"{type(part).__name__}({said})"
    if isinstance(part, list):
        return f"[{','.join(map(_spell, part))}]"
    return ascii(part)
