"""What the data of events must have that come from elsewhere, so that nothing here stumbles over them.

Only what is looked at anywhere is named; more may be there, and is kept. `?` before a field: it need not be there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from maos.errors import Corrupt
from maos.journal.codec import DEPTH_MAX, Event
from maos.model.attempt import Attempt

TIME_US_MAX = 253_402_300_799_000_000
"""The last second of the year 9999."""
NUMBER_MAX = 1 << 53

_EVENTS = """
run_created         request:str folder:str options:dict owner:dict ?commit:str ?origin:dict
run_claimed           owner:dict source:str ?options:dict
run_planned         tasks:dicts ?options:dict
run_resumed
run_paused          ?why:str
run_ended           status:str ?summary:str ?why:str
task_started        task:str number:int
task_released       task:str ?why:str ?failure:str ?not_before_us:int ?cost_usd:float ?tokens:int
task_gated          task:str passed:int ?result:str ?commit:str ?failure:str ?why:str ?not_before_us:int ?resolve:str \
                    ?conflict:strs ?cost_usd:float ?tokens:int
task_finished       task:str ?result:str ?commit:str ?merged:str ?cost_usd:float ?tokens:int
task_failed         task:str failure:str why:str ?cost_usd:float ?tokens:int
question_asked      id:str question:str asked_by:strs ?choices:strs ?context:str ?default:text ?expires_us:int
question_answered   id:str answer:str ?by:str
run_checkpointed    ?name:str ?commit:str ?trigger:str
run_hibernated      kind:str until_us:int
run_woken
run_note_added           ?text:str
run_rolled_back     state:dict branch:int to:any
run_forked          state:dict branch:int to:any
run_joined          state:dict branch:int to:any
run_changed         state:dict branch:int to:any
run_moved           folder:str from:str ?workspace:dict
attempt_planned     agent:str number:int agent_kind:str task:str session:str owner:dict folder:str workspace:dict \
                    inbox_cursor:int ?told:ints transcript:list order:dict
attempt_claimed       owner:dict
attempt_started     pid:int ?holder_pid:int
attempt_output       offset:int facts:dicts
attempt_stopping    why:str ?inbox_version:int
attempt_answered    request:str allow:bool ?why:str ?inbox_version:int
attempt_transcript  name:str from:int until:int text:str
attempt_checkpointed name:str trigger:str ?commit:text ?session:str
attempt_branched    state:dict origin:dict
attempt_moved       agent:str number:int folder:str cwd:str home:str workspace:dict
attempt_ended       status:str ?failure:str ?message:str ?exit:dict ?reset_us:int
message_sent        text:str ?id:str ?sender:str ?type:str ?to:strs ?run:str ?topic:str ?metadata:dict ?hops:int \
                    ?reply_to:str ?at_us:int ?ttl_us:int
stop_requested          ?grace_s:float
permission_answered request:str allow:bool ?why:str
checkpoint_requested    name:str
pause_requested         ?why:str
wake_requested
tasks_requested         tasks:dicts asked_by:str
message_routed      id:str sender:str type:str to:strs ?topic:str at_us:int
message_delivered   versions:ints
message_acknowledged versions:ints ?floor:int
message_dead_lettered      versions:ints ?floor:int
dead_letter_added       version:int why:str tries:int message:str
dead_letter_requeued      version:int
chat_said           text:str ?asked:str
notice_planned      id:str what:str title:str body:str addresses:strs at_us:int
notice_sent         id:str address:str
notice_failed       id:str address:str ?why:str
notice_unknown      id:str address:str
tool_called         tool:str arguments:dict digest:str attempt:str server:str proved:ints ?answer:str
signal_sent         name:str
resolve_requested        step_id:str outcome:str ?why:str ?tries:int
cancel_requested        ?why:str
workflow_started        name:str code:str arguments:dict owner:dict at_us:int ?definition:str ?options:dict ?parent:str
workflow_claimed          owner:dict ?code:str
workflow_signalled      name:str inbox_version:int
workflow_published      values:dict
workflow_checkpointed   name:str trigger:str at_us:int ?step:str ?progress:float
workflow_paused         ?why:str
workflow_changed        why:str code:str
workflow_ended          status:str at_us:int
workflow_compacted         flow:dict
step_started        step_id:str kind:str name:str at_us:int ?digest:str ?until_us:int ?about:dict
step_retried          step_id:str ?until_us:int
step_unknown        step_id:str
step_abandoned           step_id:str
step_completed           step_id:str at_us:int
step_failed         step_id:str at_us:int error:dict
"""
_TIMED = ("run_", "task_", "question_")
"""Whose time is always told."""

_ANYBODYS = ("result", "value")
"""What a workflow has returned, or was told: it may be anything."""

_FACTS = """
session             ?id:str ?model:str ?version:str ?instead_of:str
text                ?text:str ?message:str
thought             ?text:str ?message:str
plan                ?entries:dicts
tool_use            id:str ?name:str
tool_progress       ?id:str ?output:str
tool_result         ?id:str ?output:str
usage               ?message:str ?model:str ?input:int ?output:int ?cache_read:int ?cache_write:int
cost                usd:float ?turn:str
retry               ?attempt:int ?delay_s:float ?status:int ?error:str
trouble             failure:str ?message:str ?status:int ?reset_us:int
permission_requested    id:str ?tool:str ?options:list
permission_denied   ?tool:str ?message:str
discovery           ?keyword:str ?text:str
turn_ended          ?result:str ?reason:str ?turns:int
line                ?text:str ?base64:str
unknown             ?text:str ?base64:str
input               id:str
stopping            why:str
"""

_ORDER = """
order               task:str resume:bool cwd:str home:str model:str instructions:str turns_max:int budget_usd:float \
                    tools_allowed:strs permission:str takes_input:bool mcp:dicts env:strs argv:strs \
                    time_limit_s:float ?run:str ?from:str
