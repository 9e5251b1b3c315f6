"""Why an attempt ended, and what to do about it: the failure table.

Evidence comes from the agent's own words (`trouble` facts), from how its process ended, and from what we did to it.
`understand` picks the one failure that explains it; `TABLE` says what follows from each.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from maos.model.facts import Fact

RETRY, WAIT, RESUME, FRESH, ASK, GIVE_UP, NOTHING = "retry", "wait", "resume", "fresh", "ask", "give_up", "nothing"


class Failure(NamedTuple):
    """One way to fail: what it means, and what the engine should do."""

    name: str
    meaning: str
    action: str
    """retry: with back-off, in the same session · wait: until a time · resume: at once · fresh: in a new session, told
    what happened · ask: a person · give_up · nothing: it was wanted."""
    tries_max: int = 0
    """How often `action` may be tried before a person is asked; 0: as often as it takes (wait), or not at all."""
    hint: str = ""
    """What a person can do."""


TABLE: dict[str, Failure] = {
    each.name: each
    for each in (
        Failure("stopped", "it was stopped on request", NOTHING, hint="`maos agent resume` goes on from here"),
        Failure("interrupted", "the engine went away and so did the agent", RESUME, 10),
        Failure("holder_lost", "the process that held the agent is gone", RESUME, 10),
        Failure("killed", "the agent's process was killed by a signal from outside", RESUME, 3),
        Failure("out_of_memory", "the kernel killed the agent's process for want of memory", RESUME, 1,
                "give the machine more memory, or run fewer agents at once"),
        Failure("crashed", "the agent's program broke down", RESUME, 3, "look at `maos agent logs` for its last words"),
        Failure("timed_out", "the time limit was reached", ASK, hint="resume with a larger --time-limit"),
        Failure("silent", "it printed nothing for too long", RESUME, 2, "look at `maos agent logs`"),
        Failure("unattended", "no engine came back in time, so the agent was ended", RESUME, 3),
        Failure("rate_limited", "the model's rate or usage limit is reached", WAIT, hint="it goes on after the reset"),
        Failure("overloaded", "the model's servers are overloaded", RETRY, 8),
        Failure("server_error", "the model's servers failed", RETRY, 5),
        Failure("connection_lost", "the connection to the model was lost", RETRY, 8, "check the network"),
        Failure("login_expired", "the login or key is missing, wrong or expired", ASK,
                hint="log in again with the agent's program, or set its key, then resume"),
        Failure("no_credit", "the account has no credit left", ASK, hint="add credit, then resume"),
        Failure("context_overflow", "the conversation is longer than the model can take", FRESH, 2),
        Failure("permission_refused", "it was not allowed to do what it wanted", ASK,
                hint="allow the tool, then resume"),
        Failure("turns_reached", "the limit of turns was reached", ASK, hint="resume with a larger --turns"),
        Failure("budget_reached", "the budget was reached", ASK, hint="resume with a larger --budget"),
        Failure("session_missing", "the agent's program does not know the session", FRESH, 1),
        Failure("bad_request", "the model refused the request as malformed", GIVE_UP,
                hint="look at `maos agent logs`; a newer version of the agent's program may help"),
        Failure("start_failed", "the agent's program could not be started", GIVE_UP,
                hint="check that the program exists and may be run, and its folder too"),
        Failure("failed", "the agent itself reports a failure", GIVE_UP, hint="look at `maos agent logs`"),
    )
}  # fmt: skip


class Ending(NamedTuple):
    """How an attempt's process ended, as far as we know."""

    exit_code: int | None = None
    signal: int | None = None
    out_of_memory: bool = False
    start_error: str = ""
    stopping: str = ""
    """Why we ended it, if we did: asked, time_limit, silence, unattended, fenced."""
    holder_lost: bool = False


class Verdict(NamedTuple):
    """Why an attempt failed."""

    failure: str
    message: str
    reset_us: int = 0
    """When to go on, if the agent said so."""


_OURS = {"asked": "stopped", "time_limit": "timed_out", "silence": "silent", "unattended": "unattended"}
_LATER_WINS = ("rate_limited", "overloaded", "server_error", "connection_lost")


