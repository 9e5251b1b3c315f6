"""A Python function as an agent, in a process of its own."""

import json
import os
import signal
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maos.agents.contract import LaunchOrder
from maos.agents.python.dialect import Python
from maos.errors import InvalidInput, NotFound
from maos.model.events import facts
from maos.model.failure import Ending, understand
from tests.agents.driving import an_order, command_of, started
from tests.events import plain


def order_for(folder: Path, source: str, **fields: object) -> LaunchOrder:
    """An order to run `run` of a module with this source."""
    (folder / "work").mkdir()
    (folder / "work" / "job.py").write_text(source)
    return an_order(folder, argv=["job:run"], **fields)


async def test_the_result_of_an_async_function_is_the_agents_result(tmp_path: Path) -> None:
    """R-103."""
    source = """
import asyncio

async def run(context):
    await asyncio.sleep(0)
    context.report(f"working on {context.task}")
    context.discover("finding", "the answer")
    return {"attempt": context.attempt, "session": context.session, "resumed": context.resumed}
"""
    order = order_for(tmp_path, source, task="ponder", resume=True)
    async with started(Python(), order, forgetful=True) as run:
        assert await run.ended() == 0
    assert [fact["kind"] for fact in run.facts] == ["session", "text", "discovery", "turn_ended"]
    assert run.facts[0]["id"] == order.session
    assert run.facts[1]["text"] == "working on ponder"
    assert run.facts[2] == {"kind": "discovery", "keyword": "finding", "text": "the answer"}
    assert json.loads(run.facts[3]["result"]) == {"attempt": "tester.1", "session": order.session, "resumed": True}
    assert understand(Ending(exit_code=0), run.heard) is None


async def test_a_plain_function_will_do(tmp_path: Path) -> None:
    async with started(Python(), order_for(tmp_path, "def run(context): return 'done: ' + context.task")) as run:
        assert await run.ended() == 0
    assert run.of("turn_ended")[0]["result"] == "done: do it"


async def test_an_exception_is_the_agents_failure_with_its_traceback(tmp_path: Path) -> None:
    source = "async def run(context):\n    deeper()\n\ndef deeper():\n    raise LookupError('no such number')\n"
    async with started(Python(), order_for(tmp_path, source)) as run:
        code = await run.ended()
    assert code == 1
    verdict = understand(Ending(exit_code=code), run.heard)
    assert verdict is not None
    assert verdict.failure == "failed"
    assert verdict.message == "LookupError: no such number"
    [traceback] = [each["traceback"] for each in run.of("trouble")]
    assert "job.py" in traceback
    assert "function_child" not in traceback


@pytest.mark.parametrize(
    ("source", "function", "said"),
    [
        ("import nothing_of_that_name", "job:run", "ModuleNotFoundError"),
        ("def walk(context): pass", "job:run", "AttributeError"),
        ("run = 7", "job:run", "is not a function"),
        ("", "jobs:run", "ModuleNotFoundError"),
        ("def run(", "job:run", "SyntaxError"),
    ],
)
async def test_a_function_that_cannot_be_found_could_not_be_started(
    tmp_path: Path, source: str, function: str, said: str
) -> None:
    order = order_for(tmp_path, source)._replace(argv=[function])
    async with started(Python(), order) as run:
        code = await run.ended()
    verdict = understand(Ending(exit_code=code), run.heard)
    assert verdict is not None
    assert verdict.failure == "start_failed"
    assert said in verdict.message


async def test_what_it_prints_are_lines_and_nothing_it_prints_is_the_protocol(tmp_path: Path) -> None:
    """A16: printed text must not become a result, whoever wrote it."""
    source = """
import os, subprocess, sys

def run(context):
    print('{"is": "result", "text": "forged"}')
    sys.stdout.buffer.write(b'\\xff\\xfe\\n')
    print("half ", end="", flush=True)
    print("a line")
    print("by the way", file=sys.stderr)
    os.write(1, b'{"is": "result", "text": "forged by a descriptor"}\\n')
    subprocess.run(["echo", '{"is": "failed", "text": "forged by a child"}'])
    subprocess.run(["echo", "through our own"], stdout=sys.stdout)
    print("no newline at the end", end="")
    return "true"
"""
    async with started(Python(), order_for(tmp_path, source), forgetful=True) as run:
        assert await run.ended() == 0
    assert [fact["result"] for fact in run.of("turn_ended")] == ["true"]
    assert run.of("trouble") == []
    printed = [fact for fact in run.of("line") if not fact.get("stderr")]
    assert [msgspec.convert(fact, facts.Line).raw() for fact in printed] == [
        b'{"is": "result", "text": "forged"}',
        b"\xff\xfe",
        b"half a line",
        b"no newline at the end",
    ]
    assert [fact["text"] for fact in run.of("line") if fact.get("stderr")] == [
        "by the way",
        '{"is": "result", "text": "forged by a descriptor"}',
        '{"is": "failed", "text": "forged by a child"}',
        "through our own",
    ]
    assert run.facts[-1]["kind"] == "turn_ended" or run.facts[-1].get("stderr")


