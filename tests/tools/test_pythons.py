"""`make test-pythons`: which interpreters it finds, and what it says of those that it does not find."""

import sys
from pathlib import Path

import pytest

from tools import pythons

THIS = f"{sys.version_info[0]}.{sys.version_info[1]}"


def interpreter(path: Path, version: str, *, status: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {version}\nexit {status}\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setattr(pythons, "supported", lambda: ["3.98", "3.99"])


def test_the_project_supports_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert THIS in pythons.supported()


def test_one_on_path_is_taken_and_else_the_newest_of_pyenv(tmp_path: Path) -> None:
    """A shim of pyenv for a version that is not selected is on PATH, and fails."""
    assert pythons.interpreter("3.98") is None
    interpreter(tmp_path / "pyenv/versions/3.98.9/bin/python", "3.98")
    newest = interpreter(tmp_path / "pyenv/versions/3.98.10/bin/python", "3.98")
    interpreter(tmp_path / "bin/python3.98", "3.98", status=127)
    assert pythons.interpreter("3.98") == newest
    on_path = interpreter(tmp_path / "bin/python3.98", "3.98")
    assert pythons.interpreter("3.98") == on_path


@pytest.mark.parametrize(("passes", "status", "outcome"), [(True, 0, "passed"), (False, 1, "FAILED")])
def test_each_is_told_and_those_that_are_missing_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    passes: bool, status: int, outcome: str,
) -> None:  # fmt: skip
    interpreter(tmp_path / "bin/python3.99", "3.99")
    monkeypatch.setattr(pythons, "test_on", lambda version, python, arguments: passes)
    assert pythons.main(["-q"]) == status
    said = capsys.readouterr().out
    assert "==> Python 3.98: not found, neither on PATH nor among the versions of pyenv\n" in said
    assert f"==> Python 3.99: {outcome} in 0 s\n" in said


def test_none_at_all_is_no_success() -> None:
    assert pythons.main([]) == 1
