"""Agents as the workers of a run: each task is done by an agent of its own, in a worktree of its own."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from maos import workspaces as workspaces
from maos.engine.attempt_spec import TIME_LIMIT_S
from maos.engine.attempts import Attempts
from maos.engine.live import Listener, LiveAttempt
from maos.engine.setups import SetupFailed, SetupStopped
from maos.errors import InvalidInput, NotFound
from maos.holder.agent_process import StartFailed
from maos.model import preparation
from maos.model.attempt import Attempt
from maos.model.events.attempt import AttemptOutput
from maos.model.events.facts import Fact, Line
from maos.model.failure import ASK, GIVE_UP, TABLE
from maos.model.plan import BadPlan, Problem, Task
from maos.model.preparation import Preparation
from maos.model.run import Run, TaskState
from maos.runs import agent_types, decisions, merges, planner
from maos.runs.budgets import SENDER, Budget, Meter, Purse
from maos.runs.decisions import Outcome
from maos.runs.plan_input import ValidPlan
from maos.text import command_text, cut, shorten, without_escapes

DISCOVERIES_TOLD, DISCOVERY_CHARS_MAX = 20, 400
RESULT_CHARS_MAX = 8000
"""How much of a task's report is given to the tasks that need it."""
COMMAND_CHARS_MAX = 200
CONFLICT_LINES_MAX = 80
"""How many lines about a conflict a person is shown."""
GATE_LINES = 20
"""How much of the output of a failing gate is given to the agent."""
ANSWER_S_MAX = 120.0
"""How long an answer that is on its way is waited for before its agent is stopped at a limit."""
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
        self._purse = Purse(Run(id=""))
        """What the whole run takes."""
        self._meters: dict[str, tuple[Meter, TaskState]] = {}
        """What each agent at work takes of its task's own."""
        self._said: dict[str, asyncio.Event] = {}
        """Set whenever something that an agent at work said was recorded."""

    def watch(self, purse: Purse) -> None:
        """Start agents with what a run has left, and stop them when it reaches a limit."""
        self._purse = purse

    def limit_again(self, run: Run) -> None:
        """Give the agents at work the time limits that count for them now."""
        for agent, (meter, task) in self._meters.items():
            own = own_budget(run, msgspec.convert(task.plan, Task))
            if agent == run.agent(task.name) and meter.budget != own:  # one that checks has no limit of its task
                meter.set_budget(own)
                self._note(self._running[task.name].attempt)

    async def work(self, run: Run, task: TaskState) -> Outcome:
        """Begin a task that is recorded as started, or resume it; returns when this attempt has ended.

        Its agent is started, adopted or resumed, or only its outcome is read: whatever is left to do. The work of a
        task without gates is then merged; for one with gates, `complete` is called when it has passed them.
        """
        with self._stoppable(task):
            return await self._work(run, task, msgspec.convert(task.plan, Task))

    async def _work(self, run: Run, task: TaskState, plan: Task) -> Outcome:
        own = own_budget(run, plan)
        try:
            attempt = await self._attempt(run, task, plan, own)
        except SetupStopped:
            return Outcome(failure="stopped")
        except SetupFailed as error:
            return Outcome(failure="setup_failed", message=str(error))
        except (StartFailed, NotFound, InvalidInput) as error:
            return Outcome(failure="start_failed", message=str(error))
        if attempt is None:
            why = own.exceeded(task.used_usd, task.used_tokens)
            return Outcome(failure="budget_reached", message=why) if why else Outcome(failure="stopped")
        outcome = self._outcome(attempt)
        is_paid = not own.exceeded(task.used_usd + outcome.cost_usd, task.used_tokens + outcome.tokens)
        if is_paid and await self._attempts.has_unheard(attempt):
            outcome = outcome._replace(failure="unheard")
        given_usd = float(attempt.order.get("budget_usd", 0))
        if outcome.failure == "budget_reached" and given_usd and given_usd != own.left_usd(task.used_usd):
            # It was its share of what the run had left: it is resumed when the run has money for another one.
            outcome = outcome._replace(failure="stopped")
        elif outcome.failure == "stopped" and task.name not in self._stopping:
            why = own.exceeded(task.used_usd + outcome.cost_usd, task.used_tokens + outcome.tokens)
            if why:
                outcome = outcome._replace(failure="budget_reached", message=why)
            elif task.name in self._watched and not self._purse.meter.spent.is_set():
                outcome = outcome._replace(failure="halted", message="")
        if task is run.planner and not outcome.failure:
            return await asyncio.to_thread(self._propose, run, outcome)
        if outcome.failure or plan.gates:
            return outcome
        return await self._merge(run, task, outcome)

    def _propose(self, run: Run, outcome: Outcome) -> Outcome:
        """The plan in what the planner answered; what is wrong with it, the planner is told."""
        try:
            types = agent_types.known(Path(run.folder))
            found = ValidPlan(planner.understand(outcome.result, run, types), types)
            self._check_programs(run, found)
        except BadPlan as error:
            return _bad_plan(outcome, error)
        except InvalidInput as error:  # a file that describes a type of agents
            return outcome._replace(failure="start_failed", message=str(error))
        names = ", ".join(task.name for task in found.plan.tasks)
        result = f"{found.plan.summary or 'planned'}: {names}"
        return outcome._replace(result=result, proposed=planner.propose(found, outcome.at_us))

    def _check_programs(self, run: Run, found: ValidPlan) -> None:
        """BadPlan when a task needs a kind of agent whose program is not installed, or a model without a price."""
        planned = Run(id=run.id, options={**run.options, "agents": agent_types.to_data(found.plan, found.types)})
        problems = []
        for task in found.plan.tasks:
            how = terms(planned, task)
            try:
                self._attempts.program(how["kind"])
                if self._purse.budget.cost_usd or own_budget(planned, task).cost_usd:
                    self._attempts.check_price(how["kind"], how["model"])
            except (NotFound, InvalidInput) as error:
                problems.append(Problem(f"task {task.name}", str(error), "choose another type of agent"))
        if problems:
            raise BadPlan(problems)

    async def check(self, run: Run, task: TaskState) -> Outcome:
        """Let the next gate look at the work, in the worktree it was done in."""
        with self._stoppable(task):
            return await self._check(run, task, msgspec.convert(task.plan, Task))

    async def _check(self, run: Run, task: TaskState, plan: Task) -> Outcome:
        gate = plan.gates[task.gate]
        name = f"{run.agent(task.name)}-gate{task.gate + 1}-{task.attempts}"
        more: dict[str, Any] = {"kind": "shell", "argv": gate.command}
        if gate.review:
            more = {"kind": run.options["kind"], "task": REVIEW.format(review=gate.review)}
        more["env"] = prepared(run, plan).env
        try:
            attempt = await self._beside(run, task, name, more)
        except (StartFailed, NotFound, InvalidInput) as error:
            return Outcome(failure="start_failed", message=f"gate {task.gate + 1}: {error}")
        outcome = self._outcome(attempt)
        if outcome.failure == "budget_reached":  # of its share: a review has no limit of its own
            return outcome._replace(failure="stopped", result="", commit="")
        if gate.review and not outcome.failure and not _approves(outcome.result):
            return outcome._replace(failure="gate_failed", message=f"the review rejected it:\n\n{outcome.result}")
        if gate.command and outcome.failure == "failed":
            said = shorten(command_text(gate.command), COMMAND_CHARS_MAX)
            why = f"check `{said}` failed: {outcome.message}\n\n{await self._last_lines(name)}"
            return outcome._replace(failure="gate_failed", message=why.strip())
        return outcome._replace(result="", commit="")

    async def complete(self, run: Run, task: TaskState) -> Outcome:
        """Bring the files of a task that has passed its gates together with those of the others."""
        with self._stoppable(task):
            return await self._complete(run, task)

    async def _complete(self, run: Run, task: TaskState) -> Outcome:
        outcome = Outcome(result=task.result, commit=task.commit)
        if task is run.planner:
            try:
                planner.check_again(run)
            except BadPlan as error:
                return _bad_plan(outcome, error)
            return outcome
        if task.resolve == decisions.BY_TASK_AGENT:
            return await self._resolved(run, task, outcome)
        if task.resolve == decisions.MERGE_AGAIN:  # the person may have changed the files
            saved = await workspaces.checkpoint(await self._workspace(run, task), "before it is merged again")
            outcome = outcome._replace(commit=saved.commit) if saved is not None else outcome
        return await self._merge(run, task, outcome, prefer=task.resolve)

    def _outcome(self, attempt: Attempt) -> Outcome:
        to_do = self._attempts.login(attempt.kind) if attempt.failure == "login_expired" else ""
        return decisions.outcome_of(attempt)._replace(to_do=to_do)

    @contextlib.contextmanager
    def _stoppable(self, task: TaskState) -> Iterator[None]:
        """One attempt, check or merge of a task: a request to stop it is not for the next one."""
        try:
            yield
        finally:
            self._stopping.discard(task.name)

    def stop(self, run: Run, task: TaskState) -> Coroutine[Any, Any, None]:
        """Have the task's agent end, as soon as it has started; it can be resumed.

        Call it only while `work`, `check` or `complete` of this task runs. The request is noted by the call, before the
        coroutine is awaited: noted later, after the agent has ended by itself, it would stop the next attempt.
        """
        self._stopping.add(task.name)
        return self._stop(run, task)

    async def _stop(self, run: Run, task: TaskState) -> None:
        running = self._running.get(task.name)
        if running is not None:
            await running.stop()
        else:
            await self._attempts.setups.stop(run.agent(task.name))

    async def _attempt(self, run: Run, task: TaskState, plan: Task, own: Budget) -> Attempt | None:
        """The attempt that the task is at, when it has ended; None when nothing is left to begin it with."""
        agent = run.agent(task.name)
        known = await self._attempts.newest(agent)
        if known is not None and known.number >= task.attempts:
            return await self._adopted(task, agent, own)
        if task.stopping or self._purse.reached or own.exceeded(task.used_usd, task.used_tokens):
            return None
        if known is None:
            running = await self._start(run, task, plan, own)
        else:
            instead = decisions.told_instead(task, known.number)
            changed: dict[str, Any] = {"argv": plan.command, "instead": instead} if instead else {}
            running = await self._attempts.resume(
                agent,
                task="" if changed else decisions.told_on_retry(run, task),
                **changed,
                time_limit_s=own.time_s,
                budget_usd=self._budget_usd(known.kind, task, own),
                listener=self._heard,
            )
        return await self._until_ended(task, running, own)

    async def _adopted(self, task: TaskState, agent: str, own: Budget | None = None) -> Attempt:
        running = await self._attempts.adopt(agent, listener=self._heard)
        return await self._attempts.get(agent) if running is None else await self._until_ended(task, running, own)

    async def _until_ended(self, task: TaskState, running: LiveAttempt, own: Budget | None = None) -> Attempt:
        """Wait for an agent, and keep the limits of the run and its task; a check takes nothing of its task's own."""
        agent = running.attempt.agent
        meter = Meter(own or Budget(), "your task", waited_s=lambda: running.waited_s)
        self._running[task.name], self._meters[agent] = running, (meter, task)
        self._said[agent] = asyncio.Event()
        self._watched.add(task.name)
        self._note(running.attempt)
        watching = [
            asyncio.create_task(each(running, limit))
            for limit in (self._purse.meter, meter)
            for each in (self._warn, self._end)
        ]
        watching.append(asyncio.create_task(self._limit_time(running, meter)))
        try:
            if task.name in self._stopping:
                await running.stop()
            return await running.wait()
        finally:
            self._running.pop(task.name, None)
            self._meters.pop(agent, None)
            self._said.pop(agent, None)
            for watcher in watching:
                watcher.cancel()
            await asyncio.gather(*watching, return_exceptions=True)

    def _heard(self, attempt: Attempt, facts: Sequence[Fact]) -> None:
        if self._listener is not None:
            self._listener(attempt, facts)
        self._note(attempt)

    def _note(self, attempt: Attempt) -> None:
        """See what a task and the whole run have taken so far, those at work included."""
        if attempt.agent not in self._meters:
            return
        meter, task = self._meters[attempt.agent]
        spent = attempt.spent
        meter.note(task.used_usd + spent.cost_usd, task.used_tokens + spent.tokens)
        self._purse.note(task.name, attempt)
        self._said[attempt.agent].set()

    async def _warn(self, running: LiveAttempt, meter: Meter) -> None:
        """Warn an agent that it reaches a limit, once for each limit, if it accepts messages while it works."""
        if not self._attempts.accepts_warnings(running.attempt.kind):
            return
        while True:
            await meter.until_nearly_used_up()
            if running.attempt.has_answered:
                return
            warned = meter.budget
            await self._attempts.send(running.attempt.agent, meter.warning, sender=SENDER)
            await meter.until_changed(warned)

    async def _limit_time(self, running: LiveAttempt, meter: Meter) -> None:
        """Give an agent another time limit whenever a person has changed it."""
        while True:
            known = meter.budget
            await meter.until_changed(known)
            await running.set_time_limit(meter.budget.time_s)

    async def _end(self, running: LiveAttempt, meter: Meter) -> None:
        """Stop an agent that has reached a limit, after the answer of its model that is on its way: that is paid for,
        and is counted when it has come."""
        said = self._said[running.attempt.agent]
        while True:
            await meter.spent.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ANSWER_S_MAX):
                    while running.is_answering and meter.spent.is_set():
                        said.clear()
                        await said.wait()
            if meter.spent.is_set():  # else a person has raised the limit meanwhile
                break
        if not running.attempt.has_answered:  # else it exits, or is ended
            await running.stop()

    async def _start(self, run: Run, task: TaskState, plan: Task, own: Budget) -> LiveAttempt:
        agent, options, how = run.agent(task.name), run.options, terms(run, plan)
        if task is run.planner:
            types = await asyncio.to_thread(agent_types.known, Path(run.folder))
            return await self._attempts.start(
                planner.prompt(run.request, types, planner.checks_of(run.options)),
                name=agent,
                cwd=Path(run.folder),
                in_place=True,
                budget_usd=self._budget_usd(how["kind"], task, own),
                listener=self._heard,
                # Not an agent of the run yet: it cannot add tasks before a person has approved the plan.
                **{**how, "tools_allowed": planner.TOOLS, "permission": "deny", "run": ""},
            )
        found = [(run.agent(by.name), each.text) for by, each in await self._attempts.discoveries(run, but=agent)]
        return await self._attempts.start(
            shlex.join(plan.command) if plan.command and not plan.task else _told(run, plan, found),
            name=agent,
            argv=plan.command,
            cwd=Path(run.folder),
            in_place=bool(options.get("in_place")),
            base=run.commit or (options.get("workspace") or {}).get("base"),
            budget_usd=self._budget_usd(how["kind"], task, own),
            tool_server=plan.mcp,
            listener=self._heard,
            **how,
        )

    def _budget_usd(self, kind: str, task: TaskState, own: Budget) -> float:
        """What an agent may cost: what its task has left, or its share of what the run has left if that is less; 0 for
        no limit."""
        share = self._purse.share(task.name) if self._attempts.takes_words(kind) else 0.0
        return min(filter(None, (own.left_usd(task.used_usd), share)), default=0.0)

    async def _beside(self, run: Run, task: TaskState, name: str, more: Mapping[str, Any]) -> Attempt:
        """Another agent in the files of a task: started, adopted, or resumed if its outcome is recorded."""
        known = await self._attempts.newest(name)
        if known is not None and known.number > task.checks:
            return await self._adopted(task, name)
        share = self._budget_usd(more["kind"], task, Budget())
        if known is None:
            worked = await self._attempts.get(run.agent(task.name))
            cwd = Path(worked.order["cwd"])
            running = await self._attempts.start(
                name=name, cwd=cwd, in_place=True, budget_usd=share, listener=self._heard, **more
            )
        else:
            running = await self._attempts.resume(name, like=more, budget_usd=share, listener=self._heard)
        return await self._until_ended(task, running)

    async def _last_lines(self, agent: str) -> str:
        lines: list[str] = []
        async for record in self._attempts.records(agent):
            if isinstance(record.event, AttemptOutput):
                said = (each.text for each in record.event.facts if isinstance(each, Line) and each.text)
                lines += [without_escapes(text) for text in said]
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
            own = f"{outcome.commit[:12]} {merges.subject_of(task)}"
            both = merges.explain(merged.conflicts, ours=workspaces.OTHERS, theirs=workspaces.OWN, own=own)
            return outcome._replace(
                failure="merge_conflict", message="\n".join([why, *both[:CONFLICT_LINES_MAX]]), files=merged.files
            )
        return outcome._replace(failure="merge_conflict", message=f"{merged.why} {', '.join(merged.files)}".strip())

    async def _try(
        self, run: Run, task: TaskState, commit: str, prefer: str = ""
    ) -> workspaces.Merged | workspaces.Conflicted | workspaces.Blocked:
        into = workspaces.Workspace.located(run.options["workspace"], self._attempts.folder)
        part = workspaces.WorkPart(commit, merges.subject_of(task), trailers=((workspaces.TASK_TRAILER, task.name),))
        async with self._merging:
            workspace = await self._workspace(run, task)
            if task.resolve == decisions.MERGE_AGAIN:
                left = await asyncio.to_thread(decisions.files_with_markers, workspace.tree, task.conflict)
                if left:
                    return workspaces.Blocked("there are conflict markers in", tuple(left), "")
            return await workspaces.merge(workspace, commit, into=into.path, parts=[part], prefer=prefer)

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
        done = self._outcome(attempt)
        if done.failure == "budget_reached":
            done = done._replace(failure="stopped")
        spent = outcome._replace(**msgspec.structs.asdict(attempt.spent))
        if done.failure and (TABLE[done.failure].of_kind or TABLE[done.failure].action not in (ASK, GIVE_UP)):
            return done._replace(result=outcome.result, commit=outcome.commit)
        saved = await workspaces.checkpoint(workspace, "both sides")
        left = await asyncio.to_thread(decisions.files_with_markers, workspace.tree, task.conflict)
        if done.failure or left or saved is None:
            await workspaces.restore(workspace, outcome.commit)
            why = f"the agent did not resolve the conflict: {done.message or 'conflict markers are left'}"
            return spent._replace(failure="merge_conflict", message=why, files=tuple(left or task.conflict))
        return await self._merge(run, task, spent._replace(commit=saved.commit))


