"""The real Claude Code with a scripted model: a run, its tools, permissions, messages and limits."""

import asyncio
import json
from pathlib import Path

import pytest

from maos.agents.claude.dialect import Claude
from maos_testing.model_stub import ModelStub, ScriptFault, ScriptStep, TokenCount, ToolCall
from tests.agents.claude.stage import KEY, PATH, SESSION, SlowTool, agent, bash, interrupt, mcp_server, texts, turn


async def test_a_run_is_told_as_facts_even_if_every_line_is_heard_by_another_engine(tmp_path: Path) -> None:
    """R-102, R-103: text, thought, tool and its result, usage by message, cost once, and the end of the turn."""
    script = [
        ScriptStep(
            thought="I should look first.",
            text="I look around.\n\nThen I tell.",
            calls=[bash("echo hello > made.txt && ls")],
            tokens=TokenCount(input=50, output=20, cache_write=7),
        ),
        ScriptStep(text="There is made.txt.", tokens=TokenCount(input=70, output=30, cache_read=5)),
    ]
    async with ModelStub(script) as stub:
        async with agent(stub, tmp_path, "look around", tools_allowed=["Bash"], forgetful=True) as run:
            end = await turn(run)
            assert await run.finish() == 0
        requests = list(stub.requests)

    [session] = run.of("session")
    assert (session["id"], session["version"]) == (SESSION, Claude().find({"PATH": PATH}).version)
    assert session["model"]
    assert [fact["text"] for fact in run.of("text")] == ["I look around.", "Then I tell.", "There is made.txt."]
    assert [fact["text"] for fact in run.of("thought")] == ["I should look first."]
    [use], [result] = run.of("tool_use"), run.of("tool_result")
    assert use["name"] == "Bash"
    assert use["input"]["command"] == "echo hello > made.txt && ls"
    assert result == {"kind": "tool_result", "id": use["id"], "output": "made.txt"}
    assert [(fact["input"], fact["output"], fact.get("cache_read", 0)) for fact in run.of("usage")] == [
        (50, 20, 0),
        (70, 30, 5),
    ]
    [cost] = run.of("cost")
    assert cost["usd"] == pytest.approx(_total_cost(run.lines))
    assert end == {"kind": "turn_ended", "result": "There is made.txt.", "turns": 2}
    assert not run.of("unknown")
    assert not run.of("trouble")
    assert [request.step for request in requests] == [0, 1]
    assert {request.headers["x-api-key"] for request in requests} == {KEY}
    assert len(json.dumps(dict(run.conversation.state()))) < 600


async def test_tools_of_ours_instructions_and_the_model_reach_it(tmp_path: Path) -> None:
    script = [ScriptStep(calls=[ToolCall(name="mcp__notes__note", input={"text": "a fact"})]), ScriptStep(text="done")]
    async with ModelStub(script) as stub:
        given = {"mcp": [mcp_server()], "instructions": "--You are the NOTE KEEPER.", "model": "claude-sonnet-4-6"}
        async with agent(stub, tmp_path, "note it", permission="deny", **given) as run:
            await turn(run)
            assert await run.finish() == 0
        body = stub.requests[0].body
    assert [fact["output"] for fact in run.of("tool_result")] == ["noted: a fact"]
    assert body["model"] == "claude-sonnet-4-6"
    assert "--You are the NOTE KEEPER." in json.dumps(body["system"])
    tools = {tool["name"] for tool in body["tools"]}
    assert "mcp__notes__note" in tools
    assert not tools & {"AskUserQuestion", "EnterPlanMode", "ScheduleWakeup"}
    for name in ("mcp.json", "instructions.txt"):
        assert (tmp_path / "home" / name).stat().st_mode & 0o777 == 0o600


async def test_what_it_may_not_do_it_asks_for_and_takes_yes_and_no(tmp_path: Path) -> None:
    """I31: a refused tool leaves no trace, an allowed one runs once."""
    script = [
        ScriptStep(calls=[bash("echo once >> allowed.txt")]),
        ScriptStep(calls=[bash("echo once >> refused.txt")]),
        ScriptStep(text="I did what I could."),
    ]
    async with ModelStub(script) as stub, agent(stub, tmp_path, "do both", forgetful=True) as run:
        [first] = await run.until_fact("permission_requested")
        assert (first["tool"], first["input"]["command"]) == ("Bash", "echo once >> allowed.txt")
        assert run.conversation.answer("nobody asked this", allow=True) is None
        await run.write(run.conversation.answer(first["id"], allow=True))
        _, second = await run.until_fact("permission_requested", 2)
        await run.write(run.conversation.answer(second["id"], allow=False, why="Not that file."))
        await turn(run)
        assert run.conversation.answer(second["id"], allow=True) is None
        assert await run.finish() == 0
    assert (tmp_path / "work" / "allowed.txt").read_text() == "once\n"
    assert not (tmp_path / "work" / "refused.txt").exists()
    last = run.of("tool_result")[-1]
    assert last["failed"]
    assert "Not that file." in last["output"]


