"""Questions to a person, of all runs and agents: found wherever they lie, and answered also while no engine runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from maos.clock import Clock
from maos.errors import Conflict, InvalidInput, NotFound
from maos.journal.codec import Event
from maos.journal.journal import Journal
from maos.model.attempt import Attempt, inbox
from maos.model.join import JOIN
from maos.model.run import GATE as GATE_ID
from maos.model.run import Question, Run
from maos.model.run_status import PendingCommands, pending_commands, permissions
from maos.model.workflow import GATE as FLOW_GATE
from maos.model.workflow import Step, WorkflowRun

QUESTION, GATE, PERMISSION = "question", "gate", "permission"
WORKFLOW, UNKNOWN = "workflow", "unknown"
"""What a workflow asks; and what became of a step of one, which `maos workflow settle` says."""
YES, NO = ("yes", "y", "ok", "true"), ("no", "n", "false")
SHORT_CHARS_MIN = 6
SHOWN_MAX = 5


class Answered(Conflict):
    """Somebody else has answered already; the first answer counts."""

    def __init__(self, id: str, answer: str, by: str) -> None:
        super().__init__(id, expected=0, actual=0)
        self.what = f"{id} was answered already, by {by or 'somebody'}: {answer}"
        self.hint = "the first answer counts"
        self.args = (self.what,)


class Open(NamedTuple):
    """Something that a person should answer."""

    owner: str
    """The run, or for a permission the agent, that asks."""
    id: str
    """Its id among the questions of its owner."""
    kind: str
    text: str
    choices: tuple[str, ...] = ()
    context: str = ""
    asked_by: tuple[str, ...] = ()
    asked_us: int = 0
    default: str | None = None
    expires_us: int = 0
    tool: str = ""
    input: Any = None
    """What it is used for, as its program put it."""
    recorded: bool = True
    """Whether an engine has taken note of it; one that did not is asked all the same."""

    @property
    def ref(self) -> str:
        """What it is called among the questions of everybody."""
        return f"{self.owner}/{self.id}"


async def wishes_of(journal: Journal, run: Run) -> PendingCommands:
    """What lies in a run's inbox and no engine has recorded."""
    found = [(record.type, record.data) async for record in journal.read(inbox(run.id), after=run.inbox_cursor)]
    return pending_commands(run, found)


def of_run(run: Run, known: PendingCommands) -> list[Open]:
    """The questions of a run that nobody has answered; one that is over only asks how it is to be joined."""
    asked = [each for each in known.questions.values() if each.answer is None]
    return [_question(run, each, known) for each in asked if run.is_open or each.id.startswith(JOIN)]


async def of_agent(journal: Journal, attempt: Attempt) -> list[Open]:
    """What an agent asks to be allowed to do, and nobody has answered."""
    asked = {each.id: each for each in of_attempt(attempt)}
    if asked:
        async for record in journal.read(inbox(attempt.agent), after=attempt.answered_cursor):
            if record.type == "permission_answered":
                asked.pop(record.data["request"], None)
    return list(asked.values())


async def of_workflow(journal: Journal, flow: WorkflowRun) -> list[Open]:
    """What a workflow asks a person, and nobody has answered."""
    asked = {step_id: call for step_id, call in flow.waiting.items() if call.kind == FLOW_GATE}
    asked |= flow.unknown
    if not asked or not flow.is_open:
        return []
    async for record in journal.read(inbox(flow.id), after=flow.inbox_cursor):
        if record.type == "question_answered":
            asked.pop(record.data["id"], None)
        elif record.type == "resolve_requested":
            call = asked.get(record.data["step_id"])
            if call is not None and record.data.get("tries", call.tries) == call.tries:  # else of an earlier try
                del asked[record.data["step_id"]]
    return [_of_call(flow, step_id, call) for step_id, call in asked.items()]


def of_attempt(attempt: Attempt) -> list[Open]:
    """What an agent asks to be allowed to do, as far as its engine has recorded."""
    return [_permission(attempt, each) for each in permissions(attempt)] if attempt.is_open else []


def find(everybody: Sequence[Open], given: str) -> Open:
    """The question that is meant: by its id, its id with its owner's, or an unambiguous beginning of either."""
    for name in ("ref", "id"):
        exact = [each for each in everybody if getattr(each, name) == given]
        if len(exact) == 1:
            return exact[0]
    found = [each for each in everybody if given and given in (each.ref[: len(given)], each.id[: len(given)])]
    if len(found) == 1:
        return found[0]
    if found:
        shown = ", ".join(each.ref for each in found[:SHOWN_MAX])
        raise InvalidInput(f"{given!r} could be any of {len(found)} questions: {shown}", hint="give more of its id")
    raise NotFound(f"nobody asks {given!r}", hint="`maos questions` lists what waits for an answer")


