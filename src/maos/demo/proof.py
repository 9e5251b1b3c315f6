"""The proof: what the journal and the repository hold, against what the agents wrote down about themselves.

It needs nothing but the folder that a demonstration has left, so it can be repeated, and tried on a folder in which
something was changed.
"""

from __future__ import annotations

import asyncio
import hashlib
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from maos.app import Maos
from maos.app import open as open_journal
from maos.demo.folder import DemoFolder, DemoRecord
from maos.demo.sample import ROLES
from maos.errors import MaosError
from maos.journal.journal import Record as Event
from maos.model.attempt import stream
from maos.model.events.messages import MessageSent
from maos.model.message import PERSON, Message, acks, inbox
from maos.model.run import agent_name
from maos.model.run import stream as run_stream
from maos.workspaces.git import Git

TESTS_S_MAX = 60.0


class Count(NamedTuple):
    """Things of one kind: how many there must be, how many there are, and which make the difference."""

    what: str
    noted: int
    """By the agents' own notes."""
    found: int
    where: str
    lost: list[str]
    doubled: list[str]
    """What is there more often than it was noted, or was not noted at all."""

    @property
    def ok(self) -> bool:
        """Whether it is the same, and something at all."""
        return not self.lost and not self.doubled and self.noted > 0


class Check(NamedTuple):
    """Something else that must be so."""

    what: str
    ok: bool
    shown: str


class ProofVerdict(NamedTuple):
    """What the proof has found."""

    counts: list[Count]
    checks: list[Check]

    @property
    def ok(self) -> bool:
        """Whether nothing is missing or double, anywhere."""
        return bool(self.counts) and all(each.ok for each in self.counts) and all(each.ok for each in self.checks)


async def prove(place: DemoFolder) -> ProofVerdict:
    """Compare everything; what cannot even be read is a check that failed."""
    record = place.record()
    try:
        async with open_journal(place.database, create=False) as m:
            report = await m.verify()
            journal = _Journal(m, record.run)
            counts = [
                *await _lines(place, journal),
                *await _messages(place, journal),
                *await _questions(place, journal),
                *await _agents(place, journal),
            ]
            checks = [
                await _engines(record, journal),
                await _attached(record, journal),
                _unheard(record),
                await _order(place, journal),
            ]
    except MaosError as error:
        return ProofVerdict([], [Check("journal can be read", False, str(error))])
    damage = ", ".join(f"{each.stream}@{each.version} {each.what}" for each in report.damage[:3])
    shown = damage or f"{report.events} events, every hash matches"
    checks.append(Check("chain of hashes whole", report.ok, shown))
    counts.append(await _files(place, record))
    checks += [await _clean(place), await _tests(place)]
    return ProofVerdict(counts, checks)


def compare(what: str, where: str, noted: Iterable[str], found: Iterable[str]) -> Count:
    """The difference of two collections in which the same thing may be several times."""
    expected, there = Counter(noted), Counter(found)
    lost = sorted((expected - there).elements())
    return Count(what, expected.total(), there.total(), where, lost, sorted((there - expected).elements()))


class _Journal:
    """The run as the journal has it."""

    def __init__(self, m: Maos, run: str) -> None:
        self._m = m
        self.run = run

    async def events(self, name: str) -> list[Event]:
        return [record async for record in self._m.journal.read(name)]

    async def attempts(self, agent: str) -> list[Event]:
        """The events of all attempts of an agent, however many there were."""
        names = [each async for each in self._m.journal.streams(f"{stream(agent_name(self.run, agent))}.")]
        return [record for name in sorted(names) for record in await self.events(name)]

    async def lines(self, agent: str) -> list[str]:
        heard = [each for each in await self.attempts(agent) if each.type == "attempt_output"]
        return [str(fact["text"]) for each in heard for fact in each.data["facts"] if fact["kind"] == "line"]

    async def messages(self) -> list[Message]:
        """Every message of the run."""
        return [each.message async for each in self._m.bus.history(run=self.run)]

    async def inbox(self, agent: str) -> dict[int, str]:
        """What was put into an agent's inbox, by its place there."""
        events = await self.events(inbox(agent_name(self.run, agent)))
        return {each.version: each.event.text for each in events if isinstance(each.event, MessageSent)}


def _noted(place: DemoFolder, agent: str, key: str) -> list[Any]:
    return [note[key] for note in place.notes_of(agent) if key in note]


# --- counted -----------------------------------------------------------------------------------------------------


async def _lines(place: DemoFolder, journal: _Journal) -> list[Count]:
    """Every line that an agent printed."""
    return [
        compare(f"lines of the {agent}", "journal", _noted(place, agent, "line"), await journal.lines(agent))
        for agent in ROLES
    ]


