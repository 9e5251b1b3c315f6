"""Secrets in plans and answers: in no file of the database, and no command is executed without its secret."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

import maos
from maos.app import Maos
from maos.errors import InvalidInput
from maos.model.plan import BadPlan
from tests.holder.test_redact import SHAPES, mark
from tests.journal.test_secrets import stored

CANARY = SHAPES["github-token"]
MARK = mark("github-token")


async def refuse(m: Maos) -> None:
    """Answer the question of a gate when it is asked: no, and yes to the next try."""
    answered: set[str] = set()
    while len(answered) < 2:
        for question in await m.questions.open():
            if question.ref not in answered:
                assert MARK in question.text
                await m.questions.answer(question.ref, "yes" if answered else "no", why=f"see {CANARY}")
                answered.add(question.ref)
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    "task",
    [
        {"name": "a", "command": ["curl", "-H", f"Authorization: Bearer {CANARY}", "https://example.com"]},
        {"name": "a", "command": ["true"], "gates": [{"command": ["check", CANARY]}]},
        {"name": "a", "command": ["echo", MARK]},
    ],
)
async def test_a_plan_with_a_secret_in_a_command_is_refused(tmp_path: Path, task: dict[str, object]) -> None:
    """It could not be run again after a crash, so it is not run the first time."""
    async with maos.open(tmp_path / "maos.db") as m:
        with pytest.raises(BadPlan, match="contains a secret") as refused:
            await m.runs.start({"tasks": [task]}, folder=tmp_path, options={"in_place": True})
        assert await m.journal.head() == 0
    assert CANARY not in str(refused.value)


async def test_a_command_that_was_redacted_is_never_started(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home") as m:
        with pytest.raises(InvalidInput, match="contained a secret, which was not recorded"):
            await m.agents.start(kind="shell", argv=["touch", f"{tmp_path}/{MARK}"], cwd=str(tmp_path), in_place=True)
        assert not (tmp_path / MARK).exists()


async def test_what_people_say_about_a_run_is_in_no_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Requests, task texts, results, answers, notes, chats, checkpoints: with the folds, and in the log."""
    caplog.set_level(logging.DEBUG, "maos")
    plan = {
        "request": f"deploy with {CANARY}",
        "tasks": [
            {"name": "a", "task": f"say {CANARY}", "command": ["sh", "-c", f"printf 'ghp''_%s\\n' {CANARY[4:]}"]},
            {"name": "b", "command": ["true"], "gates": [{"person": f"is {CANARY} right?"}], "needs": ["a"]},
        ],
    }

    log = tmp_path / "maos.log"
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home") as m:
        run = await m.runs.start(plan, folder=tmp_path, options={"in_place": True})
        await m.runs.keep(run.id, f"has {CANARY}")
        await m.runs.conversations.record(run.id, f"it is {CANARY}")
        ended, _ = await m.logged(log, asyncio.gather(m.runs.execute(run.id), refuse(m)))
        assert ended.tasks["a"].result == MARK
        assert ended.status == "completed"
        released = [each.data async for each in m.journal.read(f"run/{run.id}") if each.type == "task_released"]
        assert MARK in released[0]["why"]
        assert ended.request == f"deploy with {MARK}"
    assert CANARY not in caplog.text
    assert CANARY.encode() not in stored(tmp_path / "maos.db")
    assert CANARY not in log.read_text()
    kept = [each for each in (tmp_path / "home").rglob("*") if each.is_file() and CANARY.encode() in each.read_bytes()]
    assert kept == []
