"""How it stands with runs: what the journal says of them, and whether the processes it speaks of still live."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from maos.cli import ids
from maos.cli.agent.standing import is_unattended
from maos.errors import InvalidInput, NotFound
from maos.model.attempt import inbox

if TYPE_CHECKING:
    from collections.abc import Mapping

    from maos.app import Maos
    from maos.bus.history import SentMessage
    from maos.engine.questions import Open
    from maos.model.attempt import Attempt
    from maos.model.run import Run
    from maos.model.run_status import PendingCommands, SupervisorStatus

STYLES = {
    "initializing": "dim", "idle": "dim", "working": "green", "waiting_for_user": "bold yellow",
    "waiting_for_tasks": "yellow", "blocked": "bold red", "completed": "", "failed": "red", "interrupted": "bold red",
}  # fmt: skip

ID = "r-"
"""How the ids of runs begin; it may be left out."""


class RunStanding(NamedTuple):
    """A run as it is now."""

    run: Run
    attempts: Mapping[str, Attempt]
    """The newest attempt of each agent that is at work."""
    wishes: PendingCommands
    questions: list[Open]
    """What it and its agents ask a person."""
    now: SupervisorStatus
    messages: int
    at_us: int
    permanent: str | None = None
    """Why no cleanup ever takes anything of it; None when one may."""

    @property
    def go_on(self) -> str:
        """The command that goes on with it; nothing when it is done, or runs."""
        return f"maos resume {self.run.id}" if self.now.state in RESUMABLE else ""

    @property
    def duration_us(self) -> int:
        """How long it took, or takes until now."""
        runs_on = self.run.status in ("planning", "running") and self.now.state != "interrupted"
        until_us = self.run.ended_us or (self.at_us if runs_on else self.run.updated_us)
        return max(0, until_us - self.run.created_us)


RESUMABLE = ("interrupted", "idle", "failed", "blocked")


async def find(m: Maos, given: str) -> Run:
    """A run by its id, or by an unambiguous beginning of it, with or without `r-`."""
    if not given.removeprefix(ID):
        raise InvalidInput(f"{given!r} names no orchestration", hint="`maos orchestration list` shows them")
    found = await ids.meant(m.journal, given, ids.RUN)
    if found is None and not given.startswith(ID):
        found = await ids.meant(m.journal, ID + given, ids.RUN)
    return await m.runs.get(found.id if found else given)


async def of_run(m: Maos, run: Run) -> RunStanding:
    """How it stands with one run."""
    from maos.engine import questions

    attempts = await at_work(m, run)
    wishes = await questions.wishes_of(m.journal, run)
    asked = questions.of_run(run, wishes)
    for each in attempts.values():
        asked += await questions.of_agent(m.journal, each)
    return await put_together(m, run, attempts, wishes, asked)


async def put_together(
    m: Maos, run: Run, attempts: Mapping[str, Attempt], wishes: PendingCommands, asked: list[Open]
) -> RunStanding:
    """How it stands, from what was read."""
    from maos.clock import SystemClock
    from maos.engine import cleanup
    from maos.model.message import history
    from maos.model.run_status import status_of

    at_us = SystemClock().now_us()
    lives = not (run.is_open and is_unattended(run.owner))
    now = status_of(run, attempts, wishes, lives=lives, now_us=at_us)
    messages = await m.journal.version(history(run.id))
    return RunStanding(
        run, attempts, wishes, asked, now, messages, at_us, (await cleanup.pinned(m.journal)).get(run.id)
    )


async def of_past(m: Maos, run: Run, at: str) -> tuple[RunStanding, list[SentMessage]]:
    """How it stood with a run at a moment, and what its agents had told each other."""
    from maos.bus.history import SentMessage
    from maos.cli.orchestration import choosing
    from maos.engine import questions
    from maos.model.message import history, message
    from maos.model.run_status import agents_of, pending_commands, status_of
    from maos.travel import points_in_time
    from maos.travel.branches import newest_at

    moment = await choosing.moment(m, run, at)
    then = await points_in_time.run_at(m.journal, moment)
    attempts = {}
    for agent in (each for task in then.tasks.values() if then.is_open for each in agents_of(then, task)):
        found = await newest_at(m.journal, agent, moment.position)
        if found is not None:
            attempts[agent] = found
    waiting = m.journal.read(inbox(run.id), after=then.inbox_cursor)
    known = pending_commands(
        then, [(each.type, each.data) async for each in waiting if each.position <= moment.position]
    )
    asked = questions.of_run(then, known)
    for each in attempts.values():
        asked += questions.of_attempt(each)
    said = [
        SentMessage(each.position, message(each.data))
        async for each in m.journal.read(history(run.id))
        if each.position <= moment.position
    ]
    now = status_of(then, attempts, known, lives=True, now_us=moment.time_us)
    return RunStanding(then, attempts, known, asked, now, len(said), moment.time_us), said


async def at_work(m: Maos, run: Run) -> dict[str, Attempt]:
    """The newest attempt of each agent that works, or did when the run was paused."""
    from maos.model.run_status import agents_of

    found = {}
    for task in run.tasks.values() if run.is_open else ():
        for agent in agents_of(run, task):
            try:
                found[agent] = await m.attempts.get(agent)
            except NotFound:
                pass  # recorded as begun, and not begun yet
    return found


async def everything(m: Maos) -> list[RunStanding]:
    """All runs, those that may go on first, and then the newest first."""
    found = [await of_run(m, run) async for run in m.runs.all()]
    return sorted(found, key=lambda each: (not each.run.is_open, -each.run.created_us))
