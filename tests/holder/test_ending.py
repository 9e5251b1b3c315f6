"""How agents end: by themselves, stopped, killed, and never without everything they started (I33)."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from maos.errors import InvalidInput
from maos.holder import identity, process_tree
from maos.holder.agent_process import AgentProcess, HolderGone, remove
from maos.holder.client import attach, end, end_stray, holders, start, strays
from maos.holder.records import left_behind
from tests.holder.agents import PATIENCE_S, alive, eventually, exit_of, kinds, lines, py, sh, to_the_end, until_line

DEAD_WITHIN_S = 2.0
NAP_S = 0.005

FAMILY = """
import os, signal, sys, time
def report(what):
    os.write(1, f'{what} {os.getpid()}\\n'.encode())
def rest():
    time.sleep(1000)
    os._exit(0)
if os.fork() == 0:  # an ordinary child
    report('child')
    rest()
if os.fork() == 0:  # a shell as agent CLIs start them
    os.setsid()
    report('session')
    if os.fork() == 0:
        report('grandchild')
        rest()
    rest()
if os.fork() == 0:  # a daemon: its parent is gone
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        report('daemon')
        rest()
    os._exit(0)
if os.fork() == 0:  # one that does not want to go
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    report('stubborn')
    rest()
report('agent')
rest()
"""
FAMILY_SIZE = 6


async def family(root: Path, **changes: object) -> tuple[AgentProcess, dict[str, int]]:
    """An agent with all kinds of descendants, and their pids."""
    process = await start(root / "a", py(FAMILY, **changes))
    found: dict[str, int] = {}
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < FAMILY_SIZE:
            for line in lines(await process.records()):
                name, pid = line.split()
                found[name.decode()] = int(pid)
    assert all(map(alive, found.values()))
    return process, found


async def all_dead(pids: list[int]) -> None:
    """Fails if they do not die within what I33 allows, and a second; counted in naps: a busy machine stretches them."""
    for _nap in range(int((DEAD_WITHIN_S + 1.0) / NAP_S)):
        if not any(map(alive, pids)):
            return
        await asyncio.sleep(NAP_S)
    raise AssertionError(f"still alive: {[pid for pid in pids if alive(pid)]}")


async def test_when_the_holder_dies_everything_dies(root: Path) -> None:
    """I33, and what was spooled can be read without a holder."""
    process, pids = await family(root)
    os.kill(process.holder_pid, signal.SIGKILL)
    await all_dead([*pids.values(), process.holder_pid])
    with pytest.raises(HolderGone):
        while await process.records():
            pass
    with pytest.raises(HolderGone):
        await attach(root / "a", token=1, after=0)
    records = list(left_behind(root / "a", after=0))
    assert kinds(records) == ["started"] + ["stdout"] * FAMILY_SIZE
    assert strays(root) == []
    remove(root / "a")


async def test_when_the_guard_dies_everything_dies_and_that_is_recorded(root: Path) -> None:
    """I33."""
    process, pids = await family(root)
    guard_pid = int(process.state["guard_pid"])
    os.kill(guard_pid, signal.SIGKILL)
    await all_dead([*pids.values(), guard_pid])
    records = await to_the_end(process)
    assert [record.data for record in records if record.kind == "stopping"] == [b"holder_error"]
    assert exit_of(records).get("signal") in (signal.SIGTERM, signal.SIGKILL)
    await process.finish()


async def test_when_both_die_at_once_strays_are_found_and_ended(root: Path) -> None:
    process, pids = await family(root)
    guard_pid = int(process.state["guard_pid"])
    for pid in (process.holder_pid, guard_pid):
        os.kill(pid, signal.SIGSTOP)
    for pid in (process.holder_pid, guard_pid):
        os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not alive(pids["agent"]), "the agent got the signal of its parent's death")
    await eventually(lambda: not alive(guard_pid), "the guard is gone")
    found = {stray.pid: stray for stray in strays(root)}
    assert set(found) == {pid for name, pid in pids.items() if name != "agent"}
    assert {(stray.attempt, stray.folder) for stray in found.values()} == {("a", root / "a")}
    assert strays(root / "b") == []
    assert await end_stray(found[pids["session"]]._replace(start_ticks=1)) == 0
    assert await end_stray(found[pids["session"]]) == 2
    (info,) = holders(root)
    assert not info.alive
    assert await end(info) == 3
    assert not any(map(alive, pids.values()))
    assert strays(root) == []
    await process.detach()


async def test_a_living_holder_has_no_strays(root: Path) -> None:
    process, _pids = await family(root)
    assert strays(root) == []
    await process.kill()
    await to_the_end(process)
    await process.finish()


async def test_a_tree_is_found_in_either_way(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By asking for children, and on kernels that do not tell, by asking everybody for their parent."""
    process, pids = await family(root)
    quick = {seen.pid for seen in process_tree.descendants(process.holder_pid)}
    with monkeypatch.context() as patch:
        patch.setattr(process_tree, "CHILDREN", "not there")
        slow = {seen.pid for seen in process_tree.descendants(process.holder_pid)}
    assert quick == slow == {*pids.values(), int(process.state["guard_pid"])}
    await process.kill()
    await to_the_end(process)
    await process.finish()


