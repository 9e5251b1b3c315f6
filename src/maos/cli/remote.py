"""Commands on a server elsewhere: with MAOS_URL (and MAOS_TOKEN) set, they use the HTTP API instead of a database.

Some commands can: `ps`, `status`, `inbox`, `answer`, `logs`, `stats`, `run --detach`, `pause`, `resume`, `cancel`, and
of `backup` all that looks at one. The others need the database, and say so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from maos.cli import documents, render, words
from maos.cli.failures import FAILED
from maos.cli.render import Column, Listing, clean
from maos.errors import InvalidInput, NotFound
from maos.ids import only

if TYPE_CHECKING:
    from maos.model.read_models import AgentStatus
    from maos.web.client import Client
    from maos.web.documents import QuestionInfo, RunDetails, RunEntry
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
    run = call(lambda client: _run(client, id))
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
        asked = [each.ref for each in (await client.questions()).questions]
        beginning = [ref for ref in asked if ref.startswith(id) or ref.partition("/")[2].startswith(id)]
        found = id if id in asked else only(id, beginning, "question", hint="`maos inbox` lists open questions")
        return await client.answer(found, text, why=why, scope=scope, pattern=pattern)  # type: ignore[arg-type]  # checked

    given = call(work)
    if as_json:
        _show(given)
    else:
        render.line((clean(given.ref), "bold"), f" is answered: {clean(given.answer)}")
    return 0


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


def logs(id: str, *, as_json: bool) -> int:
    """`maos logs` of an agent: the lines of its newest attempt."""

    async def work(client: Client) -> Any:
        known = [each.agent for each in (await client.agents(limit=PAGE)).agents]
        named = id.replace("/", ".")
        found = named if named in known else only(
            named, [each for each in known if each.startswith(named)], "agent",
            hint="on a server, `maos logs` takes an agent or RUN/TASK",
        )  # fmt: skip
        return await client.output(found, limit=PAGE)

    window = call(work)
    if as_json:
        _show(window)
        return 0
    for event in window.events:
        for fact in event.data.get("facts", ()):
            if fact.get("text"):
                render.line(clean(str(fact["text"]), lines=True).rstrip("\n"))
    return 0


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
        run = await _run(client, name)
        if task and act != "cancel":
            raise InvalidInput(f"{id} is a task, which cannot be {act}d alone", hint=f"name the run: {run.id}")
        return await getattr(client, act)(run.id, **({"task": task} if task else {}), **more)  # type: ignore[no-any-return]

    run = call(work)
    if as_json:
        _show(run)
    else:
        render.line((run.id, "bold"), f" is {_spoken(run)}")
    return 0


async def _run(client: Client, id: str) -> RunDetails:
    """A run by its id, or by a beginning of it."""
    try:
        return await client.run(id)
    except NotFound:
        known = [each.id for each in (await client.runs(limit=PAGE)).runs]
        beginning = [each for each in known if each.startswith((id, f"r-{id}"))]
        return await client.run(only(id, beginning, "run", hint="`maos ps --all` lists runs"))


def _show_questions(asked: list[QuestionInfo]) -> None:
    for each in asked:
        render.line(("? ", "bold yellow"), (clean(each.owner), "bold"), f" asks: {words.one_line(each.text, 200)}")
        choices = "|".join(each.choices) or ("yes|no" if each.kind in ("gate", "permission", "plan") else "…")
        render.line(("  answer with: ", "dim"), f"maos answer {clean(each.ref)} <{clean(choices)}>")


def _show(document: Any) -> None:
    import msgspec

    documents.show(msgspec.to_builtins(document))
