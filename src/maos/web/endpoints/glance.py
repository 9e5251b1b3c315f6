"""What the page shows at a glance: runs and agents, the timeline and a past moment of a run, decisions, the store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

import maos
from maos.agents import kinds
from maos.errors import NotFound
from maos.model.events.access import ServerStarted
from maos.model.message import Message
from maos.model.read_models import AgentCard
from maos.plans.source import is_plan_file
from maos.web import documents as d
from maos.web import page_documents as p
from maos.web.api import Call
from maos.web.conversion import agent_info, point_at, point_info, run_details, run_entry, task_info

MESSAGES_MAX = 100
TASKS_MAX = 500
OUTPUTS_MAX = 200
"""Of so many tasks that had begun by a moment, the output of then can be read."""
TEXT_CHARS_MAX = 400


async def show_fleet(call: Call) -> p.FleetInfo:
    """Show all runs and agents at a glance: what each does, since when, and at which rate."""
    found = await call.m.fleet.read(seen=call.seen)
    runs = [
        run_entry(
            each.view,
            p.RunCardInfo,
            strip=each.strip,
            states=dict(each.states),
            cards=[_card(card) for card in each.cards],
            tokens_per_min=each.tokens_per_min,
            usd_per_min=each.usd_per_min,
            output_us=each.output_us,
        )
        for each in found.runs
    ]
    recent = [run_entry(each) for each in found.recent]
    return p.FleetInfo(
        runs=runs,
        agents=[_card(each) for each in found.agents],
        recent=recent,
        ended=found.ended,
        recent_agents=[agent_info(each) for each in found.recent_agents],
        quotas=found.quotas,
    )


def _card(card: AgentCard) -> AgentCard:
    return replace(card, activity=card.activity[:TEXT_CHARS_MAX], task=card.task[:TEXT_CHARS_MAX])


async def show_task(call: Call) -> d.TaskInfo:
    """Show one task of a run."""
    run = await call.m.runs.view(call.id)
    name = call.params["task"]
    if name not in run.tasks:
        raise NotFound(f"{run.id} has no task {name!r:.100}", hint="`maos status RUN` lists its tasks")
    return task_info(run, name)


async def list_discoveries(call: Call) -> p.DiscoveryList:
    """List what the agents of a run have found, the oldest first."""
    found = await call.m.runs.discoveries(await call.m.runs.view(call.id))
    return p.DiscoveryList(discoveries=list(found))


async def show_timeline(call: Call) -> p.TimelineInfo:
    """Show a run on a time axis: when each task was worked on, and what it cost by when."""
    found = await call.m.timelines.read(call.id)
    run = found.run
    tasks = [
        p.TimelineTask(
            name=name,
            needs=run.tasks[name].needs,
            status=run.tasks[name].status,
            spans=list(found.spans[name]),
        )
        for name in found.tasks
    ]
    marks = [replace(each, text=each.text[:TEXT_CHARS_MAX]) for each in found.marks]
    cost = [[float(at_us), usd, float(tokens)] for at_us, usd, tokens in found.cost]
    return p.TimelineInfo(
        tasks=tasks,
        total=len(run.tasks),
        left_out=found.left_out,
        cost=cost,
        marks=marks,
        begin_us=run.created_us,
        end_us=found.end_us,
    )


async def show_moment(call: Call) -> p.MomentInfo:
    """Show a run as it was at a point in time: tasks, agents, messages, cost and files of then."""
    run = await call.m.runs.get(call.id)
    point = await point_at(call, run, call.query.at or str(run.version))
    view, said = await call.m.runs.status_at(point)
    then = view.run
    begun = [name for name, task in then.tasks.items() if task.attempts][:OUTPUTS_MAX]
    agents = [
        p.AgentThen(
            agent=each.agent,
            task=name,
            status=str(each.status),
            activity=(each.activity or each.last_text)[:TEXT_CHARS_MAX],
            attempt=each.number,
            version=each.version,
        )
        for name, each in (await call.m.runs.attempts_at(view, point.position, begun)).items()
    ]
    changed = await call.m.runs.files(then)
    return p.MomentInfo(
        point=point_info(point),
        run=run_details(view).document,  # type: ignore[arg-type]
        tasks=[task_info(then, name) for name in list(then.tasks)[:TASKS_MAX]],
        agents=agents,
        messages=[_said(each.message) for each in said[-MESSAGES_MAX:]],
        files=None if changed is None else [d.of(each, d.FileChangeInfo) for each in changed],
    )


def _said(message: Message) -> p.Said:
    return p.Said(sender=message.sender, to=list(message.to), type=message.type, text=message.text, at_us=message.at_us)


async def list_all_decisions(call: Call) -> d.DecisionList:
    """List what people decided in all runs, with who decided, the newest first."""
    return d.DecisionList(decisions=await call.m.questions.decided(limit=call.query.limit, seen=call.seen))


async def show_start_options(call: Call) -> p.StartChoices:
    """Show what a run can be started with: the folders, plan files and kinds of agents that the settings allow."""
    values = call.server.values
    return p.StartChoices(
        folders=[*values.folders] or [str(call.server.folder)],
        plans=_plan_files(values.plans),
        kinds=[each for each in kinds.DIALECTS if each not in ("shell", "python")],
        kind=call.m.settings.values.orchestrate.kind,
        executes=call.server.is_executing,
    )


def _plan_files(folders: Sequence[str]) -> list[str]:
    found = [each for folder in folders for each in Path(folder).expanduser().glob("*") if is_plan_file(each.name)]
    return sorted({each.name for each in found if each.is_file()})


async def show_store(call: Call) -> p.StoreInfo:
    """Show how large everything is, and what was found when it was opened."""
    from maos.ops import doctor  # a server that shows no page needs none of it

    m = call.m
    agents = len({name async for name in m.agents.names()})
    findings = [{"level": "note", "about": "database", "what": each} for each in call.server.m.notes]
    versions = doctor.versions(maos.__version__)
    if "://" in m.database:
        del versions["SQLite"]
    return p.StoreInfo(
        version=maos.__version__,
        versions=versions,
        servers=[_server(each) for each in await m.supervisor.servers()],
        database=call.m.database,
        bytes=_size(call.m.database),
        position=await call.m.activity.head(),
        runs=await m.runs.count(),
        agents=agents,
        workflows=await m.workflows.count(),
        findings=findings,
    )


def _server(started: ServerStarted) -> p.ServerEntry:
    owner = started.owner
    return p.ServerEntry(url=started.url, host=str(owner["host"]), pid=int(owner["pid"]), started_us=started.at_us)


def _size(database: str) -> int:
    """The size of a SQLite database with its write-ahead log; 0 for another one."""
    found = [Path(f"{database}{end}") for end in ("", "-wal")]
    return sum(each.stat().st_size for each in found if each.is_file())
