"""The failure table: every way to fail is told apart, and each says what to do."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maos.model import failure
from maos.model.events import facts
from maos.model.events.facts import Fact
from maos.model.failure import TABLE, Ending, from_words, understand

ACTIONS = {
    failure.RETRY,
    failure.WAIT,
    failure.RESUME,
    failure.FRESH,
    failure.TELL,
    failure.ASK,
    failure.GIVE_UP,
    failure.NOTHING,
}
GOOD = facts.TurnEnded("done")
BAD = facts.TurnEnded("could not", failed=True)


def trouble(name: str, message: str = "words", **more: Any) -> Fact:
    return facts.Trouble(name, message, **more)


def named(ending: Ending, told: list[Fact]) -> str | None:
    """The name of the failure, or None."""
    verdict = understand(ending, told)
    return verdict and verdict.failure


# --- the table -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLE)
def test_every_row_says_what_it_means_and_what_to_do(name: str) -> None:
    row = TABLE[name]
    assert row.name == name
    assert row.meaning
    assert not row.meaning.endswith(".")
    assert row.action in ACTIONS
    assert row.tries_max >= 0
    if row.action in (failure.ASK, failure.GIVE_UP):
        assert row.hint, "a person must be told what to do"


@pytest.mark.parametrize("action", [failure.RETRY, failure.RESUME, failure.FRESH])
def test_nothing_is_tried_for_ever(action: str) -> None:
    """I32: what is tried again ends in a person's hands at last."""
    rows = [row for row in TABLE.values() if row.action == action]
    assert rows
    assert all(row.tries_max > 0 for row in rows)


EVERY_ROW: list[tuple[str, Ending, list[Fact]]] = [
    ("stopped", Ending(exit_code=143, stopping="asked"), []),
    ("interrupted", Ending(signal=15, stopping="fenced"), []),
    ("holder_lost", Ending(holder_lost=True), []),
    ("killed", Ending(signal=9), []),
    ("out_of_memory", Ending(signal=9, out_of_memory=True), []),
    ("crashed", Ending(signal=11), []),
    ("timed_out", Ending(signal=15, stopping="time_limit"), []),
    ("silent", Ending(signal=15, stopping="silence"), []),
    ("unattended", Ending(signal=15, stopping="unattended"), []),
    ("start_failed", Ending(start_error="No such file or directory"), []),
    ("failed", Ending(exit_code=1), []),
    *((name, Ending(exit_code=1), [trouble(name)]) for name in (
        "rate_limited", "overloaded", "server_error", "connection_lost", "login_expired", "no_credit",
        "context_overflow", "permission_refused", "turns_reached", "budget_reached", "session_missing", "bad_request",
    )),
]  # fmt: skip


@pytest.mark.parametrize(("name", "ending", "told"), EVERY_ROW, ids=[row[0] for row in EVERY_ROW])
def test_every_row_can_be_reached(name: str, ending: Ending, told: list[Fact]) -> None:
    verdict = understand(ending, told)
    assert verdict is not None
    assert verdict.failure == name
    assert verdict.message


def test_no_row_is_left_out() -> None:
    """Those that are decided after an attempt has ended are none of its ways to end."""
    decided_later = {"gate_failed", "merge_conflict", "halted", "cancelled", "unheard", "setup_failed"}
    assert {row[0] for row in EVERY_ROW} == set(TABLE) - decided_later


