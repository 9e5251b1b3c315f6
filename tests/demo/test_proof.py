"""The proof holds for what a demonstration leaves, and for nothing that was tampered with.

The journal is tampered with in two ways: crudely, which its hashes notice, and by writing all of it anew without, or
with one more of, something. Then every hash is right, and it is the comparison that must notice.
"""

import asyncio
import json
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.journal.codec import Event
from maos_demo.proof import DemoFolder, ProofVerdict, compare, prove
from maos_demo.sample import INVENTORY, ROLES
from tests.demo.conftest import Done

Change = Callable[[str, Event], Iterable[Event]]
"""What stands in a new journal in the place of one event of a stream."""


def proved(place: DemoFolder) -> ProofVerdict:
    return asyncio.run(prove(place))


def wrong(verdict: ProofVerdict) -> dict[str, tuple[int, int]]:
    """How much is lost and doubled, of what; and checks that failed."""
    found = {each.what: (len(each.lost), len(each.doubled)) for each in verdict.counts if not each.ok}
    return {**found, **{each.what: (0, 0) for each in verdict.checks if not each.ok}}


def rewrite(place: DemoFolder, change: Change) -> None:
    """Write the journal anew, event by event, with something changed; its hashes are those of what it now says."""

    async def write() -> None:
        new = place.folder / "new.db"
        async with maos.open(place.database) as old, maos.open(new) as m:
            async for stream in old.journal.streams():
                async for record in old.journal.read(stream):
                    for event in change(stream, Event(record.type, record.data)):
                        await m.journal.append(stream, event)
        for file in place.folder.glob("maos.db*"):
            file.unlink()
        for file in place.folder.glob("new.db*"):
            file.rename(file.with_name(file.name.replace("new.db", "maos.db")))

    asyncio.run(write())


class First:
    """Does something to the first event that fits, and leaves all others alone."""

    def __init__(self, prefix: str, type_: str, do: Callable[[Event], Iterable[Event]]) -> None:
        self._prefix, self._type, self._do = prefix, type_, do
        self.done = False

    def __call__(self, stream: str, event: Event) -> Iterable[Event]:
        if self.done or not stream.startswith(self._prefix) or event.type != self._type:
            return [event]
        if event.type == "attempt_output" and not any(fact["kind"] == "line" for fact in event.data["facts"]):
            return [event]
        self.done = True
        return self._do(event)


def without_a_line(event: Event) -> list[Event]:
    facts: list[dict[str, Any]] = list(event.data["facts"])
    facts.remove(next(fact for fact in facts if fact["kind"] == "line"))
    return [Event(event.type, {**event.data, "facts": facts})]


def with_a_line_twice(event: Event) -> list[Event]:
    line = next(fact for fact in event.data["facts"] if fact["kind"] == "line")
    return [Event(event.type, {**event.data, "facts": [line, *event.data["facts"]]})]


def with_one_less(event: Event) -> list[Event]:
    return [Event(event.type, {**event.data, "versions": event.data["versions"][1:]})]


def with_one_more(event: Event) -> list[Event]:
    return [event, Event(event.type, {**event.data, "versions": event.data["versions"][:1]})]


def gone(_event: Event) -> list[Event]:
    return []


def twice(event: Event) -> list[Event]:
    return [event, event]


def test_what_a_demonstration_leaves_is_proved_again(copy: DemoFolder) -> None:
    verdict = proved(copy)
    assert verdict.ok, wrong(verdict)
    assert wrong(verdict) == {}


def test_so_is_a_journal_that_was_written_anew_unchanged(copy: DemoFolder) -> None:
    """What the next tests change, and not how they change it, is what makes the proof fail."""
    rewrite(copy, lambda _stream, event: [event])
    assert proved(copy).ok


TAMPERED: list[tuple[str, str, Callable[[Event], Iterable[Event]], str, tuple[int, int]]] = [
    ("attempt/{run}.analyst", "attempt_output", without_a_line, "lines of the analyst", (1, 0)),
    ("attempt/{run}.analyst", "attempt_output", with_a_line_twice, "lines of the analyst", (0, 1)),
    ("messages/", "message_routed", gone, "messages sent, by receiver", (2, 0)),
    ("messages/", "message_routed", twice, "messages sent, by receiver", (0, 2)),
    ("inbox/{run}.tester", "message_sent", gone, "messages read", (1, 0)),
    ("inbox/{run}.tester", "message_sent", twice, "messages read", (0, 1)),
    ("acks/{run}.analyst", "message_acknowledged", with_one_more, "messages acknowledged", (0, 1)),
    ("acks/{run}.analyst", "message_acknowledged", with_one_less, "messages acknowledged", (1, 0)),
    ("run/", "question_asked", twice, "questions", (0, 1)),
    ("run/", "question_answered", gone, "answers", (1, 0)),
    ("attempt/", "attempt_started", twice, "agents started", (0, 1)),
    ("attempt/", "attempt_claimed", gone, "agents re-attached, not restarted", (0, 0)),
    ("run/", "run_claimed", gone, "engine killed, another took over", (0, 0)),
]


@pytest.mark.parametrize(
    ("prefix", "type_", "do", "what", "difference"),
    TAMPERED,
    ids=[f"{each[1]}-{each[2].__name__}" for each in TAMPERED],
)
def test_a_journal_that_says_something_else_is_noticed(
    prefix: str,
    type_: str,
    do: Callable[[Event], Iterable[Event]],
    what: str,
    difference: tuple[int, int],
    copy: DemoFolder,
) -> None:
    """R-303: one line, message, receipt or answer less or more, and nothing is proved any more."""
    change = First(prefix.format(run=copy.record().run), type_, do)
    rewrite(copy, change)
    assert change.done
    verdict = proved(copy)
    assert not verdict.ok
    assert wrong(verdict)[what] == difference, wrong(verdict)


