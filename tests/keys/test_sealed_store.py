"""An encrypted database does everything that another one does, and shows nothing of it to who has no key."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

import maos
from maos import views
from maos.keys.vault import Vault
from maos.store.contract import Document
from maos.store.sql_store import SqlStore
from tests.keys.vaults import TYPES, files_with, new_key, note, open_with

CANARY = "canary-of-the-tests"


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an encrypted database can be made."""
    return str(tmp_path / "maos.db") if request.param == "sqlite" else request.getfixturevalue("postgres_url")


def vault_of(m: maos.Maos) -> Vault:
    assert m.journal.vault is not None
    return m.journal.vault


async def test_events_come_back_in_another_process(database: str, tmp_path: Path) -> None:
    key = new_key(tmp_path)
    async with open_with(database, key) as m:
        for number in range(3):
            await m.journal.append("run/r-1", note(f"{CANARY} {number}"), expected=number)
        await m.journal.append_all([maos.Append("run/r-2", [note("a")]), maos.Append("notes", [note("b" * 2000)])])
    async with open_with(database, key) as m:
        assert [record.data["text"] async for record in m.journal.read("run/r-1")] == [
            f"{CANARY} {n}" for n in range(3)
        ]
        assert [record.data["text"] async for record in m.journal.read("notes")] == ["b" * 2000]
        scopes = {each.scope: each.keys for each in (await m.keys.list()).scopes}
        assert scopes == {"": 1, "r-1": 1, "r-2": 1}, "one key for each run, made once"
        stored = await m.journal.store.read_log()
        assert not any(CANARY.encode() in event.body for event in stored)
        followed = m.journal.follow()
        assert [(await anext(followed)).position for _ in range(5)] == [1, 2, 3, 4, 5]
        await followed.aclose()  # type: ignore[attr-defined]
        assert (await m.verify()).ok


async def test_two_processes_share_the_keys_of_a_run(database: str, tmp_path: Path) -> None:
    key = new_key(tmp_path)
    async with open_with(database, key) as one, open_with(database, key) as two:
        await asyncio.gather(*(m.journal.append("run/r-1", note(f"{n}")) for n in range(20) for m in (one, two)))
        await two.journal.append("run/r-2", note("x"))
        await one.journal.append("run/r-2", note("y"))
        for m in (one, two):
            found = [record.data["text"] async for record in m.journal.read("run/r-1")]
            assert sorted(found) == sorted(f"{n}" for n in range(20) for _ in range(2))
            assert [record.data["text"] async for record in m.journal.read("run/r-2")] == ["x", "y"]
        assert (await one.verify()).ok


async def test_states_snapshots_and_compaction_work_on_sealed_events(database: str, tmp_path: Path) -> None:
    key = new_key(tmp_path)
    async with open_with(database, key) as m:
        await m.state.create("reviewer", {"text": CANARY, "items": []})
        for number in range(40):
            await m.state.update("reviewer", {"items": maos.Extend([f"{CANARY} {number}"])})
        await m.state.snapshot("reviewer", name="half")
        await m.state.update("reviewer", {"more": 1})
        await m.state.compact("reviewer", keep_last=1)
        report = await m.verify()
        assert report.ok, report.damage
    async with open_with(database, key) as m:
        assert len((await m.state.get("reviewer")).data["items"]) == 40
        assert (await m.verify()).ok
        documents = await m.journal.store.scan("fold") + await m.journal.store.scan("snapshot")
        assert documents
        assert isinstance(m.journal.store, SqlStore)
        for kept in documents:
            [row] = await m.journal.store.database.fetch("load_document", kept.kind, kept.key)
            assert bytes(row[3]) != kept.body
            assert CANARY.encode() not in bytes(row[3])


async def test_a_document_in_another_place_is_not_opened(tmp_path: Path) -> None:
    """A17: it is damaged for its reader, who computes it again."""
    async with open_with(tmp_path / "maos.db", new_key(tmp_path)) as m:
        store = m.journal.store
        await store.append(documents=[Document("run", "r-1", 1, b"one"), Document("run", "r-1x", 1, b"two")])
        assert isinstance(store, SqlStore)
        [row] = await store.database.fetch("load_document", "run", "r-1")
        for moved in (
            Document("run", "r-2", 1, row[3]),
            Document("run", "r-1", 2, row[3]),
            Document("x", "r-1", 1, row[3]),
        ):
            assert await vault_of(m).open_document(moved) == moved
        assert (await store.load("run", "r-1")) == Document("run", "r-1", 1, b"one")


async def test_a_repeated_key_adds_nothing_and_its_fingerprint_tells_nothing(database: str, tmp_path: Path) -> None:
    async with open_with(database, new_key(tmp_path)) as m:
        await m.journal.append("run/r-1", note("yes"), key="answer")
    async with open_with(database, tmp_path / "key") as m:
        assert (await m.journal.append("run/r-1", note("yes"), key="answer")).repeated
        with pytest.raises(maos.KeyReused):
            await m.journal.append("run/r-1", note("no"), key="answer")
        [used] = await m.journal.store.read_keys(first=1, last=1)
        plain = m.journal._key("answer", [maos.Append("run/r-1", [note("yes")])])
        assert used.fingerprint != plain.fingerprint, "with a plain one, anyone could try what the text was"


