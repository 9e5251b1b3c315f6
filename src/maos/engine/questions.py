"""Questions to a person, of all runs and agents: found wherever they lie, and answered also while no engine runs."""

from __future__ import annotations

from maos.clock import Clock
from maos.errors import Conflict, NotFound
from maos.journal.journal import Journal
from maos.model import permission
from maos.model.attempt import Attempt, Permission
from maos.model.branch import JOIN
from maos.model.events.commands import PermissionAnswered, ResolveRequested
from maos.model.events.run import QuestionAnswered
from maos.model.message import inbox
from maos.model.question import GATE, PERMISSION, PLAN, QUESTION, UNKNOWN, WORKFLOW, Open
from maos.model.run import GATE as GATE_ID
from maos.model.run import Question, Run
from maos.model.run_status import PendingCommands, pending_commands, permissions
from maos.model.workflow import GATE as FLOW_GATE
from maos.model.workflow import Step, WorkflowRun


class Answered(Conflict):
    """Another answer came first; the first answer counts."""

    def __init__(self, id: str, answer: str, by: str) -> None:
        what = f"{id} was answered already, by {by or 'another person'}: {answer}"
        super().__init__(id, what=what, hint="the first answer counts")


async def pending_of(journal: Journal, run: Run) -> PendingCommands:
    """What lies in a run's inbox and no engine has recorded."""
    if await journal.version(inbox(run.id)) <= run.inbox_cursor:
        return pending_commands(run, ())
    return pending_commands(run, [each.event async for each in journal.read(inbox(run.id), after=run.inbox_cursor)])


def of_run(run: Run, known: PendingCommands) -> list[Open]:
    """The questions of a run that are not answered; one that is over only asks how it is to be joined."""
    asked = [each for each in known.questions.values() if each.answer is None]
    return [_question(run, each, known) for each in asked if run.is_open or each.id.startswith(JOIN)]


async def of_agent(journal: Journal, attempt: Attempt) -> list[Open]:
    """What an agent asks to be allowed to do, and no person has answered."""
    asked = {each.id: each for each in of_attempt(attempt)}
    if asked:
        async for record in journal.read(inbox(attempt.agent), after=attempt.answered_cursor):
            if isinstance(record.event, PermissionAnswered):
                asked.pop(record.event.request, None)
    return list(asked.values())


async def of_workflow(journal: Journal, flow: WorkflowRun) -> list[Open]:
    """What a workflow asks a person, and no person has answered."""
    asked = {step_id: call for step_id, call in flow.waiting.items() if call.kind == FLOW_GATE}
    asked |= flow.unknown
    if not asked or not flow.is_open:
        return []
    async for record in journal.read(inbox(flow.id), after=flow.inbox_cursor):
        match record.event:
            case QuestionAnswered(id=step_id):
                asked.pop(step_id, None)
            case ResolveRequested(step_id=step_id, tries=tries):
                call = asked.get(step_id)
                if call is not None and tries in (None, call.tries):  # else of an earlier try
                    del asked[step_id]
    return [_of_call(flow, step_id, call) for step_id, call in asked.items()]


def of_attempt(attempt: Attempt) -> list[Open]:
    """What an agent asks to be allowed to do, as far as its engine has recorded."""
    return [_permission(attempt, each) for each in permissions(attempt)] if attempt.is_open else []


async def answer(journal: Journal, clock: Clock, run: Run, id: str, text: str) -> int:
    """Record an answer in the run's inbox, where an engine finds it now or when one comes; Answered when late."""
    journal.principal.check_may_decide(f"answer {run.id}/{id}")
    while True:
        version = await journal.version(inbox(run.id))
        known = (await pending_of(journal, run)).questions.get(id)
        if known is None:
            raise NotFound(f"{run.id} does not ask {id!r}", hint="`maos inbox` lists what waits for an answer")
        if known.answer is not None:
            raise Answered(id, known.answer, known.answered_by)
        event = QuestionAnswered(id=id, answer=text, by=journal.by, at_us=clock.now_us())
        try:
            return (await journal.append(inbox(run.id), event, expected=version)).version
        except Conflict:
            continue  # something else came into the inbox, perhaps another answer


def _question(run: Run, asked: Question, known: PendingCommands) -> Open:
    kind = GATE if asked.id.startswith(GATE_ID) else QUESTION
    context = asked.context
    if run.planner is not None and run.planner.asks == asked.id:
        kind, context = PLAN, _plan_text(run)
    return Open(
        owner=run.id,
        id=asked.id,
        kind=kind,
        text=asked.question,
        choices=tuple(asked.choices),
        context=context,
        meanings=tuple(asked.meanings),
        asked_by=tuple(asked.asked_by),
        asked_us=asked.asked_us,
        default=asked.default,
        expires_us=asked.expires_us,
        recorded=asked.id not in known.unrecorded,
    )


def _plan_text(run: Run) -> str:
    """The plan that a person is to approve, a task on each line."""
    tasks = run.proposal.tasks if run.proposal else []
    after = [f" after {', '.join(each['needs'])}" if each.get("needs") else "" for each in tasks]
    said = [str(each.get("task") or " ".join(each.get("command", ()))) for each in tasks]
    return "\n".join(f"{each['name']}{need}: {text}" for each, need, text in zip(tasks, after, said, strict=True))


def _of_call(flow: WorkflowRun, step_id: str, call: Step) -> Open:
    if call.kind != FLOW_GATE:
        text = f"did {call.name}({call.about.get('given', '')}) take effect?"
        context = f"maos workflow resolve {flow.id} {step_id} done|failed|again"
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


def _permission(attempt: Attempt, asked: Permission) -> Open:
    found = Open(
        owner=attempt.agent,
        id=asked.id,
        kind=PERMISSION,
        text=f"may it use {asked.tool or 'a tool'}?",
        tool=asked.tool,
        input=asked.input,
        asked_by=(attempt.agent,),
        asked_us=attempt.output_us,
        run=attempt.order.get("run", ""),
        asked=asked.asked,
        suggestions=permission.suggestions(asked.asked, asked.suggestions),
        program_can=asked.is_once_for_all,
    )
    return found.with_answers()
