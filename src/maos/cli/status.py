"""`maos status`, `ps`, `inbox`, `answer` and `maos` alone: everything that runs or waits, and what needs a person."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from maos.cli import commands, documents, permissions, remote, render, words
from maos.cli.agent.status import AGENTS, agent_document, show_agent, show_list
from maos.cli.commands import DOCUMENT, LazyGroup, find_installed, forward, json_command
from maos.cli.database import DatabaseTarget
from maos.cli.failures import note
from maos.cli.render import clean
from maos.cli.runs import page
from maos.cli.runs.travel import point
from maos.cli.workflow import page as workflows
from maos.clock import MICROSECONDS
from maos.errors import InvalidInput, MaosError
from maos.ids import RUN, TASK, WORKFLOW, Target, only

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.backup.service import BackupStatus
    from maos.model.read_models import ExternalEffect
    from maos.runs.status import RunView
    from maos.views.overview import Overview

STATUSES = ("planning", "running", "paused", "completed", "failed", "cancelled")
STATES = (
    "initializing", "idle", "working", "waiting_for_user", "waiting_for_tasks", "blocked", "interrupted",
)  # fmt: skip
UNKNOWN_SHOWN_MAX = 5
NEXT_SHOWN_MAX = 3
BACKUP_S_MAX = 3.0
DAY_S = 86_400.0
"""How long to wait for the location of the backup."""
CONTEXT_LINES_MAX = 200
"""How many lines of a question's context `maos inbox` prints."""

BEGINNING = """\
maos runs coding agents and commands so that a crash loses nothing.
There is no database in this folder yet. Create one by running something:

  maos run 'Add a --verbose option, with tests'   have agents plan and do it
  maos run -- make test                           run one command as an agent
  maos demo                                       {demo}
"""


# --- one run, or everything --------------------------------------------------------------------------------------


@json_command(
    "maos status",
    "maos status r-1a2b3c --tasks --messages",
    "maos status r-1a2b3c/api",
    "maos status r-1a2b3c --watch",
    "maos status r-1a2b3c --at before-refactoring --tasks",
    json=f"{DOCUMENT.removesuffix('.')}; with --watch, one per line.",
)
@click.argument("id", metavar="[ID]", required=False, default="", shell_complete=commands.complete_ids)
@click.option("--watch", is_flag=True, help="Update until the run has ended or is paused.")
@click.option("--tasks", is_flag=True, help="Every task; without it, those of a run with up to 12.")
@click.option("--messages", is_flag=True, help="Also the messages between agents.")
@click.option("--at", metavar="POINT", help="As it was then: a checkpoint, a version, @POSITION, or a time.")
def status(
    database: DatabaseTarget, id: str, watch: bool, tasks: bool, messages: bool, at: str | None, as_json: bool
) -> int:
    """Show what runs and what needs you, or one run, task or agent.

    Without ID: open questions, runs that are blocked, interrupted, paused at a limit or failed in the last week, runs
    that are executed, and agents and workflow runs that belong to no run. With --watch, --tasks or --at, the newest run
    is meant.

    ID is RUN, RUN/TASK, an agent, a workflow run, or a unique prefix of one. With --watch the page is updated whenever
    something happens, whichever process executes the run; Ctrl+C ends only the watching.
    """
    if at and watch:
        raise InvalidInput("the past does not change, so there is nothing to watch", hint="leave out --watch")
    if database.is_remote and not (watch or tasks or messages or at):
        return remote.status(id, as_json=as_json)
    if not (id or watch or tasks or at):
        _print_overview(database, messages=messages, as_json=as_json)
        return 0

    async def work(m: Maos) -> Target | None:
        target = await m.ids.find(id) if id else Target(RUN, (await m.runs.newest()).id)
        if target.kind == TASK:
            await _print_task(m, target, as_json=as_json)
            return None
        if target.kind != RUN:
            return target
        run = await m.runs.get(target.id)
        if watch:
            from maos.cli.runs.live import watch as follow

            await follow(m, run, tasks=tasks, messages=messages, as_json=as_json)
            return None
        if at:
            now, past = await m.runs.status_at(await point(m, run, at))
            said = past if messages else None
        else:
            now = await m.runs.status_of(run)
            newest = 0 if as_json else page.MESSAGES_SHOWN_MAX
            said = await m.runs.messages(run.id, newest=newest) if messages else None
        if as_json:
            documents.show(page.document(now, tasks=tasks, messages=said))
        else:
            page.show(now, tasks=tasks, messages=said)
        return None

    other = database.read(work, waits=watch)
    if other is None:
        return 0
    module = "maos.cli.workflow.status" if other.kind == WORKFLOW else "maos.cli.agent.status"
    return forward(f"{module}:show", other.id, as_json=as_json)


