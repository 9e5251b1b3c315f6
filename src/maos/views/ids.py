"""Ids as people type them: RUN, RUN/TASK, RUN.TASK, an agent, a workflow run, or a unique prefix of one."""

from __future__ import annotations

from maos.engine.streams import HINT, AttemptReader, RunReader
from maos.errors import NotFound
from maos.ids import AGENT, RUN, TASK, WORKFLOW, Target, match_id, only
from maos.journal.journal import Journal
from maos.model.agent import stream as state_stream
from maos.model.run import Run
from maos.model.workflow import stream as workflow_stream

RUNS_LOOKED_AT_MAX = 200
NOUNS = {RUN: "run", AGENT: "agent", WORKFLOW: "workflow run"}
HINTS = {RUN: HINT, AGENT: "`maos agent list --all` lists agents", WORKFLOW: "`maos workflow list` lists workflow runs"}


class Ids:
    """Finds what a person means by an id."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._runs = RunReader(journal)

    async def find(self, given: str, *kinds: str) -> Target:
        """The one thing that is called so, or whose id alone begins so.

        `kinds` are "run", "agent" and "workflow"; a task of a run counts as an agent. Of a workflow run, what follows
        the slash is a step, which is not looked for.
        """
        kinds = kinds or (RUN, AGENT, WORKFLOW)
        run, slash, task = given.partition("/")
        if slash and WORKFLOW in kinds and not await self._runs.matching(run):
            return (await self.find(run, WORKFLOW))._replace(task=task)
        if slash and AGENT in kinds:
            return self._task(await self._runs.find(run), task)
        known = await self._matching(given, kinds)
        run, dot, task = given.partition(".")
        if not known and dot and AGENT in kinds and len(found := await self._runs.matching(run)) == 1:
            return self._task(await self._runs.get(found[0]), task)
        others = [] if known else await self._matching("", kinds)
        nouns = [NOUNS[each] for each in kinds]
        noun = " or ".join([", ".join(nouns[:-1]), nouns[-1]]) if len(nouns) > 1 else nouns[0]
        hint = "; ".join(HINTS[each] for each in kinds)
        if len(known) > 1 and len(kinds) > 1:
            noun = "id"
        if not known and AGENT in kinds and (task := await self._named(given)):
            hint = f"a task is named with its run: {task}"
        if not known and AGENT in kinds and await self._journal.version(state_stream(given)):
            raise NotFound(f"agent {given!r} has a state and has not run", hint=f"`maos state show {given}` shows it")
        id = given if given in known else only(given, list(known), noun, hint=hint, others=others)
        return Target(known[id], id) if known[id] != AGENT else await self._agent(id)

    async def complete(self, prefix: str) -> list[str]:
        """The ids that begin with a prefix; the tasks of a run once its id is followed by a slash."""
        run, slash, _task = prefix.partition("/")
        if not slash:
            return sorted(await self._matching(prefix, (RUN, AGENT, WORKFLOW)))
        found = await self._runs.matching(run)
        tasks = (await self._runs.get(found[0])).tasks if len(found) == 1 else ()
        return sorted(each for each in (f"{run}/{name}" for name in tasks) if each.startswith(prefix))

    async def _matching(self, given: str, kinds: tuple[str, ...]) -> dict[str, str]:
        """The kinds of everything whose id begins so, by id; of a run that does, its agents are left out."""
        found: dict[str, str] = {}
        if RUN in kinds:
            runs = await self._runs.matching(given) if given else [id async for id in self._runs.ids()]
            found |= dict.fromkeys(runs, RUN)
        if WORKFLOW in kinds:
            found |= {name.partition("/")[2]: WORKFLOW async for name in self._journal.streams(workflow_stream(given))}
        if AGENT in kinds:
            prefixes = tuple(f"{id}." for id, kind in found.items() if kind == RUN)
            names = [name async for name in AttemptReader(self._journal).names(given)]
            found |= {name: AGENT for name in sorted(names) if not name.startswith(prefixes) or name == given}
        return found

    async def _named(self, given: str) -> str:
        """The task of that name, as RUN/TASK, of the newest run that has one; empty when none of the newest has."""
        looked_at = 0
        async for run in self._runs.newest_first():
            looked_at += 1
            if given in run.tasks:
                return f"{run.id}/{given}"
            if looked_at == RUNS_LOOKED_AT_MAX:
                break
        return ""

    def _task(self, run: Run, given: str) -> Target:
        hint = f"its tasks are {', '.join(list(run.tasks)[:20])}" if run.tasks else "it has no tasks yet"
        task = match_id(given, run.tasks, f"task of {run.id}", hint=hint, others=run.tasks)
        return Target(TASK, run.agent(task), run.id, task)

    async def _agent(self, name: str) -> Target:
        """An agent, as a task if it is the one that does a task of a run."""
        run = name.partition(".")[0]
        if run != name and await self._runs.matching(run) == [run]:
            found = await self._runs.get(run)
            for task in found.tasks:
                if found.agent(task) == name:
                    return Target(TASK, name, run, task)
        return Target(AGENT, name)
