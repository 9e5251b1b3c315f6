"""Agents as the workers of a run: each task is done by an agent of its own, in a worktree of its own."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from maos import workspaces as workspaces
from maos.engine.attempt_spec import TIME_LIMIT_S
from maos.engine.attempts import Attempts
from maos.engine.live import Listener, LiveAttempt
from maos.errors import InvalidInput, NotFound
from maos.holder.agent_process import StartFailed
from maos.model.attempt import Attempt
from maos.model.events.attempt import AttemptOutput
from maos.model.events.facts import Fact, Line
from maos.model.failure import ASK, GIVE_UP, TABLE
from maos.model.plan import Task
from maos.model.run import Run, TaskState
from maos.runs import agent_types, decisions
from maos.runs.budgets import SENDER, Budget, Meter
from maos.runs.decisions import Outcome, tokens_of

DISCOVERIES_TOLD, DISCOVERY_CHARS_MAX = 20, 400
RESULT_CHARS_MAX = 8000
"""How much of a task's report is given to the tasks that need it."""
GATE_LINES = 20
"""How much of the output of a failing gate is given to the agent."""
REVIEW = (
    "{review}\n\nThe work is in this folder. Change nothing. End with one line: APPROVED, or REJECTED and the reason."
)


class AgentWorker:
    """Does tasks with agents."""

    def __init__(self, attempts: Attempts, *, listener: Listener | None = None) -> None:
        self._attempts = attempts
        self._listener = listener
        self._running: dict[str, LiveAttempt] = {}
        self._stopping: set[str] = set()
        """Tasks that were to be stopped, perhaps before their agents had started."""
        self._watched: set[str] = set()
        """Tasks whose agents ended while this engine watched: one that was stopped then was not stopped by it."""
        self._merging = asyncio.Lock()
        self._run: Run | None = None
        self._meter = Meter(Budget(), "")
        """What the whole run takes."""
        self._meters: dict[str, tuple[Meter, TaskState]] = {}
        """What each agent at work takes of its task's own."""

    async def work(self, run: Run, task: TaskState) -> Outcome:
        """Begin a task that is recorded as started, or resume it; returns when this attempt has ended.

        Its agent is started, adopted or resumed, or only its outcome is read: whatever is left to do. The work of a
        task without gates is then merged; for one with gates, `complete` is called when it has passed them.
        """
        self._watch_budget(run)
        try:
            return await self._work(run, task, msgspec.convert(task.plan, Task))
        finally:
            self._stopping.discard(task.name)  # it can be tried again

    async def _work(self, run: Run, task: TaskState, plan: Task) -> Outcome:
        own = _own_budget(run, plan)
        try:
            attempt = await self._attempt(run, task, plan, own)
        except (StartFailed, NotFound, InvalidInput) as error:
            return Outcome(failure="start_failed", message=str(error))
        if attempt is None and task.stopping:
            return Outcome(failure="stopped")
        if attempt is None:
            return Outcome(failure="budget_reached", message=own.exceeded(task.used_usd, task.used_tokens))
        outcome = decisions.outcome_of(attempt)
        given_usd = float(attempt.order.get("budget_usd", 0))
        if outcome.failure == "budget_reached" and given_usd and given_usd != own.left_usd(task.used_usd):
            # It was what the run had left: the run is paused, and the task can be resumed.
            outcome = outcome._replace(failure="stopped", cost_usd=max(outcome.cost_usd, given_usd))
        elif outcome.failure == "stopped" and task.name not in self._stopping:
            why = own.exceeded(task.used_usd + outcome.cost_usd, task.used_tokens + outcome.tokens)
            if why:
                outcome = outcome._replace(failure="budget_reached", message=why)
            elif task.name in self._watched and not self._meter.spent.is_set():
                outcome = outcome._replace(failure="halted", message="")
        if outcome.failure or plan.gates:
            return outcome
        return await self._merge(run, task, outcome)

    async def check(self, run: Run, task: TaskState) -> Outcome:
        """Let the next gate look at the work, in the worktree it was done in."""
        self._watch_budget(run)
        plan = msgspec.convert(task.plan, Task)
        gate = plan.gates[task.gate]
        name = f"{run.agent(task.name)}-gate{task.gate + 1}-{task.attempts}"
        more: dict[str, Any] = {"kind": "shell", "argv": gate.command}
        if gate.review:
            more = {"kind": run.options["kind"], "task": REVIEW.format(review=gate.review)}
        try:
            attempt = await self._beside(run, task, name, more)
        except (StartFailed, NotFound, InvalidInput) as error:
            return Outcome(failure="start_failed", message=f"gate {task.gate + 1}: {error}")
        outcome = decisions.outcome_of(attempt)
        if gate.review and not outcome.failure and not _approves(outcome.result):
            return outcome._replace(failure="gate_failed", message=outcome.result)
        if gate.command and outcome.failure == "failed":
            return outcome._replace(failure="gate_failed", message=await self._last_lines(name))
        return outcome._replace(result="", commit="")

    async def complete(self, run: Run, task: TaskState) -> Outcome:
        """Bring the files of a task that has passed its gates together with those of the others."""
        self._watch_budget(run)
        outcome = Outcome(result=task.result, commit=task.commit)
        if task.resolve == decisions.BY_TASK_AGENT:
            return await self._resolved(run, task, outcome)
        if task.resolve == decisions.MERGE_AGAIN:  # the person may have changed the files
            saved = await workspaces.checkpoint(await self._workspace(run, task), "before it is merged again")
            outcome = outcome._replace(commit=saved.commit) if saved is not None else outcome
        return await self._merge(run, task, outcome, prefer=task.resolve)

    def _watch_budget(self, run: Run) -> None:
        if self._run is None:
            self._run, self._meter = run, Meter(Budget.of(run.options), "this whole run")

    async def stop(self, run: Run, task: TaskState) -> None:
        """Have the task's agent end, as soon as it has started; it can be resumed."""
        self._stopping.add(task.name)
        running = self._running.get(task.name)
        if running is not None:
            await running.stop()

    async def _attempt(self, run: Run, task: TaskState, plan: Task, own: Budget) -> Attempt | None:
        """The attempt that the task is at, when it has ended; None when nothing is left to begin it with."""
        agent = run.agent(task.name)
        known = await self._attempts.newest(agent)
        if known is not None and known.number >= task.attempts:
            return await self._adopted(task, agent, own)
        if task.stopping or own.exceeded(task.used_usd, task.used_tokens):
            return None
        if known is None:
            running = await self._start(run, task, plan, own)
        else:
            more = f"A check of your work failed:\n\n{task.why}" if task.failure == "gate_failed" else ""
            running = await self._attempts.resume(
                agent,
                task=more,
                time_limit_s=own.time_s,
                budget_usd=self._budget_usd(run, task, own),
                listener=self._heard,
            )
        return await self._until_ended(task, running, own)

    async def _adopted(self, task: TaskState, agent: str, own: Budget | None = None) -> Attempt:
        running = await self._attempts.adopt(agent, listener=self._heard)
        return await self._attempts.get(agent) if running is None else await self._until_ended(task, running, own)

    async def _until_ended(self, task: TaskState, running: LiveAttempt, own: Budget | None = None) -> Attempt:
        """Wait for an agent, and mind what the run and its task may take; a check takes nothing of its task's own."""
        agent = running.attempt.agent
        meter = Meter(own or Budget(), "your task")
        self._running[task.name], self._meters[agent] = running, (meter, task)
        self._watched.add(task.name)
        self._note(running.attempt)
        watching = [
            asyncio.create_task(each(running, limit)) for limit in (self._meter, meter) for each in (self._warn, _end)
        ]
        try:
            if task.name in self._stopping:
                await running.stop()
            return await running.wait()
        finally:
            self._running.pop(task.name, None)
            self._meters.pop(agent, None)
            for watcher in watching:
                watcher.cancel()
            await asyncio.gather(*watching, return_exceptions=True)

    def _heard(self, attempt: Attempt, facts: Sequence[Fact]) -> None:
        if self._listener is not None:
            self._listener(attempt, facts)
        self._note(attempt)

    def _note(self, attempt: Attempt) -> None:
        """See what a task and the whole run have taken so far, those at work included."""
        if attempt.agent in self._meters:
            meter, task = self._meters[attempt.agent]
            meter.note(task.used_usd + attempt.total_cost_usd, task.used_tokens + tokens_of(attempt))
        if self._run is not None and any(self._meter.budget):
            working = [each.attempt for each in self._running.values()]
            self._meter.note(
                self._run.cost_usd + sum(each.total_cost_usd for each in working),
                self._run.tokens + sum(map(tokens_of, working)),
            )

    async def _warn(self, running: LiveAttempt, meter: Meter) -> None:
        """Warn an agent once that it reaches a limit, if it accepts messages."""
        if any(meter.budget) and self._attempts.takes_words(running.attempt.kind):
            await meter.until_nearly_used_up()
            await self._attempts.send(running.attempt.agent, meter.warning, sender=SENDER)

    async def _start(self, run: Run, task: TaskState, plan: Task, own: Budget) -> LiveAttempt:
        agent, options = run.agent(task.name), run.options
        found = await self._attempts.discoveries(run, but=agent)
        return await self._attempts.start(
            shlex.join(plan.command) if plan.command and not plan.task else _told(run, plan, found),
            name=agent,
            argv=plan.command,
            cwd=Path(run.folder),
            in_place=bool(options.get("in_place")),
            base=run.commit or (options.get("workspace") or {}).get("base"),
            budget_usd=self._budget_usd(run, task, own),
            tool_server=plan.mcp,
            listener=self._heard,
            **terms(run, plan),
        )

    def _budget_usd(self, run: Run, task: TaskState, own: Budget) -> float:
        """What an agent may cost: what its task has left, or the run if that is less; 0 for no limit."""
        left = (own.left_usd(task.used_usd), self._meter.budget.left_usd(run.cost_usd))
        return min(filter(None, left), default=0.0)

    async def _beside(self, run: Run, task: TaskState, name: str, more: Mapping[str, Any]) -> Attempt:
        """Another agent in the files of a task: started, adopted, or resumed if its outcome is recorded."""
        known = await self._attempts.newest(name)
        if known is None:
            worked = await self._attempts.get(run.agent(task.name))
            cwd = Path(worked.order["cwd"])
            running = await self._attempts.start(name=name, cwd=cwd, in_place=True, listener=self._heard, **more)
        elif known.number > task.checks:
            return await self._adopted(task, name)
        else:
            running = await self._attempts.resume(name, like=more, listener=self._heard)
        return await self._until_ended(task, running)

    async def _last_lines(self, agent: str) -> str:
        lines: list[str] = []
        async for record in self._attempts.records(agent):
            if isinstance(record.event, AttemptOutput):
                lines += [each.text for each in record.event.facts if isinstance(each, Line) and each.text]
                del lines[:-GATE_LINES]
        return "\n".join(lines)

    async def _workspace(self, run: Run, task: TaskState) -> workspaces.Workspace:
        worked = await self._attempts.get(run.agent(task.name))
        return workspaces.Workspace.located(worked.workspace, self._attempts.folder)

    async def _merge(self, run: Run, task: TaskState, outcome: Outcome, *, prefer: str = "") -> Outcome:
        """A conflict touches nothing, and names the files."""
        if not run.options.get("workspace") or not outcome.commit:
            return outcome
        merged = await self._try(run, task, outcome.commit, prefer if prefer in workspaces.SIDES else "")
        if isinstance(merged, workspaces.Merged):
            return outcome._replace(merged=merged.commit)
        if isinstance(merged, workspaces.Conflicted):
            why = f"conflict in {', '.join(merged.files)}"
            return outcome._replace(failure="merge_conflict", message=why, files=merged.files)
        return outcome._replace(failure="merge_conflict", message=f"{merged.why} {', '.join(merged.files)}".strip())

    async def _try(
        self, run: Run, task: TaskState, commit: str, prefer: str = ""
    ) -> workspaces.Merged | workspaces.Conflicted | workspaces.Blocked:
        into = workspaces.Workspace.located(run.options["workspace"], self._attempts.folder)
        title = str(task.plan.get("task") or "").strip().partition("\n")[0][:60]
        message = f"{task.name}: {title}" if title else task.name
        async with self._merging:
            workspace = await self._workspace(run, task)
            if task.resolve == decisions.MERGE_AGAIN:
                left = await asyncio.to_thread(decisions.files_with_markers, workspace.tree, task.conflict)
                if left:
                    return workspaces.Blocked("there are conflict markers in", tuple(left), "")
            return await workspaces.merge(workspace, commit, into=into.path, message=message, prefer=prefer)

    async def _resolved(self, run: Run, task: TaskState, outcome: Outcome) -> Outcome:
        """Have an agent bring both sides together, in the task's files with both sides in them; then merge them."""
        name = f"{run.agent(task.name)}-merge{task.conflicts}"
        workspace = await self._workspace(run, task)
        if await self._attempts.newest(name) is None:
            tried = await self._try(run, task, outcome.commit)
            if not isinstance(tried, workspaces.Conflicted):
                return await self._merge(run, task, outcome)
            await workspaces.restore(workspace, tried.commit)
        told = decisions.CONFLICT_TASK.format(files="\n".join(task.conflict), task=task.plan.get("task", ""))
        try:
            more = {**terms(run, msgspec.convert(task.plan, Task)), "task": told, "permission": "edits"}
            attempt = await self._beside(run, task, name, more)
        except (StartFailed, NotFound, InvalidInput) as error:
            return outcome._replace(failure="merge_conflict", message=str(error), files=tuple(task.conflict))
        done = decisions.outcome_of(attempt)
        spent = outcome._replace(cost_usd=done.cost_usd, tokens=done.tokens)
        if done.failure and TABLE[done.failure].action not in (ASK, GIVE_UP):
            return spent._replace(failure=done.failure, message=done.message, reset_us=done.reset_us, at_us=done.at_us)
        saved = await workspaces.checkpoint(workspace, "both sides")
        left = await asyncio.to_thread(decisions.files_with_markers, workspace.tree, task.conflict)
        if done.failure or left or saved is None:
            await workspaces.restore(workspace, outcome.commit)
            why = f"the agent did not resolve the conflict: {done.message or 'conflict markers are left'}"
            return spent._replace(failure="merge_conflict", message=why, files=tuple(left or task.conflict))
        return await self._merge(run, task, spent._replace(commit=saved.commit))


