"""An agent in the foreground that accepts no messages while it works."""

from pathlib import Path

from tests.cli.agent.conftest import Call, Start, wait_until
from tests.runs.test_unheard_messages import prompts, work

__all__ = ["work"]


def test_a_message_in_mid_turn_is_told_in_another_turn(tmp_path: Path, work: Path, start: Start, call: Call) -> None:
    running = start("agent", "run", "--name", "writer", "--kind", "codex", "--cwd", str(work), "WAIT and work")
    wait_until(lambda: len(prompts(tmp_path / "home")) == 1)
    assert call("agent", "send", "writer", "look at the tests").returncode == 0
    (work / "go").touch()
    assert running.end() == 0, running.stderr
    assert running.stdout.splitlines() == ["answer 1", "answer 2"]
    assert ["look at the tests" in each for each in prompts(tmp_path / "home")] == [False, True]
