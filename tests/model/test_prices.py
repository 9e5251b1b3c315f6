"""What models cost: names, prices and sums; and an attempt whose cost is estimated until it is reported."""

from typing import Any

import pytest

from maos.model.attempt import Attempt
from maos.model.events.facts import Cost, Usage
from maos.model.events.parts import Spent
from maos.model.prices import TABLE, cost_of, price_of
from maos.settings.schema import PriceSettings
from tests.events import event

OPUS = TABLE["claude-opus-4-5"]
CHEAP = PriceSettings(input=1, output=2)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("claude-opus-4-5", "claude-opus-4-5"),
        ("claude-opus-4-5-20251101", "claude-opus-4-5"),
        ("Claude-Opus-4-5[1m]", "claude-opus-4-5"),
        ("us.anthropic.claude-opus-4-5-20251101-v1:0", "claude-opus-4-5"),
        ("claude-opus-4-5@20251101", "claude-opus-4-5"),
        ("openrouter/anthropic/claude-opus-4-5", "claude-opus-4-5"),
        ("claude-opus-4-20250514", "claude-opus-4"),
        ("gpt-4.1", "gpt-4.1"),
    ],
)
def test_a_model_has_one_price_whatever_a_provider_calls_it(name: str, model: str) -> None:
    assert price_of(name, {}) is TABLE[model]


@pytest.mark.parametrize("name", ["", "claude-opus-4-99", "claude-opus", "gpt-5-unheard-of", "my-opus"])
def test_a_model_that_is_not_known_has_no_price(name: str) -> None:
    assert price_of(name, {}) is None


def test_prices_of_the_user_come_first_and_the_longest_name_counts() -> None:
    dear = PriceSettings(input=9, output=9)
    own = {"claude-*": CHEAP, "claude-opus-*": dear}
    assert price_of("claude-opus-4-5", own) is dear
    assert price_of("claude-haiku-4-5", own) is CHEAP
    assert price_of("gpt-5", own) is TABLE["gpt-5"]


def test_each_kind_of_token_has_its_price() -> None:
    price = PriceSettings(input=1, output=10, cache_write=100, cache_write_1h=1000, cache_read=10_000)
    used = Usage(input=1, output=2, cache_write=7, cache_write_1h=3, cache_read=5)
    assert cost_of(used, price) == pytest.approx((1 + 20 + 400 + 3000 + 50_000) / 1e6)
    assert cost_of(used, CHEAP) == pytest.approx((1 + 4 + 7 + 5) / 1e6), "what has no price of its own is input"


def told(*facts: Any) -> Attempt:
    attempt = Attempt(id="a.1")
    for offset, fact in enumerate(facts, 1):
        attempt.apply(event("attempt_output", offset=offset, facts=[fact], at_us=1))
    return attempt


def usage(message: str, usd: float | None, tokens: int = 10) -> Usage:
    return Usage(message, model="m", input=tokens, usd=usd)


def test_what_is_estimated_counts_as_it_comes_and_a_message_once() -> None:
    attempt = told(usage("1", 0.25), usage("2", 0.5), usage("2", 0.75))
    assert (attempt.cost_usd, attempt.estimated_usd, attempt.spent.tokens) == (1.0, 1.0, 20)


def test_a_report_replaces_what_was_estimated_since_the_last_one() -> None:
    attempt = told(usage("1", 0.25), usage("2", 0.5), Cost(0.8, turn="t1"), usage("3", 0.25))
    assert attempt.spent == Spent(1.05, 0.25, 30, 0)
    assert told(usage("1", 0.25), Cost(0.8, turn="t1"), usage("2", 0.25), Cost(0.1, turn="t2")).spent == Spent(
        0.9, 0.0, 20, 0
    )


def test_a_report_that_comes_before_the_tokens_of_its_turn_covers_them() -> None:
    """As agents over ACP have it: the cost grows while they work, and the tokens come at the end of the turn."""
    attempt = told(Cost(0.1, turn="a.1/1"), Cost(0.3, turn="a.1/1"), usage("a.1/1", 5.0))
    assert attempt.spent == Spent(0.3, 0.0, 10, 0)


def test_a_model_without_a_price_is_never_free() -> None:
    attempt = told(usage("1", None), usage("2", 0.5))
    assert (attempt.spent, attempt.unpriced_model) == (Spent(0.5, 0.5, 20, 10), "m")
    assert told(usage("1", None), Cost(0.2, turn="t")).spent == Spent(0.2, 0.0, 10, 0)
