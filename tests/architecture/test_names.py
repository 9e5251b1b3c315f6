"""One name, one thing: no two public classes share a name, and modules are called by nouns."""

import ast
import re
from collections import Counter

import pytest

from tests.architecture.sources import Source, sources

NOUNS = {"meeting", "setting", "settings", "spelling", "string", "testing", "thing"}
"""Words that end in -ing and are things, not doings."""


def shared_class_names(found: list[Source]) -> set[str]:
    """The names of public classes that more than one module has."""
    names = Counter(
        node.name
        for source in found
        for node in source.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not is_private(source.name)
    )
    return {f"class {name}" for name, often in names.items() if often > 1}


def is_private(module: str) -> bool:
    return any(part.startswith("_") and part != "__init__.py" for part in module.split("/"))


def gerunds(found: list[Source]) -> set[str]:
    """The modules whose last word ends in -ing and says what is done, not what the module is."""
    words = {
        source.name: re.split(r"[_/.]", source.name.removesuffix("/__init__.py").removesuffix(".py"))[-1]
        for source in found
    }
    return {f"module {name}" for name, word in words.items() if word.endswith("ing") and word not in NOUNS}


def test_public_classes_have_names_of_their_own_and_modules_are_nouns() -> None:
    assert sorted(shared_class_names(sources()) | gerunds(sources())) == []


@pytest.mark.parametrize(
    ("modules", "broken"),
    [
        ({"a.py": "class Run: ...", "b/c.py": "class Run: ..."}, {"class Run"}),
        ({"a.py": "class _Run: ...", "b.py": "class _Run: ..."}, set()),
        ({"a.py": "def f():\n  class Run: ...", "b.py": "class Run: ..."}, set()),
        ({"bus/sending.py": "", "bus/agent_running.py": ""}, {"module bus/sending.py", "module bus/agent_running.py"}),
        ({"settings/__init__.py": "", "testing/string.py": ""}, set()),
        ({"receiving/__init__.py": ""}, {"module receiving/__init__.py"}),
    ],
)
def test_a_new_name_that_breaks_a_rule_is_noticed(modules: dict[str, str], broken: set[str]) -> None:
    found = [Source(name, ast.parse(text)) for name, text in modules.items()]
    assert shared_class_names(found) | gerunds(found) == broken
