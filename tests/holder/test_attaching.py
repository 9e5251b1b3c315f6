"""Engines that come and go while the agent works."""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from maos.errors import InvalidInput, LeaseLost
from maos.holder import wire
from maos.holder.agent_process import AgentProcess, Fenced, HolderGone, connect
from maos.holder.client import attach, holders, start
from maos.holder.records import SpoolRecord
from maos.holder.server import HolderConnection
from maos_testing.crash import ChildProcess as Program
from tests.holder.agents import (
    PATIENCE_S,
    alive,
    disk_of,
    eventually,
    exit_of,
    lines,
    py,
    sh,
    to_the_end,
    until_line,
)

ROOT = Path(__file__).parent.parent.parent
CHATTY = """
import sys, time
for n in range(400):
    print('line', n, 'x' * (n * 7 % 300))
    if n % 5 == 0: print('problem', n, file=sys.stderr)
    if n % 40 == 0: time.sleep(0.01)
print('end', end='')
"""


async def test_attaching_anywhere_gives_the_same_records(root: Path) -> None:
    """R-103: exactly once and in order, from every offset an engine can have recorded."""
    process = await start(root / "a", py(CHATTY))
    everything = await to_the_end(process)
    assert len(lines(everything)) == 401
    await process.detach()
    for number in [*range(0, len(everything), 41), len(everything) - 1]:
        after = everything[number].offset
        process = await attach(root / "a", token=1, after=after)
        if number < len(everything) - 1:
            assert await to_the_end(process) == everything[number + 1 :]
        await process.detach()
    process = await attach(root / "a", token=1, after=0)
    assert await to_the_end(process) == everything
    await process.finish()


async def test_an_engine_that_leaves_all_the_time_misses_nothing(root: Path) -> None:
    process = await start(root / "a", py(CHATTY))
    found: list[SpoolRecord] = []
    while not found or found[-1].kind != "exit":
        group = (await process.records())[:17]  # the rest was not recorded when this engine died
        found += group
        await process.confirm(group[0].offset)
        await process.detach()
        process = await attach(root / "a", token=len(found), after=found[-1].offset)
    assert [line for line in lines(found) if line.startswith(b"line")] == [
        f"line {n} {'x' * (n * 7 % 300)}".encode() for n in range(400)
    ]
    assert lines(found, "stderr") == [f"problem {n}".encode() for n in range(0, 400, 5)]
    assert len({record.offset for record in found}) == len(found)
    await process.finish()


async def test_an_older_engine_is_turned_away(root: Path) -> None:
    """I26: the right to act is the newest token's."""
    process = await start(root / "a", sh("echo up; read x", keeps_input_open=True, token=5))
    newer = await attach(root / "a", token=7, after=0)
    with pytest.raises(Fenced) as caught:
        while await process.records():
            pass
    assert isinstance(caught.value, LeaseLost)
    assert "7" in caught.value.what
    with pytest.raises(Fenced):
        await process.confirm(1)
    with pytest.raises(Fenced):
        await process.write("1", b"no\n")
    with pytest.raises(Fenced, match="7"):
        await attach(root / "a", token=6, after=0)
    assert await newer.write("1", b"\n")
    assert exit_of(await to_the_end(newer)).get("code") == 0
    await process.detach()
    await newer.finish()


async def test_a_newer_connection_with_the_same_token_takes_over(root: Path) -> None:
    """The same engine, whose old connection hangs somewhere."""
    process = await start(root / "a", sh("echo up; read x", keeps_input_open=True))
    again = await attach(root / "a", token=1, after=0)
    with pytest.raises(Fenced):
        while await process.records():
            pass
    assert lines(await until_line(again, b"up")) == [b"up"]
    await process.detach()
    await again.kill()
    await to_the_end(again)
    await again.finish()


async def test_a_stopped_engine_that_wakes_up_is_turned_away(root: Path) -> None:
    process = await start(root / "a", sh("echo up; read x; echo got $x", keeps_input_open=True))
    await process.detach()
    argv = [sys.executable, "-m", "tests.holder.engine_life", "attach", root / "a", "2", "0"]
    engine = Program(argv, cwd=ROOT)
    try:
        await asyncio.to_thread(engine.wait_for_ack)
        pid = engine._process.pid
        os.kill(pid, signal.SIGSTOP)
        newer = await attach(root / "a", token=3, after=0)
        assert await newer.write("1", b"you\n")
        assert lines(await to_the_end(newer)) == [b"up", b"got you"]
        os.kill(pid, signal.SIGCONT)
        life = await asyncio.to_thread(engine.wait, 1)
    finally:
        engine.kill()
    assert life.acks == ["attached", "Fenced", "Fenced"]
    await newer.finish()


async def test_an_input_is_given_once_however_often_it_is_sent(root: Path) -> None:
    process = await start(root / "a", sh("cat", keeps_input_open=True))
    assert await process.write("one", b"1\n")
    assert await process.write("one", b"1\n")
    both = await asyncio.gather(process.write("two", b"2\n"), process.write("two", b"2\n"))
    assert both == [True, True]
    await process.detach()
    process = await attach(root / "a", token=2, after=0)
    assert await process.write("one", b"1\n")
    assert await process.write("three", b"3\n", close=True)
    assert await process.write("three", b"3\n", close=True)
    records = await to_the_end(process)
    assert lines(records) == [b"1", b"2", b"3"]
    assert [record.data for record in records if record.kind == "input"] == [b"one", b"two", b"three"]
    await process.finish()


