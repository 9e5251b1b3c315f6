"""Saved folds: the state that a full replay gives, for every version and every edit, or no fold at all (I12, I17)."""

import copy
from random import Random
from typing import Any

import msgspec
import pytest

import maos
from maos.app import Maos
from maos.errors import Corrupt
from maos.model import checksum
from maos.model.changes import MISSING, lookup, parse_pointer
from maos.state import folds
from maos.state.records import Peek, State
from maos.store.contract import Document
from tests.journal.places import Place
from tests.model.data import same
from tests.state.edits import LISTS, edit, node_of, pointer_to, start

pytestmark = pytest.mark.usefixtures("small_folds")


def is_true(state: State, wanted: dict[str, Any]) -> bool:
    """Whether a state is what it should be, and has the checksum of what it is."""
    return same(state.raw(), wanted) and checksum.checksum(state.raw()) == state.total


def agrees(peek: Peek, wanted: dict[str, Any], path: str, last: int) -> bool:
    """Whether a peek is the slice of the whole state that it claims to be."""
    items = lookup(wanted, parse_pointer(path, wanted))
    begin = max(0, len(items) - last)
    head = copy.deepcopy(wanted)
    for elided, length in peek.elided.items():
        *parents, key = parse_pointer(elided, wanted)
        node = lookup(head, tuple(parents))
        if len(node.pop(key)) != length:
            return False
    _skeleton, long = folds.split(wanted)
    return (
        same(peek.entries, items[begin:])
        and (peek.start, peek.length) == (begin, len(items))
        and peek.head == head
        and set(peek.elided) == set(long)
        and peek.checksum == checksum.text(checksum.checksum(wanted))
    )


@pytest.mark.parametrize("seed", range(5))
async def test_whatever_happens_to_lists_a_fold_and_its_tail_give_the_state(place: Place, seed: int) -> None:
    """I12: for every version, in memory and loaded, whole and in part; by two processes taking turns."""
    chance = Random(seed)
    wanted = start()
    versions = [copy.deepcopy(wanted)]
    async with place.open() as one, place.open() as two:
        other = one if place.kind == "memory" else two
        await one.state.create("a", wanted)
        for number in range(40 if place.kind == "postgres" else 90):
            m = chance.choice((one, one, one, other))
            wish = edit(chance, wanted, number)
            update = await m.state.update("a", wish)
            if update.version > len(versions):
                versions.append(copy.deepcopy(wanted))
            reader = chance.choice((one, other))
            if chance.random() < 0.4:
                reader.state.cache.clear()
            if chance.random() < 0.5:
                name = chance.choice(LISTS)
                node, key = node_of(copy.deepcopy(wanted), name)
                if type(node.get(key)) is list:
                    path = pointer_to(name)
                    last = chance.choice((0, 1, 3, 50))
                    peek = await reader.state.peek("a", path, last=last)
                    assert agrees(peek, wanted, path, last), f"peek at {path} in version {len(versions)}"
            if chance.random() < 0.5:
                assert is_true(await reader.state.get("a"), wanted), f"version {len(versions)}"
        for version, data in enumerate(versions, 1):
            one.state.cache.clear()
            assert is_true(await one.state.at("a", version=version), data), f"version {version}"
        assert (await one.verify()).ok


async def grown(m: Maos, count: int = 23) -> dict[str, Any]:
    """An agent with a list of some items, one for each update."""
    await m.state.create("a", {"log": [], "n": 0, "map": {"deep": list(range(10))}})
    for number in range(1, count):
        await m.state.update("a", {"log": maos.Extend([number]), "n": number})
    return {"log": list(range(1, count)), "n": count - 1, "map": {"deep": list(range(10))}}


async def documents(m: Maos, kind: str) -> list[Document]:
    return await m.journal.store.scan(kind)


