"""Runs to be exported: one with a little of everything, written down by hand, and one that agents really carry out."""

import io
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from maos import workspaces
from maos.agents.contract import LaunchOrder, McpServer
from maos.app import Maos
from maos.clock import SystemClock
from maos.engine import attempt_spec
from maos.engine.streams import RUN
from maos.journal.codec import Event
from maos.journal.journal import Append
from maos.model import attempt, notice, run, tool_calls
from maos.model.branch import begin, digest
from maos.model.events import facts
from maos.transfer import bundle as file
from maos.transfer.bundle_import import Imported
from maos.transfer.service import Exported, Transfer
from maos.workspaces import Workspace

ID = "r-1"
AT_US = 1_790_000_000_000_000
OWNER = {"name": "host:1:ab", "lease": "run/r-1", "token": 1, "host": "elsewhere", "machine": "m", "pid": 7, "since": 9}
ELSEWHERE = "/somewhere/else"


def planned(agent: str, number: int = 1, **order: Any) -> Event:
    """How an attempt begins on another machine."""
    made = LaunchOrder(
        attempt=f"{agent}.{number}", task="do it", session="6f1c2b1e-5f0e-4c51-9d7b-3c1a86d0a0c4", resume=False,
        cwd=Path(ELSEWHERE), home=Path(ELSEWHERE, "home"), model="", instructions="", turns_max=0, budget_usd=0.0,
        tools_allowed=("Read",), permission="ask", takes_input=False, argv=("sh", "-c", "echo hello"),
        mcp=(McpServer("maos", ["python", "-m", "maos.mcp"], {}), McpServer("more", ["evil"], {"KEY": "x"})),
        env={"AWS_SECRET": "x"},
    )._replace(**order)  # fmt: skip
    place = Path(ELSEWHERE)
    workspace = Workspace(agent, place, place, None, None, None, ())
    plan = attempt_spec.plan(made, "shell", "do it", time_limit_s=60.0, workspace=workspace, run=ID)
    folder = str(place / "holders" / made.attempt)
    return msgspec.structs.replace(plan, owner=dict(OWNER), folder=folder, at_us=AT_US)


def told() -> dict[str, list[Event]]:
    """A paused run with a little of everything, stream by stream."""
    one, two = "r-1.one", "r-1.two"

    def event(type_: str, **data: Any) -> Event:
        return Event(type_, {**data, "at_us": AT_US})

    tasks = [
        {"name": "one", "command": ["sh", "-c", "echo hello"]},
        {"name": "two", "task": "look at it", "kind": "claude", "needs": ["one"], "gates": [{"command": ["true"]}]},
    ]
    options = {"kind": "claude", "in_place": True, "permission": "edits", "agents": {}, "budget": {}}
    said = {"id": "m-1", "sender": one, "text": "found: it leaks", "type": "discovery", "run": ID, "at_us": AT_US}
    return {
        run.stream(ID): [
            event("run_created", request="mend it", folder=ELSEWHERE, options=options, owner=OWNER),
            event("run_planned", tasks=tasks),
            event("run_claimed", owner=OWNER, source="manual"),
            event("task_started", task="one", number=1),
            event("task_finished", task="one", result="hello", cost_usd=0.5, tokens=12),
            event("question_asked", id="q-1", question="Which?", asked_by=[two], choices=["a", "b"]),
            event("task_started", task="two", number=1),
            event("run_checkpointed", name="half", trigger="manual", commit=""),
            event("run_paused", why="asked"),
        ],
        attempt.stream(f"{one}.1"): [
            planned(one),
            event("attempt_started", pid=4711, holder_pid=4710),
            event("attempt_output", offset=6, facts=[facts.Line.of("hello"), facts.Discovery("found", "it leaks")]),
            event("attempt_transcript", name="6f1c2b1e-5f0e-4c51-9d7b-3c1a86d0a0c4.jsonl", **{"from": 0, "until": 3},
                  text="{}\n"),
            event("attempt_checkpointed", name="end-1", trigger="end", commit=None, session=""),
            event("attempt_ended", status="done", failure="", message="", exit={"code": 0}),
        ],
        attempt.stream(f"{two}.1"): [
            planned(two, argv=()),
            event("attempt_started", pid=4712, holder_pid=4710),
            event("attempt_output", offset=9, facts=[facts.ToolUse("t", "Bash", {"command": "make"}),
                                                     facts.Usage("m", input=3, output=4), facts.Cost(0.1, turn="1")]),
        ],
        "inbox/r-1": [event("question_answered", id="q-1", answer="a", by="person")],
        "inbox/r-1.two": [Event("message_sent", said), event("stop_requested", grace_s=1.0)],
        "acks/r-1.two": [Event("message_delivered", {"versions": [1]})],
        "dead-letters/r-1.two": [Event("dead_letter_added", {"version": 1, "why": "late", "tries": 3, "message": "m"})],
        "messages/r-1": [Event("message_sent", {**said, "to": [two]})],
        run.chat_stream(ID): [event("chat_said", text="how is it going?")],
        notice.stream(ID): [
            event("notice_planned", id="n", what="paused", title="t", body="b", addresses=["1 (json)"]),
            event("notice_sent", id="n", address="1 (json)"),
        ],
        tool_calls.stream(two): [
            event("tool_called", tool="report_progress", arguments={"percent": 5.0, "activity": "x"}, digest="ab",
                  attempt=f"{two}.1", server="d", proved=[]),
        ],
    }  # fmt: skip


