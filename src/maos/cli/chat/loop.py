"""The loop of `maos chat`: each line becomes a plan, an answer, more work, a message (@NAME) or a command (/NAME)."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from maos.app import Maos
from maos.cli import words
from maos.cli.chat.session import ChatSession
from maos.cli.failures import INTERRUPTED, SIGNALLED, USAGE
from maos.cli.input import InputLine, cancel, heard
from maos.cli.runs import page, plans
from maos.cli.runs.foreground import PAUSING
from maos.cli.runs.live import LiveView
from maos.errors import InvalidInput, MaosError
from maos.ids import only
from maos.model import question
from maos.model.events.parts import Limits
from maos.model.plan import BadPlan
from maos.model.run import Run
from maos.model.status import TaskStatus
from maos.runs.service import new_id

LOG_LINES = 15
AGENTS_MAX = 1000

HELP = (
    ("TEXT", "what is to be done; while agents work, a message to all; afterwards, more work"),
    ("@NAME TEXT", "send a message to one agent; @all sends it to every agent"),
    ("/add TEXT", "more work at once: TEXT, NAME: TEXT, NAME after A, B: TEXT, or @FILE for a plan"),
    ("/answer ID TEXT", "answer another question than the one at the prompt"),
    ("/concurrency N", "run at most N agents at once from now on"),
    ("/log NAME", "the last output of an agent"),
    ("/new", "begin another run; this one continues only if another process executes it"),
    ("/pause", "stop all agents; /resume resumes them"),
    ("/plan FILE", "start a run of a plan file"),
    ("/questions", "what waits for your answer"),
    ("/quit", "pause and leave, as Ctrl+C does; Ctrl+C twice detaches from the agents"),
    ("/resume [N]", "resume, with at most N agents at once"),
    ("/status", "progress, and what each agent does"),
    ("/stop NAME", "stop one agent; /resume resumes it"),
    ("/wait", "for scripts: until the run needs you, is paused or has ended"),
)
NAMES = ("/help", *(usage.split()[0] for usage, _meaning in HELP if usage.startswith("/")))


class ChatLoop(ChatSession):
    """Reads lines until the person leaves, or a pipe has ended and its run too."""

    def __init__(self, m: Maos, made_with: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        view = LiveView(Run(id=""), as_json=given["as_json"], complete=lambda typed: _completions(view.run, typed))
        super().__init__(m, view, made_with, given)
        self._is_detaching = False
        self._interrupts = 0
        self._signal = 0

    async def hold(self, id: str) -> int:
        """Hold the conversation about a run, or a new one; return the exit code."""
        showing = asyncio.create_task(self.view.show())
        showing.add_done_callback(lambda _task: self.run.changed.set())
        with heard(interrupted=self._interrupt, sent_away=self._leave_by):
            try:
                self.lines.start()
                await self.begin(id)
                await self._talk(showing)
                return await self._leave()
            finally:
                await self.run.detach()
                await cancel(showing)
                await self.lines.stop()
                await self.view.close()

    async def _talk(self, showing: asyncio.Task[None]) -> None:
        reading: asyncio.Task[InputLine | None] | None = self._read()
        try:
            while not self.is_leaving:
                self.lines.ask(self.prompt())
                if showing.done():
                    showing.result()
                if self.run.is_over:
                    await self._guarded(self.conclude())
                elif reading is not None and reading.done():
                    line = reading.result()
                    if line is None and self.lines.by_person:
                        return
                    reading = None if line is None else self._read()
                    if line is not None:
                        await self._guarded(self._take(line))
                elif reading is None and (not self.run.is_executing or self.is_unapproved):
                    return
                else:
                    await self.run.wait()
        finally:
            if reading is not None:
                await cancel(reading)

    def _read(self) -> asyncio.Task[InputLine | None]:
        reading = asyncio.create_task(self.lines.next())
        reading.add_done_callback(lambda _task: self.run.changed.set())
        return reading

    async def _guarded(self, work: Awaitable[None]) -> None:
        """Do something; report what goes wrong, and continue the conversation."""
        try:
            await work
        except BadPlan as error:
            self.complain("that is not a valid plan", "\n".join(f"  {each}" for each in error.problems))
        except MaosError as error:
            self.complain(error.what, error.hint)

    async def _take(self, line: InputLine) -> None:
        text = line.text.strip()
        if not text:
            return
        self.view.report(f"› {text}", "bold")
        if not self.lines.by_person:
            await self.until_planned()
        prompt = line.prompt or self.prompt()
        if text.startswith("/"):
            await self.record(text)
            await self._execute(text)
        elif text.startswith("@") and self.run.run is not None:
            await self.record(text)
            await self._message(text[1:])
        elif prompt.kind == "decide" and self.proposal is not None:
            await self.decide(text, self.proposal)
        elif prompt.kind == "answer":
            await self.record(text, asked=prompt.ref)
            await self.answer(prompt.ref, text)
        elif self.run.run is None:
            await self.plan(text)
        elif self.run.is_executing:
            await self.record(text)
            await self._message(f"all {text}")
        else:
            await self.record(text)
            await self.add([text])

    # --- leaving ---------------------------------------------------------------------------------------------

    async def _leave(self) -> int:
        if self.proposal is not None and self.proposal.what == "plan" and not self._interrupts:
            self.complain("the plan was not approved; nothing was started", f"maos chat {self.id} continues")
            return USAGE
        if self.is_unapproved:
            self.complain("the plan was not approved", f"`maos chat {self.id}` or `maos resume {self.id}` asks again")
        if self.run.is_ours:
            await self._pause_or_detach()
        if self._signal:
            return SIGNALLED + self._signal
        run = self.run.run
        if run is not None and run.status != "completed":
            self.reply(f"to continue here: maos chat {run.id}", run=run.id)
        if self._interrupts:
            return INTERRUPTED
        return 0 if run is None or self.run.is_executing else page.exit_code(run)

    async def _pause_or_detach(self) -> None:
        if not self._is_detaching:
            self.reply(PAUSING, "warning")
            await self.run.pause("Ctrl+C" if self._interrupts else "asked")
        while self.run.is_ours and not self._is_detaching:
            await self.run.wait()
        if not self.run.is_ours:
            await self._guarded(self.run.conclude())
            return
        self.reply(f"its agents keep running; `maos chat {self.id}` attaches to them again")
        self._signal = self._signal or signal.SIGINT

    def _interrupt(self) -> None:
        if self.is_leaving:
            self._is_detaching = True
            self.run.changed.set()
        elif not self.lines.drop():
            self._interrupts += 1
            self.leave()

    def _leave_by(self, number: signal.Signals) -> None:
        self._signal = number
        self._is_detaching = True
        self.leave()

    # --- messages and commands -------------------------------------------------------------------------------

    async def _execute(self, text: str) -> None:
        name, _, rest = text.partition(" ")
        begun = name.lower()
        found = [begun] if begun in NAMES else [each for each in NAMES if each.startswith(begun)]
        if len(found) != 1:
            near = get_close_matches(name, NAMES, n=1)
            hint = f"did you mean {near[0]}?" if near else "/help lists them"
            raise InvalidInput(f"there is no command {name}", hint=hint)
        await getattr(self, f"_do_{found[0][1:]}")(rest.strip())

    async def _message(self, text: str) -> None:
        """Send a message to an agent, or to all of them."""
        to, _, said = text.partition(" ")
        if not said.strip():
            raise InvalidInput("the message is empty", hint="@NAME TEXT sends one to an agent")
        run, bus = self._known(), self.m.bus
        if to.lower() == "all":
            sent = await bus.broadcast(self.m.principal.sender, run.id, said.strip())
            if not sent.to:
                raise InvalidInput("no agent works that could receive it", hint="/add TEXT gives more work")
            self.reply(f"sent to {', '.join(words.task_of(run.id, each) for each in sent.to)}")
            return
        task = _task_named(run, to)
        agent = run.agent(task)
        if run.tasks[task].status == TaskStatus.DONE:
            raise InvalidInput(f"{task} is done", hint=f"/add {task}-2 after {task}: {said.strip()}")
        if run.tasks[task].attempts:
            await self.m.agents.tell(agent, said.strip())
        else:
            await bus.send(self.m.principal.sender, agent, said.strip())
        self.reply(f"sent to {task}")

    async def _do_help(self, _rest: str) -> None:
        width = max(len(usage) for usage, _meaning in HELP)
        self.reply("\n".join(f"  {usage:<{width}}  {meaning}" for usage, meaning in HELP), "")

    async def _do_add(self, rest: str) -> None:
        self._known()
        if not rest:
            raise InvalidInput("the work is missing", hint="/add TEXT")
        await self.add([rest], approved=True)

    async def _do_answer(self, rest: str) -> None:
        id, _, said = rest.partition(" ")
        await self.run.answer(question.find(self.run.questions, id).ref, said)

    async def _do_questions(self, _rest: str) -> None:
        run, found = self._known(), self.run.questions
        if not found:
            self.reply("no open questions")
        for each in found:
            text = "\n".join([*words.lines_of(run.id, each), f"  /answer {each.id} …"])
            self.reply(text, "warning", id=each.id, choices=list(each.choices))

    async def _do_status(self, _rest: str) -> None:
        now = await self.m.runs.status_of(self._known())
        self.view.emit({**page.document(now, tasks=True), "kind": "status"})
        await self.view.write(lambda: page.show(now, tasks=True, messages=None))

    async def _do_log(self, rest: str) -> None:
        run = self._known()
        agent = run.agent(_task_named(run, rest))
        lines: list[str] = []
        async for record in self.m.agents.records(agent):
            for fact in record.data.get("facts", ()):
                if fact["kind"] in ("line", "text"):
                    lines += [words.tidy(each) for each in str(fact.get("text", "")).splitlines()]
                elif fact["kind"] == "tool_use":
                    lines.append(f"→ {words.tool(fact.get('name', ''), fact.get('input'))}")
            lines = lines[-LOG_LINES:]
        self.reply("\n".join(f"  {each}" for each in lines) or "it has printed nothing yet", "")

    async def _do_plan(self, rest: str) -> None:
        if self.run.run is not None:
            raise InvalidInput("there is a run already", hint=f"/add @{rest or 'FILE'} adds to it, /new begins another")
        draft = plans.read(rest)
        self.id = self.id or new_id()
        await self.propose(draft)

    async def _do_pause(self, _rest: str) -> None:
        self._known()
        await self.run.pause("asked")
        self.reply("pausing: the agents are being stopped")

    async def _do_concurrency(self, rest: str) -> None:
        self._known()
        agents = _number(rest)
        await self.run.set_limits(Limits(concurrency=agents))
        self.reply(f"at most {agents} at once from now on")

    async def _do_resume(self, rest: str) -> None:
        run = self._known()
        agents = _number(rest) if rest else None
        if self.run.is_executing:
            raise InvalidInput(f"{run.id} is executed already", hint="/pause first, to change how")
        await self.resume(Limits(concurrency=agents))

    async def _do_stop(self, rest: str) -> None:
        run = self._known()
        task = _task_named(run, rest)
        await self.m.agents.stop(run.agent(task))
        self.reply(f"{task} is being stopped")

    async def _do_new(self, _rest: str) -> None:
        if self.run.is_ours:
            raise InvalidInput("this process executes the run", hint="/pause it first")
        await self.begin_anew("say what is to be done")

    async def _do_wait(self, _rest: str) -> None:
        while self.run.is_executing and not self.run.questions and not self.is_leaving:
            await self.run.wait()
            if self.run.is_over:
                await self.run.conclude()

    async def _do_quit(self, _rest: str) -> None:
        self.leave()

    def _known(self) -> Run:
        if self.run.run is None:
            raise InvalidInput("there is no run yet", hint="say what is to be done")
        return self.run.run


def _task_named(run: Run, given: str) -> str:
    """The task that is meant: by its name, or an unambiguous beginning of it."""
    given = words.task_of(run.id, given.strip())
    if given in run.tasks:
        return given
    found = [name for name in run.tasks if name.lower().startswith(given.lower())]
    return only(given, found, "agent", hint=f"there are: {', '.join(list(run.tasks)[:20])}")


def _number(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= AGENTS_MAX:
        raise InvalidInput(f"{text!r} is not a number of agents", hint=f"it is 1 to {AGENTS_MAX}")
    return int(text)


def _completions(run: Run, beginning: str) -> Sequence[str]:
    """What the beginning of a line may become: a command, or the name of an agent."""
    if beginning.startswith("/") and " " not in beginning:
        return [f"{each} " for each in NAMES if each.startswith(beginning)]
    head, _, last = beginning.rpartition(" ")
    names = ["all", *run.tasks] if run.id else []
    if not head and last.startswith("@"):
        return [f"@{each} " for each in names if each.startswith(last[1:])]
    if head in ("/stop", "/log"):
        return [f"{head} {each}" for each in names[1:] if each.startswith(last)]
    return []
