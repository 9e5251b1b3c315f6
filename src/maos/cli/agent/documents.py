"""What `maos agent … --json` prints of attempts and what is heard of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maos.cli.documents import Document, time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from maos.cli.agent.standing import AgentStanding
    from maos.journal.journal import Record
    from maos.model.attempt import Attempt, Tokens


def summary(standing: AgentStanding) -> Document:
    """An agent in a list, and at the end of a run."""
    attempt = standing.attempt
    return {
        "agent": attempt.agent,
        "attempt": attempt.number,
        "kind": attempt.kind,
        "status": standing.status,
        "task": attempt.task,
        "activity": attempt.activity,
        **time(attempt.started_us or attempt.planned_us, "started"),
        **time(attempt.output_us or None, "heard"),
        **time(attempt.ended_us or None, "ended"),
        "cost_usd": standing.cost_usd,
        "tokens": tokens(standing.tokens),
        "turns": attempt.turns,
        "result": attempt.result or attempt.last_text,
        "failure": failure(attempt),
        "exit": attempt.exit,
        "go_on": standing.go_on or None,
    }


def whole(standing: AgentStanding, attempts: list[Attempt], files: list[Document] | None) -> Document:
    """Everything that is known of an agent."""
    attempt = standing.attempt
    return {
        **summary(standing),
        "engine": {**attempt.owner},
        "pid": attempt.pid,
        "folder": attempt.folder,
        "session": attempt.session,
        "model": attempt.model,
        "order": attempt.order,
        "workspace": attempt.workspace,
        "files": files,
        "lines": attempt.lines,
        "retries": attempt.retries,
        "troubles": attempt.troubles,
        "discoveries": attempt.discoveries,
        "discovery_count": attempt.discovery_count,
        "tools_done": attempt.tools_done,
        "tools_unknown": [{"id": id, **tool} for id, tool in attempt.tools_open.items()],
        "permissions": list(attempt.permissions.values()),
        "checkpoints": [
            {"attempt": each.number, "name": point.name, "trigger": point.trigger, "commit": point.commit,
             "version": point.version, **time(point.at_us)}
            for each in attempts for point in each.checkpoints
        ],
        "attempts": [
            {"attempt": each.number, "status": each.status, "failure": failure(each), "turns": each.turns,
             "cost_usd": each.total_cost_usd, "tokens": tokens(each.total_tokens),
             **time(each.started_us or each.planned_us, "started"), **time(each.ended_us or None, "ended")}
            for each in attempts
        ],
    }  # fmt: skip


def failure(attempt: Attempt) -> Document | None:
    """Why an attempt failed, and what that means."""
    from maos.model.failure import TABLE

    if not attempt.failure:
        return None
    known = TABLE.get(attempt.failure)
    return {
        "name": attempt.failure,
        "message": attempt.message,
        "meaning": known.meaning if known else "",
        "action": known.action if known else "",
        "hint": known.hint if known else "",
        **time(attempt.reset_us or None, "reset"),
    }


def tokens(tokens: Tokens) -> Document:
    """Tokens by their kind."""
    return {
        "input": tokens.input,
        "output": tokens.output,
        "cache_read": tokens.cache_read,
        "cache_write": tokens.cache_write,
    }


def events(record: Record) -> Iterator[Document]:
    """An event of an attempt: itself, or each of the facts in it."""
    from maos.model.attempt import agent_of

    attempt = record.stream.partition("/")[2]
    head: dict[str, Any] = {
        "event": f"{record.stream}@{record.version}",
        "agent": agent_of(attempt),
        "attempt": int(attempt.rpartition(".")[2]),
    }
    if record.type != "attempt_output":
        data = {key: value for key, value in record.data.items() if key not in ("agent", "number", "at_us")}
        yield {**head, **time(record.time_us), "kind": record.type, **data}
        return
    for fact in record.data["facts"]:
        yield {**head, **time(record.data["at_us"]), **fact}
