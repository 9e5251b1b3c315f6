"""Settings that are edited while somebody goes by them (R-1007)."""

import os
import sys
from pathlib import Path

import maos
from maos.settings import loader
from maos.settings.loader import BadSettings, NewerSettings
from maos_testing.crash import Life, crash_loop
from tests.settings import writing_life
from tests.settings.conftest import Files

OLD = "[checkpoint]\ninterval_s = 60\n"
NEW = "[checkpoint]\ninterval_s = 61\n"


def test_nothing_is_said_while_nobody_touches_the_files(files: Files) -> None:
    files.project.write_text(OLD)
    current = files.current()
    assert current.look() is None
    os.utime(files.project)
    news = current.look()
    assert news is not None
    assert news.changed == []
    assert current.look() is None


def test_what_can_change_at_once_does_and_the_rest_waits_for_the_next_start(files: Files) -> None:
    files.project.write_text(OLD)
    current = files.current()
    files.project.write_text("[checkpoint]\ninterval_s = 7\n[engine]\nlease_s = 40\n[discovery]\nkeywords = ['bug:']\n")
    news = current.look()
    assert news is not None
    assert [str(each) for each in news.changed] == [
        "checkpoint.interval_s: 60 → 7",
        "discovery.keywords: discovery: found: result: error: → bug:",
        "engine.lease_s: 30 → 40, from the next start on",
    ]
    assert current.values.checkpoint.interval_s == 7
    assert current.values.discovery.keywords == ("bug:",)
    assert current.values.engine.lease_s == 30
    assert current.loaded.values.engine.lease_s == 40
    files.project.unlink()
    again = current.look()
    assert again is not None
    assert "checkpoint.interval_s: 7 → 120" in map(str, again.changed)


def test_a_file_that_comes_later_or_nearer_is_noticed(files: Files) -> None:
    current = files.current()
    files.user.write_text(OLD)
    assert current.look() is not None
    assert current.values.checkpoint.interval_s == 60
    nearer = Path.cwd() / "maos.toml"
    files.project.write_text(NEW)
    assert current.look() is not None
    assert current.values.checkpoint.interval_s == 61
    nearer.write_text("[checkpoint]\ninterval_s = 62\n")
    assert current.look() is not None
    assert current.values.checkpoint.interval_s == 62


def test_a_wrong_file_is_told_once_and_the_old_values_stay(files: Files) -> None:
    files.project.write_text(OLD)
    current = files.current()
    for text, kind in (("[checkpoint]\ninterval_s = 0", BadSettings), ("[", BadSettings), ("version=9", NewerSettings)):
        files.project.write_text(text)
        news = current.look()
        assert news is not None
        assert isinstance(news.problem, kind)
        assert news.changed == ()
        assert current.values.checkpoint.interval_s == 60
        assert current.look() is None
    files.project.write_text(NEW)
    news = current.look()
    assert news is not None
    assert [str(each) for each in news.changed] == ["checkpoint.interval_s: 60 → 61"]


def test_addresses_are_not_shown_when_they_change(files: Files) -> None:
    current = files.current()
    files.user.write_text("[notify]\nurls = ['json://hooks/t0psecret']\n")
    news = current.look()
    assert news is not None
    assert [str(each) for each in news.changed] == ["notify.urls has changed"]


async def test_a_program_that_opens_a_journal_reads_no_file(files: Files) -> None:
    files.project.write_text("[oops]")
    async with maos.open(":memory:") as m:
        assert m.settings.values.checkpoint.interval_s == 120


async def test_a_file_is_written_whole_or_not_at_all(files: Files, tmp_path: Path) -> None:
    """Killed anywhere, the old or the new text is there; what was acknowledged is the new one."""

    def argv_for(_number: int) -> list[str | Path]:
        files.project.write_text(OLD)
        return [sys.executable, writing_life.__file__, files.project, NEW]

    async def check(life: Life) -> None:
        text = files.project.read_text()
        assert text == NEW if life.acks else text in (OLD, NEW)
        assert files.current().values.checkpoint.interval_s in (60, 61)

    lives = await crash_loop(argv_for, check, share=1.0)
    names = ["settings: begun", "settings: written", "settings: synced", "settings: in place", None]
    assert [life.died_at for life in lives] == names


def test_a_link_and_the_mode_of_a_file_stay(files: Files, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.toml"
    real.write_text(OLD)
    real.chmod(0o600)
    files.user.symlink_to(real)
    loader.write(files.user, NEW)
    assert files.user.is_symlink()
    assert real.read_text() == NEW
    assert real.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.glob(".dotfiles*")] == []