async def test_its_input_is_not_ours(tmp_path: Path) -> None:
    source = "import sys\ndef run(context): return [sys.stdin.read(), context.task]"
    async with started(Python(), order_for(tmp_path, source)) as run:
        assert await run.ended() == 0
    assert json.loads(run.of("turn_ended")[0]["result"]) == ["", "do it"]


async def test_messages_reach_it_while_it_works(tmp_path: Path) -> None:
    """R-202."""
    source = """
async def run(context):
    heard = []
    context.report("listening")
    async for message in context.messages():
        heard.append(message)
        context.report(f"heard {message}")
        if message == "enough":
            return heard
"""
    async with started(Python(), order_for(tmp_path, source)) as run:
        await run.until_fact("text")
        assert await run.say("m1", "hello\nwörld")
        await run.until_fact("text", 2)
        assert await run.say("m1", "hello\nwörld")  # said again after a crash: the same id is written once
        assert await run.say("m2", "enough")
        assert await run.ended() == 0
        assert not await run.say("m3", "too late")
    assert json.loads(run.of("turn_ended")[0]["result"]) == ["hello\nwörld", "enough"]


async def test_a_plain_function_hears_messages_too(tmp_path: Path) -> None:
    source = """
import time

def run(context):
    context.report("listening")
    heard = []
    while "enough" not in heard:
        heard += context.said()
        time.sleep(0.005)
    return heard
"""
    async with started(Python(), order_for(tmp_path, source)) as run:
        await run.until_fact("text")
        for id, text in (("m1", "one"), ("m2", "enough")):
            assert await run.say(id, text)
        assert await run.ended() == 0
    assert json.loads(run.of("turn_ended")[0]["result"]) == ["one", "enough"]


async def test_messages_end_when_its_input_does(tmp_path: Path) -> None:
    source = """
async def run(context):
    context.report("listening")
    return [message async for message in context.messages()]
"""
    async with started(Python(), order_for(tmp_path, source)) as run:
        await run.until_fact("text")
        assert await run.say("m1", "only one")
        assert run.process.stdin is not None
        run.process.stdin.close()
        assert await run.ended() == 0
    assert json.loads(run.of("turn_ended")[0]["result"]) == ["only one"]


async def test_it_may_return_before_all_messages_were_read(tmp_path: Path) -> None:
    source = """
import asyncio

async def run(context):
    waiting = asyncio.create_task(anext(context.messages()))
    await asyncio.sleep(0)
    return "gone"
"""
    async with started(Python(), order_for(tmp_path, source)) as run:
        assert await run.ended() == 0
    assert run.of("turn_ended")[0]["result"] == "gone"


@pytest.mark.parametrize("kind", ["async ", ""])
async def test_a_term_lets_it_put_things_in_order(tmp_path: Path, kind: str) -> None:
    wait = "await asyncio.sleep(600)" if kind else "time.sleep(600)"
    source = f"""
import asyncio, time

{kind}def run(context):
    try:
        context.report("waiting")
        {wait}
    finally:
        context.report("tidy")
"""
    async with started(Python(), order_for(tmp_path, source)) as run:
        await run.until_fact("text")
        run.kill(signal.SIGTERM)
        assert await run.ended() == 143
    assert run.text() == "waiting\ntidy"
    assert run.of("turn_ended") == []


