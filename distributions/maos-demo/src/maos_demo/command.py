"""`maos demo`: start a run, kill its engine, answer a question, resume, merge, and prove that nothing was lost.

Everything is done by commands that a person could type. This module types them, and renders the feed of the run. At the
end it writes the run as one HTML file and, at a terminal, serves the page until the person has seen enough.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from maos.app import Maos
from maos.cli import documents, render, words
from maos.cli.commands import json_command
from maos.cli.database import DatabaseTarget
from maos.cli.failures import FAILED, INTERRUPTED, SIGNALLED, note
from maos.cli.input import PipedLines, cancel, heard
from maos.cli.render import Column, Listing, clean, shorten
from maos.cli.runs.live import LiveView
from maos.errors import InvalidInput, NotFound
from maos.model.events.facts import Line
from maos.model.message import Message
from maos.model.run import Run
from maos.runs.feed import AgentOutput, RunFeed
from maos_demo import proof, sample
from maos_demo.proof import Count, DemoEngine, DemoFailed, DemoFolder, DemoRecord, ProofVerdict

PAUSE_S = 0.15
"""How long an agent works at a line."""
LOOK_S = 0.1
STEP_S_MAX = 90.0
"""How long one part of the story may take on the slowest machine."""
LINES_MIN, MESSAGES_MIN, UNRECORDED_MIN = 12, 3, 12
"""How much of each must be there before it is interesting."""
WATCH_S_MAX = 3.0
LOG_LINES_SHOWN = 3
BAR_LINES = 64
"""How many lines a full bar stands for; no agent prints more."""
BAR_WIDTH = 20
NAMED_MAX = 5
"""How many of the things that are missing or double are named."""
REPORT = "report.html"
STOP_S_MAX = 30.0
"""How long the server may take to stop."""

COUNTS: Listing[Count] = Listing(
    "counts",
    (
        Column("", lambda each: "✓" if each.ok else "✗"),
        Column("", lambda each: each.what, style="bold", yields=1),
        Column("by agents", lambda each: str(each.noted), right=True),
        Column("found", lambda each: str(each.found), right=True),
        Column("lost", lambda each: str(len(each.lost)), right=True),
        Column("doubled", lambda each: str(len(each.doubled)), right=True),
        Column("where", lambda each: each.where, style="dim", yields=2),
    ),
)


@json_command("maos demo", "maos demo --keep", "maos demo my-folder --no-serve", "maos demo --json")
@click.argument("folder", metavar="[FOLDER]", required=False, default="")
@click.option("--keep", is_flag=True, help="Keep the folder, and print how to look around in it.")
@click.option("--no-serve", is_flag=True, help="End after the proof and the report, without serving the page.")
def demo(database: DatabaseTarget, folder: str, keep: bool, no_serve: bool, as_json: bool) -> int:
    """See a run survive kill -9, with a proof.

    Three scripted agents work on a small git repository, send each other what they find, and one asks a question. While
    they work, the engine is killed. A new one resumes the run, and the work is merged. Then everything in the journal
    and in the repository is compared with what the agents wrote down themselves: exits with 1 if anything is missing or
    double.

    The run is left as a report, one HTML file. At a terminal, the page of `maos serve` is then served with it on this
    machine, and a link to it printed, until you press Enter or Ctrl+C; not with --no-serve or --json, and not where the
    variable CI is set.

    It takes about 20 seconds, and needs git, but no key, no network and no database: all of it happens in a new folder
    (FOLDER, which is kept, or a temporary one, of which only the report is kept) with a database of its own.
    """
    if database.given:
        raise InvalidInput("the demo makes a database of its own", hint="leave out --db")
    if shutil.which("git") is None:
        hint = "install git: `apt install git`, `dnf install git`, …"
        raise NotFound("the demo works on a git repository, and there is no git on PATH", hint=hint)
    path = Path(folder).absolute() if folder else Path(tempfile.mkdtemp(prefix="maos-demo-"))
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InvalidInput(f"{folder} is there, and not an empty folder", hint="name a new folder")
    path.mkdir(parents=True, exist_ok=True)
    is_watched = sys.stdin.isatty() and sys.stdout.isatty() and not os.environ.get("CI")
    serves = is_watched and not no_serve and not as_json
    return asyncio.run(_demo(DemoFolder(path), keep=keep or bool(folder), serves=serves, as_json=as_json))


async def _demo(folder: DemoFolder, *, keep: bool, serves: bool, as_json: bool) -> int:
    """Play the story, check the proof, and show the run; return the exit code."""
    story = Story(folder, LiveView(Run(id=""), as_json=as_json))  # --json prints only the document at the end
    began_s = time.monotonic()
    kept: list[Path] = []
    has_failed = True
    try:
        with _at_home(folder):
            record, code = await _played(story, is_silent=as_json)
            if record is None:
                has_failed = False
                return code
            verdict = await proof.prove(folder)
            has_failed = not verdict.ok
            took_s = time.monotonic() - began_s
            if not as_json:
                _show_verdict(verdict, took_s)
            if has_failed:
                code = FAILED
            elif keep or not as_json:
                kept = await _write_report(folder, record)
            if as_json:
                _show_document(folder, record, verdict, took_s, is_kept=keep or has_failed, report=kept)
            elif not has_failed:
                _show_report(kept)
                if keep:
                    _show_ways_to_look(folder, record)
                code = await _serve_page(folder, record.run, is_kept=keep) if serves else 0
            return code
    finally:
        if has_failed and not keep:
            note(f"everything is still in {folder.folder}")
        elif not keep:
            _remove(folder, kept)


@contextmanager
def _at_home(folder: DemoFolder) -> Iterator[None]:
    """Have this process note whose database it is in the folder of the demonstration, and not with the user."""
    before = os.environ.get("MAOS_HOME")
    os.environ["MAOS_HOME"] = str(folder.home)
    try:
        yield
    finally:
        if before is None:
            del os.environ["MAOS_HOME"]
        else:
            os.environ["MAOS_HOME"] = before


def _remove(folder: DemoFolder, kept: Sequence[Path]) -> None:
    """Remove the folder, but for files in it that are kept."""
    for path in folder.folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path not in kept:
            path.unlink()
    if not kept:
        folder.folder.rmdir()


async def _played(story: Story, *, is_silent: bool) -> tuple[DemoRecord | None, int]:
    """Play the story in its live view; None and an exit code when a signal ends it, with everything cleared away."""
    code = 0
    playing = asyncio.create_task(story.play())
    showing = None if is_silent else asyncio.create_task(story.view.show())

    def leave(by: int) -> None:
        nonlocal code
        if not code:  # a second signal does not interrupt the clearing away
            code = by
            playing.cancel()

    with heard(interrupted=lambda: leave(INTERRUPTED), sent_away=lambda number: leave(SIGNALLED + int(number))):
        try:
            return await playing, 0
        except asyncio.CancelledError:
            if code:
                return None, code
            raise
        finally:
            if showing is not None:
                await cancel(showing)
                await story.view.close()


# --- the story ---------------------------------------------------------------------------------------------------


class Story:
    """One demonstration in one folder."""

    def __init__(self, folder: DemoFolder, view: LiveView) -> None:
        self.folder = folder
        self.view = view
        self._engine = ""
        """The engine and its state, for people."""
        self._recorded: Counter[str] = Counter()
        """How many lines of each agent are in the journal."""
        self._chapters = 0
        self._log = folder.folder
        self._process: Process | None = None
        self._feed: RunFeed | None = None
        self._messages = 0
        view.heading = lambda: [("", "engine: "), ("bold", self._engine)] if self._engine else []
        view.detail = lambda agent: _bar(self._printed(agent), self._recorded[agent])

    async def play(self) -> DemoRecord:
        """Play it, from an empty folder to merged work; no process of it is left, whatever happens."""
        self.view.report("maos demo · three agents, one kill -9, nothing lost", "bold")
        self.view.report("No key, no network: the agents are scripts, and everything else is real.")
        self.view.report(f"All of it is in {self.folder.folder}")
        base = await self._prepare()
        async with self.folder.open(create=True) as m:
            try:
                return await self._play(m, base)
            finally:
                await asyncio.shield(asyncio.create_task(self._clear_away(m)))

    async def _play(self, m: Maos, base: str) -> DemoRecord:
        self._chapter("Three agents begin", "Each in a git worktree of its own. They send each other messages.")
        first = await self._start_engine("run", "-f", "plan.toml", "--cwd", "till", "--auto")
        await self._until(m, self._is_interesting, "the agents to be at work")
        self._say(f"The developer asks: {sample.QUESTION}")

        self._chapter("kill -9", "The engine dies while they work. Nothing is flushed, no process is warned.")
        self._say(f"$ kill -9 {first.pid}", "found")
        os.kill(first.pid, signal.SIGKILL)
        engines = [DemoEngine(first.pid, await first.wait())]
        self._process, self._engine = None, f"killed · pid {first.pid} records no more"
        at_kill = self._printed()
        until_s = time.monotonic() + WATCH_S_MAX
        while time.monotonic() < until_s and self._printed() - at_kill < UNRECORDED_MIN:
            await self._look(m)
        self._say(f"The agents did not notice: {self._counted()}.")
        self._say("What they print is kept for the next engine. What would resuming do?")
        await self._run("resume", "--dry-run")
        self._say("The question can be answered without an engine:")
        await self._run("answer", next(iter(self._questions())), sample.ANSWER)
        await self._until(m, self._is_answered, "the answer to arrive")
        self._say(f"The developer has its answer and the analyst is done: {self._counted()}.")

        self._chapter("maos resume", "A new engine attaches to the running agents; they are not restarted.")
        at_resume = self._printed()
        second = await self._start_engine("resume", self._run_id)
        await self._until(m, lambda: second.returncode is not None, "the agents to finish")
        engines.append(DemoEngine(second.pid, await second.wait()))
        self._process, self._engine = None, f"exited · pid {second.pid}, all tasks are done"
        await self._look(m)
        if second.returncode != 0:
            raise DemoFailed(f"`maos resume` exited with {second.returncode}: {self._end_of_log()}")
        self._say(f"Every line is there: {self._counted()}.")

        self._chapter("Merge the work", "The repository itself is still unchanged.")
        await self._run("merge", self._run_id)
        record = DemoRecord(
            run=self._run_id, base=base, engines=engines, lines_at_kill=at_kill, lines_at_resume=at_resume
        )
        self.folder.keep(record)
        return record

    @property
    def _run_id(self) -> str:
        return "" if self._feed is None else self._feed.run.id

    def _questions(self) -> list[str]:
        return [] if self._feed is None else list(self._feed.run.questions)

    def _printed(self, *agents: str) -> int:
        """How many lines agents have printed, by their own count."""
        return len(self.folder.noted("line", *agents))

    def _counted(self) -> str:
        return f"{self._printed()} lines printed, {self._recorded.total()} in the journal"

    def _is_interesting(self) -> bool:
        busy = all(self._printed(agent) >= LINES_MIN for agent in ("analyst", "tester"))
        return busy and self._messages >= MESSAGES_MIN and bool(self._questions())

    def _is_answered(self) -> bool:
        return bool(self.folder.noted("answer", "developer") and self.folder.noted("ended", "analyst"))

    def _chapter(self, title: str, text: str) -> None:
        self._chapters += 1
        for line, style in (("", ""), (f"{self._chapters}  {title}", "bold"), (f"   {text}", "")):
            self.view.report(line, style)

    def _say(self, text: str, style: str = "") -> None:
        self.view.report(f"   {text}", style)

    # --- steps -----------------------------------------------------------------------------------------------

    async def _prepare(self) -> str:
        """Make the sample repository, with one commit, and the plan; return the commit's id."""
        folder = self.folder
        for path in (folder.repository, folder.notes, folder.home):
            path.mkdir()
        self._chapter("A sample repository", "The code of a till, one commit, and a plan for three agents.")
        for name, text in sample.FILES.items():
            file = folder.repository / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        plan = sample.plan(sys.executable, str(folder.notes), PAUSE_S)
        (folder.folder / "plan.toml").write_text(plan, encoding="utf-8")
        await folder.git("init", "--quiet", "--initial-branch=main")
        await folder.git("add", "--all")
        await folder.git("commit", "--quiet", "--message", "A till")
        return (await folder.git("rev-parse", "HEAD")).strip()

    async def _start_engine(self, *arguments: str) -> Process:
        self._say(f"$ maos {' '.join(arguments)}", "found")
        self._log = self.folder.folder / f"{arguments[0]}.log"
        with self._log.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *_maos(*arguments), cwd=self.folder.folder, env=self.folder.environment(),
                stdin=DEVNULL, stdout=log, stderr=STDOUT,
                start_new_session=True,  # Ctrl+C is for this process, which ends the engine and its agents
            )  # fmt: skip
        self._process, self._engine = process, f"pid {process.pid} records"
        return process

    async def _run(self, *arguments: str) -> None:
        """Run a command, and render its output."""
        self._say(f"$ maos {shlex.join(arguments)}", "found")
        status, printed = await self.folder.run(*_maos(*arguments))
        if status != 0:
            raise DemoFailed(f"`maos {arguments[0]}` exited with {status}: {printed.strip()}")
        for line in printed.strip().splitlines() if arguments[0] != "answer" else ():
            self._say(f"  {line}", "dim")

    async def _until(self, m: Maos, reached: Callable[[], bool], what: str) -> None:
        """Wait until something is so; an engine that exits before is a failure."""
        deadline_s = time.monotonic() + STEP_S_MAX
        await self._look(m)
        while not reached():
            if self._process is not None and self._process.returncode is not None:
                raise DemoFailed(f"the engine exited by itself: {self._end_of_log()}")
            if time.monotonic() > deadline_s:
                raise DemoFailed(f"waited {STEP_S_MAX:.0f} s in vain for {what}")
            await self._look(m)

    async def _look(self, m: Maos) -> None:
        """Read what was recorded since the last time, and render it."""
        await asyncio.sleep(LOOK_S)
        if self._feed is None:
            async for run in m.runs.all():
                self._feed = m.runs.follow(run.id, from_start=True)
        if self._feed is None:
            return
        async for update in self._feed.recorded():
            self._messages += isinstance(update, Message)
            if isinstance(update, AgentOutput):
                role = words.task_of(self._run_id, update.attempt.agent)
                self._recorded[role] += sum(isinstance(fact, Line) for fact in update.facts)
            self.view.update(update)
        self.view.refresh()

    def _end_of_log(self) -> str:
        """The end of what the engine printed, and where all of it is."""
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return f"{' | '.join(lines[-LOG_LINES_SHOWN:])} (all of it is in {self._log})"

    async def _clear_away(self, m: Maos) -> None:
        """End every process of this demonstration: the engine, then the agents with their holders."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        await _end_runs(m)


async def _end_runs(m: Maos) -> None:
    """Cancel the runs that have not ended, which ends their agents with their holders."""
    async for run in m.runs.all():
        if run.is_open:
            await m.runs.cancel(run.id, why="the demonstration was ended")


def _maos(*arguments: str) -> list[str]:
    """The command `maos` with arguments, run by this Python."""
    return [sys.executable, "-P", "-m", "maos", *arguments]


def _bar(printed: int, recorded: int) -> Sequence[tuple[str, str]]:
    """The lines of an agent: those in the journal, and those that are only printed."""
    done = round(BAR_WIDTH * min(1.0, recorded / BAR_LINES))
    missing = max(0, printed - recorded)
    open_ = min(BAR_WIDTH - done, max(round(BAR_WIDTH * missing / BAR_LINES), 1 if missing else 0))
    counts = f"{recorded:>3} recorded" + (f", {missing} not yet" if missing else "")
    rest = " " * (BAR_WIDTH - done - open_)
    return [("fg:ansigreen", "█" * done), ("fg:ansiyellow", "░" * open_), ("", f"{rest} {counts:<25}  ")]


# --- the report and the page -------------------------------------------------------------------------------------


async def _write_report(folder: DemoFolder, record: DemoRecord) -> list[Path]:
    """Write the run as one HTML file; return it, and nothing where the packages of the page are not installed."""
    path = folder.folder / REPORT
    status, printed = await folder.run(*_maos("report", record.run, "--output", str(path)))
    if status:
        note(f"there is no report: {printed.strip()}")
        return []
    return [path]


async def _serve_page(folder: DemoFolder, run: str, *, is_kept: bool) -> int:
    """Serve the page, with a link to a run, until the person ends it; then end what was started on it."""
    log = folder.folder / "serve.log"
    lines = PipedLines()
    ended = asyncio.Event()
    code = 0

    def leave(by: int = 0) -> None:
        nonlocal code
        code = code or by
        ended.set()

    with heard(interrupted=leave, sent_away=lambda number: leave(SIGNALLED + int(number))):
        with log.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                *_maos("serve", "--port", "0", "--json"), cwd=folder.folder, env=folder.environment(),
                stdin=DEVNULL, stdout=PIPE, stderr=file,
                start_new_session=True,  # Ctrl+C is for this process, which ends the server and its agents
            )  # fmt: skip
        try:
            assert process.stdout is not None
            told = await _first(ended, process.stdout.readline())
            if told:
                _show_link(f"{json.loads(told)['sign_in']}&to=run/{run}", is_kept=is_kept)
                lines.start()
                await _first(ended, lines.next(), process.wait())
            elif not ended.is_set():
                note(f"there is no page: {log.read_text(errors='replace').strip()}")
        finally:
            await lines.stop()
            await asyncio.shield(asyncio.create_task(_end_server(folder, process)))
    return code


async def _first(ended: asyncio.Event, *works: Coroutine[Any, Any, Any]) -> Any:
    """Wait for the first of some things; None when the person ends the demonstration before."""
    waits = [asyncio.create_task(each) for each in (*works, ended.wait())]
    done, _open = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    await cancel(*waits)
    return next((each.result() for each in waits[:-1] if each in done), None)


async def _end_server(folder: DemoFolder, process: Process) -> None:
    """Stop the server, then the runs that a person has started or forked on the page."""
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_S_MAX)
    except TimeoutError:
        process.kill()
        await process.wait()
    async with folder.open() as m:
        await _end_runs(m)


def _show_report(written: Sequence[Path]) -> None:
    """Print where the report is."""
    for path in written:
        render.line()
        render.line(("The run as one HTML file, which opens without a server and without a network:", "bold"))
        render.line("    ", (str(path), "cyan"))


def _show_link(sign_in: str, *, is_kept: bool) -> None:
    """Print where the page is, and how it ends."""
    render.line()
    render.line(("The run on its page; this link signs a browser in, once:", "bold"))
    render.line("    ", (sign_in, "cyan"))
    left = "The folder is kept." if is_kept else "Then only the report is left."
    render.line((f"Enter or Ctrl+C stops the page. {left}", "dim"))
    sys.stdout.flush()


# --- the proof ---------------------------------------------------------------------------------------------------


def _show_document(
    folder: DemoFolder,
    record: DemoRecord,
    verdict: ProofVerdict,
    took_s: float,
    *,
    is_kept: bool,
    report: Sequence[Path],
) -> None:
    """Print the result for a program."""
    documents.show(
        {
            "ok": verdict.ok,
            "seconds": round(took_s, 1),
            "run": record.run,
            "engines": documents.of(record.engines),
            "counts": [{**each._asdict(), "ok": each.ok} for each in verdict.counts],
            "checks": documents.of(verdict.checks),
            "folder": str(folder.folder) if is_kept else None,
            "report": str(report[0]) if report else None,
        }
    )


def _show_verdict(verdict: ProofVerdict, took_s: float) -> None:
    """Print what was compared, and the result."""
    render.line()
    render.line(("The proof: the notes that the agents wrote, against what maos and git have", "bold"))
    if verdict.counts:
        render.line()
        COUNTS.table(verdict.counts)
        render.line()
    for check in verdict.checks:
        mark = ("✓", "bold green") if check.ok else ("✗", "bold red")
        shown = shorten(clean(check.shown), render.room_for_value(37))
        render.line(mark, f" {check.what:<33}  ", (shown, "dim"))
    render.line()
    if verdict.ok:
        kinds = ("lines", "messages read", "files")
        totals = [sum(each.noted for each in verdict.counts if each.what.startswith(kind)) for kind in kinds]
        counted = "{} lines, {} messages, {} files".format(*totals)
        render.line((f"{counted}: nothing was lost, nothing was doubled.", "bold green"))
        render.line((f"It took {took_s:.0f} s.", "dim"))
    else:
        render.line(("The proof failed.", "bold red"))
        _show_differences(verdict)


def _show_differences(verdict: ProofVerdict) -> None:
    for count in verdict.counts:
        for word, things in (("lost", count.lost), ("doubled", count.doubled)):
            for thing in things[:NAMED_MAX]:
                render.line("  ", (f"{word}: ", "red"), clean(f"{count.what}: {thing}"))
            if len(things) > NAMED_MAX:
                render.line((f"  … and {len(things) - NAMED_MAX} more", "dim"))
        if not count.noted:
            render.line("  ", clean(f"{count.what}: there are none, so nothing is proved"))
    for check in verdict.checks:
        if not check.ok:
            render.line("  ", ("not so: ", "red"), clean(f"{check.what}: {check.shown}"))


def _show_ways_to_look(folder: DemoFolder, record: DemoRecord) -> None:
    """Print commands to look around with."""
    maos = "maos" if shutil.which("maos") else str(Path(sys.executable).with_name("maos"))
    render.line()
    render.line("Look around in what is left of it:")
    for text in (
        f"cd {folder.folder} && export MAOS_HOME=$PWD/home",
        f"{maos} serve",
        f"{maos} status {record.run}",
        f"{maos} status",
        f"{maos} message list --run {record.run}",
        f"{maos} agent logs {record.run}.developer",
        f"{maos} admin verify",
        "sqlite3 maos.db 'SELECT * FROM messages'",
        "git -C till log --stat",
    ):
        render.line("    ", (text, "cyan"))
    render.line(("notes/ has what the agents wrote down, plan.toml the plan to do it by hand.", "dim"))
