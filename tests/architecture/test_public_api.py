"""What maos promises by name, and what importing it costs."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.errors import MaosError
from maos.journal.journal import Journal
from maos.state.agents import AgentStates


def signature(value: Any) -> str:
    """How something is called, without the types."""
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for name, parameter in inspect.signature(value).parameters.items()
        if name != "self"
    ]
    return str(inspect.Signature(parameters))


def described(name: str, value: Any) -> list[str]:
    if inspect.isclass(value) and not issubclass(value, BaseException):
        lines = [f"{name}{signature(value)}"]
        own = [vars(each) for each in reversed(value.__mro__) if each.__module__.startswith("maos")]
        for attribute, member in sorted({name: each for members in own for name, each in members.items()}.items()):
            if attribute.startswith("_"):
                continue
            lines.append(f"    .{attribute}{signature(member) if inspect.isfunction(member) else ''}")
        return lines
    if inspect.isclass(value):
        return [f"{name}({value.__mro__[1].__name__})"]
    return [name]


def test_what_is_public_stays(golden: Callable[[str, str], None]) -> None:
    """A change here is a change for everybody who uses maos: read the diff, and say it in the change log."""
    lines: list[str] = []
    for name in sorted(maos.__all__):
        lines += described(f"maos.{name}", getattr(maos, name))
    lines += ["", *described("Maos.journal", Journal), "", *described("Maos.state", AgentStates)]
    golden("api.txt", "\n".join(lines) + "\n")


def test_every_public_name_is_there_and_listed() -> None:
    assert maos.__all__ == sorted(maos.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    for name in maos.__all__:
        assert getattr(maos, name) is not None
        assert name in dir(maos)
    assert maos.__version__
    assert maos.Maos is Maos
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        maos.nothing  # noqa: B018


def test_every_error_is_one_of_ours_and_says_what_to_do() -> None:
    errors = [
        value for name in maos.__all__ if inspect.isclass(value := getattr(maos, name)) if issubclass(value, Exception)
    ]
    assert len(errors) == 15
    for error in errors:
        assert issubclass(error, MaosError)
    assert str(MaosError("what", hint="hint")) == "what (hint)"
    assert str(MaosError("what")) == "what"


def modules_after(statement: str) -> set[str]:
    """The modules a new process has loaded because of a statement."""
    program = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


HEAVY = {
    "apsw",
    "asyncpg",
    "asyncio",
    "msgspec",
    "zstandard",
    "cramjam",
    "click",
    "rich",
    "importlib.metadata",
    "typing",
}


def test_importing_maos_loads_nothing_but_itself() -> None:
    loaded = modules_after("import maos")
    assert {name for name in loaded if name.startswith("maos")} == {"maos"}
    assert loaded & HEAVY == set()


def test_a_name_loads_only_what_it_needs() -> None:
    loaded = modules_after("import maos; maos.NotFound; maos.DELETE")
    assert loaded & {"apsw", "asyncpg", "asyncio", "msgspec", "rich", "click"} == set()


@pytest.mark.parametrize(
    ("target", "absent"),
    [(":memory:", {"asyncpg"}), ("{path}", {"asyncpg"})],
    ids=["memory", "sqlite"],
)
def test_a_store_loads_only_its_own_driver(target: str, absent: set[str], tmp_path: Any) -> None:
    opened = target.format(path=tmp_path / "maos.db")
    program = f"import maos, asyncio\nasync def main():\n async with maos.open({opened!r}): pass\nasyncio.run(main())"
    loaded = modules_after(f"exec({program!r})")
    assert loaded & (absent | {"click", "rich", "pytest", "maos_testing"}) == set()
