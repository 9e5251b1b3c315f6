"""Snapshots: every kind and compression, retention, guards, and what a damaged one costs (I12, I17)."""

import pytest

import maos
from maos.app import Maos
from maos.errors import Corrupt, InvalidInput, NotFound, UnknownFormat
from maos.journal import compress
from maos.state import snapshots as snapshots_module
from maos.state.records import Retention, SnapshotInfo
from maos_testing.manual_clock import ManualClock
from tests.journal.places import Place

DATA = {"status": "idle", "log": [f"line {n}" for n in range(40)], "big": 2**70, "map": {"k": None}}


async def aged(m: Maos) -> None:
    """An agent with three versions."""
    await m.state.create("a", DATA)
    await m.state.update("a", {"status": "busy", "log": maos.Extend(["more"])})
    await m.state.update("a", {"map": {"k": 1, "j": 2}})


async def move_on(m: Maos) -> None:
    """Make the state something else altogether."""
    await m.state.update("a", {"status": "lost", "log": ["gone"], "map": maos.DELETE, "new": True})


async def damage(place: Place, info: SnapshotInfo, *, at: int = -1) -> None:
    """Flip a bit of a stored snapshot."""
    [(body,)] = await place.sql("SELECT body FROM documents WHERE kind = 'snapshot' AND version = $1", info.version)
    changed = bytearray(body)
    changed[at] ^= 1
    await place.sql(
        "UPDATE documents SET body = $1 WHERE kind = 'snapshot' AND version = $2", bytes(changed), info.version
    )


