"""A question to a person, from a run, an agent or a workflow: how it is named, and what may be answered to it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from maos.errors import InvalidInput
from maos.ids import only
from maos.model.tool_request import SCOPES, SHELL, ToolRequest
from maos.patterns import regex
from maos.tuples import NamedTuple

QUESTION, GATE, PERMISSION, PLAN = "question", "gate", "permission", "plan"
"""What an agent asks; whether work is good; whether an agent may use a tool; and whether the plan of a run is good,
which is answered with yes, no, or what to change."""
WORKFLOW, UNKNOWN = "workflow", "unknown"
"""What a workflow asks; and the outcome of a step that is unknown, which `maos workflow resolve` resolves."""
ANSWER = "Answer ({by}): {answer}"
NO_ANSWER = "No answer yet."
"""How the reply of a tool of maos to an agent's question begins, with an answer and without one."""
SHORT_CHARS_MIN = 6
YES, NO = ("yes", "y", "ok", "true"), ("no", "n", "false")
ALWAYS, NEVER = "always", "never"
"""Answers to a request for permission that make a rule of it."""


def yes_or_no(text: str) -> bool | None:
    """True for a yes, False for a no, None for anything else."""
    said = text.strip().lower()
    return True if said in YES else False if said in NO else None


def question_id(question: str) -> str:
    """An id for an agent's question that does not depend on capitals, spaces and punctuation."""
    words = "".join(each if each.isalnum() else " " for each in question.casefold()).split()
    plain = " ".join(words) or question.strip()
    return f"q-{hashlib.sha256(plain.encode()).hexdigest()[:12]}"


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
    meanings: tuple[str, ...] = ()
    """What each of the choices does, in their order; empty when they speak for themselves."""
    asked_by: tuple[str, ...] = ()
    asked_us: int = 0
    default: str | None = None
    expires_us: int = 0
    tool: str = ""
    input: Any = None
    """What it is used for, as its program put it."""
    recorded: bool = True
    """Whether an engine has recorded it; it is asked in any case."""
    run: str = ""
    """Of a permission: the run that the agent belongs to; empty when it belongs to none."""
    asked: ToolRequest = ToolRequest("")
    """Of a permission: what rules know of it."""
    suggestions: tuple[str, ...] = ()
    """Of a permission: rules that cover it and more."""
    program_can: bool = False
    """Of a permission: whether the agent's program can be told not to ask for this again in its session."""
    same: tuple[tuple[str, str], ...] = ()
    """Of a permission: all requests for the same, this one first, each by its agent and its id: one answer is for all
    of them."""

    @property
    def ref(self) -> str:
        """Its name among all questions."""
        return f"{self.owner}/{self.id}"

    @property
    def refs(self) -> list[str]:
        """The names of all requests that one answer is for."""
        return [f"{owner}/{id}" for owner, id in self.same] or [self.ref]

    @property
    def ids(self) -> list[str]:
        """The same without the names of the agents."""
        return [id for _owner, id in self.same] or [self.id]

    @property
    def is_for_program(self) -> bool:
        """Whether always means that the agent's program does not ask again: no rule can tell what it would cover."""
        return self.program_can and (not self.asked.tool or (self.asked.tool == SHELL and not self.asked.command))

    def with_answers(self) -> Open:
        """A request for permission with what can be answered to it, and what each answer does."""
        all_ = f", for all {len(self.same)} requests" if len(self.same) > 1 else ""
        found = {"yes": f"allow it this once{all_}", "no": f"refuse it{all_}; a reason is sent to the agent"}
        if self.is_for_program:
            found[ALWAYS] = "allow it, and have the agent's program not ask for the like again in this session"
        elif self.asked.tool and (self.asked.command or self.asked.tool != SHELL):
            what = "exactly this command" if self.asked.command else f"every use of {self.asked.tool}"
            whose = "all agents of this run" if self.run else "this agent"
            found[ALWAYS] = f"allow {what} from now on, for {whose}"
            found[NEVER] = f"refuse {what} from now on, for {whose}"
        return self._replace(choices=tuple(found), meanings=tuple(found.values()))


def grouped(asked: Sequence[Open]) -> list[Open]:
    """Questions with requests of one run, or of one agent, for the same as one question: same tool, same command."""
    found: dict[object, Open] = {}
    for each in asked:
        about = each.asked.command or json.dumps(each.input, sort_keys=True)
        key = (each.run or each.owner, each.tool, about) if each.kind == PERMISSION else (each.ref,)
        if key not in found:
            found[key] = each._replace(same=((each.owner, each.id),)) if each.kind == PERMISSION else each
        else:
            known = found[key]
            same = (*known.same, (each.owner, each.id))
            by = tuple(dict.fromkeys([*known.asked_by, *each.asked_by]))
            found[key] = known._replace(same=same, asked_by=by).with_answers()
    return list(found.values())


