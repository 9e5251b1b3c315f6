"""No statement is made from what somebody passed in: names and constants only, values are always parameters (A5)."""

import ast

import pytest

from maos.errors import InvalidInput
from maos.store import database
from tests.architecture.sources import sources

METHODS = {
    "execute", "executemany", "executescript", "fetch", "fetch_row", "fetchrow", "fetchval", "fetchone", "prepare",
    "cursor", "execute_now", "exec",
}  # fmt: skip

MADE_FROM_OUR_OWN_NAMES = {
    # The schema is checked to be an identifier when the database object is made; tables and levels are constants.
    ("store/postgres.py", "f'CREATE SCHEMA IF NOT EXISTS {self._schema_name}'"),
    ("store/postgres.py", "f'CREATE SCHEMA {copy}'"),
    ("store/postgres.py", "f'CREATE TABLE {copy}.{table} AS TABLE {self._schema_name}.{table}'"),
    ("store/postgres.py", "f'SELECT * FROM {table}'"),
    ("store/sqlite.py", "f'PRAGMA user_version = {step.level:d}'"),
    # The text of maos.views, as the composition root gives it.
    ("store/sqlite.py", "views"),
    ("store/postgres.py", "views"),
}


def is_constant(node: ast.expr) -> bool:
    """Whether an expression can only be a statement written down in the source or in the files beside it."""
    match node:
        case ast.Constant(value=str()):
            return True
        case ast.Name(id=name):
            return name.isupper() or name == "query"  # `query`: the name of a statement, passed on; see below
        case ast.Attribute(value=ast.Name(id="step"), attr="sql"):
            return True  # a file of the schema
        case ast.Subscript(value=ast.Name(id="sql") | ast.Attribute(attr="_sql")):
            return True  # a statement of queries.sql, by name
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return is_constant(left) and is_constant(right)
        case ast.IfExp(body=body, orelse=other):
            return is_constant(body) and is_constant(other)
    return False


def statements() -> list[tuple[str, int, ast.expr]]:
    """The first argument of everything that runs a statement."""
    found = []
    for source in sources():
        if not source.name.startswith("store/"):
            continue
        for node in ast.walk(source.tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS):
                continue
            if ast.unparse(node.func.value) == "self._fast_append":
                continue  # a statement that was prepared, from a constant, elsewhere
            if node.args and not isinstance(node.args[0], ast.Starred):
                found.append((source.name, node.lineno, node.args[0]))
    return found


def test_every_statement_is_a_constant_or_has_a_name() -> None:
    """A5: no f-string, no format, no + with a value reaches execute()."""
    assert len(statements()) > 40, "a test that looks at nothing finds nothing"
    made = {(name, ast.unparse(node)): line for name, line, node in statements() if not is_constant(node)}
    unknown = {key: line for key, line in made.items() if key not in MADE_FROM_OUR_OWN_NAMES}
    assert unknown == {}, "a statement is made from something; pass values as parameters"


def test_the_list_of_exceptions_is_no_longer_than_need_be() -> None:
    made = {(name, ast.unparse(node)) for name, _line, node in statements()}
    assert made >= MADE_FROM_OUR_OWN_NAMES


def test_only_the_store_runs_statements() -> None:
    """And those that read a database of maos-cli, on connections that cannot write."""
    found = [
        f"{source.name}:{node.lineno}"
        for source in sources()
        if not source.name.startswith(
            ("store/", "transfer/importers.py", "maos_testing/", "maos_import_legacy/file.py")
        )
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (node.func.attr in {"executemany", "executescript", "fetchval", "fetchrow"} or _executes_text(node))
    ]
    assert found == []


def _executes_text(node: ast.Call) -> bool:
    """Whether this is `execute` of a text or of something called a query; runs are executed too, by their id."""
    if not isinstance(node.func, ast.Attribute) or node.func.attr != "execute" or not node.args:
        return False
    first = node.args[0]
    is_text = isinstance(first, ast.JoinedStr | ast.BinOp | ast.Constant)
    return is_text or "sql" in ast.unparse(first).lower() or "query" in ast.unparse(first).lower()


def test_upper_case_names_of_statements_hold_constants() -> None:
    """What `is_constant` takes for one."""
    for source in sources():
        if not source.name.startswith("store/"):
            continue
        for node in source.tree.body:
            if isinstance(node, ast.Assign) and any("INSERT" in ast.unparse(target) for target in node.targets):
                assert not any(isinstance(inner, ast.Call) for inner in ast.walk(node.value)), ast.unparse(node)


def test_names_that_are_passed_on_are_names_of_statements() -> None:
    """Every text given as the name of a statement is one."""
    known = set(database.statements())
    used = {
        node.value
        for name, _line, node in statements()
        if name == "store/sql_store.py" and isinstance(node, ast.Constant)
    }
    assert used
    assert used <= known
    with pytest.raises(KeyError):
        database.statements()["read_stream; DROP TABLE events"]


@pytest.mark.parametrize("name", ["x; DROP SCHEMA maos", 'x"', "x.y", "", "1x", "x y", "x'--", "ü\u0000"])
def test_a_schema_is_an_identifier(name: str) -> None:
    """A5: the one name that comes from outside and cannot be a parameter."""
    from maos.clock import SystemClock
    from maos.store.postgres import PostgresDatabase

    with pytest.raises(InvalidInput):
        PostgresDatabase("postgresql://localhost/x", clock=SystemClock(), schema_name=name)
