"""A compaction by another process between any two reads: the right answer or none, no wrong one and no false alarm."""

import shutil
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.errors import NotFound
from maos.journal import journal as journal_module
from maos.state import folds
from tests.journal.places import Place

pytestmark = pytest.mark.usefixtures("small_folds")

LOG = list(range(2, 17))


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "PAGE_EVENTS", 4)


async def get(m: Maos) -> None:
    assert (await m.state.get("a")).data["log"] == LOG


async def at(m: Maos) -> None:
    for version in (16, 12, 3):
        try:
            assert (await m.state.at("a", version=version)).data["log"] == LOG[: version - 1]
        except NotFound:
            assert version < 16 or await m.journal.version("agent/a") > 17


async def events(m: Maos) -> None:
    log: list[Any] = []
    version = 0
    for event in await m.state.events("a"):
        assert event.version > version
        version = event.version
        for change in event.changes:
            if change.path == "/log":
                log = list(change.new)
            elif change.path.startswith("/log/"):
                log[int(change.path[5:]) :] = [change.new]
    assert log == LOG


async def replay(m: Maos) -> None:
    replay = await m.state.replay("a", 5, 16)
    assert replay.verified
    assert replay.state.data["log"] == LOG[: replay.state.version - 1]


async def peek(m: Maos) -> None:
    for last in (6, 9):
        found = await m.state.peek("a", "log", last=last)
        assert (found.entries, found.start, found.length) == (LOG[-last:], len(LOG) - last, len(LOG))


async def read(m: Maos) -> None:
    end = await m.journal.version("agent/a")
    seen = [record.version async for record in m.journal.read("agent/a")]
    assert seen[-1] in (end, end + 1)  # the compaction itself is an event
    assert seen == sorted(set(seen))


async def follow(m: Maos) -> None:
    last = 0
    async for record in m.journal.follow():
        assert record.position > last
        last = record.position
        if record.version >= 16:
            break


async def update(m: Maos) -> None:
    assert (await m.state.update("a", {"log": maos.Extend([])})).state.data["log"] == LOG
    state = (await m.state.update("a", {"n": 1})).state
    assert state.data["log"] == LOG


async def roll_back(m: Maos) -> None:
    try:
        assert (await m.state.rollback("a", 9)).state.data["log"] == LOG[:8]
    except NotFound:
        pass


async def snapshot(m: Maos) -> None:
    info = await m.state.snapshot("a", kind="incremental")
    assert (await m.state.read_snapshot("a", info.id)).data["log"] == LOG


async def verify(m: Maos) -> None:
    assert (await m.verify()).damage == []


async def compact(m: Maos) -> None:
    await m.state.compact("a", strategy="merge", keep_last=2)


async def history(m: Maos) -> None:
    assert sum(each.spans for each in await m.state.history("a")) >= 16


QUESTIONS: list[Callable[[Maos], Awaitable[None]]] = [
    get, at, events, replay, peek, read, follow, update, roll_back, snapshot, verify, compact, history,
]  # fmt: skip


@pytest.mark.parametrize("remembers", [False, True], ids=["no memory", "old memory"])
@pytest.mark.parametrize("strategy", ["merge", "delete"])
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.__name__)
async def test_a_compaction_between_any_two_reads(
    sqlite: Place,
    question: Callable[[Maos], Awaitable[None]],
    strategy: str,
    remembers: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """I6, I12: at the first read, the second, … until the question needs no more; with an old memory and with none."""
    assert await asked_at_every_moment(sqlite, question, strategy, remembers, monkeypatch) > 2


@pytest.mark.parametrize("strategy", ["merge", "delete"])
async def test_a_compaction_across_an_old_fold_or_between_two_pages(
    sqlite: Place, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I12: what peek has read of the fold, or of the events after it, no longer fits what it reads next."""
    monkeypatch.setattr(folds, "FOLD_EVERY", 10)
    monkeypatch.setattr(folds, "FOLD_COSTLY_EVERY", 100)
    monkeypatch.setattr(journal_module, "PAGE_EVENTS", 2)
    assert await asked_at_every_moment(sqlite, peek, strategy, False, monkeypatch) > 4


async def asked_at_every_moment(
    sqlite: Place,
    question: Callable[[Maos], Awaitable[None]],
    strategy: str,
    remembers: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> int:
    """Ask with a compaction at the first read, the second, …; the first moment that did not come any more."""
    async with sqlite.open() as m:
        await m.state.create("a", {"log": []})
        for number in LOG:
            await m.state.update("a", {"log": maos.Extend([number])}, critical=number % 7 == 0)
    for moment in range(1, 100):
        place = sqlite._replace(folder=sqlite.folder / f"{moment}")
        place.folder.mkdir()
        for file in sqlite.folder.glob("maos.db*"):
            shutil.copy(file, place.folder)
        async with place.open() as m, place.open() as other:
            await m.trust()
            if remembers:
                await m.state.get("a")
                await other.state.update("a", {"m": "remembers what is old by then"})
            reads = await counted(m, other, question, strategy, moment, monkeypatch)
            m.state.cache.clear()
            assert (await m.verify()).ok
        if reads < moment:
            return moment
    raise AssertionError("it never stops reading")


async def counted(
    m: Maos,
    other: Maos,
    question: Callable[[Maos], Awaitable[None]],
    strategy: str,
    moment: int,
    monkeypatch: pytest.MonkeyPatch,
) -> int:
    """Ask a question, and compact when it reads for the so-manieth time; how often it read."""
    reads = 0

    def hooked(name: str) -> Callable[..., Awaitable[Any]]:
        original = getattr(m.journal.store, name)

        async def work(*arguments: Any, **more: Any) -> Any:
            nonlocal reads
            reads += 1
            if reads == moment:
                await other.state.compact("a", strategy=strategy, keep_last=3)
            return await original(*arguments, **more)

        return work

    with monkeypatch.context() as patched:
        for name in ("read", "read_log", "load", "scan", "version"):
            patched.setattr(m.journal.store, name, hooked(name))
        await question(m)
    return reads
