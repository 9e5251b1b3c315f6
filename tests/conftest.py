"""What all tests share: a PostgreSQL server, a fresh database in it, and golden files."""

import gc
import itertools
import os
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from maos_testing.postgres import PostgresServer, why_unavailable

CONTRACTS = ("appends", "coordination", "lifetime", "restoration", "streams")
pytest.register_assert_rewrite(  # before they are imported; the shipped suites are tests too
    "tests.holder.agents",
    "maos_testing.store_contract",
    *(f"maos_testing.store_contract.{name}" for name in CONTRACTS),
)
# How long an example takes says something of the machine's load, not of the code.
settings.register_profile("any load", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any load")
signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background of a script it would be ignored

STATE = tempfile.mkdtemp(prefix="maos-state-")
os.environ["XDG_STATE_HOME"] = STATE  # where maos notes which databases the tests have made

LONGEST = (
    "test_random_kills", "test_talking_runs", "workflows/test_crashes", "test_run_crashes", "test_engine_crashes",
    "test_killed_runs", "test_operations", "test_state_crashes", "test_state_machine", "travel/test_travel_crashes",
    "test_conflicts",
)  # fmt: skip
"""Files that take longest: begun first, so that nobody waits for one of them at the end."""

GOLDEN = Path(__file__).parent / "golden"
database_numbers = itertools.count(1)


@pytest.fixture(scope="session", autouse=True)
def state_folder() -> Iterator[None]:
    """Remove, in the end, what the tests have noted in the folder for the state of the user."""
    yield
    shutil.rmtree(STATE, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server that all tests of this process share.

    Each worker of a parallel run starts its own: a test that kills the server disturbs nobody else.
    """
    if reason := why_unavailable():
        pytest.skip(reason)
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """The URL of an empty database that only this test uses."""
    if not postgres.pid:
        postgres.start()  # the test before us killed it and stopped there
    name = f"test_{next(database_numbers)}"
    yield postgres.create_database(name)
    if not postgres.pid:
        postgres.start()
    postgres.drop_database(name)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with a file below tests/golden: `golden("cli/help.txt", text)`.

    `make golden` writes the file instead, so that the difference is read in the commit and not typed by hand.
    """
    update: bool = request.config.getoption("--update-golden")

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"tests/golden/{name} is missing: `make golden` writes it"
        assert text == path.read_text()

    return compare


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="run only golden tests and rewrite their files")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not any(name in item.nodeid for name in LONGEST))
    if config.getoption("--update-golden"):
        kept = [item for item in items if {"golden", "golden_picture"} & set(getattr(item, "fixturenames", ()))]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


def pytest_collection_finish() -> None:
    """Thousands of tests stay until the end: no collection of garbage looks at them again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Collect what a failed test left open, without a warning: it would fail the test that happens to run then."""
    failed = item.session.testsfailed
    result = yield
    if item.session.testsfailed > failed:
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):  # keep the frames of the test alive
            vars(sys).pop(name, None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
    return result
