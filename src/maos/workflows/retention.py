"""Room in the journal: workflows that ended long ago keep their result, and lose the calls that led to it."""

from __future__ import annotations

from typing import Any

import msgspec

from maos.engine.streams import WORKFLOW_RUN
from maos.journal.codec import Event
from maos.journal.journal import Append, Journal
from maos.model.workflow import WorkflowRun, stream
from maos.store import chain
from maos.store.contract import Replacement


def is_old(flow: WorkflowRun, before_us: int) -> bool:
    """Whether it ended before a time, was not forgotten yet, and is not pinned."""
    return not flow.is_open and flow.ended_us < before_us and bool(flow.steps) and not flow.options.get("permanent")


async def forget(journal: Journal, flow: WorkflowRun) -> int:
    """Replace the events of a workflow run by one that has its result; return how many are gone."""
    name = stream(flow.id)
    last = await journal.event(name, flow.version)
    assert last is not None
    kept = msgspec.to_builtins(msgspec.structs.replace(flow, steps={}, signals={}, version=0))
    raw = journal.codec.encode_sealed(Event("workflow_compacted", {"workflow": kept, "at_us": flow.changed_us}))
    seal: dict[str, Any] = {
        "first": 1, "last": flow.version, "seal": chain.seal(*raw).hex(), "time_us": last.time_us, "token": last.token,
    }  # fmt: skip
    compacted = Event("compacted", {"ops": [], "replaced": [seal], "meta": {"strategy": "workflow"}})
    document = WORKFLOW_RUN.nothing(flow.id, flow.version)
    await journal.append_all(
        [Append(name, [compacted], flow.version)],
        documents=[document],
        replacing=[Replacement(name, 1, flow.version, raw)],
    )
    return flow.version - 1
