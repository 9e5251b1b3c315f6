"""What a rollback or a fork says it asks again is what is asked again."""

import asyncio
from pathlib import Path

from maos.app import Maos
from tests.runs.test_operations import until


async def test_a_question_that_was_answered_while_no_engine_ran_is_not_asked_again(m: Maos, tmp_path: Path) -> None:
    """B3: it said "asked again", and the fork used the answer."""
    tasks = [{"name": "a", "command": ["true"], "gates": [{"person": "good?"}]}]
    run = await m.runs.create({"tasks": tasks}, folder=tmp_path, options={"in_place": True, "kind": "shell"})
    executing = asyncio.create_task(m.runs.execute(run.id))
    await until(m, run.id, lambda each: bool(each.open_questions))
    await m.runs.pause_and_wait(run.id)
    run = await executing
    assert [*(await m.travel.fork(run.id, dry_run=True)).questions] == ["good?"]
    await m.runs.answer(run.id, run.open_questions[0].id, "yes")
    assert [*(await m.travel.fork(run.id, dry_run=True)).questions] == []
    forked = await m.travel.fork(run.id, into="r-fork", without_files=True)
    assert [*forked.questions] == []
    await m.runs.resume("r-fork")
    assert (await m.runs.execute("r-fork")).status == "completed"
