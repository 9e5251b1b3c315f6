"""A folder with a project and a user, whose settings are the test's own."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import maos
from maos.settings.loader import Current, here


class Files(NamedTuple):
    """Where settings are."""

    project: Path
    user: Path

    def current(self, **environment: str) -> Current:
        """The settings of the current folder, with some variables and no others."""
        return here(environment={"XDG_CONFIG_HOME": str(self.user.parent.parent), **environment})


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """No file yet; the current folder is inside the project."""
    found = Files(tmp_path / "project" / "maos.toml", tmp_path / "config" / "maos" / "maos.toml")
    for each in (found.project.parent / "src" / "deep", found.user.parent):
        each.mkdir(parents=True)
    monkeypatch.chdir(found.project.parent / "src" / "deep")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in os.environ:
        if name.startswith("MAOS_"):
            monkeypatch.delenv(name)
    return found


Refused = Callable[[str], list[str]]


@pytest.fixture
def refused(files: Files) -> Refused:
    """What is said about a project's file, without its path."""

    def refused(text: str) -> list[str]:
        files.project.write_text(text)
        with pytest.raises((maos.InvalidInput, maos.UnknownFormat)) as raised:
            files.current()
        problems = getattr(raised.value, "problems", [raised.value])
        return [str(each).replace(f"{files.project}:", "") for each in problems]

    return refused
