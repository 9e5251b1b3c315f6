"""The result line of Claude Code: what a turn used and cost, what went wrong, and how it ended.

`is_error` says whether it went wrong; `subtype` does not (an API failure is a "success"). Figures named `total` keep
counting over turns, and over a resume; only differences of them are facts.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from maos.agents.values import Object, as_count, as_list, as_number, as_object, as_text
from maos.model.events import facts
from maos.model.events.facts import Fact
from maos.model.failure import from_words

BY_SUBTYPE = {"error_max_turns": "turns_reached", "error_max_budget_usd": "budget_reached"}
EPOCH = re.compile(r"\|(\d{10})\b")
"""The time of a reset, as older versions put it behind the message of a usage limit."""

NAMES = {
    "input": ("input_tokens", "inputTokens"),
    "output": ("output_tokens", "outputTokens"),
    "cache_read": ("cache_read_input_tokens", "cacheReadInputTokens"),
    "cache_write": ("cache_creation_input_tokens", "cacheCreationInputTokens"),
}


class Counted(NamedTuple):
    """What is known before a result."""

    total_usd: float
    """The total of the result before; 0 if there was none."""
    resumed: bool
    """Whether the total may begin with the cost of earlier attempts."""


class Used(NamedTuple):
    """What a turn used."""

    tokens: dict[str, int]
    usd: float
    total_usd: float


def tokens(usage: Object) -> dict[str, int]:
    """Counts of tokens by our names, from either way of writing them."""
    return {name: as_count(usage.get(theirs[0])) or as_count(usage.get(theirs[1])) for name, theirs in NAMES.items()}


def added(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """The sum of two counts."""
    return {name: one.get(name, 0) + other.get(name, 0) for name in NAMES}


def missing(all_: dict[str, int], reported: dict[str, int]) -> dict[str, int]:
    """What was used and not reported yet."""
    return {name: max(0, all_.get(name, 0) - reported.get(name, 0)) for name in NAMES}


def used(result: Object, before: Counted) -> Used:
    """Tokens and cost since the result before."""
    total_usd = _usd(result.get("total_cost_usd"))
    since = result.get("model_usage_since_last_result")
    if isinstance(since, dict):
        sum_: dict[str, int] = {}
        usd = 0.0
        for model in since.values():
            if isinstance(model, dict):
                sum_ = added(sum_, tokens(model))
                usd += _usd(model.get("costUSD"))
        return Used(sum_, usd, total_usd)
    # An older version. The first total after a resume has an unknown cost of earlier attempts in it.
    unknown = before.resumed and not before.total_usd
    usd = 0.0 if unknown else max(0.0, total_usd - before.total_usd)
    return Used(tokens(as_object(result.get("usage"))), usd, total_usd)


def trouble(result: Object, *, reset_s: int) -> list[Fact]:
    """What went wrong, if anything did that was not wanted."""
    reason = as_text(result.get("terminal_reason"))
    if result.get("is_error") is not True or reason.startswith("aborted"):
        return []
    words = _words(result)
    status = as_count(result.get("api_error_status"))
    failure = BY_SUBTYPE.get(as_text(result.get("subtype")))
    if failure is None:
        failure = "context_overflow" if reason == "prompt_too_long" else from_words(words, status=status)
    if (found := EPOCH.search(words)) is not None:
        reset_s = int(found.group(1))
    reset_us = reset_s * 1_000_000 if failure == "rate_limited" else 0
    return [facts.Trouble(failure, words, status=status, reset_us=reset_us)]


def ended(result: Object) -> facts.TurnEnded:
    """The end of the turn."""
    failed = result.get("is_error") is True
    reason = as_text(result.get("terminal_reason")) or as_text(result.get("subtype"))
    words = "interrupted" if reason.startswith("aborted") else _words(result)
    return facts.TurnEnded(
        words if failed else as_text(result.get("result")),
        failed=failed,
        reason=reason if failed else "",
        turns=as_count(result.get("num_turns")),
    )


def _usd(value: Any) -> float:
    return max(0.0, as_number(value) or 0.0)


def _words(result: Object) -> str:
    errors = [each for each in as_list(result.get("errors")) if isinstance(each, str)]
    return "; ".join(errors) or as_text(result.get("result")) or as_text(result.get("subtype"))
