"""What a workflow writes down: no secrets, nothing too large, nothing that its function changes afterwards."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

import maos
from maos.app import Maos
from maos.engine.recorder import Recorder
from maos.errors import InvalidInput
from maos.model.workflow import WorkflowRun
from maos.redact import Redactor
from maos.views.workflows import describe
from maos.workflows import StepFailed, agent, parallel, signal, unique, values
from tests.workflows.conftest import Engine
from tests.workflows.define import eventually, workflow

SECRET = "sk-ant-api03-" + "A1b2C3d4E5f6G7h8" * 5


async def test_secrets_are_in_no_event_of_a_workflow(m: Maos, tmp_path: Path) -> None:
    """Not in what a step raises, in what it is given, nor in the task of an agent."""

    @maos.step
    async def login(about: str, token: str) -> None:
        raise RuntimeError(f"401 for Authorization: Bearer {token}")

    @workflow("secretive")
    async def secretive() -> str:
        try:
            await login("about", SECRET)
        except StepFailed as error:
            said = error.message
        await agent(f"use {SECRET}", argv=["true"], cwd=str(tmp_path), in_place=True)
        raise ValueError(said + SECRET)

    flow = await (await m.workflows.start(secretive, id="s")).wait()
    assert "[redacted:" in flow.why
    recorded = [msgspec.json.encode(record.data) async for record in m.journal.read("workflow/s")]
    assert recorded
    assert not [each for each in recorded if SECRET[:16].encode() in each]


async def test_a_workflow_gets_what_is_recorded_the_first_time_too(m: Maos) -> None:
    """Else it would do something else when it is resumed. A secret by itself is refused: only one execution had it."""
    seen = []

    @maos.step
    async def read() -> dict[str, str]:
        return {"page": f"such as {SECRET}, for example", "password": "hunter2!x"}

    @maos.step
    async def log_in() -> list[str]:
        return [SECRET]

    @workflow("reader")
    async def reader(text: str) -> str:
        seen.extend([text, *(await read()).values()])
        await log_in()
        return "not here"

    flow = await (await m.workflows.start(reader, f"see {SECRET}!", id="r")).wait()
    redacted = "[redacted:anthropic-key]"
    assert seen[:2] == [f"see {redacted}!", f"such as {redacted}, for example"]
    assert seen[2] == "[redacted:password]"
    assert "what the step log_in returns is a secret (anthropic-key), which is never recorded" in flow.why
    with pytest.raises(InvalidInput, match="is a secret"):
        await m.workflows.start(reader, SECRET, id="never")
    recorded = [msgspec.json.encode(record.data) async for record in m.journal.read("workflow/r")]
    assert not [each for each in recorded if SECRET[:16].encode() in each or b"hunter2" in each]


async def test_a_secret_is_removed_before_it_could_be_cut_in_two(m: Maos) -> None:
    codec = m.journal.codec
    for before in range(values.SHOWN_CHARS_MAX):
        assert SECRET[:8] not in values.beginning(f"{'x' * before} {SECRET}", codec), before
        assert SECRET[:8] not in values.shown(("x" * before, SECRET), {}, codec), before
        assert SECRET[:8] not in values.brief(("x" * before, SECRET), {"key": f"{'x' * before} {SECRET}"}, codec), (
            before
        )


async def test_branches_of_an_idempotent_step_are_told_apart_by_what_they_were_given(m: Maos) -> None:
    """In few characters: an argument can be large, and its `repr` may be anything."""

    @dataclass
    class Order:
        name: str

        def __repr__(self) -> str:
            raise RuntimeError("it is not called")

    @maos.step(idempotent=True)
    async def price(what: Any, *, currency: str = "EUR") -> int:
        return 1

    @workflow("prices")
    async def prices() -> int:
        return sum(await parallel(price, ["apple", 7, None, Order("pear"), {"a": 1}, "x" * 100, "x" * 1_000_000]))

    run = await (await m.workflows.start(prices, id="p")).wait()
    told = [describe(run.steps[f"1:{number}.1"]) for number in range(1, 8)]
    assert told[:5] == ["price('apple')", "price(7)", "price(None)", "price(Order(…))", "price(dict(…))"]
    assert told[5:] == [f"price('{'x' * (values.BRIEF_CHARS_MAX - 2)}…)", "price(str(…))"]


async def test_what_only_the_journal_knows_as_a_secret_is_the_same_in_every_execution(m: Maos) -> None:
    """Such as the password of its database: the first execution sees what the next one finds in the journal."""
    password = "of-the-database-1"
    m.journal.codec.redactor = Redactor({"database-password": password})
    seen = []

    @maos.step
    async def connect() -> str:
        return f"{password} was used"

    @maos.step
    async def fail() -> None:
        raise ValueError(f"{password} is wrong")

    @workflow("connecting")
    async def connecting() -> str:
        seen.append(await connect())
        try:
            await fail()
        except StepFailed as error:
            seen.append(str(error))
        return f"end of {password}"

    assert await m.workflows.run(connecting, id="c") == "end of [redacted:database-password]"
    assert seen[0] == "[redacted:database-password] was used"
    assert password not in seen[1]
    assert "[redacted:database-password] is wrong" in seen[1]


async def test_the_error_of_a_probe_is_written_without_secrets(engine: Engine) -> None:
    begun = []

    async def look() -> None:
        raise RuntimeError(f"401 for {SECRET}")

    @maos.step(probe=look)
    async def pay() -> None:
        begun.append("paid")
        await asyncio.Event().wait()

    @workflow("paying")
    async def paying() -> None:
        await pay()

    async with engine() as m:
        await m.workflows.start(paying, id="p")
        await eventually(lambda: begun)
    async with engine() as m:
        handle = await m.workflows.start(paying, id="p")
        await eventually(lambda: handle.run.unknown)
        error = handle.run.unknown["1"].error or {}
        assert (error["type"], error["message"]) == ("RuntimeError", "401 for [redacted:anthropic-key]")
        assert error["traceback"].endswith("RuntimeError: 401 for [redacted:anthropic-key]")


@pytest.mark.parametrize(
    "made", ["x" * 400, "\x00" * 200, ["x"] * 200, {"text": "é" * 400}], ids=["text", "controls", "list", "accents"]
)
async def test_a_result_that_is_too_large_fails_the_step_and_is_not_tried_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, made: Any
) -> None:
    monkeypatch.setattr(values, "PLAIN_BYTES_MAX", 400)
    monkeypatch.setattr(values, "_QUICK_CHARS_MAX", 400 // 6)
    called = []

    @maos.step(idempotent=True, retries=3)
    async def large() -> Any:
        called.append("x")
        return made

    @workflow("large")
    async def collecting() -> str:
        try:
            await large()
        except StepFailed as error:
            return error.message
        return "it was recorded"

    for _ in range(2):
        async with engine() as m:
            said = await m.workflows.run(collecting, id="c")
            assert "cannot be recorded: it has " in said
            assert "bytes, and at most 400 are kept" in said
    assert called == ["x"]


def test_arguments_of_steps_may_be_larger_than_what_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "PLAIN_BYTES_MAX", 40)
    assert len(values.digest(("x" * 100,), {}, "an argument")) == 16


async def test_what_the_function_does_to_a_result_is_not_in_the_record(engine: Engine) -> None:
    """I15: it gets the same whenever it is run, though it changed what it got."""

    @maos.step
    async def items() -> Any:
        return ["a", {"b": []}]

    @maos.step
    async def nothing() -> None:
        return None

    def use(got: Any) -> Any:
        got[1]["b"].append("c")
        got.append("d")
        return got

    @workflow("using")
    async def using() -> list[Any]:
        found = [use(await items()), use(await signal("first"))]
        await nothing()
        await signal("go")
        return found

    used = ["a", {"b": ["c"]}, "d"]
    async with engine() as m:
        handle = await m.workflows.start(using, id="u")
        await m.workflows.signal("u", "first", ["a", {"b": []}])
        await eventually(lambda: [each.name for each in handle.run.waiting.values()] == ["go"])
    async with engine() as m:
        assert (await m.workflows.get("u")).steps["1"].result == ["a", {"b": []}]
        await m.workflows.signal("u", "go")
        assert await m.workflows.run(using, id="u") == [used, used]


async def test_what_chance_said_in_one_branch_is_on_disk_though_another_has_it_written(
    m: Maos, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under every policy: no step is told of an id that could be another one after a crash."""
    append = Recorder.append
    written: set[str] = set()

    async def slow(self: Recorder[WorkflowRun], *events: Any, **more: Any) -> None:
        await asyncio.sleep(0.02)
        await append(self, *events, **more)
        written.update(str(event.data.get("result")) for event in events)

    monkeypatch.setattr(Recorder, "append", slow)
    told: list[bool] = []

    @maos.step(idempotent=True)
    async def order(id: str) -> None:
        told.append(id in written)

    async def one(number: int) -> None:
        id = unique()
        await asyncio.sleep(0.005)
        await order(id)

    @workflow("ordering")
    async def ordering() -> None:
        await parallel(one, [1, 2, 3])

    handle = await m.workflows.start(ordering, id="o", options={"checkpoints": {"frequency": "manual"}})
    await handle.result()
    assert told == [True, True, True]
