"""The folder of a demonstration, and the proof: the journal and the repository against the notes of the agents.

The proof needs nothing but the folder that a demonstration has left, so it can be repeated, and tried on a folder in
which something was changed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from maos import app, settings
from maos.app import Maos
from maos.bus.history import Received
from maos.errors import MaosError
from maos.model.events.parts import PERSON
from maos.model.message import Message
from maos.model.run import agent_name
from maos_demo.sample import ROLES

COMMAND_S_MAX = 60.0
_NOT_PASSED_ON = ("MAOS_", "GIT_")
_GIT = ("git", "-c", "user.name=maos demo", "-c", "user.email=demo@localhost")


class DemoFailed(MaosError):
    """The demonstration could not be completed."""

    hint = "its folder has plan.toml, and a log of each engine; `maos agent logs AGENT` shows what an agent printed"


class DemoEngine(msgspec.Struct, forbid_unknown_fields=True):
    """A process that executed the run, and its exit status: below zero, the signal."""

    pid: int
    status: int


class DemoRecord(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What the demonstration itself did and saw, for the proof."""

    run: str
    base: str
    """The commit that the agents began with."""
    engines: list[DemoEngine]
    lines_at_kill: int
    """How many lines the agents had printed by then, by their own count."""
    lines_at_resume: int


