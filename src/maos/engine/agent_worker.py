"""Agents as the workers of a run: each task is done by an agent of its own, in a worktree of its own."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from maos.engine import agent_types
from maos.engine.attempts import TIME_LIMIT_S, Attempts, Running
from maos.engine.budgets import SENDER, WARN_AT, Budget
from maos.engine.live import Listener
from maos.engine.scheduler import Outcome
from maos.errors import InvalidInput, NotFound
from maos.model.attempt import Attempt
from maos.model.facts import Fact
from maos.model.plan import Gate, Task
from maos.model.run import Run, TaskState, agent_name
from maos.runner import workspace as workspaces
from maos.runner.errors import StartFailed

RESULT_CHARS_MAX = 8000
"""How much of what a task reported those that need it are told."""
CUT_OFF = ("stopped", "interrupted", "holder_lost", "unattended")
"""Ends of a check that say nothing about what it checks."""
GATE_LINES = 20
"""How much of what a failing gate printed its agent is told."""
REVIEW = (
    "{review}\n\nThe work is in this folder. Change nothing. End with one line: APPROVED, or REJECTED and the reason."
)


class AgentWorker:
    """Does tasks with agents."""

    def __init__(self, attempts: Attempts, *, listener: Listener | None = None) -> None:
        self._attempts = attempts
        self._listener = listener
        self._running: dict[str, Running] = {}
        self._stopping: set[str] = set()
        """Tasks that were to be stopped, perhaps before their agents had started."""
        self._merging = asyncio.Lock()
        self._budget = Budget()
        self._run: Run | None = None
        self._began_s = 0.0
        self._nearly = asyncio.Event()
        """Set when most of what the run may take is used up."""
        self._spent = asyncio.Event()
        """Set when all of it is."""

    async def work(self, run: Run, task: TaskState) -> Outcome:
        """Start the task's agent, take it up, resume it, or only see what became of it: whatever is left to do."""
        plan = msgspec.convert(task.plan, Task)
        if self._run is None:
            self._run, self._budget, self._began_s = run, Budget.of(run.options), time.monotonic()
        try:
            attempt = await self._attempt(run, task, plan)
        except (StartFailed, NotFound, InvalidInput) as error:
            return Outcome(failure="start_failed", message=str(error))
        outcome = _outcome(attempt)
        given_usd = float(attempt.order.get("budget_usd", 0))
        if outcome.failure == "budget_reached" and given_usd and given_usd != _own_usd(run, plan):
            # It was what the run had left: the run is paused, and the task can go on.
            outcome = outcome._replace(failure="stopped", cost_usd=max(outcome.cost_usd, given_usd))
        if outcome.failure or plan.gates:
            return outcome
        return await self._merge(run, task, outcome)

    async def check(self, run: Run, task: TaskState) -> Outcome:
        """Let the next gate look at the work, in the worktree it was done in."""
        plan = msgspec.convert(task.plan, Task)
        gate = plan.gates[task.gate]
        name = f"{agent_name(run.id, task.name)}-gate{task.gate + 1}-{task.attempts}"
        try:
            attempt = await self._gate(run, task, gate, name)
        except (StartFailed, NotFound, InvalidInput) as error:
            return Outcome(failure="start_failed", message=f"gate {task.gate + 1}: {error}")
        outcome = _outcome(attempt)
        if gate.review and not outcome.failure and not _approves(outcome.result):
            return outcome._replace(failure="gate_failed", message=outcome.result)
        if gate.command and outcome.failure == "failed":
            return outcome._replace(failure="gate_failed", message=await self._last_lines(name))
        return outcome._replace(result="", commit="")

    async def complete(self, run: Run, task: TaskState) -> Outcome:
        """Bring the files of a task that has passed its gates together with those of the others."""
        return await self._merge(run, task, Outcome(result=task.result, commit=task.commit))

    async def stop(self, run: Run, task: TaskState) -> None:
        """Have the task's agent end, as soon as it has started; it can be resumed."""
        self._stopping.add(task.name)
        running = self._running.get(task.name)
        if running is not None:
            await running.stop()

    async def _attempt(self, run: Run, task: TaskState, plan: Task) -> Attempt:
        agent = agent_name(run.id, task.name)
        known = await self._known(agent)
        if known is None:
            return await self._until_ended(task, await self._start(run, plan, agent))
        if known.number < task.attempts:
            more = f"A check of your work failed:\n\n{task.why}" if task.failure == "gate_failed" else ""
            running = await self._attempts.resume(
                agent,
                task=more,
                time_limit_s=_time_limit_s(run, plan),
                budget_usd=self._budget_usd(run, plan),
                listener=self._heard,
            )
            return await self._until_ended(task, running)
        return await self._taken_up(task, agent)

    async def _taken_up(self, task: TaskState, agent: str) -> Attempt:
        """An attempt that another engine began."""
        running = await self._attempts.adopt(agent, listener=self._heard)
        return await self._attempts.get(agent) if running is None else await self._until_ended(task, running)

    async def _until_ended(self, task: TaskState, running: Running) -> Attempt:
        self._running[task.name] = running
        minding = [asyncio.create_task(self._warn(running)), asyncio.create_task(self._end_when_spent(running))]
        try:
            if task.name in self._stopping:
                await running.stop()
            return await running.wait()
        finally:
            self._running.pop(task.name, None)
            for each in minding:
                each.cancel()
            await asyncio.gather(*minding, return_exceptions=True)

    def _heard(self, attempt: Attempt, facts: Sequence[Fact]) -> None:
        """See what the whole run has taken so far, those at work included."""
        if self._listener is not None:
            self._listener(attempt, facts)
        if self._run is None or not any(self._budget):
            return
        working = [each.attempt for each in self._running.values()]
        tokens = [each.total_tokens for each in working]
        used = self._budget.used(
            self._run.cost_usd + sum(each.total_cost_usd for each in working),
            self._run.tokens + sum(each.input + each.output for each in tokens),
        )
        if used >= WARN_AT:
            self._nearly.set()
        if used >= 1:
            self._spent.set()

    async def _warn(self, running: Running) -> None:
        """Tell an agent once that the run comes to its limits, if it can be told."""
        timeout_s = None
        if self._budget.time_s:
            timeout_s = max(0.0, WARN_AT * self._budget.time_s - (time.monotonic() - self._began_s))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._nearly.wait(), timeout_s)
        if self._attempts.takes_words(running.attempt.kind):
            await self._attempts.send(running.attempt.agent, self._budget.warning(), sender=SENDER)

    async def _end_when_spent(self, running: Running) -> None:
        await self._spent.wait()
        await running.stop()

    async def _start(self, run: Run, plan: Task, agent: str) -> Running:
        options = run.options
        role = agent_types.of_task(options, plan.agent)
        kind = plan.kind or ("shell" if plan.command else role.kind or options["kind"])
        return await self._attempts.start(
            shlex.join(plan.command) if plan.command and not plan.task else _told(run, plan),
            kind=kind,
            name=agent,
            argv=plan.command,
            cwd=Path(run.folder),
            in_place=bool(options.get("in_place")),
            base=run.commit or (options.get("workspace") or {}).get("base"),
            model=plan.model or role.model or (options.get("model", "") if kind == options.get("kind") else ""),
            instructions=role.instructions,
            time_limit_s=_time_limit_s(run, plan),
            turns_max=role.turns_max,
            budget_usd=self._budget_usd(run, plan),
            tools_allowed=plan.tools or role.tools,
            permission=role.permission or options.get("permission", "ask"),
            run=run.id,
            listener=self._heard,
        )

    def _budget_usd(self, run: Run, plan: Task) -> float:
        """What an agent may cost: its own limit, or what the run has left if that is less; 0 for no limit."""
        return min(filter(None, (_own_usd(run, plan), self._budget.left_usd(run))), default=0.0)

    async def _gate(self, run: Run, task: TaskState, gate: Gate, name: str) -> Attempt:
        if await self._known(name) is not None:
            known = await self._taken_up(task, name)
            if known.failure not in CUT_OFF or task.name in self._stopping:
                return known
            return await self._until_ended(task, await self._attempts.resume(name, listener=self._heard))
        worked = await self._attempts.get(agent_name(run.id, task.name))
        more: dict[str, Any] = {"kind": "shell", "argv": gate.command}
        if gate.review:
            more = {"kind": run.options["kind"], "task": REVIEW.format(review=gate.review)}
        running = await self._attempts.start(
            name=name, cwd=Path(worked.order["cwd"]), in_place=True, listener=self._heard, **more
        )
        return await self._until_ended(task, running)

    async def _known(self, agent: str) -> Attempt | None:
        try:
            return await self._attempts.get(agent)
        except NotFound:
            return None

    async def _last_lines(self, agent: str) -> str:
        lines: list[str] = []
        async for record in self._attempts.records(agent):
            if record.type == "attempt_heard":
                lines += [each["text"] for each in record.data["facts"] if each["kind"] == "line" and each.get("text")]
                del lines[:-GATE_LINES]
        return "\n".join(lines)

    async def _merge(self, run: Run, task: TaskState, outcome: Outcome) -> Outcome:
        """A conflict is a person's matter: nothing is touched, and the files are named."""
        if not run.options.get("workspace") or not outcome.commit:
            return outcome
        worked = await self._attempts.get(agent_name(run.id, task.name))
        into = workspaces.Workspace.from_data(run.options["workspace"])
        title = str(task.plan.get("task") or "").strip().partition("\n")[0][:60]
        async with self._merging:
            merged = await workspaces.merge(
                workspaces.Workspace.from_data(worked.workspace),
                outcome.commit,
                into=into.path,
                message=f"{task.name}: {title}" if title else task.name,
            )
        if isinstance(merged, workspaces.Merged):
            return outcome._replace(merged=merged.commit)
        why = "conflict in" if isinstance(merged, workspaces.Conflicted) else merged.why
        return outcome._replace(failure="merge_conflict", message=f"{why} {', '.join(merged.files)}")


