"""The journal as one agent reaches it: opened at the first call of a tool, by the door itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from maos.app import Maos
from maos.app import open as open_journal
from maos.bus.limits import OF_AGENTS
from maos.clock import SystemClock
from maos.engine.streams import RUN
from maos.errors import InvalidInput, NotFound
from maos.mcp.calls import Calls, RecordedCall
from maos.mcp.server import Identity
from maos.model.attempt import check_agent
from maos.model.run import Run
from maos.redact import Redactor
from maos.store.contract import Key


class Session:
    """One agent, its journal, and what it did so far."""

    def __init__(self, maos: Maos, identity: Identity, clock: SystemClock) -> None:
        self.maos = maos
        self.journal = maos.journal
        self.identity = identity
        self.agent = identity.agent
        self.clock = clock
        self.calls = Calls(maos.journal, clock, identity)
        self.bus = maos.bus.limited(OF_AGENTS, is_redacted=True)
        self._redactor = Redactor(identity.secrets)

    @staticmethod
    async def open(identity: Identity) -> Session:
        """Open the journal; it is never made: what an agent reports belongs where the engine is."""
        check_agent(identity.agent)
        clock = SystemClock()
        more: dict[str, Any] = {"schema": identity.schema} if identity.schema else {}
        maos = await open_journal(identity.database, create=False, clock=clock, **more)
        session = Session(maos, identity, clock)
        try:
            await session.calls.look_back()
        except BaseException:
            await maos.close()
            raise
        return session

    async def run(self) -> Run:
        """The run this agent belongs to, as it stands now."""
        if not self.identity.run:
            raise InvalidInput("you are not part of a run", hint="do without this tool")
        run = await RUN.load(self.journal, self.identity.run)
        if run is None:
            raise NotFound(f"the run {self.identity.run} is not in the journal", hint="do without this tool")
        if not run.accepts_from(self.agent):
            raise InvalidInput(f"the run was taken back, and {self.agent} is no part of it any more", hint="stop here")
        return run

    async def is_given_up(self) -> bool:
        """Whether the agent belongs to a branch of its run that was given up: nobody hears of it any more (I14)."""
        run = await RUN.load(self.journal, self.identity.run) if self.identity.run else None
        return run is not None and not run.accepts_from(self.agent)

    def clean(self, value: Any) -> Any:
        """A value as it may be written down: without secrets, and with nothing that is not text."""
        if isinstance(value, str):
            return self._redactor.text(value.encode("utf-8", "backslashreplace").decode())
        if isinstance(value, list):
            return [self.clean(each) for each in value]
        if isinstance(value, dict):
            return {self.clean(name): self.clean(each) for name, each in value.items()}
        return value


class Errand:
    """One call of a tool on its way: what it has recorded, and how its client hears that it is still being done."""

    def __init__(self, tell: Callable[[str], None] | None = None) -> None:
        self._tell = tell
        self.calls: list[RecordedCall] = []
        self.read: list[int] = []
        """Messages it tells, by their places in the inbox."""
        self.waits = False
        """Whether it only waits for somebody else."""

    async def once(self, session: Session, *call: Any, key: Key | None = None) -> str:
        """Record a call and what it does, unless it is the repeat of one; its answer. See Calls.once."""
        recorded = await session.calls.once(*call, key=key)
        self.calls.append(recorded)
        return recorded.answer

    def still_there(self, what: str) -> None:
        """What it waits for; the client is told now and then, if it wants to be."""
        self.waits = True
        if self._tell is not None:
            self._tell(what)
