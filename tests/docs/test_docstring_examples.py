"""Everything public has an example in its docstring, and every line of every example runs.

An example stands indented below `Example::`, which keeps the formatter from moving it. It finds what `prepared` makes:
`maos`, `m`, `journal`, a held `lease`, an agent "reviewer" with a history and a snapshot "before", a stream "run/1".
"""

import ast
import asyncio
import inspect
import json
import runpy
import shutil
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import apsw
import pytest

import maos
import maos.workflows
from maos import errors
from maos.app import Maos
from maos.bus.bus import Bus
from maos.engine.attempts import Attempts
from maos.engine.principals import find_principal
from maos.engine.streams import RunReader, WorkflowReader
from maos.journal import compress
from maos.journal.journal import Journal
from maos.keys.sources import generate_key_file
from maos.model import changes
from maos.model.access import Role
from maos.model.plan import Gate, Plan, Task
from maos.runs.operations import RunOperations
from maos.runs.results import RunResults
from maos.runs.service import Runs
from maos.runs.status import RunViews
from maos.settings.schema import ServeSettings
from maos.state.agents import AgentStates
from maos.state.folds import Cache
from maos.store.contract import Lease
from maos.transfer.service import Transfer
from maos.travel.service import TimeTravel
from maos.views.agent_status import AgentStatuses
from maos.views.agents import Agents
from maos.views.messages import Messages
from maos.views.open_questions import QuestionReader
from maos.views.questions import Questions
from maos.web.server import MaosServer
from maos.workflows.service import Workflows
from maos_testing.model_stub import ModelStub, ScriptStep
from tests.attempts import plan_attempt
from tests.docs.documents import ROOT
from tests.engine.permission_life import kind

EXAMPLE_LINES_MAX = 4
EXAMPLE_S_MAX = 60

IN_A_WORKFLOW = "maos.workflows."
"""Examples of what a workflow's function calls: they are run as one."""

BEGINNINGS = {
    "maos.open", "AgentStates.create", "Journal.append", "Maos.doctor", "Maos.metrics", "Maos.notices", "Maos.overview",
    "Maos.send_traces", "Maos.statistics", "Maos.would_start", "Maos.views", "RunResults.notices", "RunViews.list",
}  # fmt: skip
"""Examples of how something begins, and of what reads all runs: they find nothing."""

GIVEN_BACK = {"maos.Change", "maos.Maos", "maos.State"}
"""What users are given and do not name themselves."""

SERVICES: list[type] = [
    Runs, RunOperations, RunResults, RunViews, RunReader, WorkflowReader, Agents, AgentStatuses, Attempts, Bus,
    Messages, Questions, QuestionReader,
]  # fmt: skip
"""Of these, what has an example is public; the rest is for maos' own modules."""

WITH_A_MODEL = {"Client.start_run", "Runs.start_request"}
"""Examples in which Claude Code plans, and works; its model is a stub."""

ENDED = {"Client.merge", "Client.task_files"}
"""Examples of a client on a run that has ended, in a repository."""

ENCRYPTED = {"maos.Erased", "maos.Locked", "maos.encrypt"}
"""Examples on a database that is encrypted, or becomes so."""

PLANNED = {"summary": "One step", "tasks": [{"name": "look", "task": "Look around", "needs": []}]}

ERRORS = {f"maos.{name}" for name in maos.__all__ if name in vars(errors)}
HIDDEN = runpy.run_path(str(ROOT / "docs" / "generate.py"), run_name="generate")["HIDDEN"]


# --- what is public ----------------------------------------------------------------------------------------------