async def write(m: Maos, streams: dict[str, list[Event]] | None = None) -> None:
    """Put streams into a journal, as their owners would have."""
    given = streams or told()
    await m.journal.append_all([Append(name, events) for name, events in given.items()])
    if streams is None:
        await m.state.create("r-1.two", {"saved": {"where": "parser.c"}})
        await m.state.update("r-1.two", {"saved": {"line": 7}})


async def branch_off(m: Maos) -> None:
    """Have the run taken back and moved, as travel and moving would have: every kind of event that a run can have."""
    fold = await RUN.load(m.journal, ID)
    before = await m.agents.get("r-1.two")
    assert fold is not None
    state = begin(fold, id=ID, branch=1, workspace=None, why="taken back to version 7")
    told = {"to": 7, "position": 9, "branch": 1, "state": state.data, "digest": digest(fold), "inbox_version": 1}
    found = {key: value for key, value in msgspec.to_builtins(before).items() if key not in ("id", "version")}
    found |= {"agent": "r-1.two.b1", "number": 1}
    workspace = before.workspace | {"name": "r-1.two.b1"}
    spot = {"folder": ELSEWHERE, "cwd": ELSEWHERE, "home": ELSEWHERE, "workspace": workspace}
    moved = {"folder": ELSEWHERE, "from": ELSEWHERE, "at_us": AT_US}
    said = {"id": "m-2", "sender": "r-1.one", "text": "again", "type": "info", "run": ID, "at_us": AT_US}
    origin = {"attempt": before.id, "version": 2, "position": 8}
    await m.journal.append_all([
        Append(run.stream(ID), [Event("run_rolled_back", {**told, "at_us": AT_US}), Event("run_moved", moved)]),
        Append(attempt.stream("r-1.two.b1.1"), [
            planned("r-1.two.b1", argv=()),
            Event("attempt_branched", {"state": found, "origin": origin, "at_us": AT_US}),
            Event("attempt_ended", {"status": "stopped", "failure": "stopped", "message": "", "at_us": AT_US}),
            Event("attempt_moved", {"agent": "r-1.two.b1", "number": 1, **spot}),
        ]),
        Append("inbox/r-1.two.b1", [Event("message_sent", said)]),
    ])  # fmt: skip


def transfer_of(m: Maos) -> Transfer:
    """What exports runs of a journal and imports them, under the name of the tests."""
    return Transfer(m.journal, SystemClock(), m.agents, made_by="maos test")


async def exported(m: Maos, id: str = ID, **how: Any) -> bytes:
    """A run as a bundle."""
    return (await export(m, id, **how))[0]