async def test_what_is_confirmed_is_dropped_and_cannot_be_read_again(root: Path) -> None:
    process = await start(root / "a", py("for n in range(12): print('x' * 1_000_000)", line_bytes_max=1 << 21))
    records = await to_the_end(process)
    assert disk_of(root / "a") > 12_000_000
    await process.confirm(records[-2].offset)
    await eventually(lambda: disk_of(root / "a") < 6_000_000, "the spool is short")
    await process.detach()
    with pytest.raises(InvalidInput, match="offset 0"):
        await attach(root / "a", token=1, after=0)
    with pytest.raises(InvalidInput, match="offset"):
        await attach(root / "a", token=1, after=records[-1].offset + 1)
    process = await attach(root / "a", token=1, after=records[-2].offset)
    assert await to_the_end(process) == records[-1:]
    await process.finish()


async def test_the_agent_works_on_while_nobody_is_there(root: Path) -> None:
    process = await start(root / "a", sh("echo 1; sleep 0.1; echo 2; sleep 0.1; echo 3"))
    await process.detach()
    with pytest.raises(InvalidInput, match="detached"):
        await process.records()
    await eventually(lambda: holders(root)[0].over, "it is over")
    process = await attach(root / "a", token=1, after=0)
    assert lines(await to_the_end(process)) == [b"1", b"2", b"3"]
    await process.finish()


async def test_nobody_can_attach_to_what_was_never_started(root: Path) -> None:
    """And nothing can start there afterwards: an engine that was slow must not come second."""
    with pytest.raises(HolderGone):
        await attach(root / "a", token=2, after=0)
    with pytest.raises(InvalidInput, match="started before"):
        await start(root / "a", sh("echo late > ../../proof"))
    assert not (root.parent / "proof").exists()
    assert not holders(root)[0].alive


@pytest.mark.parametrize(
    "bytes_",
    [
        b"GET / HTTP/1.0\r\n\r\n",
        wire.FRAME.pack(2**32 - 1, wire.HELLO),
        wire.FRAME.pack(9, wire.HELLO) + b"\xff" * 9,
        wire.frame(wire.HELLO, b"one", b"two"),
        wire.frame(wire.HELLO),
        wire.frame(wire.KILL),
        wire.frame(200),
        wire.frame(wire.HELLO, b"1", b"0") + wire.frame(wire.CONFIRM, b"many"),
        wire.frame(wire.HELLO, b"1", b"0") + wire.frame(wire.WRITE, b"1"),
    ],
)
async def test_nonsense_on_the_socket_hurts_nobody(root: Path, bytes_: bytes) -> None:
    process = await start(root / "a", sh("echo up; read x; echo got $x", keeps_input_open=True))
    with connect(root / "a") as visitor:
        visitor.sendall(bytes_)
        visitor.shutdown(socket.SHUT_WR)
        visitor.settimeout(PATIENCE_S)
        while await asyncio.to_thread(visitor.recv, 65536):
            pass
    await process.detach()
    process = await attach(root / "a", token=1, after=0)
    assert await process.write("1", b"you\n")
    assert lines(await to_the_end(process)) == [b"up", b"got you"]
    await process.finish()


async def test_visitors_who_say_nothing_keep_nobody_out(root: Path) -> None:
    process = await start(root / "a", sh("read x", keeps_input_open=True))
    silent = [connect(root / "a") for _ in range(20)]
    try:
        await process.detach()
        process = await attach(root / "a", token=1, after=0)
        assert await process.write("1", b"\n")
        await to_the_end(process)
    finally:
        for sock in silent:
            sock.close()
    await process.finish()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
async def test_another_user_is_not_let_in(root: Path) -> None:
    """A21: not even when the folder is open to all."""
    process = await start(root / "a", sh("read x", keeps_input_open=True))
    folder = root / "a"
    for path in (folder / "s", *[folder, *folder.parents][:-1]):
        if path.stat().st_uid == 0 and path != Path("/tmp"):
            path.chmod(path.stat().st_mode | 0o777)
    code = (
        "import os, socket, sys; os.chdir(sys.argv[1]); os.setgid(65534); os.setuid(65534)\n"
        "s = socket.socket(socket.AF_UNIX); s.connect('s')\n"
        "try: s.sendall(bytes.fromhex(sys.argv[2])); print(s.recv(100))\n"
        "except OSError: print(b'')"
    )
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, folder, wire.frame(wire.STATUS).hex(), stdout=asyncio.subprocess.PIPE
    )
    said, _ = await program.communicate()
    assert said.strip() == b"b''"
    assert holders(root)[0].agent_pid == process.pid
    await process.kill()
    await to_the_end(process)
    await process.finish()


async def test_an_engine_that_does_not_read_costs_the_holder_nothing(root: Path) -> None:
    """Everybody else is served, and the engine finds everything when it comes back."""
    process: AgentProcess = await start(root / "a", py("for n in range(200_000): print('line', n)"))
    await eventually(lambda: disk_of(root / "a") > 2_000_000, "all is spooled")
    await eventually(lambda: holders(root)[0].over, "it is over")
    assert alive(process.holder_pid)
    assert lines(await to_the_end(process, confirm=True)) == [f"line {n}".encode() for n in range(200_000)]
    await process.finish()


def test_what_an_engine_requested_before_it_detached_is_read_although_nothing_can_be_sent_to_it() -> None:
    """The engine detaches while the holder still has output for it: the holder notices that first."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    connection = HolderConnection(ours)
    request = wire.frame(wire.LIMIT, b"suspended")
    theirs.sendall(request)
    theirs.close()
    connection.reply(wire.frame(wire.REFUSED, wire.NOT_OVER))
    connection.push(None)
    assert connection.open
    assert not connection.has_more
    assert [wire.frame(kind, *wire.unpack(body)) for kind, body in connection.receive()] == [request]
    assert connection.receive() == []
    assert not connection.open