async def test_ending_a_holder_ends_everything(root: Path) -> None:
    process, pids = await family(root)
    (info,) = holders(root)
    assert (info.attempt, info.pid, info.alive) == ("a", process.holder_pid, True)
    assert (info.agent_pid, info.attached, info.over) == (process.pid, True, False)
    assert info.since_us > 1_600_000_000_000_000
    assert info.spool_bytes > 0
    assert await end(info) == FAMILY_SIZE + 2
    assert not any(map(alive, [*pids.values(), process.holder_pid]))
    assert await end(info) == 0
    with pytest.raises(HolderGone):
        while await process.records():
            pass


async def test_a_pid_that_was_used_again_is_never_killed(root: Path) -> None:
    process = await start(root / "a", sh("sleep 100"))
    folder = root / "b"
    folder.mkdir()
    other = await asyncio.create_subprocess_exec("sleep", "100")
    own = process_tree.look(other.pid)
    assert own is not None
    text = (root / "a" / "holder").read_text().splitlines()
    try:
        for pid, ticks, boot in (
            (other.pid, own.start_ticks - 1, text[2]),
            (other.pid, own.start_ticks, "another-boot"),
        ):
            (folder / "holder").write_text("\n".join([str(pid), str(ticks), boot, text[3], "b"]) + "\n")
            who = identity.read(folder)
            assert who is not None
            assert who.process() is None
            info = next(info for info in holders(root) if info.folder == folder)
            assert not info.alive
            assert await end(info) == 0
            assert alive(other.pid)
    finally:
        other.kill()
        await other.wait()
    with pytest.raises(InvalidInput, match="is alive"):
        remove(root / "a")
    await process.kill()
    await to_the_end(process)
    await process.finish()


async def test_a_signal_reaches_exactly_the_process_that_was_seen() -> None:
    """Not another one that has its pid by now."""
    other = await asyncio.create_subprocess_exec("sleep", "100")
    try:
        seen = process_tree.look(other.pid)
        assert seen is not None
        before = process_tree.Seen(seen.pid, seen.parent, seen.start_ticks - 1, seen.state)
        assert not process_tree.send(before, signal.SIGKILL)
        assert alive(other.pid)
        assert process_tree.send(seen, signal.SIGKILL)
        assert await other.wait() == -signal.SIGKILL
    finally:
        if other.returncode is None:
            other.kill()
            await other.wait()


async def test_a_stop_is_a_request_first(root: Path) -> None:
    script = "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.02; done"
    process = await start(root / "a", sh(script))
    await until_line(process, b"up")
    await process.stop(grace_s=60)
    records = await to_the_end(process)
    assert [record.data for record in records if record.kind == "stopping"] == [b"asked"]
    assert lines(records) == [b"bye"]
    assert exit_of(records).get("code") == 7
    await process.finish()


async def test_a_stop_that_is_ignored_becomes_a_kill_of_the_whole_tree(root: Path) -> None:
    code = FAMILY.replace("report('agent')", "signal.signal(signal.SIGTERM, signal.SIG_IGN); report('agent')")
    process = await start(root / "a", py(code))
    found: list[bytes] = []
    while len(found) < FAMILY_SIZE:
        found += lines(await process.records())
    await process.stop(grace_s=60)  # a second one can shorten the grace
    await process.stop(grace_s=0.1)
    records = await to_the_end(process)
    assert kinds(records) == ["stopping", "exit"]
    assert exit_of(records).get("signal") == signal.SIGKILL
    assert not exit_of(records).get("oom")
    assert not any(alive(int(line.split()[1])) for line in found)
    await process.finish()


async def test_a_kill_takes_everything(root: Path) -> None:
    process, pids = await family(root)
    await process.kill()
    records = await to_the_end(process)
    assert exit_of(records).get("signal") in (signal.SIGTERM, signal.SIGKILL)
    assert not any(map(alive, pids.values()))
    await process.finish()


