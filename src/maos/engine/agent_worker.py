"""Agents as the workers of a run: each task is done by an agent of its own, in a worktree of its own."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import Any

import msgspec

from maos.engine import agent_types
from maos.engine.attempts import Attempts, Running
from maos.engine.live import Listener
from maos.engine.scheduler import Outcome
from maos.errors import InvalidInput, NotFound
from maos.model.attempt import Attempt
from maos.model.plan import Gate, Task
from maos.model.run import Run, TaskState, agent_name
from maos.runner import workspace as workspaces
from maos.runner.errors import StartFailed

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

    async def work(self, run: Run, task: TaskState) -> Outcome:
        """Start the task's agent, take it up, resume it, or only see what became of it: whatever is left to do."""
        plan = msgspec.convert(task.plan, Task)
        try:
            attempt = await self._attempt(run, task, plan)
        except (StartFailed, NotFound, InvalidInput) as error:
            return Outcome(failure="start_failed", message=str(error))
        outcome = _outcome(attempt)
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
        if gate.review and not outcome.failure and "APPROVED" not in outcome.result.strip().rpartition("\n")[2]:
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
            return await self._until_ended(task, await self._attempts.resume(agent, task=more, listener=self._listener))
        return await self._taken_up(task, agent)

    async def _taken_up(self, task: TaskState, agent: str) -> Attempt:
        """An attempt that another engine began."""
        running = await self._attempts.adopt(agent, listener=self._listener)
        return await self._attempts.get(agent) if running is None else await self._until_ended(task, running)

    async def _until_ended(self, task: TaskState, running: Running) -> Attempt:
        self._running[task.name] = running
        try:
            if task.name in self._stopping:
                await running.stop()
            return await running.wait()
        finally:
            self._running.pop(task.name, None)

    async def _start(self, run: Run, plan: Task, agent: str) -> Running:
        options = run.options
        return await self._attempts.start(
            plan.task or " ".join(plan.command),
            kind=plan.kind or ("shell" if plan.command else options["kind"]),
            name=agent,
            argv=plan.command,
            cwd=Path(run.folder),
            in_place=bool(options.get("in_place")),
            base=run.commit or None,
            model=plan.model or options.get("model", ""),
            time_limit_s=plan.time_limit_s or options.get("time_limit_s", 600.0),
            budget_usd=plan.budget_usd,
            tools_allowed=plan.tools,
            permission=options.get("permission", "ask"),
            run=run.id,
            listener=self._listener,
        )

    async def _gate(self, run: Run, task: TaskState, gate: Gate, name: str) -> Attempt:
        if await self._known(name) is not None:
            return await self._taken_up(task, name)
        worked = await self._attempts.get(agent_name(run.id, task.name))
        more: dict[str, Any] = {"kind": "shell", "argv": gate.command}
        if gate.review:
            more = {"kind": run.options["kind"], "task": REVIEW.format(review=gate.review)}
        running = await self._attempts.start(
            name=name, cwd=Path(worked.order["cwd"]), in_place=True, listener=self._listener, **more
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
