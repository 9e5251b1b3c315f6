"""The program on this machine: found, understood, or missed with a word on what to do."""

import os
from pathlib import Path

import pytest

from maos.agents.codex.dialect import VERSION_MIN, Codex
from maos.agents.contract import AgentMissing

TOO_OLD = "0.22.9"
NOW = ".".join(str(part) for part in VERSION_MIN)
PLATFORM = {"x86_64": "codex-linux-x64", "aarch64": "codex-linux-arm64"}.get(os.uname().machine, "")


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def saying(path: Path, version: str) -> Path:
    """A program that says its version, and where it was told to live."""
    return script(path, f'#!/bin/sh\n[ "$CODEX_HOME" = /dev/null ] && [ -z "$SECRET" ] && echo "codex-cli {version}"\n')


def test_a_program_on_the_path_is_asked_for_its_version(tmp_path: Path) -> None:
    program = saying(tmp_path / "bin" / "codex", NOW)
    found = Codex().find({"PATH": f"{program.parent}:/usr/bin:/bin", "SECRET": "x"})
    assert found == (program, NOW)


def test_a_program_that_was_named_is_taken(tmp_path: Path) -> None:
    program = saying(tmp_path / "mine", NOW)
    assert Codex().find({"PATH": "/usr/bin:/bin"}, [str(program)]).path == program


def test_no_program_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(AgentMissing) as error:
        Codex().find({"PATH": str(tmp_path)})
    assert "npm install -g @openai/codex" in error.value.hint


def test_an_old_program_is_refused(tmp_path: Path) -> None:
    """A12: older ones run what a workspace tells them to (CVE-2025-61260)."""
    saying(tmp_path / "codex", TOO_OLD)
    with pytest.raises(AgentMissing, match=TOO_OLD):
        Codex().find({"PATH": f"{tmp_path}:/usr/bin:/bin"})


@pytest.mark.parametrize("text", ["#!/bin/sh\necho hello\n", "#!/bin/sh\nexit 3\n", "#!/no/such/interpreter\n"])
def test_something_else_of_that_name_is_refused(tmp_path: Path, text: str) -> None:
    script(tmp_path / "codex", text)
    with pytest.raises(AgentMissing):
        Codex().find({"PATH": f"{tmp_path}:/usr/bin:/bin"})


@pytest.mark.skipif(not PLATFORM, reason="npm has no Codex for this machine")
@pytest.mark.parametrize("layout", ["nested", "beside", "within"])
def test_the_program_behind_the_script_of_npm_is_taken(tmp_path: Path, layout: str) -> None:
    """No node is needed, and a signal reaches the program and not the script before it."""
    package = tmp_path / "lib" / "node_modules" / "@openai" / "codex"
    wrapper = script(package / "bin" / "codex.js", "#!/usr/bin/env node\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "codex").symlink_to(wrapper)
    folder = {
        "nested": package / "node_modules" / "@openai" / PLATFORM,
        "beside": package.parent / PLATFORM,
        "within": package,
    }[layout]
    native = script(folder / "vendor" / "some-target" / "bin" / "codex", "#!/bin/sh\nexit 1\n")
    (native.parent.parent / "codex-package.json").write_text(f'{{"layoutVersion": 1, "version": "{NOW}"}}')
    found = Codex().find({"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"})
    assert found == (native, NOW)
