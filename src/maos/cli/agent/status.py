"""`maos agent list`, `show`, `diff`, `merge` and `kinds`: what agents are, what they changed, and how they ended."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from maos.cli import documents, render, words
from maos.cli.commands import WHEN, agent_argument, full_option, json_command, options
from maos.cli.database import DatabaseTarget
from maos.cli.failures import CONFLICT, FAILED, LIMIT_REACHED, MAY_PASS, NEEDS_PERSON, STOPPED, report
from maos.cli.render import Column, Listing, clean, wrap
from maos.model import failure as failures
from maos.model.status import AgentState

if TYPE_CHECKING:
    from maos.agents.kinds import Installed
    from maos.app import Maos
    from maos.model.attempt import Attempt
    from maos.runs.status import Blocked, Conflicted, FileChange, Merged
    from maos.views.agents import AgentDetails, AgentStatus

T = TypeVar("T")

LABEL_WIDTH = 12
SHOWN_MAX = 10
ABILITIES = ("resume", "steer", "cost", "mcp", "permission")
ENDINGS = {AgentState.DONE: "good", AgentState.FAILED: "bad"}
LIMITS = ("timed_out", "silent", "turns_reached", "budget_reached")
RECORDED = (
    "owner", "pid", "folder", "session", "model", "order", "workspace", "lines", "retries", "troubles", "discoveries",
    "discovery_count", "tools_done",
)  # fmt: skip
"""What the document about an agent has of its newest attempt."""
ATTEMPT = (
    "number", "status", "failure", "message", "turns", "cost_usd", "tokens", "planned_us", "started_us", "ended_us",
    "checkpoints",
)  # fmt: skip
"""What it has of each attempt."""
SIGNS = {"added": ("+", "green"), "deleted": ("-", "red")}

STYLES = {
    AgentState.PLANNED: "dim", AgentState.RUNNING: "green", AgentState.STOPPING: "yellow",
    AgentState.DETACHED: "bold yellow", AgentState.INTERRUPTED: "bold red", AgentState.FAILED: "red",
    AgentState.STOPPED: "dim",
}  # fmt: skip


def _doing(each: AgentStatus) -> str:
    text = each.activity if each.is_open else ending(each).partition(": ")[2] or each.result
    return words.one_line(text, 60)


def _tokens(each: AgentStatus) -> str:
    spent = each.tokens
    total = spent.input + spent.output + spent.cache_read + spent.cache_write
    return words.count(total) if total else ""


AGENTS: Listing[AgentStatus] = Listing(
    "agents",
    (
        Column("agent", lambda each: each.agent, style="bold", yields=1),
        Column("kind", lambda each: each.kind, yields=1),
        Column("status", lambda each: each.status),
        Column("since", lambda each: render.when(each.since_us)),
        Column("cost", lambda each: words.money(each.cost_usd) if each.cost_usd else "", right=True),
        Column("tokens", _tokens, right=True),
        Column("doing", _doing, style="dim", yields=2),
    ),
)


def _able(ability: str, each: Installed) -> str:
    return "yes" if getattr(each.capabilities, ability) else ""


def _kind(each: Installed) -> documents.Document:
    said = {name: getattr(each, name) or None for name in ("found", "missing", "hint")}
    return {"kind": each.name, "summary": each.summary, **said, **documents.of(each.capabilities, *ABILITIES)}


KINDS: Listing[Installed] = Listing(
    "kinds",
    (
        Column("kind", lambda each: each.name, style="bold"),
        *(Column(name, partial(_able, name)) for name in ABILITIES),
        Column("here", lambda each: "missing" if each.missing else each.found or "yes", yields=2),
        Column("what it is", lambda each: each.summary, style="dim", yields=1),
    ),
    of=_kind,
)


log_options = options(
    click.option("-f", "--follow", is_flag=True, help="Continue until it has ended, whichever process runs it."),
    click.option("--attempt", "number", type=click.IntRange(min=1), metavar="N", help="Only this attempt of an agent."),
    click.option("--since", type=WHEN, help="Only what an agent did since a time: ISO 8601, or 15m, 2h, 3d ago."),
    click.option("--raw", is_flag=True, help="Exactly the bytes that an agent printed; not for terminals."),
)


def on_agent(agent: str, act: Callable[[Maos, str], Awaitable[T]]) -> Callable[[Maos], Awaitable[T]]:
    """Work on the agent of a name or of a unique prefix of one."""

    async def work(m: Maos) -> T:
        return await act(m, await m.agents.find(agent))

    return work


@json_command("maos agent list", "maos agent list --all --json")
@click.option("--all", "everything", is_flag=True, help="Also those that ended more than a day ago.")
def list_(database: DatabaseTarget, everything: bool, as_json: bool) -> None:
    """List the agents that run, and those that ran.

    Beside running, done, failed and stopped, an agent can be detached (it works, and no engine records it: `maos agent
    attach`) or interrupted (it has exited, and so has its engine: `maos agent resume`).
    """
    found, older = database.read(lambda m: m.agents.statuses(everything=everything))
    if as_json:
        AGENTS.show(found, as_json=True, older=older)
    else:
        show_list(found, older=older)


def show_list(found: Sequence[AgentStatus], *, older: int = 0) -> None:
    """Print agents, one a line, and how to continue with those that no engine records."""
    if found:
        AGENTS.table(found)
    elif not older:
        render.line("no agents; `maos agent run -- COMMAND` runs one")
    for each in found:
        if each.status in (AgentState.DETACHED, AgentState.INTERRUPTED) and each.resumable:
            render.line((clean(each.agent), "bold"), f" is {each.status}; {words.continue_with(each.resumable)}")
    if older:
        render.line((f"{render.many(older, 'agent')} ended more than a day ago (--all shows them)", "dim"))


# --- the page ----------------------------------------------------------------------------------------------------


@json_command("maos agent show nightly", "maos agent show nightly --json")
@agent_argument
@full_option
def show(database: DatabaseTarget, agent: str, full: bool, as_json: bool) -> None:
    """Show everything that is known of an agent.

    Its attempts, what it does and waits for, why it failed and what to do about it, tools whose outcome is unknown,
    its files and checkpoints, and what it cost.
    """
    import msgspec

    found = database.read(on_agent(agent, lambda m, name: m.agents.details(name)))
    now, newest = found.now, found.newest
    if as_json:
        more = {
            "tools_open": msgspec.to_builtins(newest.tools_open),
            "permissions": msgspec.to_builtins(newest.permissions),
            "files": documents.of(found.files),
            "attempts": [documents.of(each, *ATTEMPT) for each in found.attempts],
        }
        documents.show({**documents.of(now), **documents.of(newest, *RECORDED), **more})
        return
    model = f" with {newest.model}" if newest.model else ""
    status = (now.status, STYLES.get(now.status, ""))
    heading = f"  {clean(now.kind)}{clean(model)}  "
    render.line((clean(now.agent), "bold"), heading, status, f" since {render.when(now.since_us)}")
    for label, text, whole in _rows(found, None if full else SHOWN_MAX):
        room = None if full or whole else render.room_for_value(LABEL_WIDTH + 2)
        if text:
            render.line((f"{label:<{LABEL_WIDTH}}  ", "dim"), words.one_line(text, room))


class PageRow(NamedTuple):
    """A line of the page about an agent; one that is to be copied is printed whole, and an empty one not at all."""

    label: str
    text: str
    whole: bool = False


def _rows(found: AgentDetails, most: int | None) -> Iterator[PageRow]:
    """The page about an agent, with at most so many lines of each list."""
    now, newest = found.now, found.newest
    ended = not now.is_open
    yield PageRow("", now.status.meaning)
    yield PageRow("next", now.resumable or "", whole=True)
    yield PageRow("task", now.task)
    yield PageRow("doing", "" if ended else now.activity)
    yield PageRow("result", now.result if ended else "")
    if now.status is AgentState.FAILED:
        yield PageRow("failed", ending(now).partition(": ")[2])
        yield PageRow("to do", _hint(now), whole=True)
        yield PageRow("not before", render.when(now.failure.reset_us) if now.failure and now.failure.reset_us else "")
    yield from _list("unknown", [f"{each} (may have taken effect)" for each in _tools_unknown(newest)], most)
    for asked in newest.permissions.values():
        if asked.is_open:
            yield PageRow("asks", words.tool(asked.tool, asked.input))
            yield PageRow("", f"maos agent answer {now.agent} {asked.id} yes|no", whole=True)
    engine = newest.owner
    processes = f"agent {newest.pid}, recorded by {engine.get('pid')} on {engine.get('host')}"
    yield PageRow("processes", "" if ended else processes)
    yield PageRow("works in", str(newest.order.get("cwd", "")), whole=True)
    yield from (PageRow("", line, whole=True) for line in _changes(found))
    yield PageRow("session", newest.session if now.kind != "shell" else "")
    yield from _list("found", [f"{each.keyword}: {each.text}" for each in newest.discoveries], most)
    points = [
        f"attempt {attempt.number}  {each.name}  {render.when(each.at_us)}  {(each.commit or 'no files')[:12]}"
        for attempt in reversed(found.attempts)
        for each in reversed(attempt.checkpoints)
    ]
    yield from _list("checkpoints", points, most)
    attempts = [
        f"{each.number}  {render.when(each.started_us or each.planned_us)}  "
        f"{words.ending(each.status, each.failure, each.message)}"
        for each in reversed(found.attempts)
    ]
    yield from _list("attempts", attempts if len(attempts) > 1 else [], most)
    yield PageRow("took", " · ".join([*_counts(now, newest), *_figures(now)]))


def _list(label: str, lines: list[str], most: int | None) -> Iterator[PageRow]:
    for index, line in enumerate(lines[:most]):
        yield PageRow("" if index else label, line)
    if most is not None and len(lines) > most:
        yield PageRow("", f"… and {len(lines) - most} more (--full shows all)")


def _hint(now: AgentStatus) -> str:
    """What a person can do about a failure, with the agent's name in the commands."""
    advice = now.failure.hint if now.failure else ""
    for verb in ("logs", "resume"):
        advice = advice.replace(f"`maos agent {verb}`", f"`maos agent {verb} {now.agent}`")
    return advice


