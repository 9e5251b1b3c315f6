"""Commands on a server elsewhere: with MAOS_URL (and MAOS_TOKEN) set, they use the HTTP API instead of a database.

What people need daily can: `maos.cli.database.ON_SERVERS` lists it. Commands that have nothing to print but what the
server sends are here; others read from `call`, and print as they do with a database. The rest says that it needs the
database, and so do options that the API does not have (`refuse`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from maos.cli import documents, render, words
from maos.cli.commands import DURATION, is_given
from maos.cli.failures import CONFLICT, FAILED, report
from maos.cli.render import Column, Listing, clean
from maos.errors import InvalidInput, NotFound
from maos.ids import only

if TYPE_CHECKING:
    from maos.model.read_models import AgentStatus
    from maos.views.agents import AgentEvent
    from maos.web.client import Client
    from maos.web.documents import MergeInfo, QuestionInfo, RunDetails, RunEntry
    from maos.web.system_documents import BackupCheckInfo

T = TypeVar("T")

PAGE = 500
LOOK_S = 0.2
STATES = {"waiting_for_user": "waits for you", "waiting_for_tasks": "waits"}


def call(work: Callable[[Client], Awaitable[T]]) -> T:
    """Do something with the server that MAOS_URL names."""
    import asyncio

    try:
        from maos.web.client import Client
    except ImportError as error:
        what = f"MAOS_URL is set, and the client needs packages that are not installed: {error.name}"
        raise NotFound(what, hint="`pip install 'maos[serve]'`, or unset MAOS_URL") from error

    async def called() -> T:
        async with Client() as client:
            return await work(client)

    return asyncio.run(called())


def refuse(**options: str) -> None:
    """Refuse options that the server does not have, each by its parameter and as it is written, if one is given."""
    for name, option in options.items():
        if is_given(name):
            raise InvalidInput(
                f"MAOS_URL is set, and {option} needs the database itself",
                hint=f"leave out {option}, or name the database with --db",
            )


async def all_of(read: Callable[[str], Awaitable[Any]], name: str) -> list[Any]:
    """The entries of all pages of a list; `read` gets the cursor of each."""
    found, cursor = [], ""
    while True:
        page = await read(cursor)
        found += getattr(page, name)
        if not page.next:
            return found
        cursor = page.next


async def find_agent(client: Client, id: str) -> str:
    """The name of an agent by itself, by a beginning of it, or as RUN/TASK."""
    pages = await all_of(lambda cursor: client.agents(limit=PAGE, cursor=cursor), "agents")
    known, named = [each.agent for each in pages], id.replace("/", ".")
    beginning = [each for each in known if each.startswith((named, f"r-{named}"))]
    return named if named in known else only(id, beginning, "agent", hint="`maos agent list` lists agents")


async def find_workflow(client: Client, id: str) -> str:
    """The id of a workflow run by itself, or by a beginning of it."""
    pages = await all_of(lambda cursor: client.workflows(limit=PAGE, cursor=cursor), "workflows")
    known = [each.id for each in pages]
    beginning = [each for each in known if each.startswith(id)]
    return id if id in known else only(id, beginning, "workflow run", hint="`maos workflow list` lists them")


async def find_run(client: Client, id: str) -> RunDetails:
    """A run by its id, or by a beginning of it."""
    try:
        return await client.run(id)
    except NotFound:
        pages = await all_of(lambda cursor: client.runs(limit=PAGE, cursor=cursor), "runs")
        beginning = [each.id for each in pages if each.id.startswith((id, f"r-{id}"))]
        return await client.run(only(id, beginning, "run", hint="`maos ps --all` lists runs"))


async def find_run_or_agent(client: Client, id: str) -> tuple[str, str]:
    """The run, or else the agent, that is meant; the other one is empty."""
    if "/" not in id:
        try:
            return (await find_run(client, id)).id, ""
        except NotFound:
            pass
    return "", await find_agent(client, id)


def point_text(text: str | None) -> str:
    """A point in time as the server takes it: a time ago becomes a time."""
    from maos.clock import SystemClock, to_datetime

    try:
        ago_us = DURATION.convert((text or "").strip().removesuffix("ago"), None, None)
    except click.BadParameter:
        return text or ""
    return to_datetime(SystemClock().now_us() - ago_us).isoformat()


async def output(client: Client, name: str, *, attempt: int | None, follow: bool) -> AsyncIterator[AgentEvent]:
    """What an agent did, over all its attempts or in one; with `follow`, until it has ended."""
    import asyncio

    from maos.views.agents import AgentEvent

    number, last = attempt or 1, 0
    position = (await client.health()).position
    while True:
        was_open = follow and (await client.agent(name)).is_open
        while True:
            page = await client.output(name, attempt=number, after=last, limit=PAGE)
            for each in page.events:
                messages = {int(version): text for version, text in each.messages.items()}
                yield AgentEvent(each.id, name, number, each.type, each.data, each.at_us, each.at_us, messages)
                last = each.version
            if last >= page.newest or not page.events:
                if attempt or number >= page.attempts:
                    break
                number, last = number + 1, 0
        if not was_open:
            return
        async for event in client.follow(after=position, agent=name):
            position = event.position
            break
        await asyncio.sleep(LOOK_S)


def _spoken(run: RunEntry) -> str:
    return run.status if run.state == "idle" else STATES.get(run.state, run.state)


RUNS: Listing[RunEntry] = Listing(
    "runs",
    (
        Column("id", lambda each: each.id, style="bold"),
        Column("status", _spoken),
        Column("done", lambda each: f"{each.progress} %", right=True),
        Column("cost", lambda each: f"${each.cost_usd:.2f}" if each.cost_usd else "", right=True),
        Column("started", lambda each: render.when(each.created_us)),
        Column("request", lambda each: words.one_line(each.request, 60), yields=2),
        Column("doing", lambda each: words.one_line(each.error or each.activity, 80), style="dim", yields=3),
    ),
    empty="no runs",
)
AGENTS: Listing[AgentStatus] = Listing(
    "agents",
    (
        Column("agent", lambda each: each.agent, style="bold", yields=1),
        Column("kind", lambda each: each.kind),
        Column("status", lambda each: each.status),
        Column("doing", lambda each: words.one_line(each.activity or each.result, 80), style="dim", yields=2),
    ),
)


def ps(wanted: str, *, everything: bool, as_json: bool) -> int:
    """`maos ps`."""
    page = call(lambda client: client.runs(status=wanted, limit=PAGE if everything else 50))
    if as_json:
        _show(page)
        return 0
    RUNS.table(page.runs) if page.runs else render.line("no runs")
    if page.next:
        render.line((f"{page.total - len(page.runs)} more (`maos ps --all`)", "dim"))
    return 0


def status(id: str, *, as_json: bool) -> int:
    """`maos status`, of everything or of one run."""
    if not id:
        found = call(lambda client: client.overview())
        if as_json:
            _show(found)
            return 0
        _show_questions(found.questions)
        if found.runs:
            RUNS.table(found.runs)
        if found.agents:
            AGENTS.table(found.agents)
        if not (found.questions or found.runs or found.agents):
            render.line("nothing is running")
        return 0
    run = call(lambda client: find_run(client, id))
    if as_json:
        _show(run)
    else:
        RUNS.table([run])
        _show_questions(run.pending)
    return 0


def inbox(*, as_json: bool) -> int:
    """`maos inbox`."""
    found = call(lambda client: client.questions())
    if as_json:
        _show(found)
    elif not found.questions:
        render.line("no open questions")
    else:
        _show_questions(found.questions)
    return 0


def answer(id: str, text: str, *, why: str, scope: str, pattern: str, as_json: bool) -> int:
    """`maos answer`."""
    if scope not in ("", "agent", "run"):
        raise InvalidInput(f"a rule for a {scope} is made where the database is", hint="use --for run or --for agent")

    async def work(client: Client) -> Any:
        found = await _find_question(client, id)
        return await client.answer(found, text, why=why, scope=scope, pattern=pattern)  # type: ignore[arg-type]  # checked

    given = call(work)
    if as_json:
        _show(given)
    else:
        render.line((clean(given.ref), "bold"), f" is answered: {clean(given.answer)}")
    return 0


async def answer_link(client: Client, id: str, expires_s: float) -> tuple[str, str, int]:
    """A link that answers a question: the question, the address, and until when it counts."""
    ref = await _find_question(client, id)
    made = await client.answer_link(ref, expires_s=expires_s)
    return ref, f"{client.url}{made.url}", made.expires_us


async def _find_question(client: Client, id: str) -> str:
    """The open question of an id, or of a beginning of one, with its run or without."""
    asked = [each.ref for each in (await client.questions()).questions]
    beginning = [ref for ref in asked if ref.startswith(id) or ref.partition("/")[2].startswith(id)]
    return id if id in asked else only(id, beginning, "question", hint="`maos inbox` lists open questions")


def backup_status(*, as_json: bool) -> int:
    """`maos backup status`: that of the server."""
    found = call(lambda client: client.backup_status())
    if as_json:
        _show(found)
    elif not found.location:
        render.line("the settings of the server name no location of a backup")
    elif found.problem:
        render.line((clean(found.problem), "bold red"))
    elif found.backup is None:
        render.line(f"nothing was backed up to {clean(found.location)} yet")
    else:
        behind = f"{words.duration(found.behind_s)} behind" if found.missing else "up to date"
        render.line(f"{clean(found.location)}: {render.size(found.backup.bytes)}, {behind}")
        for each in found.checks:
            render.line(f"  {each.kind}: {_outcome(each)}")
    return 0 if found.backup is not None else FAILED


def check_backup(kind: str, report: Callable[[int, int], None], end: Callable[[], None], *, as_json: bool) -> int:
    """`maos backup verify` and `test`: started on the server, and followed until it has ended."""
    import asyncio

    async def work(client: Client) -> BackupCheckInfo:
        started = await (client.verify_backup() if kind == "verify" else client.test_backup())
        while True:
            checks = (await client.backup_status()).checks
            check = next((each for each in checks if each.kind == kind), None)
            if check is None or check.started_us < started.started_us:
                raise NotFound("the server was started anew, and the check ended with it", hint="start it again")
            if check.ended_us:
                return check
            report(check.position, check.of)
            await asyncio.sleep(LOOK_S)

    check = call(work)
    end()
    if as_json:
        _show(check)
    else:
        render.line((_outcome(check), "bold red" if check.problem else "green"))
    return FAILED if check.problem else 0


def _outcome(check: BackupCheckInfo) -> str:
    if not check.ended_us:
        return f"position {check.position:,} of {check.of:,}"
    done = "it can be restored" if check.kind == "test" else "it is as it was written"
    return clean(check.problem) or f"{done}, up to position {check.position}"


def show_merge(run: str, done: MergeInfo, *, dry_run: bool, as_json: bool) -> int:
    """Print what came of a merge in the folder of the run, where the server is."""
    if as_json:
        documents.show({"run": run, **documents.of(done), "dry_run": dry_run})
    elif done.outcome == "blocked":
        report(f"{done.why}: {', '.join(done.files)}" if done.files else done.why, done.hint)
    elif done.outcome == "conflicted":
        hint = f"`maos merge {run} --branch NAME` puts the work on a branch of its own, where nothing conflicts"
        report(f"both sides changed {', '.join(done.files)}; nothing was merged", hint)
    elif not done.files:
        render.line("nothing to merge: the branch has everything already")
    else:
        where = f" on {clean(done.branch)}" if done.branch else ""
        made = f"{render.many(done.commits, 'commit')}{where}, {render.many(len(done.files), 'file')}"
        render.line((clean(run), "bold"), f": {'would be ' if dry_run else ''}merged as {made}")
        for each in done.files:
            render.line(f"  {clean(each)}")
    return 0 if done.outcome == "merged" else CONFLICT


def start(request: str, given: dict[str, Any], *, as_json: bool) -> int:
    """`maos run --detach REQUEST`."""
    run = call(lambda client: client.start_run(request, **given))
    if as_json:
        documents.show_line({"kind": "handed_over", "run": run.id})
    else:
        render.line((run.id, "bold"), " is started by the server")
        render.line(("look at it with: ", "dim"), f"maos status {run.id}")
    return 0


def steer(id: str, act: str, *, as_json: bool, **more: Any) -> int:
    """`maos pause`, `resume` and `cancel` of a run, or `cancel` of RUN/TASK."""
    name, _, task = id.partition("/")

    async def work(client: Client) -> RunDetails:
        run = await find_run(client, name)
        if task and act != "cancel":
            raise InvalidInput(f"{id} is a task, which cannot be {act}d alone", hint=f"name the run: {run.id}")
        return await getattr(client, act)(run.id, **({"task": task} if task else {}), **more)  # type: ignore[no-any-return]

    run = call(work)
    if as_json:
        _show(run)
    else:
        render.line((run.id, "bold"), f" is {_spoken(run)}")
    return 0


def _show_questions(asked: list[QuestionInfo]) -> None:
    for each in asked:
        render.line(("? ", "bold yellow"), (clean(each.owner), "bold"), f" asks: {words.one_line(each.text, 200)}")
        choices = "|".join(each.choices) or ("yes|no" if each.kind in ("gate", "permission", "plan") else "…")
        render.line(("  answer with: ", "dim"), f"maos answer {clean(each.ref)} <{clean(choices)}>")


def _show(document: Any) -> None:
    import msgspec

    documents.show(msgspec.to_builtins(document))
