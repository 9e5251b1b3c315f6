"""The usual shape of an agent, and which event says best what a change does."""

import pytest

from maos.model import agent
from maos.model.changes import DELETE, Extend, operations


def test_the_usual_state_has_everything_an_agent_has() -> None:
    """R-401."""
    assert agent.new_state() == {
        "status": "idle",
        "configuration": {},
        "capabilities": [],
        "resources": {},
        "execution": {"task": None, "history": [], "memory": {}, "process": None, "communication": {}},
        "performance": {"completion_rate": None, "average_time_s": None, "error_rate": None, "utilisation": None},
    }
    assert agent.new_state(status="busy", extra=1)["extra"] == 1
    assert agent.new_state()["execution"] is not agent.new_state()["execution"]


@pytest.mark.parametrize(
    ("wanted", "type_"),
    [
        ({"status": "busy"}, "status_changed"),
        ({"status": DELETE}, "status_changed"),
        ({"configuration": {"model": "m"}}, "configuration_updated"),
        ({"configuration": DELETE}, "configuration_updated"),
        ({"capabilities": Extend(["search"])}, "capability_added"),
        ({"capabilities": ["read", "write", "search"]}, "capability_added"),
        ({"/capabilities/1": DELETE}, "capability_removed"),
        ({"capabilities": ["read"]}, "capability_removed"),
        ({"resources": {"gpu": 1}}, "resource_allocated"),
        ({"resources": {"cpu": DELETE}}, "resource_deallocated"),
        ({"execution": {"task": "t2"}}, "task_assigned"),
        ({"execution": {"task": None}}, "task_completed"),
        ({"execution": {"task": DELETE}}, "task_completed"),
        ({"execution": {"memory": {"k": 1}}}, "state_updated"),
        ({"status": "busy", "execution": {"task": "t2"}}, "state_updated"),
        ({"statuses": 1}, "state_updated"),
        ({"configurations": 1}, "state_updated"),
        ({}, "state_updated"),
    ],
)
def test_an_event_is_called_after_what_changes(wanted: dict[str, object], type_: str) -> None:
    """R-402: thirteen types, and one for everything else."""
    state = agent.new_state(capabilities=["read", "write"], resources={"cpu": 2}, configuration={"model": "n"})
    state["execution"]["task"] = "t1"
    assert agent.event_type(operations(state, wanted)) == type_


def test_the_types_of_events_are_those_that_were_asked_for_and_our_own() -> None:
    """R-402."""
    asked = """instance_created status_changed configuration_updated capability_added capability_removed task_assigned
        task_completed error_occurred resource_allocated resource_deallocated snapshot_created migration_started
        migration_completed""".split()
    own = {"state_updated", "rolled_back", "restored", "compacted", "merged", "baseline"}
    assert [each for each in agent.EVENT_TYPES if each not in own] == asked
    assert set(agent.EVENT_TYPES) == {*asked, *own}
    assert set(agent.EVENT_TYPES) >= agent.CRITICAL


def test_an_agent_has_a_stream() -> None:
    assert agent.stream("reviewer") == "agent/reviewer"