async def test_everything_said_before_a_kill_was_said(tmp_path: Path) -> None:
    """It must not sit in a buffer of the killed process."""
    source = """
import os, signal

def run(context):
    for number in range(1000):
        print(number)
    context.report("last words")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    async with started(Python(), order_for(tmp_path, source)) as run:
        assert await run.ended() == -signal.SIGKILL
    assert [fact["text"] for fact in run.of("line")] == [str(number) for number in range(1000)]
    assert run.text() == "last words"


async def test_a_workspace_cannot_put_its_modules_in_the_place_of_ours(tmp_path: Path) -> None:
    """A12: json.py in the workspace is the function's business, not that of the process it runs in."""
    order = order_for(tmp_path, "def run(context): return 'unharmed'")
    for name in ("json", "maos", "asyncio", "sitecustomize"):
        marker = f"open({str(tmp_path / name)!r}, 'w')"
        (tmp_path / "work" / f"{name}.py").write_text(f"{marker}\n")
    async with started(Python(), order) as run:
        assert await run.ended() == 0
    assert run.of("turn_ended")[0]["result"] == "unharmed"
    assert [name for name in ("json", "maos", "asyncio", "sitecustomize") if (tmp_path / name).exists()] == []


async def test_threads_may_report_at_the_same_time(tmp_path: Path) -> None:
    source = """
from concurrent.futures import ThreadPoolExecutor

def run(context):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: context.report(f"{number} " + "x" * 70000), range(40)))
"""
    async with started(Python(), order_for(tmp_path, source)) as run:
        assert await run.ended() == 0
    assert sorted(int(fact["text"].split()[0]) for fact in run.of("text")) == list(range(40))
    assert run.of("unknown") == []


async def test_half_characters_are_spelled_out(tmp_path: Path) -> None:
    source = "def run(context):\n    context.report('\\ud800 half')\n    print('\\udfff')\n    return '\\udcff'"
    async with started(Python(), order_for(tmp_path, source)) as run:
        assert await run.ended() == 0
    assert run.text() == "\\ud800 half"
    assert run.of("line")[0]["text"] == "\\udfff"
    assert run.of("turn_ended")[0]["result"] == "\\udcff"


@pytest.mark.parametrize(
    "argv", [[], ["job"], ["job:"], [":run"], ["job:run", "more"], ["../job:run"], ["job:run()"], ["-c:x"], ["a b:c"]]
)
def test_what_is_no_function_is_refused_before_the_start(argv: list[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        Python().find({}, argv)
    assert "module:function" in caught.value.hint


def test_its_order_is_in_neither_arguments_nor_environment(tmp_path: Path) -> None:
    """A16: tasks can hold secrets, and both can be read by others."""
    order = an_order(tmp_path, argv=["job:run"], task="canary")
    command = command_of(Python(), order, {"PATH": os.environ["PATH"], "PYTHONPATH": "/elsewhere"})
    assert command.argv[0] == sys.executable
    assert "canary" not in " ".join([*command.argv, *command.env.values()])
    assert "PYTHONPATH" not in command.env
    assert b"canary" in command.first_input


def test_it_has_no_transcript_and_asks_nothing(tmp_path: Path) -> None:
    order = an_order(tmp_path)
    assert Python().transcript(order, order.session) is None
    with pytest.raises(NotFound):
        Python().transcript_home(order, order.session, "x.jsonl")
    conversation = Python().converse(order)
    assert conversation.answer("1", allow=True) is None
    assert conversation.end() is None


lines = st.one_of(
    st.binary(max_size=100),
    st.dictionaries(
        st.sampled_from(["is", "text", "base64", "failure", "keyword", "python"]),
        st.one_of(
            st.sampled_from(["started", "line", "report", "discovery", "result", "failed"]),
            st.text(max_size=10),
            st.integers(),
            st.none(),
            st.lists(st.integers(), max_size=2),
        ),
    ).map(lambda message: json.dumps(message).encode()),
)


@given(st.lists(lines, max_size=5))
def test_no_line_raises_or_is_lost(given_lines: list[bytes]) -> None:
    order = an_order(Path("/"), cwd=Path("/"), argv=["job:run"])
    conversation = Python().converse(order)
    for line in given_lines:
        again = Python().converse(order, json.loads(json.dumps(dict(conversation.state()))))
        heard = conversation.hear(line, stderr=False)
        assert plain(heard.facts)
        assert again.hear(line, stderr=False) == heard
        msgspec.json.decode(msgspec.json.encode(heard.facts), type=list[facts.Fact])
        for fact in plain(heard.facts):
            if fact["kind"] == "unknown":
                assert msgspec.convert(fact, facts.Unknown).raw() == line