def _tools_unknown(newest: Attempt) -> list[str]:
    """Tools that may or may not have taken effect (I31)."""
    return [words.tool(each.name, each.input) for each in newest.tools_open.values()]


def _changes(found: AgentDetails) -> list[str]:
    """What an agent did to the files."""
    if not found.files:
        return []
    lines = [words.changed(found.files)]
    if not found.now.is_open:
        agent = found.now.agent
        lines.append(f"to look: maos agent diff {agent}, to merge them: maos agent merge {agent}")
    return lines


def _counts(now: AgentStatus, newest: Attempt) -> list[str]:
    until_us = now.ended_us or now.output_us
    counted = (
        (now.turns, "turn"), (newest.tools_done, "tool call"), (newest.lines, "line"),
        (newest.retries, "retry", "retries"),
    )  # fmt: skip
    took = words.duration((until_us - now.started_us) / 1e6) if until_us else ""
    return [each for each in (took, *(render.many(*each) for each in counted if each[0])) if each]


def _figures(now: AgentStatus) -> list[str]:
    """What it took, as far as its program says so."""
    tokens = _tokens(now)
    cost = [words.money(now.cost_usd)] if now.cost_usd else []
    return [*cost, f"{tokens} tokens"] if tokens else cost


@json_command("maos agent diff fixer", "maos agent diff fixer --patch | less", "maos agent diff fixer --json")
@agent_argument
@click.option("--patch", is_flag=True, help="Show the changes themselves, as a patch that git can apply.")
def diff(database: DatabaseTarget, agent: str, patch: bool, as_json: bool) -> None:
    """Show which files an agent has changed, up to its last checkpoint."""
    found = database.read(on_agent(agent, lambda m, name: m.agents.diff(name, patch=patch)))
    if as_json:
        documents.show(found)
    elif found.patch is not None:
        sys.stdout.write(clean(found.patch, lines=True) if sys.stdout.isatty() else found.patch)
    elif not found.files:
        render.line((clean(found.agent), "bold"), " has changed no files")
    else:
        show_files(found.files)


