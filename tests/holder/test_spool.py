"""What is on disk: whole after every crash, cut where it is not."""

import asyncio
import os
import re
import resource
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maos.holder import spool as spooling
from maos.holder import wire
from maos.holder.client import attach, holders, start
from maos.holder.records import Parser, SpoolRecord, left_behind
from maos.holder.spool import SpoolSegments
from tests.holder.agents import disk_of, eventually, exit_of, kinds, lines, py, sh, to_the_end, until_line


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[SpoolRecord]]:
    """A spool of several segments, and its records."""
    folder = tmp_path / "spool"
    folder.mkdir()
    monkeypatch.chdir(folder)
    spool = SpoolSegments(segment_bytes=2000)
    spool.append(wire.STARTED, 0, 1, b"77")
    for number in range(60):
        kind = wire.STDERR if number % 7 == 0 else wire.STDOUT
        spool.append(kind, 0, 10 + number, f"line {number}\nsecond line of {number}\n".encode() * (1 + number % 5))
    spool.append(wire.STDOUT, wire.PARTIAL, 80, b"half of")
    spool.append(wire.STDOUT, wire.NO_NEWLINE, 81, b" a line")
    spool.append(wire.EXIT, 0, 82, wire.pack_map({"code": "0"}))
    spool.sync()
    return folder, list(left_behind(folder, after=0))


def test_what_was_written_is_read(written: tuple[Path, list[SpoolRecord]]) -> None:
    folder, records = written
    assert len(list(folder.iterdir())) == 3
    assert kinds(records)[0] == "started"
    assert exit_of(records).get("code") == 0
    assert lines(records)[:2] == [b"line 1", b"second line of 1"]
    assert lines(records)[-1] == b"half of a line"
    assert records[-2].flags & wire.NO_NEWLINE
    for number, record in enumerate(records):
        assert list(left_behind(folder, after=record.offset)) == records[number + 1 :]


def test_a_spool_cut_at_any_length_gives_what_is_before_the_cut(written: tuple[Path, list[SpoolRecord]]) -> None:
    """And says that something was cut, unless the cut is between two records."""
    folder, records = written
    last = max(folder.iterdir())
    start_of_last = int(last.stem)
    whole = last.read_bytes()
    ends = _block_ends(whole, start_of_last)
    for size in [*range(0, len(whole), 11), *(end - start_of_last for end in ends)]:
        last.write_bytes(whole[:size])
        found = list(left_behind(folder, after=0))
        torn = [record for record in found if record.kind == "torn"]
        kept = [record for record in found if record.kind != "torn"]
        assert kept == records[: len(kept)]
        assert bool(torn) == (start_of_last + size not in ends), size
        if torn:
            assert found[-1] is torn[0]
            cut = int(torn[0].data)
            assert 0 < cut <= size
            assert torn[0].offset == start_of_last + size - cut


def _block_ends(content: bytes, begin: int) -> set[int]:
    ends, at = {begin}, 0
    while at < len(content):
        at += wire.HEADER_BYTES + wire.HEADER.unpack_from(content, at)[0]
        ends.add(begin + at)
    return ends


