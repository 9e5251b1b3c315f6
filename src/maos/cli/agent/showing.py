"""`maos agent show`: everything that is known of an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import documents as shared
from maos.cli.agent import documents, names, standing, summary, words
from maos.cli.commands import LazyCommand, agent_argument, full_option, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.plain import clean

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.cli.agent.standing import AgentStanding
    from maos.cli.documents import Document
    from maos.model.attempt import Attempt

LABEL_WIDTH = 12
SHOWN_MAX = 10


@click.command(cls=LazyCommand, examples=["maos agent show nightly", "maos agent show nightly --json"])
@agent_argument
@full_option
@json_option
@click.pass_obj
def show(database: DatabaseTarget, agent: str, full: bool, as_json: bool) -> None:
    """Show everything that is known of an agent.

    Its attempts, what it does and waits for, why it failed and what to do about it, tools of which nobody knows whether
    they took effect, its files and checkpoints, and what it cost.
    """

    async def work(m: Maos) -> tuple[AgentStanding, list[Attempt], list[Document] | None]:
        attempts = await m.attempts.history(await names.find(m, agent))
        return standing.of_attempts(attempts), attempts, await summary.files(attempts[-1])

    now, attempts, files = database.read(work)
    if as_json:
        shared.show(documents.whole(now, attempts, files))
        return
    _Page(full=full).show(now, attempts, files)


class _Page:
    """The page about one agent."""

    def __init__(self, *, full: bool) -> None:
        self._full = full

    def show(self, now: AgentStanding, attempts: list[Attempt], files: list[Document] | None) -> None:
        attempt = now.attempt
        self._heading(now)
        self._field("task", attempt.task)
        self._field("doing", attempt.activity if attempt.is_open else "")
        self._field("result", "" if attempt.is_open else attempt.result or attempt.last_text)
        self._trouble(now)
        self._waiting(attempt)
        self._place(attempt, files)
        self._list("found", [f"{each.get('keyword', '')}: {each.get('text', '')}" for each in attempt.discoveries])
        self._checkpoints(attempts)
        self._attempts(attempts)
        self._field("took", " · ".join([*_counts(attempt), *summary.figures(now)]))

    def _heading(self, now: AgentStanding) -> None:
        from maos.cli import render

        attempt = now.attempt
        by = f" with {attempt.model}" if attempt.model else ""
        since = attempt.ended_us or attempt.started_us or attempt.planned_us
        render.line(
            (clean(attempt.agent), "bold"), f"  {clean(attempt.kind)}{clean(by)}  ",
            (now.status, standing.STYLES.get(now.status, "")), f" since {render.when(since)}",
        )  # fmt: skip
        if now.status in standing.MEANINGS:
            self._field("", standing.MEANINGS[now.status])
        self._field("to go on", now.go_on)

    def _trouble(self, now: AgentStanding) -> None:
        attempt = now.attempt
        if attempt.status == "failed":
            self._field("failed", words.ending(_ended(attempt)).partition(": ")[2])
            self._field("to do", summary.hint(attempt))
            if attempt.reset_us:
                self._field("not before", words.when(attempt.reset_us))
        self._list("unknown", [f"{each} (may have taken effect)" for each in summary.tools_unknown(attempt)])

    def _waiting(self, attempt: Attempt) -> None:
        for id, asked in attempt.permissions.items():
            if "answer" not in asked:
                self._field("asks", f"{words.tool(asked.get('tool', ''), asked.get('input'))}")
                self._field("", f"maos agent answer {attempt.agent} {id} yes|no")

    def _place(self, attempt: Attempt, files: list[Document] | None) -> None:
        if attempt.is_open:
            owner = attempt.owner
            self._field("processes", f"agent {attempt.pid}, recorded by {owner.get('pid')} on {owner.get('host')}")
        self._field("works in", str(attempt.order.get("cwd", "")))
        for line in summary.changes(attempt, files):
            self._field("", line.strip())
        self._field("session", attempt.session if attempt.kind != "shell" else "")

    def _checkpoints(self, attempts: list[Attempt]) -> None:
        rows = [
            f"{point.name}  {words.when(point.at_us)}  {point.commit[:12] if point.commit else 'no files saved'}"
            for each in attempts
            for point in each.checkpoints
        ]
        self._list("checkpoints", rows[::-1])

    def _attempts(self, attempts: list[Attempt]) -> None:
        if len(attempts) > 1:
            rows = [
                f"{each.number}  {words.when(each.started_us or each.planned_us)}  {words.ending(_ended(each))}"
                for each in attempts
            ]
            self._list("attempts", rows[::-1])

    def _list(self, label: str, rows: list[str]) -> None:
        shown = rows if self._full else rows[:SHOWN_MAX]
        for index, row in enumerate(shown):
            self._field(label if index == 0 else "", row)
        if len(rows) > len(shown):
            self._field("", f"… and {len(rows) - len(shown)} more (--full shows all)")

    def _field(self, label: str, text: str) -> None:
        from maos.cli import render

        if not text:
            return
        room = None if self._full else render.room_for_value(LABEL_WIDTH + 2)
        render.line((f"{label:<{LABEL_WIDTH}}  ", "dim"), words.one_line(text, room))


def _ended(attempt: Attempt) -> dict[str, str]:
    return {"status": attempt.status, "failure": attempt.failure, "message": attempt.message}


def _counts(attempt: Attempt) -> list[str]:
    from maos.cli import render

    until_us = attempt.ended_us or attempt.output_us
    counted = (
        (attempt.turns, "turn"), (attempt.tools_done, "tool call"), (attempt.lines, "line"),
        (attempt.retries, "retry", "retries"),
    )  # fmt: skip
    took = words.duration((until_us - attempt.started_us) / 1e6) if attempt.started_us and until_us else ""
    return [each for each in (took, *(render.many(*each) for each in counted if each[0])) if each]