def show_files(files: Sequence[FileChange]) -> None:
    """Print which files were changed, one a line."""
    for each in files:
        sign, style = SIGNS.get(each.kind, ("~", "yellow"))
        render.line((f"{sign} ", style), clean(each.path), (f"  {words.counts(each)}", "dim"))


@json_command("maos agent merge fixer", "maos agent merge fixer --message 'Fix the parser' --json")
@agent_argument
@click.option("--into", type=click.Path(exists=True, file_okay=False), default=".", help="The folder to merge into.")
@click.option("--message", default="", help="The message of the commit.  [default: the agent's task]")
def merge(database: DatabaseTarget, agent: str, into: str, message: str, as_json: bool) -> int:
    """Merge the work of an agent into the branch checked out here.

    As one commit, all of it or nothing: files that both sides changed are named, and so are changes of yours that are
    in the way.
    """

    async def work(m: Maos) -> tuple[str, Merged | Conflicted | Blocked]:
        name = await m.agents.find(agent)
        return name, await m.agents.merge(name, into=into, message=message)

    name, done = database.write(work)
    by_hand = f"tell it what changed, or apply its patch: `maos agent diff {name} --patch`"
    return show_merge("agent", name, done, f"`maos agent resume {name}` and {by_hand}", as_json=as_json)


