"""An agent under a holder: what it is given, what it says, how it ends."""

import asyncio
import os
import signal
import stat
from pathlib import Path

import pytest

from maos.errors import InvalidInput
from maos.holder import wire
from maos.holder.agent_process import AgentProcess, InputFull, StartFailed
from maos.holder.client import holders, start
from maos.holder.wire import NO_NEWLINE, HolderSpec
from tests.holder.agents import alive, eventually, exit_of, kinds, lines, py, sh, to_the_end, until_line


async def test_output_and_exit_arrive_in_order(root: Path) -> None:
    """R-102: every line, its stream, and how it ended."""
    process = await start(root / "a", sh("echo one; echo two; echo bad >&2; exit 3"))
    records = await to_the_end(process)
    assert records[0].kind == "started"
    assert int(records[0].data) == process.pid
    assert lines(records) == [b"one", b"two"]
    assert lines(records, "stderr") == [b"bad"]
    assert exit_of(records).get("code") == 3
    assert exit_of(records).get("signal") is None
    offsets = [record.offset for record in records]
    assert offsets == sorted(set(offsets))
    times = [record.time_us for record in records]
    assert times == sorted(times)
    assert await process.records() == []
    await process.finish()
    assert not (root / "a").exists()
    assert not alive(process.holder_pid)


async def test_an_exit_by_signal_is_told_with_what_was_used(root: Path) -> None:
    process = await start(root / "a", sh("x=$(seq 100000 | wc -l); kill -SEGV $$"))
    end = exit_of(await to_the_end(process))
    assert end.get("code") is None
    assert end.get("signal") == signal.SIGSEGV
    assert end["rss_max_bytes"] > 100_000
    assert end["duration_us"] > 0
    assert end["utime_us"] + end["stime_us"] > 0
    assert not end.get("oom")
    await process.finish()


