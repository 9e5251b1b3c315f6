"""The shipped suites are tests too: their asserts say what differs."""

import pytest

pytest.register_assert_rewrite(
    "maos_testing.store_contract",
    "maos_testing.store_contract.coordination",
    "maos_testing.store_contract.lifetime",
    "maos_testing.store_contract.streams",
    "maos_testing.store_contract.appends",
)
