"""Errors: a message for people and an exit code for programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from maos import errors
from maos.cli.render import clean, styled, wrap

FAILED, USAGE, NOT_FOUND, CONFLICT, UNAVAILABLE, INTERRUPTED, PIPE_CLOSED = 1, 2, 3, 4, 5, 130, 141
STOPPED, LIMIT_REACHED, NEEDS_PERSON, MAY_PASS = 6, 7, 8, 9
PROBLEMS_SHOWN_MAX = 200
SIGNALLED = 128
"""Added to the number of the signal that ended a command, as shells do."""

EXIT_CODES = (
    (0, "done"),
    (FAILED, "the agent failed; damaged or lost data, an unknown format, or a question answered with no"),
    (USAGE, "wrong usage or input, no such database, or an act that is for a person to do"),
    (NOT_FOUND, "no such agent, version, snapshot or path; the agent's program is not installed"),
    (CONFLICT, "another process was faster, holds the lease, or used the key"),
    (UNAVAILABLE, "storage unavailable: the disk or the database server"),
    (STOPPED, "the agent was stopped on request"),
    (LIMIT_REACHED, "the agent reached a limit of time, turns or budget"),
    (NEEDS_PERSON, "the agent needs a person: a login, credit or a permission"),
    (MAY_PASS, "a temporary failure, such as a rate limit or a kill: resume it"),
    (INTERRUPTED, "interrupted with Ctrl+C; 129 and 143: detached by SIGHUP or SIGTERM, the agent keeps running"),
    (PIPE_CLOSED, "the reader of the output closed the pipe"),
)

_CODES: tuple[tuple[tuple[type[BaseException], ...], int], ...] = (
    ((errors.InvalidInput, errors.NotPermitted), USAGE),
    ((errors.NotFound,), NOT_FOUND),
    ((errors.Conflict, errors.LeaseLost, errors.KeyReused), CONFLICT),
    ((errors.StoreUnavailable, OSError), UNAVAILABLE),
)


class _PipeClosed(Exception):
    """The reader of the output closed the pipe; not an OSError, for which click has an exit code of its own."""


@contextmanager
def closed_pipe_noticed() -> Iterator[None]:
    """Raise an error for a closed pipe that click does not handle."""
    try:
        yield
    except BrokenPipeError as error:
        raise _PipeClosed from error


def exit_code_of(work: Callable[[], Any]) -> int:
    """Run the command line and report what went wrong; the exit code."""
    _never_fail_to_encode()
    try:
        code = work()
        sys.stdout.flush()  # here, where a closed pipe can still be handled, and not while Python shuts down
    except errors.MaosError as error:
        report_error(error)
        return code_for(error)
    except click.ClickException as error:
        return _usage(error)
    except click.Abort as error:
        return _aborted(error)
    except (_PipeClosed, BrokenPipeError):
        return _pipe_closed()
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        report(f"{where}{error.strerror or error}")
        return code_for(error)
    return code if isinstance(code, int) else 0


def code_for(error: BaseException) -> int:
    """The exit code of a kind of error."""
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), FAILED)


def report(what: str, hint: str = "") -> None:
    """Print on standard error what went wrong and what to do about it."""
    _echo("error:", what, "bold red")
    if hint:
        _echo("hint:", hint, "bold")


def report_error(error: errors.MaosError) -> None:
    """Print an error; of a plan that is not valid, everything that is wrong with it."""
    from maos.model.plan import BadPlan

    if not isinstance(error, BadPlan):
        report(error.what, error.hint)
        return
    report("the plan is not valid")
    for each in error.problems[:PROBLEMS_SHOWN_MAX]:
        click.echo(wrap(f"  {clean(str(each))}", sys.stderr, indent="    "), err=True)
    if len(error.problems) > PROBLEMS_SHOWN_MAX:
        click.echo(f"  … and {len(error.problems) - PROBLEMS_SHOWN_MAX} more", err=True)


def note(what: str) -> None:
    """Print something beside the result, on standard error."""
    _echo("note:", what)


print_above: list[Callable[[str], None]] = []
"""What prints above the frame that is drawn on the terminal, while there is one; else messages go to standard error."""


def _echo(label: str, text: str, style: str = "") -> None:
    """Print a label and a text on standard error; on a terminal, lines end between words."""
    whole = wrap(f"{label} {clean(text)}", sys.stderr, indent=" " * (len(label) + 1))
    line = f"{styled(label, style, sys.stderr)}{whole.removeprefix(label)}"
    if print_above:
        print_above[-1](f"{line}\n")
    else:
        click.echo(line, err=True)


def _usage(error: click.ClickException) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "maos"
    message = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":  # a group alone: the message is the help text
        click.echo(message, err=True)
        return USAGE
    hint = f"`{path} --help` shows the usage"
    if isinstance(error, click.NoSuchOption) and error.option_name == "--db":
        hint = f"--db comes before the command: `maos --db TEXT {path.partition(' ')[2]} …`"
    report(message[:1].lower() + message[1:].rstrip("."), hint)
    return USAGE


def _aborted(error: click.Abort) -> int:
    if isinstance(error.__cause__, KeyboardInterrupt):
        return INTERRUPTED
    click.echo(err=True)  # the line of the question is still open
    if isinstance(error.__context__, KeyboardInterrupt):
        return INTERRUPTED
    click.echo("nothing was changed", err=True)
    return FAILED


def _pipe_closed() -> int:
    """Print nothing more: the reader of the output has seen enough."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # for what is still buffered
        os.close(nowhere)
    except (OSError, ValueError):
        pass
    return PIPE_CLOSED


def _never_fail_to_encode() -> None:
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