async def _print_task(m: Maos, target: Target, *, as_json: bool) -> None:
    """Print a task: its status, why, and what it asks; then its agent, once one has started.

    The agent of a task may be done while a check of its work has failed, or a person is asked.
    """
    now = await m.runs.status(target.run)
    task = now.run.tasks[target.task]
    found = await m.agents.details(await m.agents.find(target.id)) if task.attempts else None
    if as_json:
        asked = [page.question_document(each) for each in page.questions_of(now, task)]
        details = agent_document(found) if found is not None else None
        documents.show({**page.task_document(task, now.run), "questions": asked, "details": details})
        return
    page.show_task(now, task)
    if found is not None:
        render.line()
        show_agent(found, to_merge=task.status == "done")


def _print_overview(database: DatabaseTarget, *, messages: bool, as_json: bool) -> None:
    found, backup = database.read(_overview_and_backup)
    if as_json:
        _print_document(found, backup, messages=messages)
        return
    _print_needs(found)
    if not _print_open(found) and not found.questions:
        render.line("nothing is running")
    if messages:
        render.line()
        page.show_messages(found.messages, len(found.messages))
    if backup is not None:
        render.line(("backup: ", "dim"), words.backup_line(backup))


async def _overview_and_backup(m: Maos) -> tuple[Overview, BackupStatus | str | None]:
    """The overview, and how the backup of the settings is, or why that is not known; None where there is none."""
    import asyncio

    found, location = await _overview(m), m.settings.values.backup.to
    if not location:
        return found, None
    try:
        async with asyncio.timeout(BACKUP_S_MAX):
            return found, await m.backups.status(location)
    except MaosError as error:
        return found, error.what
    except TimeoutError:
        return found, f"{location} does not answer"


async def _overview(m: Maos) -> Overview:
    """Everything that runs or waits, without interrupted runs that are older than `recovery.lookback_days`."""
    found, since_us = await m.overview(), m.views.runs.lookback_us()
    recent = [each for each in found.runs if each.now.state != "interrupted" or each.run.updated_us >= since_us]
    return found._replace(runs=recent)


def _print_document(found: Overview, backup: BackupStatus | str | None, *, messages: bool) -> None:
    def of(state: str) -> list[str]:
        return [each.run.id for each in found.runs if each.now.state == state]

    documents.show(
        {
            "questions": [page.question_document(each) for each in found.questions],
            "waiting_for_user": [each.run.id for each in found.runs if each.now.needs_person],
            "blocked": of("blocked"),
            "failed": of("failed") + [each.id for each in found.flows if each.status == "failed"],
            "interrupted": [
                *of("interrupted"),
                *(each.agent for each in found.interrupted_agents),
                *(each.id for each in found.flows if each.needs_resume),
            ],
            **page.RUNS.document(found.runs),
            "agents": documents.of(found.agents),
            "workflows": documents.of(found.flows),
            "unknown": documents.of(found.unknown),
            "backup": {"problem": backup} if isinstance(backup, str) else backup and documents.of(backup),
            **(page.MESSAGES.document(found.messages) if messages else {}),
        }
    )


def _print_needs(found: Overview) -> None:
    """Print what needs a person, and a blank line after it."""

    needy = [each for each in found.runs if each.now.state in ("blocked", "failed", "interrupted") or each.is_at_limit]
    stopped = [each for each in found.flows if each.is_stopped]
    page.show_open(found.questions, found.questions)
    for each in needy:
        _print_trouble(each)
    for agent in found.interrupted_agents:
        render.line(("! ", "bold red"), (clean(agent.agent), "bold"), " is ", (agent.status, "bold red"))
        render.line(("  resume with: ", "dim"), (agent.resumable or "", "bold"))
    for flow in stopped:
        workflows.show_stopped(flow)
    _print_unknown(found.unknown)
    if found.questions or needy or found.interrupted_agents or stopped or found.unknown:
        render.line()


def _print_trouble(each: RunView) -> None:
    """Print a run that does not continue by itself, why, and what to do."""
    run, now = each.run, each.now
    why = words.one_line(f"{now.error or run.why}{words.by(run.stopped_by)}", render.room_for_value(30))
    render.line(("! ", "bold red"), (run.id, "bold"), " is ", (page.spoken(each), page.STYLES[now.state]), f": {why}")
    if now.to_do and now.state != "interrupted":
        to_do = render.wrap(words.one_line(now.to_do, None), sys.stdout, indent="    ", used=len("  to do: "))
        render.line(("  to do: ", "dim"), to_do)
    render.line(("  resume with: ", "dim"), (each.resumable, "bold"))


