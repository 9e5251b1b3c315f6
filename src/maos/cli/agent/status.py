"""`maos agent list`, `show` and `kinds`: how agents are, as a list, as a page, and as the last words of a run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from maos.cli import documents, render
from maos.cli.agent import words
from maos.cli.commands import LazyCommand, full_option, json_option
from maos.cli.completion import agent_argument
from maos.cli.console import Field, Listing
from maos.cli.database import DatabaseTarget
from maos.cli.failures import FAILED, LIMIT_REACHED, MAY_PASS, NEEDS_PERSON, STOPPED
from maos.cli.plain import clean, wrap
from maos.model import failure as failures
from maos.model.agent_state import AgentState

if TYPE_CHECKING:
    from maos.agents.kinds import Installed
    from maos.app import Maos
    from maos.model.attempt import Attempt
    from maos.views.agents import AgentDetails, AgentStatus, AttemptInfo

LABEL_WIDTH = 12
SHOWN_MAX = 10
ABILITIES = ("resume", "steer", "cost", "mcp", "permission")
ENDINGS = {AgentState.DONE: "good", AgentState.FAILED: "bad"}
LIMITS = ("timed_out", "silent", "turns_reached", "budget_reached")

STYLES = {
    AgentState.PLANNED: "dim", AgentState.RUNNING: "green", AgentState.STOPPING: "yellow",
    AgentState.DETACHED: "bold yellow", AgentState.INTERRUPTED: "bold red", AgentState.FAILED: "red",
    AgentState.STOPPED: "dim",
}  # fmt: skip


def _doing(each: AgentStatus) -> str:
    text = each.activity if each.is_open else ending(each).partition(": ")[2] or each.result
    return words.one_line(text, 60)


AGENTS: Listing[AgentStatus] = Listing(
    "agents",
    (
        Field("agent", lambda each: each.agent, style="bold", yields=1),
        Field("kind", lambda each: each.kind, yields=1),
        Field("status", lambda each: each.status),
        Field("since", lambda each: render.when(each.since_us)),
        Field("cost", lambda each: words.money(each.cost_usd) if each.cost_usd else "", right=True),
        Field("tokens", lambda each: words.count(words.tokens(each.tokens)) if words.tokens(each.tokens) else "",
              right=True),
        Field("doing", _doing, style="dim", yields=2),
    ),
)  # fmt: skip


def _able(ability: str, each: Installed) -> str:
    return "yes" if getattr(each.capabilities, ability) else ""


KINDS: Listing[Installed] = Listing(
    "kinds",
    (
        Field("kind", lambda each: each.name, style="bold"),
        *(Field(name, partial(_able, name)) for name in ABILITIES),
        Field("here", lambda each: "missing" if each.missing else each.found or "yes", yields=2),
        Field("what it is", lambda each: each.summary, style="dim", yields=1),
    ),
)


# --- the list ----------------------------------------------------------------------------------------------------


@click.command("list", cls=LazyCommand, examples=["maos agent list", "maos agent list --all --json"])
@click.option("--all", "everything", is_flag=True, help="Also those that ended more than a day ago.")
@json_option
@click.pass_obj
def list_(database: DatabaseTarget, everything: bool, as_json: bool) -> None:
    """List the agents that run, and those that ran.

    Beside running, done, failed and stopped, an agent can be detached (it works and nobody records it; `maos agent
    attach` takes it up) or interrupted (it is gone and nobody concluded it; `maos agent resume` goes on).
    """

    async def work(m: Maos) -> tuple[list[AgentStatus], int]:
        return await m.agents.statuses(everything=everything)

    found, older = database.read(work)
    if as_json:
        AGENTS.show(found, as_json=True, older=older)
    else:
        show_list(found, older=older)


def show_list(found: Sequence[AgentStatus], *, older: int = 0) -> None:
    """Print agents, one a line, and how to go on with those that no engine records."""
    if found:
        AGENTS.table(found)
    elif not older:
        render.line("no agents; `maos agent run -- COMMAND` runs one")
    for each in found:
        if each.status in (AgentState.DETACHED, AgentState.INTERRUPTED):
            render.line(
                (clean(each.agent), "bold"), f" is {each.status}: ", (each.resumable or "", "bold"), " goes on with it"
            )
    if older:
        render.line((f"{render.many(older, 'agent')} ended more than a day ago (--all shows them)", "dim"))


# --- the page ----------------------------------------------------------------------------------------------------


@click.command(cls=LazyCommand, examples=["maos agent show nightly", "maos agent show nightly --json"])
@agent_argument
@full_option
@json_option
@click.pass_obj
def show(database: DatabaseTarget, agent: str, full: bool, as_json: bool) -> None:
    """Show everything that is known of an agent.

    Its attempts, what it does and waits for, why it failed and what to do about it, tools of which nobody knows whether
    they took effect, its files and checkpoints, and what it cost.
    """

    async def work(m: Maos) -> AgentDetails:
        return await m.agents.details(await m.agents.find(agent))

    found = database.read(work)
    if as_json:
        documents.show(documents.of(found))
    else:
        _Page(full=full).show(found)


class _Page:
    """The page about one agent."""

    def __init__(self, *, full: bool) -> None:
        self._full = full

    def show(self, now: AgentDetails) -> None:
        self._heading(now)
        self._field("task", now.task)
        self._field("doing", now.activity if now.is_open else "")
        self._field("result", "" if now.is_open else now.result)
        self._trouble(now)
        self._waiting(now)
        self._place(now)
        self._list("found", [f"{each.get('keyword', '')}: {each.get('text', '')}" for each in now.discoveries])
        self._list("checkpoints", [
            f"{each.name}  {render.when(each.time_us)}  {each.commit[:12] if each.commit else 'no files saved'}"
            for each in reversed(now.checkpoints)
        ])  # fmt: skip
        if len(now.attempts) > 1:
            rows = [f"{each.attempt}  {render.when(each.started_us)}  {ending(each)}" for each in now.attempts]
            self._list("attempts", rows[::-1])
        self._field("took", " · ".join([*_counts(now), *_figures(now)]))

    def _heading(self, now: AgentDetails) -> None:
        by = f" with {now.model}" if now.model else ""
        render.line(
            (clean(now.agent), "bold"), f"  {clean(now.kind)}{clean(by)}  ",
            (now.status, STYLES.get(now.status, "")), f" since {render.when(now.since_us)}",
        )  # fmt: skip
        self._field("", now.status.meaning)
        self._field("to go on", now.resumable or "", whole=True)

    def _trouble(self, now: AgentDetails) -> None:
        if now.status is AgentState.FAILED:
            self._field("failed", ending(now).partition(": ")[2])
            self._field("to do", _hint(now))
            if now.failure and now.failure.reset_us:
                self._field("not before", render.when(now.failure.reset_us))
        self._list("unknown", [f"{each} (may have taken effect)" for each in _tools_unknown(now)])

    def _waiting(self, now: AgentDetails) -> None:
        for asked in now.permissions:
            if "answer" not in asked:
                self._field("asks", words.tool(asked.get("tool", ""), asked.get("input")))
                self._field("", f"maos agent answer {now.agent} {asked['id']} yes|no", whole=True)

    def _place(self, now: AgentDetails) -> None:
        if now.is_open:
            engine = now.engine
            self._field("processes", f"agent {now.pid}, recorded by {engine.get('pid')} on {engine.get('host')}")
        self._field("works in", str(now.order.get("cwd", "")), whole=True)
        for line in _changes(now):
            self._field("", line.strip(), whole=True)
        self._field("session", now.session if now.kind != "shell" else "")

    def _list(self, label: str, rows: list[str]) -> None:
        shown = rows if self._full else rows[:SHOWN_MAX]
        for index, row in enumerate(shown):
            self._field(label if index == 0 else "", row)
        if len(rows) > len(shown):
            self._field("", f"… and {len(rows) - len(shown)} more (--full shows all)")

    def _field(self, label: str, text: str, *, whole: bool = False) -> None:
        """A line with a label; only what is to be copied is printed `whole` when it does not fit."""
        if not text:
            return
        room = None if self._full or whole else render.room_for_value(LABEL_WIDTH + 2)
        render.line((f"{label:<{LABEL_WIDTH}}  ", "dim"), words.one_line(text, room))


# --- the end of a run --------------------------------------------------------------------------------------------


def code_of(failure: str) -> int:
    """The exit code for a failure: who can do something about it."""
    if failure in LIMITS:
        return LIMIT_REACHED
    known = failures.TABLE.get(failure)
    action = known.action if known else failures.GIVE_UP
    by_action = {failures.NOTHING: STOPPED, failures.ASK: NEEDS_PERSON, failures.GIVE_UP: FAILED}
    return by_action.get(action, MAY_PASS)


def exit_code(now: AgentStatus) -> int:
    """The exit code for an agent that has ended."""
    return 0 if now.status is AgentState.DONE else code_of(now.failure.name if now.failure else "")


def ending(each: AgentStatus | AttemptInfo) -> str:
    """How an agent or an attempt ended, in a few words."""
    failure = each.failure
    said = {"failure": failure.name, "message": failure.message} if failure else {}
    return words.ending({"status": each.status, **said})


def show_end(now: AgentDetails) -> None:
    """Print on standard error how a run of an agent ended, and what a person can do next."""
    took = words.duration(max(0, now.ended_us - now.started_us) / 1e6) if now.ended_us else ""
    text = render.styled(clean(ending(now)), ENDINGS.get(now.status, "warning"), sys.stderr)
    click.echo("".join([text, *(f" · {part}" for part in [took, *_figures(now)] if part)]), err=True)
    for line in _changes(now):
        _tell(line)
    advice = _hint(now)
    if advice and not (now.resumable and "resume" in advice):
        _tell(f"  {advice}")
    if now.failure and now.failure.reset_us:
        _tell(f"  it can go on from {render.when(now.failure.reset_us)}")
    if now.tools_unknown:
        _tell(f"  unknown whether they took effect: {', '.join(_tools_unknown(now))}")
    _tell(f"  to go on: {now.resumable}" if now.resumable else f"  more: maos agent show {now.agent}")


def place_of(attempt: Attempt) -> list[str]:
    """Where an agent works, and what a person should know of that."""
    where = f"{attempt.agent} runs in {attempt.order.get('cwd', '?')}"
    workspace = attempt.workspace or {}
    if workspace.get("repository"):
        return [f"{where}, a git worktree of its own", *workspace.get("notes", ())]
    return [where, *(() if attempt.kind == "shell" else workspace.get("notes", ()))]


def _tell(text: str) -> None:
    click.echo(wrap(text, sys.stderr, indent="    "), err=True)


def _hint(now: AgentDetails) -> str:
    """What a person can do about a failure, with the agent's name in the commands."""
    advice = now.failure.hint if now.failure else ""
    for command in ("logs", "resume"):
        advice = advice.replace(f"`maos agent {command}`", f"`maos agent {command} {now.agent}`")
    return advice


