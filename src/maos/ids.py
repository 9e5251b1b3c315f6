"""Names of processes and events, and the rules for names."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import islice

from maos.errors import InvalidInput, NotFound
from maos.tuples import NamedTuple

NAME_CHARS_MAX = 512
CANDIDATES_SHOWN_MAX = 5
OTHERS_MAX = 2_000
"""Ids that a mistyped one is compared with: comparing takes a while."""


RUN, TASK, AGENT, WORKFLOW = "run", "task", "agent", "workflow"


class Target(NamedTuple):
    """What a person means by an id."""

    kind: str
    """`run`, `task`, `agent` or `workflow`."""
    id: str
    """The id of the run or the workflow run; the name of the agent, also for a task."""
    run: str = ""
    """The run that a task belongs to."""
    task: str = ""
    """The task; of a workflow run, the id of a step, if one was given."""


def incarnation() -> str:
    """Return a name for this process, new at each start, so that a restart is never taken for its predecessor (I26)."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def event_id(stream: str, version: int) -> str:
    """Return the id of an event: its stream and version. Unique, without gaps, and takes no storage."""
    return f"{stream}@{version}"


def parse_event_id(text: str) -> tuple[str, int]:
    """Return the stream and version that an event id names."""
    stream, separator, version = text.rpartition("@")
    if not separator or not stream or not version.isascii() or not version.isdigit():
        raise InvalidInput(f"{text!r} is not an event id", hint="an event id looks like agent/reviewer@7")
    return stream, int(version)


def check_name(name: str, what: str) -> str:
    """Return the name, or raise InvalidInput with the reason."""
    if not name:
        raise InvalidInput(f"{what} is empty", hint=f"name the {what}")
    if len(name) > NAME_CHARS_MAX:
        raise InvalidInput(f"{what} has {len(name)} characters", hint=f"at most {NAME_CHARS_MAX} are allowed")
    if not name.isprintable():
        raise InvalidInput(f"{what} {name!r} has unprintable characters", hint="use printable characters only")
    return name


def match_id(given: str, known: Iterable[str], noun: str, *, hint: str = "", others: Iterable[str] = ()) -> str:
    """Return the one known id that is `given` or begins with it; a whole id wins over any longer one.

    For ids that a person types: a program that shortened ids would reach `order-71` when it meant an `order-7` that is
    not there. NotFound names the nearest of `others`, else `hint`; InvalidInput names the several that match.
    """
    found = list(dict.fromkeys(each for each in known if given and each.startswith(given)))
    return given if given in found else only(given, found, noun, hint=hint, others=others)


def only(given: str, found: Sequence[str], noun: str, *, hint: str = "", others: Iterable[str] = ()) -> str:
    """Return the one id found for `given`; NotFound and InvalidInput are those of `match_id`."""
    if not found or not given:
        near = get_close_matches(given, list(islice(others, OTHERS_MAX)), n=1)
        raise NotFound(f"there is no {noun} {given!r}", hint=f"did you mean {near[0]}?" if near else hint)
    if len(found) > 1:
        shown = ", ".join(found[:CANDIDATES_SHOWN_MAX]) + (", …" if len(found) > CANDIDATES_SHOWN_MAX else "")
        raise InvalidInput(f"{given!r} could be any of {len(found)} {noun}s: {shown}", hint="give more of the id")
    return found[0]
