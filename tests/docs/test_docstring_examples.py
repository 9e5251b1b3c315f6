"""Everything public has an example in its docstring, and every line of every example runs.

An example stands indented below `Example::`, which keeps the formatter from moving it. It finds what `prepared` makes:
`maos`, `m`, `journal`, a held `lease`, an agent "reviewer" with a history and a snapshot "before", a stream "run/1".
"""

import ast
import asyncio
import inspect
import runpy
import shutil
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import apsw
import pytest

import maos
import maos.workflows
from maos import errors
from maos.app import Maos
from maos.journal import compress
from maos.journal.journal import Journal
from maos.model import changes
from maos.model.plan import Plan, Task
from maos.state.agents import AgentStates
from maos.state.folds import Cache
from maos.store.contract import Lease
from maos.transfer.service import Transfer
from maos.travel.service import TimeTravel
from maos.workflows.service import Workflows
from tests.docs.documents import ROOT

EXAMPLE_LINES_MAX = 4
EXAMPLE_S_MAX = 60

IN_A_WORKFLOW = "maos.workflows."
"""Examples of what a workflow's function calls: they are run as one."""

BEGINNINGS = {
    "maos.open", "AgentStates.create", "Journal.append", "Maos.doctor", "Maos.notices", "Maos.overview",
    "Maos.would_start",
}  # fmt: skip
"""Examples of how something begins, and of what reads all runs: they find nothing."""

GIVEN_BACK = {"maos.Change", "maos.Maos", "maos.State"}
"""What users are given and do not name themselves."""

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
    for each in classes:
        for name, method in vars(each).items():
            if inspect.isfunction(method) and not name.startswith("_") and name not in HIDDEN:
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


# --- what examples find ------------------------------------------------------------------------------------------


@asynccontextmanager
async def prepared(name: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[dict[str, Any]]:
    """The names that an example may use, in the folder it runs in."""
    types = (maos.EventType("note", 2, upcasts={1: dict}), maos.EventType("done"))
    async with maos.open("empty.db" if name in BEGINNINGS else "maos.db", types=types) as m:
        lease = await m.journal.acquire("run/1", ttl_s=600)
        assert lease is not None
        if name not in BEGINNINGS:
            await fill(m)
        if name in FAILURES:
            await FAILURES[name](m, lease, monkeypatch)
        if name.startswith(("Workflows.", "Maos.workflows", "maos.workflow", "maos.step")):
            await begin_workflows(m)
        if name.startswith(("TimeTravel.", "Transfer.", "Maos.travel", "Maos.transfer", "Maos.find")):
            await begin_run(m)
        names = {"asyncio": asyncio, "fetch": fetch, "shout": shout, "compress": compress}
        yield {"maos": maos, "m": m, "journal": m.journal, "lease": lease, **names}


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


async def begin_workflows(m: Maos) -> None:
    """One that has ended, one that nobody runs, one that waits for a person and for word of a step."""
    await m.workflows.run(shout, "hello", id="greeting-1")
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
    plan = Plan(tasks=[Task(name="hello", command=["echo", "hello"])])
    await m.runs.start(plan, folder=place, options={"kind": "shell"}, id="r-1")
    await m.runs.close()  # other engines may have it
    await m.travel.checkpoint("r-1", "planned")


async def lose_lease(m: Maos, lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    await m.journal.release(lease)


async def fill_disk(m: Maos, lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_appends(m, monkeypatch, maos.DiskFull("maos.db"))


async def come_from_elsewhere(m: Maos, _lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_appends(m, monkeypatch, maos.UntrustedStore("maos.db", "was not made by you on this machine"))


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
    "maos.Corrupt": flip_a_bit,
    "maos.HistoryLost": put_back_an_older_copy,
}
"""What has to go wrong for the error that an example catches. The other errors come about by themselves."""


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


@pytest.mark.parametrize("name", PUBLIC)
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
