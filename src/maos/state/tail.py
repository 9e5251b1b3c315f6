"""Lazy resume: the head of a state and the last entries of one long list.

An agent that is resumed after days needs its fields and the end of its conversation, not ten thousand old messages. The
saved head gives the fields, the newest events give the entries; how long the list is makes no difference.
"""

from __future__ import annotations

from itertools import chain, count
from typing import Any

from maos.errors import InvalidInput
from maos.journal.journal import Journal, Record
from maos.model import agent as agents
from maos.model import checksum
from maos.model.changes import MISSING, Op, StateDraft, lookup, parse_pointer
from maos.model.view import MapView, copied
from maos.state import folds
from maos.state.loader import Loader, operations, recorded_total
from maos.state.records import Peek, State

PAGE_BACK_MAX = 64
VERSION_MAX = (1 << 63) - 1  # above any there is


class _Cannot(Exception):
    """The events do not tell without the rest of the state."""


async def peek(journal: Journal, loader: Loader, agent: str, path: str, last: int) -> Peek:
    """See AgentStates.peek."""
    if not path.startswith("/"):
        path = "/" + path
    if last < 0:
        raise InvalidInput(f"cannot show the last {last} entries")
    if loader.remembered(agent) is None:
        head = await folds.load_head(journal.store, agents.stream(agent), agent, journal.notes)
        if head is not None and path in head[1]:
            try:
                return await _from_head(journal, agent, path, last, *head)
            except _Cannot:
                pass  # something other than growth happened to the list: read it all
    return _from_state((await loader.current(agent)).state, path, last)


def _from_state(state: State, path: str, last: int) -> Peek:
    items = lookup(state.raw(), parse_pointer(path, state.raw()))
    if items is MISSING or type(items) is not list:
        raise InvalidInput(f"agent {state.agent!r} has no list at {path}", hint="name a list, such as /messages")
    skeleton, lists = folds.split(state.raw())
    lengths = {pointer: len(value) for pointer, value in lists.items()}
    start = max(0, len(items) - last)
    entries = copied(items[start:])
    return _result(state.agent, state.version, state.total, skeleton, lengths, entries, start, len(items))


async def _from_head(journal: Journal, agent: str, path: str, last: int, state: State, lengths: dict[str, int]) -> Peek:
    stream = agents.stream(agent)
    page_events = min(PAGE_BACK_MAX, max(last, folds.HEAD_EVERY))
    newest_first: list[Record] = []
    while not newest_first or newest_first[-1].version > state.version:
        await _read_back(journal, stream, newest_first, page_events)
    of_head = next(index for index, record in enumerate(newest_first) if record.version <= state.version)
    if newest_first[of_head].version != state.version:
        raise _Cannot  # compacted across the head, or the end of the journal is lost

    draft = StateDraft(state.raw())
    version, total = state.version, state.total
    entries: list[Any] = []
    for record in reversed(newest_first[:of_head]):
        for op in operations(record):
            if _grows(op, lengths):
                lengths[op[1]] += len(op[3])
                if op[1] == path:
                    entries.extend(op[3])
            else:
                draft.apply(op)
        version, total = record.version, recorded_total(record)
    length = lengths[path]
    wanted = min(last, length)
    missing = wanted - len(entries)
    earlier: list[list[Any]] = []
    for index in count(of_head):
        if missing <= 0:
            break
        if index == len(newest_first):
            await _read_back(journal, stream, newest_first, page_events)
        earlier.append(_entries(operations(newest_first[index]), path))
        missing -= len(earlier[-1])
    entries = [*chain.from_iterable(reversed(earlier)), *entries]
    start = length - wanted
    skeleton, grown = folds.split(draft.root)
    lengths.update({pointer: len(items) for pointer, items in grown.items()})
    return _result(agent, version, total, skeleton, lengths, entries[len(entries) - wanted :], start, length)


async def _read_back(journal: Journal, stream: str, newest_first: list[Record], limit: int) -> None:
    """Read on towards the beginning of a stream; _Cannot where that is reached, or compacted meanwhile."""
    if newest_first:
        reached = newest_first[-1].version - newest_first[-1].spans
        page = await journal.page_back(stream, before=reached + 1, limit=limit)
        if not page or page[0].version != reached:
            raise _Cannot
    else:
        page = await journal.page_back(stream, before=VERSION_MAX, limit=limit)
        if not page:
            raise _Cannot
    newest_first.extend(page)


def _grows(op: Op, lengths: dict[str, int]) -> bool:
    """Whether an operation adds to one of the lists left out; _Cannot if it does anything else to one."""
    if op[0] == "ext" and op[1] in lengths:
        return True
    for path in lengths:
        if op[1] == path or op[1].startswith(path + "/") or path.startswith(op[1] + "/") or op[1] == "":
            raise _Cannot
    return False


def _entries(ops: list[Op], path: str) -> list[Any]:
    """What an event added to the list, if that is all it did to it."""
    entries: list[Any] = []
    for op in ops:
        if op[0] == "ext" and op[1] == path:
            entries.extend(op[3])
        elif op[0] == "set" and op[1] == "":
            found = lookup(op[2], parse_pointer(path, op[2]))
            entries = list(found) if type(found) is list else []
        elif op[1] == path or op[1].startswith(path + "/") or path.startswith(op[1] + "/"):
            raise _Cannot
    return entries


def _result(
    agent: str, version: int, total: int, skeleton: dict[str, Any], lengths: dict[str, int],
    entries: list[Any], start: int, length: int,
) -> Peek:  # fmt: skip
    head = StateDraft(skeleton)
    for elided in lengths:
        head.apply(["del", elided])
    return Peek(agent, version, checksum.text(total), MapView(head.root), lengths, entries, start, length)