def _print_unknown(unknown: Sequence[ExternalEffect]) -> None:
    """Print effects whose outcome is unknown, and where to see more."""
    for each in unknown[:UNKNOWN_SHOWN_MAX]:
        given = words.one_line(each.given, render.room_for_value(50))
        what = f"{clean(each.what)}{f'({given})' if given else ''}"
        render.line(("! ", "bold red"), (clean(each.by), "bold"), " unknown whether it took effect: ", what)
    if len(unknown) > UNKNOWN_SHOWN_MAX:
        render.line(("  … ", "dim"), f"and {len(unknown) - UNKNOWN_SHOWN_MAX} more: maos admin effects --unknown")


def _print_open(found: Overview) -> bool:
    """Print runs, agents and workflow runs that are open; whether there are any."""

    tables: list[tuple[list[Any], Callable[[list[Any]], None]]] = [
        (found.runs, page.RUNS.table), (found.agents, show_list), (found.flows, workflows.WORKFLOWS.table),
    ]  # fmt: skip
    shown = [(rows, show) for rows, show in tables if rows]
    for number, (rows, show) in enumerate(shown):
        if number:
            render.line()
        show(rows)
    return bool(shown)


@click.group(
    cls=LazyGroup,
    lazy={"cleanup": ("maos.cli.runs.control:cleanup", "Remove the worktrees of runs that were completed long ago.")},
    examples=["maos status"],
    invoke_without_command=True,
)
@click.option("--json", "as_json", is_flag=True, help=DOCUMENT)
@click.pass_context
def recover(ctx: click.Context, as_json: bool) -> None:
    """The older name of `maos status`: interrupted runs and agents, each with the command that resumes it."""
    if ctx.invoked_subcommand is None:
        _print_overview(ctx.obj, messages=False, as_json=as_json)


# --- the list ----------------------------------------------------------------------------------------------------


@json_command("maos ps", "maos ps --all --json", "maos ps --status running --agents")
@click.option("--all", "-a", "everything", is_flag=True, help="Also runs that ended more than a week ago.")
@click.option(
    "--status",
    "wanted",
    type=click.Choice([*STATUSES, *STATES]),
    metavar="STATUS",
    help=f"Only runs with a status ({', '.join(STATUSES)}) or in a state ({', '.join(STATES)}).",
)
@click.option("--agents", is_flag=True, help="Also the agents that are at work.")
def ps(database: DatabaseTarget, everything: bool, wanted: str | None, agents: bool, as_json: bool) -> int:
    """List runs, open ones first.

    A run that no engine executes although it is neither paused nor ended is interrupted; `maos resume` continues it.
    """
    if database.is_remote and not agents:
        return remote.ps(wanted or "", everything=everything, as_json=as_json)

    async def read(m: Maos) -> tuple[list[RunView], int]:
        from maos.runs.status import RECENT_US

        since_us = None if everything or wanted else m.clock.now_us() - RECENT_US
        known = await m.views.runs.list(since_us=since_us)
        found = [each for each in known if not wanted or wanted in (each.status, each.now.state)]
        return found, await m.views.runs.count() - len(found)

    found, others = database.read(read)
    if as_json:
        rows = [page.summary(each) | (AGENTS.document(page.agents_of(each)) if agents else {}) for each in found]
        documents.show({"runs": rows, "others": others})
        return 0
    if found:
        page.RUNS.table(found)
    else:
        render.line(f"no run is {wanted}" if others and wanted else "no runs; `maos run` starts one")
    for each in found if agents else ():
        if each.attempts:
            render.line()
            render.line((each.run.id, "bold"))
            AGENTS.table(page.agents_of(each))
    if others:
        which = render.many(others, "other run" if wanted else "older run")
        render.line((f"{which} (`maos ps --all`)", "dim"))
    return 0


# --- questions ---------------------------------------------------------------------------------------------------


@json_command("maos inbox", "maos inbox --json")
def inbox(database: DatabaseTarget, as_json: bool) -> int:
    """List open questions.

    Questions of runs, gates of tasks, and permissions that agents ask for, the oldest first.
    """
    if database.is_remote:
        return remote.inbox(as_json=as_json)
    found = database.read(lambda m: m.views.questions.open())
    if as_json:
        documents.show({"questions": [page.question_document(each) for each in found]})
    elif not found:
        render.line("no open questions")
    else:
        page.show_open(found, found, lines_max=CONTEXT_LINES_MAX)
    return 0