def short(everybody: Sequence[Open], wanted: Open) -> str:
    """As much of a question's id as tells it from the questions of everybody."""
    if len(wanted.id) < SHORT_CHARS_MIN:  # the call of a workflow, which says nothing without its owner
        return wanted.ref
    for whole, chars_min in ((wanted.id, SHORT_CHARS_MIN), (wanted.ref, len(wanted.owner) + 1 + SHORT_CHARS_MIN)):
        for end in range(min(chars_min, len(whole)), len(whole) + 1):
            if sum(whole[:end] in (each.ref[:end], each.id[:end]) for each in everybody) == 1:
                return whole[:end]
    return wanted.ref


def short_of_owner(asked: Sequence[Open], wanted: Open) -> str:
    """The same when only the questions of one run are known: the run's own id tells it from all others."""
    whole = wanted.ref
    for end in range(min(len(wanted.owner) + 1 + SHORT_CHARS_MIN, len(whole)), len(whole)):
        if sum(each.ref.startswith(whole[:end]) for each in asked) == 1:
            return whole[:end]
    return whole


def check(question: Open, answer: str, why: str = "") -> str:
    """The answer as it will be recorded: one of the choices, if there are any."""
    said = answer.strip()
    if not said:
        raise InvalidInput("the answer is empty", hint="say something")
    if question.kind == UNKNOWN:
        raise InvalidInput(f"what became of call {question.id} is not answered but settled", hint=question.context)
    if question.kind in (GATE, PERMISSION):
        if said.lower() not in (*YES, *NO):
            raise InvalidInput(f"{said!r} is neither yes nor no", hint="say yes or no; --why gives a reason")
        plain = "yes" if said.lower() in YES else "no"
        return f"no: {why}" if why and plain == "no" and question.kind == GATE else plain
    if question.choices:
        for each in question.choices:
            if said.casefold() == each.casefold():
                return each
        if said.isdigit() and 1 <= int(said) <= len(question.choices):
            return question.choices[int(said) - 1]
        raise InvalidInput(f"{said!r} is not a choice", hint=f"choose one of: {', '.join(question.choices)}")
    return answer


def with_reason(question: Open, said: str) -> tuple[str, str]:
    """What a person typed in one line, as an answer and a reason: `no, use git mv` is a no that says why."""
    first, _, rest = said.strip().partition(" ")
    if question.kind in (GATE, PERMISSION) and first.strip(",.:;").lower() in (*YES, *NO):
        return first.strip(",.:;"), rest.strip()
    return said, ""


async def answer(journal: Journal, clock: Clock, run: Run, id: str, text: str, *, by: str = "person") -> int:
    """Record an answer in the run's inbox, where an engine finds it now or when one comes; Answered when late."""
    while True:
        version = await journal.version(inbox(run.id))
        known = (await wishes_of(journal, run)).questions.get(id)
        if known is None:
            raise NotFound(f"{run.id} does not ask {id!r}", hint="`maos questions` lists what waits for an answer")
        if known.answer is not None:
            raise Answered(id, known.answer, known.answered_by)
        event = Event("question_answered", {"id": id, "answer": text, "by": by, "at_us": clock.now_us()})
        try:
            return (await journal.append(inbox(run.id), event, expected=version)).version
        except Conflict:
            continue  # something else came into the inbox, perhaps another answer


def _question(run: Run, asked: Question, known: PendingCommands) -> Open:
    return Open(
        owner=run.id,
        id=asked.id,
        kind=GATE if asked.id.startswith(GATE_ID) else QUESTION,
        text=asked.question,
        choices=tuple(asked.choices),
        context=asked.context,
        asked_by=tuple(asked.asked_by),
        asked_us=asked.asked_us,
        default=asked.default,
        expires_us=asked.expires_us,
        recorded=asked.id not in known.unrecorded,
    )


def _of_call(flow: WorkflowRun, step_id: str, call: Step) -> Open:
    if call.kind != FLOW_GATE:
        text = f"did {call.name}({call.about.get('given', '')}) take effect?"
        context = f"maos workflow settle {flow.id} {step_id} done|failed|again"
        return Open(flow.id, step_id, UNKNOWN, text, context=context, asked_by=(flow.id,), asked_us=call.at_us)
    return Open(
        owner=flow.id,
        id=step_id,
        kind=WORKFLOW,
        text=call.name,
        choices=tuple(call.about.get("choices", ())),
        context=call.about.get("context", ""),
        asked_by=(flow.id,),
        asked_us=call.at_us,
        default=call.about.get("default"),
        expires_us=call.until_us,
    )


def _permission(attempt: Attempt, fact: Mapping[str, Any]) -> Open:
    return Open(
        owner=attempt.agent,
        id=str(fact["id"]),
        kind=PERMISSION,
        text=f"may it use {fact.get('tool') or 'a tool'}?",
        tool=fact.get("tool") or "",
        input=fact.get("input"),
        choices=("yes", "no"),
        asked_by=(attempt.agent,),
        asked_us=attempt.output_us,
    )
