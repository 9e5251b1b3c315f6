"""Creating, reading and updating: what changes, what is refused, and what happens when two are at it."""

import asyncio
import datetime
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.errors import Conflict, InvalidInput, LeaseLost, NotFound, UnknownFormat
from maos.model import agent, checksum
from maos.model.changes import MISSING, Change
from maos.state import history
from tests.journal.places import Place
from tests.model.data import nested

START: dict[str, Any] = {"status": "idle", "memory": {"k": 1}, "messages": [{"role": "user", "content": "hi"}]}


class TestCreating:
    async def test_an_agent_begins_with_what_it_is_given(self, m: Maos) -> None:
        """R-401: version, time, who, checksum."""
        state = await m.state.create("reviewer", START, source="cli")
        assert (state.agent, state.version, state.source, state.type) == ("reviewer", 1, "cli", "instance_created")
        assert state.data == START
        assert state.checksum == checksum.text(checksum.checksum(START))
        assert state.time_us > 0
        assert (await m.state.get("reviewer")).checksum == state.checksum
        assert repr(state).startswith("State(agent='reviewer', version=1, data={")
        assert repr(state).endswith(f"checksum='{state.checksum}')")

    async def test_an_agent_that_is_given_nothing_has_the_usual_shape(self, m: Maos) -> None:
        """R-401."""
        state = await m.state.create("reviewer")
        assert state.data == agent.new_state()
        assert set(state.data) == {"status", "configuration", "capabilities", "resources", "execution", "performance"}
        assert (await m.state.create("empty", {})).data == {}

    async def test_an_agent_is_created_once(self, m: Maos) -> None:
        await m.state.create("reviewer", START)
        with pytest.raises(Conflict, match="agent 'reviewer' has a state already") as refused:
            await m.state.create("reviewer", {"other": 1})
        assert refused.value.__suppress_context__, "its traceback has no second one about versions"
        assert (await m.state.get("reviewer")).data == START

    async def test_of_many_who_create_it_at_once_one_succeeds(self, durable: Place) -> None:
        """I5."""
        async with durable.open() as one, durable.open() as two:
            results = await asyncio.gather(
                *((one, two)[n % 2].state.create("a", {"by": n}) for n in range(8)), return_exceptions=True
            )
            winners = [each for each in results if isinstance(each, maos.State)]
            assert len(winners) == 1
            assert sum(isinstance(each, Conflict) for each in results) == 7
            assert (await two.state.get("a")).data == winners[0].data

    async def test_what_was_given_may_be_altered_afterwards(self, m: Maos) -> None:
        """A state never changes."""
        mine: dict[str, Any] = {"list": [{"x": 1}]}
        state = await m.state.create("a", mine)
        mine["list"][0]["x"] = 2
        mine["new"] = 1
        assert state.data == {"list": [{"x": 1}]}
        assert (await m.state.get("a")).data == {"list": [{"x": 1}]}

    @pytest.mark.parametrize("name", ["", "x" * 513, "new\nline", "nul\0", "tab\t"])
    async def test_what_cannot_name_an_agent_is_refused(self, sqlite: Place, name: str) -> None:
        async with sqlite.open() as m:
            with pytest.raises(InvalidInput, match="agent"):
                await m.state.create(name)

    @pytest.mark.parametrize("name", ["a b", "team/reviewer", "a@7", "é🦑", "'; DROP TABLE events; --", "-x", "../up"])
    async def test_any_printable_name_will_do(self, m: Maos, name: str) -> None:
        """A14: names are data."""
        await m.state.create(name, {"n": 1})
        await m.state.update(name, {"n": 2})
        await m.state.snapshot(name)
        m.state.cache.clear()
        assert (await m.state.get(name)).data == {"n": 2}
        assert (await m.state.event(f"agent/{name}@2")).changes == (Change("/n", 1, 2, "update"),)
        assert [each.agent async for each in m.state.all()] == [name]
        assert len(await m.state.snapshots(name)) == 1