@json_command(
    'maos answer q-3fa2 "PostgreSQL 16"',
    "maos answer gate/api no --why 'The button is blue'",
    "maos answer r-1a2b3c.api yes",
    "maos answer r-1a2b3c.api always --pattern 'Bash(pytest *)' --for project",
    "maos answer q-3fa2 --link --expires 1h",
)
@click.argument("id", metavar="ID", shell_complete=commands.complete_questions)
@click.argument("answer", metavar="[ANSWER]", required=False)
@commands.rule_options
@click.option("--why", default="", help="With yes or no: a reason, which is sent to the agent.")
@click.option("--link", is_flag=True, help="Print a link instead, with which a person answers it in a browser, once.")
@click.option("--expires", type=commands.DURATION, help="With --link: it does not count after so long.  [default: 1d]")
def answer(
    database: DatabaseTarget,
    /,
    id: str,
    answer: str | None,
    link: bool,
    expires: int | None,
    as_json: bool,
    **given: str,
) -> int:
    """Answer a question.

    ID is one that `maos inbox` shows, or a unique prefix. If the question has choices, ANSWER is one of them or its
    number; gates take yes or no, which a reason may follow: 'no, the button is blue'. The first answer counts. It is
    recorded at once, also while no engine executes the run.

    A permission takes yes, no, always or never. Always and never make a rule, which `maos permission list` shows:
    requests that it covers are answered without asking. Requests of several agents for the same are one question.

    With --link, nothing is answered yet: the link is for a person who has no token, on a phone for example. It shows
    the question, answers it when a button is pressed, and counts once. It needs `maos serve`.
    """
    if link == (answer is not None):
        raise InvalidInput("give an answer, or --link", hint="`maos answer --help` shows how it is used")
    if answer is None:
        _show_answer_link(database, id, DAY_S if expires is None else expires / MICROSECONDS, as_json=as_json)
        return 0
    if expires is not None:
        raise InvalidInput("an answer does not expire", hint="--expires belongs to --link")
    if database.is_remote:
        return remote.answer(id, answer, as_json=as_json, **given)
    how: Any = given
    permissions.show_given(database.write(lambda m: m.questions.answer(id, answer, typed=True, **how)), as_json=as_json)
    return 0


def _show_answer_link(database: DatabaseTarget, id: str, expires_s: float, *, as_json: bool) -> None:
    """Print a link that answers a question."""

    async def work(m: Maos) -> tuple[str, str, int]:
        server = await m.supervisor.check_server(has_page=True)
        asked = await m.questions.open()
        beginning = [each.ref for each in asked if each.ref.startswith(id) or each.ref.partition("/")[2].startswith(id)]
        ref = id if id in beginning else only(id, beginning, "question", hint="`maos inbox` lists open questions")
        made, code = await m.access.offer_answer(ref, expires_s=expires_s)
        return ref, f"{server.url}/answer?code={code}", made.expires_us

    if database.is_remote:
        ref, url, until_us = remote.call(lambda client: remote.answer_link(client, id, expires_s))
    else:
        ref, url, until_us = database.write(work)
    if not as_json:
        note(f"it answers {ref} once, until {render.when(until_us)}; keep it like a password")
    render.show({"ref": ref, "url": url, **documents.time(until_us, "expires")}, url, as_json=as_json)


# --- `maos` alone ------------------------------------------------------------------------------------------------


def print_home(database: DatabaseTarget) -> None:
    """Print what needs a person, what runs, and three commands to continue with."""
    if not database.exists:
        demo = "see a run survive kill -9" if find_installed("demo") else "after `pip install maos-demo`"
        click.echo(BEGINNING.format(demo=demo), nl=False)
        return
    found = database.read(_overview)
    _print_needs(found)
    if not _print_open(found):
        render.line("nothing is running")
    render.line()
    rows = list(_next_commands(found))[:NEXT_SHOWN_MAX]
    width = max(len(typed) for typed, _what in rows)
    for typed, what in rows:
        render.line("  ", (f"{typed:<{width}}", "bold"), f"  {what}")


def _next_commands(found: Overview) -> Iterator[tuple[str, str]]:
    """Commands that a person may want next, the most useful first, each with what it does."""
    states = {each.now.state: each.run.id for each in reversed(found.runs)}
    if found.questions:
        yield "maos inbox", f"show {render.many(len(found.questions), 'open question')} in full"
    for state in ("interrupted", "failed", "idle"):
        if state in states:
            yield f"maos resume {states[state]}", f"resume the {'paused' if state == 'idle' else state} run"
    if "working" in states:
        yield f"maos attach {states['working']}", "follow the run as it works"
    for agent in found.interrupted_agents[:1]:
        yield str(agent.resumable), "resume the interrupted agent"
    for flow in [each for each in found.flows if each.needs_resume][:1]:
        yield f"maos resume {flow.id}", f"resume the {flow.status} workflow run"
    if found.flows and not found.runs:
        yield f"maos status {found.flows[0].id}", "show the workflow run step by step"
    yield "maos run 'REQUEST'", "plan a request and run it with agents"
    yield "maos ps --all", "list all runs"
    yield "maos --help", "list all commands"
