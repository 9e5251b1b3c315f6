"""What models cost: the cost of an agent at work is estimated from its tokens, until its program reports it."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from maos.model.events.facts import Usage
from maos.patterns import regex
from maos.settings.schema import PriceSettings

AS_OF = "2026-11-17"
"""When these prices were last compared with those of the providers."""

MILLION = 1_000_000


def _claude(input: float, output: float, cache_read: float) -> PriceSettings:
    """Anthropic charges 1.25 times the input for what is kept in a cache for five minutes, and twice for an hour."""
    write, hour = round(1.25 * input, 4), 2 * input
    return PriceSettings(input=input, output=output, cache_write=write, cache_write_1h=hour, cache_read=cache_read)


def _cached(input: float, output: float, cache_read: float) -> PriceSettings:
    return PriceSettings(input=input, output=output, cache_read=cache_read)


TABLE: Mapping[str, PriceSettings] = {
    "claude-3-5-haiku": _claude(0.8, 4, 0.08),
    "claude-haiku-4-5": _claude(1, 5, 0.1),
    "claude-haiku-5-5": _claude(0.1, 0.5, 0.01),
    "claude-3-5-sonnet": _claude(3, 15, 0.3),
    "claude-3-7-sonnet": _claude(3, 15, 0.3),
    "claude-sonnet-4": _claude(3, 15, 0.3),
    "claude-sonnet-4-0": _claude(3, 15, 0.3),
    "claude-sonnet-4-5": _claude(3, 15, 0.3),
    "claude-sonnet-4-6": _claude(3, 15, 0.3),
    "claude-sonnet-5": _claude(2, 10, 0.2),
    "claude-sonnet-5-5": _claude(2, 10, 0.1),
    "claude-opus-4": _claude(15, 75, 1.5),
    "claude-opus-4-0": _claude(15, 75, 1.5),
    "claude-opus-4-1": _claude(15, 75, 1.5),
    "claude-opus-4-5": _claude(5, 25, 0.5),
    "claude-opus-4-6": _claude(5, 25, 0.5),
    "claude-opus-4-7": _claude(5, 25, 0.5),
    "claude-opus-4-8": _claude(5, 25, 0.5),
    "claude-opus-5": _claude(5, 25, 0.5),
    "claude-opus-5-5": _claude(4, 20, 0.2),
    "claude-fable-5": _claude(10, 50, 1),
    "claude-fable-5-1": _claude(10, 50, 0.25),
    "claude-fable-5-2": _claude(8, 40, 0.2),
    # What Claude Code calls the newest of each family; its messages have the full names.
    "haiku": _claude(1, 5, 0.1),
    "sonnet": _claude(3, 15, 0.3),
    "opus": _claude(5, 25, 0.5),
    "fable": _claude(10, 50, 1),
    "gpt-5": _cached(1.25, 10, 0.125),
    "gpt-5-mini": _cached(0.25, 2, 0.025),
    "gpt-5-nano": _cached(0.05, 0.4, 0.005),
    "gpt-5-codex": _cached(1.25, 10, 0.125),
    "gpt-5.1": _cached(1.25, 10, 0.125),
    "gpt-5.1-codex": _cached(1.25, 10, 0.125),
    "gpt-5.1-codex-max": _cached(1.25, 10, 0.125),
    "gpt-5.1-codex-mini": _cached(0.25, 2, 0.025),
    "gpt-5.2": _cached(1.75, 14, 0.175),
    "gpt-5.2-codex": _cached(1.75, 14, 0.175),
    "gpt-5.3-codex": _cached(1.75, 14, 0.175),
    "gpt-5.4": _cached(2.5, 15, 0.25),
    "gpt-5.4-mini": _cached(0.75, 4.5, 0.075),
    "gpt-4.1": _cached(2, 8, 0.5),
    "gpt-4.1-mini": _cached(0.4, 1.6, 0.1),
    "codex-mini-latest": _cached(1.5, 6, 0.375),
    "gemini-2.5-pro": _cached(1.25, 10, 0.125),
    "gemini-2.5-flash": _cached(0.3, 2.5, 0.03),
    "gemini-3-pro-preview": _cached(2, 12, 0.2),
    "gemini-3-flash-preview": _cached(0.5, 3, 0.05),
}
"""Dollars for a million tokens."""

_AROUND = regex(r"^(?:.*/|(?:[a-z-]+\.)+)?(.+?)(?:[-@]\d{8})?(?:-v\d+)?(?::\d+)?(?:\[\w+\])?$")
"""A provider before the name of a model, and a date, a version or an option after it."""


def price_of(model: str, own: Mapping[str, PriceSettings]) -> PriceSettings | None:
    """The price of a model; None when neither the user's `own` prices nor ours have one. The longest name counts."""
    names = {model.lower(), _AROUND.sub(r"\1", model.lower())}
    for table in (own, TABLE):
        found = [each for each in table if any(fnmatchcase(name, each.lower()) for name in names)]
        if found:
            return table[max(found, key=len)]
    return None


def cost_of(usage: Usage, price: PriceSettings) -> float:
    """What the tokens of a message cost, in dollars."""
    cache_write = price.input if price.cache_write is None else price.cache_write
    hour = cache_write if price.cache_write_1h is None else price.cache_write_1h
    cache_read = price.input if price.cache_read is None else price.cache_read
    dollars = (
        usage.input * price.input
        + usage.output * price.output
        + usage.cache_read * cache_read
        + (usage.cache_write - usage.cache_write_1h) * cache_write
        + usage.cache_write_1h * hour
    )
    return dollars / MILLION


def settings_for(model: str) -> str:
    """What a person adds to their settings to give a model a price."""
    return f'[prices.of."{model}"] with input and output, in dollars for a million tokens'