def find(every: Sequence[Open], given: str) -> Open:
    """The question that is meant: by its id, its id with its owner's, or an unambiguous beginning of either."""
    for exact in ([each for each in every if given in each.refs], [each for each in every if given in each.ids]):
        if len(exact) == 1:
            return exact[0]
    found = {each.ref: each for each in every if given and any(n.startswith(given) for n in (*each.refs, *each.ids))}
    return found[only(given, list(found), "question", hint="`maos inbox` lists open questions")]


def short(wanted: Open, asked: Sequence[Open], others: Sequence[Open] | None = None) -> str:
    """As much of a question's id as tells it from all `others`; while those are not known, as much as tells it from
    those of its run, whose id tells it from the rest."""
    if others is not None and len(wanted.id) < SHORT_CHARS_MIN:  # a step, which says nothing without its workflow
        return wanted.ref
    ways = [(wanted.ref, len(wanted.owner) + 1)]
    if others is not None:
        asked, ways = others, [(wanted.id, 0), *ways]
    for whole, begin in ways:
        for end in _ends(whole, begin):
            if sum(whole[:end] in (each.ref[:end], each.id[:end]) for each in asked) == 1:
                return whole[:end]
    return wanted.ref


def _ends(whole: str, begin: int) -> Iterator[int]:
    """Where an id may be cut: behind a part of it that says what it is about (`merge/api`), else behind any character
    (`q-3fa2`)."""
    if "/" in whole[begin:]:
        first = whole.index("/", begin) + 1
        yield from (first + place.start() for place in re.finditer("/", whole[first:]))
        yield len(whole)
    else:
        yield from range(min(begin + SHORT_CHARS_MIN, len(whole)), len(whole) + 1)


def check(question: Open, answer: str, why: str = "", *, asks_for_rule: bool = False) -> str:
    """The answer as it will be recorded: one of the choices, if there are any. With `asks_for_rule`, the person names
    the rule that always and never make."""
    said = answer.strip()
    if not said:
        raise InvalidInput("the answer is empty", hint="say something")
    if question.kind == UNKNOWN:
        raise InvalidInput(f"the outcome of step {question.id} is not answered but resolved", hint=question.context)
    if question.kind == PERMISSION and said.lower() in (ALWAYS, NEVER):
        if said.lower() not in question.choices and not asks_for_rule:
            raise InvalidInput("no rule can be made of this", hint="its program does not say what it is; say yes or no")
        return said.lower()
    if question.kind in (GATE, PERMISSION):
        is_yes = yes_or_no(said)
        if is_yes is None:
            others = "" if question.kind == GATE else ", always or never"
            raise InvalidInput(f"{said!r} is neither yes nor no", hint=f"say yes or no{others}")
        plain = "yes" if is_yes else "no"
        return f"no: {why}" if why and plain == "no" and question.kind == GATE else plain
    if question.kind == PLAN:
        is_yes = yes_or_no(said)
        return said if is_yes is None else "yes" if is_yes else "no"
    if question.choices:
        for each in question.choices:
            if said.casefold() == each.casefold():
                return each
        if said.isdigit() and 1 <= int(said) <= len(question.choices):
            return question.choices[int(said) - 1]
        raise InvalidInput(f"{said!r} is not a choice", hint=f"choose one of: {', '.join(question.choices)}")
    return answer


class TypedAnswer(NamedTuple):
    """What a person typed in one line."""

    answer: str
    why: str = ""
    scope: str = ""
    pattern: str = ""


def typed_answer(question: Open, said: str) -> TypedAnswer:
    """An answer with a reason, `no, use git mv`, or with a rule: `always`, `always pytest *`, `always for project`."""
    first, _, rest = said.strip().partition(" ")
    plain, rest = first.strip(",.:;").lower(), rest.strip()
    if question.kind == PERMISSION and plain in (ALWAYS, NEVER):
        found = _FOR.fullmatch(rest)
        return TypedAnswer(plain, "", *((found[1], found[2] or "") if found else ("", rest)))
    if question.kind in (GATE, PERMISSION) and yes_or_no(plain) is not None:
        return TypedAnswer(plain, rest)
    return TypedAnswer(said)


_FOR = regex(rf"for\s+(?:this\s+)?({'|'.join(SCOPES)})(?:\s+(.+))?", re.DOTALL)