async def export(m: Maos, id: str = ID, **how: Any) -> tuple[bytes, Exported]:
    """A run as a bundle, and what is said of it."""
    target = io.BytesIO()
    made = await transfer_of(m).export(id, target, **how)
    return target.getvalue(), made


async def bring(m: Maos, bundle: bytes, folder: Path, *, dry_run: bool = False) -> Imported:
    """Import a bundle, for work in a folder."""
    with tempfile.NamedTemporaryFile(prefix="bundle-") as kept:
        kept.write(bundle)
        kept.flush()
        return await transfer_of(m).import_(Path(kept.name), folder=folder, dry_run=dry_run)


async def everything(m: Maos) -> dict[str, list[tuple[str, Any]]]:
    """All that a journal holds, stream by stream, without when it was imported."""
    found: dict[str, list[tuple[str, Any]]] = {}
    async for name in m.journal.streams():
        if name.startswith("journal/"):
            continue
        found[name] = [(each.type, plain(each.type, each.data)) async for each in m.journal.read(name)]
    return found


def plain(type_: str, data: dict[str, Any]) -> dict[str, Any]:
    """Data without what is another one each time: who brought it, and when."""
    if type_ == "bundle_imported":
        return {key: value for key, value in data.items() if key != "at_us"}
    return {key: "…" if key == "owner" else value for key, value in data.items()}


class Parts:
    """A bundle taken apart, to be put together again as somebody with bad intentions would: with right checksums."""

    def __init__(self, bundle: bytes) -> None:
        reader = file.BundleReader(io.BytesIO(bundle), "bundle")
        self.manifest: dict[str, Any] = msgspec.json.decode(reader.content(reader.parts[0]))
        self.lines: list[list[Any]] = [
            msgspec.json.decode(line)
            for part in reader.parts
            if part.kind == file.JOURNAL
            for line in reader.content(part).split(b"\n")
        ]
        self.git = b""
        if reader.parts[-1].kind == file.GIT:
            copy = io.BytesIO()
            reader.copy(reader.parts[-1], copy)
            self.git = copy.getvalue()

    def line(self, type_: str, number: int = 0) -> dict[str, Any]:
        """The data of an event, to be changed."""
        found: dict[str, Any] = [line for line in self.lines if line[1] == type_][number][4]
        return found

    def add(self, stream: str, *events: Event) -> None:
        """More events, in a stream that may be new."""
        names = [each["name"] for each in self.manifest["streams"]]
        if stream not in names:
            self.manifest["streams"].append({"name": stream, "events": 0})
            names.append(stream)
        number = names.index(stream)
        self.manifest["streams"][number]["events"] += len(events)
        self.lines += [[number, each.type, 1, AT_US, dict(each.data)] for each in events]

    def bytes(self) -> bytes:
        """The bundle."""
        return assemble([(file.MANIFEST, msgspec.json.encode(self.manifest)),
                         (file.JOURNAL, b"\n".join(map(msgspec.json.encode, self.lines)))], self.git)  # fmt: skip


def assemble(parts: list[tuple[bytes, bytes]], git: bytes = b"") -> bytes:
    """A file of parts."""
    target = io.BytesIO()
    writer = file.BundleWriter(target)
    for kind, content in parts:
        writer.part(kind, content)
    if git:
        with tempfile.NamedTemporaryFile() as kept:
            kept.write(git)
            kept.flush()
            writer.file(file.GIT, b"", Path(kept.name))
    writer.end()
    return target.getvalue()


async def carried_out(m: Maos, repository: Path, tasks: list[dict[str, Any]], *, in_place: bool = False) -> run.Run:
    """A run that agents carry out, in worktrees of a repository."""
    options: dict[str, Any] = {"kind": "shell", "in_place": True}
    if not in_place:
        into = await workspaces.prepare(repository, ID, root=m.agents.folder / "workspaces")
        options = {"kind": "shell", "workspace": into.to_data()}
    await m.runs.create({"tasks": tasks}, request="do it", folder=repository, options=options, id=ID)
    return await m.runs.execute(ID)
