"""Tells a person elsewhere that a run needs them, or has ended: by apprise, at addresses that they gave.

Nothing here makes a run wait. A notification is recorded, sent by a thread, and its outcome is recorded. If the engine
dies in between, it is unknown whether it was sent: the engine that resumes the run records that, and does not send it
again.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote

from maos.clock import Clock
from maos.errors import Conflict, InvalidInput, NotFound, StoreUnavailable
from maos.faults import crash_point
from maos.journal.journal import Journal
from maos.model.attempt import Attempt, Permission
from maos.model.events.facts import Fact, PermissionRequested
from maos.model.events.records import NoticeFailed, NoticeOutcome, NoticePlanned, NoticeSent, NoticeUnknown
from maos.model.events.run import QuestionAsked, RunBlocked, RunEnded, RunEvent, RunPaused, TaskFailed
from maos.model.failure import ASK, TABLE
from maos.model.notice import RunNotices, stream
from maos.model.run import Question, Run
from maos.model.run_status import permissions
from maos.runs.budgets import is_at_limit
from maos.text import cut
from maos.tuples import NamedTuple

PAUSES_S = (1.0, 5.0, 15.0)
"""Between one try and the next."""
CLOSE_S = 10.0
"""How long the end of a run waits for what is still to be sent."""
TEXT_CHARS_MAX = 500
SECRET_CHARS_MIN = 4

Tell = Callable[[str], None]


class Address(NamedTuple):
    """Where to send to."""

    url: str
    name: str
    """Number and scheme: what may be shown of it."""


def addresses(urls: Sequence[str]) -> list[Address]:
    """Addresses that can be sent to; says what is wrong with one, and never what it is."""
    if not urls:
        return []
    apprise = _apprise()
    found = []
    for number, url in enumerate(dict.fromkeys(urls), 1):
        name = f"{number} ({_scheme(url)})"
        if not apprise.Apprise().add(url):
            raise InvalidInput(
                f"address {name} for notifications is not one that apprise knows",
                hint="it looks like mailto://user:password@host or json://host; the documentation of apprise lists all",
            )
        found.append(Address(url, name))
    return found


def send(address: Address, title: str, body: str) -> str:
    """Send something now; what went wrong, or nothing. Waits for the network: for a thread."""
    import logging

    apprise = _apprise()
    target = apprise.Apprise()
    target.add(address.url)
    with apprise.LogCapture(level=logging.WARNING) as said:
        if target.notify(title=title, body=body):
            return ""
        text = " ".join(said.getvalue().split())
    return without_address(re.sub(r"^[\d:,.\- ]*\w* - ", "", text), address.url) or "it was refused"


def test(address: Address) -> str:
    """Send a test to an address; what went wrong, or nothing. Waits for the network."""
    return send(address, "maos: a test", "maos can send you notifications at this address.")


def without_address(text: str, url: str) -> str:
    """A text with nothing of an address in it that could be a secret."""
    parts = {part for each in (url, unquote(url)) for part in re.split(r"[/:@?&=#,\s]+", each)}
    for part in sorted(parts, key=len, reverse=True):
        if len(part) >= SECRET_CHARS_MIN and part != _scheme(url):
            text = text.replace(part, "…")
    return text


async def load(journal: Journal, run: str) -> RunNotices:
    """All notifications of a run."""
    found = RunNotices()
    async for record in journal.read(stream(run)):
        found.apply(record.event)
    return found


class Notifier:
    """Tells about one run, for the engine that executes it."""

    def __init__(
        self, journal: Journal, clock: Clock, run: str, to: Sequence[Address], *, tell: Tell, url: str = ""
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._run = run
        self._url = url.rstrip("/")
        """The address of the page, if it is known: a notice then has a link to what it is about."""
        self.to = list(to)
        self._tell = tell
        self._addresses = len(self.to)
        """How many there were so far."""
        self._known = RunNotices()
        self._is_open = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """An address gets one notice after the other, in the order in which they are planned."""
        self._planning = asyncio.Lock()
        self._closing = asyncio.Event()
        self._writing = asyncio.Lock()

    async def open(self, run: Run | None = None, attempts: Sequence[Attempt] = ()) -> None:
        """Begin: record of which notices it is unknown whether they were sent, and send those that are missing."""
        if not self.to:
            return
        self._known = await load(self._journal, self._run)
        for notice, address in self._known.unknown():
            await self._record(NoticeUnknown(id=notice.id, address=address, at_us=self._clock.now_us()))
            self._tell(f"unknown whether this was sent to address {address}: {notice.title}")
        self._is_open = True
        if run is not None:
            for question in run.open_questions:
                self._asked(run, question)
        for attempt in attempts:
            for asked in permissions(attempt):
                self._wanted(attempt, asked)

    async def readdress(self, to: Sequence[Address]) -> None:
        """Use these addresses from now on; notifications that are planned for others are still sent."""
        known = {each.url: each for each in self.to}
        for each in to:
            if each.url not in known:
                self._addresses += 1
                known[each.url] = each._replace(name=f"{self._addresses} ({_scheme(each.url)})")
        self.to = [known[each.url] for each in to]
        if not self._is_open and not self._closing.is_set():
            await self.open()

    async def close(self) -> None:
        """Send what is left, for a while; unknown is what had no answer by then."""
        self._is_open = False
        self._closing.set()
        try:
            if self._tasks and (await asyncio.wait(self._tasks, timeout=CLOSE_S))[1]:
                for notice, address in self._known.unknown():
                    self._tell(f"unknown whether this was sent to address {address}: {notice.title}")
        finally:
            for each in self._tasks:
                each.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- what is worth telling -------------------------------------------------------------------------------

    def changed(self, run: Run, events: Sequence[RunEvent]) -> None:
        """Something was recorded of the run."""
        if not self._is_open:
            return
        for event in events:
            match event:
                case QuestionAsked():
                    self._asked(run, run.questions[event.id])
                case TaskFailed() if event.failure != "halted" and TABLE[event.failure].action == ASK:
                    known = TABLE[event.failure]
                    body, command = f"{known.meaning}. {event.why}", f"{known.hint}\nmaos resume {run.id}"
                    title = f"{event.task} needs you"
                    self._plan(f"blocked/{event.task}/{event.at_us}", "blocked", title, body, command)
                case RunBlocked():
                    body = f"{TABLE[event.failure].meaning}\n{event.to_do}"
                    self._plan(f"blocked/{event.kind}/{event.at_us}", "blocked", f"{event.kind} needs you", body)
                case RunPaused() if is_at_limit(run):
                    self._plan(f"budget/{event.at_us}", "budget", f"paused: {run.why}", f"maos resume {run.id}")
                case RunEnded():
                    said = f"{event.status}, {run.done} of {len(run.tasks)} tasks done"
                    body = "\n".join(each for each in (run.request, run.why) if each)
                    self._plan(f"ended/{event.at_us}", event.status, said, body)

    def heard(self, attempt: Attempt, facts: Sequence[Fact]) -> None:
        """Something was recorded of an agent."""
        if not self._is_open:
            return
        for fact in facts:
            if isinstance(fact, PermissionRequested) and not fact.rule:
                self._wanted(attempt, fact)

    def _wanted(self, attempt: Attempt, asked: PermissionRequested | Permission) -> None:
        task = attempt.agent.removeprefix(f"{self._run}.")
        title = f"{task} asks to use {asked.tool or 'a tool'}"
        command = f"maos answer {attempt.agent}/{asked.id} yes"
        ref = f"{attempt.agent}/{asked.id}"
        self._plan(f"permission/{attempt.id}/{asked.id}", "permission", title, str(asked.input), command, ref)

    def _asked(self, run: Run, question: Question) -> None:
        who = ", ".join(each.removeprefix(f"{run.id}.") for each in question.asked_by)
        choices = f"\n{' | '.join(question.choices)}" if question.choices else ""
        title = f"{who or 'a check'} asks you"
        command = f"maos answer {run.id}/{question.id} …"
        ref = f"{run.id}/{question.id}"
        self._plan(f"question/{question.id}", "question", title, f"{question.question}{choices}", command, ref)

    def alarm(self, id: str, title: str, body: str, command: str) -> None:
        """Tell about something that is not of a run; once for each id."""
        if self._is_open:
            self._plan(id, "alarm", title, body, command, view="system")

    def _plan(
        self, id: str, what: str, title: str, body: str, command: str = "", ref: str = "", view: str = ""
    ) -> None:
        """Send a notice; the command that it asks for, and the link, are there, however long the rest is."""
        view = view or (f"inbox/{quote(ref)}" if ref else f"run/{quote(self._run)}")
        link = f"{self._url}/#/{view}" if self._url else ""
        planned = NoticePlanned(
            id=id,
            what=what,
            title=f"maos {self._run}: {title}",
            body="\n".join(filter(None, (cut(body, TEXT_CHARS_MAX), command, link))),
            addresses=[each.name for each in self.to],
            at_us=self._clock.now_us(),
        )
        task = asyncio.create_task(self._send_all(planned))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- recording and sending -------------------------------------------------------------------------------

    async def _send_all(self, notice: NoticePlanned) -> None:
        async with self._planning:
            if notice.id in self._known.by_id or not await self._record(notice):
                return
        await asyncio.gather(*(self._send(notice, each) for each in self.to))

    async def _send(self, notice: NoticePlanned, address: Address) -> None:
        async with self._turns[address.name]:
            why = await self._tried(notice, address)
            now_us = self._clock.now_us()
            if not why:
                await self._record(NoticeSent(id=notice.id, address=address.name, at_us=now_us))
                return
            await self._record(NoticeFailed(id=notice.id, address=address.name, why=why, at_us=now_us))
            self._tell(f"not sent to address {address.name}: {notice.title} ({why})")

    async def _tried(self, notice: NoticePlanned, address: Address) -> str:
        """Send a notice, with some tries; what went wrong with the last one, or nothing."""
        for pause_s in (*PAUSES_S, None):
            crash_point("notify:before send")
            why = await asyncio.to_thread(send, address, notice.title, notice.body)
            crash_point("notify:after send")
            if not why or pause_s is None or self._closing.is_set():
                break
            self._tell(f"not sent to address {address.name}: {notice.title} ({why}); retrying")
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._closing.wait()
        return why

    async def _record(self, event: NoticePlanned | NoticeOutcome) -> bool:
        """Write it down; False if it is there already. While the store is away, this waits: nothing else does."""
        async with self._writing:
            while True:
                try:
                    await self._journal.append(stream(self._run), event, expected=self._known.version)
                except (Conflict, StoreUnavailable) as error:
                    if isinstance(error, StoreUnavailable):
                        await asyncio.sleep(1.0)
                    self._known = await load(self._journal, self._run)
                    known = self._known.by_id.get(event.id)
                    if known is not None and isinstance(event, NoticePlanned):
                        return known.planned.at_us == event.at_us  # it was written after all, or another engine has
                    if known is not None and isinstance(event, NoticeOutcome) and event.address in known.statuses:
                        return False
                    continue
                self._known.apply(event)
                return True


def _scheme(url: str) -> str:
    scheme, found, _rest = url.partition("://")
    return scheme if found and scheme.isalnum() else "?"


def _apprise() -> Any:
    try:
        import apprise
    except ImportError as error:
        raise NotFound("notifications are sent by apprise, which is not installed",
                       hint="pip install 'maos[notify]'") from error  # fmt: skip
    return apprise