@pytest.mark.parametrize("how", ["kill", "end"])
async def test_processes_that_fork_faster_than_anybody_looks_are_killed_too(root: Path, how: str) -> None:
    """None of them lives longer than two milliseconds, so no list of them is ever right."""
    code = """
import os, sys, time
beats = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
end = time.monotonic() + 60
while time.monotonic() < end:
    os.write(beats, b'.')
    if os.fork() == 0:
        os.setsid()
    else:
        time.sleep(0.002)
        os._exit(0)
"""
    beats = root.parent / "beats"
    argv = ["sh", "-c", '"$0" "$@" & "$0" "$@" & "$0" "$@" & sleep 100', *py(code, str(beats)).argv]
    process = await start(root / "a", sh("", argv=argv))
    await eventually(lambda: beats.exists() and beats.stat().st_size > 30, "they fork")
    if how == "kill":
        await process.kill()
        await to_the_end(process)
        await process.finish()
    else:
        assert await end(holders(root)[0]) >= 4  # who forks may not be seen when they are counted
        await process.detach()
    count = beats.stat().st_size
    await asyncio.sleep(0.2)
    assert beats.stat().st_size == count


async def test_the_time_limit_ends_an_agent(root: Path) -> None:
    process = await start(root / "a", sh("echo up; sleep 1000", time_limit_s=0.2, stop_grace_s=5))
    records = await to_the_end(process)
    assert [record.data for record in records if record.kind == "stopping"] == [b"time_limit"]
    assert exit_of(records).get("signal") == signal.SIGTERM
    await process.finish()


async def test_a_suspended_time_limit_rests_also_without_an_engine_and_then_goes_on(root: Path) -> None:
    process = await start(root / "a", sh("sleep 9; echo still here; sleep 1000", time_limit_s=8))
    for _ in range(2):  # the second request changes nothing
        await process.suspend_time_limit(suspended=True)
    await process.detach()
    process = await attach(root / "a", token=1, after=0)
    await until_line(process, b"still here")
    for _ in range(2):
        await process.suspend_time_limit(suspended=False)
    records = await to_the_end(process)
    assert [record.data for record in records if record.kind == "stopping"] == [b"time_limit"]
    await process.finish()


async def test_a_suspended_time_limit_does_not_keep_an_agent_that_no_engine_attaches_to(root: Path) -> None:
    process = await start(root / "a", sh("sleep 1000", time_limit_s=20, unattended_limit_s=3, linger_s=0.2))
    await process.suspend_time_limit(suspended=True)
    await process.detach()
    await eventually(lambda: not holders(root)[0].alive, "the holder has gone")
    records = list(left_behind(root / "a", after=0))
    assert [record.data for record in records if record.kind == "stopping"] == [b"unattended"]
    remove(root / "a")


async def test_an_agent_nobody_asks_for_is_ended_by_its_holder(root: Path) -> None:
    """And later the holder goes too; what it spooled stays."""
    spec = sh(
        "trap '' TERM; echo up; while :; do sleep 0.05; done", unattended_limit_s=0.2, stop_grace_s=0.2, linger_s=0.2
    )
    process = await start(root / "a", spec)
    await until_line(process, b"up")
    await process.detach()
    await eventually(lambda: not holders(root)[0].alive, "the holder has gone")
    assert not alive(process.pid)
    with pytest.raises(HolderGone):
        await attach(root / "a", token=1, after=0)
    records = list(left_behind(root / "a", after=0))
    assert kinds(records) == ["started", "stdout", "stopping", "exit"]
    assert records[2].data == b"unattended"
    assert exit_of(records).get("signal") == signal.SIGKILL
    assert not (root / "a" / "s").exists()
    remove(root / "a")
    assert list(root.iterdir()) == []


async def test_while_somebody_is_attached_no_such_limit_counts(root: Path) -> None:
    process = await start(root / "a", sh("read x", unattended_limit_s=0.1, linger_s=0.1, keeps_input_open=True))
    await asyncio.sleep(0.4)
    assert alive(process.pid)
    assert await process.write("1", b"\n")
    await to_the_end(process)
    await asyncio.sleep(0.3)
    assert alive(process.holder_pid)
    await process.finish()


async def test_a_holder_that_is_asked_to_end_stops_its_agent(root: Path) -> None:
    process = await start(root / "a", sh("trap 'echo bye; exit 1' TERM; echo up; while :; do sleep 0.02; done"))
    await until_line(process, b"up")
    os.kill(process.holder_pid, signal.SIGTERM)
    records = await to_the_end(process)
    assert lines(records) == [b"bye"]
    await process.finish()


async def test_an_engine_can_be_killed_with_its_whole_group(root: Path) -> None:
    """Ctrl+C and a closed terminal reach the engine's process group; the holder has a session of its own."""
    process = await start(root / "a", sh("read x", keeps_input_open=True))
    for pid in (process.holder_pid, process.pid):
        assert os.getsid(pid) == pid
        assert os.getsid(pid) != os.getsid(0)
    for number in (signal.SIGINT, signal.SIGHUP):
        os.kill(process.holder_pid, number)
    assert await process.write("1", b"\n")
    assert exit_of(await to_the_end(process)).get("code") == 0
    await process.finish()
