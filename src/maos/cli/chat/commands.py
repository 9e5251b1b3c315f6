"""The commands of a conversation, which begin with a slash, and messages to agents, which begin with @."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from maos.cli.agent import words
from maos.cli.chat.session import ChatSession
from maos.cli.runs import narration, page, plans, prompts
from maos.errors import InvalidInput, NotFound
from maos.model import question
from maos.model.message import PERSON
from maos.model.run import DONE, Run
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


class ChatCommands:
    """The commands of one conversation."""

    def __init__(self, session: ChatSession) -> None:
        self._session = session

    async def execute(self, text: str) -> None:
        """Execute a command."""
        name, _, rest = text.partition(" ")
        found = [each for each in NAMES if each == name.lower()] or [
            each for each in NAMES if each.startswith(name.lower())
        ]
        if len(found) != 1:
            near = difflib.get_close_matches(name, NAMES, n=1)
            hint = f"did you mean {near[0]}?" if near else "/help lists them"
            raise InvalidInput(f"there is no command {name}", hint=hint)
        await getattr(self, f"_{found[0][1:]}")(rest.strip())

    async def message(self, text: str) -> None:
        """Send a message to an agent, or to all of them."""
        to, _, said = text.partition(" ")
        if not said.strip():
            raise InvalidInput("the message is empty", hint="@NAME TEXT sends one to an agent")
        run, bus = self._run(), self._session.m.bus
        if to.lower() == "all":
            sent = await bus.broadcast(PERSON, run.id, said.strip())
            if not sent.to:
                raise InvalidInput("no agent works that could receive it", hint="/add TEXT gives more work")
            self._session.reply(f"sent to {', '.join(narration.task_of(run.id, each) for each in sent.to)}")
            return
        task = task_named(run, to)
        agent = run.agent(task)
        if run.tasks[task].status == DONE:
            raise InvalidInput(f"{task} is done", hint=f"/add {task}-2 after {task}: {said.strip()}")
        if run.tasks[task].attempts:
            await self._session.m.agents.tell(agent, said.strip())
        else:
            await bus.send(PERSON, agent, said.strip())
        self._session.reply(f"sent to {task}")

    async def _help(self, _rest: str) -> None:
        width = max(len(usage) for usage, _meaning in HELP)
        self._session.reply("\n".join(f"  {usage:<{width}}  {meaning}" for usage, meaning in HELP), "")

    async def _add(self, rest: str) -> None:
        self._run()
        if not rest:
            raise InvalidInput("the work is missing", hint="/add TEXT")
        await self._session.add([rest], approved=True)

    async def _answer(self, rest: str) -> None:
        id, _, said = rest.partition(" ")
        await self._session.run.answer(question.find(self._session.run.questions, id).ref, said)

    async def _questions(self, _rest: str) -> None:
        run, found = self._run(), self._session.run.questions
        if not found:
            self._session.reply("no open questions")
        for each in found:
            text = "\n".join([*prompts.lines_of(run.id, each), f"  /answer {each.id} …"])
            self._session.reply(text, "warning", id=each.id, choices=list(each.choices))

    async def _status(self, _rest: str) -> None:
        now = await self._session.m.runs.status_of(self._run())
        if self._session.view.as_json:
            self._session.view.emit({**page.document(now, tasks=True), "kind": "status"})
        else:
            await self._session.view.write(lambda: page.show(now, tasks=True, messages=None))

    async def _log(self, rest: str) -> None:
        run = self._run()
        agent = run.agent(task_named(run, rest))
        lines: list[str] = []
        async for record in self._session.m.agents.records(agent):
            for fact in record.data.get("facts", ()):
                if fact["kind"] in ("line", "text"):
                    lines += [words.tidy(each) for each in str(fact.get("text", "")).splitlines()]
                elif fact["kind"] == "tool_use":
                    lines.append(f"→ {words.tool(fact.get('name', ''), fact.get('input'))}")
            lines = lines[-LOG_LINES:]
        self._session.reply("\n".join(f"  {each}" for each in lines) or "it has printed nothing yet", "")

    async def _plan(self, rest: str) -> None:
        if self._session.run.run is not None:
            raise InvalidInput("there is a run already", hint=f"/add @{rest or 'FILE'} adds to it, /new begins another")
        draft = plans.read(rest)
        self._session.id, self._session.request = self._session.id or new_id(), f"the plan {rest}"
        await self._session.propose(draft)

    async def _pause(self, _rest: str) -> None:
        self._run()
        await self._session.run.pause("asked")
        self._session.reply("pausing: the agents are being stopped")

    async def _concurrency(self, rest: str) -> None:
        self._run()
        agents = _number(rest)
        self._session.run.set_concurrency(agents)
        self._session.reply(f"at most {agents} at once from now on")

    async def _resume(self, rest: str) -> None:
        run = self._run()
        agents = _number(rest) if rest else None
        if self._session.run.is_executing:
            raise InvalidInput(f"{run.id} is executed already", hint="/pause first, to change how")
        await self._session.resume({"concurrency": agents} if agents else {})

    async def _stop(self, rest: str) -> None:
        run = self._run()
        task = task_named(run, rest)
        await self._session.m.agents.stop(run.agent(task))
        self._session.reply(f"{task} is being stopped")

    async def _new(self, _rest: str) -> None:
        if self._session.run.is_ours:
            raise InvalidInput("this process executes the run", hint="/pause it first")
        await self._session.begin_anew("say what is to be done")

    async def _wait(self, _rest: str) -> None:
        await self._session.until_needed()

    async def _quit(self, _rest: str) -> None:
        self._session.leave()

    def _run(self) -> Run:
        if self._session.run.run is None:
            raise InvalidInput("there is no run yet", hint="say what is to be done")
        return self._session.run.run


def task_named(run: Run, given: str) -> str:
    """The task that is meant: by its name, or an unambiguous beginning of it."""
    given = narration.task_of(run.id, given.strip())
    if given in run.tasks:
        return given
    found = [name for name in run.tasks if given and name.lower().startswith(given.lower())]
    if len(found) == 1:
        return found[0]
    if found:
        raise InvalidInput(f"{given!r} could be {', '.join(found[:5])}", hint="give more of the name")
    raise NotFound(f"no agent is called {given!r}", hint=f"there are: {', '.join(list(run.tasks)[:20])}")


def _number(text: str) -> int:
    """How many agents."""
    if not text.isdigit() or not 1 <= int(text) <= AGENTS_MAX:
        raise InvalidInput(f"{text!r} is not a number of agents", hint=f"it is 1 to {AGENTS_MAX}")
    return int(text)


def completions(run: Run, beginning: str) -> Sequence[str]:
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
