"""A scripted agent of the page's tests: a plain command that executes the steps it is given as JSON, one by one.

say TEXT · write [PATH, TEXT] · found TEXT · send [TO, TEXT] · ask {question, choices, context} · sleep SECONDS
leak [PATH, TEXT] (says and writes a secret, which stands backwards in the plan: it may not have one)
long BYTES (prints one line of so many) · until PATH (waits for a file) · fail TEXT
"""

import json
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any


@cache
def tools() -> Any:
    from maos_demo.agents import ToolClient  # most steps need none, and start without it in half the time

    return ToolClient()


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def write(step: list[str]) -> None:
    path, text = step
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")
    say(f"wrote {path}")


def found(text: str) -> None:
    say(f"found: {text}")
    tools().call("report_discovery", text=text, keyword="found")


def send(step: list[str]) -> None:
    to, text = step
    tools().call("send_message", to=to, text=text)
    say(f"told {to}: {text}")


def ask(step: dict[str, object]) -> None:
    say(f"asks: {step['question']}")
    say(tools().call("ask_person", **{"wait_s": 100, **step}))


def leak(step: list[str]) -> None:
    path, backwards = step
    secret = backwards[::-1]
    say(f"the token is {secret}")
    write([path, f"one\ntwo\ntoken: {secret}\n"])


def long(size: int) -> None:
    for _ in range(size // (1 << 20)):
        sys.stdout.write("x" * (1 << 20))
    say("")


def until(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.02)


def fail(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    raise SystemExit(1)


STEPS = {
    "say": say, "write": write, "found": found, "send": send, "ask": ask, "sleep": time.sleep,
    "leak": leak, "long": long, "until": until, "fail": fail,
}  # fmt: skip

if __name__ == "__main__":
    for each in json.loads(sys.argv[1]):
        ((name, value),) = each.items()
        STEPS[name](value)
