"""`maos message`: what was said, by whom, and whether it was delivered."""

import asyncio
import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import maos
from tests.cli.conftest import HOSTILE, WAIT_S_MAX, Invoke


def sent_by(db: Path, *names: str) -> None:
    """A small conversation: one message acknowledged, one waiting, one dead."""

    async def talk() -> None:
        async with maos.open(db) as m:
            await m.bus.send("a", "b", "one", type="request", run="r-1")
            await m.bus.send("b", "a", "two\nlines", type="response", run="r-1")
            await m.bus.send("a", "b", "three", metadata={"line": 7})
            async with m.bus.receive("b") as receiver:
                await (await anext(receiver)).ack()
                await (await anext(receiver)).reject("not for me")

    asyncio.run(talk())


def test_messages_are_listed_with_their_delivery(no_db: Path, invoke: Invoke) -> None:
    """R-303: by run, agent, type and time."""
    sent_by(no_db)
    shown = invoke("message", "list").stdout
    assert re.sub(r"m-[\w-]+|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "#", shown) == (
        "#  a → b  request  #\n    one\n"
        "#  b → a  response  waiting  #\n    two\n    … 1 more line (--full shows them)\n"
        "#  a → b  info  dead  #\n    three\n"
    )

    def texts(*options: str) -> list[str]:
        lines = invoke("message", "list", "--json", *options).stdout.splitlines()
        return [json.loads(line)["text"] for line in lines]

    assert texts() == ["one", "two\nlines", "three"]
    assert texts("--run", "r-1", "--type", "response") == ["two\nlines"]
    assert texts("--agent", "b", "--last", "1") == ["three"]
    assert texts("--since", "1h") == ["one", "two\nlines", "three"]
    assert texts("--since", "2020-01-01") != []
    assert texts("--before", "1h") == []
    assert texts("--since", "1h", "--before", "2100-01-01", "--agent", "b", "--last", "1") == ["three"]
    assert texts("--run", "r-2") == []
    assert json.loads(invoke("message", "list", "--json").stdout.splitlines()[2])["receivers"] == {"b": "dead"}
    assert "    lines\n" in invoke("message", "list", "--full").stdout
    assert "2 earlier not shown" in invoke("message", "list", "--last", "1").stdout


def test_messages_are_sent_to_one_to_a_topic_and_to_nobody(db: Path, invoke: Invoke) -> None:
    """R-301."""
    assert " for fixer" in invoke("message", "send", "fixer", "hello", "--type", "request", "--ttl", "2h").stdout
    assert " for no receivers" in invoke("message", "send", "--topic", "news", "hello").stdout
    assert " for no receivers" in invoke("message", "send", "--all", "r-1", "hello").stdout
    piped = invoke("message", "send", "fixer", "-", "--json", "--metadata", '{"a": 1}', stdin="from a pipe\n")
    assert json.loads(piped.stdout)["to"] == ["fixer"]

    async def waiting() -> list[tuple[str, str, dict[str, int]]]:
        async with maos.open(db) as m:
            found = [each.message async for each in m.bus.waiting("fixer")]
            return [(each.sender, each.text, dict(each.metadata)) for each in found]

    assert asyncio.run(waiting()) == [("person", "hello", {}), ("person", "from a pipe", {"a": 1})]
    assert invoke("message", "send", "fixer", " ").exit_code == 2
    assert invoke("message", "send", "--topic", "--all", "x", "y").exit_code == 2


def test_dead_letters_are_listed_and_sent_again(no_db: Path, invoke: Invoke) -> None:
    sent_by(no_db)
    assert re.search(r"^b +2 .* a +not for me +three$", invoke("message", "dead").stdout, re.MULTILINE)
    [letter] = json.loads(invoke("message", "dead", "--json").stdout)["letters"]
    assert (letter["agent"], letter["number"], letter["why"], letter["tries"]) == ("b", 2, "not for me", 1)
    assert invoke("message", "dead", "--again", "2").exit_code == 2
    assert "requeued dead letter 2 for b" in invoke("message", "dead", "--agent", "b", "--again", "2").stdout
    assert invoke("message", "dead", "--agent", "b", "--again", "2").exit_code == 3
    assert invoke("message", "dead").stdout == "no dead letters\n"
    assert invoke("messages", "dead").stdout == "no dead letters\n"


def test_what_agents_write_does_not_steer_the_terminal(db: Path, invoke: Invoke) -> None:
    """A14."""
    assert invoke("message", "send", "b", HOSTILE, "--sender", "[bold]evil[/bold]").exit_code == 0
    shown = invoke("message", "list").stdout + invoke("message", "list", "--full").stdout
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "[bold]evil[/bold]" in shown


def test_new_messages_are_followed(db: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "maos", "message", "list", "-f", "--json"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    guard = threading.Timer(WAIT_S_MAX, process.kill)
    guard.start()
    try:

        async def talk() -> str:
            async with maos.open(db) as m:
                await m.bus.send("a", "b", "news")
                assert process.stdout is not None
                return await asyncio.to_thread(process.stdout.readline)

        assert json.loads(asyncio.run(talk()))["text"] == "news"
    finally:
        guard.cancel()
        process.kill()
        process.wait()
        process.stdout.close()