def _approves(review: str) -> bool:
    """Whether the last line says so; however it is set, and nothing short of the plain word."""
    return review.strip().rpartition("\n")[2].strip("*_#`>. ").startswith("APPROVED")


def _own_budget(run: Run, plan: Task) -> Budget:
    role = agent_types.of_task(run.options, plan.agent)
    time_limit_s = float(plan.time_limit_s or role.time_limit_s or run.options.get("time_limit_s", TIME_LIMIT_S))
    return Budget(plan.budget_usd or role.budget_usd, plan.tokens_max or role.tokens_max, time_limit_s)


async def _end(running: LiveAttempt, meter: Meter) -> None:
    await meter.spent.wait()
    await running.stop()


def terms(run: Run, plan: Task) -> dict[str, Any]:
    """How the agent of a task is started."""
    options, role = run.options, agent_types.of_task(run.options, plan.agent)
    kind = agent_types.kind_of(options, msgspec.to_builtins(plan))
    return {
        "kind": kind,
        "model": plan.model or role.model or (options.get("model", "") if kind == options.get("kind") else ""),
        "instructions": role.instructions,
        "time_limit_s": _own_budget(run, plan).time_s,
        "turns_max": role.turns_max,
        "tools_allowed": plan.tools or role.tools,
        "permission": role.permission or options.get("permission", "ask"),
        "run": run.id,
    }


def _told(run: Run, plan: Task, found: Sequence[tuple[str, str]]) -> str:
    """The task, what those it needs have reported, and what was found: words of other agents, so they are quoted."""
    parts = [plan.task]
    for name in plan.needs if not plan.command else ():
        result = run.tasks[name].result.strip()
        if result:
            quoted = "\n".join(f"> {line}" for line in result[:RESULT_CHARS_MAX].splitlines())
            parts.append(f"The task {name}, which is done, reported:\n\n{quoted}")
    if found and not plan.command:
        lines = [f"> {agent}: {' '.join(text.split())}" for agent, text in found[-DISCOVERIES_TOLD:]]
        quoted = "\n".join(line[:DISCOVERY_CHARS_MAX] for line in lines)
        parts.append(f"Other agents of this run have found so far:\n\n{quoted}")
    return "\n\n".join(parts)