def public() -> Iterator[tuple[str, str]]:
    """The name and the docstring of everything that is promised to users of the Python API."""
    classes: list[type] = [Journal, *AgentStates.__mro__[:-1], Cache, Workflows, TimeTravel, Transfer]
    for name in maos.__all__:
        thing = getattr(maos, name)
        if isinstance(thing, type):
            classes.append(thing)
            yield f"maos.{name}", thing.__doc__ or ""
        elif inspect.isfunction(thing):
            yield f"maos.{name}", thing.__doc__ or ""
        else:
            yield f"maos.{name}", text_below(name)
    for each in (*classes, *SERVICES):
        for name, method in vars(each).items():
            is_public = each not in SERVICES or "Example::" in (method.__doc__ or "")
            if is_public and inspect.isfunction(method) and not name.startswith("_") and name not in HIDDEN:
                yield f"{each.__name__}.{name}", method.__doc__ or ""
    for name in maos.workflows.__all__:
        function = getattr(maos.workflows, name)
        if inspect.isfunction(function) and name not in (*maos.__all__, *HIDDEN):
            yield f"{IN_A_WORKFLOW}{name}", function.__doc__ or ""
    for name, function in vars(compress).items():
        if inspect.isfunction(function) and function.__module__ == compress.__name__ and not name.startswith("_"):
            yield f"compress.{name}", function.__doc__ or ""


def text_below(constant: str) -> str:
    """A constant has no docstring of its own, but a text below it."""
    body = ast.parse(inspect.getsource(changes)).body
    for statement, below in pairwise(body):
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == constant:
            assert isinstance(below, ast.Expr)
            return str(ast.literal_eval(below.value))
    raise AssertionError(f"{constant} is not in {changes.__name__}")


def example_in(docstring: str) -> str:
    """What stands below `Example::`, at the end of a docstring; nothing when there is no such thing."""
    _text, _heading, example = inspect.cleandoc(docstring).partition("\n\nExample::\n\n")
    return textwrap.dedent(example) if example.startswith("    ") else ""


PUBLIC = dict(public())
READING = [
    f"Client.{name}"
    for name, method in vars(maos.Client).items()
    if hasattr(method, "form") and method.form.method == "GET" and not (f"Client.{name}" in ENDED or "backup" in name)
]
"""Methods of the client that only read: their examples share a server."""


# --- what examples find ------------------------------------------------------------------------------------------


