"""How much one sender may say, so that one who talks without end harms nobody else (A9, A20)."""

from __future__ import annotations

from typing import NamedTuple

from maos.clock import MICROSECONDS, Clock
from maos.errors import InvalidInput, MaosError

SENDERS_REMEMBERED_MAX = 10_000
_MINUTE_US = 60 * MICROSECONDS


class TooMuch(InvalidInput):
    """A message that is larger, goes to more, or is further down a chain of replies than is allowed."""


class TooFast(MaosError):
    """Somebody sends more messages a minute than they may; nothing was sent."""

    def __init__(self, sender: str, *, per_minute: int, wait_s: float) -> None:
        super().__init__(f"{sender} has sent {per_minute} messages within a minute", hint=f"wait {wait_s:.0f} s")
        self.wait_s = wait_s


class MessageLimits(NamedTuple):
    """What a message may be."""

    text_bytes_max: int = 1 << 20
    metadata_bytes_max: int = 64 << 10
    recipients_max: int = 1_000
    hops_max: int = 16
    """How many messages may lead to one: a loop of agents that answer each other ends here."""
    per_minute: int = 0
    """How many messages one sender may send within a minute; 0 for any number."""


OF_AGENTS = MessageLimits(text_bytes_max=64 << 10, metadata_bytes_max=16 << 10, recipients_max=100, per_minute=120)
"""For what agents say by themselves: nobody has read it before it is sent."""


class Rate:
    """How fast each sender has been sending: each message takes its share of a minute."""

    def __init__(self, clock: Clock, per_minute: int) -> None:
        self._clock = clock
        self._per_minute = per_minute
        self._paid_until_us: dict[str, int] = {}

    def check(self, sender: str) -> None:
        """TooFast when a sender has used up its minute; else this message is counted."""
        if not self._per_minute:
            return
        now_us = self._clock.steady_us()
        until_us = max(now_us, self._paid_until_us.get(sender, 0)) + _MINUTE_US // self._per_minute
        if until_us > now_us + _MINUTE_US:
            wait_s = (until_us - now_us - _MINUTE_US) / MICROSECONDS
            raise TooFast(sender, per_minute=self._per_minute, wait_s=max(1.0, wait_s))
        if len(self._paid_until_us) >= SENDERS_REMEMBERED_MAX:
            self._paid_until_us = {name: paid for name, paid in self._paid_until_us.items() if paid > now_us}
        self._paid_until_us[sender] = until_us
