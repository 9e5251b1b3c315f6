"""A conversation about one run: what a person says becomes a plan, an answer, a message or more work.

The run goes on beside the conversation, in this process or in another. Everything that is wanted of it is put into the
journal first, so a conversation that is killed is continued by the next one.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from maos.cli import signals
from maos.cli.chat import history
from maos.cli.chat.commands import Commands
from maos.cli.chat.lines import ChatLine, Lines, Sense, Typed
from maos.cli.chat.work import Work
from maos.cli.failures import INTERRUPTED, USAGE
from maos.cli.plain import clean
from maos.cli.runs import plans, prompts, summary
from maos.cli.runs.live import Notices
from maos.cli.runs.resume import show_added
from maos.cli.runs.screen import Screen
from maos.errors import InvalidInput, MaosError, NotFound
from maos.model.plan import BadPlan, Plan
from maos.model.question import NO, YES
from maos.plans.parser import to_source
from maos.plans.source import Source
from maos.runs.agent_types import AgentType
from maos.runs.plan_input import Addition, ValidPlan
from maos.runs.planner import planner_of
from maos.runs.service import new_id
from maos.runs.status import is_executing, is_interrupted

if TYPE_CHECKING:
    from maos.app import Maos

SIGNALLED = 128


class Setting(NamedTuple):
    """What new runs of a conversation are made with."""

    folder: Path
    options: Mapping[str, Any]
    types: Mapping[str, AgentType]
    notify: Sequence[str] = ()
    auto: bool = False
    """Whether plans are carried out without asking."""
    as_json: bool = False


class Pending(NamedTuple):
    """Something that is done when the person says yes."""

    what: str
    """plan: a run of it is begun · more: it is added to the run · resume: the run goes on · replan: what was asked for
    is planned."""
    plan: ValidPlan | Addition | None = None
    draft: Source | None = None
    offered: bool = False
    """Whether nobody asked for it: then other words than yes and no are a new request."""


class ChatSession:
    """One person, one run at a time."""

    def __init__(self, m: Maos, screen: Screen, lines: Lines, setting: Setting) -> None:
        self.m = m
        self.screen = screen
        self.setting = setting
        self.id = ""
        """The run that this is about; it has its id before it is planned."""
        self.request = ""
        self._lines = lines
        self._commands = Commands(self)
        self.work = Work(m, screen, setting.notify)
        self._pending: Pending | None = None
        self._planning: asyncio.Task[Plan] | None = None
        self._leaving = asyncio.Event()
        self._letting_go = asyncio.Event()
        self._interrupts = 0
        self._left = 0

    # --- the loop --------------------------------------------------------------------------------------------

    async def hold(self, id: str) -> int:
        """Until the person leaves, or a script has nothing more to say and its run has ended; the exit code."""
        showing = asyncio.create_task(self.screen.show())
        with signals.heard(interrupted=self._interrupted, sent_away=self._sent_away):
            try:
                self._lines.start()
                await self._begin(id)
                await self._talk(showing)
                return await self._leave()
            finally:
                self._lines.stop()
                await self.work.close()
                showing.cancel()
                await asyncio.gather(showing, return_exceptions=True)
                await self.screen.close()

    async def _talk(self, showing: asyncio.Task[None]) -> None:
        reading: asyncio.Task[ChatLine | None] | None = asyncio.create_task(self._lines.next())
        try:
            while not self._leaving.is_set():
                self._lines.prompt(self._sense())
                if reading is None and not self.work.is_going and not self.work.is_untold:
                    return
                waits = [asyncio.create_task(each.wait()) for each in (self.work.over, self._leaving, self.work.moved)]
                tasks = [showing, *waits, *([reading] if reading is not None else [])]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for each in waits:
                    each.cancel()
                if showing.done():
                    showing.result()
                self.work.moved.clear()
                if self.work.is_untold and not self._leaving.is_set():
                    await self._guarded(self.work.conclude(as_json=self.setting.as_json))
                if reading is not None and reading.done() and not self._leaving.is_set():
                    said = reading.result()
                    if said is None and self._lines.by_person:
                        return
                    reading = None if said is None else asyncio.create_task(self._lines.next())
                    if said is not None:
                        await self._guarded(self._take(said))
        finally:
            if reading is not None:
                reading.cancel()

    async def _guarded(self, work: Any) -> None:
        """Do something; what goes wrong is said, and the conversation goes on."""
        try:
            await work
        except BadPlan as error:
            self.complain("that is not a valid plan", "\n".join(f"  {each}" for each in error.problems))
        except MaosError as error:
            self.complain(error.what, error.hint)

    # --- what is said ----------------------------------------------------------------------------------------

    def tell(self, text: str, style: str = "dim", **more: Any) -> None:
        """Say something in reply."""
        for line in text.splitlines():
            self.screen.tell(line, style)
        self.screen.document({"kind": "reply", "text": text, **more})

    def complain(self, what: str, hint: str = "") -> None:
        """Say what went wrong, and what to do."""
        self.screen.tell(what, "bad")
        for line in hint.splitlines():
            self.screen.tell(line, "dim")
        self.screen.document({"kind": "error", "what": what, "hint": hint or None})

    def _sense(self) -> Sense:
        """What a line would mean now."""
        if self._planning is not None:
            return Sense("wait", "(it plans; Ctrl+C stops it) › ")
        if self._pending is not None:
            label = {
                "plan": "carry it out? yes, no, edit, or what to change › ",
                "more": "add it and go on? yes or no › ",
                "resume": "go on? yes or no › ",
                "replan": "go on? yes or no › ",
            }[self._pending.what]
            return Sense("decide", label)
        if self.work.run is None:
            return Sense("request", "what is to be done? › ")
        asked = self.work.questions
        if asked and self.work.is_going:
            about = prompts.spoken(self.work.run.id, asked[0], len(asked) - 1)
            return Sense("answer", prompts.label(asked[0]), about, asked[0].ref)
        return Sense("talk", "to all › ") if self.work.is_going else Sense("more", "what else? › ")

    async def _take(self, said: ChatLine) -> None:
        text = said.text.strip()
        if not text:
            return
        self.screen.tell(f"› {text}", "bold")
        sense = said.sense or self._sense()
        if text.startswith("/"):
            await self._record(text)
            await self._commands.do(text)
        elif text.startswith("@") and self.work.run is not None:
            await self._record(text)
            await self._commands.message(text[1:])
        elif sense.kind == "decide" and self._pending is not None:
            await self._decide(text, self._pending)
        elif sense.kind == "answer":
            await self._record(text, asked=sense.ref)
            await self.work.answer(sense.ref, text)
        elif self.work.run is None:
            await self.plan(text)
        elif self.work.is_going:
            await self._record(text)
            await self._commands.message(f"all {text}")
        else:
            await self._record(text)
            await self.more([text])

    async def _record(self, text: str, **more: Any) -> None:
        """Keep what was said, before anything comes of it; no key or password that was pasted."""
        if self.id:
            await self.m.runs.conversations.record(self.id, text, **more)

    # --- plans -----------------------------------------------------------------------------------------------

    async def plan(self, request: str) -> None:
        """Have a request planned, and ask whether the plan is good."""
        self.id, self.request = new_id(), request
        await self._record(request, request=request)
        await self._asked_for_plan(request)

    async def _asked_for_plan(self, request: str) -> None:
        options = self.setting.options
        self.tell(f"{options['kind']} plans; `maos agent logs -f {planner_of(self.id)}` shows how")
        await self._planned(
            self.m.runs.plan(
                request, run=self.id, folder=self.setting.folder, options=options, types=self.setting.types
            )
        )

    async def _planned(self, work: Any) -> None:
        self._planning = asyncio.create_task(work)
        self._lines.prompt(self._sense())
        leaving = asyncio.create_task(self._leaving.wait())
        try:
            await asyncio.wait([self._planning, leaving], return_when=asyncio.FIRST_COMPLETED)
            self._planning.cancel()
            plan = await self._planning
        except asyncio.CancelledError:
            self.tell("there is no plan; nothing was started")
            return
        finally:
            leaving.cancel()
            self._planning = None
            self._lines.forget()
        await self.propose(to_source(plan, "the plan of the agent"))

    async def propose(self, draft: Source) -> None:
        """Show a plan, and ask whether it is good."""
        plan = plans.parse(draft, self.setting.types)
        if self.setting.as_json:
            import msgspec

            self.screen.document({"kind": "plan", "run": self.id, **msgspec.to_builtins(plan.plan)})
        else:
            await self.screen.write(lambda: plans.show(plan, self.setting.options))
        await self._ask(Pending("plan", plan, draft))

    async def more(self, texts: Sequence[str], *, asked: bool = False) -> None:
        """Work for a run that was planned: added at once if it goes on or was asked for by name, else after a yes."""
        run = self.work.run
        assert run is not None
        added = plans.addition(run, texts)
        if self.work.is_going:
            await self.work.request(added)
            return
        if not self.setting.as_json:
            await self.screen.write(lambda: show_added(run, added))
        await self._ask(Pending("more", added), asked=asked)

    async def _ask(self, pending: Pending, *, asked: bool = False) -> None:
        """Wait for a yes, unless there is one already."""
        if asked or self.setting.auto:
            self._pending = None
            await self._go(pending)
        else:
            self._pending = pending

    async def _decide(self, text: str, pending: Pending) -> None:
        said = text.lower().strip(" .!")
        is_known = said in (*YES, *NO, "e", "edit") or not pending.offered
        if not is_known:
            await self.begin_anew()
            await self.plan(text)
            return
        refused = said in NO and pending.what in ("plan", "replan")
        await self._record(text, **({"refused": True} if refused else {}))
        if said in YES:
            self._pending = None
            await self._go(pending)
        elif refused or (said in NO and pending.offered):
            await self.begin_anew("nothing was started; say what is to be done")
        elif said in NO:
            self._pending = None
            self.tell("nothing was changed")
        elif pending.what != "plan":
            self._pending = None
            await (self.more([text]) if self.work.run is not None else self.plan(text))
        elif said in ("e", "edit"):
            await self._edit(pending)
        else:
            await self._revise(text)

    async def _revise(self, wish: str) -> None:
        """Have the plan made otherwise, by the agent that made it."""
        self.tell("the plan is changed")
        await self._planned(self.m.runs.revise_plan(wish, run=self.id, request=self.request, types=self.setting.types))

    async def _edit(self, pending: Pending) -> None:
        import click

        assert pending.draft is not None
        draft = pending.draft
        if not self._lines.by_person:
            raise InvalidInput("there is nobody to edit it", hint="say what to change, or yes or no")
        self._lines.stop()
        with self.screen.hidden():
            text = await asyncio.to_thread(click.edit, draft.text, extension=draft.suffix)
        self._lines.start()
        edited = draft._replace(text=draft.text if text is None else text)
        self._pending = pending._replace(draft=edited)  # kept when it is wrong, to be corrected
        await self.propose(edited)

    # --- the run ---------------------------------------------------------------------------------------------

    async def _begin(self, id: str) -> None:
        if id:
            await self.take_up(id)
            return
        found = await history.latest(self.m)
        if found and self._lines.by_person:
            await self.take_up(found, offered=True)
        else:
            self.tell("say what is to be done; /help lists what else you can say")

    async def take_up(self, id: str, *, offered: bool = False) -> None:
        """Go on with an earlier conversation, or with a run that was begun elsewhere."""
        try:
            self.id = (await self.m.runs.find(id)).id
        except NotFound:
            waits = await self.m.runs.conversations.unplanned(id)
            if waits is None:
                raise
            self.id, self.request = waits.id, waits.request
            self.tell(f"you asked, and there is no run of it yet: {clean(self.request)}", run=self.id)
            await self._ask(Pending("replan", offered=offered))
            return
        before = await history.read(self.m, self.id)
        run = await self.work.follow(self.id)
        history.show(self.screen, before)
        if isinstance(self._lines, Typed):
            self._lines.remember(before.typed)
        self.screen.document({"kind": "run", **summary.document(run), "said": before.typed})
        status = "interrupted" if is_interrupted(run) else run.status
        self.screen.tell(f"{run.id} is {status}, {run.done} of {len(run.tasks)} tasks done", "bold")
        if is_executing(run):
            self.tell(f"process {run.owner.get('pid')} carries it out; you can steer it from here")
        elif run.status != "completed":
            await self._ask(Pending("resume", offered=offered))

    async def _go(self, pending: Pending) -> None:
        if pending.what == "replan":
            await self._asked_for_plan(self.request)
            return
        if isinstance(pending.plan, ValidPlan):
            setting = self.setting
            run = await self.m.runs.start(pending.plan, folder=setting.folder, options=setting.options, id=self.id)
            self.screen.document({"kind": "run", **summary.document(run)})
            for text in (f"{run.id} in {run.folder}", *run.options.get("notes", ())):
                self.screen.tell(str(text))
            await self.work.execute(self.id)
        else:
            await self.resume(self.id, add=pending.plan)

    async def resume(self, id: str, options: Mapping[str, Any] | None = None, add: Addition | None = None) -> None:
        """Claim a run that has something left to do, with more work if there is any, and execute it here."""
        await self.m.runs.resume(id, Notices(self.screen), options=options, add=add)
        await self.work.execute(id)

    async def until_needed(self) -> None:
        """Return when the run needs a person, or is over, or we are to leave."""
        while self.work.is_going and not self.work.questions and not self._leaving.is_set():
            self.work.moved.clear()
            events = (self.work.over, self._leaving, self.work.moved)
            waits = [asyncio.create_task(each.wait()) for each in events]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for each in waits:
                each.cancel()
            if self.work.is_untold:
                await self.work.conclude(as_json=self.setting.as_json)

    async def begin_anew(self, say: str = "") -> None:
        """Talk of another run."""
        await self.work.unfollow()
        self._pending, self.id, self.request = None, "", ""
        if say:
            self.tell(say)

    # --- leaving ---------------------------------------------------------------------------------------------

    def quit(self) -> None:
        """Leave when what is said now is done."""
        self._leaving.set()

    async def _leave(self) -> int:
        if self._pending is not None and self._pending.what == "plan" and not self._interrupts:
            self.complain("nobody has approved the plan; nothing was started", f"maos chat {self.id} goes on")
            return USAGE
        if self.work.is_ours:
            await self._pause_or_let_go()
        if self._left:
            return SIGNALLED + self._left
        run = self.work.run
        if run is not None and run.status != "completed":
            self.tell(f"to go on here: maos chat {run.id}", run=run.id)
        if self._interrupts:
            return INTERRUPTED
        return 0 if run is None or self.work.is_going else summary.exit_code(run)

    async def _pause_or_let_go(self) -> None:
        if not self._letting_go.is_set():
            self.tell("pausing: the agents are being stopped; Ctrl+C again lets go of them instead", "warning")
        if await self.work.stop(self._letting_go, "Ctrl+C" if self._interrupts else "asked"):
            await self._guarded(self.work.conclude(as_json=self.setting.as_json))
            return
        self.tell(f"its agents go on without us; `maos chat {self.id}` takes them up again")
        self._left = self._left or signal.SIGINT

    def _interrupted(self) -> None:
        if self._planning is not None:
            self._planning.cancel()
        elif self._leaving.is_set():
            self._letting_go.set()
        elif not self._lines.drop():
            self._interrupts += 1
            self._leaving.set()

    def _sent_away(self, number: signal.Signals) -> None:
        self._left = number
        self._letting_go.set()
        self._leaving.set()
