"""A conversation about one run: its state, and what can be done in it.

The run is executed beside the conversation, by this process or another. Every command to it is recorded in the journal
first, so a conversation that is killed is continued by the next one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from maos.bus.history import SentMessage
from maos.cli import words
from maos.cli.input import PipedLines, Prompt
from maos.cli.runs import page, plans
from maos.cli.runs.foreground import introduce
from maos.cli.runs.live import EDIT, LiveRun, LiveView, prompt_of
from maos.errors import InvalidInput
from maos.model.events.parts import PERSON, Limits
from maos.model.question import NO, PLAN, YES
from maos.model.run import Run, chat_stream
from maos.plans.source import Source
from maos.runs import planner
from maos.runs.plan_input import Addition, ValidPlan, validate
from maos.runs.status import is_executing, is_interrupted
from maos.tuples import NamedTuple

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.cli.terminal import LiveTerminal

LINES_SHOWN_MAX = 40
LABELS = {
    "plan": "start it? yes, no, edit, or what to change › ",
    "more": "add it and resume? yes or no › ",
    "resume": "resume? yes or no › ",
}


class Proposal(NamedTuple):
    """Something that is done when the person says yes."""

    what: str
    """plan: start a run of it · more: add it to the run · resume: resume the run."""
    plan: ValidPlan | Addition | None = None
    draft: Source | None = None
    offered: bool = False
    """Whether the person did not ask for it: then words other than yes and no are a new request."""


class ChatSession:
    """One person, one run at a time; `ChatLoop` reads the lines."""

    def __init__(self, m: Maos, view: LiveView, made_with: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        self.m = m
        self.view = view
        is_person = sys.stdin is not None and sys.stdin.isatty()
        self.lines: PipedLines | LiveTerminal = view.terminal if is_person and view.terminal else PipedLines()
        self.run = LiveRun(m, view, given["notify"])
        self.id = ""
        """The run that this is about; that of a plan file has its id before the plan is approved."""
        self.proposal: Proposal | None = None
        self.is_leaving = False
        self._made_with = made_with
        """The folder, the options and the types of agents of new runs."""
        self._auto = given["auto"]

    def leave(self) -> None:
        """Leave when the current command is done."""
        self.is_leaving = True
        self.run.changed.set()

    # --- output ----------------------------------------------------------------------------------------------

    def reply(self, text: str, style: str = "dim", **more: Any) -> None:
        """Print a reply."""
        for line in text.splitlines():
            self.view.report(line, style)
        self.view.emit({"kind": "reply", "text": text, **more})

    def complain(self, what: str, hint: str = "") -> None:
        """Print what went wrong, and what to do."""
        self.view.report(what, "bad")
        for line in hint.splitlines():
            self.view.report(line)
        self.view.emit({"kind": "error", "what": what, "hint": hint or None})

    def prompt(self) -> Prompt:
        """What a line means now."""
        if self.proposal is not None:
            return Prompt("decide", LABELS[self.proposal.what])
        if self.run.run is None:
            return Prompt("request", "what is to be done? › ")
        asked = self.run.questions
        if asked and self.run.is_executing:
            return prompt_of(self.id, asked[0], len(asked) - 1)
        if self.run.is_planning:
            return Prompt("talk", "(planning) to the planner › ")
        return Prompt("talk", "to all › ") if self.run.is_executing else Prompt("more", "what else? › ")

    async def record(self, text: str, **more: Any) -> None:
        """Record what the person said before acting on it, without keys and passwords that were pasted."""
        if self.id:
            await self.m.runs.conversations.record(self.id, text, **more)

    # --- plans -----------------------------------------------------------------------------------------------

    async def plan(self, request: str) -> None:
        """Start a run of a request: an agent plans it, and the run asks whether to run the plan."""
        folder, options = self._made_with["folder"], self._made_with["options"]
        run = await self.m.runs.start_request(request, folder=folder, options=options, is_approved=self._auto)
        self.id = run.id
        await self.record(request)
        await self._start(run)
        self.reply(f"{options['kind']} plans; `maos logs -f {run.agent(planner.NAME)}` shows its output")

    async def _start(self, run: Run) -> None:
        """Execute a run that was just recorded."""
        introduce(self.view, run)
        await self.run.execute(run.id)

    async def until_planned(self) -> None:
        """Wait while the plan is being made: a script says what comes next before it can know."""
        while self.run.is_planning and not self.is_leaving:
            await self.run.wait()

    @property
    def is_unapproved(self) -> bool:
        """Whether the run asks whether to run its plan."""
        return any(each.kind == PLAN for each in self.run.questions)

    async def conclude(self) -> None:
        """Print the summary of a run that is over for now; one whose plan was refused is done with."""
        await self.run.conclude()
        run = self.run.run
        if run is not None and run.status == "cancelled" and run.planner is not None and len(run.tasks) == 1:
            await self.begin_anew("nothing was started; say what is to be done")

    async def propose(self, draft: Source) -> None:
        """Show the plan of a file, and ask whether to start it."""
        plan = validate(draft, self._made_with["types"])
        self.view.emit({"kind": "plan", **msgspec.to_builtins(plan.plan)})
        await self.view.write(lambda: plans.show(plan, self._made_with["options"]))
        await self._ask(Proposal("plan", plan, draft))

    async def add(self, texts: Sequence[str], *, approved: bool = False) -> None:
        """Add tasks to the run: at once if it is executed or the tasks are approved, else after a yes."""
        run = self.run.run
        assert run is not None
        added = plans.addition(run, texts)
        if self.run.is_executing:
            await self.run.request(added)
            return
        await self.view.write(lambda: plans.show_added(run, added))
        await self._ask(Proposal("more", added), approved=approved)

    async def _ask(self, proposal: Proposal, *, approved: bool = False) -> None:
        """Wait for a yes, unless there is one already."""
        if approved or self._auto:
            await self._accept(proposal)
        else:
            self.proposal = proposal

    async def decide(self, text: str, proposal: Proposal) -> None:
        """Act on what the person says to a proposal."""
        said = text.lower().strip(" .!")
        if proposal.offered and said not in (*YES, *NO, *EDIT):
            await self.begin_anew()
            await self.plan(text)
            return
        await self.record(text)
        if said in YES:
            await self._accept(proposal)
        elif said in NO and (proposal.what == "plan" or proposal.offered):
            await self.begin_anew("nothing was started; say what is to be done")
        elif said in NO:
            self.proposal = None
            self.reply("nothing was changed")
        elif proposal.what != "plan":
            self.proposal = None
            await (self.add([text]) if self.run.run is not None else self.plan(text))
        elif said in EDIT:
            await self._edit(proposal)
        else:
            raise InvalidInput(
                f"{text!r} is neither yes, no nor edit", hint="the plan is in a file, so no agent changes it"
            )

    async def answer(self, ref: str, text: str) -> None:
        """Answer a question, or open the editor with the plan that is asked about."""
        question = next((each for each in self.run.questions if each.ref == ref), None)
        if question is None or question.kind != PLAN or text.lower() not in EDIT:
            await self.run.answer(ref, text)
        else:
            await self.run.edit_plan(self._person())

    def _person(self) -> LiveTerminal:
        """Where a person types; InvalidInput when a program does."""
        if isinstance(self.lines, PipedLines):
            raise InvalidInput("an editor needs a terminal", hint="say what to change, or yes or no")
        return self.lines

    async def _edit(self, proposal: Proposal) -> None:
        draft = proposal.draft
        assert draft is not None
        async with self._person().hidden():
            text = await asyncio.to_thread(click.edit, draft.text, extension=draft.suffix)
        edited = draft._replace(text=draft.text if text is None else text)
        self.proposal = proposal._replace(draft=edited)  # kept when it is wrong, to be corrected
        await self.propose(edited)

    async def _accept(self, proposal: Proposal) -> None:
        self.proposal = None
        if isinstance(proposal.plan, ValidPlan):
            folder, options = self._made_with["folder"], self._made_with["options"]
            await self._start(await self.m.runs.start(proposal.plan, folder=folder, options=options, id=self.id))
        else:
            await self.resume(add=proposal.plan)

    # --- the run ---------------------------------------------------------------------------------------------

    async def begin(self, id: str) -> None:
        """Continue the conversation about a run, or offer the newest that is unfinished."""
        found = id or (await _latest(self.m) if self.lines.by_person else "")
        if found:
            await self._continue(found, offered=not id)
        else:
            self.reply("say what is to be done; /help lists what else you can say")

    async def _continue(self, id: str, *, offered: bool) -> None:
        self.id = (await self.m.runs.find(id)).id
        said, typed = await _past(self.m, self.id)
        run = await self.run.follow(self.id)
        if len(said) > LINES_SHOWN_MAX:
            self.view.report(f"… {len(said) - LINES_SHOWN_MAX} earlier lines left out")
        for task, text, style in said[-LINES_SHOWN_MAX:]:
            self.view.report(text, style, task=task)
        self.lines.remember(typed)
        self.view.emit({"kind": "run", **page.run_document(run), "said": typed})
        status = "interrupted" if is_interrupted(run) else run.status
        self.view.report(f"{run.id} is {status}, {run.done} of {len(run.tasks)} tasks done", "bold")
        if is_executing(run):
            self.reply(f"process {run.owner.get('pid')} executes it; you can steer it from here")
        elif run.status != "completed":
            await self._ask(Proposal("resume", offered=offered))

    async def resume(self, limits: Limits | None = None, add: Addition | None = None) -> None:
        """Claim a run that has something left to do, with more tasks if there are any, and execute it here."""
        await self.m.runs.resume(self.id, self.view, limits=limits, add=add)
        await self.run.execute(self.id)

    async def begin_anew(self, text: str = "") -> None:
        """Talk about another run from now on."""
        await self.run.unfollow()
        self.proposal, self.id = None, ""
        if text:
            self.reply(text)


async def _past(m: Maos, id: str) -> tuple[list[words.Line], list[str]]:
    """The conversation about a run so far, with what happened to the run; and what the person typed."""
    lines: list[words.Line] = []
    typed: list[str] = []
    run = Run(id=id)
    for each in await m.runs.conversations.read(id):
        if isinstance(each, SentMessage):
            said = each.message
            if said.sender != PERSON:
                lines.append((words.task_of(id, said.sender), f"→ {words.one_line(said.text, 300)}", ""))
        elif each.stream == chat_stream(id):
            typed.append(each.data["text"])
            lines.append(("", f"› {words.one_line(each.data['text'], 1000)}", "bold"))
        else:
            run.apply(each.event)
            lines += words.of_event(run, each.type, each.data)
    return lines, typed


async def _latest(m: Maos) -> str:
    """The newest run that is unfinished and that no engine executes; empty when there is none."""
    left = [each for each in await m.runs.unfinished() if not is_executing(each)]
    return left[0].id if left else ""
