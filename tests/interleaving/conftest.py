"""A place to share and processes to share it."""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.interleaving.processes import Place, Puppet

StartPuppet = Callable[..., Awaitable[Puppet]]


@pytest.fixture
async def sqlite_place(tmp_path: Path) -> AsyncIterator[Place]:
    """An empty journal in a file."""
    place = Place(str(tmp_path / "maos.db"), tmp_path / "unused")
    yield place
    await place.close()


@pytest.fixture
async def postgres_place(postgres_url: str, tmp_path: Path) -> AsyncIterator[Place]:
    """An empty journal on a server."""
    place = Place(postgres_url, tmp_path / "head")
    yield place
    await place.close()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest) -> Place:
    """An empty journal on each kind of database."""
    return request.getfixturevalue(f"{request.param}_place")


@pytest.fixture
async def start_puppet() -> AsyncIterator[StartPuppet]:
    """Starts a process, opens the place in it if one is given, and ends it after the test."""
    puppets: list[Puppet] = []
    names = itertools.count(1)

    async def start_puppet(place: Place | None = None, **arguments: object) -> Puppet:
        puppet = await Puppet.start(f"p{next(names)}")
        puppets.append(puppet)
        if place is not None:
            await puppet.open(place, **arguments)
        return puppet

    yield start_puppet
    for puppet in puppets:
        await puppet.end()
