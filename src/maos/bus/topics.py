"""Who wants to hear of what, for ever: a subscription outlives the process that made it (R-302)."""

from __future__ import annotations

from maos.errors import Conflict
from maos.ids import check_name
from maos.journal.codec import Event
from maos.journal.journal import Append, Journal
from maos.model.message import TOPICS, Topics


class Subscriptions:
    """The topics, as far as they have been read."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._topics = Topics()

    async def refresh(self) -> Topics:
        """What is recorded by now."""
        async for record in self._journal.read(TOPICS, after=self._topics.version):
            if record.version == self._topics.version + 1:  # else another call has read it meanwhile
                self._topics.apply(record.type, record.data)
        return self._topics

    def unchanged(self) -> Append:
        """A part of an append that fails when somebody has joined or left since the last refresh.

        So what is sent to a topic reaches everybody who had joined it by then, in whatever process (I18).
        """
        return Append(TOPICS, (), self._topics.version)

    async def join(self, name: str, topic: str) -> None:
        """Have somebody hear of a topic from now on."""
        await self._change("topic_joined", check_name(name, "name"), check_name(topic, "topic"))

    async def leave(self, name: str, topic: str) -> None:
        """Have somebody hear of it no more."""
        await self._change("topic_left", name, topic)

    async def _change(self, type_: str, name: str, topic: str) -> None:
        while True:
            topics = await self.refresh()
            if (name in topics.members.get(topic, {})) is (type_ == "topic_joined"):
                return
            try:
                event = Event(type_, {"topic": topic, "name": name})
                await self._journal.append(TOPICS, event, expected=topics.version)
            except Conflict:
                continue  # somebody else came or went at the same time