class TestReading:
    async def test_who_is_not_there_is_not_found(self, m: Maos) -> None:
        for work in (
            m.state.get("nobody"),
            m.state.update("nobody", {"x": 1}),
            m.state.at("nobody", version=1),
            m.state.at("nobody", time=1),
            m.state.history("nobody"),
            m.state.events("nobody"),
            m.state.event("agent/nobody@1"),
            m.state.diff("nobody", 1, 2),
            m.state.rollback("nobody", 1),
            m.state.replay("nobody", 1, 1),
            m.state.peek("nobody", "messages"),
            m.state.snapshot("nobody"),
            m.state.restore("nobody", "v1"),
            m.state.compact("nobody"),
            m.verify("nobody"),
        ):
            with pytest.raises(NotFound):
                await work
        assert await m.state.snapshots("nobody") == []
        assert await m.journal.head() == 0

    async def test_a_state_is_read_only_and_a_copy_is_one_s_own(self, m: Maos) -> None:
        state = await m.state.create("a", START)
        with pytest.raises(TypeError):
            state.data["status"] = "busy"  # type: ignore[index]
        mine = state.to_dict()
        mine["messages"][0]["role"] = "changed"
        assert (await m.state.get("a")).data == START

    async def test_all_agents_are_listed_by_name(self, m: Maos) -> None:
        for name in ("b", "a", "team/x"):
            await m.state.create(name, {"status": f"is {name}"}, source="cli")
        await m.state.update("a", {"status": "busy"})
        listed = [each async for each in m.state.all()]
        assert [(each.agent, each.version, each.status, each.type) for each in listed] == [
            ("a", 2, "busy", "status_changed"),
            ("b", 1, "is b", "instance_created"),
            ("team/x", 1, "is team/x", "instance_created"),
        ]
        assert [each.agent async for each in m.state.all("team/")] == ["team/x"]


