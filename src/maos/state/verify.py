"""Verifies the journal and everything folded from it."""

from __future__ import annotations

from collections.abc import Callable

from maos.errors import InvalidInput, MaosError
from maos.journal import verify as journal_verify
from maos.journal.journal import Journal
from maos.journal.verify import Damage, Report
from maos.model import agent as agents
from maos.model import checksum
from maos.state import folds
from maos.state.loader import missing
from maos.state.records import State
from maos.state.snapshots import StateSnapshots


async def verify(
    journal: Journal,
    states: StateSnapshots,
    *,
    agent: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Check every event, replay every agent, and compare its folds and snapshots with the replay (I12, I13)."""
    only = agents.stream(agent) if agent is not None else None
    if only is not None and not await journal.version(only):
        raise missing(str(agent))
    report = await journal_verify.verify(journal, stream=only, progress=progress)
    damage = list(report.damage)
    async for stream in journal.streams(only or agents.PREFIX):
        if only is not None and stream != only:
            continue
        name = stream.removeprefix(agents.PREFIX)
        known = _damaged(damage, stream)
        try:
            damage.extend(await _check_agent(journal, states, name, damaged=known))
        except MaosError as error:  # a damaged page: the others are still looked at
            if not known:
                damage.append(Damage(stream, 0, f"cannot be read: {error.what}", "what verifies of its events"))
    return report._replace(damage=damage)


async def _check_agent(journal: Journal, states: StateSnapshots, agent: str, *, damaged: bool) -> list[Damage]:
    stream = agents.stream(agent)
    found: list[Damage] = []
    newest = await journal.version(stream)
    kept = await folds.load(journal.store, stream, agent, journal.notes)
    if damaged:
        good = [info.version for info in await states.snapshots(agent)]
        if kept is not None:
            good.append(kept.state.version)
        if good:
            versions = ", ".join(map(str, sorted(set(good))))
            hint = f"the state at version{'s' if len(set(good)) > 1 else ''} {versions} is kept in a snapshot"
            found.append(Damage(stream, max(good), "its events cannot be replayed without a gap", hint))
    else:
        try:
            await states.replay(agent, 1, newest)
        except MaosError as error:
            found.append(Damage(stream, newest, error.what, "see the damaged versions"))
        else:
            if kept is not None and kept.state.version <= newest:
                replayed = (await states.replay(agent, 1, kept.state.version)).state
                if replayed.version == kept.state.version and not _same(kept.state, replayed):
                    found.append(
                        Damage(stream, kept.state.version, "the saved fold differs from a replay", "all, by replay")
                    )
    for version, what in await states.check_snapshots(agent):
        recoverable = "its versions by replay" if not damaged else "nothing"
        found.append(Damage(stream, version, f"snapshot: {what}", recoverable))
    return found


def _same(kept: State, replayed: State) -> bool:
    try:
        return checksum.checksum(kept.raw()) == replayed.total == kept.total
    except InvalidInput:
        return False  # it holds something that is not plain data


def _damaged(damage: list[Damage], stream: str) -> bool:
    return any(each.stream == stream for each in damage)