class TestTaking:
    @pytest.mark.parametrize("compression", compress.ALGORITHMS)
    @pytest.mark.parametrize("kind", ["full", "incremental", "checkpoint"])
    async def test_every_kind_in_every_compression_brings_the_state_back(
        self, sqlite: Place, kind: str, compression: str
    ) -> None:
        """R-405, I12, I13."""
        async with sqlite.open() as m:
            await aged(m)
            await m.state.snapshot("a", compression=compression)  # for the incremental one to build on
            await m.state.update("a", {"status": "again", "log": maos.Extend(["and more"])})
            wanted = await m.state.get("a")
            info = await m.state.snapshot("a", kind=kind, compression=compression, source="me")
            await move_on(m)
        async with sqlite.open() as m:
            restored = await m.state.restore("a", info.id, source="me too")
            assert (restored.version, restored.previous, restored.snapshot) == (8, 7, info.id)
            assert (restored.integrity_verified, restored.downtime_us, restored.warnings) == (True, 0, ())
            assert restored.duration_us >= 0
            state = await m.state.get("a")
            assert state.checksum == wanted.checksum == info.checksum
            assert state.data == wanted.data
            event = await m.state.event("agent/a@8")
            assert (event.type, event.critical, event.source) == ("restored", True, "me too")
            assert event.metadata == {"snapshot": info.id, "to": 5}
            assert (await m.state.at("a", version=7)).data["status"] == "lost", "I14: restoring only appends"
            assert (await m.verify()).ok

    async def test_a_snapshot_says_all_about_itself(self, place: Place) -> None:
        """R-405: kind, trigger, sizes, ratio, time, retention."""
        clock = ManualClock()
        async with place.open(clock=clock) as m:
            await aged(m)
            info = await m.state.snapshot(
                "a", name="before the storm", trigger="scheduled", retention=Retention(critical=True), source="cron"
            )
            assert info.id.startswith("v3-")
            assert (info.agent, info.version, info.kind, info.trigger) == ("a", 3, "full", "scheduled")
            assert (info.name, info.source, info.compression, info.base) == ("before the storm", "cron", "zstd", None)
            assert info.retention == Retention(critical=True)
            assert info.time_us == clock.now_us()
            assert 0 < info.bytes_stored < info.bytes_plain
            assert info.ratio == info.bytes_plain / info.bytes_stored > 1
            assert info.duration_us >= 0
            assert await m.state.snapshots("a") == [info]
            event = await m.state.event("agent/a@4")
            assert (event.type, event.changes, event.source) == ("snapshot_created", (), "cron")
            assert event.metadata == {
                "snapshot": info.id,
                "kind": "full",
                "version": 3,
                "trigger": "scheduled",
                "name": "before the storm",
            }
            assert (await m.state.get("a")).checksum == info.checksum, "a snapshot changes nothing"

    async def test_kinds_cost_what_they_hold(self, m: Maos) -> None:
        await aged(m)
        full = await m.state.snapshot("a")
        await m.state.update("a", {"status": "x"})
        increment = await m.state.snapshot("a", kind="incremental")
        checkpoint = await m.state.snapshot("a", kind="checkpoint")
        assert (increment.kind, increment.base) == ("incremental", full.id)
        assert increment.bytes_plain < full.bytes_plain / 5
        assert (checkpoint.bytes_plain, checkpoint.bytes_stored, checkpoint.compression) == (0, 0, "none")
        assert checkpoint.ratio == 1.0
        assert [each.kind for each in await m.state.snapshots("a")] == ["full", "incremental", "checkpoint"]

    async def test_the_first_incremental_one_is_full(self, m: Maos) -> None:
        await aged(m)
        await m.state.snapshot("a", kind="checkpoint")
        info = await m.state.snapshot("a", kind="incremental")
        assert (info.kind, info.base) == ("full", None)

    async def test_increments_build_on_each_other(self, m: Maos) -> None:
        await aged(m)
        infos = [await m.state.snapshot("a")]
        wanted = [await m.state.get("a")]
        for number in range(4):
            await m.state.update("a", {"n": number, "log": maos.Extend([number])})
            infos.append(await m.state.snapshot("a", kind="incremental"))
            wanted.append(await m.state.get("a"))
        assert [info.base for info in infos] == [None, *(info.id for info in infos[:-1])]
        for info, state in reversed(list(zip(infos, wanted, strict=True))):
            assert (await m.state.read_snapshot("a", info.id)).data == state.data
            await m.state.restore("a", info.id)
            assert (await m.state.get("a")).data == state.data

    @pytest.mark.parametrize(
        "wrong",
        [{"kind": "partial"}, {"trigger": "whim"}, {"compression": "brotli"}],
        ids=lambda wrong: next(iter(wrong)),
    )
    async def test_what_there_is_not_is_refused(self, m: Maos, wrong: dict[str, str]) -> None:
        await aged(m)
        with pytest.raises(InvalidInput, match=next(iter(wrong.values()))):
            await m.state.snapshot("a", **wrong)
        assert await m.journal.head() == 3

    async def test_a_snapshot_is_found_by_id_or_name_and_only_of_its_agent(self, m: Maos) -> None:
        await aged(m)
        await m.state.create("ab", {"n": 1})
        info = await m.state.snapshot("a", name="golden")
        await move_on(m)
        assert (await m.state.restore("a", "golden")).snapshot == info.id
        assert await m.state.snapshots("ab") == []
        for agent, snapshot in (("ab", info.id), ("a", "v9-00000000"), ("a", ""), ("a", info.id[1:])):
            with pytest.raises(NotFound, match="has no snapshot"):
                await m.state.restore(agent, snapshot)

    async def test_many_snapshots_are_listed_oldest_first(self, sqlite: Place) -> None:
        """Beyond one page of documents."""
        async with sqlite.open() as m:
            await m.state.create("a", {"n": 0})
            for number in range(260):
                await m.state.snapshot("a", kind="checkpoint", name=f"s{number}")
            assert [info.name for info in await m.state.snapshots("a")] == [f"s{number}" for number in range(260)]


