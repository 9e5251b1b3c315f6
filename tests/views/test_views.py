"""Plain `sqlite3` on the database shows runs, tasks, agents, sessions, messages and checkpoints (R-305)."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import maos
from maos import views
from maos.app import Maos
from maos.clock import SystemClock
from maos.engine import checkpoints
from maos.model.plan import Plan, Task
from maos.model.run import Run
from maos.runs.service import Runs
from tests.runs.test_scheduler import Hands
from tests.views.conftest import Query

COLUMNS = {
    "orchestrations": "id request status agents batches total_cost total_duration_ms successful_agents total_agents "
    "created_at completed_at last_updated active_agents message_count summary metadata folder budget_usd left_usd "
    "removed_at",
    "messages": "id from_agent to_agent message message_type timestamp acknowledged delivered metadata",
    "agents": "id name type session_id process_id status capabilities created_at last_active metadata attached",
    "sessions": "session_id agent_id task conversation_history turn_count total_cost status created_at updated_at",
    "checkpoints": "id name description orchestrator_state agent_sessions task_states message_history created_at",
    "tasks": "id parent_task_id description status assigned_agents subtasks progress result created_at started_at "
    "completed_at",
    "workflow_runs": "id workflow version status why parent_id arguments result created_at completed_at last_updated "
    "removed_at",
}
LONG = "a long story, " * 200


@pytest.fixture
async def m(database: Path, tmp_path: Path) -> AsyncIterator[Maos]:
    async with maos.open(database, home=tmp_path / "home") as opened:
        assert opened.bus  # whoever uses agents, runs or messages has the views made
        yield opened


@pytest.fixture
async def runs(m: Maos) -> Runs:
    return Runs(m.journal, SystemClock(), m.agents, worker=Hands)


def plan(**needs: str) -> Plan:
    return Plan(tasks=[Task(name=name, task=f"do {name}", needs=wanted.split()) for name, wanted in needs.items()])


async def carried_out(runs: Runs, plan: Plan, hands: Hands) -> Run:
    run = await runs.create(plan, request=f"Build it. {LONG}", options={"kind": "claude"})
    async with asyncio.timeout(60):
        return await runs.execute(run.id, worker=hands)


def test_all_of_them_are_there() -> None:
    assert set(COLUMNS) == set(views.NAMES)


@pytest.mark.parametrize("name", COLUMNS)
async def test_a_view_has_the_columns_that_people_know(m: Maos, query: Query, name: str) -> None:
    """Also in an empty database."""
    assert query(f"SELECT {', '.join(COLUMNS[name].split())} FROM {name}") == []


async def test_orchestrations_and_their_tasks(runs: Runs, query: Query) -> None:
    """R-106, R-107."""
    run = await carried_out(runs, plan(a="", b="a", c="a", d="b c"), Hands())
    (found,) = query("SELECT * FROM orchestrations")
    assert found["id"] == run.id
    assert found["request"] == run.request
    assert (found["status"], found["successful_agents"], found["total_agents"]) == ("completed", 4, 4)
    assert (found["total_cost"], found["active_agents"], found["message_count"]) == (4.0, 0, 0)
    assert json.loads(found["batches"]) == [["a"], ["b", "c"], ["d"]]
    assert json.loads(found["agents"]) == [f"{run.id}.{name}" for name in "abcd"]
    assert json.loads(found["metadata"]) == {"kind": "claude"}
    assert found["created_at"] <= found["completed_at"]
    tasks = query("SELECT * FROM tasks ORDER BY id")
    assert [each["description"] for each in tasks] == ["do a", "do b", "do c", "do d"]
    assert {each["status"] for each in tasks} == {"done"}
    assert json.loads(tasks[0]["result"])["text"] == "a done"
    assert tasks[0]["started_at"] <= tasks[0]["completed_at"]


async def test_a_run_is_seen_while_it_goes_on(runs: Runs, query: Query) -> None:
    """Nothing has to be refreshed: what is acknowledged is seen."""
    hands = Hands()
    hands.hold = {"b"}
    run = await runs.create(plan(a="", b="a", c="b"), request="x")
    going = asyncio.create_task(runs.execute(run.id, worker=hands))
    async with asyncio.timeout(60):
        while "b" not in hands.did:
            await asyncio.sleep(0.01)
        seen = {each["name"]: each["status"] for each in await asyncio.to_thread(query, "SELECT * FROM tasks")}
        assert seen == {"a": "done", "b": "running", "c": "waiting"}
        (found,) = await asyncio.to_thread(query, "SELECT status, active_agents FROM orchestrations")
        assert found == {"status": "running", "active_agents": 1}
        await runs.pause(run.id)
        await going
    (found,) = query("SELECT status, completed_at FROM orchestrations")
    assert found == {"status": "paused", "completed_at": None}


async def test_what_failed_waits_again_when_the_run_is_resumed(m: Maos, runs: Runs, query: Query) -> None:
    run = await carried_out(runs, plan(a="", b=""), Hands({"a": ["failed"]}))
    assert run.status == "failed"
    found = {each["name"]: each for each in query("SELECT * FROM tasks")}
    assert found["a"]["status"] == "failed"
    assert json.loads(found["a"]["result"])["failure"] == "failed"
    # as an engine leaves it that dies right after it has taken the run up
    await m.journal.append(f"run/{run.id}", maos.Event("run_resumed", {"at_us": run.updated_us + 1}))
    assert (await runs.get(run.id)).tasks["a"].status == "waiting"
    assert query("SELECT status FROM orchestrations") == [{"status": "interrupted"}]
    assert {each["name"]: each["status"] for each in query("SELECT * FROM tasks")} == {"a": "waiting", "b": "done"}


async def test_messages_and_who_has_got_them(m: Maos, query: Query) -> None:
    await m.bus.send("api", "page", LONG, type="discovery", run="r-1", metadata={"file": "x.py"})
    await m.bus.send("api", "tests", "short", run="r-1")
    await m.bus.send("api", "page", "of no run")
    async for delivery in m.bus.receive("page"):
        await delivery.ack()
        break
    first, second, third = query("SELECT * FROM messages ORDER BY id")
    assert (first["from_agent"], first["to_agent"], first["message"]) == ("api", "page", LONG)
    assert (first["message_type"], json.loads(first["metadata"])) == ("discovery", {"file": "x.py"})
    assert (first["acknowledged"], first["delivered"]) == (1, 1)
    assert (second["to_agent"], second["acknowledged"], second["delivered"]) == ("tests", 0, 0)
    assert (first["orchestration_id"], third["orchestration_id"]) == ("r-1", None)
    assert len(query("SELECT timestamp FROM messages WHERE from_agent = 'api'")) == 3


async def test_agents_sessions_and_checkpoints(m: Maos, tmp_path: Path, query: Query) -> None:
    for number in range(2):
        more = {"name": "counter", "kind": "shell", "argv": ["sh", "-c", "echo found: it"], "cwd": tmp_path}
        running = await (m.agents.resume("counter") if number else m.agents.start(in_place=True, **more))
        await running.wait()
    (agent,) = query("SELECT * FROM agents")
    assert (agent["id"], agent["type"], agent["status"]) == ("counter", "shell", "done")
    assert json.loads(agent["metadata"])["attempt"] == 2
    assert int(agent["process_id"]) > 1
    assert agent["created_at"] <= agent["last_active"]
    (session, *_rest) = query("SELECT * FROM sessions")
    assert session["agent_id"] == "counter"
    assert "found: it" in session["conversation_history"]
    assert {each["name"] for each in query("SELECT * FROM checkpoints")} >= {"end-1"}


async def test_a_checkpoint_of_a_run_has_the_tasks_as_they_were(m: Maos, runs: Runs, query: Query) -> None:
    run = await carried_out(runs, plan(a=""), Hands())
    await checkpoints.make(m.journal, SystemClock(), await runs.get(run.id), "release")
    (found,) = query("SELECT * FROM checkpoints")
    assert found["name"] == "release"
    assert json.loads(found["task_states"]) == {"a": "finished"}
    assert json.loads(found["orchestrator_state"])["orchestration"] == run.id


async def test_kept_folds_are_only_of_use_for_what_is_counted(
    m: Maos, database: Path, tmp_path: Path, query: Query
) -> None:
    """Documents are disposable: without them all rows are still there."""
    running = await m.agents.start(name="counter", kind="shell", argv=["true"], cwd=tmp_path, in_place=True)
    await running.wait()
    import apsw

    with apsw.Connection(str(database)) as connection:  # the same SQLite as the store's: two in one process break locks
        connection.execute("DELETE FROM documents")
    connection.close()
    (agent,) = query("SELECT id, status FROM agents")
    assert agent == {"id": "counter", "status": "done"}
    assert query("SELECT turn_count FROM sessions") == [{"turn_count": 0}]


async def test_views_of_another_version_are_replaced_and_those_of_others_stay(database: Path, query: Query) -> None:
    async with maos.open(database) as m:
        assert m.bus
    import apsw

    connection = apsw.Connection(str(database))
    connection.execute("DROP VIEW maos_views; DROP VIEW agents; CREATE VIEW agents AS SELECT 1 AS old")
    connection.execute("CREATE VIEW mine AS SELECT 2 AS two")
    connection.close()
    async with maos.open(database) as m:
        assert m.bus
        assert (await m.verify()).ok
        assert m.journal.notes == []
    assert query("SELECT id FROM agents") == []
    assert query("SELECT two FROM mine") == [{"two": 2}]


async def test_a_copy_has_the_views_too(m: Maos, runs: Runs, tmp_path: Path) -> None:
    import apsw

    await carried_out(runs, plan(a=""), Hands())
    await m.copy_to(tmp_path / "copy.db")
    connection = apsw.Connection(str(tmp_path / "copy.db"))
    assert connection.execute("SELECT count(*) FROM tasks").fetchall() == [(1,)]
    connection.close()


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_views_and_folds_say_the_same(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever became of a run: what plain SQL says of it is what maos says of it."""
    names = [f"t{number}" for number in range(data.draw(st.integers(1, 6)))]
    needs = {name: " ".join(data.draw(st.sets(st.sampled_from(names[:index])))) if index else "" for index, name in
             enumerate(names)}  # fmt: skip
    failing = {name: data.draw(st.lists(st.sampled_from(["failed", "no_credit", "killed"]), max_size=2))
               for name in names}  # fmt: skip
    path = tmp_path_factory.mktemp("same") / "maos.db"

    async def compare() -> None:
        import apsw

        async with maos.open(path) as m:
            assert m.bus
            run = await carried_out(
                Runs(m.journal, SystemClock(), m.agents, worker=Hands), plan(**needs), Hands(failing)
            )
            connection = apsw.Connection(str(path))
            tasks = dict(connection.execute("SELECT name, status FROM tasks").fetchall())
            (row,) = connection.execute("SELECT status, successful_agents, total_cost FROM orchestrations").fetchall()
            connection.close()
            assert tasks == {name: task.status for name, task in run.tasks.items()}
            assert row == (run.status, run.done, pytest.approx(run.cost_usd))

    asyncio.run(compare())
