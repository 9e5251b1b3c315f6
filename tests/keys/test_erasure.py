"""What is erased can no longer be read, wherever it is restored from; everything else stays as it was."""

import shutil
from pathlib import Path

import pytest

import maos
from maos.backup import service
from maos.store.sql_store import SqlStore
from tests.keys.vaults import files_with, new_key, note, open_with

CANARY = "canary-of-the-erased"
OTHER = "canary-of-the-others"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MAOS_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


async def finish_run(m: maos.Maos, folder: Path, text: str) -> str:
    plan = {"tasks": [{"name": "hello", "command": ["echo", text]}]}
    run = await m.runs.start(plan, folder=folder, options={"in_place": True})
    return (await m.runs.execute(run.id)).id


async def texts(m: maos.Maos) -> str:
    """Return everything that can be read of a database, as one text."""
    found = [f"{record.stream} {record.data}" async for record in m.journal.read("erasures")]
    position = 0
    while page := await m.journal.store.read_log(after=position):
        for event in page:
            record = await m.journal.decode_unless_erased(event)
            found.append(str(record.data) if record is not None else "")
        position = page[-1].position
    for kind in ("run", "attempt", "fold", "snapshot", "segment", "acks"):
        found += [str(document.body) for document in await m.journal.store.scan(kind)]
    return "\n".join(found)


async def test_an_erased_run_is_gone_and_the_others_are_as_they_were(tmp_path: Path) -> None:
    """I39, R-803."""
    key = new_key(tmp_path)
    async with open_with(tmp_path / "maos.db", key) as m:
        erased, other = await finish_run(m, tmp_path, CANARY), await finish_run(m, tmp_path, OTHER)
        hashes = [(event.position, event.hash) for event in await m.journal.store.read_log(limit=1000)]
        dry = await m.erasures.erase(erased, dry_run=True)
        assert dry.events > 3
        assert dry.documents > 0
        assert dry.folders
        assert CANARY in await texts(m)
        receipt = await m.erasures.erase(erased, why="asked")
        assert receipt.keys == 1
        assert any("git" in each for each in receipt.unreachable)
        assert CANARY not in await texts(m)
        assert OTHER in await texts(m)
        assert [run.id async for run in m.runs.all()] == [other]
        with pytest.raises(maos.Erased):
            await m.runs.get(erased)
        with pytest.raises(maos.Erased):
            await m.journal.append(f"run/{erased}", note("again"))
        after = {event.position: event.hash for event in await m.journal.store.read_log(limit=1000)}
        assert all(after[position] == hash_ for position, hash_ in hashes), "chain and positions are unchanged"
        assert not any(Path(folder).exists() for folder in dry.folders)
        again = await m.erasures.erase(erased)
        assert again.keys == 0
    async with open_with(tmp_path / "maos.db", key) as m:
        report = await m.verify()
        assert report.ok, report.damage
        assert any("erased events" in each for each in report.notes)
        assert not [each for each in await m.doctor() if each.level == "bad"]
        assert await m.statistics()
        followed = m.journal.follow()
        seen = [(await anext(followed)).stream for _ in range(3)]
        assert not any(erased in stream for stream in seen)
        await followed.aclose()  # type: ignore[attr-defined]


async def test_no_wrapped_key_of_an_erased_run_stays_in_the_files(tmp_path: Path) -> None:
    key = new_key(tmp_path)
    async with open_with(tmp_path / "maos.db", key) as m:
        assert m.journal.vault is not None
        for number in range(300):
            await m.journal.append(f"agent/a{number}", note("x"))
        [wrapped] = [each.wrapped for each in await m.journal.vault.keys() if each.scope == "a150"]
        assert wrapped is not None
        await m.state.create("a150x", {})
        await m.erasures.erase("a150")
        assert files_with([wrapped], tmp_path) == {}, "neither in a free part of a page nor in the log"