class TestRetention:
    async def test_what_has_expired_goes_and_the_rest_stays(self, place: Place) -> None:
        """R-405: permanent and critical ones never go by themselves."""
        clock = ManualClock()
        async with place.open(clock=clock) as m:
            await aged(m)
            soon = clock.now_us() + 10_000_000
            short = await m.state.snapshot("a", retention=Retention(expires_us=soon))
            kept = [
                await m.state.snapshot("a"),
                await m.state.snapshot("a", retention=Retention(expires_us=soon + 1)),
                await m.state.snapshot("a", retention=Retention(expires_us=soon, permanent=True)),
                await m.state.snapshot("a", retention=Retention(expires_us=soon, critical=True)),
            ]
            assert await m.state.expire_snapshots("a") == []
            clock.advance(10)
            assert await m.state.expire_snapshots("a") == [short.id]
            assert await m.state.snapshots("a") == kept
            assert await m.state.expire_snapshots("a") == []

    async def test_what_others_are_built_on_stays_until_they_go(self, place: Place) -> None:
        clock = ManualClock()
        async with place.open(clock=clock) as m:
            await aged(m)
            ends = Retention(expires_us=clock.now_us())
            base = await m.state.snapshot("a", retention=ends)
            middle = await m.state.snapshot("a", kind="incremental", retention=ends)
            top = await m.state.snapshot("a", kind="incremental")
            assert await m.state.expire_snapshots("a") == []
            with pytest.raises(InvalidInput, match=f"{middle.id} is the base of {top.id}"):
                await m.state.delete_snapshot("a", middle.id)
            with pytest.raises(InvalidInput, match="is the base of"):
                await m.state.delete_snapshot("a", base.id, force=True)
            await m.state.delete_snapshot("a", top.id)
            assert await m.state.expire_snapshots("a") == [middle.id, base.id], "the upper one first"
            assert await m.state.snapshots("a") == []

    @pytest.mark.parametrize("retention", [Retention(permanent=True), Retention(critical=True)])
    async def test_what_was_to_stay_goes_only_by_force(self, m: Maos, retention: Retention) -> None:
        await aged(m)
        info = await m.state.snapshot("a", retention=retention)
        with pytest.raises(InvalidInput, match=r"is (permanent|critical)"):
            await m.state.delete_snapshot("a", info.id)
        assert await m.state.snapshots("a") == [info]
        await m.state.delete_snapshot("a", info.id, force=True)
        assert await m.state.snapshots("a") == []
        with pytest.raises(NotFound):
            await m.state.delete_snapshot("a", info.id)


