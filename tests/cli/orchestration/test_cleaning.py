"""What is removed, what is kept, and what a crash has left."""

from pathlib import Path

from maos.settings import config_folder
from tests.cli.agent.conftest import TICKING, Agents, Call, Start, wait_until
from tests.cli.orchestration.conftest import Ask, Begin, Until

WRITING = [{"name": "api", "command": ["sh", "-c", "echo hello > api.txt"]}]
FAILING = [{"name": "api", "command": ["sh", "-c", "echo hello > api.txt; exit 1"]}]


def tree_of(agents: Agents, agent: str) -> Path:
    return Path(agents.shown(agent)["workspace"]["tree"])


def test_worktrees_of_completed_runs_are_removed_and_their_checkpoints_stay(
    begin: Begin,
    ask: Ask,
    call: Call,
    agents: Agents,
    repository: Path,
) -> None:
    """R-704."""
    engine = begin(WRITING)
    assert engine.wait() == "completed"
    tree = tree_of(agents, f"{engine.run}.api")
    assert (tree / "api.txt").exists()
    assert ask("admin", "cleanup", "--older-than", "1")["runs"] == 0, "it is not old"
    tried = call("admin", "cleanup", "--older-than", "0", "--dry-run")
    assert f"would remove {tree}" in tried.stdout
    assert tree.exists()
    done = ask("recover", "cleanup", "--older-than", "0")
    assert [each["tree"] for each in done["removed"]] == [str(tree)]
    assert done["bytes"] > 0
    assert not tree.exists()
    assert "api.txt  +1 -0" in call("agent", "diff", f"{engine.run}.api").stdout
    again = ask("admin", "cleanup", "--older-than", "0")
    assert again["removed"] == []
    assert again["total"] == {"worktrees": 1, "bytes": done["bytes"]}


def test_without_an_age_the_settings_say_what_goes(begin: Begin, ask: Ask, call: Call, repository: Path) -> None:
    """R-704: by number; both commands go by the same policy."""
    runs = []
    for _ in range(3):
        engine = begin(WRITING)
        assert engine.wait() == "completed"
        runs.append(engine.run)
    assert ask("admin", "cleanup")["removed"] == [], "nothing is 30 days old"
    config_folder().mkdir(parents=True, exist_ok=True)
    (config_folder() / "maos.toml").write_text("[cleanup]\nkeep_runs = 2\n")
    for command in ("orchestration", "recover"):
        tried = ask(command, "cleanup", "--dry-run")
        assert [(each["run"], each["why"]) for each in tried["removed"]] == [(runs[0], "number")]
    assert ", by number\n1 worktree of 1 completed run removed, " in call("recover", "cleanup").stdout
    (config_folder() / "maos.toml").write_text("[cleanup.of.orchestration]\nsize_mb = 1\n")
    assert ask("admin", "cleanup", "--dry-run")["removed"] == []


def test_what_is_saved_nowhere_else_stays(
    begin: Begin,
    ask: Ask,
    call: Call,
    agents: Agents,
    repository: Path,
) -> None:
    engine = begin(WRITING)
    assert engine.wait() == "completed"
    tree = tree_of(agents, f"{engine.run}.api")
    (tree / "by-hand.txt").write_text("somebody's work")
    for more in (["--dry-run"], []):
        done = ask("admin", "cleanup", "--older-than", "0", *more)
        assert done["removed"] == []
        assert "changes since its last checkpoint" in done["kept"][0]["why"]
    assert (tree / "by-hand.txt").exists()
    assert f"kept {tree}" in call("admin", "cleanup", "--older-than", "0").stdout


def test_a_run_that_can_go_on_keeps_its_worktrees(
    begin: Begin,
    ask: Ask,
    agents: Agents,
    repository: Path,
) -> None:
    engine = begin(FAILING)
    assert engine.wait() == "failed"
    assert ask("admin", "cleanup", "--older-than", "0") == {
        "dry_run": False, "runs": 0, "removed": [], "kept": [], "bytes": 0, "total": {"worktrees": 0, "bytes": 0},
    }  # fmt: skip
    assert tree_of(agents, f"{engine.run}.api").exists()


def test_what_was_interrupted_is_shown_with_the_command_that_resumes_it(
    begin: Begin, start: Start, call: Call, ask: Ask, until: Until
) -> None:
    engine = begin()
    until(engine.run, "working")
    alone = start("agent", "run", "--name", "ticker", "--in-place", "--", "sh", "-c", TICKING)
    alone.wait_for("line 1")
    assert "resume" not in call("recover").stdout
    engine.kill()
    alone.kill()
    wait_until(lambda: ask("recover")["agents"][0]["resumable"])
    for command in ("recover", "status"):
        shown = call(command).stdout
        assert f"resume with: maos resume {engine.run}" in shown
        assert "ticker is detached; attach with: maos agent attach ticker" in shown
        assert ask(command)["interrupted"] == [engine.run]
