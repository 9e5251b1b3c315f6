"""A real object store for the tests."""

import secrets
from collections.abc import Iterator

import pytest

from maos_testing.object_storage import ObjectStorage, object_storage


@pytest.fixture(scope="session")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStorage]:
    """A server that the tests of this process share, with one bucket."""
    with object_storage(tmp_path_factory.mktemp("seaweedfs")) as found:
        yield found


@pytest.fixture
def bucket(storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty place in a bucket, with the variables that a client needs."""
    for name, value in storage.variables.items():
        monkeypatch.setenv(name, value)
    return f"{storage.url}/{secrets.token_hex(6)}"
