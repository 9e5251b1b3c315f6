"""The shipped suites are tests too: their asserts say what differs."""

import pytest

pytest.register_assert_rewrite(
    "maos.testing.store_contract",
    "maos.testing.store_contract.coordination",
    "maos.testing.store_contract.lifetime",
    "maos.testing.store_contract.reading",
    "maos.testing.store_contract.writing",
)
