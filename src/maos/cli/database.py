"""The database a command works on: opened for the length of one piece of work."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, TypeVar

import click

from maos import settings
from maos.cli import render
from maos.cli.failures import FAILED, note
from maos.cli.render import clean
from maos.clock import MICROSECONDS
from maos.errors import Corrupt, InvalidInput, UnknownFormat
from maos.files import exclude_from_git
from maos.settings import DatabaseName

if TYPE_CHECKING:
    from maos.app import Maos, Outage
    from maos.settings.loader import AskedFor, Current

T = TypeVar("T")

IN_MEMORY = ":memory:"
ON_SERVERS = (
    "ps, status, inbox, answer, logs, diff, merge, pause, resume, cancel, rollback, fork, run --detach, stats, "
    "agent list|show|logs|diff|stop|send, message list|send, workflow list|show|signal, state list|show|history, "
    "backup status|list|verify|test"
)
"""The commands that use the server which MAOS_URL names."""


class DatabaseTarget:
    """The database and the settings that a command works with; files are read when they are needed."""

    def __init__(self, given: str | None) -> None:
        self.given = given

    @cached_property
    def name(self) -> DatabaseName:
        """The database as given, from MAOS_DB, as the settings say, or of the current folder."""
        given = self.given or os.environ.get("MAOS_DB")
        if not given and settings.are_there() and "database.path" in self.settings.loaded.origins:
            return self.settings.values.database.path
        return DatabaseName(given or settings.find_database(Path.cwd()))

    @property
    def is_remote(self) -> bool:
        """Whether commands use the server that MAOS_URL names; a database that is named takes precedence."""
        return bool(os.environ.get("MAOS_URL")) and not self.given

    def check_local(self) -> None:
        """Refuse a command that needs the database while MAOS_URL names a server."""
        if self.is_remote:
            raise InvalidInput(
                "MAOS_URL is set, and this command needs the database itself",
                hint=f"name it with --db, or unset MAOS_URL; these use the server: {ON_SERVERS}",
            )

    @property
    def is_found(self) -> bool:
        """Whether the database is that of the current folder, and was not named."""
        return str(self.name) == settings.find_database(Path.cwd())

    @cached_property
    def settings(self) -> Current:
        """Everything that can be set."""
        from maos.settings.loader import here

        return here({"database.path": ("--db", self.given)} if self.given else None)

    def read(self, work: Callable[[Maos], Awaitable[T]], *, accept_loss: bool = False, waits: bool = False) -> T:
        """Run work that changes nothing; Ctrl+C ends it wherever it is.

        `waits`: it follows what happens, so it waits for a database server that is away as long as it takes.
        """
        self.check_local()
        with _interruptible():
            self.check()
            return self._run(work, accept_loss=accept_loss, waits=waits)

    def write(
        self,
        work: Callable[[Maos], Awaitable[T]],
        *,
        create: bool = False,
        in_memory: bool = False,
        dry_run: bool = False,
        foreign: bool = False,
        waits: bool = False,
    ) -> T:
        """Run work that writes; Ctrl+C waits for a write that is under way.

        `in_memory`: it is of use also when nothing is saved. `dry_run`: it writes nothing, so an empty database does if
        there is none. `foreign`: the database may be one that the person has not agreed to use here. `waits`: it
        executes something, so it waits for a database server that is away as long as it takes.
        """
        self.check_local()
        if dry_run:
            return self.read(work) if self.exists else self._run(work, name=IN_MEMORY)
        if in_memory and str(self.name) == IN_MEMORY:
            note("in-memory database: nothing is saved, and an interrupted run cannot be resumed")
            return self._run(work)
        self.check(create=create)
        if create and not self.exists and self.is_found:
            try:
                exclude_from_git(Path(self.name).absolute())
            except OSError as error:
                note(f"{self.name} is not kept out of `git status`: {error}")
        has_log = "MAOS_LOG_FILE" in os.environ or settings.are_there()
        log = self.settings.values.log.file if has_log else ""

        async def checked(m: Maos) -> T:
            if not foreign:
                await m.check_own()
            return await (m.logged(log, work(m)) if log else work(m))

        return self._run(checked, create=create, waits=waits)

    def _wait_s(self, *, waits: bool) -> float | None:
        """How long to wait for a database server: as the settings say, else without limit for what `waits`."""
        from maos.app import WAIT_S

        has_setting = "MAOS_DATABASE_WAIT_S" in os.environ or settings.are_there()
        given = self.settings.values.database.wait_s if self.name.is_url and has_setting else None
        return given if given is not None or waits else WAIT_S

    def _run(
        self,
        work: Callable[[Maos], Awaitable[T]],
        *,
        name: str = "",
        create: bool = False,
        accept_loss: bool = False,
        waits: bool = False,
    ) -> T:
        import asyncio

        from maos.app import open as open_

        async def opened() -> T:
            target = name or self.name
            try:
                m = await open_(
                    target,
                    accept_loss=accept_loss,
                    create=create,
                    settings=lambda: self.settings,
                    wait_s=self._wait_s(waits=waits),
                    on_outage=report_outage,
                )
            except Corrupt as error:  # verifying it, as the usual hint says, needs an open one
                hint = "restore a copy of it, or name another database with --db"
                raise Corrupt(error.what, hint=hint) from error
            except UnknownFormat:
                self._check_whose()
                raise
            try:
                return await work(m)
            finally:
                await m.close()
                for text in m.notes:
                    note(text)

        return asyncio.run(opened())

    def _check_whose(self) -> None:
        """Refuse a database of the original, which by default has the same name, with what to do."""
        from maos.transfer.importers import is_legacy

        if not self.name.is_url and is_legacy(Path(self.name)):
            raise InvalidInput(
                f"{self.name} is a database of the original maos, which this one does not change",
                hint=f"import its runs into another database: `maos --db runs.db admin import {self.name}`",
            )

    @property
    def exists(self) -> bool:
        """Whether there is a database, as far as can be known without opening it."""
        path = Path(self.name)
        return self.name.is_url or (path.exists() and (path.is_dir() or path.stat().st_size > 0))

    def check(self, *, create: bool = False) -> None:
        """Refuse a path that opening would create: a mistyped path is not a new database."""
        if str(self.name) == IN_MEMORY:
            raise InvalidInput("a database in memory ends with the command", hint="give --db a path or a URL")
        if self.name.is_url or create:
            return
        path = Path(self.name)
        if path.is_dir():
            raise InvalidInput(f"{self.name} is a folder", hint=f"name the file in it, such as {path / 'maos.db'}")
        if not self.exists:
            raise InvalidInput(
                f"there is no database {self.name}",
                hint="name one with --db or MAOS_DB, or create one with `maos run` or `maos state create AGENT`",
            )


def report_outage(outage: Outage) -> None:
    """Say that the command waits for the database, or that the database is back."""
    from maos.cli import words

    if outage.until_us:
        note(f"the database is back after {words.duration((outage.until_us - outage.since_us) / MICROSECONDS)}")
    else:
        note(f"waiting for the database since {render.time_of_day(outage.since_us)}: {outage.why}")


def ask(question: str, *, default: bool = False) -> None:
    """Exit unless a person says yes; only called on a terminal."""
    if not click.confirm(clean(question), default=default, err=True):
        click.echo("nothing was changed", err=True)
        raise click.exceptions.Exit(FAILED)


def agree_to_settings(database: DatabaseTarget, *, as_json: bool) -> None:
    """Have a person agree to what the project's settings file asks for; NotAgreedTo where none can be asked."""
    asked = database.settings.loaded.asked
    if asked is None:
        return
    if as_json or sys.stdin is None or not sys.stdin.isatty():
        database.settings.loaded.check_agreed()
    show_asked(asked)
    ask("Use these settings for agents, from now on?")
    asked.agree()
    del database.settings  # they are read again


def show_asked(asked: AskedFor) -> None:
    """Print what a project's settings file asks for, all of it."""
    note(f"{asked.path} is the project's, and may come from someone else. It sets:")
    for name, value in asked.values.items():
        for each in value if isinstance(value, tuple) else (value,):
            click.echo(f"  {clean(name)}: {clean(str(each), lines=True)}", err=True)


def need_yes(what: str, *, yes: bool, as_json: bool, flags: str = "--yes, or with --dry-run") -> None:
    """Refuse to change something without --yes where no person can be asked; other `flags` may take its place."""
    if not yes and (as_json or sys.stdin is None or not sys.stdin.isatty()):
        raise InvalidInput(f"{what}, and no person can be asked here", hint=f"repeat it with {flags}")


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl+C stops at once, also between two reads that never wait; a second one does not even clean up.

    asyncio's own handler would cancel the task at its next pause, and a long read of a local file makes none.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # in the background of a script, Ctrl+C is meant for another program
        return

    def stop(_signal: int, _frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
