"""What the tests of Codex share: a local time that does not depend on the machine."""

import time
from collections.abc import Callable, Iterator

import pytest


@pytest.fixture
def local_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Let local time be that of a zone until the test is over: `local_time("Europe/Berlin")`."""

    def be(zone: str) -> None:
        patch.setenv("TZ", zone)
        time.tzset()

    with monkeypatch.context() as patch:
        yield be
    time.tzset()
