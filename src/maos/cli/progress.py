"""A progress bar for work that takes a while, on standard error and on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(what: str, *, count: bool) -> Iterator[Callable[[int, int], None]]:
    """Draw a progress bar on standard error if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = [TextColumn("{task.description}", markup=False), BarColumn(), *([MofNCompleteColumn()] if count else [])]
    to = Console(stderr=True)
    with Progress(*columns, console=to, transient=True, disable=not sys.stderr.isatty()) as drawn:
        task = drawn.add_task(what, total=None)

        def advance(done: int, total: int) -> None:
            if count:
                now = what if done < total else "replaying the states"
                drawn.update(task, description=now, completed=done, total=max(done, total))

        yield advance
