"""Agents as the workers of a run: each task is done by an agent of its own, in a worktree of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from maos.engine.attempts import Attempts, Running
from maos.engine.live import Listener
from maos.engine.scheduler import Outcome
from maos.errors import InvalidInput, NotFound
from maos.model.attempt import Attempt
from maos.model.plan import Task
from maos.model.run import Run, TaskState, agent_name
from maos.runner import workspace as workspaces
from maos.runner.errors import StartFailed


class AgentWorker:
    """Does tasks with agents."""

    def __init__(self, attempts: Attempts, *, listener: Listener | None = None) -> None:
        self._attempts = attempts
        self._listener = listener
        self._running: dict[str, Running] = {}
        self._merging = asyncio.Lock()

    async def work(self, run: Run, task: TaskState) -> Outcome:
        """Start the task's agent, take it up, resume it, or only see what became of it: whatever is left to do."""
        agent = agent_name(run.id, task.name)
        try:
            attempt = await self._attempt(run, task, agent)
        except (StartFailed, NotFound, InvalidInput) as error:
            return Outcome(failure="start_failed", message=str(error))
        finally:
            self._running.pop(task.name, None)
        commits = [each.commit for each in attempt.checkpoints if each.commit]
        tokens = attempt.total_tokens
        outcome = Outcome(
            result=attempt.result or attempt.last_text,
            failure=attempt.failure,
            message=attempt.message,
            reset_us=attempt.reset_us,
            cost_usd=attempt.total_cost_usd,
            tokens=tokens.input + tokens.output,
            commit=commits[-1] if commits else "",
        )
        return outcome if outcome.failure or not outcome.commit else await self._merge(run, task, attempt, outcome)

    async def stop(self, run: Run, task: TaskState) -> None:
        """Have the task's agent end; it can be resumed."""
        running = self._running.get(task.name)
        if running is not None:
            await running.stop()

    async def _attempt(self, run: Run, task: TaskState, agent: str) -> Attempt:
        try:
            known: Attempt | None = await self._attempts.get(agent)
        except NotFound:
            known = None
        if known is None:
            running: Running | None = await self._start(run, task, agent)
        elif known.number < task.attempts:
            running = await self._attempts.resume(agent, listener=self._listener)
        else:
            running = await self._attempts.adopt(agent, listener=self._listener)
        if running is None:
            return await self._attempts.get(agent)
        self._running[task.name] = running
        return await running.wait()

    async def _start(self, run: Run, task: TaskState, agent: str) -> Running:
        plan = msgspec.convert(task.plan, Task)
        command = plan.command
        return await self._attempts.start(
            plan.task or " ".join(command),
            kind=plan.kind or ("shell" if command else run.options["kind"]),
            name=agent,
            argv=command,
            cwd=Path(run.folder),
            in_place=bool(run.options.get("in_place")),
            base=run.commit or None,
            model=plan.model or run.options.get("model", ""),
            time_limit_s=plan.time_limit_s or run.options["time_limit_s"],
            budget_usd=plan.budget_usd,
            tools_allowed=plan.tools,
            permission=run.options.get("permission", "ask"),
            listener=self._listener,
        )

    async def _merge(self, run: Run, task: TaskState, attempt: Attempt, outcome: Outcome) -> Outcome:
        """Bring the task's files together with those of the tasks before it; a conflict is a person's matter."""
        if not run.options.get("workspace"):
            return outcome
        into = workspaces.Workspace.from_data(run.options["workspace"])
        async with self._merging:
            merged = await workspaces.merge(
                workspaces.Workspace.from_data(attempt.workspace),
                outcome.commit,
                into=into.path,
                message=f"{task.name}: {(task.plan.get('task') or '').strip().partition(chr(10))[0][:60]}",
            )
        if isinstance(merged, workspaces.Merged):
            return outcome._replace(merged=merged.commit)
        return outcome._replace(failure="merge_conflict", message=str(merged))
