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
from maos.cli.failures import FAILED, note
from maos.cli.render import clean
from maos.errors import Corrupt, InvalidInput, UnknownFormat
from maos.files import exclude_from_git

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.settings.loader import Current

T = TypeVar("T")

IN_MEMORY = ":memory:"


class DatabaseTarget:
    """The database and the settings that a command works with; files are read when they are needed."""

    def __init__(self, given: str | None) -> None:
        self.given = given

    @cached_property
    def name(self) -> str:
        """The database as given, from MAOS_DB, as the settings say, or of the current folder; may have a password."""
        given = self.given or os.environ.get("MAOS_DB")
        if not given and settings.are_there() and "database.path" in self.settings.loaded.origins:
            return self.settings.values.database.path
        return given or settings.find_database(Path.cwd())

    @property
    def shown(self) -> str:
        """The database as it is shown: without a password."""
        return settings.without_password(self.name)

    @property
    def is_found(self) -> bool:
        """Whether the database is that of the current folder, and was not named."""
        return self.name == settings.find_database(Path.cwd())

    @cached_property
    def settings(self) -> Current:
        """Everything that can be set."""
        from maos.settings.loader import here

        return here({"database.path": ("--db", self.given)} if self.given else None)

    def read(self, work: Callable[[Maos], Awaitable[T]], *, accept_loss: bool = False) -> T:
        """Run work that changes nothing; Ctrl+C ends it wherever it is."""
        with _interruptible():
            self.check()
            return self._run(work, accept_loss=accept_loss)

    def write(
        self,
        work: Callable[[Maos], Awaitable[T]],
        *,
        create: bool = False,
        in_memory: bool = False,
        dry_run: bool = False,
        foreign: bool = False,
    ) -> T:
        """Run work that writes; Ctrl+C waits for a write that is under way.

        `in_memory`: it is of use also when nothing is saved. `dry_run`: it writes nothing, so an empty database does if
        there is none. `foreign`: the database may be one that the person has not agreed to use here.
        """
        if dry_run:
            return self.read(work) if self.exists else self._run(work, name=IN_MEMORY)
        if in_memory and self.name == IN_MEMORY:
            note("in-memory database: nothing is saved, and an interrupted run cannot be resumed")
            return self._run(work)
        self.check(create=create)
        if create and not self.exists and self.is_found:
            try:
                exclude_from_git(Path(self.name).absolute())
            except OSError as error:
                note(f"{self.shown} is not kept out of `git status`: {error}")
        has_log = "MAOS_LOG_FILE" in os.environ or settings.are_there()
        log = self.settings.values.log.file if has_log else ""

        async def checked(m: Maos) -> T:
            if not foreign:
                await m.check_own()
            return await (m.logged(log, work(m)) if log else work(m))

        return self._run(checked, create=create)

    def _run(
        self, work: Callable[[Maos], Awaitable[T]], *, name: str = "", create: bool = False, accept_loss: bool = False
    ) -> T:
        import asyncio

        from maos.app import open as open_

        async def opened() -> T:
            target = name or self.name
            try:
                m = await open_(target, accept_loss=accept_loss, create=create, settings=lambda: self.settings)
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

        if "://" not in self.name and is_legacy(Path(self.name)):
            raise InvalidInput(
                f"{self.shown} is a database of the original maos, which this one does not change",
                hint=f"import its runs into another database: `maos --db runs.db admin import {self.name}`",
            )

    @property
    def exists(self) -> bool:
        """Whether there is a database, as far as can be known without opening it."""
        path = Path(self.name)
        return "://" in self.name or (path.exists() and (path.is_dir() or path.stat().st_size > 0))

    def check(self, *, create: bool = False) -> None:
        """Refuse a path that opening would create: a mistyped path is not a new database."""
        if self.name == IN_MEMORY:
            raise InvalidInput("a database in memory ends with the command", hint="give --db a path or a URL")
        if "://" in self.name or create:
            return
        path = Path(self.name)
        if path.is_dir():
            raise InvalidInput(f"{self.shown} is a folder", hint=f"name the file in it, such as {path / 'maos.db'}")
        if not self.exists:
            raise InvalidInput(
                f"there is no database {self.shown}",
                hint="name one with --db or MAOS_DB, or create one with `maos run` or `maos state create AGENT`",
            )


def ask(question: str, *, default: bool = False) -> None:
    """Exit unless a person says yes; only called on a terminal."""
    if not click.confirm(clean(question), default=default, err=True):
        click.echo("nothing was changed", err=True)
        raise click.exceptions.Exit(FAILED)


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
