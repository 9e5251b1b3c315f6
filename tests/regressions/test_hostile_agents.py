"""What agents print, and what events from elsewhere say: nothing of it makes an attempt unusable for good.

The worst is a marked, bounded record, and a clear failure of that one attempt.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import maos
from maos.agents import kinds
from maos.agents.contract import Conversation
from maos.bus.outbox import MessageLimits
from maos.clock import SystemClock
from maos.engine import attempt_spec, transcripts
from maos.engine.attempts import TASK_BYTES_MAX, TOLD_CHARS_MAX
from maos.errors import InvalidInput
from maos.files import exclude_from_git, write_private
from maos.holder import identity, wire
from maos.journal import codec
from maos.journal.codec import BODY_BYTES_MAX
from maos.model.attempt import Attempt, Permission, restoration
from maos.model.events import facts
from maos.model.events.attempt import AttemptOutput
from maos.model.events.facts import Fact
from maos.model.message import Message, render
from maos.model.plan import Task
from maos.model.run import Question, Run, TaskState
from maos.runs.notify import Notifier
from maos.runs.worker import _told
from maos.workspaces import Workspace
from tests.agents.driving import an_order
from tests.fuzz.test_streams import CODEC, DIALECTS, recordings

LONG = "x" * 50_000
STATE_BYTES_MAX = 40_000
"""What a dialect may remember between two lines: it is recorded with each of them."""

ACP_AGENT = """
import json, sys
def tell(**said): print(json.dumps({"jsonrpc": "2.0", **said}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    match asked.get("method"):
        case "initialize": tell(id=asked["id"], result={"protocolVersion": 1, "agentCapabilities": {}})
        case "session/new": tell(id=asked["id"], result={"sessionId": "s-1"})
        case "session/prompt":
            (EXTRA)
            tell(id=asked["id"], result={"stopReason": "end_turn"})
"""


def acp_agent(folder: Path, extra: str = "None") -> str:
    """The kind of an agent that speaks the protocol and, in its turn, does something more."""
    program = folder / "agent"
    program.write_text(f"#!{sys.executable}\n" + ACP_AGENT.replace("EXTRA", extra))
    program.chmod(0o755)
    return f"acp:{program}"


# --- what they print ---------------------------------------------------------------------------------------------


def texts_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all texts in a value."""
    if isinstance(value, str):
        yield path
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from texts_of(item, (*path, key))


def with_text(value: Any, path: tuple[Any, ...], text: str) -> Any:
    if not path:
        return text
    copy = value.copy()
    copy[path[0]] = with_text(value[path[0]], path[1:], text)
    return copy


def heard(kind: str, lines: list[bytes], changed: tuple[int, bytes]) -> tuple[Conversation[Any], list[Fact]]:
    """What a dialect makes of a stream in which one line is another, which it hears twice."""
    conversation = kinds.dialect(DIALECTS[kind]).converse(an_order(Path("/"), argv=["agent"]))
    found: list[Fact] = []
    for number, line in enumerate(lines[: changed[0] + 1]):
        for each in (changed[1], changed[1]) if number == changed[0] else (line,):
            said = conversation.hear(each, stderr=False)
            found += said.facts
            assert all(len(reply.data) < STATE_BYTES_MAX for reply in said.replies)
    return conversation, found


@pytest.mark.parametrize("kind", ["claude", "codex", "acp"])
def test_no_text_of_a_line_is_repeated_with_every_later_event_or_in_a_reply(kind: str) -> None:
    """Ids, names and the rest of a sentence: a dialect remembers only as much as any program means."""
    tried = set()
    for lines in recordings(kind):
        for number, line in enumerate(lines):
            value = json.loads(line)
            for path in texts_of(value):
                shape = (str(value.get("type") or value.get("method")), *(each for each in path if type(each) is str))
                if shape in tried:
                    continue
                tried.add(shape)
                for text in (LONG, f"two words {LONG}", f"a paragraph\n\nand {LONG}"):
                    changed = json.dumps(with_text(value, path, text)).encode()
                    conversation, _found = heard(kind, lines, (number, changed))
                    state = {**conversation.state(), "ended": None}  # the answer waits in it until the agent is idle
                    assert len(msgspec.json.encode(state)) < STATE_BYTES_MAX, (shape, text[:20])
    assert len(tried) > 20


def test_facts_that_an_event_cannot_hold_are_left_out_and_counted() -> None:
    """One line of a few megabytes can stand for many times its size: each of its parts repeats the message's id."""
    blocks = [{"type": "text", "text": "a"}] * 60_000
    message = {"id": "\x01" * 200, "content": blocks}
    line = json.dumps({"type": "assistant", "message": message}).encode()
    conversation = kinds.dialect("claude").converse(an_order(Path("/")))
    found = [*conversation.hear(line, stderr=False).facts, facts.TurnEnded("the end")]
    with pytest.raises(InvalidInput, match="bytes"):
        CODEC.plain(AttemptOutput(offset=1, at_us=1, facts=found))
    fitting = facts.bounded(found)
    assert CODEC.plain(AttemptOutput(offset=1, at_us=1, facts=fitting))
    assert facts.TurnEnded("the end") in fitting
    lost = fitting[-1]
    assert isinstance(lost, facts.OutputLost)
    assert lost.text == f"{len(found) - len(fitting) + 1:,} more facts of the output were not recorded"


async def test_output_that_stands_for_too_much_ends_no_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "BODY_BYTES_MAX", 1 << 20)
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home") as m:
        argv = ["sh", "-c", "head -c 300000 /dev/zero; echo; echo the end"]
        running = await m.agents.start(kind="shell", argv=argv, cwd=str(tmp_path), in_place=True, name="a")
        attempt = await running.wait()
        said = json.dumps([each.data async for each in m.journal.read("attempt/a.1")])
    assert (attempt.status, attempt.last_text) == ("done", "the end")
    assert "more characters were not recorded" in said


@pytest.mark.parametrize("method", ["fs/read_text_file", "session/request_permission"])
async def test_a_request_whose_id_is_too_long_to_be_repeated_ends_no_agent(tmp_path: Path, method: str) -> None:
    extra = f"""tell(id="x" * {wire.INPUT_BYTES_MAX + 1}, method={method!r}, params={{}})"""
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home") as m:
        kind = acp_agent(tmp_path, extra)
        running = await m.agents.start("go", kind=kind, cwd=str(tmp_path), in_place=True, name="a")
        assert (await running.wait()).status == "done"


async def test_all_that_a_killed_holder_left_behind_is_recorded(tmp_path: Path) -> None:
    """6 bytes of JSON for each NUL: all of it in one event would be more than the journal takes."""
    lines, size = 8, 1_900_000
    assert lines * size * 6 > BODY_BYTES_MAX
    script = f"for i in {' '.join('x' * lines)}; do head -c {size} /dev/zero; echo; done"
    argv = ["sh", "-c", f"until [ -e go ]; do sleep 0.02; done; {script}; echo the end; touch printed; sleep 600"]
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home") as m:
        await m.agents.start(kind="shell", argv=argv, cwd=str(tmp_path), in_place=True, name="a")
    (tmp_path / "go").touch()
    while not (tmp_path / "printed").exists():
        await asyncio.sleep(0.02)
    holder = identity.read(tmp_path / "home" / "holders" / "a.1")
    assert holder is not None
    await asyncio.sleep(0.3)  # it has read what is in the pipe
    os.kill(holder.pid, signal.SIGKILL)
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home") as m:
        assert await m.agents.adopt("a") is None
        attempt = await m.agents.get("a")
        said = [fact.text async for each in m.journal.read("attempt/a.1") for fact in getattr(each.event, "facts", ())
                if isinstance(fact, facts.Line)]  # fmt: skip
    assert (attempt.failure, attempt.last_text) == ("holder_lost", "the end")
    assert [len(each) for each in said] == [*[size] * lines, len("the end")], "nothing of it is cut"


def fold(*found: Fact) -> Attempt:
    attempt = Attempt(id="a.1")
    order = an_order(Path("/"), argv=["agent"])
    place = Workspace("a", Path("/"), Path("/"), None, None, None)
    attempt.apply(attempt_spec.plan(order, "claude", "t", time_limit_s=1.0, workspace=place))
    attempt.apply(AttemptOutput(offset=1, at_us=1, facts=list(found)))
    return attempt


@pytest.mark.parametrize(
    "found",
    [
        [facts.ToolUse(f"t-{number}", "Write", {"content": LONG}) for number in range(5000)],
        [facts.ToolUse(f"t-{number}", LONG) for number in range(5000)],
        [facts.Discovery("found", LONG)] * 200,
        [facts.Text(LONG, message="m-1")] * 200,
        [facts.PermissionRequested(f"p-{number}", "Bash", {"command": "x" * 30_000}) for number in range(1000)],
        [facts.Retry(error=LONG)],
    ],
    ids=["tools", "names", "discoveries", "speech", "permissions", "retry"],
)
def test_what_is_known_of_an_attempt_does_not_grow_without_end(found: list[Fact]) -> None:
    """It is stored again and again, and what the next attempt is told of it must fit into one event and one input."""
    attempt = fold(*found)
    assert len(msgspec.json.encode(attempt)) < 8 << 20
    told = restoration(attempt, remembers=False)
    assert len(told) < 1 << 20
    if len(attempt.known.unknown) < len(found) and isinstance(found[0], facts.ToolUse):
        assert f"and {len(found) - len(attempt.known.unknown)} more before these" in told


# --- what they are sent ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", DIALECTS)
@pytest.mark.parametrize("char", ["\x01", '"', "\n", "\x1c", "é"])
def test_the_longest_message_fits_into_the_input_of_every_kind_of_agent(kind: str, char: str) -> None:
    limits = MessageLimits()
    text = char * (limits.text_bytes_max // len(char.encode()))
    metadata = {"note": "\x01" * (limits.metadata_bytes_max // 4)}
    said = render(Message("m-1", "b", text, metadata=metadata))
    conversation = kinds.dialect(DIALECTS[kind]).converse(an_order(Path("/")), {"phase": "ready"})
    reply = conversation.say("inbox/1", said)
    assert reply is None or len(reply.data) <= wire.INPUT_BYTES_MAX
    assert TASK_BYTES_MAX + 6 * TOLD_CHARS_MAX + (1 << 20) < wire.INPUT_BYTES_MAX


async def test_messages_of_any_length_are_delivered(tmp_path: Path) -> None:
    script = 'for i in 1 2 3; do IFS= read -r line; echo "${#line}"; done'
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home") as m:
        argv, longest = ["sh", "-c", script], "x" * MessageLimits().text_bytes_max
        running = await m.agents.start(
            kind="shell", argv=argv, cwd=str(tmp_path), in_place=True, takes_input=True, name="a"
        )
        for text in ("short", longest, "last"):
            await m.agents.send("a", text)
        attempt = await running.wait()
        said = [fact.text async for each in m.journal.read("attempt/a.1") for fact in getattr(each.event, "facts", ())
                if isinstance(fact, facts.Line)]  # fmt: skip
    assert (attempt.status, said) == ("done", ["5", str(len(longest)), "4"])


async def test_an_agent_with_more_messages_than_a_task_can_have_is_resumed_and_gets_all(tmp_path: Path) -> None:
    count, text = 6, "x" * (TOLD_CHARS_MAX // 4)
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home") as m:
        kind = acp_agent(tmp_path)
        running = await m.agents.start("go", kind=kind, cwd=str(tmp_path), in_place=True, name="a")
        await running.wait()
        for number in range(count):
            await m.agents.send("a", f"{number} {text}")
        running = await m.agents.resume("a")
        attempt = await running.wait()
        assert attempt.status == "done"
        assert len(attempt.order["task"]) < 2 * TOLD_CHARS_MAX
        assert [each async for each in m.bus.waiting("a")] == []
        assert attempt.inbox_cursor == count
        assert attempt.turns == 1 + count - 3, "three with the task, the others in turns of their own"


async def test_a_task_that_is_too_long_is_refused_before_anything_is_recorded(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home") as m:
        with pytest.raises(InvalidInput, match="put it into a file"):
            await m.agents.start("\x01" * (TASK_BYTES_MAX // 6 + 1), kind=acp_agent(tmp_path), cwd=str(tmp_path))
        assert [each async for each in m.agents.all()] == []


# --- the files of agents -----------------------------------------------------------------------------------------


def test_a_line_of_a_transcript_that_no_event_could_hold_is_left_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcripts, "PIECE_BYTES", 1000)
    monkeypatch.setattr(transcripts, "LINE_BYTES_MAX", 3000)
    lines = [b"one\n", b"x" * 3500 + b"\n", b"y" * 10_000 + b"\n", b"two\n", b"z" * 20_000]
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"".join(lines))
    found = transcripts.read(path)
    assert "".join(each.text for each in found).encode() == b"".join(lines[index] for index in (0, 1, 3))
    assert sum(each.left_out for each in found) == len(lines[2])
    assert [each.from_ for each in found] == [0, *(each.until for each in found[:-1])]
    assert found[-1].until == sum(map(len, lines[:4])), "the last line is not complete"
    with path.open("ab") as file:
        file.write(b"\nthree\n")
    more = transcripts.read(path, found[-1].until)
    assert [(each.text, each.left_out) for each in more] == [("", len(lines[4]) + 1), ("three\n", 0)]


@pytest.mark.parametrize("kind", ["claude", "codex"])
@pytest.mark.parametrize("how", ["pipe", "link"])
def test_a_transcript_that_is_no_file_is_none(tmp_path: Path, kind: str, how: str) -> None:
    session = "11111111-2222-3333-4444-555555555555"
    dialect, order = kinds.dialect(kind), an_order(tmp_path)._replace(session=session, home=tmp_path)
    name = f"{session}.jsonl" if kind == "claude" else f"rollout-2026-01-02T03-04-05-{session}.jsonl"
    place = dialect.transcript_home(order, session, name)
    place.parent.mkdir(parents=True)
    place.touch()
    assert dialect.transcript(order, session) == place
    place.unlink()
    os.mkfifo(place) if how == "pipe" else place.symlink_to("/dev/zero")
    assert dialect.transcript(order, session) is None
    if how == "pipe":
        with pytest.raises(OSError, match="not a regular file"):
            transcripts.read(place)


# --- what events say ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["precious", "", "."])
@pytest.mark.parametrize("is_open", [True, False])
async def test_no_folder_that_an_event_names_is_removed(
    tmp_path: Path, place: str, is_open: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of a holder is removed at the end of its attempt; an event from elsewhere can name any folder."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "work").touch()
    monkeypatch.chdir(precious)
    named = str(precious) if place == "precious" else place
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home") as m:
        argv = ["sh", "-c", "sleep 600" if is_open else "true"]
        running = await m.agents.start(kind="shell", argv=argv, cwd=str(tmp_path), in_place=True, name="real")
        if not is_open:
            await running.wait()
        records = [each async for each in m.journal.read("attempt/real.1")]
        gone = {"pid": 1, "since": 1}
        for each in records:
            event: Any = each.event
            if each.type == "attempt_planned":
                owner = {**event.owner, **gone}
                event = msgspec.structs.replace(event, agent="evil", folder=named, owner=owner)
            await m.journal.append("attempt/evil.1", event)
        await m.agents.end(await m.agents.get("real"), 0.1)
        for act in (m.agents.adopt, m.agents.resume):
            try:
                running = await act("evil")
                if running is not None:
                    await m.agents.end(await m.agents.get("evil"), 0.1)
            except InvalidInput as error:
                assert "is at" in str(error)
        assert [each async for each in m.agents.all()], "they can still be listed"
    assert (precious / "work").exists()


def test_the_home_of_an_agent_is_below_that_of_its_database(tmp_path: Path) -> None:
    home = tmp_path / "home"
    order = {**fold().order, "home": str(tmp_path / "elsewhere")}
    attempt = msgspec.structs.replace(fold(), agent="a", order=order)
    assert attempt_spec.order_of(attempt, home).home == home / "homes" / "a"
    attempt.order["home"] = str(home / "homes" / "a")
    assert attempt_spec.order_of(attempt, home).home == home / "homes" / "a"
    with pytest.raises(InvalidInput):
        attempt_spec.order_of(msgspec.structs.replace(attempt, agent="../a"), home)


def test_a_database_in_a_submodule_is_kept_out_of_git_status(tmp_path: Path) -> None:
    """Its `.git` is a file that names a folder, which has no `commondir` as that of a worktree has."""
    (tmp_path / "sub").mkdir()
    (tmp_path / ".git" / "modules" / "sub").mkdir(parents=True)
    (tmp_path / "sub" / ".git").write_text("gitdir: ../.git/modules/sub\n")
    exclude_from_git(tmp_path / "sub" / "maos.db")
    assert (tmp_path / ".git" / "modules" / "sub" / "info" / "exclude").read_text() == "/maos.db*\n"


# --- texts that are cut ------------------------------------------------------------------------------------------


def test_what_other_agents_reported_is_cut_with_a_mark() -> None:
    run = Run(id="r-1", tasks={"a": TaskState(name="a", plan={}, needs=[], result="x" * 9000)})
    told = _told(run, Task(name="b", task="Do it.", needs=["a"]), [("r-1.a", "y" * 1000)])
    assert "… [1,000 more characters]" in told
    assert told.endswith(f"… [{len('> r-1.a: ') + 600} more characters]")


async def test_a_notice_has_the_command_however_long_the_question_is(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []

    async def note(_self: Notifier, planned: Any) -> None:
        sent.append(planned)

    monkeypatch.setattr(Notifier, "_send_all", note)
    async with maos.open(":memory:") as m:
        notifier = Notifier(m.journal, SystemClock(), "r-1", [], tell=print)
        notifier._asked(Run(id="r-1"), Question(id="q-1", question="z" * 900))
        notifier._wanted(Attempt(id="r-1.a.1", agent="r-1.a"), Permission("p-1", "Bash", {"command": "z" * 900}))
        await asyncio.sleep(0)
    assert [each.body.partition("\n")[2] for each in sent] == ["maos answer r-1/q-1 …", "maos answer r-1.a/p-1 yes"]
    assert all("more characters]" in each.body for each in sent)


def test_a_summary_is_private_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_private(tmp_path / "summary.md", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "summary.md").stat().st_mode & 0o777 == 0o600
