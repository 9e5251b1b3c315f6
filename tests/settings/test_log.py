"""The log file: everything that was saved, once and in order, whoever writes it and whoever is killed (R-1009)."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import maos
from maos.ops import logbook

LIFE = """
import asyncio, os, signal, sys
from pathlib import Path
import maos
from maos.ops import logbook

async def main() -> None:
    async with maos.open(sys.argv[1]) as m:
        async def work() -> None:
            for number in range(int(sys.argv[3])):
                joined = {"topic": "", "name": f"{sys.argv[4]}-{number}"}
                await m.journal.append("notes", maos.Event("topic_joined", joined))
            if sys.argv[4] == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
        await logbook.beside(m.journal, Path(sys.argv[2]), work())

asyncio.run(main())
"""


def life(folder: Path, count: int, name: str) -> subprocess.Popen[str]:
    args = [sys.executable, "-c", LIFE, str(folder / "maos.db"), str(folder / "maos.log"), str(count), name]
    return subprocess.Popen(args, stderr=subprocess.PIPE, text=True)


def positions(log: Path) -> list[int]:
    return [int(line.split(" ")[0]) for line in log.read_text().splitlines()]


def _maos(folder: Path, *args: str, status: int = 0, **env: str) -> str:
    own = {"PATH": os.environ["PATH"], "HOME": str(folder), "MAOS_HOME": str(folder / "home"), "LANG": "C.UTF-8"}
    done = subprocess.run(
        [sys.executable, "-m", "maos", *args], cwd=folder, env={**own, **env}, capture_output=True, text=True
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_what_was_saved_when_is_found_with_grep(tmp_path: Path) -> None:
    """R-1009: a variable, or a person's own file; not a project's."""
    log = tmp_path / "maos.log"
    _maos(tmp_path, "state", "create", "before")
    assert not log.exists()
    _maos(tmp_path, "state", "create", "reviewer", '{"secret": "said by an agent"}', MAOS_LOG_FILE=str(log))
    _maos(tmp_path, "state", "update", "reviewer", '{"status": "busy"}', MAOS_LOG_FILE=str(log))
    _maos(tmp_path, "state", "create", "in-between")
    _maos(tmp_path, "state", "snapshot", "reviewer", "--name", "mark", MAOS_LOG_FILE=str(log))
    text = log.read_text()
    assert "the log begins here" in text.splitlines()[0]
    assert "agent/reviewer@1 " in text
    assert "agent/in-between@1 " in text  # written by a command that knew of no log
    assert "agent/before" not in text
    assert "said by an agent" not in text
    assert positions(log) == list(range(positions(log)[0], positions(log)[0] + len(text.splitlines())))
    (tmp_path / "maos.toml").write_text('[log]\nfile = "elsewhere.log"\n')
    assert "is not allowed in a project's file" in _maos(tmp_path, "state", "create", "x", status=2)
    assert not (tmp_path / "elsewhere.log").exists()
    assert oct(log.stat().st_mode & 0o777) == "0o600"


def test_a_persons_own_file_says_where(tmp_path: Path) -> None:
    own = tmp_path / ".config" / "maos"
    own.mkdir(parents=True)
    (own / "maos.toml").write_text('[log]\nfile = "logs/maos.log"\n')
    _maos(tmp_path, "state", "create", "reviewer")
    assert "agent/reviewer@1" in (own / "logs" / "maos.log").read_text()


async def test_many_processes_write_one_log_and_none_is_killed_in_vain(tmp_path: Path) -> None:
    """Killed between the journal and the log, the next one writes what is missing; nothing is there twice."""
    async with maos.open(tmp_path / "maos.db") as m:
        await logbook.catch_up(m.journal, tmp_path / "maos.log")
    lives = [life(tmp_path, 20, name) for name in ("killed", "one", "two")]
    for each in lives:
        _out, err = await asyncio.to_thread(each.communicate)
        assert each.returncode in (0, -9), err
    async with maos.open(tmp_path / "maos.db") as m:
        await logbook.catch_up(m.journal, tmp_path / "maos.log")
        assert positions(tmp_path / "maos.log") == list(range(await m.journal.head() + 1))
        assert await logbook.catch_up(m.journal, tmp_path / "maos.log") == 0
    text = (tmp_path / "maos.log").read_text()
    assert all(f"name={name}-{number}\n" in text for name in ("killed", "one", "two") for number in range(20))


async def test_a_line_that_was_cut_off_is_written_anew(tmp_path: Path) -> None:
    log = tmp_path / "maos.log"
    async with maos.open(":memory:") as m:
        await logbook.catch_up(m.journal, log)
        await m.journal.append(
            "a", maos.Event("task_failed", {"task": "x\ny", "failure": "f", "why": "w" * 999, "at_us": 1})
        )
        await m.journal.append("a", maos.Event("topic_joined", {"topic": "", "name": "z"}))
        await logbook.catch_up(m.journal, log)
        whole = log.read_text()
        log.write_text(whole[:-5])
        await logbook.catch_up(m.journal, log)
        assert log.read_text() == whole
    assert len(whole.splitlines()) == 3
    assert 'task="x y"' in whole
    assert len(whole) < 400


async def test_a_long_log_is_read_in_pages_and_nothing_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logbook, "PAGE_EVENTS", 3)
    async with maos.open(":memory:") as m:
        await logbook.catch_up(m.journal, tmp_path / "maos.log")
        for number in range(10):
            await m.journal.append("a", maos.Event("topic_joined", {"topic": "", "name": str(number)}))
        assert await logbook.catch_up(m.journal, tmp_path / "maos.log") == 10
    assert positions(tmp_path / "maos.log") == list(range(11))


async def test_a_file_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / "notes.txt"
    mine.write_text("1 the loaf of bread\nno newline")
    async with maos.open(":memory:") as m:
        with pytest.raises(maos.InvalidInput, match="not a log of maos"):
            await logbook.catch_up(m.journal, mine)
        with pytest.raises(maos.InvalidInput, match="cannot be written"):
            await logbook.catch_up(m.journal, tmp_path)
    assert mine.read_text() == "1 the loaf of bread\nno newline"