class TestSaving:
    async def test_folds_are_saved_now_and_then_with_an_update(self, m: Maos) -> None:
        await grown(m)
        assert await m.journal.head() == 23, "not as events"
        [fold] = await documents(m, "fold")
        assert (fold.key, fold.version) == ("agent/a", 20)

    @pytest.mark.parametrize(
        ("rewritten_max", "saved"),
        [(1000, [*range(8, 20, 2)]), (1, [8, 16])],
        ids=["cheap", "costly"],
    )
    async def test_a_fold_is_saved_more_often_while_that_is_cheap(
        self, m: Maos, rewritten_max: int, saved: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(folds, "FOLD_EVERY", 2)
        monkeypatch.setattr(folds, "FOLD_COSTLY_EVERY", 8)
        monkeypatch.setattr(folds, "REWRITTEN_BYTES_MAX", rewritten_max)
        await m.state.create("a", {"log": []})
        versions = set()
        for number in range(18):
            await m.state.update("a", {"log": maos.Extend([number])})
            versions.update(each.version for each in await documents(m, "fold"))
        assert sorted(versions) == saved

    async def test_lists_that_have_to_be_written_anew_are_not_cheap(
        self, m: Maos, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(folds, "FOLD_EVERY", 2)
        monkeypatch.setattr(folds, "FOLD_COSTLY_EVERY", 8)
        monkeypatch.setattr(folds, "REWRITTEN_BYTES_MAX", 1000)
        await m.state.create("a", {"log": [f"{number:0200}" for number in range(100)]})
        versions = set()
        for number in range(18):
            await m.state.update("a", {"/log/3": number})
            versions.update(each.version for each in await documents(m, "fold"))
        assert sorted(versions) == [8, 10, 18], "the first wrote everything for the first time, the second again"

    async def test_a_long_list_is_written_once(self, m: Maos) -> None:
        """Saving a state that grows costs what was added, not what is there."""
        await grown(m)
        segments = await documents(m, "segment")
        log = [each.version for each in segments if each.version > 5]
        assert sorted(log) == [10, 10, 15, 15, 20, 20], "each part when it came about"
        before = {each.key: each for each in segments}
        for number in range(23, 29):
            await m.state.update("a", {"log": maos.Extend([number])})
        after = {each.key: each for each in await documents(m, "segment")}
        assert all(after[key] == document for key, document in before.items())
        assert len(after) > len(before)

    async def test_a_changed_list_is_written_anew_and_what_is_left_over_goes(self, m: Maos) -> None:
        await grown(m)
        await m.state.update("a", {"log": list(range(100, 105))})
        for number in range(6):
            await m.state.update("a", {"n": -number})
        m.state.cache.clear()
        assert (await m.state.get("a")).data["log"] == list(range(100, 105))
        versions = sorted(each.version for each in await documents(m, "segment"))
        assert len([version for version in versions if version > 20]) == 2, "two of the log, none of the old ones"
        assert versions[0] == 5, "the other list was not touched"

    async def test_a_state_with_numbers_beyond_64_bits_has_no_fold_and_needs_none(self, m: Maos) -> None:
        await m.state.create("a", {"log": [], "big": 2**80})
        for number in range(12):
            await m.state.update("a", {"log": maos.Extend([number])})
        assert await documents(m, "fold") == []
        m.state.cache.clear()
        assert (await m.state.get("a")).data == {"log": list(range(12)), "big": 2**80}
        await m.state.compact("a")
        m.state.cache.clear()
        assert (await m.state.get("a")).data["big"] == 2**80
        assert (await m.verify()).ok

    async def test_keys_of_any_length_and_character_are_no_trouble(self, m: Maos) -> None:
        """A document's name does not contain what a user wrote."""
        data: dict[str, Any] = {key: [] for key in ("nul\0", "tab\t", "x" * 20_000, "'; --", "é🦑", "/~")}
        await m.state.create("a", data)
        for number in range(12):
            await m.state.update("a", {key.replace("/~", "/~1~0"): maos.Extend([number]) for key in data})
        m.state.cache.clear()
        assert (await m.state.get("a")).data == {key: list(range(12)) for key in data}
        assert m.journal.notes == []
        assert len(await documents(m, "segment")) >= 6

    @pytest.mark.parametrize("strategy", ["snapshot", "merge", "delete"])
    async def test_a_compaction_leaves_a_fold_that_fits(self, m: Maos, strategy: str) -> None:
        """The older one may not fit the events any more, and a load would begin at the start."""
        wanted = await grown(m)
        await m.state.compact("a", strategy=strategy)
        [fold] = await documents(m, "fold")
        assert fold.version == 23
        assert {each.version for each in await documents(m, "segment")} == {23}, "and none of the older segments"
        m.state.cache.clear()
        assert is_true(await m.state.get("a"), wanted)
        assert m.journal.notes == []

    async def test_a_fold_that_was_never_saved_is_made_later(self, sqlite: Place) -> None:
        """The append it was to go with failed; what the process believes must not outlive that."""
        async with sqlite.open() as m, sqlite.open() as other:
            await grown(m, 5)
            await m.state.get("a")
            await other.state.update("a", {"n": 100})  # so the next one of m, with its fold, is refused at first
            await m.state.update("a", {"n": 101})
            for number in range(6):
                await m.state.update("a", {"log": maos.Extend([number])})
            m.state.cache.clear()
            state = await m.state.get("a")
            assert state.data["log"] == [1, 2, 3, 4, 0, 1, 2, 3, 4, 5]
            assert m.journal.notes == []
            assert (await m.verify()).ok


DAMAGE = {
    "fold gone": "DELETE FROM documents WHERE kind = 'fold'",
    "fold cut off": "UPDATE documents SET body = substr(body, 1, 9) WHERE kind = 'fold'",
    "fold empty": "UPDATE documents SET body = substr(body, 1, 0) WHERE kind = 'fold'",
    "a segment for a fold": """UPDATE documents SET body = (SELECT max(body) FROM documents WHERE kind = 'segment')
                               WHERE kind = 'fold'""",
    "segments gone": "DELETE FROM documents WHERE kind = 'segment'",
    "one segment gone": "DELETE FROM documents WHERE kind = 'segment' AND version = 15",
    "segments of another version": "UPDATE documents SET version = version + 1 WHERE kind = 'segment' AND version = 15",
    "segments cut off": "UPDATE documents SET body = substr(body, 1, 6) WHERE kind = 'segment'",
    "everything gone": "DELETE FROM documents",
}


class TestDamage:
    @pytest.mark.parametrize("statement", DAMAGE.values(), ids=DAMAGE.keys())
    async def test_a_damaged_fold_costs_time_and_is_noted(self, durable: Place, statement: str) -> None:
        """I17."""
        async with durable.open() as m:
            wanted = await grown(m)
        await durable.sql(statement)
        for path, items in (("log", wanted["log"]), ("/map/deep", wanted["map"]["deep"])):
            async with durable.open() as m:
                assert (await m.state.peek("a", path, last=3)).entries == items[-3:]
        async with durable.open() as m:
            assert is_true(await m.state.get("a"), wanted)
            for version in (1, 4, 12, 20, 23):
                m.state.cache.clear()
                assert (await m.state.at("a", version=version)).data["n"] == version - 1
            report = await m.verify()
            assert report.ok, report.damage
            if "gone" not in statement and "DELETE" not in statement:
                assert any("the saved fold of agent/a could not be used" in note for note in report.notes)
            for number in range(7):  # and the next fold is whole again
                await m.state.update("a", {"log": maos.Extend([number])})
        async with durable.open() as m:
            assert (await m.state.get("a")).data["log"] == [*wanted["log"], *range(7)]
            assert m.journal.notes == []

    async def test_a_flipped_bit_anywhere_in_a_fold_is_noticed(self, sqlite: Place) -> None:
        async with sqlite.open() as m:
            wanted = await grown(m)
        rows = await sqlite.sql("SELECT kind, key, body FROM documents")
        chance = Random(1)
        for kind, key, body in rows:
            for index in {0, 3, 4, 8, len(body) - 1, chance.randrange(len(body))}:
                damaged = bytearray(body)
                damaged[index] ^= 1 << chance.randrange(8)
                where = "WHERE kind = $2 AND key = $3"
                await sqlite.sql(f"UPDATE documents SET body = $1 {where}", bytes(damaged), kind, key)
                async with sqlite.open() as m:
                    peek = await m.state.peek("a", "log", last=2)
                    assert (peek.entries, peek.head["n"]) == (wanted["log"][-2:], 22)
                    assert is_true(await m.state.get("a"), wanted)
                await sqlite.sql(f"UPDATE documents SET body = $1 {where}", body, kind, key)

    @pytest.mark.parametrize("what", ["fold cut off", "segments cut off"])
    async def test_a_peek_at_a_damaged_fold_is_noted(self, sqlite: Place, what: str) -> None:
        async with sqlite.open() as m:
            wanted = await grown(m)
        await sqlite.sql(DAMAGE[what])
        async with sqlite.open() as m:
            assert (await m.state.peek("a", "log", last=3)).entries == wanted["log"][-3:]
            assert any("the saved fold of agent/a could not be used" in note for note in m.journal.notes)

    async def test_a_fold_of_another_format_is_not_used(self, sqlite: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        """R-1004: it is only a fold; the events are read instead."""
        with monkeypatch.context() as newer:
            newer.setattr(folds, "FORMAT", 2)
            async with sqlite.open() as m:
                wanted = await grown(m)
        async with sqlite.open() as m:
            assert is_true(await m.state.get("a"), wanted)
            assert "another format" in m.journal.notes[0]

    async def test_a_fold_that_is_newer_than_its_events_is_not_used(self, durable: Place) -> None:
        """The events are the truth: when they are lost, what was folded from them is not passed off as theirs."""
        async with durable.open() as m:
            await grown(m)
        await durable.sql("DELETE FROM events WHERE version > 18")
        (durable.folder / "head").unlink(missing_ok=True)
        (durable.folder / "maos.db-head").unlink(missing_ok=True)
        async with durable.open() as m:
            state = await m.state.get("a")
            assert (state.version, state.data["n"]) == (18, 17)
            assert any("newer than its events" in note for note in m.journal.notes)
            await m.state.update("a", {"n": "goes on"})
            assert (await m.state.get("a")).version == 19

    async def test_a_fold_that_holds_more_than_plain_data_is_not_believed(self, sqlite: Place) -> None:
        """A6: an extension of the packed format stays what it is, and verifying says so."""
        async with sqlite.open() as m:
            await grown(m)
            [document] = await documents(m, "fold")
            content = folds._unpack(document)
            content["state"]["map"]["odd"] = msgspec.msgpack.Ext(5, b"data")
            await m.journal.store.append(documents=[document._replace(body=folds._pack(content))])
            assert "the saved fold differs" in (await m.verify()).damage[0].what
            m.state.cache.clear()
            with pytest.raises(Corrupt, match="/map/odd is a msgspec"):
                await m.state.compact("a", strategy="delete", keep_last=3)

    async def test_a_fold_that_differs_from_a_replay_is_found_by_verifying(self, sqlite: Place) -> None:
        """I12: sealed and well formed, but not what the events say."""
        async with sqlite.open() as m:
            await grown(m)
            [document] = await documents(m, "fold")
            content = folds._unpack(document)
            content["state"]["n"] = "forged"
            await m.journal.store.append(documents=[document._replace(body=folds._pack(content))])
            report = await m.verify()
            assert [(each.stream, each.version, each.what) for each in report.damage] == [
                ("agent/a", 20, "the saved fold differs from a replay")
            ]
            assert report.damage[0].recoverable == "all, by replay"


def test_a_list_is_taken_out_wherever_it_is() -> None:
    state = {"long": [1, 2, 3, 4], "short": [1], "map": {"in": {"long": [5] * 4, "x": 1}}, "list": [[1] * 9]}
    skeleton, lists = folds.split(state)
    assert skeleton == {"long": [], "short": [1], "map": {"in": {"long": [], "x": 1}}, "list": [[1] * 9]}
    assert lists == {"/long": [1, 2, 3, 4], "/map/in/long": [5] * 4}
    assert state["long"] == [1, 2, 3, 4], "the state itself stays as it is"
    assert lookup(skeleton, ("nothing",)) is MISSING
    untouched, none = folds.split({"map": {"x": 1}})
    assert (untouched, none) == ({"map": {"x": 1}}, {})