def test_no_flipped_bit_goes_unnoticed(written: tuple[Path, list[SpoolRecord]]) -> None:
    folder, records = written
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        for bit in range(0, len(whole) * 8, 191):
            damaged = bytearray(whole)
            damaged[bit // 8] ^= 1 << bit % 8
            path.write_bytes(damaged)
            found = list(left_behind(folder, after=0))
            assert found[-1].kind == "torn", bit
            assert found[:-1] == records[: len(found) - 1]
            assert len(found) - 1 < len(records)
        path.write_bytes(whole)
    assert list(left_behind(folder, after=0)) == records


def test_a_missing_segment_ends_what_can_be_read(written: tuple[Path, list[SpoolRecord]]) -> None:
    folder, records = written
    segments = sorted(folder.iterdir())
    segments[1].unlink()
    found = list(left_behind(folder, after=0))
    assert found[-1].kind == "torn"
    assert int(found[-1].data) == sum(path.stat().st_size for path in segments[2:])
    assert found[:-1] == records[: len(found) - 1]


def test_damage_before_what_is_known_does_not_matter(written: tuple[Path, list[SpoolRecord]]) -> None:
    folder, records = written
    first = min(folder.iterdir())
    first.write_bytes(b"\0" * first.stat().st_size)
    after = records[-5].offset
    assert list(left_behind(folder, after=after)) == records[-4:]
    assert list(left_behind(folder, after=records[-1].offset + 1000)) == []
    shutil.rmtree(folder)
    folder.mkdir()
    assert list(left_behind(folder, after=0)) == []


def test_offsets_are_never_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spool = SpoolSegments(segment_bytes=500)
    for number in range(50):
        before = spool.end
        spool.append(wire.STDOUT, 0, number, b"x" * 90 + b"\n")
        assert spool.end > before
        spool.confirm(spool.end)
        assert spool.kept_bytes == 0
    assert disk_of(tmp_path) <= 1000
    assert spool.start > 0
    assert spool.record_at(spool.end) == spool.end


def test_what_is_not_confirmed_stays_however_many_segments_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment goes when all of it is confirmed, not when its beginning is."""
    monkeypatch.chdir(tmp_path)
    spool = SpoolSegments(segment_bytes=500)
    ends = []
    for number in range(30):
        spool.append(wire.STDOUT, 0, number, b"z" * 90 + b"%d\n" % number)
        ends.append(spool.end)
    for number, end in enumerate(ends[:-1], 1):
        spool.confirm(end)
        assert spool.start <= end
        assert b"z%d\n" % number in spool.read(end, ends[number] - end)


def test_the_record_around_an_offset_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(spooling, "_SCAN_BYTES", 300)
    spool = SpoolSegments(segment_bytes=1000)
    begins = []
    for number in range(40):
        begins.append(spool.end)
        spool.append(wire.STDOUT, 0, number, b"y" * (number * 13 % 250) + b"\n")
    for begin, end in zip(begins, [*begins[1:], spool.end], strict=True):
        for offset in {begin, begin + 1, (begin + end) // 2, end - 1}:
            assert spool.record_at(offset) == begin


@given(
    blocks=st.lists(st.lists(st.binary(max_size=40).filter(lambda line: b"\n" not in line), min_size=1), max_size=20),
    cuts=st.lists(st.integers(1, 200), min_size=1),
    skip=st.integers(0, 60),
)
@settings(max_examples=60, deadline=None)
def test_records_are_the_same_however_they_arrive(blocks: list[list[bytes]], cuts: list[int], skip: int) -> None:
    data = b""
    for number, block in enumerate(blocks):
        data += wire.record(len(data), wire.STDOUT, 0, number, b"".join(line + b"\n" for line in block))
    whole = Parser(0, after=0).feed(data)
    assert [record.data for record in whole] == [line for block in blocks for line in block]
    after = whole[skip].offset if skip < len(whole) else 0
    parser = Parser(0, after=after)
    found: list[SpoolRecord] = []
    at = 0
    for number in range(10_000):
        if at >= len(data):
            break
        size = cuts[number % len(cuts)]
        found += parser.feed(data[at : at + size])
        at += size
    assert found == (whole[skip + 1 :] if skip < len(whole) else whole)
    assert not parser.damage


def test_a_sync_that_fails_is_repeated_with_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error the kernel may call pages clean that it has not written: they are written once more."""
    monkeypatch.chdir(tmp_path)
    spool = SpoolSegments()
    spool.append(wire.STDOUT, 0, 1, b"first\n")
    spool.sync()
    spool.append(wire.STDOUT, 0, 2, b"second\n")
    calls: list[str] = []
    sync, write = os.fdatasync, os.pwrite

    def failing_sync(fd: int) -> None:
        calls.append("sync")
        if len(calls) == 1:
            raise OSError(5, "Input/output error")
        sync(fd)

    def noted_write(fd: int, data: bytes, offset: int) -> int:
        calls.append(f"write {len(data)} at {offset}")
        return write(fd, data, offset)

    monkeypatch.setattr(os, "fdatasync", failing_sync)
    monkeypatch.setattr(os, "pwrite", noted_write)
    spool.sync()
    assert calls == ["sync", "write 25 at 24", "sync"]
    assert spool.synced == spool.end
    assert lines(left_behind(tmp_path, after=0)) == [b"first", b"second"]


async def test_a_full_disk_makes_the_agent_wait_and_loses_nothing(root: Path) -> None:
    """The engine is told, and everything goes on by itself when there is room again."""
    code = "import sys\nprint('up')\nsys.stdin.readline()\nfor n in range(50_000): print('line', n)"
    process = await start(root / "a", py(code, keeps_input_open=True))
    await until_line(process, b"up")
    limit = 100_000
    resource.prlimit(process.holder_pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    assert await process.write("1", b"go\n")
    found: list[SpoolRecord] = []
    while not any(record.kind == "trouble" for record in found):
        found += await process.records()
    (trouble,) = [record for record in found if record.kind == "trouble"]
    assert b"spool" in trouble.data
    assert disk_of(root / "a") <= limit
    state = holders(root)[0]
    assert (state.alive, state.over) == (True, False)
    with pytest.raises(Exception, match="not accepted"):
        await process.write("2", b"more\n")
    again = await attach(root / "a", token=2, after=found[-2].offset)
    told = await again.records()
    assert told[0].kind == "trouble"
    found = [record for record in found if record.kind != "trouble"]
    found += [record for record in told if record.kind != "trouble"]
    await process.detach()
    resource.prlimit(process.holder_pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    rest = await to_the_end(again)
    assert [record.data for record in rest if record.kind == "trouble"] == [b""]
    found += [record for record in rest if record.kind != "trouble"]
    assert lines(found) == [f"line {n}".encode() for n in range(50_000)]
    await again.finish()


async def test_an_agent_on_a_full_disk_can_be_stopped(root: Path) -> None:
    process = await start(root / "a", sh("echo up; read x; yes", keeps_input_open=True))
    await until_line(process, b"up")
    resource.prlimit(process.holder_pid, resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
    assert await process.write("1", b"go\n")
    while (await process.records())[-1].kind != "trouble":
        pass
    await process.kill()
    await eventually(lambda: not os.path.exists(f"/proc/{process.pid}"), "the agent is gone")
    assert not holders(root)[0].over
    resource.prlimit(process.holder_pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    records = await to_the_end(process)
    assert "stopping" in kinds(records)
    assert exit_of(records).get("signal")
    await process.finish()


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
async def test_what_is_promised_is_synced_before_it_is_told(root: Path, tmp_path: Path) -> None:
    """Seen from outside, in the holder's own calls: an accepted input, output nobody confirms, and the exit."""
    process = await start(root / "a", sh("echo up; read x; echo more; read x; exit 9", keeps_input_open=True))
    await until_line(process, b"up")
    trace = tmp_path / "trace"
    strace = await asyncio.create_subprocess_exec(
        "strace", "-s", "200", "-e", "trace=fdatasync,pwrite64,sendto", "-o", trace, "-p", str(process.holder_pid),
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        await eventually(lambda: trace.exists() and _traced(process.holder_pid), "it is traced")
        assert await process.write("one", b"go\n")
        await until_line(process, b"more")
        await eventually(lambda: _after(trace.read_text(), "more", "fdatasync"), "the line is synced")
        assert await process.write("two", b"on\n")
        await to_the_end(process)
        await process.finish()
    finally:
        if strace.returncode is None:
            strace.terminate()
        await strace.wait()
    said = trace.read_text()
    for written, told in (("pwrite64.*one", "sendto.*accepted"), ("pwrite64.*code", "sendto.*code")):
        between = said.split(_first(written, said), 1)[1].split(_first(told, said), 1)[0]
        assert "fdatasync" in between, said


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found, f"{pattern} is not in {text}"
    return found[0]


def _after(text: str, first: str, second: str) -> bool:
    """Whether one text is behind the first place of another; on a busy machine a record is synced before it is sent."""
    return second in text.partition(first)[2]


def _traced(pid: int) -> bool:
    return "TracerPid:\t0\n" not in Path(f"/proc/{pid}/status").read_text()