@pytest.mark.parametrize(
    ("argv", "cwd", "where", "word"),
    [
        (["no-such-program-anywhere"], "/", "program", "no-such-program-anywhere"),
        (["/"], "/", "program", "/"),
        (["/etc/passwd"], "/", "program", "/etc/passwd"),
        (["true"], "/no/such/folder", "cwd", "/no/such/folder"),
    ],
)
async def test_what_cannot_be_started_is_said_and_leaves_nothing(
    root: Path, argv: list[str], cwd: str, where: str, word: str
) -> None:
    with pytest.raises(StartFailed) as caught:
        await start(root / "a", sh("", argv=argv, cwd=cwd))
    assert caught.value.where == where
    assert caught.value.errno > 0
    assert word in caught.value.what
    assert caught.value.hint
    assert list(root.iterdir()) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"argv": []},
        {"argv": ["a\0b"]},
        {"attempt": ""},
        {"attempt": "a\nb"},
        {"line_bytes_max": 100},
        {"env": {"A=B": "c"}},
        {"secrets": {"KEY": "x" * 100_000}},
    ],
)
async def test_a_spec_that_makes_no_sense_is_refused(root: Path, changes: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        await start(root / "a", sh("true", **changes))
    assert list(root.iterdir()) == []


async def test_an_attempt_is_never_started_twice(root: Path) -> None:
    process = await start(root / "a", sh("echo once; sleep 100"))
    with pytest.raises(InvalidInput, match="started before"):
        await start(root / "a", sh("echo twice"))
    assert lines(await until_line(process, b"once")) == [b"once"]
    await process.kill()
    await to_the_end(process)
    with pytest.raises(InvalidInput, match="started before"):
        await start(root / "a", sh("echo twice"))
    await process.finish()


async def test_the_agent_gets_its_environment_and_nothing_else(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_ENGINE", "1")
    monkeypatch.setenv("MAOS_TEST", "1")
    env = {"PATH": os.environ["PATH"], "A": "b=c", "Ü": "ü\udcff"}
    spec = HolderSpec(argv=["env"], env=env, cwd=str(root), attempt="a", token=1, secrets={})
    process = await start(root / "a", spec)
    found = dict(line.partition(b"=")[::2] for line in lines(await to_the_end(process)))
    assert found == {
        b"PATH": os.environ["PATH"].encode(),
        b"A": b"b=c",
        "Ü".encode(): "ü".encode() + b"\xff",
        b"MAOS_ATTEMPT": b"a",
        b"MAOS_ATTEMPT_FOLDER": os.fsencode(root / "a"),
    }
    await process.finish()


async def test_the_agent_inherits_no_file_but_its_three(root: Path) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    try:
        # The fourth is the folder that is being listed.
        process = await start(root / "a", py("import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))"))
        assert lines(await to_the_end(process)) == [b"[0, 1, 2, 3]"]
        ours = os.readlink(f"/proc/self/fd/{writing}")
        kept = [os.readlink(link) for link in Path(f"/proc/{process.holder_pid}/fd").iterdir()]
        assert ours not in kept  # nor does the holder: somebody may wait for the end of that pipe
        await process.finish()
    finally:
        os.close(reading)
        os.close(writing)


async def test_our_files_are_private_but_the_agents_umask_is_the_engines(root: Path) -> None:
    """A21."""
    made = root.parent / "made"
    before = os.umask(0o026)
    try:
        process = await start(root / "a", sh(f"umask; touch {made}; echo done; read x", keeps_input_open=True))
    finally:
        os.umask(before)
    assert lines(await until_line(process, b"done"))[0] == b"0026"
    assert stat.S_IMODE(made.stat().st_mode) == 0o640
    folder = root / "a"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert set(modes.values()) == {0o600}, modes
    assert stat.S_ISSOCK((folder / "s").stat().st_mode)
    await process.write("1", b"", close=True)
    await to_the_end(process)
    await process.finish()


async def test_the_agents_signals_are_as_in_a_fresh_shell(root: Path) -> None:
    process = await start(root / "a", sh("exec grep -E 'Sig(Blk|Ign)' /proc/self/status"))
    ours = 0b11 << 31  # 32 and 33 belong to the C library: nobody can change what a process inherits of them
    values = [int(line.split()[1], 16) & ~ours for line in lines(await to_the_end(process))]
    assert values == [0, 0]
    await process.finish()


async def test_the_agent_has_a_session_of_its_own(root: Path) -> None:
    """`kill 0` of an agent must not reach the holder."""
    process = await start(root / "a", sh("echo going; kill -TERM 0; sleep 100"))
    records = await to_the_end(process)
    assert lines(records) == [b"going"]
    assert exit_of(records).get("signal") == signal.SIGTERM
    assert alive(process.holder_pid)
    await process.finish()


async def test_input_is_given_in_order_and_ends_when_it_is_closed(root: Path) -> None:
    process = await start(root / "a", sh("cat; echo end", first_input=b"first\n", keeps_input_open=True))
    assert await process.write("1", b"second\n")
    assert await process.write("2", b"third\n", close=True)
    assert await process.write("3", b"late\n") is False
    records = await to_the_end(process)
    assert lines(records) == [b"first", b"second", b"third", b"end"]
    assert [record.data for record in records if record.kind == "input"] == [b"1", b"2"]
    await process.finish()


async def test_without_more_input_the_agent_sees_its_end(root: Path) -> None:
    process = await start(root / "a", sh("cat; echo end", first_input=b"x" * 300_000 + b"\n"))
    assert lines(await to_the_end(process)) == [b"x" * 300_000, b"end"]
    await process.finish()


async def test_an_agent_that_does_not_read_holds_up_nobody(root: Path) -> None:
    """Input waits within a bound; the holder serves on meanwhile."""
    process = await start(root / "a", sh("echo up; while :; do sleep 0.05; echo on; done", keeps_input_open=True))
    piece = b"x" * (wire.INPUT_BYTES_MAX * 2 // 3)
    assert await process.write("1", piece)
    with pytest.raises(InputFull):
        await process.write("2", piece)
    await until_line(process, b"on")
    with pytest.raises(InvalidInput):
        await process.write("3", b"x" * (wire.INPUT_BYTES_MAX + 1))
    await process.kill()
    await to_the_end(process)
    await process.finish()


async def test_an_agent_that_closed_its_input_takes_no_more(root: Path) -> None:
    process = await start(root / "a", sh("exec <&-; echo closed; sleep 100", keeps_input_open=True))
    await until_line(process, b"closed")
    first = await process.write("1", b"x\n")
    assert await process.write("2", b"y\n") is False, first
    await process.kill()
    await to_the_end(process)
    await process.finish()


async def test_binary_output_comes_as_it_is(root: Path) -> None:
    data = bytes(range(256)) * 300
    code = "import os\nfor i in range(300): os.write(1, bytes(range(256)))"
    process = await start(root / "a", py(code))
    records = await to_the_end(process)
    last = records[-2]
    assert last.flags & NO_NEWLINE
    assert b"\n".join(lines(records)) == data
    await process.finish()


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 300_000, 2_500_000])
async def test_a_line_over_the_limit_comes_in_parts_that_make_it_whole(root: Path, size: int) -> None:
    code = "import sys; sys.stdout.write('before\\n' + ('0123456789abcdefghi' * (n // 19 + 1))[:n] + '\\nafter\\n')"
    process = await start(root / "a", py(f"n = {size}; {code}", line_bytes_max=65_536))
    records = await to_the_end(process)
    whole = (b"0123456789abcdefghi" * (size // 19 + 1))[:size]
    assert lines(records) == [b"before", whole, b"after"]
    if size > 2 * 65_536:
        assert any(record.partial for record in records)
    assert max(len(record.data) for record in records) <= 2 * 65_536
    await process.finish()


async def test_a_line_without_a_newline_is_marked(root: Path) -> None:
    process = await start(root / "a", sh("echo whole; printf half"))
    records = await to_the_end(process)
    assert [(record.data, bool(record.flags & NO_NEWLINE)) for record in records if record.kind == "stdout"] == [
        (b"whole", False),
        (b"half", True),
    ]
    await process.finish()


async def test_an_agent_that_closes_its_output_lives_on(root: Path) -> None:
    process = await start(root / "a", sh("echo x; exec >&- 2>&-; read line; exit 5", keeps_input_open=True))
    await until_line(process, b"x")
    assert alive(process.pid)
    assert await process.write("1", b"go\n")
    assert exit_of(await to_the_end(process)).get("code") == 5
    await process.finish()


async def test_who_keeps_the_output_open_after_the_agent_is_ended(root: Path) -> None:
    """The exit is told after a short grace, and nothing of the tree is left then (I33)."""
    process = await start(root / "a", sh("setsid sleep 1000 & echo $!; exit 4"))
    records = await to_the_end(process)
    assert exit_of(records).get("code") == 4
    (pid,) = map(int, lines(records))
    assert not alive(pid)
    await process.finish()


async def test_the_last_words_of_a_child_are_waited_for(root: Path) -> None:
    process = await start(root / "a", sh("(sleep 0.2; echo late) & exit 0"))
    assert lines(await to_the_end(process)) == [b"late"]
    await process.finish()


async def test_a_folder_deeper_than_a_socket_name_can_be(root: Path) -> None:
    folder = root.joinpath(*["deep" * 20] * 4)
    assert len(str(folder)) > 300
    process = await start(folder, sh("echo here; read x", keeps_input_open=True))
    await until_line(process, b"here")
    (info,) = holders(folder.parent)
    assert (info.alive, info.attached, info.agent_pid) == (True, True, process.pid)
    await process.kill()
    await to_the_end(process)
    await process.finish()


async def test_many_at_once(root: Path) -> None:
    processes = await asyncio.gather(*(start(root / str(n), sh(f"echo {n}", attempt=str(n))) for n in range(12)))
    for number, process in enumerate(processes):
        assert lines(await to_the_end(process)) == [str(number).encode()]
        await process.finish()
    assert list(root.iterdir()) == []


async def test_a_finish_before_the_end_is_refused(root: Path) -> None:
    process: AgentProcess = await start(root / "a", sh("read x", keeps_input_open=True))
    with pytest.raises(InvalidInput, match="has not ended"):
        await process.finish()
    assert alive(process.pid)
    assert await process.write("1", b"\n")
    assert kinds(await to_the_end(process)) == ["started", "input", "exit"]
    await process.finish()
    await eventually(lambda: not alive(process.holder_pid))