def understand(ending: Ending, facts: Sequence[Fact]) -> Verdict | None:
    """The failure that explains how an attempt ended; None when it succeeded.

    What we did to it explains more than what it said, what it said explains more than how its process ended: a program
    that complains of a rate limit and exits with 1 was rate limited. Trouble that was followed by a successful turn is
    over and explains nothing.
    """
    if ending.start_error:
        return Verdict("start_failed", ending.start_error)
    if ending.stopping in _OURS:
        return Verdict(_OURS[ending.stopping], TABLE[_OURS[ending.stopping]].meaning)
    trouble = _open_trouble(facts)
    turn = _last(facts, "turn_ended")
    succeeded = turn is not None and not turn.get("failed")
    if succeeded and trouble is None and ending.exit_code in (0, None) and not ending.holder_lost:
        return None
    if trouble is not None:
        return Verdict(str(trouble["failure"]), str(trouble.get("message", "")), int(trouble.get("reset_us", 0)))
    if ending.holder_lost:
        return None if succeeded else Verdict("holder_lost", TABLE["holder_lost"].meaning)
    if ending.out_of_memory:
        return Verdict("out_of_memory", TABLE["out_of_memory"].meaning)
    if ending.signal is not None:
        kind = "killed" if ending.signal in (1, 2, 9, 15) else "crashed"
        return Verdict(kind, f"ended by signal {ending.signal}")
    if turn is not None and turn.get("failed"):
        return Verdict("failed", str(turn.get("result", "")) or TABLE["failed"].meaning)
    if ending.exit_code:
        return Verdict("failed", f"exit code {ending.exit_code}")
    return None


_BY_STATUS = {
    400: "bad_request", 401: "login_expired", 402: "no_credit", 403: "login_expired", 408: "connection_lost",
    413: "context_overflow", 429: "rate_limited", 503: "overloaded", 504: "connection_lost", 529: "overloaded",
}  # fmt: skip

_BY_WORDS = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("context_overflow", r"prompt is too long|context (window|length)|maximum context|context_length_exceeded"),
        ("no_credit", r"credit balance|insufficient[_ ]quota|billing"),
        ("rate_limited", r"rate.?limit|usage limit|limit (will )?reset|too many requests|quota exceeded"),
        ("overloaded", r"overloaded|server is busy|at capacity"),
        ("login_expired", r"not logged in|please run /login|log ?in again|invalid (api key|x-api-key|bearer)|"
                          r"authentication|unauthori[sz]ed|oauth token|expired token|no api key"),
        ("session_missing", r"no conversation found|session not found|no rollout found|unknown session"),
        ("connection_lost", r"connection (error|reset|refused|closed)|econn|enotfound|etimedout|socket hang up|"
                            r"network error|stream disconnected|fetch failed|unable to connect|timed? ?out"),
        ("server_error", r"internal server error|bad gateway|service unavailable|api error: 5\d\d"),
    )
)  # fmt: skip


def from_words(message: str, *, status: int = 0) -> str:
    """The failure that an error message or an HTTP status stands for; "failed" when neither tells."""
    for name, pattern in _BY_WORDS:
        if name in {"context_overflow", "no_credit"} and pattern.search(message):
            return name  # said with status 400 or 429, which would mean something else
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500:
        return "server_error"
    for name, pattern in _BY_WORDS:
        if pattern.search(message):
            return name
    return "failed"


def _open_trouble(facts: Sequence[Fact]) -> Fact | None:
    """The trouble that nothing good followed; of several, the first, unless later ones only repeat a passing cause."""
    found: Fact | None = None
    for fact in facts:
        kind = fact["kind"]
        if kind == "trouble":
            if found is None or found["failure"] in ("failed", *_LATER_WINS):
                found = fact
        elif kind == "turn_ended" and not fact.get("failed"):
            found = None
    return found


def _last(facts: Sequence[Fact], kind: str) -> Fact | None:
    return next((fact for fact in reversed(facts) if fact["kind"] == kind), None)