class DemoFolder:
    """Where the parts of a demonstration are: sample repository, journal, MAOS_HOME, and the notes of the agents."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repository = folder / "till"
        self.database = folder / "maos.db"
        self.home = folder / "home"
        self.notes = folder / "notes"

    def open(self, *, create: bool = False) -> app.open:
        """Open the journal, with the files of agents in this folder."""
        home = settings.folder_of(str(self.database), {"MAOS_HOME": str(self.home)})
        return app.open(self.database, create=create, home=home)

    def noted(self, key: str, *agents: str) -> list[dict[str, Any]]:
        """The notes so far that have a key, of some agents or of all, each with its agent."""
        found = []
        for agent in agents or ROLES:
            file = self.notes / f"{agent}.jsonl"
            lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
            found += [{"agent": agent, **note} for note in map(json.loads, lines) if key in note]
        return found

    def environment(self) -> dict[str, str]:
        """Our environment, without variables that would lead a command to another database or repository."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_PASSED_ON)}
        return {**kept, "MAOS_HOME": str(self.home)}

    async def run(self, *command: str, cwd: Path | None = None) -> tuple[int, str]:
        """Run a command in the folder; return its exit status and its output."""
        process = await asyncio.create_subprocess_exec(
            *command, cwd=cwd or self.folder, env=self.environment(), stdin=DEVNULL, stdout=PIPE, stderr=STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            output, _none = await asyncio.wait_for(process.communicate(), COMMAND_S_MAX)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return process.returncode, output.decode(errors="surrogateescape")

    async def git(self, *arguments: str) -> str:
        """Run git in the sample repository; return its output."""
        status, output = await self.run(*_GIT, *arguments, cwd=self.repository)
        if status:
            raise DemoFailed(f"`git {arguments[0]}` exited with {status}: {output.strip()}")
        return output

    def record(self) -> DemoRecord:
        """Read what the demonstration recorded about itself."""
        return msgspec.json.decode((self.folder / "demo.json").read_bytes(), type=DemoRecord)

    def keep(self, record: DemoRecord) -> None:
        """Write what the demonstration records about itself."""
        (self.folder / "demo.json").write_bytes(msgspec.json.format(msgspec.json.encode(record)))


# --- the proof ---------------------------------------------------------------------------------------------------


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


class RecordedRun(NamedTuple):
    """What maos has recorded of the run: events of the run and of the attempts of each agent, messages, inboxes."""

    run: Sequence[Any]
    agents: dict[str, Sequence[Any]]
    messages: list[Message]
    inboxes: dict[str, list[Received]]

    def lines(self, agent: str) -> list[str]:
        """The lines of an agent's output."""
        facts = [fact for data in _data(self.agents[agent], "attempt_output") for fact in data["facts"]]
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
    whole = Check("chain of hashes whole", report.ok, damage or f"{report.events} events, every hash matches")
    counts = [*_counts(folder, record.run, recorded), await _files(folder, record)]
    return ProofVerdict(counts, [*_checks(folder, record, recorded), whole, *await _merged(folder)])


async def _read(m: Maos, run: str) -> RecordedRun:
    names = {agent: agent_name(run, agent) for agent in ROLES}
    return RecordedRun(
        await m.runs.versions(run),
        {agent: [each async for each in m.agents.records(name)] for agent, name in names.items()},
        [each.message async for each in m.bus.history(run=run)],
        {agent: await m.bus.received(name) for agent, name in names.items()},
    )


def _data(events: Iterable[Any], type: str) -> list[Any]:
    return [each.data for each in events if each.type == type]


def compare(what: str, where: str, noted: Iterable[str], found: Iterable[str]) -> Count:
    """The difference of two collections in which the same thing may be several times."""
    expected, there = Counter(noted), Counter(found)
    lost = sorted((expected - there).elements())
    return Count(what, expected.total(), there.total(), where, lost, sorted((there - expected).elements()))


def _counts(folder: DemoFolder, run: str, recorded: RecordedRun) -> Iterator[Count]:
    """Compare every line, message, question and answer, and every start of an agent."""
    for agent in ROLES:
        noted = [each["line"] for each in folder.noted("line", agent)]
        yield compare(f"lines of the {agent}", "journal", noted, recorded.lines(agent))
    yield from _messages(folder, run, recorded)
    for what, key, type, field in (
        ("questions", "asked", "question_asked", "question"),
        ("answers", "answer", "question_answered", "answer"),
    ):
        found = [each[field] for each in _data(recorded.run, type)]
        yield compare(what, "journal", [each[key] for each in folder.noted(key)], found)
    began = [f"{each['agent']}, pid {each['began']}" for each in folder.noted("began")]
    started = [f"{agent}, pid {each['pid']}" for agent in ROLES
               for each in _data(recorded.agents[agent], "attempt_started")]  # fmt: skip
    yield compare("agents started", "journal", began, started)


def _messages(folder: DemoFolder, run: str, recorded: RecordedRun) -> Iterator[Count]:
    """Every message: sent, put into each inbox, read from there, and acknowledged."""
    short = agent_name(run, "")
    sent = [
        f"{note['agent']} → {to}: {note['sent']}"
        for note in folder.noted("sent")
        for to in ([note["to"]] if note["to"] else sorted(set(ROLES) - {note["agent"]}))
    ]
    routed = [
        f"{each.sender.removeprefix(short)} → {to.removeprefix(short)}: {each.text}"
        for each in recorded.messages
        if each.sender != PERSON
        for to in each.to
    ]
    read = [f"{note['agent']} ← {note['text']}" for note in folder.noted("got")]
    received = [(f"{agent} ← {each.text}", each) for agent in ROLES for each in recorded.inboxes[agent]]
    acknowledged = [text for text, each in received for _ack in range(each.acks)]
    yield compare("messages sent, by receiver", "journal", sent, routed)
    yield compare("messages read", "inboxes", read, [text for text, each in received if each.is_message])
    yield compare("messages acknowledged", "inboxes", read, acknowledged)


async def _files(folder: DemoFolder, record: DemoRecord) -> Count:
    """Every file that an agent wrote, as it is in the repository now; and no other was touched."""
    last = {note["file"]: note["sha256"] for note in folder.noted("file")}
    changed = await folder.git("diff", "-z", "--name-only", "--no-renames", record.base, "HEAD")
    there = (await folder.git("ls-tree", "-z", "-r", "--name-only", "HEAD")).split("\0")
    found = []
    for path in changed.split("\0")[:-1]:
        content = await folder.git("show", f"HEAD:{path}") if path in there else None
        digest = "removed" if content is None else hashlib.sha256(content.encode(errors="surrogateescape")).hexdigest()
        found.append(f"{path} ({digest[:12]})")
    noted = [f"{path} ({digest[:12]})" for path, digest in last.items()]
    return compare("files, byte for byte", "repository", noted, found)


def _checks(folder: DemoFolder, record: DemoRecord, recorded: RecordedRun) -> Iterator[Check]:
    """Check that one engine was killed and another attached to the agents, which had worked on in between."""
    first, second = record.engines
    owners = [each["owner"]["pid"] for each in _data(recorded.run, "run_claimed")]
    killed = first.status == -signal.SIGKILL and second.status == 0 and first.pid != second.pid
    shown = f"SIGKILL ended pid {first.pid}, pid {second.pid} resumed"
    yield Check("engine killed, another took over", killed and owners == [first.pid, second.pid], shown)
    claims = [[each["owner"]["pid"] for each in _data(recorded.agents[agent], "attempt_claimed")] for agent in ROLES]
    attached = claims.count([second.pid])
    shown = f"{attached} of {len(ROLES)} are the same processes"
    yield Check("agents re-attached, not restarted", attached == len(ROLES), shown)
    lines = record.lines_at_resume - record.lines_at_kill
    yield Check("agents worked in between", lines > 0, f"{lines} lines were printed without an engine")
    wrong = [each for each in ROLES if recorded.lines(each) != [note["line"] for note in folder.noted("line", each)]]
    yield Check("lines in their order", not wrong, f"not of the {', '.join(wrong)}" if wrong else "of all agents")


async def _merged(folder: DemoFolder) -> list[Check]:
    """The files on disk are those of the commit, and what the agents made together works."""
    changed = (await folder.git("status", "--porcelain")).splitlines()
    command = (sys.executable, "-B", "-m", "unittest", "discover", "-s", "tests", "-t", ".")
    status, output = await folder.run(*command, cwd=folder.repository)
    lines = output.strip().splitlines() or ["it printed nothing"]
    ran = next((line for line in lines if line.startswith("Ran ")), "no tests ran").partition(" in ")[0].lower()
    return [
        Check("working tree as committed", not changed, ", ".join(changed) or "nothing beside it"),
        Check("merged code passes its tests", status == 0, f"{ran}: {lines[-1]}"),
    ]
