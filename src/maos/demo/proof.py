"""The proof: what the journal and the repository hold, against the notes that the agents wrote about themselves.

It needs nothing but the folder that a demonstration has left, so it can be repeated, and tried on a folder in which
something was changed.
"""

from __future__ import annotations

import hashlib
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from maos.app import Maos
from maos.bus.history import Received
from maos.demo.folder import DemoFolder, DemoRecord
from maos.demo.sample import ROLES
from maos.errors import MaosError
from maos.model.message import PERSON, Message
from maos.model.run import agent_name


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
        """Whether both are the same, and not nothing."""
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


Events = Mapping[str, list[Mapping[str, Any]]]
"""The data of events, by their type."""


class RecordedRun(NamedTuple):
    """What maos has recorded of the run: events of the run and of the attempts of each agent, messages, inboxes."""

    run: Events
    agents: dict[str, Events]
    messages: list[Message]
    inboxes: dict[str, list[Received]]

    def lines(self, agent: str) -> list[str]:
        """The lines of an agent's output."""
        facts = [fact for data in self.agents[agent]["attempt_output"] for fact in data["facts"]]
        return [fact["text"] for fact in facts if fact["kind"] == "line"]


async def prove(folder: DemoFolder) -> ProofVerdict:
    """Compare everything; what cannot even be read is a check that failed."""
    record = folder.record()
    try:
        async with folder.open() as m:
            report = await m.verify()
            recorded = await _read(m, record.run)
    except MaosError as error:
        return ProofVerdict([], [Check("journal can be read", False, str(error))])
    damage = ", ".join(f"{each.stream}@{each.version} {each.what}" for each in report.damage[:3])
    counts = [
        *_lines(folder, recorded),
        *_messages(folder, record.run, recorded),
        *_questions(folder, recorded),
        _agents(folder, recorded),
        await _files(folder, record),
    ]
    checks = [
        _engines(record, recorded),
        _attached(record, recorded),
        _unattended(record),
        _order(folder, recorded),
        Check("chain of hashes whole", report.ok, damage or f"{report.events} events, every hash matches"),
        await _clean(folder),
        await _tests(folder),
    ]
    return ProofVerdict(counts, checks)


async def _read(m: Maos, run: str) -> RecordedRun:
    names = {agent: agent_name(run, agent) for agent in ROLES}
    return RecordedRun(
        _by_type(await m.runs.versions(run)),
        {agent: _by_type([each async for each in m.agents.records(name)]) for agent, name in names.items()},
        [each.message async for each in m.bus.history(run=run)],
        {agent: await m.bus.received(name) for agent, name in names.items()},
    )


def _by_type(events: Iterable[Any]) -> Events:
    found = defaultdict[str, list[Mapping[str, Any]]](list)
    for event in events:
        found[event.type].append(event.data)
    return found


def compare(what: str, where: str, noted: Iterable[str], found: Iterable[str]) -> Count:
    """The difference of two collections in which the same thing may be several times."""
    expected, there = Counter(noted), Counter(found)
    lost = sorted((expected - there).elements())
    return Count(what, expected.total(), there.total(), where, lost, sorted((there - expected).elements()))


# --- counted -----------------------------------------------------------------------------------------------------


def _lines(folder: DemoFolder, recorded: RecordedRun) -> list[Count]:
    """Every line that an agent printed."""
    return [
        compare(f"lines of the {agent}", "journal", folder.noted(agent, "line"), recorded.lines(agent))
        for agent in ROLES
    ]


def _messages(folder: DemoFolder, run: str, recorded: RecordedRun) -> list[Count]:
    """Every message: sent, put into each inbox, read from there, and acknowledged."""
    short = agent_name(run, "")
    sent = [
        f"{agent} → {to}: {note['sent']}"
        for agent in ROLES
        for note in folder.notes_of(agent)
        if "sent" in note
        for to in ([note["to"]] if note["to"] else sorted(set(ROLES) - {agent}))
    ]
    routed = [
        f"{each.sender.removeprefix(short)} → {to.removeprefix(short)}: {each.text}"
        for each in recorded.messages
        if each.sender != PERSON
        for to in each.to
    ]
    read = [f"{agent} ← {note['text']}" for agent in ROLES for note in folder.notes_of(agent) if "got" in note]
    received = [(f"{agent} ← {each.text}", each) for agent in ROLES for each in recorded.inboxes[agent]]
    return [
        compare("messages sent, by receiver", "journal", sent, routed),
        compare("messages read", "inboxes", read, [text for text, each in received if each.is_message]),
        compare("messages acknowledged", "inboxes", read, [t for t, each in received for _n in range(each.acks)]),
    ]


