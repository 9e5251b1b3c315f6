"""A12, A13: paths in events are used only where maos makes worktrees, and git runs no program that files there name."""

from pathlib import Path
from typing import Any

import pytest

from maos import settings
from maos.errors import InvalidInput
from maos.workspaces import Workspace, checkpoint, prepare, remove
from tests.workspaces.repositories import repository, write


@pytest.fixture
def user(tmp_path: Path) -> Path:
    return repository(tmp_path / "user", {"a.txt": "1\n"})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the database for the files of agents."""
    monkeypatch.setenv("MAOS_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "maos-1a2b"


async def test_a_workspace_is_found_again(user: Path, home: Path) -> None:
    made = await prepare(user, "one", root=home / "workspaces")
    assert Workspace.located(made.to_data(), home) == made
    moved = settings.state_folder() / "another-database"
    assert Workspace.located(made.to_data(), moved) == made, "the database was moved, and has another folder since"
    in_place = await prepare(home.parent.parent, "two", root=home / "workspaces")
    assert Workspace.located(in_place.to_data(), home) == in_place


@pytest.mark.parametrize(
    "change",
    [
        {"tree": "w/one", "path": "w/one"},
        {"repository": "w/.maos/one"},
        {"gitdir": "../worktrees/one"},
        {"tree": "{clone}/workspaces/one"},
        {"tree": "{clone}/w/one"},
        {"tree": "{home}/workspaces/../../../clone/one"},
        {"tree": "{home}/workspaces/two"},
        {"tree": "{home}/workspaces"},
        {"tree": "/"},
        {"name": "../one"},
    ],
)
async def test_one_elsewhere_is_refused(user: Path, home: Path, tmp_path: Path, change: dict[str, str]) -> None:
    made = await prepare(user, "one", root=home / "workspaces")
    data: dict[str, Any] = dict(made.to_data())
    for name, value in change.items():
        data[name] = value.format(clone=tmp_path / "clone", home=home)
    with pytest.raises(InvalidInput):
        Workspace.located(data, home)


async def test_a_link_out_of_the_folder_is_refused(user: Path, home: Path, tmp_path: Path) -> None:
    made = await prepare(user, "one", root=home / "workspaces")
    (tmp_path / "clone" / "workspaces").mkdir(parents=True)
    (home / "linked").symlink_to(tmp_path / "clone")
    data = {**made.to_data(), "tree": str(home / "linked" / "workspaces" / "one")}
    with pytest.raises(InvalidInput, match="MAOS_HOME"):
        Workspace.located(data, home)


@pytest.mark.parametrize("way", ["config", "included", "common folder", "worktree"])
async def test_a_filter_in_the_private_git_folder_is_not_run(user: Path, home: Path, tmp_path: Path, way: str) -> None:
    made = await prepare(user, "one", root=home / "workspaces")
    private, marker = made.tree.parent / ".maos" / "one", tmp_path / "pwned"
    hostile = f'[filter "e"]\n\tclean = "sh -c \'touch {marker}; cat\'"\n[core]\n\tfsmonitor = "touch {marker}"\n'
    other = tmp_path / "other"
    other.mkdir()
    (other / "config").write_text(hostile)
    config = private / "config"
    match way:
        case "config":
            config.write_text(config.read_text() + hostile)
        case "included":
            config.write_text(config.read_text() + f"[include]\n\tpath = {other / 'config'}\n")
        case "common folder":
            (private / "commondir").write_text(f"{other}\n")
        case "worktree":
            config.write_text(config.read_text() + "[extensions]\n\tworktreeConfig = true\n")
            (private / "config.worktree").write_text(hostile)
    (private / "info" / "attributes").write_text("* filter=e\n")
    write(made.tree / "a.txt", "2\n")
    saved = await checkpoint(made, "after")
    assert saved is not None
    await remove(made, dry_run=True)
    assert not marker.exists()