class TestUpdating:
    async def test_what_is_named_changes_and_the_rest_stays(self, m: Maos) -> None:
        """R-403."""
        await m.state.create("a", START)
        more = maos.Extend([{"role": "agent"}])
        update = await m.state.update("a", {"status": "busy", "memory": {"new": 2, "k": maos.DELETE}, "messages": more})
        assert (update.version, update.previous, update.position) == (2, 1, 2)
        assert update.changes == (
            Change("/status", "idle", "busy", "update"),
            Change("/memory/new", MISSING, 2, "create"),
            Change("/memory/k", 1, MISSING, "delete"),
            Change("/messages/1", MISSING, {"role": "agent"}, "create"),
        )
        assert update.state.data == {
            "status": "busy",
            "memory": {"new": 2},
            "messages": [*START["messages"], {"role": "agent"}],
        }
        assert update.checksum == update.state.checksum == checksum.text(checksum.checksum(update.state.to_dict()))
        assert (await m.state.get("a")).data == update.state.data
        assert "version=2, previous=1" in repr(update)

    async def test_an_update_that_changes_nothing_writes_nothing(self, m: Maos) -> None:
        await m.state.create("a", START)
        update = await m.state.update("a", {"status": "idle", "nothing": maos.DELETE, "memory": {}})
        assert (update.version, update.previous, update.changes, update.position) == (1, 1, (), 0)
        assert await m.journal.head() == 1

    async def test_what_was_passed_in_may_be_altered_afterwards(self, m: Maos) -> None:
        """The caller's message is the caller's; the state's is the state's."""
        await m.state.create("a", {"messages": [], "map": {}})
        message = {"role": "user", "parts": [1]}
        deep = {"deep": {"list": [message]}}
        await m.state.update("a", {"messages": maos.Extend([message]), "map": deep, "put": maos.Replace(message)})
        message["role"] = "changed"
        message["parts"].append(2)
        expected = {"role": "user", "parts": [1]}
        assert (await m.state.get("a")).data == {
            "messages": [expected],
            "map": {"deep": {"list": [expected]}},
            "put": expected,
        }

    async def test_what_comes_out_may_be_altered_too(self, m: Maos) -> None:
        """Changes, entries and differences are copies."""
        await m.state.create("a", START)
        update = await m.state.update("a", {"messages": maos.Extend([{"role": "agent"}]), "memory": {"l": [{}]}})
        for change in (*update.changes, *await m.state.diff("a", 1, 2), *(await m.state.event("agent/a@2")).changes):
            for value in (change.old, change.new):
                if isinstance(value, dict):
                    value["role"] = "changed"
                elif isinstance(value, list):
                    value.append("changed")
        (await m.state.peek("a", "messages")).entries[0]["role"] = "changed"
        state = await m.state.get("a")
        assert checksum.text(checksum.checksum(state.raw())) == state.checksum
        assert (await m.verify()).ok

    @pytest.mark.parametrize(
        ("wanted", "complaint"),
        [
            ({"x": float("nan")}, "/x is nan"),
            ({"x": {"y": (1, 2)}}, "/x/y is a builtins.tuple"),
            ({"x": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)}, "/x is a datetime.datetime"),
            ({"messages": maos.Extend(["\ud800"])}, "/messages/1: .*surrogates not allowed"),
            ({"memory": {1: 2}}, "/memory: the key 1 is a int"),
            ({"x": nested(97)}, "nested more than"),
            ({"/memory/k/deep": 1}, "/memory/k is not there or holds no fields"),
            ({"/messages/7": 1}, "beyond the end"),
            ({"status": maos.Extend([1])}, "/status is not a list"),
            ({"messages": maos.Extend([1]), "/messages": maos.Extend([2])}, "contradict each other"),
            ({"x": 10**5000}, "/x is too large a number"),
        ],
        ids=lambda value: value if isinstance(value, str) else "wanted",
    )
    async def test_what_makes_no_sense_is_refused_and_changes_nothing(
        self, sqlite: Place, wanted: dict[str, Any], complaint: str
    ) -> None:
        async with sqlite.open() as m:
            await m.state.create("a", START)
            for _ in range(2):  # from memory, and after a failure has emptied it
                with pytest.raises(InvalidInput, match=complaint):
                    await m.state.update("a", wanted)
            assert (await m.state.get("a")).data == START
            assert await m.journal.head() == 1

    async def test_bottomless_data_is_refused(self, sqlite: Place) -> None:
        async with sqlite.open() as m:
            endless: dict[str, Any] = {}
            endless["self"] = endless
            for data in (nested(50_000), endless):
                with pytest.raises(InvalidInput, match="nested too deep, or contains itself"):
                    await m.state.create("a", {"x": data})
            await m.state.create("a", {})
            with pytest.raises(InvalidInput, match="nested too deep, or contains itself"):
                await m.state.update("a", {"x": endless})
            with pytest.raises(InvalidInput, match="is not plain data"):
                await m.state.update("a", {"x": endless}, key="k")

    async def test_the_deepest_state_there_may_be_can_be_compacted_and_restored(self, sqlite: Place) -> None:
        """What is accepted fits into every event and every snapshot."""
        async with sqlite.open() as m:
            await m.state.create("a", {"x": nested(50)})
            await m.state.update("a", {"/x" + "/k" * 49 + "/y": nested(46)})
            with pytest.raises(InvalidInput, match="nested more than 96"):
                await m.state.update("a", {"/x" + "/k" * 49 + "/z": nested(47)})
            snapshot = await m.state.snapshot("a")
            await m.state.compact("a")
            await m.state.restore("a", snapshot.id)
            m.state.cache.clear()
            assert (await m.state.get("a")).checksum == snapshot.checksum
            assert (await m.verify()).ok

    async def test_an_event_has_a_type_of_its_own_or_a_given_one(self, m: Maos) -> None:
        await m.state.create("a")
        await m.state.update("a", {"status": "busy"})
        await m.state.update("a", {"status": "failed"}, type="error_occurred")
        await m.state.update("a", {"n": 1, "status": "idle"})
        assert [each.type for each in await m.state.history("a")][1:] == [
            "status_changed",
            "error_occurred",
            "state_updated",
        ]
        with pytest.raises(UnknownFormat, match="'no_such_type' is not registered"):
            await m.state.update("a", {"n": 2}, type="no_such_type")

    async def test_nothing_is_written_under_a_lost_lease(self, m: Maos) -> None:
        """I23."""
        await m.state.create("a", START)
        lease = await m.journal.acquire("a", ttl_s=600)
        assert lease is not None
        await m.state.update("a", {"n": 1}, under=lease)
        await m.journal.release(lease)
        for work in (
            m.state.update("a", {"n": 2}, under=lease),
            m.state.rollback("a", 1, under=lease),
            m.state.create("b", {}, under=lease),
        ):
            with pytest.raises(LeaseLost):
                await work
        assert (await m.state.get("a")).data["n"] == 1