def _approves(review: str) -> bool:
    """Whether the last line says so; however it is set, and nothing short of the plain word."""
    return review.strip().rpartition("\n")[2].strip("*_#`>. ").startswith("APPROVED")


def _own_usd(run: Run, plan: Task) -> float:
    return plan.budget_usd or agent_types.of_task(run.options, plan.agent).budget_usd


def _time_limit_s(run: Run, plan: Task) -> float:
    role = agent_types.of_task(run.options, plan.agent)
    return float(plan.time_limit_s or role.time_limit_s or run.options.get("time_limit_s", TIME_LIMIT_S))


def _told(run: Run, plan: Task) -> str:
    """The task, and what those it needs have reported: words of other agents, so they are quoted."""
    parts = [plan.task]
    for name in plan.needs if not plan.command else ():
        result = run.tasks[name].result.strip()
        if result:
            quoted = "\n".join(f"> {line}" for line in result[:RESULT_CHARS_MAX].splitlines())
            parts.append(f"The task {name}, which is done, reported:\n\n{quoted}")
    return "\n\n".join(parts)


def _outcome(attempt: Attempt) -> Outcome:
    commits = [each.commit for each in attempt.checkpoints if each.commit]
    tokens = attempt.total_tokens
    return Outcome(
        result=attempt.result or attempt.last_text,
        failure=attempt.failure,
        message=attempt.message,
        reset_us=attempt.reset_us,
        cost_usd=attempt.total_cost_usd,
        tokens=tokens.input + tokens.output,
        commit=commits[-1] if commits else "",
    )
