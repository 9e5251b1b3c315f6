"""The kinds of agents: a name for each dialect, loaded when it is asked for."""

import subprocess
import sys

import pytest

from maos.agents import kinds
from maos.agents.acp.dialect import Acp
from maos.errors import InvalidInput


@pytest.mark.parametrize("name", kinds.DIALECTS)
def test_every_kind_can_be_loaded_and_describes_itself(name: str) -> None:
    dialect = kinds.dialect(name)
    assert dialect.kind == name
    assert dialect.summary
    assert "\n" not in dialect.summary
    assert isinstance(dialect.capabilities.resume, bool)
    assert set(dialect.secret_variables) <= set(dialect.variables)


def test_acp_takes_its_command_from_the_name() -> None:
    dialect = kinds.dialect("acp:/opt/agents/speaker --acp 'two words'")
    assert isinstance(dialect, Acp)
    assert dialect.kind == "acp:/opt/agents/speaker --acp 'two words'"
    assert str(dialect.find({}).path) == "/opt/agents/speaker"


@pytest.mark.parametrize(
    ("asked", "meant"), [("cluade", "claude"), ("Codex", "codex"), ("pyton", "python"), ("shel", "shell")]
)
def test_a_slip_of_the_pen_is_understood(asked: str, meant: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        kinds.dialect(asked)
    assert repr(asked) in caught.value.what
    assert f"did you mean {meant!r}?" in caught.value.hint


@pytest.mark.parametrize("asked", ["", "xyzzy", "shell\n", "os:system"])
def test_an_unknown_kind_names_those_there_are(asked: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        kinds.dialect(asked)
    assert all(name in caught.value.hint for name in kinds.DIALECTS)
    assert "acp:<command>" in caught.value.hint


def test_an_unclosed_quote_in_the_command_is_refused() -> None:
    with pytest.raises(InvalidInput):
        kinds.dialect("acp:'half a word")


@pytest.mark.parametrize("name", ["claude", "codex", "acp", "python", "shell"])
def test_a_dialect_loads_nothing_heavy(name: str) -> None:
    """The engine loads dialects on its way to the first line; `maos agent kinds` loads them all."""
    heavy = {"acp", "mcp", "pydantic", "claude_agent_sdk", "subprocess", "http.client", "urllib.request", "apsw"}
    program = f"import sys; from maos.agents import kinds; kinds.dialect({name!r}); print(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert not heavy & set(printed.split())


def test_the_list_of_kinds_loads_no_dialect() -> None:
    program = "import sys; from maos.agents import kinds; print(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert not [
        name for name in printed.split() if name.startswith(("maos.agents.acp.dialect", "maos.agents.python.dialect"))
    ]