# --- what explains more --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "ending", "told"),
    [
        # success
        (None, Ending(exit_code=0), []),
        (None, Ending(exit_code=0), [GOOD]),
        (None, Ending(exit_code=0), [trouble("overloaded"), GOOD]),
        (None, Ending(exit_code=0), [BAD, GOOD]),
        # it has answered, whatever became of its process afterwards (I29)
        (None, Ending(signal=9), [GOOD]),
        (None, Ending(exit_code=1), [GOOD]),
        (None, Ending(exit_code=143), [GOOD]),
        (None, Ending(holder_lost=True), [GOOD]),
        (None, Ending(signal=15, stopping="unattended"), [GOOD]),
        (None, Ending(signal=15, stopping="silence"), [GOOD]),
        (None, Ending(signal=15, stopping="time_limit"), [GOOD]),
        (None, Ending(exit_code=0, unanswered=True), [GOOD]),  # a last word after its answer
        # but not if another turn was running
        ("killed", Ending(signal=9, unanswered=True), [GOOD]),
        ("failed", Ending(exit_code=1, unanswered=True), [GOOD]),
        ("holder_lost", Ending(holder_lost=True, unanswered=True), [GOOD]),
        ("unattended", Ending(signal=15, stopping="unattended", unanswered=True), [GOOD]),
        ("timed_out", Ending(exit_code=0, stopping="time_limit", unanswered=True), [GOOD]),
        ("crashed", Ending(exit_code=0, unanswered=True), []),
        ("failed", Ending(exit_code=0, unanswered=True), [BAD]),
        # what was asked of us explains everything, a start that failed even that
        ("stopped", Ending(signal=15, stopping="asked"), [trouble("rate_limited")]),
        ("stopped", Ending(exit_code=0, stopping="asked"), [GOOD]),
        ("stopped", Ending(signal=15, stopping="asked"), [GOOD]),
        ("start_failed", Ending(start_error="EACCES", stopping="asked"), [trouble("rate_limited")]),
        ("timed_out", Ending(signal=9, out_of_memory=True, stopping="time_limit"), [trouble("overloaded")]),
        ("holder_lost", Ending(signal=9, stopping="holder_error"), []),
        # what it said explains more than how its process ended
        ("rate_limited", Ending(exit_code=1), [trouble("rate_limited"), BAD]),
        ("rate_limited", Ending(signal=9), [trouble("rate_limited")]),
        ("login_expired", Ending(exit_code=0), [trouble("login_expired")]),
        ("no_credit", Ending(holder_lost=True), [trouble("no_credit")]),
        ("overloaded", Ending(exit_code=0), [GOOD, trouble("overloaded")]),
        ("failed", Ending(exit_code=0), [BAD]),
        ("failed", Ending(exit_code=1), [trouble("a name nobody knows")]),
        # of several troubles the cause counts: the first, unless it was one that passes
        ("login_expired", Ending(exit_code=1), [trouble("login_expired"), trouble("connection_lost")]),
        ("context_overflow", Ending(exit_code=1), [trouble("overloaded"), trouble("context_overflow")]),
        ("overloaded", Ending(exit_code=1), [trouble("rate_limited"), trouble("overloaded")]),
        ("bad_request", Ending(exit_code=1), [trouble("failed"), trouble("bad_request")]),
        ("no_credit", Ending(exit_code=1), [trouble("login_expired"), GOOD, trouble("no_credit")]),
        # how it ended, in words and numbers
        ("out_of_memory", Ending(signal=9, out_of_memory=True), [BAD]),
        ("killed", Ending(signal=9), [BAD]),
        ("holder_lost", Ending(holder_lost=True, out_of_memory=True), []),
        ("failed", Ending(exit_code=128), []),
        ("failed", Ending(exit_code=255), []),
    ],
)
def test_what_explains_more_wins(expected: str | None, ending: Ending, told: list[Fact]) -> None:
    assert named(ending, told) == expected


@pytest.mark.parametrize("number", range(1, 65))
def test_a_signal_is_a_kill_if_somebody_sends_it_and_a_crash_if_not(number: int) -> None:
    """Also when the program catches it and says so with its exit code, as shells and Claude Code do."""
    expected = "killed" if number in (1, 2, 9, 15) else "crashed"
    assert named(Ending(signal=number), []) == expected
    assert named(Ending(exit_code=128 + number), []) == expected
    assert str(number) in understand(Ending(signal=number), []).message  # type: ignore[union-attr]