class TestConcurrency:
    async def test_an_update_may_insist_on_a_version(self, m: Maos) -> None:
        """R-403, I5."""
        await m.state.create("a", {"n": 0})
        assert (await m.state.update("a", {"n": 1}, expected=1)).version == 2
        with pytest.raises(Conflict, match="agent/a is at version 2, expected 1"):
            await m.state.update("a", {"n": 2}, expected=1)
        with pytest.raises(Conflict, match="expected 7"):
            await m.state.update("a", {"n": 2}, expected=7)
        with pytest.raises(Conflict, match="expected 1"):
            await m.state.rollback("a", 1, expected=1)
        assert (await m.state.rollback("a", 1, expected=2)).version == 3
        assert (await m.state.get("a")).data == {"n": 0}

    async def test_of_two_who_insist_on_a_version_one_succeeds(self, durable: Place) -> None:
        """I5: also when both have it in memory and do not look first."""
        async with durable.open() as one, durable.open() as two:
            await one.state.create("a", {"n": 0})
            await two.state.get("a")
            results = await asyncio.gather(
                one.state.update("a", {"n": 1}, expected=1),
                two.state.update("a", {"n": 2}, expected=1),
                return_exceptions=True,
            )
            assert sorted(isinstance(each, Conflict) for each in results) == [False, True]
            assert (await one.state.get("a")).version == 2
            assert (await one.state.get("a")).data == (await two.state.get("a")).data

    async def test_nothing_is_lost_when_many_update_at_once(self, durable: Place) -> None:
        """What was computed from an older state is computed anew (R-403)."""
        async with durable.open() as one, durable.open() as two:
            await one.state.create("a", {"log": [], "seen": {}})

            async def work(who: int) -> None:
                agents = (one, two)[who % 2].state
                for number in range(8):
                    await agents.update("a", {"log": maos.Extend([[who, number]]), "seen": {f"{who}": number}})

            await asyncio.gather(*(work(who) for who in range(6)))
            for m in (one, two):
                state = await m.state.get("a")
                assert state.version == 49
                assert sorted(state.to_dict()["log"]) == [[who, number] for who in range(6) for number in range(8)]
                assert state.data["seen"] == {f"{who}": 7 for who in range(6)}
            assert (await two.verify()).ok

    async def test_what_another_process_wrote_is_seen_before_a_wish_is_refused(self, durable: Place) -> None:
        """A state in memory may be old: it decides nothing that the newest would decide otherwise."""
        async with durable.open() as one, durable.open() as two:
            await one.state.create("a", {"log": None, "n": 1})
            await two.state.get("a")
            await one.state.update("a", {"log": [], "map": {}, "n": 2})
            assert (await two.state.update("a", {"log": maos.Extend([1])})).version == 3
            await one.state.update("a", {"log": [], "n": 3})
            assert (await two.state.update("a", {"/map/x": 1})).version == 5
            await one.state.update("a", {"n": 4})
            assert (await two.state.update("a", {"n": 3})).changes == (Change("/n", 4, 3, "update"),)
            assert (await one.state.update("a", {"n": 3})).version == 7, "and nothing is to do if it is so already"

    async def test_contention_without_end_is_reported(self, sqlite: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        """Not tried for ever: whoever waits is told."""
        monkeypatch.setattr(history, "CONFLICTS_MAX", 3)
        async with sqlite.open() as m, sqlite.open() as other:
            await m.state.create("a", {"n": 0})
            number = 0
            append = m.journal.append
            append_all = m.journal.append_all

            async def too_late(*arguments: Any, **more: Any) -> Any:
                nonlocal number
                number += 1
                await other.state.update("a", {"n": number})
                work = append if isinstance(arguments[0], str) else append_all
                return await work(*arguments, **more)

            monkeypatch.setattr(m.journal, "append", too_late)
            monkeypatch.setattr(m.journal, "append_all", too_late)
            for work in (
                m.state.update("a", {"m": 1}),
                m.state.rollback("a", 1),
                m.state.snapshot("a"),
                m.state.compact("a"),
            ):
                number_before = number
                with pytest.raises(Conflict, match="agent/a is at version"):
                    await work
                assert number == number_before + 3
            assert await m.state.snapshots("a") == []
            assert (await other.verify()).ok

    async def test_an_update_that_is_given_up_leaves_a_state_that_is_true(self, durable: Place) -> None:
        """Cancelled while it is written: it happened or it did not, and memory agrees with the journal."""
        async with durable.open() as m:
            await m.state.create("a", {"n": 0, "log": []})
            for number in range(1, 13):
                task = asyncio.create_task(m.state.update("a", {"n": number, "log": maos.Extend([number])}))
                for _ in range(number % 4):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                state = await m.state.get("a")
                assert state.data["log"][-1:] == ([state.data["n"]] if state.data["n"] else [])
            await m.state.update("a", {"n": 99})
            m.state.cache.clear()
            state = await m.state.get("a")
            assert state.data["n"] == 99
            assert len(state.data["log"]) == state.version - 2
            assert (await m.verify()).ok