async def _messages(place: DemoFolder, journal: _Journal) -> list[Count]:
    """Every message: sent, put into each inbox, read from there, and acknowledged."""
    names = {agent_name(journal.run, agent): agent for agent in ROLES}
    sent = [
        f"{agent} → {to}: {note['sent']}"
        for agent in ROLES
        for note in place.notes_of(agent)
        if "sent" in note
        for to in ([str(note["to"])] if note["to"] else sorted(set(ROLES) - {agent}))
    ]
    said = await journal.messages()
    on_the_bus = [
        f"{names.get(each.sender, each.sender)} → {names.get(to, to)}: {each.text}"
        for each in said
        if each.sender != PERSON
        for to in each.to
    ]
    read, in_inboxes, settled = [], [], []
    for agent in ROLES:
        there = await journal.inbox(agent)
        read += [f"{agent} ← {note['text']}" for note in place.notes_of(agent) if "got" in note]
        in_inboxes += [f"{agent} ← {text}" for text in there.values()]
        settled += [
            f"{agent} ← {there.get(version, 'something else')}"
            for each in await journal.events(acks(agent_name(journal.run, agent)))
            if each.type == "message_acknowledged"
            for version in each.data["versions"]
        ]
    return [
        compare("messages sent, by receiver", "journal", sent, on_the_bus),
        compare("messages read", "inboxes", read, in_inboxes),
        compare("messages acknowledged", "receipts", read, settled),
    ]


async def _questions(place: DemoFolder, journal: _Journal) -> list[Count]:
    """The question, and its answer."""
    events = await journal.events(run_stream(journal.run))
    asked = [each.data["question"] for each in events if each.type == "question_asked"]
    answered = [each.data["answer"] for each in events if each.type == "question_answered"]
    return [
        compare("questions", "journal", (q for agent in ROLES for q in _noted(place, agent, "asked")), asked),
        compare("answers", "journal", (a for agent in ROLES for a in _noted(place, agent, "answer")), answered),
    ]


async def _agents(place: DemoFolder, journal: _Journal) -> list[Count]:
    """Every start of an agent."""
    began = [f"{agent}, pid {pid}" for agent in ROLES for pid in _noted(place, agent, "began")]
    started = [
        f"{agent}, pid {each.data['pid']}"
        for agent in ROLES
        for each in await journal.attempts(agent)
        if each.type == "attempt_started"
    ]
    return [compare("agents started", "journal", began, started)]


async def _files(place: DemoFolder, record: DemoRecord) -> Count:
    """Every file that an agent wrote, as it is in the repository now; and no other was touched."""
    last: dict[str, str] = {}
    for agent in ROLES:
        for note in place.notes_of(agent):
            if "file" in note:
                last[str(note["file"])] = str(note["sha256"])
    git = Git(place.repository)
    changed = (await git.run("diff", "-z", "--name-only", "--no-renames", record.base, "HEAD")).output
    found = []
    for path in [each.decode() for each in changed.split(b"\0")[:-1]]:
        shown = await git.run("show", f"HEAD:{path}", allowed=(0, 128))
        digest = hashlib.sha256(shown.output).hexdigest() if shown.status == 0 else "removed"
        found.append(f"{path} ({digest[:12]})")
    noted = [f"{path} ({digest[:12]})" for path, digest in last.items()]
    return compare("files, byte for byte", "repository", noted, found)


# --- and checked -------------------------------------------------------------------------------------------------


async def _engines(record: DemoRecord, journal: _Journal) -> Check:
    """The first engine was killed, and another one took over."""
    events = await journal.events(run_stream(journal.run))
    owners = [each.data["owner"]["pid"] for each in events if each.type == "run_claimed"]
    first, second = record.engines
    ok = first.status == -signal.SIGKILL and second.status == 0 and owners == [first.pid, second.pid]
    ok = ok and first.pid != second.pid
    return Check("engine killed, another took over", ok, f"pid {first.pid} died of SIGKILL, pid {second.pid} went on")


async def _attached(record: DemoRecord, journal: _Journal) -> Check:
    """The second engine took up every agent as it was."""
    second = record.engines[-1].pid
    taken = [
        agent
        for agent in ROLES
        if [each.data["owner"]["pid"] for each in await journal.attempts(agent) if each.type == "attempt_claimed"]
        == [second]
    ]
    return Check(
        "agents re-attached, not restarted",
        len(taken) == len(ROLES),
        f"{len(taken)} of {len(ROLES)} are the same processes",
    )


def _unheard(record: DemoRecord) -> Check:
    """Something happened while no engine was there."""
    lines = record.lines_at_resume - record.lines_at_kill
    return Check("work went on in between", lines > 0, f"{lines} lines were printed without an engine")


async def _order(place: DemoFolder, journal: _Journal) -> Check:
    """Lines stand in the journal as they were printed."""
    wrong = [agent for agent in ROLES if await journal.lines(agent) != _noted(place, agent, "line")]
    return Check(
        "lines in their order",
        not wrong,
        f"not of the {', '.join(wrong)}" if wrong else "of all agents",
    )


async def _clean(place: DemoFolder) -> Check:
    """The files on disk are those of the commit."""
    dirty = (await Git(place.repository).run("status", "--porcelain")).output.decode(errors="replace").split("\n")[:-1]
    return Check("working tree as committed", not dirty, ", ".join(dirty) or "nothing beside it")


async def _tests(place: DemoFolder) -> Check:
    """What the agents made together works."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-B", "-m", "unittest", "discover", "-s", "tests", "-t", ".",
        cwd=place.repository, env=place.environment(), stdin=DEVNULL, stdout=PIPE, stderr=STDOUT,
        start_new_session=True,
    )  # fmt: skip
    try:
        output, _none = await asyncio.wait_for(process.communicate(), TESTS_S_MAX)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    lines = output.decode(errors="replace").strip().splitlines()
    ran = next((line for line in lines if line.startswith("Ran ")), "no tests ran").partition(" in ")[0].lower()
    return Check("merged code passes its tests", process.returncode == 0, f"{ran}: {lines[-1] if lines else ''}")