def show_merge(noun: str, name: str, done: Any, by_hand: str, *, as_json: bool) -> int:
    """Print what merging the work of an agent or a run did, and return the exit code; `by_hand` is for a conflict."""
    outcome = type(done).__name__.lower()
    code = 0 if outcome == "merged" else CONFLICT
    if as_json:
        unknown = {"commit": "", "messages": (), "why": "", "hint": ""}
        documents.show({noun: name, "outcome": outcome, "files": done.files, **unknown, **done._asdict()})
        return code
    if outcome == "blocked":
        report(f"{done.why}: {', '.join(done.files)}" if done.files else done.why, done.hint)
    elif outcome == "conflicted":
        report(f"both sides changed {', '.join(done.files)}; nothing was merged", f"commit yours, then {by_hand}")
    elif not done.files:
        render.line("nothing to merge: your branch has everything already")
    else:
        files = render.many(len(done.files), "file")
        render.line((clean(name), "bold"), f": {files} merged as commit {done.commit[:12]}")
    return code


# --- the end of an attempt ---------------------------------------------------------------------------------------


def code_of(failure: str) -> int:
    """The exit code for a failure: it says who can do something about it."""
    if failure in LIMITS:
        return LIMIT_REACHED
    known = failures.TABLE.get(failure)
    action = known.action if known else failures.GIVE_UP
    by_action = {failures.NOTHING: STOPPED, failures.ASK: NEEDS_PERSON, failures.GIVE_UP: FAILED}
    return by_action.get(action, MAY_PASS)


def exit_code(now: AgentStatus) -> int:
    """The exit code for an agent that has ended."""
    return 0 if now.status is AgentState.DONE else code_of(now.failure.name if now.failure else "")


def ending(each: AgentStatus) -> str:
    """How an agent ended, in a few words."""
    failure = each.failure
    return words.ending(each.status, failure.name, failure.message) if failure else words.ending(each.status)


def show_end(found: AgentDetails) -> None:
    """Print on standard error how an agent in the foreground ended, and what a person can do next."""
    now, unknown = found.now, ", ".join(_tools_unknown(found.newest))
    took = words.duration(max(0, now.ended_us - now.started_us) / 1e6) if now.ended_us else ""
    text = render.styled(clean(ending(now)), ENDINGS.get(now.status, "warning"), sys.stderr)
    click.echo("".join([text, *(f" · {part}" for part in [took, *_figures(now)] if part)]), err=True)
    advice, failure = _hint(now), now.failure
    lines = [
        *_changes(found),
        "" if now.resumable and "resume" in advice else advice,
        f"it can be resumed from {render.when(failure.reset_us)}" if failure and failure.reset_us else "",
        f"unknown whether they took effect: {unknown}" if unknown else "",
        words.continue_with(now.resumable) if now.resumable else f"more: maos agent show {now.agent}",
    ]
    for line in lines:
        if line:
            click.echo(wrap(f"  {line}", sys.stderr, indent="    "), err=True)


def place_of(attempt: Attempt) -> list[str]:
    """Where an agent works, and what a person should know of that."""
    where = f"{attempt.agent} runs in {attempt.order.get('cwd', '?')}"
    workspace = attempt.workspace or {}
    if workspace.get("repository"):
        return [f"{where}, a git worktree of its own", *workspace.get("notes", ())]
    return [where, *(() if attempt.kind == "shell" else workspace.get("notes", ()))]


@json_command("maos agent kinds", "maos agent kinds --json")
def kinds(_database: DatabaseTarget, as_json: bool) -> None:
    """List the kinds of agents, and which are on this machine.

    resume: resumes its own session after it was killed. steer: accepts messages while it works. cost: reports what it
    costs. mcp: can be given tools. permission: asks before it does something, and can be answered.
    """
    from maos.agents import kinds as known  # loads what finds each kind's program

    found = known.installed()
    KINDS.show(found, as_json=as_json)
    for each in found:
        if each.missing and not as_json:
            render.line((f"{each.name}: {each.missing}; ", "dim"), each.hint)
