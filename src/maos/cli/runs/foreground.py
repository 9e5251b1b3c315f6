"""A run in the foreground: executed by this process and rendered as it happens, until it ends, is paused or detached.

Ctrl+C pauses the run: its agents are stopped, and everything is recorded. A second one, a closed terminal or a reader
that has exited only detach: the agents keep running until a process resumes the run.
"""

from __future__ import annotations

import asyncio
import errno
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from maos.app import Maos
from maos.cli import documents, render, words
from maos.cli.database import ask
from maos.cli.failures import CONFLICT, INTERRUPTED, SIGNALLED, note
from maos.cli.input import cancel, heard
from maos.cli.render import clean
from maos.cli.runs import page
from maos.cli.runs.live import EDIT, LiveRun, LiveView, prompt_of
from maos.cli.runs.plans import show_acts
from maos.errors import LeaseLost, MaosError
from maos.files import write_private
from maos.model.plan import BadPlan
from maos.model.question import PLAN, Open
from maos.model.run import Run
from maos.runs.consent import Act
from maos.runs.feed import Observer
from maos.runs.file_changes import CHANGED, SAME, Look, look, ways
from maos.runs.plan_input import Addition
from maos.runs.results import Next
from maos.runs.status import is_executing, is_interrupted
from maos.travel.relocation import Moved

PAUSING = "pausing: the agents are being stopped; press Ctrl+C again to detach from them instead"
SAID = {
    "kept": "done; will not run again",
    "taken_up": "agent still running; will attach",
    "recorded": "agent finished; will record that",
    "resumed": "will resume",
    "checked": "will run its checks",
    "begun": "not started",
}


class Dialogue(Observer):
    """Reports what resuming a run does, and asks a person what must be asked."""

    def __init__(self, on_change: str, *, trust: bool, as_json: bool) -> None:
        self._on_change = on_change
        self._trust = trust
        self._as_json = as_json

    async def agree(self, run: Run, acts: Sequence[Act]) -> bool:
        """Whether a person agrees to what an imported run would start here."""
        if not self._as_json:
            show_acts(run.id, acts)
        if not self._trust and not self._as_json and sys.stdin is not None and sys.stdin.isatty():
            ask(f"{run.id} came with a file. Do all of this, in {run.folder}?")
            return True
        return self._trust

    def moved(self, moved: Moved) -> None:
        """Report that the run works in another folder from now on."""
        _show_moved(moved, as_json=self._as_json, dry_run=False)

    def definition_changed(self, run: Run, change: object) -> None:
        """Report that the plan file of the run has changed since."""
        assert isinstance(change, Look)
        if self._as_json:
            found = page.look_document(change, self._on_change)
            documents.show_line({"kind": "workflow_changed", "run": run.id, **found})
        elif self._on_change == "replay":
            note(f"resumed with {change.origin.file} as it is now")
            for line in _changed_tasks(change):
                click.echo(f"  {clean(line)}", err=True)
        else:
            note(f"{change.describe(run)}; it is resumed with the file as it was ({ways(run)})")