def test_lines_that_changed_places_are_noticed(copy: DemoFolder) -> None:
    def swapped(event: Event) -> list[Event]:
        return [Event(event.type, {**event.data, "facts": list(reversed(event.data["facts"]))})]

    def change(stream: str, event: Event) -> Iterable[Event]:
        return swapped(event) if event.type == "attempt_output" else [event]

    rewrite(copy, change)
    assert wrong(proved(copy)) == {"lines in their order": (0, 0)}


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM events WHERE position = (SELECT max(position) / 2 FROM events)",
        "UPDATE events SET body = CAST(replace(CAST(body AS TEXT), 'docstring', 'dogstring') AS BLOB)",
    ],
    ids=["taken out", "changed"],
)
def test_rows_that_were_changed_or_taken_out_break_the_chain(statement: str, copy: DemoFolder) -> None:
    database = sqlite3.connect(copy.database)
    with database:
        assert database.execute(statement).rowcount > 0
    database.close()
    verdict = proved(copy)
    assert not verdict.ok
    assert {"chain of hashes whole", "journal can be read"} & set(wrong(verdict))


def commit(repository: Path) -> None:
    git = ["git", "-C", str(repository), "-c", "user.name=x", "-c", "user.email=x@localhost"]
    subprocess.run([*git, "add", "--all"], check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", "Tampered with"], check=True)


def lose_a_file(repository: Path) -> None:
    (repository / INVENTORY).unlink()


def double_a_file(repository: Path) -> None:
    shutil.copy(repository / INVENTORY, repository / "docs" / "inventory-copy.md")


def double_a_line(repository: Path) -> None:
    with (repository / INVENTORY).open("a") as file:
        file.write((repository / INVENTORY).read_text().splitlines()[-1] + "\n")


def undo_a_change(repository: Path) -> None:
    """Put the file back as it was before the last commit that changed it; each task has a commit of its own."""
    git, file = ["git", "-C", str(repository)], "till/money.py"
    last = subprocess.run([*git, "log", "-1", "--format=%H", "--", file], check=True, capture_output=True, text=True)
    subprocess.run([*git, "checkout", "--quiet", f"{last.stdout.strip()}~1", "--", file], check=True)


@pytest.mark.parametrize(
    ("tamper", "difference"),
    [(lose_a_file, (1, 0)), (double_a_file, (0, 1)), (double_a_line, (1, 1)), (undo_a_change, (1, 0))],
)
def test_files_that_are_not_as_they_were_written_are_noticed(
    tamper: Callable[[Path], None], difference: tuple[int, int], copy: DemoFolder
) -> None:
    tamper(copy.repository)
    commit(copy.repository)
    verdict = proved(copy)
    assert not verdict.ok
    assert wrong(verdict)["files, byte for byte"] == difference


def test_files_beside_the_commit_are_noticed(copy: DemoFolder) -> None:
    (copy.repository / "left-behind.txt").write_text("x")
    assert wrong(proved(copy)) == {"working tree as committed": (0, 0)}


def test_code_that_does_not_pass_its_tests_is_noticed(copy: DemoFolder) -> None:
    undo_a_change(copy.repository)
    commit(copy.repository)
    assert "merged code passes its tests" in wrong(proved(copy))


def test_an_agent_that_printed_one_line_more_is_noticed(copy: DemoFolder) -> None:
    """As if its last line had never reached the journal."""
    with (copy.notes / "tester.jsonl").open("a") as file:
        file.write(json.dumps({"line": "999 is this thing on?"}) + "\n")
    assert wrong(proved(copy))["lines of the tester"] == (1, 0)


def test_an_agent_that_was_started_twice_is_noticed(copy: DemoFolder) -> None:
    with (copy.notes / "tester.jsonl").open("a") as file:
        file.write(json.dumps({"began": 1}) + "\n")
    assert wrong(proved(copy))["agents started"] == (1, 0)


def test_an_engine_that_was_not_killed_proves_nothing(copy: DemoFolder) -> None:
    record = copy.record()
    record.engines[0].status = 0
    copy.keep(record)
    assert wrong(proved(copy)) == {"engine killed, another took over": (0, 0)}


def test_nothing_is_not_a_proof(copy: DemoFolder) -> None:
    """No notes and no run: both sides agree, and that means nothing."""
    assert not compare("lines", "journal", [], []).ok
    assert compare("lines", "journal", ["a"], ["a"]).ok
    for name in ROLES:
        (copy.notes / f"{name}.jsonl").unlink()
    for file in copy.folder.glob("maos.db*"):
        file.unlink()

    async def make() -> None:
        await (await maos.open(copy.database)).close()

    asyncio.run(make())
    assert not proved(copy).ok


def test_the_counts_are_those_of_the_whole_demonstration(done: Done) -> None:
    counts = {each["what"]: each["noted"] for each in done.told["counts"]}
    assert min(counts[f"lines of the {name}"] for name in ROLES) > 20
    assert counts["messages sent, by receiver"] > 20
    assert counts["questions"] == counts["answers"] == 1
    assert counts["agents started"] == len(ROLES)
    assert counts["files, byte for byte"] == 6