@pytest.mark.parametrize("code", [*range(1, 129), *range(193, 256)])
def test_any_other_exit_code_is_the_programs_own_failure(code: int) -> None:
    verdict = understand(Ending(exit_code=code), [])
    assert verdict == ("failed", f"exit code {code}", 0)


def test_the_time_of_a_reset_and_the_words_are_handed_on() -> None:
    verdict = understand(Ending(exit_code=1), [trouble("rate_limited", "resets at 3", reset_us=17)])
    assert verdict == ("rate_limited", "resets at 3", 17)
    assert understand(Ending(exit_code=1), [BAD]) == ("failed", "could not", 0)
    assert understand(Ending(exit_code=0), [facts.TurnEnded("", failed=True)]) is not None


tellings = st.lists(
    st.one_of(
        st.sampled_from([GOOD, BAD, facts.Text("x"), facts.Line.of("x")]),
        st.sampled_from([*TABLE, "unheard_of"]).map(trouble),
    ),
    max_size=6,
)
endings = st.builds(
    Ending,
    exit_code=st.one_of(st.none(), st.integers(-5, 300)),
    signal=st.one_of(st.none(), st.integers(0, 70)),
    out_of_memory=st.booleans(),
    start_error=st.sampled_from(["", "ENOENT"]),
    stopping=st.sampled_from(["", "asked", "time_limit", "silence", "unattended", "fenced", "holder_error", "news"]),
    holder_lost=st.booleans(),
    unanswered=st.booleans(),
)


@given(endings, tellings)
def test_whatever_happens_there_is_one_known_explanation(ending: Ending, told: list[Fact]) -> None:
    verdict = understand(ending, told)
    assert verdict is None or verdict.failure in TABLE
    if any(isinstance(fact, facts.Trouble) for fact in told[-1:]):
        assert verdict is not None, "trouble at the end is never a success"


# --- words and statuses --------------------------------------------------------------------------------------------

STATUSES = {
    400: "bad_request", 401: "login_expired", 402: "no_credit", 403: "login_expired", 404: "bad_request",
    408: "connection_lost", 409: "bad_request", 413: "context_overflow", 422: "bad_request", 429: "rate_limited",
    499: "connection_lost", 500: "server_error", 501: "server_error", 502: "server_error", 503: "overloaded",
    504: "connection_lost", 520: "server_error", 529: "overloaded", 599: "server_error",
    0: "failed", 200: "failed", 302: "failed", 600: "failed", 99999: "failed", -1: "failed",
}  # fmt: skip


@pytest.mark.parametrize(("status", "expected"), STATUSES.items())
def test_every_status_means_something(status: int, expected: str) -> None:
    assert from_words("no words that tell", status=status) == expected


@pytest.mark.parametrize("status", range(400, 600))
def test_every_status_of_an_error_is_in_the_table_and_none_is_just_a_failure(status: int) -> None:
    assert from_words("", status=status) in set(TABLE) - {"failed"}


