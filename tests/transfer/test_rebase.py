"""What events say of one machine is declared with their fields, so that nothing of it is used on another."""

import pytest

from maos.model.events import EVENTS
from maos.model.events.core import local_fields
from maos.model.events.parts import Local
from maos.transfer.validation import FAMILIES

OF_A_MACHINE = {"owner", "folder", "workspace", "pid", "holder_pid", "cwd", "home", "from"}
IMPORTED = [
    name
    for name, kind in EVENTS.items()
    if any(issubclass(kind, each) for family in FAMILIES.values() for each in family)
]


@pytest.mark.parametrize("name", IMPORTED)
def test_every_field_with_the_name_of_one_is_declared(name: str) -> None:
    fields = {each for each in EVENTS[name].__struct_encode_fields__ if each in OF_A_MACHINE}
    if name == "attempt_transcript":
        fields -= {"from"}  # a number of bytes
    assert fields <= {path[0] for path, _local in local_fields(name)}


def test_what_is_inside_of_plain_data_is_declared_by_its_path() -> None:
    assert (("state", "tasks", "*", "agent"), Local.AGENT) in local_fields("run_forked")
    assert (("order", "from"), Local.MOVED_FROM) in local_fields("attempt_planned")
    assert local_fields("note") == ()
