"""A plan file that changes while its run is interrupted: finished with the old, gone on with the new, refused."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.agent.conftest import Call, Start, holder_of, wait_until
from tests.cli.conftest import WAIT_S_MAX
from tests.cli.orchestrate.conftest import begun, documents, go, waits


class Release:
    """A file with three steps: one that is quick, one that waits to be told, and one after it."""

    def __init__(self, folder: Path, call: Call) -> None:
        self.folder = folder
        self.call = call
        self.path = folder / "release.yaml"
        steps: list[dict[str, Any]] = [
            self.step("quick", waits(folder, "quick")),
            self.step("slow", waits(folder, "slow"), "quick"),
            self.step("last", "echo last >> effects", "slow"),
        ]
        self.write(steps)
        go(folder, "quick")

    def step(self, name: str, script: str, *needs: str) -> dict[str, Any]:
        return {"name": name, "command": ["sh", "-c", script.replace("effects", f"{self.folder}/effects")],
                "needs": list(needs)}  # fmt: skip

    def write(self, steps: list[dict[str, Any]]) -> None:
        self.steps = steps
        self.path.write_text(json.dumps({"name": "release", "tasks": steps}))  # which is YAML too

    def change(self) -> None:
        """Have the last step do something else, and one more before it."""
        more = self.step("more", "echo more >> effects", "quick")
        self.write([*self.steps[:2], more, self.step("last", "echo new last >> effects", "slow", "more")])

    def effects(self) -> list[str]:
        file = self.folder / "effects"
        return sorted(file.read_text().splitlines()) if file.exists() else []

    @property
    def id(self) -> str:
        found = json.loads(self.call("workflow", "list", "--json").stdout)["workflows"]
        assert [each["of"] for each in found] == ["file"]
        return str(found[0]["id"])

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.call("workflow", "show", self.id, "--json").stdout)
        return found


@pytest.fixture
def release(repository: Path, call: Call, start: Start) -> Release:
    """Interrupted by kill -9 in the middle of its second step, which goes on without an engine."""
    made = Release(repository, call)
    engine = start("workflow", "run", "release.yaml", "--auto")
    wait_until(lambda: begun(repository, "slow") or engine.process.poll() is not None)
    assert engine.process.poll() is None, engine.stderr
    engine.kill()
    return made


def test_it_is_finished_with_the_file_as_it_was(release: Release, call: Call) -> None:
    """R-1003: the change is told, and nothing is done twice."""
    release.change()
    go(release.folder, "slow")
    done = call("workflow", "resume")
    assert done.returncode == 0, done.stderr
    assert "release.yaml, which" in done.stderr
    assert "has changed since; it is resumed with the file as it was" in done.stderr
    assert "--on-change replay" in done.stderr
    assert release.effects() == ["last"]
    assert (begun(release.folder, "quick"), begun(release.folder, "slow")) == (1, 1)


def test_it_goes_on_with_the_new_file(release: Release, call: Call) -> None:
    """R-1003: a step that is under way is taken up, and what has an outcome is not done again."""
    release.change()
    go(release.folder, "slow")
    done = call("workflow", "resume", release.id, "--on-change", "replay")
    assert done.returncode == 0, done.stderr
    assert "resumed with " in done.stderr
    assert "+ more is new" in done.stderr
    assert "~ last changes as in the file" in done.stderr
    assert "completed · 4 of 4 tasks done" in done.stdout
    assert release.effects() == ["more", "new last"]
    assert (begun(release.folder, "quick"), begun(release.folder, "slow")) == (1, 1)
    assert call("state", "verify").returncode == 0
    assert "uses the new release.yaml" in call("orchestration", "checkpoints", release.id, "--all").stdout
    assert release.status()["made_from"]["state"] == "same"


def test_it_is_refused_and_nothing_is_done(release: Release, call: Call) -> None:
    release.change()
    before = release.status()["updated_us"]
    done = call("workflow", "resume", release.id, "--on-change", "refuse")
    assert done.returncode == 1
    assert "release.yaml, which" in done.stderr
    assert "finishes with the file as it was" in done.stderr
    assert release.status()["updated_us"] == before
    assert release.effects() == []


def test_a_step_that_was_done_otherwise_is_named(release: Release, call: Call) -> None:
    release.write([release.step("quick", "echo other"), *release.steps[1:]])
    done = call("workflow", "resume", "--on-change", "replay")
    assert done.returncode == 1
    assert "release.yaml as it is now does not fit what" in done.stderr
    assert "quick is done as" in done.stderr
    foreseen = call("workflow", "resume", "--on-change", "replay", "--dry-run").stdout
    assert "it is refused, as what was done does not fit" in foreseen
    assert "! quick is done as" in foreseen
    document = json.loads(call("workflow", "resume", "--dry-run", "--json").stdout)
    assert [each["step"] for each in document["made_from"]["misfits"]] == ["quick"]
    go(release.folder, "slow")
    assert call("workflow", "resume").returncode == 0
    assert release.effects() == ["last"]


def test_what_would_happen_is_shown_and_not_done(release: Release, call: Call) -> None:
    release.change()
    for args, told in (
        ((), "it is resumed with the file as it was"),
        (("--on-change", "replay"), "it is resumed with the new one"),
        (("--on-change", "refuse"), "it is refused"),
    ):
        shown = call("workflow", "resume", "--dry-run", *args).stdout
        assert f"has changed since; {told}" in shown
        assert "+ more is new" in shown
        assert "~ last changes as in the file" in shown
    assert "quick  done; will not run again" in shown
    assert "slow   agent still running; will attach" in shown
    assert "which has changed since" in call("status", release.id).stdout
    assert "has changed since; it is resumed with the file as it was" in call("resume", "--dry-run").stdout
    document = release.status()["made_from"]
    assert (document["state"], document["added"], document["changed"]) == ("changed", ["more"], ["last"])
    assert release.effects() == []


def test_a_program_is_told_too(release: Release, call: Call) -> None:
    release.change()
    go(release.folder, "slow")
    done = documents(call("workflow", "resume", "--on-change", "replay", "--json").stdout)
    said = next(each for each in done if each["kind"] == "workflow_changed")
    assert (said["on_change"], said["state"], said["added"], said["changed"]) == (
        "replay", "changed", ["more"], ["last"],
    )  # fmt: skip
    assert done[-1]["status"] == "completed"


def test_a_file_that_is_gone_is_not_needed(release: Release, call: Call) -> None:
    release.path.unlink()
    go(release.folder, "slow")
    done = call("workflow", "resume", "--on-change", "replay")
    assert done.returncode == 2
    assert "release.yaml cannot be read" in done.stderr
    done = call("resume")
    assert done.returncode == 0, done.stderr
    assert "cannot be read any more; it is resumed with the file as it was" in done.stderr
    assert release.effects() == ["last"]


def test_a_command_that_nobody_holds_any_more_is_unknown(release: Release, call: Call) -> None:
    """I31: shown by the ledger, the status and what resuming would do, before it is begun again."""
    shown = json.loads(call("effects", release.id, "--json").stdout)["effects"]
    assert [(each["what"], each["outcome"]) for each in shown] == [("shell", "done"), ("shell", "running")]
    os.kill(holder_of(f"{release.id}.slow.1"), signal.SIGKILL)
    wait_until(lambda: json.loads(call("effects", "--unknown", "--json").stdout)["effects"])
    assert f"! {release.id}.slow.1 unknown whether it took effect: shell(sh -c" in call("status").stdout
    assert "unknown whether it took effect: shell" in call("workflow", "resume", "--dry-run").stdout
    unknown = json.loads(call("status", "--json").stdout)["unknown"]
    assert [each["by"] for each in unknown] == [f"{release.id}.slow.1"]


def test_a_step_that_failed_is_mended_in_the_file(repository: Path, call: Call) -> None:
    """What people change files for: the step that failed is begun anew, with nothing of the old one."""
    release = Release(repository, call)
    release.write([release.steps[0], release.step("last", "echo tried >> effects; exit 3", "quick")])
    assert call("workflow", "run", "release.yaml", "--auto").returncode == 1
    release.write([release.steps[0], release.step("last", "echo mended >> effects", "quick")])
    done = call("workflow", "resume", "--on-change", "replay")
    assert done.returncode == 0, done.stderr
    assert release.effects() == ["mended", "tried"]
    assert begun(repository, "quick") == 1
    shown = json.loads(call("effects", release.id, "--json").stdout)["effects"]
    assert [each["outcome"] for each in shown] == ["done", "failed", "done"]


@pytest.mark.parametrize("point", [1, 2, 3, 4])
def test_killed_while_it_goes_over_it_is_gone_on_with(release: Release, call: Call, point: int) -> None:
    """I3: before and after the new plan is recorded, and before and after somebody takes the run up."""
    release.change()
    environment = {**os.environ, "MAOS_CRASH_AT": str(point), "MAOS_CRASH_ONLY": "run:"}
    command = [sys.executable, "-m", "maos", "workflow", "resume", "--on-change", "replay"]
    died = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WAIT_S_MAX)
    assert died.returncode == -9, died.stderr
    go(release.folder, "slow")
    done = call("workflow", "resume", "--on-change", "replay")
    assert done.returncode == 0, done.stderr
    assert release.effects() == ["more", "new last"]
    assert (begun(release.folder, "quick"), begun(release.folder, "slow")) == (1, 1)