async def test_with_permission_denied_it_is_told_so_and_nobody_is_asked(tmp_path: Path) -> None:
    script = [ScriptStep(calls=[bash("touch refused.txt")]), ScriptStep(text="Not allowed, it seems.")]
    async with ModelStub(script) as stub, agent(stub, tmp_path, "do it", permission="deny") as run:
        await turn(run)
        assert await run.finish() == 0
    assert [fact["tool"] for fact in run.of("permission_denied")] == ["Bash"]
    assert not run.of("permission_requested")
    assert not (tmp_path / "work" / "refused.txt").exists()


async def test_a_message_in_the_middle_of_a_turn_is_read_after_the_tool_and_only_once(
    tmp_path: Path, slow_tool: SlowTool
) -> None:
    script = [ScriptStep(text="This takes a while.", calls=[slow_tool.call]), ScriptStep(text="Read it.")]
    async with ModelStub(script) as stub, agent(stub, tmp_path, "wait", tools_allowed=["Bash"]) as run:
        while not slow_tool.is_running:
            await asyncio.sleep(0.02)
        for n in range(2):  # the same message twice, as after a crash between writing and remembering it
            reply = run.conversation.say("inbox/1", "/clear and MIND THE GAP")
            assert reply is not None
            await run.write(reply._replace(id=f"inbox/1 try {n}"))
        await run.until(lambda: sum(b'"queued"' in line for line in run.lines) >= 2)
        slow_tool.let_go()
        end = await turn(run)
        assert await run.finish() == 0
        last = json.dumps(stub.requests[-1].body["messages"])
    assert end["result"] == "Read it."
    assert len(run.of("turn_ended")) == 1
    assert last.count("MIND THE GAP") == 1
    assert [request.step for request in stub.requests] == [0, 1]


async def test_the_limit_of_turns_ends_it_and_says_so(tmp_path: Path) -> None:
    script = [ScriptStep(calls=[bash(f"echo {n}")]) for n in range(4)]
    stub = ModelStub(script)
    async with stub, agent(stub, tmp_path, "go on and on", tools_allowed=["Bash"], turns_max=2) as run:
        end = await turn(run)
        assert await run.finish() == 1
    assert end["failed"]
    assert [fact["failure"] for fact in run.of("trouble")] == ["turns_reached"]
    assert len(stub.requests) == 2


async def test_an_interrupted_agent_takes_another_message(tmp_path: Path) -> None:
    scripts = {
        "long": [ScriptStep(text="word " * 100, faults=[ScriptFault(kind="hang", after_chars=40)])],
        "next": texts(["Something else."]),
    }
    async with ModelStub(scripts) as stub, agent(stub, tmp_path, "SCRIPT=long") as run:
        await run.until(lambda: run.conversation.state().get("tail"))
        await run.write(interrupt("stop it"))
        end = await turn(run)
        assert end["failed"]
        assert end["reason"] == "aborted_streaming"
        assert await run.say("inbox/1", "SCRIPT=next")
        assert (await turn(run, 2))["result"] == "Something else."
        assert await run.finish() == 0
    assert not run.of("trouble")
    assert run.text().startswith("word word word")


async def test_work_in_the_background_wakes_it_again_and_each_result_counts_once(tmp_path: Path) -> None:
    """Several results in one run: their costs add up to the total, and the last one is the result."""
    script = [
        ScriptStep(calls=[bash("sleep 0.3; echo slept", run_in_background=True)]),
        ScriptStep(text="It runs."),
        ScriptStep(text="It has ended."),
    ]
    async with ModelStub(script) as stub, agent(stub, tmp_path, "do it", tools_allowed=["Bash"]) as run:
        end = await turn(run, 2)
        assert await run.finish() == 0
    assert end["result"] == "It has ended."
    assert sum(fact["usd"] for fact in run.of("cost")) == pytest.approx(_total_cost(run.lines))
    assert len({fact["turn"] for fact in run.of("cost")}) == 2


async def test_while_an_agent_of_its_own_works_its_turn_has_not_ended(tmp_path: Path) -> None:
    """The interim result must not end its input: what its agent asks for could not be answered any more."""
    helper = {"description": "helper", "prompt": "SCRIPT=helper", "subagent_type": "general-purpose"}
    scripts = {
        "main": [
            ScriptStep(calls=[ToolCall(name="Agent", input=helper)]),
            ScriptStep(text="I wait for it."),
            ScriptStep(text="All is done."),
        ],
        "helper": [ScriptStep(text="I help.", calls=[bash("echo helped >> helped.txt")]), ScriptStep(text="I helped.")],
    }
    async with ModelStub(scripts) as stub, agent(stub, tmp_path, "SCRIPT=main") as run:
        [asked] = await run.until_fact("permission_requested")
        await run.write(run.conversation.answer(asked["id"], allow=True))
        end = await turn(run)
        assert await run.finish() == 0
    assert end["result"] == "All is done."
    assert len(run.of("turn_ended")) == 1
    assert (tmp_path / "work" / "helped.txt").read_text() == "helped\n"
    used = sum(fact.get("input", 0) for fact in run.of("usage"))
    assert used == 100 * len(stub.requests), "every request is counted once, its agent's too"
    assert "I help." not in run.text()
    assert sum(fact["usd"] for fact in run.of("cost")) == pytest.approx(_total_cost(run.lines))


def _total_cost(lines: list[bytes]) -> float:
    results = [json.loads(line) for line in lines if b'"type":"result"' in line]
    total: float = results[-1]["total_cost_usd"]
    assert total > 0
    return total
