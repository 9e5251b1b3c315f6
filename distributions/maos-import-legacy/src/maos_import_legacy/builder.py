"""Builds the events of a run from an orchestration of maos-cli, as if it had been executed here.

Only what is not in the journal yet is added. Nothing is undone: a task that is done stays done.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from maos.agents.contract import LaunchOrder
from maos.bus.outbox import MessageLimits
from maos.engine import attempt_spec
from maos.engine.attempt_spec import ASKED
from maos.journal.journal import Append
from maos.model import attempt, message
from maos.model.events import facts
from maos.model.events.attempt import AttemptEnded, AttemptOutput, AttemptStarted, AttemptTranscript
from maos.model.events.core import EventBase
from maos.model.events.facts import Fact
from maos.model.events.run import (
    RunCheckpointed,
    RunCreated,
    RunEnded,
    RunEvent,
    RunNoteAdded,
    RunPaused,
    RunPlanned,
    TaskFailed,
    TaskFinished,
    TaskReleased,
    TaskStarted,
)
from maos.model.failure import TABLE
from maos.model.plan import Plan, Task
from maos.model.run import Run, agent_name
from maos.model.status import AttemptStatus, RunStatus, TaskStatus
from maos.redact import Redactor
from maos.runs import agent_types
from maos.runs.agent_types import AgentType
from maos.transfer.importers import ImportTarget
from maos.workspaces import Workspace
from maos_import_legacy.parser import FAILED_TASK, INTERRUPTED, LegacyAgent, LegacyMessage, LegacyRun

KIND = "claude"
TIME_LIMIT_S = 3600.0
"""The time limit of each agent in maos-cli."""
CONCURRENCY = 3
PERMISSION = "edits"
TRIGGER = "original"
WHY = {
    "running": "it was running when maos-cli exited",
    "paused": "it was paused in maos-cli",
    "": "maos-cli was killed while it ran",
}
_SESSIONS = uuid.UUID("6f1c2b1e-5f0e-4c51-9d7b-3c1a86d0a0c4")
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


class KnownAgents(NamedTuple):
    """What the journal already has of an orchestration."""

    run: Run
    """Its run; of version 0 when there is none."""
    messages: Collection[str] = ()
    """The ids of its messages."""
    notes: Collection[str] = ()
    """The hashes of rows that were recorded unchanged."""


class BuiltRun(NamedTuple):
    """The events to append."""

    run: list[RunEvent]
    others: list[Append]
    """Appends to inboxes, histories and attempts."""
    messages: int
    waiting: int
    """How many of the messages are still to be delivered."""


class RunBuilder:
    """Builds the events of one orchestration."""

    def __init__(
        self,
        orchestration: LegacyRun,
        known: KnownAgents,
        target: ImportTarget,
        types: Mapping[str, AgentType],
        *,
        names: Mapping[str, str],
        transcripts: Mapping[str, Sequence[AttemptTranscript]],
    ) -> None:
        """Prepare to build. `names` are the names of agents in the imported runs, `transcripts` the transcripts of
        their sessions on this machine."""
        self._from = orchestration
        self._known = known
        self._target = target
        self._types = types
        self._names = names
        self._transcripts = transcripts
        self._owner = target.owner(known.run.id)
        self._redactor = Redactor({})
        self._created_us = orchestration.created_us or target.clock.now_us()
        self._events: list[RunEvent] = []
        self._others: list[Append] = []

    def build(self) -> BuiltRun:
        """Build the events that are not in the journal yet."""
        before, run = self._known.run, self._from
        planned = [each for each in run.agents if each.name not in before.tasks]
        imported = self._imported()
        if not before.version:
            self._events.append(self._created())
        if planned or before.options.get("imported", imported) != imported:
            tasks = [msgspec.to_builtins(self._task(each)) for each in planned]
            options = {"imported": imported} if before.version else {}
            self._events.append(RunPlanned(tasks=tasks, options=options, at_us=self._created_us))
        for each in sorted(run.agents, key=lambda one: one.ended_us):
            self._add_task(each)
        self._keep_checkpoints()
        self._keep_notes()
        sent, waiting = self._send()
        is_moved = any(not isinstance(each, (RunNoteAdded, RunCheckpointed)) for each in self._events)
        if is_moved or before.status != run.status:
            self._close()
        return BuiltRun(self._events, self._others, sent, waiting)

    # --- the run ---------------------------------------------------------------------------------------------

    def _created(self) -> RunCreated:
        plan = Plan(tasks=[self._task(each) for each in self._from.agents])
        options = {
            "kind": KIND, "model": "", "permission": PERMISSION, "in_place": True, "concurrency": CONCURRENCY,
            "time_limit_s": TIME_LIMIT_S, "budget": {}, "agents": agent_types.to_data(plan, self._types),
            "imported": self._imported(),
        }  # fmt: skip
        request = self._clean(self._from.request)
        folder, at_us = str(self._target.folder), self._created_us
        return RunCreated(request=request, folder=folder, options=options, owner=self._owner, at_us=at_us)

    def _imported(self) -> dict[str, Any]:
        """Return the ids by which a later import recognizes the run."""
        return {"id": self._from.id, "agents": [each.id for each in self._from.agents]}

    def _task(self, agent: LegacyAgent) -> Task:
        return Task(name=agent.name, task=self._clean(agent.task), agent=agent.type, needs=agent.needs)

    def _add_task(self, agent: LegacyAgent) -> None:
        """Add the outcome of a task and its attempt."""
        before = self._known.run.tasks.get(agent.name)
        status, number = (before.status, before.attempts) if before is not None else (TaskStatus.WAITING, 0)
        is_news = {
            TaskStatus.DONE: status != TaskStatus.DONE,
            FAILED_TASK: status == TaskStatus.WAITING,
            INTERRUPTED: status == TaskStatus.WAITING and not number,
        }
        if not is_news.get(agent.status):
            return
        number += 1
        began_us = max(agent.began_us, self._created_us)
        ended_us = max(agent.ended_us, began_us)
        task, spent = agent.name, agent.cost_usd - (before.cost_usd if before is not None else 0.0)
        self._events.append(TaskStarted(task=task, number=number, at_us=began_us))
        ended: TaskFinished | TaskFailed | TaskReleased
        if agent.status == TaskStatus.DONE:
            result = self._clean(agent.result)
            ended = TaskFinished(task=task, result=result, cost_usd=spent, at_us=ended_us)
        elif agent.status == FAILED_TASK:
            why = "it failed in maos-cli"
            ended = TaskFailed(task=task, failure="failed", why=why, cost_usd=spent, at_us=ended_us)
        else:
            why = TABLE["interrupted"].meaning
            ended = TaskReleased(task=task, failure="interrupted", why=why, cost_usd=spent, at_us=ended_us)
        self._events.append(ended)
        self._record(agent, number, began_us, ended_us)

    def _keep_checkpoints(self) -> None:
        names = {each.name for each in self._known.run.checkpoints}
        for row in self._from.checkpoints:
            name = self._clean(str(row["name"]))
            if name not in names:
                names.add(name)
                self._events.append(RunCheckpointed(name=name, trigger=TRIGGER, at_us=self._ended_us()))

    def _keep_notes(self) -> None:
        """Record all rows unchanged, for data that has no field in a run."""
        kept: list[tuple[str, dict[str, Any]]] = [(f"agent {each.id}", each.rows) for each in self._from.agents]
        if self._from.rows:
            kept.insert(0, ("orchestration", self._from.rows))
        kept += [(f"checkpoint {row['name']}", {"checkpoint": row}) for row in self._from.checkpoints]
        for what, rows in kept:
            cleaned = self._clean_data(rows)
            sha = hashlib.sha256(msgspec.json.encode([what, cleaned], order="deterministic")).hexdigest()[:16]
            if sha not in self._known.notes:
                original = {"of": self._clean(what), "sha": sha, **cleaned}
                text, at_us = "imported from maos-cli", self._ended_us()
                self._events.append(RunNoteAdded(text=text, original=original, at_us=at_us))

    def _close(self) -> None:
        status, ended_us = self._from.status, self._ended_us()
        if status == RunStatus.PAUSED:
            why = WHY.get(self._from.said_status, f"it was {self._from.said_status} in maos-cli")
            self._events.append(RunPaused(why=self._clean(why), at_us=ended_us))
            return
        bad = [each.name for each in self._from.agents if each.status == FAILED_TASK]
        why = f"{', '.join(bad)} failed" if status == RunStatus.FAILED and bad else ""
        self._events.append(RunEnded(status=RunStatus(status), why=why, at_us=ended_us))

    def _ended_us(self) -> int:
        return max(self._from.ended_us, self._created_us)

    # --- attempts --------------------------------------------------------------------------------------------

    def _record(self, agent: LegacyAgent, number: int, began_us: int, ended_us: int) -> None:
        name = agent_name(self._known.run.id, agent.name)
        id = attempt.attempt_id(name, number)
        role = self._types.get(agent.type) or AgentType(name=agent.type)
        home, folder = self._target.home, self._target.folder
        order = LaunchOrder(
            attempt=id,
            task=self._clean(agent.task),
            session=agent.session or str(uuid.uuid5(_SESSIONS, agent.id)),
            resume=False,
            cwd=folder,
            home=home / "homes" / name,
            model=role.model,
            instructions=role.instructions,
            turns_max=role.turns_max,
            budget_usd=role.budget_usd,
            tools_allowed=tuple(role.tools),
            permission=role.permission or PERMISSION,
        )
        workspace = Workspace(name, folder, folder, None, None, None, (ASKED,))
        time_limit_s, run = role.time_limit_s or TIME_LIMIT_S, self._known.run.id
        planned = attempt_spec.plan(order, KIND, order.task, time_limit_s=time_limit_s, workspace=workspace, run=run)
        place = str(home / "holders" / id)
        status, failure = {
            TaskStatus.DONE: (AttemptStatus.DONE, ""),
            FAILED_TASK: (AttemptStatus.FAILED, "failed"),
            INTERRUPTED: (AttemptStatus.FAILED, "interrupted"),
        }[agent.status]
        events: list[EventBase] = [
            msgspec.structs.replace(planned, owner=self._owner, folder=place, at_us=began_us),
            AttemptStarted(pid=0, at_us=began_us),
            AttemptOutput(offset=0, at_us=ended_us, facts=self._facts(agent)),
            *self._transcripts.get(agent.session, ()),
            AttemptEnded(status=status, failure=failure, at_us=ended_us),
        ]
        self._others.append(Append(attempt.stream(id), events, expected=0))

    def _facts(self, agent: LegacyAgent) -> list[Fact]:
        """What is known of an agent's work, as its program would have said it."""
        heard: list[Fact] = [facts.Discovery(TRIGGER, self._clean(text)) for text in agent.discoveries]
        if agent.session:
            heard.insert(0, facts.SessionOpened(agent.session))
        if agent.last_text:
            heard.append(facts.Text(self._clean(agent.last_text)))
        if agent.cost_usd:
            heard.append(facts.Cost(agent.cost_usd, turn=TRIGGER))
        if agent.status != INTERRUPTED:
            heard.append(facts.TurnEnded(self._clean(agent.result), failed=agent.status == FAILED_TASK))
        return heard

    # --- messages --------------------------------------------------------------------------------------------

    def _send(self) -> tuple[int, int]:
        """Add every message to the history, and those that were not acknowledged to inboxes too."""
        run = self._known.run.id
        sent: list[EventBase] = []
        inboxes: dict[str, list[EventBase]] = {}
        for each in self._from.messages:
            id = f"o-{each.id}"
            if id in self._known.messages:
                continue
            names = self._recipients(each)
            built = self._message(each, id, run)
            to = tuple(names) if each.to else ()
            event = built._replace(to=to).event
            if each.acknowledged:
                sent.append(built._replace(to=tuple(names)).event)
            else:
                sent.append(message.index_event(built, names))
                for name in names:
                    inboxes.setdefault(name, []).append(event)
        if sent:
            self._others.append(Append(message.history(run), sent))
        self._others += [Append(message.inbox(name), events) for name, events in inboxes.items()]
        return len(sent), sum(map(len, inboxes.values()))

    def _message(self, each: LegacyMessage, id: str, run: str) -> message.Message:
        """Build a message; its sender is always an agent, never a person."""
        fits = each.type in message.TYPES
        sender = self._names.get(each.sender) or f"original.{_UNFIT.sub('-', each.sender)[:60] or 'unknown'}"
        text = each.text.encode()[: MessageLimits().text_bytes_max].decode("utf-8", "ignore")
        return message.Message(
            id=id,
            sender=sender,
            text=self._clean(text),
            type=each.type if fits else "info",
            run=run,
            topic="" if each.to else message.of_run(run),
            metadata={} if fits else {"type": self._clean(each.type)},
            at_us=each.at_us or self._created_us,
        )

    def _recipients(self, each: LegacyMessage) -> list[str]:
        """Return the recipient, or for a broadcast all agents of the orchestration that are not done."""
        if each.to:
            return [self._names[each.to]] if each.to in self._names else []
        run = self._known.run.id
        others = [one for one in self._from.agents if one.status != TaskStatus.DONE and one.id != each.sender]
        return [agent_name(run, one.name) for one in others]

    # --- texts -----------------------------------------------------------------------------------------------

    def _clean(self, text: str) -> str:
        return self._redactor.text(text)

    def _clean_data(self, value: Any) -> Any:
        """Return plain data without secrets."""
        if isinstance(value, str):
            return self._clean(value)
        if isinstance(value, Mapping):
            return {str(key): self._clean_data(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._clean_data(item) for item in value]
        return value
