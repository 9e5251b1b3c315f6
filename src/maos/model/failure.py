"""Why an attempt ended, and what to do about it: the failure table.

Evidence comes from the agent's own words (`trouble` facts), from how its process ended, and from what we did to it.
`understand` picks the one failure that explains it; `TABLE` says what follows from each.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from maos.patterns import regex
from maos.tuples import NamedTuple

TYPE_CHECKING = False  # the table is shown in help texts, which load next to nothing
if TYPE_CHECKING:
    from maos.model.events.facts import Fact, Trouble

RETRY, WAIT, RESUME, FRESH, TELL = "retry", "wait", "resume", "fresh", "tell"
ASK, GIVE_UP, NOTHING = "ask", "give_up", "nothing"

ENDED_BY_ITSELF = ("", "failed", "start_failed")
"""Failures of a command that leave no doubt about whether it did its work."""
ANSWERED = "answered"
"""Why an agent is ended that has answered and does not exit."""
REPEATABLE = ("shell", "python")
"""Kinds whose program is named by the task, and may only come to be while the run is executed."""


class Failure(NamedTuple):
    """One way to fail: what it means, and what the engine should do."""

    name: str
    meaning: str
    action: str
    """retry: with back-off, in the same session · wait: until a time · resume: at once · fresh: in a new session, with
    a report of what happened · tell: at once, with the messages that wait · ask: a person · give_up · nothing: it was
    wanted."""
    tries_max: int = 0
    """How often `action` may be tried before a person is asked; 0: as often as it takes (wait), or not at all."""
    hint: str = ""
    """What a person can do."""
    of_kind: bool = False
    """Whether it stops every agent of the same kind, because they share an account: a run starts no more of them."""
    told: bool = False
    """Whether trying again helps only because the agent is told what was wrong: a command would do the same again."""


TABLE: dict[str, Failure] = {
    each.name: each
    for each in (
        Failure("stopped", "it was stopped on request", NOTHING, hint="`maos agent resume` resumes it"),
        Failure("halted", "a person stopped it", ASK, hint="`maos resume` resumes it"),
        Failure("cancelled", "a person cancelled it", GIVE_UP, hint="`maos retry` tries it again"),
        Failure("interrupted", "the engine and the agent have exited", RESUME, 10),
        Failure("holder_lost", "the agent's holder has exited", RESUME, 10),
        Failure("killed", "the agent's process was killed by a signal from outside", RESUME, 3),
        Failure("out_of_memory", "the kernel killed the agent's process because memory ran out", RESUME, 1,
                "give the machine more memory, or run fewer agents at once"),
        Failure("crashed", "the agent's program crashed", RESUME, 3, "look at `maos agent logs` for its last output"),
        Failure("timed_out", "the time limit was reached", ASK, hint="resume with a larger --time-limit"),
        Failure("silent", "it printed nothing for too long", RESUME, 2, "look at `maos agent logs`"),
        Failure("unattended", "no engine attached in time, so the holder ended the agent", RESUME, 3),
        Failure("rate_limited", "the model's rate or usage limit is reached", WAIT, hint="it resumes after the reset"),
        Failure("overloaded", "the model's servers are overloaded", RETRY, 8),
        Failure("server_error", "the model's servers failed", RETRY, 5),
        Failure("connection_lost", "the connection to the model was lost", RETRY, 8, "check the network"),
        Failure("login_expired", "the login or key is missing, wrong or expired", ASK,
                hint="log in again with the agent's program, or set its key, then resume", of_kind=True),
        Failure("no_credit", "the account has no credit left", ASK, hint="add credit, then resume", of_kind=True),
        Failure("context_overflow", "the conversation is longer than the model accepts", FRESH, 2),
        Failure("permission_refused", "a permission that it needs was refused", ASK,
                hint="allow the tool, then resume"),
        Failure("turns_reached", "the limit of turns was reached", ASK, hint="resume with a larger --turns"),
        Failure("budget_reached", "the budget was reached", ASK, hint="resume with a larger --budget"),
        Failure("session_missing", "the agent's program does not know the session", FRESH, 1),
        Failure("bad_request", "the model refused the request as malformed", GIVE_UP,
                hint="look at `maos agent logs`; a newer version of the agent's program may help"),
        Failure("unheard", "it answered before it got all its messages, and gets them in another turn", TELL),
        Failure("gate_failed", "its work did not pass a check", RESUME, 3,
                "fix what the check found, then `maos retry`", told=True),
        Failure("merge_conflict", "it changed the same lines as another task", ASK,
                hint="merge the files by hand, then resume"),
        Failure("setup_failed", "the setup of its workspace failed", GIVE_UP,
                hint="fix the setup commands, or what they need, then resume"),
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
    """Why we ended it, if we did: asked, answered, time_limit, silence, budget, unattended, fenced, holder_error."""
    holder_lost: bool = False
    unanswered: bool = False
    """Whether a turn was running that did not come to its end, or the next one waits for the answer of a person. Never
    of a kind that does not say when it has answered, such as a plain command."""


class FailureVerdict(NamedTuple):
    """Why an attempt failed."""

    failure: str
    message: str
    reset_us: int = 0
    """When to resume, if the agent said so."""


_OURS = {
    "asked": "stopped", "time_limit": "timed_out", "silence": "silent", "unattended": "unattended",
    "fenced": "interrupted", "holder_error": "holder_lost", "budget": "budget_reached",
}  # fmt: skip


def understand(ending: Ending, facts: Sequence[Fact]) -> FailureVerdict | None:
    """The failure that explains how an attempt ended; None when it succeeded.

    What was asked of us explains more than what it said, and what it said explains more than how its process ended: a
    program that complains of a rate limit and exits with 1 was rate limited, and one that has answered has answered,
    even if it was killed or ended for being idle afterwards (I29). Trouble that was followed by a successful turn is
    over and explains nothing.
    """
    from maos.model.events.facts import TurnEnded

    if ending.start_error:
        return FailureVerdict("start_failed", ending.start_error)
    if ending.stopping == "asked":
        return _verdict("stopped")
    trouble = _open_trouble(facts)
    turn = next((fact for fact in reversed(facts) if isinstance(fact, TurnEnded)), None)
    has_answered = turn is not None and not turn.failed and trouble is None
    if has_answered and (not ending.unanswered or (ending.exit_code == 0 and not ending.stopping)):
        return None
    if ending.stopping in _OURS:
        return _verdict(_OURS[ending.stopping])
    if trouble is not None:
        return FailureVerdict(
            trouble.failure if trouble.failure in TABLE else "failed", trouble.message, trouble.reset_us
        )
    if ending.holder_lost:
        return _verdict("holder_lost")
    if ending.out_of_memory:
        return _verdict("out_of_memory")
    if ending.signal is not None and ending.stopping != ANSWERED:
        return FailureVerdict(_by_signal(ending.signal), f"ended by signal {ending.signal}")
    if turn is not None and turn.failed:
        return FailureVerdict("failed", turn.result or TABLE["failed"].meaning)
    if ending.exit_code is not None and 128 < ending.exit_code < 128 + 65:  # what it says of a signal it has caught
        return FailureVerdict(_by_signal(ending.exit_code - 128), f"exit code {ending.exit_code}")
    if ending.exit_code:
        return FailureVerdict("failed", f"exit code {ending.exit_code}")
    return FailureVerdict("crashed", "it ended without an answer") if ending.unanswered else None


def _verdict(name: str) -> FailureVerdict:
    return FailureVerdict(name, TABLE[name].meaning)


def _by_signal(number: int) -> str:
    return "killed" if number in (1, 2, 9, 15) else "crashed"  # the others are a program's own doing


_BY_STATUS = {
    400: "bad_request", 401: "login_expired", 402: "no_credit", 403: "login_expired", 408: "connection_lost",
    413: "context_overflow", 429: "rate_limited", 499: "connection_lost", 503: "overloaded", 504: "connection_lost",
    529: "overloaded",
}  # fmt: skip

_BY_WORDS = tuple(
    (name, regex(pattern, re.IGNORECASE))
    for name, pattern in (
        ("context_overflow", r"prompt is too long|context.(window|length|limit)|maximum context|"
                             r"token count.{0,40}exceeds|exceeds the maximum number of tokens|request_too_large"),
        ("no_credit", r"credit balance|insufficient[_ ]quota|billing|out of credits"),
        ("rate_limited", r"rate.?limit|usage limit|limit (reached|(will )?reset)|hit your limit|too many requests|"
                         r"quota exceeded|exceeded your (current )?quota|resource.?exhausted"),
        ("overloaded", r"overloaded|server is busy|at capacity|high demand|service unavailable"),
        ("login_expired", r"not logged in|please run /login|log ?in again|(invalid|incorrect) (x-)?(api.key|bearer)|"
                          r"api.key (is )?(missing|not valid|invalid|expired)|(no|provide an|missing an?) api.key|"
                          r"authentication|unauthori[sz]ed|oauth token|(expired token|token (has |is )?expired)|"
                          r"missing bearer"),
        ("session_missing", r"no conversation found|no rollout found|no previous sessions?|unknown session|"
                            r"(session|conversation|thread)\b.{0,80}(not found|does not exist)"),
        ("connection_lost", r"connection (error|reset|refused|closed|was closed)|\beconn|enotfound|etimedout|eai_again|"
                            r"\bepipe|socket hang up|network (error|is unreachable)|stream (disconnected|closed)|"
                            r"fetch failed|unable to connect|error sending request|name resolution|timed? ?out"),
        ("server_error", r"internal server error|bad gateway|api_error"),
        ("bad_request", r"invalid_request_error|bad request|not_found_error"),
    )
)  # fmt: skip

_STATUS_IN_WORDS = regex(r"\b(?:status(?: code)?|(?:api |http )?error|http(?:/[\d.]+)?|code)\W{1,3}([45]\d\d)\b", re.I)


def from_words(message: str, *, status: int = 0) -> str:
    """The failure that an error message or an HTTP status stands for; "failed" when neither tells.

    A status counts more than words, except where one status is used for very different things.
    """
    found = [name for name, pattern in _BY_WORDS if pattern.search(message)]
    if not status and (said := _STATUS_IN_WORDS.search(message)):
        status = int(said[1])
    for name in found:
        if name in ("context_overflow", "no_credit") or (name == "login_expired" and status == 400):
            return name
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if 500 <= status < 600:
        return "server_error"
    return found[0] if found else "bad_request" if 400 <= status < 500 else "failed"


def _open_trouble(facts: Sequence[Fact]) -> Trouble | None:
    """The trouble that nothing good followed; of several, the first, unless later ones only repeat a passing cause."""
    from maos.model.events.facts import Trouble, TurnEnded

    found: Trouble | None = None
    for fact in facts:
        if isinstance(fact, Trouble):
            passing = ("failed", "rate_limited", "overloaded", "server_error", "connection_lost")
            if found is None or found.failure in passing:
                found = fact
        elif isinstance(fact, TurnEnded) and not fact.failed:
            found = None
    return found
