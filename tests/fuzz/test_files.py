"""A20: files that people write, mutated: each is accepted, or refused with a message. No traceback, no hang."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.cli.failures import report_error
from maos.cli.permissions import RULES as LISTING
from maos.engine import permissions
from maos.model.permission import ToolRequest
from maos.plans import parser, source
from maos.runs import agent_types, plan_input
from maos.settings import SettingsSource, loader
from tests.fuzz.mutation import CASES, as_json, hang_is_noticed, mutate_bytes, mutate_value
from tests.fuzz.test_streams import DIALECTS

PLAN: dict[str, Any] = {
    "version": 1, "name": "ship", "request": "ship it", "summary": "three steps", "concurrency": 2,
    "conflicts": "agent",
    "variables": {"target": "eu", "n": 3, "f": 1.5, "b": True},
    "tasks": [
        {"name": "build", "command": "make {{ target }}", "time_limit_s": 60, "priority": 1, "mcp": True},
        {"name": "test", "task": "test {{ matrix.os }}", "matrix": {"os": ["a", "b"], "v": [1, 2.5]},
         "needs": ["build"], "gates": [{"command": ["true"]}, {"person": "good?"}, {"review": "look"}],
         "agent": "developer"},
        {"name": "fn", "python": "m:f", "with": {"a": [1, {"b": None}]}, "needs": "test", "budget_usd": 0.5,
         "tokens_max": 1000, "kind": "claude", "model": "m", "tools": ["Read", "Bash(git *)"]},
    ],
}  # fmt: skip
YAML = b"""# a plan
version: 1
name: ship
variables: {target: eu, n: 3}
tasks:
  - &one
    name: build
    command: make {{ target }}
    priority: 0x10
  - name: test
    task: |
      several
      lines of {{ n }}
    needs: [build]
    matrix: {os: [a, b]}
    gates:
      - person: "good?"
  - name: fn
    python: m:f
    with: {a: [1, ~, 2.5], b: "text"}
"""
TOML = b"""# a plan
request = "ship it"
[variables]
target = "eu"
when = 2026-01-01T00:00:00Z
[[tasks]]
name = "build"
command = ["make", "{{ target }}"]
time_limit_s = 1.5
[[tasks]]
name = "test"
task = '''
several
lines'''
needs = ["build"]
[[tasks.gates]]
person = "good?"
"""
TYPE = b"""---
name: reviewer
description: Reads, and says what is wrong
kind: claude
model: opus
tools: [Read, Grep, "Bash(git diff *)"]
permission: ask
time_limit: 20m
budget_usd: 0.5
tokens_max: 1000
turns_max: 5
---
You are a reviewer.
"""
OWN_SETTINGS = b"""
[notify]
urls = ["json://localhost/x"]
[prices.of."model-x"]
input = 1.5
output = 7
[cleanup.of.failed]
older_than_days = 3
"""
SETTINGS = b"""version = 1
[database]
path = "maos.db"
[orchestrate]
kind = "claude"
concurrency = 4
time_limit_s = 600.0
[budget]
cost_usd = 5
[discovery]
keywords = ["found:", "note:"]
"""

RULES = b"""# What agents may do in your projects
[[rules]]
id = "rule-3fa2c1"
project = "/home/me/shop"
rule = "Bash(pytest *)"
allow = true
by = "me@here"
at_us = 1794816000000000
[[rules]]
id = "rule-3fa2c2"
project = "/home/me/shop"
rule = "Bash(=git push && make 'x y')"
allow = false
[[rules]]
id = "rule-3fa2c3"
project = "/home/me/shop"
rule = "mcp__maos"
"""
REQUESTS = [
    ToolRequest("Bash", "pytest -q tests"), ToolRequest("Bash", "pytest; rm -rf /"), ToolRequest("mcp__maos__x"),
    ToolRequest("Bash", "git push && make 'x y'"), ToolRequest("WebFetch"),
]  # fmt: skip


def parse(format: str, text: bytes) -> None:
    found = source.receive(_Bytes(text), f"plan.{format}")
    plan_input.validate(found, TYPES)
    parser.to_source(parser.parse(found).plan, "again")


class _Bytes:
    """A stream that brings a text."""

    def __init__(self, text: bytes) -> None:
        self._text = text

    def read(self, count: int) -> bytes:
        return self._text[:count]


TYPES = {name: agent_types.read(agent_types.SHIPPED / f"{name}.md") for name in ("developer",)}


def data(chance: random.Random) -> bytes:
    value: Any = PLAN
    for _ in range(chance.randint(1, 3)):
        value = mutate_value(value, chance)
    return as_json(value)


def check_type(text: bytes) -> None:
    agent_types.parse(text.decode("utf-8", "surrogateescape"), name="reviewer", source="reviewer.md")


def check_settings(text: bytes, is_project: bool) -> None:
    found = loader.check(text.decode("utf-8", "replace"), SettingsSource(Path("/x/maos.toml"), is_project))
    if found.problems:
        raise loader.BadSettings(found.problems)


def check_rules(text: bytes) -> None:
    path = permissions.rules_file()
    path.touch(0o600)
    path.write_bytes(text)
    rules = permissions.of_projects()
    for asked in REQUESTS:
        permissions.decide(rules, asked)
    LISTING.show(rules, as_json=True)
    LISTING.show(rules, as_json=False)


KINDS: dict[str, tuple[Callable[[random.Random], bytes], Callable[[bytes], None]]] = {
    "plan as data": (data, lambda text: parse("json", text)),
    "JSON plan": (lambda chance: mutate_bytes(json.dumps(PLAN).encode(), chance), lambda text: parse("json", text)),
    "YAML plan": (lambda chance: mutate_bytes(YAML, chance), lambda text: parse("yaml", text)),
    "TOML plan": (lambda chance: mutate_bytes(TOML, chance), lambda text: parse("toml", text)),
    "type of agent": (lambda chance: mutate_bytes(TYPE, chance), check_type),
    "settings of a project": (lambda chance: mutate_bytes(SETTINGS, chance), lambda text: check_settings(text, True)),
    "own settings": (
        lambda chance: mutate_bytes(SETTINGS + OWN_SETTINGS, chance),
        lambda text: check_settings(text, False),
    ),
    "rules of permissions": (lambda chance: mutate_bytes(RULES, chance), check_rules),
}


def test_there_are_ten_thousand_cases() -> None:
    """With those of test_streams, in `make test`; `make test-soak` has more."""
    assert CASES * (len(KINDS) + len(DIALECTS)) >= 10_000 or "MAOS_FUZZ_CASES" in os.environ


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_accepted_or_refused_with_a_message(
    kind: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate, check = KINDS[kind]
    monkeypatch.setenv("MAOS_HOME", str(tmp_path))
    seed = int(os.environ.get("MAOS_SEED", random.randrange(10**9)))
    print("MAOS_SEED", seed)
    accepted = 0
    for number in range(CASES):
        text = mutate(random.Random(seed + number))
        try:
            with hang_is_noticed(text[:2000]):
                check(text)
            accepted += 1
        except maos.MaosError as error:
            report_error(error)
        except BaseException as error:
            raise AssertionError(f"seed {seed + number}: {type(error).__name__} for {text[:2000]!r}") from error
    assert 0 < accepted < CASES, "the mutations are too wild, or too tame"
    assert "Traceback" not in capsys.readouterr().err