MESSAGES = [
    # Claude Code
    ('API Error: 429 {"error":{"type":"rate_limit_error","message":"slow down"}}', 0, "rate_limited"),
    ("API Error: 529 {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}", 0, "overloaded"),
    ("API Error: Repeated 529 Overloaded errors", 0, "overloaded"),
    ("API Error: 500 {\"type\":\"error\",\"error\":{\"type\":\"api_error\"}}", 0, "server_error"),
    ("API Error: 502", 0, "server_error"),
    ('API Error: 401 {"error":{"type":"authentication_error","message":"invalid x-api-key"}}', 0, "login_expired"),
    ("Invalid API key · Please run /login", 0, "login_expired"),
    ("Not logged in · Please run /login", 0, "login_expired"),
    ("OAuth token has expired. Please obtain a new token", 401, "login_expired"),
    ("Credit balance is too low", 400, "no_credit"),
    ("Your credit balance is too low to access the Anthropic API", 400, "no_credit"),
    ("Prompt is too long", 400, "context_overflow"),
    ("prompt is too long: 201234 tokens > 200000 maximum", 0, "context_overflow"),
    ("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000", 400, "context_overflow"),
    ("Claude AI usage limit reached|1763251200", 0, "rate_limited"),
    ("5-hour limit reached ∙ resets 3pm", 0, "rate_limited"),
    ("You've hit your limit · resets 3pm (UTC)", 0, "rate_limited"),
    ("No conversation found with session ID: 6f1c0b34-3c4e-4c0e-9a53-5f0d0d4f7a10", 0, "session_missing"),
    ("Connection error.", 0, "connection_lost"),
    ("Unable to connect to API (ConnectionRefused)", 0, "connection_lost"),
    ("Request timed out.", 0, "connection_lost"),
    ("API Error: 400 {\"error\":{\"type\":\"invalid_request_error\",\"message\":\"tools.0: bad\"}}", 0, "bad_request"),
    # Codex
    ("unexpected status 401 Unauthorized: Missing bearer or basic authentication in header", 0, "login_expired"),
    ("exceeded retry limit, last status: 429 Too Many Requests", 0, "rate_limited"),
    ("You've hit your usage limit. Upgrade to Pro or try again in 3 hours", 0, "rate_limited"),
    ("stream disconnected before completion: error sending request for url (http://127.0.0.1:1)", 0, "connection_lost"),
    ("Reconnecting... 1/5", 0, "failed"),
    ("unexpected status 500 Internal Server Error", 0, "server_error"),
    ("unexpected status 503 Service Unavailable: upstream", 0, "overloaded"),
    ("Your input exceeds the context window of this model. Please adjust your input", 400, "context_overflow"),
    ("Quota exceeded. Check your plan and billing details.", 429, "no_credit"),
    ("no rollout found for thread id 019a8b", 0, "session_missing"),
    ("Incorrect API key provided: sk-x. You can find your API key at", 401, "login_expired"),
    ("We're currently experiencing high demand, which may cause temporary errors.", 0, "overloaded"),
    ("Selected model is at capacity. Please try a different model.", 0, "overloaded"),
    # others, through the Agent Client Protocol
    ("Internal error: No previous sessions found for this project.", 0, "session_missing"),
    ("Resource not found: Session sess_abc not found", 0, "session_missing"),
    ("API key not valid. Please pass a valid API key.", 400, "login_expired"),
    ("RESOURCE_EXHAUSTED: Quota exceeded for metric", 0, "rate_limited"),
    ("The input token count (1048577) exceeds the maximum number of tokens allowed.", 400, "context_overflow"),
    ("Authentication required", 0, "login_expired"),
    ("getaddrinfo EAI_AGAIN api.example.invalid", 0, "connection_lost"),
    ("connect ECONNREFUSED 127.0.0.1:8080", 0, "connection_lost"),
    ("read ECONNRESET", 0, "connection_lost"),
    ("socket hang up", 0, "connection_lost"),
    ("fetch failed", 0, "connection_lost"),
    ("request failed with status code 529", 0, "overloaded"),
    ("HTTP 418", 0, "bad_request"),
    # no failure of the model
    ("Internal error", 0, "failed"),
    ("The tests do not pass", 0, "failed"),
    ("wrote 429 lines", 0, "failed"),
    ("error in line 503", 0, "failed"),
    ("exit code 1", 0, "failed"),
    ("", 0, "failed"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "status", "expected"), MESSAGES, ids=[each[0][:40] for each in MESSAGES])
def test_the_programs_own_words_are_understood(message: str, status: int, expected: str) -> None:
    assert from_words(message, status=status) == expected
    assert from_words(message.upper(), status=status) == expected


@given(st.text(), st.integers())
def test_any_words_and_any_status_mean_something(message: str, status: int) -> None:
    assert from_words(message, status=status) in TABLE
