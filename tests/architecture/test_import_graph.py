"""The shape of the imports: no circles, no long chains, no module that only one neighbour needs, but for a few."""

import ast
import re
from collections.abc import Iterator
from functools import cache

from tests.architecture.sources import PACKAGE, Source, sources

CHAIN_MODULES_MAX = 14
SINGLE_IMPORTER_MODULES_MAX = 22
ENDPOINTS = "maos.web.endpoints."
NAMED = r"maos(\.\w+)+:\w+"

Graph = dict[str, set[str]]
"""What each module imports of the others."""


def _module(source: Source) -> str:
    return "maos." + source.name.removesuffix(".py").removesuffix("__init__").removesuffix("/").replace("/", ".")


def _statements(node: ast.AST, *, is_start: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports of a module; those at its start only, or also those in functions and for types."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif not is_start or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.If):
            yield from _statements(child, is_start=is_start)


def graph(found: list[Source], *, is_start: bool = False) -> Graph:
    names = {_module(source) for source in found}
    result: Graph = {}
    for source in found:
        imported: set[str] = set()
        for node in _statements(source.tree, is_start=is_start):
            for alias in node.names:
                if isinstance(node, ast.Import):
                    imported.add(alias.name)
                else:
                    one = f"{node.module}.{alias.name}"
                    imported.add(one if one in names else node.module or "")
        result[_module(source)] = (imported & names) - {_module(source)}
    return result


def circles(imports: Graph) -> set[str]:
    """The modules that cannot be put in an order; a package is more than its `__init__`, so that one does not count."""
    left = {name: needs - {name.rpartition(".")[0]} for name, needs in imports.items()}
    while free := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in free:
            del left[name]
    return set(left)


def longest_chain(imports: Graph) -> list[str]:
    @cache
    def below(name: str) -> list[str]:
        return [name, *max((below(each) for each in imports[name]), key=len, default=[])]

    return max((below(name) for name in imports), key=len)


def named(found: list[Source]) -> set[str]:
    """The modules that a table names, as in "maos.cli.status:status": they are imported when they are needed."""
    return {
        node.value.partition(":")[0]
        for source in found
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(NAMED, node.value)
    }


def single_importers(imports: Graph, named: set[str]) -> set[str]:
    """The modules that only one module imports, and that of the same package, and that no table names."""
    users = {name: [user for user, needs in imports.items() if name in needs] for name in imports.keys() - named}
    return {name for name, found in users.items() if len(found) == 1 and _package(found[0]) == _package(name)}


def _package(name: str) -> str:
    return ".".join(name.split(".")[:2])


def _of_maos() -> list[Source]:
    return [source for source in sources() if (PACKAGE / source.name).exists()]


def test_no_two_modules_import_one_another() -> None:
    """Modules that do can only be read together. Imports in functions and those for types count."""
    assert len(graph(_of_maos())) > 100, "a test that looks at nothing finds nothing"
    assert circles(graph(_of_maos())) == set()


def test_chains_of_imports_are_short() -> None:
    chain = longest_chain(graph(_of_maos(), is_start=True))
    assert len(chain) <= CHAIN_MODULES_MAX, " > ".join(chain)


def test_few_modules_have_a_single_user_beside_them() -> None:
    imports = graph(_of_maos())
    endpoints = {each for each in imports[f"{ENDPOINTS}table"] if each.startswith(ENDPOINTS)}  # it is such a table too
    found = single_importers(imports, named(_of_maos()) | endpoints)
    assert len(found) <= SINGLE_IMPORTER_MODULES_MAX, sorted(found)


def test_circles_chains_and_single_users_are_noticed() -> None:
    texts = {
        "a.py": "from maos import b",
        "b.py": "def f():\n  import maos.bus.c",
        "bus/c.py": "from maos.bus.d import x",
        "bus/d.py": "if TYPE_CHECKING:\n  from maos.a import y",
        "e.py": "import maos.a, maos.b",
    }
    found = [Source(name, ast.parse(text)) for name, text in texts.items()]
    assert circles(graph(found)) == {"maos.a", "maos.b", "maos.bus.c", "maos.bus.d", "maos.e"}
    assert longest_chain(graph(found, is_start=True)) == ["maos.e", "maos.a", "maos.b"]
    assert single_importers(graph(found), named(found)) == {"maos.bus.d"}
    table = Source("table.py", ast.parse("TABLE = {'d': ('maos.bus.d:run', 'Do it.')}"))
    assert single_importers(graph([*found, table]), named([*found, table])) == set()


def test_front_ends_ask_the_services_and_not_the_journal() -> None:
    """What the import contracts cannot see: an attribute of a service."""
    front_ends = [source for source in _of_maos() if source.name.startswith(("cli/", "mcp/", "web/"))]
    assert len(front_ends) > 30
    assert [
        f"{source.name}:{node.lineno}"
        for source in front_ends
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute) and node.attr == "journal"
    ] == []
