"""Names of processes and events, and the rules for names."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterable, Sequence

from maos.errors import InvalidInput, NotFound

NAME_CHARS_MAX = 512
CANDIDATES_SHOWN_MAX = 5


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


def match_id(given: str, known: Iterable[str], noun: str, *, hint: str = "") -> str:
    """Return the one known id that is `given` or begins with it; a whole id wins over any longer one.

    For ids that a person types: a program that shortened ids would reach `order-71` when it meant an `order-7` that is
    not there. NotFound and InvalidInput are those of `only`.
    """
    found = list(dict.fromkeys(each for each in known if given and each.startswith(given)))
    return given if given in found else only(given, found, noun, hint=hint)


def only(given: str, found: Sequence[str], noun: str, *, hint: str = "") -> str:
    """Return the one id found for `given`. NotFound, with `hint`, if there is none; InvalidInput names the several."""
    if not found:
        raise NotFound(f"there is no {noun} {given!r}", hint=hint)
    if len(found) > 1:
        shown = ", ".join(found[:CANDIDATES_SHOWN_MAX]) + (", …" if len(found) > CANDIDATES_SHOWN_MAX else "")
        raise InvalidInput(f"{given!r} could be any of {len(found)} {noun}s: {shown}", hint="give more of the id")
    return found[0]
