"""The store contract as a test suite: inherit `StoreContract` and provide its fixtures.

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def store(self) -> AsyncIterator[Store]: ...

`store` is an empty store, open. `open_again` opens the same data once more, beside it or after it was closed; for a
store that keeps nothing it skips. `pass_time` moves the database's clock by seconds, also backwards. Tests wait for
conditions: configure a store that polls for its waiters to poll rarely.

The tests run under pytest with pytest-asyncio in its `auto` mode.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from maos.store.contract import Store
from maos_testing.store_contract.appends import AppendContract, KeyContract, ReplacingContract
from maos_testing.store_contract.coordination import DocumentContract, LeaseContract
from maos_testing.store_contract.lifetime import LifeContract
from maos_testing.store_contract.restoration import RestoreContract
from maos_testing.store_contract.streams import ReadContract, StreamNamesContract, WaitContract


class StoreContract(
    AppendContract,
    KeyContract,
    ReplacingContract,
    ReadContract,
    StreamNamesContract,
    WaitContract,
    LeaseContract,
    DocumentContract,
    RestoreContract,
    LifeContract,
):
    """What every store must do. Inherit, and provide the fixtures."""

    @pytest.fixture
    async def store(self) -> Store:
        """An empty store, open."""
        raise NotImplementedError

    @pytest.fixture
    async def open_again(self) -> Callable[[], Awaitable[Store]]:
        """Opens the data of `store` once more; skips if it keeps none."""
        raise NotImplementedError

    @pytest.fixture
    async def pass_time(self) -> Callable[[float], Awaitable[None]]:
        """Moves the time of the database by seconds, backwards too."""
        raise NotImplementedError