def _questions(folder: DemoFolder, recorded: RecordedRun) -> list[Count]:
    """The question, and its answer."""
    asked = [each["question"] for each in recorded.run["question_asked"]]
    answered = [each["answer"] for each in recorded.run["question_answered"]]
    return [
        compare("questions", "journal", (q for agent in ROLES for q in folder.noted(agent, "asked")), asked),
        compare("answers", "journal", (a for agent in ROLES for a in folder.noted(agent, "answer")), answered),
    ]


def _agents(folder: DemoFolder, recorded: RecordedRun) -> Count:
    """Every start of an agent."""
    began = [f"{agent}, pid {pid}" for agent in ROLES for pid in folder.noted(agent, "began")]
    started = [f"{agent}, pid {each['pid']}" for agent in ROLES for each in recorded.agents[agent]["attempt_started"]]
    return compare("agents started", "journal", began, started)


async def _files(folder: DemoFolder, record: DemoRecord) -> Count:
    """Every file that an agent wrote, as it is in the repository now; and no other was touched."""
    notes = [note for agent in ROLES for note in folder.notes_of(agent) if "file" in note]
    last = {note["file"]: note["sha256"] for note in notes}
    changed = await folder.git("diff", "-z", "--name-only", "--no-renames", record.base, "HEAD")
    there = (await folder.git("ls-tree", "-z", "-r", "--name-only", "HEAD")).split(b"\0")
    found = []
    for path in changed.split(b"\0")[:-1]:
        content = await folder.git("show", f"HEAD:{path.decode()}") if path in there else None
        digest = "removed" if content is None else hashlib.sha256(content).hexdigest()
        found.append(f"{path.decode()} ({digest[:12]})")
    noted = [f"{path} ({digest[:12]})" for path, digest in last.items()]
    return compare("files, byte for byte", "repository", noted, found)


# --- and checked -------------------------------------------------------------------------------------------------


def _engines(record: DemoRecord, recorded: RecordedRun) -> Check:
    """The first engine was killed, and another one took over."""
    owners = [each["owner"]["pid"] for each in recorded.run["run_claimed"]]
    first, second = record.engines
    ok = first.status == -signal.SIGKILL and second.status == 0 and owners == [first.pid, second.pid]
    ok = ok and first.pid != second.pid
    return Check("engine killed, another took over", ok, f"SIGKILL ended pid {first.pid}, pid {second.pid} resumed")


def _attached(record: DemoRecord, recorded: RecordedRun) -> Check:
    """The second engine attached to every agent as it was."""
    claims = [[each["owner"]["pid"] for each in recorded.agents[agent]["attempt_claimed"]] for agent in ROLES]
    attached = claims.count([record.engines[-1].pid])
    shown = f"{attached} of {len(ROLES)} are the same processes"
    return Check("agents re-attached, not restarted", attached == len(ROLES), shown)


def _unattended(record: DemoRecord) -> Check:
    """The agents worked while there was no engine."""
    lines = record.lines_at_resume - record.lines_at_kill
    return Check("agents worked in between", lines > 0, f"{lines} lines were printed without an engine")


def _order(folder: DemoFolder, recorded: RecordedRun) -> Check:
    """The journal has the lines in the order in which they were printed."""
    wrong = [agent for agent in ROLES if recorded.lines(agent) != folder.noted(agent, "line")]
    return Check("lines in their order", not wrong, f"not of the {', '.join(wrong)}" if wrong else "of all agents")


async def _clean(folder: DemoFolder) -> Check:
    """The files on disk are those of the commit."""
    changed = (await folder.git("status", "--porcelain")).decode(errors="replace").splitlines()
    return Check("working tree as committed", not changed, ", ".join(changed) or "nothing beside it")


async def _tests(folder: DemoFolder) -> Check:
    """What the agents made together works."""
    command = (sys.executable, "-B", "-m", "unittest", "discover", "-s", "tests", "-t", ".")
    status, output = await folder.run(*command, cwd=folder.repository)
    lines = output.decode(errors="replace").strip().splitlines()
    ran = next((line for line in lines if line.startswith("Ran ")), "no tests ran").partition(" in ")[0].lower()
    return Check("merged code passes its tests", status == 0, f"{ran}: {lines[-1] if lines else ''}")
