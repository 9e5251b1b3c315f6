"""MCP servers and instructions that reach agents: the person's own, and those of a project if the person says so."""

import json
from pathlib import Path

import pytest

import maos
from maos.agents.project_files import read_instructions, read_servers
from maos.app import Maos
from maos.errors import InvalidInput
from maos.settings import SettingsSource
from maos.settings.loader import Current
from maos_testing.model_stub import ModelStub, ScriptStep
from tests.workspaces.repositories import repository, write

SERVER = {"mcpServers": {"notes": {"command": "notes", "args": ["--for", "${TEAM:-all}"], "env": {"KEY": "${NOTES}"}}}}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {
        ".mcp.json": json.dumps(SERVER),
        "CLAUDE.md": "Be kind.\n",
        "AGENTS.md": "Be kind.\n",
        "src/CLAUDE.md": "x\n",
    }
    return repository(tmp_path / "project", files)


async def test_servers_reach_an_agent_as_the_person_says(
    tmp_path: Path, home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the settings, and of the project only on request; their tools need a permission."""
    monkeypatch.setenv("NOTES", "n0t-To-Be-Seen")
    monkeypatch.setenv("TRACKER_TOKEN", "t0ken-Of-Tracker")
    file = write(
        tmp_path / "maos.toml", '[mcp.of.tracker]\ncommand = ["tracker"]\nenv = ["TRACKER_TOKEN", "MODE=ro"]\n'
    )
    settings = Current(lambda: [SettingsSource(file, is_project=False)])
    async with ModelStub([ScriptStep(text="done")]) as stub:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", stub.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-the-test")
        async with maos.open(tmp_path / "maos.db", home=home, settings=lambda: settings) as m:
            for name, more, there in (
                ("one", {}, {"maos", "tracker"}),
                ("two", {"project_settings": ["mcp", "instructions"], "env": ["NOTES"]}, {"maos", "tracker", "notes"}),
                ("three", {"mcp_servers": []}, {"maos"}),
            ):
                running = await m.agents.start("work", kind="claude", name=name, cwd=project, **more)
                assert (await running.wait()).status == "done"
                found = json.loads((home / "homes" / name / "mcp.json").read_text())["mcpServers"]
                assert set(found) == there, name
            given = json.loads((home / "homes" / "two" / "mcp.json").read_text())["mcpServers"]
            assert given["notes"]["args"] == ["--for", "all"]
            assert given["notes"]["env"] == {"KEY": "n0t-To-Be-Seen"}
            assert given["tracker"]["env"] == {"MODE": "ro", "TRACKER_TOKEN": "t0ken-Of-Tracker"}
            order = (await m.agents.get("two")).order
            assert [each["name"] for each in order["mcp"] if each.get("asks")] == ["notes", "tracker"]
            assert order["project_text"].count("Be kind.") == 1
            assert "Be kind." in json.dumps([each.body for each in stub.requests])
            with pytest.raises(InvalidInput, match="no MCP server 'gone'"):
                await m.agents.start("work", kind="claude", cwd=project, mcp_servers=["gone"])
            with pytest.raises(InvalidInput, match="needs the variable NOTES"):
                await m.agents.start("work", kind="claude", cwd=project, project_settings=["mcp"])
    content = b"".join(path.read_bytes() for path in tmp_path.glob("maos.db*") if path.is_file())
    assert b"n0t-To-Be-Seen" not in content
    assert b"t0ken-Of-Tracker" not in content


async def test_a_plain_command_needs_no_servers_and_none_of_their_variables(m: Maos, project: Path) -> None:
    running = await m.agents.start(argv=["true"], cwd=project, project_settings=["all"])
    assert (await running.wait()).status == "done"
    assert (await m.agents.get(running.attempt.agent)).order["mcp"] == []


def test_files_that_lead_out_of_a_project_are_not_read(project: Path, tmp_path: Path) -> None:
    """A13."""
    secret = write(tmp_path / "secret", "of the person")
    (project / "CLAUDE.md").unlink()
    (project / "CLAUDE.md").symlink_to(secret)
    (project / "AGENTS.md").unlink()
    assert read_instructions(project / "src") == "The project's src/CLAUDE.md says:\n\nx"
    (project / ".mcp.json").unlink()
    (project / ".mcp.json").symlink_to(secret)
    assert read_servers(project, {}) == []


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"mcpServers": 1}', '{"mcpServers": {"a": {"type": "http", "url": "x"}}}']
)
def test_a_file_of_servers_that_cannot_be_used_is_refused(project: Path, text: str) -> None:
    (project / ".mcp.json").write_text(text)
    with pytest.raises(InvalidInput, match=r"\.mcp\.json"):
        read_servers(project, {})
