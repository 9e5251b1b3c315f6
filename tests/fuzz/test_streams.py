"""A20: what agents print, mutated: the worst is a marked, bounded record and a clear failure of that one attempt."""

import json
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from maos.agents import kinds
from maos.cli import words
from maos.cli.render import clean
from maos.engine import attempt_spec
from maos.engine.streams import TYPES
from maos.journal.codec import Codec
from maos.journal.dictionary import Dictionaries
from maos.model.attempt import Attempt, restoration
from maos.model.events.attempt import AttemptOutput
from maos.model.events.facts import Fact
from maos.model.failure import Ending, understand
from maos.workspaces import Workspace
from tests.agents.driving import an_order
from tests.fuzz.mutation import CASES, as_json, hang_is_noticed, mutate_bytes, mutate_value

RECORDED = Path(__file__).parents[1] / "agents" / "recorded"
CODEC = Codec(TYPES, Dictionaries())
ENDINGS = (Ending(exit_code=0), Ending(exit_code=1), Ending(signal=9), Ending(unanswered=True, exit_code=0))
DIALECTS = {"claude": "claude", "codex": "codex", "acp": "acp:agent", "python": "python"}
PYTHON = [
    {"is": "started", "python": "3.11.7"}, {"is": "line", "text": "hello"}, {"is": "line", "base64": "aGVsbG8="},
    {"is": "report", "text": "half"}, {"is": "discovery", "keyword": "found", "text": "it"},
    {"is": "failed", "failure": "failed", "text": "no"}, {"is": "result", "text": "1"},
]  # fmt: skip


def recordings(kind: str) -> Sequence[list[bytes]]:
    """What real programs have printed, by line."""
    if kind == "python":
        return [[as_json(each) for each in PYTHON]]
    return [path.read_bytes().splitlines() for path in sorted((RECORDED / kind).glob("*.jsonl"))]


def mutate(lines: list[bytes], chance: random.Random) -> list[bytes]:
    """A stream with some of its lines changed, doubled, or in another order."""
    found = list(lines)
    for _ in range(chance.randint(1, 5)):
        at = chance.randrange(len(found))
        match chance.randrange(6):
            case 0:
                found[at] = mutate_bytes(found[at], chance).replace(b"\n", b" ")
            case 1:
                found.insert(at, found[chance.randrange(len(found))])
            case 2 if len(found) > 1:
                del found[at]
            case _:
                try:
                    found[at] = as_json(mutate_value(json.loads(found[at]), chance))
                except (ValueError, RecursionError):  # it was changed before
                    continue
    return found


def record(kind: str, lines: Sequence[bytes]) -> Attempt:
    """Interpret, encode, decode, fold and print a stream as an engine and a terminal do."""
    dialect = kinds.dialect(DIALECTS[kind])
    order = an_order(Path("/"), argv=["agent"])
    conversation = dialect.converse(order)
    attempt = Attempt(id="tester.1")
    workspace = Workspace("tester", Path("/"), Path("/"), None, None, None)
    planned = attempt_spec.plan(order, DIALECTS[kind], "t", time_limit_s=1.0, workspace=workspace)
    attempt.apply(planned)
    heard: list[Fact] = []
    for number, line in enumerate(lines):
        found = conversation.hear(line, stderr=number % 17 == 3)
        state = dict(conversation.state())
        event = AttemptOutput(offset=number, at_us=number, facts=list(found.facts), conversation=state)
        kind_of_event, body = CODEC.plain(event)
        stored = kind_of_event.decode(body)
        assert isinstance(stored, AttemptOutput)
        attempt.apply(stored)
        conversation = dialect.converse(order, stored.conversation)  # another engine takes over
        heard += stored.facts
        for fact in stored.facts:
            said: list[tuple[str, str]] = [*words.of_fact(fact.data, 80)]
            said += [notable] if (notable := words.notable("tester", fact.data)) else []
            assert all("\x1b" not in clean(text) for text, _style in said)
    heard += conversation.rest()
    for ending in ENDINGS:
        understand(ending, heard)
    restoration(attempt, remembers=False, messages=[])
    return attempt


@pytest.mark.parametrize("kind", DIALECTS)
def test_whatever_an_agent_prints_is_recorded(kind: str) -> None:
    seed = int(os.environ.get("MAOS_SEED", random.randrange(10**9)))
    print("MAOS_SEED", seed)
    streams = recordings(kind)
    changed = 0
    for number in range(CASES):
        chance = random.Random(seed + number)
        lines = chance.choice(streams)
        mutated = mutate(lines, chance)
        changed += mutated != lines
        try:
            with hang_is_noticed(seed + number):
                record(kind, mutated)
        except BaseException as error:
            raise AssertionError(f"seed {seed + number}: {type(error).__name__}: {error}") from error
    assert changed > CASES // 2


def test_the_recordings_are_understood_as_they_are() -> None:
    """What is mutated is what real programs print."""
    results: dict[str, Any] = {kind: [record(kind, lines) for lines in recordings(kind)] for kind in DIALECTS}
    assert all(any(each.session for each in found) for kind, found in results.items() if kind != "python")
