"""Whatever is sent, taken, acknowledged, given back and killed, in whatever order: a plain list knows the outcome.

Hypothesis invents the lives of senders and receivers. Beside the bus stands the plainest thing that could answer: for
each inbox a list of messages, how often each was handed out, and whether it is done with (I18, I19, I20, I21).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

import maos
from maos.app import Maos
from maos.bus.receiver import Delivery, MessageExpired, Receiver
from maos_testing.manual_clock import ManualClock
from tests.bus.receivers import die

NAMES = st.sampled_from(["a", "b", "c"])
TOPICS = st.sampled_from(["news", "alerts"])
PICKS = st.floats(0, 1, exclude_max=True)
VISIBILITY_S = 30.0
TRIES_MAX = 3
WINDOW = 3


class Letter:
    """A message in the inbox of one."""

    def __init__(self, text: str, sender: str, expires_us: int) -> None:
        self.text = text
        self.sender = sender
        self.expires_us = expires_us
        self.end = ""
        """Empty, acknowledged or dead."""
        self.again = False
        """Whether a receiver that died may have had it."""


class BusMachine(RuleBasedStateMachine):
    """Three who send to each other, and what should be in their inboxes."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.m: Maos = self.run(self.open())
        self.inboxes: dict[str, list[Letter]] = {name: [] for name in "abc"}
        self.topics: dict[str, list[str]] = {"news": [], "alerts": []}
        self.receivers: dict[str, Receiver] = {}
        self.held: dict[str, list[Delivery]] = {name: [] for name in "abc"}
        self.stale: list[Delivery] = []
        self.count = 0

    async def open(self) -> Maos:
        return await maos.open(":memory:", clock=self.clock)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def teardown(self) -> None:
        self.everything_ends()
        self.run(self.m.close())
        self.runner.close()

    # --- sending ---------------------------------------------------------------------------------------------

    @initialize(sender=NAMES, to=NAMES)
    def begin(self, sender: str, to: str) -> None:
        self.send(sender, to, None)

    @rule(sender=NAMES, to=NAMES, ttl_s=st.sampled_from([None, None, 50.0]))
    def send(self, sender: str, to: str, ttl_s: float | None) -> None:
        self.count += 1
        self.run(self.m.bus.send(sender, to, str(self.count), ttl_s=ttl_s))
        self.arrives(to, sender, ttl_s)

    @rule(sender=NAMES, topic=TOPICS)
    def publish(self, sender: str, topic: str) -> None:
        self.count += 1
        sent = self.run(self.m.bus.publish(sender, topic, str(self.count)))
        expected = [name for name in self.topics[topic] if name != sender]
        assert list(sent.to) == expected
        for name in expected:
            self.arrives(name, sender, None)

    def arrives(self, name: str, sender: str, ttl_s: float | None) -> None:
        expires_us = self.clock.now_us() + int(ttl_s * 1e6) if ttl_s else 0
        self.inboxes[name].append(Letter(str(self.count), sender, expires_us))

    @rule(name=NAMES, topic=TOPICS)
    def join(self, name: str, topic: str) -> None:
        self.run(self.m.bus.subscribe(name, topic))
        if name not in self.topics[topic]:
            self.topics[topic].append(name)

    @rule(name=NAMES, topic=TOPICS)
    def leave(self, name: str, topic: str) -> None:
        self.run(self.m.bus.unsubscribe(name, topic))
        if name in self.topics[topic]:
            self.topics[topic].remove(name)

    # --- receiving -------------------------------------------------------------------------------------------

    def due(self, name: str) -> list[int]:
        """The versions that could be delivered to somebody now."""
        held = {each.version for each in self.held[name]}
        return [number for number, letter in enumerate(self.inboxes[name], 1) if not letter.end and number not in held]

    @rule(name=NAMES)
    def take(self, name: str) -> None:
        held = self.held[name]
        if not self.due(name) or len(held) >= WINDOW:
            return
        if held and self.inboxes[name][min(self.due(name)) - 1].again:
            return  # what a dead one had is handed out alone
        receiver = self.receivers.get(name)
        if receiver is None:
            receiver = self.receivers[name] = self.m.bus.receive(
                name, visibility_s=VISIBILITY_S, tries_max=TRIES_MAX, window=WINDOW
            )
        delivery = self.run(self.next_of(receiver, name))
        if delivery is None:
            return
        letter = self.inboxes[name][delivery.version - 1]
        assert letter.text == delivery.message.text
        assert not letter.end, "it was acknowledged or given up before (I19)"
        assert delivery.tries <= TRIES_MAX
        assert delivery.version == min(self.due(name)), "out of order (I21)"
        held.append(delivery)

    async def next_of(self, receiver: Receiver, name: str) -> Delivery | None:
        """The next delivery; None when all that was due turned out to be dead letters."""
        task = asyncio.create_task(anext(receiver))
        for _ in range(200):
            await asyncio.sleep(0)
            if task.done():
                await self.bury(name)
                return task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self.bury(name)
        assert self.due(name) == [], "something was due and did not come (I18)"
        return None

    async def bury(self, name: str) -> None:
        """What has become a dead letter was expired or tried too often, and has a reason."""
        async for each in self.m.bus.dead_letters(name):
            letter = self.inboxes[name][each.version - 1]
            if not letter.end:
                assert each.why
                assert each.tries > TRIES_MAX or 0 < letter.expires_us <= self.clock.now_us()
                letter.end = "dead"

    @rule(name=NAMES, pick=PICKS)
    def acknowledge(self, name: str, pick: float) -> None:
        if held := self.held[name]:
            delivery = held.pop(int(pick * len(held)))
            self.run(delivery.ack())
            self.inboxes[name][delivery.version - 1].end = "acknowledged"
            self.run(self.bury(name))

    @rule(name=NAMES, pick=PICKS)
    def reject(self, name: str, pick: float) -> None:
        if held := self.held[name]:
            delivery = held.pop(int(pick * len(held)))
            self.run(delivery.reject("no"))
            self.inboxes[name][delivery.version - 1].end = "dead"

    @rule(name=NAMES)
    def revive(self, name: str) -> None:
        letters = self.run(self.letters(name))
        if letters:
            self.run(self.m.bus.requeue(name, letters[0].version))
            old = self.inboxes[name][letters[0].version - 1]
            old.end = "sent again"
            lives_us = old.expires_us and int(50e6)
            self.inboxes[name].append(Letter(old.text, old.sender, lives_us and self.clock.now_us() + lives_us))

    async def letters(self, name: str) -> list[Any]:
        return [each async for each in self.m.bus.dead_letters(name)]

    @rule(name=NAMES)
    def kill(self, name: str) -> None:
        """A receiver dies, and its time runs out."""
        receiver = self.receivers.pop(name, None)
        if receiver is not None:
            self.run(die(receiver))
            self.clock.advance(VISIBILITY_S + 1)
            for other in list(self.receivers):  # time has passed for all of them
                self.run(die(self.receivers[other]))
                self.forget(other)
                del self.receivers[other]
            self.forget(name)

    @rule(name=NAMES)
    def close(self, name: str) -> None:
        """A receiver ends as it should."""
        receiver = self.receivers.pop(name, None)
        if receiver is not None:
            self.run(receiver.close())
            self.forget(name)

    def forget(self, name: str) -> None:
        self.stale += self.held[name]
        self.held[name] = []
        for letter in self.inboxes[name]:
            letter.again = True

    @rule(pick=PICKS)
    def acknowledge_late(self, pick: float) -> None:
        """I20: one whose token is not the newest changes nothing."""
        if self.stale:
            with pytest.raises(MessageExpired):
                self.run(self.stale[int(pick * len(self.stale))].ack())

    # --- what must be true -----------------------------------------------------------------------------------

    @invariant()
    def what_waits_is_what_is_not_done_with(self) -> None:
        async def waiting(name: str) -> list[int]:
            return [each.message.version async for each in self.m.bus.waiting(name)]

        for name, letters in self.inboxes.items():
            self.run(self.bury(name))
            open_ones = [number for number, letter in enumerate(letters, 1) if not letter.end]
            assert self.run(waiting(name)) == open_ones

    @invariant()
    def the_history_has_every_message(self) -> None:
        async def said() -> list[str]:
            return [each.message.text async for each in self.m.bus.history()]

        assert sorted(set(self.run(said())), key=int) == [str(number) for number in range(1, self.count + 1)]

    def everything_ends(self) -> None:
        """At last, everything is delivered and acknowledged, or dead with a reason (I18)."""
        for name in "abc":
            self.close(name)
            receiver = self.m.bus.receive(name, tries_max=1_000)
            last: dict[str, int] = {}
            while self.due(name):
                delivery = self.run(self.next_of(receiver, name))
                if delivery is None:
                    break
                letter = self.inboxes[name][delivery.version - 1]
                assert delivery.version > last.get(letter.sender, 0)
                last[letter.sender] = delivery.version
                self.run(delivery.ack())
                letter.end = "acknowledged"
            assert self.due(name) == []


def test_a_plain_list_knows_the_outcome() -> None:
    """I18, I19, I20, I21."""
    run_state_machine_as_test(
        BusMachine,
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