class ForegroundRun:
    """One run that this process executes, with the options that the command was given."""

    def __init__(self, m: Maos, run: Run, given: Mapping[str, Any]) -> None:
        self._m = m
        self._id = run.id
        self._summary = given["summary"]
        """A file for the summary as Markdown, if one is wanted."""
        self._view = LiveView(run, as_json=given["as_json"])
        self._run = LiveRun(m, self._view, given["notify"])
        is_person = sys.stdin is not None and sys.stdin.isatty()
        self._terminal = self._view.terminal if is_person else None
        """Where a person answers questions."""
        self._question: Open | None = None
        """The question at the prompt."""
        self._skipped: set[str] = set()
        """Questions that the person left to others."""
        self._is_unapproved = False
        """Whether the run is paused because no person could approve its plan here."""
        self._interrupts = 0
        self._signal = 0

    async def execute(self) -> int:
        """Execute the claimed run until it ends, is paused, or a signal detaches this process; return the exit code."""
        introduce(self._view, self._view.run)
        showing = asyncio.create_task(self._view.show())
        showing.add_done_callback(lambda _task: self._run.changed.set())
        answering = asyncio.create_task(self._answer())
        with heard(interrupted=self._interrupt, sent_away=self._leave):
            try:
                await self._run.execute(self._id)
                await self._show_open()
                while not (self._run.is_over or self._signal or showing.done()):
                    self._ask()
                    await self._pause_unapproved()
                    await self._run.wait()
                if not self._run.is_over:
                    return await self._detach(showing)
                run = await self._run.ended()
                assert run is not None
                await cancel(showing)
                found = await self._m.runs.summary(run)
                if self._summary:
                    await asyncio.to_thread(write_private, Path(self._summary), page.markdown(found))
                await self._view.show_summary(found)
                await self._view.close()
                return INTERRUPTED if self._interrupts else page.exit_code(run)
            except LeaseLost:
                again = f"`maos status {self._id} --watch` watches it"
                note(f"{self._id}: another engine has taken it over, and this one has stopped; {again}")
                return CONFLICT
            except OSError as error:
                if error.errno == errno.EIO:  # the terminal was closed
                    return SIGNALLED + signal.SIGHUP
                raise
            finally:
                await self._run.detach()
                await cancel(showing, answering)
                with suppress(OSError):
                    await self._view.close()

    async def _detach(self, showing: asyncio.Task[None]) -> int:
        """Say how to attach again; the caller closes what is open, and the agents keep running."""
        again = f"maos resume {self._id}"
        text = f"its agents keep running; `{again}` attaches to them again"
        if showing.done():
            if not self._view.as_json:
                note(f"{self._id}: {text}")
            showing.result()  # the reader of the output has exited
        await cancel(showing)
        self._view.emit({"kind": "let_go", "run": self._id, "resumable": again})
        self._view.report(text)
        try:
            await self._view.close()
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
        return SIGNALLED + self._signal

    # --- questions -------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Ask the first open question; drop what was typed for one that was answered elsewhere."""
        if self._terminal is None:
            return
        found = [each for each in self._run.questions if each.ref not in self._skipped]
        current = next((each for each in found if self._question and each.ref == self._question.ref), None)
        if current is None:
            self._terminal.ask(None)
            self._terminal.drop()
            current = found[0] if found else None
        self._question = current
        if current is not None:
            self._terminal.ask(prompt_of(self._id, current, len(found) - 1))

    async def _show_open(self) -> None:
        """Print the questions that are open when the run is begun or resumed, where no person can be asked; later ones
        are printed as they are asked, and a plan by itself."""
        asked = [each for each in self._run.questions if each.kind != PLAN] if self._terminal is None else []
        for each in asked:
            self._view.emit({"kind": "question_open", "run": self._id, "question": page.question_document(each)})
        if asked:
            await self._view.write(lambda: page.show_open(asked))

    async def _pause_unapproved(self) -> None:
        """Pause a run whose plan no person can approve here, so that a script does not wait for ever."""
        if self._terminal is not None or not any(each.kind == PLAN for each in self._run.questions):
            return
        asked = [each.ref for each in (await self._m.runs.status(self._id)).questions if each.kind == PLAN]
        if asked and not self._is_unapproved:  # else the answer is in the run's inbox
            self._is_unapproved = True
            self._view.report(f"the plan is not approved: `maos answer {asked[0]} yes`, then `maos resume {self._id}`")
            self._m.runs.pause_here(self._id, "its plan waits for approval")

    async def _answer(self) -> None:
        """Record what the person answers, until cancelled."""
        while self._terminal is not None:
            line, question = await self._terminal.next(), self._question
            if question is not None and line is None:
                self._skipped.add(question.ref)
                self._view.report(f"  left for later: maos answer {question.ref} {words.answers(question)}")
            elif question is not None and line is not None and line.text.strip():
                try:
                    if question.kind == PLAN and line.text.strip().lower() in EDIT:
                        await self._run.edit_plan(self._terminal)
                    else:
                        await self._run.answer(question.ref, line.text)
                except BadPlan as error:
                    self._view.report(f"  that is not a valid plan; edit it again: {error}", "warning")
                except MaosError as error:
                    self._view.report(f"  {error}", "warning")
            self._ask()

    # --- signals ---------------------------------------------------------------------------------------------

    def _interrupt(self) -> None:
        self._interrupts += 1
        if self._interrupts > 1:
            self._leave(signal.SIGINT)
            return
        self._view.report(PAUSING, "warning")
        self._m.runs.pause_here(self._id, "Ctrl+C")

    def _leave(self, number: signal.Signals) -> None:
        self._signal = number
        self._run.changed.set()


def introduce(view: LiveView, run: Run) -> None:
    """Print which run is executed, and where."""
    view.emit({"kind": "run", **page.run_document(run)})
    project = ", ".join(run.options.get("project_settings") or ())
    given = (f"agents are given the project's {project}",) if project else ()
    for text in (f"{run.id} in {run.folder}", *run.options.get("notes", ()), *given):
        view.report(str(text))
    view.show_proposal()