@asynccontextmanager
async def prepared(name: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[dict[str, Any]]:
    """The names that an example may use, in the folder it runs in."""
    types = (maos.EventType("note", 2, upcasts={1: dict}), maos.EventType("done"))
    with_engine = (
        name.startswith(("Questions.", "QuestionReader.", "Client.")) or name == "RunOperations.pause_and_wait"
    )
    is_empty = with_engine or name in BEGINNINGS
    if name.startswith("Client.") and "backup" in name:
        monkeypatch.setenv("MAOS_BACKUP_TO", "backups")
    async with AsyncExitStack() as stack:
        if name in WITH_A_MODEL:
            await stack.enter_async_context(a_model(monkeypatch))
        if name in ENCRYPTED:
            await encrypt(name, monkeypatch)
        yield await stack.enter_async_context(opened(name, types, is_empty, with_engine, monkeypatch))


@asynccontextmanager
async def opened(
    name: str, types: Sequence[maos.EventType], is_empty: bool, with_engine: bool, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[dict[str, Any]]:
    """The database of an example, with what it finds there."""
    if name == "maos.encrypt":  # which is for a database that no process has open
        yield {"maos": maos}
        return
    async with maos.open("empty.db" if is_empty else "maos.db", types=types) as m:
        if name in ENCRYPTED:
            yield {"maos": maos, "m": m}
            return
        lease = await m.journal.acquire("run/1", ttl_s=600)
        assert lease is not None
        if not is_empty:
            await fill(m)
        if name in FAILURES:
            await FAILURES[name](m, lease, monkeypatch)
        names: dict[str, Any] = {"asyncio": asyncio, "fetch": fetch, "shout": shout, "compress": compress}
        if name.startswith(("Workflows.", "WorkflowReader.", "Maos.workflows", "maos.workflow", "maos.step")):
            await begin_workflows(m, is_failed=name in ("Workflows.retry", "Workflows.skip"))
        if name.startswith(("TimeTravel.", "Transfer.", "Maos.travel", "Maos.transfer", "Maos.find")):
            await begin_run(m)
        if name == "Runs.hand_over" or (
            name.startswith("RunOperations.") and name != "RunOperations.pause" and not with_engine
        ):
            await fail_run(m)
        elif name.startswith(("Runs.", "RunResults.", "RunViews.", "RunReader.")) or name == "RunOperations.pause":
            await begin_run(m)
        if name in ("RunResults.merge", "RunResults.task_files"):
            assert (await m.runs.execute("r-1")).status == "completed"
        if name.startswith(("Agents.", "AgentStatuses.", "Attempts.", "Bus.", "Messages.")) or name in (
            "Client.agent_diff",
            "Client.send",
            "Client.resume_agent",
        ):
            await run_agents(m)
        async with AsyncExitStack() as stack:
            if name in ENDED:
                await begin_run(m)
                assert (await m.runs.execute("r-1")).status == "completed"
            elif with_engine:
                await begin_many(m)
            if with_engine:
                if name.startswith("Client."):
                    await m.workflows.start(order, id="order-7")
                    await m.state.create("reviewer", {"status": "idle"})
                    await m.state.update("reviewer", {"status": "waiting"})
                    names["client"] = await stack.enter_async_context(served(m))
                else:
                    await stack.enter_async_context(executing(m))
                if name not in ENDED:
                    await until_asked(m)
            if name == "Questions.answer_permission":
                await stack.enter_async_context(asking_for_permission(m))
            if name == "QuestionReader.decided":
                await m.questions.answer("r-1/gate/docs/0/1", "yes")
            yield {"maos": maos, "m": m, "journal": m.journal, "lease": lease, **names}


@asynccontextmanager
async def a_model(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """A model that answers everything with the same plan, for agents that see nothing of this machine's user."""
    async with ModelStub([ScriptStep(text=f"```json\n{json.dumps(PLANNED)}\n```")] * 9) as stub:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", stub.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-the-test")
        monkeypatch.setenv("HOME", str(Path.cwd()))
        yield


async def encrypt(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database with a state and a run, and a key; encrypted, unless the example does it, and the run erased."""
    generate_key_file(Path("maos.key"))
    async with maos.open("maos.db") as m:
        await m.state.create("reviewer", {"status": "idle"})
        await fail_run(m)
    if name != "maos.encrypt":
        await maos.encrypt("maos.db", "file:maos.key")
    if name == "maos.Erased":
        monkeypatch.setenv("MAOS_ENCRYPTION_SOURCE", f"file:{Path('maos.key').absolute()}")
        async with maos.open("maos.db") as m:
            await m.erasures.erase("r-1")


@asynccontextmanager
async def asking_for_permission(m: Maos) -> AsyncIterator[None]:
    """An agent "fixer" that asks whether it may run a command; it is stopped in the end."""
    asks = kind(Path("effects").absolute(), "make")
    running = await m.agents.start("ask", kind=asks, name="fixer", cwd=".", in_place=True)
    async with asyncio.timeout(EXAMPLE_S_MAX):
        while "fixer" not in {each.owner for each in await m.questions.open()}:
            await asyncio.sleep(0.02)
    yield
    await running.stop()
    await running.wait()


async def fill(m: Maos) -> None:
    """An agent at work, and a run of events that ends."""
    agents = m.state
    await agents.create("reviewer", {"status": "idle", "configuration": {"model": "large"}, "messages": []})
    await agents.update("reviewer", {"status": "waiting"}, key="task/1")
    await agents.update("reviewer", {"messages": maos.Extend([{"text": "hello"}]), "error": "none yet"})
    await agents.snapshot("reviewer", name="before")
    await agents.update("reviewer", {"execution": {"task": "review"}})
    await agents.update("reviewer", {"execution": {"task": None}})
    await m.journal.append("run/1", [maos.Event("note", {"text": text}) for text in ("hello", "world")])
    await m.journal.append("run/1", maos.Event("done", {}))


@maos.step(idempotent=True)
async def fetch(word: str) -> str:
    return word.upper()


@maos.step
async def charge() -> None:
    await asyncio.Event().wait()


@maos.workflow
async def shout(word: str) -> str:
    return await fetch(word)


@maos.workflow
async def order() -> None:
    await maos.workflows.gather(maos.workflows.gate("Pay?"), charge())


@maos.workflow
async def nap() -> None:
    await maos.workflows.sleep(0.1)


@maos.workflow
async def failing() -> None:
    await fetch("a")
    await fetch("b")
    await maos.step(name="fail")(lambda: 1 / 0)()


async def begin_workflows(m: Maos, *, is_failed: bool = False) -> None:
    """One that has ended, one that nobody runs, one that waits for a person and for word of a step."""
    await m.workflows.run(shout, "hello", id="greeting-1")
    if is_failed:
        with pytest.raises(maos.workflows.WorkflowFailed):
            await m.workflows.run(failing, id="order-7")
        return
    await m.workflows.schedule("nightly", "0 3 * * *", shout, "hello")
    async with maos.open(m.journal.store.place) as other:
        await other.workflows.start(nap, id="nap-1")
        await other.workflows.start(order, id="order-7")
        while len((await other.workflows.get("order-7")).steps) < 2:
            await asyncio.sleep(0.01)
    await m.workflows.resume("order-7")
    while not (await m.workflows.get("order-7")).unknown:
        await asyncio.sleep(0.01)


async def in_a_workflow(m: Maos, example: str, names: dict[str, Any]) -> list[int]:
    """Run an example as the function of a workflow, which is told whatever it waits for."""
    missed: list[int] = []

    @maos.workflow(name=f"example-{id(missed)}")
    async def function() -> None:
        missed.extend(await run(example, names))

    handle = await m.workflows.start(function)
    await m.workflows.signal(handle.id, "paid", 7)
    answering = asyncio.create_task(answer_everything(m, handle.id))
    await handle.result()
    answering.cancel()
    await asyncio.gather(answering, return_exceptions=True)
    return missed


async def answer_everything(m: Maos, id: str) -> None:
    while True:
        for place, call in (await m.workflows.get(id)).waiting.items():
            if call.kind == "gate":
                await m.workflows.answer(id, place, "yes")
        await asyncio.sleep(0.05)


async def begin_run(m: Maos) -> None:
    """A run in a repository, with a checkpoint; nothing of it has begun."""
    from tests.workspaces.repositories import repository

    place = repository(Path("work").absolute(), {"readme.txt": "hello\n"})
    plan = Plan(tasks=[Task(name="hello", command=["sh", "-c", "echo hello | tee hello.txt"])])
    await m.runs.start(plan, folder=place, options={"kind": "shell"}, id="r-1")
    await m.runs.close()  # other engines may have it
    await m.travel.checkpoint("r-1", "planned")


async def fail_run(m: Maos) -> None:
    """A run with a task that has failed."""
    plan = Plan(tasks=[Task(name="deploy", command=["false"])])
    await m.runs.start(plan, folder=Path.cwd(), options={"kind": "shell", "in_place": True}, id="r-1")
    assert (await m.runs.execute("r-1")).status == "failed"


async def begin_many(m: Maos) -> None:
    """A run for any engine, with a checkpoint: a task that fails, one that works on, one that a person checks."""
    tasks = [
        Task(name="deploy", command=["false"]),
        Task(name="api", command=["sleep", "600"]),
        Task(name="docs", command=["true"], gates=[Gate(person="Are they good?")]),
    ]
    await m.runs.start(Plan(tasks=tasks), folder=Path.cwd(), options={"in_place": True}, id="r-1", is_claimed=False)
    await m.travel.checkpoint("r-1", "planned")


@asynccontextmanager
async def executing(m: Maos) -> AsyncIterator[None]:
    """An engine executes the run, in the background."""
    work = asyncio.create_task(m.runs.execute("r-1"))
    try:
        yield
    finally:
        await m.runs.pause_and_wait("r-1")
        await work


@asynccontextmanager
async def served(m: Maos) -> AsyncIterator[maos.Client]:
    """A server on this database, which executes the run, and a client with a token."""
    server, stop, ready = MaosServer(m, ServeSettings(port=0), folder=Path.cwd()), asyncio.Event(), asyncio.Event()
    serving = asyncio.create_task(server.serve(stop, lambda _url: ready.set()))
    await ready.wait()
    _token, secret = await m.access.create_token("laptop", Role.ADMIN)
    try:
        async with maos.Client(server.url, token=secret) as client:
            yield client
            async for run in m.runs.open():
                await m.runs.cancel(run.id)
    finally:
        stop.set()
        await serving


async def until_asked(m: Maos) -> None:
    """Wait until the run has failed at one task, works at another and asks about the third."""
    async with asyncio.timeout(EXAMPLE_S_MAX):
        while True:
            tasks = (await m.runs.get("r-1")).tasks
            is_asking = "r-1/gate/docs/0/1" in {each.ref for each in await m.questions.open()}
            if is_asking and (tasks["deploy"].status, tasks["api"].status) == ("failed", "running"):
                return
            await asyncio.sleep(0.02)


async def run_agents(m: Maos) -> None:
    """An agent that has made a file, and messages to another one."""
    from tests.workspaces.repositories import repository

    place = repository(Path("work").absolute(), {"readme.txt": "hello\n"})
    told = ["sh", "-c", "echo fixed > fixed.txt"]
    running = await m.agents.start(argv=told, name="fixer", cwd=place, takes_input=True)
    await running.wait()
    await m.bus.send("person", "reviewer", "hello")


async def lose_lease(m: Maos, lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    await m.journal.release(lease)


async def fill_disk(m: Maos, lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_appends(m, monkeypatch, maos.DiskFull("maos.db"))


async def come_from_elsewhere(m: Maos, _lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_appends(m, monkeypatch, maos.UntrustedStore("maos.db", "was not made by you on this machine"))


async def become_an_agent(m: Maos, _lease: Lease, _monkeypatch: pytest.MonkeyPatch) -> None:
    proof = await plan_attempt(m.journal, "fixer")
    m.journal.principal = await find_principal(m.journal, proof)


async def unplug(m: Maos, lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_appends(m, monkeypatch, maos.StoreUnavailable("the server is away", written=None))


def refuse_appends(m: Maos, monkeypatch: pytest.MonkeyPatch, error: maos.MaosError) -> None:
    async def refuse(*_writes: Any, **_options: Any) -> NoReturn:
        raise error

    monkeypatch.setattr(m.journal.store, "append", refuse)


async def flip_a_bit(m: Maos, lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = apsw.Connection("maos.db")
    connection.set_busy_timeout(5000)
    connection.execute("UPDATE events SET time_us = time_us + 1 WHERE position = 2")
    connection.close()


async def put_back_an_older_copy(m: Maos, lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    await m.copy_to("older.db")
    await m.state.update("reviewer", {"status": "done"})
    await m.close()
    shutil.copyfile("older.db", "maos.db")


FAILURES: dict[str, Callable[[Maos, Lease, pytest.MonkeyPatch], Awaitable[None]]] = {
    "maos.LeaseLost": lose_lease,
    "maos.DiskFull": fill_disk,
    "maos.StoreUnavailable": unplug,
    "maos.UntrustedStore": come_from_elsewhere,
    "maos.NotPermitted": become_an_agent,
    "Maos.tools": become_an_agent,
    "maos.Corrupt": flip_a_bit,
    "maos.HistoryLost": put_back_an_older_copy,
}
"""What has to be so for the error that an example catches, or for the example to run. The other errors come about by
themselves."""


# --- running them ------------------------------------------------------------------------------------------------


async def run(example: str, names: dict[str, Any]) -> list[int]:
    """Run an example as the body of an async function; returns the lines that were not reached."""
    program = ast.parse("async def example():\n" + textwrap.indent(example, "    "))
    function = program.body[0]
    assert isinstance(function, ast.AsyncFunctionDef)
    statements = {each.lineno for each in ast.walk(function) if isinstance(each, ast.stmt) and each is not function}
    reached: set[int] = set()
    for node in list(ast.walk(function)):
        for part in ("body", "orelse", "finalbody"):
            block = getattr(node, part, None)
            if isinstance(block, list):
                setattr(node, part, [marked for each in block for marked in (reaching(each.lineno), each)])
    # Names that the example assigns are the module's, so that it may use one before: `lease = await renew(lease)`.
    names_in_it = [each for each in ast.walk(function) if isinstance(each, ast.Name)]
    assigned = sorted({each.id for each in names_in_it if isinstance(each.ctx, ast.Store)})
    if assigned:
        function.body.insert(0, ast.Global(assigned))
    scope = {**names, "reach": reached.add}
    exec(compile(ast.fix_missing_locations(program), "<example>", "exec"), scope)
    async with asyncio.timeout(EXAMPLE_S_MAX):
        await scope["example"]()
    return sorted(line - 1 for line in statements - reached)


def reaching(line: int) -> ast.stmt:
    return ast.parse(f"reach({line})").body[0]


@pytest.mark.parametrize("name", PUBLIC)
def test_everything_public_has_a_short_example(name: str) -> None:
    example = example_in(PUBLIC[name])
    assert example, "its docstring does not end with `Example::` and an indented example"
    assert len(example.splitlines()) <= EXAMPLE_LINES_MAX
    assert name in GIVEN_BACK or f".{name.rpartition('.')[2]}" in example, "this is an example of something else"


@pytest.mark.parametrize("name", [name for name in PUBLIC if name not in READING])
async def test_every_line_of_an_example_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    async with prepared(name, monkeypatch) as names:
        example = example_in(PUBLIC[name])
        missed = await (
            in_a_workflow(names["m"], example, names) if name.startswith(IN_A_WORKFLOW) else run(example, names)
        )
        assert missed == [], "these lines were not reached"


async def test_every_line_of_an_example_that_reads_from_a_server_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    async with prepared("Client.agent_diff", monkeypatch) as names:
        for name in READING:
            assert await run(example_in(PUBLIC[name]), names) == [], f"{name}: these lines were not reached"


def test_the_reference_shows_every_example() -> None:
    """Those of errors excepted: the reference explains errors in a table."""
    page = (ROOT / "docs" / "reference" / "python-api.md").read_text()
    hidden = [name for name, text in PUBLIC.items() if f"```py\n{example_in(text)}\n```" not in page]
    assert [name for name in hidden if name not in ERRORS] == []


def test_all_kinds_of_public_things_are_found() -> None:
    """So that a mistake in the search cannot make the tests above pass by looking at nothing."""
    some = {
        "maos.step",
        "maos.workflows.sleep",
        "Workflows.run",
        "maos.open",
        "maos.DELETE",
        "maos.Conflict",
        "Maos.verify",
        "State.to_dict",
        "Journal.append",
    }
    assert some | {"AgentStates.get", "Cache.warm", "compress.compress_all"} <= PUBLIC.keys()
    assert not {"Journal.page", "State.raw", "Cache.put", "compress.ALGORITHMS"} & PUBLIC.keys()


@pytest.mark.parametrize(
    ("docstring", "example"),
    [
        ("What.\n\n    Example::\n\n        a()\n        b()\n    ", "a()\nb()"),
        ("What.\n\n    Example::\n\n    a()\n    ", ""),
        ("What.\n\n        a()\n    ", ""),
        ("What.", ""),
    ],
)
def test_an_example_is_what_stands_indented_below_its_heading(docstring: str, example: str) -> None:
    assert example_in(docstring) == example


@pytest.mark.parametrize(
    ("example", "missed"),
    [
        ("a = 1\nb = a", []),
        ("if n:\n    n = 0\nelse:\n    n = 1", [4]),
        ("for each in ():\n    print(each)", [2]),
        ("try:\n    n\nexcept ValueError:\n    raise", [4]),
    ],
)
async def test_a_line_that_is_not_reached_is_noticed(example: str, missed: list[int]) -> None:
    assert await run(example, {"n": 1}) == missed


async def test_an_example_that_fails_is_noticed() -> None:
    with pytest.raises(NameError):
        await run("await nothing()", {})
