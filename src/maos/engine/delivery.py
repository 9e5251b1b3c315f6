"""Messages to a running agent: taken in from its inbox, said as soon as its program can accept them, acknowledged.

A message can also reach the agent by a tool that reads messages or asks a person; then it is not said again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from maos.agents.contract import Reply
from maos.bus.acknowledgements import Waiting, acknowledge, dead_letter
from maos.bus.mailbox import patiently
from maos.clock import Clock
from maos.engine.output import OutputReader
from maos.holder import wire
from maos.journal.journal import Append
from maos.model.attempt import ASKING_TOOL, READING_TOOL, Attempt
from maos.model.events import facts
from maos.model.events.facts import Fact
from maos.model.message import EXPIRED, TOO_LONG, Message, render

if TYPE_CHECKING:
    from maos.bus.bus import Bus


class MessageDelivery:
    """The messages of one attempt. `write` sends an input to the agent; `is_behind` is whether the agent printed
    something before this engine attached that the engine has not received yet."""

    def __init__(
        self,
        attempt: Attempt,
        output: OutputReader,
        bus: Bus,
        clock: Clock,
        *,
        prose: bool,
        write: Callable[[Reply], Awaitable[None]],
        is_behind: Callable[[], bool],
    ) -> None:
        self._attempt = attempt
        self._output = output
        self._bus = bus
        self._clock = clock
        self._prose = prose
        self._write = write
        self._is_behind = is_behind
        self._undelivered: list[Message] = []
        self._undeliverable: list[Waiting] = []
        self._fetched: list[int] = []
        """Messages that the agent has read by a tool, and that need not be said to it any more."""
        self._has_read = False
        """Whether a tool that reads messages has succeeded in this turn."""
        self._taken = 0
        """The version of the last message that was taken in."""

    def is_new(self, version: int) -> bool:
        """Whether a message of the inbox was taken in neither here nor by an engine before this one."""
        return version > max(self._attempt.inbox_cursor, self._taken)

    def take_in(self, said: Message) -> None:
        """Keep a message until the agent has got it."""
        self._undelivered.append(said)
        self._taken = said.version

    def note_reading(self, ready: Sequence[Fact]) -> None:
        """Note whether a tool that reads messages has succeeded, before its use is folded in."""
        called = (each for each in ready if isinstance(each, facts.ToolUse) and each.name.endswith(READING_TOOL))
        reading = self._open_tools(READING_TOOL) | {each.id for each in called}
        succeeded = [each.id for each in ready if isinstance(each, facts.ToolResult) and not each.failed]
        self._has_read |= not reading.isdisjoint(succeeded)

    def acknowledgements(self, ready: Sequence[Fact]) -> list[Append]:
        """Messages that the agent has got are acknowledged in the same append that says so (I19)."""
        ids = [each.id for each in ready if isinstance(each, facts.InputReceived)]
        versions = [int(id.removeprefix("inbox/")) for id in ids if id.startswith("inbox/")]
        agent, dead, self._undeliverable = self._attempt.agent, self._undeliverable, []
        fetched, self._fetched = self._fetched, []
        floor = min([max(versions, default=0), *(each.version - 1 for each in self._undelivered)])
        return [
            *dead_letter(agent, dead),
            *acknowledge(agent, versions + fetched, floor=floor, by=self._attempt.id),
        ]

    async def deliver(self) -> bool:
        """Say what is waiting, as far as the agent can take it now; whether anything was said."""
        said = False
        for said_by in list(self._undelivered):
            if said_by.is_expired(self._clock.now_us()):
                self._undelivered.remove(said_by)
                self._undeliverable.append(Waiting(said_by, 0, EXPIRED))
                continue
            question = said_by.metadata.get("question")
            if question in self._attempt.answers_read:
                self._undelivered.remove(said_by)
                self._fetched.append(said_by.version)
                continue
            if self._open_tools(READING_TOOL) or (question and (self._open_tools(ASKING_TOOL) or self._is_behind())):
                continue  # the tool that waits for it gives it to the agent; if it does not, it is said after the turn
            text = render(said_by) if self._prose else said_by.text
            reply = self._output.conversation.say(f"inbox/{said_by.version}", text)
            if reply is None:
                break
            if len(reply.data) > wire.INPUT_BYTES_MAX:  # no bus sends it; it came with a file
                self._undelivered.remove(said_by)
                self._undeliverable.append(Waiting(said_by, 0, TOO_LONG))
                continue
            await self._write(reply)
            self._undelivered = [each for each in self._undelivered if each.version != said_by.version]
            said = True
        return said

    async def deliver_after_turn(self) -> bool:
        """The agent has answered: say what is waiting and was not read by a tool; whether anything was said."""
        has_read, self._has_read = self._has_read, False
        waiting = await patiently(self._waiting)
        for each in waiting.values():  # an engine that has just attached has taken in nothing yet
            if self.is_new(each.message.version):
                self.take_in(each.message)
        if self._undelivered:  # it may have read some of it by a tool meanwhile
            read = {version for version, each in waiting.items() if each.tries}
            self._fetched += [
                each.version
                for each in self._undelivered
                if each.version in read and (has_read or each.metadata.get("question"))
            ]
            self._undelivered = [
                each for each in self._undelivered if each.version in waiting and each.version not in self._fetched
            ]
        return await self.deliver()

    async def _waiting(self) -> dict[int, Waiting]:
        """The messages that the agent has not acknowledged, by their versions."""
        return {each.message.version: each async for each in self._bus.waiting(self._attempt.agent)}

    def _open_tools(self, name: str) -> set[str]:
        """The ids of calls of a tool of maos that the agent waits for."""
        return {id for id, tool in self._attempt.tools_open.items() if tool.name.endswith(name)}
