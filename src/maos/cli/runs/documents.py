"""What `maos orchestration … --json` prints of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maos.cli import questions
from maos.cli.documents import Document, time
from maos.cli.workflow import changes

if TYPE_CHECKING:
    from maos.bus.history import SentMessage
    from maos.model.run import Run, TaskState
    from maos.runs.status import RunView


def summary(status: RunView) -> Document:
    """A run in a list (R-106)."""
    run, now = status.run, status.now
    return {
        "id": run.id,
        "request": run.request,
        "status": run.status,
        "state": now.state,
        "activity": now.activity,
        "progress": now.progress,
        "total_agents": len(run.tasks),
        "successful_agents": run.done,
        "active_agents": sum(each.is_open for each in status.attempts.values()),
        "message_count": status.messages,
        "cost_usd": run.cost_usd,
        "tokens": run.tokens,
        "duration_s": status.duration_us / 1e6,
        **time(run.created_us, "created"),
        **time(run.updated_us, "updated"),
        **time(run.ended_us or None, "completed"),
        "error": now.error,
        "to_do": now.to_do,
        "questions": len(status.questions),
        "permanent": status.permanent is not None,
        "go_on": status.go_on or None,
    }


def whole(status: RunView) -> Document:
    """Everything that is known of a run but its tasks and messages (R-204)."""

    run, now = status.run, status.now
    return {
        **summary(status),
        **changes.document(run),
        "folder": run.folder,
        "options": run.options,
        "engine": run.owner,
        "summary": run.summary,
        "batches": batches(run),
        "commit": run.commit,
        "spawned_tasks": list(now.spawned),
        "stuck_tasks": list(now.stuck),
        "pause_requested": status.commands.pause or None,
        **time(now.until_us or None, "goes_on"),
        "restoration_count": now.restored,
        "restoration_source": now.restored_from or None,
        **time(now.restored_us or None, "last_restored"),
        "agents": agents(status),
        "pending_questions": questions.documents_of(status.questions),
        "checkpoints": [
            {"name": each.get("name", ""), "version": each["version"], **time(each["at_us"])}
            for each in run.checkpoints
        ],
    }  # fmt: skip


def agents(status: RunView) -> list[Document]:
    """The agents that are at work."""
    return [
        {
            "agent": name,
            "kind": each.kind,
            "status": each.status,
            "activity": each.activity,
            "cost_usd": each.total_cost_usd,
            "turns": each.turns,
            "pid": each.pid,
            "session": each.session,
            **time(each.output_us or each.planned_us or None, "last_active"),
        }
        for name, each in status.attempts.items()
    ]


def task(each: TaskState, run: Run) -> Document:
    """A task of a run (R-107)."""
    return {
        "task": each.name,
        "description": each.plan.get("task", "") or " ".join(each.plan.get("command", ())),
        "status": each.status,
        "agent": run.agent(each.name),
        "needs": each.needs,
        "attempts": each.attempts,
        "result": each.result,
        "failure": each.failure or None,
        "why": each.why or None,
        "cost_usd": each.cost_usd,
        "tokens": each.tokens,
        **time(each.started_us or None, "started"),
        **time(each.ended_us or None, "completed"),
        **time(each.not_before_us or None, "not_before"),
    }


def said(each: SentMessage) -> Document:
    """A message between agents."""
    message = each.message
    return {
        "id": message.id,
        "from": message.sender,
        "to": list(message.to),
        "type": message.type,
        "text": message.text,
        "topic": message.topic,
        "metadata": dict(message.metadata),
        "reply_to": message.reply_to or None,
        **time(message.at_us),
    }


def batches(run: Run) -> list[list[str]]:
    """Names of tasks in groups, each of which needs only what is in groups before it."""
    from maos.model.plan import Plan, Task
    from maos.model.plan import batches as grouped

    return grouped(Plan(tasks=[Task(name=each.name, needs=each.needs) for each in run.tasks.values()]))
