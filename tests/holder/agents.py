"""Agents for tests, and what is done with them."""

import asyncio
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from maos.holder import process_tree, wire
from maos.holder.agent_process import AgentProcess
from maos.holder.records import SpoolRecord
from maos.holder.wire import HolderSpec

PATIENCE_S = 60.0
ENV = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"}


def sh(script: str, **changes: Any) -> HolderSpec:
    """An agent that is a shell script."""
    return _spec(["sh", "-c", script], changes)


def py(code: str, *arguments: str, **changes: Any) -> HolderSpec:
    """An agent that is a Python program."""
    return _spec([sys.executable, "-I", "-S", "-u", "-c", code, *arguments], changes)


def _spec(argv: list[str], changes: dict[str, Any]) -> HolderSpec:
    env = {**ENV, **changes.get("env", {})}
    usual = {"argv": argv, "cwd": "/", "attempt": "a", "token": 1, "secrets": {}}
    return HolderSpec(**{**usual, **changes, "env": env})


async def to_the_end(process: AgentProcess, *, confirm: bool = False) -> list[SpoolRecord]:
    """All records up to the exit."""
    found: list[SpoolRecord] = []
    async with asyncio.timeout(PATIENCE_S):
        while group := await process.records():
            found += group
            if confirm:
                await process.confirm(group[-1].offset)
    return found


async def until_line(process: AgentProcess, wanted: bytes) -> list[SpoolRecord]:
    """All records up to the group with a certain line of output."""
    found: list[SpoolRecord] = []
    async with asyncio.timeout(PATIENCE_S):
        while not any(record.data == wanted for record in found):
            group = await process.records()
            assert group, f"the agent ended without saying {wanted!r}: {found}"
            found += group
    return found


def lines(records: Iterable[SpoolRecord], kind: str = "stdout") -> list[bytes]:
    """The lines of output among records, those in parts put together."""
    found: list[bytes] = []
    part = b""
    for record in records:
        if record.kind == kind:
            part += record.data
            if not record.partial:
                found.append(part)
                part = b""
    assert not part, "a line has no end"
    return found


def exit_of(records: list[SpoolRecord]) -> dict[str, int]:
    """How the agent ended."""
    assert records[-1].kind == "exit", records[-1]
    return {name: int(value) for name, value in wire.unpack_map(records[-1].data).items()}


def kinds(records: Iterable[SpoolRecord]) -> list[str]:
    """The kinds of some records."""
    return [record.kind for record in records]


async def eventually(condition: Callable[[], Any], what: str = "it") -> None:
    """Return when a condition holds."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"{what} did not come true within {PATIENCE_S:.0f} s") from None


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    seen = process_tree.look(pid)
    return seen is not None and seen.state not in "ZX"


def size_of(pid: int) -> dict[str, int]:
    """What a process takes of the memory, in bytes."""
    rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {name: int(rest.split()[0]) * 1024 for name, _, rest in (row.partition(":") for row in rows)}


def disk_of(folder: Path) -> int:
    """What the spool takes of the disk, in bytes."""
    found = 0
    for path in folder.glob("*.spool"):
        try:
            found += path.stat().st_size
        except FileNotFoundError:
            continue  # dropped meanwhile
    return found