async def test_without_the_key_nothing_is_read_or_written_and_everything_verified(
    database: str, tmp_path: Path
) -> None:
    async with open_with(database, new_key(tmp_path)) as m:
        await m.journal.append("run/r-1", note(CANARY))
        await m.state.create("reviewer", {"text": CANARY})
    async with open_with(database, "") as m:
        report = await m.verify()
        assert report.ok
        assert any("no key was given" in each for each in report.notes)
        with pytest.raises(maos.Locked, match=r"encrypted .*encryption\.source"):
            await m.state.get("reviewer")
        with pytest.raises(maos.Locked):
            await m.journal.append("run/r-1", note("x"))
        with pytest.raises(maos.Locked):
            await m.journal.append("run/r-1", note("x"), key="x")
        assert await m.journal.head() == 2


async def test_another_key_is_refused_before_anything_is_written(database: str, tmp_path: Path) -> None:
    async with open_with(database, new_key(tmp_path)) as m:
        await m.journal.append("run/r-1", note(CANARY))
    with pytest.raises(maos.Locked, match="other is not the key"):
        await open_with(database, new_key(tmp_path, "other"))
    with pytest.raises(maos.Locked, match="cannot be read"):
        await open_with(database, tmp_path / "missing")
    with pytest.raises(maos.Locked, match="of the kind file"):
        await open_with(database, "age:identity")
    (tmp_path / "key").chmod(0o644)
    with pytest.raises(maos.Locked, match="chmod 600"):
        await open_with(database, tmp_path / "key")
    (tmp_path / "key").chmod(0o600)
    async with open_with(database, tmp_path / "key") as m:
        assert await m.journal.head() == 1


async def test_a_canary_is_in_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I38, R-801: database, log, mark, copies, backups."""
    monkeypatch.setenv("MAOS_HOME", str(tmp_path / "home"))
    key = new_key(tmp_path)
    async with open_with(tmp_path / "maos.db", key) as m:
        for number in range(100):  # enough for a dictionary, were one trained
            await m.journal.append("run/r-1", note(f"{CANARY} {number} " * 40))
        await m.state.create("reviewer", {CANARY: CANARY * 100})
        await m.state.snapshot("reviewer", name=CANARY)
        await m.bus.send("reviewer", "fixer", CANARY)
        await m.backups.ship(str(tmp_path / "backups"))
        await m.copy_to(tmp_path / "copy.db")
        assert files_with([CANARY], tmp_path) == {}, "while it is open, with its log"
        assert not [name async for name in m.journal.streams("journal/")], "a dictionary would have parts of events"
    assert files_with([CANARY], tmp_path) == {}
    async with open_with(tmp_path / "copy.db", key) as m:
        assert (await m.state.get("reviewer")).data == {CANARY: CANARY * 100}


async def test_plain_sqlite3_and_the_views_see_names_and_no_content(tmp_path: Path) -> None:
    async with open_with(tmp_path / "maos.db", new_key(tmp_path)) as m:
        await m.bus.send("reviewer", "fixer", CANARY)
        plan = {"tasks": [{"name": "hello", "command": ["echo", CANARY]}]}
        await m.runs.start(plan, folder=tmp_path, options={"in_place": True})
    connection = sqlite3.connect(tmp_path / "maos.db")
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'view'")]
    assert len(names) >= 7
    for name in names:
        assert CANARY not in repr(connection.execute(f"SELECT * FROM {name}").fetchall())
    assert "task_started" not in views.statements("sqlite")[:10]
    assert connection.execute("SELECT count(*) FROM events WHERE type = 'run_created'").fetchone() == (1,)
    connection.close()


async def test_a_store_without_the_setting_stays_as_it_is(tmp_path: Path) -> None:
    """Encryption is off by default, and turning it on for a database that exists is an act of its own."""
    async with maos.open(tmp_path / "maos.db", types=TYPES) as m:
        await m.journal.append("run/r-1", note("plain"))
    async with open_with(tmp_path / "maos.db", new_key(tmp_path)) as m:
        assert m.journal.vault is None
        await m.journal.append("run/r-1", note("plain too"))
    async with maos.open(tmp_path / "maos.db", types=TYPES) as m:
        assert [record.data["text"] async for record in m.journal.read("run/r-1")] == ["plain", "plain too"]


async def test_a_key_that_was_not_written_seals_nothing_that_is(tmp_path: Path) -> None:
    """A data key is written in the transaction of the first body that it seals; of a refused one nothing remains."""
    key = new_key(tmp_path)
    async with open_with(tmp_path / "maos.db", key) as m:
        with pytest.raises(maos.Conflict):
            await m.journal.append("run/r-1", note("x"), expected=7)
        results = await asyncio.gather(
            m.journal.append("run/r-2", note("no"), expected=7),
            m.journal.append("run/r-2", note("yes")),
            m.journal.append("run/r-2", note("no"), expected=7),
            return_exceptions=True,
        )
        assert [type(each) for each in results].count(maos.Conflict) == 2
    async with open_with(tmp_path / "maos.db", key) as m:
        assert [record.data["text"] async for record in m.journal.read("run/r-2")] == ["yes"]
        assert {each.scope for each in (await m.keys.list()).scopes} == {"r-2"}
