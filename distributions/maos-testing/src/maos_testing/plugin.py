"""Fixtures for pytest, which finds them by the entry point `maos` of this distribution.

`maos_store`, a new database; `maos_app`, its services for plain tests; `maos_open`, the same for tests with asyncio;
`maos_clock`, a clock that the test moves; `maos_model`, a model that follows scripts. Nothing of the user's own maos is
read or written, and nothing is imported before a test asks for it, so that coverage is measured from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from maos import Maos
    from maos.sync import SyncMaos
    from maos_testing.manual_clock import ManualClock
    from maos_testing.model_stub import ModelStub

NAP_S = 0.01
"""How soon a sleeping workflow notices that the clock was moved."""
KEY = "no-key"


@pytest.fixture
def maos_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a new database; agents, worktrees and the registry of databases are beside it."""
    monkeypatch.setenv("MAOS_HOME", str(tmp_path / "maos-home"))
    monkeypatch.delenv("MAOS_DB", raising=False)
    return tmp_path / "maos.db"


@pytest.fixture
def maos_clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """A clock that stands still until the test moves it, with `advance(seconds)`."""
    from maos_testing.manual_clock import ManualClock

    monkeypatch.setattr("maos.workflows.record.NAP_S_MAX", NAP_S)
    return ManualClock()


@pytest.fixture
def maos_open(maos_store: Path, request: pytest.FixtureRequest) -> Callable[..., AbstractAsyncContextManager[Maos]]:
    """Opens the database: `async with maos_open() as m`; with the clock of the test, if that uses `maos_clock`."""
    import maos

    return partial(maos.open, maos_store, **_clock(request))


@pytest.fixture
def maos_app(maos_store: Path, request: pytest.FixtureRequest) -> Iterator[SyncMaos]:
    """The open database for a test without asyncio; with the clock of the test, if that uses `maos_clock`."""
    import maos

    with maos.connect(maos_store, **_clock(request)) as m:
        yield m


def _clock(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"clock": request.getfixturevalue("maos_clock")} if "maos_clock" in request.fixturenames else {}


@pytest.fixture
def maos_model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelStub]:
    """A model on loopback that follows the scripts it is given, with `script(name, *steps)`.

    The variables by which agent programs find their model name it.
    """
    from maos.sync import LoopThread
    from maos_testing.model_stub import ModelStub

    thread = LoopThread()
    try:
        stub = ModelStub({})
        thread.run(stub.start())
        for name in ("ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL"):
            monkeypatch.setenv(name, stub.url)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{stub.url}/v1")
        for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"):
            monkeypatch.setenv(name, KEY)
        try:
            yield stub
        finally:
            thread.run(stub.close())
    finally:
        thread.close()
