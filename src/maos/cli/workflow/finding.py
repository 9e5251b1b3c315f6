"""A workflow by its id, whichever kind it is: a function, or a run that was made from a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maos.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.run import Run
    from maos.model.workflow import WorkflowRun


async def by_id(m: Maos, id: str) -> WorkflowRun | Run:
    """The workflow that is meant: by its id, or an unambiguous beginning of it."""
    from maos.workflows.file_changes import origin

    if not id:
        raise InvalidInput("an empty id names no workflow", hint="`maos workflow list` shows them")
    found = await m.find(id, "workflow", "run")
    if found.kind == "workflow":
        return await m.workflows.get(found.id)
    run = await m.runs.get(found.id)
    if origin(run) is None:
        raise InvalidInput(
            f"{run.id} is an orchestration, and was made from no plan file",
            hint=f"`maos status {run.id}` shows it, `maos resume {run.id}` goes on with it",
        )
    return run


async def of_files(m: Maos) -> list[Run]:
    """All runs that were made from plan files."""
    from maos.workflows.file_changes import origin

    return [run async for run in m.runs.all() if origin(run) is not None]


async def latest(m: Maos) -> WorkflowRun | Run:
    """The one that something happened to last, of those that could be gone on with."""
    flows = [(flow.changed_us, flow) async for flow in m.workflows.all() if flow.is_open and not flow.parent]
    runs = [(run.updated_us, run) for run in await of_files(m) if run.status != "completed"]
    found: list[tuple[int, WorkflowRun | Run]] = [*flows, *runs]
    if not found:
        raise NotFound("there is no workflow to go on with", hint="`maos workflow list` shows all")
    return max(found, key=lambda each: each[0])[1]
