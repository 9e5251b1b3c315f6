"""The shipped suites are tests too: their asserts say what differs."""

import pytest

pytest.register_assert_rewrite(
    "maos.testing.store_contract",
    "maos.testing.store_contract_coordination",
    "maos.testing.store_contract_reading",
    "maos.testing.store_contract_writing",
)
