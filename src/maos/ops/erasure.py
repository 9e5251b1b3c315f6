"""Erasure: the keys of a run or an agent are destroyed, and what they sealed can no longer be read.

The journal keeps its events, their order and their hashes, so it still verifies; their bodies are bytes that no key
opens. What maos holds of the run beside the database is removed: worktrees, spools and homes of agents. The receipt
names what an erasure does not reach.

The order makes it safe to kill and to repeat: that it was asked for is recorded, folders are removed while the run can
still be read, and the keys are destroyed in one transaction with the documents. Then the erased keys are noted on this
machine and taken out of the backup, so that no older copy brings them back.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

from maos.backup.service import Backups
from maos.clock import Clock
from maos.engine import attempt_spec
from maos.errors import InvalidInput, MaosError, NotFound
from maos.faults import crash_point
from maos.journal.journal import Journal
from maos.keys.erased import ErasedKeys
from maos.keys.vault import Vault
from maos.model import scopes
from maos.model.events.records import ErasureEnded, ErasureStarted
from maos.model.status import RunStatus
from maos.runs.service import Runs
from maos.store.sql_store import SqlStore
from maos.tuples import NamedTuple
from maos.views.agents import Agents

STREAM = "erasures"
PAGE_DOCUMENTS = 500


class ErasureReceipt(NamedTuple):
    """What an erasure has removed, or would remove, and what it does not reach."""

    scope: str
    """The id of the run, or the name of the agent."""
    events: int
    keys: int
    documents: int
    folders: list[str]
    backup: str
    """The location of the backup that no longer has the keys; empty when there is none."""
    unreachable: list[str]


class Erasures:
    """Erases runs and agents of an encrypted database."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        runs: Runs,
        agents: Agents,
        backups: Backups,
        erased: ErasedKeys,
        *,
        backup_to: str,
        log_file: str,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._runs = runs
        self._agents = agents
        self._backups = backups
        self._erased = erased
        self._backup_to = backup_to
        self._log_file = log_file

    async def erase(self, name: str, *, why: str = "", dry_run: bool = False) -> ErasureReceipt:
        """Erase a run by its id, or an agent without a run by its name; `dry_run` changes nothing.

        Example::

            receipt = await m.erasures.erase("r-1", dry_run=True)
            print(receipt.events, receipt.unreachable)
        """
        self._journal.principal.check_may_decide(f"erase {name}")
        vault, store = self._vault(), self._journal.store
        assert isinstance(store, SqlStore)
        await store.check_own()
        await vault.refresh()
        is_repeated = name in vault.erased
        agents = [] if is_repeated else await self._check(name)
        folders = [str(folder) for agent in agents async for folder in self._folders(agent)]
        receipt = await self._count(vault, store, name, folders)
        if dry_run:
            return receipt
        if not is_repeated:
            started = ErasureStarted(scope=name, why=why, by=self._journal.by, at_us=self._clock.now_us())
            await self._journal.append(STREAM, started)
            crash_point("erase: recorded")
            if name.startswith("r-"):
                await self._runs.remove(name)
            for folder in folders:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            crash_point("erase: folders removed")
            receipt = await self._count(vault, store, name, folders)
        keys = [key.id for key in await vault.keys() if key.scope == name]
        documents = [row async for row in self._documents(store, name)]
        now_us = self._clock.now_us()
        await store.change_keys([("erase_data_keys", [(name, now_us)]), ("delete_document", documents)], what="erase")
        crash_point("erase: keys destroyed")
        vault.forget([name])
        self._erased.add(keys)
        missed = [] if await store.forget_freed() else [f"the log of {store.place}, until no other process reads it"]
        ended = ErasureEnded(
            scope=name, keys=receipt.keys, documents=len(documents), folders=len(folders), by=self._journal.by,
            at_us=now_us,
        )  # fmt: skip
        await self._journal.append(STREAM, ended)
        crash_point("erase: end recorded")
        if self._backup_to:
            try:
                await self._backups.ship_keys(self._backup_to)
            except MaosError as error:
                missed.append(f"the keys in {self._backup_to}, which could not be replaced: {error.what}")
        return receipt._replace(unreachable=[*missed, *receipt.unreachable])

    async def _count(self, vault: Vault, store: SqlStore, scope: str, folders: list[str]) -> ErasureReceipt:
        """Return what an erasure would remove now."""
        keys = sum(key.scope == scope and not key.erased_us for key in await vault.keys())
        documents = [row async for row in self._documents(store, scope)]
        events, unreachable = await self._count_events(vault, scope), self._unreachable(store.place)
        return ErasureReceipt(scope, events, keys, len(documents), folders, self._backup_to, unreachable)

    def _vault(self) -> Vault:
        if self._journal.vault is None:
            raise InvalidInput(
                f"{self._journal.store.place} is not encrypted, so nothing of it can be erased",
                hint="`maos key encrypt` encrypts it; docs/howto/encrypt.md says how",
            )
        return self._journal.vault

    async def _check(self, name: str) -> list[str]:
        """Return the agents of what is to be erased; raise unless it exists, is over and is whole."""
        if name.startswith("r-") and "." in name:
            run = scopes.of_name(name)
            raise InvalidInput(f"{name} is an agent of {run}", hint=f"erase the whole run: `maos erase {run}`")
        if name.startswith("r-"):
            run_found = await self._runs.get(name)
            if run_found.status not in (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED):
                raise InvalidInput(f"{name} has not ended", hint=f"`maos cancel {name}` ends it")
            await self._runs.remove(name, dry_run=True)
            return [agent async for agent in self._agents.names(f"{name}.")]
        agents = [agent async for agent in self._agents.names(name) if agent == name]
        if not agents and not await self._journal.version(f"agent/{name}"):
            raise NotFound(f"there is no run or agent {name!r}", hint="`maos ps --all` and `maos agent list` list them")
        for agent in agents:
            newest = await self._agents.newest(agent)
            if newest is not None and newest.is_open:
                raise InvalidInput(f"{agent} has not ended", hint=f"`maos agent stop {agent}` ends it")
        return agents

    async def _folders(self, agent: str) -> AsyncIterator[Path]:
        """The folders that maos keeps for an agent: its home, and a spool for each attempt."""
        home = self._agents.folder / attempt_spec.HOMES / agent
        found = [self._agents.folder / attempt_spec.HOLDERS / each.id for each in await self._agents.history(agent)]
        for folder in (home, *found):
            if await asyncio.to_thread(folder.is_dir):
                yield folder

    async def _documents(self, store: SqlStore, scope: str) -> AsyncIterator[tuple[str, str, int]]:
        """The names of all documents of a scope."""
        kind = key = ""
        while rows := await store.database.fetch("all_documents", kind, key, PAGE_DOCUMENTS):
            for kind, key, version in rows:
                if scopes.of_document(kind, key) == scope:
                    yield kind, key, version

    async def _count_events(self, vault: Vault, scope: str) -> int:
        names = [name async for name in self._journal.streams(erased=True) if vault.scope_of(name) == scope]
        return sum([await self._journal.version(name) for name in names])

    def _unreachable(self, place: str) -> list[str]:
        """Where copies may be that an erasure does not reach."""
        found = [
            "what is not sealed: names of streams, types, times and sizes of events, ids of appends",
            "messages that it sent to other agents and runs, which their keys seal",
            "its commits in git repositories (refs/maos/…), and in the bundles of a backup",
            "copies of the database and of its keys (`maos admin copy`, `maos key export`, versions of a bucket)",
            "exported files (`maos admin export`, `maos report`), and transcripts of the agents' providers",
            "the memory of processes that have the database open: start `maos serve` again",
        ]
        if self._log_file:
            found.append(f"lines of the log {self._log_file}: names and reasons")
        path = Path(place)
        kept = sorted(path.parent.glob(f"{path.name}.level-*.bak")) if path.is_file() else []
        return [*found, *(f"{file}, from before an upgrade" for file in kept)]