class TestDamage:
    @pytest.mark.parametrize("at", [0, 40, 200, -1])
    async def test_a_damaged_snapshot_costs_a_replay_and_says_so(self, durable: Place, at: int) -> None:
        """I17: the events still know; whatever byte it is."""
        async with durable.open() as m:
            await aged(m)
            wanted = await m.state.get("a")
            info = await m.state.snapshot("a")
            await move_on(m)
            await damage(durable, info, at=at)
            restored = await m.state.restore("a", info.id)
            assert "the snapshot is damaged" in restored.warnings[0]
            assert "taken from the events" in restored.warnings[0]
            assert (await m.state.get("a")).data == wanted.data
            with pytest.raises(Corrupt):
                await m.state.read_snapshot("a", info.id)
            report = await m.verify()
            assert [(each.stream, each.version) for each in report.damage] == [("agent/a", 3)]
            assert report.damage[0].what.startswith("snapshot: ")
            assert report.damage[0].recoverable == "its versions by replay"
            assert await m.state.snapshots("a") == []
            assert any("cannot be used" in note for note in m.journal.notes)

    async def test_a_damaged_snapshot_of_events_that_are_gone_is_an_error(self, durable: Place) -> None:
        """I11: nothing is made up; the present state stays as it is."""
        async with durable.open() as m:
            await aged(m)
            info = await m.state.snapshot("a")
            await move_on(m)
            before = await m.state.get("a")
            await m.state.compact("a", strategy="delete")
            await damage(durable, info)
            with pytest.raises(Corrupt, match="does not match its checksum"):
                await m.state.restore("a", info.id)
            assert (await m.state.get("a")).data == before.data

    async def test_a_damaged_base_is_replaced_by_events(self, durable: Place) -> None:
        """I17: also below an incremental one, and the next one does not build on it."""
        async with durable.open() as m:
            await aged(m)
            base = await m.state.snapshot("a")
            await m.state.update("a", {"n": 1})
            wanted = await m.state.get("a")
            top = await m.state.snapshot("a", kind="incremental")
            await damage(durable, base)
            fresh = await m.state.snapshot("a", kind="incremental")
            assert (fresh.kind, fresh.base) == ("full", None)
            assert any("cannot be built on" in note for note in m.journal.notes)
            await move_on(m)
            assert "taken from the events" in (await m.state.restore("a", top.id)).warnings[0]
            assert (await m.state.get("a")).data == wanted.data

    async def test_a_snapshot_that_is_gone_is_not_found(self, durable: Place) -> None:
        async with durable.open() as m:
            await aged(m)
            info = await m.state.snapshot("a")
            await durable.sql("DELETE FROM documents WHERE kind = 'snapshot'")
            with pytest.raises(NotFound):
                await m.state.restore("a", info.id)
            assert (await m.verify()).ok, "documents are disposable"

    async def test_a_damaged_snapshot_goes_only_by_force(self, durable: Place) -> None:
        """Nobody can tell any more how long it was to be kept."""
        async with durable.open() as m:
            await aged(m)
            info = await m.state.snapshot("a", retention=Retention(permanent=True))
            await damage(durable, info)
            with pytest.raises(Corrupt):
                await m.state.delete_snapshot("a", info.id)
            await m.state.delete_snapshot("a", info.id, force=True)
            assert (await m.verify()).ok

    async def test_a_snapshot_whose_state_is_another_is_never_restored(
        self, sqlite: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """I13: well sealed, well compressed, and still not the state that was: the checksum decides."""
        async with sqlite.open() as m:
            await aged(m)
            wanted = await m.state.get("a")
            info = await m.state.snapshot("a")
            [document] = await m.journal.store.scan("snapshot")
            lie = compress.compress(b'{"status":"forged"}')
            sealed = snapshots_module._seal(info._replace(bytes_plain=19, bytes_stored=len(lie)), lie)
            await m.journal.store.append(documents=[document._replace(body=sealed)])
            await move_on(m)
            restored = await m.state.restore("a", info.id)
            assert "has checksum" in restored.warnings[0]
            assert (await m.state.get("a")).data == wanted.data
            assert not (await m.verify()).ok

    async def test_a_snapshot_of_a_newer_format_is_refused_by_name(
        self, sqlite: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """R-1004."""
        async with sqlite.open() as m:
            await aged(m)
            with monkeypatch.context() as newer:
                newer.setattr(snapshots_module, "FORMAT", 2)
                info = await m.state.snapshot("a")
            with pytest.raises(UnknownFormat, match="has format 2, this maos knows 1"):
                await m.state.restore("a", info.id)
            assert [each.what for each in (await m.verify()).damage] == [
                f"snapshot: snapshot 'agent/a\\t000000000003\\t{info.id}' has format 2, this maos knows 1"
            ]

    async def test_content_that_is_no_json_is_corrupt(self, sqlite: Place) -> None:
        async with sqlite.open() as m:
            await aged(m)
            info = await m.state.snapshot("a", compression="none")
            [document] = await m.journal.store.scan("snapshot")
            sealed = snapshots_module._seal(info._replace(bytes_plain=7, bytes_stored=7), b"garbage")
            await m.journal.store.append(documents=[document._replace(body=sealed)])
            with pytest.raises(Corrupt, match=f"snapshot {info.id}"):
                await m.state.read_snapshot("a", info.id)
