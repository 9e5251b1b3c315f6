"""Every command that takes something away says before what that would be."""

import json
from pathlib import Path

import click
import pytest

from tests.cli.conftest import Invoke
from tests.cli.test_help import COMMANDS

DESTRUCTIVE = {
    "cancel", "cleanup", "clear", "compact", "delete", "erase", "forget", "prune", "purge", "remove", "reset",
    "restore", "revoke", "rm", "rollback", "stop", "wipe",
}  # fmt: skip
"""Names of commands that take something away."""
KEPT = {
    ("cancel",): "`maos resume` continues a run that was cancelled",
    ("agent", "stop"): "`maos agent resume` continues an agent that was stopped",
    ("workflow", "cancel"): "what its steps have done stays recorded",
    ("backup", "restore"): "it makes a new database, and refuses a place where there is one",
}
"""Those that need no dry run, because nothing is gone afterwards."""


def takes_away() -> list[tuple[str, ...]]:
    return sorted(
        path for path in COMMANDS if path and path[-1] in DESTRUCTIVE and not isinstance(COMMANDS[path], click.Group)
    )


@pytest.mark.parametrize("path", takes_away(), ids=" ".join)
def test_every_command_that_takes_something_away_has_a_dry_run(path: tuple[str, ...]) -> None:
    names = {parameter.name for parameter in COMMANDS[path].params}
    assert ("dry_run" in names) is (path not in KEPT), "add --dry-run, or say in KEPT why nothing is gone"


def test_each_exception_is_a_command() -> None:
    assert set(KEPT) <= set(takes_away())


def test_a_dry_run_shows_what_would_be_revoked_and_revokes_nothing(db: Path, invoke: Invoke) -> None:
    secret = invoke("token", "create", "phone", "--role", "viewer", "--on", "run/r-1").stdout.strip()
    assert secret.startswith("maos_")
    grant = json.loads(
        invoke("access", "grant", "token:phone", "--role", "answerer", "--on", "run/r-2", "--json").stdout
    )
    rule = json.loads(invoke("permission", "add", "Bash(pytest *)", "--json").stdout)
    assert "would revoke phone" in (shown := invoke("token", "revoke", "phone", "--dry-run").stdout)
    assert "with 1 grants" in shown
    assert "would have answerer on run/r-2 no more" in invoke("access", "revoke", grant["id"], "--dry-run").stdout
    assert "would be revoked" in invoke("permission", "revoke", rule["id"], "--dry-run").stdout
    assert invoke("access", "check", "token:phone", "answer", "run/r-2").exit_code == 0
    assert invoke("workflow", "schedule", "remove", "nightly", "--dry-run").exit_code == 3
    assert json.loads(invoke("permission", "revoke", rule["id"], "--json").stdout)["dry_run"] is False
    assert invoke("token", "revoke", "phone").exit_code == 0
    assert invoke("access", "check", "token:phone", "answer", "run/r-2").exit_code == 1
