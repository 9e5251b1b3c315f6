"""Folds that are kept beside their streams: packed once nothing more is expected, and disposable (I17)."""

from pathlib import Path

import msgspec
import pytest

import maos
from maos.engine import recorder
from maos.engine.streams import ATTEMPT, RUN, WORKFLOW_RUN
from maos.model.attempt import Attempt
from maos.model.plan import from_data
from maos.model.run import Run, TaskState
from maos.model.status import RunStatus, TaskStatus

TASKS = {name: TaskState(name=name, plan={"command": ["true"]}, needs=[], result="x" * 40) for name in "abcdefgh"}


def run_of(version: int = 7) -> Run:
    return Run(id="r-1", version=version, request="do it", status=RunStatus.COMPLETED, tasks=TASKS)


def test_a_packed_fold_is_what_it_was_and_takes_less_room() -> None:
    plain, packed = RUN.keep(run_of()), RUN.keep(run_of(), packed=True)
    assert plain.body is not None
    assert packed.body is not None
    assert len(packed.body) < len(plain.body) / 5
    assert RUN.kept(packed) == RUN.kept(plain) == run_of()
    flow = WORKFLOW_RUN.kept(WORKFLOW_RUN.keep(WORKFLOW_RUN.fold(id="w-1", version=3), packed=True))
    assert flow is not None
    assert (flow.id, flow.version) == ("w-1", 3)


def test_what_sql_views_read_of_an_attempt_stays_readable() -> None:
    attempt = Attempt(id="a.1", version=9, session="s-1", turns=3, cost_usd=0.5, result="done", last_text="bye " * 100)
    document = ATTEMPT.keep(attempt, packed=True)
    assert document.body is not None
    shown = msgspec.json.decode(document.body)["fold"]
    assert (shown["session"], shown["turns"], shown["cost_usd"], shown["result"]) == ("s-1", 3, 0.5, "done")
    assert "tools_open" not in shown
    assert ATTEMPT.kept(document) == attempt


def test_a_packed_fold_that_is_damaged_or_foreign_is_of_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is computed again from the events; nothing is guessed."""
    for kind, fold in ((RUN, run_of()), (ATTEMPT, Attempt(id="a.1", version=7))):
        document = kind.keep(fold, packed=True)  # type: ignore[arg-type]
        body = document.body
        assert body is not None
        for place in range(0, len(body), 7):
            flipped = body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
            found = kind.kept(document._replace(body=flipped))
            assert found is None or found == fold, "what is not noticed makes no difference"
        for cut in (0, 1, 5, len(body) // 2, len(body) - 1):
            assert kind.kept(document._replace(body=body[:cut])) is None
        assert kind.kept(document._replace(version=8)) is None
        assert kind._replace(format=kind.format + 1).kept(document) is None
    other = RUN._replace(example=lambda: Run(id="", request="other names than those it was compressed with"))
    assert other.kept(RUN.keep(run_of(), packed=True)) is None
    monkeypatch.setattr(recorder, "FOLD_BYTES_MAX", 100)
    assert RUN.kept(RUN.keep(run_of(), packed=True)) is None


async def test_a_run_that_has_ended_is_packed_and_unpacked_when_it_is_resumed(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home") as m:

        async def first_byte() -> bytes:
            found = await m.journal.store.load("run", run.id)
            assert found is not None
            assert found.body is not None
            return found.body[:1]

        plan = {"tasks": [{"name": "a", "command": ["true"]}]}
        run = await m.runs.create(plan, folder=tmp_path, options={"in_place": True})
        assert await first_byte() == b"{"
        run = await m.runs.execute(run.id)
        assert await first_byte() != b"{"
        assert (await m.runs.get(run.id)).tasks["a"].status is TaskStatus.DONE
        await m.runs.add(run.id, from_data({"tasks": [{"name": "b", "command": ["true"]}]}))
        assert await first_byte() == b"{"
        assert (await m.runs.execute(run.id)).done == 2
