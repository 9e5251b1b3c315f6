"""The principal of this process: the agent that it is part of, else the person whose process it is.

An agent's process has the id of its attempt and a secret of that attempt in its environment; the journal has the hash
of the secret. A process that has neither is recognized all the same while it descends from the holder of an attempt:
a shell command can remove variables, and cannot choose another parent. This is no sandbox: an agent runs as the user,
and a program that escapes from its holder acts as that user.
"""

from __future__ import annotations

import hmac
import os
import pwd
import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from maos.engine.streams import ATTEMPT
from maos.errors import NotPermitted
from maos.holder import identity
from maos.journal.journal import Journal
from maos.model import tool_calls
from maos.model.attempt import Attempt, attempt_id, stream
from maos.model.principal import Principal, PrincipalKind, secret_hash

HINT = (
    f"maos sets {tool_calls.ATTEMPT} and {tool_calls.SECRET} for the agents that it starts; for another database than "
    f"theirs, start the command without them: `env -u {tool_calls.ATTEMPT} -u {tool_calls.SECRET} …`"
)


async def find_principal(journal: Journal, environment: Mapping[str, str]) -> Principal:
    """Return who this process acts for in a journal; NotPermitted when it names an attempt and cannot prove it."""
    held = [each async for each in _held(journal)]
    named = environment.get(tool_calls.ATTEMPT, "")
    if not named:
        return await _agent(journal, held[0]) if held else person()
    attempt = next((each for each in held if each.id == named), None)
    if attempt is None and not held:
        attempt = await ATTEMPT.load(journal, named)
        if attempt is not None and not _proves(attempt, environment.get(tool_calls.SECRET, "")):
            attempt = None
    if attempt is None:
        raise NotPermitted(f"this process is not proved to be the attempt {named!r:.200} of this database", hint=HINT)
    return await _agent(journal, attempt)


def person() -> Principal:
    """The user of this process, as the operating system knows it: variables such as USER can say anything."""
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # as in a container
        name = f"uid-{uid}"
    return Principal(PrincipalKind.PERSON, name, host=socket.gethostname())


async def _held(journal: Journal) -> AsyncIterator[Attempt]:
    """The attempts in a journal whose holders this process descends from, the nearest first."""
    for folder, holder in identity.above(os.getpid()):
        attempt = await ATTEMPT.load(journal, holder.attempt)
        if attempt is not None and attempt.folder and Path(attempt.folder) == folder:  # else of another database
            yield attempt


def _proves(attempt: Attempt, secret: str) -> bool:
    return bool(secret and attempt.proof) and hmac.compare_digest(secret_hash(secret), attempt.proof)


async def _agent(journal: Journal, attempt: Attempt) -> Principal:
    """The principal of an attempt; NotPermitted when it is over: its agent acts in a later one, or no longer."""
    later = await journal.version(stream(attempt_id(attempt.agent, attempt.number + 1)))
    if later or not attempt.is_open:
        raise NotPermitted(
            f"the attempt {attempt.id} has ended: nothing can act for it any more",
            hint=f"`maos agent resume {attempt.agent}` starts the next attempt, in a terminal of a person",
        )
    return Principal(PrincipalKind.AGENT, attempt.agent, attempt=attempt.id)
