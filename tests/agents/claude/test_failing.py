"""The real Claude Code when the model's API fails, and when there is no key: each failure is told apart."""

import json
from pathlib import Path

from maos.model.failure import TABLE, Ending, understand
from maos_testing.model_stub import ModelStub, ScriptFault, ScriptStep
from tests.agents.claude.stage import agent, texts, turn

NO_RETRY = {"CLAUDE_CODE_MAX_RETRIES": "0"}


async def test_a_rate_limit_is_waited_out_and_told_as_retries(tmp_path: Path) -> None:
    script = [ScriptStep(text="Finally.", faults=[ScriptFault(status=429, times=2, retry_after_s=0.05)])]
    async with ModelStub(script) as stub, agent(stub, tmp_path, "try") as run:
        end = await turn(run)
        assert await run.finish() == 0
    assert [(fact["attempt"], fact["status"]) for fact in run.of("retry")] == [(1, 429), (2, 429)]
    assert end["result"] == "Finally."
    assert not run.of("trouble")


async def test_failures_of_the_api_are_told_apart(tmp_path: Path) -> None:
    """One session goes through them all: it takes another message after each."""
    faults = {
        "limited": (
            ScriptFault(status=429, times=0, message="This request would exceed your rate limit"),
            "rate_limited",
        ),
        "overload": (ScriptFault(status=529, times=0), "overloaded"),
        "broken": (ScriptFault(status=500, times=0, message="boom"), "server_error"),
        "long": (
            ScriptFault(status=400, times=0, message="prompt is too long: 9 tokens > 8 maximum"),
            "context_overflow",
        ),
        "poor": (
            ScriptFault(status=400, times=0, message="Your credit balance is too low to access the API"),
            "no_credit",
        ),
        "key": (ScriptFault(status=401, times=0, message="invalid x-api-key"), "login_expired"),
    }
    scripts = {name: [ScriptStep(text="never", faults=[fault])] for name, (fault, _) in faults.items()}
    names = list(faults)
    async with ModelStub(scripts) as stub, agent(stub, tmp_path, f"SCRIPT={names[0]}", variables=NO_RETRY) as run:
        for n, name in enumerate(names[1:], start=1):
            await turn(run, n)
            assert await run.say(f"inbox/{n}", f"SCRIPT={name}")
        await turn(run, len(names))
        assert await run.finish() == 1
    assert [fact["failure"] for fact in run.of("trouble")] == [failure for _, failure in faults.values()]
    assert [fact.get("status") for fact in run.of("trouble")] == [fault.status for fault, _ in faults.values()]
    assert all(fact["failed"] for fact in run.of("turn_ended"))
    assert not run.text()
    verdict = understand(Ending(exit_code=1), run.heard[-2:])
    assert verdict is not None
    assert verdict.failure == "login_expired"
    assert TABLE[verdict.failure].hint


async def test_without_a_key_or_login_it_says_what_is_missing(tmp_path: Path) -> None:
    async with ModelStub(texts(["never"])) as stub:
        async with agent(stub, tmp_path, "try", variables={"ANTHROPIC_API_KEY": ""}) as run:
            await turn(run)
            assert await run.finish() == 1
        assert not stub.requests
    [trouble] = run.of("trouble")
    assert trouble["failure"] == "login_expired"
    assert "Not logged in" in trouble["message"]


async def test_a_reply_cut_off_in_the_middle_is_asked_for_again_and_told_once(tmp_path: Path) -> None:
    text = "This is what I have to say, and it is cut off once."
    script = [ScriptStep(text=text, faults=[ScriptFault(kind="drop"), ScriptFault(kind="error", status=529)])]
    async with ModelStub(script) as stub, agent(stub, tmp_path, "speak") as run:
        end = await turn(run)
        assert await run.finish() == 0
    assert run.text() == text
    assert end["result"] == text
    assert run.of("retry")
    used = sum(fact.get("output", 0) for fact in run.of("usage"))
    [result] = [json.loads(line) for line in run.lines if b'"type":"result"' in line]
    [model] = result["model_usage_since_last_result"].values()
    assert used == model["outputTokens"], "what failed on its way was used, and is counted once"
