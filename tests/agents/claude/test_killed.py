"""The real Claude Code killed with SIGKILL, and resumed: nothing that was said is lost, no tool runs twice."""

import asyncio
import json
import shutil
import uuid
from pathlib import Path

from maos.agents.claude.dialect import Claude
from maos_testing.model_stub import ModelStub, ScriptFault, ScriptStep
from tests.agents.claude.stage import SESSION, SlowTool, agent, bash, texts, turn
from tests.agents.driving import an_order
from tests.events import plain

GO_ON = "You were interrupted. Go on."


async def transcript_has(folder: Path, text: str) -> None:
    """Wait until the program's own transcript has a text."""
    async with asyncio.timeout(30):
        while not any(text in each.read_text() for each in folder.rglob(f"{SESSION}.jsonl")):
            await asyncio.sleep(0.02)


async def test_killed_in_the_middle_of_a_text_it_goes_on_in_place(tmp_path: Path) -> None:
    """R-107: what had arrived of the text is kept, the conversation goes on where it was."""
    text = "First paragraph.\n\nSecond paragraph, which is never finished."
    script = [
        ScriptStep(text="I begin.", calls=[bash("echo once >> runs.txt")]),
        ScriptStep(text=text, chunk_chars=9, faults=[ScriptFault(kind="hang", after_chars=45)]),
        ScriptStep(text="After all, I end."),
    ]
    async with ModelStub(script) as stub:
        async with agent(stub, tmp_path, "talk", tools_allowed=["Bash"], forgetful=True) as run:
            await run.until(lambda: "Second paragraph" in run.conversation.state().get("tail", ""))
            await transcript_has(tmp_path, "tool_result")  # the program writes its transcript a little later
            run.kill()
            await run.ended()
        recorded = json.loads(json.dumps(dict(run.conversation.state())))
        taken_up = Claude().converse(an_order(tmp_path), recorded)
        rest = plain(taken_up.rest())
        assert [fact["text"] for fact in run.of("text")] == ["I begin.", "First paragraph."]
        [partial] = [fact["text"] for fact in rest if fact["kind"] == "text"]
        assert partial.startswith("Second paragraph")
        assert partial in text
        assert not plain(taken_up.rest())

        async with agent(stub, tmp_path, GO_ON, tools_allowed=["Bash"], resume=True, attempt="tester.2") as run:
            end = await turn(run)
            assert await run.finish() == 0
        asked = [request.step for request in stub.requests]
        said = json.dumps(stub.requests[-1].body["messages"])
    assert asked == [0, 1, 1], "the step that was interrupted is the one that is asked for again"
    assert "I begin." in said
    assert GO_ON in said
    assert end["result"] == text
    assert (tmp_path / "work" / "runs.txt").read_text() == "once\n"
    assert run.of("session")[0]["id"] == SESSION


async def test_killed_in_the_middle_of_a_tool_it_does_not_run_it_again(tmp_path: Path, slow_tool: SlowTool) -> None:
    """I31: the intent is known, the outcome is not, and the model is told so instead of the tool being repeated.

    Its own transcript is a tenth of a second behind what it does, so a kill at once after the start of a tool is known
    to us (the fact comes before the tool runs) and not to it; what an engine says on resuming must name such tools.
    """
    claude = Claude()
    script = [ScriptStep(text="Now.", calls=[slow_tool.call]), ScriptStep(text="I will not do it again.")]
    async with ModelStub(script) as stub:
        async with agent(stub, tmp_path, "do it", tools_allowed=["Bash"]) as run:
            while not (slow_tool.is_running and b'"tool_use"' in _read(claude.transcript(an_order(tmp_path), SESSION))):
                await asyncio.sleep(0.02)
            assert run.of("tool_use")
            run.kill()
            await run.process.wait()
            assert slow_tool.still_runs, "the tool outlives its program"
            slow_tool.end()
            await run.ended()
        assert not run.of("tool_result")
        torn = claude.transcript(an_order(tmp_path), SESSION)
        assert torn is not None
        with torn.open("ab") as file:
            file.write(b'{"type":"user","message":{"role":"us')
        async with agent(stub, tmp_path, GO_ON, tools_allowed=["Bash"], resume=True, attempt="tester.2") as run:
            end = await turn(run)
            assert await run.finish() == 0
        said = json.dumps(stub.requests[-1].body["messages"])
    assert slow_tool.runs == 1
    assert end["result"] == "I will not do it again."
    assert "outcome is unknown" in said
    for line in torn.read_bytes().splitlines():
        json.loads(line)  # nothing was glued to the torn line


async def test_its_transcript_lets_another_machine_go_on(tmp_path: Path) -> None:
    """R-206: only the transcript is carried over; the cost of what was done before is not counted again."""
    here, there = tmp_path / "here", tmp_path / "there"
    scripts = {"one": texts(["The word is PINEAPPLE."]), "two": texts(["It was PINEAPPLE."])}
    claude = Claude()
    async with ModelStub(scripts) as stub:
        here.mkdir()
        async with agent(stub, here, "SCRIPT=one") as run:
            await turn(run)
            assert await run.finish() == 0
        source = claude.transcript(an_order(here), SESSION)
        assert source is not None
        there.mkdir()
        order = an_order(there)
        target = claude.transcript_home(order, SESSION, source.name)
        target.parent.mkdir(parents=True)
        shutil.copyfile(source, target)
        assert claude.transcript(order, SESSION) == target
        before = target.stat().st_size
        async with agent(stub, there, "SCRIPT=two", resume=True, attempt="tester.2") as run:
            await turn(run)
            assert await run.finish() == 0
        said = json.dumps(stub.requests[-1].body["messages"])
    assert "The word is PINEAPPLE." in said
    assert target.stat().st_size > before
    [cost] = run.of("cost")
    [result] = [json.loads(line) for line in run.lines if b'"type":"result"' in line]
    assert 0 < cost["usd"] < result["total_cost_usd"]


async def test_a_session_that_never_began_is_begun_instead_of_resumed(tmp_path: Path) -> None:
    """Killed before its first word it has left nothing, or next to nothing: neither stops the next attempt."""
    session = str(uuid.uuid4())
    order = an_order(tmp_path, session=session)
    empty = Claude().transcript_home(order, session, f"{session}.jsonl")
    empty.parent.mkdir(parents=True)
    empty.write_bytes(b'{"type":"queue-operation"}\n{"torn')
    stub = ModelStub(texts(["Hello."]))
    async with stub, agent(stub, tmp_path, "begin", session=session, resume=True) as run:
        assert (await turn(run))["result"] == "Hello."
        assert await run.finish() == 0
    assert run.of("session")[0]["id"] == session


def _read(path: Path | None) -> bytes:
    return path.read_bytes() if path is not None else b""
