"""Engines and holders that are killed while an agent is being started."""

import os
import socket
import sys
from pathlib import Path

import pytest

from maos.errors import InvalidInput
from maos.holder import client as processes
from maos.holder import process_tree
from maos.holder.agent_process import HolderGone
from maos.holder.client import attach, holders, start, strays
from maos.holder.records import left_behind
from maos_testing.crash import Life, crash_loop
from tests.holder.agents import eventually, lines, sh, to_the_end, until_line
from tests.holder.engine_life import begin

ROOT = Path(__file__).parent.parent.parent


async def test_an_engine_killed_at_any_point_of_a_start_leaves_all_or_nothing(tmp_path: Path, root: Path) -> None:
    """I33: a holder that can be found with its agent, or nothing; and the agent never ran twice (I29)."""
    outcomes: dict[str, str] = {}

    def argv_for(number: int) -> list[str | os.PathLike[str]]:
        return [sys.executable, "-m", "tests.holder.engine_life", "start", root / str(number) / "a", "1", "0"]

    async def check(life: Life) -> None:
        base = root / str(life.number)
        folder, proof = base / "a", base / "proof"
        try:
            process = await attach(folder, token=2, after=0)
        except HolderGone:
            outcomes[life.died_at or "none"] = "nothing"
            assert not proof.exists()
            assert list(left_behind(folder, after=0)) == []
            assert strays(base) == []
            assert not any(info.alive for info in holders(base))
            with pytest.raises(InvalidInput, match="started before"):
                await begin(folder, 3)
        else:
            outcomes[life.died_at or "none"] = "all"
            assert await process.write("1", b"you\n")
            assert lines(await to_the_end(process)) == [b"up", b"got you"]
            await process.finish()
            assert len(proof.read_text().splitlines()) == 1

    lives = await crash_loop(argv_for, check, cwd=ROOT, share=1.0)
    assert [life.died_at for life in lives] == [
        "start: folder made",
        "start: holder spawned",
        "start: spec sent",
        "start: agent runs",
        None,
    ]
    assert outcomes["start: folder made"] == outcomes["start: holder spawned"] == "nothing"
    assert outcomes["start: agent runs"] == outcomes["none"] == "all"


@pytest.mark.parametrize("point", range(1, 6))
async def test_a_holder_killed_while_it_starts_is_a_clear_error_and_leaves_no_process(
    root: Path, monkeypatch: pytest.MonkeyPatch, point: int
) -> None:
    trace = root.parent / "trace"
    monkeypatch.setenv("MAOS_HOLDER_CRASH_AT", str(point))
    monkeypatch.setenv("MAOS_CRASH_TRACE", str(trace))
    if point == 5:
        process = await start(root / "a", sh("echo up; read x", keeps_input_open=True))
        await until_line(process, b"up")
        assert not trace.exists()
        await process.kill()
        await to_the_end(process)
        await process.finish()
        return
    with pytest.raises(HolderGone) as caught:
        await start(root / "a", sh("echo up; read x", keeps_input_open=True))
    assert caught.value.hint
    assert (
        trace.read_text()
        == [
            "holder has the spec\n",
            "holder has claimed the folder\n",
            "holder listens\n",
            "holder has started the guard\n",
        ][point - 1]
    )
    with pytest.raises(HolderGone):
        await attach(root / "a", token=1, after=0)
    await eventually(lambda: strays(root) == [], "nothing is left")


async def test_the_last_words_of_a_holder_are_told(root: Path) -> None:
    (root / "a").mkdir()
    (root / "a" / "00000000000000000000.spool").touch()
    with pytest.raises(HolderGone, match="FileExistsError"):
        await start(root / "a", sh("echo up"))


async def test_a_holder_whose_engine_says_nothing_goes(root: Path) -> None:
    """An engine that dies between starting its holder and saying what to start: nothing has happened."""
    ours, theirs = socket.socketpair()
    (root / "a").mkdir()
    with ours, theirs:
        pid = processes._spawn(root / "a", "a", theirs.fileno())
        theirs.close()
        ours.sendall(b"\x10\x00")
        ours.close()
        await eventually(lambda: process_tree.living(pid) is None)
    assert {path.name for path in (root / "a").iterdir()} == {"errors"}
    assert (root / "a" / "errors").read_text() == ""
