"""A question to a person, from a run, an agent or a workflow: how it is named, and what may be answered to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from maos.errors import InvalidInput
from maos.ids import only

QUESTION, GATE, PERMISSION = "question", "gate", "permission"
WORKFLOW, UNKNOWN = "workflow", "unknown"
"""What a workflow asks; and the outcome of a step that is unknown, which `maos workflow resolve` resolves."""
SHORT_CHARS_MIN = 6
YES, NO = ("yes", "y", "ok", "true"), ("no", "n", "false")


def yes_or_no(text: str) -> bool | None:
    """True for a yes, False for a no, None for anything else."""
    said = text.strip().lower()
    return True if said in YES else False if said in NO else None


class Open(NamedTuple):
    """Something that a person should answer."""

    owner: str
    """The run, or for a permission the agent, that asks."""
    id: str
    """Its id among the questions of its owner."""
    kind: str
    text: str
    choices: tuple[str, ...] = ()
    context: str = ""
    asked_by: tuple[str, ...] = ()
    asked_us: int = 0
    default: str | None = None
    expires_us: int = 0
    tool: str = ""
    input: Any = None
    """What it is used for, as its program put it."""
    recorded: bool = True
    """Whether an engine has recorded it; it is asked in any case."""

    @property
    def ref(self) -> str:
        """Its name among all questions."""
        return f"{self.owner}/{self.id}"


def find(every: Sequence[Open], given: str) -> Open:
    """The question that is meant: by its id, its id with its owner's, or an unambiguous beginning of either."""
    for name in ("ref", "id"):
        exact = [each for each in every if getattr(each, name) == given]
        if len(exact) == 1:
            return exact[0]
    found = {each.ref: each for each in every if given and given in (each.ref[: len(given)], each.id[: len(given)])}
    return found[only(given, list(found), "question", hint="`maos inbox` lists open questions")]


def short(wanted: Open, asked: Sequence[Open], others: Sequence[Open] | None = None) -> str:
    """As much of a question's id as tells it from all `others`; while those are not known, as much as tells it from
    those of its run, whose id tells it from the rest."""
    if others is not None and len(wanted.id) < SHORT_CHARS_MIN:  # a step, which says nothing without its workflow
        return wanted.ref
    ways = [(wanted.ref, len(wanted.owner) + 1 + SHORT_CHARS_MIN)]
    if others is not None:
        asked, ways = others, [(wanted.id, SHORT_CHARS_MIN), *ways]
    for whole, chars_min in ways:
        for end in range(min(chars_min, len(whole)), len(whole) + 1):
            if sum(whole[:end] in (each.ref[:end], each.id[:end]) for each in asked) == 1:
                return whole[:end]
    return wanted.ref


def check(question: Open, answer: str, why: str = "") -> str:
    """The answer as it will be recorded: one of the choices, if there are any."""
    said = answer.strip()
    if not said:
        raise InvalidInput("the answer is empty", hint="say something")
    if question.kind == UNKNOWN:
        raise InvalidInput(f"the outcome of step {question.id} is not answered but resolved", hint=question.context)
    if question.kind in (GATE, PERMISSION):
        is_yes = yes_or_no(said)
        if is_yes is None:
            raise InvalidInput(f"{said!r} is neither yes nor no", hint="say yes or no; --why gives a reason")
        plain = "yes" if is_yes else "no"
        return f"no: {why}" if why and plain == "no" and question.kind == GATE else plain
    if question.choices:
        for each in question.choices:
            if said.casefold() == each.casefold():
                return each
        if said.isdigit() and 1 <= int(said) <= len(question.choices):
            return question.choices[int(said) - 1]
        raise InvalidInput(f"{said!r} is not a choice", hint=f"choose one of: {', '.join(question.choices)}")
    return answer


def with_reason(question: Open, said: str) -> tuple[str, str]:
    """What a person typed in one line, as an answer and a reason: `no, use git mv` is a no that says why."""
    first, _, rest = said.strip().partition(" ")
    if question.kind in (GATE, PERMISSION) and yes_or_no(first.strip(",.:;")) is not None:
        return first.strip(",.:;"), rest.strip()
    return said, ""
