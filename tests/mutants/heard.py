"""A plugin of pytest, in the process that runs the tests of a copy: writes down what became of each test."""

import json
import os
from pathlib import Path

import pytest

import maos

INTO = "MUTANTS_HEARD"
"""The environment variable with the file to write to."""


def pytest_configure(config: pytest.Config) -> None:
    if not Path(maos.__file__).is_relative_to(config.rootpath):
        raise pytest.UsageError(f"maos came from {maos.__file__}, not from the copy in {config.rootpath}")


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ or (report.when != "call" and report.passed):
        return
    said = str(report.longrepr)
    line = {"test": report.nodeid, "when": report.when, "outcome": report.outcome, "late": "Timeout (>" in said}
    with Path(os.environ[INTO]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