# --- what resuming means -----------------------------------------------------------------------------------------


async def preview(m: Maos, run: Run, added: Addition | None, cwd: str | None, on_change: str, *, as_json: bool) -> None:
    """Print what would be resumed, what would not run again, what is unknown, and the prompt of each agent."""
    if cwd is not None:
        _show_moved(await m.runs.move(run.id, cwd, dry_run=True), as_json=as_json, dry_run=True)
    found = await m.runs.preview(run)
    new = [] if added is None else added.plan.tasks
    foreign = await m.runs.acts(run.id) if await m.runs.needs_consent(run.id) else None
    if as_json:
        tasks = [{**each._asdict(), "unknown": [documents.of(tool, "name", "input") for tool in each.unknown]}
                 for each in found]  # fmt: skip
        more = [{"task": task.name, "what": "added", "words": task.task, "needs": task.needs} for task in new]
        starts = {} if foreign is None else {"agreed": False, "starts": documents.of(foreign)}
        document = {"kind": "dry_run", "run": run.id, "executing": is_executing(run), "tasks": [*tasks, *more],
                    **starts, **page.made_from(run, on_change)}  # fmt: skip
        documents.show_line(document)
        return
    status = "interrupted" if is_interrupted(run) else run.status
    render.line((clean(run.id), "bold"), f" is {status}, {run.done} of {len(run.tasks)} tasks done")
    if is_executing(run):
        render.line(f"  process {run.owner.get('pid')} on {clean(str(run.owner.get('host')))} executes it")
    width = max(len(name) for name in run.tasks)
    for each in found:
        _show_next(each, width)
    for task in new:
        render.line("  ", (clean(task.name).ljust(width), "bold"), "  is added: ", words.one_line(task.task, 80))
    _show_plan_file(run, on_change)
    if foreign is not None:
        render.line(("it was imported, and is not agreed to yet", "yellow"))
        show_acts(run.id, foreign)


def _show_next(each: Next, width: int) -> None:
    why = f" ({words.one_line(each.why, 100)})" if each.why and each.what != "begun" else ""
    style = "dim" if each.what in ("kept", "begun") else ""
    indent = " " * (width + 4)
    said = render.wrap(f"{SAID[each.what]}{why}", sys.stdout, indent=indent, used=len(indent))
    render.line("  ", (clean(each.task).ljust(width), "bold"), "  ", (said, style))
    for tool in each.unknown:
        render.line((f"    unknown whether it took effect: {words.tool(tool.name, tool.input)}", "yellow"))
    if each.what == "resumed" and each.words:
        render.line(("    its prompt:", "dim"))
        for line in each.words.splitlines():
            render.line(("    │ ", "dim"), clean(line))


def _show_moved(moved: Moved, *, as_json: bool, dry_run: bool) -> None:
    """Print where a run works from now on."""
    if as_json:
        documents.show_line({"kind": "moved", "dry_run": dry_run, **documents.of(moved)})
        return
    if moved.changed:
        verb = "would work" if dry_run else "works"
        where = f"{clean(moved.folder)}, instead of {clean(moved.before)}"
        render.line((clean(moved.run), "bold"), f" {verb} in {where}")
    for name in moved.anew:
        verb = "would be created" if dry_run else "is created"
        render.line((f"the worktree {clean(name)} {verb} again, from its last checkpoint", "dim"))


def _show_plan_file(run: Run, on_change: str) -> None:
    """Print what a changed file means for a resume, before that is done."""
    found = look(run)
    if found is None or found.state == SAME:
        return
    does_fit = found.state == CHANGED and not found.changes.misfits
    meant = {
        "keep": "it is resumed with the file as it was",
        "refuse": "it is refused",
        "replay": "it is resumed with the new one" if does_fit else "it is refused, as what was done does not fit",
    }[on_change if found.state == CHANGED or on_change != "replay" else "refuse"]
    render.line((found.describe(run), "yellow"), f"; {meant}")
    for each in _changed_tasks(found):
        render.line(f"  {clean(each)}")
    if on_change != "replay":
        render.line((f"  {ways(run)}", "dim"))


def _changed_tasks(found: Look) -> list[str]:
    """What the new file means for each task."""
    changes = found.changes
    return [
        *(f"+ {name} is new" for name in changes.added),
        *(f"~ {name} changes as in the file" for name in changes.changed),
        *(f"- {name} is removed" for name in changes.removed),
        *(f"~ {name} is set as in the file" for name in changes.settings),
        *(f"! {name} {why}" for name, why in changes.misfits),
    ]