def _figures(now: AgentStatus) -> list[str]:
    """What it took, as far as its program says so."""
    total = words.tokens(now.tokens)
    cost = [words.money(now.cost_usd)] if now.cost_usd else []
    return [*cost, f"{words.count(total)} tokens"] if total else cost


def _tools_unknown(now: AgentDetails) -> list[str]:
    """Tools of which it is unknown whether they took effect (I31)."""
    return [words.tool(each["name"], each["input"]) for each in now.tools_unknown]


def _changes(now: AgentDetails) -> list[str]:
    """What an agent did to the files."""
    if not now.files:
        return []
    added, removed = sum(each.added or 0 for each in now.files), sum(each.removed or 0 for each in now.files)
    lines = [f"  {render.many(len(now.files), 'file')} changed, +{added} -{removed}"]
    if not now.is_open:
        lines.append(f"  to look: maos agent diff {now.agent}, to take them: maos agent merge {now.agent}")
    return lines


def _counts(now: AgentDetails) -> list[str]:
    until_us = now.ended_us or now.output_us
    counted = (
        (now.turns, "turn"), (now.tools_done, "tool call"), (now.lines, "line"), (now.retries, "retry", "retries"),
    )  # fmt: skip
    took = words.duration((until_us - now.started_us) / 1e6) if until_us else ""
    return [each for each in (took, *(render.many(*each) for each in counted if each[0])) if each]


# --- kinds -------------------------------------------------------------------------------------------------------


@click.command(cls=LazyCommand, examples=["maos agent kinds", "maos agent kinds --json"])
@json_option
def kinds(as_json: bool) -> None:
    """List the kinds of agents, and which are on this machine.

    resume: goes on in its own session after it was killed. steer: takes messages while it works. cost: says what it
    costs. mcp: can be given tools. permission: asks before it does something, and can be answered.
    """
    from maos.agents import kinds as known  # loads what finds each kind's program

    found = known.installed()
    if as_json:
        rows = [
            {"kind": each.name, "summary": each.summary, "found": each.found or None, "missing": each.missing or None,
             "hint": each.hint or None, **{name: getattr(each.capabilities, name) for name in ABILITIES}}
            for each in found
        ]  # fmt: skip
        documents.show({"kinds": rows})
        return
    KINDS.table(found)
    for each in found:
        if each.missing:
            render.line((f"{each.name}: {each.missing}; ", "dim"), each.hint)