async def test_an_erased_run_does_not_come_back_with_an_older_backup(tmp_path: Path) -> None:
    """A22, I39: the backup as it is now, to a time before the erasure, and a copy of it from last week."""
    key, backup = new_key(tmp_path), tmp_path / "backups"
    async with open_with(tmp_path / "maos.db", key, MAOS_BACKUP_TO=str(backup)) as m:
        await m.state.create("erased", {"text": CANARY})
        await m.state.create("other", {"text": OTHER})
        position = (await m.backups.ship(str(backup))).position
        shutil.copytree(backup, tmp_path / "last-week")
        receipt = await m.erasures.erase("erased")
        assert receipt.backup == str(backup)
        await m.backups.ship(str(backup))
        assert (await m.backups.test(str(backup))).problem == ""
        assert (await service.verify(str(backup))).damage == ""
    for number, (place, until) in enumerate([(backup, None), (backup, position), (tmp_path / "last-week", None)]):
        target = tmp_path / f"restored-{number}.db"
        await maos.restore(str(place), target, position=until)
        async with open_with(target, key) as m:
            assert (await m.verify()).ok
            with pytest.raises(maos.Erased):
                await m.state.get("erased")
            assert CANARY not in await texts(m)
            assert (await m.state.get("other")).data == {"text": OTHER}


async def test_a_restored_database_without_its_keys_is_locked_and_not_damaged(tmp_path: Path) -> None:
    key = new_key(tmp_path)
    async with open_with(tmp_path / "maos.db", key) as m:
        await m.state.create("other", {"text": OTHER})
        await m.backups.ship(str(tmp_path / "backups"))
        [keys] = (tmp_path / "backups").glob("*/keys")
    keys.unlink()
    await maos.restore(str(tmp_path / "backups"), tmp_path / "restored.db")
    assert (await service.verify(str(tmp_path / "backups"))).damage == ""
    async with open_with(tmp_path / "restored.db", key) as m:
        with pytest.raises(maos.MaosError, match="no keys"):
            await m.state.get("other")


async def test_what_cannot_be_erased_is_refused(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "plain.db") as m:
        await m.state.create("a", {})
        with pytest.raises(maos.InvalidInput, match="not encrypted"):
            await m.erasures.erase("a")
    async with open_with(tmp_path / "maos.db", new_key(tmp_path)) as m:
        with pytest.raises(maos.NotFound):
            await m.erasures.erase("nobody")
        plan = {"tasks": [{"name": "hello", "command": ["true"]}]}
        run = await m.runs.start(plan, folder=tmp_path, options={"in_place": True})
        with pytest.raises(maos.InvalidInput, match="has not ended"):
            await m.erasures.erase(run.id)
        with pytest.raises(maos.InvalidInput, match=f"an agent of {run.id}"):
            await m.erasures.erase(f"{run.id}.hello")
        await m.runs.execute(run.id)
        assert (await m.erasures.erase(run.id, dry_run=True)).events
        assert (await m.runs.get(run.id)).id == run.id


async def test_another_process_notices_an_erasure(tmp_path: Path) -> None:
    key = new_key(tmp_path)
    async with open_with(tmp_path / "maos.db", key) as one, open_with(tmp_path / "maos.db", key) as two:
        await one.state.create("a", {"text": CANARY})
        assert (await two.state.get("a")).data == {"text": CANARY}
        await one.erasures.erase("a")
        assert [name async for name in two.journal.streams("agent/")] == []
        with pytest.raises(maos.Erased):
            await two.state.get("a")
        with pytest.raises(maos.Erased):
            await two.journal.append("agent/a", note("again"))


async def test_what_is_recorded_of_a_person_is_exported(tmp_path: Path) -> None:
    async with open_with(tmp_path / "maos.db", new_key(tmp_path)) as m:
        await m.state.create("a", {"text": "x"}, source="alice@there")
        await m.state.create("b", {"text": "y"}, source="bob@there")
        found = [each async for each in m.records_of("alice")]
        assert [each["stream"] for each in found] == ["agent/a"]
        assert [each async for each in m.records_of("alice@there")] == found
        assert [each async for each in m.records_of("ali")] == []
        assert isinstance(m.journal.store, SqlStore)
