"""Addresses that are set while a run goes on (R-1007)."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.agent.conftest import Start, wait_until
from tests.cli.notify.server import Server
from tests.cli.orchestrate.conftest import Plan, begun, waits

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")  # apprise looks for it


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    running = [Server(), Server()]
    yield running
    for each in running:
        each.close()


def test_whoever_is_set_while_a_run_goes_on_is_told_of_its_end(
    repository: Path, plan: Plan, start: Start, servers: list[Server]
) -> None:
    first, second = ("json://" + each.url.rpartition("@")[2].partition("/")[0] for each in servers)
    settings = Path(os.environ["XDG_CONFIG_HOME"]) / "maos" / "maos.toml"
    settings.parent.mkdir(parents=True)
    running = start("run", "-f", str(plan(a=waits(repository, "a"))), "--auto")
    wait_until(lambda: begun(repository, "a"))
    for url in (first, second):
        new = settings.with_name("new.toml")
        new.write_text(f"[notify]\nurls = ['{url}']\n")
        before = running.stdout.count("settings: notify.urls has changed\n")
        os.replace(new, settings)
        wait_until(lambda: running.stdout.count("settings: notify.urls has changed\n") > before)  # noqa: B023
    (repository / "a.go").touch()
    assert running.end() == 0
    assert servers[0].heard == []
    assert ["completed, 1 of 1 tasks done" in each["title"] for each in servers[1].heard] == [True]