def _bad_plan(outcome: Outcome, error: BadPlan) -> Outcome:
    return outcome._replace(failure="gate_failed", message="\n".join(f"- {each}" for each in error.problems))


def _approves(review: str) -> bool:
    """Whether the last line says so; however it is set, and nothing short of the plain word."""
    return review.strip().rpartition("\n")[2].strip("*_#`>. ").startswith("APPROVED")


def own_budget(run: Run, plan: Task) -> Budget:
    """What the agent of a task may take by the plan, its type and the run's options."""
    role = agent_types.of_task(run.options, plan.agent)
    time_limit_s = float(plan.time_limit_s or role.time_limit_s or run.options.get("time_limit_s", TIME_LIMIT_S))
    return Budget(plan.budget_usd or role.budget_usd, plan.tokens_max or role.tokens_max, time_limit_s)


def terms(run: Run, plan: Task) -> dict[str, Any]:
    """How the agent of a task is started."""
    options, role = run.options, agent_types.of_task(run.options, plan.agent)
    kind = agent_types.kind_of(options, msgspec.to_builtins(plan))
    return {
        "kind": kind,
        "model": plan.model or role.model or (options.get("model", "") if kind == options.get("kind") else ""),
        "instructions": role.instructions,
        "time_limit_s": own_budget(run, plan).time_s,
        "turns_max": role.turns_max,
        "tools_allowed": plan.tools or role.tools,
        "permission": role.permission or options.get("permission", "ask"),
        "run": run.id,
        "project_settings": options.get("project_settings", ()),
        "mcp_servers": role.mcp_servers,
        **preparation.to_options(prepared(run, plan)),
    }


def prepared(run: Run, plan: Task) -> Preparation:
    """How the workspace of a task is prepared, by the run's options, its type and the plan."""
    role = agent_types.of_task(run.options, plan.agent)
    places = run.options, msgspec.structs.asdict(role), msgspec.structs.asdict(plan)
    return preparation.combine(map(preparation.of_options, places))


def _told(run: Run, plan: Task, found: Sequence[tuple[str, str]]) -> str:
    """The task, what those it needs have reported, and what was found: words of other agents, so they are quoted."""
    parts = [plan.task]
    for name in plan.needs if not plan.command else ():
        result = run.tasks[name].result.strip()
        if result:
            quoted = "\n".join(f"> {line}" for line in cut(result, RESULT_CHARS_MAX).splitlines())
            parts.append(f"The task {name}, which is done, reported:\n\n{quoted}")
    if found and not plan.command:
        lines = [f"> {agent}: {' '.join(text.split())}" for agent, text in found[-DISCOVERIES_TOLD:]]
        quoted = "\n".join(cut(line, DISCOVERY_CHARS_MAX) for line in lines)
        parts.append(f"Other agents of this run have found so far:\n\n{quoted}")
    return "\n\n".join(parts)