workspace           name:str path:str tree:str repository:text gitdir:text base:text notes:strs file_bytes_max:int \
                    keep_ignored:strs
"""

_TYPES: Mapping[str, Any] = {
    "str": str, "int": int, "float": float, "bool": bool, "any": Any, "text": str | None, "dict": dict[str, Any],
    "list": list[Any], "dicts": list[dict[str, Any]], "strs": list[str], "ints": list[int],
}  # fmt: skip


def _table(text: str) -> dict[str, type[msgspec.Struct]]:
    shapes = {}
    for line in text.strip().splitlines():
        name, *words = line.split()
        fields: list[Any] = []
        for word in words:
            field, _, kind = word.removeprefix("?").partition(":")
            optional = word.startswith("?")
            fields.append((field, _TYPES[kind] | msgspec.UnsetType, msgspec.UNSET) if optional
                          else (field, _TYPES[kind]))  # fmt: skip
        if name.startswith(_TIMED):
            fields.append(("at_us", int))
        shapes[name] = msgspec.defstruct(name, fields, kw_only=True)
    return shapes


EVENTS, FACTS, PARTS = _table(_EVENTS), _table(_FACTS), _table(_ORDER)


def check(event: Event, where: str) -> None:
    """Corrupt unless an event has what is looked at, in its type, and times and numbers that can be shown."""
    data = event.data
    try:
        _check_depth(data, where)
        _check_numbers(data, where)
        shape = EVENTS.get(event.type)
        if shape is not None:
            msgspec.convert(data, shape)
        if event.type == "attempt_output":
            for fact in data["facts"]:
                if not isinstance(fact.get("kind"), str):
                    raise Corrupt(f"{where} has a fact of no kind", hint="nothing was imported")
                _check_numbers(fact, where)
                if fact["kind"] in FACTS:
                    msgspec.convert(fact, FACTS[fact["kind"]])
        elif event.type == "attempt_planned":
            msgspec.convert(data["transcript"], tuple[str, int])
            _check_parts(data)
        elif event.type == "attempt_moved":
            msgspec.convert(data["workspace"], PARTS["workspace"])
        elif event.type == "attempt_branched":
            msgspec.convert({**data["state"], "id": ""}, Attempt)  # whose it is, its stream says
            _check_parts(data["state"])
    except msgspec.ValidationError as error:
        raise Corrupt(f"{where} ({event.type}) is not as it should be: {error}", hint="nothing was imported") from error


def _check_parts(plan: Mapping[str, Any]) -> None:
    for part, shape in PARTS.items():
        msgspec.convert(plan.get(part), shape)


def check_fold(fold: Any, where: str) -> None:
    """Corrupt unless all times and numbers of a fold can be shown, also those that an event told in one piece."""
    for name in fold.__struct_fields__:
        value = getattr(fold, name)
        _check_number(name, value, where)
        if isinstance(value, msgspec.Struct):
            check_fold(value, where)
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        for item in inside:
            if isinstance(item, msgspec.Struct):
                check_fold(item, where)
            elif name == "sleeping":
                _check_number("until_us", item, where)


def _check_numbers(data: Mapping[str, Any], where: str) -> None:
    for name, value in data.items():
        _check_number(name, value, where)


def _check_number(name: str, value: Any, where: str) -> None:
    """A number that everything here can count with, or a time that a calendar has."""
    if name in _ANYBODYS:
        return
    is_time = name.endswith("_us")
    if type(value) in (int, float) or (is_time and value is not None):
        wrong = not isinstance(value, int) or not 0 <= value <= TIME_US_MAX if is_time else abs(value) > NUMBER_MAX
        if wrong:
            raise Corrupt(f"{where}: {name} is {value!r}, which makes no sense", hint="nothing was imported")


def _check_depth(value: Any, where: str, depth: int = 0) -> None:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if inside and depth >= DEPTH_MAX:
        raise Corrupt(f"{where} is nested too deeply", hint="nothing was imported")
    for item in inside:
        _check_depth(item, where, depth + 1)
