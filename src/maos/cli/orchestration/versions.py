"""The versions of a run, each with what happened then: everything a run can go back to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maos.cli import documents as shared
from maos.cli.agent import words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from maos.app import Maos
    from maos.cli.database import DatabaseTarget
    from maos.journal.journal import Record
    from maos.model.run import Run


def show(database: DatabaseTarget, id: str, *, as_json: bool) -> None:
    """All of them, the oldest first."""

    async def work(m: Maos) -> tuple[Run, list[Record]]:
        from maos.cli.orchestration import standing
        from maos.model.run import stream

        run = await standing.find(m, id)
        return run, [record async for record in m.journal.read(stream(run.id))]

    run, found = database.read(work)
    if as_json:
        rows = [
            {"version": each.version, "position": each.position, "event": each.type, "what": said(each.type, each.data),
             **shared.time(each.time_us)}
            for each in found
        ]  # fmt: skip
        shared.show({"id": run.id, "versions": rows})
        return
    from maos.cli import render

    columns = (
        render.Column("version", right=True, style="bold"), render.Column("time"), render.Column("what", yields=1),
    )  # fmt: skip
    render.table(
        columns, [(str(each.version), render.when(each.time_us), said(each.type, each.data)) for each in found]
    )


def said(type_: str, data: Mapping[str, Any]) -> str:
    """What happened, on one line."""
    task = data.get("task", "")
    match type_:
        case "run_created" if data.get("origin"):
            text = f"forked from {data['origin']['run']}, version {data['origin']['version']}"
        case "run_planned":
            text = f"planned {', '.join(str(each.get('name', '')) for each in data['tasks'])}"
        case "run_checkpointed":
            text = f"checkpoint {data.get('name', '')}"
        case "run_rolled_back":
            text = f"taken back to version {data['to']}"
        case "run_joined":
            text = f"joined with {data['other']['run']}"
        case "run_moved":
            text = f"moved to {data['folder']}"
        case "run_changed":
            text = f"goes on with the new {data.get('file', '')}"
        case "run_ended":
            text = str(data["status"])
        case "question_asked":
            text = f"asked: {data['question']}"
        case "question_answered":
            text = f"answered: {data['answer']}"
        case _:
            text = type_.removeprefix("run_").removeprefix("task_")
            text = f"{task} {text}" if task else text
    why = data.get("why") or (data.get("result", "") if type_ == "task_finished" else "")
    return words.one_line(f"{text}: {why}" if why else text, 120)
