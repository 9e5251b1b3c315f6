"""What people and agents want of a run, and what follows from it: questions, answers, more tasks, checkpoints.

What others are told about it is sent over the bus in the same append, so that it is in the history like everything
else that is said, and one is not there without the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from maos.bus.bus import Bus
from maos.engine import checkpoints
from maos.errors import InvalidInput
from maos.journal.codec import Event
from maos.journal.journal import Append, Record
from maos.model import plan
from maos.model.message import PERSON, inbox
from maos.model.question import yes_or_no
from maos.model.run import GATE, RUNNING, Run, TaskState, asked_for
from maos.runs import conflicts
from maos.runs.budgets import SENDER
from maos.runs.outcomes import Outcome, what_follows

TASKS_REQUESTED_MAX = 100
"""How many tasks agents may add to a run while one engine carries it out."""
TEXT_CHARS_MAX = 100_000
DEFAULT = "default"
"""Who gave the answer to a question that answered itself."""


class Granted(NamedTuple):
    """What follows from a wish."""

    events: Sequence[Event] = ()
    """For the run."""
    also: Sequence[Append] = ()
    """For others."""


def gate_question(task: TaskState, question: str) -> dict[str, Any]:
    """What a person is asked whose word a task's gate waits for."""
    return {"id": task.asks, "question": question, "choices": ["yes", "no"], "asked_by": [], "context": task.result}


class Desk:
    """Where the wishes of one run are decided."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._asked = 0

    def grant(self, run: Run, record: Record, now_us: int) -> Granted:
        """Decide about a wish; what does not make sense any more changes nothing, nor what nobody may want (I14)."""
        asked_by = record.data.get("asked_by") or ()
        if not all(map(run.accepts_from, [asked_by] if isinstance(asked_by, str) else asked_by)):
            return Granted()
        data = {**record.data, "inbox_version": record.version, "at_us": now_us}
        match record.type:
            case "tasks_requested":
                return self._add_tasks(run, data)
            case "checkpoint_requested":
                return self._checkpoint(run, data)
            case "question_asked":
                return Granted([Event("question_asked", data)])
            case "question_answered":
                return self._answer(run, data)
            case "wake_requested" if run.wakes_us > now_us:
                return Granted([Event("run_woken", data)])
        return Granted()

    def _answer(self, run: Run, data: dict[str, Any]) -> Granted:
        question = run.questions.get(data["id"])
        if question is None or question.answer is not None:
            return Granted()  # the first answer counts
        answered = Event("question_answered", data)
        task = run.tasks.get(asked_for(data["id"]))
        if task is not None and task.asks == data["id"]:  # else it goes on, or is done, without that answer (I29)
            is_gate = data["id"].startswith(GATE)
            return Granted([answered, _after_gate(task, data) if is_gate else conflicts.after(task, data)])
        text = f"Answer to your question {question.question!r}: {data['answer']}"
        sender = SENDER if data.get("by") == DEFAULT else PERSON
        told = [self._tell(run, sender, agent, text, "response", question=data["id"]) for agent in question.asked_by]
        return Granted([answered], [each for appends in told for each in appends])

    def _add_tasks(self, run: Run, data: dict[str, Any]) -> Granted:
        """Tasks that an agent has asked for; one that makes no sense is refused, and the agent told why."""
        by, count = data["asked_by"], len(data["tasks"])
        try:
            if self._asked + count > TASKS_REQUESTED_MAX:
                raise InvalidInput(f"agents have asked for {self._asked} tasks", hint="no more are taken in this run")
            plan.from_data({"tasks": [*(each.plan for each in run.tasks.values()), *data["tasks"]]})
        except InvalidInput as error:
            noted = {"text": str(error), "inbox_version": data["inbox_version"], "at_us": data["at_us"]}
            told = self._tell(run, SENDER, by, f"Your task was refused: {error}", "error")
            return Granted([Event("run_note_added", noted)], told)
        self._asked += count
        return Granted([Event("run_planned", data)])

    def _checkpoint(self, run: Run, data: dict[str, Any]) -> Granted:
        saved = checkpoints.made(run, data["name"], "asked", data["at_us"], inbox_version=data["inbox_version"])
        wish = Event("checkpoint_requested", {"name": data["name"], "at_us": data["at_us"]})
        at_work = [task.name for task in run.tasks.values() if task.status == RUNNING]
        return Granted([saved], [Append(inbox(run.agent(name)), [wish]) for name in at_work])

    def _tell(self, run: Run, sender: str, to: str, text: str, type: str, **metadata: Any) -> list[Append]:
        return self._bus.enclosed(sender, to, text[:TEXT_CHARS_MAX], run=run.id, type=type, metadata=metadata)


def _after_gate(task: TaskState, data: dict[str, Any]) -> Event:
    if yes_or_no(data["answer"]):
        return Event("task_gated", {"task": task.name, "passed": task.gate + 1, "at_us": data["at_us"]})
    refused = Outcome(failure="gate_failed", message=f"a person said: {data['answer']}")
    return what_follows(task, refused, data["at_us"])
